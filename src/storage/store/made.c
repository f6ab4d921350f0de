/* SPDX-License-Identifier: Apache-2.0 */
/* storage/store/made.c is the medium of files that are made of others. */
#include "config.h"

#include "store_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/storage/made.h"
#include "rsh/util/clock.h"
#include "rsh/util/mem.h"
#include "rsh/util/xxh3.h"

struct made {
	struct rsh_medium base;
	struct rsh_made of;
};

struct made_handle {
	struct rsh_handle base;
	uint32_t file;
	uint64_t size;
};

static const struct rsh_made *made_of(const struct rsh_medium *m)
{
	return &((const struct made *)m)->of;
}

static int made_open(struct rsh_medium *m, const char *name,
		     struct rsh_handle **out)
{
	const struct rsh_made *of = made_of(m);
	struct made_handle *h = calloc(1, sizeof(*h));
	int rc = h ? of->find(of->ctx, name, &h->file, &h->size) : -ENOMEM;

	if (rc) {
		free(h);
		return rc;
	}
	h->base.medium = m;
	*out = &h->base;
	return 0;
}

static const struct timespec *later(const struct timespec *a,
				    const struct timespec *b)
{
	return rsh_clock_compare(a, b) > 0 ? a : b;
}

/* Only those may read it that may read all of n inputs. */
static void made_stat(const struct rsh_store *s, uint32_t n,
		      struct rsh_stat *out)
{
	out->kind = RSH_IS_FILE;
	for (uint32_t i = 0; i < n; i++) {
		const struct rsh_store_attr *a = &s->files[i].attr;

		if (i == 0) {
			out->attr = *a;
			continue;
		}
		out->attr.mode &= rsh_store_mode_as(a, out->attr.uid,
						    out->attr.gid);
		out->attr.mtime = *later(&out->attr.mtime, &a->mtime);
		out->attr.ctime = *later(&out->attr.ctime, &a->ctime);
	}
}

static int made_look(struct rsh_medium *m, const char *name,
		     struct rsh_stat *out)
{
	const struct rsh_made *of = made_of(m);
	uint32_t file;

	made_stat(of->inputs, of->inputs->n_files, out);
	return of->find(of->ctx, name, &file, &out->size);
}

/* Hashes what tells n inputs from others. */
static void made_hash(const struct rsh_store *s, uint32_t n, uint32_t file,
		      bool shared, uint64_t out[2])
{
	XXH128_hash_t hash = { file, n };

	for (uint32_t i = 0; i < n; i++) {
		const struct rsh_store_file *f = &s->files[i];
		uint64_t words[9] = {
			hash.low64, hash.high64, f->id.which[0],
			f->id.which[1], f->id.size, f->id.place,
			(uint64_t)f->id.mtime.tv_sec,
			(uint64_t)f->id.mtime.tv_nsec * 1000000007 +
			(uint64_t)f->id.ctime.tv_nsec,
			(uint64_t)f->id.ctime.tv_sec,
		};

		if (shared)
			f->medium->ops->share(f->medium, f->name, &f->id,
					      words + 2);
		hash = XXH3_128bits(words, sizeof(words));
	}
	out[0] = hash.low64;
	out[1] = hash.high64;
}

/* Identifies a file that is made of the first n inputs. */
static void made_describe(const struct rsh_store *s, uint32_t n, uint32_t file,
			  uint64_t size, struct rsh_store_identity *id,
			  struct rsh_stat *st)
{
	st->size = size;
	made_stat(s, n, st);
	if (!id)
		return;
	*id = (struct rsh_store_identity){
		.size = size, .mtime = st->attr.mtime,
		.ctime = st->attr.ctime, .keeps_ctime = true,
	};
	for (uint32_t i = 0; i < n; i++)
		id->keeps_ctime &= s->files[i].id.keeps_ctime;
	made_hash(s, n, file, false, id->which);
}

static int made_identify(const struct rsh_handle *h,
			 struct rsh_store_identity *id, struct rsh_stat *st)
{
	const struct rsh_store *s = made_of(h->medium)->inputs;
	const struct made_handle *mine = (const struct made_handle *)h;
	struct rsh_stat all = { .size = 0 };

	made_describe(s, s->n_files, mine->file, mine->size, id, &all);
	if (st)
		*st = all;
	return 0;
}

/* An input without a name that is equal on all nodes has zeros, and so has what
 * is made of it. */
static void made_share(const struct rsh_medium *m, const char *name,
		       const struct rsh_store_identity *id, uint64_t out[2])
{
	const struct rsh_made *of = made_of(m);
	uint64_t size, one[2];
	uint32_t file;

	(void)id;
	out[0] = out[1] = 0;
	for (uint32_t i = 0; i < of->inputs->n_files; i++) {
		const struct rsh_store_file *f = &of->inputs->files[i];

		f->medium->ops->share(f->medium, f->name, &f->id, one);
		if (!one[0] && !one[1])
			return;
	}
	if (of->find(of->ctx, name, &file, &size) == 0)
		made_hash(of->inputs, of->inputs->n_files, file, true, out);
}

