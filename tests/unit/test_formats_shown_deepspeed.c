/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_formats_shown_deepspeed.c - checkpoints of DeepSpeed: the whole
 * tensors that they show, and what is refused. */
#include "config.h"

#include "formats/deepspeed/deepspeed_i.h"
#include "rsh/formats/formats.h"
#include "shown_support.h"

#define TAG "global_step7/"
#define STATES TAG "mp_rank_00_model_states.pt"
#define PART(rank) TAG "zero_pp_rank_" rank "_mp_rank_00_model_states.pt"
#define OPTIM(rank) TAG "zero_pp_rank_" rank "_mp_rank_00_optim_states.pt"

/* The file of a model: its module, groups of shapes, and more. */
#define MODEL(world, module, shapes, more) \
	"{'ds_version': '0.19.8', 'dp_world_size': " world ", 'global_steps': 7"\
	", 'module': {" module "}, 'param_shapes': [" shapes "]" more "}"
#define SIZE(dims) "torch.Size((" dims "))"
/* The file of an optimizer of ZeRO 1 or 2, and of 3. */
#define ZERO(stage, world, flats, more) \
	"{'optimizer_state_dict': {'zero_stage': " stage \
	", 'partition_count': " world ", 'single_partition_of_fp32_groups': [" \
	flats "]" more "}}"
#define ZERO3(world, flats, more) \
	"{'optimizer_state_dict': {'zero_stage': 3, 'partition_count': " world \
	", 'fp32_flat_groups': [" flats "]" more "}}"
#define BASE(states) ", 'base_optimizer_state': {'state': {" states "}}"
#define BASE3(states) ", 'optimizer_state_dict': {'state': {" states "}}"

/* Two parameters, of 3 and of 2 elements, on two ranks: each has 3 elements of
 * the vector of both, the last of which is padding. */
#define TWO_SHAPES "{'a': " SIZE("3,") ", 'b': " SIZE("2, 1") "}"
#define TWO_MODEL(more) \
	MODEL("2", "'a': BF16[3], 'b': BF16[2,1]", TWO_SHAPES, more)

#define LACKS_SOME \
	"warning: SOURCE: files of the optimizer are missing: the weights " \
	"are those of the module, in the type of the training\n"

