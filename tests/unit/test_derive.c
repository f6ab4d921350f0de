/* SPDX-License-Identifier: Apache-2.0 */
/* Derived strategies against those that MindSpore planned. */
#include "strategy_support.h"

#include <dirent.h>

#include <jansson.h>

#include "rsh/strategy/derive.h"

#define MAX_OPTIONS 8

struct option {
	enum rsh_derive_option which;
	const char *text;
};

#define MESH(text) { RSH_DERIVE_MESH, text }
#define SRC_MESH(text) { RSH_DERIVE_SRC_MESH, text }
#define OPT(text) { RSH_DERIVE_OPT, text }
#define SPLIT(text) { RSH_DERIVE_SPLIT, text }
#define AXES(text) { RSH_DERIVE_AXES, text }
#define STAGE(text) { RSH_DERIVE_STAGE, text }
#define LAYERS(text) { RSH_DERIVE_LAYERS, text }
#define INCLUDE(text) { RSH_DERIVE_OPT_INCLUDE, text }
#define EXCLUDE(text) { RSH_DERIVE_OPT_EXCLUDE, text }
#define DROP(text) { RSH_DERIVE_DROP, text }

/* ---- sets on disk ---- */

static const char *sets_dir(void)
{
	static char path[512];

	snprintf(path, sizeof(path), "%s/data/strategies", getenv("srcdir"));
	return path;
}

static void *load(const char *path, size_t *len)
{
	FILE *f = fopen(path, "rb");
	char *data = malloc(1 << 20);

	if (!f)
		fail_msg("%s: cannot be opened", path);
	assert_non_null(data);
	*len = fread(data, 1, 1 << 20, f);
	fclose(f);
	return data;
}

static bool is_stage_file(const char *name)
{
	return strncmp(name, "strategy_stage_", 15) == 0;
}

static struct rsh_strategy *load_set(struct rsh_names *names, const char *set)
{
	struct rsh_strategy_file **files = calloc(8, sizeof(*files));
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_strategy *s = NULL;
	const struct dirent *e;
	char dir[600], path[900];
	uint32_t n = 0;
	DIR *d;

	assert_non_null(files);
	snprintf(dir, sizeof(dir), "%s/%s", sets_dir(), set);
	d = opendir(dir);
	assert_non_null(d);
	while ((e = readdir(d))) {
		cleanup_free void *data = NULL;
		size_t len;

		if (!is_stage_file(e->d_name))
			continue;
		snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
		data = load(path, &len);
		if (rsh_strategy_parse(data, len, path, &files[n++], &err))
			fail_msg("%s", err.text);
	}
	closedir(d);
	if (rsh_strategy_merge(&(struct rsh_strategy_set){ files, n,
				RSH_STRATEGY_DIR, set }, names, &s,
			       &err))
		fail_msg("%s", err.text);
	return s;
}

/* A checkpoint may have none that begin so; NULL: it has all. */
static const char *missing;

/* The whole tensors of the set's job, as one file would hold them. */
static struct rsh_derive_shapes *load_shapes(struct rsh_names *names,
					     const char *set)
{
	struct rsh_derive_shapes *shapes = rsh_derive_shapes_new();
	struct rsh_error err = RSH_ERROR_INIT;
	struct tensor tensors[512] = { 0 };
	static int64_t dims[512][4];
	struct rsh_ckpt_index *index;
	cleanup_free void *data = NULL;
	char path[700];
	json_t *list, *one, *size;
	size_t i, k, len, n = 0;

	snprintf(path, sizeof(path), "%s/%s/parameters.json", sets_dir(), set);
	data = load(path, &len);
	list = json_loadb(data, len, 0, NULL);
	assert_true(json_array_size(list) < 512);
	json_array_foreach(list, i, one) {
		const char *name = json_string_value(json_array_get(one, 0));
		json_t *shape = json_array_get(one, 1);

		if (missing && strncmp(name, missing, strlen(missing)) == 0)
			continue;
		tensors[n].name = name;
		tensors[n].dtype = RSH_DTYPE_FLOAT32;
		tensors[n].dims = dims[n];
		tensors[n].n_dims = (uint32_t)json_array_size(shape);
		json_array_foreach(shape, k, size)
			dims[n][k] = json_integer_value(size);
		n++;
	}
	if (missing)
		assert_true(n < json_array_size(list));
	index = make_index(names, tensors);
	if (rsh_derive_shapes_add(shapes, NULL, 0, index, names, &err))
		fail_msg("%s", err.text);
	rsh_ckpt_index_free(index);
	json_decref(list);
	return shapes;
}

