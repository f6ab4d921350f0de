/* SPDX-License-Identifier: Apache-2.0 */
/* formats/megatron/place.c finds which files have each tensor of a model, under
 * which name, and how it is cut over the ranks of a stage: the inverse of
 * slices.c and grouped.c, by the table of names. */
#include "config.h"

#include "output_i.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/mem.h"
#include "rsh/util/text.h"

static const char embedding[] = "embedding.word_embeddings.weight";
static const char head[] = "output_layer.weight";

/* Returns the tensor with that name; NULL: there is none. */
static const struct rsh_megatron_shown *
shown_find(const struct rsh_megatron_model *m, const char *name)
{
	const uint32_t id = rsh_names_find(m->cat->names, name, strlen(name));

	return id < m->n_names && m->by_name[id] ? &m->v[m->by_name[id] - 1] :
						   NULL;
}

/* ---- grids ---- */

/* A dimension that is cut into n slices; the next slice has a rank that is
 * `stride` higher.  n is 1: it is not cut. */
struct cut_axis {
	uint32_t d, n, stride;
};

/* Cuts a tensor over two dimensions, of which the second is after the first. */
static int cut_keep(const struct rsh_megatron_model *m,
		    struct rsh_megatron_shown *t, struct cut_axis a,
		    struct cut_axis b, struct rsh_error *err)
{
	struct rsh_grid g = {
		.n_ranks = a.n * b.n, .n_dims = t->o.n_dims, .shard = 1,
	};
	const struct cut_axis both[] = { a, b };
	uint8_t n = 0;

	for (uint32_t d = 0; d < g.n_dims; d++) {
		g.split[d] = 1;
		g.first[d] = n;
		for (unsigned i = 0; i < 2; i++) {
			if (both[i].d != d || both[i].n == 1)
				continue;
			g.split[d] = both[i].n;
			g.axes[n++] = (struct rsh_grid_axis){ both[i].n,
							      both[i].stride };
		}
	}
	g.first[g.n_dims] = n;
	t->place.cut = rsh_catalogue_keep_cut(m->cat, rsh_cut_of_grid(
						      rsh_grid_make(&g)));
	return t->place.cut ? 0 : rsh_error_nomem(err);
}

/* ---- what cannot be divided ---- */

static int refuse_size(const struct rsh_megatron_shown *t, uint64_t size,
		       const char *what, uint32_t n, bool of_expert,
		       struct rsh_error *err)
{
	return rsh_error_set(err, EINVAL, "tensor %s: %" PRIu64 " %s cannot be "
			     "divided over %s %u%s", t->name, size, what,
			     of_expert ? "expert tensor parallel size" :
			     "tensor parallel size", n,
			     t->is.kind == RSH_MEGATRON_VOCABULARY ?
			     " (--vocab-multiple pads the vocabulary)" : "");
}

static int refuse_shape(const struct rsh_megatron_shown *t,
			struct rsh_error *err)
{
	char dims[256];

	return rsh_error_set(err, EINVAL, "tensor %s: a shape of %s is not "
			     "that of Megatron's weight with this name",
			     t->name, rsh_dims_text(t->o.dims, t->o.n_dims,
						    dims, sizeof(dims)));
}

static int refuse_unknown(const struct rsh_megatron_shown *t, const char *what,
			  struct rsh_error *err)
{
	return rsh_error_set(err, ENOTSUP, "tensor %s: %s (--drop leaves it "
			     "out)", t->name, what);
}
#define HOW_DIVIDED "nothing says how it is divided over ranks"

/* ---- a tensor ---- */

/* Cuts a tensor into n slices of a dimension. */
static int cut_over(const struct rsh_megatron_model *m,
		    struct rsh_megatron_shown *t, uint32_t d, uint32_t n,
		    struct rsh_error *err)
{
	const struct cut_axis none = { 0, 1, 1 };

	if (n > 1 && t->o.n_dims <= d)
		return refuse_shape(t, err);
	if (n > 1 && t->o.dims[d] % n != 0)
		return refuse_size(t, t->o.dims[d], d ? "columns" : "rows", n,
				   t->is.of_expert, err);
	return cut_keep(m, t, (struct cut_axis){ d, n, 1 }, none, err);
}

/* Divides a dimension of what is shown. */
static int divide(struct rsh_megatron_model *m, struct rsh_megatron_shown *t,
		  uint32_t d, uint64_t inner, struct rsh_error *err)
{
	struct rsh_offers one = { m->cat, &t->o, 1 };
	int rc = rsh_offers_expand(&one, &m->arena) ?:
		 rsh_offer_divide(m->cat, &m->arena, &t->o, d, inner);

	return rc == -ENOTSUP ?
	       rsh_error_set(err, ENOTSUP, "tensor %s: it is in the source in "
			     "too many parts", t->name) :
	       rc ? rsh_error_nomem(err) : 0;
}

