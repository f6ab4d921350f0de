/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_formats_shown_megatron.c - trees of Megatron-LM: the whole tensors
 * that they show, and what is refused. */
#include "config.h"

#include "formats/megatron/megatron_i.h"
#include "shown_support.h"

/* A file with these sizes in its args. */
#define ARGS(tensor, pipeline, layers, more) \
	"argparse.Namespace<>!{'tensor_model_parallel_size': " tensor \
	", 'pipeline_model_parallel_size': " pipeline ", 'num_layers': " layers \
	more "}"
#define FILE_OF(args, model) \
	"{'checkpoint_version': 3.0, 'iteration': 5, 'args': " args ", " model \
	"}"
#define FILE_AT(iteration, args, model) \
	"{'checkpoint_version': 3.0, 'iteration': " iteration ", 'args': " args \
	", " model "}"
#define MODEL(tensors) "'model': {" tensors "}"
#define L0 "'decoder.layers.0."
#define NORM L0 "input_layernorm.weight': F32[1]"
#define EMBEDDING "'embedding.word_embeddings.weight': "
#define HEAD "'output_layer.weight': "
#define FC1 "mlp.linear_fc1.weight': "
#define FC2 "mlp.linear_fc2.weight': "
#define SHOWN_NORM "decoder.layers.0.input_layernorm.weight F32[1] 0\n"

#define OF(dir) "iter_0000005/mp_rank_" dir "/model_optim_rng.pt"
#define RANK(n) OF("0" n)

/* One layer on two tensor ranks, or on one. */
#define TP2(tensors) FILE_OF(ARGS("2", "1", "1", ""), MODEL(tensors))
#define TP1(tensors) FILE_OF(ARGS("1", "1", "1", ""), MODEL(tensors))
/* Two layers on two stages. */
#define PP2(more, tensors) FILE_OF(ARGS("1", "2", "2", more), MODEL(tensors))
#define PP2_TP2(tensors) FILE_OF(ARGS("2", "2", "2", ""), MODEL(tensors))
/* Experts. */
#define EXPERTS(tensor, expert, n, more, tensors) \
	FILE_OF(ARGS(tensor, "1", "1", ", 'expert_model_parallel_size': " \
		     expert ", 'num_experts': " n more), MODEL(tensors))

/* A distributed optimizer, and the states of a buffer in it. */
#define BUFFER(number, dims, n) \
	number ": {'t': {'param': F32[" dims "]=1" number ", 'exp_avg': F32[" \
	dims "]=2" number ", 'exp_avg_sq': F32[" dims "]=3" number \
	", 'numel_unpadded': " n "}}"
#define STATE(name, layer) \
	"optimizer.state." name ".decoder.layers." layer \
	".input_layernorm.weight F32[1]"
#define STATE_OF_EXPERT(name) \
	"optimizer.state." name ".decoder.layers.0.mlp.experts.linear_fc2." \
	"weight0 F32[1,1]"
#define OPTIMIZER(buffers) "{" buffers ", 'buckets_coalesced': True}"

