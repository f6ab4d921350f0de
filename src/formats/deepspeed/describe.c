/* SPDX-License-Identifier: Apache-2.0 */
/* formats/deepspeed/describe.c joins what the files have to the description of
 * a distributed checkpoint.
 *
 * A chunk is a box of what a rank has of a parameter (layout.c).  What a file
 * has whole is one chunk. */
#include "config.h"

#include "deepspeed_i.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/log.h"
#include "rsh/util/mem.h"

struct describing {
	struct rsh_source_ds *st;
	struct rsh_dcp *d;
	struct rsh_dcp_tensor *tensors; /* from malloc */
	size_t n_tensors, cap_tensors;
	struct rsh_dcp_chunk *chunks; /* of one tensor */
	size_t n_chunks, cap_chunks;
	const char *records[RSH_DS_BOXES_MAX]; /* of one tensor */
	/* The keys of states that are shown. */
	const char **keys;
	size_t n_keys, cap_keys;
	const char *odd; /* a state that is left out; NULL: none */
};

__attribute__((format(printf, 4, 5)))
static int describing_blame(struct describing *w, const char *name, int code,
			    const char *fmt, ...)
{
	va_list ap;
	int rc;

	va_start(ap, fmt);
	rc = rsh_tensor_problems_add(&w->st->all.problems, &w->d->arena_, name,
				     code, fmt, ap);
	va_end(ap);
	return rc < 0 ? rc : 0;
}

/* ---- chunks and tensors ---- */

static int chunk_add(struct describing *w, uint32_t file, const char *record,
		     uint32_t n_dims, const uint64_t *from,
		     const uint64_t *size)
{
	uint64_t *box = rsh_arena_array(&w->d->arena_, uint64_t,
					2 * (size_t)n_dims);

	if (!box || rsh_grow(&w->chunks, &w->cap_chunks, w->n_chunks + 1,
			     sizeof(*w->chunks)))
		return -ENOMEM;
	if (from && n_dims > 0)
		memcpy(box, from, n_dims * sizeof(*box));
	if (n_dims > 0)
		memcpy(box + n_dims, size, n_dims * sizeof(*box));
	w->chunks[w->n_chunks++] = (struct rsh_dcp_chunk){
		.from = box, .size = box + n_dims, .file = file,
		.key = record, .length = RSH_DCP_BY_NAME,
	};
	return 0;
}

/* Adds the boxes of a run. */
static int chunks_add_run(struct describing *w, uint32_t file, const char *key,
			  const struct rsh_ds_param *p,
			  const struct rsh_ds_run *run)
{
	struct rsh_box boxes[RSH_DS_BOXES_MAX];
	const uint32_t n = rsh_ds_run_boxes(p, run, boxes);
	int rc = 0;

	for (uint32_t i = 0; i < n && rc == 0; i++) {
		/* All ranks call them alike. */
		if (!w->records[i])
			w->records[i] = rsh_ds_record(&w->d->arena_, key,
						      p->name, i);
		rc = !w->records[i] ? -ENOMEM :
		     chunk_add(w, file, w->records[i], p->n_dims,
			       boxes[i].from, boxes[i].size);
	}
	return rc;
}

static void tensor_begin(struct describing *w)
{
	w->n_chunks = 0;
	memset(w->records, 0, sizeof(w->records));
}

/* Adds the tensor of the chunks. */
static int tensor_end(struct describing *w, const char *name,
		      enum rsh_dtype dtype, uint32_t n_dims,
		      const uint64_t *dims)
{
	struct rsh_dcp_tensor *t;

	if (rsh_grow(&w->tensors, &w->cap_tensors, w->n_tensors + 1,
		     sizeof(*w->tensors)))
		return -ENOMEM;
	t = &w->tensors[w->n_tensors++];
	*t = (struct rsh_dcp_tensor){
		.name = name, .dtype = dtype, .n_dims = n_dims, .dims = dims,
		.n_chunks = (uint32_t)w->n_chunks,
		.chunks = rsh_arena_array(&w->d->arena_, struct rsh_dcp_chunk,
					  w->n_chunks),
	};
	if (!t->chunks)
		return -ENOMEM;
	if (w->n_chunks > 0)
		memcpy(t->chunks, w->chunks, w->n_chunks * sizeof(*t->chunks));
	return 0;
}

