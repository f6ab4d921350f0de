/* SPDX-License-Identifier: Apache-2.0 */
/* Which parameters are weights, and which are states or counters of an
 * optimizer. */

#include "rsh/plan/kinds.h"
#include "tests.h"

#define MAX 512

/* Parameters, and a letter for the kind that each must have. */
struct tree {
	struct rsh_names *names;
	struct rsh_ckpt_index *ix;
	struct rsh_kinds *kinds;
	char is[MAX];
};

static const char letters[] = {
	[RSH_KIND_WEIGHT] = 'W', [RSH_KIND_STATE] = 'S',
	[RSH_KIND_COUNTER] = 'C', [RSH_KIND_GRADIENT] = 'G',
};

static void tree_begin(struct tree *t)
{
	*t = (struct tree){ .names = rsh_names_new(),
			    .ix = rsh_ckpt_index_new(MAX, 1, 4 * MAX) };
	assert_non_null(t->ix);
}

/* Adds a parameter; dims are as "4,3", or "-". */
static void tree_add(struct tree *t, const char *name, const char *dims,
		     char is)
{
	struct rsh_record *r = &t->ix->records[t->ix->n_records];

	assert_true(t->ix->n_records < MAX);
	t->is[t->ix->n_records++] = is;
	*r = (struct rsh_record){
		.name = rsh_names_add(t->names, name, strlen(name)),
		.first_dim = t->ix->n_dims,
	};
	while (*dims != '-' && *dims) {
		char *end;

		t->ix->dims[t->ix->n_dims++] = strtol(dims, &end, 10);
		r->n_dims++;
		dims = *end ? end + 1 : end;
	}
}

static void tree_judge(struct tree *t)
{
	const struct rsh_ckpt_index *index = t->ix;

	t->kinds = rsh_kinds_new(t->names, &index, 1);
	assert_non_null(t->kinds);
}

static void tree_end(struct tree *t)
{
	rsh_kinds_free(t->kinds);
	rsh_ckpt_index_free(t->ix);
	rsh_names_free(t->names);
}

/* Compares the kinds of a tree; '*' is a state or a counter. */
static void tree_check(struct tree *t, const char *title)
{
	tree_judge(t);
	for (uint32_t i = 0; i < t->ix->n_records; i++) {
		const uint32_t name = t->ix->records[i].name;
		const char *text = rsh_names_text(t->names, name);
		const char is = letters[rsh_kinds_of(t->kinds, name, text)];

		if (is != t->is[i] &&
		    !(t->is[i] == '*' && (is == 'S' || is == 'C')))
			fail_msg("%s: %s is %c and not %c", title, text, is,
				 t->is[i]);
		assert_int_equal(rsh_kinds_of_text(t->kinds, text),
				 rsh_kinds_of(t->kinds, name, text));
	}
}

static void check_order(const char *all, const char *says, bool backwards)
{
	char text[4096], *at = text, *one[64];
	FREED_BY(tree_end) struct tree t;
	unsigned n = 0;

	tree_begin(&t);
	snprintf(text, sizeof(text), "%s", all);
	while ((one[n] = strsep(&at, " ")))
		n += *one[n] != 0;
	for (unsigned i = 0; i < n; i++) {
		char *name = one[backwards ? n - 1 - i : i];
		char *dims = strchr(name, ':'), *is = strchr(name, '=');

		*dims = *is = 0;
		tree_add(&t, name, dims + 1, is[1]);
	}
	tree_check(&t, all);
	if (!says)
		assert_string_equal(rsh_kinds_doubt(t.kinds) ?: "", "");
	else if (!rsh_kinds_doubt(t.kinds) ||
		 (!backwards && !strstr(rsh_kinds_doubt(t.kinds), says)))
		fail_msg("%s: %s", all, rsh_kinds_doubt(t.kinds));
}

/* Checks parameters "NAME:DIMS=KIND ..."; `says` is a part of the doubt, NULL:
 * there is none.  In another order they have the same kinds, and the doubt may
 * name another one. */
static void check(const char *all, const char *says)
{
	check_order(all, says, false);
	check_order(all, says, true);
}

/* ---- optimizers ---- */

TEST(optimizers_of_mindspore)
{
	const char *dir = getenv("srcdir");
	char path[4096], line[512], title[512] = "", kind, name[400], dims[80];
	unsigned n = 0;
	struct tree t;
	FILE *f;

	snprintf(path, sizeof(path), "%s/unit/data/optimizer_states",
		 dir ? dir : ".");
	f = fopen(path, "r");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		if (line[0] == '=') {
			if (n++ > 0) {
				tree_check(&t, title);
				tree_end(&t);
			}
			tree_begin(&t);
			strcpy(title, line);
		} else if (sscanf(line, "%c %399s %79s", &kind, name,
				  dims) == 3 && line[0] != '#') {
			tree_add(&t, name, dims, kind == 'w' ? 'W' : '*');
		}
	}
	tree_check(&t, title);
	tree_end(&t);
	fclose(f);
	assert_true(n >= 35);
}

