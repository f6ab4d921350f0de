/* SPDX-License-Identifier: Apache-2.0 */
/* formats/megatron/states.c finds the states of weights in distrib_optim.pt.
 *
 * A distributed optimizer has the weights of a chunk in one buffer, of which
 * they are views, and those of its experts in another one.  The states of a
 * buffer are flat tensors in which each state is where its weight is in the
 * buffer.  If a buffer has several buckets, the padding between these is not in
 * the flat tensors, and no file says where it was. */
#include "config.h"

#include "megatron_i.h"

#include <errno.h>
#include <string.h>

#include "rsh/util/checked.h"
#include "rsh/util/files.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"

/* A dense one, and that of the experts. */
#define OPTIMIZERS 2
#define COALESCED "buckets_coalesced"

const char *const rsh_megatron_state_names[RSH_MEGATRON_STATES] = {
	[RSH_MEGATRON_PARAM] = "param",
	[RSH_MEGATRON_EXP_AVG] = "exp_avg",
	[RSH_MEGATRON_EXP_AVG_SQ] = "exp_avg_sq",
};

/* A buffer, as the optimizer has it: by its number. */
struct buffer {
	uint32_t optimizer;
	uint64_t number;
	const struct rsh_torch_tensor *flat[RSH_MEGATRON_STATES];
	uint64_t n; /* elements */
};

/* The weights that are views of one storage. */
struct view {
	struct rsh_megatron_entry **v;
	uint32_t n;
	bool of_experts;
	uint64_t end; /* of the last one, in elements */
};

struct finding {
	const struct rsh_megatron_file *model;
	struct rsh_torch_file *of;
	struct buffer *buffers;
	uint32_t n_buffers;
	bool coalesced;
	struct rsh_megatron_entry **entries; /* of the model, by storage */
	struct view *views;
	uint32_t n_views;
	struct rsh_torch_tensor *out;
	uint32_t n_out;
};

/* ---- buffers ---- */

RSH_ORDER(buffer_by_number, struct buffer,
	  rsh_by_u32(&x->optimizer, &y->optimizer) ?:
	  rsh_compare_u64(x->number, y->number))

/* Returns the buffer that keys are of, "0.(types).param" or, of several
 * optimizers, "1.0.(types).param", and its last key; NULL: they are of none. */
static struct buffer *buffer_of(struct finding *w,
				const struct rsh_path_key *keys, uint32_t n,
				const char **last)
{
	struct buffer b = { .optimizer = 0 };

	if (n == 4 && !keys[0].text && keys[0].index < OPTIMIZERS)
		b.optimizer = (uint32_t)(keys++)->index;
	else if (n != 3)
		return NULL;
	*last = keys[2].text;
	if (!keys[0].text || !keys[1].text || !*last ||
	    !rsh_digits_read(keys[0].text, strlen(keys[0].text), UINT32_MAX,
			     &b.number))
		return NULL;
	for (uint32_t i = 0; i < w->n_buffers; i++)
		if (buffer_by_number(&w->buffers[i], &b) == 0)
			return &w->buffers[i];
	w->buffers[w->n_buffers] = b;
	return &w->buffers[w->n_buffers++];
}

static int buffers_find(struct finding *w)
{
	const char *last;
	struct buffer *b;

	w->buffers = rsh_arena_array(&w->of->arena_, struct buffer,
				     (size_t)w->of->n_tensors +
				     w->of->n_values);
	if (!w->buffers)
		return -ENOMEM;
	for (uint32_t i = 0; i < w->of->n_tensors; i++) {
		const struct rsh_torch_tensor *t = &w->of->tensors[i];

		b = buffer_of(w, t->keys, t->n_keys, &last);
		for (unsigned k = 1; b && k < RSH_MEGATRON_STATES; k++)
			if (strcmp(last, rsh_megatron_state_names[k]) == 0)
				b->flat[k] = t;
	}
	for (uint32_t i = 0; i < w->of->n_values; i++) {
		const struct rsh_torch_value *v = &w->of->values[i];
		const char *text = v->plain.json;

		w->coalesced |= text && strcmp(text, "true") == 0 &&
				(strcmp(v->name, COALESCED) == 0 ||
				 rsh_has_suffix(v->name, "." COALESCED));
		b = buffer_of(w, v->keys, v->n_keys, &last);
		if (b && text && strcmp(last, "numel_unpadded") == 0)
			rsh_digits_read(text, strlen(text), INT64_MAX, &b->n);
	}
	rsh_sort(w->buffers, w->n_buffers, buffer_by_number);
	return 0;
}

/* ---- weights ---- */

RSH_ORDER(entry_by_storage, struct rsh_megatron_entry *const,
	  rsh_by_u32(&(*x)->chunk, &(*y)->chunk) ?:
	  rsh_by_u32(&(*x)->storage, &(*y)->storage) ?:
	  rsh_compare_u64((*x)->from, (*y)->from))