static const struct shown_tree trees[] = {
	/* ---- ZeRO 1 and 2 ---- */
	{ "masters_are_cut_anywhere", {
	  { STATES, TWO_MODEL("") },
	  { OPTIM("0"), ZERO("1", "2", "F32[3]=0", "") },
	  { OPTIM("1"), ZERO("1", "2", "F32[3]=3", "") } },
	  "a F32[3] 0 1 2\nb F32[2,1] 3 4\n" },
	/* Rank 0 has the first element of b, too. */
	{ "a_parameter_on_two_ranks", {
	  { STATES, MODEL("2", "'a': BF16[3], 'b': BF16[3,1]", "{'a': "
			  SIZE("3,") ", 'b': " SIZE("3, 1") "}", "") },
	  { OPTIM("0"), ZERO("2", "2", "F32[4]=0", BASE("0: {'exp_avg': "
		"F32[4]=10, 'step': F32[]=7}")) },
	  { OPTIM("1"), ZERO("2", "2", "F32[4]=4", BASE("0: {'exp_avg': "
		"F32[4]=14, 'step': F32[]=7}")) } },
	  "a F32[3] 0 1 2\nb F32[3,1] 3 4 5\n"
	  "optimizer.state.a.exp_avg F32[3] 10 11 12\n"
	  "optimizer.state.a.step F32[] 7\n"
	  "optimizer.state.b.exp_avg F32[3,1] 13 14 15\n"
	  "optimizer.state.b.step F32[] 7\n" },
	/* The last rank may lack the padding. */
	{ "a_shorter_last_piece", {
	  { STATES, TWO_MODEL("") },
	  { OPTIM("0"), ZERO("1", "2", "F32[3]=0", "") },
	  { OPTIM("1"), ZERO("1", "2", "F32[2]=3", "") } },
	  "a F32[3] 0 1 2\nb F32[2,1] 3 4\n" },
	{ "padding_between_parameters", {
	  { STATES, TWO_MODEL("") },
	  { OPTIM("0"), ZERO("1", "2", "F32[4]=0",
		", 'param_alignment_paddings': [[1, 2]]") },
	  { OPTIM("1"), ZERO("1", "2", "F32[4]=4",
		", 'param_alignment_paddings': [[1, 2]]") } },
	  "a F32[3] 0 1 2\nb F32[2,1] 4 5\n" },
	{ "two_groups", {
	  { STATES, MODEL("1", "'a': BF16[2], 'b': BF16[1]", "{'a': "
			  SIZE("2,") "}, {'b': (1,)}", "") },
	  { OPTIM("0"), ZERO("1", "1", "F32[2]=5, F32[1]=9", BASE(
		"0: {'m': F32[2]=1}, 1: {'m': F32[1]=8}")) } },
	  "a F32[2] 5 6\nb F32[1] 9\noptimizer.state.a.m F32[2] 1 2\n"
	  "optimizer.state.b.m F32[1] 8\n" },
	/* BF16_Optimizer says no stage; the stage may be an enum. */
	{ "no_stage", {
	  { STATES, MODEL("1", "'a': BF16[1]", "{'a': (1,)}", "") },
	  { TAG "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt",
	    "{'optimizer_state_dict': {'partition_count': [1], "
	    "'single_partition_of_fp32_groups': [F32[1]=9]}}" } },
	  "a F32[1] 9\n" },
	{ "a_stage_that_is_an_enum", {
	  { STATES, MODEL("1", "'a': BF16[1]", "{'a': (1,)}", "") },
	  { OPTIM("0"), ZERO("deepspeed.config.ZeroStageEnum(2)", "1",
			     "F32[1]=9", "") } },
	  "a F32[1] 9\n" },
	{ "states_of_elastic_checkpoints", {
	  { STATES, MODEL("1", "'a': BF16[2]", "{'a': (2,)}", "") },
	  { OPTIM("0"), ZERO("1", "1", "F32[2]=5",
		", 'base_optimizer_state': [{'m': F32[2]=7}]") } },
	  "a F32[2] 5 6\noptimizer.state.a.m F32[2] 7 8\n" },
	{ "a_state_of_another_length", {
	  { STATES, MODEL("1", "'a': BF16[2]", "{'a': (2,)}", "") },
	  { OPTIM("0"), ZERO("1", "1", "F32[2]=5", BASE("0: {'m': F32[1]}")) }
	  }, "a F32[2] 5 6\nwarning: SOURCE: m of the optimizer does not have "
	  "the length of its group, and is not shown\n" },
	/* An early DeepSpeed makes one step before those of the job. */
	{ "one_step_more_than_the_job", {
	  { STATES, MODEL("1", "'a': BF16[1]", "{'a': (1,)}", "") },
	  { OPTIM("0"), ZERO("1", "1", "F32[1]=9", BASE("0: {'step': 8}")) } },
	  "a F32[1] 9\n" },
	/* The masters of an optimizer that made fewer steps may be of another
	 * save. */
	{ "steps_that_were_skipped", {
	  { STATES, MODEL("1", "'a': BF16[1]", "{'a': (1,)}",
			  ", 'skipped_steps': 2") },
	  { OPTIM("0"), ZERO("1", "1", "F32[1]=9", BASE("0: {'step': 5}")) } },
	  "a F32[1] 9\n" },
	{ "an_optimizer_of_an_older_step", {
	  { STATES, MODEL("1", "'a': BF16[1]", "{'a': (1,)}",
			  ", 'skipped_steps': 2") },
	  { OPTIM("0"), ZERO("1", "1", "F32[1]=9", BASE("0: {'step': 4}")) } },
	  "a F32[1] 9\nwarning: SOURCE: " OPTIM("0") " is of step 4 of the "
	  "optimizer, and " STATES " of global step 7 (2 skipped): unless the "
	  "optimizer was a new one, the weights are of another save\n" },
	/* What the module has, and no list of parameters. */
	{ "buffers_and_frozen_parameters", {
	  { STATES, MODEL("1", "'a': BF16[1], 'c': I64[1]=4, 'f': BF16[1]=6",
		"{'a': (1,)}", ", 'buffer_names': ['c'], 'frozen_param_shapes'"
		": {'f': (1,)}") },
	  { OPTIM("0"), ZERO("2", "1", "F32[1]=9", "") } },
	  "c I64[1] 4\na F32[1] 9\nf BF16[1] 6\n" },
	{ "tied_parameters", {
	  { STATES, MODEL("1", "'a': BF16[1], 'head': BF16[1]", "{'a': (1,)}",
			  ", 'shared_params': {'head': 'a'}") },
	  { OPTIM("0"), ZERO("2", "1", "F32[1]=9", "") } },
	  "a F32[1] 9\nhead F32[1] 9\n" },
	{ "without_zero", {
	  { STATES, "{'ds_version': '0.19.8', 'dp_world_size': 2, 'module': "
	    "{'a': F32[2]=3}, 'param_shapes': None, 'optimizer': None}" } },
	  "a F32[2] 3 4\n" },
	{ "files_of_the_optimizer_are_lost", {
	  { STATES, TWO_MODEL("") },
	  { OPTIM("0"), ZERO("1", "2", "F32[3]=0", "") } },
	  "a BF16[3] 0 1 2\nb BF16[2,1] 0 1\n" LACKS_SOME },

	{ "the_first_file_of_the_optimizer_is_lost", {
	  { STATES, TWO_MODEL("") },
	  { OPTIM("1"), ZERO("1", "2", "F32[3]=3", "") } },
	  "a BF16[3] 0 1 2\nb BF16[2,1] 0 1\n" LACKS_SOME },

	/* ---- ZeRO 3 ---- */
	{ "shares_of_each_parameter", {
	  { PART("0"), TWO_MODEL("") }, { PART("1"), TWO_MODEL("") },
	  { OPTIM("0"), ZERO3("2", "F32[3]=0", BASE3("0: {'m': F32[3]=10}")) },
	  { OPTIM("1"), ZERO3("2", "F32[3]=5", BASE3("0: {'m': F32[3]=15}")) }
	  }, "a F32[3] 0 1 5\nb F32[2,1] 2 7\n"
	  "optimizer.state.a.m F32[3] 10 11 15\n"
	  "optimizer.state.b.m F32[2,1] 12 17\n" },
	{ "frozen_parameters_in_shares", {
	  { PART("0"), MODEL("2", "'a': BF16[0]", "{'a': (2,)}", ", "
		"'frozen_param_shapes': {'f': (3,)}, 'frozen_param_fragments': "
		"{'f': BF16[2]=1}") },
	  { PART("1"), MODEL("2", "'a': BF16[0]", "{'a': (2,)}", ", "
		"'frozen_param_shapes': {'f': (3,)}, 'frozen_param_fragments': "
		"{'f': BF16[2]=3}") },
	  { OPTIM("0"), ZERO3("2", "F32[1]=8", "") },
	  { OPTIM("1"), ZERO3("2", "F32[1]=9", "") } },
	  "a F32[2] 8 9\nf BF16[3] 1 2 3\n" },

	{ "a_frozen_parameter_of_nothing", {
	  { PART("0"), MODEL("1", "'a': BF16[0]", "{'a': (2,)}", ", "
		"'frozen_param_shapes': {'f': (0,), 'g': (1,)}, "
		"'frozen_param_fragments': {'g': BF16[1]=3}") },
	  { OPTIM("0"), ZERO3("1", "F32[2]=8", "") } },
	  "a F32[2] 8 9\ng BF16[1] 3\n" },

	{ "a_frozen_parameter_that_the_module_leaves_out", {
	  { STATES, MODEL("1", "'a': BF16[1]", "{'a': (1,)}", ", "
		"'frozen_param_shapes': {'f': (2,), 'tied': (1,)}, "
		"'frozen_param_fragments': {'f': BF16[2]=6}, 'shared_params': "
		"{'tied': 'a'}") },
	  { OPTIM("0"), ZERO("2", "1", "F32[1]=9", "") } },
	  "a F32[1] 9\ntied F32[1] 9\nf BF16[2] 6 7\n" },

	/* ---- the universal form ---- */
	{ "states_of_two_kinds", {
	  { STATES, MODEL("1", "'a': BF16[1]", "{'a': (1,), 'b': (1,), 'c': "
			  "(1,)}", "") },
	  { TAG "zero/a/fp32.pt", "{'param': F32[1]=1}" },
	  { TAG "zero/a/exp_avg.pt", "{'param': F32[1]=2}" },
	  { TAG "zero/b/fp32.pt", "{'param': F32[1]=3}" },
	  { TAG "zero/b/momentum.pt", "{'param': F32[1]=4}" },
	  { TAG "zero/c/fp32.pt", "{'param': F32[1]=5}" } },
	  "a F32[1] 1\nb F32[1] 3\nc F32[1] 5\n"
	  "optimizer.state.a.exp_avg F32[1] 2\n"
	  "optimizer.state.b.momentum F32[1] 4\n" },
	{ "universal", {
	  { STATES, MODEL("2", "'a': BF16[2]", "{'a': (2,)}, {'b': (1, 2)}",
			  "") },
	  { TAG "zero/a/fp32.pt", "{'param': F32[2]=3}" },
	  { TAG "zero/a/exp_avg.pt", "{'param': F32[2]=5}" },
	  /* One that is flat has the shape of its parameter. */
	  { TAG "zero/b/fp32.pt", "{'param': F32[2]=7}" } },
	  "a F32[2] 3 4\nb F32[1,2] 7 8\noptimizer.state.a.exp_avg F32[2] 5 6\n"
	},
	{ "universal_of_a_pipeline", {
	  { STATES, MODEL("2", "'a': BF16[2]", "{'a': (2,)}", "") },
	  { TAG "zero/a/fp32.pt", "{'param': F32[2]=3}" },
	  { TAG "zero/a/exp_avg.pt", "{'param': F32[2]=5}" },
	  { TAG "zero/b.c/fp32.pt", "{'param': F32[1,2]=7}" },
	  { TAG "zero/b.c/exp_avg.pt", "{'param': F32[1,2]=9}" } },
	  "a F32[2] 3 4\nb.c F32[1,2] 7 8\noptimizer.state.a.exp_avg F32[2] 5 6"
	  "\noptimizer.state.b.c.exp_avg F32[1,2] 9 10\n" },
	{ "other_tensors_beside_the_parameter", {
	  { STATES, MODEL("1", "'a': BF16[2]", "{'a': (2,)}", "") },
	  { TAG "zero/a/fp32.pt", "{'vocab': F32[2]=8, 'param': F32[2]=3, "
	    "'cat_dim': 0}" } },
	  "a F32[2] 3 4\n" },
	{ "a_tensor_without_a_dictionary", {
	  { STATES, MODEL("1", "'a': BF16[2]", "{'a': (2,)}", "") },
	  { TAG "zero/a/fp32.pt", "F32[2]=3" } },
	  "a F32[2] 3 4\n" },
	/* DeepSpeed's conversion mixed up the masters. */
	{ "masters_that_are_not_the_weights", {
	  { STATES, MODEL("2", "'a': BF16[2]=5", "{'a': (2,)}", ", 'ds_config':"
		" {'zero_optimization': {'round_robin_gradients': True}}") },
	  { TAG "zero/a/fp32.pt", "{'param': F32[2]=3}" } },
	  "a BF16[2] 5 6\n" },
	{ "masters_that_are_the_weights", {
	  { STATES, MODEL("2", "'a': BF16[2]=3", "{'a': (2,)}", ", 'ds_config':"
		" {'zero_optimization': {'round_robin_gradients': True}}") },
	  { TAG "zero/a/fp32.pt", "{'param': F32[2]=3}" } },
	  "a F32[2] 3 4\n" },
	/* Elements that are in another order, or apart, are not compared. */
	{ "masters_beside_columns", {
	  { STATES, MODEL("2", "'a': BF16[2,2]=5:[1,2]", "{'a': (2, 2)}", ", "
		"'ds_config': {'zero_optimization': {'round_robin_gradients': "
		"True}}") },
	  { TAG "zero/a/fp32.pt", "{'param': F32[2,2]=3}" } },
	  "a F32[2,2] 3 4 5 6\n" },
	{ "masters_beside_weights_that_are_apart", {
	  { STATES, MODEL("2", "'a': BF16[2]/4=5:[2]", "{'a': (2,)}", ", "
		"'ds_config': {'zero_optimization': {'round_robin_gradients': "
		"True}}") },
	  { TAG "zero/a/fp32.pt", "{'param': F32[2]=3}" } },
	  "a F32[2] 3 4\n" },

	/* ---- experts ---- */
	{ "experts_have_files", {
	  { STATES, MODEL("1", "'a': BF16[1]=2", "{'a': (1,)}",
			  ", 'num_experts': [2]") },
	  { TAG "layer_0_expert_0_mp_rank_00_model_states.pt",
	    "{'e.0.w': BF16[1]=5}" },
	  { TAG "layer_0_expert_1_mp_rank_00_model_states.pt",
	    "{'e.1.w': BF16[1]=6}" } },
	  "a BF16[1] 2\ne.0.w BF16[1] 5\ne.1.w BF16[1] 6\n" },

	/* ---- steps ---- */
	{ "the_newest_step", {
	  { "global_step9/mp_rank_00_model_states.pt", MODEL("1",
		"'a': F32[1]=9", "", "") },
	  { "global_step10/mp_rank_00_model_states.pt", MODEL("1",
		"'a': F32[1]=10", "", "") } }, "a F32[1] 10\n" },
	{ "the_step_of_the_tracker", {
	  { "global_step9/mp_rank_00_model_states.pt", MODEL("1",
		"'a': F32[1]=9", "", "") },
	  { "global_step10/mp_rank_00_model_states.pt", MODEL("1",
		"'a': F32[1]=10", "", "") }, { "./latest", "global_step9" } },
	  "a F32[1] 9\n" },
	/* A directory of any name beside a file of DeepSpeed. */
	{ "a_step_of_any_name", {
	  { "best/mp_rank_00_model_states.pt", MODEL("1", "'a': F32[1]=9", "",
						     "") },
	  { "./latest", "best" } }, "a F32[1] 9\n" },
	{ "steps_of_the_trainer", {
	  { "checkpoint-9/global_step9/mp_rank_00_model_states.pt", MODEL("1",
		"'a': F32[1]=9", "", "") },
	  { "checkpoint-10/global_step8/mp_rank_00_model_states.pt", MODEL("1",
		"'a': F32[1]=8", "", "") },
	  { "checkpoint-10/global_step10/mp_rank_00_model_states.pt", MODEL(
		"1", "'a': F32[1]=10", "", "") } }, "a F32[1] 10\n" },
	{ "the_trainers_tracker", {
	  { "checkpoint-10/global_step8/mp_rank_00_model_states.pt", MODEL("1",
		"'a': F32[1]=8", "", "") },
	  { "checkpoint-10/global_step10/mp_rank_00_model_states.pt", MODEL(
		"1", "'a': F32[1]=10", "", "") },
	  { "checkpoint-10/latest", "global_step8" } }, "a F32[1] 8\n" },
};

