/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever the bytes are, a rule table ends in a sentence or converts tensors
 * that have the names of its rules: what is made stays within the tensors that
 * it is made of, and has each element once, or else that ends in a sentence as
 * well. */
#include "fuzz_support.h"

#include <stdio.h>

#include "rsh/weights/weights.h"

#define MAX_SOURCES 200
#define TEXT 4096

struct made_up {
	struct rsh_names *names;
	struct rsh_catalogue *cat;
	struct rsh_offer in[MAX_SOURCES];
	struct rsh_recipe_part parts[MAX_SOURCES];
	struct rsh_factor factors[MAX_SOURCES][RSH_MAX_DIMS];
	uint32_t n;
};

/* ---- tensors that fit the rules, more or less ---- */

static uint64_t size_of(const struct rsh_rule_product *p)
{
	uint64_t n = 1;

	for (uint32_t i = 0; i < p->n; i++)
		n *= 1 + (unsigned char)p->factors[i][0] % 3;
	return n;
}

static uint64_t dim_of(const struct rsh_rule_dim *d)
{
	uint64_t n = d->n_alternatives ? 0 : 1;

	for (uint32_t i = 0; i < d->n_alternatives; i++)
		n += size_of(&d->alternatives[i]);
	return n * size_of(&d->before) * size_of(&d->after);
}

static void say_name(const struct rsh_rule_name *n, unsigned number, char *text)
{
	size_t at = strlen(text);

	for (uint32_t i = 0; i <= n->n_holes && at < TEXT; i++) {
		at += (size_t)snprintf(text + at, TEXT - at, "%s",
				       n->texts[i]);
		if (i < n->n_holes && at < TEXT)
			at += (size_t)snprintf(text + at, TEXT - at, "%u",
					       number);
	}
}

static void add_tensor(struct made_up *m, const char *text,
		       const struct rsh_rule_tensor *t)
{
	uint64_t dims[RSH_MAX_DIMS] = { 4, 6 };
	struct rsh_tensor tensor = {
		.dtype = RSH_DTYPE_BFLOAT16,
		.n_dims = (uint8_t)(t->has_dims ? t->n_dims : 2),
		.dims = dims,
	};
	uint32_t number;

	if (m->n == MAX_SOURCES ||
	    rsh_names_find(m->names, text, strlen(text)) != RSH_NAME_NONE)
		return;
	for (uint32_t d = 0; d < t->n_dims; d++)
		dims[d] = dim_of(&t->dims[d]);
	tensor.name = rsh_names_add(m->names, text, strlen(text));
	require(rsh_catalogue_add(m->cat, &tensor, &number) == 0);
	m->parts[m->n] = rsh_recipe_whole(m->cat, number, NULL,
					  m->factors[m->n]);
	m->in[m->n] = (struct rsh_offer){
		.name = tensor.name, .dtype = tensor.dtype,
		.n_dims = tensor.n_dims,
		.dims = m->cat->tensors[number]->dims,
		.n_parts = 1, .parts = &m->parts[m->n], .boxes = true,
	};
	m->n++;
}

/* Adds a tensor of a rule, below each prefix, with small numbers. */
static void add_named(struct made_up *m, const struct rsh_rule *r, int side,
		      const struct rsh_rule_tensor *t)
{
	for (uint32_t u = 0; u < (r->n_under ? r->n_under : 1); u++)
		for (unsigned number = 0; number < 4; number++) {
			char text[TEXT] = "";

			if (r->n_under && t->name.texts[0][0] == '.')
				say_name(&r->under[u].prefix[side], number,
					 text);
			say_name(&t->name, number, text);
			add_tensor(m, text, t);
		}
}

static void make_up(const struct rsh_rule_table *t, int side,
		    struct made_up *m)
{
	struct rsh_source_view view = { .names = rsh_names_new() };
	const struct rsh_rule *r;

	memset(m, 0, sizeof(*m));
	m->names = view.names;
	m->cat = rsh_catalogue_new(&view);
	for (r = t->rules; r < t->rules + t->n_rules; r++)
		for (uint32_t k = 0; k < r->n_tensors[side]; k++)
			add_named(m, r, side, &r->tensors[side][k]);
}

