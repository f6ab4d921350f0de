/* SPDX-License-Identifier: Apache-2.0 */
/* formats/deepspeed/describe.c joins what the files have to the description of
 * a distributed checkpoint.
 *
 * A chunk is a box of what a rank has of a parameter (layout.c).  What a file
 * has whole is one chunk. */
#include "config.h"

#include "deepspeed_i.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/mem.h"
#include "rsh/util/text.h"

struct describing {
	struct rsh_source_ds *st;
	struct rsh_joined *j; /* of st */
	struct rsh_arena *arena; /* of the description */
	const char *records[RSH_DS_BOXES_MAX]; /* of one tensor */
	/* The keys of states that are shown. */
	const char **keys;
	size_t n_keys, cap_keys;
	const char *odd; /* a state that is left out; NULL: none */
	/* Files of the optimizer by rank. */
	uint32_t world, *file;
};

/* ---- chunks and tensors ---- */

/* Adds the boxes of a run. */
static void chunks_add_run(struct describing *w, uint32_t file, const char *key,
			   const struct rsh_ds_param *p,
			   const struct rsh_ds_run *run)
{
	struct rsh_box boxes[RSH_DS_BOXES_MAX];
	const uint32_t n = rsh_ds_run_boxes(p, run, boxes);

	for (uint32_t i = 0; i < n; i++) {
		/* All ranks call them alike. */
		if (!w->records[i])
			w->records[i] = rsh_ds_record(w->arena, key,
						      p->name, i);
		rsh_joined_chunk(w->j, file, w->records[i], p->n_dims,
				 boxes[i].from, boxes[i].size);
	}
}

static void tensor_begin(struct describing *w)
{
	w->j->n_chunks = 0;
	memset(w->records, 0, sizeof(w->records));
}

/* Adds the tensor of the chunks: a parameter, or its state of one key, which is
 * optimizer.state.NAME.KEY. */
static void tensor_end(struct describing *w, const char *name, const char *key,
		       enum rsh_dtype dtype, uint32_t n_dims,
		       const uint64_t *dims)
{
	struct rsh_dcp_tensor t = {
		.name = name, .dtype = dtype, .n_dims = n_dims, .dims = dims,
	};
	const struct rsh_path_key keys[] = {
		{ .text = "optimizer" }, { .text = "state" }, { .text = name },
		{ .text = key },
	};

	if (*key) {
		t.name = rsh_arena_format(w->arena, "optimizer.state.%s.%s",
					  name, key);
		t.keys = rsh_arena_copy(w->arena, keys, 4);
		t.n_keys = 4;
	}
	rsh_joined_tensor(w->j, &t);
}

/* Adds a tensor that a file has whole. */
static void tensor_add_whole(struct describing *w, const char *name,
			     const char *key, uint32_t file,
			     const struct rsh_ds_tensor *t)
{
	tensor_begin(w);
	rsh_joined_chunk(w->j, file, t->record, t->n_dims, NULL, t->dims);
	tensor_end(w, name, key, t->dtype, t->n_dims, t->dims);
}

/* ---- the optimizer ---- */

/* Notes the key of a state that is shown. */
static void keys_add(struct describing *w, const char *key)
{
	for (size_t i = 0; i < w->n_keys; i++)
		if (strcmp(w->keys[i], key) == 0)
			return;
	if (rsh_push(w->keys, w->n_keys, w->cap_keys, key))
		w->arena->failed = true;
}

/* ---- flat groups ---- */

static const struct rsh_ds_flat *rank_flat(const struct describing *w,
					   uint32_t rank, uint32_t group,
					   const char *key)
{
	return rsh_ds_flat_find(w->st->all.files[w->file[rank]], group, key);
}

/* Returns whether the flat tensor of a rank may have this length. */
static bool is_length(const struct rsh_ds_layout *l, uint32_t group,
		      uint32_t rank, uint64_t n)
{
	const uint64_t piece = l->piece[group], first = piece * rank;

	if (n == piece)
		return true;
	/* The last ranks may lack padding, and masters of the only rank do. */
	return l->stage != 3 && (n < piece || l->world == 1) &&
	       (first >= l->elements[group] || n >= l->elements[group] - first);
}

/* Checks that all ranks have the flat tensor of a group.  Returns 1 if so, 0 if
 * none has it or it is left out, or -EBADMSG. */
