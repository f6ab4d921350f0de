/* SPDX-License-Identifier: Apache-2.0 */
/* formats/deepspeed/chosen.c decides what the files of the chosen step are, and
 * where its parameters are in them: the file of the model and that of rank 0 of
 * the optimizer say it. */
#include "config.h"

#include "deepspeed_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/formats/files.h"
#include "rsh/tensor/codec.h"
#include "rsh/util/checked.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"
#include "rsh/wire/bytes.h"

/* ---- names ---- */

/* The universal form has NAME/KEY.pt of each parameter, and a file of values,
 * below zero/. */
static int listed_add(struct rsh_source_ds *st, const char *name)
{
	static const char zero[] = "zero/";
	struct rsh_arena *arena = &st->all.arena;
	struct rsh_ds_listed *l = &st->listed[st->all.n];
	const char *rest = name + strlen(st->all.dir), *slash;

	*l = (struct rsh_ds_listed){ .is.role = RSH_DS_VALUES };
	if (strncmp(rest, zero, strlen(zero)) != 0)
		return rsh_ds_name_read(rest, &l->is) &&
		       rsh_joined_add_file(&st->all, name) == RSH_DCP_NO_FILE ?
		       -ENOMEM : 0;
	st->is_universal = true;
	rest += strlen(zero);
	slash = strrchr(rest, '/');
	if (slash) {
		l->is.role = RSH_DS_STATE;
		l->param = rsh_arena_strndup(arena, rest,
					     (size_t)(slash - rest));
		l->key = rsh_arena_strndup(arena, slash + 1, strlen(slash + 1) -
							     strlen(".pt"));
	}
	return rsh_joined_add_file(&st->all, name) == RSH_DCP_NO_FILE ||
	       arena->failed ? -ENOMEM : 0;
}

/* ---- which files there are ---- */

/* Checks what the names say. */
static int check_names(const struct rsh_source_ds *st, struct rsh_error *err)
{
	const struct rsh_joined *j = &st->all;
	uint32_t n_models = 0, n_parts = 0;

	for (uint32_t i = 0; i < j->n; i++) {
		const struct rsh_ds_name *is = &st->listed[i].is;
		const bool pipeline = is->role == RSH_DS_PIPELINE;

		if (pipeline || (is->tensor > 0 && !st->is_universal))
			return rsh_joined_refuse(
				j, j->names[i], ENOTSUP, err, "it is of a %s "
				"parallel model: convert it with "
				"ds_to_universal.py, and mount the result",
				pipeline ? "pipeline" : "tensor");
		n_models += is->role == RSH_DS_MODEL && is->tensor == 0;
		n_parts += is->role == RSH_DS_MODEL_PART && is->tensor == 0;
	}
	if (n_models > 1)
		return rsh_joined_refuse(j, j->dir, EBADMSG, err, "two files "
					 "are of the model of tensor parallel "
					 "rank 0");
	if (n_models > 0 && n_parts > 0)
		return rsh_joined_refuse(j, j->dir, EBADMSG, err, "files of "
					 "models of ZeRO 3 and of another "
					 "stage are side by side");
	return n_models + n_parts > 0 ? 0 :
	       rsh_joined_refuse(j, j->dir, ENOENT, err, "it has no file of a "
				 "model");
}

/* Returns the file of a role and a rank; all.n: there is none. */
static uint32_t find_file(const struct rsh_source_ds *st,
			  enum rsh_ds_role role, uint32_t rank)
{
	return rsh_index(i, st->all.n, st->listed[i].is.role == role &&
				       st->listed[i].is.rank == rank &&
				       st->listed[i].is.tensor == 0);
}

/* Checks that each rank below `world` has one file of a role, of the `what`,
 * and no other has one.  With `missing`, which is the first rank that has none
 * or `world`, ranks may have none. */
static int check_ranks(const struct rsh_source_ds *st, enum rsh_ds_role role,
		       const char *what, uint32_t world, uint32_t *missing,
		       struct rsh_error *err)
{
	cleanup_free bool *has = calloc((size_t)world + 1, sizeof(*has));
	const struct rsh_joined *j = &st->all;
	uint32_t first;

