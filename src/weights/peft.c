/* SPDX-License-Identifier: Apache-2.0 */
/* weights/peft.c converts the adapters of PEFT between two forms of names. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "adapters_i.h"
#include "rsh/util/files.h"
#include "rsh/util/mem.h"
#include "rsh/weights/peft.h"

#define PEFT_TEXT ((size_t)8192) /* longest name */

static const char prefix[] = "base_model.model.", weight_end[] = ".weight",
		  base_layer[] = ".base_layer";

/* The ends of the names of a matrix A, and of its B. */
static const char *const ends[][2] = {
	{ ".lora_A.weight", ".lora_B.weight" },
	{ ".lora_embedding_A", ".lora_embedding_B" },
};
#define EMBEDDING 1

/* Stacks, in the order of the parameters of a module, in which PEFT nests their
 * adapters: the last one is outside. */
static const char *const stacks[] = { "gate_up_proj", "up_proj", "down_proj" };
#define N_STACKS (sizeof(stacks) / sizeof(stacks[0]))
static const char experts[] = ".experts";

struct peft_work {
	struct rsh_catalogue *cat;
	struct rsh_arena *arena, scratch;
	const struct rsh_adapter_config *config;
	const struct rsh_offer *in;
	struct rsh_offer_index names;
	struct rsh_peft_adapter *out;
};

static const char *peft_text(const struct peft_work *w,
			     const struct rsh_offer *o)
{
	return rsh_names_text(w->cat->names, o->name);
}

/* ---- taking ---- */

/* Returns which matrix a name is: 2 * its row in `ends`, and 1 more for a B;
 * -1: none. */
static int peft_matrix(const char *name)
{
	for (int i = 0; i < 4; i++)
		if (rsh_has_suffix(name, ends[i / 2][i % 2]))
			return i;
	return -1;
}

/* Returns whether the config targets a parameter by its own name. */
static bool peft_targets(const struct peft_work *w, const char *module,
			 const char *parameter)
{
	const char *target;
	char text[PEFT_TEXT + 32];

	snprintf(text, sizeof(text), "%s.%s", module, parameter);
	for (size_t i = 0; (target = rsh_adapter_config_parameter(w->config,
								  i)); i++)
		if (rsh_adapter_name_ends(text, target))
			return true;
	return false;
}

/* Replaces the name of a module by that of the stack to which its matrices
 * belong, if the config targets one.  Sets *is_stack.  A target may be the name
 * of a parameter alone, which would fit other modules as well. */
static int peft_stack(const struct peft_work *w, const char *name, char *module,
		      bool *is_stack, struct rsh_error *err)
{
	const char *found[N_STACKS];
	char *end = module + strlen(module);
	uint32_t n = 0, depth = 0;

	while (rsh_has_suffix(module, base_layer)) {
		end -= strlen(base_layer);
		*end = '\0';
		depth++;
	}
	for (size_t i = 0; rsh_has_suffix(module, experts) && i < N_STACKS; i++)
		if (peft_targets(w, module, stacks[i]))
			found[n++] = stacks[i];
	*is_stack = n > 0;
	if (depth > 0 && depth >= n)
		return rsh_error_set(err, EINVAL, "%.400s is not the name of a "
				     "parameter that \"target_parameters\" of "
				     RSH_ADAPTER_CONFIG_NAME " lists", name);
	if (n > 0)
		snprintf(end, 32, ".%s", found[n - 1 - depth]);
	return 0;
}

static int peft_check(const struct peft_work *w,
		      const struct rsh_own_adapter *x, bool is_stack,
		      uint64_t rank, struct rsh_error *err)
{
	const uint64_t rows = x->a.dims[0];
	int rc = own_check_matrix(w->cat, &x->a, err) ?:
		 own_check_matrix(w->cat, &x->b, err);

	if (rc)
		return rc;
	if (x->a.dtype != x->b.dtype)
		return rsh_error_set(err, ENOTSUP, "%.400s is %s, and its "
				     "other matrix %s", peft_text(w, &x->a),
				     rsh_dtype_name(x->a.dtype),
				     rsh_dtype_name(x->b.dtype));
	if (rows != x->b.dims[1] || rows == 0 ||
	    (is_stack ? rows % rank != 0 : rows != rank))
		return rsh_error_set(err, EINVAL, "%.400s has %llu rows, its "
				     "other matrix has %llu columns, and the "
				     "rank in " RSH_ADAPTER_CONFIG_NAME " is "
				     "%llu", peft_text(w, &x->a),
				     (unsigned long long)rows,
				     (unsigned long long)x->b.dims[1],
				     (unsigned long long)rank);
	return 0;
}

