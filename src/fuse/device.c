/* SPDX-License-Identifier: Apache-2.0 */
/* fuse/device.c stands between libfuse and /dev/fuse: what Debian 12's libfuse
 * cannot say to the kernel, it adds to the answers to INIT and OPEN. */
#include "config.h"

#include "ops_i.h"

#include <errno.h>
#include <linux/fuse.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* This is FUSE_DIRECT_IO_ALLOW_MMAP, Linux 6.6, as it stands in flags2: files
 * that are read past the page cache may be mapped shared all the same. */
#define ALLOW_MMAP_FLAG2 (1u << 4)

#ifndef HAVE_FUSE_PASSTHROUGH
/* This is FUSE_PASSTHROUGH, Linux 6.9, and what belongs to it; older headers of
 * the kernel do not have it either. */
#define PASSTHROUGH_FLAG2 (1u << 5)
#define OPEN_PASSTHROUGH (1u << 7)
#define STACK_DEPTH_AT (offsetof(struct fuse_init_out, flags2) + 4)
#define BACKING_ID_AT (offsetof(struct fuse_open_out, open_flags) + 4)

struct backing_map {
	int32_t fd;
	uint32_t flags;
	uint64_t padding;
};
#define BACKING_OPEN _IOW(229, 1, struct backing_map)
#define BACKING_CLOSE _IOW(229, 2, uint32_t)

/* The next reply of this thread carries this id. */
static _Thread_local int32_t next_backing;
#else
#define PASSTHROUGH_FLAG2 0u
#endif

/* The kernel's INIT and our answer look like this, both without padding. */
struct init_request {
	struct fuse_in_header header;
	struct fuse_init_in init;
};

static void note_init(struct rsh_server *s, const void *buf, size_t n)
{
	const size_t need = offsetof(struct init_request, init.flags2) +
			    sizeof(((struct init_request *)NULL)->init.flags2);
	struct init_request r;

	if (n < need)
		return;
	memcpy(&r, buf, need);
	if (r.header.opcode != FUSE_INIT || !(r.init.flags & FUSE_INIT_EXT))
		return;
	atomic_store(&s->init_unique, r.header.unique);
	s->may_map = r.init.flags2 & ALLOW_MMAP_FLAG2;
	s->may_pass = r.init.flags2 & PASSTHROUGH_FLAG2;
}

/* The connection's first request is INIT; nothing is read beside it until it
 * is answered. */
static ssize_t read_request(int fd, void *buf, size_t len, void *userdata)
{
	struct rsh_server *s = userdata;
	ssize_t n = read(fd, buf, len);

	/* The mount went while a request was being handed over. libfuse knows
	 * such an end only between two requests, and would call this one an
	 * error. */
	if (n < 0 && errno == ECONNABORTED)
		errno = ENODEV;
	if (n > 0 && !atomic_exchange(&s->init_read, true))
		note_init(s, buf, (size_t)n);
	return n;
}

static void add_flags(const struct rsh_server *s, struct fuse_init_out *out)
{
	out->flags |= FUSE_INIT_EXT;
	if (s->may_map)
		out->flags2 |= ALLOW_MMAP_FLAG2;
#ifndef HAVE_FUSE_PASSTHROUGH
	if (s->stack_depth) {
		out->flags2 |= PASSTHROUGH_FLAG2;
		memcpy((uint8_t *)out + STACK_DEPTH_AT, &s->stack_depth,
		       sizeof(s->stack_depth));
	}
#endif
}

#ifndef HAVE_FUSE_PASSTHROUGH
static void add_backing(struct fuse_open_out *out)
{
	out->open_flags |= OPEN_PASSTHROUGH;
	memcpy((uint8_t *)out + BACKING_ID_AT, &next_backing,
	       sizeof(next_backing));
}

int rsh_device_backing_open(const struct rsh_server *s, int fd)
{
	struct backing_map map = { .fd = fd };
	int id = ioctl(fuse_session_fd(s->session), BACKING_OPEN, &map);

	return id > 0 ? id : -errno;
}

void rsh_device_backing_close(const struct rsh_server *s, int32_t id)
{
	ioctl(fuse_session_fd(s->session), BACKING_CLOSE, &id);
}

void rsh_device_reply_backing(int32_t id)
{
	next_backing = id;
}
#endif

static ssize_t write_reply(int fd, struct iovec *iov, int count, void *userdata)
{
	struct rsh_server *s = userdata;
	const struct fuse_out_header *header = iov[0].iov_base;
	uint64_t init = atomic_load(&s->init_unique);

	if (init && header->unique == init && header->error == 0) {
		atomic_store(&s->init_unique, 0);
		if (count == 2 && iov[1].iov_len >= sizeof(struct fuse_init_out))
			add_flags(s, iov[1].iov_base);
	}
#ifndef HAVE_FUSE_PASSTHROUGH
	if (next_backing && header->error == 0 && count == 2 &&
	    iov[1].iov_len >= sizeof(struct fuse_open_out))
		add_backing(iov[1].iov_base);
	next_backing = 0;
#endif
	return writev(fd, iov, count);
}

int rsh_device_attach(struct rsh_server *s)
{
	static const struct fuse_custom_io io = {
		.read = read_request,
		.writev = write_reply,
	};

	return fuse_session_custom_io(s->session, &io,
				      fuse_session_fd(s->session)) ? -EINVAL : 0;
}
