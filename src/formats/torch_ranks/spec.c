/* SPDX-License-Identifier: Apache-2.0 */
/* formats/torch_ranks/spec.c reads what a pickle says about a distributed
 * tensor.  Classes have been in several modules of torch.distributed (2.4 to
 * 2.15), so only their names count. */
#include "config.h"

#include "torch_ranks_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/checked.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"
#include "rsh/util/thread.h"
#include "rsh/wire/torch_dtype.h"

/* ---- ways that several tensors share ---- */

/* Returns the mesh that equals *m, which is added if there is none; NULL:
 * memory is out. */
static const struct rsh_ranks_mesh *mesh_keep(struct rsh_ranks_ways *w,
					      const struct rsh_ranks_mesh *m)
{
	struct rsh_ranks_mesh *kept;
	uint32_t *ranks;

	rsh_hold_lock(&w->lock);
	for (size_t i = 0; i < w->n_meshes; i++) {
		const struct rsh_ranks_mesh *a = w->meshes[i];

		if (a->n_dims == m->n_dims && a->n == m->n &&
		    memcmp(a->dims, m->dims, m->n_dims * sizeof(*m->dims)) ==
			    0 &&
		    memcmp(a->ranks, m->ranks, m->n * sizeof(*m->ranks)) == 0)
			return a;
	}
	kept = rsh_arena_copy(&w->arena, m, 1);
	ranks = rsh_arena_copy(&w->arena, m->ranks, m->n);
	if (!kept || !ranks ||
	    rsh_push(w->meshes, w->n_meshes, w->cap_meshes, kept))
		return NULL;
	kept->ranks = ranks;
	return kept;
}

bool rsh_ranks_how_alike(const struct rsh_ranks_how *a,
			 const struct rsh_ranks_how *b)
{
	const struct rsh_ranks_mesh *m = a->mesh;
	bool alike = m->n_dims == b->mesh->n_dims;

	for (uint32_t d = 0; d < m->n_dims && alike; d++)
		alike = m->dims[d] == b->mesh->dims[d] &&
			a->order[d] == b->order[d] &&
			a->placements[d].kind == b->placements[d].kind &&
			a->placements[d].axis == b->placements[d].axis &&
			a->placements[d].factor == b->placements[d].factor;
	return alike;
}

const struct rsh_ranks_how *rsh_ranks_how_keep(struct rsh_ranks_ways *w,
					       const struct rsh_ranks_how *h)
{
	struct rsh_ranks_how *kept;

	rsh_hold_lock(&w->lock);
	for (size_t i = 0; i < w->n_hows; i++)
		if (w->hows[i]->mesh == h->mesh &&
		    rsh_ranks_how_alike(w->hows[i], h))
			return w->hows[i];
	kept = rsh_arena_copy(&w->arena, h, 1);
	return kept && !rsh_push(w->hows, w->n_hows, w->cap_hows, kept) ? kept :
									  NULL;
}

const char *rsh_ranks_text_keep(struct rsh_ranks_ways *w, const char *text)
{
	uint32_t id = RSH_NAME_NONE;

	rsh_hold_lock(&w->lock);
	w->names = w->names ?: rsh_names_new();
	if (w->names)
		id = rsh_names_add(w->names, text, strlen(text));
	return id == RSH_NAME_NONE ? NULL : rsh_names_text(w->names, id);
}

void rsh_ranks_ways_clear(struct rsh_ranks_ways *w)
{
	rsh_names_free(w->names);
	pthread_mutex_destroy(&w->lock);
	rsh_arena_clear(&w->arena);
	free(w->meshes);
	free(w->hows);
}

/* ---- values ---- */

/* Returns the state of an object of torch.distributed, which BUILD may give
 * with that of its slots, and sets the name of its class; NULL: it is none. */
