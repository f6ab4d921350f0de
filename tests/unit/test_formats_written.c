/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_formats_written.c - what an output shows, its format reads: the same
 * tensors come back, whatever the mesh or the number of files. */
#include "config.h"

#include <unistd.h>

#include "rsh/formats/formats.h"
#include "rsh/formats/outputs.h"
#include "rsh/formats/torch.h"
#include "shown_support.h"

struct case_of {
	const char *name;
	struct torch_text files[4];
	const struct rsh_output *output;
	const char *prefix, *mesh;
	uint64_t part_bytes;
	uint32_t n_ranks; /* 0: one */
	const char *has; /* a file that is written */
	bool own; /* its strategy is in it */
};

static void check(const struct case_of *c)
{
	cleanup_tree char *tree = tree_make(), *to = tree_make();
	const struct rsh_vfs_config cfg = {
		.output = c->output, .mesh = c->mesh,
		.plan = { .part_bytes = c->part_bytes, .replicas = true,
			  .n_shown_ranks = c->n_ranks },
		.tree.prefix = c->prefix ? c->prefix : "",
	};
	char path[4096], *before, *after;
	struct stat st;
	int rc;

	torch_write_all(tree, c->files);
	before = shown(tree, "", (struct rsh_vfs_config){ 0 }, &rc);
	if (rc)
		fail_msg("%s", before);
	shown_write(tree, "", cfg, to);
	snprintf(path, sizeof(path), "%s/%s", to, c->has);
	if (stat(path, &st))
		fail_msg("%s is not there", c->has);
	after = shown(to, "", (struct rsh_vfs_config){
		.src.from = c->own ? RSH_FROM_SOURCE : RSH_FROM_NONE }, &rc);
	assert_string_equal(after, before);
	free(before);
	free(after);
}

/* ---- any names ---- */

#define MODEL \
	{ "./model.safetensors", \
	  "a.weight F32[3,5]=1; b.weight BF16[4]=7; c I64[2]=3; d U8[0]; " \
	  "e F64[]=9; f.bias I32[1,2,3]=4" }

static const struct case_of any[] = {
	{ "ckpt", { MODEL }, &rsh_output_ckpt, "n-1_1_", NULL, 0, 0,
	  "rank_0/n-1_1_0.ckpt" },
	{ "ckpt_of_three_ranks", { MODEL }, &rsh_output_ckpt, "n", NULL, 0, 3,
	  "rank_2/n2.ckpt" },
	{ "safetensors", { MODEL }, &rsh_output_safetensors, "n", NULL, 0, 0,
	  "rank_0/n0.safetensors" },
	{ "hf_in_one_part", { MODEL }, &rsh_output_hf, NULL, NULL, 1 << 20, 0,
	  "model-00001-of-00001.safetensors" },
	{ "hf_in_parts", { MODEL }, &rsh_output_hf, NULL, NULL, 24, 0,
	  "model.safetensors.index.json" },
	{ "dcp", { MODEL }, &rsh_output_dcp, NULL, NULL, 1 << 20, 0,
	  "__0_0.distcp" },
	{ "dcp_in_parts", { MODEL }, &rsh_output_dcp, NULL, NULL, 24, 0,
	  "__0_1.distcp" },
	{ "checkpoint2", { MODEL }, &rsh_output_checkpoint2, "n", NULL, 0, 0,
	  "latest_checkpointed_iteration.txt", true },
	{ "checkpoint2_of_two_ranks", { MODEL }, &rsh_output_checkpoint2, "n",
	  NULL, 0, 2, "latest_checkpointed_iteration.txt", true },
	{ "hyperparallel", { MODEL }, &rsh_output_hyperparallel, NULL, NULL,
	  1 << 20, 0, "_rank0_.safetensors" },
};

TEST_ROWS(any)
{
	check(*state);
}

/* ---- ranks of a strategy ---- */

