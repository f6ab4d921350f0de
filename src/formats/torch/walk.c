/* SPDX-License-Identifier: Apache-2.0 */
/* formats/torch/walk.c finds the tensors and the other values of an object of
 * torch.save(), by flattened names.
 *
 * A list of plain data is one value, as in torch.distributed.checkpoint. An
 * object may contain itself, or one list in many places.  Therefore the number
 * of visits and the bytes that are written are limited by the size of the
 * pickle. */
#include "config.h"

#include "torch_i.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "rsh/util/checked.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"
#include "rsh/wire/json_text.h"
#include "rsh/wire/torch_dtype.h"

#define DEPTH_MAX 1000
#define NAME_MAX_BYTES 4096
/* A pickle has at least one byte for each value, except for values that are in
 * several places.  This factor limits the visits and the bytes of names and
 * JSON. */
#define SHOWN_PER_BYTE 64
#define SHOWN_AT_LEAST 65536
/* _rebuild_parameter(_rebuild_from_type_v2(_rebuild_tensor_v2(...))) */
#define REBUILD_DEPTH 8
#define NUMBER_MAX (UINT64_C(1) << 62)

static void walk_bad(struct rsh_torch_reader *r, const char *what)
{
	r->rc = r->rc ?: rsh_error_set(r->err, EBADMSG, "%s: damaged: %.200s: "
				       "%s", r->src.path, r->n_name ? r->name :
				       "its object", what);
}

static void walk_nomem(struct rsh_torch_reader *r)
{
	r->rc = r->rc ?: rsh_error_nomem(r->err);
}

/* ---- files that have only one rank's part of a model ---- */

/* Returns the class of a tensor whose elements are in other tensors; NULL: it
 * is none, or has no class. */
static const struct rsh_pickle_class *
walk_wrapper(const struct rsh_pickle_class *class,
	     const struct rsh_pickle_value *args)
{
	return strcmp(class->name, "_rebuild_wrapper_subclass") == 0 &&
	       args->n > 0 && args->items->kind == RSH_PV_CLASS ?
		args->items->class : NULL;
}

/* Returns whether the class makes distributed tensors. */
static bool walk_is_part(const struct rsh_pickle_class *class,
			 const struct rsh_pickle_value *args)
{
	const struct rsh_pickle_class *of = walk_wrapper(class, args);

	return rsh_is_any((of ? of : class)->name, "_rebuild_wrapper_subclass",
			  "DTensor", "ShardedTensor");
}

/* DeepSpeed says in each file which version wrote it. */
static int slice_check_deepspeed(const struct rsh_torch_reader *r,
				 const struct rsh_pickle_value *root)
{
	const struct rsh_pickle_value *states =
		rsh_pickle_find(root, "optimizer_state_dict");

	if (!rsh_pickle_find(root, "ds_version") &&
	    (!states ||
	     (!rsh_pickle_find(states, "single_partition_of_fp32_groups") &&
	      !rsh_pickle_find(states, "fp32_flat_groups"))))
		return 0;
	return rsh_error_set(r->err, ENOTSUP, "%s: one rank's part of a "
			     "checkpoint of DeepSpeed: SOURCE is the directory "
			     "with the files of all ranks, under the names "
			     "that DeepSpeed gave them", r->src.path);
}

/* Returns the size of args that is 1 if nothing is said about it. */
static int64_t slice_size(const struct rsh_pickle_value *args, const char *key)
{
	const struct rsh_pickle_value *v = rsh_pickle_find(args, key);

	return v && v->kind == RSH_PV_NUMBER ? v->number : 1;
}

/* Megatron-LM saves its model in slices with the arguments of the run, an
 * argparse.Namespace, from which the number of slices follows. */
