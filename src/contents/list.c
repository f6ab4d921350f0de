/* SPDX-License-Identifier: Apache-2.0 */
/* contents/list.c lists the tensors to be compared: their kinds, how the
 * strategy cuts them, and the order in which they are read. */
#include "config.h"

#include "contents_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "rsh/util/checked.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"

void rsh_contents_init(struct rsh_contents *c, struct rsh_source *source,
		       struct rsh_names *names)
{
	c->source = source;
	c->names = names;
	c->path = rsh_source_path(source);
	c->first_rank = rsh_source_first_rank(source);
	rsh_source_view(source, names, &c->view);
}

void rsh_contents_clear(struct rsh_contents *c)
{
	for (uint32_t i = 0; i < c->n_subjects; i++)
		free(c->subjects[i].holders);
	free(c->subjects);
}

/* ---- kinds ---- */

uint32_t rsh_contents_state_of(const struct rsh_contents *c, uint32_t name)
{
	const char *text = rsh_names_text(c->names, name);
	const char *dot = strchr(text, '.');

	return dot && dot[1] ?
		rsh_names_find(c->names, dot + 1, strlen(dot + 1)) :
		RSH_NAME_NONE;
}

static bool kind_is_float(enum rsh_dtype t)
{
	return rsh_is_one(t, RSH_DTYPE_FLOAT16, RSH_DTYPE_FLOAT32,
			  RSH_DTYPE_FLOAT64, RSH_DTYPE_BFLOAT16,
			  RSH_DTYPE_FLOAT8E4M3FN, RSH_DTYPE_FLOAT8E5M2,
			  RSH_DTYPE_HIFLOAT8, RSH_DTYPE_FLOAT8E8M0,
			  RSH_DTYPE_FLOAT4X2);
}

/* Returns whether the last part of the name is a usual name of trainable
 * parameters in MindSpore or PyTorch. */
static bool kind_is_called_weight(const char *name)
{
	const char *dot = strrchr(name, '.');

	return rsh_is_any(dot ? dot + 1 : name, "weight", "bias", "gamma",
			  "beta", "kernel", "embedding_table");
}

static enum rsh_tensor_kind kind_of_subject(const struct rsh_contents *c,
					    const struct rsh_subject *s,
					    const bool *has_state)
{
	uint32_t of = rsh_contents_state_of(c, s->name);
	const char *name = rsh_names_text(c->names, s->name);

	/* "accu_grads.dense.weight" is the sum of one rank's batches, if the
	 * checkpoint was saved before the reduction over the data parallel
	 * ranks. */
	if (of != RSH_NAME_NONE && rsh_ckpt_find(s->index, of))
		return memmem(name, strcspn(name, "."), "grad", 4) ?
		       RSH_TENSOR_OWN : RSH_TENSOR_STATE;
	if (has_state[s->name])
		return RSH_TENSOR_TRAINED;
	return kind_is_float(s->record->dtype) && kind_is_called_weight(name) ?
		RSH_TENSOR_WEIGHT : RSH_TENSOR_OTHER;
}

/* Sets the kinds of the subjects.  Returns 0 or -ENOMEM. */
static int list_name_kinds(struct rsh_contents *c)
{
	uint32_t n_names = rsh_names_count(c->names);
	cleanup_free bool *has_state = calloc((size_t)n_names + 1,
					      sizeof(*has_state));

	if (!has_state)
		return -ENOMEM;
	for (uint32_t i = 0; i < n_names; i++) {
		uint32_t of = rsh_contents_state_of(c, i);

		if (of != RSH_NAME_NONE)
			has_state[of] = true;
	}
	for (uint32_t i = 0; i < c->n_subjects; i++)
		c->subjects[i].kind = kind_of_subject(c, &c->subjects[i],
						      has_state);
	return 0;
}

/* ---- cuts ---- */

int rsh_subject_grid(const struct rsh_contents *c, const struct rsh_subject *s,
		     struct rsh_grid **out)
{
	const struct rsh_grid_sizes sizes = {
		rsh_record_dims(s->index, s->record), s->record->n_dims, true,
	};
	int rc;

	if (!s->item)
		return rsh_grid_new_whole(sizes.n_dims, out, NULL);
	rc = rsh_item_manual(s->item, &sizes, out, NULL);
	return rc || *out ? rc :
	       rsh_grid_new(s->item, &sizes, c->rule, out, NULL);
}

