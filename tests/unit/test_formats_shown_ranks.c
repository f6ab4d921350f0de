/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_formats_shown_ranks.c - trees with one file of torch.save() for each
 * rank: the whole tensors that they show, and what is refused. */
#include "config.h"

#include "formats/torch_ranks/torch_ranks_i.h"
#include "rsh/formats/formats.h"
#include "shown_support.h"

/* ---- what torch.distributed pickles ---- */

#define TD "torch.distributed."
#define MESH_CLASS TD "device_mesh.DeviceMesh<>!"
/* Until torch 2.9, and later: sizes and ranks are tuples. */
#define OLD_MESH(sizes, ranks, at) \
	MESH_CLASS "{'mesh': I32[" sizes "], 'mesh_dim_names': None, " \
	"'_flatten_mesh_list': (" ranks "), '_coordinate_on_dim': " at "}"
#define LAYOUT(shape, stride) \
	TD "_mesh_layout._MeshLayout<>!{'shape': " shape ", 'stride': " stride \
	"}"
#define FLAT(shape, stride) \
	TD "_mesh_layout._FlatLayout<>!{'shape': " shape ", 'stride': " stride \
	"}"
#define AXES(axes) TD "_mesh_layout._MeshLayout<>!{'axes': (" axes ",)}"
#define NEW_MESH(layout, ranks, rank, at) \
	MESH_CLASS "{'_layout': " layout ", '_flatten_rank_map': (" ranks "), " \
	"'_mesh_dim_names': None, '_rank': " rank ", '_coordinate_on_dim': " at "}"

#define PLACED(class, state) TD "tensor.placement_types." class "<>!{" state "}"
#define SHARD(d) PLACED("Shard", "'dim': " d)
#define STRIDED(d, factor) \
	PLACED("_StridedShard", "'dim': " d ", 'split_factor': " factor)
#define REPLICATE PLACED("Replicate", "")
#define PARTIAL PLACED("Partial", "'reduce_op': 'sum'")
#define ORDER(axis, dims) \
	TD "tensor._dtensor_spec.ShardOrderEntry<" axis ", (" dims ",)>"
#define AS_ORDER(entries) \
	", 'shard_order': (" entries ",), " \
	"'use_strided_shard_as_shard_order': False"

#define WRAPPED(class, shape, state) \
	"torch._tensor._rebuild_from_type_v2(" \
	"torch._utils._rebuild_wrapper_subclass, " class ", (" class \
	", torch.float32, (" shape "), (1,), 0, None, None, False), " state ")"
#define DT_OF(shape, local, mesh, placements, more) \
	WRAPPED(TD "tensor.DTensor", shape, "(None, {'_local_tensor': " local \
		", '_spec': " TD "tensor._dtensor_spec.DTensorSpec<>!{'mesh': " \
		mesh ", 'placements': (" placements ",)" more "}})")
#define DT(shape, local, mesh, placements) \
	DT_OF(shape, local, mesh, placements, "")

#define TWO(at) OLD_MESH("2", "0, 1", "[" at "]")
#define FOUR(at) OLD_MESH("2,2", "0, 1, 2, 3", "[" at "]")
#define EIGHT(at) \
	OLD_MESH("1,1,1,1,1,1,1,2", "0, 1", "[0, 0, 0, 0, 0, 0, 0, " at "]")
#define SEVEN(p) p ", " p ", " p ", " p ", " p ", " p ", " p ", "
#define W(v) "{'w': " v "}"
#define NAME(world, rank) "./model_world_size_" world "_rank_" rank ".pt"
#define OPTIM(world, rank) "./optim_world_size_" world "_rank_" rank ".pt"

/* The same parts of w on ranks of a mesh of [2], and of [2,2]. */
#define HALVES(shape, first, second, placement)                               \
	{ NAME("2", "0"), W(DT(shape, first, TWO("0"), placement)) },         \
	{ NAME("2", "1"), W(DT(shape, second, TWO("1"), placement)) }
#define QUARTERS_OF(shape, a, b, c, d, placements, more)                      \
	{ NAME("4", "0"), W(DT_OF(shape, a, FOUR("0, 0"), placements, more)) }, \
	{ NAME("4", "1"), W(DT_OF(shape, b, FOUR("0, 1"), placements, more)) }, \
	{ NAME("4", "2"), W(DT_OF(shape, c, FOUR("1, 0"), placements, more)) }, \
	{ NAME("4", "3"), W(DT_OF(shape, d, FOUR("1, 1"), placements, more)) }
#define QUARTERS(shape, a, b, c, d, placements) \
	QUARTERS_OF(shape, a, b, c, d, placements, "")

/* Of FSDP1: offsets, sizes and rank of a shard. */
#define BOX(from, size, rank) \
	TD "_shard.metadata.ShardMetadata<>!(None, {'shard_offsets': [" from \
	"], 'shard_sizes': [" size "], 'placement': " \
	TD "remote_device._remote_device<>!{'_rank': " rank "}})"
#define PIECE(tensor, box) \
	TD "_shard.sharded_tensor.shard.Shard<>!(None, {'tensor': " tensor \
	", 'metadata': " box "})"
#define SHARDED(shape, pieces, boxes, rank) \
	WRAPPED(TD "_shard.sharded_tensor.api.ShardedTensor", shape, \
		"([" pieces "], " TD "_shard.sharded_tensor.metadata." \
		"ShardedTensorMetadata<>!{'shards_metadata': [" boxes "]}, " \
		TD "Group<>!{'global_rank': " rank "}, None, False)")

/* What torch_checkpointing says of two files of one tensor of 3 elements. */
#define SAID(ranks, data) \
	"{'ranks': [" ranks "], 'sharding_metadata': {'type': " \
	"'DTensorShardingMetadata', 'data': {" data "}}}"
#define OF_W(mesh) "'mesh_spec': {" mesh ", 'mesh_dim_names': None}, " \
	"'global_shape': [3], 'dtype': torch.float32, " \
	"'placements': [{'type': 'Shard', 'dim': 0}]"
#define DESCRIPTION(first, second, mesh, names) \
	"{'version': '2.0', 'world_size': 2, 'metadata': {'model': {" \
	"'rank_to_layout_info': {0: {'file_path': " first "}, 1: {'file_path': "\
	second "}}, 'nested_path_to_metadata': {'[\"w\"]': [" \
	SAID("0, 1", OF_W(mesh)) "]" names "}}}}"
#define DESCRIBED(first, second, names) \
	DESCRIPTION(first, second, "'mesh_shape': [2], 'mesh_data': [0, 1]", \
		    names)
#define DESCRIBED_AS(mesh) \
	DESCRIPTION("'model_0.safetensors'", "'model_1.safetensors'", mesh, "")

/* ---- what is shown ---- */