static int slice_check_megatron(const struct rsh_torch_reader *r,
				const struct rsh_pickle_value *root)
{
	const struct rsh_pickle_value *args = rsh_pickle_find(root, "args");
	int64_t tensor, pipeline, expert;

	if (!rsh_pickle_find(root, "checkpoint_version") ||
	    !(rsh_pickle_find(root, "model") ||
	      rsh_pickle_find(root, "model0")))
		return 0;
	if (args && args->kind == RSH_PV_OBJECT)
		args = &args->object->state;
	if (!args || !rsh_pickle_find(args, "tensor_model_parallel_size"))
		return rsh_error_set(r->err, ENOTSUP, "%s: one rank's file of "
				     "Megatron-LM, and its args do not say "
				     "whether it has the whole model",
				     r->src.path);
	tensor = slice_size(args, "tensor_model_parallel_size");
	pipeline = slice_size(args, "pipeline_model_parallel_size");
	expert = slice_size(args, "expert_model_parallel_size");
	return tensor == 1 && pipeline == 1 && expert == 1 ? 0 :
	       rsh_error_set(r->err, ENOTSUP, "%s: one rank's slice of a model "
			     "of Megatron-LM: its args say tensor %" PRId64
			     ", pipeline %" PRId64 " and expert parallel size %"
			     PRId64 ": SOURCE is the directory of the "
			     "iteration, with the mp_rank directories of all "
			     "ranks", r->src.path, tensor, pipeline, expert);
}

/* ---- numbers of a tensor ---- */

static bool walk_number(const struct rsh_pickle_value *v, uint64_t *out)
{
	*out = (uint64_t)v->number;
	return v->kind == RSH_PV_NUMBER && v->number >= 0 && *out < NUMBER_MAX;
}

static const uint64_t *walk_numbers(struct rsh_torch_reader *r,
				    const struct rsh_pickle_value *v,
				    uint32_t n)
{
	uint64_t *to = NULL;

	if (v->kind != RSH_PV_TUPLE || v->n != n || n > RSH_MAX_DIMS)
		walk_bad(r, "a tensor without sizes and as many strides");
	else if (!(to = rsh_arena_array(&r->file->arena_, uint64_t, n)))
		walk_nomem(r);
	for (uint32_t i = 0; to && i < n; i++)
		if (!walk_number(&v->items[i], &to[i]))
			walk_bad(r, "a tensor with a size or stride that "
				    "cannot be");
	return to;
}

/* Checks that the elements can be counted and are in the storage. */
static void walk_check_reach(struct rsh_torch_reader *r,
			     struct rsh_torch_tensor *t, uint64_t n_stored)
{
	uint64_t last = t->from, most = RSH_TORCH_ELEMENT_MAX, step;
	bool leaves = false;

	t->elements = 1;
	for (uint32_t d = 0; d < t->n_dims; d++) {
		if (!rsh_mul_u64(most, rsh_max_u64(t->dims[d], 1), &most) ||
		    most > INT64_MAX)
			walk_bad(r, "a tensor of more elements than can be");
		t->elements *= t->dims[d];
	}
	for (uint32_t d = 0; d < t->n_dims && t->elements > 0; d++)
		leaves |= !rsh_mul_u64(t->dims[d] - 1, t->strides[d], &step) ||
			  !rsh_add_u64(last, step, &last);
	if (leaves || (t->elements > 0 && last >= n_stored))
		walk_bad(r, "a tensor that leaves its storage");
}

/* ---- tensors ---- */

/* Stores the keys of the current name.  As in torch's own distributed
 * checkpoints keys of dictionaries are texts, and indexes of lists numbers. */
static void walk_keep_path(struct rsh_torch_reader *r,
			   const struct rsh_path_key **out, uint32_t *n)
{
	struct rsh_arena *arena = &r->file->arena_;
	const uint64_t bytes = r->n_name + r->n_steps * sizeof(**out);
	struct rsh_path_key *keys;

	if (bytes > r->path_bytes_left && r->n_steps >= 2)
		walk_bad(r, "names of more bytes than the pickle has room for");
	if (r->rc || r->n_steps < 2)
		return;
	r->path_bytes_left -= bytes;
	keys = rsh_arena_array(arena, struct rsh_path_key, r->n_steps);
	for (size_t i = 0; keys && i < r->n_steps; i++) {
		const struct rsh_torch_step *s = &r->steps[i];

		keys[i] = (struct rsh_path_key){
			.index = s->index,
			.text = s->is_index ? NULL :
					      rsh_arena_strndup(arena,
								r->name + s->at,
								s->n),
		};
	}
	if (arena->failed)
		walk_nomem(r);
	*out = keys;
	*n = (uint32_t)r->n_steps;
}