/* Adds the weight of an adapter to the catalogue. */
static int peft_stand_in(struct peft_work *w, const struct rsh_own_adapter *x,
			 const struct rsh_adapter_module *m, bool embeds,
			 struct rsh_offer *o)
{
	uint64_t dims[3];
	struct rsh_tensor t = { .dtype = x->b.dtype, .dims = dims };

	if (m->is_parameter)
		dims[t.n_dims++] = x->a.dims[0] / m->rank;
	dims[t.n_dims++] = embeds ? x->a.dims[1] : x->b.dims[0];
	dims[t.n_dims++] = embeds ? x->b.dims[0] : x->a.dims[1];
	if (adapters_stand_in(w->cat, w->arena, &t, m->is_parameter ? m->was :
			      rsh_arena_format(w->arena, "%s%s", m->was,
					       weight_end), o))
		return -ENOMEM;
	if (w->out->n == 0)
		w->out->first = o->parts->tensor;
	return 0;
}

/* Takes a matrix A with its B; for a B only checks that there is an A. */
static int peft_take(struct peft_work *w, const struct rsh_offer *o, int matrix,
		     struct rsh_offer *out, uint32_t *n, struct rsh_error *err)
{
	const char *name = peft_text(w, o);
	const char *const *end = ends[matrix / 2];
	const int stem = (int)(strlen(name) - strlen(end[matrix % 2]));
	struct rsh_own_adapter *x = &w->out->v[w->out->n];
	struct rsh_adapter_module *m = &w->out->modules[w->out->n];
	uint32_t second;
	char text[PEFT_TEXT];
	int rc;

	snprintf(text, sizeof(text), "%.*s%s", stem, name, end[!(matrix % 2)]);
	second = rsh_offer_number(&w->names, "%s", text);
	if (!second)
		return rsh_error_set(err, EINVAL, "%.400s is there, but %.400s "
				     "is missing", name, text);
	if (matrix % 2)
		return 0;
	snprintf(text, sizeof(text), "%.*s",
		 stem - (int)strlen(prefix), name + strlen(prefix));
	*x = (struct rsh_own_adapter){ .a = *o, .b = w->in[second - 1] };
	rc = peft_stack(w, name, text, &m->is_parameter, err);
	if (rc)
		return rc;
	m->was = x->module = rsh_arena_strdup(w->arena, text);
	if (!m->was)
		return rsh_error_nomem(err);
	m->rank = rsh_adapter_config_rank(w->config, m->was);
	m->scaling = rsh_adapter_config_scaling(w->config, m->was);
	rc = peft_check(w, x, m->is_parameter, m->rank, err);
	if (rc == 0 && peft_stand_in(w, x, m, matrix / 2 == EMBEDDING,
				     &out[(*n)++]))
		rc = rsh_error_nomem(err);
	w->out->n += rc == 0;
	return rc;
}

/* Takes a tensor of which the name has only PEFT's prefix. */
static int peft_pass(struct peft_work *w, const struct rsh_offer *o,
		     struct rsh_offer *out, uint32_t *n, struct rsh_error *err)
{
	const char *name = peft_text(w, o) + strlen(prefix);

	if (strstr(name, ".lora_") || strstr(name, base_layer))
		return rsh_error_set(err, ENOTSUP, "%.400s is a part of an "
				     "adapter that is not supported",
				     peft_text(w, o));
	out[*n] = *o;
	out[*n].name = rsh_names_add(w->cat->names, name, strlen(name));
	return out[(*n)++].name == RSH_NAME_NONE ? rsh_error_nomem(err) : 0;
}