static int views_find(struct finding *w)
{
	const struct rsh_megatron_file *m = w->model;
	uint32_t n = 0;

	w->entries = rsh_arena_array(&w->of->arena_,
				     struct rsh_megatron_entry *, m->n);
	w->views = rsh_arena_array(&w->of->arena_, struct view, m->n);
	if (!w->entries || !w->views)
		return -ENOMEM;
	/* A router's bias is no parameter. */
	for (uint32_t i = 0; i < m->n; i++)
		if (!m->v[i].make && !rsh_has_suffix(m->v[i].name,
						     ".expert_bias"))
			w->entries[n++] = &m->v[i];
	rsh_sort(w->entries, n, entry_by_storage);
	for (uint32_t i = 0; i < n; i++) {
		struct rsh_megatron_entry *e = w->entries[i];
		struct view *v = &w->views[w->n_views];

		if (i == 0 || e->chunk != w->entries[i - 1]->chunk ||
		    e->storage != w->entries[i - 1]->storage) {
			*v = (struct view){ &w->entries[i], 0, true, 0 };
			w->n_views++;
		} else {
			v--;
		}
		v->n++;
		v->of_experts &= strstr(e->name, ".mlp.experts.") != NULL;
		v->end = rsh_max_u64(v->end, e->from + e->bytes /
				     rsh_max_u64(rsh_dtype_size(e->dtype), 1));
	}
	return 0;
}

/* ---- states ---- */

/* Adds what a flat tensor has of a weight. */
static int state_add(struct finding *w, const struct rsh_megatron_entry *e,
		     const struct rsh_torch_tensor *flat, unsigned state)
{
	struct rsh_arena *arena = &w->of->arena_;
	struct rsh_torch_tensor *t = &w->out[w->n_out++];
	const struct rsh_path_key keys[] = {
		{ .text = rsh_arena_strndup(arena, e->key,
					    strcspn(e->key, ".")) },
		{ .text = e->name },
		{ .text = rsh_megatron_state_names[state] },
	};

	*t = *flat;
	t->name = rsh_arena_format(arena, "%s.%s", e->key, keys[2].text);
	t->keys = rsh_arena_copy(arena, keys, 3);
	t->n_keys = 3;
	t->from += e->from;
	rsh_torch_reshape(t, e->n_dims, e->dims, arena);
	return arena->failed ? -ENOMEM : 0;
}

/* Adds the states of the weights in a view.  Sets *wrong if they do not fit. */
static int view_take(struct finding *w, const struct view *v,
		     const struct buffer *b, const char **wrong)
{
	int rc = 0;

	for (unsigned k = 1; k < RSH_MEGATRON_STATES; k++) {
		const struct rsh_torch_tensor *t = b->flat[k];

		if (!t || t->n_dims != 1 || t->strides[0] != 1 ||
		    t->dims[0] < b->n || rsh_dtype_size(t->dtype) == 0)
			*wrong = "it has not all states of a buffer";
	}
	if (v->end != b->n)
		*wrong = "a buffer has several buckets, and no file says where "
			 "their padding was";
	for (uint32_t i = 0; i < v->n; i++)
		if (!v->v[i]->row_major)
			*wrong = "a weight is not in row-major order";
	for (uint32_t i = 0; i < v->n && !*wrong && rc == 0; i++)
		for (unsigned k = 1; k < RSH_MEGATRON_STATES && rc == 0; k++)
			rc = state_add(w, v->v[i], b->flat[k], k);
	return rc;
}

/* Takes the buffers of an optimizer in their order: each chunk of the model has
 * one.  An optimizer without buffers has its states in another file. */
static int optimizer_take(struct finding *w, uint32_t optimizer,
			  const char **wrong)
{
	const struct buffer *b = w->buffers, *end = b + w->n_buffers;
	const struct view *last = NULL;
	uint64_t number = 0;
	int rc = 0;

	while (b < end && b->optimizer < optimizer)
		b++;
	if (b == end || b->optimizer != optimizer)
		return 0;
	for (uint32_t i = 0; i < w->n_views && rc == 0 && !*wrong; i++) {
		const struct view *v = &w->views[i];

		if (v->of_experts != (optimizer > 0))
			continue;
		if (b == end || b->optimizer != optimizer ||
		    b->number != number++ ||
		    (last && last->v[0]->chunk == v->v[0]->chunk))
			*wrong = "it has other buffers than the model";
		else
			rc = view_take(w, v, b++, wrong);
		last = v;
	}
	if (b < end && b->optimizer == optimizer && !*wrong)
		*wrong = "it has other buffers than the model";
	return rc;
}

int rsh_megatron_states_find(struct rsh_megatron_file *f,
			     const struct rsh_megatron_file *model,
			     struct rsh_torch_file *of)
{
	struct finding w = { .model = model, .of = of };
	const char *wrong = NULL;
	int rc = buffers_find(&w) ?: views_find(&w);

	w.out = rsh_arena_array(&of->arena_, struct rsh_torch_tensor,
				(size_t)model->n * (RSH_MEGATRON_STATES - 1));
	if (rc || !w.out)
		return -ENOMEM;
	if (!w.coalesced)
		wrong = "it has an unknown form";
	for (uint32_t i = 0; i < OPTIMIZERS && rc == 0 && !wrong; i++)
		rc = optimizer_take(&w, i, &wrong);
	f->wrong = wrong;
	memcpy(f->args, model->args, sizeof(f->args));
	of->tensors = w.out;
	of->n_tensors = wrong ? 0 : w.n_out;
	of->n_values = 0;
	return rc;
}