/* This is a tensor during the parsing of its call. */
struct walk_tensor {
	/* arguments of the call that has the storage */
	const struct rsh_pickle_value *args;
	bool has_dtype;                      /* the type is an argument */
	/* kind of a tensor that is not shown */
	const char *make;
};

/* The keys of the current name are kept, if it has several. */
static void walk_add_tensor(struct rsh_torch_reader *r, const char *name,
			    const struct walk_tensor *w, bool has_keys)
{
	const struct rsh_pickle_value *v = w->args->items, *id = NULL;
	struct rsh_torch_tensor t = { .name = name };
	uint64_t n_stored;
	unsigned width;

	if (w->args->n < (w->has_dtype ? 7 : 4)) {
		walk_bad(r, "a tensor without sizes and strides");
		return;
	}
	/* The rules have checked the tuple of a storage. */
	if (v->kind == RSH_PV_OBJECT && !v->object->class &&
	    v->object->args.kind == RSH_PV_TUPLE) {
		id = v->object->args.items;
		t.storage = rsh_names_find(r->keys, id[2].text, id[2].n);
	}
	if (!id || t.storage >= r->n_stored)
		walk_bad(r, "a tensor without a storage");
	if (!walk_number(&v[1], &t.from) || v[2].kind != RSH_PV_TUPLE)
		walk_bad(r, "a tensor without a place and sizes");
	t.n_dims = v[2].n;
	t.dims = walk_numbers(r, &v[2], t.n_dims);
	t.strides = walk_numbers(r, &v[3], t.n_dims);
	if (w->has_dtype && v[6].kind != RSH_PV_CLASS)
		walk_bad(r, "a tensor without a type");
	if (r->rc)
		return;
	t.dtype = w->has_dtype ? rsh_torch_dtype(&v[6]) :
				 rsh_torch_storage_dtype(&id[1]);
	/* If the type is not known, the number of stored elements is not
	 * either. */
	width = rsh_dtype_size(t.dtype);
	n_stored = r->stored[t.storage].count * r->stored[t.storage].width;
	n_stored = width ? n_stored / width : NUMBER_MAX;
	walk_check_reach(r, &t, n_stored);
	if (has_keys)
		walk_keep_path(r, &t.keys, &t.n_keys);
	if (!r->rc && rsh_push(r->tensors, r->n_tensors, r->cap_tensors, t))
		walk_nomem(r);
}

/* Parses the call that made a value.  Returns whether the callee is one of
 * torch's functions that build tensors.  Functions that wrap a tensor are
 * followed to the tensor. */
static bool walk_look_at(struct rsh_torch_reader *r,
			 const struct rsh_pickle_value *made,
			 struct walk_tensor *w)
{
	const bool is = made->kind == RSH_PV_OBJECT;
	const struct rsh_pickle_class *class = is ? made->object->class : NULL;
	const struct rsh_pickle_value *v;
	uint32_t mark;