/* Sets the number of the rank's slice, and the number without dimension 0. */
static void cut_cell(const struct rsh_grid *g, uint32_t local,
		     struct rsh_sampled *h)
{
	uint32_t cell[RSH_MAX_DIMS];

	h->cell = h->rest = 0;
	if (rsh_grid_n_dims(g) == 0)
		return;
	rsh_grid_cell(g, local, cell);
	for (uint32_t d = 0; d < rsh_grid_n_dims(g); d++) {
		h->cell = h->cell * rsh_grid_split(g, d) + cell[d];
		if (d > 0)
			h->rest = h->rest * rsh_grid_split(g, d) + cell[d];
	}
}

static uint64_t cut_hash(uint64_t a, uint64_t b)
{
	const uint64_t both[2] = { a, b };

	return XXH3_64bits(both, sizeof(both));
}

/* Sets layout and partition.  Returns 0, or -errno if the item does not fit the
 * tensor. */
static int list_set_cut(const struct rsh_contents *c, struct rsh_subject *s)
{
	const struct rsh_subject *last = c->n_subjects ?
		&c->subjects[c->n_subjects - 1] : NULL;
	const struct rsh_strategy_item *it = s->item;
	struct rsh_sampled zero, other;
	cleanup_grid struct rsh_grid *g = NULL;
	uint64_t hash = 0;
	int rc;

	/* All tensors that every rank holds completely have the same cut. */
	if (last && !s->item && !last->item && last->n_local == s->n_local) {
		s->partition = last->partition;
		s->layout = last->layout;
		return 0;
	}
	rc = rsh_subject_grid(c, s, &g);
	if (rc)
		return rc;
	/* The partition is which ranks share rank 0's slice, among the ranks
	 * that distinguish meshes. */
	s->partition = s->n_local;
	cut_cell(g, 0, &zero);
	for (uint32_t d = 1; d < s->n_local; d++) {
		if (s->n_local % d)
			continue;
		cut_cell(g, d, &other);
		s->partition = cut_hash(s->partition,
					d * 2 + (other.cell == zero.cell));
	}
	for (uint32_t i = 0; it && i < it->n_mesh; i++)
		hash = cut_hash(hash, it->mesh[i]);
	for (uint32_t e = 0; it && e < it->n_map; e++) {
		hash = cut_hash(hash, UINT64_MAX);
		for (uint32_t i = 0; i < it->map[e].n; i++)
			hash = cut_hash(hash, (uint32_t)it->map[e].axes[i]);
	}
	if (it) {
		hash = cut_hash(hash, (uint32_t)it->opt_step);
		hash = cut_hash(hash, (uint32_t)it->opt_size);
	}
	s->layout = cut_hash(hash, s->partition);
	return 0;
}

int rsh_subject_set_cells(const struct rsh_contents *c, struct rsh_subject *s)
{
	cleanup_grid struct rsh_grid *g = NULL;
	int rc = rsh_subject_grid(c, s, &g);

	if (rc)
		return rc;
	for (uint32_t i = 0; i < s->n_holders; i++)
		cut_cell(g, s->holders[i].rank % s->n_local, &s->holders[i]);
	return 0;
}

/* ---- listing ---- */

/* Hashes a name without the numbers in which layers differ.  With `parts` only
 * numbers that are a whole part between dots are left out, so that "ffn.w1" and
 * "ffn.w2" differ. */
static uint64_t list_hash_name(const char *name, bool parts)
{
	XXH3_state_t state;
	const char *s = name;

	XXH3_INITSTATE(&state);
	XXH3_64bits_reset(&state);
	while (*s) {
		size_t n = strcspn(s, "0123456789");
		size_t digits = strspn(s + n, "0123456789");
		bool part = (s + n == name || s[n - 1] == '.') &&
			    (s[n + digits] == '.' || !s[n + digits]);

		if (!parts || part) {
			XXH3_64bits_update(&state, s, n);
			XXH3_64bits_update(&state, "#", 1);
		} else {
			XXH3_64bits_update(&state, s, n + digits);
		}
		s += n + digits;
	}
	return XXH3_64bits_digest(&state);
}

