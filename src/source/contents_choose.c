/* SPDX-License-Identifier: Apache-2.0 */
/* source/contents_choose.c - which tensors are worth reading, and of which
 * ranks.
 *
 * Two meshes over N ranks differ in what shares a slice with rank 0.  Those
 * ranks are a box whose edges are multiples of strides, and strides divide N:
 * the ranks that are a divisor of N away from rank 0 therefore tell any two
 * meshes apart, and there are ten of them in 1,024. */
#include "config.h"

#include "contents_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "rsh/util/mem.h"

/* ---- what a tensor is ---- */

static const struct rsh_ckpt_index *index_of(const struct rsh_contents *c,
					     uint32_t rank)
{
	return rank < c->source->n_ranks ? c->source->view_index[rank] : NULL;
}

uint32_t rsh_contents_state_of(const struct rsh_contents *c, uint32_t name)
{
	const char *text = rsh_names_text(c->names, name);
	const char *dot = strchr(text, '.');

	return dot && dot[1] ?
		rsh_names_find(c->names, dot + 1, strlen(dot + 1)) :
		RSH_NAME_NONE;
}

static bool is_float(enum rsh_dtype t)
{
	switch (t) {
	case RSH_DTYPE_FLOAT16:
	case RSH_DTYPE_FLOAT32:
	case RSH_DTYPE_FLOAT64:
	case RSH_DTYPE_BFLOAT16:
	case RSH_DTYPE_FLOAT8E4M3FN:
	case RSH_DTYPE_FLOAT8E5M2:
	case RSH_DTYPE_HIFLOAT8:
		return true;
	default:
		return false;
	}
}

/* By the last part of its name, as layers of MindSpore and PyTorch call what
 * they train. */
static bool is_called_weight(const char *name)
{
	static const char *const words[] = {
		"weight", "bias", "gamma", "beta", "kernel", "embedding_table",
	};
	const char *dot = strrchr(name, '.');

	name = dot ? dot + 1 : name;
	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
		if (strcmp(name, words[i]) == 0)
			return true;
	return false;
}

/* "accu_grads.dense.weight": what a rank has summed up of its own batches, if the
 * checkpoint was saved before the data parallel ranks put theirs together. */
static bool is_gradient(const char *name)
{
	return memmem(name, strcspn(name, "."), "grad", strlen("grad"));
}

static enum rsh_tensor_kind kind_of(const struct rsh_contents *c,
				    const struct rsh_subject *s,
				    const bool *has_state)
{
	uint32_t of = rsh_contents_state_of(c, s->name);
	const char *name = rsh_names_text(c->names, s->name);

	if (of != RSH_NAME_NONE && rsh_ckpt_find(s->index, of))
		return is_gradient(name) ? RSH_TENSOR_OWN : RSH_TENSOR_STATE;
	if (has_state[s->name])
		return RSH_TENSOR_TRAINED;
	return is_float(s->record->dtype) && is_called_weight(name) ?
		RSH_TENSOR_WEIGHT : RSH_TENSOR_OTHER;
}

/* ---- how it is cut ---- */

int rsh_subject_grid(const struct rsh_contents *c, const struct rsh_subject *s,
		     struct rsh_grid **out)
{
	return s->item ?
		rsh_grid_new(s->item, rsh_record_dims(s->index, s->record),
			     s->record->n_dims, true, c->rule, out, NULL) :
		rsh_grid_new_whole(s->record->n_dims, out, NULL);
}

/* The rank's slice, and its number when dimension 0 is left out. */
static void cell_of(const struct rsh_grid *g, uint32_t local,
		    struct rsh_holder *h)
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

static uint64_t hash_u64(uint64_t a, uint64_t b)
{
	const uint64_t both[2] = { a, b };

	return XXH3_64bits(both, sizeof(both));
}

/* Which of the ranks that tell meshes apart share rank 0's slice. */
static uint64_t partition_of(const struct rsh_grid *g, uint32_t n)
{
	struct rsh_holder zero, other;
	uint64_t hash = n;

	cell_of(g, 0, &zero);
	for (uint32_t d = 1; d < n; d++) {
		if (n % d)
			continue;
		cell_of(g, d, &other);
		hash = hash_u64(hash, d * 2 + (other.cell == zero.cell));
	}
	return hash;
}

static uint64_t layout_of(const struct rsh_strategy_item *it)
{
	uint64_t hash = 0;

	if (!it)
		return 0;
	for (uint32_t i = 0; i < it->n_mesh; i++)
		hash = hash_u64(hash, it->mesh[i]);
	for (uint32_t e = 0; e < it->n_map; e++) {
		hash = hash_u64(hash, UINT64_MAX);
		for (uint32_t i = 0; i < it->map[e].n; i++)
			hash = hash_u64(hash, (uint32_t)it->map[e].axes[i]);
	}
	hash = hash_u64(hash, (uint32_t)it->opt_step);
	return hash_u64(hash, (uint32_t)it->opt_size);
}