	w->args = is ? &made->object->args : NULL;
	for (unsigned depth = 0; class && !r->rc; depth++) {
		const char *name = class->name;
		/* What torch.save() wrote on an Ascend NPU has the arguments
		 * of _rebuild_tensor_v2, and last a format of the device, which
		 * does not change the bytes. */
		const bool of_npu =
			strncmp(class->module, "torch_npu.", 10) == 0 &&
			strcmp(name, "_rebuild_npu_tensor") == 0;

		if (walk_is_part(class, w->args))
			r->rc = r->rc ?: rsh_error_set(
				r->err, ENOTSUP, "%s: one rank's part of a "
				"model, whose tensors are distributed "
				"(%.100s.%.100s): SOURCE is the directory with "
				"the files of all ranks (*.pt, *.pth or *.bin)",
				r->src.path, class->module, class->name);
		if (!of_npu && strcmp(class->module, "torch._utils") != 0 &&
		    strcmp(class->module, "torch._tensor") != 0)
			return false;
		if (depth > REBUILD_DEPTH)
			walk_bad(r, "a tensor that is built of tensors without "
				    "an end");
		v = w->args->items;
		w->has_dtype = strcmp(name, "_rebuild_tensor_v3") == 0;
		if (w->has_dtype || of_npu ||
		    strcmp(name, "_rebuild_tensor_v2") == 0 ||
		    strcmp(name, "_rebuild_tensor") == 0) {
			/* An argument may mark it as the conjugate or the
			 * negative of its elements. */
			mark = w->has_dtype ? 7 : 6;
			if (!of_npu && mark < w->args->n &&
			    v[mark].kind != RSH_PV_NONE &&
			    (v[mark].kind != RSH_PV_DICT ||
			     v[mark].list->n > 0))
				w->make = "conjugate or negative";
			return true;
		}
		if (strncmp(name, "_rebuild_parameter", 18) == 0) {
			class = w->args->n > 0 && v->kind == RSH_PV_OBJECT ?
					v->object->class :
					NULL;
			w->args = class ? &v->object->args : NULL;
			if (!class)
				walk_bad(r, "a parameter without a tensor");
		} else if (strcmp(name, "_rebuild_from_type_v2") == 0) {
			class = w->args->n >= 3 && v[0].kind == RSH_PV_CLASS &&
						v[2].kind == RSH_PV_TUPLE ?
					v[0].class :
					NULL;
			w->args = class ? &v[2] : NULL;
			if (!class)
				walk_bad(r, "a tensor that is built of "
					    "nothing");
		} else {
			w->make = walk_wrapper(class, w->args) ?
				walk_wrapper(class, w->args)->name : name;
			return true;
		}
	}
	return false;
}

/* ---- names ---- */

/* Writes a tuple of types as Python does: "(torch.bfloat16, torch.float32)".
 * Returns the length, or 0 if it is another tuple. */
static size_t walk_types_text(const struct rsh_pickle_value *key, char *text,
			      size_t max)
{
	size_t n = 0;

	for (uint32_t i = 0; i < key->n; i++) {
		if (key->items[i].kind != RSH_PV_CLASS)
			return 0;
		n += (size_t)snprintf(text + n, max - n, "%s%s.%s",
				      i ? ", " : "(",
				      key->items[i].class->module,
				      key->items[i].class->name);
		if (n + 2 > max)
			return 0;
	}
	if (n > 0)
		text[n++] = ')';
	return n;
}

/* Adds a key to the name. */
static void walk_push_key(struct rsh_torch_reader *r, bool first,
			  const struct rsh_pickle_value *key)
{
	const char *why = NULL;
	char buf[256] = "";
	const char *text = buf;
	size_t n = 0;

	if (key->kind == RSH_PV_TEXT) {
		text = key->text;
		n = key->n;
		if (memchr(text, '\0', n) || !rsh_is_utf8(text, n))
			why = "its name is not UTF-8";
	} else if (key->kind == RSH_PV_NUMBER) {
		n = (size_t)snprintf(buf, sizeof(buf), "%" PRId64, key->number);
	} else if (key->kind == RSH_PV_BOOL || key->kind == RSH_PV_NONE) {
		text = key->kind == RSH_PV_NONE ? "None" :
		       key->number ? "True" : "False";
		n = strlen(text);
	} else {
		n = key->kind == RSH_PV_TUPLE ?
		    walk_types_text(key, buf, sizeof(buf)) : 0;
		if (n == 0 || !rsh_is_utf8(buf, n))
			why = "its key is not a string";
	}
	if (!why && r->n_name + n + 2 > NAME_MAX_BYTES)
		why = "its name has more than 4096 bytes";
	if (why) {
		r->unnamed = r->unnamed ?: why;
		text = "?";
		n = 1;
	}
	if (rsh_grow(&r->name, &r->cap_name, r->n_name + n + 2, 1))
		walk_nomem(r);
	if (r->rc)
		return;
	if (!first)
		r->name[r->n_name++] = '.';
	memcpy(r->name + r->n_name, text, n);
	r->n_name += n;
	r->name[r->n_name] = '\0';
}

/* Stores the current name, which is valid as long as the file.  *again is
 * whether another value has it. */
