/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_formats_megatron.c - what names of tensors, directories and
 * arguments say, without files. */
#include "config.h"

#include "formats/megatron/megatron_i.h"
#include "support.h"

/* ---- names ---- */

TEST(test_names)
{
	static const struct {
		const char *name;
		enum rsh_megatron_kind kind;
		bool of_expert;
		uint64_t layer; /* UINT64_MAX: none */
		const char *expert; /* its digits; "": none */
		uint32_t grouped;
	} v[] = {
		{ "embedding.word_embeddings.weight", RSH_MEGATRON_VOCABULARY,
		  false, UINT64_MAX, "", 0 },
		{ "decoder.layers.12.self_attention.linear_qkv.weight",
		  RSH_MEGATRON_QKV, false, 12, "", 0 },
		{ "decoder.layers.0.mlp.linear_fc1.layer_norm_weight",
		  RSH_MEGATRON_SAME, false, 0, "", 0 },
		{ "decoder.layers.3.mlp.experts.local_experts.17.linear_fc2."
		  "weight", RSH_MEGATRON_COLUMNS, true, 3, "17", 0 },
		{ "decoder.layers.3.mlp.experts.linear_fc1.weight5",
		  RSH_MEGATRON_GATE, true, 3, "5", 0 },
		{ "decoder.layers.3.mlp.experts.linear_fc1.weight5x",
		  RSH_MEGATRON_UNKNOWN, true, 3, "", 0 },
		{ "decoder.layers.3.mlp.experts.linear_fc1.weight",
		  RSH_MEGATRON_UNKNOWN, false, 3, "", 0 },
		{ "decoder.layers.1.mlp.experts.weight1", RSH_MEGATRON_GATE,
		  true, 1, "", 1 },
		{ "mtp.layers.0.transformer_layer.mlp.experts.weight2",
		  RSH_MEGATRON_ROWS, true, UINT64_MAX, "", 2 },
		{ "mtp.layers.0.mtp_model_layer.self_attention.linear_proj."
		  "weight", RSH_MEGATRON_COLUMNS, false, UINT64_MAX, "", 0 },
		{ "mtp.layers.0.eh_proj.weight", RSH_MEGATRON_ROWS, false,
		  UINT64_MAX, "", 0 },
		{ "decoder.layers.x.mlp.linear_fc1.weight",
		  RSH_MEGATRON_UNKNOWN, false, UINT64_MAX, "", 0 },
		{ "decoder.layers.4294967296.mlp.linear_fc1.weight",
		  RSH_MEGATRON_UNKNOWN, false, UINT64_MAX, "", 0 },
		{ "decoder.layers.1.mixer.in_proj.weight",
		  RSH_MEGATRON_UNKNOWN, false, 1, "", 0 },
		{ "", RSH_MEGATRON_UNKNOWN, false, UINT64_MAX, "", 0 },
	};

	for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); i++) {
		struct rsh_megatron_name is;

		rsh_megatron_name_read(v[i].name, &is);
		assert_int_equal(is.kind, v[i].kind);
		assert_int_equal(is.of_expert, v[i].of_expert);
		assert_int_equal(is.grouped, v[i].grouped);
		assert_int_equal(is.after_layer != NULL,
				 v[i].layer != UINT64_MAX);
		if (is.after_layer)
			assert_int_equal(is.layer, v[i].layer);
		assert_int_equal(is.n, strlen(v[i].expert));
		assert_memory_equal(v[i].name + is.at, v[i].expert, is.n);
	}
}

TEST(test_steps)
{
	static const struct {
		const char *name;
		bool is;
		uint64_t step;
	} v[] = {
		{ "iter_0000005", true, 5 }, { "iter_12345678", true, 12345678 },
		{ "release", true, 0 }, { "iter_", false, 0 },
		{ "iter_5x", false, 0 }, { "released", false, 0 },
		{ "iter_99999999999999999999", false, 0 },
	};
	uint64_t step;

	for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); i++) {
		assert_int_equal(rsh_megatron_step_read(
			v[i].name, strlen(v[i].name), &step), v[i].is);
		if (v[i].is)
			assert_int_equal(step, v[i].step);
	}
}

/* ---- meshes ---- */

/* A tree whose files have these args and one layer each. */
struct tree {
	struct rsh_source_megatron *st;
	struct rsh_megatron_listed listed[8];
	struct rsh_megatron_file files[8];
	struct rsh_megatron_entry entries[8];
};

static struct tree *tree_new(uint32_t n, const uint64_t *args)
{
	struct tree *t = calloc(1, sizeof(*t));

	assert_non_null(t);
	t->st = rsh_joined_new(&rsh_megatron_files, sizeof(*t->st), NULL, n);
	assert_non_null(t->st);
	t->st->n = n;
	t->st->listed = t->listed;
	for (uint32_t i = 0; i < n; i++) {
		assert_int_equal(rsh_joined_add_file(&t->st->all, "file"), i);
		t->listed[i].n_numbers = 1;
		t->listed[i].numbers[0] = i;
		memcpy(t->files[i].args, args, sizeof(t->files[i].args));
		t->files[i].n_chunks = 1;
		t->files[i].v = &t->entries[i];
		t->files[i].n = 1;
		t->entries[i].name = "decoder.layers.0.input_layernorm.weight";
		t->st->all.files[i] = &t->files[i];
	}
	return t;
}