static const struct rsh_pickle_value *
state_and_class(const struct rsh_pickle_value *v, const char **class)
{
	const struct rsh_pickle_value *state;

	*class = NULL;
	if (!v || v->kind != RSH_PV_OBJECT || !v->object->class ||
	    strncmp(v->object->class->module, "torch.distributed", 17) != 0)
		return NULL;
	*class = v->object->class->name;
	state = &v->object->state;
	return state->kind == RSH_PV_TUPLE && state->n == 2 &&
	       state->items[0].kind == RSH_PV_NONE ? &state->items[1] : state;
}

/* Does this for an object of one class. */
static const struct rsh_pickle_value *
state_of(const struct rsh_pickle_value *v, const char *class)
{
	const char *own;
	const struct rsh_pickle_value *state = state_and_class(v, &own);

	return own && strcmp(own, class) == 0 ? state : NULL;
}

/* Returns a rank; UINT32_MAX: the value is none. */
static uint32_t rank_of(const struct rsh_pickle_value *v)
{
	uint64_t rank;

	return rsh_pickle_number(v, UINT32_MAX - 1, &rank) ? (uint32_t)rank :
							     UINT32_MAX;
}

int rsh_ranks_bad(const struct rsh_ranks_reading *r, const char *what)
{
	return rsh_error_set(r->err, EBADMSG, "%s: tensor %s: %s", r->path,
			     r->name, what);
}

const uint64_t *rsh_ranks_dims_keep(struct rsh_ranks_specs *s,
				    const uint64_t *dims, uint32_t n)
{
	const size_t n_recent = sizeof(s->recent) / sizeof(*s->recent);
	uint64_t *kept;

	for (size_t i = 0; i < n_recent; i++)
		if (s->recent[i].dims && s->recent[i].n == n &&
		    memcmp(s->recent[i].dims, dims, n * sizeof(*dims)) == 0)
			return s->recent[i].dims;
	kept = rsh_arena_copy(s->arena, dims, n);
	if (!kept)
		return NULL;
	s->recent[s->n_kept].dims = kept;
	s->recent[s->n_kept].n = n;
	s->n_kept = (s->n_kept + 1) % n_recent;
	return kept;
}

/* Reads sizes or offsets, of which there must be n. */
static int spec_sizes(const struct rsh_ranks_reading *r,
		      const struct rsh_pickle_value *v, uint32_t n_dims,
		      const uint64_t **out)
{
	uint32_t n;
	const struct rsh_pickle_value *items = rsh_pickle_items(v, &n);
	uint64_t to[RSH_MAX_DIMS];

	if (!items || n != n_dims)
		return rsh_ranks_bad(r, "damaged: it has no whole shape");
	for (uint32_t i = 0; i < n; i++)
		if (!rsh_pickle_number(&items[i], INT64_MAX, &to[i]))
			return rsh_ranks_bad(r, "damaged: a size that cannot "
						"be");
	*out = rsh_ranks_dims_keep(r->specs, to, n);
	return *out ? 0 : rsh_error_nomem(r->err);
}

int rsh_ranks_shape_read(const struct rsh_ranks_reading *r,
			 const struct rsh_pickle_value *v,
			 struct rsh_ranks_spec *out)
{
	struct rsh_dcp_tensor whole = { .name = r->name };
	int rc;

	if (!rsh_pickle_items(v, &out->n_dims) || out->n_dims > RSH_MAX_DIMS)
		return rsh_ranks_bad(r, "damaged: it has no whole shape");
	rc = spec_sizes(r, v, out->n_dims, &out->dims);
	if (rc)
		return rc;
	whole.n_dims = out->n_dims;
	whole.dims = out->dims;
	return rsh_dcp_is_countable(&whole) ? 0 :
	       rsh_ranks_bad(r, "damaged: it has more elements than can be");
}

/* ---- the mesh ---- */

/* A dimension of a mesh that is a part of another one: sizes and strides of one
 * or more dimensions of that one. */
struct mesh_layout {
	uint32_t n; /* all of them */
	uint64_t size[2 * RSH_MESH_DIMS_MAX], stride[2 * RSH_MESH_DIMS_MAX];
};

/* Adds the sizes and strides of one dimension, which are numbers or tuples, and
 * multiplies *size by the sizes. */
