/* SPDX-License-Identifier: Apache-2.0 */
/* formats/megatron/cut.c decides how a tensor is cut over the ranks of a stage,
 * by the table of names. */
#include "config.h"

#include "output_i.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "rsh/util/text.h"

const struct rsh_megatron_shown *
rsh_megatron_shown_find(const struct rsh_megatron_model *m, const char *name)
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
	char dims[64] = "[";
	size_t at = 1;

	for (uint32_t d = 0; d < t->o.n_dims; d++)
		rsh_text_add(dims, sizeof(dims), &at, "%s%" PRIu64,
			     d ? "," : "", t->o.dims[d]);
	return rsh_error_set(err, EINVAL, "tensor %s: a shape of %s] is not "
			     "that of Megatron's weight with this name",
			     t->name, dims);
}

static int refuse_unknown(const struct rsh_megatron_shown *t,
			  struct rsh_error *err)
{
	return rsh_error_set(err, ENOTSUP, "tensor %s: nothing says how it is "
			     "divided over ranks (--drop leaves it out)",
			     t->name);
}

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
	second = rsh_megatron_shown_find(m, name);
	if (!second || second->n_raw != 2 || rows == 0 ||
	    (rows != second->raw[1] && rows != 2 * second->raw[1]))
		return refuse_unknown(t, err);
	if (rows == second->raw[1])
		return cut_over(m, t, 0, n, err);
	if (rows / 2 % n != 0)
		return refuse_size(t, rows / 2, "rows of the gate", n,
				   t->is.of_expert, err);
	rc = divide(m, t, 0, rows / 2, err);
	return rc ?: cut_over(m, t, 1, n, err);
}

/* ---- experts in weight1 and weight2 ---- */

struct group_sizes {
	uint64_t n, hidden, width, f; /* as in grouped.c, of all experts */
	bool folded; /* weight1 has the shape that Megatron has */
};

/* Finds the tensor of the same layer with another end of the name. */
static const struct rsh_megatron_shown *
group_find(const struct rsh_megatron_model *m,
	   const struct rsh_megatron_shown *t, const char *end)
{
	char name[4096];

	snprintf(name, sizeof(name), "%.*s%s",
		 (int)(strlen(t->name) - strlen("experts.weight1")), t->name,
		 end);
	return rsh_megatron_shown_find(m, name);
}

static bool group_measure(const struct rsh_megatron_model *m,
			  const struct rsh_megatron_shown *t,
			  struct group_sizes *z)
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
	*z = (struct group_sizes){ .n = router->o.dims[0] };
	if (one->n_raw != 2 || two->n_raw != 2 || b[0] % z->n != 0 ||
	    b[0] == 0 || b[1] == 0)
		return false;
	z->hidden = b[1];
	z->f = b[0] / z->n;
	z->folded = a[0] == z->hidden && z->n > 1;
	z->width = z->folded ? a[1] / z->n : a[1];
	return (z->folded ? a[1] % z->n == 0 : a[0] / z->n == z->hidden &&
					       a[0] % z->n == 0) &&
	       (z->width == z->f || (z->width / 2 == z->f &&
				     z->width % 2 == 0));
}

static int cut_grouped(struct rsh_megatron_model *m,
		       struct rsh_megatron_shown *t, struct rsh_error *err)
{
	const struct rsh_megatron_wanted *w = m->wanted;
	struct group_sizes z;
	uint32_t d;
	int rc = 0;

	if (!group_measure(m, t, &z))
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
	if (t->is.grouped == 1 && z.folded) {
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

int rsh_megatron_cut_make(struct rsh_megatron_model *m,
			  struct rsh_megatron_shown *t, struct rsh_error *err)
{
	const struct rsh_megatron_wanted *w = m->wanted;
	const uint32_t n = t->is.of_expert ? w->expert_tensor : w->tensor;

	if (t->is.grouped)
		return cut_grouped(m, t, err);
	switch (t->again ? RSH_MEGATRON_VOCABULARY : t->is.kind) {
	case RSH_MEGATRON_UNKNOWN:
		return n > 1 || w->expert > 1 ? refuse_unknown(t, err) :
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
