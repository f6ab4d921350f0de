/* SPDX-License-Identifier: Apache-2.0 */
/* formats/torch/index.c makes the index of a file of torch.save(), and offers
 * its tensors to the planner.
 *
 * If the elements of a tensor are contiguous in any order of its dimensions,
 * its record has the dimensions in that order.  The record of any other tensor
 * is the range from its first element to its last, in one dimension; the tensor
 * uses the elements that its strides give. */
#include "config.h"

#include "rsh/formats/torch.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "rsh/util/checked.h"
#include "rsh/util/mem.h"

/* A tensor that has one element in several places is made of several parts.
 * This is the maximum of parts. */
#define PARTS_MAX 65536

/* ---- the order of the elements ---- */

static bool order_is_dense(uint32_t n_dims, const uint64_t *dims,
			   const uint64_t *strides, const uint8_t *order)
{
	uint64_t next = 1;

	for (uint32_t i = n_dims; i-- > 0;) {
		const uint8_t d = order[i];

		if (dims[d] != 1 && strides[d] != next)
			return false;
		next *= dims[d];
	}
	return true;
}

/* Finds the order of the dimensions, slowest first, in which elements with
 * these strides are contiguous; 0, 1, .. if there are no elements.  Returns
 * false if they are not contiguous in any order; then the order is that of the
 * strides. */
static bool order_find(uint32_t n_dims, const uint64_t *dims,
		       const uint64_t *strides, uint8_t *order)
{
	bool empty = false;

	for (uint32_t d = 0; d < n_dims; d++) {
		order[d] = (uint8_t)d;
		empty |= dims[d] == 0;
	}
	if (empty || order_is_dense(n_dims, dims, strides, order))
		return true;
	/* Sorts by strides, the longest first.  The stride of a dimension of
	 * size 1 has no meaning; these dimensions come first. */
	for (uint32_t n = 0; n < n_dims; n++) {
		uint32_t i = n;

		for (; i > 0; i--) {
			const uint8_t before = order[i - 1];

			if (dims[before] == 1 ||
			    (dims[n] != 1 && strides[before] >= strides[n]))
				break;
			order[i] = before;
		}
		order[i] = (uint8_t)n;
	}
	return order_is_dense(n_dims, dims, strides, order);
}

void rsh_torch_layout(const struct rsh_torch_tensor *t,
		      struct rsh_torch_layout *out)
{
	out->span = t->elements;
	out->dense = order_find(t->n_dims, t->dims, t->strides, out->order);
	if (out->dense)
		return;
	out->span = 1;
	for (uint32_t d = 0; d < t->n_dims; d++)
		out->span += (t->dims[d] - 1) * t->strides[d];
}

void rsh_torch_reshape(struct rsh_torch_tensor *t, uint32_t n_dims,
		       const uint64_t *dims, struct rsh_arena *arena)
{
	uint64_t *strides = rsh_arena_array(arena, uint64_t, n_dims), n = 1;

	t->n_dims = n_dims;
	t->dims = dims;
	t->strides = strides;
	t->elements = 1;
	for (uint32_t d = n_dims; strides && d-- > 0;) {
		strides[d] = n;
		n *= rsh_max_u64(dims[d], 1);
		t->elements *= dims[d];
	}
}

/* ---- the index ---- */

/* Returns how many last dimensions of a tensor are contiguous, in row-major
 * order, and sets the number of elements that these have. */
static uint32_t index_inner(const struct rsh_torch_tensor *t, uint64_t *run)
{
	uint32_t d = t->n_dims;

	*run = 1;
	while (d > 0 && (t->dims[d - 1] == 1 || t->strides[d - 1] == *run))
		*run *= t->dims[--d];
	return t->n_dims - d;
}

/* A tensor without gaps, or the range of one, has one extent.  With n_runs it
 * has one for each run of its elements. */
