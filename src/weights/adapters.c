/* SPDX-License-Identifier: Apache-2.0 */
/* weights/adapters.c finds the weights to which adapters are added, and those
 * that they replace. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "adapters_i.h"
#include "rsh/util/checked.h"

/* ---- names of weights ---- */

/* PEFT saves the names of modules in memory; the files of vision-language
 * models have those of another release of transformers, which converts them
 * when it loads and saves. */

#define ADAPTER_TEXT ((size_t)8192) /* longest name */

/* How a name may begin in memory, and in files. */
static const struct {
	const char *memory, *files;
} begins[] = {
	{ "model.language_model.", "language_model.model." },
	{ "model.language_model.", "language_model." },
	{ "model.language_model.", "model." },
	{ "language_model.model.", "model.language_model." },
	{ "language_model.", "model.language_model." },
	{ "model.", "model.language_model." },
	{ "model.", "language_model.model." },
	{ "model.", "" },
	{ "", "model." },
	{ "lm_head.", "language_model.lm_head." },
	{ "language_model.lm_head.", "lm_head." },
};

/* Returns whether this is the name of a head that is tied. */
static bool adapting_is_tied_head(const struct adapting *w, const char *name)
{
	return w->tie.tied && rsh_adapter_name_ends(w->tie.head_name, name);
}

/* Finds the offer of a weight by the name of it in memory, or by another one
 * that it has in files; NULL: there is none. */
static struct rsh_offer *adapting_find(const struct adapting *w,
				       const char *name)
{
	struct rsh_offer *found = NULL;

	if (adapting_is_tied_head(w, name))
		return &w->v[w->tie.embedding - 1];
	if (w->tie.head && strcmp(name, w->tie.head_name) == 0)
		return &w->v[w->tie.head - 1];
	found = adapting_offer(w, name);
	for (size_t i = 0; !found && i < sizeof(begins) / sizeof(begins[0]);
	     i++) {
		const size_t n = strlen(begins[i].memory);
		char text[ADAPTER_TEXT];

		if (strncmp(name, begins[i].memory, n) != 0)
			continue;
		snprintf(text, sizeof(text), "%s%s", begins[i].files, name + n);
		found = w->tie.head && strcmp(text, w->tie.head_name) == 0 ?
			&w->v[w->tie.head - 1] : adapting_offer(w, text);
	}
	return found;
}

/* ---- names of matrices ---- */

/* The kinds of matrices: the part of the name before which the name of the
 * module ends. */
static const struct {
	const char *mark, *other;
	bool is_first, embeds;
} matrices[] = {
	{ ".lora_A", ".lora_B", true, false },
	{ ".lora_B", ".lora_A", false, false },
	{ ".lora_embedding_A", ".lora_embedding_B", true, true },
	{ ".lora_embedding_B", ".lora_embedding_A", false, true },
};
#define N_MATRICES (sizeof(matrices) / sizeof(matrices[0]))

static const char prefix[] = "base_model.model.";

/* Returns whether this may follow the mark in the name of a matrix. */
static bool matrix_end(const char *rest, bool embeds)
{
	if (strncmp(rest, ".default", 8) == 0)
		rest += 8;
	return strcmp(rest, embeds ? "" : ".weight") == 0;
}

/* Returns which kind of matrix a name has, N_MATRICES if none. */
static size_t matrix_kind(const char *name)
{
	for (size_t i = 0; i < N_MATRICES; i++) {
		const char *at = strstr(name, matrices[i].mark);
		const char *rest = at ? at + strlen(matrices[i].mark) : NULL;

		if (rest && matrix_end(rest, matrices[i].embeds))
			return i;
	}
	return N_MATRICES;
}

/* Splits the name of a matrix into the name of its module and that of the other
 * matrix, which have room for ADAPTER_TEXT bytes.  Returns false if it has not
 * PEFT's prefix. */
static bool matrix_module(const char *name, size_t kind, char *module,
			  char *other)
{
	const char *at = strstr(name, matrices[kind].mark);
	const int stem = (int)(at - name), before = (int)strlen(prefix);

	snprintf(other, ADAPTER_TEXT, "%.*s%s%s", stem, name,
		 matrices[kind].other, at + strlen(matrices[kind].mark));
	if (strncmp(name, prefix, strlen(prefix)) != 0 || stem < before)
		return false;
	snprintf(module, ADAPTER_TEXT, "%.*s", stem - before, name + before);
	return true;
}

