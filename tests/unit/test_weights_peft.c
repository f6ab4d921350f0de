/* SPDX-License-Identifier: Apache-2.0 */
/* Adapters of experts that become those of stacks, and back. */
#include "weights_support.h"

#include "rsh/weights/peft.h"

#define P "base_model.model."
#define AT "l.0.mlp.experts."

static const char table[] =
	"under l.{l} = l.{l}\n"
	".mlp.experts.{e}.gate.weight[f, h] + .mlp.experts.{e}.up.weight[f, h] "
	"= .mlp.experts.gate_up_proj[e, (f | f), h]\n"
	".mlp.experts.{e}.down.weight[h, f] = "
	".mlp.experts.down_proj[e, h, f]\n"
	"l.{l}.turn.weight[x, y] = l.{l}.turned.weight[y, x]\n"
	"rest =\n";
static const char config[] = "{\"peft_type\":\"LORA\",\"r\":2,"
	"\"lora_alpha\":4,\"target_modules\":[\"gate\",\"up\",\"down\"],"
	"\"target_parameters\":[\"experts.gate_up_proj\","
	"\"experts.down_proj\"]}";

struct job {
	struct model m;
	struct rsh_adapter_config *config;
	struct rsh_peft_adapter adapter;
	struct rsh_adapter_module *modules;
	uint32_t n_modules;
};

static int job_take(struct job *j)
{
	struct rsh_offers io = { .cat = j->m.cat, .v = j->m.in, .n = j->m.n };
	int rc = rsh_weights_take_peft(&io, j->config, &j->m.arena,
				       &j->adapter, &j->m.err);

	if (rc == 0) {
		memcpy(j->m.in, io.v, io.n * sizeof(*io.v));
		j->m.n = io.n;
	}
	return rc;
}

static void job_begin_by(struct job *j, const char *by, const char *lines)
{
	memset(j, 0, sizeof(*j));
	model_begin(&j->m, by, NULL);
	model_add_lines(&j->m, lines);
	assert_int_equal(rsh_adapter_config_parse(config, strlen(config), "C",
						  &j->config, &j->m.err), 0);
}

static void job_begin(struct job *j, const char *lines)
{
	job_begin_by(j, table, lines);
}

static void job_end(struct job *j)
{
	rsh_adapter_config_free(j->config);
	model_end(&j->m);
}

static int job_show(struct job *j, enum rsh_side from)
{
	struct rsh_offers io;
	int rc = job_take(j) ?: model_convert(&j->m, from);

	if (rc)
		return rc;
	io = (struct rsh_offers){ .cat = j->m.cat, .v = j->m.out,
				  .n = j->m.n_out };
	rc = rsh_weights_show_peft(&j->adapter, &j->m.arena, &io, &j->modules,
				   &j->n_modules, &j->m.err);
	j->m.out = io.v;
	j->m.n_out = io.n;
	return rc;
}

static const struct rsh_offer *job_offer(const struct job *j, const char *name)
{
	for (uint32_t i = 0; i < j->m.n_out; i++)
		if (strcmp(rsh_names_text(j->m.names, j->m.out[i].name),
			   name) == 0)
			return &j->m.out[i];
	fail_msg("there is no %s", name);
	return NULL;
}

static void assert_shown(struct job *j, enum rsh_side from, const char *lines)
{
	char *made;

	assert_good(job_show(j, from), j->m.err);
	made = model_made(&j->m);
	assert_string_equal(made, lines);
	free(made);
}

static void assert_refused(const char *lines, enum rsh_side from,
			   const char *words)
{
	FREED_BY(job_end) struct job j;

	job_begin(&j, lines);
	if (job_show(&j, from) == 0 || !strstr(j.m.err.text, words))
		fail_msg("\"%s\"; wanted \"%s\"", j.m.err.text, words);
}

/* ---- forms ---- */

/* An expert of hidden size 5 and inner size 3. */
#define APART(e) \
	P AT e ".gate.lora_A.weight 2,5 " P AT e ".gate.lora_B.weight 3,2 " \
	P AT e ".up.lora_A.weight 2,5 " P AT e ".up.lora_B.weight 3,2 " \
	P AT e ".down.lora_A.weight 2,3 " P AT e ".down.lora_B.weight 5,2 "