static int list_add_subject(struct rsh_contents *c,
			    const struct rsh_subject *base)
{
	const char *name = rsh_names_text(c->names, base->name);
	struct rsh_subject s = *base;
	uint64_t of[2];
	int rc;

	/* The record is that of the first rank of the stage that holds the
	 * tensor. */
	for (uint32_t i = s.from; i < s.n_local && !s.record; i++) {
		s.index = rsh_contents_index(c, s.first + i);
		s.record = s.index ? rsh_ckpt_find(s.index, s.name) : NULL;
	}
	if (!s.record || s.record->dtype == RSH_DTYPE_STR ||
	    s.record->content_bytes == 0)
		return 0;
	/* If the item does not fit the tensor, the tensor is skipped here, and
	 * the plan reports the error. */
	rc = list_set_cut(c, &s);
	if (rc)
		return rc == -ENOMEM ? rc : 0;
	s.pattern = list_hash_name(name, true);
	of[0] = list_hash_name(name, false);
	of[1] = s.layout;
	s.family = XXH3_64bits(of, sizeof(of));
	s.lot = XXH3_64bits(name, strlen(name));
	return rsh_push(c->subjects, c->n_subjects, c->cap_subjects, s);
}

static int list_strategy(struct rsh_contents *c)
{
	const struct rsh_strategy *st = c->src;

	for (uint32_t p = 0; p < st->n_params; p++) {
		const struct rsh_strategy_param *param = &st->params[p];

		for (uint32_t i = 0; i < param->n_stages; i++) {
			const struct rsh_param_stage *at = &param->stages[i];
			const struct rsh_subject s = {
				.name = param->name, .item = at->item,
				.first = c->first_rank +
					 at->stage * st->stage_ranks,
				.n_local = st->stage_ranks,
				.to = st->stage_ranks - 1,
				.shared = param->n_stages > 1,
			};
			int rc = list_add_subject(c, &s);

			if (rc)
				return rc;
		}
	}
	return 0;
}

/* Returns for each name the last rank that has it, counted from 1; NULL if
 * memory is out. */
static uint32_t *list_last(const struct rsh_contents *c)
{
	uint32_t n_names = rsh_names_count(c->names);
	uint32_t *last = calloc((size_t)n_names + 1, sizeof(*last));
	const struct rsh_source_view *v = &c->view;

	for (uint32_t r = v->n_ranks; last && r-- > 0;) {
		const struct rsh_ckpt_index *ix = v->index[r];

		if (!ix || (r + 1 < v->n_ranks && ix == v->index[r + 1]))
			continue;
		for (uint32_t k = 0; k < ix->n_records; k++)
			if (!last[ix->records[k].name])
				last[ix->records[k].name] = r + 1;
	}
	return last;
}

/* Lists all tensors of all ranks, for a tree without a strategy. */
static int list_all(struct rsh_contents *c)
{
	cleanup_free uint32_t *last = list_last(c);
	const struct rsh_source_view *v = &c->view;

	if (!last)
		return -ENOMEM;
	/* The order is that of the ranks, because the order of the indexes
	 * depends on threads. */
	for (uint32_t r = 0; r < v->n_ranks; r++) {
		const struct rsh_ckpt_index *ix = v->index[r];

		if (!ix || (r > 0 && ix == v->index[r - 1]))
			continue;
		for (uint32_t k = 0; k < ix->n_records; k++) {
			uint32_t *to = &last[ix->records[k].name];
			const struct rsh_subject one = {
				.name = ix->records[k].name,
				.n_local = v->n_ranks, .from = r, .to = *to - 1,
			};
			int rc = *to ? list_add_subject(c, &one) : 0;

			*to = 0; /* marks that it is listed */
			if (rc)
				return rc;
		}
	}
	return 0;
}

/* Lists the copied tensors of a stage that the strategy does not list. */
static int list_stage_unlisted(struct rsh_contents *c, uint32_t stage,
			       const bool *copied, uint32_t *seen)
{
	const uint32_t n = c->src->stage_ranks;
	const uint32_t first = c->first_rank + stage * n;
	const struct rsh_ckpt_index *ix, *before = NULL;

	for (uint32_t i = 0; i < n && first + i < c->view.n_ranks; i++) {
		ix = c->view.index[first + i];
		for (uint32_t k = 0; ix && ix != before && k < ix->n_records;
		     k++) {
			const struct rsh_subject one = {
				.name = ix->records[k].name,
				.first = first, .n_local = n, .to = n - 1,
			};

			if (seen[one.name] > stage)
				continue;
			seen[one.name] = stage + 1;
			if (copied[one.name] &&
			    !rsh_strategy_find(c->src, one.name) &&
			    list_add_subject(c, &one))
				return -ENOMEM;
		}
		before = ix ? ix : before;
	}
	return 0;
}