#define ITEM(name, mesh, map, shape, shard) \
	"\"" name "\":{\"dev_matrix\":[" mesh "],\"field\":0," \
	"\"opt_weight_shard_size\":" shard ",\"opt_weight_shard_step\":0," \
	"\"tensor_map\":[" map "],\"tensor_shape\":[" shape "]}"
#define STRATEGY(items) \
	"{\"current_stage\":1,\"parallel_layout_item\":{" items \
	"},\"parallel_strategy_item\":{\"op\":{\"parallel_strategy\":[[1]]," \
	"\"stage\":0}}}"
#define CUT_MODEL \
	{ "./model.safetensors", \
	  "a F32[4,6]=1; b BF16[8]=7; c I64[2]=3; d F32[2,4,2]=50" }

static const struct ranks {
	const char *name, *strategy;
	const struct rsh_output *output;
	const char *has;
} ranks[] = {
	{ "rows", STRATEGY(ITEM("a", "2", "0,-1", "4,6", "0")),
	  &rsh_output_ckpt, "rank_1/n1.ckpt" },
	{ "columns", STRATEGY(ITEM("a", "2", "-1,0", "4,6", "0") ","
			      ITEM("b", "2", "0", "8", "0")),
	  &rsh_output_safetensors, "rank_1/n1.safetensors" },
	{ "both", STRATEGY(ITEM("a", "2,2", "1,0", "4,6", "0") ","
			   ITEM("b", "2,2", "0", "8", "0") ","
			   ITEM("d", "2,2", "-1,1,0", "2,4,2", "0")),
	  &rsh_output_ckpt, "rank_3/n3.ckpt" },
	{ "both_the_other_way", STRATEGY(ITEM("a", "2,2", "0,1", "4,6", "0") ","
			   ITEM("d", "2,2", "0,1,-1", "2,4,2", "0")),
	  &rsh_output_ckpt, "rank_3/n3.ckpt" },
	{ "shards_of_the_optimizer", STRATEGY(
	  ITEM("a", "2,2", "0,-1", "4,6", "2") ","
	  ITEM("b", "2,2", "-1", "8", "4")), &rsh_output_safetensors,
	  "rank_3/n3.safetensors" },
};

TEST_ROWS(ranks)
{
	const struct ranks *c = *state;
	cleanup_tree char *tree = tree_make(), *to = tree_make();
	cleanup_tree char *beside = tree_make();
	struct rsh_vfs_config cfg = {
		.output = c->output, .tree.prefix = "n",
	};
	char strategy[4096], path[4096], *before, *after;
	struct stat st;
	int rc;

	torch_write_all(tree, (const struct torch_text[]){ CUT_MODEL, { NULL } });
	torch_write_all(beside, (const struct torch_text[]){
		{ "./s.json", c->strategy }, { NULL } });
	snprintf(strategy, sizeof(strategy), "%s/s.json", beside);
	cfg.dst = (struct rsh_strategy_at){ strategy, RSH_FROM_FILE };
	before = shown(tree, "", (struct rsh_vfs_config){ 0 }, &rc);
	shown_write(tree, "", cfg, to);
	snprintf(path, sizeof(path), "%s/%s", to, c->has);
	if (stat(path, &st))
		fail_msg("%s is not there", c->has);
	after = shown(to, "", (struct rsh_vfs_config){
		.src = { strategy, RSH_FROM_FILE } }, &rc);
	assert_string_equal(after, before);
	free(before);
	free(after);
}

/* ---- metadata.json of Checkpoint 2.0 ---- */

static void write_checkpoint2(const char *model, const char *strategy,
			      const char *to)
{
	cleanup_tree char *tree = tree_make(), *beside = tree_make();
	struct rsh_vfs_config cfg = {
		.output = &rsh_output_checkpoint2, .tree.prefix = "n",
	};
	char path[4096];

	torch_write_all(tree, (const struct torch_text[]){
		{ "./model.safetensors", model }, { NULL } });
	torch_write_all(beside, (const struct torch_text[]){
		{ "./s.json", strategy }, { NULL } });
	snprintf(path, sizeof(path), "%s/s.json", beside);
	cfg.dst = (struct rsh_strategy_at){ path, RSH_FROM_FILE };
	shown_write(tree, "", cfg, to);
}