#define PLAIN P "l.0.q.lora_A.weight 2,5 " P "l.0.q.lora_B.weight 7,2 "

TEST(test_stack)
{
	FREED_BY(job_end) struct job j;
	const struct rsh_offer *b;
	uint32_t n_zeros = 0;

	job_begin(&j, APART("0") APART("1") APART("2") PLAIN);
	assert_shown(&j, RSH_SIDE_HF,
		     P AT "lora_A.weight 6,3\n"
		     P AT "lora_B.weight 5,6\n"
		     P AT "base_layer.lora_A.weight 12,5\n"
		     P AT "base_layer.lora_B.weight 6,12\n"
		     P "l.0.q.lora_A.weight 2,5\n"
		     P "l.0.q.lora_B.weight 7,2\n");
	/* gate and up of three experts, and zeros where each has not the rows
	 * of the other; column k * 3 + e is rank k of expert e. */
	b = job_offer(&j, P AT "base_layer.lora_B.weight");
	assert_int_equal(b->n_parts, 3 * 2 + 2);
	for (uint32_t i = 0; i < b->n_parts; i++) {
		const struct rsh_recipe_part *p = &b->parts[i];

		if (!j.m.cat->tensors[p->tensor]->copies) {
			n_zeros++;
			continue;
		}
		assert_int_equal(p->factors[1].size, 2);
		assert_int_equal(p->factors[1].shown_step, 3);
		assert_int_equal(p->shown_from[1] / 6, p->shown_from[0] / 3);
	}
	assert_int_equal(n_zeros, 2);
	for (uint32_t i = 0; i < j.n_modules; i++)
		assert_int_equal(j.modules[i].rank, strstr(j.modules[i].name,
				 "gate_up") ? 4 : 2);
}

/* The last of the parameters of a module is outside, whichever they are. */
TEST(test_other_stacks)
{
	static const char by[] =
		"l.{l}.mlp.experts.{e}.up.weight[f, h] = "
		"l.{l}.mlp.experts.up_proj[e, f, h]\n"
		"l.{l}.mlp.experts.{e}.down.weight[h, f] = "
		"l.{l}.mlp.experts.down_proj[e, h, f]\n"
		"l.{l}.mlp.experts.{e}.gate.weight[f, h] = "
		"l.{l}.mlp.experts.gates[e, f, h]\n";
#define UP P AT "0.up.lora_A.weight 2,5 " P AT "0.up.lora_B.weight 3,2 "
#define DOWN P AT "0.down.lora_A.weight 2,3 " P AT "0.down.lora_B.weight 5,2 "
#define GATE P AT "0.gate.lora_A.weight 2,5 " P AT "0.gate.lora_B.weight 3,2 "
	static const struct {
		const char *lines, *made; /* NULL: it is refused */
	} v[] = {
		{ UP DOWN, P AT "lora_A.weight 2,3\n" P AT "lora_B.weight 5,2\n"
		  P AT "base_layer.lora_A.weight 2,5\n"
		  P AT "base_layer.lora_B.weight 3,2\n" },
		{ UP, P AT "lora_A.weight 2,5\n" P AT "lora_B.weight 3,2\n" },
		{ DOWN, P AT "lora_A.weight 2,3\n" P AT "lora_B.weight 5,2\n" },
		{ GATE, NULL },
	};

	for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); i++) {
		FREED_BY(job_end) struct job j;

		job_begin_by(&j, by, v[i].lines);
		if (v[i].made) {
			assert_shown(&j, RSH_SIDE_HF, v[i].made);
			continue;
		}
		assert_int_equal(job_show(&j, RSH_SIDE_HF), -ENOTSUP);
		assert_string_equal(j.m.err.text, "adapters of l.0.mlp.experts."
				    "gates are not supported");
	}
}