static int flats_check(struct describing *w, uint32_t group, const char *key)
{
	const struct rsh_ds_flat *first = NULL;
	uint32_t n = 0;

	for (uint32_t rank = 0; rank < w->world; rank++) {
		const struct rsh_ds_flat *f = rank_flat(w, rank, group, key);

		if (!f)
			continue;
		first = first ? first : f;
		n++;
		if (f->dtype != first->dtype || f->is_scalar != first->is_scalar)
			return -EBADMSG;
		if (f->is_scalar)
			continue;
		if (f->is_odd || !is_length(&w->st->layout, group, rank,
					    f->elements)) {
			if (!*key)
				return -EBADMSG;
			w->odd = key;
			return 0;
		}
	}
	return n == w->world ? 1 : n == 0 ? 0 : -EBADMSG;
}

/* Adds what all ranks have of a parameter, or one scalar of rank 0. */
static void flats_take(struct describing *w, uint32_t group, const char *key,
		       const struct rsh_ds_param *p)
{
	const struct rsh_ds_flat *first = rank_flat(w, 0, group, key);
	const bool one = first->is_scalar;

	tensor_begin(w);
	if (one)
		rsh_joined_chunk(w->j, w->file[0], first->record, 0, NULL,
				 NULL);
	for (uint32_t rank = 0; rank < w->world && !one; rank++) {
		const struct rsh_ds_run run = rsh_ds_run_of(&w->st->layout,
							    group, p, rank);

		if (run.n > 0)
			chunks_add_run(w, w->file[rank], key, p, &run);
	}
	tensor_end(w, p->name, key, first->dtype, one ? 0 : p->n_dims, p->dims);
}

/* Adds the masters of a group, or its states of one key. */
static void group_take(struct describing *w, uint32_t group, const char *key)
{
	const struct rsh_ds_params *params = &w->st->head->groups[group];
	const int is = flats_check(w, group, key);

	if (is > 0 && *key)
		keys_add(w, key);
	for (uint32_t i = 0; i < params->n && is; i++) {
		const struct rsh_ds_param *p = &params->v[i];

		if (is < 0)
			rsh_joined_blame(w->j, *key ? rsh_arena_format(
				w->arena, "optimizer.state.%s.%s", p->name,
				key) : p->name, EBADMSG, "%s of group %u %s "
				"not on all ranks of one type and length",
				*key ? key : "masters", group,
				*key ? "is" : "are");
		else if (p->elements > 0)
			flats_take(w, group, key, p);
	}
}

/* Adds the states of all keys that any rank has of a group. */
static void group_take_states(struct describing *w, uint32_t group)
{
	for (uint32_t rank = 0; rank < w->world; rank++) {
		const struct rsh_ds_file *f = w->st->all.files[w->file[rank]];

		for (uint32_t i = 0; i < f->n_flats; i++) {
			const struct rsh_ds_flat *flat = &f->flats[i];
			bool seen = flat->group != group || !*flat->key;

			/* Those of an earlier rank were taken. */
			for (uint32_t k = 0; k < rank && !seen; k++)
				seen = rank_flat(w, k, group, flat->key);
			if (!seen)
				group_take(w, group, flat->key);
		}
	}
}

/* ---- the universal form ---- */

/* Adds the tensor of a file below zero/, which has its whole shape.  The model
 * of rank 0 names the parameters of its own stage of a pipeline alone. */
static void universal_take(struct describing *w, uint32_t file)
{
	const struct rsh_ds_listed *l = &w->st->listed[file];
	const struct rsh_ds_file *f = w->st->all.files[file];
	const struct rsh_ds_param *p =
		rsh_ds_param_find(w->st->head, l->param, false);
	const char *key = strcmp(l->key, RSH_DS_FP32) == 0 ? "" : l->key;

	if (p && p->elements == 0)
		return;
	if (f->n_tensors == 0) {
		rsh_joined_blame(w->j, l->param, EBADMSG, "%s has no tensor",
				 w->j->names[file]);
		return;
	}
	if (*key)
		keys_add(w, key);
	tensor_add_whole(w, l->param, key, file, f->tensors);
}

/* The keys of states that a parameter has, as bits. */
struct has_states {
	const char *param;
	uint64_t keys;
};

RSH_ORDER(has_states_order, struct has_states, strcmp(x->param, y->param))

/* Finds a parameter that has some of another one's states: a file is lost.
 * Optimizers of groups may differ, and so may their states. */