static bool layout_add(struct mesh_layout *l,
		       const struct rsh_pickle_value *shape,
		       const struct rsh_pickle_value *stride, uint64_t *size,
		       unsigned depth)
{
	uint32_t n, n_strides;
	const struct rsh_pickle_value *sizes = rsh_pickle_items(shape, &n);
	const struct rsh_pickle_value *strides = rsh_pickle_items(stride, &n_strides);

	if (!shape || !stride || depth > RSH_MESH_DIMS_MAX)
		return false;
	if (!sizes) {
		if (l->n == 2 * RSH_MESH_DIMS_MAX ||
		    !rsh_pickle_number(shape, RSH_MESH_RANKS_MAX, &l->size[l->n]) ||
		    !rsh_pickle_number(stride, RSH_MESH_RANKS_MAX, &l->stride[l->n]) ||
		    l->size[l->n] == 0)
			return false;
		*size *= l->size[l->n++];
		return *size <= RSH_MESH_RANKS_MAX;
	}
	if (!strides || n != n_strides)
		return false;
	for (uint32_t i = 0; i < n; i++)
		if (!layout_add(l, &sizes[i], &strides[i], size, depth + 1))
			return false;
	return true;
}

/* Reads `_layout`: of torch 2.11 {shape, stride}, later {axes}. */
static bool layout_read(const struct rsh_pickle_value *v,
			struct rsh_ranks_mesh *m, struct mesh_layout *l)
{
	const struct rsh_pickle_value *state = state_of(v, "_MeshLayout");
	uint32_t n = 0, n_strides = 0;
	const struct rsh_pickle_value *shape = rsh_pickle_find(state, "shape");
	const struct rsh_pickle_value *stride =
		rsh_pickle_find(state, "stride");
	const struct rsh_pickle_value *sizes = rsh_pickle_items(shape, &n);
	const struct rsh_pickle_value *strides = rsh_pickle_items(stride, &n_strides);
	const struct rsh_pickle_value *axes = rsh_pickle_find(state, "axes");
	uint64_t all = 1;

	axes = axes ? rsh_pickle_items(axes, &n) : NULL;

	if (!axes && shape && !sizes) {
		sizes = shape;
		strides = stride;
		n = n_strides = 1;
	}
	if (n == 0 || n > RSH_MESH_DIMS_MAX ||
	    (!axes && (!sizes || !strides || n != n_strides)))
		return false;
	m->n_dims = n;
	for (uint32_t i = 0; i < n; i++) {
		const struct rsh_pickle_value *flat =
			axes ? state_of(&axes[i], "_FlatLayout") : NULL;
		uint64_t size = 1;

		if (!layout_add(l, axes ? rsh_pickle_find(flat, "shape") :
					  &sizes[i],
				axes ? rsh_pickle_find(flat, "stride") :
				       &strides[i], &size, 0))
			return false;
		m->dims[i] = (uint32_t)size;
		all *= size;
		if (all > RSH_MESH_RANKS_MAX)
			return false;
	}
	m->n = (uint32_t)all;
	return true;
}

/* Takes the ranks of a mesh out of those of its root.  If it has fewer, it is
 * the part with the writer in it. */
static bool layout_pick(const struct mesh_layout *l, const uint32_t *map,
			uint32_t n_map, const uint64_t *own, uint32_t n,
			uint32_t *ranks)
{
	uint64_t base = 0, at = 0;

	if (n > n_map)
		return false;
	if (n < n_map) {
		while (own && at < n_map && map[at] != *own)
			at++;
		if (!own || at == n_map)
			return false;
		base = at;
		for (uint32_t i = 0; i < l->n; i++) {
			const uint64_t step = l->stride[i];
			const uint64_t part =
				step ? at / step % l->size[i] * step : 0;

			if (part > base)
				return false;
			base -= part;
		}
	}
	for (uint32_t i = 0; i < n; i++) {
		uint64_t rest = i;

		at = base;
		for (uint32_t d = l->n; d-- > 0; rest /= l->size[d])
			at += rest % l->size[d] * l->stride[d];
		if (at >= n_map)
			return false;
		ranks[i] = map[at];
	}
	return true;
}

