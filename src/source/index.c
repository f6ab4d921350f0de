/* SPDX-License-Identifier: Apache-2.0 */
/* source/index.c scans the headers of all files, several at a time, except
 * files that the index cache has.
 *
 * Threads: the workers exist only during rsh_source_index().  A separate thread
 * writes new indexes to the index cache.  Workers share the table of distinct
 * indexes and the first damaged file; each file is handled by one worker.
 */
#include "config.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "kept_i.h"
#include "scan_prefetch_i.h"
#include "source_i.h"

#include <errno.h>
#include <inttypes.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/source/inspect.h"
#include "rsh/util/files.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/thread.h"
#include "rsh/wire/bytes.h"
#include "rsh/wire/file_type.h"
#include "rsh/wire/safetensors.h"

/* ---- indexes by a hash ---- */

/* A table is a tsearch() tree; NULL: it is empty. */
struct kept {
	XXH128_hash_t hash;
	const struct rsh_ckpt_index *index;
};

static int kept_compare(const void *a, const void *b)
{
	return XXH128_cmp(a, b); /* the hash is the first member */
}

static const struct rsh_ckpt_index *
table_find(void *const *table, XXH128_hash_t hash)
{
	const struct kept key = { hash, NULL };
	struct kept **found = tfind(&key, table, kept_compare);

	return found ? (*found)->index : NULL;
}

static int table_keep(void **table, XXH128_hash_t hash,
		      const struct rsh_ckpt_index *index)
{
	struct kept *k = malloc(sizeof(*k));
	struct kept **found;

	if (!k)
		return -ENOMEM;
	*k = (struct kept){ hash, index };
	found = tsearch(k, table, kept_compare);
	if (!found || *found != k)
		free(k);
	return found ? 0 : -ENOMEM;
}

/* ---- headers of safetensors files ---- */

/* Ranks mostly save tensors with the same names and shapes, and parsing the
 * JSON of a header is most of the cost of a scan.  A file with the same size
 * and header as an earlier one has the same index. */
struct header {
	uint8_t *bytes; /* the file's beginning up to the end of the header;
			 * NULL: this is not a header, or memory is out */
	size_t n;
	XXH128_hash_t hash; /* of the bytes and of the file's size */
	const struct rsh_byte_source *file;
};

#define LENGTH_BYTES 8

static void header_read(const struct rsh_byte_source *file, struct header *out)
{
	uint8_t length[LENGTH_BYTES];
	cleanup_free uint8_t *bytes = NULL;
	uint64_t n = 0;

	*out = (struct header){ .file = file };
	if (file->size < LENGTH_BYTES ||
	    rsh_bytes_read(file, length, sizeof(length), 0, NULL))
		return;
	for (unsigned i = LENGTH_BYTES; i-- > 0;)
		n = n << 8 | length[i];
	if (n > RSH_SAFETENSORS_HEADER_MAX || n > file->size - LENGTH_BYTES)
		return;
	bytes = rsh_alloc_array((size_t)n + LENGTH_BYTES, 1);
	if (!bytes ||
	    rsh_bytes_read(file, bytes, (size_t)n + LENGTH_BYTES, 0, NULL))
		return;
	out->n = (size_t)n + LENGTH_BYTES;
	/* The size is included because it decides whether the header is
	 * valid. */
	out->hash = XXH3_128bits_withSeed(bytes, out->n, file->size);
	out->bytes = steal_pointer(&bytes);
}

static ssize_t header_pread(void *ctx, void *buf, size_t len, uint64_t offset)
{
	const struct header *h = ctx;

	if (offset >= h->n || len > h->n - offset)
		return h->file->pread_fn(h->file->ctx, buf, len, offset);
	memcpy(buf, h->bytes + offset, len);
	return (ssize_t)len;
}

/* ---- indexing ---- */

/* This is the state of a file in the index cache. */
struct caching {
	struct rsh_index_key key;
	bool settled; /* the index may be stored */
	bool known;   /* the index is already stored */
};

struct indexing {
	struct rsh_source *source;
	struct rsh_names *names;

	time_t began;
	struct caching *caching; /* by file; NULL: no index cache */
	atomic_uint n_scanned;
	atomic_flag told_no_ctime;

