/* SPDX-License-Identifier: Apache-2.0 */
/* strategy/derive_stage.c decides which stages have which parameters.
 *
 * A model has layers, whose names are "<list>.<number>.<parameter>", and
 * parameters before and after them.  The longest list of a model is its layers.
 * A strategy shows only the stages of the source's layers, not where the
 * model's code would put them in another job.  So layers are distributed
 * evenly, or as the options say.
 */
#include "derive_i.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/mem.h"
#include "rsh/util/text.h"

#define NO_LAYER UINT32_MAX

struct layers {
	struct rsh_names *lists; /* names: the text before the number */
	uint32_t *list;          /* [param]; NO_LAYER: in no list */
	uint32_t *number;        /* [param] */
	uint32_t longest;        /* the longest list */
	uint32_t n;              /* number of layers of that list */
};

/* Splits a name: "blocks.3.up.weight" has the list "blocks" and the number
 * 3. */
static bool split_name(const char *name, size_t *list_len, uint32_t *number)
{
	for (const char *s = name; (s = strchr(s, '.')); s++) {
		char *end;
		unsigned long n;

		if (!isdigit((unsigned char)s[1]))
			continue;
		n = strtoul(s + 1, &end, 10);
		if ((*end && *end != '.') || n > 65535)
			continue;
		*list_len = (size_t)(s - name);
		*number = (uint32_t)n;
		return true;
	}
	return false;
}

static int read_layers(struct derivation *d, struct layers *l)
{
	l->lists = rsh_names_new();
	l->list = rsh_arena_array(d->arena, uint32_t, d->n_params);
	l->number = rsh_arena_array(d->arena, uint32_t, d->n_params);
	if (!l->lists || !l->list || !l->number)
		return rsh_error_nomem(d->err);
	for (uint32_t i = 0; i < d->n_params; i++) {
		const char *name = d->params[d->params[i].base].text;
		size_t len;

		l->list[i] = NO_LAYER;
		if (!split_name(name, &len, &l->number[i]))
			continue;
		l->list[i] = rsh_names_add(l->lists, name, len);
		if (l->list[i] == RSH_NAME_NONE)
			return rsh_error_nomem(d->err);
	}
	return 0;
}

/* Finds the longest list by the different numbers of each, which must be 0, 1,
 * 2, ... */
static int find_longest(struct derivation *d, struct layers *l)
{
	cleanup_free bool *seen = malloc(65536);
	bool tie = false;

	if (!seen)
		return rsh_error_nomem(d->err);
	l->longest = NO_LAYER;
	for (uint32_t k = 0; k < rsh_names_count(l->lists); k++) {
		uint32_t n = 0;

		memset(seen, 0, 65536);
		for (uint32_t i = 0; i < d->n_params; i++)
			if (l->list[i] == k && !seen[l->number[i]]) {
				seen[l->number[i]] = true;
				n++;
			}
		tie = n == l->n || (tie && n < l->n);
		if (n <= l->n)
			continue;
		l->n = n;
		l->longest = k;
	}
	if (tie && l->n > 1)
		return rsh_error_set(d->err, EINVAL,
				     "%s: several lists have %u layers, so "
				     "which of them go to which stage is not "
				     "known: use --stage, as in --stage "
				     "'encoder=first'",
				     d->src ? d->src->path : "the source",
				     l->n);
	for (uint32_t i = 0; i < d->n_params; i++)
		if (l->list[i] == l->longest && l->longest != NO_LAYER &&
		    l->number[i] >= l->n)
			return rsh_error_set(
				d->err, EINVAL,
				"parameter %s: the layers are not numbered 0 to %u",
				d->params[i].text, l->n - 1);
	return 0;
}

/* ---- distributing layers ---- */

static int layers_per_stage(struct derivation *d, const struct layers *l,
			    uint32_t *first)
{
	uint32_t pp = d->dst_stages, sum = 0;
	char text[512];
	size_t at = 0;

	if (d->o->n_layers && d->o->n_layers != pp)
		return rsh_error_set(
			d->err, EINVAL,
			"layers of %u stages are given, the wanted mesh has pp=%u",
			d->o->n_layers, pp);
	if (!d->o->n_layers && l->n % pp)
		return rsh_error_set(d->err, EINVAL,
				     "%s: how its %u layers are distributed "
				     "over %u stages is not known: use "
				     "--layers, as in --layers 2,1,1",
				     d->src ? d->src->path : "the source", l->n,
				     pp);
	for (uint32_t s = 0; s < pp; s++) {
		first[s] = sum;
		sum += d->o->n_layers ? d->o->layers[s] : l->n / pp;
	}
	if (sum != l->n)
		return rsh_error_set(
			d->err, EINVAL,
			"stages of %u layers altogether are given, the model has %u",
			sum, l->n);
	first[pp] = sum;
	for (uint32_t s = 0; s < pp && at < sizeof(text) - 32; s++)
		rsh_text_add(text, sizeof(text), &at, "%s%u", s ? "," : "",
			     first[s + 1] - first[s]);
	return rsh_derive_note(d, "layers of each stage: %s", text);
}