static int made_compare(const struct rsh_handle *h,
			const struct rsh_store_identity *id, bool anew)
{
	struct rsh_store *s = made_of(h->medium)->inputs;
	int code = 0;

	(void)id, (void)anew;
	for (uint32_t i = 0; code == 0 && i < s->n_files; i++) {
		struct rsh_handle *input;

		code = rsh_store_take(s, i, &input) ?:
		       rsh_store_finish(s, i, input, 0);
	}
	return code;
}

static ssize_t made_read(struct rsh_handle *h, const struct iovec *iov, int n,
			 uint64_t offset)
{
	const struct rsh_made *of = made_of(h->medium);
	const struct made_handle *mine = (const struct made_handle *)h;
	ssize_t all = 0;

	for (int i = 0; i < n; i++) {
		const ssize_t got = of->read(of->ctx, mine->file,
					     iov[i].iov_base, iov[i].iov_len,
					     offset + (uint64_t)all);

		if (got < 0)
			return got == -ESTALE ? -RSH_CHANGED : got;
		all += got;
		if ((size_t)got < iov[i].iov_len)
			break;
	}
	return all;
}

static void made_start(struct rsh_medium *m)
{
	atomic_store(&made_of(m)->inputs->serves, true);
}

static void made_free(struct rsh_medium *m)
{
	const struct rsh_made *of = made_of(m);

	of->close(of->ctx);
	free(m);
}

static const struct rsh_medium_ops made_ops = {
	.keeps_nothing = true,
	.tries_again = true,
	.is_made = true,
	.free = made_free,
	.start = made_start,
	.open = made_open,
	.look = made_look,
	.identify = made_identify,
	.share = made_share,
	.compare = made_compare,
	.read = made_read,
};

int rsh_store_join_made(struct rsh_store *s, const char *directory,
			const struct rsh_made *of)
{
	struct made *m = calloc(1, sizeof(*m));
	struct rsh_joined j = { .directory = strdup(directory) };

	if (!m || !j.directory ||
	    rsh_room(s->joined, s->cap_joined, (size_t)s->n_joined + 1)) {
		free(m);
		free(j.directory);
		of->close(of->ctx);
		return -ENOMEM;
	}
	m->base.ops = &made_ops;
	m->base.dirfd = -1;
	m->base.is_remote = of->inputs->medium->is_remote;
	m->of = *of;
	j.medium = &m->base;
	for (uint32_t i = 0; i < s->n_joined; i++) {
		if (strcmp(s->joined[i].directory, directory) != 0)
			continue;
		s->joined[i].medium->ops->free(s->joined[i].medium);
		s->joined[i].medium = j.medium;
		free(j.directory);
		return 0;
	}
	s->joined[s->n_joined++] = j;
	return 0;
}

/* Reads for a scan: it has no injected faults and is not counted. */
static int scan_input(struct rsh_store *s, uint32_t file, uint64_t offset,
		      void *buf, size_t len)
{
	struct rsh_handle *h;
	int code = rsh_store_take(s, file, &h);

	if (code)
		return code == RSH_CHANGED ? -ESTALE : -code;
	for (size_t done = 0; code == 0 && done < len;) {
		const ssize_t n = rsh_handle_pread(h, (char *)buf + done,
						   len - done, offset + done);

		code = n > 0 ? 0 : n == 0 ? RSH_CHANGED : (int)-n;
		done += n > 0 ? (size_t)n : 0;
	}
	code = rsh_store_finish(s, file, h, code);
	return code == RSH_CHANGED ? -ESTALE : -code;
}

int rsh_store_read_input(struct rsh_store *s, uint32_t file, uint64_t offset,
			 void *buf, size_t len)
{
	struct rsh_attempts a = { .file = file };
	struct rsh_handle *h;

	if (!atomic_load(&s->serves))
		return scan_input(s, file, offset, buf, len);
	while ((h = rsh_store_attempt(s, &a))) {
		const struct rsh_store_load load = { s, &s->files[file], h };
		struct iovec iov = { buf, len };

		a.code = rsh_file_read(&load, &iov, 1, len, offset);
		if (a.code == 0)
			rsh_file_flip(s, &s->files[file], offset, buf, len);
	}
	return a.rc;
}

uint32_t rsh_store_find_made(struct rsh_store *inputs, uint32_t n_inputs,
			     uint32_t file, uint64_t size, uint64_t epoch)
{
	const struct rsh_store_io *io = inputs->opts.io;
	struct rsh_store_identity id;
	struct rsh_stat st = { .size = 0 };

	if (!io || !io->cache || !size)
		return RSH_CACHE_FILE_NONE;
	made_describe(inputs, n_inputs, file, size, &id, &st);
	return rsh_file_in_cache(io, &id, epoch, 0);
}

bool rsh_store_peek_made(struct rsh_store *inputs, uint32_t made,
			 uint64_t offset, void *buf, size_t len)
{
	return made != RSH_CACHE_FILE_NONE &&
	       rsh_cache_peek(inputs->opts.io->cache, made, offset, buf, len);
}
