/* SPDX-License-Identifier: Apache-2.0 */
/* storage/store/cache_policy.c decides whether files are read directly or
 * through the cache; storage/io.h says how. */
#include "config.h"

#include "store_i.h"

#include <stdlib.h>

#include "rsh/util/checked.h"
#include "rsh/util/clock.h"
#include "rsh/util/log.h"
#include "rsh/util/xxh3.h"

/* A read of this length from the page cache takes about 10 us, and even on a
 * busy machine less than SLOW_NS; from a network or a disk it takes longer. */
#define SAMPLE_BYTES (64 * 1024)
#define SLOW_NS 400000

static void policy_settle(struct rsh_store *s, enum rsh_cache_policy way)
{
	int open = RSH_POLICY_OPEN;

	if (!atomic_compare_exchange_strong(&s->way, &open, way))
		return;
	if (s->opts.io)
		atomic_store(&s->opts.io->cached, way == RSH_POLICY_CACHE);
	rsh_log_info("%s: read %s", s->path, way == RSH_POLICY_CACHE ?
		     "through the cache" : "straight");
}

/* Until it is decided each reader measures for itself, so that no reader waits
 * for another one's file.  A read that fails decides nothing. */
static void policy_decide(struct rsh_store *s, struct rsh_store_file *f,
			  struct rsh_handle *h)
{
	const struct rsh_store_io *io = s->opts.io;
	const struct rsh_store_load load = { s, f, h };
	const uint64_t at = f->id.size / 2;
	const size_t len = (size_t)rsh_min_u64(f->id.size - at, SAMPLE_BYTES);
	const struct rsh_medium *m = h->medium;
	uint64_t ns = UINT64_MAX;
	uint8_t *buf;
	bool told;

	if ((io->has_dir || io->has_servers) &&
	    (m->ops->is_remote ? m->ops->is_remote(h) : m->is_remote)) {
		policy_settle(s, RSH_POLICY_CACHE);
		return;
	}
	buf = malloc(len ? len : 1);
	told = buf != NULL;
	/* The second read of the same bytes is measured, and again in case the
	 * machine is busy. */
	for (int i = 0; i < 3 && told; i++) {
		const uint64_t start = rsh_clock_ns();
		struct iovec iov = { buf, len };

		told = rsh_file_read(&load, &iov, 1, len, at) == 0;
		if (i > 0)
			ns = rsh_min_u64(ns, rsh_clock_ns() - start);
	}
	free(buf);
	if (!told)
		return;
	rsh_log_info("%s: read again in %llu us", f->path,
		     (unsigned long long)ns / 1000);
	policy_settle(s, ns > SLOW_NS ? RSH_POLICY_CACHE :
					RSH_POLICY_STRAIGHT);
}

bool rsh_file_is_cached(struct rsh_store *s, struct rsh_store_file *f,
			struct rsh_handle *h)
{
	if (f->cached == RSH_CACHE_FILE_NONE)
		return false;
	if (f->medium->ops->keeps_nothing)
		return true;
	if (atomic_load(&s->way) == RSH_POLICY_OPEN)
		policy_decide(s, f, h);
	return atomic_load(&s->way) == RSH_POLICY_CACHE;
}

bool rsh_store_is_straight(struct rsh_store *s, uint32_t file)
{
	struct rsh_store_file *f = &s->files[file];
	struct rsh_handle *h;

	if (!f->medium->ops->descriptor)
		return false;
	if (!s->opts.io || s->opts.io->faults)
		return !s->opts.io;
	if (f->cached == RSH_CACHE_FILE_NONE)
		return true;
	/* An error is ignored here: the next read of the file meets it
	 * again. */
	if (atomic_load(&s->way) == RSH_POLICY_OPEN &&
	    rsh_store_take(s, file, &h) == 0) {
		rsh_file_is_cached(s, f, h);
		rsh_store_finish(s, file, h, 0);
	}
	return atomic_load(&s->way) != RSH_POLICY_CACHE;
}

/* Hashes what tells the file from others and is not in the identity of a file
 * of the cache itself. */
static uint64_t policy_state(const struct rsh_store_identity *id)
{
	const uint64_t words[] = {
		(uint64_t)id->ctime.tv_sec, (uint64_t)id->ctime.tv_nsec,
		id->place,
	};

	return XXH3_64bits(words, sizeof(words));
}

rsh_cache_file rsh_file_in_cache(const struct rsh_store_io *io,
				 const struct rsh_store_identity *id,
				 uint64_t epoch, uint64_t step)
{
	return rsh_cache_file_open(io->cache, &(struct rsh_cache_file_id){
			.dev = id->which[0],
			.ino = id->which[1],
			.size = id->size,
			.mtime_sec = id->mtime.tv_sec,
			.mtime_nsec = (uint64_t)id->mtime.tv_nsec,
			.epoch = epoch,
			.step = step,
			.state = policy_state(id),
			.memory_only = !id->keeps_ctime,
		});
}

const char *rsh_store_unseen(const struct rsh_store *s)
{
	return s->medium->dirfd < 0 && s->medium->is_remote ?
		"the server sends neither ETag nor Last-Modified" :
		"the file system does not keep the time of the last change "
		"(ctime)";
}

void rsh_store_settle_files(struct rsh_store *s)
{
	const struct rsh_store_io *io = s->opts.io;
	const bool off = !io || !io->cache;
	const bool is_served = s->medium->is_remote && s->medium->dirfd < 0;
	const char *unseen = NULL;
	uint32_t n_alone = 0;

	atomic_store(&s->way, RSH_POLICY_OPEN);
	for (uint32_t i = 0; i < s->n_files; i++) {
		struct rsh_store_file *f = &s->files[i];
		uint64_t name[2];

		f->cached = RSH_CACHE_FILE_NONE;
		if (!f->id.keeps_ctime && is_served && !unseen)
			unseen = f->name;
		if (off || !f->id.size)
			continue;
		f->cached = rsh_file_in_cache(io, &f->id, f->epoch, f->step);
		n_alone += !f->id.keeps_ctime;
		if (!io->has_servers || !f->id.keeps_ctime)
			continue;
		f->medium->ops->share(f->medium, f->name, &f->id, name);
		rsh_cache_file_share(io->cache, f->cached, name);
	}
	if (unseen)
		rsh_log_warning("%s/%s: %s, so it is not noticed if the file "
				"is replaced by another of the same size",
				s->path, unseen, rsh_store_unseen(s));
	if (n_alone > 0 && (io->has_dir || io->has_servers))
		rsh_log_notice("%s: blocks are cached in memory alone, since "
			       "%s", s->path, rsh_store_unseen(s));
	if (off)
		policy_settle(s, RSH_POLICY_STRAIGHT);
	else if (io->caching == RSH_CACHING_ON ||
		 s->medium->ops->keeps_nothing)
		policy_settle(s, RSH_POLICY_CACHE);
}