int rsh_weights_take_peft(struct rsh_offers *io,
			  const struct rsh_adapter_config *config,
			  struct rsh_arena *arena, struct rsh_peft_adapter *out,
			  struct rsh_error *err)
{
	struct peft_work w = {
		.cat = io->cat, .arena = arena, .config = config,
		.in = io->v, .out = out,
	};
	struct rsh_offer *v = rsh_arena_array(arena, struct rsh_offer, io->n);
	uint32_t n = 0;
	int rc = 0;

	*out = (struct rsh_peft_adapter){ 0 };
	out->v = rsh_arena_array(arena, struct rsh_own_adapter, io->n);
	out->modules = rsh_arena_array(arena, struct rsh_adapter_module,
				       io->n);
	if (!v || !out->v || !out->modules ||
	    rsh_offers_index(io, &w.scratch, &w.names))
		rc = rsh_error_nomem(err);
	/* Stand-ins are added one after the other. */
	for (uint32_t i = 0; rc == 0 && i < io->n; i++) {
		const char *name = peft_text(&w, &io->v[i]);
		const int matrix = peft_matrix(name);

		if (strncmp(name, prefix, strlen(prefix)) != 0 ||
		    strlen(name) >= PEFT_TEXT / 2)
			rc = rsh_error_set(err, EINVAL, "%.400s does not begin "
					   "with %s, as the tensors of PEFT's "
					   "adapters do", name, prefix);
		else
			rc = matrix >= 0 ?
			     peft_take(&w, &io->v[i], matrix, v, &n, err) :
			     peft_pass(&w, &io->v[i], v, &n, err);
	}
	rsh_arena_clear(&w.scratch);
	rsh_catalogue_update_names(io->cat);
	io->v = v;
	io->n = n;
	return rc;
}

/* ---- what a table has made ---- */

/* A part of a made weight: where it begins, and where in which stand-in. */
struct peft_part {
	uint32_t x; /* number of the adapter */
	uint64_t shown[RSH_MAX_DIMS], from[RSH_MAX_DIMS];
	uint64_t size[2]; /* rows and columns */
};

struct peft_made {
	const struct rsh_peft_adapter *a;
	struct rsh_catalogue *cat;
	struct rsh_arena *arena;
	const struct rsh_offer *o;
	const char *name;
	struct peft_part *parts;
	uint32_t n;
};

static int peft_unknown(const struct peft_made *m, struct rsh_error *err)
{
	return rsh_error_set(err, ENOTSUP, "%.400s is made of weights in such a "
			     "way that PEFT has no adapter that is equal",
			     m->name);
}

/* Reads a part: a block of rows and columns that keep their order.  Returns
 * false if it is none. */
static bool peft_read_part(const struct peft_made *m, uint32_t i,
			   struct peft_part *p, uint32_t *tensor)
{
	const struct rsh_offer *o = m->o;
	const struct rsh_recipe_part *f = &o->parts[i];
	const uint32_t last = o->n_dims - 1;
	uint64_t rows = 1, columns = 1;
	uint32_t n;

	*tensor = f->tensor;
	n = m->cat->tensors[f->tensor]->n_dims;
	if (o->boxes || n < 2 || n > 3 || o->n_dims < 2 || o->n_dims > 3)
		return false;
	memcpy(p->shown, f->shown_from, o->n_dims * sizeof(*p->shown));
	memcpy(p->from, f->from, n * sizeof(*p->from));
	for (uint32_t k = 0; k < f->n_factors; k++) {
		const struct rsh_factor *x = &f->factors[k];

		if (x->size == 1)
			continue;
		if (x->shown_step != 1 || x->step != 1)
			return false;
		if (x->shown_dim == last && x->dim == n - 1)
			columns *= x->size;
		else if (x->shown_dim == last - 1 && x->dim == n - 2)
			rows *= x->size;
		else
			return false;
	}
	p->size[0] = rows;
	p->size[1] = columns;
	return p->shown[last] == 0 && p->from[n - 1] == 0 &&
	       columns == o->dims[last] &&
	       columns == m->cat->tensors[f->tensor]->dims[n - 1];
}