/* Rows of gate and up are divided alike, if a slice has both: the first matrix
 * has then twice the rows that the second has columns. */
static int cut_gate(struct rsh_megatron_model *m, struct rsh_megatron_shown *t,
		    uint32_t n, struct rsh_error *err)
{
	const struct rsh_megatron_shown *second;
	const uint64_t rows = t->o.n_dims ? t->o.dims[0] : 0;
	char name[4096];
	int rc;

	if (n == 1)
		return cut_over(m, t, 0, n, err);
	rsh_megatron_second_name(t->name, name, sizeof(name));
	second = shown_find(m, name);
	if (!second || second->n_raw != 2 || rows == 0 ||
	    (rows != second->raw[1] && rows != 2 * second->raw[1]))
		return refuse_unknown(t, HOW_DIVIDED, err);
	if (rows == second->raw[1])
		return cut_over(m, t, 0, n, err);
	if (rows / 2 % n != 0)
		return refuse_size(t, rows / 2, "rows of the gate", n,
				   t->is.of_expert, err);
	rc = divide(m, t, 0, rows / 2, err);
	return rc ?: cut_over(m, t, 1, n, err);
}

/* ---- experts in weight1 and weight2 ---- */

/* Finds the tensor of the same layer with another end of the name. */
static const struct rsh_megatron_shown *
group_find(const struct rsh_megatron_model *m,
	   const struct rsh_megatron_shown *t, const char *end)
{
	char name[4096];

	snprintf(name, sizeof(name), "%.*s%s",
		 (int)(strlen(t->name) - strlen("experts.weight1")), t->name,
		 end);
	return shown_find(m, name);
}

static bool group_measure(const struct rsh_megatron_model *m,
			  const struct rsh_megatron_shown *t,
			  struct rsh_megatron_group *z, bool *folded)
{
	const struct rsh_megatron_shown *one = group_find(m, t,
							  "experts.weight1");
	const struct rsh_megatron_shown *two = group_find(m, t,
							  "experts.weight2");
	const struct rsh_megatron_shown *router = group_find(m, t,
							     "router.weight");
	const uint64_t *a, *b;

	if (!one || !two || !router || router->o.n_dims != 2 ||
	    router->o.dims[0] == 0)
		return false;
	a = one->raw;
	b = two->raw;
	*z = (struct rsh_megatron_group){ .n = router->o.dims[0] };
	if (one->n_raw != 2 || two->n_raw != 2 || b[0] % z->n != 0 ||
	    b[0] == 0 || b[1] == 0)
		return false;
	z->hidden = b[1];
	z->f = b[0] / z->n;
	*folded = a[0] == z->hidden && z->n > 1;
	z->width = *folded ? a[1] / z->n : a[1];
	return (*folded ? a[1] % z->n == 0 : a[0] / z->n == z->hidden &&
					       a[0] % z->n == 0) &&
	       (z->width == z->f || (z->width / 2 == z->f &&
				     z->width % 2 == 0));
}

static int cut_grouped(struct rsh_megatron_model *m,
		       struct rsh_megatron_shown *t, struct rsh_error *err)
{
	const struct rsh_megatron_wanted *w = m->wanted;
	struct rsh_megatron_group z;
	bool folded; /* weight1 has the shape that Megatron has */
	uint32_t d;
	int rc = 0;

	if (!group_measure(m, t, &z, &folded))
		return refuse_shape(t, err);
	if (z.n % w->expert != 0 || z.n > UINT32_MAX)
		return rsh_error_set(err, EINVAL, "tensor %s: %" PRIu64 " "
				     "experts cannot be divided over expert "
				     "parallel size %u", t->name, z.n,
				     w->expert);
	m->n_experts = (uint32_t)z.n;
	if (z.f % w->expert_tensor != 0)
		return refuse_size(t, z.f, "columns of an expert",
				   w->expert_tensor, true, err);
	if (t->is.grouped == 1 && folded) {
		rc = divide(m, t, 1, z.width, err);
		if (rc == 0 && rsh_offer_join(m->cat, &m->arena, &t->o, 0))
			rc = rsh_error_nomem(err);
	}
	rc = rc ?: divide(m, t, 0, t->is.grouped == 1 ? z.hidden : z.f, err);
	d = t->is.grouped == 1 ? 2 : 1;
	if (rc == 0 && t->is.grouped == 1 && z.width > z.f)
		rc = divide(m, t, d++, z.f, err);
	return rc ?: cut_keep(m, t, (struct cut_axis){ 0, w->expert,
						       w->expert_tensor },
			      (struct cut_axis){ d, w->expert_tensor, 1 }, err);
}

