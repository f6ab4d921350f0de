/* SPDX-License-Identifier: Apache-2.0 */
/* formats/megatron/place.c finds which files have each tensor of a model, and
 * under which name. */
#include "config.h"

#include "output_i.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/mem.h"

static const char embedding[] = "embedding.word_embeddings.weight";
static const char head[] = "output_layer.weight";

/* ---- which tensors ---- */

/* Adds a tensor under a name, with the parts of an offer.  Returns 0 or
 * -ENOMEM. */
static int model_add(struct rsh_megatron_model *m, const struct rsh_offer *o,
		     const char *name)
{
	struct rsh_megatron_shown *t;
	const uint32_t id = rsh_names_add(m->cat->names, name, strlen(name));

	if (id == RSH_NAME_NONE || rsh_room(m->v, m->cap, m->n + 1))
		return -ENOMEM;
	t = &m->v[m->n];
	*t = (struct rsh_megatron_shown){ .o = *o, .number = (uint32_t)m->n };
	m->n++;
	t->o.name = id;
	t->n_raw = o->n_dims;
	t->raw = o->dims;
	t->name = rsh_names_text(m->cat->names, id);
	rsh_megatron_name_read(t->name, &t->is);
	return 0;
}

static int model_take(struct rsh_megatron_model *m,
		      const struct rsh_offers *offers,
		      const struct rsh_plan_options *opts,
		      struct rsh_error *err)
{
	for (uint32_t i = 0; i < offers->n; i++) {
		const struct rsh_offer *o = &offers->v[i];
		const char *name = rsh_names_text(m->cat->names, o->name);
		const char *other = opts->rename ?
				    opts->rename(opts->ctx, name) : NULL;

		if (opts->wanted && !opts->wanted(opts->ctx, name))
			continue;
		if (model_add(m, o, other ? other : name))
			return rsh_error_nomem(err);
	}
	if (m->n == 0)
		return rsh_error_set(err, EINVAL, "no parameter is left "
				     "(parameters are selected by their names "
				     "before --rename)");
	return 0;
}

/* Makes the index of names. */
static int model_index(struct rsh_megatron_model *m, struct rsh_error *err)
{
	m->n_names = rsh_names_count(m->cat->names);
	m->by_name = rsh_arena_array(&m->arena, uint32_t, m->n_names);
	if (!m->by_name)
		return rsh_error_nomem(err);
	for (size_t i = 0; i < m->n; i++) {
		uint32_t *place = &m->by_name[m->v[i].o.name];

		if (*place)
			return rsh_error_set(err, EINVAL, "renaming gives two "
					     "parameters the name %s",
					     m->v[i].name);
		*place = (uint32_t)i + 1;
	}
	return 0;
}

/* ---- what kind of model it is ---- */

static int model_look(struct rsh_megatron_model *m, struct rsh_error *err)
{
	bool known = false;

	for (size_t i = 0; i < m->n; i++) {
		const struct rsh_megatron_shown *t = &m->v[i];

		m->latent |= strstr(t->name, ".linear_kv_up_proj.") ||
			     strstr(t->name, ".linear_kv_nope.");
		m->engine |= strstr(t->name, ".layer_norm_weight") != NULL;
		m->untied |= strcmp(t->name, head) == 0;
		m->predicts |= strncmp(t->name, "mtp.", 4) == 0;
		if (t->is.after_layer && t->is.layer >= m->n_layers)
			m->n_layers = (uint32_t)t->is.layer + 1;
		if (t->is.n > 0 && t->is.expert >= m->n_experts)
			m->n_experts = (uint32_t)t->is.expert + 1;
		known |= t->is.kind != RSH_MEGATRON_UNKNOWN;
	}
	return known ? 0 :
	       rsh_error_set(err, EINVAL, "no tensor has a name of "
			     "Megatron's, but names such as %s: --convert "
			     "makes them of Hugging Face's (`reshardfs convert "
			     "list`)", m->v[0].name);
}

/* Layers without tensors are refused: their number tells the stage. */
static int check_layers(const struct rsh_megatron_model *m,
			struct rsh_error *err)
{
	cleanup_free bool *found = NULL;
	uint32_t i = 0;

	if (m->n_layers > m->n)
		return rsh_error_set(err, EINVAL, "the model has a layer %u, "
				     "and only %zu tensors", m->n_layers - 1,
				     m->n);
	found = calloc((size_t)m->n_layers + 1, sizeof(*found));
	if (!found)
		return rsh_error_nomem(err);
	for (size_t k = 0; k < m->n; k++)
		if (m->v[k].is.after_layer)
			found[m->v[k].is.layer] = true;
	while (i < m->n_layers && found[i])
		i++;
	return i == m->n_layers ? 0 :
	       rsh_error_set(err, EINVAL, "the model has a layer %u, and no "
			     "tensor of layer %u", m->n_layers - 1, i);
}

/* ---- experts ---- */

/* The expert before each one has such a tensor, and the last one: so all
 * have. */
static int check_experts(const struct rsh_megatron_model *m,
			 struct rsh_error *err)
{
	const uint32_t ranks = m->wanted->expert;
	char name[4096];

	if (m->n_experts > 0 && m->n_experts % ranks != 0)
		return rsh_error_set(err, EINVAL, "%u experts cannot be "
				     "divided over expert parallel size %u",
				     m->n_experts, ranks);
	for (size_t i = 0; i < 2 * m->n; i++) {
		const struct rsh_megatron_shown *t = &m->v[i / 2];
		const uint32_t before = t->is.expert > 0 ?
					(uint32_t)t->is.expert - 1 : 0;

		if (t->is.n == 0)
			continue;
		snprintf(name, sizeof(name), "%.*s%u%s", (int)t->is.at, t->name,
			 i % 2 ? m->n_experts - 1 : before,
			 t->name + t->is.at + t->is.n);
		if (!rsh_megatron_shown_find(m, name))
			return rsh_error_set(err, EINVAL, "the model has %s, "
					     "and not %s", t->name, name);
	}
	return 0;
}

