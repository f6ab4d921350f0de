/* SPDX-License-Identifier: Apache-2.0 */
/* storage/store/io.c reads the content of files: all reads of content come
 * here. */
#include "config.h"

#include "store_i.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

#include "rsh/util/blocking.h"
#include "rsh/util/checked.h"
#include "rsh/util/clock.h"
#include "rsh/util/files.h"
#include "rsh/util/mem.h"

/* A retry reads at most this much of a range that failed. */
#define AGAIN_BYTES (1024 * 1024)

/* The page cache consists of folios of up to this length, and drops complete
 * ones only. */
#define PIECE_BYTES ((uint64_t)2 * 1024 * 1024)

/* The number of free bytes is at most this old; a few MB are read in this
 * time. */
#define FREE_FRESH_NS UINT64_C(500000)

static void io_find_kind(void *ctx, uint64_t offset, uint32_t len,
			 struct rsh_cache_kind *out)
{
	const struct rsh_store_load *l = ctx;
	const struct rsh_store *s = l->store;

	*out = (struct rsh_cache_kind){ 0 };
	if (s->kind)
		s->kind(s->kind_ctx, rsh_store_number(s, l->file), offset, len,
			out);
}

bool rsh_store_compresses(const struct rsh_store *s)
{
	return s->opts.io && s->opts.io->cache && s->opts.io->compress;
}

void rsh_store_tell_kinds(struct rsh_store *s, rsh_store_kind_fn kind,
			  const void *ctx)
{
	s->kind = kind;
	s->kind_ctx = ctx;
}

int rsh_store_io_new(const struct rsh_store_io_options *o,
		      struct rsh_store_io **out, struct rsh_error *err)
{
	struct rsh_store_io *io = calloc(1, sizeof(*io));
	struct rsh_cache_options cache = o->cache;
	int rc = 0;

	if (!io)
		return rsh_error_nomem(err);
	io->caching = o->caching;
	io->has_dir = o->cache.dir;
	io->has_servers = o->cache.servers.list;
	io->memory_bytes = o->cache.memory_bytes;
	io->page_bytes = (size_t)sysconf(_SC_PAGESIZE);
	io->compress = o->cache.compress == RSH_COMPRESS_AUTO;
	cache.kind = io_find_kind;
	if (o->caching != RSH_CACHING_OFF)
		rc = rsh_cache_new(&cache, &io->cache, err);
	if (rc == 0 && o->faults)
		rc = rsh_faults_new(o->faults, &io->faults, err);
	if (rc) {
		rsh_store_io_free(io);
		return rc;
	}
	*out = io;
	return 0;
}

void rsh_store_io_keep(struct rsh_store_io *io)
{
	if (io)
		io->kept = true;
}

void rsh_store_io_free(struct rsh_store_io *io)
{
	if (!io || io->kept)
		return;
	rsh_cache_free(io->cache);
	rsh_faults_free(io->faults);
	free(io);
}

void rsh_store_io_keep_free(struct rsh_store_io *io, uint64_t bytes, bool all)
{
	atomic_store(&io->keep_free, bytes);
	atomic_store(&io->drop_all, all);
}

void rsh_store_io_drop_all(struct rsh_store_io *io)
{
	atomic_store(&io->drop_all, true);
}

void rsh_store_io_stats_get(const struct rsh_store_io *io,
			     struct rsh_store_io_stats *out)
{
	*out = (struct rsh_store_io_stats){
		.reads = atomic_load(&io->reads),
		.bytes = atomic_load(&io->bytes),
		.failed = atomic_load(&io->failed),
		.ns = atomic_load(&io->ns),
		.dropped = atomic_load(&io->dropped),
		.tiles_loaded = atomic_load(&io->tiles),
		.tile_bytes = atomic_load(&io->tile_bytes),
		.tile_bytes_peak = atomic_load(&io->tile_bytes_peak),
		.cached = atomic_load(&io->cached),
		.has_servers = io->has_servers,
	};
	if (io->cache)
		rsh_cache_stats_get(io->cache, &out->cache);
}