static const struct shown_tree trees[] = {
	{ "one_rank", { { RANK("0"), TP1(NORM ", " EMBEDDING "F32[2,1]=3") } },
	  SHOWN_NORM "embedding.word_embeddings.weight F32[2,1] 3 4\n" },
	/* One rank has all of a tensor, whatever its name is. */
	{ "unknown_names_on_one_rank", {
	  { RANK("0"), TP1(NORM ", " L0 "mixer.in_proj': F32[2]=3, " L0
			   "mixer.scale': F32[]=7") } },
	  SHOWN_NORM "decoder.layers.0.mixer.in_proj F32[2] 3 4\n"
	  "decoder.layers.0.mixer.scale F32[] 7\n" },
	{ "rows_and_columns", {
	  { RANK("0"), TP2(NORM ", " L0 "self_attention.linear_qkv.weight': "
		"F32[2,1], " L0 "self_attention.linear_proj.weight': "
		"F32[2,2]") },
	  { RANK("1"), TP2(NORM ", " L0 "self_attention.linear_qkv.weight': "
		"F32[2,1]=2, " L0 "self_attention.linear_proj.weight': "
		"F32[2,2]=4") } },
	  SHOWN_NORM
	  "decoder.layers.0.self_attention.linear_proj.weight F32[2,4] "
	  "0 1 4 5 2 3 6 7\n"
	  "decoder.layers.0.self_attention.linear_qkv.weight F32[4,1] "
	  "0 1 2 3\n" },
	/* Of latent attention each rank has all of it. */
	{ "rows_that_are_copies", {
	  { RANK("0"), FILE_OF(ARGS("2", "1", "1",
		", 'multi_latent_attention': True"), MODEL(L0
		"self_attention.linear_qkv.weight': F32[2,1]=4")) },
	  { RANK("1"), FILE_OF(ARGS("2", "1", "1",
		", 'multi_latent_attention': True"), MODEL(L0
		"self_attention.linear_qkv.weight': F32[2,1]=4")) } },
	  "decoder.layers.0.self_attention.linear_qkv.weight F32[2,1] 4 5\n" },
	/* By its number of rows it is cut, or not. */
	{ "down_projections", {
	  { RANK("0"), FILE_OF(ARGS("2", "1", "1", ", 'q_lora_rank': 2, "
		"'kv_lora_rank': 1, 'qk_pos_emb_head_dim': 1"), MODEL(
		L0 "self_attention.linear_q_down_proj.weight': F32[1,1]=1, "
		L0 "self_attention.linear_kv_down_proj.weight': "
		"F32[2,1]=7")) },
	  { RANK("1"), FILE_OF(ARGS("2", "1", "1", ", 'q_lora_rank': 2, "
		"'kv_lora_rank': 1, 'qk_pos_emb_head_dim': 1"), MODEL(
		L0 "self_attention.linear_q_down_proj.weight': F32[1,1]=2, "
		L0 "self_attention.linear_kv_down_proj.weight': "
		"F32[2,1]=7")) } },
	  "decoder.layers.0.self_attention.linear_kv_down_proj.weight F32[2,1] "
	  "7 8\n"
	  "decoder.layers.0.self_attention.linear_q_down_proj.weight F32[2,1] "
	  "1 2\n" },
	{ "slices_of_a_vocabulary_may_differ", {
	  { RANK("0"), TP2(NORM ", " EMBEDDING "F32[3,1]") },
	  { RANK("1"), TP2(NORM ", " EMBEDDING "F32[2,1]=3") } },
	  SHOWN_NORM
	  "embedding.word_embeddings.weight F32[5,1] 0 1 2 3 4\n" },

	/* ---- gate and up ---- */
	{ "gate_and_up", {
	  { RANK("0"), TP2(L0 FC1 "F32[4,1], " L0 FC2 "F32[1,2]") },
	  { RANK("1"), TP2(L0 FC1 "F32[4,1]=4, " L0 FC2 "F32[1,2]=2") } },
	  "decoder.layers.0.mlp.linear_fc1.weight F32[8,1] 0 1 4 5 2 3 6 7\n"
	  "decoder.layers.0.mlp.linear_fc2.weight F32[1,4] 0 1 2 3\n" },
	{ "no_gate", {
	  { RANK("0"), TP2(L0 FC1 "F32[2,1], " L0 FC2 "F32[1,2]") },
	  { RANK("1"), TP2(L0 FC1 "F32[2,1]=2, " L0 FC2 "F32[1,2]=2") } },
	  "decoder.layers.0.mlp.linear_fc1.weight F32[4,1] 0 1 2 3\n"
	  "decoder.layers.0.mlp.linear_fc2.weight F32[1,4] 0 1 2 3\n" },
	{ "biases_of_gate_and_up", {
	  { RANK("0"), TP2(L0 "mlp.linear_fc1.bias': F32[2], " L0 FC1
			   "F32[2,1], " L0 FC2 "F32[1,1]") },
	  { RANK("1"), TP2(L0 "mlp.linear_fc1.bias': F32[2]=2, " L0 FC1
			   "F32[2,1]=2, " L0 FC2 "F32[1,1]=2") } },
	  "decoder.layers.0.mlp.linear_fc1.bias F32[4] 0 2 1 3\n"
	  "decoder.layers.0.mlp.linear_fc1.weight F32[4,1] 0 2 1 3\n"
	  "decoder.layers.0.mlp.linear_fc2.weight F32[1,2] 0 2\n" },
	{ "gate_and_up_of_one_rank_stay", {
	  { RANK("0"), TP1(L0 FC1 "F32[4,1], " L0 FC2 "F32[1,2]") } },
	  "decoder.layers.0.mlp.linear_fc1.weight F32[4,1] 0 1 2 3\n"
	  "decoder.layers.0.mlp.linear_fc2.weight F32[1,2] 0 1\n" },

	/* ---- stages ---- */
	{ "stages_count_layers", {
	  { OF("00_000"), PP2("", EMBEDDING "F32[1,1]=8, " NORM "=1") },
	  { OF("00_001"), PP2("", NORM "=2, " HEAD "F32[1,1]=8") } },
	  "decoder.layers.0.input_layernorm.weight F32[1] 1\n"
	  "decoder.layers.1.input_layernorm.weight F32[1] 2\n"
	  "embedding.word_embeddings.weight F32[1,1] 8\n" },
	{ "a_head_of_its_own", {
	  { OF("00_000"), PP2(", 'untie_embeddings_and_output_weights': True",
		EMBEDDING "F32[1,1]=8, " NORM "=1") },
	  { OF("00_001"), PP2(", 'untie_embeddings_and_output_weights': True",
		NORM "=2, " HEAD "F32[1,1]=9") } },
	  "decoder.layers.0.input_layernorm.weight F32[1] 1\n"
	  "decoder.layers.1.input_layernorm.weight F32[1] 2\n"
	  "embedding.word_embeddings.weight F32[1,1] 8\n"
	  "output_layer.weight F32[1,1] 9\n" },
	/* Chunk 1 of stage 0 comes after chunk 0 of stage 1. */
	{ "virtual_stages", {
	  { OF("00_000"), FILE_OF(ARGS("1", "2", "4", ""), "'model0': {" NORM
		"=1}, 'model1': {" NORM "=3}") },
	  { OF("00_001"), FILE_OF(ARGS("1", "2", "4", ""), "'model0': {" NORM
		"=2}, 'model1': {" NORM "=4}") } },
	  "decoder.layers.0.input_layernorm.weight F32[1] 1\n"
	  "decoder.layers.1.input_layernorm.weight F32[1] 2\n"
	  "decoder.layers.2.input_layernorm.weight F32[1] 3\n"
	  "decoder.layers.3.input_layernorm.weight F32[1] 4\n" },
	{ "stages_there_and_back", {
	  { OF("00_000"), FILE_OF(ARGS("1", "2", "4", ", 'schedules_method': "
		"'dualpipev'"), "'model0': {" NORM "=1}, 'model1': {" NORM
		"=4}") },
	  { OF("00_001"), FILE_OF(ARGS("1", "2", "4", ", 'schedules_method': "
		"'dualpipev'"), "'model0': {" NORM "=2}, 'model1': {" NORM
		"=3}") } },
	  "decoder.layers.0.input_layernorm.weight F32[1] 1\n"
	  "decoder.layers.1.input_layernorm.weight F32[1] 2\n"
	  "decoder.layers.2.input_layernorm.weight F32[1] 3\n"
	  "decoder.layers.3.input_layernorm.weight F32[1] 4\n" },
	{ "layers_without_tensors", {
	  { RANK("0"), FILE_OF(ARGS("1", "1", "3", ", 'noop_layers': '1'"),
		MODEL("'decoder.layers.2.input_layernorm.weight': F32[1]=2, "
		      NORM)) } },
	  SHOWN_NORM "decoder.layers.1.input_layernorm.weight F32[1] 2\n" },
	{ "a_set_of_layers_without_tensors", {
	  { RANK("0"), FILE_OF(ARGS("1", "1", "3", ", 'noop_layers': "
		"builtins.set([1, 2])"), MODEL(NORM)) } }, SHOWN_NORM },

	/* ---- experts ---- */
	{ "experts_get_their_numbers", {
	  { OF("00_000"), EXPERTS("1", "2", "4", "", NORM ", "
		L0 "mlp.experts.local_experts.0.linear_fc2.weight': "
		"F32[1,1]=0, " L0 "mlp.experts.local_experts.1.linear_fc2."
		"weight': F32[1,1]=1") },
	  { OF("00_001"), EXPERTS("1", "2", "4", "", NORM ", "
		L0 "mlp.experts.local_experts.0.linear_fc2.weight': "
		"F32[1,1]=2, " L0 "mlp.experts.local_experts.1.linear_fc2."
		"weight': F32[1,1]=3") } },
	  SHOWN_NORM
	  "decoder.layers.0.mlp.experts.local_experts.0.linear_fc2.weight "
	  "F32[1,1] 0\n"
	  "decoder.layers.0.mlp.experts.local_experts.1.linear_fc2.weight "
	  "F32[1,1] 1\n"
	  "decoder.layers.0.mlp.experts.local_experts.2.linear_fc2.weight "
	  "F32[1,1] 2\n"
	  "decoder.layers.0.mlp.experts.local_experts.3.linear_fc2.weight "
	  "F32[1,1] 3\n" },
	/* Tensor ranks are expert ranks, too: dense weights are cut, and
	 * experts are whole. */
	{ "experts_on_tensor_ranks", {
	  { RANK("0"), EXPERTS("2", "1", "2", ", 'moe_tp_extend_ep': True",
		EMBEDDING "F32[1,1]=5, " L0 "mlp.experts.linear_fc2.weight0': "
		"F32[1,1]=0, " NORM) },
	  { RANK("1"), EXPERTS("2", "1", "2", ", 'moe_tp_extend_ep': True",
		EMBEDDING "F32[1,1]=6, " L0 "mlp.experts.linear_fc2.weight0': "
		"F32[1,1]=1, " NORM) } },
	  SHOWN_NORM
	  "decoder.layers.0.mlp.experts.linear_fc2.weight0 F32[1,1] 0\n"
	  "decoder.layers.0.mlp.experts.linear_fc2.weight1 F32[1,1] 1\n"
	  "embedding.word_embeddings.weight F32[2,1] 5 6\n" },
	/* weight1 has the bytes of [expert, h, gate and up]. */
	{ "grouped_experts_of_one_rank", {
	  { RANK("0"), EXPERTS("1", "1", "2", "", NORM ", " L0
		"mlp.experts.weight1': F32[2,4], " L0 "mlp.experts.weight2': "
		"F32[2,2]") } },
	  SHOWN_NORM
	  "decoder.layers.0.mlp.experts.weight1 F32[2,4] 0 1 2 3 4 5 6 7\n"
	  "decoder.layers.0.mlp.experts.weight2 F32[2,2] 0 1 2 3\n" },
	{ "grouped_experts_of_two_blocks", {
	  { OF("00_000"), EXPERTS("1", "2", "2", "", NORM ", " L0
		"mlp.experts.weight1': F32[2,2], " L0 "mlp.experts.weight2': "
		"F32[1,2]") },
	  { OF("00_001"), EXPERTS("1", "2", "2", "", NORM ", " L0
		"mlp.experts.weight1': F32[2,2]=4, " L0 "mlp.experts.weight2': "
		"F32[1,2]=2") } },
	  SHOWN_NORM
	  "decoder.layers.0.mlp.experts.weight1 F32[2,4] 0 1 2 3 4 5 6 7\n"
	  "decoder.layers.0.mlp.experts.weight2 F32[2,2] 0 1 2 3\n" },
	/* Each tensor rank has a column of gate and one of up. */
	{ "grouped_experts_of_two_tensor_ranks", {
	  { RANK("0"), EXPERTS("2", "1", "2", "", L0
		"mlp.experts.weight1': F32[2,4], " L0 "mlp.experts.weight2': "
		"F32[2,2], " NORM) },
	  { RANK("1"), EXPERTS("2", "1", "2", "", L0
		"mlp.experts.weight1': F32[2,4]=10, " L0 "mlp.experts.weight2'"
		": F32[2,2]=10, " NORM) } },
	  SHOWN_NORM
	  "decoder.layers.0.mlp.experts.weight1 F32[2,8] 0 10 1 11 2 12 3 13 "
	  "4 14 5 15 6 16 7 17\n"
	  "decoder.layers.0.mlp.experts.weight2 F32[4,2] 0 1 10 11 2 3 12 13\n"
	},

	/* ---- steps and files ---- */
	{ "the_newest_iteration", {
	  { "iter_0000009/mp_rank_00/model_optim_rng.pt", TP1(NORM "=9") },
	  { "iter_0000010/mp_rank_00/model_optim_rng.pt", TP1(NORM "=10") },
	  { "release/mp_rank_00/model_optim_rng.pt", TP1(NORM "=1") } },
	  "decoder.layers.0.input_layernorm.weight F32[1] 10\n" },
	{ "the_iteration_of_the_tracker", {
	  { "iter_0000009/mp_rank_00/model_optim_rng.pt", TP1(NORM "=9") },
	  { "iter_0000010/mp_rank_00/model_optim_rng.pt", TP1(NORM "=10") },
	  { "./latest_checkpointed_iteration.txt", "9" } },
	  "decoder.layers.0.input_layernorm.weight F32[1] 9\n" },
	{ "the_release_of_the_tracker", {
	  { "iter_0000010/mp_rank_00/model_optim_rng.pt", TP1(NORM "=10") },
	  { "release/mp_rank_00/model_optim_rng.pt", TP1(NORM "=1") },
	  { "./latest_checkpointed_iteration.txt", "release" } },
	  "decoder.layers.0.input_layernorm.weight F32[1] 1\n" },
	/* The place of a file is said by its name, if args do not know it. */
	{ "args_of_another_rank", {
	  { RANK("0"), FILE_OF(ARGS("2", "1", "1", ", 'rank': 0, "
		"'world_size': 2"), MODEL(NORM ", " EMBEDDING "F32[1,1]")) },
	  { RANK("1"), FILE_OF(ARGS("2", "1", "1", ", 'rank': 0, "
		"'world_size': 2"), MODEL(NORM ", " EMBEDDING
					  "F32[1,1]=1")) } },
	  SHOWN_NORM "embedding.word_embeddings.weight F32[2,1] 0 1\n" },
	{ "what_is_no_weight_is_left_out", {
	  { RANK("0"), TP1(NORM ", " L0 "mlp._extra_state': F32[1]") } },
	  SHOWN_NORM },
	/* Only copies are lost with the file. */
	{ "a_lost_file_of_copies", { { RANK("1"), TP2(NORM) } }, SHOWN_NORM },
	{ "an_iteration_that_a_file_does_not_say", {
	  { RANK("0"), TP2(NORM) },
	  { RANK("1"), "{'checkpoint_version': 3.0, 'args': "
	    ARGS("2", "1", "1", "") ", " MODEL(NORM) "}" } }, SHOWN_NORM },
	{ "a_lost_file_of_copies_of_a_stage", {
	  { OF("00_000"), PP2_TP2(NORM "=1, " L0 FC2 "F32[1,1]=5") },
	  { OF("01_000"), PP2_TP2(NORM "=1, " L0 FC2 "F32[1,1]=6") },
	  { OF("01_001"), PP2_TP2(NORM "=2") } },
	  "decoder.layers.0.input_layernorm.weight F32[1] 1\n"
	  "decoder.layers.0.mlp.linear_fc2.weight F32[1,2] 5 6\n"
	  "decoder.layers.1.input_layernorm.weight F32[1] 2\n" },

	/* ---- the distributed optimizer ---- */
	{ "states_are_where_their_weights_are", {
	  { RANK("0"), TP1(L0 FC2 "F32[1,2]/4, 'decoder.final_layernorm.weight'"
			   ": F32[2]@0+2") },
	  { "iter_0000005/mp_rank_00/distrib_optim.pt", OPTIMIZER(
		BUFFER("0", "5", "4")) } },
	  "decoder.final_layernorm.weight F32[2] 2 3\n"
	  "decoder.layers.0.mlp.linear_fc2.weight F32[1,2] 0 1\n"
	  "optimizer.state.exp_avg.decoder.final_layernorm.weight F32[2] 22 23\n"
	  "optimizer.state.exp_avg.decoder.layers.0.mlp.linear_fc2.weight "
	  "F32[1,2] 20 21\n"
	  "optimizer.state.exp_avg_sq.decoder.final_layernorm.weight F32[2] 32 "
	  "33\n"
	  "optimizer.state.exp_avg_sq.decoder.layers.0.mlp.linear_fc2.weight "
	  "F32[1,2] 30 31\n"
	  "optimizer.state.param.decoder.final_layernorm.weight F32[2] 12 13\n"
	  "optimizer.state.param.decoder.layers.0.mlp.linear_fc2.weight "
	  "F32[1,2] 10 11\n" },
	/* Each chunk has a buffer. */
	{ "states_of_two_chunks", {
	  { RANK("0"), FILE_OF(ARGS("1", "1", "2", ""), "'model0': {" NORM
		"=1}, 'model1': {" NORM "=2}") },
	  { "iter_0000005/mp_rank_00/distrib_optim.pt", OPTIMIZER(
		BUFFER("1", "1", "1") ", " BUFFER("0", "1",
		"1")) } },
	  "decoder.layers.0.input_layernorm.weight F32[1] 1\n"
	  "decoder.layers.1.input_layernorm.weight F32[1] 2\n"
	  STATE("exp_avg", "0") " 20\n" STATE("exp_avg", "1") " 21\n"
	  STATE("exp_avg_sq", "0") " 30\n" STATE("exp_avg_sq", "1") " 31\n"
	  STATE("param", "0") " 10\n" STATE("param", "1") " 11\n" },
	/* Experts have an optimizer of their own. */
	{ "states_of_two_optimizers", {
	  { RANK("0"), EXPERTS("1", "1", "1", "", NORM "=1, "
		L0 "mlp.experts.linear_fc2.weight0': F32[1,1]=2") },
	  { "iter_0000005/mp_rank_00/distrib_optim.pt", "[{"
	    BUFFER("0", "1", "1") ", 'buckets_coalesced': True}, {"
	    "0: {'t': {'param': F32[1]=44, 'exp_avg': F32[1]=45, 'exp_avg_sq': "
	    "F32[1]=46, 'numel_unpadded': 1}}, 'buckets_coalesced': True}]" } },
	  "decoder.layers.0.input_layernorm.weight F32[1] 1\n"
	  "decoder.layers.0.mlp.experts.linear_fc2.weight0 F32[1,1] 2\n"
	  STATE("exp_avg", "0") " 20\n" STATE_OF_EXPERT("exp_avg") " 45\n"
	  STATE("exp_avg_sq", "0") " 30\n" STATE_OF_EXPERT("exp_avg_sq")
	  " 46\n" STATE("param", "0") " 10\n" STATE_OF_EXPERT("param")
	  " 44\n" },
#define NO_STATES(name, buffers, coalesced, why)                              \
	{ name, {                                                             \
	  { RANK("0"), TP1(NORM) },                                           \
	  { "iter_0000005/mp_rank_00/distrib_optim.pt",                       \
	    "{" buffers ", 'buckets_coalesced': " coalesced "}" } },          \
	  SHOWN_NORM "warning: SOURCE: the states of the optimizer are left " \
	  "out: iter_0000005/mp_rank_00/distrib_optim.pt: " why "\n" }
#define BUCKETS "a buffer has several buckets, and no file says where their " \
	"padding was"
	NO_STATES("states_in_several_buckets", BUFFER("0", "2", "2"), "True",
		  BUCKETS),
	NO_STATES("states_of_fewer_elements", BUFFER("0", "0", "1"), "True",
		  "it has not all states of a buffer"),
	NO_STATES("states_of_a_matrix", BUFFER("0", "1,1", "1"), "True",
		  "it has not all states of a buffer"),
	NO_STATES("states_of_another_form", BUFFER("0", "1", "1"), "False",
		  "it has an unknown form"),
	NO_STATES("states_of_a_second_buffer", BUFFER("0", "1", "1") ", "
		  BUFFER("1", "1", "1"), "True",
		  "it has other buffers than the model"),
	NO_STATES("states_of_another_buffer", BUFFER("1", "1", "1"), "True",
		  "it has other buffers than the model"),
	NO_STATES("states_that_lack_one", "0: {'t': {'param': F32[1], "
		  "'exp_avg': F32[1], 'numel_unpadded': 1}}", "True",
		  "it has not all states of a buffer"),
};

