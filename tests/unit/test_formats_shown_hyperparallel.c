/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_formats_shown_hyperparallel.c - distributed checkpoints of
 * HyperParallel: the whole tensors that they show, what is listed, and what is
 * refused. */
#include "config.h"

#include "shown_support.h"

#define HYPER "hyper_parallel.core.distributed_checkpoint."
#define META HYPER "metadata."
#define CHUNK(from, size) \
	META "ChunkStorageMetadata<>!{'offsets': (" from ",), 'sizes': (" size \
	",)}"
#define TENSOR(shape, chunks) \
	META "TensorStorageMetadata<>!{'properties': " META \
	"TensorProperties<>!{'dtype': 'Float32', 'requires_grad': False}, " \
	"'size': (" shape ",), 'chunks': [" chunks "]}"
#define VALUE META "BytesStorageMetadata<>"
/* An item is found by its name in the file, or by a key. */
#define ITEM(name, from, index, file, more) \
	META "MetadataIndex<>!{'fqn': '" name "', 'offset': (" from \
	",), 'index': " index "}: " HYPER "storage.StorageInfo<>!{" \
	"'relative_path': '" file "', 'offset': 0, 'length': -1" more "}"
#define SAVE(tensors, items) \
	META "Metadata<>!{'state_dict_metadata': {" tensors "}, " \
	"'planner_data': None, 'storage_data': {" items "}, 'version': '2.0'}"
#define FILE_OF(rank) "_rank" rank "_.safetensors"
/* One tensor of 5 elements on two ranks. */
#define HALVES TENSOR("5", CHUNK("0", "3") ", " CHUNK("3", "2"))
#define TWO_FILES \
	SAVE("'w': " HALVES, ITEM("w", "0", "0", FILE_OF("0"), "") ", " \
	     ITEM("w", "3", "1", FILE_OF("1"), ""))

static const struct shown_tree trees[] = {
	{ "two_ranks", {
	  { "./.metadata", TWO_FILES },
	  { "./" FILE_OF("0"), "w F32[3]=5; other U8[1]" },
	  { "./" FILE_OF("1"), "w F32[2]=8" } }, "w F32[5] 5 6 7 8 9\n" },
	{ "another_name_in_the_file", {
	  { "./.metadata", SAVE("'w': " TENSOR("2", CHUNK("0", "2")),
				ITEM("w", "0", "0", FILE_OF("0"),
				     ", 'tensor_key': 'key'")) },
	  { "./" FILE_OF("0"), "w F32[2]=5; key F32[2]=8" } },
	  "w F32[2] 8 9\n" },
	/* Each rank describes what it has. */
	{ "metadata_of_each_rank", {
	  { "./0.metadata", SAVE("'v': " TENSOR("1", CHUNK("0", "1")),
				 ITEM("v", "0", "0", FILE_OF("0"), "")) },
	  { "./1.metadata", SAVE("'w': " TENSOR("2", CHUNK("0", "2")),
				 ITEM("w", "0", "0", FILE_OF("1"), "")) },
	  { "./" FILE_OF("0"), "v F32[1]=5" },
	  { "./" FILE_OF("1"), "w F32[2]=8" } },
	  "v F32[1] 5\nw F32[2] 8 9\n" },
};

TEST_ROWS(trees)
{
	shown_tree_check(*state);
}

static const struct shown_refused refused[] = {
	{ "a_file_is_lost", {
	  { "./.metadata", TWO_FILES },
	  { "./" FILE_OF("0"), "w F32[3]=5" } }, ENOENT, "tensor w "
	  "lacks its box [2] at [3], which is in " FILE_OF("1") },
	{ "a_tensor_is_lost", {
	  { "./.metadata", TWO_FILES }, { "./" FILE_OF("0"), "w F32[3]=5" },
	  { "./" FILE_OF("1"), "v F32[2]=8" } }, ENOENT, "tensor w "
	  "lacks its box [2] at [3], which is in " FILE_OF("1") ", which has "
	  "no tensor w" },
};

TEST_ROWS(refused)
{
	shown_refused_check(*state);
}

/* On torch the files are of torch.save(), whatever their names say. */
TEST(files_of_torch)
{
	cleanup_tree char *tree = tree_make();

	torch_write_all(tree, (const struct torch_text[]){
		{ "./.metadata", TWO_FILES }, { NULL } });
	torch_write(tree, &(struct torch_text){
		"./" FILE_OF("0"), "{'v': F32[1], 'w': F32[3]=5}" });
	torch_write(tree, &(struct torch_text){
		"./" FILE_OF("1"), "{'w': F32[2]=8}" });
	assert_shown(tree, "", "w F32[5] 5 6 7 8 9\n");
}

/* A step may name the files of those before it, above SOURCE. */
TEST(files_of_an_earlier_step)
{
	cleanup_tree char *tree = tree_make();
	char *text;
	int rc;

	torch_write_all(tree, (const struct torch_text[]){
		{ "step_2/.metadata", SAVE("'w': " HALVES,
		  ITEM("w", "0", "0", "../step_1/" FILE_OF("0"), "") ", "
		  ITEM("w", "3", "1", FILE_OF("1"), "")) },
		{ "step_1/" FILE_OF("0"), "w F32[3]=5" },
		{ "step_2/" FILE_OF("1"), "w F32[2]=8" }, { NULL } });
	assert_not_shown(tree, "step_2", EXDEV, "SOURCE/step_2: w is in "
			 "../step_1/" FILE_OF("0") ", outside of it (an "
			 "incremental save): --follow-outside reads it");
	text = shown(tree, "step_2", (struct rsh_vfs_config){
		.files.store.follow_outside = true }, &rc);
	assert_string_equal(text, "w F32[5] 5 6 7 8 9\n");
	free(text);
}

TEST(tensors_and_values_are_listed)
{
	cleanup_tree char *tree = tree_make();

	torch_write_all(tree, (const struct torch_text[]){
		{ "./.metadata", SAVE("'w': " HALVES ", 'step': " VALUE
		  ", 'lr': " VALUE, ITEM("w", "0", "0", FILE_OF("0"), "") ", "
		  ITEM("w", "3", "1", FILE_OF("1"), "")) },
		{ "./" FILE_OF("0"), "w F32[3]=5" },
		{ "./" FILE_OF("1"), "w F32[2]=8" }, { NULL } });
	assert_listed(tree, "", "w Float32[5]: [3]@0 in " FILE_OF("0") ", "
		      "[2]@3 in " FILE_OF("1") "\n\nvalue lr\nvalue step\n");
}