TEST_ROWS(trees)
{
	shown_tree_check(*state);
}

TEST(the_file_of_a_module_alone)
{
	cleanup_tree char *tree = tree_make();

	torch_write_all(tree, (const struct torch_text[]){
		{ STATES, TWO_MODEL("") },
		{ OPTIM("1"), ZERO("1", "2", "F32[3]=3", "") }, { NULL } });
	assert_shown(tree, STATES, "a BF16[3] 0 1 2\nb BF16[2,1] 0 1\n"
		     "warning: SOURCE/global_step7: it has two kinds of "
		     "checkpoint: taking the checkpoint of DeepSpeed, not the "
		     "checkpoint of PyTorch\n");
	assert_not_shown(tree, OPTIM("1"), EINVAL, "it is the part of rank 1 of "
			 "a checkpoint of DeepSpeed: SOURCE is the directory "
			 "with the files of all ranks");
}

TEST(boxes_are_listed)
{
	cleanup_tree char *tree = tree_make();

	torch_write_all(tree, (const struct torch_text[]){
		{ STATES, MODEL("2", "'a': BF16[3,2], 'f': BF16[1], 'h': "
		  "BF16[1]", "{'a': (3, 2)}", ", 'frozen_param_shapes': {'f': "
		  "(1,)}, 'shared_params': {'h': 'a'}") },
		{ OPTIM("0"), ZERO("2", "2", "F32[3]", BASE("0: {'m': F32[3], "
		  "'n': F32[3]}")) },
		{ OPTIM("1"), ZERO("2", "2", "F32[3]", BASE("0: {'m': F32[3], "
		  "'n': F32[3]}")) }, { NULL } });
#define IN(rank) " in " OPTIM(rank)
#define BOXES "[1,2]@0,0" IN("0") ", [1,1]@1,0" IN("0") ", [1,1]@1,1" \
	IN("1") ", [1,2]@2,0" IN("1") "\n"
	assert_listed(tree, "", "a Float32[3,2]: " BOXES
		      "f BFloat16[1]: [1]@0 in " STATES "\n"
		      "h Float32[3,2]: " BOXES
		      "optimizer.state.a.m Float32[3,2]: " BOXES
		      "optimizer.state.a.n Float32[3,2]: " BOXES
		      "DeepSpeed 0.19.8, ZeRO 2 of 2 ranks, step 7; 1 frozen; "
		      "1 tied; optimizer: m, n\n");
}