/* Adds a tensor that a file has whole. */
static int tensor_add_whole(struct describing *w, const char *name,
			    uint32_t file, const struct rsh_ds_tensor *t)
{
	tensor_begin(w);
	return chunk_add(w, file, t->record, t->n_dims, NULL, t->dims) ?:
	       tensor_end(w, name, t->dtype, t->n_dims, t->dims);
}

/* ---- the optimizer ---- */

/* Gives the last tensor its name and its keys: optimizer.state.NAME.KEY. */
static int tensor_name_state(struct describing *w, const char *param,
			     const char *key)
{
	struct rsh_arena *arena = &w->d->arena_;
	struct rsh_dcp_tensor *t = &w->tensors[w->n_tensors - 1];
	struct rsh_path_key *keys = rsh_arena_array(arena, struct rsh_path_key,
						    4);

	t->name = rsh_arena_format(arena, "optimizer.state.%s.%s", param, key);
	if (!keys || !t->name)
		return -ENOMEM;
	keys[0].text = "optimizer";
	keys[1].text = "state";
	keys[2].text = param;
	keys[3].text = key;
	t->keys = keys;
	t->n_keys = 4;
	return 0;
}

/* Notes the key of a state that is shown. */
static int keys_add(struct describing *w, const char *key)
{
	for (size_t i = 0; i < w->n_keys; i++)
		if (strcmp(w->keys[i], key) == 0)
			return 0;
	if (rsh_grow(&w->keys, &w->cap_keys, w->n_keys + 1, sizeof(*w->keys)))
		return -ENOMEM;
	w->keys[w->n_keys++] = key;
	return 0;
}

/* ---- flat groups ---- */

/* Returns the file of the optimizer of a rank. */
static uint32_t optimizer_file(const struct rsh_source_ds *st, uint32_t rank)
{
	uint32_t i = 0;

	while (st->listed[i].is.role != RSH_DS_OPTIMIZER ||
	       st->listed[i].is.rank != rank)
		i++;
	return i;
}

/* Files of the optimizer by rank. */
struct ranks {
	uint32_t n;
	uint32_t *file; /* [n] */
};