static void universal_check_states(struct describing *w)
{
	const struct rsh_joined *j = w->j;
	struct has_states *v = rsh_arena_array(w->arena, struct has_states,
					       j->n + 1);
	size_t n = 0, merged = 0, n_sets = 0;
	uint64_t sets[64];

	if (!v || w->n_keys > 64)
		return;
	for (uint32_t i = 0; i < j->n; i++) {
		const struct rsh_ds_listed *l = &w->st->listed[i];

		for (size_t k = 0; k < w->n_keys; k++)
			if (l->is.role == RSH_DS_STATE &&
			    strcmp(l->key, w->keys[k]) == 0)
				v[n++] = (struct has_states){
					l->param, UINT64_C(1) << k };
	}
	rsh_sort(v, n, has_states_order);
	for (size_t i = 0; i < n; i++)
		if (merged && strcmp(v[merged - 1].param, v[i].param) == 0)
			v[merged - 1].keys |= v[i].keys;
		else
			v[merged++] = v[i];
	/* Few sets differ. */
	for (size_t i = 0, k; i < merged; i++) {
		for (k = 0; k < n_sets && sets[k] != v[i].keys; k++)
			;
		if (k == n_sets && n_sets < sizeof(sets) / sizeof(sets[0]))
			sets[n_sets++] = v[i].keys;
	}
	for (size_t i = 0; i < merged; i++) {
		uint64_t lacks = 0;

		for (size_t k = 0; k < n_sets && !lacks; k++)
			if ((v[i].keys & sets[k]) == v[i].keys)
				lacks = sets[k] & ~v[i].keys;
		if (lacks)
			rsh_joined_blame(w->j, rsh_arena_format(
				w->arena, "optimizer.state.%s.%s", v[i].param,
				w->keys[__builtin_ctzll(lacks)]), ENOENT,
				"no file has it, and other parameters have "
				"such a state");
	}
}

/* ---- the module ---- */

static void module_take(struct describing *w)
{
	struct rsh_source_ds *st = w->st;
	const struct rsh_ds_head *h = st->head;
	const struct rsh_ds_file *f = st->all.files[st->model];

	for (uint32_t i = 0; i < f->n_tensors; i++) {
		const struct rsh_ds_tensor *t = &f->tensors[i];
		const struct rsh_ds_param *p =
			rsh_ds_param_find(h, t->name, false);
		const bool is_buffer = rsh_ds_is_buffer(h, t->name);
		/* The module of ZeRO 3 has no element of a parameter. */
		const bool is_other = (p && p->elements > 0) ||
			rsh_ds_is_alias(h, t->name) ||
			(st->is_3 && !is_buffer && t->elements == 0);

		/* A universal form may be that of slices. */
		if (p && !st->is_3 && !st->is_universal &&
		    !rsh_dims_equal(p->dims, p->n_dims, t->dims, t->n_dims)) {
			rsh_joined_blame(w->j, t->name, EBADMSG, "%s has "
					 "another shape of it than its "
					 "param_shapes says",
					 w->j->names[st->model]);
			continue;
		}
		if (is_other && !st->from_module)
			continue;
		/* ZeRO 1 does not list frozen parameters. */
		if (!p && !is_buffer && h->has_shapes && !st->from_module) {
			st->n_frozen++;
			if (st->layout.stage > 1 && t->elements > 0 &&
			    !rsh_ds_param_find(h, t->name, true))
				st->extra = t->name;
		}
		tensor_add_whole(w, t->name, "", st->model, t);
	}
}

/* Adds the frozen parameters of ZeRO 3, of which each rank has a share. */
static void frozen_take(struct describing *w, const struct rsh_ds_param *p)
{
	struct rsh_source_ds *st = w->st;
	enum rsh_dtype dtype = RSH_DTYPE_UNKNOWN;

	tensor_begin(w);
	for (uint32_t i = 0; i < st->all.n; i++) {
		const struct rsh_ds_file *f = st->all.files[i];
		const struct rsh_ds_run run =
			rsh_ds_share_of(p, st->listed[i].is.rank);
		const struct rsh_ds_tensor *t;

		if (st->listed[i].is.role != RSH_DS_MODEL_PART || run.n == 0)
			continue;
		t = rsh_ds_tensor_find(f->fragments, f->n_fragments, p->name);
		if (!t || t->n_dims != 1 || t->elements < run.n ||
		    (dtype != RSH_DTYPE_UNKNOWN && t->dtype != dtype)) {
			rsh_joined_blame(w->j, p->name, EBADMSG, "%s does not "
					 "have its share of it",
					 w->j->names[i]);
			return;
		}
		dtype = t->dtype;
		chunks_add_run(w, i, RSH_DS_FROZEN, p, &run);
	}
	st->n_frozen++;
	tensor_end(w, p->name, "", dtype, p->n_dims, p->dims);
}