TEST_ROWS(trees)
{
	shown_tree_check(*state);
}

/* ---- what is refused ---- */

static const struct shown_refused refused[] = {
	{ "no_args", {
	  { RANK("0"), "{'checkpoint_version': 3.0, " MODEL(NORM) "}" } },
	  ENOTSUP, "SOURCE/iter_0000005/mp_rank_00/model_optim_rng.pt: it has "
	  "no args, which say the tensor and pipeline parallel sizes" },
	{ "args_without_layers", {
	  { RANK("0"), FILE_OF("{'tensor_model_parallel_size': 1, "
		"'pipeline_model_parallel_size': 1}", MODEL(NORM)) } },
	  ENOTSUP, "its args do not say the tensor and pipeline parallel sizes "
	  "and the number of layers" },
	{ "args_of_an_unknown_form", {
	  { RANK("0"), FILE_OF(ARGS("'a'", "1", "1", ""), MODEL(NORM)) } },
	  ENOTSUP, "its args have an unknown form of "
	  "tensor_model_parallel_size" },
	{ "a_size_that_cannot_be", {
	  { RANK("0"), FILE_OF(ARGS("2147483648", "1", "1", ""),
			       MODEL(NORM)) } },
	  EBADMSG, "its args have a tensor_model_parallel_size that cannot be" },
	{ "a_larger_size", {
	  { RANK("0"), FILE_OF(ARGS("2147483649", "1", "1", ""),
			       MODEL(NORM)) } },
	  ENOTSUP, "its args have an unknown form of "
	  "tensor_model_parallel_size" },
	{ "a_negative_size", {
	  { RANK("0"), FILE_OF(ARGS("-1", "1", "1", ""), MODEL(NORM)) } },
	  ENOTSUP, "its args have an unknown form of "
	  "tensor_model_parallel_size" },
	{ "noop_layers_of_an_unknown_form", {
	  { RANK("0"), FILE_OF(ARGS("1", "1", "1", ", 'noop_layers': '1,,2'"),
			       MODEL(NORM)) } },
	  ENOTSUP, "its args have an unknown form of noop_layers" },
	{ "a_schedule_of_an_unknown_form", {
	  { RANK("0"), FILE_OF(ARGS("1", "1", "1", ", 'schedules_method': 1"),
			       MODEL(NORM)) } },
	  ENOTSUP, "its args have an unknown form of schedules_method" },
	{ "tensor_ranks_of_experts", {
	  { RANK("0"), EXPERTS("2", "1", "2", ", 'expert_tensor_parallel_size':"
			       " 4", NORM) },
	  { RANK("1"), EXPERTS("2", "1", "2", ", 'expert_tensor_parallel_size':"
			       " 4", NORM) } },
	  ENOTSUP, "files of ranks with these sizes overwrite each other or "
	  "lack weights" },
	{ "experts_that_do_not_divide", {
	  { OF("00_000"), EXPERTS("1", "2", "3", "", NORM) },
	  { OF("00_001"), EXPERTS("1", "2", "3", "", NORM) } },
	  ENOTSUP, "experts cannot be divided so" },
	{ "too_many_expert_ranks", {
	  { RANK("0"), EXPERTS("2", "40000", "0", ", 'moe_tp_extend_ep': True",
			       NORM) } },
	  ENOTSUP, "that is too many" },
	{ "nothing_says_whether_the_head_is_tied", {
	  { OF("00_000"), PP2("", EMBEDDING "F32[1,1]=8, " NORM) },
	  { OF("00_001"), PP2("", NORM ", " HEAD "F32[1,1]=9") } },
	  EBADMSG, "tensor embedding.word_embeddings.weight: it should be the "
	  "same in" },
	{ "rows_that_alternate", {
	  { RANK("0"), FILE_OF(ARGS("1", "1", "1", ", "
		"'moe_mlp_glu_interleave_size': 32"), MODEL(NORM)) } },
	  ENOTSUP, "rows of gate and up alternate in it" },
	{ "another_version", {
	  { RANK("0"), "{'checkpoint_version': 2.5, 'args': "
	    ARGS("1", "1", "1", "") ", " MODEL(NORM) "}" } },
	  ENOTSUP, "its checkpoint_version is 2.5, and only 3.0 is supported" },
	{ "no_model", { { RANK("0"), FILE_OF(ARGS("1", "1", "1", ""),
					     "'x': 1") } },
	  ENOTSUP, "it has no model" },
	{ "a_chunk_is_missing", {
	  { RANK("0"), FILE_OF(ARGS("1", "1", "1", ""), "'model1': {" NORM
			       "}") } },
	  ENOTSUP, "a chunk of the model is missing in it" },
	{ "a_model_that_is_no_dictionary", {
	  { RANK("0"), FILE_OF(ARGS("1", "1", "1", ""), "'model': [1]") } },
	  ENOTSUP, "its model is not a dictionary" },
	{ "an_old_model", {
	  { RANK("0"), TP1("'language_model': {'a': F32[1]}") } },
	  ENOTSUP, "it has a model from before Megatron-Core" },
	{ "lists_in_the_model", {
	  { RANK("0"), TP1("'decoder.a': {'b': F32[1]}, " NORM) } },
	  ENOTSUP, "its model has lists or dictionaries in it, such as "
	  "decoder.a" },
	{ "a_list_in_the_model", {
	  { RANK("0"), TP1("'decoder.a': [F32[1]], " NORM) } },
	  ENOTSUP, "its model has lists or dictionaries in it, such as "
	  "decoder.a" },
	{ "args_differ", {
	  { RANK("0"), TP2(NORM) },
	  { RANK("1"), FILE_OF(ARGS("2", "1", "2", ""), MODEL(NORM)) } },
	  EBADMSG, "mp_rank_01/model_optim_rng.pt: its args have another "
	  "num_layers than those of iter_0000005/mp_rank_00/" },
	{ "numbers_of_chunks_differ", {
	  { RANK("0"), TP2(NORM) },
	  { RANK("1"), FILE_OF(ARGS("2", "1", "1", ""), "'model0': {" NORM
			       "}, 'model1': {}") } },
	  EBADMSG, "it has 2 chunks of the model, and "
	  "iter_0000005/mp_rank_00/model_optim_rng.pt has 1" },
	{ "iterations_differ", {
	  { RANK("0"), FILE_AT("5", ARGS("2", "1", "1", ""), MODEL(NORM)) },
	  { RANK("1"), FILE_AT("6", ARGS("2", "1", "1", ""), MODEL(NORM)) } },
	  EBADMSG, "it is of iteration 6, and "
	  "iter_0000005/mp_rank_00/model_optim_rng.pt is of iteration 5" },
	{ "files_changed_places", {
	  { RANK("0"), FILE_OF(ARGS("2", "1", "1", ", 'rank': 1, 'world_size': "
		"2"), MODEL(NORM)) },
	  { RANK("1"), FILE_OF(ARGS("2", "1", "1", ", 'rank': 0, 'world_size': "
		"2"), MODEL(NORM)) } },
	  EBADMSG, "it is of another rank: its args say rank 1 of 2" },
	{ "stages_changed_places", {
	  { OF("00_000"), PP2(", 'rank': 1, 'world_size': 2", NORM) },
	  { OF("00_001"), PP2(", 'rank': 0, 'world_size': 2", NORM) } },
	  EBADMSG, "it is of another rank: its args say rank 1 of 2" },
	{ "not_of_the_mesh", {
	  { RANK("0"), TP1(NORM) }, { RANK("1"), TP1(NORM) } },
	  EBADMSG, "SOURCE/iter_0000005/mp_rank_01/model_optim_rng.pt is not of "
	  "the mesh in args (tensor 1, pipeline 1, expert 1)" },
	{ "too_many_numbers", { { OF("00_000"), TP1(NORM) } },
	  EBADMSG, "is not of the mesh in args" },
	{ "too_few_numbers", { { RANK("0"), PP2("", NORM) } },
	  EBADMSG, "is not of the mesh in args (tensor 1, pipeline 2" },
	{ "two_files_of_a_rank", {
	  { OF("00"), TP1(NORM) }, { OF("000"), TP1(NORM) } },
	  EBADMSG, "SOURCE: iter_0000005/mp_rank_00/model_optim_rng.pt and "
	  "iter_0000005/mp_rank_000/model_optim_rng.pt are of the same rank" },
	{ "a_stage_is_lost", { { OF("00_000"), PP2("", NORM) } },
	  ENOENT, "SOURCE/iter_0000005/mp_rank_00_001/model_optim_rng.pt is "
	  "missing, which the mesh in args has (tensor 1, pipeline 2, expert "
	  "1)" },
	{ "a_slice_is_lost", {
	  { RANK("1"), TP2(NORM ", " EMBEDDING "F32[1,1]") } },
	  ENOENT, "SOURCE/iter_0000005/mp_rank_00/model_optim_rng.pt is missing"
	},
	{ "a_slice_of_a_stage_is_lost", {
	  { OF("00_000"), PP2_TP2(NORM) }, { OF("01_000"), PP2_TP2(NORM) },
	  { OF("01_001"), PP2_TP2(NORM ", " L0 FC2 "F32[1,1]") } },
	  ENOENT, "SOURCE/iter_0000005/mp_rank_00_001/model_optim_rng.pt is "
	  "missing" },
	{ "fewer_layers_than_args_say", {
	  { RANK("0"), FILE_OF(ARGS("1", "1", "3", ""), MODEL(NORM)) } },
	  EBADMSG, "SOURCE/iter_0000005/: the files have 1 layers, and args say "
	  "3" },
	{ "layers_without_those_that_are_noop", {
	  { RANK("0"), FILE_OF(ARGS("1", "1", "4", ", 'noop_layers': '1,2'"),
			       MODEL(NORM)) } },
	  EBADMSG, "the files have 1 layers, and args say 2 without those of "
	  "noop_layers" },
	{ "a_layer_is_missing", {
	  { RANK("0"), FILE_OF(ARGS("1", "1", "2", ""), MODEL(NORM ", "
		"'decoder.layers.2.input_layernorm.weight': F32[1]")) } },
	  EBADMSG, "layer 1 is missing in chunk 0 of the model, which has later "
	  "layers" },
	{ "an_expert_too_many", {
	  { RANK("0"), EXPERTS("1", "1", "1", "", NORM ", " L0
		"mlp.experts.linear_fc2.weight1': F32[1,1]") } },
	  EBADMSG, "tensor decoder.layers.0.mlp.experts.linear_fc2.weight1: args "
	  "say that a rank has 1 experts" },
	{ "copies_differ", {
	  { RANK("0"), TP2(NORM) }, { RANK("1"), TP2(NORM "=1") } },
	  EBADMSG, "tensor decoder.layers.0.input_layernorm.weight: it should "
	  "be the same in iter_0000005/mp_rank_00/model_optim_rng.pt and "
	  "iter_0000005/mp_rank_01/model_optim_rng.pt, and differs" },
	/* A copy of the file of another rank. */
	{ "twins", {
	  { RANK("0"), TP2(NORM ", " EMBEDDING "F32[2,1]") },
	  { RANK("1"), TP2(NORM ", " EMBEDDING "F32[2,1]") } },
	  EBADMSG, "SOURCE/iter_0000005/mp_rank_01/model_optim_rng.pt: it has "
	  "the weights of iter_0000005/mp_rank_00/model_optim_rng.pt, which is "
	  "of another rank" },
	{ "types_differ", {
	  { RANK("0"), TP2(L0 "mlp.linear_fc2.bias': F32[1]") },
	  { RANK("1"), TP2(L0 "mlp.linear_fc2.bias': BF16[1]") } },
	  EBADMSG, "have different types or shapes" },
	{ "slices_differ", {
	  { RANK("0"), TP2(NORM ", " L0 "self_attention.linear_qkv.bias': "
			   "F32[1]") },
	  { RANK("1"), TP2(NORM ", " L0 "self_attention.linear_qkv.bias': "
			   "F32[2]") } },
	  EBADMSG, "tensor decoder.layers.0.self_attention.linear_qkv.bias: its "
	  "slices in iter_0000005/mp_rank_00/model_optim_rng.pt and "
	  "iter_0000005/mp_rank_01/model_optim_rng.pt have different types or "
	  "shapes" },
	/* The weights can be shown if only states are not whole. */
	{ "a_file_of_states_is_lost", {
	  { RANK("0"), TP2(L0 FC2 "F32[1,1]/2, 'decoder.final_layernorm.weight'"
			   ": F32[1]@0+1") },
	  { RANK("1"), TP2(L0 FC2 "F32[1,1]/2, 'decoder.final_layernorm.weight'"
			   ": F32[1]@0+1") },
	  { "iter_0000005/mp_rank_00/distrib_optim.pt", OPTIMIZER(
		BUFFER("0", "2", "2")) } },
	  ENOENT, "tensor optimizer.state.exp_avg.decoder.layers.0.mlp."
	  "linear_fc2.weight: no file has slice 1 of 2; `reshardfs mount "
	  "--drop '^optimizer' SOURCE MNT` shows the weights" },
	{ "a_file_lacks_a_tensor", {
	  { RANK("0"), TP2(NORM ", " L0 "mlp.linear_fc2.bias': F32[1]") },
	  { RANK("1"), TP2(NORM) } },
	  EBADMSG, "tensor decoder.layers.0.mlp.linear_fc2.bias: "
	  "iter_0000005/mp_rank_01/model_optim_rng.pt does not have it, and "
	  "iter_0000005/mp_rank_00/model_optim_rng.pt has" },
	{ "a_file_lacks_an_expert", {
	  { RANK("0"), EXPERTS("2", "1", "2", "", NORM ", "
		L0 "mlp.experts.linear_fc2.weight0': F32[1,1], "
		L0 "mlp.experts.linear_fc2.weight1': F32[1,1]") },
	  { RANK("1"), EXPERTS("2", "1", "2", "", NORM ", "
		L0 "mlp.experts.linear_fc2.weight0': F32[1,1]=1") } },
	  EBADMSG, "does not have it, and " },
	{ "an_unknown_name", {
	  { RANK("0"), TP2(NORM ", " L0 "mixer.in_proj': F32[1]") },
	  { RANK("1"), TP2(NORM ", " L0 "mixer.in_proj': F32[1]=1") } },
	  ENOTSUP, "tensor decoder.layers.0.mixer.in_proj: nothing says how its "
	  "slices are joined (--drop leaves it out)" },
	{ "gate_and_up_of_no_known_size", {
	  { RANK("0"), TP2(L0 FC1 "F32[3,1], " L0 FC2 "F32[1,2]") },
	  { RANK("1"), TP2(L0 FC1 "F32[3,1], " L0 FC2 "F32[1,2]=2") } },
	  ENOTSUP, "tensor decoder.layers.0.mlp.linear_fc1.weight: nothing says "
	  "how" },
	{ "a_gate_in_one_file", {
	  { RANK("0"), TP2(L0 FC1 "F32[4,1], " L0 FC2 "F32[1,2]") },
	  { RANK("1"), TP2(L0 FC1 "F32[4,1], " L0 FC2 "F32[1,4]=2") } },
	  ENOTSUP, "tensor decoder.layers.0.mlp.linear_fc1.weight: nothing says "
	  "how" },
	{ "columns_of_a_vector", {
	  { RANK("0"), TP2(NORM ", " L0 FC2 "F32[2]") },
	  { RANK("1"), TP2(NORM ", " L0 FC2 "F32[2]=2") } },
	  ENOTSUP, "tensor decoder.layers.0.mlp.linear_fc2.weight: nothing says "
	  "how" },
	{ "down_projections_of_other_sizes", {
	  { RANK("0"), FILE_OF(ARGS("2", "1", "1", ", 'q_lora_rank': 3"), MODEL(
		L0 "self_attention.linear_q_down_proj.weight': F32[1,1]")) },
	  { RANK("1"), FILE_OF(ARGS("2", "1", "1", ", 'q_lora_rank': 3"), MODEL(
		L0 "self_attention.linear_q_down_proj.weight': F32[1,1]")) } },
	  ENOTSUP, "linear_q_down_proj.weight: nothing says how" },
	{ "grouped_experts_that_do_not_fit", {
	  { RANK("0"), EXPERTS("1", "1", "2", "", NORM ", " L0
		"mlp.experts.weight1': F32[2,4], " L0 "mlp.experts.weight2': "
		"F32[2,3]") } },
	  ENOTSUP, "tensor decoder.layers.0.mlp.experts.weight1: nothing says "
	  "how" },
	{ "no_second_matrix_of_experts", {
	  { RANK("0"), EXPERTS("1", "1", "2", "", NORM ", " L0
		"mlp.experts.weight1': F32[2,4]") } },
	  ENOTSUP, "tensor decoder.layers.0.mlp.experts.weight1: nothing says "
	  "how" },
	{ "a_weight_that_is_no_tensor", {
	  { RANK("0"), TP1(NORM ", " L0 "mlp.linear_fc2.bias': 7") } },
	  ENOTSUP, "it is no tensor, which is not supported" },
};