	pthread_mutex_t lock; /* guards all below, source->indexes, n_bad,
			       * first_bad and unread */
	/* [number of a stored index]: the shared index; NULL: it was not read
	 * yet. */
	const struct rsh_ckpt_index **stored;
	void *distinct; /* table of source->indexes by their hash */
	void *headers;  /* table by the hash of a header */
	uint32_t bad_file;    /* lowest file that was left out */
	uint32_t unread_file; /* lowest one that cannot be read now */
};

/* Ranks of one stage mostly have the same records at the same offsets, so a
 * thousand ranks may need only one index. */
static int index_share(struct indexing *x, struct rsh_source_file *f,
		       struct rsh_ckpt_index *ix)
{
	const XXH128_hash_t hash = { .low64 = rsh_ckpt_index_hash(ix) };
	struct rsh_source *s = x->source;
	int rc = 0;

	pthread_mutex_lock(&x->lock);
	f->index = table_find(&x->distinct, hash);
	if (!f->index || !rsh_ckpt_index_equal(f->index, ix)) {
		rc = rsh_room(s->indexes, s->cap_indexes,
			      (size_t)s->n_indexes + 1) ?:
		     table_keep(&x->distinct, hash, ix);
		f->index = rc ? NULL : (s->indexes[s->n_indexes++] = ix);
	}
	pthread_mutex_unlock(&x->lock);
	if (f->index != ix)
		rsh_ckpt_index_free(ix);
	return rc;
}

/* ---- scanning ---- */

static int index_scan_bytes(struct indexing *x, uint32_t file,
			    const struct rsh_handle *h,
			    const struct rsh_byte_source *bytes,
			    struct rsh_error *err)
{
	struct rsh_source *s = x->source;
	const struct rsh_scan_job job = {
		.source = s, .file = file, .bytes = bytes, .names = x->names,
		.how = s->check == RSH_CHECK_FULL ? RSH_SCAN_CRC :
						    RSH_SCAN_HEADERS,
	};
	struct rsh_ckpt_index *ix;
	int rc = s->format->scan ? s->format->scan(&job, &ix, err) :
		 rsh_file_scan(s->type, bytes, job.how != RSH_SCAN_HEADERS,
			       x->names, &ix, err);

	if (rc)
		return rc;
	if (rsh_store_compare(s->store, file, h)) {
		rsh_ckpt_index_free(ix);
		return rsh_error_set(err, EAGAIN, "%s: it is being written",
				     bytes->path);
	}
	return index_share(x, &s->files[file], ix) ? rsh_error_nomem(err) : 0;
}

static int index_scan(struct indexing *x, uint32_t file, struct rsh_handle *h,
		      struct rsh_error *err)
{
	struct rsh_source *s = x->source;
	struct rsh_store_scan ctx = { s->store, file, h };
	const struct rsh_byte_source bytes = {
		.pread_fn = rsh_store_scan_pread,
		.ctx = &ctx,
		.size = rsh_store_identity(s->store, file)->size,
		.path = rsh_store_path(s->store, file),
	};
	const struct rsh_ckpt_index *same;
	struct rsh_byte_source behind;
	struct header header;
	int rc = 0;

	if (s->format->scan || s->type != RSH_FILE_SAFETENSORS) {
		struct rsh_scan_prefetch *g = rsh_scan_prefetch_new(
			&bytes, rsh_scan_prefetch_suited(s->far, s->n_files));

		behind = rsh_scan_prefetch_source(g, &bytes);
		rc = index_scan_bytes(x, file, h, &behind, err);
		rsh_scan_prefetch_free(g);
		return rc;
	}
	/* A checksum needs all bytes, so the whole file is scanned. */
	if (s->check == RSH_CHECK_FULL)
		return index_scan_bytes(x, file, h, &bytes, err);
	header_read(&bytes, &header);
	behind = *header.file;
	if (header.bytes) {
		behind.pread_fn = header_pread;
		behind.ctx = &header;
	}
	/* A file with the same header may have been indexed. */
	pthread_mutex_lock(&x->lock);
	same = header.bytes ? table_find(&x->headers, header.hash) : NULL;
	pthread_mutex_unlock(&x->lock);
	if (same && !rsh_store_compare(s->store, file, h)) {
		s->files[file].index = same;
	} else {
		rc = index_scan_bytes(x, file, h, &behind, err);
		pthread_mutex_lock(&x->lock);
		if (rc == 0 && header.bytes &&
		    table_keep(&x->headers, header.hash, s->files[file].index))
			rc = rsh_error_nomem(err);
		pthread_mutex_unlock(&x->lock);
	}
	free(header.bytes);
	header.bytes = NULL;
	return rc;
}