/* Layers differ in the numbers of their names; `parts`: in those that are a part
 * between dots, so that "ffn.w1" is not "ffn.w2". */
static uint64_t hash_without_numbers(const char *name, bool parts)
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

/* ---- listing ---- */

/* Some rank of the stage that holds it. */
static bool find_record(const struct rsh_contents *c, struct rsh_subject *s)
{
	for (uint32_t i = 0; i < s->n_local; i++) {
		s->index = index_of(c, s->first + i);
		s->record = s->index ? rsh_ckpt_find(s->index, s->name) : NULL;
		if (s->record)
			return true;
	}
	return false;
}

static int add_subject(struct rsh_contents *c, const struct rsh_subject *base)
{
	const char *name = rsh_names_text(c->names, base->name);
	struct rsh_subject s = *base;
	struct rsh_grid *g;
	int rc;

	if (!find_record(c, &s) || s.record->dtype == RSH_DTYPE_STR ||
	    s.record->content_bytes == 0)
		return 0;
	/* What the strategy does not explain is the plan's to refuse. */
	rc = rsh_subject_grid(c, &s, &g);
	if (rc)
		return rc == -ENOMEM ? rc : 0;
	s.partition = partition_of(g, s.n_local);
	rsh_grid_free(g);
	s.layout = hash_u64(layout_of(s.item), s.partition);
	s.pattern = hash_without_numbers(name, true);
	s.family = hash_u64(hash_without_numbers(name, false), s.layout);
	s.lot = XXH3_64bits(name, strlen(name));
	if (rsh_grow(&c->subjects, &c->cap_subjects,
		     (size_t)c->n_subjects + 1, sizeof(*c->subjects)))
		return -ENOMEM;
	c->subjects[c->n_subjects++] = s;
	return 0;
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
				.first = c->source->first_rank +
					 at->stage * st->stage_ranks,
				.n_local = st->stage_ranks,
			};
			int rc = add_subject(c, &s);

			if (rc)
				return rc;
		}
	}
	return 0;
}

static int list_index(struct rsh_contents *c, const struct rsh_ckpt_index *ix,
		      bool *seen)
{
	for (uint32_t k = 0; k < ix->n_records; k++) {
		const struct rsh_subject one = {
			.name = ix->records[k].name,
			.n_local = c->source->n_ranks,
		};
		int rc;

		if (seen[one.name])
			continue;
		seen[one.name] = true;
		rc = add_subject(c, &one);
		if (rc)
			return rc;
	}
	return 0;
}

/* Without a strategy: whatever the ranks hold. */
static int list_unsharded(struct rsh_contents *c)
{
	uint32_t n_names = rsh_names_count(c->names);
	cleanup_free bool *seen = calloc((size_t)n_names + 1, sizeof(*seen));
	const struct rsh_source *s = c->source;

	if (!seen)
		return -ENOMEM;
	/* By rank, since the order of the indexes depends on threads. */
	for (uint32_t r = 0; r < s->n_ranks; r++) {
		const struct rsh_ckpt_index *ix = s->view_index[r];
		int rc;

		if (!ix || (r > 0 && ix == s->view_index[r - 1]))
			continue;
		rc = list_index(c, ix, seen);
		if (rc)
			return rc;
	}
	return 0;
}

static int name_kinds(struct rsh_contents *c)
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
		c->subjects[i].kind = kind_of(c, &c->subjects[i], has_state);
	return 0;
}

int rsh_contents_list(struct rsh_contents *c)
{
	int rc = c->src ? list_strategy(c) : list_unsharded(c);

	return rc ? rc : name_kinds(c);
}

/* ---- order ---- */

/* Matrices, vectors and optimizer states take turns, since wrong strategies
 * are wrong in one of them only. */
static unsigned sort_of(const struct rsh_subject *s)
{
	if (s->kind == RSH_TENSOR_STATE || s->kind == RSH_TENSOR_OWN)
		return 2;
	return s->record->n_dims < 2;
}

static int cmp(uint64_t a, uint64_t b)
{
	return (a > b) - (a < b);
}

static int by_layout(const void *a, const void *b)
{
	const struct rsh_subject *x = a, *y = b;
	int d = cmp(x->layout, y->layout);

	d = d ? d : cmp(sort_of(x), sort_of(y));
	d = d ? d : cmp(y->kind > RSH_TENSOR_OTHER,
			x->kind > RSH_TENSOR_OTHER);
	d = d ? d : cmp(y->record->content_bytes, x->record->content_bytes);
	d = d ? d : cmp(x->family, y->family);
	/* Of the layers of a family not always the first. */
	d = d ? d : cmp(x->lot, y->lot);
	return d ? d : cmp(x->first, y->first);
}

