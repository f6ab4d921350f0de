/* SPDX-License-Identifier: Apache-2.0 */
/* formats/deepspeed/file.c reads what one file has.
 *
 * The index of a file has a record for each box of a parameter (layout.c), so
 * that a reader of boxes finds them; and one for each tensor that is whole. */
#include "config.h"

#include "deepspeed_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/mem.h"
#include "rsh/util/text.h"
#include "rsh/wire/bytes.h"

#define MODULE "module"
#define FRAGMENTS "frozen_param_fragments"
#define OPTIMIZER "optimizer_state_dict"
#define PARAM "param"

/* ---- looking at the object ---- */

struct looking {
	enum rsh_ds_role role;
	struct rsh_ds_file *f;
	bool is_bare; /* the object is one tensor */
};

static int file_look(void *ctx, const char *path,
		     const struct rsh_pickle_value *root, struct rsh_error *err)
{
	struct looking *l = ctx;
	struct rsh_ds_file *f = l->f;
	int rc = 0;

	l->is_bare = root->kind == RSH_PV_OBJECT;
	if (l->role == RSH_DS_MODEL || l->role == RSH_DS_MODEL_PART)
		rc = rsh_ds_head_read(root, path, &f->arena, &f->head, err);
	else if (l->role == RSH_DS_OPTIMIZER)
		rc = rsh_ds_zero_read(root, path, &f->arena, &f->zero, err);
	return rc || !f->arena.failed ? rc : rsh_error_nomem(err);
}

/* ---- what is kept ---- */

static bool is_key(const struct rsh_torch_tensor *t, uint32_t i,
		   const char *text)
{
	return i < t->n_keys && t->keys[i].text &&
	       strcmp(t->keys[i].text, text) == 0;
}

static int keep_tensor(struct rsh_ds_file *f, const struct rsh_torch_file *of,
		       const struct rsh_torch_tensor *t, const char *name,
		       struct rsh_ds_tensor *out)
{
	struct rsh_torch_layout l;

	rsh_torch_layout(t, &l);
	*out = (struct rsh_ds_tensor){
		.name = rsh_arena_strdup(&f->arena, name),
		.record = rsh_arena_strdup(&f->arena, t->name),
		.dtype = t->dtype, .n_dims = t->n_dims,
		.dims = rsh_arena_copy(&f->arena, t->dims, t->n_dims),
		.elements = t->elements,
		.row_major = l.dense &&
			     rsh_torch_is_row_major(l.order, t->n_dims),
		.offset = of->storages[t->storage].offset +
			  t->from * rsh_dtype_size(t->dtype),
	};
	return f->arena.failed ? -ENOMEM : 0;
}

/* Sets the group and the key of a flat tensor, by the way to it.  Returns false
 * if it is none. */
static bool flat_place(const struct rsh_torch_tensor *t, uint32_t stage,
		       uint64_t *group, const char **key)
{
	const char *text;

	*key = "";
	if (t->n_keys < 3 || !is_key(t, 0, OPTIMIZER))
		return false;
	if (t->n_keys == 3 &&
	    is_key(t, 1, stage == 3 ? "fp32_flat_groups" :
				      "single_partition_of_fp32_groups")) {
		*group = t->keys[2].index;
		return !t->keys[2].text;
	}
	if (!is_key(t, 1, stage == 3 ? OPTIMIZER : "base_optimizer_state"))
		return false;
	/* With elastic_checkpoint it is a list of groups. */
	if (t->n_keys == 4 && stage != 3 && !t->keys[2].text &&
	    t->keys[3].text) {
		*group = t->keys[2].index;
		*key = t->keys[3].text;
		return true;
	}
	if (t->n_keys != 5 || !is_key(t, 2, "state") || !t->keys[4].text)
		return false;
	*key = t->keys[4].text;
	text = t->keys[3].text;
	return text && rsh_number_read(text, strlen(text), group);
}

RSH_ORDER(tensor_by_name, struct rsh_ds_tensor, strcmp(x->name, y->name))

RSH_ORDER(flat_order, struct rsh_ds_flat,
	  rsh_by_u32(&x->group, &y->group) ?: strcmp(x->key, y->key))

const struct rsh_ds_tensor *rsh_ds_tensor_find(const struct rsh_ds_tensor *v,
					       uint32_t n, const char *name)
{
	const struct rsh_ds_tensor key = { .name = name };

	return rsh_find(&key, v, n, tensor_by_name);
}