static const struct shown_tree trees[] = {
	{ "rows", { HALVES("4, 2", "F32[2,2]", "F32[2,2]=4", SHARD("0")) },
	  "w F32[4,2] 0 1 2 3 4 5 6 7\n" },
	{ "columns", {
	  { NAME("2", "0"), W(DT("2, 4", "F32[2,2]", TWO("0"), SHARD("-1"))) },
	  { NAME("2", "1"), W(DT("2, 4", "F32[2,2]=4", TWO("1"), SHARD("1"))) } },
	  "w F32[2,4] 0 1 4 5 2 3 6 7\n" },
	{ "a_short_last_part", {
	  HALVES("5,", "F32[3]", "F32[2]=3", SHARD("0")) },
	  "w F32[5] 0 1 2 3 4\n" },
	/* fully_shard() saves any shape of nothing. */
	{ "an_empty_last_part", {
	  HALVES("1, 2", "F32[1,2]", "F32[0]", SHARD("0")) },
	  "w F32[1,2] 0 1\n" },
	{ "both_axes", {
	  QUARTERS("2, 4", "F32[1,2]", "F32[1,2]=10", "F32[1,2]=20",
		"F32[1,2]=30", SHARD("0") ", " SHARD("1")) },
	  "w F32[2,4] 0 1 10 11 20 21 30 31\n" },
	/* No mesh has more dimensions. */
	{ "the_last_of_eight_dimensions", {
	  { NAME("2", "0"), W(DT("2,", "F32[1]=5", EIGHT("0"), SEVEN(REPLICATE)
				 SHARD("0"))) },
	  { NAME("2", "1"), W(DT("2,", "F32[1]=6", EIGHT("1"), SEVEN(REPLICATE)
				 SHARD("0"))) } },
	  "w F32[2] 5 6\n" },
	{ "one_axis_twice", {
	  QUARTERS("4,", "F32[1]=0", "F32[1]=1", "F32[1]=2", "F32[1]=3",
		SHARD("0") ", " SHARD("0")) },
	  "w F32[4] 0 1 2 3\n" },
	/* The last dimension of the mesh cut it first. */
	{ "one_axis_in_another_order", {
	  QUARTERS_OF("4,", "F32[1]=0", "F32[1]=1", "F32[1]=2", "F32[1]=3",
		SHARD("0") ", " SHARD("0"), AS_ORDER(ORDER("0", "1, 0"))) },
	  "w F32[4] 0 2 1 3\n" },
	/* Two pieces, of which each rank of dimension 0 has a half. */
	{ "strided", { HALVES("8,", "F32[4]", "F32[4]=10", STRIDED("0", "2")) },
	  "w F32[8] 0 1 10 11 2 3 12 13\n" },
	{ "strided_of_two_sizes", {
	  { NAME("2", "0"), "{'a': " DT("8,", "F32[4]", TWO("0"),
		STRIDED("0", "2")) ", 'b': " DT("4,", "F32[2]", TWO("0"),
		STRIDED("0", "2")) "}" },
	  { NAME("2", "1"), "{'a': " DT("8,", "F32[4]=10", TWO("1"),
		STRIDED("0", "2")) ", 'b': " DT("4,", "F32[2]=10", TWO("1"),
		STRIDED("0", "2")) "}" } },
	  "a F32[8] 0 1 10 11 2 3 12 13\nb F32[4] 0 10 1 11\n" },
	/* Each half is cut into parts of one element, which one rank has. */
	{ "strided_parts_of_one_element", {
	  QUARTERS("4,", "F32[2]=0", "F32[0]", "F32[2]=7", "F32[0]",
		SHARD("0") ", " STRIDED("0", "2")) },
	  "w F32[4] 0 1 7 8\n" },
	{ "replicas", { HALVES("2,", "F32[2]=3", "F32[2]=3", REPLICATE) },
	  "w F32[2] 3 4\n" },
	{ "a_replica_is_lost", {
	  { NAME("2", "1"), W(DT("2,", "F32[2]=3", TWO("1"), REPLICATE)) } },
	  "w F32[2] 3 4\n" },
	{ "columns_first_in_memory", {
	  HALVES("4, 2", "F32[2,2]:[1,2]", "F32[2,2]=4:[1,2]", SHARD("0")) },
	  "w F32[4,2] 0 2 1 3 4 6 5 7\n" },
	{ "gaps_in_memory", {
	  HALVES("4, 2", "F32[2,2]/5:[3,1]", "F32[2,2]/5=7:[1,3]",
		SHARD("0")) },
	  "w F32[4,2] 0 1 3 4 7 10 8 11\n" },
	{ "plain_tensors_are_alike", {
	  { NAME("2", "0"), "{'a': F32[2]=1, 'w': "
	    DT("2,", "F32[1]=1", TWO("0"), SHARD("0")) ", 'z': BF16[]=7}" },
	  { NAME("2", "1"), "{'a': F32[2]=1, 'w': "
	    DT("2,", "F32[1]=2", TWO("1"), SHARD("0")) ", 'z': BF16[]=7}" } },
	  "a F32[2] 1 2\nw F32[2] 1 2\nz BF16[] 7\n" },

	/* ---- meshes of torch 2.11 and later ---- */
	{ "a_layout_of_shape_and_stride", {
	  { NAME("2", "0"), W(DT("2,", "F32[1]=5", NEW_MESH(
		LAYOUT("(2,)", "(1,)"), "0, 1", "0", "(0,)"), SHARD("0"))) },
	  { NAME("2", "1"), W(DT("2,", "F32[1]=6", NEW_MESH(
		LAYOUT("2", "1"), "0, 1", "1", "(1,)"), SHARD("0"))) } },
	  "w F32[2] 5 6\n" },
	{ "a_layout_of_axes", {
	  { NAME("2", "0"), W(DT("2,", "F32[1]=5", NEW_MESH(AXES(
		FLAT("(2,)", "(1,)")), "0, 1", "0", "(0,)"), SHARD("0"))) },
	  { NAME("2", "1"), W(DT("2,", "F32[1]=6", NEW_MESH(AXES(
		FLAT("(2,)", "(1,)")), "0, 1", "1", "(1,)"), SHARD("0"))) } },
	  "w F32[2] 5 6\n" },
	/* Each rank has one of the two columns of a mesh of [2,2]. */
	{ "columns_of_a_mesh", {
	  { NAME("4", "0"), W(DT("2,", "F32[1]=5", NEW_MESH(LAYOUT("(2,)",
		"(2,)"), "0, 1, 2, 3", "0", "(0,)"), SHARD("0"))) },
	  { NAME("4", "1"), W(DT("2,", "F32[1]=5", NEW_MESH(LAYOUT("(2,)",
		"(2,)"), "0, 1, 2, 3", "1", "(0,)"), SHARD("0"))) },
	  { NAME("4", "2"), W(DT("2,", "F32[1]=6", NEW_MESH(LAYOUT("(2,)",
		"(2,)"), "0, 1, 2, 3", "2", "(1,)"), SHARD("0"))) },
	  { NAME("4", "3"), W(DT("2,", "F32[1]=6", NEW_MESH(LAYOUT("(2,)",
		"(2,)"), "0, 1, 2, 3", "3", "(1,)"), SHARD("0"))) } },
	  "w F32[2] 5 6\n" },
	/* Dimensions 0 and 2 of a mesh of [2,1,2] became one. */
	{ "dimensions_that_became_one", {
	  { NAME("4", "0"), W(DT("4,", "F32[1]=5", NEW_MESH(LAYOUT("((2, 2),)",
		"((1, 2),)"), "0, 1, 2, 3", "0", "(0,)"), SHARD("0"))) },
	  { NAME("4", "1"), W(DT("4,", "F32[1]=7", NEW_MESH(LAYOUT("((2, 2),)",
		"((1, 2),)"), "0, 1, 2, 3", "1", "(2,)"), SHARD("0"))) },
	  { NAME("4", "2"), W(DT("4,", "F32[1]=6", NEW_MESH(LAYOUT("((2, 2),)",
		"((1, 2),)"), "0, 1, 2, 3", "2", "(1,)"), SHARD("0"))) },
	  { NAME("4", "3"), W(DT("4,", "F32[1]=8", NEW_MESH(LAYOUT("((2, 2),)",
		"((1, 2),)"), "0, 1, 2, 3", "3", "(3,)"), SHARD("0"))) } },
	  "w F32[4] 5 6 7 8\n" },
	{ "a_rank_outside_of_the_mesh", {
	  { NAME("2", "0"), W(DT("2,", "F32[2]=5", NEW_MESH(LAYOUT("(1,)",
		"(1,)"), "0,", "0", "(0,)"), SHARD("0"))) },
	  { NAME("2", "1"), "{'w': " DT("2,", "F32[0]", NEW_MESH(LAYOUT("(1,)",
		"(1,)"), "0,", "1", "None"), SHARD("0")) ", 'v': "
	    DT("1,", "F32[1]", NEW_MESH(LAYOUT("(1,)", "(1,)"), "1,", "1",
				       "(0,)"), SHARD("0")) "}" } },
	  "v F32[1] 0\nw F32[2] 5 6\n" },

	/* ---- FSDP1 ---- */
	{ "shards_say_their_boxes", {
	  { NAME("2", "0"), W(SHARDED("3, 2", PIECE("F32[2,2]", BOX("0, 0",
		"2, 2", "0")), BOX("0, 0", "2, 2", "0") ", " BOX("2, 0",
		"1, 2", "1"), "0")) },
	  { NAME("2", "1"), W(SHARDED("3, 2", PIECE("F32[1,2]=4", BOX("2, 0",
		"1, 2", "1")), BOX("0, 0", "2, 2", "0") ", " BOX("2, 0",
		"1, 2", "1"), "1")) } },
	  "w F32[3,2] 0 1 2 3 4 5\n" },
	{ "two_shards_and_none", {
	  { NAME("2", "0"), W(SHARDED("3,", PIECE("F32[1]=2", BOX("2", "1",
		"0")) ", " PIECE("F32[2]", BOX("0", "2", "0")), BOX("0", "2",
		"0") ", " BOX("2", "1", "0"), "0")) },
	  { NAME("2", "1"), "{'w': " SHARDED("3,", "", BOX("0", "2", "0") ", "
		BOX("2", "1", "0"), "1") ", 'v': F32[1]=9}" } },
	  "v F32[1] 9\nw F32[3] 0 1 2\n" },

	/* ---- other names and places ---- */
	{ "any_programs_files", {
	  { "./rank_0.pt", W(DT("2,", "F32[1]=5", TWO("0"), SHARD("0"))) },
	  { "./rank_1.pt", W(DT("2,", "F32[1]=6", TWO("1"), SHARD("0"))) },
	  { "./other.pt", "{'x': F32[1]}" } },
	  "w F32[2] 5 6\n" },
	{ "directories_of_ranks", {
	  { "rank_0/model.pth", W(DT("2,", "F32[1]=5", TWO("0"), SHARD("0"))) },
	  { "rank_1/model.pth", W(DT("2,", "F32[1]=6", TWO("1"),
				     SHARD("0"))) } },
	  "w F32[2] 5 6\n" },
	{ "directories_with_the_number_alone", {
	  { "rank0/a.bin", W(DT("2,", "F32[1]=5", TWO("0"), SHARD("0"))) },
	  { "rank1/a.bin", W(DT("2,", "F32[1]=6", TWO("1"), SHARD("0"))) } },
	  "w F32[2] 5 6\n" },
	{ "directories_of_numbers", {
	  { "0/a.bin", W(DT("2,", "F32[1]=5", TWO("0"), SHARD("0"))) },
	  { "1/a.bin", W(DT("2,", "F32[1]=6", TWO("1"), SHARD("0"))) } },
	  "w F32[2] 5 6\n" },
	/* The first one may lack what the others have. */
	{ "an_empty_first_directory", {
	  { "rank0/log.txt", "" },
	  { "rank1/a.bin", W(DT("2,", "F32[2]=5", OLD_MESH("3", "0, 1, 2",
		"[1]"), REPLICATE)) },
	  { "rank2/a.bin", W(DT("2,", "F32[2]=5", OLD_MESH("3", "0, 1, 2",
		"[2]"), REPLICATE)) } },
	  "w F32[2] 5 6\n" },
	{ "two_groups_of_files", {
	  { "./model_0.pt", W(DT("2,", "F32[1]=5", TWO("0"), SHARD("0"))) },
	  { "./model_1.pt", W(DT("2,", "F32[1]=6", TWO("1"), SHARD("0"))) },
	  { "./head_0.pt", W(DT("2,", "F32[1]=7", TWO("0"), SHARD("0"))) },
	  { "./head_1.pt", W(DT("2,", "F32[1]=8", TWO("1"), SHARD("0"))) } },
	  "head.w F32[2] 7 8\nw F32[2] 5 6\n" },
	{ "a_group_of_the_optimizer", {
	  { "./model_0.pt", W(DT("2,", "F32[1]=5", TWO("0"), SHARD("0"))) },
	  { "./model_1.pt", W(DT("2,", "F32[1]=6", TWO("1"), SHARD("0"))) },
	  { "./optim_0.pt", "{'state': {0: {'m': " DT("2,", "F32[1]=7",
		TWO("0"), SHARD("0")) "}}, 'param_groups': [{'params': [0]}]}" },
	  { "./optim_1.pt", "{'state': {0: {'m': " DT("2,", "F32[1]=8",
		TWO("1"), SHARD("0")) "}}, 'param_groups': [{'params': [0]}]}" }
	  }, "optim.state.w.m F32[2] 7 8\nw F32[2] 5 6\n" },
	{ "below_actor", {
	  { "actor/model_world_size_2_rank_0.pt",
	    W(DT("2,", "F32[1]=5", TWO("0"), SHARD("0"))) },
	  { "actor/model_world_size_2_rank_1.pt",
	    W(DT("2,", "F32[1]=6", TWO("1"), SHARD("0"))) } },
	  "w F32[2] 5 6\n" },
	{ "the_newest_step", {
	  { "global_step_9/model_world_size_1_rank_0.pt", W("F32[1]=9") },
	  { "global_step_10/model_world_size_1_rank_0.pt", W("F32[1]=10") } },
	  "w F32[1] 10\n" },
	/* A job that went on with fewer ranks. */
	{ "the_world_that_is_whole", {
	  { NAME("1", "0"), W("F32[1]=5") },
	  { NAME("3", "0"), W("F32[1]=6") },
	  { NAME("3", "2"), W("F32[1]=6") } },
	  "w F32[1] 5\nwarning: SOURCE: files of several jobs are side by side; "
	  "those of 1 ranks are taken\n" },
	/* ---- torch_checkpointing, whose metadata.pkl describes files ---- */
	{ "described_files", {
	  { "./metadata.pkl", DESCRIBED("'model_0.safetensors'",
					"'model_1.safetensors'", "") },
	  { "./model_0.safetensors", "w F32[2]=5" },
	  { "./model_1.safetensors", "w F32[1]=7" } }, "w F32[3] 5 6 7\n" },
	{ "described_files_of_torch", {
	  { "./metadata.pkl", DESCRIBED("'model_0.pt'", "'model_1.pt'",
					"") },
	  { "./model_0.pt", W(DT("3,", "F32[2]=5", TWO("0"), SHARD("0"))) },
	  { "./model_1.pt", W(DT("3,", "F32[1]=7", TWO("1"), SHARD("0"))) } },
	  "w F32[3] 5 6 7\n" },
	/* A name is a list of keys; two ranks may have it alone. */
	{ "described_names", {
	  { "./metadata.pkl", DESCRIBED("'model_0.safetensors'",
		"'model_1.safetensors'", ", '[\"m\", 3, \"b\"]': ["
		SAID("1", "'mesh_spec': {'mesh_shape': [1], 'mesh_data': [1]}, "
		     "'global_shape': [2], 'dtype': torch.float32, "
		     "'placements': [{'type': 'Replicate'}]") "]") },
	  { "./model_0.safetensors", "w F32[2]=5" },
	  { "./model_1.safetensors", "w F32[1]=7; m.3.b F32[2]=8" } },
	  "m.3.b F32[2] 8 9\nw F32[3] 5 6 7\n" },
	{ "states_get_names", {
	  { NAME("2", "0"), "{'a': " DT("2,", "F32[1]=5", TWO("0"), SHARD("0"))
	    ", 'b': " DT("4,", "F32[2]=5", TWO("0"), SHARD("0")) "}" },
	  { NAME("2", "1"), "{'a': " DT("2,", "F32[1]=6", TWO("1"), SHARD("0"))
	    ", 'b': " DT("4,", "F32[2]=7", TWO("1"), SHARD("0")) "}" },
	  { OPTIM("2", "0"), "{'state': {1: {'m': " DT("4,", "F32[2]=1",
		TWO("0"), SHARD("0")) "}}, 'param_groups': [{'lr': 0.5, "
		"'params': [0, 1]}]}" },
	  { OPTIM("2", "1"), "{'state': {1: {'m': " DT("4,", "F32[2]=3",
		TWO("1"), SHARD("0")) "}}, 'param_groups': [{'lr': 0.5, "
		"'params': [0, 1]}]}" } },
	  "a F32[2] 5 6\nb F32[4] 5 6 7 8\noptimizer.state.b.m F32[4] 1 2 3 4\n"
	},
	/* Nothing says which parameters two groups have. */
	{ "states_of_two_groups_keep_numbers", {
	  { NAME("1", "0"), "{'a': F32[1], 'b': F32[1]}" },
	  { OPTIM("1", "0"), "{'state': {0: {'m': F32[1]=3}}, 'param_groups': "
		"[{'params': [0]}, {'params': [1]}]}" } },
	  "a F32[1] 0\nb F32[1] 0\noptimizer.state.0.m F32[1] 3\n" },
};

