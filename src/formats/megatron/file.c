/* SPDX-License-Identifier: Apache-2.0 */
/* formats/megatron/file.c reads what one file has: of the arguments of its run
 * those that say how tensors are cut, and the tensors of its model. */
#include "config.h"

#include "megatron_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/checked.h"
#include "rsh/util/files.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"
#include "rsh/wire/pickle_values.h"

/* Numbers of arguments are not larger. */
#define NUMBER_MAX (INT64_C(1) << 31)
#define CHUNKS_MAX 4096

const char *const rsh_megatron_arg_names[RSH_MEGATRON_ARGS] = {
	[RSH_MEGATRON_TENSOR] = "tensor_model_parallel_size",
	[RSH_MEGATRON_PIPELINE] = "pipeline_model_parallel_size",
	[RSH_MEGATRON_EXPERT] = "expert_model_parallel_size",
	[RSH_MEGATRON_EXPERT_TENSOR] = "expert_tensor_parallel_size",
	[RSH_MEGATRON_EXPERTS] = "num_experts",
	[RSH_MEGATRON_LAYERS] = "num_layers",
	[RSH_MEGATRON_NOOPS] = "noop_layers",
	[RSH_MEGATRON_UNTIED] = "untie_embeddings_and_output_weights",
	[RSH_MEGATRON_LATENT] = "multi_latent_attention",
	[RSH_MEGATRON_Q_RANK] = "q_lora_rank",
	[RSH_MEGATRON_KV_RANK] = "kv_lora_rank",
	[RSH_MEGATRON_ROPE_DIM] = "qk_pos_emb_head_dim",
	[RSH_MEGATRON_EXTENDS] = "moe_tp_extend_ep",
	[RSH_MEGATRON_DUAL] = "schedules_method",
	[RSH_MEGATRON_HEADS] = "num_attention_heads",
	[RSH_MEGATRON_GROUPS] = "num_query_groups",
	[RSH_MEGATRON_CHANNELS] = "kv_channels",
	[RSH_MEGATRON_PADDED] = "padded_vocab_size",
};

void rsh_megatron_expert_sizes(const uint64_t *args, uint64_t *n_blocks,
			       uint64_t *expert_tensor)
{
	*n_blocks = rsh_max_u64(args[RSH_MEGATRON_EXPERT], 1);
	*expert_tensor = args[RSH_MEGATRON_EXPERT_TENSOR] ?
			 args[RSH_MEGATRON_EXPERT_TENSOR] :
			 args[RSH_MEGATRON_TENSOR];
	if (args[RSH_MEGATRON_EXTENDS]) {
		*n_blocks *= args[RSH_MEGATRON_TENSOR];
		*expert_tensor = 1;
	}
}

/* ---- args ---- */

/* Counts the layers of "2,5" or of a list or set. */
static bool read_noops(const struct rsh_pickle_value *v, uint64_t *out)
{
	/* A set is a call with a list. */
	if (v->kind == RSH_PV_OBJECT && v->object->class &&
	    strcmp(v->object->class->name, "set") == 0 &&
	    v->object->args.kind == RSH_PV_TUPLE && v->object->args.n == 1)
		v = v->object->args.items;
	if (v->kind == RSH_PV_LIST) {
		*out = v->list->n;
		return true;
	}
	if (v->kind != RSH_PV_TEXT || memchr(v->text, '\0', v->n))
		return false;
	*out = 0;
	for (const char *at = v->text; *at; at++) {
		const size_t n = rsh_count_digits(at, strlen(at));

		*out += n > 0;
		at += n;
		if (n == 0 || (*at && *at != ','))
			return false;
		if (!*at)
			break;
	}
	return true;
}

static bool read_arg(enum rsh_megatron_arg arg,
		     const struct rsh_pickle_value *v, uint64_t *out)
{
	if (!v || v->kind == RSH_PV_NONE)
		return true;
	if (arg == RSH_MEGATRON_NOOPS)
		return read_noops(v, out);
	if (arg == RSH_MEGATRON_DUAL) {
		*out = v->kind == RSH_PV_TEXT &&
		       rsh_pickle_is_text(v, "dualpipev");
		return v->kind == RSH_PV_TEXT;
	}
	*out = (uint64_t)v->number;
	return v->kind == RSH_PV_BOOL ||
	       (v->kind == RSH_PV_NUMBER && v->number >= 0 &&
		v->number <= NUMBER_MAX);
}