static int torch_index_add(struct rsh_ckpt_index *ix,
			   const struct rsh_torch_file *f,
			   const struct rsh_torch_tensor *t, uint64_t n_runs,
			   struct rsh_names *names)
{
	const uint64_t base = f->storages[t->storage].offset;
	const unsigned width = rsh_dtype_size(t->dtype);
	struct rsh_record *r = &ix->records[ix->n_records];
	uint64_t at[RSH_MAX_DIMS] = { 0 }, run;
	const uint32_t outer = t->n_dims - index_inner(t, &run);
	struct rsh_torch_layout l;

	rsh_torch_layout(t, &l);
	*r = (struct rsh_record){
		.name = rsh_names_add(names, t->name, strlen(t->name)),
		.dtype = (uint8_t)t->dtype,
		.n_dims = l.dense || n_runs ? (uint8_t)t->n_dims : 1,
		.first_dim = ix->n_dims, .first_extent = ix->n_extents,
		.content_bytes = (n_runs ? t->elements : l.span) * width,
	};
	if (r->name == RSH_NAME_NONE)
		return -ENOMEM;
	for (uint32_t i = 0; i < r->n_dims; i++)
		ix->dims[ix->n_dims++] = (int64_t)(
			n_runs ? t->dims[i] : l.dense ? t->dims[l.order[i]] :
							l.span);
	if (n_runs == 0 && r->content_bytes > 0)
		ix->extents[ix->n_extents++] = (struct rsh_extent){
			base + t->from * width, r->content_bytes,
		};
	for (uint64_t n = n_runs; n > 0; n--) {
		uint64_t from = t->from;

		for (uint32_t d = 0; d < outer; d++)
			from += at[d] * t->strides[d];
		ix->extents[ix->n_extents++] = (struct rsh_extent){
			base + from * width, run * width,
		};
		for (uint32_t d = outer; d-- > 0 && ++at[d] == t->dims[d];)
			at[d] = 0;
	}
	r->n_extents = ix->n_extents - r->first_extent;
	ix->n_records++;
	return 0;
}

bool rsh_torch_is_row_major(const uint8_t *order, uint32_t n)
{
	return rsh_all(d, n, order[d] == d);
}

/* A tensor with gaps has so many extents at most. */
#define EXTENTS_MAX (1 << 20)

/* Appends the order of the dimensions to the name of a tensor that is not in
 * row-major order.  *n_runs is 0 if it has no gaps. */
static int index_name_order(struct rsh_arena *arena, struct rsh_torch_tensor *t,
			    bool by_name, uint64_t *n_runs)
{
	struct rsh_torch_layout l;
	char order[RSH_MAX_DIMS * 3 + 2];
	uint64_t run;
	size_t n = 0;

	*n_runs = 0;
	if (!by_name)
		return 0;
	rsh_torch_layout(t, &l);
	if (!l.dense) {
		index_inner(t, &run);
		*n_runs = t->elements / run;
		return *n_runs > EXTENTS_MAX ? -ENOTSUP : 0;
	}
	if (rsh_torch_is_row_major(l.order, t->n_dims))
		return 0;
	for (uint32_t d = 0; d < t->n_dims; d++)
		n += (size_t)snprintf(order + n, sizeof(order) - n, "%c%u",
				      d ? ',' : '/', l.order[d]);
	t->name = rsh_arena_format(arena, "%s" RSH_TORCH_ORDER "%s", t->name,
				   order);
	return t->name ? 0 : -ENOMEM;
}

int rsh_torch_index(struct rsh_torch_file *f, const struct rsh_byte_source *src,
		    bool full, bool by_name, struct rsh_names *names,
		    struct rsh_ckpt_index **out, struct rsh_error *err)
{
	struct rsh_ckpt_index *ix = NULL;
	size_t n_dims = 0, n_extents = 0;
	uint32_t n_unsummed = 0, twice;
	int rc = full ? rsh_torch_file_check(src, f, &n_unsummed, err) : 0;