/* Removes a part of a name, if the name has it. */
static void name_without(char *name, const char *part)
{
	char *at = strstr(name, part);

	if (at)
		memmove(at, at + strlen(part), strlen(at + strlen(part)) + 1);
}

/* ---- parameters that are targeted by their own names ---- */

/* A parameter of a module that the config targets. */
struct target {
	struct rsh_offer *weight;
	char name[ADAPTER_TEXT];
	bool plain, turned; /* a product fits it so */
};

/* Finds the parameters of a module that the config targets and that have the
 * shape of a product.  Returns how many there are, and the last one.  PEFT
 * nests the adapters of several parameters of a module, in an order that is not
 * in their names: only shapes tell which is which. */
static unsigned adapting_targets(const struct adapting *w, char *module,
				 const uint64_t product[2], struct target *out)
{
	const struct rsh_adapter_config *config = w->adapters[w->a].config;
	const char *target;
	unsigned n = 0;

	while (strstr(module, ".base_layer"))
		name_without(module, ".base_layer");
	for (size_t i = 0; (target = rsh_adapter_config_parameter(config, i));
	     i++) {
		const char *dot = strrchr(target, '.');
		struct target t;

		snprintf(t.name, sizeof(t.name), "%.6000s.%.1000s", module,
			 dot ? dot + 1 : target);
		t.weight = adapting_find(w, t.name);
		if (!rsh_adapter_name_ends(t.name, target) || !t.weight ||
		    t.weight->n_dims < 2 || t.weight->n_dims > 3)
			continue;
		t.plain = adapting_dims(t.weight)[0] == product[0] &&
			  adapting_dims(t.weight)[1] == product[1];
		t.turned = t.weight->n_dims == 3 &&
			   adapting_dims(t.weight)[0] == product[1] &&
			   adapting_dims(t.weight)[1] == product[0];
		if (t.plain || t.turned) {
			*out = t;
			n++;
		}
	}
	return n;
}

/* Stacks of transformers 5 whose experts are apart in the files of models: each
 * matrix has the rows of the parts one after the other. */
static const struct apart {
	const char *stack;
	unsigned n;
	const char *parts[2];
} stacks_apart[] = {
	{ "gate_up_proj", 2, { "gate_proj", "up_proj" } },
	{ "gate_up_proj", 2, { "w1", "w3" } },
	{ "down_proj", 1, { "down_proj" } },
	{ "down_proj", 1, { "w2" } },
};

/* Finds the weight of a part of an expert; NULL: it is not in the source. */
static struct rsh_offer *apart_offer(const struct adapting *w,
				     const char *module, uint64_t expert,
				     const char *part)
{
	char name[ADAPTER_TEXT];

	snprintf(name, sizeof(name), "%.6000s.%llu.%s.weight", module,
		 (unsigned long long)expert, part);
	return adapting_find(w, name);
}

/* Returns whether a product has the rows and columns of the parts. */
static bool apart_fits(const struct adapting *w, const struct adapting_pair *m,
		       const char *module, const struct apart *s)
{
	const struct rsh_offer *o = apart_offer(w, module, 0, s->parts[0]);

	return o && o->n_dims == 2 && o->dims[1] == m->a->dims[1] &&
	       m->b->dims[0] % s->n == 0 && o->dims[0] == m->b->dims[0] / s->n;
}

/* Finds the stack that a pair changes among those that the config targets;
 * sets its name.  NULL: none, or several. */
static const struct apart *apart_find(const struct adapting *w,
				      const struct adapting_pair *m,
				      const char *module, char *name)
{
	const struct rsh_adapter_config *config = w->adapters[w->a].config;
	const struct apart *found = NULL;
	const char *target;

	for (size_t i = 0; (target = rsh_adapter_config_parameter(config, i));
	     i++)
		for (size_t k = 0; k < sizeof(stacks_apart) /
				       sizeof(stacks_apart[0]); k++) {
			const struct apart *s = &stacks_apart[k];
			char text[ADAPTER_TEXT];

			snprintf(text, sizeof(text), "%.6000s.%s", module,
				 s->stack);
			if (!rsh_adapter_name_ends(text, target) ||
			    !apart_fits(w, m, module, s))
				continue;
			if (found)
				return NULL;
			found = s;
			strcpy(name, text);
		}
	return found;
}

