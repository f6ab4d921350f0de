/* SPDX-License-Identifier: Apache-2.0 */
/* weights/lacks.c finds what a whole model lacks though no rule wants it beside
 * another tensor: the embedding, the last norm, the head, and layers.  Only a
 * config.json says that a model has them; a table may have lines for tensors
 * that only some models have. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/checked.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"
#include "weights_i.h"

#define LAYERS_MAX 65536

/* ---- tensors without a number ---- */

enum lacks_kind { EMBEDDING, NORM, HEAD, N_KINDS };

/* Returns the name on Hugging Face's side of a rule that is one to one; NULL:
 * it is another rule, or one for a number. */
static const char *lacks_name(const struct weights_unit *u)
{
	const struct rsh_rule *r = u->rule;

	return r->kind == RSH_RULE_SAME && !r->when &&
	       r->n_tensors[RSH_SIDE_HF] == 1 &&
	       r->n_tensors[RSH_SIDE_MINDSPORE] == 1 &&
	       u->names[RSH_SIDE_HF][0].n_holes == 0 &&
	       u->names[RSH_SIDE_MINDSPORE][0].n_holes == 0 ?
		u->names[RSH_SIDE_HF][0].texts[0] : NULL;
}

/* Returns whether a name is one of the kind.  The norm has the prefix of the
 * embedding, since other parts of a model have norms, too. */
static bool lacks_is(enum lacks_kind kind, const char *name,
		     const char *embedding)
{
	static const char *const words[N_KINDS] = {
		"embed_tokens embed word_embeddings wte tok_embeddings",
		"norm ln_f final_layernorm",
		"lm_head head output_layer output",
	};
	const char *end = strrchr(name, '.'), *begin = end;

	if (!end || strcmp(end, ".weight") != 0)
		return false;
	while (begin > name && begin[-1] != '.')
		begin--;
	return rsh_word_place(words[kind], " ", begin,
			      (size_t)(end - begin)) >= 0 &&
	       (kind != NORM || (embedding && strncmp(
			name, embedding, (size_t)(begin - name)) == 0));
}

static bool lacks_unit(const struct weights_work *w, uint32_t unit)
{
	return !rsh_any(i, w->matches.n,
			w->matches.m[i].unit == unit && !w->matches.m[i].state);
}

/* If a table has several names for a tensor, one of them is enough. */
static int lacks_check_kind(struct weights_work *w, enum lacks_kind kind,
			    const char **embedding)
{
	const struct weights_unit *lacking = NULL;
	const char *name = NULL, *first = NULL;

	for (uint32_t i = 0; i < w->n_units; i++) {
		name = lacks_name(&w->units[i]);
		if (!name || !lacks_is(kind, name, *embedding))
			continue;
		if (kind == EMBEDDING)
			*embedding = name;
		if (!lacks_unit(w, i))
			return 0;
		if (!weights_is_wanted(w, w->units[i].names[w->to][0].texts[0]))
			return 0;
		if (!lacking)
			first = w->units[i].names[w->from][0].texts[0];
		lacking = lacking ?: &w->units[i];
	}
	if (!lacking)
		return 0;
	if (kind == HEAD)
		return weights_bad(w, lacking->rule, "%.400s is missing, and "
				   "\"tie_word_embeddings\" is false in %.400s",
				   first,
				   rsh_model_config_path(w->o->config));
	return weights_bad(w, lacking->rule, "%.400s is missing, which every "
			   "model with the architecture in %.400s has", first,
			   rsh_model_config_path(w->o->config));
}

/* ---- layers ---- */

/* Returns the index of the number of a layer of the decoder among the shared
 * numbers of a unit, or n_shared. */