TEST_ROWS(trees)
{
	shown_tree_check(*state);
}

/* ---- what is refused ---- */

static const struct shown_refused refused[] = {
	{ "a_part_is_lost", {
	  { NAME("2", "0"), W(DT("4,", "F32[2]", TWO("0"), SHARD("0"))) } },
	  ENOENT, "tensor w lacks its box [2] at [2], which is in "
	  "model_world_size_2_rank_1.pt, which is missing" },
	{ "a_shard_is_lost", {
	  { NAME("2", "1"), W(SHARDED("3,", PIECE("F32[1]", BOX("2", "1", "1")),
		BOX("0", "2", "0") ", " BOX("2", "1", "1"), "1")) } },
	  ENOENT, "tensor w lacks its box [2] at [0], which is in "
	  "model_world_size_2_rank_0.pt, which is missing" },
	{ "summands", { HALVES("2,", "F32[2]", "F32[2]", PARTIAL) },
	  ENOTSUP, "tensor w: each rank has one summand of it (Partial)" },
	{ "summands_over_the_second_dimension", {
	  { NAME("2", "0"), W(DT("2,", "F32[2]", OLD_MESH("1,2", "0, 1",
		"[0, 0]"), REPLICATE ", " PARTIAL)) },
	  { NAME("2", "1"), W(DT("2,", "F32[2]", OLD_MESH("1,2", "0, 1",
		"[0, 1]"), REPLICATE ", " PARTIAL)) } },
	  ENOTSUP, "tensor w: each rank has one summand of it (Partial)" },
	{ "plain_tensors_differ", {
	  { NAME("2", "0"), W("F32[2]=1") }, { NAME("2", "1"), W("F32[2]=2") } },
	  EBADMSG, "tensor w: it is a plain tensor, and differs between "
	  "model_world_size_2_rank_0.pt and model_world_size_2_rank_1.pt" },
	{ "groups_of_ranks_differ", {
	  { NAME("4", "0"), W(DT("1,", "F32[1]=5", OLD_MESH("2", "0, 2", "[0]"),
				 REPLICATE)) },
	  { NAME("4", "1"), W(DT("1,", "F32[1]=6", OLD_MESH("2", "1, 3", "[0]"),
				 REPLICATE)) },
	  { NAME("4", "2"), W(DT("1,", "F32[1]=5", OLD_MESH("2", "0, 2", "[1]"),
				 REPLICATE)) },
	  { NAME("4", "3"), W(DT("1,", "F32[1]=6", OLD_MESH("2", "1, 3", "[1]"),
				 REPLICATE)) } },
	  EBADMSG, "it is distributed over several groups of ranks, and differs "
	  "between model_world_size_4_rank_0.pt and "
	  "model_world_size_4_rank_1.pt" },
	{ "one_has_all", {
	  { NAME("2", "0"), W(DT("4,", "F32[2]", TWO("0"), SHARD("0"))) },
	  { NAME("2", "1"), W("F32[4]") } },
	  EBADMSG, "contradict each other: one has a part of it, and the other "
	  "all" },
	{ "one_has_nothing_of_it", {
	  { NAME("2", "0"), W(DT("4,", "F32[2]", TWO("0"), SHARD("0"))) },
	  { NAME("2", "1"), "{'v': F32[1]}" } },
	  ENOENT, "tensor w lacks its box [2] at [2], which is in "
	  "model_world_size_2_rank_1.pt, which has no tensor w" },
	{ "shards_overlap", {
	  { NAME("2", "0"), W(SHARDED("3,", PIECE("F32[2]", BOX("0", "2", "0")),
		BOX("0", "2", "0") ", " BOX("1", "2", "1"), "0")) },
	  { NAME("2", "1"), W(SHARDED("3,", PIECE("F32[2]", BOX("1", "2", "1")),
		BOX("0", "2", "0") ", " BOX("1", "2", "1"), "1")) } },
	  EINVAL, "the boxes of ranks 0 and 1 overlap, but are not equal" },
	{ "types_differ", {
	  { NAME("2", "0"), W("F32[1]") }, { NAME("2", "1"), W("BF16[1]") } },
	  EBADMSG, "they have different types of it" },
	{ "shapes_differ", {
	  { NAME("2", "0"), W("F32[1,2]") }, { NAME("2", "1"), W("F32[2]") } },
	  EBADMSG, "they have different shapes of it" },
	{ "whole_shapes_differ", {
	  { NAME("2", "0"), W(DT("4,", "F32[2]", TWO("0"), SHARD("0"))) },
	  { NAME("2", "1"), W(DT("5,", "F32[2]", TWO("1"), SHARD("0"))) } },
	  EBADMSG, "they have different shapes of it" },
	{ "ways_differ", {
	  { NAME("2", "0"), W(DT("2, 2", "F32[1,2]", TWO("0"), SHARD("0"))) },
	  { NAME("2", "1"), W(DT("2, 2", "F32[2,1]", TWO("1"), SHARD("1"))) } },
	  EBADMSG, "model_world_size_2_rank_0.pt and "
	  "model_world_size_2_rank_1.pt say that it is distributed in different "
	  "ways" },
	{ "a_part_of_another_size", {
	  HALVES("4,", "F32[2]", "F32[3]", SHARD("0")) },
	  EBADMSG, "model_world_size_2_rank_1.pt has [3] of it, and its "
	  "placement says [2]" },
	{ "another_type_than_it_says", {
	  { NAME("1", "0"), W(DT("4,", "BF16[4]", OLD_MESH("1", "0,", "[0]"),
				 SHARD("0"))) } },
	  EBADMSG, "model_world_size_1_rank_0.pt has another type of it than it "
	  "says" },
	{ "a_shard_of_another_shape", {
	  { NAME("1", "0"), W(SHARDED("2,", PIECE("F32[1]", BOX("0", "2", "0")),
				      BOX("0", "2", "0"), "0")) } },
	  EBADMSG, "has another shape of its shard than it says" },
	{ "another_rank_than_its_name", {
	  { NAME("2", "0"), W(DT("4,", "F32[2]", TWO("1"), SHARD("0"))) } },
	  EBADMSG, "SOURCE/model_world_size_2_rank_0.pt: the file is of rank 1, "
	  "not 0" },
	{ "another_rank_of_shards_than_its_name", {
	  { NAME("2", "0"), W(SHARDED("2,", PIECE("F32[2]", BOX("0", "2", "1")),
				      BOX("0", "2", "1"), "1")) } },
	  EBADMSG, "SOURCE/model_world_size_2_rank_0.pt: the file is of rank 1, "
	  "not 0" },
	/* The lost one has as many digits. */
	{ "a_part_of_any_program_is_lost", {
	  { "./rank_00.pt", W(DT("4,", "F32[2]", TWO("0"), SHARD("0"))) } },
	  ENOENT, "tensor w lacks its box [2] at [2], which is in rank_01.pt, "
	  "which is missing" },
	{ "an_earlier_part_of_any_program_is_lost", {
	  { "./rank_1.pt", W(DT("4,", "F32[2]", TWO("1"), SHARD("0"))) } },
	  ENOENT, "tensor w lacks its box [2] at [0], which is in rank_0.pt, "
	  "which is missing" },
	{ "a_described_file_has_more", {
	  { "./metadata.pkl", DESCRIBED("'model_0.safetensors'",
					"'model_1.safetensors'", "") },
	  { "./model_0.safetensors", "w F32[2]=5; p F32[1]=9" },
	  { "./model_1.safetensors", "w F32[1]=7" } },
	  EBADMSG, "tensor p: model_0.safetensors has it, and metadata.pkl does "
	  "not say how it is distributed" },
	{ "a_described_file_has_less", {
	  { "./metadata.pkl", DESCRIBED("'model_0.safetensors'",
					"'model_1.safetensors'", "") },
	  { "./model_0.safetensors", "p F32[2]=5" },
	  { "./model_1.safetensors", "w F32[1]=7" } },
	  ENOENT, "SOURCE/model_0.safetensors: it lacks tensor w, which "
	  "metadata.pkl says is in it" },
	{ "a_described_file_is_lost", {
	  { "./metadata.pkl", DESCRIBED("'model_0.safetensors'",
					"'model_1.safetensors'", "") },
	  { "./model_0.safetensors", "w F32[2]=5" } },
	  ENOENT, "which is in model_1.safetensors, which is missing" },
	{ "a_described_file_outside", {
	  { "./metadata.pkl", DESCRIBED("'../model_0.safetensors'",
					"'model_1.safetensors'", "") },
	  { "./model_1.safetensors", "w F32[2]=5" } },
	  EXDEV, "the file ../model_0.safetensors is outside of the directory" },
	{ "a_described_file_of_another_form", {
	  { "./metadata.pkl", DESCRIBED("'model_0.ckpt'",
					"'model_1.safetensors'", "") },
	  { "./model_1.safetensors", "w F32[2]=5" } },
	  ENOTSUP, "the file model_0.ckpt is neither one of torch.save() nor of "
	  "safetensors" },
	{ "a_description_of_another_version", {
	  { "./metadata.pkl", "{'version': '3.0', 'world_size': 2, 'metadata': "
	    "{}}" } },
	  ENOTSUP, "metadata.pkl: its version is not 2.0, the only one that is "
	  "known" },
	{ "a_description_without_a_version", {
	  { "./metadata.pkl", "{'world_size': 2, 'metadata': {}}" },
	  { "./model_0.pt", W(DT("3,", "F32[2]=5", TWO("0"), SHARD("0"))) },
	  { "./model_1.pt", W(DT("3,", "F32[1]=7", TWO("1"), SHARD("0"))) } },
	  EBADMSG, "metadata.pkl: damaged: it is not of torch_checkpointing" },
	{ "a_description_that_calls", {
	  { "./metadata.pkl", "os.system('true')" },
	  { "./model_0.pt", W(DT("3,", "F32[2]=5", TWO("0"), SHARD("0"))) },
	  { "./model_1.pt", W(DT("3,", "F32[1]=7", TWO("1"), SHARD("0"))) } },
	  EBADMSG, "metadata.pkl: damaged: it is not of torch_checkpointing" },
	{ "a_described_file_above", {
	  { "./metadata.pkl", DESCRIBED("'model/../../m.safetensors'",
					"'model_1.safetensors'", "") },
	  { "./model_1.safetensors", "w F32[2]=5" } },
	  EXDEV, "is outside of the directory" },
	{ "a_described_file_of_the_root", {
	  { "./metadata.pkl", DESCRIBED("'/m.safetensors'",
					"'model_1.safetensors'", "") },
	  { "./model_1.safetensors", "w F32[2]=5" } },
	  EXDEV, "the file /m.safetensors is outside of the directory" },
	{ "a_described_mesh_of_other_ranks", {
	  { "./metadata.pkl", DESCRIBED_AS("'mesh_shape': [3], "
					   "'mesh_data': [0, 1]") },
	  { "./model_0.safetensors", "w F32[2]=5" },
	  { "./model_1.safetensors", "w F32[1]=7" } },
	  ENOENT, "it does not say how the tensor is distributed" },
	{ "a_described_mesh_with_a_rank_twice", {
	  { "./metadata.pkl", DESCRIBED_AS("'mesh_shape': [2], "
					   "'mesh_data': [0, 0]") },
	  { "./model_0.safetensors", "w F32[2]=5" },
	  { "./model_1.safetensors", "w F32[1]=7" } },
	  ENOENT, "a rank is in its mesh twice" },
	{ "no_optimizer_can_be_read", {
	  { NAME("1", "0"), W("F32[1]") }, { OPTIM("1", "0"), "#no archive" } },
	  ENOENT, "no file such as optim_world_size_1_rank_0.pt can be read "
	  "(--drop '^optimizer\\.' leaves it out)" },
	{ "an_optimizer_alone", { { OPTIM("1", "0"), W("F32[1]") } },
	  ENOENT, "optim_world_size_1_rank_0.pt is a file of one rank, which may "
	  "have slices: give the directory of all ranks" },
	{ "a_mesh_of_more_ranks", {
	  { NAME("1", "0"), W(DT("4,", "F32[2]", TWO("0"), SHARD("0"))) } },
	  EBADMSG, "tensor w: rank 1 is in its mesh, and the names of the files "
	  "say that there are 1 ranks" },
	{ "nobody_knows_what_a_rank_has", {
	  { NAME("2", "0"), W(DT("1,", "F32[1]", OLD_MESH("1", "0,", "[0]"),
				 SHARD("0"))) } },
	  ENOENT, "rank 1 has no file that can be read, and no other file says "
	  "what it has" },
	{ "two_worlds", {
	  { NAME("2", "0"), W("F32[1]") }, { NAME("3", "0"), W("F32[1]") } },
	  EINVAL, "files of 2 and of 3 ranks are side by side, and no "
	  "fsdp_config.json says which are the newer ones" },
	{ "two_saves", {
	  { "./step5_rank0.pt", W(DT("2,", "F32[1]", TWO("0"), SHARD("0"))) },
	  { "./step5_rank1.pt", W(DT("2,", "F32[1]", TWO("1"), SHARD("0"))) },
	  { "./step6_rank0.pt", W(DT("2,", "F32[1]", TWO("0"), SHARD("0"))) },
	  { "./step6_rank1.pt", W(DT("2,", "F32[1]", TWO("1"), SHARD("0"))) } },
	  EINVAL, "step5_rank0.pt and step6_rank0.pt are files of two saves: "
	  "SOURCE is a directory with one of them" },
	{ "steps_of_an_optimizer_differ", {
	  HALVES("2,", "F32[1]", "F32[1]", SHARD("0")),
	  { OPTIM("2", "0"), "{'state': {0: {'step': F32[]=7}}, "
		"'param_groups': [{'params': [0]}]}" },
	  { OPTIM("2", "1"), "{'state': {0: {'step': F32[]=8}}, "
		"'param_groups': [{'params': [0]}]}" } },
	  EBADMSG, "SOURCE/optim_world_size_2_rank_1.pt: it is of another step "
	  "of the optimizer than optim_world_size_2_rank_0.pt: they differ in "
	  "optimizer.state.w.step" },
};