/* ---- comparing ---- */

static const struct rsh_strategy_item *
item_of(const struct rsh_strategy *s, struct rsh_names *names,
	const struct rsh_staged_item *staged)
{
	uint32_t name = rsh_names_find(names, staged->item.name,
				       strlen(staged->item.name));
	const struct rsh_strategy_param *p =
		name == RSH_NAME_NONE ? NULL : rsh_strategy_find(s, name);

	for (uint32_t i = 0; p && i < p->n_stages; i++)
		if (p->stages[i].stage == staged->stage)
			return p->stages[i].item;
	return NULL;
}

static bool same_layout(const struct rsh_strategy_item *a,
			const struct rsh_strategy_item *b)
{
	struct rsh_strategy_item x = *a, y = *b;

	x.n_shape = y.n_shape = 0;
	return rsh_item_same_layout(&x, &y);
}

/* Where they differ, "" if nowhere. */
static const char *difference(const struct rsh_derived *d,
			      const struct rsh_strategy *want,
			      struct rsh_names *names)
{
	static char text[1024];
	char a[256], b[256];
	size_t n = 0;

	for (uint32_t i = 0; i < want->n_params; i++)
		n += want->params[i].n_stages;
	for (size_t i = 0; i < d->items.n; i++) {
		const struct rsh_strategy_item *item =
			item_of(want, names, &d->items.v[i]);

		if (item && same_layout(item, &d->items.v[i].item))
			continue;
		snprintf(text, sizeof(text), "stage %u %s: %s, not %s",
			 d->items.v[i].stage, d->items.v[i].item.name,
			 rsh_item_text(&d->items.v[i].item, a, sizeof(a)),
			 item ? rsh_item_text(item, b, sizeof(b)) :
				"listed there");
		return text;
	}
	snprintf(text, sizeof(text), "%zu parameters, not %zu", d->items.n, n);
	return d->items.n == n ? "" : text;
}

/* ---- deriving ---- */

struct job {
	struct rsh_names *names;
	struct rsh_strategy *src;
	struct rsh_derive_shapes *shapes;
	struct rsh_derived *derived;
	struct rsh_error err;
};

static int job_run(struct job *j, const char *src, const char *shapes,
		   const struct option *options)
{
	struct rsh_derive_options *o = rsh_derive_options_new();
	int rc;

	*j = (struct job){ .names = rsh_names_new() };
	j->src = src ? load_set(j->names, src) : NULL;
	j->shapes = shapes ? load_shapes(j->names, shapes) : NULL;
	for (const struct option *p = options; p->text; p++)
		if (rsh_derive_options_set(o, p->which, p->text, &j->err))
			fail_msg("%s", j->err.text);
	rc = rsh_strategy_derive(j->src, j->shapes, o, j->names, &j->derived,
				 &j->err);
	assert_int_equal(rc, rc ? -EINVAL : 0);
	rsh_derive_options_free(o);
	return rc;
}

static void job_end(struct job *j)
{
	rsh_derived_free(j->derived);
	rsh_derive_shapes_free(j->shapes);
	rsh_strategy_free(j->src);
	rsh_names_free(j->names);
}