/* Returns why the file cannot be used, or NULL, as the next function does. */
static const char *read_args(struct rsh_megatron_file *f,
			     const struct rsh_pickle_value *args)
{
	const struct rsh_pickle_value *tied, *blocks, *inside;
	uint64_t rank, world;

	/* A Namespace is an object, whose members are its state. */
	if (args && args->kind == RSH_PV_OBJECT)
		args = &args->object->state;
	if (!args || args->kind != RSH_PV_DICT)
		return "it has no args, which say the tensor and pipeline "
		       "parallel sizes";
	for (unsigned i = 0; i < RSH_MEGATRON_ARGS; i++) {
		const char *name = rsh_megatron_arg_names[i];

		if (!read_arg(i, rsh_pickle_find(args, name), &f->args[i]))
			return rsh_arena_format(&f->arena, "its args have an "
						"unknown form of %s", name);
	}
	inside = rsh_pickle_find(args, "use_tp_pp_dp_mapping");
	if (rsh_pickle_number(rsh_pickle_find(args, "world_size"), NUMBER_MAX,
			      &world) &&
	    rsh_pickle_number(rsh_pickle_find(args, "rank"), world - 1,
			      &rank) && world > 0) {
		f->rank = rank;
		f->world = world;
		f->stages_inside = inside && inside->kind == RSH_PV_BOOL &&
				   inside->number;
	}
	/* An absent argument is told from False. */
	tied = rsh_pickle_find(args, "tie_word_embeddings");
	if (rsh_pickle_find(args, rsh_megatron_arg_names[RSH_MEGATRON_UNTIED]))
		f->args[RSH_MEGATRON_UNTIED] =
			f->args[RSH_MEGATRON_UNTIED] ? 1 : 2;
	else if (tied && tied->kind == RSH_PV_BOOL)
		f->args[RSH_MEGATRON_UNTIED] = tied->number ? 2 : 1;
	blocks = rsh_pickle_find(args, "moe_mlp_glu_interleave_size");
	if (blocks && blocks->kind != RSH_PV_NONE)
		return "rows of gate and up alternate in it "
		       "(moe_mlp_glu_interleave_size), which is not supported";
	return f->args[RSH_MEGATRON_TENSOR] && f->args[RSH_MEGATRON_PIPELINE] &&
	       f->args[RSH_MEGATRON_LAYERS] ? NULL :
	       "its args do not say the tensor and pipeline parallel sizes and "
	       "the number of layers";
}

/* ---- the object of the file ---- */

/* Returns whether a key is that of a chunk: "model", or "model2". */
static bool is_chunk(const char *key, size_t len, uint32_t *chunk)
{
	uint64_t number = 0;

	if (len < 5 || strncmp(key, "model", 5) != 0 ||
	    (len > 5 && !rsh_digits_read(key + 5, len - 5, CHUNKS_MAX - 1,
					 &number)))
		return false;
	*chunk = (uint32_t)number;
	return true;
}

static const char *read_chunks(struct rsh_megatron_file *f,
			       const struct rsh_pickle_value *root)
{
	uint32_t chunk, last = 0;

	for (uint32_t i = 0; i + 1 < root->list->n; i += 2) {
		const struct rsh_pickle_value *key = &root->list->values[i];

		if (key->kind != RSH_PV_TEXT ||
		    !is_chunk(key->text, key->n, &chunk))
			continue;
		f->n_chunks++;
		last = chunk > last ? chunk : last;
		if (key[1].kind != RSH_PV_DICT)
			return "its model is not a dictionary";
		if (rsh_pickle_find(&key[1], "language_model"))
			return "it has a model from before Megatron-Core "
			       "(language_model), which is not supported";
	}
	if (f->n_chunks == 0)
		return "it has no model";
	return f->n_chunks == last + 1 ? NULL :
	       "a chunk of the model is missing in it";
}