/* Returns the number of the adapter whose stand-in a tensor is; UINT32_MAX:
 * none. */
static uint32_t peft_of(const struct peft_made *m, uint32_t tensor)
{
	return m->a->n > 0 && tensor >= m->a->first &&
	       tensor - m->a->first < m->a->n ? tensor - m->a->first :
						UINT32_MAX;
}

/* ---- experts of a stack ---- */

/* Makes the matrices of an expert of a stack, or of a part of its rows. */
static int peft_apart(const struct peft_made *m, struct rsh_offer *a,
		      struct rsh_offer *b)
{
	const struct peft_part *p = &m->parts[0];
	const struct rsh_own_adapter *x = &m->a->v[p->x];
	const uint64_t rank = m->a->modules[p->x].rank;
	const uint64_t n_experts = x->a.dims[0] / rank;
	struct rsh_recipe_part *of =
		rsh_arena_array(m->arena, struct rsh_recipe_part, 2);
	struct rsh_factor *f = rsh_arena_array(m->arena, struct rsh_factor, 4);
	uint64_t *dims = rsh_arena_array(m->arena, uint64_t, 10);

	if (!of || !f || !dims)
		return -ENOMEM;
	dims[0] = rank;
	dims[1] = x->a.dims[1];
	dims[8] = p->from[0] * rank;
	f[2] = (struct rsh_factor){ rank, 1, 1, 0, 0 };
	f[3] = (struct rsh_factor){ dims[1], 1, 1, 1, 1 };
	of[0] = (struct rsh_recipe_part){
		.tensor = x->a.parts->tensor, .n_factors = 2, .factors = f + 2,
		.shown_from = dims + 4, .from = dims + 8,
	};
	*a = x->a;
	a->dims = dims;
	a->parts = of;
	dims[2] = p->size[0];
	dims[3] = rank;
	/* dims[4] and [5]: where it is shown, at 0. */
	dims[6] = p->from[1];
	dims[7] = p->from[0];
	f[0] = (struct rsh_factor){ p->size[0], 1, 1, 0, 0 };
	f[1] = (struct rsh_factor){ rank, 1, n_experts, 1, 1 };
	of[1] = (struct rsh_recipe_part){
		.tensor = x->b.parts->tensor, .n_factors = 2, .factors = f,
		.shown_from = dims + 4, .from = dims + 6,
	};
	*b = (struct rsh_offer){
		.dtype = x->b.dtype, .n_dims = 2, .dims = dims + 2,
		.n_parts = 1, .parts = of + 1,
	};
	return 0;
}

/* ---- a stack of experts ---- */

/* The sizes of a stack that is made: n blocks of rows of n_experts, each of an
 * adapter of this rank. */
struct peft_stack_of {
	uint64_t n_experts, n, rows, columns, rank;
};

/* Checks that the parts are all blocks of a stack, each one adapter of one
 * kind. */
static int peft_check_stack(const struct peft_made *m, struct peft_stack_of *s,
			    struct rsh_error *err)
{
	const struct peft_part *p = m->parts;
	const struct rsh_adapter_module *one = &m->a->modules[p->x];

	*s = (struct peft_stack_of){
		.n_experts = m->o->dims[0], .rows = p->size[0],
		.columns = m->o->dims[2], .rank = one->rank,
	};
	if (s->rows == 0 || m->o->dims[1] % s->rows)
		return peft_unknown(m, err);
	s->n = m->o->dims[1] / s->rows;
	if (m->n != s->n * s->n_experts)
		return peft_unknown(m, err);
	for (uint32_t i = 0; i < m->n; i++) {
		const struct rsh_own_adapter *x = &m->a->v[p[i].x];
		const struct rsh_adapter_module *other = &m->a->modules[p[i].x];

		if (other->is_parameter || p[i].from[0] ||
		    p[i].shown[1] % s->rows || p[i].size[0] != s->rows ||
		    x->b.dims[0] != s->rows || x->a.dims[1] != s->columns)
			return peft_unknown(m, err);
		if (other->rank != one->rank || other->scaling != one->scaling)
			return rsh_error_set(err, ENOTSUP, "the adapters of "
				"%.400s and %.400s become one, but have ranks "
				"%llu and %llu and scalings %g and %g",
				one->was, other->was,
				(unsigned long long)one->rank,
				(unsigned long long)other->rank, one->scaling,
				other->scaling);
	}
	return 0;
}