TEST(optimizers_that_no_list_has)
{
	check("a.w:4,3=W b.w:4=W sophia_h.a.w:4,3=S sophia_h.b.w:4=S "
	      "sophia_t:1=C",
	      "sophia_h.b.w is taken for an optimizer state, as all that begin "
	      "with sophia_h.; sophia_t has one element, and is taken for a "
	      "counter of the optimizer");
	check("a.w:4,3=W b.w:4=W ms_rowsum_a.w:4=S ms_rowsum_b.w:1=S",
	      "ms_rowsum_");
	/* Some weights are frozen, or have a state of another kind. */
	check("e.w:9,3=W a.w:4,3=W b.w:4,3=W c.w:4=W d.w:4,3=W "
	      "soap_q.a.w:4,3=S soap_q.b.w:4,3=S soap_q.d.w:4,3=S "
	      "soap_q.placeholder.3:1=S", "with soap_q.");
	/* The weight alone. */
	check("w:2,2=W zeta.w:2,2=S zeta_w:2,2=S", "with zeta.");
}

TEST(names_of_modules_that_are_prefixes)
{
	check("a.w:4,3=W adam_m.a.w:4,3=S linear.w:4,3=W prev.b:4=W "
	      "stat.w:2,2=W", NULL);
	check("a.w:4,3=W linear.a.w:4,3=S moments.a.w:4,3=S mu_a.w:-=S "
	      "linear.w:2,2=W", NULL);
	/* A module in one that has a weight itself. */
	check("weight:4=W bias:4=W linear.weight:5,4=W linear.bias:5=W", NULL);
	check("weight:4,3=W linear.weight:5,4=W linear.bias:5=W", NULL);
	/* States, or a module of the same shape. */
	check("weight:4=W bias:4=W linear.weight:4=S linear.bias:4=S",
	      "taken for an optimizer state, as all that begin with linear.");
	check("a.w:4,3=W prev.a.w:4,3=S", "begin with prev.");
}

/* ---- weights ---- */

TEST(parts_of_models_are_weights)
{
	check("embed.weight:8,4=W layers.0.w:4,4=W encoder.embed.weight:8,4=W "
	      "encoder.layers.0.w:4,4=W", "with encoder.");
	check("embed.weight:8,4=W layers.0.w:4,4=W side.embed.weight:8,4=W "
	      "side.layers.1.w:4,4=W", NULL);
	check("x.w:4,4=W y.w:4,4=W model.x.w:4,4=W model.y.w:4,4=W",
	      "with model.");
	/* The norms of queries and keys, and a part with one of many names. */
	check("norm.weight:4=W q_norm.weight:4=W k_norm.weight:4=W "
	      "q_proj.weight:4,4=W k_proj.weight:4,4=W", NULL);
	check("dense.w:4,4=W a.w:4,4=W b.w:4,4=W c.w:4,4=W pool.dense.w:4,4=W",
	      "pool.dense.w is taken for a weight, as all that begin with "
	      "pool., although the rest is the name of another one");
	/* Other dimensions. */
	check("w:4,4=W up.w:2,2,4,4=W", NULL);
}

TEST(numbers_of_models_are_weights)
{
	/* No optimizer is there. */
	check("logit_scale:1=W a.w:4,4=W temperature:-=W", NULL);
	/* It is trained, or in a module. */
	check("logit_scale:1=W a.w:4,4=W hc.alpha:1=W adam_m.logit_scale:1=S "
	      "adam_m.a.w:4,4=S my_step:1=C", "my_step");
	check("bn.num_batches_tracked:-=W a.w:4=W moments.a.w:4=S", NULL);
}

TEST(a_cell_of_the_user)
{
	check("optimizer.a.w:4,4=W optimizer.a.b:4=W", NULL);
	check("optimizer.a.w:4,4=W optimizer.global_step:1=C "
	      "optimizer.adam_m.a.w:4,4=S optimizer.exp_avg_sq_row_a.w:4=S "
	      "optimizer.step:1=C", "step");
	check("a.w:4,4=W optimizer.a.w:4,4=S optimizer.global_step:1=S", NULL);
	/* A flattened dictionary has no weight. */
	check("optimizer.state.exp_avg.a.w:4,4=S "
	      "optimizer.param_groups.lr:1=S", NULL);
}

/* What programs save with torch.save() beside a model. */
TEST(a_training_state)
{
	check("model_state_dict.a.w:4,4=W model_state_dict.b:1=W "
	      "optimizer_state_dict.state.0.exp_avg:4,4=S "
	      "optimizer_state_dict.state.0.step:1=S "
	      "scheduler_state_dict.rate:2=C", NULL);
	check("state_dict.a.w:4,4=W state_dict.b:4=W "
	      "optimizer_states.0.state.0.exp_avg:4,4=S "
	      "lr_schedulers.0.rate:2=C callbacks.best.score:2,2=C "
	      "loops.fit.x:2,2=C", NULL);
	/* Modules of a model. */
	check("loops.0.w:4,4=W callbacks.w:4,4=W", NULL);
}

TEST(names_in_no_file)
{
	FREED_BY(tree_end) struct tree t;

	tree_begin(&t);
	tree_add(&t, "w", "2,2", 'W');
	tree_check(&t, "w");
	assert_int_equal(rsh_kinds_of_text(t.kinds, "adam_m.v"),
			 RSH_KIND_STATE);
	assert_int_equal(rsh_kinds_of_text(t.kinds, "zeta.w"),
			 RSH_KIND_WEIGHT);
	assert_int_equal(rsh_kinds_of_text(NULL, "accu_grads.w"),
			 RSH_KIND_GRADIENT);
}