/* ---- stages ---- */

/* Sets the chunk of a tensor. */
static int find_chunk(const struct rsh_megatron_model *m, const uint32_t *ends,
		      struct rsh_megatron_shown *t, struct rsh_error *err)
{
	const struct rsh_megatron_wanted *w = m->wanted;
	const uint32_t last = w->pipeline * w->n_chunks - 1;

	t->order = 0;
	while (t->is.after_layer && ends[t->order] <= t->is.layer)
		t->order++;
	if (t->is.after_layer)
		return 0;
	if (strncmp(t->name, "embedding.", strlen("embedding.")) == 0)
		t->order = t->again ? last : 0;
	else if (t->is.kind != RSH_MEGATRON_UNKNOWN || last == 0)
		t->order = last;
	else
		return rsh_error_set(err, ENOTSUP, "tensor %s: nothing says "
				     "which stage has it (--drop leaves it "
				     "out)", t->name);
	return 0;
}

/* The last stage has the embedding again: as the head, if it has no other one,
 * and for prediction layers. */
static int add_copies(struct rsh_megatron_model *m, struct rsh_error *err)
{
	const struct rsh_megatron_shown *t = rsh_megatron_shown_find(m,
								     embedding);
	struct rsh_offer o;
	char name[96];
	int rc = 0;

	if (!t || m->wanted->pipeline == 1)
		return 0;
	o = t->o;
	if (!m->untied)
		rc = model_add(m, &o, head);
	snprintf(name, sizeof(name), "%s (of the last stage)", embedding);
	if (rc == 0 && m->predicts) {
		rc = model_add(m, &o, name);
		if (rc == 0)
			m->v[m->n - 1].again = true;
	}
	return rc ? rsh_error_nomem(err) : 0;
}

/* ---- names ---- */

/* Sets the name in the file: after that of the chunk, with the numbers that
 * layer and expert have there. */
static int name_make(const struct rsh_megatron_model *m, const uint32_t *ends,
		     struct rsh_megatron_shown *t)
{
	const struct rsh_megatron_wanted *w = m->wanted;
	const uint32_t local = m->n_experts / w->expert;
	const char *name = t->name, *end = name + strlen(name);
	char chunk[24] = "model", layer[48] = "", expert[24] = "";
	char text[4096];
	int n;

	if (w->n_chunks > 1)
		snprintf(chunk, sizeof(chunk), "model%u",
			 t->order / w->pipeline);
	if (t->is.after_layer) {
		snprintf(layer, sizeof(layer), "decoder.layers.%u",
			 (uint32_t)t->is.layer -
			 (t->order > 0 ? ends[t->order - 1] : 0));
		name = t->is.after_layer;
	}
	if (t->is.n > 0) {
		snprintf(expert, sizeof(expert), "%u",
			 (uint32_t)t->is.expert % local);
		end = t->name + t->is.at;
	} else if (t->again) {
		end = name + strlen(embedding);
	}
	n = snprintf(text, sizeof(text), "%s.%s%.*s%s%s", chunk, layer,
		     (int)(end - name), name, expert,
		     t->is.n ? end + t->is.n : "");
	if (n < 0 || (size_t)n >= sizeof(text))
		return -ENOMEM;
	t->place.written = rsh_names_add(m->cat->names, text, (size_t)n);
	return t->place.written == RSH_NAME_NONE ? -ENOMEM : 0;
}

static int shown_by_file(const void *a, const void *b)
{
	const struct rsh_megatron_shown *x = a, *y = b;

	return rsh_by_u32(&x->place.stage, &y->place.stage) ?:
	       rsh_by_u32(&x->order, &y->order) ?:
	       rsh_by_u32(&x->number, &y->number);
}

static int places_make(struct rsh_megatron_model *m, const uint32_t *ends,
		       struct rsh_error *err)
{
	const struct rsh_megatron_wanted *w = m->wanted;
	int rc = 0;

	for (size_t i = 0; i < m->n && rc == 0; i++) {
		struct rsh_megatron_shown *t = &m->v[i];

		rc = find_chunk(m, ends, t, err);
		if (rc)
			return rc;
		t->place.stage = t->order % w->pipeline;
		t->place.block = t->is.n == 0 ? RSH_EVERY_BLOCK :
				 (uint32_t)t->is.expert /
				 (m->n_experts / w->expert);
		if (name_make(m, ends, t))
			return rsh_error_nomem(err);
		rc = rsh_megatron_cut_make(m, t, err);
	}
	return rc;
}

int rsh_megatron_place(struct rsh_megatron_model *m,
		       const struct rsh_offers *offers,
		       const struct rsh_plan_options *opts,
		       struct rsh_error *err)
{
	const uint32_t n = m->wanted->pipeline * m->wanted->n_chunks;
	uint32_t *ends = rsh_arena_array(&m->arena, uint32_t, n);
	int rc = ends ? model_take(m, offers, opts, err) : rsh_error_nomem(err);

	rc = rc ?: model_index(m, err);
	if (rc)
		return rc;
	rc = model_look(m, err) ?: check_layers(m, err) ?:
	     rsh_megatron_wanted_divide(m->wanted, m->n_layers, ends, err) ?:
	     check_experts(m, err) ?: add_copies(m, err) ?:
	     places_make(m, ends, err);
	if (rc == 0)
		rsh_sort(m->v, m->n, shown_by_file);
	return rc;
}