/* Makes a part: rows and columns of a tensor, at `row` and `column`, with
 * this step between columns. */
static int peft_block(const struct peft_made *m, uint32_t tensor, uint64_t row,
		      uint64_t column, uint64_t step,
		      struct rsh_recipe_part *out)
{
	const uint64_t *dims = m->cat->tensors[tensor]->dims;
	struct rsh_factor *f = rsh_arena_array(m->arena, struct rsh_factor, 2);
	uint64_t *from = rsh_arena_array(m->arena, uint64_t, 4);

	if (!f || !from)
		return -ENOMEM;
	f[0] = (struct rsh_factor){ dims[0], 1, 1, 0, 0 };
	f[1] = (struct rsh_factor){ dims[1], step, 1, 1, 1 };
	from[0] = row;
	from[1] = column;
	*out = (struct rsh_recipe_part){
		.tensor = tensor, .n_factors = 2, .factors = f,
		.shown_from = from, .from = from + 2,
	};
	return 0;
}

/* Puts the rows of each A one after the other. */
static int peft_stack_a(const struct peft_made *m,
			const struct peft_stack_of *s, struct rsh_offer *out)
{
	struct rsh_recipe_part *parts =
		rsh_arena_array(m->arena, struct rsh_recipe_part, m->n);
	uint64_t *dims = rsh_arena_array(m->arena, uint64_t, 2);
	int rc = parts && dims ? 0 : -ENOMEM;

	for (uint32_t i = 0; rc == 0 && i < m->n; i++) {
		const struct peft_part *p = &m->parts[i];

		rc = peft_block(m, m->a->v[p->x].a.parts->tensor,
				(p->shown[0] * s->n + p->shown[1] / s->rows) *
				s->rank, 0, 1, &parts[i]);
	}
	if (rc)
		return rc;
	dims[0] = s->n_experts * s->n * s->rank;
	dims[1] = s->columns;
	*out = (struct rsh_offer){
		.dtype = m->o->dtype, .n_dims = 2, .dims = dims,
		.n_parts = m->n, .parts = parts, .boxes = true,
	};
	return 0;
}

/* Makes B: the rows of a block have its ranks, and zeros in the ranks of other
 * blocks. */
static int peft_stack_b(const struct peft_made *m,
			const struct peft_stack_of *s, struct rsh_offer *out)
{
	const uint64_t width = s->rank * s->n_experts;
	const uint64_t n_zeros = s->n * (s->n - 1);
	struct rsh_recipe_part *parts =
		rsh_arena_array(m->arena, struct rsh_recipe_part,
				m->n + n_zeros);
	uint64_t *dims = rsh_arena_array(m->arena, uint64_t, 4);
	struct rsh_tensor zeros = { .dtype = m->o->dtype, .n_dims = 2 };
	uint32_t n = 0, number = 0;
	int rc = 0;

	if (!parts || !dims)
		return -ENOMEM;
	for (uint32_t i = 0; rc == 0 && i < m->n; i++) {
		const struct peft_part *p = &m->parts[i];

		rc = peft_block(m, m->a->v[p->x].b.parts->tensor, p->shown[1],
				p->shown[1] / s->rows * width + p->shown[0],
				s->n_experts, &parts[n++]);
	}
	dims[0] = m->o->dims[1];
	dims[1] = s->n * width;
	dims[2] = s->rows;
	dims[3] = width;
	zeros.dims = dims + 2;
	zeros.name = m->o->name;
	if (rc == 0 && n_zeros > 0)
		rc = rsh_catalogue_add_zeros(m->cat, &zeros, &number);
	for (uint64_t i = 0; rc == 0 && i < s->n * s->n; i++)
		if (i / s->n != i % s->n)
			rc = peft_block(m, number, i / s->n * s->rows,
					i % s->n * width, 1, &parts[n++]);
	*out = (struct rsh_offer){
		.dtype = m->o->dtype, .n_dims = 2, .dims = dims,
		.n_parts = n, .parts = parts,
	};
	return rc;
}