TEST_ROWS(refused)
{
	shown_refused_check(*state);
}

/* Those of the lowest rank, without random states and numbers of weights. */
TEST(values_are_those_of_the_lowest_rank)
{
	cleanup_tree char *tree = tree_make();

	torch_write_all(tree, (const struct torch_text[]){
		{ NAME("2", "0"), "{'w': F32[1], 'n': 5}" },
		{ NAME("2", "1"), "{'w': F32[1], 'n': 6}" },
		{ OPTIM("2", "0"), "{'state': {0: {'m': F32[1], 'k': 3}}, "
		  "'param_groups': [{'lr': 0.5, 'params': [0]}]}" },
		{ OPTIM("2", "1"), "{'state': {0: {'m': F32[1], 'k': 4}}, "
		  "'param_groups': [{'lr': 0.25, 'params': [0]}]}" },
		{ "./extra_state_world_size_2_rank_0.pt", "{'lr_scheduler': {"
		  "'last_epoch': 7, 'x': [True, None]}, 'rng': {'cpu': 1}, "
		  "'ring': 2}" },
		{ "./extra_state_world_size_2_rank_1.pt", "{'ring': 3}" },
		{ NULL } });
	assert_values(tree, "", "{\n\"n\": 5,\n\"optimizer.state.0.k\": 3,\n"
		      "\"optimizer.param_groups.0.lr\": 0.5,\n"
		      "\"lr_scheduler.last_epoch\": 7,\n"
		      "\"lr_scheduler.x\": [true, null],\n\"ring\": 2\n}\n");
}