bool rsh_ranks_list_read(const struct rsh_pickle_value *v, uint32_t **out,
			 uint32_t *n)
{
	const struct rsh_pickle_value *items = rsh_pickle_items(v, n);
	uint64_t rank;

	*out = NULL;
	if (!items || *n == 0 || *n > RSH_MESH_RANKS_MAX)
		return false;
	*out = rsh_alloc_array(*n, sizeof(**out));
	for (uint32_t i = 0; *out && i < *n; i++) {
		if (!rsh_pickle_number(&items[i], UINT32_MAX - 1, &rank))
			return false;
		(*out)[i] = (uint32_t)rank;
	}
	return true;
}

int rsh_ranks_mesh_finish(const struct rsh_ranks_reading *r,
			  struct rsh_ranks_mesh *m,
			  const struct rsh_pickle_value *names,
			  const struct rsh_ranks_mesh **out)
{
	cleanup_free uint32_t *sorted = rsh_alloc_array(m->n, sizeof(*sorted));
	uint32_t n;
	const struct rsh_pickle_value *v = rsh_pickle_items(names, &n);
	size_t at = 0;

	if (!sorted)
		return rsh_error_nomem(r->err);
	memcpy(sorted, m->ranks, m->n * sizeof(*sorted));
	rsh_sort(sorted, m->n, rsh_by_u32);
	for (uint32_t i = 1; i < m->n; i++)
		if (sorted[i] == sorted[i - 1])
			return rsh_ranks_bad(r, "damaged: a rank is in its mesh "
						"twice");
	for (uint32_t d = 0; d < m->n_dims; d++) {
		const bool named = v && n == m->n_dims &&
				   v[d].kind == RSH_PV_TEXT;

		rsh_text_add(m->text, sizeof(m->text), &at, "%s%.16s%s%u",
			     d ? ", " : "", named ? v[d].text : "",
			     named ? "=" : "", m->dims[d]);
	}
	*out = mesh_keep(r->specs->ways, m);
	return *out ? 0 : rsh_error_nomem(r->err);
}

bool rsh_ranks_mesh_sizes(const struct rsh_pickle_value *v,
			  struct rsh_ranks_mesh *m)
{
	const struct rsh_pickle_value *sizes = rsh_pickle_items(v, &m->n_dims);
	uint64_t all = 1, size;

	if (!sizes || m->n_dims == 0 || m->n_dims > RSH_MESH_DIMS_MAX)
		return false;
	for (uint32_t i = 0; i < m->n_dims; i++) {
		if (!rsh_pickle_number(&sizes[i], RSH_MESH_RANKS_MAX, &size) ||
		    size == 0)
			return false;
		m->dims[i] = (uint32_t)size;
		all *= size;
		if (all > RSH_MESH_RANKS_MAX)
			return false;
	}
	m->n = (uint32_t)all;
	return true;
}

/* Sets the rank of the file and its place in the mesh. */
static int mesh_place(const struct rsh_ranks_reading *r,
		      const struct rsh_pickle_value *state,
		      const struct rsh_ranks_mesh *m)
{
	const struct rsh_pickle_value *v =
		rsh_pickle_find(state, "_coordinate_on_dim");
	const uint32_t own = rank_of(rsh_pickle_find(state, "_rank"));
	struct rsh_ranks_specs *s = r->specs;
	uint32_t n;
	const struct rsh_pickle_value *at = rsh_pickle_items(v, &n);
	uint64_t c;

	s->place = 0;
	if (!at && v && v->kind != RSH_PV_NONE)
		return rsh_ranks_bad(r, "damaged: its mesh has no coordinate");
	if (!at) {
		/* This rank is not in the mesh. */
		s->place = UINT32_MAX;
		s->rank = own;
		return 0;
	}
	if (n != m->n_dims)
		return rsh_ranks_bad(r, "damaged: its mesh has a coordinate of other "
				"dimensions");
	for (uint32_t d = 0; d < n; d++) {
		if (!rsh_pickle_number(&at[d], m->dims[d] - 1, &c))
			return rsh_ranks_bad(r, "damaged: a coordinate outside its "
					"mesh");
		s->place = s->place * m->dims[d] + (uint32_t)c;
	}
	s->rank = m->ranks[s->place];
	if (own != UINT32_MAX && own != s->rank)
		return rsh_ranks_bad(r, "damaged: its mesh has another rank at its "
				"coordinate");
	return 0;
}