	if (!has)
		return rsh_error_nomem(err);
	for (uint32_t i = 0; i < j->n; i++) {
		const struct rsh_ds_name *is = &st->listed[i].is;

		if (is->role != role || is->tensor != 0)
			continue;
		if (is->rank >= world)
			return rsh_joined_refuse(
				j, j->names[i], EBADMSG, err, "%u rank%s wrote "
				"the checkpoint, and this is a file of rank "
				"%u", world, world == 1 ? "" : "s", is->rank);
		if (has[is->rank])
			return rsh_joined_refuse(
				j, j->names[i], EBADMSG, err, "another file is "
				"of rank %u, too", is->rank);
		has[is->rank] = true;
	}
	first = rsh_index(i, world, !has[i]);
	if (missing)
		*missing = first;
	return missing || first == world ? 0 :
	       rsh_joined_refuse(j, j->dir, ENOENT, err, "rank %u of %u has "
				 "no file of the %s", first, world, what);
}

/* ---- reading ---- */

/* What is wrong with a damaged file is said when it is scanned. */
static int read_file(struct rsh_source_ds *st, uint32_t file,
		     struct rsh_ds_file **out, struct rsh_error *err)
{
	cleanup_format_file struct rsh_format_file f;
	void *read = NULL;
	int rc = rsh_format_file_open(st->all.source, st->all.names[file], &f,
				      err) ?:
		 rsh_ds_file_read(st, file, &f.bytes, false, NULL, &read, NULL,
				  err);

	*out = read;
	return rc == 0 || rc == -ENOMEM || rsh_errno_is_unread(-rc) ? rc :
	       rsh_joined_refuse(&st->all, st->all.names[file], -rc, err,
				 "it cannot be read, and no other file has "
				 "what it has");
}

/* Finds and reads the file of the model, of ZeRO 3 that of rank 0. */
static int choose_model(struct rsh_source_ds *st, struct rsh_error *err)
{
	int rc;

	st->model = find_file(st, RSH_DS_MODEL, 0);
	if (st->model == st->all.n)
		st->model = find_file(st, RSH_DS_MODEL_PART, 0);
	if (st->model == st->all.n)
		return rsh_joined_refuse(&st->all, st->all.dir, ENOENT, err,
					 "rank 0 has no file of the model");
	rc = read_file(st, st->model, &st->head_file, err);
	if (rc)
		return rc;
	st->head = &st->head_file->head;
	if (rsh_ds_head_index(st->head))
		return rsh_error_nomem(err);
	st->layout.head = st->head;
	st->is_3 = st->listed[st->model].is.role == RSH_DS_MODEL_PART;
	return st->head->wrong && !st->is_universal ?
	       rsh_joined_refuse(&st->all, st->all.names[st->model], ENOTSUP,
				 err, "%s", st->head->wrong) : 0;
}

/* Sets where parameters are, from the file of the optimizer of rank 0. */
static int choose_layout(struct rsh_source_ds *st, uint32_t file,
			 struct rsh_error *err)
{
	const char *name = st->all.names[file], *wrong = NULL;
	uint64_t *piece;
	struct rsh_ds_file *f = NULL;
	int rc = read_file(st, file, &f, err), code = EBADMSG;

	if (rc)
		return rc;
	piece = rsh_arena_array(&st->all.arena, uint64_t, f->zero.n_groups);
	if (f->zero.wrong) {
		wrong = f->zero.wrong;
		code = ENOTSUP;
	} else if (f->saved_as.role == RSH_DS_OPTIMIZER && f->saved_as.rank) {
		/* Its lengths may be those of the last rank. */
		rc = rsh_joined_refuse(&st->all, name, EBADMSG, err,
				       RSH_DS_OTHER_RANK, f->saved_as.rank, 0);
	} else if ((f->zero.stage == 3) != st->is_3) {
		wrong = "its stage of ZeRO is not that of the model";
	} else if (!piece) {
		rc = rsh_error_nomem(err);
	}
	for (uint32_t g = 0; !rc && !wrong && g < f->zero.n_groups; g++) {
		const struct rsh_ds_flat *flat = rsh_ds_flat_find(f, g, "");

		if (!flat || flat->is_odd)
			wrong = "damaged: a group has no flat tensor";
		else
			piece[g] = flat->elements;
	}
	if (wrong && !rc)
		rc = rsh_joined_refuse(&st->all, name, code, err, "%s", wrong);
	rc = rc ?: rsh_ds_layout_make(st->head, &f->zero, piece, name,
				      &st->all.arena, &st->layout, err);
	rsh_joined_file_free(f);
	return rc;
}

/* ---- masters of the universal form ---- */

/* So many elements of each parameter are compared. */
#define ELEMENTS 1024

