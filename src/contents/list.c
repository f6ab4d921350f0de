/* SPDX-License-Identifier: Apache-2.0 */
/* contents/list.c lists the tensors that there are to be compared. */
#include "config.h"

#include "contents_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "rsh/util/mem.h"

void rsh_contents_init(struct rsh_contents *c, struct rsh_source *source,
		       struct rsh_names *names)
{
	c->source = source;
	c->names = names;
	c->path = rsh_source_path(source);
	c->first_rank = rsh_source_first_rank(source);
	rsh_source_view(source, names, &c->view);
}

void rsh_contents_clear(struct rsh_contents *c)
{
	for (uint32_t i = 0; i < c->n_subjects; i++)
		free(c->subjects[i].holders);
	free(c->subjects);
}

/* Hashes a name without its numbers, in which layers differ.  With `parts` only
 * numbers that are a part between dots are left out, so that "ffn.w1" is not
 * "ffn.w2". */
static uint64_t list_hash_name(const char *name, bool parts)
{
	XXH3_state_t state;
	const char *s = name;

	XXH3_INITSTATE(&state);
	XXH3_64bits_reset(&state);
	while (*s) {
		size_t n = strcspn(s, "0123456789");
		size_t digits = strspn(s + n, "0123456789");
		bool part = (s + n == name || s[n - 1] == '.') &&
			    (s[n + digits] == '.' || !s[n + digits]);

		if (!parts || part) {
			XXH3_64bits_update(&state, s, n);
			XXH3_64bits_update(&state, "#", 1);
		} else {
			XXH3_64bits_update(&state, s, n + digits);
		}
		s += n + digits;
	}
	return XXH3_64bits_digest(&state);
}

/* Finds some rank of the stage that holds the tensor. */
static bool list_find_record(const struct rsh_contents *c,
			     struct rsh_subject *s)
{
	for (uint32_t i = s->from; i < s->n_local; i++) {
		s->index = rsh_contents_index(c, s->first + i);
		s->record = s->index ? rsh_ckpt_find(s->index, s->name) : NULL;
		if (s->record)
			return true;
	}
	return false;
}

static int list_add_subject(struct rsh_contents *c,
			    const struct rsh_subject *base)
{
	const char *name = rsh_names_text(c->names, base->name);
	struct rsh_subject s = *base;
	uint64_t of[2];
	int rc;

	if (!list_find_record(c, &s) || s.record->dtype == RSH_DTYPE_STR ||
	    s.record->content_bytes == 0)
		return 0;
	/* What the strategy does not explain is the plan's to refuse. */
	rc = rsh_subject_set_cut(c, &s);
	if (rc)
		return rc == -ENOMEM ? rc : 0;
	s.pattern = list_hash_name(name, true);
	of[0] = list_hash_name(name, false);
	of[1] = s.layout;
	s.family = XXH3_64bits(of, sizeof(of));
	s.lot = XXH3_64bits(name, strlen(name));
	if (rsh_grow(&c->subjects, &c->cap_subjects,
		     (size_t)c->n_subjects + 1, sizeof(*c->subjects)))
		return -ENOMEM;
	c->subjects[c->n_subjects++] = s;
	return 0;
}

static int list_strategy(struct rsh_contents *c)
{
	const struct rsh_strategy *st = c->src;

	for (uint32_t p = 0; p < st->n_params; p++) {
		const struct rsh_strategy_param *param = &st->params[p];

		for (uint32_t i = 0; i < param->n_stages; i++) {
			const struct rsh_param_stage *at = &param->stages[i];
			const struct rsh_subject s = {
				.name = param->name, .item = at->item,
				.first = c->first_rank +
					 at->stage * st->stage_ranks,
				.n_local = st->stage_ranks,
				.to = st->stage_ranks - 1,
			};
			int rc = list_add_subject(c, &s);

			if (rc)
				return rc;
		}
	}
	return 0;
}

/* Says of each name which rank is the last that has it, counted from 1; NULL:
 * memory is out. */