/* Whatever is wrong is said when all files are known. */
static int file_look(void *ctx, const char *path,
		     const struct rsh_pickle_value *root, struct rsh_error *err)
{
	struct rsh_megatron_file *f = ctx;
	const struct rsh_pickle_value *v =
		rsh_pickle_find(root, "checkpoint_version");
	const double version = !v ? 0 : v->kind == RSH_PV_REAL ? v->real :
			       v->kind == RSH_PV_NUMBER ? (double)v->number : 0;

	(void)path;
	f->has_iteration = rsh_pickle_number(rsh_pickle_find(root, "iteration"),
					     NUMBER_MAX, &f->iteration);
	f->wrong = read_args(f, rsh_pickle_find(root, "args"));
	if (!f->wrong)
		f->wrong = version == 3 ? read_chunks(f, root) :
			   rsh_arena_format(&f->arena, "its checkpoint_version "
					    "is %.1f, and only 3.0 is "
					    "supported", version);
	return f->arena.failed ? rsh_error_nomem(err) : 0;
}

/* ---- tensors ---- */

/* Returns what a tensor is, by its keys; the last one may be a number. */
static enum rsh_megatron_state state_of(const struct rsh_torch_tensor *t)
{
	unsigned i = t->n_keys == 3 && t->keys[2].text ?
		     RSH_MEGATRON_STATES - 1 : 0;

	while (i > 0 && strcmp(t->keys[2].text,
			       rsh_megatron_state_names[i]) != 0)
		i--;
	return i;
}

/* Returns whether keys are those of a tensor in a chunk, which is set. */
static bool is_in_chunk(const struct rsh_path_key *keys, uint32_t n,
			uint32_t *chunk)
{
	return n >= 2 && keys[0].text && keys[1].text &&
	       is_chunk(keys[0].text, strlen(keys[0].text), chunk) &&
	       !rsh_has_suffix(keys[1].text, "_extra_state");
}

static int file_add_tensor(struct rsh_megatron_file *f,
			   const struct rsh_torch_file *of,
			   const struct rsh_torch_tensor *t, uint32_t chunk)
{
	const struct rsh_torch_storage *s = &of->storages[t->storage];
	const unsigned width = rsh_dtype_size(t->dtype);
	struct rsh_megatron_entry *e = &f->v[f->n++];
	struct rsh_torch_layout l;

	rsh_torch_layout(t, &l);
	*e = (struct rsh_megatron_entry){
		.key = rsh_arena_strdup(&f->arena, t->name),
		.chunk = chunk, .dtype = t->dtype, .n_dims = t->n_dims,
		.dims = rsh_arena_copy(&f->arena, t->dims, t->n_dims),
		.row_major = l.dense &&
			     rsh_torch_is_row_major(l.order, t->n_dims),
		.has_crc = s->has_crc && t->from == 0 &&
			   s->bytes == t->elements * width,
		.crc = s->crc, .offset = s->offset + t->from * width,
		.bytes = l.span * width, .storage = t->storage,
		.from = t->from, .state = state_of(t),
	};
	/* The name is the second key. */
	e->name = e->key ? strchr(e->key, '.') + 1 : NULL;
	if (e->name && e->state)
		e->name = rsh_arena_strdup(&f->arena, t->keys[1].text);
	return f->arena.failed ? -ENOMEM : 0;
}

RSH_ORDER(entry_by_name, struct rsh_megatron_entry,
	  rsh_by_u32(&x->chunk, &y->chunk) ?: strcmp(x->name, y->name) ?:
	  (int)x->state - (int)y->state)

const struct rsh_megatron_entry *
rsh_megatron_find(const struct rsh_megatron_file *f, uint32_t chunk,
		  const char *name, enum rsh_megatron_state state)
{
	const struct rsh_megatron_entry key = {
		.name = name, .chunk = chunk, .state = state,
	};

	return rsh_find(&key, f->v, f->n, entry_by_name);
}

/* weight1 of n experts has the shape [h, n * w] and the bytes of [n, h, w]: it
 * is joined as a matrix of n * h rows. */
