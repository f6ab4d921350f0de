/* SPDX-License-Identifier: Apache-2.0 */
/* metadata.json of Checkpoint 2.0 as it is written for files that are shown. */
#include "wire_support.h"

#include <stdbool.h>

#include "formats/checkpoint2/steps_i.h"
#include "formats/checkpoint2/text_i.h"
#include "rsh/wire/checkpoint2.h"

/* Every rank holds its slice of every tensor, but for those left out. */
struct shown {
	uint32_t without[8]; /* ranks */
	uint32_t n_without;
};

static bool shown_holds(const void *ctx, uint32_t tensor, uint32_t rank)
{
	const struct shown *s = ctx;

	(void)tensor;
	for (uint32_t i = 0; i < s->n_without; i++)
		if (s->without[i] == rank)
			return false;
	return true;
}

static struct rsh_cut *cut_of(const struct rsh_grid *spec)
{
	struct rsh_cut *cut = rsh_cut_of_grid(rsh_grid_make(spec));

	assert_non_null(cut);
	return cut;
}

static char *read_all(const struct rsh_ckpt2_text *t)
{
	const size_t n = (size_t)rsh_ckpt2_text_size(t);
	char *text = malloc(n + 1);

	assert_non_null(text);
	rsh_ckpt2_text_read(t, text, n, 0);
	text[n] = '\0';
	return text;
}

/* What is said of tensors that `n_ranks` ranks have; the caller's. */
static char *emitted(const struct rsh_ckpt2_tensor *tensors, uint32_t n,
		     uint32_t n_ranks, const struct shown *shown)
{
	const struct rsh_ckpt2_tree tree = {
		.n_ranks = n_ranks, .n_tensors = n, .tensors = tensors,
		.holds = shown_holds, .ctx = shown,
	};
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_ckpt2_text *t;
	char *text;

	assert_good(rsh_ckpt2_text_new(&tree, &t, &err), err);
	text = read_all(t);
	rsh_ckpt2_text_free(t);
	return text;
}

static const uint64_t dims_8_6[] = { 8, 6 };

/* Rows over the last axis of [2,2], on ranks 4 to 7; the file is the opt one. */
TEST(one_tensor_in_full)
{
	const struct rsh_grid spec = {
		.n_ranks = 4, .n_dims = 2, .split = { 2, 1 },
		.first = { 0, 1, 1 }, .axes = { { 2, 1 } },
		.n_free = 1, .free = { { 2, 2 } }, .shard = 1,
	};
	struct rsh_cut *cut = cut_of(&spec);
	const struct rsh_ckpt2_tensor t = {
		"adam_m.w", RSH_DTYPE_BFLOAT16, 2, dims_8_6, cut, 4, 4, true
	};
	/* Rank 4 keeps nothing, so that slice 0 is in the file of rank 6. */
	char *text = emitted(&t, 1, 8, &(struct shown){ { 4 }, 1 });

	assert_string_equal(text,
		"{\"state_dict_metadata\":{\"adam_m.w\":{\"properties\":{"
		"\"dtype\":\"bfloat16\",\"replica_id\":[0,0,1,1],"
		"\"allow_shape_mismatch\":false,\"allow_to_save\":true},"
		"\"global_shape\":[8,6],\"axis_fragmentations\":[2,1],"
		"\"layout\":{\"device_matrix\":[2,2],\"tensor_map\":[0,-1],"
		"\"interleaved_parallel\":false,\"alias_name\":[\"a\",\"b\"],"
		"\"rank_list\":[4,5,6,7]},\"chunk\":["
		"{\"global_offset\":[0],\"local_shape\":[4,6]},"
		"{\"global_offset\":[1],\"local_shape\":[4,6]}]}},"
		"\"storage_data\":{\"('adam_m.w', (0,))\":[{\"file_name\":"
		"\"opt-0000006-0000008.safetensors\",\"storage_rank\":6,"
		"\"rank_group\":[4,6]}],\"('adam_m.w', (1,))\":[{\"file_name\":"
		"\"opt-0000005-0000008.safetensors\",\"storage_rank\":5,"
		"\"rank_group\":[5,7]}]}}");
	free(text);
	rsh_cut_free(cut);
}

/* What nobody cuts, a scalar, and one rank. */
TEST(whole_tensors)
{
	const struct rsh_ckpt2_tensor t[] = {
		{ "w", RSH_DTYPE_FLOAT32, 2, dims_8_6, NULL, 0, 3, false },
		{ "s", RSH_DTYPE_INT64, 0, NULL, NULL, 0, 1, false },
	};
	char *text = emitted(t, 2, 3, &(struct shown){ .n_without = 0 });

	assert_non_null(strstr(text, "\"device_matrix\":[3],\"tensor_map\":"
				     "[-1,-1],"));
	assert_non_null(strstr(text, "\"rank_group\":[0,1,2]"));
	assert_non_null(strstr(text, "\"s\":{\"properties\":{\"dtype\":"
				     "\"int64\",\"replica_id\":[0],"));
	assert_non_null(strstr(text, "\"global_shape\":[],"
				     "\"axis_fragmentations\":[],\"layout\":{"
				     "\"device_matrix\":[1],\"tensor_map\":[],"));
	free(text);
}

