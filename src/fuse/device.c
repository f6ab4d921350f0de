/* SPDX-License-Identifier: Apache-2.0 */
/* fuse/device.c requests passthrough from the kernel, and shared mappings of
 * files that bypass the page cache.  There are three ways, depending on the
 * libfuse that configure found: libfuse requests it (3.17); this file adds the
 * flags to what libfuse writes to /dev/fuse (3.13); or it is not requested, and
 * the page cache is used. */
#include "config.h"

#include "ops_i.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#pragma GCC diagnostic ignored "-Wunused-parameter"

#if defined(HAVE_FUSE_PASSTHROUGH) || !defined(HAVE_FUSE_CUSTOM_IO)

int rsh_device_attach(struct rsh_server *s)
{
	return 0;
}

#endif

#if defined(HAVE_FUSE_PASSTHROUGH)

void rsh_device_init(struct rsh_server *s, struct fuse_conn_info *conn)
{
	s->may_map = conn->capable & FUSE_CAP_DIRECT_IO_ALLOW_MMAP;
	if (s->may_map)
		conn->want |= FUSE_CAP_DIRECT_IO_ALLOW_MMAP;
}

bool rsh_device_ask_passthrough(struct rsh_server *s,
				struct fuse_conn_info *conn, unsigned below)
{
	if (!(conn->capable & FUSE_CAP_PASSTHROUGH))
		return false;
	conn->want |= FUSE_CAP_PASSTHROUGH;
	conn->max_backing_stack_depth = below;
	return true;
}

int rsh_device_backing_open(const struct rsh_server *s, fuse_req_t req, int fd,
			    struct rsh_error *refused)
{
	int id;

	rsh_libfuse_listen(refused);
	id = fuse_passthrough_open(req, fd);
	rsh_libfuse_listen(NULL);
	return id;
}

void rsh_device_backing_close(const struct rsh_server *s, fuse_req_t req,
			      int id)
{
	fuse_passthrough_close(req, id);
}

void rsh_device_reply_backing(struct fuse_file_info *fi, int id)
{
	fi->backing_id = id;
}

#elif defined(HAVE_FUSE_CUSTOM_IO)

#include <linux/fuse.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* This is FUSE_DIRECT_IO_ALLOW_MMAP (Linux 6.6), as a bit of flags2: files that
 * bypass the page cache allow shared mappings. */
#define ALLOW_MMAP_FLAG2 (1u << 4)

/* These are FUSE_PASSTHROUGH (Linux 6.9) and its related values.  Older kernel
 * headers do not define them. */
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

/* The next reply of this thread gets this backing id. */
static _Thread_local int32_t next_backing;

/* The kernel's INIT has this form.  It has no padding. */
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

/* The first request of a connection is INIT.  No other request is read until it
 * is answered. */
static ssize_t read_request(int fd, void *buf, size_t len, void *userdata)
{
	struct rsh_server *s = userdata;
	ssize_t n = read(fd, buf, len);

	/* libfuse would print an error for this normal end of the mount
	 * (loop.c). */
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
	if (s->stack_depth) {
		out->flags2 |= PASSTHROUGH_FLAG2;
		memcpy((uint8_t *)out + STACK_DEPTH_AT, &s->stack_depth,
		       sizeof(s->stack_depth));
	}
}

static void add_backing(struct fuse_open_out *out)
{
	out->open_flags |= OPEN_PASSTHROUGH;
	memcpy((uint8_t *)out + BACKING_ID_AT, &next_backing,
	       sizeof(next_backing));
}

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
	if (next_backing && header->error == 0 && count == 2 &&
	    iov[1].iov_len >= sizeof(struct fuse_open_out))
		add_backing(iov[1].iov_base);
	next_backing = 0;
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

/* note_init() has set may_map. */
void rsh_device_init(struct rsh_server *s, struct fuse_conn_info *conn)
{
}

bool rsh_device_ask_passthrough(struct rsh_server *s,
				struct fuse_conn_info *conn, unsigned below)
{
	s->stack_depth = s->may_pass ? below + 1 : 0;
	return s->may_pass;
}

int rsh_device_backing_open(const struct rsh_server *s, fuse_req_t req, int fd,
			    struct rsh_error *refused)
{
	struct backing_map map = { .fd = fd };
	int id = ioctl(fuse_session_fd(s->session), BACKING_OPEN, &map);

	if (id > 0)
		return id;
	rsh_error_set(refused, errno, "%s", strerror(errno));
	return 0;
}

void rsh_device_backing_close(const struct rsh_server *s, fuse_req_t req,
			      int id)
{
	uint32_t number = (uint32_t)id;

	ioctl(fuse_session_fd(s->session), BACKING_CLOSE, &number);
}

void rsh_device_reply_backing(struct fuse_file_info *fi, int id)
{
	next_backing = id;
}

#else

void rsh_device_init(struct rsh_server *s, struct fuse_conn_info *conn)
{
}

bool rsh_device_ask_passthrough(struct rsh_server *s,
				struct fuse_conn_info *conn, unsigned below)
{
	return false;
}

int rsh_device_backing_open(const struct rsh_server *s, fuse_req_t req, int fd,
			    struct rsh_error *refused)
{
	rsh_error_set(refused, ENOSYS, "%s", strerror(ENOSYS));
	return 0;
}

void rsh_device_backing_close(const struct rsh_server *s, fuse_req_t req,
			      int id)
{
}

void rsh_device_reply_backing(struct fuse_file_info *fi, int id)
{
}

#endif