/* ---- what is made of them ---- */

static uint64_t check_part(const struct made_up *m, const struct rsh_offer *o,
			   const struct rsh_recipe_part *p)
{
	const struct rsh_tensor *t = m->cat->tensors[p->tensor];
	uint64_t shown[RSH_MAX_DIMS], at[RSH_MAX_DIMS], n = 1;

	memcpy(shown, p->shown_from, o->n_dims * sizeof(*shown));
	memcpy(at, p->from, t->n_dims * sizeof(*at));
	for (uint32_t i = 0; i < p->n_factors; i++) {
		const struct rsh_factor *f = &p->factors[i];

		require(f->shown_dim < o->n_dims && f->dim < t->n_dims);
		if (f->size == 0)
			return 0;
		shown[f->shown_dim] += (f->size - 1) * f->shown_step;
		at[f->dim] += (f->size - 1) * f->step;
		n *= f->size;
	}
	for (uint32_t d = 0; d < o->n_dims; d++)
		require(shown[d] < o->dims[d]);
	for (uint32_t d = 0; d < t->n_dims; d++)
		require(at[d] < t->dims[d]);
	return n;
}

static void check_offer(const struct made_up *m, const struct rsh_offer *o)
{
	uint64_t n = 1, have = 0;

	for (uint32_t d = 0; d < o->n_dims; d++)
		n *= o->dims[d];
	for (uint32_t i = 0; i < o->n_parts; i++)
		have += check_part(m, o, &o->parts[i]);
	require(have == n);
}

static void told_made(void *ctx, const struct rsh_offer *offer,
		      const struct rsh_rule *rule, const uint32_t *sources,
		      uint32_t n)
{
	require(n > 0 && (rule || n == 1));
	(void)sources;
	check_offer(ctx, offer);
}

static void told_wrong(void *ctx, const char *sentence)
{
	(void)ctx;
	require(*sentence);
}

static void convert(const struct rsh_rule_table *t,
		    const struct rsh_model_config *config, int side)
{
	static struct made_up m;
	const struct rsh_weights_options o = {
		.table = t, .config = config, .from = side,
		.unlisted = RSH_UNLISTED_ERROR,
	};
	const struct rsh_weights_watch watch = {
		.made = told_made, .wrong = told_wrong, .ctx = &m,
	};
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_arena arena = { 0 };
	struct rsh_offers in, out = { .n = 0 };
	enum rsh_side guessed;
	int rc;

	make_up(t, side, &m);
	(void)rsh_weights_side(t, 0, m.in, m.n, m.names, &guessed, NULL, NULL);
	in = (struct rsh_offers){ m.cat, m.in, m.n };
	rc = rsh_weights_convert(&o, &in, &arena, &out, &err);
	require(rc == 0 || (err.code == -rc && err.text[0]));
	for (uint32_t i = 0; rc == 0 && i < out.n; i++)
		check_offer(&m, &out.v[i]);
	if (rc)
		require(rsh_weights_check(&o, &in, &arena, &watch, &err) < 0);
	rsh_arena_clear(&arena);
	rsh_catalogue_free(m.cat);
	rsh_names_free(m.names);
}

static void told(void *ctx, bool wrong, const char *sentence)
{
	(void)ctx;
	(void)wrong;
	require(*sentence);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char numbers[] =
		"{\"num_hidden_layers\":2,\"num_key_value_heads\":2,"
		"\"num_attention_heads\":4,\"num_experts\":4,"
		"\"qk_nope_head_dim\":2,\"kv_lora_rank\":3}";
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_model_config *config;
	struct rsh_rule_table *t;

	if (rsh_rule_table_parse(data, size, "f", &t, &err)) {
		require(err.code && strncmp(err.text, "f:", 2) == 0);
		return 0;
	}
	require(!rsh_model_config_parse(numbers, sizeof(numbers) - 1, "c",
					&config, NULL));
	(void)rsh_weights_check_table(t, told, NULL);
	for (int s = 0; s < RSH_N_SIDES; s++) {
		convert(t, config, s);
		convert(t, NULL, s);
	}
	rsh_model_config_free(config);
	rsh_rule_table_free(t);
	return 0;
}
