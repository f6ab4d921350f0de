/* SPDX-License-Identifier: Apache-2.0 */
/* store/cache_policy.c decides whether files are read straight or through the
 * cache; store/io.h says what decides. */
#include "config.h"

#include "store_i.h"

#include <stdlib.h>

#include "rsh/util/clock.h"
#include "rsh/util/log.h"

/* A stretch of this length comes from the page cache in some 10 us, and even on
 * a busy machine in less than SLOW_NS; from a network or a disk it does not. */
#define SAMPLE_BYTES (64 * 1024)
#define SLOW_NS 400000

/* Measures what a second read of the same bytes takes.  False if it cannot be
 * told. */
static bool policy_time_again(struct rsh_store *s, struct rsh_store_file *f,
			      struct rsh_handle *h, uint64_t *ns)
{
	const uint64_t at = f->id.size / 2;
	const uint64_t room = f->id.size - at;
	const size_t len = room < SAMPLE_BYTES ? (size_t)room : SAMPLE_BYTES;
	uint8_t *buf = malloc(len ? len : 1);
	bool told;

	*ns = UINT64_MAX;
	told = buf && rsh_file_read(s, f, h, buf, len, at) == 0;
	/* It is measured twice, should the machine be busy. */
	for (int i = 0; i < 2 && told; i++) {
		uint64_t start = rsh_clock_ns(), took;

		told = rsh_file_read(s, f, h, buf, len, at) == 0;
		took = rsh_clock_ns() - start;
		if (took < *ns)
			*ns = took;
	}
	free(buf);
	return told;
}

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

/* Each reader looks for itself until the way is settled, so that nobody waits
 * for a file but who reads it; a read that fails says nothing. */
static void policy_decide(struct rsh_store *s, struct rsh_store_file *f,
			  struct rsh_handle *h)
{
	const struct rsh_store_io *io = s->opts.io;
	uint64_t ns;

	if ((io->has_dir || io->has_servers) && h->medium->ops->is_remote(h)) {
		policy_settle(s, RSH_POLICY_CACHE);
	} else if (policy_time_again(s, f, h, &ns)) {
		rsh_log_info("%s: read again in %llu us", f->path,
			     (unsigned long long)ns / 1000);
		policy_settle(s, ns > SLOW_NS ? RSH_POLICY_CACHE
					      : RSH_POLICY_STRAIGHT);
	}
}

bool rsh_file_is_cached(struct rsh_store *s, struct rsh_store_file *f,
			struct rsh_handle *h)
{
	if (f->cached == RSH_CACHE_FILE_NONE)
		return false;
	if (atomic_load(&s->way) == RSH_POLICY_OPEN)
		policy_decide(s, f, h);
	return atomic_load(&s->way) == RSH_POLICY_CACHE;
}

struct deciding {
	struct rsh_store *store;
	struct rsh_store_file *file;
};

static int policy_decide_now(void *ctx, struct rsh_handle *h)
{
	const struct deciding *d = ctx;

	rsh_file_is_cached(d->store, d->file, h);
	return 0;
}

bool rsh_store_is_straight(struct rsh_store *s, uint32_t file)
{
	struct deciding d = { s, &s->files[file] };

	if (!s->medium->ops->descriptor)
		return false;
	if (!s->opts.io || s->opts.io->faults)
		return !s->opts.io;
	if (d.file->cached == RSH_CACHE_FILE_NONE)
		return true;
	/* What goes wrong here does so again in who reads the file. */
	if (atomic_load(&s->way) == RSH_POLICY_OPEN)
		rsh_store_try(s, file, policy_decide_now, &d);
	return atomic_load(&s->way) != RSH_POLICY_CACHE;
}

static struct rsh_cache_file_id
policy_cache_identity(const struct rsh_store_file *f)
{
	return (struct rsh_cache_file_id){
		.dev = f->id.which[0],
		.ino = f->id.which[1],
		.size = f->id.size,
		.mtime_sec = f->id.mtime.tv_sec,
		.mtime_nsec = (uint32_t)f->id.mtime.tv_nsec,
		.epoch = f->epoch,
		.step = f->step,
	};
}

static rsh_cache_file policy_cache_open(struct rsh_store *s,
					const struct rsh_store_file *f)
{
	struct rsh_cache *c = s->opts.io->cache;
	const struct rsh_cache_file_id id = policy_cache_identity(f);
	const rsh_cache_file file = rsh_cache_file_open(c, &id);
	uint64_t name[2];

	if (s->opts.io->has_servers) {
		s->medium->ops->share(s->medium, f->name, &f->id, name);
		rsh_cache_file_share(c, file, name);
	}
	return file;
}

void rsh_store_settle_files(struct rsh_store *s)
{
	const bool off = !s->opts.io || !s->opts.io->cache;

	atomic_store(&s->way, RSH_POLICY_OPEN);
	for (uint32_t i = 0; i < s->n_files; i++)
		s->files[i].cached =
			!off && s->files[i].id.size
				? policy_cache_open(s, &s->files[i])
				: RSH_CACHE_FILE_NONE;
	if (off)
		policy_settle(s, RSH_POLICY_STRAIGHT);
	else if (s->opts.io->caching == RSH_CACHING_ON ||
		 s->medium->ops->keeps_nothing)
		policy_settle(s, RSH_POLICY_CACHE);
}