const struct rsh_ds_flat *rsh_ds_flat_find(const struct rsh_ds_file *f,
					   uint32_t group, const char *key)
{
	const struct rsh_ds_flat like = { .group = group, .key = key };

	return rsh_find(&like, f->flats, f->n_flats, flat_order);
}

char *rsh_ds_record(struct rsh_arena *arena, const char *key, const char *name,
		    uint32_t box)
{
	return rsh_arena_format(arena, "%s\2%s\2%u", key, name, box);
}

/* ---- records ---- */

/* The tensors of which the index has records, and what makes them. */
struct records {
	const struct rsh_source_ds *st;
	const struct rsh_ds_listed *l;
	struct rsh_torch_tensor *v;
	size_t n, cap;
	/* The steps that the optimizer made, of the first group; NULL: they are
	 * no tensor. */
	const struct rsh_torch_tensor *step;
	uint32_t step_group;
};

/* Adds the boxes of a run of a flat tensor. */
static int records_add_run(struct records *r, struct rsh_torch_file *of,
			   const struct rsh_torch_tensor *t, const char *key,
			   const struct rsh_ds_param *p,
			   const struct rsh_ds_run *run)
{
	struct rsh_box boxes[RSH_DS_BOXES_MAX];
	const uint32_t n = rsh_ds_run_boxes(p, run, boxes);
	struct rsh_torch_tensor one = *t;

	/* A shorter tensor is a problem, which the description says. */
	if (run->at > t->elements || run->n > t->elements - run->at)
		return 0;
	one.from += run->at;
	for (uint32_t i = 0; i < n; i++) {
		const uint64_t *dims = rsh_arena_copy(
			&of->arena_, boxes[i].size, p->n_dims);

		one.name = rsh_ds_record(&of->arena_, key, p->name, i);
		one.n_keys = 0;
		if (dims)
			rsh_torch_reshape(&one, p->n_dims, dims, &of->arena_);
		if (of->arena_.failed || rsh_push(r->v, r->n, r->cap, one))
			return -ENOMEM;
		one.from += one.elements;
	}
	return 0;
}

/* Takes a flat tensor, and what the file has of each parameter of its group. */
static int take_flat(struct rsh_ds_file *f, struct rsh_torch_file *of,
		     const struct rsh_torch_tensor *t, struct records *r)
{
	const struct rsh_ds_layout *layout = &r->st->layout;
	struct rsh_ds_flat *flat = &f->flats[f->n_flats];
	const struct rsh_ds_params *params;
	uint64_t group;
	const char *key;
	int rc = 0;

	/* Keys are parts of names of records. */
	if (!flat_place(t, f->zero.stage, &group, &key) ||
	    group >= f->zero.n_groups)
		return 0;
	for (const char *c = key; *c; c++)
		if ((unsigned char)*c < ' ')
			return 0;
	*flat = (struct rsh_ds_flat){
		.group = (uint32_t)group,
		.key = rsh_arena_strdup(&f->arena, key), .dtype = t->dtype,
		.elements = t->elements, .is_scalar = t->n_dims == 0 && *key,
		.is_odd = t->n_dims != 1 ||
			  (t->elements > 1 && t->strides[0] != 1),
		.record = rsh_arena_strdup(&f->arena, t->name),
	};
	if (f->arena.failed)
		return -ENOMEM;
	f->n_flats++;
	if (flat->is_scalar && strcmp(key, "step") == 0 &&
	    (!r->step || flat->group < r->step_group)) {
		r->step = t;
		r->step_group = flat->group;
	}
	if (flat->is_scalar)
		return rsh_push(r->v, r->n, r->cap, *t);
	if (flat->is_odd || !layout->piece ||
	    layout->head->n_groups != f->zero.n_groups)
		return 0;
	params = &layout->head->groups[group];
	for (uint32_t i = 0; i < params->n && rc == 0; i++) {
		const struct rsh_ds_run run = rsh_ds_run_of(
			layout, flat->group, &params->v[i], r->l->is.rank);

		if (run.n > 0)
			rc = records_add_run(r, of, t, flat->key,
					     &params->v[i], &run);
	}
	return rc;
}