/* ---- tiles ---- */

uint64_t rsh_store_tile_room(const struct rsh_store *s)
{
	const uint64_t all = s->opts.io ? s->opts.io->memory_bytes : 0;

	return rsh_max_u64(RSH_STORE_TILES_MIN,
			   rsh_min_u64(all / 4, RSH_STORE_TILES_MAX));
}

void rsh_store_take_tile_room(struct rsh_store *s)
{
	struct rsh_store_io *io = s->opts.io;

	if (io && io->cache && !atomic_exchange(&io->ceded, true))
		rsh_cache_cede(io->cache, rsh_min_u64(rsh_store_tile_room(s),
						      io->memory_bytes / 2));
}

void rsh_store_count_tiles(struct rsh_store *s, uint64_t loaded, uint64_t bytes)
{
	struct rsh_store_io *io = s->opts.io;

	if (!io)
		return;
	atomic_store(&io->tiles, loaded);
	atomic_store(&io->tile_bytes, bytes);
	if (bytes > atomic_load(&io->tile_bytes_peak))
		atomic_store(&io->tile_bytes_peak, bytes);
}

/* ---- reading ---- */

static void io_count(struct rsh_store_io *io, size_t bytes, uint64_t ns,
		  bool failed)
{
	atomic_fetch_add(&io->reads, 1);
	atomic_fetch_add(&io->bytes, bytes);
	atomic_fetch_add(&io->ns, ns);
	if (failed)
		atomic_fetch_add(&io->failed, 1);
}

/* Notes which range of the file is retried. */
static void file_note_failure(struct rsh_store_file *f, uint64_t offset,
			      size_t len)
{
	atomic_store(&f->bad_at, offset);
	atomic_store(&f->bad_len, len);
}

/* Reads as the medium does, with the injected faults. */
static ssize_t io_read(const struct rsh_store *s, struct rsh_handle *h,
		       const struct iovec *iov, int n, uint64_t offset)
{
	return s->opts.io && s->opts.io->faults ?
	       rsh_faults_read(s->opts.io->faults, h, iov, n, offset) :
	       h->medium->ops->read(h, iov, n, offset);
}

int rsh_file_read(const struct rsh_store_load *l, struct iovec *iov, size_t n,
		  size_t len, uint64_t offset)
{
	const struct rsh_store *s = l->store;
	struct rsh_store_io *io = s->opts.io;
	const uint64_t start = io ? rsh_clock_ns() : 0;
	uint64_t at = offset;
	int rc = 0;

	while (at - offset < len && rc == 0) {
		const long begin = rsh_blocking_begin();
		const ssize_t got = io_read(s, l->handle, iov, (int)n, at);

		rsh_blocking_end(begin);
		if (got > 0) {
			rsh_iov_advance(&iov, &n, (size_t)got);
			at += (uint64_t)got;
		} else if (got == 0) {
			rc = RSH_CHANGED;
		} else if (got != -EINTR) {
			rc = (int)-got;
		}
	}
	/* Its inputs were counted. */
	if (io && !l->handle->medium->ops->is_made)
		io_count(io, len, rsh_clock_ns() - start, rc != 0);
	if (rc && l->file)
		file_note_failure(l->file, offset, len);
	return rc;
}

int rsh_file_read_again(struct rsh_store *s, struct rsh_store_file *f,
			struct rsh_handle *h)
{
	const uint64_t at = rsh_min_u64(atomic_load(&f->bad_at), f->id.size);
	const uint64_t left = f->id.size - at;
	/* If the open failed, at least one byte is read. */
	const uint64_t len = rsh_max_u64(atomic_load(&f->bad_len), 1);
	const size_t n = (size_t)rsh_min_u64(rsh_min_u64(len, left),
					     AGAIN_BYTES);
	cleanup_free uint8_t *buf = malloc(n + 1);
	const struct rsh_store_load l = { s, NULL, h };
	struct iovec iov = { buf, n };

