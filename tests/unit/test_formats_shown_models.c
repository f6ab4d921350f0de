/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_formats_shown_models.c - whole models, as transformers, PyTorch and
 * Meta save them: what they show, what is beside them, and what is refused. */
#include "config.h"

#include <unistd.h>

#include "rsh/formats/formats.h"
#include "shown_support.h"

#define ST(n) "./" n ".safetensors"
#define MAP(files) "{\"metadata\":{},\"weight_map\":{" files "}}"
#define IN(weight, file) "\"" weight "\":\"" file "\""
#define PARTS \
	{ ST("model-00001-of-00002"), "a F32[2]=1; b U8[1]=7" }, \
	{ ST("model-00002-of-00002"), "c I32[2]=3" }
#define PARTS_MAP \
	{ "./model.safetensors.index.json", MAP( \
	  IN("a", "model-00001-of-00002.safetensors") "," \
	  IN("b", "model-00001-of-00002.safetensors") "," \
	  IN("c", "model-00002-of-00002.safetensors")) }
#define SHOWN_PARTS "a F32[2] 1 2\nc I32[2] 3 4\nb U8[1] 7\n"

static const struct model {
	const char *name;
	struct torch_text files[4];
	const char *below;
	int code; /* 0: it is shown */
	const char *want;
} models[] = {
	{ "one_file", { { ST("model"), "a F32[2]=1; b BF16[1]=7" } }, "", 0,
	  "a F32[2] 1 2\nb BF16[1] 7\n" },
	{ "one_file_of_any_name", { { ST("x"), "a F32[2]=1" } }, "", 0,
	  "a F32[2] 1 2\n" },
	{ "a_file", { { ST("x"), "a F32[2]=1" }, { ST("y"), "a F32[2]=2" } },
	  "x.safetensors", 0, "a F32[2] 1 2\n" },
	{ "parts", { PARTS, PARTS_MAP }, "", 0, SHOWN_PARTS },
	{ "the_map_of_parts", { PARTS, PARTS_MAP },
	  "model.safetensors.index.json", 0, SHOWN_PARTS },
	{ "a_map_of_another_name", { PARTS,
	  { "./x.safetensors.index.json", MAP(
	    IN("a", "model-00001-of-00002.safetensors") ","
	    IN("b", "model-00001-of-00002.safetensors") ","
	    IN("c", "model-00002-of-00002.safetensors")) } }, "", 0,
	  SHOWN_PARTS },
	/* transformers loads the one file. */
	{ "a_file_and_a_map", { { ST("model"), "a F32[2]=9" }, PARTS_MAP }, "",
	  0, "a F32[2] 9 10\n" },

	/* ---- PyTorch ---- */
	{ "pytorch_model", { { "./pytorch_model.bin", "{'a': F32[2]=1, 'b': "
	    "{'c': BF16[1]=7}}" } }, "", 0, "a F32[2] 1 2\nb.c BF16[1] 7\n" },
	{ "parts_of_pytorch", {
	  { "./pytorch_model-00001-of-00002.bin", "{'a': F32[2]=1}" },
	  { "./pytorch_model-00002-of-00002.bin", "{'b': F32[1]=7}" },
	  { "./pytorch_model.bin.index.json", MAP(
	    IN("a", "pytorch_model-00001-of-00002.bin") ","
	    IN("b", "pytorch_model-00002-of-00002.bin")) } }, "", 0,
	  "a F32[2] 1 2\nb F32[1] 7\n" },
	/* The map says which one counts. */
	{ "a_copy_in_another_part", {
	  { "./pytorch_model-00001-of-00002.bin", "{'a': F32[2]=1, 'b': "
	    "F32[1]=9}" },
	  { "./pytorch_model-00002-of-00002.bin", "{'a': F32[2]=5, 'b': "
	    "F32[1]=7}" },
	  { "./pytorch_model.bin.index.json", MAP(
	    IN("a", "pytorch_model-00001-of-00002.bin") ","
	    IN("b", "pytorch_model-00002-of-00002.bin")) } }, "", 0,
	  "a F32[2] 1 2\nb F32[1] 7\nwarning: SOURCE: 2 copies of tensors are "
	  "in other parts than the map says, and are not read\n" },
	{ "consolidated", { { "./consolidated.00.pth", "{'a': F32[2]=1}" } },
	  "", 0, "a F32[2] 1 2\n" },
	{ "consolidated_of_two", {
	  { "./consolidated.00.pth", "{'a': F32[2]=1}" },
	  { "./consolidated.01.pth", "{'a': F32[2]=3}" } }, "", ENOTSUP,
	  "consolidated.*.pth are slices of one model, of which it has 2, and "
	  "nothing in them says how they are joined" },
	{ "views_of_one_storage", { { "./x.pt", "{'a': F32[2,3], 'b': "
	    "F32[3,2]@0:[1,3], 'c': F32[2]@0+4, 'd': F32[2,2]@0+1:[3,0]}" } },
	  "", 0, "a F32[2,3] 0 1 2 3 4 5\nb F32[3,2] 0 3 1 4 2 5\n"
	  "c F32[2] 4 5\nd F32[2,2] 1 1 4 4\n" },
	{ "a_list_of_tensors", { { "./x.pt", "[F32[1]=5, {'b': F32[1]=6}]" } },
	  "x.pt", 0, "0 F32[1] 5\n1.b F32[1] 6\n" },
	{ "lists_in_lists", { { "./x.pt", "[[F32[1]=5, (F32[1]=6,)], "
	    "([1, (F32[1]=7,)],), [[2]]]" } }, "x.pt", 0, "0.0 F32[1] 5\n"
	  "0.1.0 F32[1] 6\n1.0.1.0 F32[1] 7\n" },
	{ "dictionaries_of_pairs", { { "./x.pt", "{'x': collections.OrderedDict("
	    "[('a', F32[1]=5), ['b', F32[1]=6]]), 'y': collections.OrderedDict("
	    "{'c': F32[1]=7})}" } }, "x.pt", 0,
	  "x.a F32[1] 5\nx.b F32[1] 6\ny.c F32[1] 7\n" },
	{ "keys_of_all_kinds", { { "./x.pt", "{1: F32[1]=5, True: F32[1]=6, "
	    "None: F32[1]=7, (torch.float32, torch.int8): F32[1]=8}" } },
	  "x.pt", 0, "(torch.float32, torch.int8) F32[1] 8\n1 F32[1] 5\n"
	  "None F32[1] 7\nTrue F32[1] 6\n" },
	{ "parameters", { { "./x.pt", "{'w': torch._utils._rebuild_parameter("
	    "F32[2]=5, False, None)}" } }, "", 0, "w F32[2] 5 6\n" },

	/* ---- parts of models ---- */
	{ "a_slice_of_megatron", { { "./x.pt", "{'checkpoint_version': 3.0, "
	    "'args': argparse.Namespace<>!{'tensor_model_parallel_size': 2, "
	    "'pipeline_model_parallel_size': 3}, 'model': {'w': F32[1]}}" } },
	  "x.pt", ENOTSUP, "one rank's slice of a model of Megatron-LM: its "
	  "args say tensor 2, pipeline 3 and expert parallel size 1" },
	{ "experts_of_megatron", { { "./x.pt", "{'checkpoint_version': 3.0, "
	    "'args': {'tensor_model_parallel_size': 1, "
	    "'expert_model_parallel_size': 2}, 'model0': {'w': F32[1]}}" } },
	  "x.pt", ENOTSUP, "tensor 1, pipeline 1 and expert parallel size 2" },
	{ "a_whole_model_of_megatron", { { "./x.pt", "{'checkpoint_version': "
	    "3.0, 'args': {'tensor_model_parallel_size': 1}, 'model': {'w': "
	    "F32[1]}}" } }, "x.pt", 0, "model.w F32[1] 0\n"
	  "warning: all weights were saved under the key \"model\": --unwrap "
	  "removes it from their names\n" },
	{ "megatron_without_args", { { "./x.pt", "{'checkpoint_version': 3.0, "
	    "'model': {'w': F32[1]}}" } }, "x.pt", ENOTSUP,
	  "one rank's file of Megatron-LM, and its args do not say whether it "
	  "has the whole model" },
	{ "a_part_of_deepspeed", { { "./x.pt", "{'ds_version': '1', 'module': "
	    "{'w': F32[1]}}" } }, "x.pt", ENOTSUP, "one rank's part of a "
	  "checkpoint of DeepSpeed: SOURCE is the directory with the files of "
	  "all ranks" },
	{ "an_optimizer_of_deepspeed", { { "./x.pt", "{'optimizer_state_dict': "
	    "{'fp32_flat_groups': [F32[1]]}}" } }, "x.pt", ENOTSUP,
	  "one rank's part of a checkpoint of DeepSpeed" },
	{ "an_object", { { "./x.pt", "mine.Model<>!{'w': F32[1]}" } }, "x.pt",
	  ENOTSUP, "an object of class mine.Model, not a state dict" },
	{ "a_tensor", { { "./x.pt", "F32[1]" } }, "x.pt", ENOTSUP,
	  "one tensor without a name" },
	{ "a_text", { { "./x.pt", "'a'" } }, "x.pt", ENOTSUP,
	  "neither a dictionary nor a list of tensors" },

	/* ---- maps that do not fit ---- */
	{ "a_part_is_lost", { { ST("model-00001-of-00002"),
	    "a F32[2]=1; b U8[1]=7" }, PARTS_MAP }, "", ENOENT,
	  "model-00002-of-00002.safetensors" },
	{ "a_weight_is_lost", { { ST("model-00001-of-00002"), "a F32[2]=1" },
	  { ST("model-00002-of-00002"), "c I32[2]=3" }, PARTS_MAP }, "", 0,
	  "a F32[2] 1 2\nc I32[2] 3 4\nwarning: SOURCE: the map of its parts "
	  "names 1 parameter that none of them has (b)\n" },
	{ "a_part_of_pytorch_is_damaged", {
	  { "./pytorch_model-00001-of-00002.bin", "{'a': F32[2]=1}" },
	  { "./pytorch_model-00002-of-00002.bin", "#no archive" },
	  { "./pytorch_model.bin.index.json", MAP(
	    IN("a", "pytorch_model-00001-of-00002.bin") ","
	    IN("b", "pytorch_model-00002-of-00002.bin")) } }, "", EBADMSG,
	  "SOURCE/pytorch_model-00002-of-00002.bin: this is a text" },
	{ "parts_of_pytorch_without_a_map", {
	  { "./pytorch_model-00001-of-00002.bin", "{'a': F32[2]=1}" },
	  { "./pytorch_model-00002-of-00002.bin", "{'b': F32[2]=1}" } }, "",
	  ENOENT, "pytorch_model-00001-of-00002.bin may be a part of a model, "
	  "and no pytorch_model.bin.index.json is beside it" },
	{ "two_models_of_pytorch", {
	  { "./x.pt", "{'a': F32[2]=1}" }, { "./y.pt", "{'b': F32[2]=1}" } },
	  "", ENOENT, "it has 2 files that may be of PyTorch, such as x.pt: "
	  "give one of them as SOURCE" },
	{ "a_file_of_megatron", {
	  { "./model_optim_rng.pt", "{'a': F32[2]=1}" } }, "", ENOENT,
	  "model_optim_rng.pt is one rank's slice of a model, as Megatron "
	  "writes them: SOURCE is the directory of the iteration, with the "
	  "mp_rank directories of all ranks" },
	{ "parts_without_a_map", { PARTS }, "", ENOENT,
	  "model-00001-of-00002.safetensors may be a part of a model, and no "
	  "model.safetensors.index.json is beside it" },
	{ "parts_and_another_file_without_a_map", { PARTS,
	    { ST("embed"), "a F32[2]" } }, "", ENOENT,
	  "model-00001-of-00002.safetensors may be a part of a model, and no "
	  "model.safetensors.index.json is beside it" },
	{ "two_models", { { ST("x"), "a F32[2]" }, { ST("y"), "b F32[2]" } },
	  "", ENOENT, "it has 2 files that may be a whole model, such as "
	  "x.safetensors: give one of them as SOURCE" },
	{ "files_of_ranks", { { ST("x0"), "a F32[2]" }, { ST("x1"),
	    "a F32[2]" } }, "", ENOENT, "x0.safetensors may be the file of one "
	  "of 2 ranks, and nothing beside it says how they are joined: use "
	  "--src-strategy FILE --rank-dir . --file 'x{rank}.safetensors'" },
	{ "no_weights", { { "./config.json", "{}" } }, "", ENOENT,
	  "it has config.json, and no weights" },
	{ "an_adapter_file", { { ST("adapter_model"), "a F32[1]" } },
	  "adapter_model.safetensors", EINVAL, "it is an adapter: --lora DIR "
	  "merges it into the model of SOURCE" },
	{ "a_part_alone", { PARTS }, "model-00002-of-00002.safetensors", EINVAL,
	  "model-00002-of-00002.safetensors is a part of a model, or beside "
	  "one: give the directory or the map of the parts" },
};