/* Merges a pair into the weights of experts that are apart in the source.  Sets
 * *done if the config targets their stack. */
static int adapting_apart(struct adapting *w, struct adapting_pair *m,
			  const char *module, bool *done)
{
	char stack[ADAPTER_TEXT];
	const struct apart *s = apart_find(w, m, module, stack);
	const struct rsh_offer *first;
	uint64_t rank;
	int rc = 0;

	*done = s;
	if (!s)
		return 0;
	m->is_parameter = true;
	m->module = stack;
	rank = rsh_adapter_config_rank(w->adapters[w->a].config, stack);
	m->n_planes = rsh_max_u64(m->a->dims[0] / rank, 1);
	first = apart_offer(w, module, 0, s->parts[0]);
	if (apart_offer(w, module, m->n_planes, s->parts[0]))
		return adapting_bad(w, m->name, EINVAL, "is for %llu "
				    "experts, but %.400s has more",
				    (unsigned long long)m->n_planes, stack);
	for (uint64_t i = 0; rc == 0 && i < m->n_planes * s->n; i++) {
		m->plane = i / s->n;
		m->first_row = i % s->n * first->dims[0];
		m->weight = apart_offer(w, module, m->plane, s->parts[i % s->n]);
		if (!m->weight || m->weight->n_dims != 2 ||
		    m->weight->dims[0] != first->dims[0] ||
		    m->weight->dims[1] != first->dims[1])
			return adapting_bad(w, m->name, EINVAL, "changes "
					    "%.400s, but expert %llu is "
					    "missing or has another shape",
					    stack,
					    (unsigned long long)m->plane);
		rc = adapting_plain(w, m->weight, m->name) ?:
		     adapting_add(w, m);
	}
	return rc;
}

/* Finds the parameter that a pair of matrices changes, if the config targets
 * parameters of its module.  Writes its name to text[ADAPTER_TEXT].  Sets *done
 * if the pair is merged already. */
static int adapting_parameter(struct adapting *w, struct adapting_pair *m,
			      char *text, bool *done)
{
	char module[ADAPTER_TEXT];
	struct target t;
	unsigned n;

	if (!rsh_adapter_config_parameter(w->adapters[w->a].config, 0) ||
	    m->a->n_dims != 2 || m->b->n_dims != 2)
		return 0;
	snprintf(module, sizeof(module), "%s", m->module);
	n = adapting_targets(w, module, (const uint64_t[]){
			     m->b->dims[0], m->a->dims[1] }, &t);
	if (n == 0)
		return adapting_apart(w, m, module, done);
	if (n > 1)
		return adapting_bad(w, m->name, ENOTSUP, "fits several of "
				    "\"target_parameters\": it is not known "
				    "which one it changes");
	if (t.plain && t.turned && w->has_plain == w->has_turned)
		return adapting_bad(w, m->name, ENOTSUP, "changes %.400s, "
				    "whose matrices are square: it is not "
				    "known whether they are transposed",
				    t.name);
	m->weight = t.weight;
	m->is_parameter = true;
	m->turned = !t.plain || (t.turned && w->has_turned);
	strcpy(text, t.name);
	m->module = text;
	return 0;
}

/* Looks how the stack that a matrix A changes is stored, if it tells. */
static void adapting_look_at(struct adapting *w, const struct rsh_record *r)
{
	const char *name = rsh_names_text(w->cat->names, r->name);
	char other[ADAPTER_TEXT], module[ADAPTER_TEXT];
	const struct rsh_record *second;
	struct target t;

	if (strlen(name) >= ADAPTER_TEXT / 2 || matrix_kind(name) != 0 ||
	    !matrix_module(name, 0, module, other))
		return;
	second = adapting_record(w, other);
	if (!second || second->n_dims != 2 || r->n_dims != 2 ||
	    adapting_targets(w, module, (const uint64_t[]){
			     w->index->dims[second->first_dim],
			     w->index->dims[r->first_dim + 1] }, &t) != 1 ||
	    t.plain == t.turned || t.weight->n_dims != 3)
		return;
	w->has_plain |= t.plain;
	w->has_turned |= t.turned;
}