/* Those of rank 0, without what says where tensors are. */
TEST(values_are_those_of_rank_0)
{
	cleanup_tree char *tree = tree_make();

	torch_write_all(tree, (const struct torch_text[]){
		{ STATES, TWO_MODEL(", 'buffer_names': [], 'client': {'a': 1}, "
		  "'lr_scheduler': None, 'ds_config': {'x': 1}") },
		{ OPTIM("0"), ZERO("1", "2", "F32[3]", ", "
		  "'base_optimizer_state': {'state': {}, 'param_groups': [{'lr':"
		  " 0.5, 'params': [0]}]}") },
		{ OPTIM("1"), ZERO("1", "2", "F32[3]", ", "
		  "'base_optimizer_state': {'state': {}, 'param_groups': [{'lr':"
		  " 0.75, 'params': [0]}]}") },
		{ NULL } });
	assert_values(tree, "", "{\n\"global_steps\": 7,\n\"client.a\": 1,\n"
		      "\"lr_scheduler\": null,\n"
		      "\"optimizer.param_groups.0.lr\": 0.5\n}\n");
}

/* ---- what is refused ---- */

/* One parameter of one rank, with another file of the model or optimizer. */
#define BAD_MODEL(model) \
	{ { STATES, model }, { OPTIM("0"), ZERO("1", "1", "F32[1]", "") } }
#define BAD_ZERO(zero) \
	{ { STATES, MODEL("1", "'a': BF16[1]", "{'a': (1,)}", "") }, \
	  { OPTIM("0"), zero } }
#define ONE_MODEL(shapes, more) MODEL("1", "'a': BF16[1]", shapes, more)