/* Each of more than 64 tensors is in a file. */
TEST(metadata_says_where_each_tensor_is)
{
	cleanup_tree char *to = tree_make();
	struct unit_text model = { "", 0 };
	char path[4096], text[65536], key[64];
	size_t n;
	FILE *f;

	for (unsigned i = 0; i < 70; i++)
		unit_put(&model, "w%u U8[1]=%u; ", i, i);
	write_checkpoint2(model.s, STRATEGY(ITEM("w0", "1", "-1", "1", "0")),
			  to);
	snprintf(path, sizeof(path), "%s/iteration_00000000/metadata.json", to);
	f = fopen(path, "r");
	assert_non_null(f);
	n = fread(text, 1, sizeof(text) - 1, f);
	text[n] = '\0';
	fclose(f);
	for (unsigned i = 0; i < 70; i++) {
		snprintf(key, sizeof(key), "\"('w%u', (0,))\":[{\"file_name\":",
			 i);
		if (!strstr(text, key))
			fail_msg("no %s in %s", key, text);
	}
}

/* Files are found by their names in metadata.json, and no other one is
 * missing. */
TEST(a_file_that_metadata_lists_is_missing)
{
	const struct rsh_source_options opts = {
		.formats = rsh_formats, .unsharded = true,
	};

	for (uint32_t lost = 1; lost < 5; lost++) {
		cleanup_tree char *to = tree_make();
		struct rsh_error err = RSH_ERROR_INIT;
		const struct rsh_step_facts *facts;
		char path[4096], name[64];
		struct rsh_source *s;

		write_checkpoint2("w U8[5]", STRATEGY(ITEM("w", "5", "0", "5",
							   "0")), to);
		snprintf(name, sizeof(name), "model-%07u-0000005.safetensors",
			 lost);
		snprintf(path, sizeof(path), "%s/iteration_00000000/%s", to,
			 name);
		assert_int_equal(unlink(path), 0);
		assert_good(rsh_source_open(to, 0, UINT32_MAX, &opts, &s, &err),
			    err);
		assert_good(rsh_source_choose(s, 0, &err), err);
		facts = rsh_source_facts(s);
		assert_int_equal(facts->n_absent, 1);
		assert_int_equal(facts->absent[0].rank, lost);
		assert_string_equal(facts->absent[0].name, name);
		rsh_source_free(s);
	}
}

/* ---- Megatron-LM ---- */

#define TP(n, layers, more) \
	"{'checkpoint_version': 3.0, 'args': argparse.Namespace<>!{" \
	"'tensor_model_parallel_size': 1, 'pipeline_model_parallel_size': 1, " \
	"'num_layers': " layers ", 'num_attention_heads': 4, " \
	"'num_query_groups': 2" more "}, 'model': {" n "}}"
#define RANK_0 "iter_0000005/mp_rank_00/model_optim_rng.pt"
#define LAYER(n, base) \
	"'decoder.layers." n ".input_layernorm.weight': F32[4]=" base "0, " \
	"'decoder.layers." n ".self_attention.linear_qkv.weight': F32[8,4]=" \
	base "1, 'decoder.layers." n ".self_attention.linear_proj.weight': " \
	"F32[4,4]=" base "2, 'decoder.layers." n ".mlp.linear_fc1.weight': " \
	"F32[8,4]=" base "3, 'decoder.layers." n ".mlp.linear_fc2.weight': " \
	"F32[4,4]=" base "4"
#define ENDS "'embedding.word_embeddings.weight': F32[8,4]=500, " \
	"'decoder.final_layernorm.weight': F32[4]=600"