static int file_unfold(struct rsh_megatron_file *f, struct rsh_torch_file *of)
{
	struct rsh_torch_tensor *v = rsh_arena_array(
		&of->arena_, struct rsh_torch_tensor, of->n_tensors);
	uint64_t n_blocks, expert_tensor, n;
	struct rsh_torch_layout l;

	if (!v)
		return -ENOMEM;
	rsh_megatron_expert_sizes(f->args, &n_blocks, &expert_tensor);
	n = n_blocks ? f->args[RSH_MEGATRON_EXPERTS] / n_blocks : 0;
	if (n == 0)
		return 0;
	for (uint32_t i = 0; i < of->n_tensors; i++) {
		uint64_t dims[2];
		const uint64_t *kept;

		v[i] = of->tensors[i];
		rsh_torch_layout(&v[i], &l);
		if (!rsh_has_suffix(v[i].name, RSH_MEGATRON_WEIGHT1) ||
		    !l.dense || v[i].n_dims != 2 || v[i].elements == 0 ||
		    !rsh_torch_is_row_major(l.order, 2) ||
		    v[i].dims[1] % n != 0)
			continue;
		dims[0] = v[i].dims[0] * n;
		dims[1] = v[i].dims[1] / n;
		kept = rsh_arena_copy(&of->arena_, dims, 2);
		if (kept)
			rsh_torch_reshape(&v[i], 2, kept, &of->arena_);
	}
	of->tensors = v;
	return of->arena_.failed ? -ENOMEM : 0;
}

static int file_take(struct rsh_megatron_file *f,
		     const struct rsh_torch_file *of, bool is_states)
{
	uint32_t chunk;
	int rc = 0;

	f->v = rsh_arena_array(&f->arena, struct rsh_megatron_entry,
			       (size_t)of->n_tensors + of->n_values);
	if (!f->v)
		return -ENOMEM;
	for (uint32_t i = 0; i < of->n_tensors && rc == 0; i++) {
		const struct rsh_torch_tensor *t = &of->tensors[i];

		f->has_optimizer |= t->n_keys > 0 && t->keys[0].text &&
				    strcmp(t->keys[0].text, "optimizer") == 0;
		if (!is_in_chunk(t->keys, t->n_keys, &chunk))
			continue;
		if (t->n_keys <= 2 || is_states)
			rc = file_add_tensor(f, of, t, chunk);
		else if (!f->wrong)
			f->wrong = rsh_arena_format(
				&f->arena, "its model has lists or "
				"dictionaries in it, such as %s",
				t->keys[1].text);
	}
	for (uint32_t i = 0; i < of->n_values && rc == 0; i++) {
		const struct rsh_torch_value *v = &of->values[i];
		struct rsh_megatron_entry *e = &f->v[f->n];

		if (!is_in_chunk(v->keys, v->n_keys, &chunk))
			continue;
		*e = (struct rsh_megatron_entry){
			.key = rsh_arena_strdup(&f->arena, v->name),
			.make = v->make ? rsh_arena_strdup(&f->arena, v->make) :
					  "no tensor",
			.chunk = chunk,
		};
		e->name = e->key ? strchr(e->key, '.') + 1 : NULL;
		f->n++;
	}
	if (f->arena.failed)
		return -ENOMEM;
	rsh_sort(f->v, f->n, entry_by_name);
	return rc;
}

/* ---- gate and up ---- */

/* Decides whether a slice of linear_fc1 has rows of the gate and as many of up:
 * twice the columns of the second matrix. */
static enum rsh_megatron_gate gate_of(const struct rsh_megatron_file *f,
				      const struct rsh_megatron_entry *e)
{
	const struct rsh_megatron_entry *second;
	char name[4096];

	if (e->n_dims == 0 || !e->row_major ||
	    !rsh_megatron_second_name(e->name, name, sizeof(name)))
		return RSH_MEGATRON_ODD_GATE;
	second = rsh_megatron_find(f, e->chunk, name, e->state);
	if (!second || second->n_dims != 2)
		return RSH_MEGATRON_ODD_GATE;
	return e->dims[0] == second->dims[1] ? RSH_MEGATRON_NO_GATE :
	       e->dims[0] / 2 == second->dims[1] && e->dims[0] % 2 == 0 ?
	       RSH_MEGATRON_GATED : RSH_MEGATRON_ODD_GATE;
}