/* The shapes are known, or, but for unsharded sources, not. */
static void assert_derives(const char *src, const char *dst, bool shapes,
			   const struct option *options)
{
	FREED_BY(job_end) struct job j;
	int rc = job_run(&j, src, shapes || !src ? src ? src : dst : NULL,
			 options);
	struct rsh_strategy *want;
	const char *diff;

	if (rc)
		fail_msg("%s to %s: %s", src ? src : "none", dst, j.err.text);
	want = load_set(j.names, dst);
	assert_int_equal(j.derived->items.n_stages, want->n_stages);
	assert_int_equal(j.derived->stage_ranks, want->stage_ranks);
	diff = difference(j.derived, want, j.names);
	if (*diff)
		fail_msg("%s to %s: %s", src ? src : "none", dst, diff);
	rsh_strategy_free(want);
}

static void assert_refuses(const char *src, bool shapes,
			   const struct option *options, const char *sentence)
{
	FREED_BY(job_end) struct job j;

	if (!job_run(&j, src, shapes ? src : NULL, options))
		fail_msg("%s: not refused; expected: %s", src, sentence);
	if (!strstr(j.err.text, sentence))
		fail_msg("\"%s\", not \"%s\"", j.err.text, sentence);
}

#define DERIVES(src, dst, shapes, ...) \
	assert_derives(src, dst, shapes, (const struct option[]){ __VA_ARGS__, { 0, NULL } })
#define REFUSES(src, shapes, sentence, ...) \
	assert_refuses(src, shapes, (const struct option[]){ __VA_ARGS__, { 0, NULL } }, sentence)

/* ---- the small network ---- */

/* Plain sets: mesh and optimizer shard say all there is to say. */
static const struct plain {
	const char *name, *mesh, *opt;
	bool splits; /* model parallel: what is split shows in it */
} plain[] = {
	{ "dp2mp2", "dp=2,mp=2", "0", true },
	{ "dp2mp4", "dp=2,mp=4", "0", true },
	{ "dp2mp4_json", "dp=2,mp=4", "0", true },
	{ "dp6mp4", "dp=6,mp=4", "0", true },
	{ "dp4mp2_opt", "dp=4,mp=2", "-1", true },
	{ "dp4mp2_opt2", "dp=4,mp=2", "2", true },
	{ "mp4", "mp=4", "0", true },
	{ "mp8", "mp=8", "0", true },
	{ "pp2dp2mp2", "dp=2,mp=2,pp=2", "0", true },
	{ "pp2dp2mp2_json", "dp=2,mp=2,pp=2", "0", true },
	{ "pp2dp2mp2_opt", "dp=2,mp=2,pp=2", "-1", true },
	{ "pp2mp4", "mp=4,pp=2", "0", true },
	{ "pp4mp2", "mp=2,pp=4", "0", true },
	{ "pp3mp8", "mp=8,pp=3", "0", true },
	{ "dp4", "dp=4", "0", false },
	{ "dp8_opt", "dp=8", "-1", false },
};
#define N_PLAIN (sizeof(plain) / sizeof(*plain))

/* Every set from every other one. */
TEST(test_plain_sets)
{
	for (size_t s = 0; s < N_PLAIN; s++)
		for (size_t t = 0; t < N_PLAIN; t++) {
			bool uneven = strstr(plain[t].name, "pp3") && s != t;

			if (!plain[s].splits && plain[t].splits)
				continue;
			assert_derives(plain[s].name, plain[t].name, true,
				       (const struct option[]){
					       MESH(plain[t].mesh),
					       OPT(plain[t].opt),
					       { RSH_DERIVE_LAYERS,
						 uneven ? "2,1,1" : NULL },
					       { 0, NULL } });
		}
}

/* What the source alone tells is enough where neither sizes nor the order of
 * parameters are asked for. */
