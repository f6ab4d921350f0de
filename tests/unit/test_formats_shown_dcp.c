/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_formats_shown_dcp.c - distributed checkpoints made by hand: the whole
 * tensors that they show, what is said of chunks that no file has, and which
 * files have checksums. */
#include "config.h"

#include "rsh/formats/formats.h"
#include "rsh/source/inspect.h"
#include "shown_support.h"

#define TDC "torch.distributed.checkpoint."
#define META(class) TDC "metadata." class "<>!"

/* A chunk of tensor w, which has a file of its own. */
struct chunk {
	const char *file, *from, *size;
	const char *item; /* NULL: the file is not there */
	const char *index; /* NULL: none */
};

struct tree {
	const char *name, *shape;
	struct chunk chunks[4];
	const char *want;  /* NULL: it is not shown .. */
	const char *lacks; /* .. since this is not there */
};

#define LACKS "tensor w lacks its box "

/* Appends one chunk to the lists of chunks and of places, and writes its
 * file. */
static void write_chunk(const char *dir, const struct chunk *c,
			struct unit_text *chunks, struct unit_text *places)
{
	struct buffer b = torch_file(c->item ? c->item : "F32[]", "archive", 7);

	if (c->item)
		tree_write(dir, c->file, b.data, b.len);
	unit_put(chunks, "%s" META("ChunkStorageMetadata") "{'offsets': (%s,), "
		 "'sizes': (%s,)}", chunks->n ? ", " : "", c->from, c->size);
	unit_put(places, "%s" META("MetadataIndex") "{'fqn': 'w', 'offset': "
		 "(%s,), 'index': %s}: " TDC "filesystem._StorageInfo<>!{"
		 "'relative_path': '%s', 'offset': 0, 'length': %zu}",
		 places->n ? ", " : "", c->from, c->index ? c->index : "None",
		 strrchr(c->file, '/') + 1, b.len);
	buffer_free(&b);
}

static void write_tree(const char *dir, const struct tree *t)
{
	struct unit_text chunks = { "", 0 }, places = { "", 0 }, all = { "", 0 };
	struct buffer b = { NULL, 0 };

	for (unsigned i = 0; i < 4 && t->chunks[i].file; i++)
		write_chunk(dir, &t->chunks[i], &chunks, &places);
	unit_put(&all, META("Metadata") "{'state_dict_metadata': {'w': "
		 META("TensorStorageMetadata") "{'properties': "
		 META("TensorProperties") "(torch.float32,), 'size': (%s,), "
		 "'chunks': [%s]}}, 'storage_data': {%s}}", t->shape, chunks.s,
		 places.s);
	append_pickle(&b, all.s);
	tree_write(dir, "./.metadata", b.data, b.len);
	buffer_free(&b);
}

static const struct tree trees[] = {
	{ "rows", "3, 2", { { "./a", "0, 0", "2, 2", "F32[2,2]" },
			    { "./b", "2, 0", "1, 2", "F32[1,2]=4" } },
	  "w F32[3,2] 0 1 2 3 4 5\n", NULL },
	{ "columns_first_in_memory", "4, 2", {
	  { "./a", "0, 0", "2, 2", "F32[2,2]:[1,2]" },
	  { "./b", "2, 0", "2, 2", "F32[2,2]=4:[1,2]" } },
	  "w F32[4,2] 0 2 1 3 4 6 5 7\n", NULL },
	{ "columns_first_in_the_second_chunk", "4, 2", {
	  { "./a", "0, 0", "2, 2", "F32[2,2]" },
	  { "./b", "2, 0", "2, 2", "F32[2,2]=4:[1,2]" } },
	  "w F32[4,2] 0 1 2 3 4 6 5 7\n", NULL },
	{ "columns_first_in_the_last_chunk", "6, 2", {
	  { "./a", "0, 0", "2, 2", "F32[2,2]" },
	  { "./b", "2, 0", "2, 2", "F32[2,2]=4" },
	  { "./c", "4, 0", "2, 2", "F32[2,2]=8:[1,2]" } },
	  "w F32[6,2] 0 1 2 3 4 5 6 7 8 10 9 11\n", NULL },
	{ "copies", "2", {
	  { "./a", "0", "2", "F32[2]=5", "0" },
	  { "./b", "0", "2", "F32[2]=5", "1" } }, "w F32[2] 5 6\n", NULL },

	/* ---- chunks that no file has ---- */
	{ "a_chunk_is_lost", "4, 2", {
	  { "./a", "0, 0", "2, 2", "F32[2,2]" }, { "./b", "2, 0", "2, 2" } },
	  NULL, LACKS "[2,2] at [2,0], which is in b, which cannot be read" },
	/* It is taken to have the order of the others. */
	{ "columns_first_and_one_is_lost", "6, 2", {
	  { "./a", "0, 0", "2, 2", "F32[2,2]=1:[1,2]" },
	  { "./b", "2, 0", "2, 2" },
	  { "./c", "4, 0", "2, 2", "F32[2,2]=8:[1,2]" } },
	  NULL, LACKS "[2,2] at [2,0], which is in b, which cannot be read" },
	{ "its_copy_is_there", "2", {
	  { "./a", "0", "2", NULL, "0" }, { "./b", "0", "2", "F32[2]=5", "1" } },
	  "w F32[2] 5 6\nwarning: SOURCE/a: No such file or directory: the "
	  "file is left out\n", NULL },
};

TEST_ROWS(trees)
{
	const struct tree *t = *state;
	cleanup_tree char *dir = tree_make();

	write_tree(dir, t);
	if (t->want)
		assert_shown(dir, "", t->want);
	else
		assert_not_shown(dir, "", ENOENT, t->lacks);
}

TEST(chunks_are_listed)
{
	cleanup_tree char *dir = tree_make();

	write_tree(dir, &trees[0]);
	assert_listed(dir, "", "w Float32[3,2]: [2,2]@0,0 in a at 0+624, [1,2]@2,0 "
		      "in b at 0+616\n\n");
}

/* All records of all files have checksums, or none has. */
static void assert_summed(const char *dir, const char *below, bool summed)
{
	const struct rsh_source_options opts = {
		.formats = rsh_formats, .unsharded = true,
	};
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_names *names = rsh_names_new();
	struct rsh_source *s;
	char path[4096];

	snprintf(path, sizeof(path), "%s/%s", dir, below);
	assert_good(rsh_source_open(path, 0, UINT32_MAX, &opts, &s, &err), err);
	assert_good(rsh_source_choose(s, 0, &err), err);
	for (uint32_t i = 0; i < rsh_source_n_files(s); i++) {
		struct rsh_inspected in;
		struct rsh_handle *h;

		assert_good(rsh_source_file_open(s, i, &h, &err), err);
		assert_good(rsh_source_file_inspect(s, i, h, names, &in, &err),
			    err);
		assert_true(in.index->n_records > 0);
		assert_int_equal(in.index->summed, summed);
		assert_int_equal(in.index->n_unsummed,
				 summed ? 0 : in.index->n_records);
		rsh_inspected_clear(&in);
		rsh_handle_close(h);
	}
	rsh_source_free(s);
	rsh_names_free(names);
}

TEST(files_have_checksums_or_not)
{
	cleanup_tree char *dir = tree_make();
	const char *here = getenv("srcdir") ?: ".";

	write_tree(dir, &trees[0]);
	assert_summed(dir, "", true);
	assert_summed(here, "data/dcp/torch-2.15/fsdp2-2", true);
	assert_summed(here, "data/dcp/torch-2.15/nocrc", false);
}
