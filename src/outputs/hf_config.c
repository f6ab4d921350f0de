/* SPDX-License-Identifier: Apache-2.0 */
/* outputs/hf_config.c compares a config.json with the weights beside it, and
 * sets the keys that depend on them. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "hf_config_i.h"

/* ---- the head ---- */

static bool hf_head_differs(const struct hf_check *h)
{
	const struct hf_facts *f = &h->f;
	const struct rsh_hf_weight *a, *b;

	if (f->head == HF_NONE || f->embedding == HF_NONE || !f->w->differ)
		return false;
	a = hf_weight(h, f->embedding);
	b = hf_weight(h, f->head);
	return a->dtype == b->dtype && a->n_dims == b->n_dims &&
	       memcmp(a->dims, b->dims, a->n_dims * sizeof(*a->dims)) == 0 &&
	       f->w->differ(f->w->ctx, f->embedding, f->head);
}

/* Compares "tie_word_embeddings".  Both values are correct if head and
 * embedding exist and are equal. */
static int hf_check_tie(struct hf_check *h)
{
	static const char key[] = "tie_word_embeddings";
	const struct rsh_json_member *m = rsh_json_edit_find(h->e, NULL, key);
	const struct hf_facts *f = &h->f;
	const bool tied = f->head == HF_NONE && !f->other_head &&
			  f->embedding != HF_NONE;
	char say[600];

	if (h->in || !hf_predicts_words(h) || (m && m->kind != RSH_JSON_BOOL) ||
	    (m && !m->number == !tied) || (!tied && !hf_head_differs(h)))
		return 0;
	if (!m)
		return tied && f->w->partial ? 0 :
		       hf_add(h, key, tied ? "true" : "false");
	if (tied)
		return hf_miss(h, key, "false", "have no lm_head.weight");
	snprintf(say, sizeof(say), "say false: %.200s is not %.200s",
		 hf_weight(h, f->head)->name, hf_weight(h, f->embedding)->name);
	return hf_refuse(h, key, "true", say);
}

/* ---- the whole file ---- */

int rsh_hf_config_update(const struct rsh_hf_weights *w,
			 struct rsh_json_edit *e, const char *path,
			 bool complete, struct rsh_error *err)
{
	const struct rsh_json_member *text = rsh_json_edit_find(e, NULL,
								HF_TEXT);
	struct hf_check h = { .e = e, .path = path, .err = err };
	int rc = hf_facts_find(w, &h.f);

	if (rc)
		return rsh_error_nomem(err);
	h.complete = complete &&
		     (rsh_json_edit_find(e, NULL, "model_type") ||
		      rsh_json_edit_find(e, NULL, "architectures"));
	if (text && text->kind == RSH_JSON_OBJECT)
		h.in = HF_TEXT;
	/* It must be known where the decoder's keys are. */
	if (h.f.prefix && (h.in || !strstr(h.f.prefix, "language_model."))) {
		rc = hf_check_sizes(&h);
		if (rc == 0)
			rc = hf_add_sizes(&h);
		if (rc == 0)
			rc = hf_check_tie(&h);
	}
	if (rc == 0)
		rc = hf_check_quantization(&h);
	return rc ? rc : hf_set_all_types(&h);
}