/* ---- the table ---- */

/* Sets the cut of a tensor, and the shape in which it is shown.  Returns 0, or
 * -errno with a sentence: it cannot be divided. */
static int cut_make(struct rsh_megatron_model *m, struct rsh_megatron_shown *t,
		    struct rsh_error *err)
{
	const struct rsh_megatron_wanted *w = m->wanted;
	const uint32_t n = t->is.of_expert ? w->expert_tensor : w->tensor;

	if (t->is.grouped)
		return cut_grouped(m, t, err);
	switch (t->again ? RSH_MEGATRON_VOCABULARY : t->is.kind) {
	case RSH_MEGATRON_UNKNOWN:
		return n > 1 || w->expert > 1 ?
		       refuse_unknown(t, HOW_DIVIDED, err) :
		       cut_over(m, t, 0, 1, err);
	case RSH_MEGATRON_SAME:
		return cut_over(m, t, 0, 1, err);
	case RSH_MEGATRON_QKV:
		/* Megatron divides whole heads over tensor ranks, and whole
		 * groups unless there are fewer. */
		if (!m->latent && m->heads % w->tensor != 0)
			return refuse_size(t, m->heads, "heads", w->tensor,
					   false, err);
		if (!m->latent && m->groups > 0 &&
		    m->groups % w->tensor != 0 && w->tensor % m->groups != 0)
			return refuse_size(t, m->groups,
					   "heads of keys and values",
					   w->tensor, false, err);
		return cut_over(m, t, 0, m->latent ? 1 : n, err);
	case RSH_MEGATRON_Q_DOWN:
	case RSH_MEGATRON_KV_DOWN:
		return cut_over(m, t, 0, m->engine ? 1 : n, err);
	case RSH_MEGATRON_COLUMNS:
		return n > 1 && t->o.n_dims != 2 ? refuse_shape(t, err) :
						   cut_over(m, t, 1, n, err);
	case RSH_MEGATRON_GATE:
		return cut_gate(m, t, n, err);
	default: /* rows, vocabulary */
		return cut_over(m, t, 0, n, err);
	}
}

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
	uint32_t i;

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
	i = rsh_index(k, m->n_layers, !found[k]);
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
		if (!shown_find(m, name))
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
	if (t->again || !rsh_begins_any(t->name, "embedding."))
		t->order = last;
	return t->order == 0 || t->again ||
	       t->is.kind != RSH_MEGATRON_UNKNOWN ? 0 :
	       refuse_unknown(t, "nothing says which stage has it", err);
}

/* The last stage has the embedding again: as the head, if it has no other one,
 * and for prediction layers. */
static int add_copies(struct rsh_megatron_model *m, struct rsh_error *err)
{
	const struct rsh_megatron_shown *t = shown_find(m, embedding);
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

RSH_ORDER(shown_by_file, struct rsh_megatron_shown,
	  rsh_by_u32(&x->place.stage, &y->place.stage) ?:
	  rsh_by_u32(&x->order, &y->order) ?:
	  rsh_by_u32(&x->number, &y->number))

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
		rc = cut_make(m, t, err);
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
	int rc;

	for (uint32_t i = 0; i < offers->n; i++) {
		const struct rsh_offer *o = &offers->v[i];
		const char *name = rsh_names_text(m->cat->names, o->name);
		const char *other = opts->rename ?
				    opts->rename(opts->ctx, name) : NULL;

		if (rsh_plan_wants(opts, name) &&
		    model_add(m, o, other ? other : name))
			return rsh_error_nomem(err);
	}
	if (m->n == 0)
		return rsh_error_set(err, EINVAL, "no parameter is left "
				     "(parameters are selected by their names "
				     "before --rename)");
	m->n_names = rsh_names_count(m->cat->names);
	m->by_name = rsh_arena_array(&m->arena, uint32_t, m->n_names);
	if (!ends || !m->by_name)
		return rsh_error_nomem(err);
	for (size_t i = 0; i < m->n; i++) {
		uint32_t *place = &m->by_name[m->v[i].o.name];

		if (*place)
			return rsh_error_set(err, EINVAL, "renaming gives two "
					     "parameters the name %s",
					     m->v[i].name);
		*place = (uint32_t)i + 1;
	}
	rc = model_look(m, err) ?: check_layers(m, err) ?:
	     rsh_megatron_wanted_divide(m->wanted, m->n_layers, ends, err) ?:
	     check_experts(m, err) ?: add_copies(m, err) ?:
	     places_make(m, ends, err);
	if (rc == 0)
		rsh_sort(m->v, m->n, shown_by_file);
	return rc;
}