int rsh_contents_list_unlisted(struct rsh_contents *c, const bool *copied)
{
	cleanup_free uint32_t *seen = calloc(
		(size_t)rsh_names_count(c->names) + 1, sizeof(*seen));
	uint32_t n = 0;
	int rc = seen ? 0 : -ENOMEM;

	for (uint32_t i = 0; i < c->src->n_stages && rc == 0; i++)
		rc = list_stage_unlisted(c, i, copied, seen);
	rc = rc ?: list_name_kinds(c);
	for (uint32_t i = 0; i < c->n_subjects && rc == 0; i++) {
		const struct rsh_subject *s = &c->subjects[i];

		/* A matrix of an unusual name may be a weight; moving averages
		 * and loads of experts are vectors. */
		if (s->record->n_dims > 0 &&
		    (s->kind > RSH_TENSOR_OTHER ||
		     (s->kind == RSH_TENSOR_OTHER && s->record->n_dims > 1 &&
		      kind_is_float(s->record->dtype))))
			c->subjects[n++] = *s;
	}
	c->n_subjects = rc ? c->n_subjects : n;
	return rc;
}

int rsh_contents_list(struct rsh_contents *c)
{
	int rc = c->src ? list_strategy(c) : list_all(c);

	return rc ? rc : list_name_kinds(c);
}

/* ---- order of reading ---- */

/* Not all tensors can be read, so the most informative ones come first.
 * Matrices, vectors and optimizer states alternate, because a wrong strategy
 * may be wrong in only one of them. */
static unsigned order_sort_of(const struct rsh_subject *s)
{
	if (s->kind == RSH_TENSOR_STATE || s->kind == RSH_TENSOR_OWN)
		return 2;
	return s->record->n_dims < 2;
}

/* The hash of the name decides in the end, so that it is not always the first
 * layer of a family. */
RSH_ORDER(order_by_layout, struct rsh_subject,
	  rsh_compare_u64(x->layout, y->layout) ?:
	  rsh_compare_u64(order_sort_of(x), order_sort_of(y)) ?:
	  rsh_compare_u64(y->shared, x->shared) ?:
	  rsh_compare_u64(y->kind > RSH_TENSOR_OTHER,
			  x->kind > RSH_TENSOR_OTHER) ?:
	  rsh_compare_u64(y->record->content_bytes, x->record->content_bytes) ?:
	  rsh_compare_u64(x->family, y->family) ?:
	  rsh_compare_u64(x->lot, y->lot) ?:
	  rsh_compare_u64(x->first, y->first))

/* Sorts by the position among the tensors of one layout, which is stored in
 * n_read until reading begins. */
RSH_ORDER(order_by_turn, struct rsh_subject,
	  rsh_compare_u64(x->n_read, y->n_read) ?: order_by_layout(x, y))

void rsh_contents_sort(struct rsh_contents *c)
{
	uint32_t end;

	rsh_sort(c->subjects, c->n_subjects, order_by_layout);
	/* The first subject of each family among those of one layout and sort
	 * gets position 0, 3, 6 ... plus the number of the sort; the other
	 * subjects of the families come after them. */
	for (uint32_t begin = 0; begin < c->n_subjects; begin = end) {
		const struct rsh_subject *one = &c->subjects[begin];
		const unsigned sort = order_sort_of(one);
		unsigned turn = sort;

		for (end = begin; end < c->n_subjects; end++) {
			struct rsh_subject *s = &c->subjects[end];
			bool first = s == one || s[-1].family != s->family;

			if (s->layout != one->layout ||
			    order_sort_of(s) != sort)
				break;
			s->n_read = first ? turn : UINT32_MAX / 2 + turn;
			turn += first ? 3 : 1;
		}
	}
	rsh_sort(c->subjects, c->n_subjects, order_by_turn);
	for (uint32_t i = 0; i < c->n_subjects; i++)
		c->subjects[i].n_read = 0;
}
