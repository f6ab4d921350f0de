/* SPDX-License-Identifier: Apache-2.0 */
/* weights/adapters_tied.c does with tied embeddings what PEFT's
 * merge_and_unload() and transformers' save_pretrained() do.  Tied weights are
 * one tensor, which the adapters of both change, the embedding's first.  A
 * module in "modules_to_save" has a tensor of its own, and from then on both
 * are written. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "adapters_i.h"

/* How the names of embeddings end, and what replaces that in the head's. */
static const struct {
	const char *embedding, *head;
} tied_names[] = {
	{ "model.embed_tokens.weight", "lm_head.weight" },
	{ "model.language_model.embed_tokens.weight", "lm_head.weight" },
	{ "embed_tokens.weight", "lm_head.weight" },
	{ "transformer.wte.weight", "lm_head.weight" },
	{ "wte.weight", "lm_head.weight" },
	{ "transformer.word_embeddings.weight", "lm_head.weight" },
	{ "word_embeddings.weight", "lm_head.weight" },
	{ "gpt_neox.embed_in.weight", "embed_out.weight" },
};

/* Finds the embedding, and writes the name of its head. */
static void tie_find_embedding(struct adapting *w)
{
	struct adapters_tie *t = &w->tie;

	for (size_t k = 0; k < sizeof(tied_names) / sizeof(tied_names[0]) &&
	     !t->embedding; k++)
		for (uint32_t i = 0; i < w->n && !t->embedding; i++) {
			const char *name = rsh_names_text(w->cat->names,
							  w->v[i].name);
			const char *end = tied_names[k].embedding;
			size_t stem;

			if (w->v[i].n_dims != 2 ||
			    (strcmp(name, end) != 0 &&
			     (strncmp(name, "language_model.", 15) != 0 ||
			      strcmp(name + 15, end) != 0)))
				continue;
			stem = strlen(name) - strlen(end);
			snprintf(t->head_name, sizeof(t->head_name), "%.*s%s",
				 (int)stem, name, tied_names[k].head);
			t->embedding = i + 1;
		}
}

void adapters_tie_find(struct adapting *w)
{
	struct adapters_tie *t = &w->tie;
	const struct rsh_offer *head;

	tie_find_embedding(w);
	if (!t->embedding || !w->how->config)
		return;
	head = adapting_offer(w, t->head_name);
	t->head = head ? (uint32_t)(head - w->v) + 1 : 0;
	t->tied = rsh_model_config_is_tied(w->how->config) ||
		  (!head && rsh_model_config_predicts_words(w->how->config) &&
		   !rsh_model_config_has(w->how->config,
					 "tie_word_embeddings"));
}

/* Returns whether a name of the present adapter begins with that of a module,
 * as the names in memory do. */
static bool tie_is_touched(const struct adapting *w)
{
	for (uint32_t i = 0; i < w->index->n_records; i++) {
		const char *name = rsh_names_text(w->cat->names,
						  w->index->records[i].name);

		if (strstr(name, "lm_head.") || strstr(name, "embed_") ||
		    strstr(name, "wte.") || strstr(name, "word_embeddings."))
			return true;
	}
	return false;
}

/* Returns whether the adapter has a weight of its own for the module with a
 * weight. */
static bool tie_saves(const struct adapting *w, const char *weight)
{
	char module[1024];

	snprintf(module, sizeof(module), "%.*s",
		 (int)(strlen(weight) - strlen(".weight")), weight);
	return rsh_adapter_config_saves(w->adapters[w->a].config, module);
}

/* Makes the head an offer of its own, with what was done to the embedding. */
static int tie_divide(struct adapting *w)
{
	struct adapters_tie *t = &w->tie;
	const struct adapters_change from = w->changes[t->embedding - 1];
	struct adapters_change *c;

	if (!t->head) {
		w->v[w->n] = w->v[t->embedding - 1];
		w->v[w->n].name = rsh_names_add(w->cat->names, t->head_name,
						strlen(t->head_name));
		if (w->v[w->n].name == RSH_NAME_NONE)
			return rsh_error_nomem(w->err);
		t->head = ++w->n;
	}
	c = &w->changes[t->head - 1];
	if (from.by) {
		if (!adapting_change(w, &w->v[t->head - 1]))
			return rsh_error_nomem(w->err);
		memcpy(c->by, from.by, from.n * sizeof(*c->by));
		memcpy(c->factors, from.factors, from.n * sizeof(*c->factors));
		c->n = from.n;
		c->instead = from.instead;
	}
	t->tied = false;
	*w->how->untied = true;
	return 0;
}

int adapters_tie_prepare(struct adapting *w)
{
	struct adapters_tie *t = &w->tie;
	const struct rsh_offer *e = &w->v[t->embedding - 1],
		*h = t->head ? &w->v[t->head - 1] : NULL;
	int rc = 1;

	if (!t->tied || !tie_is_touched(w))
		return 0;
	/* transformers does not tie weights of files that differ. */
	if (h && (h->dtype != e->dtype ||
		  !rsh_dims_equal(h->dims, h->n_dims, e->dims, 2)))
		rc = 0;
	else if (h && !w->changes[t->embedding - 1].by)
		rc = w->how->same(w->how->ctx, e, h, w->err);
	/* What cannot be compared is tied, as config.json says. */
	if (rc == -ENOTSUP)
		rc = 1;
	if (rc < 0)
		return rc;
	t->tied = rc;
	if (t->tied && (tie_saves(w, rsh_names_text(w->cat->names, e->name)) ||
			tie_saves(w, t->head_name)))
		return tie_divide(w);
	return 0;
}

void adapters_tie_finish(struct adapting *w)
{
	const struct adapters_tie *t = &w->tie;

	if (!t->tied || !t->head || !w->changes[t->embedding - 1].by)
		return;
	w->n--;
	memmove(&w->v[t->head - 1], &w->v[t->head],
		(w->n - t->head + 1) * sizeof(*w->v));
}