/* ---- showing ---- */

/* Makes the two matrices of a weight, and what the config says of them. */
static int peft_show(struct peft_made *m, struct rsh_adapter_module *to,
		     struct rsh_offer *out, struct rsh_error *err)
{
	const struct peft_part *p = m->parts;
	const struct rsh_own_adapter *x = &m->a->v[p->x];
	const struct rsh_adapter_module *was = &m->a->modules[p->x];
	const struct rsh_tensor *t = rsh_offer_tensor(m->cat, m->o);
	struct peft_stack_of s;
	int rc = 0;

	*to = *was;
	if (t && t == m->cat->tensors[m->a->first + p->x]) {
		out[0] = x->a;
		out[1] = x->b;
	} else if (was->is_parameter && m->n == 1 && m->o->n_dims == 2) {
		to->is_parameter = false;
		rc = peft_apart(m, &out[0], &out[1]);
	} else if (!was->is_parameter && m->o->n_dims == 3) {
		rc = peft_check_stack(m, &s, err);
		if (rc)
			return rc;
		to->is_parameter = true;
		to->rank = s.n * s.rank;
		rc = peft_stack_a(m, &s, &out[0]) ?:
		     peft_stack_b(m, &s, &out[1]);
	} else {
		return peft_unknown(m, err);
	}
	to->name = to->is_parameter ? m->name :
		rsh_has_suffix(m->name, weight_end) ?
		rsh_arena_strndup(m->arena, m->name, strlen(m->name) -
				  strlen(weight_end)) : NULL;
	if (rc || (!to->name && rsh_has_suffix(m->name, weight_end)))
		return rsh_error_nomem(err);
	return to->name ? 0 : peft_unknown(m, err);
}

/* Reads all parts of a made weight.  *own is whether it is made of
 * stand-ins. */
static int peft_read(struct peft_made *m, bool *own, struct rsh_error *err)
{
	const struct rsh_offer *o = m->o;
	const struct rsh_tensor *same = rsh_offer_tensor(m->cat, o);
	bool plain = true, all = true;

	m->n = o->n_parts;
	m->name = rsh_names_text(m->cat->names, o->name);
	m->parts = rsh_arena_array(m->arena, struct peft_part, m->n);
	*own = false;
	if (!m->parts)
		return rsh_error_nomem(err);
	for (uint32_t i = 0; i < m->n; i++) {
		uint32_t tensor;

		plain = peft_read_part(m, i, &m->parts[i], &tensor) && plain;
		m->parts[i].x = peft_of(m, tensor);
		*own = *own || m->parts[i].x != UINT32_MAX;
		all = all && m->parts[i].x != UINT32_MAX;
	}
	return *own && (!all || (!plain && !same)) ? peft_unknown(m, err) : 0;
}

/* Returns the place of a stack among those of its module; N_STACKS: none. */
static size_t peft_place(const char *name)
{
	const char *dot = strrchr(name, '.');

	return rsh_index(i, N_STACKS,
			 strcmp(dot ? dot + 1 : name, stacks[i]) == 0);
}

/* Returns how many of the stacks of its module are outside of stack i.  They
 * are beside it, as names are sorted. */
static uint32_t peft_depth(const struct rsh_adapter_module *v, uint32_t n,
			   uint32_t i)
{
	const size_t stem = strlen(v[i].name) -
			    strlen(stacks[peft_place(v[i].name)]);
	uint32_t depth = 0;

	for (uint32_t k = i > N_STACKS ? i - N_STACKS : 0;
	     k < n && k <= i + N_STACKS; k++)
		depth += v[k].is_parameter &&
			 strncmp(v[k].name, v[i].name, stem) == 0 &&
			 !strchr(v[k].name + stem, '.') &&
			 peft_place(v[k].name) > peft_place(v[i].name);
	return depth;
}