/* Reads a DeviceMesh, and sets specs->mesh, rank and place. */
static int mesh_read(const struct rsh_ranks_reading *r,
		     const struct rsh_pickle_value *v)
{
	const struct rsh_pickle_value *state = state_of(v, "DeviceMesh");
	const struct rsh_pickle_value *layout =
		rsh_pickle_find(state, "_layout");
	const struct rsh_pickle_value *own = rsh_pickle_find(state, "_rank");
	const struct rsh_pickle_value *of;
	struct rsh_ranks_mesh m = { .n = 0 };
	struct mesh_layout l = { .n = 0 };
	cleanup_free uint32_t *map = NULL, *picked = NULL;
	uint32_t n_map = 0;
	uint64_t rank;
	int rc;

	if (!state)
		return rsh_ranks_bad(r, "damaged: it has no mesh");
	if (r->specs->seen == v->object)
		return 0;
	if (!rsh_ranks_list_read(rsh_pickle_find(state, layout ? "_flatten_rank_map" :
						"_flatten_mesh_list"), &map,
			&n_map))
		return rsh_ranks_bad(r, "damaged: its mesh has no list of ranks");
	if (!map)
		return rsh_error_nomem(r->err);
	for (uint32_t i = 0; i < n_map; i++)
		if (map[i] >= r->specs->world)
			r->specs->world = map[i] + 1;
	/* Until torch 2.9 its shape is that of the tensor of its ranks. */
	of = layout ? NULL : rsh_pickle_find(state, "mesh");
	if (!(layout ? layout_read(layout, &m, &l) :
	      of && of->kind == RSH_PV_OBJECT && of->object->class &&
	      of->object->args.kind == RSH_PV_TUPLE &&
	      of->object->args.n >= 4 &&
	      rsh_ranks_mesh_sizes(&of->object->args.items[2], &m)))
		return rsh_ranks_bad(r, "damaged: its mesh has no shape");
	if (!layout && m.n != n_map)
		return rsh_ranks_bad(r, "damaged: its mesh has another number of "
				"ranks than its shape");
	m.ranks = map;
	if (layout) {
		picked = rsh_alloc_array(m.n, sizeof(*picked));
		if (!picked)
			return rsh_error_nomem(r->err);
		if (!layout_pick(&l, map, n_map,
				 rsh_pickle_number(own, UINT32_MAX, &rank) ? &rank :
								     NULL,
				 m.n, picked))
			return rsh_ranks_bad(r, "damaged: the layout of its mesh does "
					"not fit its ranks");
		m.ranks = picked;
	}
	rc = rsh_ranks_mesh_finish(r, &m, rsh_pickle_find(
				state, layout ? "_mesh_dim_names" :
						"mesh_dim_names"),
				   &r->specs->mesh);
	if (rc)
		return rc;
	r->specs->seen = v->object;
	return mesh_place(r, state, r->specs->mesh);
}

/* ---- placements ---- */

int rsh_ranks_placement_read(const struct rsh_ranks_reading *r,
			     const char *name,
			     const struct rsh_pickle_value *of, uint32_t n_dims,
			     struct rsh_ranks_placement *out)
{
	const struct rsh_pickle_value *axis = rsh_pickle_find(of, "dim");
	uint64_t factor = 0;