TEST(test_without_shapes)
{
	DERIVES("mp8", "dp2mp4", false, MESH("dp=2,mp=4"));
	DERIVES("dp2mp2", "mp8", false, MESH("mp=8"));
	DERIVES("dp4mp2_opt", "pp2dp2mp2", false, MESH("dp=2,mp=2,pp=2"),
		OPT("0"), STAGE("^emb=first"), STAGE("^(ln_f|head)=last"));
	DERIVES("pp2mp4", "pp4mp2", false, MESH("mp=2,pp=4"));
	DERIVES("pp2dp2mp2_opt", "dp4mp2_opt2", false, MESH("dp=4,mp=2"),
		OPT("2"));
	/* Slices of what was cut finely can be cut coarsely. */
	DERIVES("dp8_opt", "dp4", false, MESH("dp=4"), OPT("0"));
	/* JSON files tell sizes. */
	DERIVES("dp2mp4_json", "dp4mp2_opt", false, MESH("dp=4,mp=2"),
		OPT("-1"));
	/* The optimizer shard of the source is kept. */
	DERIVES("pp2dp2mp2_opt", "dp4mp2_opt", true, MESH("dp=4,mp=2"));
	DERIVES("dp4mp2_opt2", "dp4mp2_opt2", false, MESH("dp=4,mp=2"));
}

/* States are as large as their parameters, if no checkpoint has them. */
TEST(test_weights_alone)
{
	missing = "adam_";
	DERIVES("mp8", "dp4mp2_opt", true, MESH("dp=4,mp=2"), OPT("-1"));
	missing = NULL;
	REFUSES("mp8", false, "give a checkpoint", MESH("dp=4,mp=2"),
		OPT("-1"));
}

/* Every set is what it becomes for its own mesh. */
TEST(test_same_mesh)
{
	static const struct {
		const char *name, *mesh, *src_mesh;
	} sets[] = {
		{ "dp2mp4_layout", "dp=2,mp=4", NULL },
		{ "dp2mp4_layout_json", "dp=2,mp=4", NULL },
		{ "dp2mp4_layout_opt", "dp=2,mp=4", NULL },
		{ "fault_recover_8", "dp=2,mp=4", NULL },
		{ "infer_mp2", "mp=2", NULL },
		{ "mf_3d_mp8_json", "mp=8", "mp=8" },
		{ "mf_3d_mp8x4", "mp=8", "mp=8" },
		{ "mf_dp2mp4", "dp=2,mp=4", NULL },
		{ "mf_dp4mp2_opt", "dp=4,mp=2", NULL },
		{ "mf_dsv3_dp2mp4ep8", "dp=2,mp=4,ep=8", NULL },
		{ "mf_dsv3_dp4mp2ep2_opt", "dp=4,mp=2,ep=2", NULL },
		{ "mf_moe_dp4mp2ep4", "dp=4,mp=2,ep=4", NULL },
		{ "mf_moe_mp8", "mp=8", NULL },
		{ "mf_pp2dp2mp2_opt", "dp=2,mp=2,pp=2", NULL },
		{ "mf_qwen3_dp2mp4", "dp=2,mp=4", NULL },
		{ "mf_qwen3_dp4mp2_opt", "dp=4,mp=2", NULL },
		{ "momentum_dp2mp2", "dp=2,mp=2", NULL },
		{ "mp4_vocab", "mp=4", NULL },
	};

	for (size_t i = 0; i < sizeof(sets) / sizeof(*sets); i++)
		for (int shapes = 0; shapes < 2; shapes++)
			assert_derives(sets[i].name, sets[i].name, shapes,
				       (const struct option[]){
					       MESH(sets[i].mesh),
					       SRC_MESH(sets[i].src_mesh),
					       { 0, NULL } });
}

/* Jobs that differ in more than the mesh: rules say in what. */
TEST(test_rules)
{
	DERIVES("dp2mp4", "mp4_vocab", true, MESH("mp=4"),
		SPLIT("^emb\\.=0:mp"));
	DERIVES("mp4_vocab", "mp8", true, MESH("mp=8"),
		SPLIT("^emb\\.=0:none"));
	DERIVES("pp2dp2mp2_opt", "infer_mp2", false, MESH("mp=2"), OPT("0"),
		DROP("^adam_"));
	DERIVES("dp4", "dp2mp4", true, MESH("dp=2,mp=4"),
		SPLIT("^(head|blocks.*(qkv|up))=0:mp"),
		SPLIT("blocks.*(proj|down)\\.weight=1:mp"));
	/* Axes of a Layout object, under names of one's own. */
	DERIVES("dp2mp4_layout", "dp2mp4_layout_opt", true,
		MESH("dp=2,mp=4,x=2,y=2"), OPT("-1"),
		AXES("(up|down)\\.weight=dp,x,y"));
}

