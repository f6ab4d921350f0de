/* SPDX-License-Identifier: Apache-2.0 */
/* source/contents.c compares what a tree holds with its strategy from
 * beginning to end: it reads the sample in rounds, or all tensors in batches,
 * has the result judged, and remembers trees that were found in order. */
#include "config.h"

#include "contents_i.h"
#include "index_cache_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "rsh/util/log.h"
#include "rsh/util/mem.h"

/* This is raised when samples are judged in another way. */
#define VERDICT_VERSION 1
/* Reads of a round, so that what one shows decides on the next. */
#define ROUND_READS 96
/* Holders whose contents are read whole before they are compared. */
#define WHOLE_TASKS 2048
/* Tensors whose ranks are kept once all of their contents were compared. */
#define KEPT_MAX 256

static void contents_clear(struct rsh_contents *c)
{
	for (uint32_t i = 0; i < c->n_subjects; i++)
		free(c->subjects[i].holders);
	free(c->subjects);
}

/* ---- rounds ---- */

struct round {
	struct rsh_subject *subjects[RSH_CONTENTS_READS];
	uint32_t n;
	unsigned reads;
};

static bool round_add(const struct rsh_contents *c, struct round *r,
		      struct rsh_subject *s)
{
	unsigned most = RSH_CONTENTS_READS - RSH_CONTENTS_EXPLAIN;

	if (r->reads >= ROUND_READS ||
	    c->n_reads + r->reads + s->n_holders > most)
		return false;
	r->subjects[r->n++] = s;
	r->reads += s->n_holders;
	return true;
}

/* One block may be padding, or the same by chance. */
static bool wants_another(const struct rsh_subject *s)
{
	return s->n_read == 1 &&
	       s->record->content_bytes > RSH_CONTENTS_BLOCK &&
	       (!s->finding.told || s->finding.coarser);
}

/* Reads and compares what the round holds.  0 or -ENOMEM. */
static int round_finish(struct rsh_contents *c, struct round *r, bool whole)
{
	int rc = 0;

	rsh_contents_read(c, r->subjects, r->n, whole);
	for (uint32_t i = 0; i < r->n && rc == 0; i++)
		rc = rsh_subject_find(r->subjects[i]);
	return rc;
}

static int read_sample(struct rsh_contents *c)
{
	uint32_t next = 0;
	int rc = 0;

	while (rc == 0) {
		struct round r = { .n = 0 };

		for (uint32_t i = 0; i < next; i++)
			if (wants_another(&c->subjects[i]))
				round_add(c, &r, &c->subjects[i]);
		for (; next < c->n_subjects; next++) {
			struct rsh_subject *s = &c->subjects[next];

			rc = s->holders ? 0 :
			     rsh_subject_find_holders(c, s, false);
			if (rc == -ENOMEM ||
			    (rc == 0 && !round_add(c, &r, s)))
				break;
			rc = 0;
		}
		if (rc || r.n == 0)
			break;
		rc = round_finish(c, &r, false);
	}
	return rc;
}

/* Reads a batch of tensors, as many as are worth starting workers for. */
static int read_batch(struct rsh_contents *c, uint32_t *next)
{
	struct round r = { .n = 0 };
	uint32_t tasks = 0;
	int rc;

	while (*next < c->n_subjects && tasks < WHOLE_TASKS &&
	       r.n < RSH_CONTENTS_READS) {
		struct rsh_subject *s = &c->subjects[(*next)++];

		rc = rsh_subject_find_holders(c, s, true);
		if (rc == -ENOMEM)
			return rc;
		if (rc)
			continue;
		r.subjects[r.n++] = s;
		tasks += s->n_holders;
	}
	rc = round_finish(c, &r, true);
	/* Only what contradicts is looked at again, and not all of that. */
	for (uint32_t i = 0; i < r.n; i++) {
		struct rsh_subject *s = r.subjects[i];

		if ((s->finding.finer || s->finding.coarser) &&
		    c->n_kept++ < KEPT_MAX)
			continue;
		free(s->holders);
		s->holders = NULL;
		s->n_holders = 0;
	}
	return rc;
}

static int read_all(struct rsh_contents *c)
{
	uint32_t next = 0;
	int rc = 0;

	while (rc == 0 && next < c->n_subjects)
		rc = read_batch(c, &next);
	return rc;
}

/* ---- what is known from an earlier time ---- */

static void add_strategy(XXH3_state_t *state, const struct rsh_strategy *s)
{
	const uint32_t shape[] = {
		s ? s->stage_ranks : 0, s ? s->n_stages : 0,
		s ? s->lone_stage : 0,
	};

	XXH3_64bits_update(state, shape, sizeof(shape));
	for (uint32_t i = 0; s && i < s->n_files; i++)
		XXH3_64bits_update(state, &s->files[i]->content_hash,
				   sizeof(s->files[i]->content_hash));
}

static int take_key(void *key, int fd)
{
	return -rsh_index_key_take(fd, key);
}

/* Makes a number of this strategy and these files as they are.  Returns false
 * if they may still change unnoticed. */
static bool digest_of(const struct rsh_contents *c, uint64_t *digest)
{
	struct rsh_source *s = c->source;
	const uint32_t how[] = { VERDICT_VERSION, (uint32_t)c->rule };
	time_t now = time(NULL);
	XXH3_state_t state;

	XXH3_INITSTATE(&state);
	XXH3_64bits_reset(&state);
	XXH3_64bits_update(&state, how, sizeof(how));
	add_strategy(&state, c->src);
	for (uint32_t i = 0; i < s->n_files; i++) {
		struct rsh_source_file *f = &s->files[i];
		struct rsh_index_key key;

		XXH3_64bits_update(&state, &f->rank, sizeof(f->rank));
		if (!f->index)
			continue;
		if (rsh_store_try(s->store, i, take_key, &key) ||
		    !rsh_index_key_settled(&key, now))
			return false;
		XXH3_64bits_update(&state, &key, sizeof(key));
	}
	*digest = XXH3_64bits_digest(&state);
	return true;
}

/* ---- all of it ---- */

static int check(struct rsh_contents *c, struct rsh_error *err)
{
	int rc = rsh_contents_list(c);

	rsh_contents_sort(c);
	if (rc == 0)
		rc = c->full ? read_all(c) : read_sample(c);
	if (rc)
		return rsh_error_nomem(err);
	rc = rsh_contents_judge(c, err);
	return rc ? rc : rsh_contents_check_shapes(c, err);
}

int rsh_source_check_contents(struct rsh_source *s,
			      const struct rsh_strategy *src,
			      const struct rsh_strategy *dst,
			      enum rsh_grid_rule rule, struct rsh_names *names,
			      struct rsh_error *err)
{
	struct rsh_contents c = {
		.source = s, .src = src, .dst = dst, .rule = rule,
		.names = names, .full = s->check == RSH_CHECK_FULL,
	};
	uint64_t digest = 0;
	bool keep;
	int rc;

	if (s->check == RSH_CHECK_STRUCTURE)
		return 0;
	/* Neither may hide what a drill does, nor keep it. */
	keep = !c.full && s->index_dirfd >= 0 &&
	       rsh_store_is_true(s->store) && digest_of(&c, &digest);
	if (keep && rsh_index_verdict_is_kept(s->index_dirfd, digest)) {
		rsh_log_info("%s: its contents were found to bear the strategy "
			     "out before", s->path);
		return 0;
	}
	rc = check(&c, err);
	/* What could not be read now may contradict it later. */
	if (rc == 0 && keep && !c.failed)
		rsh_index_verdict_keep(s->index_dirfd, digest);
	contents_clear(&c);
	return rc;
}