/* A file whose pickle calls what it may not has no values. */
TEST(values_of_a_hostile_file)
{
	cleanup_tree char *tree = tree_make();

	torch_write_all(tree, (const struct torch_text[]){
		{ NAME("1", "0"), W("F32[1]=5") },
		{ "./extra_state_world_size_1_rank_0.pt",
		  "{'a': 1, 'b': builtins.getattr('x', 'y')}" }, { NULL } });
	assert_shown(tree, "", "w F32[1] 5\nwarning: SOURCE/"
		     "extra_state_world_size_1_rank_0.pt: its pickle would call "
		     "builtins.getattr, which weights never need; nothing is "
		     "called, and the file is refused: its values are not "
		     "shown\n");
}

TEST(parts_are_listed)
{
	cleanup_tree char *tree = tree_make();

	torch_write_all(tree, (const struct torch_text[]){
		{ "global_step_7/actor/model_world_size_2_rank_0.pt", "{'w': "
		  DT("3, 2", "F32[2,2]", TWO("0"), SHARD("0"))
		  ", 'p': BF16[2], 's': " DT("8,", "F32[4]", TWO("0"),
					     STRIDED("0", "2")) "}" },
		{ "global_step_7/actor/model_world_size_2_rank_1.pt", "{'w': "
		  DT("3, 2", "F32[1,2]", TWO("1"), SHARD("0"))
		  ", 'p': BF16[2], 's': " DT("8,", "F32[4]", TWO("1"),
					     STRIDED("0", "2")) "}" },
		{ "global_step_7/critic/model_world_size_1_rank_0.pt",
		  W("F32[1]") }, { NULL } });
#define IN_0 " in global_step_7/actor/model_world_size_2_rank_0.pt"
#define IN_1 " in global_step_7/actor/model_world_size_2_rank_1.pt"
	assert_listed(tree, "",
		      "p BFloat16[2]: [2]@0" IN_0 ", [2]@0" IN_1 "\n"
		      "s Float32[8]: [2]@0" IN_0 ", [2]@4" IN_0 ", [2]@2" IN_1
		      ", [2]@6" IN_1 "\n"
		      "w Float32[3,2]: [2,2]@0,0" IN_0 ", [1,2]@2,0" IN_1 "\n"
		      "a file of torch.save() for each of 2 ranks (mesh 2), "
		      "step 7; global_step_7/critic is another model\n");
}