/* ---- the index cache ---- */

/* At the beginning several workers may read the same stored index; only one
 * copy is kept. */
static int index_take_stored(struct indexing *x, struct rsh_source_file *f,
			     uint32_t which)
{
	struct rsh_ckpt_index *ix;
	int rc;

	pthread_mutex_lock(&x->lock);
	f->index = x->stored[which];
	pthread_mutex_unlock(&x->lock);
	if (f->index)
		return 0;
	rc = rsh_index_cache_load(x->source->index_cache, which, x->names,
				  &ix) ?:
	     index_share(x, f, ix);
	if (rc)
		return rc;
	pthread_mutex_lock(&x->lock);
	x->stored[which] = f->index;
	pthread_mutex_unlock(&x->lock);
	return 0;
}

/* Returns true if the index was stored; the file then has it. */
static bool index_is_stored(struct indexing *x, uint32_t file,
			    const struct rsh_handle *h)
{
	struct rsh_source *s = x->source;
	struct rsh_source_file *f = &s->files[file];
	struct caching *c = &x->caching[file];
	uint32_t which;

	if (rsh_index_key_take(h, &c->key) ||
	    rsh_store_compare(s->store, file, h))
		return false;
	c->settled = rsh_index_key_settled(&c->key, x->began);
	if (!c->key.keeps_ctime &&
	    !atomic_flag_test_and_set(&x->told_no_ctime))
		rsh_log_info("%s: the index cache is not used: %s", s->path,
			     rsh_store_unseen(s->store));
	if (!rsh_index_cache_find(s->index_cache, &c->key, &which))
		return false;
	/* With checksums the content must be read again, so a stored index is
	 * not used. */
	c->known = s->check == RSH_CHECK_FULL ||
		   index_take_stored(x, f, which) == 0;
	if (!f->index || (f->index->file_bytes == c->key.size &&
			  (!s->format->scan ||
			   !s->format->scan(&(struct rsh_scan_job){
					.source = s, .file = file,
					.names = x->names, .stored = f->index,
				}, NULL, NULL))))
		return f->index;
	f->index = NULL;
	c->known = false;
	return false;
}

/* Stores the new indexes. */
static void index_save_new(struct indexing *x)
{
	struct rsh_source *s = x->source;
	cleanup_free struct rsh_index_entry *entries =
		rsh_alloc_array(s->n_files, sizeof(*entries));
	uint32_t n = 0;
	bool any = false;

	for (uint32_t i = 0; entries && i < s->n_files; i++) {
		const struct rsh_source_file *f = &s->files[i];
		const struct caching *c = &x->caching[i];

		if (!f->index || !c->settled)
			continue;
		any |= !c->known;
		entries[n++] = (struct rsh_index_entry){ c->key, f->index };
	}
	if (any)
		rsh_index_cache_save(s->index_cache, entries, n, x->names);
	else
		rsh_index_cache_forget(s->index_cache);
}

/* If memory is out, no index cache is used. */
static void index_open_cache(struct indexing *x)
{
	struct rsh_source *s = x->source;
	struct rsh_index_cache *c;
	char step[256];

	/* The cache must neither hide nor store injected faults. */
	if (s->index_dirfd < 0 || !rsh_store_is_true(s->store))
		return;
	*step = '\0';
	if (s->n_candidates > 0)
		rsh_source_chosen_text(s, step, sizeof(step));
	c = rsh_index_cache_open(s->index_dirfd,
				 rsh_store_root_identity(s->store), step,
				 s->path);
	if (!c)
		return;
	x->began = time(NULL);
	x->caching = calloc((size_t)s->n_files + 1, sizeof(*x->caching));
	x->stored = calloc((size_t)c->n_blobs + 1, sizeof(*x->stored));
	if (!x->caching || !x->stored) {
		free(x->caching);
		x->caching = NULL;
		rsh_index_cache_close(c);
		return;
	}
	s->index_cache = c;
}