/* Of free axes [4,3] (outermost first) beside a cut over the axis between. */
static struct rsh_cut *sharded(uint32_t shard)
{
	return cut_of(&(struct rsh_grid){
		.n_ranks = 24, .n_dims = 2, .split = { 2 * shard, 1 },
		.first = { 0, 1, 1 }, .axes = { { 2, 3 } },
		.n_free = 2, .free = { { 4, 6 }, { 3, 1 } }, .shard = shard,
	});
}

static const struct {
	uint32_t shard;
	const char *layout; /* NULL: there is none */
} shards[] = {
	{ 1, "\"device_matrix\":[4,2,3],\"tensor_map\":[1,-1]" },
	{ 3, "\"device_matrix\":[4,2,3],\"tensor_map\":[[1,0],-1]" },
	{ 12, "\"device_matrix\":[4,2,3],\"tensor_map\":[[1,2,0],-1]" },
	/* An axis is cut in two where only the inner part is needed. */
	{ 6, "\"device_matrix\":[2,2,2,3],\"tensor_map\":[[1,2,0],-1]" },
	{ 2, NULL },
	{ 4, NULL },
};

TEST(optimizer_shards)
{
	const uint64_t dims[] = { 24, 6 };
	const struct shown all = { .n_without = 0 };

	for (size_t i = 0; i < sizeof(shards) / sizeof(shards[0]); i++) {
		struct rsh_cut *cut = sharded(shards[i].shard);
		const struct rsh_ckpt2_tensor t = {
			"w", RSH_DTYPE_FLOAT32, 2, dims, cut, 0, 24, false
		};
		const struct rsh_ckpt2_tree tree = { 24, 1, &t, shown_holds,
						     &all };
		struct rsh_error err = RSH_ERROR_INIT;
		struct rsh_ckpt2_text *text;
		int rc = rsh_ckpt2_text_new(&tree, &text, &err);

		assert_int_equal(rc, shards[i].layout ? 0 : -ENOTSUP);
		if (rc == 0) {
			char *all_of_it = read_all(text);

			assert_non_null(strstr(all_of_it, shards[i].layout));
			free(all_of_it);
			rsh_ckpt2_text_free(text);
		} else {
			assert_non_null(strstr(err.text, "parameter w"));
		}
		rsh_cut_free(cut);
	}
}

/* A stretch from anywhere is what the whole text has there. */
TEST(windows)
{
	struct rsh_cut *cut = sharded(6);
	const uint64_t dims[] = { 24, 6 };
	const struct rsh_ckpt2_tensor t[] = {
		{ "a", RSH_DTYPE_FLOAT32, 2, dims, cut, 0, 24, false },
		{ "b", RSH_DTYPE_FLOAT16, 2, dims, NULL, 0, 24, false },
		{ "adam_m.a", RSH_DTYPE_FLOAT32, 2, dims, cut, 0, 24, true },
	};
	const struct shown all = { .n_without = 0 };
	const struct rsh_ckpt2_tree tree = { 24, 3, t, shown_holds, &all };
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_ckpt2_text *text;
	char part[300], *whole;
	size_t n;

	assert_int_equal(rsh_ckpt2_text_new(&tree, &text, &err), 0);
	whole = read_all(text);
	n = strlen(whole);
	assert_int_equal(n, rsh_ckpt2_text_size(text));
	for (size_t at = 0; at < n; at += 7) {
		size_t len = 1 + at * 31 % (sizeof(part) - 2);

		len = len < n - at ? len : n - at;
		part[len] = '\x7e';
		rsh_ckpt2_text_read(text, part, len, at);
		assert_memory_equal(part, whole + at, len);
		assert_int_equal(part[len], '\x7e');
	}
	free(whole);
	rsh_ckpt2_text_free(text);
	rsh_cut_free(cut);
}

/* Who reads such files finds what was written. */
TEST(read_again)
{
	struct rsh_cut *cut = sharded(6);
	const uint64_t dims[] = { 24, 6 };
	const struct rsh_ckpt2_tensor t[] = {
		{ "w", RSH_DTYPE_BFLOAT16, 2, dims, NULL, 0, 24, false },
		{ "adam_m.w", RSH_DTYPE_FLOAT32, 2, dims, cut, 24, 24, true },
	};
	struct buffer text = { 0 };
	struct rsh_byte_source src;
	struct rsh_error err = RSH_ERROR_INIT;
	const struct rsh_ckpt2_param *p;
	struct rsh_ckpt2 *c;

	text.data = (uint8_t *)emitted(t, 2, 48, &(struct shown){ { 24 }, 1 });
	text.len = strlen((char *)text.data);
	src = buffer_source(&text);
	assert_good(rsh_ckpt2_parse(&src, &c, &err), err);
	assert_int_equal(c->n_params, 2);
	assert_int_equal(c->n_ranks, 48);
	/* Slice 0 is in the file of the next rank that has it. */
	assert_int_equal(c->n_files, 1 + 12);
	p = &c->params[1];
	assert_string_equal(p->name, "adam_m.w");
	assert_int_equal(p->dtype, RSH_DTYPE_FLOAT32);
	assert_int_equal(p->dims[0], 24);
	assert_int_equal(p->ranks->n, 24);
	assert_int_equal(p->ranks->ranks[0], 24);
	assert_int_equal(p->n_slices, 12);
	assert_int_equal(p->n_stored, 12);
	assert_int_equal(p->layout->n_mesh, 4);
	assert_int_equal(p->layout->map[0].n, 3);
	assert_int_equal(p->layout->map[1].n, 0);
	assert_int_equal(c->params[0].n_slices, 1);
	rsh_ckpt2_free(c);
	buffer_free(&text);
	rsh_cut_free(cut);
}