/* Names the matrices of module i as PEFT does. */
static int peft_name(struct rsh_names *names, struct rsh_adapter_module *v,
		     uint32_t n, uint32_t i, bool embeds, struct rsh_offer *out,
		     struct rsh_error *err)
{
	const char *name = v[i].name;
	const size_t place = peft_place(name);
	char text[2 * PEFT_TEXT];
	size_t at;

	if (v[i].is_parameter && place == N_STACKS)
		return rsh_error_set(err, ENOTSUP, "adapters of %.400s are not "
				     "supported", name);
	at = (size_t)snprintf(text, PEFT_TEXT, "%s%.*s", prefix,
		(int)(strlen(name) - (v[i].is_parameter ?
				      strlen(stacks[place]) + 1 : 0)), name);
	if (at >= PEFT_TEXT)
		return rsh_error_set(err, EINVAL, "%.400s is too long", name);
	for (uint32_t k = v[i].is_parameter ? peft_depth(v, n, i) : 0; k > 0;
	     k--)
		at += (size_t)sprintf(text + at, "%s", base_layer);
	for (unsigned k = 0; k < 2; k++) {
		strcpy(text + at, ends[embeds][k]);
		out[k].name = rsh_names_add(names, text, strlen(text));
		if (out[k].name == RSH_NAME_NONE)
			return rsh_error_nomem(err);
	}
	return 0;
}

int rsh_weights_show_peft(const struct rsh_peft_adapter *a,
			  struct rsh_arena *arena, struct rsh_offers *io,
			  struct rsh_adapter_module **modules, uint32_t *n,
			  struct rsh_error *err)
{
	struct rsh_offer *v = rsh_arena_array(arena, struct rsh_offer,
					      2 * (size_t)io->n);
	struct rsh_adapter_module *to =
		rsh_arena_array(arena, struct rsh_adapter_module, io->n);
	bool *embeds = rsh_arena_array(arena, bool, io->n);
	uint32_t n_others = 0;
	int rc = v && to && embeds ? 0 : rsh_error_nomem(err);

	*n = 0;
	for (uint32_t i = 0; rc == 0 && i < io->n; i++) {
		struct peft_made m = {
			.a = a, .cat = io->cat, .arena = arena, .o = &io->v[i],
		};
		bool own;

		rc = peft_read(&m, &own, err);
		if (rc == 0 && own) {
			const uint32_t of_a = io->cat->tensors[
				a->v[m.parts->x].a.parts->tensor]->name;

			embeds[*n] = rsh_has_suffix(
				rsh_names_text(io->cat->names, of_a),
				ends[EMBEDDING][0]);
			rc = peft_show(&m, &to[*n], &v[2 * (size_t)*n], err);
			*n += rc == 0;
		} else if (rc == 0) {
			io->v[n_others++] = io->v[i];
		}
	}
	for (uint32_t i = 0; rc == 0 && i < *n; i++)
		rc = peft_name(io->cat->names, to, *n, i, embeds[i],
			       &v[2 * (size_t)i], err);
	for (uint32_t i = 0; rc == 0 && i < n_others; i++) {
		char text[2 * PEFT_TEXT];
		struct rsh_offer *o = &v[2 * (size_t)*n + i];
		const int len = snprintf(text, sizeof(text), "%s%s", prefix,
			rsh_names_text(io->cat->names, io->v[i].name));

		*o = io->v[i];
		o->name = len < 0 || (size_t)len >= sizeof(text) ?
			RSH_NAME_NONE :
			rsh_names_add(io->cat->names, text, (size_t)len);
		if (o->name == RSH_NAME_NONE)
			rc = rsh_error_nomem(err);
	}
	if (rc)
		return rc;
	rsh_catalogue_update_names(io->cat);
	io->v = v;
	io->n = 2 * *n + n_others;
	*modules = to;
	return 0;
}