/* Its turn among those of its layout, which n_read holds until it is read. */
static int by_turn(const void *a, const void *b)
{
	const struct rsh_subject *x = a, *y = b;
	int d = cmp(x->n_read, y->n_read);

	return d ? d : by_layout(a, b);
}

/* Of subjects [begin, end), which are of one layout and sort, the first of each
 * family takes turn 0, 3, 6 ...; others of the family come after all of them. */
static void take_turns(struct rsh_contents *c, uint32_t begin, uint32_t end)
{
	unsigned turn = sort_of(&c->subjects[begin]);

	for (uint32_t i = begin; i < end; i++) {
		struct rsh_subject *s = &c->subjects[i];
		bool first = i == begin || s[-1].family != s->family;

		s->n_read = first ? turn : UINT32_MAX / 2 + turn;
		turn += first ? 3 : 1;
	}
}

void rsh_contents_sort(struct rsh_contents *c)
{
	uint32_t end;

	if (c->n_subjects == 0)
		return;
	qsort(c->subjects, c->n_subjects, sizeof(*c->subjects), by_layout);
	for (uint32_t i = 0; i < c->n_subjects; i = end) {
		const struct rsh_subject *s = &c->subjects[i];

		end = i + 1;
		while (end < c->n_subjects &&
		       c->subjects[end].layout == s->layout &&
		       sort_of(&c->subjects[end]) == sort_of(s))
			end++;
		take_turns(c, i, end);
	}
	qsort(c->subjects, c->n_subjects, sizeof(*c->subjects), by_turn);
	for (uint32_t i = 0; i < c->n_subjects; i++)
		c->subjects[i].n_read = 0;
}

/* ---- ranks ---- */

/* Ranks that are asked for neighbours where the first has none. */
#define LOOKED_FOR 64

/* A slice of the size and type that all others are compared with. */
static bool rank_holds(const struct rsh_contents *c,
		       const struct rsh_subject *s, uint32_t rank)
{
	const struct rsh_ckpt_index *ix = index_of(c, rank);
	const struct rsh_record *r = ix ? rsh_ckpt_find(ix, s->name) : NULL;

	return r && r->dtype == s->record->dtype &&
	       r->content_bytes == s->record->content_bytes;
}

static bool holds(const struct rsh_contents *c, const struct rsh_subject *s,
		  uint32_t local)
{
	return rank_holds(c, s, s->first + local);
}

static bool add_local(const struct rsh_contents *c, const struct rsh_subject *s,
		      uint32_t local, uint32_t *locals, uint32_t *n,
		      uint32_t max)
{
	if (*n >= max || !holds(c, s, local))
		return false;
	for (uint32_t i = 0; i < *n; i++)
		if (locals[i] == local)
			return false;
	locals[(*n)++] = local;
	return true;
}

/* The prime factors of n < 2^32, of which there are nine at most. */
static unsigned primes_of(uint32_t n, uint32_t primes[9])
{
	unsigned k = 0;

	for (uint32_t p = 2; n > 1; p++) {
		if ((uint64_t)p * p > n)
			p = n;
		if (n % p)
			continue;
		primes[k++] = p;
		while (n % p == 0)
			n /= p;
	}
	return k;
}

/* The next rank after `at` on an axis of prime size p and stride d. */
static uint32_t neighbour(uint32_t at, uint32_t p, uint32_t d)
{
	uint32_t k = at / d % p;

	return at - k * d + (k + 1) % p * d;
}

/* `base` and, for each way to divide the ranks, one that differs from it in that
 * alone: its neighbour there. */
static uint32_t choose_around(const struct rsh_contents *c,
			      const struct rsh_subject *s, uint32_t base,
			      uint32_t *locals)
{
	const uint32_t n = s->n_local;
	uint32_t primes[9], k = 0;
	unsigned n_primes = primes_of(n, primes);

	add_local(c, s, base, locals, &k, RSH_CONTENTS_HOLDERS);
	for (uint32_t d = 1; d < n && k > 0; d++) {
		for (unsigned i = 0; n % d == 0 && i < n_primes; i++) {
			uint32_t p = primes[i];

			if (n / d % p == 0)
				add_local(c, s, neighbour(base, p, d), locals,
					  &k, RSH_CONTENTS_HOLDERS);
		}
	}
	return k;
}

/* Two neighbours on that axis, of `base` and the ranks after it.  Many may hold
 * nothing, of a tree without redundancy, and it is not to take long. */