static const struct rsh_ds_flat *rank_flat(const struct describing *w,
					   const struct ranks *r, uint32_t rank,
					   uint32_t group, const char *key)
{
	return rsh_ds_flat_find(rsh_ds_file_of(w->st, r->file[rank]), group,
				key);
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
 * none has it or it is left out, after a problem -EBADMSG, or -ENOMEM. */
static int flats_check(struct describing *w, const struct ranks *r,
		       uint32_t group, const char *key)
{
	const struct rsh_ds_flat *first = NULL;
	uint32_t n = 0;

	for (uint32_t rank = 0; rank < r->n; rank++) {
		const struct rsh_ds_flat *f = rank_flat(w, r, rank, group, key);

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
	return n == r->n ? 1 : n == 0 ? 0 : -EBADMSG;
}

/* Adds what all ranks have of a parameter, or one scalar of rank 0. */
static int flats_take(struct describing *w, const struct ranks *r,
		      uint32_t group, const char *key,
		      const struct rsh_ds_param *p)
{
	const struct rsh_ds_flat *first = rank_flat(w, r, 0, group, key);
	int rc = 0;

	tensor_begin(w);
	if (first->is_scalar)
		return chunk_add(w, r->file[0], first->record, 0, NULL, NULL) ?:
		       tensor_end(w, p->name, first->dtype, 0, p->dims);
	for (uint32_t rank = 0; rank < r->n && rc == 0; rank++) {
		const struct rsh_ds_run run = rsh_ds_run_of(&w->st->layout,
							    group, p, rank);

		if (run.n > 0)
			rc = chunks_add_run(w, r->file[rank], key, p, &run);
	}
	return rc ?: tensor_end(w, p->name, first->dtype, p->n_dims, p->dims);
}

/* Says that ranks do not have the same of a group. */
static int group_blame(struct describing *w, uint32_t group, const char *key)
{
	const struct rsh_ds_params *params = &w->st->head->groups[group];
	int rc = 0;

	for (uint32_t i = 0; i < params->n && rc == 0; i++) {
		const char *name = !*key ? params->v[i].name :
			rsh_arena_format(&w->d->arena_, "optimizer.state.%s.%s",
					 params->v[i].name, key);

		rc = !name ? -ENOMEM :
		     describing_blame(w, name, EBADMSG, "%s of group %u "
				      "%s not on all ranks of one type and "
				      "length", *key ? key : "masters", group,
				      *key ? "is" : "are");
	}
	return rc;
}

/* Adds the masters of a group, or its states of one key. */
static int group_take(struct describing *w, const struct ranks *r,
		      uint32_t group, const char *key)
{
	const struct rsh_ds_params *params = &w->st->head->groups[group];
	int rc = flats_check(w, r, group, key);

	if (rc == -EBADMSG)
		return group_blame(w, group, key);
	if (rc <= 0)
		return rc;
	rc = *key ? keys_add(w, key) : 0;
	for (uint32_t i = 0; i < params->n && rc == 0; i++) {
		const struct rsh_ds_param *p = &params->v[i];

		if (p->elements == 0)
			continue;
		rc = flats_take(w, r, group, key, p);
		if (rc == 0 && *key)
			rc = tensor_name_state(w, p->name, key);
	}
	return rc;
}

/* Adds the states of all keys that any rank has of a group. */
static int group_take_states(struct describing *w, const struct ranks *r,
			     uint32_t group)
{
	int rc = 0;

	for (uint32_t rank = 0; rank < r->n; rank++) {
		const struct rsh_ds_file *f = rsh_ds_file_of(w->st,
							     r->file[rank]);

		for (uint32_t i = 0; i < f->n_flats && rc == 0; i++) {
			const struct rsh_ds_flat *flat = &f->flats[i];
			bool seen = flat->group != group || !*flat->key;

			/* Those of an earlier rank were taken. */
			for (uint32_t k = 0; k < rank && !seen; k++)
				seen = rank_flat(w, r, k, group, flat->key);
			if (!seen)
				rc = group_take(w, r, group, flat->key);
		}
	}
	return rc;
}

static int zero_take(struct describing *w)
{
	const struct rsh_source_ds *st = w->st;
	cleanup_free uint32_t *file =
		rsh_alloc_array((size_t)st->layout.world + 1, sizeof(*file));
	const struct ranks r = { st->layout.world, file };
	int rc = file ? 0 : -ENOMEM;

	for (uint32_t rank = 0; rank < r.n && rc == 0; rank++)
		file[rank] = optimizer_file(st, rank);
	for (uint32_t g = 0; g < st->head->n_groups && rc == 0; g++)
		rc = group_take(w, &r, g, "") ?: group_take_states(w, &r, g);
	return rc;
}

/* ---- the universal form ---- */

/* Adds the tensor of a file below zero/. */
static int universal_take(struct describing *w, uint32_t file)
{
	const struct rsh_ds_listed *l = &w->st->listed[file];
	const struct rsh_ds_file *f = rsh_ds_file_of(w->st, file);
	const struct rsh_ds_param *p = rsh_ds_param_find(w->st->head, l->param);
	const bool is_master = strcmp(l->key, RSH_DS_FP32) == 0;
	int rc;

	if (p->elements == 0)
		return 0;
	if (f->n_tensors == 0)
		return describing_blame(w, p->name, EBADMSG, "%s has no tensor",
					l->name);
	rc = tensor_add_whole(w, p->name, file, f->tensors);
	if (rc || is_master)
		return rc;
	return keys_add(w, l->key) ?: tensor_name_state(w, p->name, l->key);
}

static int universal_take_all(struct describing *w)
{
	const struct rsh_source_ds *st = w->st;
	int rc = 0;

	for (uint32_t i = 0; i < st->all.n && rc == 0; i++)
		if (st->listed[i].is.role == RSH_DS_STATE)
			rc = universal_take(w, i);
	return rc;
}

/* ---- the module ---- */

static int by_name(const void *a, const void *b)
{
	const struct rsh_dcp_tensor *x = a, *y = b;

	return strcmp(x->name, y->name);
}

static const struct rsh_ds_alias *alias_find(const struct rsh_ds_head *h,
					     const char *name)
{
	for (uint32_t i = 0; i < h->n_aliases; i++)
		if (strcmp(h->aliases[i].name, name) == 0)
			return &h->aliases[i];
	return NULL;
}

/* Returns whether a tensor of the module is one of the model.  `p` is the
 * parameter of its name: the module of ZeRO 3 has no element of these. */
static bool is_of_module(const struct rsh_source_ds *st,
			 const struct rsh_ds_tensor *t,
			 const struct rsh_ds_param *p)
{
	const bool is_3 = st->listed[st->model].is.role == RSH_DS_MODEL_PART;

	if (st->from_module)
		return true;
	if (p && p->elements > 0)
		return false;
	if (alias_find(st->head, t->name))
		return false;
	return !is_3 || rsh_ds_is_buffer(st->head, t->name) || t->elements > 0;
}

/* Names of parameters, ascending. */
struct names {
	const struct rsh_ds_param **v;
	size_t n;
};

static int param_by_name(const void *a, const void *b)
{
	const struct rsh_ds_param *const *x = a, *const *y = b;

	return strcmp((*x)->name, (*y)->name);
}

static int names_make(const struct rsh_ds_head *h, struct names *out)
{
	size_t n = 0;

	for (uint32_t g = 0; g < h->n_groups; g++)
		n += h->groups[g].n;
	*out = (struct names){ rsh_alloc_array(n + 1, sizeof(*out->v)), 0 };
	if (!out->v)
		return -ENOMEM;
	for (uint32_t g = 0; g < h->n_groups; g++)
		for (uint32_t i = 0; i < h->groups[g].n; i++)
			out->v[out->n++] = &h->groups[g].v[i];
	if (n > 0)
		qsort(out->v, n, sizeof(*out->v), param_by_name);
	return 0;
}

static const struct rsh_ds_param *names_find(const struct names *all,
					     const char *name)
{
	const struct rsh_ds_param like = { .name = name }, *key = &like;
	const struct rsh_ds_param *const *found =
		all->n == 0 ? NULL : bsearch(&key, all->v, all->n,
					     sizeof(*all->v), param_by_name);

	return found ? *found : NULL;
}

static bool has_shape(const struct rsh_ds_param *p,
		      const struct rsh_ds_tensor *t)
{
	return p->n_dims == t->n_dims &&
	       (p->n_dims == 0 || memcmp(p->dims, t->dims, p->n_dims *
					 sizeof(*p->dims)) == 0);
}

/* ZeRO 1 does not list frozen parameters. */
static bool is_extra(const struct rsh_source_ds *st,
		     const struct rsh_ds_tensor *t,
		     const struct rsh_ds_param *p)
{
	const struct rsh_ds_head *h = st->head;

	if (p || st->from_module || !h->has_shapes || st->layout.stage < 2 ||
	    t->elements == 0 || rsh_ds_is_buffer(h, t->name))
		return false;
	for (uint32_t i = 0; i < h->frozen.n; i++)
		if (strcmp(h->frozen.v[i].name, t->name) == 0)
			return false;
	return true;
}

static int module_take(struct describing *w)
{
	struct rsh_source_ds *st = w->st;
	const struct rsh_ds_file *f = rsh_ds_file_of(st, st->model);
	const bool is_3 = st->listed[st->model].is.role == RSH_DS_MODEL_PART;
	struct names all;
	int rc = names_make(st->head, &all);

	for (uint32_t i = 0; i < f->n_tensors && rc == 0; i++) {
		const struct rsh_ds_tensor *t = &f->tensors[i];
		const struct rsh_ds_param *p = names_find(&all, t->name);

		/* A universal form may be that of slices. */
		if (p && !is_3 && !st->is_universal && !has_shape(p, t)) {
			rc = describing_blame(w, t->name, EBADMSG, "%s has "
					      "another shape of it than its "
					      "param_shapes says",
					      st->listed[st->model].name);
			continue;
		}
		if (!is_of_module(st, t, p))
			continue;
		if (is_extra(st, t, p))
			st->extra = t->name;
		st->n_frozen += !p && !rsh_ds_is_buffer(st->head, t->name) &&
				st->head->has_shapes && !st->from_module;
		rc = tensor_add_whole(w, t->name, st->model, t);
	}
	free(all.v);
	return rc;
}

/* Adds the frozen parameters of ZeRO 3, of which each rank has a share. */
static int frozen_take(struct describing *w, const struct rsh_ds_param *p)
{
	struct rsh_source_ds *st = w->st;
	enum rsh_dtype dtype = RSH_DTYPE_UNKNOWN;
	int rc = 0;

	tensor_begin(w);
	for (uint32_t i = 0; i < st->all.n && rc == 0; i++) {
		const struct rsh_ds_file *f = rsh_ds_file_of(st, i);
		const struct rsh_ds_run run =
			rsh_ds_share_of(p, st->listed[i].is.rank);
		const struct rsh_ds_tensor *t;

		if (st->listed[i].is.role != RSH_DS_MODEL_PART || run.n == 0)
			continue;
		t = rsh_ds_tensor_find(f->fragments, f->n_fragments, p->name);
		if (!t || t->n_dims != 1 || t->elements < run.n ||
		    (dtype != RSH_DTYPE_UNKNOWN && t->dtype != dtype))
			return describing_blame(w, p->name, EBADMSG, "%s does "
						"not have its share of it",
						st->listed[i].name);
		dtype = t->dtype;
		rc = chunks_add_run(w, i, RSH_DS_FROZEN, p, &run);
	}
	st->n_frozen++;
	return rc ?: tensor_end(w, p->name, dtype, p->n_dims, p->dims);
}

static int parts_take(struct describing *w)
{
	const struct rsh_ds_params *frozen = &w->st->head->frozen;
	int rc = 0;

	for (uint32_t i = 0; i < frozen->n && rc == 0; i++)
		if (frozen->v[i].elements > 0)
			rc = frozen_take(w, &frozen->v[i]);
	return rc;
}

static int experts_take(struct describing *w)
{
	const struct rsh_source_ds *st = w->st;
	int rc = 0;

	for (uint32_t i = 0; i < st->all.n; i++) {
		const struct rsh_ds_file *f = rsh_ds_file_of(st, i);

		for (uint32_t k = 0; k < f->n_tensors && rc == 0 &&
		     st->listed[i].is.role == RSH_DS_EXPERT; k++)
			rc = tensor_add_whole(w, f->tensors[k].name, i,
					      &f->tensors[k]);
	}
	return rc;
}

/* Adds a tied parameter whose other name is not there: the module has it, but
 * not that of ZeRO 3. */
static int alias_take_lone(struct describing *w, const struct rsh_ds_alias *a)
{
	const struct rsh_source_ds *st = w->st;
	const struct rsh_ds_file *f = rsh_ds_file_of(st, st->model);
	const struct rsh_ds_tensor *t =
		rsh_ds_tensor_find(f->tensors, f->n_tensors, a->name);

	if (st->listed[st->model].is.role == RSH_DS_MODEL_PART || !t)
		return describing_blame(w, a->name, EBADMSG, "it is tied to "
					"%s, which is not there", a->of);
	return tensor_add_whole(w, a->name, st->model, t);
}

/* Shows tied parameters under both names; those of the module are in it under
 * both. */
static int aliases_take(struct describing *w)
{
	struct rsh_source_ds *st = w->st;
	const size_t n = w->n_tensors;
	int rc = 0;

	if (n > 0)
		qsort(w->tensors, n, sizeof(*w->tensors), by_name);
	for (uint32_t i = 0; i < st->head->n_aliases && rc == 0; i++) {
		const struct rsh_ds_alias *a = &st->head->aliases[i];
		const struct rsh_dcp_tensor like = { .name = a->of };
		const struct rsh_dcp_tensor *of =
			n == 0 ? NULL : bsearch(&like, w->tensors, n,
						sizeof(like), by_name);
		struct rsh_dcp_tensor copy;

		st->n_aliases++;
		if (st->from_module)
			continue;
		if (!of) {
			rc = alias_take_lone(w, a);
			continue;
		}
		copy = *of;
		copy.name = a->name;
		if (rsh_grow(&w->tensors, &w->cap_tensors, w->n_tensors + 1,
			     sizeof(*w->tensors)))
			rc = -ENOMEM;
		else
			w->tensors[w->n_tensors++] = copy;
	}
	return rc;
}

/* ---- all files ---- */

/* Returns whether a rank has what the file of an optimizer says that it has. */
static bool fits_rank(const struct rsh_source_ds *st,
		      const struct rsh_ds_zero *z, uint32_t rank)
{
	for (uint32_t i = 0; i < z->n_slices; i++) {
		const struct rsh_ds_slice *s = &z->slices[i];
		const struct rsh_ds_param *p =
			rsh_ds_param_find(st->head, s->name);
		struct rsh_ds_run run;

		if (!p || s->group >= st->head->n_groups)
			return false;
		run = rsh_ds_run_of(&st->layout, s->group, p, rank);
		if (run.n != s->n || run.at != s->at)
			return false;
	}
	return true;
}

/* Finds out whether the file of an optimizer is that of another rank; `world`:
 * it is not, or nothing says so. */
static uint32_t find_rank(const struct rsh_source_ds *st,
			  const struct rsh_ds_zero *z, uint32_t own)
{
	const uint32_t world = st->layout.world;
	uint32_t rank = 0;

	if (z->n_slices == 0 || st->head->round_robin || fits_rank(st, z, own))
		return world;
	while (rank < world && !fits_rank(st, z, rank))
		rank++;
	return rank;
}

/* Checks that files are of one save. */
static int files_check(const struct rsh_source_ds *st, struct rsh_error *err)
{
	const char *path = rsh_source_path(st->all.source);

	for (uint32_t i = 0; i < st->all.n; i++) {
		const struct rsh_ds_listed *l = &st->listed[i];
		const struct rsh_ds_file *f = rsh_ds_file_of(st, i);

		if (!f)
			return rsh_error_set(err, ENOENT, "%s/%s: it cannot be "
					     "read, and no other file has what "
					     "it has", path, l->name);
		if (l->is.role == RSH_DS_OPTIMIZER &&
		    (f->zero.stage != st->layout.stage ||
		     f->zero.world != st->layout.world ||
		     f->zero.n_groups != st->head->n_groups))
			return rsh_error_set(err, EBADMSG, "%s/%s: it is of "
					     "another save than other files: "
					     "its stage, its groups or the "
					     "number of ranks differ", path,
					     l->name);
		if (l->is.role == RSH_DS_OPTIMIZER &&
		    find_rank(st, &f->zero, l->is.rank) < st->layout.world)
			return rsh_error_set(err, EBADMSG, "%s/%s: the file is "
					     "of rank %u, not %u", path,
					     l->name,
					     find_rank(st, &f->zero,
						       l->is.rank),
					     l->is.rank);
		if ((l->is.role == RSH_DS_MODEL ||
		     l->is.role == RSH_DS_MODEL_PART) &&
		    !rsh_ds_heads_alike(&f->head, st->head))
			return rsh_error_set(err, EBADMSG, "%s/%s: it is of "
					     "another save than other files: "
					     "the step, the number of ranks or "
					     "the parameters differ", path,
					     l->name);
	}
	return 0;
}

static int tensors_make(struct describing *w)
{
	struct rsh_source_ds *st = w->st;
	int rc = module_take(w);

	if (rc == 0 && st->listed[st->model].is.role == RSH_DS_MODEL_PART)
		rc = parts_take(w);
	if (rc == 0 && !st->from_module && st->head->has_shapes)
		rc = st->is_universal ? universal_take_all(w) : zero_take(w);
	return rc ?: experts_take(w) ?: aliases_take(w);
}

/* Sorts the tensors, whose names must be different. */
static int tensors_settle(struct describing *w, struct rsh_error *err)
{
	struct rsh_dcp_tensor *v = rsh_arena_array(
		&w->d->arena_, struct rsh_dcp_tensor, w->n_tensors);

	if (!v)
		return rsh_error_nomem(err);
	if (w->n_tensors > 0) {
		qsort(w->tensors, w->n_tensors, sizeof(*w->tensors), by_name);
		memcpy(v, w->tensors, w->n_tensors * sizeof(*v));
	}
	for (size_t i = 1; i < w->n_tensors; i++)
		if (strcmp(v[i - 1].name, v[i].name) == 0)
			return rsh_error_set(err, EBADMSG, "%s: damaged: two "
					     "tensors have the name %s",
					     rsh_source_path(w->st->all.source),
					     v[i].name);
	w->d->tensors = v;
	w->d->n_tensors = (uint32_t)w->n_tensors;
	return 0;
}

/* Sets which states are shown, and which are not. */
static int say_states(struct describing *w)
{
	struct rsh_source_ds *st = w->st;
	char text[512] = "";
	size_t at = 0;

	for (size_t i = 0; i < w->n_keys && at < sizeof(text); i++)
		at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%s",
				       i ? ", " : "", w->keys[i]);
	st->states = rsh_arena_strndup(&st->arena, text, strlen(text));
	if (w->odd)
		st->left_out = rsh_arena_format(
			&st->arena, "%s of the optimizer does not have the "
			"length of its group, and is not shown", w->odd);
	else if (!st->head->has_shapes && st->head->has_optimizer)
		st->left_out = "the optimizer's states have numbers in place "
			       "of names, and are not shown";
	return st->states && st->left_out ? 0 : -ENOMEM;
}

static int files_make(struct describing *w)
{
	const struct rsh_source_ds *st = w->st;
	const char **files = rsh_arena_array(&w->d->arena_, const char *,
					     st->all.n);

	if (!files)
		return -ENOMEM;
	for (uint32_t i = 0; i < st->all.n; i++)
		files[i] = st->listed[i].name;
	w->d->files = files;
	w->d->n_files = st->all.n;
	return 0;
}

int rsh_ds_describe(struct rsh_source_ds *st, struct rsh_error *err)
{
	struct describing w = { .st = st };
	int rc;

	if (st->all.described)
		return 0;
	if (st->wrong.code)
		return rsh_error_set(err, st->wrong.code, "%s",
				     st->wrong.text);
	rc = files_check(st, err);
	if (rc)
		return rc;
	st->n_frozen = st->n_aliases = 0;
	st->extra = NULL;
	w.d = rsh_joined_begin(&st->all);
	if (!w.d)
		return rsh_error_nomem(err);
	if (tensors_make(&w) || files_make(&w) || say_states(&w))
		rc = rsh_error_nomem(err);
	rc = rc ?: tensors_settle(&w, err);
	free(w.tensors);
	free(w.chunks);
	free(w.keys);
	st->all.described = rc == 0;
	return rc;
}