/* ---- parameters outside the layers ---- */

static void set_one(struct derive_param *p, uint32_t stage)
{
	p->n_stages = 1;
	p->stages[0] = stage;
}

/* Assigns a parameter to the first stage, the last stage, or both, as in the
 * source. */
static int by_source(struct derivation *d, struct derive_param *p)
{
	uint32_t last = d->src_stages - 1;
	bool in_first = rsh_param_in_stage(p->listed, 0);
	bool in_last = rsh_param_in_stage(p->listed, last);

	if (p->listed->n_stages != (uint32_t)in_first + in_last)
		return rsh_derive_refuse(d, p, "the source has it on a stage "
					       "in the middle, so its stage is "
					       "not known: use --stage, as in "
					       "--stage 'REGEX=1'");
	p->n_stages = 0;
	if (in_first)
		p->stages[p->n_stages++] = 0;
	if (in_last)
		p->stages[p->n_stages++] = d->dst_stages - 1;
	return 0;
}

/* Assigns a parameter to the first stage if the checkpoint has it before the
 * layers, and to the last stage if it has it after them. */
static int by_order(struct derivation *d, struct derive_param *p,
		    const struct derive_shape *low,
		    const struct derive_shape *high)
{
	const struct derive_shape *at = d->params[p->base].shape;

	if (!at || !low)
		return rsh_derive_refuse(d, p, "its pipeline stage is not "
					       "known: give a checkpoint of "
					       "the source (--checkpoint), "
					       "whose order determines it, or "
					       "use --stage, as in --stage "
					       "'REGEX=first'");
	if (at > low && at < high)
		return rsh_derive_refuse(d, p, "it is among the layers, so its "
					       "stage is not known: use "
					       "--stage, as in --stage "
					       "'REGEX=1'");
	set_one(p, at < low ? 0 : d->dst_stages - 1);
	return 0;
}

static int by_rule(struct derivation *d, struct derive_param *p,
		   const struct derive_rule *rule)
{
	uint32_t stage = rule->stage == UINT32_MAX ? d->dst_stages - 1 :
						     rule->stage;

	if (stage >= d->dst_stages)
		return rsh_derive_refuse(
			d, p, "a rule puts it on stage %u, there are %u", stage,
			d->dst_stages);
	set_one(p, stage);
	return 0;
}

/* ---- all parameters ---- */

/* If there is one stage, or as many as in the source, `l` is NULL: every
 * parameter stays in its stage unless a rule says otherwise. */
static int distribute(struct derivation *d, const struct layers *l,
		      const uint32_t *first)
{
	const struct derive_shape *low = NULL, *high = NULL;
	int rc = 0;

	/* These are the first and the last record of the layers in the
	 * checkpoint. */
	for (uint32_t i = 0; l && i < d->n_params; i++) {
		const struct derive_shape *at = d->params[i].shape;

		if (!at || d->params[i].base != i || l->list[i] != l->longest)
			continue;
		low = !low || at < low ? at : low;
		high = !high || at > high ? at : high;
	}
	for (uint32_t i = 0; !rc && i < d->n_params; i++) {
		struct derive_param *p = &d->params[i];
		const struct derive_rule *rule =
			rsh_derive_rule_for(d, &d->o->stage, p);

		if (p->left_out)
			continue;
		if (rule) {
			rc = by_rule(d, p, rule);
		} else if (!l && d->dst_stages == 1) {
			set_one(p, 0);
		} else if (!l && p->listed->n_stages > 2) {
			rc = rsh_derive_refuse(d, p, "more than two stages "
						     "share it");
		} else if (!l) {
			p->n_stages = p->listed->n_stages;
			for (uint32_t s = 0; s < p->n_stages; s++)
				p->stages[s] = p->listed->stages[s].stage;
		} else if (l->list[i] == l->longest && l->n) {
			uint32_t s = 0;

			while (l->number[i] >= first[s + 1])
				s++;
			set_one(p, s);
		} else if (d->src_stages > 1) {
			rc = by_source(d, p);
		} else {
			rc = by_order(d, p, low, high);
		}
	}
	return rc;
}

int rsh_derive_stages(struct derivation *d)
{
	struct layers l = { 0 };
	uint32_t *first;
	int rc;

	if (d->dst_stages == 1 ||
	    (d->src && d->dst_stages == d->src_stages && !d->o->n_layers))
		return distribute(d, NULL, NULL);
	first = rsh_arena_array(d->arena, uint32_t, (size_t)d->dst_stages + 1);
	rc = (first ? read_layers(d, &l) : rsh_error_nomem(d->err)) ?:
	     find_longest(d, &l) ?: layers_per_stage(d, &l, first) ?:
	     distribute(d, &l, first);
	rsh_names_free(l.lists);
	return rc;
}