static void add_neighbours(const struct rsh_contents *c,
			   const struct rsh_subject *s, uint32_t base,
			   const uint32_t axis[2], uint32_t *locals,
			   uint32_t *k)
{
	const uint32_t p = axis[0], d = axis[1];

	for (uint32_t i = 0; i < s->n_local && i < LOOKED_FOR; i++) {
		uint32_t b = (base + i) % s->n_local;

		if (!holds(c, s, b) || !holds(c, s, neighbour(b, p, d)))
			continue;
		add_local(c, s, b, locals, k, RSH_CONTENTS_HOLDERS);
		add_local(c, s, neighbour(b, p, d), locals, k,
			  RSH_CONTENTS_HOLDERS);
		return;
	}
}

/* Where files are missing all around, each axis on which `base` has lost its
 * neighbour is told by others. */
static void complete_axes(const struct rsh_contents *c,
			  const struct rsh_subject *s, uint32_t base,
			  uint32_t *locals, uint32_t *k)
{
	const uint32_t n = s->n_local;
	uint32_t primes[9];
	unsigned n_primes = primes_of(n, primes);

	for (uint32_t d = 1; d < n; d++)
		for (unsigned i = 0; n % d == 0 && i < n_primes; i++)
			if (n / d % primes[i] == 0 &&
			    !holds(c, s, neighbour(base, primes[i], d)))
				add_neighbours(c, s, base,
					       (uint32_t[]){ primes[i], d },
					       locals, k);
}

/* Files may be missing: the best of the first ranks to start from. */
static uint32_t choose_locals(const struct rsh_contents *c,
			      const struct rsh_subject *s, uint32_t *locals)
{
	uint32_t best = 0, most = 0, tried = 0;

	for (uint32_t b = 0; b < s->n_local && tried < 8; b++) {
		uint32_t n = choose_around(c, s, b, locals);

		tried += n > 0;
		if (n > most) {
			most = n;
			best = b;
		}
	}
	most = choose_around(c, s, best, locals);
	if (s->item)
		complete_axes(c, s, best, locals, &most);
	/* Ranks without a strategy need not be numbered without gaps. */
	for (uint32_t i = 0; i < s->n_local && (!s->item || most < 2); i++)
		if (!add_local(c, s, i, locals, &most, 12) && most >= 12)
			break;
	return most;
}

static uint32_t choose_all(const struct rsh_contents *c,
			   const struct rsh_subject *s, uint32_t *locals)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->n_local; i++)
		if (holds(c, s, i))
			locals[n++] = i;
	return n;
}

/* Ranks of stages that are not said to have the tensor may hold it all the
 * same: then what their counterparts hold, or it is not cut into stages so.
 * Gives up to two of them. */
static uint32_t find_strays(const struct rsh_contents *c,
			    const struct rsh_subject *s, const uint32_t *locals,
			    uint32_t n_locals, uint32_t strays[2])
{
	const struct rsh_strategy *st = c->src;
	const struct rsh_strategy_param *p =
		st ? rsh_strategy_find(st, s->name) : NULL;
	uint32_t n = 0;

	for (uint32_t stage = 0; p && stage < st->n_stages && n == 0; stage++) {
		uint32_t first = c->source->first_rank +
				 stage * st->stage_ranks;

		if (rsh_param_in_stage(p, stage))
			continue;
		for (uint32_t i = 0; i < n_locals && n < 2; i++)
			if (rank_holds(c, s, first + locals[i]))
				strays[n++] = first + locals[i];
	}
	return n;
}

int rsh_subject_set_cells(const struct rsh_contents *c, struct rsh_subject *s)
{
	struct rsh_grid *g;
	int rc = rsh_subject_grid(c, s, &g);

	if (rc)
		return rc;
	for (uint32_t i = 0; i < s->n_holders; i++)
		cell_of(g, s->holders[i].rank % s->n_local, &s->holders[i]);
	rsh_grid_free(g);
	return 0;
}

int rsh_subject_find_holders(const struct rsh_contents *c,
			     struct rsh_subject *s, bool all)
{
	cleanup_free uint32_t *locals = rsh_alloc_array(
		s->n_local + RSH_CONTENTS_HOLDERS, sizeof(*locals));
	uint32_t n, n_strays, strays[2];

	if (!locals)
		return -ENOMEM;
	n = all ? choose_all(c, s, locals) : choose_locals(c, s, locals);
	n_strays = find_strays(c, s, locals, n, strays);
	if (n + n_strays < 2)
		return -ENODATA;
	s->holders = calloc(n + n_strays, sizeof(*s->holders));
	if (!s->holders)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++)
		s->holders[i].rank = s->first + locals[i];
	for (uint32_t i = 0; i < n_strays; i++)
		s->holders[n + i].rank = strays[i];
	s->n_holders = n + n_strays;
	s->n_read = 0;
	s->expanded = all;
	return rsh_subject_set_cells(c, s) ? -ENOMEM : 0;
}