#define HEAD ", 'output_layer.weight': F32[8,4]=700"
#define UNTIED ", 'untie_embeddings_and_output_weights': True"
#define EXPERT(l, e, base) \
	", 'decoder.layers." l ".mlp.experts.linear_fc1.weight" e "': " \
	"F32[8,4]=" base "5, 'decoder.layers." l ".mlp.experts.linear_fc2." \
	"weight" e "': F32[4,4]=" base "6"

/* Latent attention: queries and keys have ranks. */
#define LATENT { RANK_0, TP(ENDS HEAD ", 'decoder.layers.0.input_layernorm." \
	"weight': F32[4], 'decoder.layers.0.self_attention.linear_q_down_proj." \
	"weight': F32[4,4]=1, 'decoder.layers.0.self_attention.linear_q_up_proj" \
	".weight': F32[8,4]=2, 'decoder.layers.0.self_attention." \
	"linear_kv_down_proj.weight': F32[6,4]=3, 'decoder.layers.0." \
	"self_attention.linear_kv_up_proj.weight': F32[8,4]=4", "1", UNTIED \
	", 'multi_latent_attention': True, 'q_lora_rank': 4, 'kv_lora_rank': 4, " \
	"'qk_pos_emb_head_dim': 2") }
#define GROUPED { RANK_0, TP(ENDS HEAD ", " LAYER("0", "10") \
	", 'decoder.layers.0.mlp.router.weight': F32[2,4]=3, " \
	"'decoder.layers.0.mlp.experts.weight1': F32[4,16]=7, " \
	"'decoder.layers.0.mlp.experts.weight2': F32[8,4]=8", "1", UNTIED \
	", 'num_experts': 2") }
/* Biases, and an MLP without a gate. */
#define BIASES { RANK_0, TP(ENDS HEAD ", 'decoder.layers.0.mlp.linear_fc1." \
	"weight': F32[8,4]=1, 'decoder.layers.0.mlp.linear_fc1.bias': F32[8]=2, "\
	"'decoder.layers.0.mlp.linear_fc2.weight': F32[4,8]=3, " \
	"'decoder.layers.0.mlp.linear_fc2.bias': F32[4]=4, 'decoder.layers.0." \
	"self_attention.linear_qkv.bias': F32[8]=5, 'output_layer.bias': " \
	"F32[8]=6", "1", UNTIED) }
#define DENSE { RANK_0, TP(ENDS HEAD ", " LAYER("0", "10") ", " \
	LAYER("1", "20") ", " LAYER("2", "30") ", " LAYER("3", "40"), "4", \
	UNTIED) }
#define TIED { RANK_0, TP(ENDS ", " LAYER("0", "10") ", " \
	LAYER("1", "20"), "2", "") }
#define MOE { RANK_0, TP(ENDS HEAD ", " LAYER("0", "10") EXPERT("0", "0", \
	"20") EXPERT("0", "1", "30") EXPERT("0", "2", "40") EXPERT("0", "3", \
	"50"), "1", UNTIED ", 'num_experts': 4") }
#define OF(dir) "release/mp_rank_" dir "/model_optim_rng.pt"

