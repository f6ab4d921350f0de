/* source/index.c - scanning the headers of all files, several at a time.
 *
 * Threads: the workers live only during rsh_source_index(), so that a caller
 * may fork(2) afterwards.  They share the counter of the next file, the table
 * of distinct indexes and what is known of bad files; each file is touched by
 * the one worker that drew it. */
#include "config.h"

#include "source_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/wire/format.h"

/* A scan waits for one small read after the other: what the storage takes at
 * once counts, not the processors.  A checksum keeps both busy. */
#define SCAN_THREADS 32
#define MAX_THREADS 64

struct indexing {
	struct rsh_source *source;
	struct rsh_names *names;
	atomic_uint next;
	atomic_bool failed; /* memory is out */

	pthread_mutex_t lock; /* guards all below, source->indexes, n_bad and
			       * first_bad */
	uint64_t *hashes;     /* of source->indexes, same order */
	size_t cap_hashes;
	uint32_t bad_file;    /* lowest one that is left out */
};

struct scan_file {
	int fd;
};

static ssize_t scan_pread(void *ctx, void *buf, size_t len, uint64_t offset)
{
	const struct scan_file *f = ctx;
	ssize_t n;

	do {
		n = pread(f->fd, buf, len, (off_t)offset);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

static int scan(const struct rsh_source *s, struct rsh_source_file *f, int fd,
		struct rsh_names *names, struct rsh_ckpt_index **out,
		struct rsh_error *err)
{
	struct scan_file ctx = { fd };
	const struct rsh_byte_source bytes = {
		.pread_fn = scan_pread,
		.ctx = &ctx,
		.size = (uint64_t)f->id.size,
		.path = f->path,
	};
	int rc = rsh_format_scan(s->format, &bytes, s->check_crc, names, out,
				 err);

	if (rc || rsh_file_is_same(f, fd))
		return rc;
	rsh_ckpt_index_free(*out);
	return rsh_error_set(err, ESTALE, "%s: it is being written", f->path);
}

/* Lock held. */
static const struct rsh_ckpt_index *find_equal(struct indexing *x,
					       const struct rsh_ckpt_index *ix,
					       uint64_t hash)
{
	const struct rsh_source *s = x->source;

	for (uint32_t i = 0; i < s->n_indexes; i++)
		if (x->hashes[i] == hash &&
		    rsh_ckpt_index_equal(s->indexes[i], ix))
			return s->indexes[i];
	return NULL;
}

/* Lock held.  Takes the index over if it succeeds. */
static int add_distinct(struct indexing *x, struct rsh_ckpt_index *ix,
			uint64_t hash)
{
	struct rsh_source *s = x->source;
	size_t need = (size_t)s->n_indexes + 1;

	if (rsh_grow(&s->indexes, &s->cap_indexes, need,
		     sizeof(*s->indexes)) ||
	    rsh_grow(&x->hashes, &x->cap_hashes, need, sizeof(*x->hashes)))
		return -ENOMEM;
	x->hashes[s->n_indexes] = hash;
	s->indexes[s->n_indexes++] = ix;
	return 0;
}

/* Ranks of one stage mostly have the same records at the same places; a
 * thousand ranks then need one index. */
static int share(struct indexing *x, struct rsh_source_file *f,
		 struct rsh_ckpt_index *ix)
{
	uint64_t hash = rsh_ckpt_index_hash(ix);
	int rc = 0;

	pthread_mutex_lock(&x->lock);
	f->index = find_equal(x, ix, hash);
	if (!f->index) {
		rc = add_distinct(x, ix, hash);
		if (rc == 0)
			f->index = ix;
	}
	pthread_mutex_unlock(&x->lock);
	if (f->index != ix)
		rsh_ckpt_index_free(ix);
	return rc;
}

static int index_file(struct indexing *x, struct rsh_source_file *f,
		      struct rsh_error *err)
{
	struct rsh_ckpt_index *ix;
	cleanup_fd int fd = -1;
	int rc = rsh_file_identify(x->source, f, &fd, err);

	if (rc == 0)
		rc = scan(x->source, f, fd, x->names, &ix, err);
	if (rc)
		return rc;
	if (share(x, f, ix))
		return rsh_error_nomem(err);
	rsh_file_adopt(x->source, f, steal_fd(&fd));
	return 0;
}

static void leave_out(struct indexing *x, uint32_t file,
		      const struct rsh_error *err)
{
	struct rsh_source *s = x->source;

	pthread_mutex_lock(&x->lock);
	if (s->n_bad++ == 0 || file < x->bad_file) {
		s->first_bad = *err;
		x->bad_file = file;
	}
	pthread_mutex_unlock(&x->lock);
	if (!s->in_parts)
		rsh_log_warning("%s: the file is left out", err->text);
}

static void *worker(void *arg)
{
	struct indexing *x = arg;
	struct rsh_error err = RSH_ERROR_INIT;

	while (!atomic_load(&x->failed)) {
		uint32_t i = atomic_fetch_add(&x->next, 1);

		if (i >= x->source->n_files)
			break;
		if (index_file(x, &x->source->files[i], &err) == 0)
			continue;
		if (err.code == ENOMEM)
			atomic_store(&x->failed, true);
		else
			leave_out(x, i, &err);
	}
	return NULL;
}

static unsigned wanted_threads(const struct rsh_source *s)
{
	long n = s->n_threads ? (long)s->n_threads :
		 s->check_crc ? sysconf(_SC_NPROCESSORS_ONLN) : SCAN_THREADS;

	if (n > (long)s->n_files)
		n = (long)s->n_files;
	if (n > MAX_THREADS)
		n = MAX_THREADS;
	return n < 1 ? 1 : (unsigned)n;
}

static void run_workers(struct indexing *x)
{
	unsigned n = wanted_threads(x->source), started = 0;
	pthread_t threads[MAX_THREADS];

	/* Fewer threads than wanted are only slower. */
	while (started + 1 < n &&
	       pthread_create(&threads[started], NULL, worker, x) == 0)
		started++;
	worker(x);
	for (unsigned i = 0; i < started; i++)
		pthread_join(threads[i], NULL);
}

/* A job writes trailers or it does not: a file without one among others that
 * have it was cut at the end of a record. */
static void leave_out_cut_files(struct indexing *x)
{
	struct rsh_source *s = x->source;
	struct rsh_error err = RSH_ERROR_INIT;
	bool any = false;

	for (uint32_t i = 0; i < s->n_files; i++)
		any |= s->files[i].index && s->files[i].index->has_crc;
	for (uint32_t i = 0; any && i < s->n_files; i++) {
		if (!s->files[i].index || s->files[i].index->has_crc)
			continue;
		rsh_error_set(&err, EBADMSG, "%s: it has no CRC, but files of "
			      "other ranks have one", s->files[i].path);
		leave_out(x, i, &err);
		s->files[i].index = NULL;
	}
}

static int join_parts(struct rsh_source *s, const struct rsh_names *names,
		      struct rsh_error *err)
{
	if (s->n_bad == 0)
		return rsh_model_join(s, names, err);
	/* Nothing makes up for a part. */
	return rsh_error_set(err, s->first_bad.code, "%s", s->first_bad.text);
}

int rsh_source_index(struct rsh_source *s, struct rsh_names *names,
		     struct rsh_error *err)
{
	struct indexing x = {
		.source = s, .names = names,
	};

	if (pthread_mutex_init(&x.lock, NULL))
		return rsh_error_nomem(err);
	run_workers(&x);
	if (s->check_crc)
		leave_out_cut_files(&x);
	pthread_mutex_destroy(&x.lock);
	free(x.hashes);
	if (atomic_load(&x.failed))
		return rsh_error_nomem(err);
	rsh_source_io_attach(s);
	if (s->in_parts)
		return join_parts(s, names, err);
	for (uint32_t i = 0; i < s->n_files; i++)
		s->view_index[s->files[i].rank] = s->files[i].index;
	rsh_log_info("%s: %u files indexed, %u different", s->path, s->n_files,
		     s->n_indexes);
	return 0;
}