/* Adds the frozen parameters of ZeRO 1 and 2 that the module leaves out. */
static void frozen_take_whole(struct describing *w)
{
	struct rsh_source_ds *st = w->st;
	const struct rsh_ds_params *frozen = &st->head->frozen;
	const struct rsh_ds_file *f = st->all.files[st->model];

	for (uint32_t i = 0; i < frozen->n; i++) {
		const struct rsh_ds_param *p = &frozen->v[i];
		const struct rsh_ds_tensor *t = rsh_ds_tensor_find(
			f->fragments, f->n_fragments, p->name);

		if (p->elements == 0 || rsh_ds_is_alias(st->head, p->name) ||
		    rsh_ds_tensor_find(f->tensors, f->n_tensors, p->name))
			continue;
		if (t && rsh_dims_equal(p->dims, p->n_dims, t->dims,
					t->n_dims)) {
			st->n_frozen++;
			tensor_add_whole(w, p->name, "", st->model, t);
		} else {
			rsh_joined_blame(w->j, p->name, EBADMSG, "%s says that "
					 "it is frozen, and does not have it",
					 w->j->names[st->model]);
		}
	}
}

/* Shows tied parameters under both names; those of the module are in it under
 * both. */
static void aliases_take(struct describing *w)
{
	struct rsh_source_ds *st = w->st;
	const struct rsh_ds_file *f = st->all.files[st->model];
	const size_t n = w->j->n_tensors;

	rsh_sort(w->j->tensors, n, rsh_joined_by_name);
	for (uint32_t i = 0; i < st->head->n_aliases; i++) {
		const struct rsh_ds_alias *a = &st->head->aliases[i];
		const struct rsh_dcp_tensor like = { .name = a->of };
		const struct rsh_dcp_tensor *of = rsh_find(
			&like, w->j->tensors, n, rsh_joined_by_name);
		const struct rsh_ds_tensor *t;
		struct rsh_dcp_tensor copy;

		st->n_aliases++;
		if (st->from_module)
			continue;
		if (of) {
			copy = *of;
			copy.name = a->name;
			if (rsh_push(w->j->tensors, w->j->n_tensors,
				     w->j->cap_tensors, copy))
				w->arena->failed = true;
			continue;
		}
		/* Its other name is not there: the module has it, but not that
		 * of ZeRO 3. */
		t = rsh_ds_tensor_find(f->tensors, f->n_tensors, a->name);
		if (st->is_3 || !t)
			rsh_joined_blame(w->j, a->name, EBADMSG, "it is tied "
					 "to %s, which is not there", a->of);
		else
			tensor_add_whole(w, a->name, "", st->model, t);
	}
}

/* ---- all files ---- */

/* Returns whether a rank has what the file of an optimizer says that it has. */
static bool fits_rank(const struct rsh_source_ds *st,
		      const struct rsh_ds_zero *z, uint32_t rank)
{
	for (uint32_t i = 0; i < z->n_slices; i++) {
		const struct rsh_ds_slice *s = &z->slices[i];
		const struct rsh_ds_param *p =
			rsh_ds_param_find(st->head, s->name, false);
		struct rsh_ds_run run;

		if (!p || s->group >= st->head->n_groups)
			return false;
		run = rsh_ds_run_of(&st->layout, s->group, p, rank);
		if (run.n != s->n || run.at != s->at)
			return false;
	}
	return true;
}

/* An optimizer of an early DeepSpeed makes one step before those of the job. */
#define STEPS_BEFORE 1

/* Checks that the steps which files state are those of one save.  The optimizer
 * may have made fewer than the job: steps with an overflow are skipped, and a
 * job may go on with a new optimizer. */