TEST(test_unsharded)
{
	DERIVES(NULL, "dp2mp4", true, MESH("dp=2,mp=4"),
		SPLIT("^(head|blocks.*(qkv|up))=0:mp"),
		SPLIT("blocks.*(proj|down)\\.weight=1:mp"));
	DERIVES(NULL, "dp8_opt", true, MESH("dp=8"), OPT("-1"));
	DERIVES(NULL, "dp4", true, MESH("dp=4"));
}

/* LLaMA exempts its norms from the optimizer shard. */
TEST(test_llama)
{
	static const char vocab[] = "^(model\\.tok_embeddings|lm_head)\\.";
	char split[128], whole[128];

	snprintf(split, sizeof(split), "%s=0:mp", vocab);
	snprintf(whole, sizeof(whole), "%s=0:none", vocab);
	DERIVES("mf_dp2mp4", "mf_dp4mp2_opt", true, MESH("dp=4,mp=2"),
		OPT("-1"), EXCLUDE("norm"), SPLIT(split));
	DERIVES("mf_dp4mp2_opt", "mf_dp2mp4", true, MESH("dp=2,mp=4"),
		OPT("0"), SPLIT(whole));
	/* Its optimizer sorts parameters by weight decay, so that the head
	 * stands before the norms of the first layer. */
	DERIVES("mf_dp4mp2_opt", "mf_pp2dp2mp2_opt", true,
		MESH("dp=2,mp=2,pp=2"), SPLIT(whole), STAGE("^lm_head=last"));
	REFUSES("mf_dp4mp2_opt", true, "it is among the layers",
		MESH("dp=2,mp=2,pp=2"), SPLIT(whole));
	DERIVES("mf_pp2dp2mp2_opt", "mf_dp4mp2_opt", true, MESH("dp=4,mp=2"),
		SPLIT(split));
	DERIVES("mf_pp2dp2mp2_opt", "mf_dp2mp4", false, MESH("dp=2,mp=4"),
		OPT("0"));
	DERIVES("mf_dp2mp4", "mf_pp2dp2mp2_opt", true, MESH("dp=2,mp=2,pp=2"),
		OPT("-1"), EXCLUDE("norm"), STAGE("^lm_head=last"));
	REFUSES("mf_dp4mp2_opt", false, "give a checkpoint of the source",
		MESH("dp=2,mp=2"));
}

/* Layout objects keep mesh axes of size 1, here that of cp. */
TEST(test_kept_meshes)
{
	DERIVES("mf_qwen3_dp2mp4", "mf_qwen3_dp4mp2_opt", true,
		MESH("dp=4,cp=1,mp=2"), OPT("-1"));
	DERIVES("mf_qwen3_dp4mp2_opt", "mf_qwen3_dp2mp4", false,
		MESH("dp=2,mp=4"), OPT("0"));
}

TEST(test_experts)
{
	DERIVES("mf_dsv3_dp2mp4ep8", "mf_dsv3_dp4mp2ep2_opt", true,
		MESH("dp=4,mp=2,ep=2"), OPT("-1"));
	DERIVES("mf_dsv3_dp4mp2ep2_opt", "mf_dsv3_dp2mp4ep8", false,
		MESH("dp=2,mp=4,ep=8"), OPT("0"));
	DERIVES("mf_moe_dp4mp2ep4", "mf_moe_mp8", true, MESH("mp=8,ep=1"),
		SPLIT("tok_embeddings|lm_head=0:none"));
	DERIVES("mf_moe_mp8", "mf_moe_dp4mp2ep4", true, MESH("dp=4,mp=2,ep=4"),
		SPLIT("ffn\\.w[123]=0:ep"), SPLIT("tok_embeddings|lm_head=0:mp"));
	REFUSES("mf_moe_dp4mp2ep4", true, "name ep in the wanted mesh",
		MESH("mp=8"));
	REFUSES("mf_moe_mp8", true, "what ep=4 would split is not known",
		MESH("dp=4,mp=2,ep=4"));
}