/* ---- one file ---- */

static int index_file(struct indexing *x, uint32_t file, struct rsh_error *err)
{
	struct rsh_source *s = x->source;
	cleanup_handle struct rsh_handle *h = NULL;
	int rc = rsh_store_identify(s->store, file, &h, err);

	if (rc)
		return rc;
	if (!x->caching || !index_is_stored(x, file, h)) {
		atomic_fetch_add(&x->n_scanned, 1);
		rc = index_scan(x, file, h, err);
		if (rc)
			return rc;
	}
	rsh_store_adopt(s->store, file, steal_pointer(&h));
	return 0;
}

static void index_leave_out(struct indexing *x, uint32_t file,
			    const struct rsh_error *err)
{
	struct rsh_source *s = x->source;

	free(s->files[file].why);
	s->files[file].why = strdup(err->text);
	pthread_mutex_lock(&x->lock);
	if (s->n_bad++ == 0 || file < x->bad_file) {
		s->first_bad = *err;
		x->bad_file = file;
	}
	if (rsh_errno_is_unread(err->code) &&
	    (!s->unread.code || file < x->unread_file)) {
		s->unread = *err;
		x->unread_file = file;
	}
	pthread_mutex_unlock(&x->lock);
	if (rsh_source_owner(s) != RSH_OWNER_MODEL)
		rsh_log_info("%s: the file is left out", err->text);
}

/* The workers call this; an error stops all of them. */
static int index_or_leave_out(void *ctx, size_t i, struct rsh_error *err)
{
	struct indexing *x = ctx;
	int rc = index_file(x, (uint32_t)i, err);

	if (rc == 0 || err->code == ENOMEM || err->code == EXDEV)
		return rc;
	index_leave_out(x, (uint32_t)i, err);
	return 0;
}

/* A job writes checksums for all files or for none.  If only some files have
 * one, a file without it is truncated at the end of a record, or its metadata
 * are damaged. */
static void index_leave_out_cut(struct indexing *x)
{
	struct rsh_source *s = x->source;
	struct rsh_error err = RSH_ERROR_INIT;
	const bool any = rsh_any(i, s->n_files, s->files[i].index &&
						s->files[i].index->has_crc);

	for (uint32_t i = 0; any && i < s->n_files; i++) {
		if (!s->files[i].index || s->files[i].index->has_crc)
			continue;
		rsh_error_set(&err, EBADMSG, "%s: it has no CRC, but files of "
			      "other ranks have one",
			      rsh_store_path(s->store, i));
		index_leave_out(x, i, &err);
		s->files[i].index = NULL;
	}
}

/* Scans a file that does not belong to the checkpoint. */
static int index_beside(struct rsh_source *s, uint32_t file,
			struct rsh_names *names, struct rsh_error *err)
{
	cleanup_handle struct rsh_handle *h = NULL;
	struct rsh_store_scan ctx = { s->store, file, NULL };
	struct rsh_byte_source bytes = {
		.pread_fn = rsh_store_scan_pread, .ctx = &ctx,
		.path = rsh_store_path(s->store, file),
	};
	struct rsh_ckpt_index *ix;
	int rc = rsh_store_identify(s->store, file, &h, err);

	if (rc)
		return rc;
	ctx.handle = h;
	bytes.size = rsh_store_identity(s->store, file)->size;
	rc = rsh_has_suffix(bytes.path, ".bin") ?
		s->scan_bin(&bytes, false, names, &ix, err) :
		rsh_file_scan(RSH_FILE_SAFETENSORS, &bytes, false, names, &ix,
			      err);
	if (rc)
		return rc;
	if (rsh_push(s->indexes, s->n_indexes, s->cap_indexes, ix)) {
		rsh_ckpt_index_free(ix);
		return rsh_error_nomem(err);
	}
	s->files[file].index = ix;
	s->view_index[s->files[file].rank] = ix;
	if (rsh_store_compare(s->store, file, h))
		return rsh_error_set(err, EAGAIN, "%s: it is being written",
				     bytes.path);
	rsh_store_adopt(s->store, file, steal_pointer(&h));
	return 0;
}