TEST_ROWS(refused)
{
	shown_refused_check(*state);
}

/* Those of the first file that belong to the training. */
TEST(values_are_those_of_the_first_file)
{
	cleanup_tree char *tree = tree_make();

	torch_write_all(tree, (const struct torch_text[]){
		{ RANK("0"), FILE_OF(ARGS("2", "1", "1", ""), MODEL(NORM)
		  ", 'num_floating_point_operations_so_far': 9, 'rng_state': 3, "
		  "'opt_param_scheduler': {'max_lr': 0.5, 'n': None}, "
		  "'optimizer': {'param_groups': [{'wd': 0.25, 'params': [1]}]}"
		  ) },
		{ RANK("1"), FILE_OF(ARGS("2", "1", "1", ""), MODEL(NORM)
		  ", 'opt_param_scheduler': {'max_lr': 0.75}") },
		{ NULL } });
	assert_values(tree, "", "{\n\"iteration\": 5,\n"
		      "\"num_floating_point_operations_so_far\": 9,\n"
		      "\"opt_param_scheduler.max_lr\": 0.5,\n"
		      "\"opt_param_scheduler.n\": null,\n"
		      "\"optimizer.param_groups.0.wd\": 0.25\n}\n");
}

TEST(slices_are_listed)
{
	cleanup_tree char *tree = tree_make();

	torch_write_all(tree, (const struct torch_text[]){
		{ RANK("0"), EXPERTS("2", "1", "2", "", L0 FC1 "F32[4,1], "
		  L0 FC2 "F32[1,2], " L0 "mlp.experts.weight1': F32[2,4], "
		  L0 "mlp.experts.weight2': F32[2,2]") },
		{ RANK("1"), EXPERTS("2", "1", "2", "", L0 FC1 "F32[4,1]=9, "
		  L0 FC2 "F32[1,2]=9, " L0 "mlp.experts.weight1': F32[2,4]=9, "
		  L0 "mlp.experts.weight2': F32[2,2]=9") }, { NULL } });
#define IN_0 " in iter_0000005/mp_rank_00/model_optim_rng.pt"
#define IN_1 " in iter_0000005/mp_rank_01/model_optim_rng.pt"
#define MLP "decoder.layers.0.mlp."
	assert_listed(tree, "",
		      MLP "experts.weight1 Float32[2,8]: []@" IN_0 ", []@" IN_1
		      "\n" MLP "experts.weight2 Float32[4,2]: []@" IN_0 ", []@"
		      IN_1 "\n" MLP "linear_fc1.weight Float32[8,1]: [2,1]@0,0"
		      IN_0 ", [2,1]@4,0" IN_0 ", [2,1]@2,0" IN_1 ", [2,1]@6,0"
		      IN_1 "\n" MLP "linear_fc2.weight Float32[1,4]: [1,2]@0,0"
		      IN_0 ", [1,2]@0,2" IN_1 "\n"
		      "mesh: tensor 2, pipeline 1, expert 1; 1 layer; "
		      "optimizer: none\n");
}

/* The chunk of folded experts is no box of them. */
TEST(experts_of_one_rank_are_listed)
{
	cleanup_tree char *tree = tree_make();

	torch_write_all(tree, (const struct torch_text[]){
		{ RANK("0"), EXPERTS("1", "1", "2", "", NORM ", "
		  L0 "mlp.experts.weight1': F32[2,4], " L0
		  "mlp.experts.weight2': F32[2,2]") }, { NULL } });
	assert_listed(tree, "",
		      "decoder.layers.0.input_layernorm.weight Float32[1]: "
		      "[1]@0" IN_0 "\n" MLP "experts.weight1 Float32[2,4]: []@"
		      IN_0 "\n" MLP "experts.weight2 Float32[2,2]: [2,2]@"
		      "0,0" IN_0 "\nmesh: tensor 1, pipeline 1, expert 1; 1 layer; "
		      "optimizer: none\n");
}