	for (uint32_t i = 0; i < f->n_tensors && rc == 0; i++) {
		struct rsh_torch_tensor t = f->tensors[i];
		uint64_t n_runs;

		rc = index_name_order(&f->arena_, &t, by_name, &n_runs);
		n_extents += rsh_max_u64(n_runs, 1);
		n_dims += rsh_max_u64(t.n_dims, 1);
		if (rc == -ENOTSUP)
			rsh_error_set(err, ENOTSUP, "%s: the elements of "
				      "tensor %s are in more than %d places",
				      src->path, t.name, EXTENTS_MAX);
		else if (rc)
			rsh_error_nomem(err);
	}
	if (rc)
		return rc;
	ix = rsh_ckpt_index_new(f->n_tensors, n_extents, n_dims);
	if (!ix)
		return rsh_error_nomem(err);
	ix->file_bytes = f->file_bytes;
	ix->n_unsummed = n_unsummed;
	for (uint32_t i = 0; i < f->n_tensors; i++) {
		struct rsh_torch_tensor t = f->tensors[i];
		uint64_t n_runs;

		if (index_name_order(&f->arena_, &t, by_name, &n_runs) ||
		    torch_index_add(ix, f, &t, n_runs, names)) {
			rsh_ckpt_index_free(ix);
			return rsh_error_nomem(err);
		}
	}
	ix->summed = full && ix->n_records > 0 && n_unsummed == 0;
	/* The names in a file are unique, so this cannot fail. */
	rsh_ckpt_index_sort(ix, &twice);
	*out = ix;
	return 0;
}

int rsh_torch_scan_by_name(const struct rsh_byte_source *src, bool full,
			   struct rsh_names *names,
			   struct rsh_ckpt_index **out, struct rsh_error *err)
{
	struct rsh_torch_file *f;
	int rc = rsh_torch_file_read(src, NULL, &f, err) ?:
		 rsh_torch_index(f, src, full, true, names, out, err);

	rsh_torch_file_free(f);
	return rc;
}

/* ---- offers ---- */

struct torch_offering {
	const struct rsh_source_view *view;
	struct rsh_catalogue *cat;
	struct rsh_arena *arena;
	struct rsh_offer *offers;
	uint32_t n;
};

/* Finds the dimensions that can be factors: if they are sorted by stride, the
 * stride of each must be at least the reach of all shorter ones together.
 * Every other dimension needs a separate part for each index.  Returns the
 * number of parts. */
static uint64_t offer_split(const struct rsh_torch_tensor *t,
			    const struct rsh_torch_layout *l, bool *follows)
{
	uint64_t reach = 1, n_parts = 1;

	for (uint32_t i = t->n_dims; i-- > 0;) {
		const uint8_t d = l->order[i];

		follows[d] = t->strides[d] >= reach;
		if (follows[d])
			reach = t->dims[d] * t->strides[d];
		else if (n_parts <= PARTS_MAX)
			n_parts *= rsh_min_u64(t->dims[d], PARTS_MAX + 1);
	}
	return n_parts;
}

/* Makes one part. `at` has the indexes of the dimensions that are not
 * factors. */
static int offer_factored(struct torch_offering *o,
			  const struct rsh_torch_tensor *t,
			  const bool *follows, const uint64_t *at,
			  uint32_t number, struct rsh_recipe_part *p)
{
	struct rsh_factor *f =
		rsh_arena_array(o->arena, struct rsh_factor, t->n_dims);
	uint64_t *from = rsh_arena_array(o->arena, uint64_t,
					 (size_t)t->n_dims + 1);

	if (!f || !from)
		return -ENOMEM;
	*p = (struct rsh_recipe_part){
		.tensor = number, .factors = f, .shown_from = from,
		.from = from + t->n_dims,
	};
	for (uint32_t d = 0; d < t->n_dims; d++) {
		if (follows[d]) {
			f[p->n_factors++] = (struct rsh_factor){
				.size = t->dims[d], .shown_step = 1,
				.step = t->strides[d], .shown_dim = (uint8_t)d,
			};
			continue;
		}
		from[d] = at[d];
		from[t->n_dims] += at[d] * t->strides[d];
	}
	return 0;
}