/* Takes a tensor of the model. */
static int take_module(struct rsh_ds_file *f, struct rsh_torch_file *of,
		       const struct rsh_torch_tensor *t, struct records *r)
{
	const struct rsh_ds_param *p;
	struct rsh_ds_run run;

	if (t->n_keys != 2 || !t->keys[1].text)
		return 0;
	if (is_key(t, 0, MODULE))
		return keep_tensor(f, of, t, t->keys[1].text,
				   &f->tensors[f->n_tensors++]) ?:
		       rsh_push(r->v, r->n, r->cap, *t);
	if (!is_key(t, 0, FRAGMENTS))
		return 0;
	if (keep_tensor(f, of, t, t->keys[1].text,
			&f->fragments[f->n_fragments++]))
		return -ENOMEM;
	/* Those of ZeRO 2 are whole. */
	if (r->l->is.role != RSH_DS_MODEL_PART)
		return rsh_push(r->v, r->n, r->cap, *t);
	p = rsh_ds_param_find(r->st->layout.head, t->keys[1].text, true);
	if (!p || t->n_dims != 1 || (t->elements > 1 && t->strides[0] != 1))
		return 0;
	run = rsh_ds_share_of(p, r->l->is.rank);
	run.at = 0;
	return run.n == 0 ? 0 :
	       records_add_run(r, of, t, RSH_DS_FROZEN, p, &run);
}

/* Takes the tensor of a file of the universal form, which may be flat. */
static int take_param(struct rsh_ds_file *f, struct rsh_torch_file *of,
		      const struct rsh_torch_tensor *t, struct records *r)
{
	const struct rsh_ds_param *p =
		rsh_ds_param_find(r->st->head, r->l->param, false);
	struct rsh_torch_tensor one = *t;

	if (f->n_tensors > 0 || (*t->name && strcmp(t->name, PARAM) != 0))
		return 0;
	one.name = PARAM;
	if (p && p->n_dims != 1 && t->n_dims == 1 && t->strides[0] == 1 &&
	    t->elements == p->elements)
		rsh_torch_reshape(&one, p->n_dims, p->dims, &of->arena_);
	return of->arena_.failed ? -ENOMEM :
	       keep_tensor(f, of, &one, "", &f->tensors[f->n_tensors++]) ?:
	       rsh_push(r->v, r->n, r->cap, one);
}

static int file_take(struct rsh_ds_file *f, struct rsh_torch_file *of,
		     struct records *r)
{
	const enum rsh_ds_role role = r->l->is.role;
	const size_t n = of->n_tensors;
	int rc = 0;

	f->tensors = rsh_arena_array(&f->arena, struct rsh_ds_tensor, n);
	f->fragments = rsh_arena_array(&f->arena, struct rsh_ds_tensor, n);
	f->flats = rsh_arena_array(&f->arena, struct rsh_ds_flat, n);
	if (!f->tensors || !f->fragments || !f->flats)
		return -ENOMEM;
	for (size_t i = 0; i < n && rc == 0; i++) {
		const struct rsh_torch_tensor *t = &of->tensors[i];

		if (role == RSH_DS_OPTIMIZER)
			rc = take_flat(f, of, t, r);
		else if (role == RSH_DS_STATE)
			rc = take_param(f, of, t, r);
		else if (role == RSH_DS_EXPERT && t->n_keys == 0)
			rc = keep_tensor(f, of, t, t->name,
					 &f->tensors[f->n_tensors++]) ?:
			     rsh_push(r->v, r->n, r->cap, *t);
		else if (role != RSH_DS_EXPERT)
			rc = take_module(f, of, t, r);
	}
	rsh_sort(f->tensors, f->n_tensors, tensor_by_name);
	rsh_sort(f->fragments, f->n_fragments, tensor_by_name);
	rsh_sort(f->flats, f->n_flats, flat_order);
	return rc;
}

/* ---- which save the file is of ---- */

/* Reads a tensor of one whole number.  Returns false if it is none. */
static bool read_whole(const uint8_t bytes[8], enum rsh_dtype dtype,
		       uint64_t *out)
{
	const uint32_t low = rsh_le32(bytes);
	const uint64_t all = rsh_le64(bytes);
	double real = -1;
	float narrow;

	if (dtype == RSH_DTYPE_INT64 || dtype == RSH_DTYPE_INT32) {
		*out = dtype == RSH_DTYPE_INT64 ? all : low;
		return *out <= INT32_MAX;
	}
	if (dtype == RSH_DTYPE_FLOAT32) {
		memcpy(&narrow, &low, sizeof(narrow));
		real = narrow;
	} else if (dtype == RSH_DTYPE_FLOAT64) {
		memcpy(&real, &all, sizeof(real));
	}
	if (!(real >= 0 && real <= INT32_MAX))
		return false;
	*out = (uint64_t)real;
	return (double)*out == real;
}