TEST_ROWS(models)
{
	const struct model *m = *state;
	cleanup_tree char *tree = tree_make();

	torch_write_all(tree, m->files);
	if (m->code)
		assert_not_shown(tree, m->below, m->code, m->want);
	else
		assert_shown(tree, m->below, m->want);
}

/* ---- what is beside a model ---- */

/* A file of what is written is `want`; NULL: it is not there. */
static void assert_file(const char *tree, const char *name, const char *want)
{
	char path[4096], text[8192];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", tree, name);
	f = fopen(path, "r");
	if (!want) {
		assert_null(f);
		return;
	}
	if (!f)
		fail_msg("no %s", name);
	text[fread(text, 1, sizeof(text) - 1, f)] = '\0';
	fclose(f);
	assert_string_equal(text, want);
}

TEST(files_beside_a_model)
{
	cleanup_tree char *tree = tree_make(), *to = tree_make();
	const struct rsh_vfs_config cfg = {
		.output = &rsh_output_hf, .plan.part_bytes = 16,
		.model_files = tree,
	};

	torch_write_all(tree, (const struct torch_text[]){
		{ ST("model"), "a F32[4]=1; b F32[1]=7; c I64[1]=3" },
		{ "./config.json", "{\"model_type\": \"x\", \"dtype\": "
				   "\"float16\"}" },
		{ "./generation_config.json", "{\"torch_dtype\": \"float16\"}" },
		{ "sub/deep/x.json", "{}" }, { "./.hidden.json", "{}" },
		{ "./other.json", "not JSON" }, { NULL } });
	shown_write(tree, "", cfg, to);
	assert_file(to, "config.json", "{\"model_type\": \"x\", \"dtype\": "
		    "\"float32\"}");
	assert_file(to, "sub/deep/x.json", "{}");
	assert_file(to, ".hidden.json", NULL);
	assert_file(to, "other.json", "not JSON");
	assert_file(to, "model.safetensors", NULL);
	assert_file(to, "model.safetensors.index.json",
		    "{\n  \"metadata\": {\n    \"total_size\": 28\n  },\n"
		    "  \"weight_map\": {\n"
		    "    \"a\": \"model-00001-of-00002.safetensors\",\n"
		    "    \"b\": \"model-00002-of-00002.safetensors\",\n"
		    "    \"c\": \"model-00002-of-00002.safetensors\"\n  }\n}\n");
	assert_file(to, "generation_config.json",
		    "{\"torch_dtype\": \"float32\"}");
}

/* Some are named, with the reasons, and the others counted. */
TEST(files_that_are_left_out)
{
	for (unsigned n = 4; n < 8; n++) {
		cleanup_tree char *tree = tree_make();
		struct unit_text want = { "", 0 };
		char path[4096], *text;
		int rc;

		torch_write_all(tree, (const struct torch_text[]){
			{ ST("model"), "a F32[1]=1" }, { "./a.json", "{}" },
			{ NULL } });
		unit_put(&want, "a F32[1] 1\nwarning: SOURCE: not shown "
			 "beside the model: ");
		for (unsigned i = 0; i < n; i++) {
			snprintf(path, sizeof(path), "%s/b%u.json", tree, i);
			assert_int_equal(symlink("nothing", path), 0);
			if (i < 5)
				unit_put(&want, "%sb%u.json (a link to "
					 "nothing)", i ? ", " : "", i);
		}
		if (n > 5)
			unit_put(&want, " and %u more", n - 5);
		unit_put(&want, "\n");
		text = shown(tree, "", (struct rsh_vfs_config){
			.model_files = tree }, &rc);
		assert_string_equal(text, want.s);
		free(text);
	}
}