static const struct shown_refused refused[] = {
	{ "tensor_parallel",
	  BAD_MODEL(ONE_MODEL("{'a': (1,)}", ", 'mp_world_size': 2")), ENOTSUP,
	  "SOURCE/global_step7/mp_rank_00_model_states.pt: it is tensor or "
	  "pipeline parallel: convert it with ds_to_universal.py" },
	{ "tensor_parallel_in_another_place",
	  BAD_MODEL(ONE_MODEL("{'a': (1,)}", ", 'checkpoint_parallel_dimensions"
			      "': {'tp_degree': 2}")), ENOTSUP,
	  "it is tensor or pipeline parallel" },
	{ "pipeline_parallel",
	  BAD_MODEL(ONE_MODEL("{'a': (1,)}", ", 'checkpoint_parallel_dimensions"
			      "': {'pp_degree': 2}")), ENOTSUP,
	  "it is tensor or pipeline parallel" },
	{ "files_of_tensor_ranks", {
	  { STATES, ONE_MODEL("", "") },
	  { TAG "mp_rank_01_model_states.pt", ONE_MODEL("", "") } }, ENOTSUP,
	  "mp_rank_01_model_states.pt: it is of a tensor parallel model" },
	{ "files_of_layers", {
	  { STATES, ONE_MODEL("", "") },
	  { TAG "layer_01-model_00-model_states.pt", ONE_MODEL("", "") } },
	  ENOTSUP, "it is of a pipeline parallel model" },
	{ "experts_divided_by_autoep",
	  BAD_MODEL(ONE_MODEL("{'a': (1,)}", ", 'ds_autoep_layers': [1]")),
	  ENOTSUP, "its experts were divided by AutoEP" },
	{ "no_module", BAD_MODEL("{'ds_version': '1', 'param_shapes': []}"),
	  ENOTSUP, "it has no dictionary of a module" },
	{ "shapes_that_are_no_list",
	  BAD_MODEL("{'ds_version': '1', 'module': {}, 'param_shapes': {}}"),
	  EBADMSG, "damaged: param_shapes is not a list" },
	{ "shapes_that_are_no_dictionary", BAD_MODEL(ONE_MODEL("[1]", "")),
	  EBADMSG, "damaged: shapes of parameters are not a dictionary" },
	{ "a_shape_that_is_none", BAD_MODEL(ONE_MODEL("{'a': 7}", "")),
	  EBADMSG, "damaged: the shape of a parameter" },
	{ "a_negative_size", BAD_MODEL(ONE_MODEL("{'a': (-1,)}", "")), EBADMSG,
	  "damaged: a parameter has more elements than can be" },
	{ "sizes_that_overflow", BAD_MODEL(ONE_MODEL("{'a': (4611686018427387904"
	  ", 2)}", "")), EBADMSG,
	  "damaged: a parameter has more elements than can be" },
	{ "a_name_that_is_a_number", BAD_MODEL(ONE_MODEL("{7: (1,)}", "")),
	  EBADMSG, "damaged: the name of a parameter" },
	{ "a_parameter_twice", BAD_MODEL(ONE_MODEL("{'a': (1,)}, {'a': (1,)}",
						   "")), EBADMSG,
	  "damaged: it has parameter a twice" },
	{ "a_parameter_that_is_frozen_too", BAD_MODEL(ONE_MODEL("{'a': (1,)}",
	  ", 'frozen_param_shapes': {'a': (1,)}")), EBADMSG,
	  "damaged: it has parameter a twice" },
	{ "the_name_of_a_buffer", BAD_MODEL(ONE_MODEL("{'a': (1,)}",
	  ", 'buffer_names': [7]")), EBADMSG, "damaged: the name of a buffer" },
	{ "shared_params_that_are_a_list", BAD_MODEL(ONE_MODEL("{'a': (1,)}",
	  ", 'shared_params': []")), EBADMSG,
	  "damaged: shared_params is not a dictionary" },
	{ "the_name_of_a_shared_parameter", BAD_MODEL(ONE_MODEL("{'a': (1,)}",
	  ", 'shared_params': {'b': 7}")), EBADMSG,
	  "damaged: the name of a shared parameter" },
	{ "tied_to_nothing", BAD_MODEL(ONE_MODEL("{'a': (1,)}",
	  ", 'shared_params': {'b': 'c'}")), EBADMSG,
	  "tensor b: it is tied to c, which is not there" },
	{ "numbers_of_experts", BAD_MODEL(ONE_MODEL("{'a': (1,)}",
	  ", 'num_experts': ['a']")), EBADMSG,
	  "damaged: the number of experts" },
	{ "a_control_character_in_a_name",
	  BAD_MODEL(ONE_MODEL("{'a\2b': (1,)}", "")), EBADMSG,
	  "damaged: the name of a parameter" },
	{ "two_tensors_of_a_name",
	  BAD_MODEL(ONE_MODEL("{'a': (1,)}", ", 'shared_params': {'a': 'a'}")),
	  EBADMSG, "damaged: two tensors have the name a" },
	{ "a_tensor_of_an_unknown_kind",
	  BAD_MODEL(MODEL("1", "'a': torch._utils._rebuild_sparse_tensor("
			  "F32[1])", "{'a': (1,)}", "")), ENOTSUP,
	  "tensor module.a is of a kind that is not supported" },
	{ "another_shape_in_the_module", BAD_MODEL(ONE_MODEL("{'a': (1, 1)}",
	  "")), EBADMSG, "tensor a: global_step7/mp_rank_00_model_states.pt has "
	  "another shape of it than its param_shapes says" },
	{ "no_shapes", BAD_MODEL("{'ds_version': '1', 'module': {}}"), EBADMSG,
	  "damaged: it has no param_shapes" },

	{ "no_groups", BAD_ZERO("{'optimizer_state_dict': {'zero_stage': 1}}"),
	  ENOTSUP, "SOURCE/global_step7/zero_pp_rank_0_mp_rank_00_optim_states."
	  "pt: it has no flat groups of parameters" },
	{ "a_stage_of_other_groups", BAD_ZERO(ZERO("3", "1", "F32[1]", "")),
	  EBADMSG, "damaged: zero_stage is not that of its groups" },
	{ "a_stage_that_is_none", BAD_ZERO(ZERO("4", "1", "F32[1]", "")),
	  EBADMSG, "damaged: zero_stage is not that of its groups" },
	{ "a_stage_that_is_a_text", BAD_ZERO(ZERO("'x'", "1", "F32[1]", "")),
	  EBADMSG, "damaged: zero_stage is not that of its groups" },
	{ "stage_0", BAD_ZERO(ZERO("0", "1", "F32[1]", "")), EBADMSG,
	  "damaged: flat groups are not a list" },
	{ "no_number_of_ranks", BAD_ZERO(ZERO("1", "0", "F32[1]", "")),
	  EBADMSG, "damaged: partition_count does not say the number of ranks" },
	{ "numbers_of_ranks", BAD_ZERO(ZERO("1", "[1, 'a']", "F32[1]", "")),
	  EBADMSG, "damaged: partition_count does not say the number of ranks" },
	{ "paddings_of_other_groups", BAD_ZERO(ZERO("1", "1", "F32[1]",
	  ", 'param_alignment_paddings': []")), EBADMSG,
	  "damaged: param_alignment_paddings has another number of groups" },
	{ "paddings_of_other_parameters", BAD_ZERO(ZERO("1", "1", "F32[1]",
	  ", 'param_alignment_paddings': [[0, 0]]")), EBADMSG,
	  "damaged: group 0 of its parameters does not have as many paddings as "
	  "parameters" },
	{ "a_padding_that_is_none", BAD_ZERO(ZERO("1", "1", "F32[1]",
	  ", 'param_alignment_paddings': [[-1]]")), EBADMSG,
	  "has a value that is not a padding" },
	{ "another_number_of_groups", BAD_ZERO(ZERO("1", "1", "F32[1], F32[1]",
	  "")), EBADMSG, "the optimizer has 2 groups of parameters, and the "
	  "model 1" },
	{ "a_matrix_in_place_of_a_vector", BAD_ZERO(ZERO("1", "1", "F32[1,1]",
	  "")), EBADMSG, "damaged: a group has no flat tensor" },
	{ "too_few_elements", BAD_ZERO(ZERO("1", "1", "F32[0]", "")), EBADMSG,
	  "damaged: group 0 of its parameters does not have the length of its "
	  "flat tensors" },
	{ "a_stage_of_another_model", BAD_ZERO(ZERO3("1", "F32[1]", "")),
	  EBADMSG, "its stage of ZeRO is not that of the model" },
	{ "another_number_of_ranks", BAD_ZERO(ZERO("1", "2", "F32[1]", "")),
	  EBADMSG, "it is of 2 ranks, and the model of 1" },
	{ "steps_that_are_not_made_yet", BAD_ZERO(ZERO("1", "1", "F32[1]",
	  BASE("0: {'step': 9}"))), EBADMSG, "it is of step 9 of the optimizer, "
	  "and global_step7/mp_rank_00_model_states.pt is of global step 7" },
	{ "two_groups_of_a_number", BAD_ZERO(ZERO("1", "1", "F32[1]",
	  BASE("0: {'m': F32[1]}, '00': {'m': F32[1]}"))), EBADMSG,
	  "has two tensors of one name" },
	{ "a_file_of_another_name", {
	  { STATES, MODEL("1", "'a': BF16[1]", "{'a': (1,)}", "") },
	  { OPTIM("0"), ZERO("1", "1", "F32[1]", ""),
	    "zero_pp_rank_1_mp_rank_00_optim_states" } }, EBADMSG,
	  "the file is of rank 1, not 0" },
	{ "a_part_of_another_name", {
	  { PART("0"), TWO_MODEL(""), "zero_pp_rank_1_mp_rank_00_model_states" },
	  { PART("1"), TWO_MODEL("") },
	  { OPTIM("0"), ZERO3("2", "F32[3]", "") },
	  { OPTIM("1"), ZERO3("2", "F32[3]", "") } }, EBADMSG,
	  "the file is of rank 1, not 0" },
	{ "no_file_of_the_model", {
	  { OPTIM("0"), ZERO("1", "1", "F32[1]", "") } }, ENOENT,
	  "is one rank's slice of a model, as DeepSpeed writes them: SOURCE is "
	  "the directory with the files of all ranks" },

	/* ---- two ranks ---- */
	{ "a_rank_too_many", {
	  { STATES, MODEL("1", "'a': BF16[1]", "{'a': (1,)}", "") },
	  { OPTIM("0"), ZERO("1", "1", "F32[1]", "") },
	  { OPTIM("1"), ZERO("1", "1", "F32[1]", "") } }, EBADMSG,
	  "1 rank wrote the checkpoint, and this is a file of rank 1" },
	{ "two_files_of_a_rank", {
	  { STATES, TWO_MODEL("") },
	  { OPTIM("0"), ZERO("1", "2", "F32[3]", "") },
	  { OPTIM("1"), ZERO("1", "2", "F32[3]", "") },
	  { TAG "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt",
	    ZERO("1", "2", "F32[3]", "") } }, EBADMSG,
	  "another file is of rank 1, too" },
	{ "parts_of_two_steps", {
	  { PART("0"), TWO_MODEL("") },
	  { PART("1"), "{'ds_version': '0.19.8', 'dp_world_size': 2, "
	    "'global_steps': 8, 'module': {}, 'param_shapes': [" TWO_SHAPES
	    "]}" },
	  { OPTIM("0"), ZERO3("2", "F32[3]", "") },
	  { OPTIM("1"), ZERO3("2", "F32[3]", "") } }, EBADMSG,
	  "it is of global step 8, and global_step7/"
	  "zero_pp_rank_0_mp_rank_00_model_states.pt is of global step 7" },
	{ "masters_that_are_too_short", {
	  { STATES, TWO_MODEL("") },
	  { OPTIM("0"), ZERO("1", "2", "F32[3]", "") },
	  { OPTIM("1"), ZERO("1", "2", "F32[1]", "") } }, EBADMSG,
	  "tensor a: masters of group 0 are not on all ranks of one type and "
	  "length" },
	{ "steps_differ", {
	  { STATES, TWO_MODEL("") },
	  { OPTIM("0"), ZERO("1", "2", "F32[3]", BASE("0: {'step': F32[]=3}")) },
	  { OPTIM("1"), ZERO("1", "2", "F32[3]", BASE("0: {'step': F32[]=4}")) }
	  }, EBADMSG, "zero_pp_rank_1_mp_rank_00_optim_states.pt: it is of step "
	  "4 of the optimizer, and global_step7/zero_pp_rank_0_mp_rank_00_optim_"
	  "states.pt is of step 3" },
	{ "types_of_masters_differ", {
	  { STATES, TWO_MODEL("") },
	  { OPTIM("0"), ZERO("1", "2", "F32[3]", "") },
	  { OPTIM("1"), ZERO("1", "2", "BF16[3]", "") } }, EBADMSG,
	  "tensor a: masters of group 0 are not on all ranks of one type and "
	  "length" },
	{ "a_state_of_one_rank", {
	  { STATES, TWO_MODEL("") },
	  { OPTIM("0"), ZERO("1", "2", "F32[3]", BASE("0: {'m': F32[3]}")) },
	  { OPTIM("1"), ZERO("1", "2", "F32[3]", "") } }, EBADMSG,
	  "tensor optimizer.state.a.m: m of group 0 is not on all ranks of one "
	  "type and length" },
	{ "stages_differ", {
	  { STATES, TWO_MODEL("") },
	  { OPTIM("0"), ZERO("1", "2", "F32[3]", "") },
	  { OPTIM("1"), ZERO("2", "2", "F32[3]", "") } }, EBADMSG,
	  "it is of another save than other files: its stage, its groups or the "
	  "number of ranks differ" },
	{ "slices_of_another_rank", {
	  { STATES, TWO_MODEL("") },
	  { OPTIM("0"), ZERO("1", "2", "F32[3]", "") },
	  { OPTIM("1"), ZERO("1", "2", "F32[3]", ", 'param_slice_mappings': [{"
		"'a': deepspeed.utils.fragment_address<>!{'numel': 3, 'start': "
		"0}}]") } }, EBADMSG, "the file is of rank 0, not 1" },
	{ "parts_of_other_parameters", {
	  { PART("0"), MODEL("2", "", "{'a': (2,)}", "") },
	  { PART("1"), MODEL("2", "", "{'a': (1, 2)}", "") },
	  { OPTIM("0"), ZERO3("2", "F32[1]", "") },
	  { OPTIM("1"), ZERO3("2", "F32[1]", "") } }, EBADMSG,
	  "it is of another save than other files: the number of ranks or the "
	  "parameters differ" },
	{ "a_part_is_lost", {
	  { PART("0"), MODEL("2", "", "{'a': (2,)}", "") },
	  { OPTIM("0"), ZERO3("2", "F32[1]", "") },
	  { OPTIM("1"), ZERO3("2", "F32[1]", "") } }, ENOENT,
	  "SOURCE/global_step7/: rank 1 of 2 has no file of the model" },
	{ "an_optimizer_of_stage_3_is_lost", {
	  { PART("0"), MODEL("2", "", "{'a': (2,)}", "") },
	  { PART("1"), MODEL("2", "", "{'a': (2,)}", "") },
	  { OPTIM("0"), ZERO3("2", "F32[1]", "") } }, ENOENT,
	  "rank 1 of 2 has no file of the optimizer" },
	{ "a_flat_tensor_of_another_length", {
	  { PART("0"), MODEL("1", "", "{'a': (2,)}", "") },
	  { OPTIM("0"), ZERO3("1", "F32[3]", "") } }, EBADMSG,
	  "group 0 of its parameters does not have the length of its flat "
	  "tensor" },
	{ "a_share_is_lost", {
	  { PART("0"), MODEL("1", "", "{'a': (1,)}", ", 'frozen_param_shapes': "
		"{'f': (3,)}, 'frozen_param_fragments': {'f': BF16[2]}") },
	  { OPTIM("0"), ZERO3("1", "F32[1]", "") } }, EBADMSG, "tensor f: "
	  "global_step7/zero_pp_rank_0_mp_rank_00_model_states.pt does not have "
	  "its share of it" },
	{ "models_of_two_stages", {
	  { STATES, ONE_MODEL("", "") }, { PART("0"), ONE_MODEL("", "") } },
	  EBADMSG, "files of models of ZeRO 3 and of another stage are side by "
	  "side" },
	{ "rank_0_has_no_model", { { PART("1"), ONE_MODEL("", "") } }, ENOENT,
	  "SOURCE/global_step7/: rank 0 has no file of the model" },

	{ "a_frozen_parameter_in_no_file", {
	  { STATES, MODEL("1", "'a': BF16[1]", "{'a': (1,)}", ", "
		"'frozen_param_shapes': {'f': (2,)}, 'frozen_param_fragments': "
		"{'f': BF16[1]=6}") },
	  { OPTIM("0"), ZERO("2", "1", "F32[1]=9", "") } }, EBADMSG,
	  "tensor f: global_step7/mp_rank_00_model_states.pt says that it is "
	  "frozen, and does not have it" },

	/* ---- others ---- */
	{ "a_state_of_one_parameter_is_lost", {
	  { STATES, MODEL("1", "'a': BF16[1]", "{'a': (1,), 'b': (1,)}", "") },
	  { TAG "zero/a/fp32.pt", "{'param': F32[1]}" },
	  { TAG "zero/a/exp_avg.pt", "{'param': F32[1]}" },
	  { TAG "zero/a/exp_avg_sq.pt", "{'param': F32[1]}" },
	  { TAG "zero/b/fp32.pt", "{'param': F32[1]}" },
	  { TAG "zero/b/exp_avg.pt", "{'param': F32[1]}" } }, ENOENT,
	  "tensor optimizer.state.b.exp_avg_sq: no file has it, and other "
	  "parameters have such a state" },
	{ "masters_of_another_stage_are_missing", {
	  { STATES, ONE_MODEL("{'a': (1,)}", "") },
	  { TAG "zero/a/fp32.pt", "{'param': F32[1]}" },
	  { TAG "zero/b/exp_avg.pt", "{'param': F32[1]}" } }, ENOENT,
	  "SOURCE/global_step7/zero/b/fp32.pt is missing" },
	{ "masters_are_missing", {
	  { STATES, MODEL("1", "'a': BF16[1]", "{'a': (1,), 'b': (1,)}", "") },
	  { TAG "zero/a/fp32.pt", "{'param': F32[1]}" } }, ENOENT,
	  "SOURCE/global_step7/zero/b/fp32.pt is missing" },
	{ "masters_that_are_no_tensor", {
	  { STATES, ONE_MODEL("{'a': (1,)}", "") },
	  { TAG "zero/a/fp32.pt", "{'param': 7}" } }, EBADMSG,
	  "tensor a: global_step7/zero/a/fp32.pt has no tensor" },
	{ "an_expert_is_missing", {
	  { STATES, ONE_MODEL("{'a': (1,)}", ", 'num_experts': [2]") },
	  { TAG "layer_0_expert_0_mp_rank_00_model_states.pt",
	    "{'e': BF16[1]}" } }, ENOENT,
	  "SOURCE/global_step7/: expert 1 of layer 0 is missing" },
	{ "an_expert_of_a_later_layer_is_missing", {
	  { STATES, ONE_MODEL("{'a': (1,)}", ", 'num_experts': [1]") },
	  { TAG "layer_1_expert_0_mp_rank_00_model_states.pt",
	    "{'e': BF16[1]}" } }, ENOENT, "expert 0 of layer 0 is missing" },
	{ "an_expert_twice", {
	  { STATES, ONE_MODEL("{'a': (1,)}", ", 'num_experts': [1]") },
	  { TAG "layer_0_expert_0_mp_rank_00_model_states.pt",
	    "{'e': BF16[1]}" },
	  { TAG "layer_0_expert_00_mp_rank_00_model_states.pt",
	    "{'e': BF16[1]}" } }, EBADMSG, "expert 0 of layer 0 is in two files"
	},
	{ "nothing_says_the_number_of_experts", {
	  { STATES, ONE_MODEL("{'a': (1,)}", "") },
	  { TAG "expert_0_mp_rank_00_model_states.pt", "{'e': BF16[1]}" } },
	  EBADMSG, "nothing says how many experts there are" },
	{ "offloaded_tensors", {
	  { STATES, ONE_MODEL("", "") },
	  { TAG "offloaded_tensors/x", "x" } }, ENOTSUP,
	  "SOURCE/global_step7/offloaded_tensors: tensors are in files of NVMe "
	  "offload, which are not supported" },
};