/* Reads how many steps the optimizer made, which is a tensor with most
 * optimizers. */
static int read_step(struct rsh_ds_file *f, const struct rsh_torch_file *of,
		     const struct records *r,
		     const struct rsh_byte_source *bytes, struct rsh_error *err)
{
	const struct rsh_torch_tensor *t = r->step;
	const unsigned width = t ? rsh_dtype_size(t->dtype) : 0;
	uint8_t value[8] = { 0 };
	uint64_t step;
	int rc;

	if (width == 0 || width > sizeof(value))
		return 0;
	rc = rsh_bytes_read(bytes, value, width,
			    of->storages[t->storage].offset + t->from * width,
			    err);
	if (rc == 0 && read_whole(value, t->dtype, &step)) {
		f->zero.has_step = true;
		f->zero.step_group = r->step_group;
		f->zero.step = step;
	}
	return rc;
}

/* torch.save() writes the name of the file into the archive. */
static int read_saved_as(struct rsh_ds_file *f, const struct rsh_torch_file *of)
{
	const char *name = !of->root ? "" :
			   rsh_arena_format(&f->arena, "%s.pt", of->root);

	if (name && !rsh_ds_name_read(name, &f->saved_as))
		f->saved_as.role = RSH_DS_OTHER;
	return name ? 0 : -ENOMEM;
}

/* ---- reading ---- */

int rsh_ds_file_read(void *state, uint32_t file,
		     const struct rsh_byte_source *bytes, bool full,
		     struct rsh_names *names, void **out,
		     struct rsh_ckpt_index **index, struct rsh_error *err)
{
	const struct rsh_source_ds *st = state;
	struct records r = { .st = st, .l = &st->listed[file] };
	struct rsh_ds_file *f = calloc(1, sizeof(*f));
	struct looking l = { .role = r.l->is.role, .f = f };
	const struct rsh_torch_parts parts = { .ctx = &l, .look = file_look };
	struct rsh_error why = RSH_ERROR_INIT;
	char path[RSH_TORCH_ITEM_PATH];
	struct rsh_torch_file *of = NULL;
	int rc;

	*out = NULL;
	if (!f)
		return rsh_error_nomem(err);
	rc = rsh_torch_file_read(bytes, &parts, &of, &why);
	/* The universal form has tensors without a dictionary. */
	if (rc == -ENOTSUP && l.is_bare && l.role == RSH_DS_STATE)
		rc = rsh_torch_item_read(bytes, 0, bytes->size, path, &of, err);
	else if (rc)
		rsh_error_set(err, -rc, "%s", why.text);
	/* A tensor of a kind that is not known must not be left out
	 * silently. */
	for (uint32_t i = 0; rc == 0 && i < of->n_values; i++) {
		const struct rsh_torch_value *v = &of->values[i];
		const char *of_dict = v->n_keys == 2 ? v->keys[0].text : NULL;

		if (v->make &&
		    (l.role == RSH_DS_EXPERT ||
		     ((l.role == RSH_DS_MODEL || l.role == RSH_DS_MODEL_PART) &&
		      of_dict && rsh_is_any(of_dict, MODULE, FRAGMENTS))))
			rc = rsh_error_set(err, ENOTSUP, "%s: tensor %s is of "
					   "a kind that is not supported (%s)",
					   bytes->path, v->name, v->make);
	}
	if (rc == 0 && (file_take(f, of, &r) || read_saved_as(f, of)))
		rc = rsh_error_nomem(err);
	rc = rc ?: read_step(f, of, &r, bytes, err);
	/* No group has two tensors of one key. */
	for (uint32_t i = 1; i < f->n_flats && rc == 0; i++)
		if (flat_order(&f->flats[i - 1], &f->flats[i]) == 0)
			rc = rsh_error_set(err, EBADMSG, "%s: damaged: group "
					   "%u has two tensors of one name, "
					   "such as %s", bytes->path,
					   f->flats[i].group,
					   f->flats[i].record);
	if (rc == 0 && names) {
		of->tensors = r.v;
		of->n_tensors = (uint32_t)r.n;
		rc = rsh_torch_index(of, bytes, full, true, names, index, err);
	}
	rsh_torch_file_free(of);
	free(r.v);
	if (rc)
		rsh_joined_file_free(f);
	else
		*out = f;
	return rc;
}