/* Compares the masters of one parameter with the weights of the module. */
static int compare_param(struct rsh_source_ds *st, uint32_t file,
			 const struct rsh_ds_tensor *weights,
			 const struct rsh_byte_source *model, bool *same,
			 struct rsh_error *err)
{
	uint8_t masters[ELEMENTS * 4], found[ELEMENTS * 4];
	cleanup_format_file struct rsh_format_file f;
	const struct rsh_ds_tensor *t;
	const struct rsh_ds_file *of;
	void *read = NULL;
	int rc = rsh_format_file_open(st->all.source, st->all.names[file],
				      &f, err) ?:
		 rsh_ds_file_read(st, file, &f.bytes, false, NULL, &read, NULL,
				  err);
	enum rsh_codec codec;
	uint64_t n;

	if (rc)
		return rc;
	of = read;
	t = of->n_tensors ? of->tensors : NULL;
	codec = t ? rsh_codec_cast(t->dtype, false, weights->dtype) :
		    RSH_CODEC_COUNT;
	if (t && t->dtype == weights->dtype)
		codec = RSH_CODEC_NONE;
	n = t ? rsh_min_u64(rsh_min_u64(t->elements, weights->elements),
			    ELEMENTS) : 0;
	if (n > 0 && codec < RSH_CODEC_COUNT && t->row_major &&
	    weights->row_major && t->dtype == RSH_DTYPE_FLOAT32) {
		const size_t bytes = (size_t)n * rsh_dtype_size(weights->dtype);

		rc = rsh_bytes_read(&f.bytes, masters, (size_t)n * 4, t->offset,
				    err) ?:
		     rsh_bytes_read(model, found, bytes, weights->offset, err);
		rsh_codec_decode(codec, masters, (size_t)n * 4, masters);
		*same &= rc == 0 && memcmp(masters, found, bytes) == 0;
	}
	rsh_joined_file_free(read);
	return rc;
}

/* Sets *same if the first masters of each parameter, rounded, are the weights
 * of the module: a conversion to the universal form by DeepSpeed up to 0.19.8
 * mixes up the masters if round_robin_gradients was set and there were several
 * ranks. */
static int masters_compare(struct rsh_source_ds *st, bool *same, struct rsh_error *err)
{
	const struct rsh_ds_file *head = st->head_file;
	cleanup_format_file struct rsh_format_file model;
	int rc = rsh_format_file_open(st->all.source,
				      st->all.names[st->model], &model, err);

	*same = true;
	for (uint32_t i = 0; i < st->all.n && rc == 0 && *same; i++) {
		const struct rsh_ds_listed *l = &st->listed[i];
		const struct rsh_ds_tensor *t;

		if (l->is.role != RSH_DS_STATE ||
		    strcmp(l->key, RSH_DS_FP32) != 0 ||
		    !rsh_ds_param_find(st->head, l->param, false))
			continue;
		t = rsh_ds_tensor_find(head->tensors, head->n_tensors,
				       l->param);
		if (t)
			rc = compare_param(st, i, t, &model.bytes, same, err);
	}
	return rc;
}

/* ---- what is shown ---- */

/* Returns whether the step has a file of that role. */
static bool has_role(const struct rsh_source_ds *st, enum rsh_ds_role role)
{
	return rsh_any(i, st->all.n, st->listed[i].is.role == role);
}

/* Each layer has all of its experts. */
static int check_experts(const struct rsh_source_ds *st, struct rsh_error *err)
{
	const struct rsh_joined *j = &st->all;
	const struct rsh_ds_head *h = st->head;
	uint32_t n_layers = h->n_layers;

	if (n_layers == 0)
		return rsh_joined_refuse(j, j->dir, EBADMSG, err, "nothing "
					 "says how many experts there are");
	for (uint32_t i = 0; i < j->n; i++)
		if (st->listed[i].is.role == RSH_DS_EXPERT &&
		    st->listed[i].is.layer >= n_layers)
			n_layers = st->listed[i].is.layer + 1;
	for (uint32_t layer = 0; layer < n_layers; layer++) {
		const uint64_t n = h->experts[layer < h->n_layers ? layer :
					      h->n_layers - 1];

		for (uint64_t k = 0; k < n; k++) {
			uint32_t found = 0;

			for (uint32_t i = 0; i < j->n; i++) {
				const struct rsh_ds_name *is =
					&st->listed[i].is;

				found += is->role == RSH_DS_EXPERT &&
					 is->layer == layer && is->expert == k;
			}
			if (found != 1)
				return rsh_joined_refuse(
					j, j->dir, found ? EBADMSG : ENOENT,
					err, "expert %u of layer %u %s",
					(uint32_t)k, layer, found ?
					"is in two files" : "is missing");
		}
	}
	return 0;
}

/* The optimizer of ZeRO 1 to 3.  Without it a model of ZeRO 3 has no weights,
 * and others have those of the module. */
