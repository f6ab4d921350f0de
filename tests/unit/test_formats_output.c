/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_formats_output.c - the list of outputs, and a tree in a form that no list
 * has. */
#include "config.h"

#include <limits.h>

#include "rsh/formats/formats.h"
#include "rsh/formats/outputs.h"
#include "rsh/vfs/inspect.h"
#include "rsh/vfs/vfs.h"
#include "source_support.h"

/* ---- the list ---- */

static const struct rsh_output *const all[] = {
#define ADDRESS(name) &rsh_output_##name,
	RSH_OUTPUT_LIST(ADDRESS)
};
#define N_ALL (sizeof(all) / sizeof(all[0]))

TEST(names_are_those_of_the_list)
{
	static const char *const names[] = {
#define NAME(name) #name,
		RSH_OUTPUT_LIST(NAME)
	};
	char words[128] = "";

	for (size_t i = 0; i < N_ALL; i++) {
		assert_string_equal(all[i]->name, names[i]);
		assert_ptr_equal(rsh_output_find(names[i]), all[i]);
		strcat(strcat(words, i ? "|" : ""), names[i]);
	}
	assert_string_equal(RSH_OUTPUT_WORDS, words);
	assert_null(rsh_output_find("zip"));
	assert_null(rsh_output_find(""));
	assert_ptr_equal(rsh_output_default(), all[0]);
}

/* A manifest knows the type of files, whether they are parts, and `digest`. */
TEST(manifests_tell_outputs_apart)
{
	for (size_t i = 0; i < N_ALL; i++)
		for (size_t k = 0; k < i; k++)
			assert_true(all[i]->framing->type !=
					    all[k]->framing->type ||
				    all[i]->digest != all[k]->digest ||
				    (all[i]->division == RSH_DIVIDE_PARTS) !=
				    (all[k]->division == RSH_DIVIDE_PARTS));
}

TEST(names_say_who_takes_what)
{
	char names[64];

	rsh_output_names("model-files", names, sizeof(names));
	assert_string_equal(names, "hf");
	rsh_output_names("compat", names, sizeof(names));
	assert_string_equal(names, "ckpt or safetensors");
	rsh_output_names("part-size", names, sizeof(names));
	assert_string_equal(names, "hf or dcp or hyperparallel");
	rsh_output_names("compat", names, 4);
	assert_string_equal(names, "ckp");
	/* every output supports it, or it is only the beginning of a name */
	rsh_output_names("cast", names, sizeof(names));
	assert_string_equal(names, "");
	rsh_output_names("part", names, sizeof(names));
	assert_string_equal(names, "");
	rsh_output_names("optimizers", names, sizeof(names));
	assert_string_equal(names, "");
	assert_ptr_equal(rsh_output_of_models(), rsh_output_find("hf"));
}

/* Only a model in parts has a limit of them. */
TEST(options_follow_from_the_output)
{
	for (size_t i = 0; i < N_ALL; i++) {
		struct rsh_plan_options o = { .part_bytes = 7 };

		rsh_output_set(all[i], 1000, &o);
		assert_ptr_equal(o.framing, all[i]->framing);
		assert_int_equal(o.division, all[i]->division);
		assert_int_equal(o.part_bytes,
				 all[i]->division == RSH_DIVIDE_PARTS ? 1000 :
									0);
	}
}

/* ---- one that is made up: contents behind four letters, in the root ---- */

#define N_BYTES 60

static int flat_lay_out(struct rsh_file_layout *f, struct rsh_error *err)
{
	f->header = malloc(4);
	f->header_bytes = f->bytes = 4;
	if (!f->header)
		return rsh_error_nomem(err);
	memcpy(f->header, "FLAT", 4);
	for (uint32_t i = 0; i < f->n; i++) {
		f->slots[i].offset = f->bytes;
		f->bytes += f->shapes[i].content_bytes;
	}
	return 0;
}

static void flat_chunks(const struct rsh_record_shape *s,
			struct rsh_chunks *out)
{
	(void)s;
	*out = (struct rsh_chunks){ .n = 1, .content_bytes = UINT64_MAX };
}

static const struct rsh_framing flat_framing = {
	.type = RSH_FILE_SAFETENSORS,
	.lay_out = flat_lay_out,
	.chunks = flat_chunks,
};

static int flat_freed;

static void flat_free(void *state)
{
	flat_freed++;
	free(state);
}