static int steps_check(const struct rsh_source_ds *st, struct rsh_error *err)
{
	const struct rsh_joined *j = &st->all;
	uint32_t first = j->n;

	for (uint32_t i = 0; i < j->n; i++) {
		const struct rsh_ds_file *f = j->files[i];
		const enum rsh_ds_role role = st->listed[i].is.role;
		const struct rsh_ds_zero *z = &f->zero, *other;
		const uint64_t step = f->head.step, said = st->head->step;

		if ((role == RSH_DS_MODEL || role == RSH_DS_MODEL_PART) &&
		    step && said && step != said)
			return rsh_joined_refuse(
				j, j->names[i], EBADMSG, err, "it is of global "
				"step %" PRIu64 ", and %s is of global step %"
				PRIu64, step, j->names[st->model], said);
		if (role != RSH_DS_OPTIMIZER || !z->has_step)
			continue;
		if (first == j->n)
			first = i;
		other = &((struct rsh_ds_file *)j->files[first])->zero;
		if (z->step_group == other->step_group &&
		    z->step != other->step)
			return rsh_joined_refuse(
				j, j->names[i], EBADMSG, err, "it is of step %"
				PRIu64 " of the optimizer, and %s is of step %"
				PRIu64, z->step, j->names[first], other->step);
		if (said && z->step > said + STEPS_BEFORE)
			return rsh_joined_refuse(
				j, j->names[i], EBADMSG, err, "it is of step %"
				PRIu64 " of the optimizer, and %s is of global "
				"step %" PRIu64, z->step, j->names[st->model],
				said);
	}
	return 0;
}

/* Returns the rank of whose file this is, which is that in its name unless the
 * file says another one. */
static uint32_t find_rank(const struct rsh_source_ds *st, uint32_t file)
{
	const struct rsh_ds_file *f = st->all.files[file];
	const struct rsh_ds_name *is = &st->listed[file].is;
	const uint32_t world = st->layout.world;
	uint32_t rank;

	if (f->saved_as.role == is->role && f->saved_as.rank != is->rank &&
	    (is->role == RSH_DS_OPTIMIZER || is->role == RSH_DS_MODEL_PART))
		return f->saved_as.rank;
	if (is->role != RSH_DS_OPTIMIZER || f->zero.n_slices == 0 ||
	    st->head->round_robin || fits_rank(st, &f->zero, is->rank))
		return is->rank;
	rank = rsh_index(i, world, fits_rank(st, &f->zero, i));
	return rank < world ? rank : is->rank;
}

/* Checks that files are of one save. */
static int files_check(const struct rsh_source_ds *st, struct rsh_error *err)
{
	const struct rsh_joined *j = &st->all;
	const struct rsh_ds_layout *layout = &st->layout;

	for (uint32_t i = 0; i < j->n; i++) {
		const struct rsh_ds_name *is = &st->listed[i].is;
		const struct rsh_ds_file *f = j->files[i];
		const struct rsh_ds_zero *z = f ? &f->zero : NULL;
		const bool of_optimizer = is->role == RSH_DS_OPTIMIZER;
		uint32_t rank;

		if (!f)
			return rsh_joined_refuse(j, j->names[i], ENOENT, err,
						 "it cannot be read, and no "
						 "other file has what it has");
		if (of_optimizer && (z->stage != layout->stage ||
				     z->world != layout->world ||
				     z->n_groups != st->head->n_groups))
			return rsh_joined_refuse(
				j, j->names[i], EBADMSG, err, "it is of "
				"another save than other files: its stage, its "
				"groups or the number of ranks differ");
		rank = find_rank(st, i);
		if (rank != is->rank)
			return rsh_joined_refuse(j, j->names[i], EBADMSG, err,
						 RSH_DS_OTHER_RANK, rank,
						 is->rank);
		if ((is->role == RSH_DS_MODEL ||
		     is->role == RSH_DS_MODEL_PART) &&
		    !rsh_ds_heads_alike(&f->head, st->head))
			return rsh_joined_refuse(
				j, j->names[i], EBADMSG, err, "it is of "
				"another save than other files: the number of "
				"ranks or the parameters differ");
	}
	return steps_check(st, err);
}