static const char *walk_keep_name(struct rsh_torch_reader *r, bool *again)
{
	struct rsh_names *names = r->file->names_;
	const uint32_t before = rsh_names_count(names);
	uint32_t id;

	if (r->n_name + 1 > r->name_bytes_left)
		walk_bad(r, "names of more bytes than the pickle has room for");
	if (r->rc)
		return NULL;
	r->name_bytes_left -= r->n_name + 1;
	id = rsh_names_add(names, r->n_name ? r->name : "", r->n_name);
	*again = id < before;
	if (id == RSH_NAME_NONE)
		walk_nomem(r);
	return r->rc ? NULL : rsh_names_text(names, id);
}

static void walk_push_value(struct rsh_torch_reader *r,
			    const struct rsh_torch_value *v)
{
	if (!r->rc && rsh_push(r->found, r->n_found, r->cap_found, *v))
		walk_nomem(r);
}

/* Adds a tensor that has no name of its own.  A program may have it under such
 * a key, so the file is not damaged. */
static void walk_add_unnamed(struct rsh_torch_reader *r, const char *why)
{
	struct rsh_torch_value value = { .make = why, .unnamed = true };
	bool again;

	/* Several of one name take memory, too. */
	if (r->name_bytes_left < sizeof(value))
		walk_bad(r, "names of more bytes than the pickle has room for");
	else
		r->name_bytes_left -= sizeof(value);
	value.name = walk_keep_name(r, &again);
	/* A part of a model cannot do without one of its tensors. */
	if (!r->rc && r->parts && !r->parts->values_only)
		r->rc = rsh_error_set(r->err, ENOTSUP, "%s: %.200s is a tensor "
				      "that cannot be shown (%s)", r->src.path,
				      value.name, why);
	walk_push_value(r, &value);
}

/* Stores the name of a tensor.  Returns NULL if it has none of its own, or
 * after a failure. */
static const char *walk_tensor_name(struct rsh_torch_reader *r)
{
	bool again = false;
	const char *name = r->unnamed ? NULL : walk_keep_name(r, &again);

	if (!r->rc && (!name || again))
		walk_add_unnamed(r, r->unnamed ?: "another value has its name");
	return again ? NULL : name;
}

/* ---- values ---- */

/* Copies the value into the arena of the file, if there is room for it. */
static void walk_keep_plain(struct rsh_torch_reader *r,
			    const struct rsh_pickle_value *v,
			    struct rsh_plain *out)
{
	struct rsh_arena *arena = &r->file->arena_;
	struct rsh_plain p;
	const bool made = rsh_plain_make(v, &p) == 0;

	if (made && p.pickle && p.n_pickle < r->pickle_bytes_left) {
		r->pickle_bytes_left -= p.n_pickle;
		out->n_pickle = p.n_pickle;
		out->pickle = rsh_arena_copy(arena, p.pickle, p.n_pickle);
	}
	if (made && p.json && strlen(p.json) < r->json_bytes_left) {
		r->json_bytes_left -= strlen(p.json);
		out->json = rsh_arena_strdup(arena, p.json);
	}
	if (!made || arena->failed)
		walk_nomem(r);
	rsh_plain_clear(&p);
}

/* Adds a value that is not a tensor, or one with tensors that are not shown;
 * `lost`: it is not known what these tensors are; `v` NULL: it is not shown. */
static void walk_add_value(struct rsh_torch_reader *r,
			   const struct rsh_pickle_value *v, const char *make,
			   bool lost)
{
	struct rsh_torch_value value = { .lost = lost };
	bool again = false;

	/* If its key is not a name, the value is not shown, so it needs no
	 * name. */
	if (r->rc || (r->unnamed && !make))
		return;
	value.name = make ? walk_tensor_name(r) : walk_keep_name(r, &again);
	if (!value.name)
		return;
	/* The first one of a name is shown. */
	if (!again)
		walk_keep_path(r, &value.keys, &value.n_keys);
	if (r->rc)
		return;
	if (make)
		value.make = rsh_arena_strndup(&r->file->arena_, make,
					       strnlen(make, 255));
	else if (!again && v)
		walk_keep_plain(r, v, &value.plain);
	if (make && !value.make)
		walk_nomem(r);
	walk_push_value(r, &value);
}