static int offer_all_factored(struct torch_offering *o,
			      const struct rsh_torch_tensor *t,
			      const struct rsh_torch_layout *l,
			      uint32_t number, struct rsh_offer *out,
			      struct rsh_error *err)
{
	bool follows[RSH_MAX_DIMS] = { false };
	uint64_t at[RSH_MAX_DIMS] = { 0 };
	const uint64_t n = offer_split(t, l, follows);
	struct rsh_recipe_part *parts;

	if (n > PARTS_MAX)
		return rsh_error_set(err, ENOTSUP, "tensor %s shows elements "
				     "of its storage in too many places "
				     "(--drop leaves it out)", t->name);
	parts = rsh_arena_array(o->arena, struct rsh_recipe_part, n);
	if (!parts)
		return rsh_error_nomem(err);
	for (uint64_t i = 0; i < n; i++) {
		if (offer_factored(o, t, follows, at, number, &parts[i]))
			return rsh_error_nomem(err);
		for (uint32_t d = t->n_dims; d-- > 0;) {
			if (follows[d])
				continue;
			if (++at[d] < t->dims[d])
				break;
			at[d] = 0;
		}
	}
	out->n_parts = (uint32_t)n;
	out->parts = parts;
	return 0;
}

static int offer_tensor(struct torch_offering *o,
			const struct rsh_torch_tensor *t, struct rsh_error *err)
{
	const struct rsh_ckpt_index *ix = o->view->index[0];
	const struct rsh_record *r =
		rsh_ckpt_find(ix, rsh_names_find(o->view->names, t->name,
						 strlen(t->name)));
	struct rsh_offer *out = &o->offers[o->n];
	struct rsh_torch_layout l;
	uint32_t number;
	int rc;

	if (t->dtype == RSH_DTYPE_UNKNOWN)
		return rsh_error_set(err, ENOTSUP, "tensor %s is of a type "
				     "that is not known (--drop leaves it "
				     "out)", t->name);
	if (!r)
		return rsh_error_set(err, ESTALE, "tensor %s is no longer "
				     "where it was", t->name);
	rc = rsh_catalogue_add_record(o->cat, 0, ix,
				      (uint32_t)(r - ix->records), &number,
				      err);
	if (rc)
		return rc;
	rsh_torch_layout(t, &l);
	*out = (struct rsh_offer){
		.name = r->name, .dtype = t->dtype, .n_dims = t->n_dims,
		.dims = t->dims,
	};
	if (!l.dense)
		rc = offer_all_factored(o, t, &l, number, out, err);
	else if (rsh_torch_is_row_major(l.order, t->n_dims))
		out->same = number + 1;
	else if (rsh_offer_whole(o->cat, o->arena, number, l.order, out))
		return rsh_error_nomem(err);
	o->n += rc == 0;
	return rc;
}

int rsh_torch_offers(const struct rsh_torch_file *const *files, uint32_t n,
		     const struct rsh_read_job *job, struct rsh_offers *out,
		     struct rsh_error *err)
{
	const struct rsh_plan_options *opts = job->opts;
	struct torch_offering o = {
		.view = job->view, .cat = rsh_catalogue_new(job->view),
		.arena = job->arena,
	};
	size_t n_tensors = 0;
	int rc;

	for (uint32_t i = 0; i < n; i++)
		n_tensors += files[i]->n_tensors;
	o.offers = rsh_arena_array(job->arena, struct rsh_offer, n_tensors);
	rc = o.cat && o.offers ? 0 : rsh_error_nomem(err);
	for (uint32_t i = 0; i < n && rc == 0; i++) {
		for (uint32_t k = 0; k < files[i]->n_tensors && rc == 0; k++) {
			const struct rsh_torch_tensor *t =
				&files[i]->tensors[k];

			if (rsh_plan_wants(opts, t->name))
				rc = offer_tensor(&o, t, err);
		}
	}
	if (rc) {
		rsh_catalogue_free(o.cat);
		return rc;
	}
	*out = (struct rsh_offers){ .cat = o.cat, .v = o.offers, .n = o.n };
	return 0;
}