static void tensors_make(struct describing *w)
{
	struct rsh_source_ds *st = w->st;
	const struct rsh_ds_params *frozen = &st->head->frozen;
	const bool masters = !st->from_module && st->head->has_shapes;

	module_take(w);
	for (uint32_t i = 0; i < frozen->n && st->is_3; i++)
		if (frozen->v[i].elements > 0)
			frozen_take(w, &frozen->v[i]);
	if (!st->is_3)
		frozen_take_whole(w);
	w->world = st->layout.world;
	w->file = rsh_arena_array(w->arena, uint32_t, w->world);
	if (!w->file)
		return;
	/* The first file of a rank counts. */
	for (uint32_t i = st->all.n; i-- > 0;)
		if (st->listed[i].is.role == RSH_DS_OPTIMIZER &&
		    st->listed[i].is.rank < w->world)
			w->file[st->listed[i].is.rank] = i;
	for (uint32_t g = 0; g < st->head->n_groups && masters &&
	     !st->is_universal; g++) {
		group_take(w, g, "");
		group_take_states(w, g);
	}
	for (uint32_t i = 0; i < st->all.n; i++) {
		const struct rsh_ds_file *f = st->all.files[i];

		if (st->listed[i].is.role == RSH_DS_STATE && masters)
			universal_take(w, i);
		for (uint32_t k = 0; k < f->n_tensors &&
		     st->listed[i].is.role == RSH_DS_EXPERT; k++)
			tensor_add_whole(w, f->tensors[k].name, "", i,
					 &f->tensors[k]);
	}
	if (st->is_universal && masters)
		universal_check_states(w);
	aliases_take(w);
}

/* Sets which states are shown, and which are not. */
static void say_states(struct describing *w)
{
	struct rsh_source_ds *st = w->st;
	char text[512] = "";
	size_t at = 0;

	for (size_t i = 0; i < w->n_keys; i++)
		rsh_text_add(text, sizeof(text), &at, "%s%s", i ? ", " : "",
			     w->keys[i]);
	st->states = rsh_arena_strdup(&st->all.arena, text);
	if (w->odd)
		st->left_out = rsh_arena_format(
			&st->all.arena, "%s of the optimizer does not have the "
			"length of its group, and is not shown", w->odd);
	else if (!st->head->has_shapes && st->head->has_optimizer)
		st->left_out = "the optimizer's states have numbers in place "
			       "of names, and are not shown";
	w->arena->failed |= st->all.arena.failed;
}

static int ds_describe(void *state, struct rsh_error *err)
{
	struct rsh_source_ds *st = state;
	struct describing w = {
		.st = st, .j = &st->all, .arena = &st->all.dcp.pub->arena_,
	};
	int rc;

	if (st->wrong.code)
		return rsh_error_set(err, st->wrong.code, "%s",
				     st->wrong.text);
	rc = files_check(st, err);
	if (rc)
		return rc;
	st->n_frozen = st->n_aliases = 0;
	st->extra = NULL;
	tensors_make(&w);
	say_states(&w);
	free(w.keys);
	return 0;
}

/* Says what it is: "DeepSpeed 0.19.8, ZeRO 3 of 2 ranks, step 2; ...". */
static const char *ds_about(const void *state, struct rsh_arena *arena)
{
	const struct rsh_source_ds *st = state;
	const struct rsh_ds_head *h = st->head;
	const uint32_t stage = st->layout.stage;
	const uint64_t world = h->world ? h->world : st->layout.world;
	char zero[32], more[160] = "";
	size_t at = 0;

	snprintf(zero, sizeof(zero), "ZeRO %u", stage);
	if (st->n_frozen > 0)
		rsh_text_add(more, sizeof(more), &at, "; %u frozen",
			     st->n_frozen);
	if (st->n_aliases > 0)
		rsh_text_add(more, sizeof(more), &at, "; %u tied",
			     st->n_aliases);
	return rsh_arena_format(
		arena, "%s%s, %s of %llu rank%s, step %llu%s; optimizer: %s%s%s"
		"%s%s", *h->version ? "DeepSpeed " : "DeepSpeed", h->version,
		st->is_universal ? "universal form" : stage || !h->has_shapes ?
		zero : "ZeRO 1 or 2",
		(unsigned long long)world, world == 1 ? "" : "s",
		(unsigned long long)h->step, more,
		*st->states ? st->states : "not shown",
		st->from_module ? "; " : "",
		st->from_module ? st->from_module : "",
		*st->left_out ? "; " : "", st->left_out);
}

static void ds_clear(void *state)
{
	struct rsh_source_ds *st = state;

	if (st->head)
		free(st->head->by_name);
	rsh_joined_file_free(st->head_file);
}

const struct rsh_joined_format rsh_ds_files = {
	.read = rsh_ds_file_read,
	.describe = ds_describe,
	.about = ds_about,
	.clear = ds_clear,
};