TEST(one_rank_is_listed)
{
	cleanup_tree char *tree = tree_make();

	torch_write_all(tree, (const struct torch_text[]){
		{ NAME("1", "0"), W("F32[2]") }, { NULL } });
	assert_listed(tree, "", "w Float32[2]: [2]@0 in "
		      "model_world_size_1_rank_0.pt\n"
		      "a file of torch.save() for each of 1 rank\n");
}

/* Many jobs left files, and those of one are all there. */
TEST(one_of_many_worlds_is_whole)
{
	cleanup_tree char *tree = tree_make();
	char name[64];

	torch_write(tree, &(struct torch_text){
		NAME("1", "0"), W("F32[1]=1") });
	for (unsigned n = 20; n < 60; n++) {
		snprintf(name, sizeof(name), NAME("%u", "0"), n);
		torch_write(tree, &(struct torch_text){ name, W("F32[1]=2") });
	}
	assert_shown(tree, "", "w F32[1] 1\nwarning: SOURCE: files of several "
		     "jobs are side by side; those of 1 ranks are taken\n");
}

/* fsdp_config.json says which of two worlds is the newer one. */
TEST(config_says_the_world)
{
	static const struct {
		const char *json, *want;
		int code;
	} v[] = {
		{ "{\"world_size\": 2}", "w F32[1] 2\nwarning: SOURCE: files "
		  "of several jobs are side by side; those of 2 ranks are "
		  "taken\n", 0 },
		{ "{\"world_size\": 3}", "w F32[1] 3\nwarning: SOURCE: files "
		  "of several jobs are side by side; those of 3 ranks are "
		  "taken\n", 0 },
		{ "{\"world_size\": 4}", "says that there are 4 ranks, and "
		  "the files are of 2 and others", EBADMSG },
		{ "{\"world_size\": -1}", "side by side", EINVAL },
		{ "{\"world_size\": 65537}", "side by side", EINVAL },
		{ "[", "side by side", EINVAL },
		{ "", "side by side", EINVAL },
		{ "[]", "side by side", EINVAL },
		{ "{\"world_size\": \"2\"}", "side by side", EINVAL },
	};

	for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); i++) {
		cleanup_tree char *tree = tree_make();

		torch_write_all(tree, (const struct torch_text[]){
			{ NAME("2", "0"), W("F32[1]=2") },
			{ NAME("3", "0"), W("F32[1]=3") },
			{ "./fsdp_config.json", v[i].json }, { NULL } });
		if (v[i].code)
			assert_not_shown(tree, "", v[i].code, v[i].want);
		else
			assert_shown(tree, "", v[i].want);
	}
}

/* A job that went on with other numbers of ranks, nine times. */
TEST(config_says_the_last_of_many_worlds)
{
	cleanup_tree char *tree = tree_make();

	torch_write_all(tree, (const struct torch_text[]){
		{ NAME("1", "0"), W("F32[1]=1") },
		{ NAME("2", "0"), W("F32[1]=2") },
		{ NAME("3", "0"), W("F32[1]=3") },
		{ NAME("4", "0"), W("F32[1]=4") },
		{ NAME("5", "0"), W("F32[1]=5") },
		{ NAME("6", "0"), W("F32[1]=6") },
		{ NAME("7", "0"), W("F32[1]=7") },
		{ NAME("8", "0"), W("F32[1]=8") },
		{ NAME("9", "0"), W("F32[1]=9") },
		{ "./fsdp_config.json", "{\"world_size\": 9}" }, { NULL } });
	assert_shown(tree, "", "w F32[1] 9\nwarning: SOURCE: files of several "
		     "jobs are side by side; those of 9 ranks are taken\n");
	torch_write_all(tree, (const struct torch_text[]){
		{ "./fsdp_config.json", "{}" }, { NULL } });
	assert_shown(tree, "", "w F32[1] 1\nwarning: SOURCE: files of several "
		     "jobs are side by side; those of 1 ranks are taken\n");
	torch_write_all(tree, (const struct torch_text[]){
		{ NAME("10", "0"), W("F32[1]=10") },
		{ "./fsdp_config.json", "{\"world_size\": 16}" }, { NULL } });
	assert_not_shown(tree, "", EBADMSG, "SOURCE/fsdp_config.json says that "
			 "there are 16 ranks, and the files are of 1 and "
			 "others");
}

TEST(config_contradicts_the_names)
{
	cleanup_tree char *tree = tree_make();

	torch_write_all(tree, (const struct torch_text[]){
		{ NAME("3", "0"), W("F32[1]=3") },
		{ "./fsdp_config.json", "{\"world_size\": 2}" }, { NULL } });
	assert_not_shown(tree, "", EBADMSG, "SOURCE/fsdp_config.json says that "
			 "there are 2 ranks, and the files are of 3");
}

/* ---- files that are damaged ---- */

#define ONE_MESH OLD_MESH("1", "0,", "[0]")
#define MESHED(mesh) DT("2,", "F32[2]", mesh, SHARD("0"))
#define PLACES(placements) DT("2, 2", "F32[2,2]", ONE_MESH, placements)
#define ORDERED(more) \
	DT_OF("4,", "F32[1]", FOUR("0, 0"), SHARD("0") ", " SHARD("0"), more)

#define GETATTR "would call builtins.getattr"