static const struct case_of megatron[] = {
	{ "one_rank", { DENSE }, &rsh_output_megatron, "release", NULL, 0, 0,
	  OF("00") },
	{ "an_iteration", { DENSE }, &rsh_output_megatron, "iter_0000007",
	  NULL, 0, 0, "iter_0000007/mp_rank_00/model_optim_rng.pt" },
	{ "tensor_ranks", { DENSE }, &rsh_output_megatron, "release", "mp=4", 0,
	  0, OF("03") },
	{ "stages", { DENSE }, &rsh_output_megatron, "release", "pp=4", 0, 0,
	  OF("00_003") },
	{ "virtual_stages", { DENSE }, &rsh_output_megatron, "release",
	  "pp=2,vp=2", 0, 0, OF("00_001") },
	{ "tensor_ranks_and_stages", { DENSE }, &rsh_output_megatron,
	  "release", "mp=2,pp=2", 0, 0, OF("01_001") },
	{ "a_head_that_is_the_embedding", { TIED }, &rsh_output_megatron,
	  "release", "mp=2,pp=2", 0, 0, OF("01_001") },
	{ "latent_attention", { LATENT }, &rsh_output_megatron, "release",
	  "mp=2", 0, 0, OF("01") },
	{ "biases", { BIASES }, &rsh_output_megatron, "release", "mp=4", 0, 0,
	  OF("03") },
	{ "grouped_experts", { GROUPED }, &rsh_output_megatron, "release",
	  "ep=2", 0, 0, OF("00_001") },
	{ "grouped_experts_on_tensor_ranks", { GROUPED }, &rsh_output_megatron,
	  "release", "mp=2", 0, 0, OF("01") },
	{ "expert_ranks", { MOE }, &rsh_output_megatron, "release", "ep=2", 0,
	  0, OF("00_001") },
	{ "expert_and_tensor_ranks", { MOE }, &rsh_output_megatron, "release",
	  "mp=2,ep=2", 0, 0, OF("01_001") },
	{ "experts_on_fewer_tensor_ranks", { MOE }, &rsh_output_megatron,
	  "release", "mp=2,ep=2,etp=1", 0, 0, OF("01_001") },
};

TEST_ROWS(megatron)
{
	check(*state);
}

/* Elements begin where torch.save() aligns them, whatever their sizes. */
TEST(elements_are_aligned)
{
	cleanup_tree char *tree = tree_make(), *to = tree_make();
	const struct rsh_vfs_config cfg = {
		.output = &rsh_output_megatron, .tree.prefix = "release",
	};
	struct rsh_error err = RSH_ERROR_INIT;
	cleanup_buffer struct buffer b;
	struct rsh_byte_source src;
	struct rsh_torch_file *f;
	char path[4096];

	torch_write_all(tree, (const struct torch_text[]){ BIASES, { NULL } });
	shown_write(tree, "", cfg, to);
	snprintf(path, sizeof(path), "%s/" OF("00"), to);
	b = load_file(path);
	src = buffer_source(&b);
	assert_good(rsh_torch_file_read(&src, NULL, &f, &err), err);
	assert_int_equal(f->n_tensors, 9);
	for (uint32_t i = 0; i < f->n_tensors; i++)
		assert_int_equal(f->storages[f->tensors[i].storage].offset % 64,
				 0);
	rsh_torch_file_free(f);
}

/* Weights of experts as transformers stacks them, and config.json instead of
 * args. */
#define STACKED \
	"embedding.word_embeddings.weight F32[4,3]; " \
	"decoder.layers.0.input_layernorm.weight F32[3]=1; " \
	"decoder.layers.0.mlp.router.weight F32[2,3]=2; " \
	"decoder.layers.0.mlp.experts.weight1 F32[6,10]; " \
	"decoder.layers.0.mlp.experts.weight2 F32[10,3]=3"

TEST(experts_of_another_shape)
{
	cleanup_tree char *tree = tree_make(), *to = tree_make();
	const struct rsh_vfs_config cfg = {
		.output = &rsh_output_megatron, .mesh = "ep=2",
		.tree.prefix = "release",
	};
	struct unit_text want = { "", 0 };

	torch_write_all(tree, (const struct torch_text[]){
		{ "./model.safetensors", STACKED },
		{ "./config.json", "{\"num_attention_heads\": 2}" },
		{ NULL } });
	shown_write(tree, "", cfg, to);
	/* The bytes are the same. */
	unit_put(&want, "decoder.layers.0.input_layernorm.weight F32[3] 1 2 3\n"
		 "decoder.layers.0.mlp.experts.weight1 F32[3,20]");
	for (unsigned i = 0; i < 60; i++)
		unit_put(&want, " %u", i);
	unit_put(&want, "\ndecoder.layers.0.mlp.experts.weight2 F32[10,3]");
	for (unsigned i = 0; i < 30; i++)
		unit_put(&want, " %u", 3 + i);
	unit_put(&want, "\ndecoder.layers.0.mlp.router.weight F32[2,3] 2 3 4 5 "
		 "6 7\nembedding.word_embeddings.weight F32[4,3] 0 1 2 3 4 5 6 "
		 "7 8 9 10 11\n");
	assert_shown(to, "", want.s);
}