static void tree_free(struct tree *t)
{
	/* The files are those of the tree. */
	t->st->all.n = 0;
	rsh_joined_free(t->st);
	free(t);
}

static int find(struct tree *t, struct rsh_error *err)
{
	*err = (struct rsh_error)RSH_ERROR_INIT;
	return rsh_megatron_mesh_find(t->st, err);
}

static const uint64_t two_tensor_ranks[RSH_MEGATRON_ARGS] = {
	[RSH_MEGATRON_TENSOR] = 2, [RSH_MEGATRON_PIPELINE] = 1,
	[RSH_MEGATRON_LAYERS] = 1,
};

TEST(test_sizes_that_cannot_be)
{
	static const struct {
		enum rsh_megatron_arg arg;
		uint64_t value;
		int rc;
	} v[] = {
		{ RSH_MEGATRON_TENSOR, UINT64_C(1) << 31, -EBADMSG },
		{ RSH_MEGATRON_TENSOR, 65536, -ENOENT },
		{ RSH_MEGATRON_PIPELINE, 65536, -EBADMSG },
		{ RSH_MEGATRON_EXPERT, 65536, -EBADMSG },
		{ RSH_MEGATRON_EXPERT, UINT64_C(1) << 31, -EBADMSG },
		{ RSH_MEGATRON_EXPERT_TENSOR, 3, -ENOTSUP },
		{ RSH_MEGATRON_LAYERS, 2, -EBADMSG },
		{ RSH_MEGATRON_DUAL, 1, -ENOTSUP },
	};
	struct rsh_error err;

	for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); i++) {
		uint64_t args[RSH_MEGATRON_ARGS];
		struct tree *t;

		memcpy(args, two_tensor_ranks, sizeof(args));
		args[v[i].arg] = v[i].value;
		t = tree_new(2, args);
		assert_int_equal(find(t, &err), v[i].rc);
		assert_true(*err.text);
		tree_free(t);
	}
}

TEST(test_lost_files)
{
	struct tree *t = tree_new(2, two_tensor_ranks);
	struct rsh_error err;

	assert_int_equal(find(t, &err), 0);
	assert_int_equal(t->st->n_lost, 0);
	assert_int_equal(t->st->n_layers, 1);
	t->st->all.files[0] = NULL;
	assert_int_equal(find(t, &err), 0);
	assert_int_equal(t->st->n_lost, 1);
	assert_int_equal(t->st->lost[0], 0);
	assert_int_equal(rsh_megatron_sibling(t->st, 0), 1);
	/* Of a stage without a file nobody knows what it has. */
	t->st->all.files[1] = NULL;
	assert_int_equal(find(t, &err), -ENOENT);
	tree_free(t);
}

TEST(test_ranks_of_another_place)
{
	struct tree *t = tree_new(2, two_tensor_ranks);
	struct rsh_error err;

	t->files[1].rank = 1;
	t->files[0].world = t->files[1].world = 2;
	assert_int_equal(find(t, &err), 0);
	t->files[0].rank = 1;
	t->files[1].rank = 0;
	assert_int_equal(find(t, &err), -EBADMSG);
	/* A converter writes one rank into all files. */
	t->files[1].rank = 1;
	assert_int_equal(find(t, &err), 0);
	tree_free(t);
}

TEST(test_order_of_chunks)
{
	uint64_t args[RSH_MEGATRON_ARGS] = { 0 };
	struct rsh_source_megatron st = { .pipeline = 3, .args = args };

	assert_int_equal(rsh_megatron_chunk_order(&st, 2, 0), 2);
	assert_int_equal(rsh_megatron_chunk_order(&st, 0, 1), 3);
	args[RSH_MEGATRON_DUAL] = 1;
	assert_int_equal(rsh_megatron_chunk_order(&st, 2, 1), 3);
	assert_int_equal(rsh_megatron_chunk_order(&st, 0, 1), 5);
}

TEST(test_sizes_of_experts)
{
	uint64_t args[RSH_MEGATRON_ARGS] = {
		[RSH_MEGATRON_TENSOR] = 4, [RSH_MEGATRON_EXPERT] = 2,
	};
	uint64_t blocks, tensor;

	rsh_megatron_expert_sizes(args, &blocks, &tensor);
	assert_int_equal(blocks, 2);
	assert_int_equal(tensor, 4);
	args[RSH_MEGATRON_EXPERT_TENSOR] = 1;
	rsh_megatron_expert_sizes(args, &blocks, &tensor);
	assert_int_equal(tensor, 1);
	args[RSH_MEGATRON_EXTENDS] = 1;
	rsh_megatron_expert_sizes(args, &blocks, &tensor);
	assert_int_equal(blocks, 8);
	assert_int_equal(tensor, 1);
}