static uint32_t lacks_layer(const struct weights_unit *u)
{
	static const char *const lists[] = {
		"model.layers.", "layers.", "model.language_model.layers.",
		"language_model.model.layers.", "language_model.layers.",
		"gpt_neox.layers.", "transformer.h.", "h.",
		"transformer.encoder.layers.", "transformer.layers.",
	};
	const struct weights_name *n = u->names[RSH_SIDE_HF];

	if (!n->n_holes || !rsh_any(k, sizeof(lists) / sizeof(lists[0]),
				    strcmp(n->texts[0], lists[k]) == 0))
		return u->n_shared;
	return rsh_index(i, u->n_shared,
			 strcmp(u->shared[i], n->holes[0].letter) == 0);
}

/* Returns whether the options want the tensor of a layer that the unit of a
 * match would make. */
static bool lacks_is_wanted(const struct weights_work *w,
			    const struct weights_match *m, uint32_t at,
			    uint64_t layer)
{
	const struct weights_unit *u = &w->units[m->unit];
	const struct weights_name *n = &u->names[w->to][0];
	uint64_t numbers[WEIGHTS_HOLES_MAX], holes[WEIGHTS_HOLES_MAX];
	char text[WEIGHTS_TEXT];

	memcpy(numbers, m->numbers, sizeof(numbers));
	numbers[at] = layer;
	weights_spread(u, n, numbers, holes);
	return weights_print(n, holes, "", text) && weights_is_wanted(w, text);
}

/* Returns whether the model counts the attention and the MLP of a layer as
 * two. */
static bool lacks_counts_two(const struct rsh_model_config *c, uint64_t n)
{
	char type[16];

	for (uint64_t i = 0; i < n; i++)
		if (rsh_model_config_word(c, "layer_types", i, type,
					  sizeof(type)) &&
		    strcmp(type, "mlp") == 0)
			return true;
	return false;
}

static int lacks_check_layers(struct weights_work *w)
{
	static const char *const keys[] = { "num_hidden_layers", "num_layers" };
	const struct rsh_model_config *c = w->o->config;
	const struct weights_match *any = NULL;
	cleanup_free bool *there = NULL;
	uint32_t at_any = 0;
	uint64_t n = 0, end = 0, first;
	size_t k = 0;

	while (k < 2 && !rsh_model_config_number(c, keys[k], &n))
		k++;
	if (k == 2 || n == 0 || n > LAYERS_MAX)
		return 0;
	there = calloc(n, sizeof(*there));
	if (!there)
		return rsh_error_nomem(w->err);
	for (uint32_t i = 0; i < w->matches.n; i++) {
		const struct weights_match *m = &w->matches.m[i];
		const uint32_t at = lacks_layer(&w->units[m->unit]);

		if (at == w->units[m->unit].n_shared || m->state)
			continue;
		if (m->numbers[at] >= n)
			continue;
		there[m->numbers[at]] = true;
		end = rsh_max_u64(end, m->numbers[at] + 1);
		any = m;
		at_any = at;
	}
	for (first = 0; first < n && there[first]; first++)
		;
	if (!any || first == n ||
	    (first == end && 2 * end == n && lacks_counts_two(c, n)) ||
	    !lacks_is_wanted(w, any, at_any, first))
		return 0;
	return weights_bad(w, w->units[any->unit].rule, "all tensors of layer "
			   "%" PRIu64 " are missing, and \"%s\" in %.400s is "
			   "%" PRIu64, first, keys[k],
			   rsh_model_config_path(c), n);
}

/* ---- all ---- */

int weights_check_lacks(struct weights_work *w)
{
	const struct rsh_model_config *c = w->o->config;
	const char *embedding = NULL;
	int rc = 0;

	/* With `rest` lines, rules name only what differs. */
	if (!w->o->is_whole || !c || !rsh_model_config_predicts_words(c) ||
	    w->o->table->n_pairs[RSH_RULE_REST])
		return 0;
	for (enum lacks_kind k = EMBEDDING; rc == 0 && k < N_KINDS; k++)
		if (k != HEAD ||
		    (rsh_model_config_has(c, "tie_word_embeddings") &&
		     !rsh_model_config_is_tied(c) && !w->o->untie))
			rc = weights_wrong(w, lacks_check_kind(w, k,
							       &embedding));
	return rc ?: weights_wrong(w, lacks_check_layers(w));
}