/* Counts a visit.  Returns false after a failure. */
static bool walk_visit(struct rsh_torch_reader *r, unsigned depth)
{
	if (depth > DEPTH_MAX)
		walk_bad(r, "containers in containers without an end");
	else if (r->visits_left-- == 0)
		walk_bad(r, "more values than the pickle has room for");
	return !r->rc;
}

static bool walk_find_storage(struct rsh_torch_reader *r,
			      const struct rsh_pickle_value *v, uint32_t n,
			      unsigned depth);

/* Searches a list, dictionary or object that this search has not seen. */
static bool walk_find_in(struct rsh_torch_reader *r,
			 const struct rsh_pickle_value *v, unsigned depth)
{
	struct rsh_pickle_object *o = v->object;
	uint32_t *seen = v->kind == RSH_PV_OBJECT ? &o->seen : &v->list->seen;

	if (*seen == r->search)
		return false;
	*seen = r->search;
	if (v->kind != RSH_PV_OBJECT)
		return walk_find_storage(r, v->list->values, v->list->n, depth);
	return !o->class || walk_find_storage(r, &o->args, 1, depth) ||
	       walk_find_storage(r, &o->state, 1, depth) ||
	       walk_find_storage(r, o->items.values, o->items.n, depth);
}

/* Finds out whether any of n values has a storage, at any depth.  Objects may
 * contain each other, so each is looked at once; those without one stay
 * known. */
static bool walk_find_storage(struct rsh_torch_reader *r,
			      const struct rsh_pickle_value *v, uint32_t n,
			      unsigned depth)
{
	bool found = false;

	for (uint32_t i = 0; i < n && !found && walk_visit(r, depth); i++) {
		if (v[i].kind == RSH_PV_TUPLE)
			found = walk_find_storage(r, v[i].items, v[i].n,
						  depth + 1);
		else if (v[i].kind == RSH_PV_LIST || v[i].kind == RSH_PV_DICT ||
			 v[i].kind == RSH_PV_OBJECT)
			found = walk_find_in(r, &v[i], depth + 1);
	}
	return found;
}

/* Returns whether an object is an array of numpy with floats, as weights are;
 * the states of random generators are arrays of integers. */
static bool walk_is_floats(const struct rsh_pickle_object *o)
{
	const struct rsh_pickle_value *v = &o->state;

	if (!o->class || strcmp(o->class->name, "_reconstruct") != 0 ||
	    strncmp(o->class->module, "numpy.", 6) != 0 ||
	    v->kind != RSH_PV_TUPLE || v->n < 3 ||
	    v->items[2].kind != RSH_PV_OBJECT)
		return false;
	/* the type, as "f4" */
	v = &v->items[2].object->args;
	return v->kind == RSH_PV_TUPLE && v->n > 0 &&
	       v->items->kind == RSH_PV_TEXT && *v->items->text == 'f';
}

/* Adds an object that is no tensor.  If it has tensors, they are not shown. */
static void walk_opaque(struct rsh_torch_reader *r,
			const struct rsh_pickle_value *v)
{
	const struct rsh_pickle_object *o = v->object;
	char make[256];

	if (!walk_find_storage(r, v, 1, 0)) {
		walk_add_value(r, v, walk_is_floats(o) ? "an array of numpy" :
							 NULL, false);
		return;
	}
	/* The containers of this search may have storages. */
	r->search++;
	snprintf(make, sizeof(make), "an object of %.100s.%.100s",
		 o->class ? o->class->module : "",
		 o->class ? o->class->name : "");
	walk_add_value(r, v, o->class ? make : "a storage",
		       o->class && !o->is_new && !rsh_torch_is_known(o->class));
}

/* ---- a tensor of which the file has a part ---- */

/* Returns the arguments of the call that builds such a tensor, which may be in
 * a parameter; NULL: the value is none. */