static const struct {
	const char *value, *words; /* "": it is read */
} damaged[] = {
	{ MESHED(ONE_MESH), "" },
	{ WRAPPED(TD "tensor.DTensor", "-1,", "(None, {})"),
	  "tensor w: damaged: a size that cannot be" },
	{ WRAPPED(TD "tensor.DTensor", "'a',", "(None, {})"),
	  "damaged: a size that cannot be" },
	{ WRAPPED(TD "tensor.DTensor", "1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, "
		  "1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, "
		  "1, 1", "(None, {})"), "damaged: it has no whole shape" },
	{ WRAPPED(TD "tensor.DTensor", "4294967296, 4294967296", "(None, {})"),
	  "damaged: it has more elements than can be" },
	{ WRAPPED(TD "tensor.DTensor", "2,", "(None, {})"),
	  "damaged: a DTensor without its parts" },
	{ WRAPPED(TD "tensor.DTensor", "2,", "(None, {'_spec': 7})"),
	  "damaged: a DTensor without its parts" },
	{ WRAPPED(TD "tensor.DTensor", "2,", "(None, {'_local_tensor': "
		  "F32[2]})"), "damaged: a DTensor without its parts" },
	{ MESHED("7"), "damaged: it has no mesh" },
	{ MESHED(OLD_MESH("1", "", "[0]")),
	  "damaged: its mesh has no list of ranks" },
	{ MESHED(OLD_MESH("1", "-1,", "[0]")),
	  "damaged: its mesh has no list of ranks" },
	{ MESHED(OLD_MESH("0", "0,", "[0]")), "damaged: its mesh has no shape" },
	{ MESHED(OLD_MESH("", "0,", "[]")), "damaged: its mesh has no shape" },
	{ MESHED(OLD_MESH("1,1,1,1,1,1,1,1,1", "0,",
			  "[0, 0, 0, 0, 0, 0, 0, 0, 0]")),
	  "damaged: its mesh has no shape" },
	{ MESHED(OLD_MESH("2", "0,", "[0]")), "damaged: its mesh has another "
	  "number of ranks than its shape" },
	{ MESHED(OLD_MESH("2", "1, 1", "[0]")),
	  "damaged: a rank is in its mesh twice" },
	{ MESHED(OLD_MESH("1", "0,", "7")),
	  "damaged: its mesh has no coordinate" },
	{ MESHED(OLD_MESH("1", "0,", "[0, 0]")),
	  "damaged: its mesh has a coordinate of other dimensions" },
	{ MESHED(OLD_MESH("1", "0,", "[1]")),
	  "damaged: a coordinate outside its mesh" },
	{ MESHED(OLD_MESH("1", "0,", "[-1]")),
	  "damaged: a coordinate outside its mesh" },
	{ MESHED(NEW_MESH(LAYOUT("(2,)", "(1,)"), "0, 1", "1", "(0,)")),
	  "damaged: its mesh has another rank at its coordinate" },
	{ MESHED(NEW_MESH(LAYOUT("(2,)", "(1,)"), "0, 1", "1", "(1,)")), "" },
	{ MESHED(NEW_MESH(LAYOUT("()", "()"), "0, 1", "0", "(0,)")),
	  "damaged: its mesh has no shape" },
	{ MESHED(NEW_MESH(LAYOUT("(2,)", "(1, 1)"), "0, 1", "0", "(0,)")),
	  "damaged: its mesh has no shape" },
	{ MESHED(NEW_MESH(LAYOUT("(0,)", "(1,)"), "0, 1", "0", "(0,)")),
	  "damaged: its mesh has no shape" },
	{ MESHED(NEW_MESH(LAYOUT("((2, 2),)", "((1,),)"), "0, 1", "0", "(0,)")),
	  "damaged: its mesh has no shape" },
	{ MESHED(NEW_MESH(LAYOUT("((2, 2),)", "(1,)"), "0, 1", "0", "(0,)")),
	  "damaged: its mesh has no shape" },
	{ MESHED(NEW_MESH(LAYOUT("(65536, 2)", "(2, 1)"), "0, 1", "0",
			  "(0, 0)")), "damaged: its mesh has no shape" },
	{ MESHED(NEW_MESH(LAYOUT("(3,)", "(1,)"), "0, 1", "0", "(0,)")),
	  "damaged: the layout of its mesh does not fit its ranks" },
	{ MESHED(NEW_MESH(LAYOUT("(2,)", "(2,)"), "0, 1", "0", "(0,)")),
	  "damaged: the layout of its mesh does not fit its ranks" },
	/* A part of a mesh is known by the rank that wrote it. */
	{ MESHED(NEW_MESH(LAYOUT("(1,)", "(1,)"), "0, 1", "2", "(0,)")),
	  "damaged: the layout of its mesh does not fit its ranks" },
	{ MESHED(NEW_MESH(LAYOUT("(1,)", "(1,)"), "0, 1", "None", "(0,)")),
	  "damaged: the layout of its mesh does not fit its ranks" },
	{ MESHED(NEW_MESH(LAYOUT("(1,)", "(1,)"), "0, 1", "1", "(0,)")), "" },
	{ PLACES(SHARD("1")), "" },
	{ PLACES(SHARD("-2")), "" },
	{ PLACES(SHARD("2")),
	  "damaged: it is cut over an axis that it does not have" },
	{ PLACES(SHARD("-3")),
	  "damaged: it is cut over an axis that it does not have" },
	{ PLACES(PLACED("Shard", "")),
	  "damaged: it is cut over an axis that it does not have" },
	{ PLACES(PLACED("Shard", "'dim': None")),
	  "damaged: it is cut over an axis that it does not have" },
	{ PLACES(PLACED("Elsewhere", "")), "a placement that is not known" },
	{ PLACES("7"), "a placement that is not known" },
	{ PLACES(STRIDED("0", "1")), "" },
	{ PLACES(STRIDED("0", "0")), "damaged: a strided shard without a factor" },
	{ PLACES(STRIDED("0", "'a'")),
	  "damaged: a strided shard without a factor" },
	{ PLACES(PLACED("_StridedShard", "'dim': 0")),
	  "damaged: a strided shard without a factor" },
	{ PLACES(STRIDED("0", "65536")), "" },
	{ PLACES(STRIDED("0", "65537")),
	  "damaged: a strided shard without a factor" },
	{ PLACES(REPLICATE ", " REPLICATE), "damaged: it has not one placement "
	  "for each dimension of its mesh" },
	{ DT("2, 2", "F32[2,2]", OLD_MESH("1,1", "0,", "[0, 0]"), SHARD("0")),
	  "damaged: it has not one placement for each dimension of its mesh" },
	{ ORDERED(AS_ORDER(ORDER("0", "0, 1"))), "" },
	{ ORDERED(AS_ORDER(ORDER("0", "1, 0"))), "" },
	{ ORDERED(", 'shard_order': None"), "" },
	{ ORDERED(", 'shard_order': (7,), "
		  "'use_strided_shard_as_shard_order': True"), "" },
	{ ORDERED(", 'shard_order': (" ORDER("0", "0, 1") ",)"),
	  "damaged: the order in which it is cut does not fit its placements" },
	{ ORDERED(AS_ORDER("7")), "does not fit its placements" },
	{ ORDERED(AS_ORDER(ORDER("0", "0"))), "does not fit its placements" },
	{ ORDERED(AS_ORDER(ORDER("0", "0, 0"))), "does not fit its placements" },
	{ ORDERED(AS_ORDER(ORDER("0", "0, 2"))), "does not fit its placements" },
	{ ORDERED(AS_ORDER(ORDER("1", "0, 1"))), "does not fit its placements" },
	{ ORDERED(AS_ORDER(ORDER("'a'", "0, 1"))),
	  "does not fit its placements" },
	{ DT_OF("2,", "F32[2]", ONE_MESH, SHARD("0"), ", 'tensor_meta': "
		TD "tensor._dtensor_spec.TensorMeta<(2,), (1,)>"), "" },
	{ DT_OF("2,", "F32[2]", ONE_MESH, SHARD("0"), ", 'tensor_meta': "
		TD "tensor._dtensor_spec.TensorMeta<(3,), (1,)>"),
	  "damaged: it has two whole shapes" },
	{ DT_OF("2,", "F32[2]", ONE_MESH, SHARD("0"), ", 'tensor_meta': "
		TD "tensor._dtensor_spec.TensorMeta<(2, 1), (1,)>"),
	  "damaged: it has no whole shape" },
	{ WRAPPED(TD "_shard.sharded_tensor.api.ShardedTensor", "2,", "([],)"),
	  "damaged: a ShardedTensor without its parts" },
	{ WRAPPED(TD "_shard.sharded_tensor.api.ShardedTensor", "2,",
		  "([], 1, 2)"), "damaged: a ShardedTensor without its parts" },
	{ SHARDED("2,", PIECE("F32[2]", "7"), BOX("0", "2", "0"), "0"),
	  "damaged: a shard without its place" },
	{ SHARDED("2,", "7", BOX("0", "2", "0"), "0"),
	  "damaged: a shard without a tensor" },
	{ SHARDED("2,", PIECE("F32[2]", BOX("0", "2", "0")),
		  BOX("0", "2", "0"), "0"), "" },
	{ SHARDED("2,", PIECE("F32[2]", BOX("1", "2", "0")),
		  BOX("0", "2", "0"), "0"), "damaged: a shard outside the tensor" },
	{ SHARDED("2,", PIECE("F32[2]", BOX("0", "2", "0")),
		  BOX("0", "3", "0"), "0"), "damaged: a shard outside the tensor" },
	{ SHARDED("2,", PIECE("F32[2]", BOX("-1", "2", "0")),
		  BOX("0", "2", "0"), "0"), "damaged: a size that cannot be" },
	{ SHARDED("2,", PIECE("F32[2]", BOX("4611686018427387904", "2", "0")),
		  BOX("0", "2", "0"), "0"), "damaged: a shard outside the tensor" },
	{ SHARDED("2, 2", PIECE("F32[2,2]", BOX("0, 1", "2, 2", "0")),
		  BOX("0, 0", "2, 2", "0"), "0"),
	  "damaged: a shard outside the tensor" },
	{ SHARDED("2, 2", PIECE("F32[2,2]", BOX("0, 1", "2, 1", "0")),
		  BOX("0, 0", "2, 2", "0"), "0"), "" },
	{ SHARDED("2,", PIECE("F32[2]", BOX("0", "2", "0")),
		  BOX("0, 0", "2, 1", "0"), "0"),
	  "damaged: it has no whole shape" },
	{ WRAPPED(TD "mine.DTensor", "2,", "(None, {'_local_tensor': 7, "
		  "'_spec': 8})"), "damaged: a DTensor without its parts" },
	{ DT("2,", "7", ONE_MESH, SHARD("0")),
	  "w: a part that is not a plain tensor" },
	{ DT("2,", MESHED(ONE_MESH), ONE_MESH, SHARD("0")),
	  "one rank's part of a model, whose tensors are distributed" },
	/* getattr() is called for the groups of FSDP1 alone. */
	{ "builtins.getattr(" TD "_shard.sharded_tensor.api.ShardedTensor, "
	  "'ProcessGroupState')", "" },
	{ "builtins.getattr(" TD "_shard.sharded_tensor.api.ShardedTensor, "
	  "'a')", GETATTR },
	{ "__builtin__.getattr(os.Path, 'a')", "would call __builtin__.getattr" },
	{ "builtins.getattr(mine.Class, 'ProcessGroupState')", GETATTR },
	{ "builtins.getattr('a', 'ProcessGroupState')", GETATTR },
};