static const struct {
	const char *name, *key; /* as JSON has them; NULL: refused */
} names[] = {
	{ "w", "\"('w', (0,))\"" },
	{ "it's", "\"(\\\"it's\\\", (0,))\"" },
	{ "a\"b", "\"('a\\\"b', (0,))\"" },
	{ "it's \"b\"", "\"('it\\\\'s \\\"b\\\"', (0,))\"" },
	{ "a\\b", "\"('a\\\\\\\\b', (0,))\"" },
	{ "\xc3\xa9", "\"('\xc3\xa9', (0,))\"" },
	{ "\xc3", NULL },
	{ "a\nb", NULL },
};

TEST(hostile_names)
{
	const struct shown all = { .n_without = 0 };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const struct rsh_ckpt2_tensor t = {
			names[i].name, RSH_DTYPE_INT8, 0, NULL, NULL, 0, 1,
			false
		};
		const struct rsh_ckpt2_tree tree = { 1, 1, &t, shown_holds,
						     &all };
		struct rsh_error err = RSH_ERROR_INIT;
		struct rsh_ckpt2_text *text;
		int rc = rsh_ckpt2_text_new(&tree, &text, &err);
		char *all_of_it;

		assert_int_equal(rc, names[i].key ? 0 : -EINVAL);
		if (rc)
			continue;
		all_of_it = read_all(text);
		assert_non_null(strstr(all_of_it, names[i].key));
		free(all_of_it);
		rsh_ckpt2_text_free(text);
	}
}

TEST(names_of_files)
{
	char name[RSH_CKPT2_NAME_MAX];

	rsh_ckpt2_step_name(8, name);
	assert_string_equal(name, "iteration_00000008");
	rsh_ckpt2_step_name(100000007, name);
	assert_string_equal(name, "iteration_100000007");
	rsh_ckpt2_file_name(true, 3, 12345678, name);
	assert_string_equal(name, "opt-0000003-12345678.safetensors");
}

/* ---- common.json ---- */

static const struct {
	struct rsh_training_state c;
	const char *epoch, *loss, *batch;
} commons[] = {
	{ { .step = 20 }, "null", "null", "null" },
	{ { 20, 3, 512, 65536 }, "3", "65536.0", "512" },
	{ { 20, 1, 1, 0.1 }, "1", "0.10000000000000001", "1" },
	{ { .step = 20, .loss_scale = 1e22 }, "null", "1e+22", "null" },
};

TEST(what_is_common)
{
	for (size_t i = 0; i < sizeof(commons) / sizeof(commons[0]); i++) {
		struct rsh_training_state again = { .step = 20 };
		struct rsh_error err = RSH_ERROR_INIT;
		char expected[300], *text;
		int n = rsh_ckpt2_common_format(&commons[i].c, &text);

		snprintf(expected, sizeof(expected),
			 "{\n    \"epoch_num\": %s,\n    \"step_num\": 20,\n"
			 "    \"global_step\": 20,\n    \"loss_scale\": %s,\n"
			 "    \"global_batch_size\": %s\n}", commons[i].epoch,
			 commons[i].loss, commons[i].batch);
		assert_string_equal(text, expected);
		assert_int_equal(n, strlen(expected));
		assert_int_equal(rsh_checkpoint2_common_parse(text, (size_t)n, "f",
							&again, &err), 0);
		assert_memory_equal(&again, &commons[i].c, sizeof(again));
		free(text);
	}
}

TEST(what_is_not_common)
{
	static const char *const texts[] = {
		"", "[1]", "{\"epoch_num\": 3", "\xff",
	};
	static const char odd[] =
		"{\"epoch_num\": -1, \"global_batch_size\": \"8\", "
		"\"loss_scale\": [], \"more\": null}";
	struct rsh_training_state c = { 1, 2, 3, 4 };
	struct rsh_error err = RSH_ERROR_INIT;

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		assert_int_equal(rsh_checkpoint2_common_parse(
			texts[i], strlen(texts[i]), "f", &c, &err), -EBADMSG);
	assert_int_equal(rsh_checkpoint2_common_parse(odd, strlen(odd), "f", &c,
						&err), 0);
	assert_memory_equal(&c, &((struct rsh_training_state){ 1, 2, 3, 4 }),
			    sizeof(c));
}