/* ---- all matrices ---- */

/* Merges a matrix A with its B.  A matrix B is merged with its A, and here it
 * is only checked that there is one. */
static int adapting_matrix(struct adapting *w, const struct rsh_record *r,
			   size_t kind, bool of_tied_head)
{
	const char *name = rsh_names_text(w->cat->names, r->name);
	char other[ADAPTER_TEXT], weight[ADAPTER_TEXT], module[ADAPTER_TEXT];
	const struct rsh_record *second;
	struct adapting_pair m = {
		.name = name, .module = module, .embeds = matrices[kind].embeds,
	};
	bool done = false;
	int rc;

	second = matrix_module(name, kind, module, other) ?
		adapting_record(w, other) : NULL;
	if (!second)
		return adapting_bad(w, name, EINVAL, "is there, but %.400s "
				    "is missing", other);
	snprintf(weight, sizeof(weight), "%.*s.weight",
		 (int)sizeof(weight) - 8, module);
	m.is_tied_head = adapting_is_tied_head(w, weight);
	if (!matrices[kind].is_first || m.is_tied_head != of_tied_head)
		return 0;
	rc = adapting_tensor(w, r, &m.a) ?:
	     adapting_tensor(w, second, &m.b);
	if (rc == 0 && !m.embeds)
		rc = adapting_parameter(w, &m, weight, &done);
	if (rc || done)
		return rc;
	if (!m.weight)
		m.weight = adapting_find(w, weight);
	if (!m.weight)
		return adapting_bad(w, name, EINVAL, "changes %.400s, which "
				    "is not in the source", weight);
	return adapting_plain(w, m.weight, name) ?:
	       adapting_add(w, &m);
}

/* ---- replacing ---- */

static int adapting_replace(struct adapting *w, const struct rsh_record *r)
{
	const char *name = rsh_names_text(w->cat->names, r->name);
	char plain[ADAPTER_TEXT];
	const struct rsh_tensor *t;
	struct rsh_offer *o;
	struct adapters_change *c;
	int rc;

	snprintf(plain, sizeof(plain), "%s", name + strlen(prefix));
	name_without(plain, ".base_layer");
	name_without(plain, ".modules_to_save.default");
	name_without(plain, ".modules_to_save");
	o = adapting_find(w, plain);
	if (!o)
		return adapting_bad(w, name, EINVAL, "replaces %.400s, "
				    "which is not in the source", plain);
	rc = adapting_tensor(w, r, &t);
	if (rc)
		return rc;
	if (!rsh_dims_equal(t->dims, t->n_dims, o->dims, o->n_dims))
		return adapting_bad(w, name, EINVAL, "replaces %.400s, "
				    "which has another shape", plain);
	/* Types are converted as adapters are added: only in matrices. */
	if (t->dtype != o->dtype &&
	    (t->n_dims != 2 || !rsh_quantised_plain(t->dtype) ||
	     !rsh_quantised_plain(o->dtype)))
		return adapting_bad(w, name, ENOTSUP, "is %s and replaces "
				    "%.400s, which is %s",
				    rsh_dtype_name(t->dtype), plain,
				    rsh_dtype_name(o->dtype));
	c = adapting_change(w, o);
	if (!c)
		return rsh_error_nomem(w->err);
	/* Of tied weights the head's is loaded last. */
	if (w->tie.tied && o == &w->v[w->tie.embedding - 1]) {
		if (c->replaced_by == w->a + 1 &&
		    !adapting_is_tied_head(w, plain))
			return 0;
		c->replaced_by = w->a + 1;
	} else {
		rc = adapting_once(w, name, o, &c->replaced_by);
	}
	if (rc)
		return rc;
	c->instead = t;
	w->done[w->a].n_replaced++;
	return 0;
}

/* ---- one adapter ---- */

/* Replaces weights (pass 0), adds to them (pass 1), or adds to a tied head
 * (pass 2). */
