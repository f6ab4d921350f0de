/* SPDX-License-Identifier: Apache-2.0 */
/* contents/check.c compares the content of a tree with its strategy: it reads
 * the sample in rounds, or all tensors in batches, lets judge.c decide, and
 * remembers trees that fit their strategy. */
#include "config.h"

#include "contents_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "rsh/util/log.h"

/* This number is increased when the decision about a sample changes. */
#define VERDICT_VERSION 2
/* A round has at most so many reads; its result decides which tensors the next
 * one reads. */
#define ROUND_READS 96
/* At most about so many contents are read completely before they are
 * compared. */
#define WHOLE_TASKS 2048
/* When all contents are compared, the ranks of at most so many tensors are kept
 * for messages. */
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

/* Reads and compares the tensors of the round.  Returns 0 or -ENOMEM. */
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

			/* One block may be padding, or equal by chance. */
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

/* Reads so many tensors at once that it is worth starting threads. */
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
	/* Only tensors that contradict the strategy are read again for a
	 * message, so only the ranks of some of these are kept. */
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

/* ---- results of earlier checks ---- */

/* Makes a digest of the strategy, of the files with their times and sizes, and
 * of what is checked: `copied` is NULL for the tensors that the strategy lists.
 * Returns false if there is no digest, so that a result cannot be kept. */
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

/* ---- the check ---- */

/* Checks the tensors that the strategy lists or, with `copied`, the copied
 * tensors that it does not list.  Returns 0, 1 if a warning was logged, or
 * -errno with a sentence. */
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
	return rsh_contents_judge(c, err) ?: rsh_contents_check_shapes(c, err);
}

/* Checks the tensors that the strategy lists or, with `copied`, the copied
 * tensors that it does not list, unless an earlier check has found that they
 * fit. */
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
	/* If a read failed, the result is not kept: those bytes may contradict
	 * the strategy later. */
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
	/* rsh_contents_check() does not use these reads. */
	struct rsh_contents c = {
		.src = src, .most_reads = RSH_CONTENTS_EXPLAIN,
	};

	return check_once(&c, s, names, copied, err);
}