/* Without the number of heads nothing is known that args need. */
TEST(no_heads_no_args)
{
	cleanup_tree char *tree = tree_make(), *to = tree_make();
	const struct rsh_vfs_config cfg = {
		.output = &rsh_output_megatron, .tree.prefix = "release",
	};

	torch_write_all(tree, (const struct torch_text[]){
		{ "./model.safetensors", STACKED }, { NULL } });
	shown_write(tree, "", cfg, to);
	assert_not_shown(to, "", ENOTSUP, "it has no args");
}

/* ---- meshes that are refused ---- */

TEST(meshes_that_cannot_be)
{
	static const struct torch_text dense[] = { DENSE, { NULL } };
	static const struct torch_text moe[] = { MOE, { NULL } };
	static const struct {
		const struct torch_text *files;
		const char *mesh, *prefix, *layers, *words;
	} v[] = {
		{ dense, "pp=3", "release", NULL, "the model has 4 layers, "
		  "which cannot be divided equally over 3 chunks (pp=3, vp=1)" },
		{ dense, "vp=2", "release", NULL, "--dst-mesh: vp=2 needs pp" },
		{ dense, "mp=2,etp=3", "release", NULL, "etp=3 does not divide "
		  "tp=2" },
		{ dense, "mp=3", "release", NULL, "tensor decoder.layers.0."
		  "mlp.linear_fc1.weight: 4 rows of the gate cannot be divided "
		  "over tensor parallel size 3" },
		{ dense, "zz=2", "release", NULL, "--dst-mesh: --format "
		  "megatron has no axis zz, but tp, pp, ep, etp, vp, dp and "
		  "cp" },
		{ dense, "pp=2", "release", "1,2", "--pipeline-layers: \"1,2\" "
		  "has 3 layers, and the model has 4" },
		{ dense, "pp=2", "release", "1,3,0", "--pipeline-layers: "
		  "\"1,3,0\" is not a list of 2 numbers" },
		{ dense, "pp=2", "release", "4", "is not a list of 2 numbers" },
		{ dense, NULL, "iter_5", NULL, "--prefix: Megatron-LM calls "
		  "this step iter_0000005" },
		{ dense, NULL, "x", NULL, "--prefix: \"x\" is not the name of "
		  "a step of Megatron-LM" },
		{ moe, "ep=3", "release", NULL, "4 experts cannot be divided "
		  "over expert parallel size 3" },
	};

	for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); i++) {
		cleanup_tree char *tree = tree_make();
		struct rsh_error err = RSH_ERROR_INIT;
		struct rsh_vfs_config cfg = {
			.source = tree, .output = &rsh_output_megatron,
			.mesh = v[i].mesh, .pipeline_layers = v[i].layers,
			.files.formats = rsh_formats,
			.tree.prefix = v[i].prefix,
		};
		struct rsh_vfs *vfs;

		torch_write_all(tree, v[i].files);
		if (rsh_vfs_open(&cfg, &vfs, &err) == 0)
			fail_msg("%s, %s is shown", v[i].mesh, v[i].prefix);
		if (!strstr(err.text, v[i].words))
			fail_msg("%s, %s: %s", v[i].mesh, v[i].prefix,
				 err.text);
	}
}

