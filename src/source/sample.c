/* SPDX-License-Identifier: Apache-2.0 */
/* source/sample.c has the functions of a source for contents/. */
#include "config.h"

#include "rsh/source/sample.h"

#include <errno.h>
#include <time.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "kept_i.h"
#include "source_i.h"

const char *rsh_source_path(const struct rsh_source *s)
{
	return s->path;
}

uint32_t rsh_source_first_rank(const struct rsh_source *s)
{
	return s->first_rank;
}

enum rsh_check rsh_source_check(const struct rsh_source *s)
{
	return s->check;
}

/* ---- ranks ---- */

/* If the chosen candidate has no step, `b` is NULL, and each file is
 * accepted. */
static bool sample_is_of_step(const struct rsh_checkpoint *a,
			      const struct rsh_checkpoint *b)
{
	return !b || (a->step.n == b->step.n &&
		      (a->step.n == 0 ||
		       rsh_step_cmp(&a->step, &b->step) == 0));
}

/* In each directory of a power-off save steps are counted from the beginning,
 * so these are not compared. */
static bool sample_is_older(const struct rsh_checkpoint *a,
			    const struct rsh_checkpoint *b)
{
	return a->step.n && b->step.n && !a->n_dir && !b->n_dir &&
	       !a->step.breakpoint && rsh_step_cmp(&a->step, &b->step) > 0;
}

/* Returns a file of the chosen candidate; NULL: it has none. */
static const struct rsh_checkpoint *
sample_chosen_file(const struct rsh_source *s)
{
	const struct rsh_listing *l = &s->listing;
	size_t i = s->chosen < s->n_candidates ?
		s->candidates[s->chosen].first : l->n - s->n_always;

	return i < l->n ? &l->files[i] : NULL;
}

/* A rank may have several files of a step; the first one is counted. */
static bool sample_is_first_of_rank(const struct rsh_source *s, size_t i,
				    const struct rsh_checkpoint *chosen)
{
	const struct rsh_checkpoint *all = s->listing.beyond;

	while (i-- > 0 && all[i].rank == all[i + 1].rank)
		if (sample_is_of_step(&all[i], chosen))
			return false;
	return true;
}

bool rsh_source_has_step(const struct rsh_source *s)
{
	return s->chosen < s->n_candidates;
}

uint32_t rsh_source_count_ranks(const struct rsh_source *s, uint32_t n_ranks,
				const char **beyond)
{
	const struct rsh_checkpoint *chosen = sample_chosen_file(s),
				    *one = NULL;
	uint32_t n = s->n_files;

	*beyond = NULL;
	/* If the tree was opened for listing, s->files has all ranks, in
	 * ascending order. */
	if (n > 0 && s->files[n - 1].rank >= n_ranks)
		for (uint32_t i = n; i-- > 0 && s->files[i].rank >= n_ranks;)
			*beyond = rsh_store_name(s->store, i);
	for (size_t i = 0; i < s->listing.n_beyond; i++) {
		const struct rsh_checkpoint *c = &s->listing.beyond[i];

		if (!sample_is_of_step(c, chosen))
			continue;
		n += sample_is_first_of_rank(s, i, chosen);
		if (!one || c->rank < one->rank)
			one = c;
	}
	if (one)
		*beyond = one->name;
	return n;
}

bool rsh_source_older_beyond(const struct rsh_source *s, uint32_t n_ranks,
			     uint64_t *epoch, uint64_t *step)
{
	const struct rsh_listing *l = &s->listing;
	const struct rsh_checkpoint *chosen = sample_chosen_file(s);
	const struct rsh_checkpoint *newest = NULL;

	/* If a step describes itself, older steps are not compared with it. */
	if (s->format->layout == RSH_LAYOUT_OWN)
		return false;
	for (size_t i = 0; chosen && i < l->n + l->n_beyond; i++) {
		const struct rsh_checkpoint *c = i < l->n ?
			&l->files[i] : &l->beyond[i - l->n];

		if (c->rank < n_ranks || !sample_is_older(c, chosen) ||
		    (newest && rsh_step_cmp(&c->step, &newest->step) >= 0))
			continue;
		newest = c;
	}
	if (!newest)
		return false;
	*epoch = newest->step.numbers[0];
	*step = newest->step.numbers[1];
	return true;
}

/* ---- bytes ---- */

bool rsh_source_sample(struct rsh_source *s, uint32_t rank, uint64_t offset,
		       uint8_t *buf, size_t len)
{
	struct rsh_store_scan in = { .store = s->store };
	size_t done = 0;
	int code = 0;

	if (!rsh_source_locate(s, rank, &offset, &in.file) ||
	    rsh_store_take(s->store, in.file, &in.handle))
		return false;
	/* The cache is bypassed because these bytes are not read again soon. */
	while (done < len && !code) {
		ssize_t n = rsh_store_scan_pread(&in, buf + done, len - done,
						 offset + done);

		if (n <= 0)
			code = n < 0 ? (int)-n : EIO;
		else
			done += (size_t)n;
	}
	return rsh_store_finish(s->store, in.file, in.handle, code) == 0;
}

/* ---- results of earlier checks ---- */

bool rsh_source_digest(struct rsh_source *s, uint64_t *digest)
{
	time_t now = time(NULL);
	XXH3_state_t state;

	if (s->index_dirfd < 0 || !rsh_store_is_true(s->store))
		return false;
	XXH3_INITSTATE(&state);
	XXH3_64bits_reset(&state);
	if (s->facts && s->facts->key)
		XXH3_64bits_update(&state, s->facts->key,
				   sizeof(*s->facts->key));
	for (uint32_t i = 0; i < s->n_files; i++) {
		const struct rsh_source_file *f = &s->files[i];
		struct rsh_index_key key;
		struct rsh_handle *h;

		XXH3_64bits_update(&state, &f->rank, sizeof(f->rank));
		if (!f->index)
			continue;
		if (rsh_store_take(s->store, i, &h) ||
		    rsh_store_finish(s->store, i, h,
				     -rsh_index_key_take(h, &key)) ||
		    !rsh_index_key_settled(&key, now))
			return false;
		XXH3_64bits_update(&state, &key, sizeof(key));
	}
	*digest = XXH3_64bits_digest(&state);
	return true;
}

bool rsh_source_was_right(const struct rsh_source *s, uint64_t digest)
{
	return rsh_kept_is_right(s->index_dirfd, digest);
}

void rsh_source_keep_right(const struct rsh_source *s, uint64_t digest)
{
	rsh_kept_put_right(s->index_dirfd, digest);
}
