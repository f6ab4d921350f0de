/* SPDX-License-Identifier: Apache-2.0 */
/* storage/store/read.c reads content, directly or through the cache, and tries
 * again after failures. */
#include "config.h"

#include "store_i.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "rsh/util/mem.h"

int rsh_store_pread(struct rsh_store *s, uint32_t file, struct rsh_handle *h,
		    void *buf, size_t len, uint64_t offset)
{
	struct rsh_store_file *f = &s->files[file];
	struct rsh_store_load load = { s, f, h };
	struct iovec iov = { buf, len };
	int rc;

	if (rsh_file_is_cached(s, f, h)) {
		struct rsh_cache *cache = s->opts.io->cache;
		const struct rsh_cache_loader loader = {
			rsh_file_load_blocks, &load, f->medium->ops->is_made,
		};

		/* Neighbouring ranges are mostly read at the same time: missing
		 * blocks are loaded before this read waits for blocks that
		 * others load. */
		rc = -rsh_cache_prefetch(cache, f->cached, offset, len,
					 &loader) ?:
		     -rsh_cache_read(cache, f->cached, offset, buf,
				     len, &loader);
		/* A load of more bytes may have touched the damage. */
		if (rc == EBADMSG)
			rc = rsh_file_read(&load, &iov, 1, len, offset);
	} else {
		rc = rsh_file_read(&load, &iov, 1, len, offset);
	}
	if (rc == 0)
		rsh_file_flip(s, f, offset, buf, len);
	return rc;
}

struct rsh_handle *rsh_store_attempt(struct rsh_store *s,
				     struct rsh_attempts *a)
{
	struct rsh_store_file *f = &s->files[a->file];
	bool over = false;

	if (a->handle) {
		a->code = rsh_store_finish(s, a->file, a->handle, a->code);
		a->handle = NULL;
		over = !a->code || !rsh_outage_again(s, f, a->code, a);
	}
	while (!over) {
		a->began = atomic_load(&s->outage.n_returns);
		a->code = rsh_store_take(s, a->file, &a->handle);
		if (a->code == 0)
			return a->handle;
		over = !rsh_outage_again(s, f, a->code, a);
	}
	a->rc = a->code ? rsh_reader_errno(f, a->code) : 0;
	if (a->rc == 0 && atomic_load(&f->state) != RSH_FILE_GOOD)
		rsh_outage_went_well(s, f);
	return NULL;
}

int rsh_store_read(struct rsh_store *s, uint32_t file, uint64_t offset,
		   void *buf, size_t len, const struct rsh_wait *wait)
{
	struct rsh_attempts a = { .file = file, .wait = wait };
	struct rsh_handle *h;

	while ((h = rsh_store_attempt(s, &a))) {
		a.code = rsh_store_pread(s, file, h, buf, len, offset);
		rsh_store_spent(s, h, offset, len, false);
	}
	return a.rc;
}

/* ---- files as they are ---- */

int rsh_store_descriptor(struct rsh_store *s, uint32_t file, int *out)
{
	struct rsh_attempts a = { .file = file };
	cleanup_fd int copy = -1;
	struct rsh_handle *h;
	int rc;

	if (!s->files[file].medium->ops->descriptor)
		return -ENOTSUP;
	while ((h = rsh_store_attempt(s, &a))) {
		if (copy >= 0)
			close(copy);
		copy = fcntl(h->medium->ops->descriptor(h), F_DUPFD_CLOEXEC, 0);
	}
	rc = a.rc;
	if (rc == 0 && copy < 0)
		rc = -EMFILE;
	if (rc == 0)
		*out = steal_fd(&copy);
	return rc;
}

int rsh_store_check(struct rsh_store *s, uint32_t file, int fd)
{
	struct rsh_store_file *f = &s->files[file];
	struct rsh_attempts last = {
		.n = 1, .began = atomic_load(&s->outage.n_returns),
	};
	int code = rsh_files_compare(&f->id, fd, true);

	if (code == 0)
		return 0;
	rsh_outage_again(s, f, code, &last);
	return rsh_reader_errno(f, code);
}