int rsh_source_index(struct rsh_source *s, struct rsh_names *names,
		     struct rsh_error *err)
{
	struct indexing x = {
		.source = s, .names = names,
		.told_no_ctime = ATOMIC_FLAG_INIT,
	};
	int rc;
	uint64_t n = 0;

	if (pthread_mutex_init(&x.lock, NULL))
		return rsh_error_nomem(err);
	index_open_cache(&x);
	/* Computing checksums keeps the processors busy, so more threads than
	 * processors do not help. */
	rc = rsh_parallel_for(s->check == RSH_CHECK_FULL ? s->n_threads :
			      rsh_source_scan_threads(s), s->n_files,
			      index_or_leave_out, &x, err);
	if (s->check == RSH_CHECK_FULL)
		index_leave_out_cut(&x);
	/* All files of a job are similar, so there is one warning for all. */
	for (uint32_t i = 0; i < s->n_files; i++)
		n += s->files[i].index ? s->files[i].index->n_unsummed : 0;
	if (n > 0)
		rsh_log_warning("%s: %" PRIu64
				" items have no CRC, since torch "
				"computed none: their contents cannot be "
				"checked", s->path, n);
	if (x.caching)
		index_save_new(&x);
	pthread_mutex_destroy(&x.lock);
	tdestroy(x.distinct, free);
	tdestroy(x.headers, free);
	free(x.stored);
	free(x.caching);
	for (uint32_t i = 0; rc == 0 && i < s->n_beside; i++)
		rc = index_beside(s, s->n_files + i, names, err);
	if (rc)
		return rc;
	rsh_log_info("%s: %u files indexed, %u of them read, %u different",
		     s->path, s->n_files, atomic_load(&x.n_scanned),
		     s->n_indexes);
	if (rsh_source_kinds_tell(s) || rsh_store_start(s->store))
		return rsh_error_nomem(err);
	/* No other file can replace a part of a model. */
	if (rsh_source_owner(s) == RSH_OWNER_MODEL && s->n_bad > 0)
		return rsh_error_set(err, s->first_bad.code, "%s",
				     s->first_bad.text);
	return rsh_source_join(s, names, err);
}

/* ---- whether a step is whole ---- */

/* Ranks write their files independently of each other, and nothing says which
 * ranks there are except the strategy and the files of other steps. */
static int whole_check_ranks(const struct rsh_source *s, struct rsh_error *err)
{
	cleanup_free uint32_t *ranks = NULL;
	size_t n = s->n_listed_ranks, at = 0;

	if (n == UINT32_MAX && rsh_source_ranks(s, &ranks, &n))
		return rsh_error_nomem(err);
	if (s->n_files == 0)
		return rsh_error_set(err, ENOENT, "%s: it contains no "
				     "checkpoint", s->path);
	/* The chosen files ascend by rank. */
	for (size_t i = 0; i < n; i++) {
		const uint32_t rank = ranks ? ranks[i] :
				      s->first_rank + (uint32_t)i;

		if (at == s->n_files || s->files[at].rank != rank)
			return rsh_error_set(err, ENOENT, "%s: rank %u has no "
					     "file of this step", s->path,
					     rank);
		at++;
	}
	return 0;
}

int rsh_source_judge(const struct rsh_source *s, bool ended,
		     struct rsh_error *err)
{
	int rc = s->format->judge ? s->format->judge(s, ended, err) : 0;

	if (rc && rc != -ENOMEM)
		rsh_error_place(err, s->path);
	return rc;
}

int rsh_source_check_whole(struct rsh_source *s, uint32_t candidate,
			   struct rsh_names *names, struct rsh_error *err)
{
	int rc = rsh_source_choose(s, candidate, err) ?:
		 rsh_source_index(s, names, err);

	if (rc)
		return rc;
	if (s->n_bad > 0)
		return rsh_error_set(err, s->first_bad.code, "%s",
				     s->first_bad.text);
	if (s->facts->n_absent)
		return rsh_error_set(err, ENOENT, "%s: %s is missing", s->path,
				     s->facts->absent[0].name);
	if (s->format->owner != RSH_OWNER_RANK)
		return rsh_source_judge(s, true, err);
	return rsh_source_check_counters(s, names, err) ?:
	       whole_check_ranks(s, err);
}