	*out = (struct rsh_ranks_placement){ .kind = RSH_RANKS_REPLICATED };
	if (rsh_is_any(name, "Partial", "_Partial", "_MaskPartial",
		       "_NormPartial"))
		out->kind = RSH_RANKS_PARTIAL;
	else if (rsh_is_any(name, "StridedShard", "_StridedShard"))
		out->kind = RSH_RANKS_STRIDED;
	else if (strcmp(name, "Shard") == 0)
		out->kind = RSH_RANKS_SHARDED;
	else if (strcmp(name, "Replicate") != 0)
		return rsh_ranks_bad(r, "a placement that is not known");
	if (!rsh_ranks_is_cut(out))
		return 0;
	if (!axis || axis->kind != RSH_PV_NUMBER ||
	    axis->number < -(int64_t)n_dims ||
	    axis->number >= (int64_t)n_dims)
		return rsh_ranks_bad(r, "damaged: it is cut over an axis that "
					"it does not have");
	out->axis = (uint32_t)(axis->number < 0 ? axis->number + n_dims :
						  axis->number);
	if (out->kind == RSH_RANKS_STRIDED &&
	    (!rsh_pickle_number(rsh_pickle_find(of, "split_factor"),
			       RSH_SPLIT_FACTOR_MAX, &factor) || factor == 0))
		return rsh_ranks_bad(r, "damaged: a strided shard without a "
					"factor");
	out->factor = (uint32_t)factor;
	return 0;
}

/* Reads `shard_order`: for an axis, which dimensions of the mesh cut it, one
 * after the other. */
static bool order_read(const struct rsh_pickle_value *v,
		       struct rsh_ranks_how *h)
{
	uint32_t n, n_dims;
	const struct rsh_pickle_value *entries = rsh_pickle_items(v, &n), *dims;

	for (uint32_t i = 0; entries && i < n; i++) {
		const struct rsh_pickle_object *o =
			entries[i].kind == RSH_PV_OBJECT ? entries[i].object :
							   NULL;
		uint8_t at[RSH_MESH_DIMS_MAX];
		uint32_t n_at = 0;
		uint64_t axis, d;

		if (!o || !o->class || o->args.kind != RSH_PV_TUPLE ||
		    o->args.n != 2 ||
		    strcmp(o->class->name, "ShardOrderEntry") != 0 ||
		    !rsh_pickle_number(&o->args.items[0], RSH_MAX_DIMS, &axis))
			return false;
		dims = rsh_pickle_items(&o->args.items[1], &n_dims);
		/* The places that the dimensions of this axis have. */
		for (uint32_t k = 0; k < h->mesh->n_dims; k++)
			if (rsh_ranks_is_cut(&h->placements[k]) &&
			    h->placements[k].axis == axis)
				at[n_at++] = (uint8_t)k;
		if (!dims || n_dims != n_at)
			return false;
		for (uint32_t k = 0; k < n_dims; k++) {
			if (!rsh_pickle_number(&dims[k], h->mesh->n_dims - 1, &d) ||
			    !memchr(at, (int)d, n_at))
				return false;
			for (uint32_t j = 0; j < k; j++)
				if (h->order[at[j]] == d)
					return false;
			h->order[at[k]] = (uint8_t)d;
		}
	}
	return true;
}

static int how_read(const struct rsh_ranks_reading *r,
		    const struct rsh_pickle_value *state, uint32_t n_dims,
		    struct rsh_ranks_how *h)
{
	const struct rsh_pickle_value *as_strided =
		rsh_pickle_find(state, "use_strided_shard_as_shard_order");
	const struct rsh_pickle_value *order =
		rsh_pickle_find(state, "shard_order");
	uint32_t n;
	const struct rsh_pickle_value *placements =
		rsh_pickle_items(rsh_pickle_find(state, "placements"), &n);