/* Models whose weights have other names, sizes or gaps. */
TEST(models_that_cannot_be)
{
#define L "decoder.layers."
#define NORM(n) L n ".input_layernorm.weight F32[2]; "
	static const struct {
		const char *model, *mesh;
		int code;
		const char *words;
	} v[] = {
		{ "a.weight F32[1]", NULL, EINVAL, "no tensor has a name of "
		  "Megatron's, but names such as a.weight: --convert makes "
		  "them" },
		{ NORM("0") NORM("3"), NULL, EINVAL,
		  "the model has a layer 3, and only 2 tensors" },
		{ NORM("0") NORM("2") "x F32[1]", NULL, EINVAL,
		  "the model has a layer 2, and no tensor of layer 1" },
		{ NORM("0") NORM("1") "x F32[1]", "pp=2", ENOTSUP,
		  "tensor x: nothing says which stage has it (--drop leaves it "
		  "out)" },
		{ NORM("0") "x F32[2]", "mp=2", ENOTSUP,
		  "tensor x: nothing says how it is divided over ranks" },
		{ NORM("0") "output_layer.weight F32[3,2]", "mp=2", EINVAL,
		  "tensor output_layer.weight: 3 rows cannot be divided over "
		  "tensor parallel size 2 (--vocab-multiple pads the "
		  "vocabulary)" },
		{ NORM("0") L "0.mlp.linear_fc2.weight F32[2,3]", "mp=2",
		  EINVAL, "tensor decoder.layers.0.mlp.linear_fc2.weight: 3 "
		  "columns cannot be divided over tensor parallel size 2" },
		{ NORM("0") L "0.mlp.linear_fc2.weight F32[2]", "mp=2", EINVAL,
		  "tensor decoder.layers.0.mlp.linear_fc2.weight: a shape of "
		  "[2] is not that of Megatron's weight with this name" },
		{ NORM("0") L "0.mlp.linear_fc1.weight F32[4,2]", "mp=2",
		  ENOTSUP, "tensor decoder.layers.0.mlp.linear_fc1.weight: "
		  "nothing says how it is divided over ranks" },
		{ NORM("0") L "0.mlp.linear_fc1.weight F32[4,2]; "
		  L "0.mlp.linear_fc2.weight F32[2,3]", "mp=2", ENOTSUP,
		  "tensor decoder.layers.0.mlp.linear_fc1.weight: nothing says "
		  "how it is divided over ranks" },
		{ NORM("0") L "0.mlp.experts.linear_fc2.weight0 F32[2,2]; "
		  L "0.mlp.experts.linear_fc2.weight2 F32[2,2]", NULL, EINVAL,
		  "the model has decoder.layers.0.mlp.experts.linear_fc2."
		  "weight2, and not decoder.layers.0.mlp.experts.linear_fc2."
		  "weight1" },
	};

	for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); i++) {
		const struct torch_text files[] = {
			{ "./model.safetensors", v[i].model }, { NULL },
		};
		cleanup_tree char *tree = tree_make();
		struct rsh_error err = RSH_ERROR_INIT;
		const struct rsh_vfs_config cfg = {
			.source = tree, .output = &rsh_output_megatron,
			.mesh = v[i].mesh, .files.formats = rsh_formats,
			.tree.prefix = "release",
		};
		struct rsh_vfs *vfs;
		int rc;

		torch_write_all(tree, files);
		rc = rsh_vfs_open(&cfg, &vfs, &err);
		if (rc != -v[i].code || !strstr(err.text, v[i].words))
			fail_msg("%zu: %d, %s", i, rc, rc ? err.text : "");
	}
}

/* Stages of the sizes that are asked for. */
TEST(stages_of_other_sizes)
{
	static const struct torch_text dense[] = { DENSE, { NULL } };
	cleanup_tree char *tree = tree_make(), *to = tree_make();
	const struct rsh_vfs_config cfg = {
		.output = &rsh_output_megatron, .mesh = "pp=2",
		.pipeline_layers = "3,1", .tree.prefix = "release",
	};
	char *before, *after;
	int rc;

	torch_write_all(tree, dense);
	before = shown(tree, "", (struct rsh_vfs_config){ 0 }, &rc);
	shown_write(tree, "", cfg, to);
	after = shown(to, "", (struct rsh_vfs_config){ 0 }, &rc);
	assert_string_equal(after, before);
	free(before);
	free(after);
}