/* "map ... optimizer shard ..." of a derived parameter. */
static void assert_becomes(const struct job *j, const char *name,
			   const char *want)
{
	char text[256];

	for (size_t i = 0; i < j->derived->items.n; i++) {
		const struct rsh_strategy_item *it = &j->derived->items.v[i].item;

		if (strcmp(it->name, name))
			continue;
		assert_string_equal(rsh_item_text(it, text, sizeof(text)),
				    want);
		return;
	}
	fail_msg("no %s", name);
}

/* Six rows could not be cut for 8 ranks: exempt, or just too few? */
TEST(test_once_too_small)
{
	static const struct option include[] = { MESH("dp=2"),
						 INCLUDE("q_layernorm"),
						 EXCLUDE("k_layernorm"),
						 { 0, NULL } };
	static const char name[] =
		"adam_m.decoder.layers.2.self_attention.q_layernorm.weight";
	struct job j;

	REFUSES("mf_qwen3_dp4mp2_opt", true,
		"use --opt-include or --opt-exclude", MESH("dp=2"));
	assert_int_equal(job_run(&j, "mf_qwen3_dp4mp2_opt",
				 "mf_qwen3_dp4mp2_opt", include), 0);
	assert_becomes(&j, name,
		       "mesh [2,1,1] map [-1] optimizer shard -1");
	assert_becomes(&j, "decoder.layers.2.self_attention.k_layernorm.weight",
		       "mesh [2,1,1] map [-1]");
	job_end(&j);
	/* Finer slices than those that were too fine are too fine as well. */
	assert_int_equal(job_run(&j, "mf_qwen3_dp4mp2_opt", NULL,
				 (const struct option[]){ MESH("dp=4,mp=2"),
							  OPT("8"),
							  { 0, NULL } }),
			 0);
	assert_becomes(&j, name, "mesh [4,1,2] map [-1]");
	job_end(&j);
}

/* What the source does not determine is not made up. */
TEST(test_refused)
{
	REFUSES("dp2mp2", true, "no mesh is given", OPT("0"));
	REFUSES("dp4", true, "what mp=2 would split is not known",
		MESH("dp=2,mp=2"));
	REFUSES("dp2mp2", true, "how its 4 layers are distributed over 3 stages",
		MESH("mp=8,pp=3"));
	REFUSES("dp2mp2", true, "the model has 4", MESH("mp=8,pp=3"),
		LAYERS("2,2,1"));
	REFUSES("dp2mp2", true, "layers of 2 stages are given",
		MESH("mp=8,pp=3"), LAYERS("2,2"));
	REFUSES("dp2mp2", false, "its pipeline stage is not known",
		MESH("mp=8,pp=2"));
	REFUSES("dp2mp2", true, "there are 2", MESH("mp=8,pp=2"),
		STAGE("emb=2"));
	REFUSES("dp2mp2", true, "cannot be cut into 5", MESH("mp=5"));
	REFUSES("dp2mp2", false, "does not tell its size", MESH("dp=4,mp=2"),
		OPT("-1"));
	REFUSES("dp2mp4_layout", true, "use --axes, as in", MESH("dp=4,mp=2"));
	REFUSES("mf_3d_mp8x4", true, "give the job's mesh", MESH("mp=4"));
	REFUSES("dp2mp4", true, "the given mesh of the source has 4",
		MESH("mp=4"), SRC_MESH("mp=4"));
	REFUSES("dp2mp4", true, "which the wanted mesh does not have",
		MESH("mp=4"), SPLIT("emb=0:ep2"));
	REFUSES("dp2mp4", true, "the tensor has 1", MESH("mp=4"),
		SPLIT("bias=1:mp"));
	REFUSES("dp2mp4", true, "no parameter is left", MESH("mp=4"),
		DROP("."));
	REFUSES("dp2mp4", true, "do not multiply to the 12 ranks",
		MESH("dp=2,cp=3,mp=2"));
}