	*h = (struct rsh_ranks_how){ .mesh = r->specs->mesh };
	if (!placements || n != h->mesh->n_dims)
		return rsh_ranks_bad(r, "damaged: it has not one placement for each "
				"dimension of its mesh");
	for (uint32_t d = 0; d < n; d++) {
		const char *class;
		const struct rsh_pickle_value *of =
			state_and_class(&placements[d], &class);
		int rc = rsh_ranks_placement_read(r, class ? class : "", of,
						  n_dims, &h->placements[d]);

		if (rc)
			return rc;
		h->order[d] = (uint8_t)d;
	}
	if (!order || order->kind == RSH_PV_NONE ||
	    (as_strided && as_strided->kind == RSH_PV_BOOL &&
	     as_strided->number))
		return 0;
	if (!as_strided || as_strided->kind != RSH_PV_BOOL ||
	    !order_read(order, h))
		return rsh_ranks_bad(r, "damaged: the order in which it is cut does "
				"not fit its placements");
	return 0;
}

/* ---- DTensor ---- */

static int dtensor_read(const struct rsh_ranks_reading *r,
			const struct rsh_pickle_value *of,
			struct rsh_ranks_spec *out,
			const struct rsh_pickle_value **piece)
{
	const struct rsh_pickle_value *spec =
		state_of(rsh_pickle_find(of, "_spec"), "DTensorSpec");
	const struct rsh_pickle_value *meta =
		rsh_pickle_find(spec, "tensor_meta");
	struct rsh_ranks_how how;
	const uint64_t *dims;
	int rc;

	*piece = rsh_pickle_find(of, "_local_tensor");
	if (!spec || !*piece)
		return rsh_ranks_bad(r, "damaged: a DTensor without its parts");
	rc = mesh_read(r, rsh_pickle_find(spec, "mesh")) ?:
	     how_read(r, spec, out->n_dims, &how);
	if (rc)
		return rc;
	if (meta && meta->kind == RSH_PV_OBJECT &&
	    meta->object->args.kind == RSH_PV_TUPLE &&
	    meta->object->args.n > 0) {
		rc = spec_sizes(r, meta->object->args.items, out->n_dims,
				&dims);
		if (rc == 0 && memcmp(dims, out->dims, out->n_dims *
				      sizeof(*dims)) != 0)
			rc = rsh_ranks_bad(r, "damaged: it has two whole shapes");
		if (rc)
			return rc;
	}
	out->rank = r->specs->rank;
	out->place = r->specs->place;
	out->how = rsh_ranks_how_keep(r->specs->ways, &how);
	return out->how ? 0 : rsh_error_nomem(r->err);
}

/* ---- ShardedTensor ---- */

static int box_read(const struct rsh_ranks_reading *r,
		    const struct rsh_pickle_value *v, uint32_t n_dims,
		    const uint64_t *dims, struct rsh_ranks_box *out)
{
	const struct rsh_pickle_value *state = state_of(v, "ShardMetadata");
	const struct rsh_pickle_value *at =
		state_of(rsh_pickle_find(state, "placement"), "_remote_device");
	uint64_t end;
	int rc;

	if (!state)
		return rsh_ranks_bad(r, "damaged: a shard without its place");
	rc = spec_sizes(r, rsh_pickle_find(state, "shard_offsets"), n_dims,
			&out->from) ?:
	     spec_sizes(r, rsh_pickle_find(state, "shard_sizes"), n_dims,
			&out->size);
	out->rank = rank_of(rsh_pickle_find(at, "_rank"));
	for (uint32_t d = 0; d < n_dims && rc == 0; d++)
		if (!rsh_add_u64(out->from[d], out->size[d], &end) ||
		    end > dims[d])
			rc = rsh_ranks_bad(r, "damaged: a shard outside the tensor");
	return rc;
}