static int choose_zero(struct rsh_source_ds *st, struct rsh_error *err)
{
	const struct rsh_joined *j = &st->all;
	uint32_t first = find_file(st, RSH_DS_OPTIMIZER, 0), missing = 0;
	uint32_t world = (uint32_t)rsh_max_u64(st->head->world, 1);
	int rc = 0;

	if (!st->head->has_shapes &&
	    (st->is_3 || has_role(st, RSH_DS_OPTIMIZER)))
		return rsh_joined_refuse(j, j->names[st->model], EBADMSG, err,
					 "damaged: it has no param_shapes");
	if (!st->head->has_shapes)
		return 0;
	if (first < st->all.n)
		rc = choose_layout(st, first, err);
	if (rc)
		return rc;
	if (first < st->all.n && st->head->world > 0 &&
	    st->head->world != st->layout.world)
		return rsh_joined_refuse(j, j->names[first], EBADMSG, err,
					 "it is of %u ranks, and the model of "
					 "%u", st->layout.world, world);
	world = first < st->all.n ? st->layout.world : world;
	rc = check_ranks(st, RSH_DS_OPTIMIZER, "optimizer", world,
			 st->is_3 ? NULL : &missing, err);
	if (rc || st->is_3 || missing == world)
		return rc;
	st->lacks_optimizer = true;
	st->has_some = has_role(st, RSH_DS_OPTIMIZER);
	st->from_module = "files of the optimizer are missing: the weights "
			  "are those of the module, in the type of the "
			  "training";
	return 0;
}

/* Returns whether what is below zero/ is that of a parameter.  The model of
 * rank 0 names those of its own stage of a pipeline alone; what its module has
 * too is none, such as a buffer. */
static bool is_parameter(const struct rsh_source_ds *st, const char *name)
{
	const struct rsh_ds_head *h = st->head;
	const struct rsh_ds_file *f = st->head_file;

	return rsh_ds_param_find(h, name, false) ||
	       (!rsh_ds_tensor_find(f->tensors, f->n_tensors, name) &&
		!rsh_ds_is_alias(h, name));
}

static int check_masters(const struct rsh_source_ds *st,
			 struct rsh_names *has, const char *param,
			 struct rsh_error *err)
{
	return rsh_names_find(has, param, strlen(param)) != RSH_NAME_NONE ? 0 :
	       rsh_error_set(err, ENOENT, "%s/%szero/%s/fp32.pt is missing",
			     st->all.path, st->all.dir, param);
}

/* Each parameter has its masters, also one with a state alone, and these must
 * be those of the model. */
static int choose_universal(struct rsh_source_ds *st, struct rsh_error *err)
{
	cleanup_names struct rsh_names *has = rsh_names_new();
	const struct rsh_ds_head *h = st->head;
	bool same = true;
	int rc = has ? 0 : rsh_error_nomem(err);

	for (uint32_t i = 0; i < st->all.n && rc == 0; i++) {
		const struct rsh_ds_listed *l = &st->listed[i];

		if (l->is.role == RSH_DS_STATE &&
		    strcmp(l->key, RSH_DS_FP32) == 0 &&
		    rsh_names_add(has, l->param, strlen(l->param)) ==
			    RSH_NAME_NONE)
			rc = rsh_error_nomem(err);
	}
	for (uint32_t g = 0; g < h->n_groups; g++)
		for (uint32_t i = 0; i < h->groups[g].n && rc == 0; i++)
			if (h->groups[g].v[i].elements > 0)
				rc = check_masters(st, has,
						   h->groups[g].v[i].name, err);
	for (uint32_t i = 0; i < st->all.n && rc == 0; i++) {
		const struct rsh_ds_listed *l = &st->listed[i];

		if (l->is.role == RSH_DS_STATE && is_parameter(st, l->param))
			rc = check_masters(st, has, l->param, err);
	}
	if (rc == 0 && !st->is_3 && h->round_robin && h->world > 1)
		rc = masters_compare(st, &same, err);
	if (rc == 0 && !same)
		st->from_module = "DeepSpeed's conversion mixed up the "
				  "masters: the weights are those of the "
				  "module, in the type of the training; mount "
				  "the checkpoint that it was made from";
	return rc;
}