	if (!buf)
		return ENOMEM;
	/* A read from the page cache would not show whether the file
	 * answers. */
	if (h->medium->ops->forget)
		h->medium->ops->forget(h, at, n);
	return rsh_file_read(&l, &iov, 1, n, at);
}

/* Other reads use the blocks later: bytes of a changed file must not be stored
 * under its old identity. */
int rsh_file_load_blocks(void *ctx, uint64_t offset, const struct iovec *iov,
			 int n_iov)
{
	const struct rsh_store_load *l = ctx;
	struct iovec copy[RSH_CACHE_LOAD_IOV];
	size_t len = 0;
	int rc;

	for (int i = 0; i < n_iov; i++) {
		copy[i] = iov[i];
		len += iov[i].iov_len;
	}
	rc = rsh_file_read(l, copy, (size_t)n_iov, len, offset);
	if (rc)
		return rc;
	rc = rsh_file_compare(l->file, l->handle, true);
	if (rc)
		file_note_failure(l->file, offset, len);
	return rc;
}

/* ---- reads of content ---- */

void rsh_file_flip(const struct rsh_store *s, const struct rsh_store_file *f,
		   uint64_t offset, void *buf, size_t len)
{
	const struct rsh_store_io *io = s->opts.io;

	if (io && io->faults)
		rsh_faults_flip(io->faults, f->name, offset, buf, len);
}

ssize_t rsh_store_scan_pread(void *scan, void *buf, size_t len, uint64_t offset)
{
	struct rsh_store_scan *in = scan;
	ssize_t n = rsh_handle_pread(in->handle, buf, len, offset);

	if (n > 0 && in->store)
		rsh_file_flip(in->store, &in->store->files[in->file], offset, buf,
			  (size_t)n);
	return n;
}

ssize_t rsh_store_pread_once(const struct rsh_store *s, uint32_t file,
			     struct rsh_handle *h, void *buf, size_t len,
			     uint64_t offset)
{
	const struct rsh_store_file *f = &s->files[file];
	struct rsh_store_io *io = s->opts.io;
	const uint64_t start = rsh_clock_ns();
	const struct iovec iov = { buf, len };
	ssize_t n;

	do {
		n = io_read(s, h, &iov, 1, offset);
	} while (n == -EINTR);
	if (io)
		io_count(io, n > 0 ? (size_t)n : 0, rsh_clock_ns() - start,
			 n < 0);
	if (n > 0)
		rsh_file_flip(s, f, offset, buf, (size_t)n);
	return n;
}

bool rsh_store_is_true(const struct rsh_store *s)
{
	const struct rsh_store_io *io = s->opts.io;

	return !io || !io->faults || !rsh_faults_flip_any(io->faults);
}

bool rsh_store_is_shared(const struct rsh_store *s)
{
	return s->opts.io && s->opts.io->has_servers;
}

void rsh_store_spent(const struct rsh_store *s, const struct rsh_handle *h,
		     uint64_t offset, uint64_t len, bool partly)
{
	struct rsh_store_io *io = s->opts.io;
	const uint64_t start = offset - offset % PIECE_BYTES;
	uint64_t keep_free, now;

	if (!io || !h->medium->ops->forget ||
	    (!partly && !atomic_load(&io->drop_all)))
		return;
	keep_free = atomic_load(&io->keep_free);
	if (!keep_free)
		return;
	/* sysconf() takes as long as a small read. */
	now = rsh_clock_ns();
	if (now - atomic_load(&io->free_seen_ns) > FREE_FRESH_NS) {
		atomic_store(&io->free_bytes,
			     (uint64_t)sysconf(_SC_AVPHYS_PAGES) *
				     io->page_bytes);
		atomic_store(&io->free_seen_ns, now);
	}
	if (atomic_load(&io->free_bytes) >= keep_free)
		return;
	/* A folio that exceeds this range is dropped with its last byte. */
	if (h->medium->ops->forget(h, start, offset + len - start) == 0)
		atomic_fetch_add(&io->dropped, len);
}
