/* SPDX-License-Identifier: Apache-2.0 */
/* contents/judge.c decides whether tensors that contradict a strategy prove
 * that it is wrong.
 *
 * A right strategy may be contradicted by
 *
 *   moving averages, loads, random states,
 *   gradients that are not yet reduced      ranks of one slice differ
 *   experts copied from one, tables         ranks of two slices are equal
 *   repeated heads of keys and values       the same, for some ranks
 *
 * A wrong strategy is contradicted by weights, norms and optimizer states, for
 * which none of this is expected.
 */
#include "config.h"

#include "contents_i.h"

#include <stdio.h>
#include <string.h>

#include "rsh/util/log.h"

/* A tensor is judged together with all tensors that are cut over the same
 * ranks: `upheld` is how many of these fit the strategy, and `against` how many
 * contradict it, including the tensor itself. */
struct judge_company {
	unsigned upheld, against;
};

static struct judge_company judge_company_of(const struct rsh_contents *c,
					     const struct rsh_subject *s)
{
	struct judge_company n = { 0, 0 };

	for (uint32_t i = 0; i < c->n_subjects; i++) {
		const struct rsh_subject *x = &c->subjects[i];

		if (x->partition != s->partition || !x->finding.told)
			continue;
		if (!x->finding.finer && !x->finding.coarser)
			n.upheld++;
		else
			n.against += (x->kind <= RSH_TENSOR_OTHER) ==
				     (s->kind <= RSH_TENSOR_OTHER);
	}
	return n;
}

/* Experts are consecutive in dimension 0.  If all were copied from one, the
 * experts of one slice are equal as well.  If experts have no dimension of
 * their own, this cannot be checked, so the name decides. */
static bool judge_are_copies(struct rsh_contents *c,
			     const struct rsh_subject *s)
{
	const char *name = rsh_names_text(c->names, s->name);

	if (!s->finding.along_first)
		return false;
	if (s->kind != RSH_TENSOR_STATE && s->record->n_dims <= 2 &&
	    strcasestr(name, "expert"))
		return true;
	return rsh_subject_repeats(c, s);
}

/* Keys and values have fewer heads than queries, and their heads are repeated
 * if there are more ranks than heads. */
static bool judge_is_key_or_value(const struct rsh_contents *c,
				  const struct rsh_subject *s)
{
	static const char *const words[] = {
		"wk.", "wv.", "k_proj", "v_proj", "kv", "key", "value",
	};
	const char *name = rsh_names_text(c->names, s->name);

	if (strcasestr(name, "query"))
		return false;
	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
		if (strcasestr(name, words[i]))
			return true;
	return false;
}

/* Returns whether only keys and values are equal on ranks that should
 * differ. */
static bool judge_are_repeated_heads(const struct rsh_contents *c,
				     const struct rsh_subject *s)
{
	if (!judge_is_key_or_value(c, s))
		return false;
	for (uint32_t i = 0; i < c->n_subjects; i++) {
		const struct rsh_subject *x = &c->subjects[i];

		if (x->partition == s->partition && x->finding.coarser &&
		    x->kind > RSH_TENSOR_OTHER && !judge_is_key_or_value(c, x))
			return false;
	}
	return judge_company_of(c, s).upheld > 0;
}

static bool judge_condemns(struct rsh_contents *c, const struct rsh_subject *s)
{
	struct judge_company n;

	if (s->kind == RSH_TENSOR_OWN)
		return false;
	/* If the name does not show what the tensor is for, it counts only if
	 * it has two dimensions, as weights have, and if no tensor that is cut
	 * over the same ranks fits the strategy. */
	if (s->kind == RSH_TENSOR_OTHER) {
		n = judge_company_of(c, s);
		return s->record->n_dims >= 2 && n.upheld == 0 &&
		       (s->finding.finer || n.against >= 2);
	}
	if (s->finding.finer)
		return true;
	if (judge_are_copies(c, s) ||
	    (s->kind != RSH_TENSOR_STATE && judge_are_repeated_heads(c, s)))
		return false;
	if (s->kind == RSH_TENSOR_STATE || s->finding.total)
		return true;
	n = judge_company_of(c, s);
	return 2 * n.against >= n.upheld;
}

/* The error names the tensor with the strongest contradiction. */
static unsigned judge_weight(const struct rsh_subject *s)
{
	return (s->n_holders ? 16u : 0u) + (s->finding.finer ? 4u : 0u) +
	       (s->record->n_dims >= 2 ? 8u : 0u) +
	       (s->kind == RSH_TENSOR_TRAINED ? 3u :
		s->kind == RSH_TENSOR_WEIGHT ? 2u :
		s->kind == RSH_TENSOR_STATE ? 1u : 0u);
}

int rsh_contents_judge(struct rsh_contents *c, struct rsh_error *err)
{
	struct rsh_subject *worst = NULL;
	const struct rsh_subject *private = NULL;
	unsigned n_against = 0, n_told = 0, n_private = 0, n_same = 0;
	char more[48] = "";

	for (uint32_t i = 0; i < c->n_subjects; i++) {
		struct rsh_subject *s = &c->subjects[i];

		n_told += s->finding.told;
		if (!s->finding.finer && !s->finding.coarser)
			continue;
		if (judge_condemns(c, s)) {
			n_against++;
			if (!worst || judge_weight(s) > judge_weight(worst))
				worst = s;
		} else if (s->finding.finer) {
			if (!private || (private->kind == RSH_TENSOR_OWN &&
					 s->kind != RSH_TENSOR_OWN))
				private = s;
			n_private++;
		} else {
			n_same++;
		}
	}
	if (worst)
		return rsh_contents_refuse(c, worst, n_against, n_told, err);
	if (n_private > 1)
		snprintf(more, sizeof(more), " and %u others", n_private - 1);
	/* Sums of gradients always differ. */
	if (private)
		rsh_log(private->kind == RSH_TENSOR_OWN ? RSH_LOG_NOTICE :
			RSH_LOG_WARNING,
			"%s: parameter %s%s: ranks %u and %u should hold the "
			"same, but their bytes differ; they count as what each "
			"rank keeps for itself", c->path,
			rsh_names_text(c->names, private->name), more,
			private->finding.differ[0], private->finding.differ[1]);
	if (n_told == 0)
		rsh_log_info("%s: the contents cannot confirm the strategy: "
			     "too few ranks, or all values are the same",
			     c->path);
	else
		rsh_log_info("%s: %u tensors, of which %u blocks were read, "
			     "fit the strategy; %u repeat themselves",
			     c->path, n_told, c->n_reads, n_same);
	return 0;
}

bool rsh_contents_judge_unlisted(const struct rsh_contents *c)
{
	const struct rsh_subject *told = NULL;

	for (uint32_t i = 0; i < c->n_subjects; i++) {
		const struct rsh_subject *s = &c->subjects[i];

		/* A weight is stronger evidence than an optimizer state. */
		if (s->finding.finer &&
		    (!told || (told->kind == RSH_TENSOR_STATE &&
			       s->kind != RSH_TENSOR_STATE)))
			told = s;
	}
	if (!told)
		return true;
	rsh_log_warning("%s: %s does not list %s such as %s, of which ranks %u "
			"and %u hold different bytes: a file has what one rank "
			"has; is it the strategy of another network?",
			c->path, c->src->path,
			told->kind == RSH_TENSOR_STATE ? "optimizer states" :
			told->kind == RSH_TENSOR_OTHER ? "tensors" : "weights",
			rsh_names_text(c->names, told->name),
			told->finding.differ[0], told->finding.differ[1]);
	return false;
}