static const struct rsh_pickle_value *
walk_part_args(const struct rsh_pickle_value *v)
{
	for (unsigned i = 0; i < REBUILD_DEPTH; i++) {
		const struct rsh_pickle_value *args = &v->object->args;

		if (!v->object->class || args->kind != RSH_PV_TUPLE ||
		    args->n == 0)
			return NULL;
		if (strcmp(v->object->class->name, "_rebuild_from_type_v2") == 0)
			return args->n >= 4 &&
			       args->items[1].kind == RSH_PV_CLASS &&
			       walk_is_part(args->items[1].class,
					    &args->items[2]) ?
				       args : NULL;
		if (strncmp(v->object->class->name, "_rebuild_parameter",
			    18) != 0 ||
		    args->items->kind != RSH_PV_OBJECT)
			return NULL;
		v = args->items;
	}
	return NULL;
}

/* Adds a tensor, or sets the sentence that the value is none. */
static void walk_add_of(struct rsh_torch_reader *r, const char *name,
			const struct rsh_pickle_value *v, bool has_keys,
			const char *otherwise)
{
	struct walk_tensor w = { .args = NULL };

	if (!walk_look_at(r, v, &w) || w.make)
		walk_bad(r, otherwise);
	if (!r->rc)
		walk_add_tensor(r, name, &w, has_keys);
}

static void walk_part(struct rsh_torch_reader *r,
		      const struct rsh_pickle_value *args)
{
	const struct rsh_pickle_value *pieces[RSH_TORCH_PIECES_MAX];
	const char *name = walk_tensor_name(r);
	uint32_t n = 0;

	r->rc = r->rc ?:
			r->parts->take(r->parts->ctx, r->src.path, name, args,
				       pieces, &n, r->err);
	for (uint32_t i = 0; !r->rc && i < n; i++) {
		const char *own = i == 0 ? name :
			rsh_arena_format(&r->file->arena_, "%s\2%u", name, i);

		if (!own)
			walk_nomem(r);
		walk_add_of(r, own, pieces[i], i == 0,
			    "a part that is not a plain tensor");
	}
}

static void walk_object(struct rsh_torch_reader *r,
			const struct rsh_pickle_value *v)
{
	const bool values_only = r->parts && r->parts->values_only;
	const struct rsh_pickle_value *part =
		values_only || (r->parts && r->parts->take) ?
		walk_part_args(v) : NULL;
	struct walk_tensor w = { .args = NULL };
	const char *name;

	if (part && !values_only)
		walk_part(r, part);
	if (part)
		return;
	if (!walk_look_at(r, v, &w)) {
		if (!r->rc)
			walk_opaque(r, v);
	} else if (w.make) {
		walk_add_value(r, v, w.make, false);
	} else if (!values_only) {
		name = walk_tensor_name(r);
		if (name)
			walk_add_tensor(r, name, &w, true);
	}
}

/* ---- the walk ---- */

static bool walk_holds_more(struct rsh_torch_reader *r,
			    const struct rsh_pickle_value *v, uint32_t n,
			    unsigned depth);

/* A list in which the walk is already has nothing more. */
static bool walk_list_holds_more(struct rsh_torch_reader *r,
				 struct rsh_pickle_list *l, unsigned depth)
{
	bool more;

	if (l->entered)
		return false;
	l->entered = true;
	more = walk_holds_more(r, l->values, l->n, depth);
	l->entered = false;
	return more;
}

/* Finds out whether a list contains a tensor or a dictionary at any depth. */
static bool walk_holds_more(struct rsh_torch_reader *r,
			    const struct rsh_pickle_value *v, uint32_t n,
			    unsigned depth)
{
	bool more = false;

	for (uint32_t i = 0; i < n && !more && walk_visit(r, depth); i++)
		more = v[i].kind == RSH_PV_DICT || v[i].kind == RSH_PV_OBJECT ||
		       (v[i].kind == RSH_PV_TUPLE &&
			walk_holds_more(r, v[i].items, v[i].n, depth + 1)) ||
		       (v[i].kind == RSH_PV_LIST &&
			walk_list_holds_more(r, v[i].list, depth + 1));
	return more;
}

static void walk_value(struct rsh_torch_reader *r,
		       const struct rsh_pickle_value *v, unsigned depth);

