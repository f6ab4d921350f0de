/* fuse/device.c - requests and replies on their way between libfuse and
 * /dev/fuse: what Debian 12's libfuse cannot ask the kernel for is added to its
 * answer to INIT. */
#include "config.h"

#include "ops_i.h"

#include <errno.h>
#include <linux/fuse.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

/* FUSE_DIRECT_IO_ALLOW_MMAP, Linux 6.6, as it stands in flags2: files that are
 * read past the page cache may be mapped shared all the same. */
#define ALLOW_MMAP_FLAG2 (1u << 4)

/* In a kernel's INIT and in our answer, both without padding. */
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
	if (r.header.opcode != FUSE_INIT || !(r.init.flags & FUSE_INIT_EXT) ||
	    !(r.init.flags2 & ALLOW_MMAP_FLAG2))
		return;
	atomic_store(&s->init_unique, r.header.unique);
	s->may_map = true;
}

/* The connection's first request is INIT; nothing is read beside it until it
 * is answered. */
static ssize_t read_request(int fd, void *buf, size_t len, void *userdata)
{
	struct rsh_server *s = userdata;
	ssize_t n = read(fd, buf, len);

	if (n > 0 && !atomic_exchange(&s->init_read, true))
		note_init(s, buf, (size_t)n);
	return n;
}

static void add_flags(struct fuse_init_out *out)
{
	out->flags |= FUSE_INIT_EXT;
	out->flags2 |= ALLOW_MMAP_FLAG2;
}

static ssize_t write_reply(int fd, struct iovec *iov, int count, void *userdata)
{
	struct rsh_server *s = userdata;
	const struct fuse_out_header *header = iov[0].iov_base;
	uint64_t init = atomic_load(&s->init_unique);

	if (init && header->unique == init && header->error == 0) {
		atomic_store(&s->init_unique, 0);
		if (count == 2 && iov[1].iov_len >= sizeof(struct fuse_init_out))
			add_flags(iov[1].iov_base);
	}
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