TEST_ROWS(refused)
{
	shown_refused_check(*state);
}

/* ---- steps, for --resume ---- */

TEST(steps_are_checked)
{
#define O(rank) "zero_pp_rank_" rank "_mp_rank_00_optim_states.pt"
#define P(rank) "zero_pp_rank_" rank "_mp_rank_00_model_states.pt"
#define M "mp_rank_00_model_states.pt"
#define STEP(n) ZERO("1", "2", "F32[3]", BASE("0: {'step': F32[]=" n "}"))
	static const struct {
		struct torch_text files[6];
		int code;
		const char *words;
	} v[] = {
		{ { { M, TWO_MODEL("") }, { O("0"), STEP("3") },
		    { O("1"), STEP("3") } }, 0, "" },
		{ { { M, TWO_MODEL("") } }, 0, "" },
		{ { { M, TWO_MODEL("") }, { O("0"), STEP("3") } }, ENOENT,
		  O("0") ": rank 1 of 2 has no such file" },
		{ { { M, TWO_MODEL("") }, { O("1"), STEP("3") } }, ENOENT,
		  O("1") ": rank 0 of 2 has no such file" },
		{ { { M, TWO_MODEL("") }, { O("0"), STEP("3") },
		    { O("1"), STEP("4") } }, EBADMSG, O("1") ": it is of step "
		  "4 of the optimizer, and " O("0") " is of step 3" },
		{ { { O("0"), STEP("3") }, { O("1"), STEP("3") } }, ENOENT,
		  O("0") ": no file of a model is beside it" },
		{ { { P("0"), TWO_MODEL("") }, { P("1"), TWO_MODEL("") },
		    { O("0"), ZERO3("2", "F32[3]", "") },
		    { O("1"), ZERO3("2", "F32[3]", "") } }, 0, "" },
		{ { { P("0"), TWO_MODEL("") },
		    { O("0"), ZERO3("2", "F32[3]", "") },
		    { O("1"), ZERO3("2", "F32[3]", "") } }, ENOENT,
		  P("0") ": rank 1 of 2 has no such file" },
		/* An optimizer that is not one of ZeRO is no concern. */
		{ { { M, TWO_MODEL("") }, { O("0"), "{}" } }, 0, "" },
	};

	for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); i++)
		for (int full = 0; full < 2; full++) {
			struct rsh_error err;
			int rc = torch_check_step(&rsh_deepspeed_format,
						  v[i].files, full, &err);

			if (rc != -v[i].code || !strstr(err.text, v[i].words))
				fail_msg("%zu: rc %d, \"%s\"", i, rc, err.text);
		}
}