static int choose_weights(struct rsh_source_ds *st, struct rsh_error *err)
{
	if (st->is_file) {
		st->from_module = "SOURCE is the file of the module";
		return st->head->n_layers > 0 ?
		       rsh_joined_refuse(&st->all, st->all.names[st->model],
					 ENOTSUP, err, "experts of the model "
					 "are in other files: SOURCE is the "
					 "directory with all files") : 0;
	}
	if (has_role(st, RSH_DS_EXPERT) || st->head->n_layers > 0) {
		st->from_module = "the model has experts: masters and the "
				  "optimizer are not shown, and the weights "
				  "are those of the module, in the type of the "
				  "training; only DeepSpeed itself resumes "
				  "with the masters";
		return check_experts(st, err);
	}
	return st->is_universal ? choose_universal(st, err) :
				  choose_zero(st, err);
}

/* ---- which files are read ---- */

/* Returns whether the file is needed. */
static bool is_needed(const struct rsh_source_ds *st,
		      const struct rsh_ds_listed *l)
{
	switch (l->is.role) {
	case RSH_DS_MODEL:
	case RSH_DS_MODEL_PART:
		return l->is.tensor == 0;
	case RSH_DS_OPTIMIZER:
		return !st->from_module && st->head->has_shapes;
	case RSH_DS_STATE:
		return !st->from_module && is_parameter(st, l->param);
	case RSH_DS_EXPERT:
		return true;
	default:
		return false;
	}
}

/* Keeps the files that are needed; others are not files of the source. */
static void keep_needed(struct rsh_source *s, struct rsh_source_ds *st,
			size_t first, size_t end)
{
	struct rsh_joined *j = &st->all;
	uint32_t n = 0, k = 0;
	const uint32_t model = st->model;

	for (size_t i = first; i < end; i++) {
		struct rsh_checkpoint *c = rsh_source_on_list(s, i);
		const bool is = k < j->n && strcmp(c->name, j->names[k]) == 0;
		const bool needed = is && is_needed(st, &st->listed[k]);

		c->rank = needed ? 0 : RSH_RANK_UNKNOWN;
		if (needed) {
			if (k == model)
				st->model = n;
			j->names[n] = j->names[k];
			st->listed[n++] = st->listed[k];
		}
		k += is;
	}
	j->n = j->n_names = n;
}

int rsh_ds_choose(struct rsh_source *s, uint32_t candidate,
		  struct rsh_error *err)
{
	size_t first, end;
	struct rsh_source_ds *st = rsh_joined_choose(
		&rsh_ds_files, sizeof(*st), s, candidate, &first, &end);
	cleanup_free char *offloaded = NULL;
	struct rsh_ds_name is;
	uint32_t world;
	int rc;

	if (!st)
		return rsh_error_nomem(err);
	st->states = st->left_out = "";
	st->is_file = rsh_source_file(s);
	st->listed = rsh_arena_array(&st->all.arena, struct rsh_ds_listed,
				     end - first + 1);
	/* The directory of a step is that of its file of a model. */
	for (size_t i = first; i < end && !*st->all.dir; i++) {
		const struct rsh_checkpoint *c = rsh_source_on_list(s, i);

		if (!rsh_ds_name_read(c->base, &is))
			continue;
		st->all.dir = rsh_arena_strndup(&st->all.arena, c->name,
						(size_t)(c->base - c->name));
		break;
	}
	if (st->all.arena.failed)
		return rsh_error_nomem(err);
	for (size_t i = first; i < end; i++)
		if (listed_add(st, rsh_source_on_list(s, i)->name))
			return rsh_error_nomem(err);
	rc = check_names(st, err);
	offloaded = rsh_text_format("%soffloaded_tensors", st->all.dir);
	if (rc == 0 && !offloaded)
		rc = rsh_error_nomem(err);
	if (rc == 0 && !st->is_file)
		rc = rsh_store_has(rsh_source_store(s), offloaded, err);
	if (rc > 0)
		rc = rsh_joined_refuse(&st->all, offloaded, ENOTSUP, err,
				       "tensors are in files of NVMe offload, "
				       "which are not supported");
	if (rc)
		return rc;
	rc = choose_model(st, err) ?: choose_weights(st, err);
	/* The parts of a model of ZeRO 3 are on all ranks. */
	if (rc == 0 && st->is_3) {
		world = st->layout.world ? st->layout.world :
			(uint32_t)rsh_max_u64(st->head->world, 1);
		rc = check_ranks(st, RSH_DS_MODEL_PART, "model", world, NULL,
				 err);
		rsh_ds_layout_frozen(st->head, world);
	}
	if (rc == 0)
		keep_needed(s, st, first, end);
	if (rc == 0 || rc == -ENOMEM || rsh_errno_is_unread(-rc))
		return rc;
	st->wrong = *err;
	st->layout = (struct rsh_ds_layout){ .stage = 0 };
	return 0;
}