static int adapting_record_by_kind(struct adapting *w,
				   const struct rsh_record *r, unsigned pass)
{
	const char *name = rsh_names_text(w->cat->names, r->name);
	size_t kind;

	if (strlen(name) >= ADAPTER_TEXT / 2)
		return adapting_bad(w, "a tensor", ENOTSUP,
				    "has too long a name");
	if (strncmp(name, prefix, strlen(prefix)) != 0)
		return adapting_bad(w, name, EINVAL, "does not begin with "
				    "\"%s\", as the names of PEFT do", prefix);
	kind = matrix_kind(name);
	if (kind == N_MATRICES && strstr(name, ".lora_"))
		return adapting_bad(w, name, ENOTSUP, "is a part of an "
				    "adapter that is not known");
	if ((kind == N_MATRICES) != (pass == 0))
		return 0;
	return pass == 0 ? adapting_replace(w, r) :
			   adapting_matrix(w, r, kind, pass == 2);
}

static int adapting_run_one(struct adapting *w)
{
	const bool targets = rsh_adapter_config_parameter(
		w->adapters[w->a].config, 0);
	int rc;

	w->index = rsh_catalogue_index(w->cat, w->adapters[w->a].file);
	rc = adapters_tie_prepare(w);
	w->has_plain = w->has_turned = false;
	for (uint32_t i = 0; targets && i < w->index->n_records; i++)
		adapting_look_at(w, &w->index->records[i]);
	w->square = NULL;
	w->differs = false;
	/* An adapter adds to what it replaces, and to a tied head last. */
	for (unsigned pass = 0; pass < 3; pass++)
		for (uint32_t i = 0; rc == 0 && i < w->index->n_records; i++)
			rc = adapting_record_by_kind(w, &w->index->records[i],
						     pass);
	if (rc == 0 && w->square && w->differs)
		rc = adapting_bad(w, rsh_names_text(w->cat->names,
						    w->square->name),
				  ENOTSUP, "is square, and "
				  "\"fan_in_fan_out\" is not true of other "
				  "weights: it is not known whether this one "
				  "is transposed");
	if (rc == 0 && w->index->n_records == 0)
		rc = rsh_error_set(w->err, EINVAL,
				   "%s: the adapter has no tensor",
				   rsh_catalogue_path(w->cat,
						      w->adapters[w->a].file));
	return rc ?: adapters_find_lacks(w);
}

/* ---- all adapters ---- */

static int adapting_begin(struct adapting *w, const struct rsh_offers *io,
			  struct rsh_arena *scratch)
{
	/* There may be a head more. */
	struct rsh_offer *v = rsh_arena_array(w->arena, struct rsh_offer,
					      (size_t)w->n + 1);

	w->changes = rsh_arena_array(scratch, struct adapters_change,
				     (size_t)w->n + 1);
	if (!v || !w->changes || rsh_offers_index(io, scratch, &w->names))
		return -ENOMEM;
	if (w->n)
		memcpy(v, w->v, w->n * sizeof(*v));
	w->v = v;
	adapters_tie_find(w);
	return 0;
}

int rsh_weights_adapt(const struct rsh_adapters *how, struct rsh_arena *arena,
		      struct rsh_offers *io, struct rsh_adapted *out,
		      struct rsh_error *err)
{
	struct adapting w = {
		.adapters = how->v, .n_adapters = how->n, .arena = arena,
		.cat = io->cat, .v = io->v, .n = io->n, .done = out,
		.how = how, .err = err,
	};
	cleanup_arena struct rsh_arena scratch = { 0 };
	int rc = adapting_begin(&w, io, &scratch) ? rsh_error_nomem(err) : 0;

	memset(out, 0, how->n * sizeof(*out));
	for (; rc == 0 && w.a < how->n; w.a++)
		rc = adapting_run_one(&w);
	for (uint32_t i = 0; rc == 0 && i < w.n; i++)
		if (w.changes[i].by)
			rc = adapters_change_offer(w.cat, w.arena,
						   &w.changes[i], &w.v[i], err);
	if (rc == 0)
		adapters_tie_finish(&w);
	io->v = w.v;
	io->n = w.n;
	return rc;
}