static void read_file(const char *text, struct rsh_source_ranks *st,
		      int *rc, struct rsh_ranks_file **f, struct rsh_error *err)
{
	struct buffer b = torch_file(text, "a", 1);
	struct rsh_byte_source src = buffer_source(&b);
	void *read = NULL;

	*err = (struct rsh_error)RSH_ERROR_INIT;
	*rc = rsh_ranks_file_read(st, 0, &src, false, NULL, &read, NULL, err);
	*f = read;
	buffer_free(&b);
}

TEST(damaged_files_are_refused)
{
	for (size_t i = 0; i < sizeof(damaged) / sizeof(damaged[0]); i++) {
		struct rsh_ranks_listed listed = { .described = NULL };
		struct rsh_source_ranks st = { .listed = &listed };
		struct rsh_ranks_file *f;
		struct rsh_error err;
		char text[8192];
		int rc;

		pthread_mutex_init(&st.ways.lock, NULL);
		snprintf(text, sizeof(text), W("%s"), damaged[i].value);
		read_file(text, &st, &rc, &f, &err);
		if (!rc != !*damaged[i].words ||
		    (rc && !strstr(err.text, damaged[i].words)))
			fail_msg("%zu, %s: rc %d, \"%s\"", i,
				 damaged[i].words, rc, err.text);
		rsh_joined_file_free(f);
		rsh_ranks_ways_clear(&st.ways);
	}
}

/* Tensors of one way share it, and others do not. */
TEST(ways_are_shared)
{
	struct rsh_ranks_listed listed = { .described = NULL };
	struct rsh_source_ranks st = { .listed = &listed };
	struct rsh_ranks_file *f;
	struct rsh_error err;
	int rc;

	pthread_mutex_init(&st.ways.lock, NULL);
	read_file("{'a': " DT("2,", "F32[1]", "&1 " TWO("1"), SHARD("0"))
		  ", 'b': " DT("4,", "F32[2]", "*1", SHARD("0"))
		  ", 'c': " DT("2, 2", "F32[2,1]", TWO("1"), SHARD("1"))
		  ", 'd': " DT("2,", "F32[1]", OLD_MESH("2", "1, 0", "[0]"),
			       SHARD("0"))
		  ", 'e': " DT("2,", "F32[1]", OLD_MESH("1,2", "0, 1",
							"[0, 1]"),
			       REPLICATE ", " SHARD("0")) "}",
		  &st, &rc, &f, &err);
	assert_good(rc, err);
	assert_int_equal(f->rank, 1);
	assert_int_equal(f->n, 5);
	assert_ptr_equal(f->v[0].spec->how, f->v[1].spec->how);
	assert_ptr_equal(f->v[0].spec->how->mesh, f->v[2].spec->how->mesh);
	assert_ptr_not_equal(f->v[0].spec->how, f->v[2].spec->how);
	assert_ptr_not_equal(f->v[0].spec->how->mesh, f->v[3].spec->how->mesh);
	assert_ptr_not_equal(f->v[0].spec->how->mesh, f->v[4].spec->how->mesh);
	assert_string_equal(f->v[0].spec->how->mesh->text, "2");
	assert_string_equal(f->v[4].spec->how->mesh->text, "1, 2");
	assert_int_equal(f->specs.world, 2);
	rsh_joined_file_free(f);
	/* A rank that is not that of the others. */
	read_file("{'a': " DT("2,", "F32[1]", TWO("1"), SHARD("0"))
		  ", 'b': " DT("2,", "F32[1]", TWO("0"), SHARD("0")) "}",
		  &st, &rc, &f, &err);
	assert_int_equal(rc, -EBADMSG);
	assert_non_null(strstr(err.text, "tensor b is of rank 0, and others are "
			       "of rank 1"));
	rsh_ranks_ways_clear(&st.ways);
}

/* ---- steps, for --resume ---- */

#define M(world, rank) "model_world_size_" world "_rank_" rank ".pt"
#define O(world, rank) "optim_world_size_" world "_rank_" rank ".pt"
#define E(world, rank) "extra_state_world_size_" world "_rank_" rank ".pt"
#define HALF(at) W(DT("2,", "F32[1]=" at, TWO(at), SHARD("0")))

TEST(steps_are_checked)
{
	static const struct {
		struct torch_text files[6];
		int code;
		const char *words;
	} v[] = {
		{ { { M("2", "0"), HALF("0") }, { M("2", "1"), HALF("1") } }, 0,
		  "" },
		{ { { M("2", "0"), HALF("0") } }, ENOENT,
		  M("2", "0") ": rank 1 of 2 has no such file" },
		{ { { M("2", "0"), HALF("0") }, { M("3", "1"), HALF("1") } },
		  EINVAL, M("3", "1") ": files of 2 and of 3 ranks are side by "
		  "side" },
		{ { { M("2", "0"), HALF("0") }, { M("2", "1"), HALF("1") },
		    { O("2", "0"), "{}" } }, ENOENT, "rank 1 of 2 has no such "
		  "file" },
		{ { { M("2", "0"), HALF("0") }, { M("2", "1"), HALF("1") },
		    { E("2", "1"), "{}" } }, ENOENT, "rank 0 of 2 has no such "
		  "file" },
		{ { { M("2", "0"), HALF("0") }, { M("2", "1"), HALF("1") },
		    { E("2", "0"), "{}" }, { E("2", "1"), "{'a': 1}" },
		    { "data.pt", "{}" } }, 0, "" },
		/* The file of another rank. */
		{ { { M("2", "0"), HALF("1") }, { M("2", "1"), HALF("1") } },
		  EBADMSG, "the file is of rank 1, not 0" },
		{ { { M("2", "0"), W("F32[1]=1") }, { M("2", "1"),
		    W("F32[1]=2") } }, EBADMSG, "tensor w: it is a plain "
		  "tensor, and differs" },
		{ { { "other.pt", "{}" } }, 0, "" },
	};

	for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); i++)
		for (int full = 0; full < 2; full++) {
			struct rsh_error err;
			int rc = torch_check_step(&rsh_torch_ranks_format,
						  v[i].files, full, &err);

			if (rc != -v[i].code || !strstr(err.text, v[i].words))
				fail_msg("%zu: rc %d, \"%s\"", i, rc, err.text);
		}
}

TEST(names_of_steps)
{
	static const struct {
		const char *path;
		enum rsh_part part;
	} v[] = {
		{ "global_step_5/", RSH_PART_YES },
		{ "global_step_5/actor/", RSH_PART_YES },
		{ "global_step_5/policy/", RSH_PART_YES },
		{ "global_step_5/other/", RSH_PART_NO },
		{ "global_step_5/data.pt", RSH_PART_YES },
		{ "global_step_5/x.pt", RSH_PART_MAYBE },
		{ "global_step_5/actor/" M("2", "1"), RSH_PART_YES },
		{ "global_step_5/actor/x", RSH_PART_MAYBE },
		{ "global_step_x/", RSH_PART_NO }, { "actor/", RSH_PART_NO },
	};

	for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); i++) {
		struct rsh_step_name name = { .step = { .n = 0 } };

		if (rsh_torch_ranks_format.part(v[i].path, &name) != v[i].part)
			fail_msg("%s", v[i].path);
		if (v[i].part != RSH_PART_NO)
			assert_int_equal(name.step.numbers[0], 5);
	}
}