TEST(test_apart)
{
	FREED_BY(job_end) struct job j;
	const struct rsh_offer *a, *b;

	job_begin(&j, P AT "base_layer.lora_A.weight 4,5 "
		  P AT "base_layer.lora_B.weight 6,4 "
		  P AT "lora_A.weight 4,3 " P AT "lora_B.weight 5,4 ");
	assert_shown(&j, RSH_SIDE_MINDSPORE,
		     P AT "0.down.lora_A.weight 2,3\n"
		     P AT "0.down.lora_B.weight 5,2\n"
		     P AT "0.gate.lora_A.weight 2,5\n"
		     P AT "0.gate.lora_B.weight 3,2\n"
		     P AT "0.up.lora_A.weight 2,5\n"
		     P AT "0.up.lora_B.weight 3,2\n"
		     P AT "1.down.lora_A.weight 2,3\n"
		     P AT "1.down.lora_B.weight 5,2\n"
		     P AT "1.gate.lora_A.weight 2,5\n"
		     P AT "1.gate.lora_B.weight 3,2\n"
		     P AT "1.up.lora_A.weight 2,5\n"
		     P AT "1.up.lora_B.weight 3,2\n");
	/* Both parts have all ranks of the expert. */
	a = job_offer(&j, P AT "1.up.lora_A.weight");
	assert_int_equal(a->parts->from[0], 2);
	b = job_offer(&j, P AT "1.up.lora_B.weight");
	assert_int_equal(b->parts->from[0], 3);
	assert_int_equal(b->parts->from[1], 1);
	assert_int_equal(b->parts->factors[1].step, 2);
}

TEST(test_names)
{
	FREED_BY(job_end) struct job j;

	/* Other tensors may have any number of dimensions. */
	job_begin(&j, P "l.0.norm.weight 5 " P "conv 1,2,1,3,1 " P "scale "
		  PLAIN P "e.lora_embedding_A 2,9 "
		  P "e.lora_embedding_B 5,2 ");
	assert_shown(&j, RSH_SIDE_HF,
		     P "e.lora_embedding_A 2,9\n" P "e.lora_embedding_B 5,2\n"
		     P "l.0.q.lora_A.weight 2,5\n" P "l.0.q.lora_B.weight 7,2\n"
		     P "conv 1,2,1,3,1\n" P "l.0.norm.weight 5\n"
		     P "scale\n");
	assert_int_equal(j.n_modules, 2);
}

/* ---- what is no adapter ---- */

TEST(test_refused)
{
	assert_refused("x.lora_A.weight 2,5", RSH_SIDE_HF,
		       "does not begin with " P);
	assert_refused(P "q.lora_A.weight 2,5", RSH_SIDE_HF,
		       "q.lora_B.weight is missing");
	assert_refused(P "q.lora_B.weight 5,2", RSH_SIDE_HF,
		       "q.lora_A.weight is missing");
	assert_refused(P "q.lora_A.weight 3,5 " P "q.lora_B.weight 5,3",
		       RSH_SIDE_HF, "the rank in adapter_config.json is 2");
	assert_refused(P "q.lora_A.weight 2,5 " P "q.lora_B.weight 5,3",
		       RSH_SIDE_HF, "has 2 rows, its other matrix has 3");
	assert_refused(P "q.lora_A.weight 0,5 " P "q.lora_B.weight 5,0",
		       RSH_SIDE_HF, "has 0 rows");
	assert_refused(P AT "lora_A.weight 3,5 " P AT "lora_B.weight 5,3",
		       RSH_SIDE_MINDSPORE, "the rank in");
	assert_refused(P "q.lora_x 2", RSH_SIDE_HF,
		       "is a part of an adapter that is not supported");
	assert_refused(P AT "base_layer.base_layer.lora_A.weight 4,5 "
		       P AT "base_layer.base_layer.lora_B.weight 6,4",
		       RSH_SIDE_MINDSPORE, "is not the name of a parameter");
	assert_refused(P "l.0.turn.lora_A.weight 2,5 "
		       P "l.0.turn.lora_B.weight 7,2", RSH_SIDE_HF,
		       "PEFT has no adapter that is equal");
	assert_refused(APART("0") P AT "1.down.lora_A.weight 2,3 "
		       P AT "1.down.lora_B.weight 5,2 "
		       P AT "1.gate.lora_A.weight 2,5 "
		       P AT "1.gate.lora_B.weight 3,2 ", RSH_SIDE_HF,
		       "1.up.weight is missing");
}