static int sharded_read(const struct rsh_ranks_reading *r,
			const struct rsh_pickle_value *of,
			struct rsh_ranks_spec *out,
			const struct rsh_pickle_value **pieces)
{
	const struct rsh_pickle_value *meta, *all, *shards, *group;
	struct rsh_ranks_box *boxes, *every;
	int rc = 0;

	if (of->kind != RSH_PV_TUPLE || of->n < 3)
		return rsh_ranks_bad(r, "damaged: a ShardedTensor without its parts");
	shards = rsh_pickle_items(&of->items[0], &out->n_boxes);
	meta = state_of(&of->items[1], "ShardedTensorMetadata");
	all = rsh_pickle_items(rsh_pickle_find(meta, "shards_metadata"), &out->n_all);
	group = of->items[2].kind == RSH_PV_OBJECT ?
		&of->items[2].object->state : NULL;
	if (!shards || !all)
		return rsh_ranks_bad(r, "damaged: a ShardedTensor without its parts");
	if (out->n_boxes > RSH_TORCH_PIECES_MAX)
		return rsh_error_set(r->err, ENOTSUP, "%s: tensor %s: it has "
				     "%u shards of it, and a rank can have %d",
				     r->path, r->name, out->n_boxes,
				     RSH_TORCH_PIECES_MAX);
	out->rank = r->specs->rank = rank_of(rsh_pickle_find(group, "global_"
								    "rank"));
	boxes = rsh_arena_array(r->specs->arena, struct rsh_ranks_box,
				out->n_boxes);
	every = rsh_arena_array(r->specs->arena, struct rsh_ranks_box,
				out->n_all);
	if (!boxes || !every)
		return rsh_error_nomem(r->err);
	for (uint32_t i = 0; i < out->n_all && rc == 0; i++)
		rc = box_read(r, &all[i], out->n_dims, out->dims, &every[i]);
	for (uint32_t i = 0; i < out->n_boxes && rc == 0; i++) {
		const struct rsh_pickle_value *state =
			state_of(&shards[i], "Shard");

		pieces[i] = rsh_pickle_find(state, "tensor");
		rc = !pieces[i] ? rsh_ranks_bad(r, "damaged: a shard without a "
					   "tensor") :
		     box_read(r, rsh_pickle_find(state, "metadata"),
			      out->n_dims, out->dims, &boxes[i]);
	}
	out->boxes = boxes;
	out->all = every;
	return rc;
}

/* ---- one tensor ---- */

int rsh_ranks_spec_take(void *ctx, const char *path, const char *name,
			const struct rsh_pickle_value *args,
			const struct rsh_pickle_value
				*pieces[RSH_TORCH_PIECES_MAX],
			uint32_t *n, struct rsh_error *err)
{
	struct rsh_ranks_specs *s = ctx;
	const struct rsh_ranks_reading r = { s, path, name, err };
	const struct rsh_pickle_value *class = &args->items[1];
	const struct rsh_pickle_value *of = &args->items[2];
	const struct rsh_pickle_value *state = &args->items[3];
	struct rsh_ranks_spec spec = { .name = name };
	int rc;

	/* The state may come with that of slots. */
	if (state->kind == RSH_PV_TUPLE && state->n == 2 &&
	    state->items[0].kind == RSH_PV_NONE)
		state = &state->items[1];
	if (of->kind != RSH_PV_TUPLE || of->n < 3)
		return rsh_ranks_bad(&r, "damaged: it has no whole shape");
	spec.dtype = rsh_torch_dtype(&of->items[1]);
	rc = rsh_ranks_shape_read(&r, &of->items[2], &spec);
	if (rc)
		return rc;
	*n = 1;
	if (strcmp(class->class->name, "DTensor") == 0) {
		rc = dtensor_read(&r, state, &spec, pieces);
	} else if (strcmp(class->class->name, "ShardedTensor") == 0) {
		rc = sharded_read(&r, state, &spec, pieces);
		*n = spec.n_boxes;
	} else {
		rc = rsh_ranks_bad(&r, "of a kind of distributed tensor that is not "
			      "known");
	}
	return rc ?: rsh_ranks_spec_add(&r, &spec);
}

int rsh_ranks_spec_add(const struct rsh_ranks_reading *r,
		       const struct rsh_ranks_spec *spec)
{
	struct rsh_ranks_specs *s = r->specs;

	if (rsh_push(s->v, s->n, s->cap, *spec))
		return rsh_error_nomem(r->err);
	return 0;
}