/* Walks over the value of one key or index. */
static void walk_item(struct rsh_torch_reader *r,
		      const struct rsh_pickle_value *key, bool is_index,
		      const struct rsh_pickle_value *v, unsigned depth)
{
	const size_t n_name = r->n_name, at = n_name + (depth > 0);
	const char *unnamed = r->unnamed;

	walk_push_key(r, depth == 0, key);
	if (rsh_room(r->steps, r->cap_steps, r->n_steps + 1))
		walk_nomem(r);
	if (r->rc)
		return;
	r->steps[r->n_steps++] = (struct rsh_torch_step){
		at, r->n_name - at, is_index, (uint64_t)key->number,
	};
	walk_value(r, v, depth + 1);
	if (r->rc)
		return;
	r->n_steps--;
	r->n_name = n_name;
	r->name[n_name] = '\0';
	r->unnamed = unnamed;
}

static void walk_list(struct rsh_torch_reader *r,
		      const struct rsh_pickle_value *list,
		      const struct rsh_pickle_value *v, uint32_t n,
		      unsigned depth)
{
	if (!walk_holds_more(r, v, n, depth) && depth > 0) {
		walk_add_value(r, list, NULL, false);
		return;
	}
	for (uint32_t i = 0; i < n && !r->rc; i++) {
		const struct rsh_pickle_value index = {
			.kind = RSH_PV_NUMBER, .number = i,
		};

		walk_item(r, &index, true, &v[i], depth);
	}
}

static void walk_value(struct rsh_torch_reader *r,
		       const struct rsh_pickle_value *v, unsigned depth)
{
	const bool holds = v->kind == RSH_PV_LIST || v->kind == RSH_PV_DICT;
	struct rsh_pickle_list *l = v->list;

	if (!walk_visit(r, depth))
		return;
	if (holds && l->entered) {
		/* Its tensors have the names of the first way to them. */
		walk_add_value(r, NULL, NULL, false);
		return;
	}
	if (holds)
		l->entered = true;
	if (v->kind == RSH_PV_LIST)
		walk_list(r, v, l->values, l->n, depth);
	else if (v->kind == RSH_PV_TUPLE)
		walk_list(r, v, v->items, v->n, depth);
	else if (v->kind == RSH_PV_OBJECT)
		walk_object(r, v);
	else if (v->kind != RSH_PV_DICT || (l->n == 0 && depth > 0))
		walk_add_value(r, v, NULL, false);
	else
		for (uint32_t i = 0; i + 1 < l->n && !r->rc; i += 2)
			walk_item(r, &l->values[i], false, &l->values[i + 1],
				  depth);
	if (holds)
		l->entered = false;
}

int rsh_torch_walk(struct rsh_torch_reader *r,
		   const struct rsh_pickle_value *root)
{
	const uint64_t most = r->pickle_bytes * SHOWN_PER_BYTE + SHOWN_AT_LEAST;
	const struct rsh_pickle_class *c =
		root->kind == RSH_PV_OBJECT ? root->object->class : NULL;

	r->rc = 0;
	if (r->is_item) {
		walk_add_of(r, "", root, false, "no tensor that is known here");
		return r->rc;
	}
	r->search = 1;
	r->visits_left = r->name_bytes_left = r->path_bytes_left = most;
	r->json_bytes_left = r->pickle_bytes_left = most;
	r->rc = r->parts && r->parts->look ?
			r->parts->look(r->parts->ctx, r->src.path, root,
				       r->err) :
		r->parts && r->parts->values_only ? 0 :
			slice_check_deepspeed(r, root) ?:
			slice_check_megatron(r, root);
	if (r->rc)
		return r->rc;
	/* Only a container has names to show. */
	if (root->kind == RSH_PV_DICT || root->kind == RSH_PV_LIST ||
	    root->kind == RSH_PV_TUPLE) {
		walk_value(r, root, 0);
		return r->rc;
	}
	if (c && (strcmp(c->module, "torch._utils") == 0 ||
		  strcmp(c->module, "torch._tensor") == 0))
		return rsh_error_set(r->err, ENOTSUP, "%s: one tensor without "
				     "a name", r->src.path);
	if (c)
		return rsh_error_set(r->err, ENOTSUP, "%s: an object of class "
				     "%.100s.%.100s, not a state dict",
				     r->src.path, c->module, c->name);
	return rsh_error_set(r->err, ENOTSUP, "%s: neither a dictionary nor a "
			     "list of tensors", r->src.path);
}