static int flat_build(struct rsh_output_tree *t, struct rsh_error *err)
{
	const struct rsh_row files = {
		.n = rsh_plan_n_files(t->plan), .first = RSH_NODE_OF_FILE(0),
		.step = 2, .parent = t->tree->root, .kind = RSH_NODE_FILE,
		.before = "rank", .digits = 3, .after = t->output->suffix,
	};
	struct rsh_item *about = rsh_arena_array(&t->tree->arena,
						 struct rsh_item, 1);
	const struct rsh_row beside = {
		.n = 1, .first = RSH_NODE_BESIDE(0), .step = 1,
		.parent = t->tree->root, .items = about,
	};
	struct rsh_output_text text = { .mode = 0444 };
	char *said = t->state = strdup("flat");

	if (!about || !said)
		return rsh_error_nomem(err);
	text.body = rsh_body_of_text(said, strlen(said));
	*about = (struct rsh_item){ "ABOUT", RSH_NODE_FILE, 0 };
	if (rsh_output_add_text(t, &text, &about->leaf) ||
	    rsh_tree_add(t->tree, &files) || rsh_tree_add(t->tree, &beside))
		return rsh_error_nomem(err);
	return strcmp(t->prefix, "bad") == 0 ?
		rsh_error_set(err, EINVAL, "a bad prefix") : 0;
}

static const struct rsh_output flat = {
	.name = "flat",
	.suffix = ".flat",
	.framing = &flat_framing,
	.division = RSH_DIVIDE_RANKS,
	.takes = RSH_TAKES_RANKS,
	.build = flat_build,
	.free = flat_free,
};

struct fixture {
	char *tree;
	uint8_t content[N_BYTES];
	struct rsh_vfs_config cfg;
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	for (int i = 0; i < N_BYTES; i++)
		f->content[i] = (uint8_t)(3 * i);
	f->tree = tree_make();
	tree_write_vector(f->tree, "rank_0/x-1_5.ckpt", f->content, N_BYTES);
	tree_write_vector(f->tree, "rank_1/x-1_5.ckpt", f->content, N_BYTES);
	f->cfg = (struct rsh_vfs_config){
		.files.formats = rsh_formats,
		.source = f->tree, .output = &flat,
		.plan.n_shown_ranks = 2,
		.tree = { .prefix = "net_", .uid = 12, .gid = 34 },
	};
	flat_freed = 0;
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	tree_remove(f->tree);
	free(f);
	return 0;
}

TEST_WITH(another_output_is_shown, setup, teardown)
{
	struct fixture *f = *state;
	struct rsh_error err = RSH_ERROR_INIT;
	char said[N_BYTES + 8], name[32];
	struct rsh_vfs_view view;
	struct rsh_vfs *v;
	struct stat st;
	uint64_t node;

	assert_good(rsh_vfs_open(&f->cfg, &v, &err), err);
	assert_true(rsh_vfs_view(v, &view));
	assert_ptr_equal(view.output, &flat);
	rsh_vfs_file_name(v, 1, name, sizeof(name));
	assert_string_equal(name, "rank001.flat");
	node = rsh_vfs_lookup(v, RSH_VFS_ROOT, name);
	assert_int_equal(rsh_vfs_stat(v, node, &st), 0);
	assert_int_equal(st.st_size, 4 + N_BYTES);
	assert_int_equal(rsh_vfs_read(v, node, said, sizeof(said), 0),
			 4 + N_BYTES);
	assert_memory_equal(said, "FLAT", 4);
	assert_memory_equal(said + 4, f->content, N_BYTES);
	node = rsh_vfs_lookup(v, RSH_VFS_ROOT, "ABOUT");
	assert_int_equal(rsh_vfs_read(v, node, said, sizeof(said), 0), 4);
	assert_memory_equal(said, "flat", 4);
	assert_int_equal(rsh_vfs_lookup(v, RSH_VFS_ROOT, "rank_0"), 0);
	rsh_vfs_free(v);
	assert_int_equal(flat_freed, 1);
}

TEST_WITH(what_was_built_is_freed_after_a_failure, setup, teardown)
{
	struct fixture *f = *state;
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_vfs *v;

	f->cfg.tree.prefix = "bad";
	assert_int_equal(rsh_vfs_open(&f->cfg, &v, &err), -EINVAL);
	assert_string_equal(err.text, "a bad prefix");
	assert_int_equal(flat_freed, 1);
}

/* The name of the last of eleven ranks has a digit more than others. */
TEST_WITH(prefixes_may_be_too_long, setup, teardown)
{
	struct fixture *f = *state;
	const size_t most = NAME_MAX - strlen("10.ckpt");
	char prefix[NAME_MAX + 1];

	memset(prefix, 'p', sizeof(prefix));
	for (size_t n = most - 1; n <= most + 2; n++) {
		struct rsh_error err = RSH_ERROR_INIT;
		struct rsh_vfs *v;
		int rc;

		prefix[n] = '\0';
		f->cfg.output = &rsh_output_ckpt;
		f->cfg.tree.prefix = prefix;
		f->cfg.plan.n_shown_ranks = 11;
		f->cfg.plan.replicas = true;
		rc = rsh_vfs_open(&f->cfg, &v, &err);
		assert_int_equal(rc, n > most ? -ENAMETOOLONG : 0);
		if (rc)
			assert_non_null(strstr(err.text, "makes file names too "
					       "long"));
		else
			rsh_vfs_free(v);
		prefix[n] = 'p';
	}
}
