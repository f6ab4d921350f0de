/* SPDX-License-Identifier: Apache-2.0 */
/* contents/check.c compares what a tree holds with its strategy from
 * beginning to end: it reads the sample in rounds, or all tensors in batches,
 * has the result judged, and remembers trees that were found in order. */
#include "config.h"

#include "contents_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "rsh/util/log.h"

/* This is raised when samples are judged in another way. */
#define VERDICT_VERSION 1
/* A round has so many reads, and what it shows decides on the next. */
#define ROUND_READS 96
/* The contents of so many holders are read whole before they are compared. */
#define WHOLE_TASKS 2048
/* Of so many tensors the ranks are kept once all of their contents were
 * compared. */
#define KEPT_MAX 256

/* ---- rounds ---- */

struct check_round {
	struct rsh_subject *subjects[RSH_CONTENTS_READS];
	uint32_t n;
	unsigned reads;
};

static bool check_round_add(const struct rsh_contents *c, struct check_round *r,
			    struct rsh_subject *s)
{
	if (r->reads >= ROUND_READS ||
	    c->n_reads + r->reads + s->n_holders > c->most_reads)
		return false;
	r->subjects[r->n++] = s;
	r->reads += s->n_holders;
	return true;
}

/* Reads and compares what the round holds.  0 or -ENOMEM. */
static int check_round_finish(struct rsh_contents *c, struct check_round *r,
			      bool whole)
{
	int rc = 0;

	rsh_contents_read(c, r->subjects, r->n, whole);
	for (uint32_t i = 0; i < r->n && rc == 0; i++)
		rc = rsh_subject_find(r->subjects[i]);
	return rc;
}

static int check_read_sample(struct rsh_contents *c)
{
	uint32_t next = 0;
	int rc = 0;

	while (rc == 0) {
		struct check_round r = { .n = 0 };

		for (uint32_t i = 0; i < next; i++) {
			struct rsh_subject *s = &c->subjects[i];

			/* One block may be padding, or the same by chance. */
			if (s->n_read == 1 &&
			    s->record->content_bytes > RSH_CONTENTS_BLOCK &&
			    (!s->finding.told || s->finding.coarser))
				check_round_add(c, &r, s);
		}
		for (; next < c->n_subjects; next++) {
			struct rsh_subject *s = &c->subjects[next];

			rc = s->holders ? 0 :
			     rsh_subject_find_holders(c, s, false);
			if (rc == -ENOMEM ||
			    (rc == 0 && !check_round_add(c, &r, s)))
				break;
			rc = 0;
		}
		if (rc || r.n == 0)
			break;
		rc = check_round_finish(c, &r, false);
	}
	return rc;
}

/* Reads as many tensors at once as are worth starting workers for. */
static int check_read_batch(struct rsh_contents *c, uint32_t *next)
{
	struct check_round r = { .n = 0 };
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
	rc = check_round_finish(c, &r, true);
	/* Only tensors that contradict are looked at again, and not all of
	 * them. */
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

/* ---- what is known from an earlier time ---- */

/* Makes a number of this strategy, these files as they are, and what is asked
 * of them: `copied` is NULL for what the strategy lists.  False if it cannot be
 * kept. */
static bool check_digest(const struct rsh_contents *c, const bool *copied,
			 uint64_t *digest)
{
	const struct rsh_strategy *s = c->src;
	const uint32_t how[] = {
		VERDICT_VERSION, (uint32_t)c->rule, copied != NULL,
		s ? s->stage_ranks : 0, s ? s->n_stages : 0,
		s ? s->lone_stage : 0,
	};
	XXH3_state_t state;

	if (!rsh_source_digest(c->source, digest))
		return false;
	XXH3_INITSTATE(&state);
	XXH3_64bits_reset(&state);
	XXH3_64bits_update(&state, how, sizeof(how));
	for (uint32_t i = 0; s && i < s->n_files; i++)
		XXH3_64bits_update(&state, &s->files[i]->content_hash,
				   sizeof(s->files[i]->content_hash));
	for (uint32_t i = 0; copied && i < rsh_names_count(c->names); i++) {
		const char *name = rsh_names_text(c->names, i);

		if (copied[i])
			XXH3_64bits_update(&state, name, strlen(name) + 1);
	}
	XXH3_64bits_update(&state, digest, sizeof(*digest));
	*digest = XXH3_64bits_digest(&state);
	return true;
}

/* ---- all of it ---- */

/* Compares what the strategy lists or, with `copied`, what it does not.
 * Returns 0, 1 if there is something to warn of, or -errno with a sentence. */
static int check_all(struct rsh_contents *c, const bool *copied,
		     struct rsh_error *err)
{
	uint32_t next = 0;
	int rc = copied ? rsh_contents_list_unlisted(c, copied) :
			  rsh_contents_list(c);

	if (rc == 0)
		rsh_contents_sort(c);
	if (rc == 0 && !c->full)
		rc = check_read_sample(c);
	while (rc == 0 && c->full && next < c->n_subjects)
		rc = check_read_batch(c, &next);
	if (rc)
		return rsh_error_nomem(err);
	if (copied)
		return !rsh_contents_judge_unlisted(c);
	rc = rsh_contents_judge(c, err);
	return rc ? rc : rsh_contents_check_shapes(c, err);
}

/* Checks what the strategy lists or, with `copied`, what it does not, unless
 * that was found right before. */
static int check_once(struct rsh_contents *c, struct rsh_source *s,
		      struct rsh_names *names, const bool *copied,
		      struct rsh_error *err)
{
	uint64_t digest = 0;
	bool keep;
	int rc;

	if (rsh_source_check(s) == RSH_CHECK_STRUCTURE)
		return 0;
	rsh_contents_init(c, s, names);
	c->full = rsh_source_check(s) == RSH_CHECK_FULL;
	keep = !c->full && check_digest(c, copied, &digest);
	if (keep && rsh_source_was_right(s, digest)) {
		if (!copied)
			rsh_log_info("%s: an earlier check found that its "
				     "contents fit the strategy", c->path);
		return 0;
	}
	rc = check_all(c, copied, err);
	/* What could not be read now may contradict the strategy later. */
	if (rc == 0 && keep && !c->failed)
		rsh_source_keep_right(s, digest);
	rsh_contents_clear(c);
	return rc < 0 ? rc : 0;
}

int rsh_contents_check(struct rsh_source *s, const struct rsh_strategy *src,
		       const struct rsh_strategy *dst, enum rsh_grid_rule rule,
		       struct rsh_names *names, struct rsh_error *err)
{
	struct rsh_contents c = {
		.src = src, .dst = dst, .rule = rule,
		.most_reads = RSH_CONTENTS_READS - RSH_CONTENTS_EXPLAIN,
	};

	return check_once(&c, s, names, NULL, err);
}

int rsh_contents_check_unlisted(struct rsh_source *s,
				const struct rsh_strategy *src,
				struct rsh_names *names, const bool *copied,
				struct rsh_error *err)
{
	/* The reads are those that the other check has kept back. */
	struct rsh_contents c = {
		.src = src, .most_reads = RSH_CONTENTS_EXPLAIN,
	};

	return check_once(&c, s, names, copied, err);
}