static uint32_t *list_last(const struct rsh_contents *c)
{
	uint32_t n_names = rsh_names_count(c->names);
	uint32_t *last = calloc((size_t)n_names + 1, sizeof(*last));
	const struct rsh_source_view *v = &c->view;

	for (uint32_t r = v->n_ranks; last && r-- > 0;) {
		const struct rsh_ckpt_index *ix = v->index[r];

		if (!ix || (r + 1 < v->n_ranks && ix == v->index[r + 1]))
			continue;
		for (uint32_t k = 0; k < ix->n_records; k++)
			if (!last[ix->records[k].name])
				last[ix->records[k].name] = r + 1;
	}
	return last;
}

/* Lists what was not seen in ranks before, and strikes it from `last`. */
static int list_index(struct rsh_contents *c, const struct rsh_ckpt_index *ix,
		      uint32_t rank, uint32_t *last)
{
	for (uint32_t k = 0; k < ix->n_records; k++) {
		uint32_t *to = &last[ix->records[k].name];
		const struct rsh_subject one = {
			.name = ix->records[k].name,
			.n_local = c->view.n_ranks,
			.from = rank, .to = *to - 1,
		};
		int rc;

		if (*to == 0)
			continue;
		*to = 0;
		rc = list_add_subject(c, &one);
		if (rc)
			return rc;
	}
	return 0;
}

/* Lists whatever the ranks hold, without a strategy. */
static int list_all(struct rsh_contents *c)
{
	cleanup_free uint32_t *last = list_last(c);
	const struct rsh_source_view *v = &c->view;

	if (!last)
		return -ENOMEM;
	/* It goes by rank, since the order of the indexes depends on
	 * threads. */
	for (uint32_t r = 0; r < v->n_ranks; r++) {
		const struct rsh_ckpt_index *ix = v->index[r];
		int rc;

		if (!ix || (r > 0 && ix == v->index[r - 1]))
			continue;
		rc = list_index(c, ix, r, last);
		if (rc)
			return rc;
	}
	return 0;
}

/* Lists what ranks of a stage hold that no stage lists. */
static int list_stage_unlisted(struct rsh_contents *c, uint32_t stage,
			       const bool *copied, uint32_t *seen)
{
	const uint32_t n = c->src->stage_ranks;
	const uint32_t first = c->first_rank + stage * n;
	const struct rsh_ckpt_index *ix, *before = NULL;

	for (uint32_t i = 0; i < n && first + i < c->view.n_ranks; i++) {
		ix = c->view.index[first + i];
		for (uint32_t k = 0; ix && ix != before && k < ix->n_records;
		     k++) {
			const struct rsh_subject one = {
				.name = ix->records[k].name,
				.first = first, .n_local = n, .to = n - 1,
			};

			if (seen[one.name] > stage)
				continue;
			seen[one.name] = stage + 1;
			if (copied[one.name] &&
			    !rsh_strategy_find(c->src, one.name) &&
			    list_add_subject(c, &one))
				return -ENOMEM;
		}
		before = ix ? ix : before;
	}
	return 0;
}

int rsh_contents_list_unlisted(struct rsh_contents *c, const bool *copied)
{
	cleanup_free uint32_t *seen = calloc(
		(size_t)rsh_names_count(c->names) + 1, sizeof(*seen));
	uint32_t n = 0;
	int rc = seen ? 0 : -ENOMEM;

	for (uint32_t i = 0; i < c->src->n_stages && rc == 0; i++)
		rc = list_stage_unlisted(c, i, copied, seen);
	if (rc == 0)
		rc = rsh_contents_name_kinds(c);
	for (uint32_t i = 0; i < c->n_subjects && rc == 0; i++) {
		const struct rsh_subject *s = &c->subjects[i];

		if (s->kind > RSH_TENSOR_OTHER && s->record->n_dims > 0)
			c->subjects[n++] = *s;
	}
	c->n_subjects = rc ? c->n_subjects : n;
	return rc;
}

int rsh_contents_list(struct rsh_contents *c)
{
	int rc = c->src ? list_strategy(c) : list_all(c);

	return rc ? rc : rsh_contents_name_kinds(c);
}