/* Of several ranks the rows of all gates are together, and then those of up:
 * each half of a slice gets a record. */
static int file_split(struct rsh_megatron_file *f, struct rsh_torch_file *of)
{
	const struct rsh_torch_tensor *v = of->tensors;
	struct rsh_torch_tensor *all = rsh_arena_array(
		&of->arena_, struct rsh_torch_tensor,
		2 * (size_t)of->n_tensors);
	uint64_t n_blocks, expert_tensor;
	struct rsh_megatron_name is;
	uint32_t n = 0, chunk;
	int rc = all ? 0 : -ENOMEM;

	rsh_megatron_expert_sizes(f->args, &n_blocks, &expert_tensor);
	for (uint32_t i = 0; i < of->n_tensors && rc == 0; i++) {
		const struct rsh_megatron_entry *found;
		struct rsh_megatron_entry *e;
		struct rsh_torch_tensor *gate;
		uint64_t *dims;

		all[n++] = v[i];
		if (!is_in_chunk(v[i].keys, v[i].n_keys, &chunk))
			continue;
		rsh_megatron_name_read(v[i].keys[1].text, &is);
		found = rsh_megatron_find(f, chunk, v[i].keys[1].text,
					  state_of(&v[i]));
		if (is.kind != RSH_MEGATRON_GATE || is.grouped || !found ||
		    (is.of_expert ? expert_tensor :
				    f->args[RSH_MEGATRON_TENSOR]) == 1)
			continue;
		e = &f->v[found - f->v];
		e->gate = gate_of(f, e);
		if (e->gate != RSH_MEGATRON_GATED)
			continue;
		/* The rows of the gate, and those of up. */
		gate = &all[n - 1];
		dims = rsh_arena_copy(&of->arena_, gate->dims, gate->n_dims);
		if (!dims)
			return -ENOMEM;
		dims[0] /= 2;
		gate->dims = dims;
		gate->elements /= 2;
		all[n] = *gate;
		all[n].from += gate->elements;
		all[n].name = rsh_arena_format(
			&of->arena_, "%s" RSH_MEGATRON_UP, gate->name);
		rc = all[n++].name ? 0 : -ENOMEM;
	}
	if (rc == 0) {
		of->tensors = all;
		of->n_tensors = n;
	}
	return rc;
}

/* ---- reading ---- */

int rsh_megatron_file_read(void *state, uint32_t file,
			   const struct rsh_byte_source *bytes, bool full,
			   struct rsh_names *names, void **out,
			   struct rsh_ckpt_index **index, struct rsh_error *err)
{
	struct rsh_source_megatron *st = state;
	struct rsh_megatron_file *f = calloc(1, sizeof(*f));
	const struct rsh_torch_parts parts = { .ctx = f, .look = file_look };
	const uint32_t model = st->listed[file].model;
	const bool is_states = model != file;
	struct rsh_torch_file *of = NULL;
	int rc = 0;

	*out = NULL;
	if (!f)
		return rsh_error_nomem(err);
	/* The file of the model beside it may have been read already. */
	if (model == RSH_MEGATRON_NO_FILE)
		rc = rsh_error_set(err, ENOENT, "%s: no " RSH_MEGATRON_FILE
				   " is beside it", bytes->path);
	else if (is_states)
		rc = rsh_joined_need(&st->all, model, err);
	if (rc == 0)
		rc = rsh_torch_file_read(bytes, is_states ? NULL : &parts,
					 &of, err);
	if (rc == 0 && ((is_states ?
			 rsh_megatron_states_find(f, st->all.files[model], of) :
			 file_unfold(f, of)) ||
			file_take(f, of, is_states) || file_split(f, of)))
		rc = rsh_error_nomem(err);
	if (rc == 0 && names)
		rc = rsh_torch_index(of, bytes, full, true, names, index,
				     err);
	rsh_torch_file_free(of);
	if (rc)
		rsh_joined_file_free(f);
	else
		*out = f;
	return rc;
}
