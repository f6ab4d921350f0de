/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_formats_names.c - what the formats read in names, and which of
 * two steps is newer. */
#include "config.h"

#include "rsh/formats/files.h"
#include "rsh/formats/formats.h"
#include "tests.h"

#define HUGE_NUMBER "18446744073709551616" /* 2^64 */
#define LAST_NUMBER "18446744073709551615"

static const struct {
	const struct rsh_format *format;
	const char *file;
	const char *label; /* NULL: it is no checkpoint */
	const char *series;
	struct rsh_step step;
} names[] = {
	{ &rsh_ckpt_format, "net-5_10.ckpt", "net-5_10.ckpt", "net.ckpt",
	  { .n = 2, .numbers = { 5, 10 } } },
	{ &rsh_ckpt_format, "net_rank_3-5_10.safetensors",
	  "net_rank_3-5_10.safetensors", "net_rank_#.safetensors",
	  { .n = 2, .numbers = { 5, 10 } } },
	{ &rsh_ckpt_format, "net_rank_3_7-5_10.ckpt",
	  "net_rank_3_7-5_10.ckpt", "net_rank_#.ckpt",
	  { .n = 2, .numbers = { 5, 10 }, .run = 7 } },
	{ &rsh_ckpt_format, "net-5_10_breakpoint.ckpt",
	  "net-5_10_breakpoint.ckpt", "net.ckpt",
	  { .n = 2, .numbers = { 5, 10 }, .breakpoint = true } },
	{ &rsh_ckpt_format, "net-1_" LAST_NUMBER ".ckpt",
	  "net-1_" LAST_NUMBER ".ckpt", "net.ckpt",
	  { .n = 2, .numbers = { 1, UINT64_MAX } } },
	{ &rsh_ckpt_format, "net-1_" HUGE_NUMBER ".ckpt",
	  "net-1_" HUGE_NUMBER ".ckpt", "net-#_" HUGE_NUMBER ".ckpt", { 0 } },
	{ &rsh_ckpt_format, "checkpoint_3.ckpt", "checkpoint_3.ckpt",
	  "checkpoint_#.ckpt", { 0 } },
	{ &rsh_ckpt_format, "net-5_10.ckpt.tmp", NULL, NULL, { 0 } },
	{ &rsh_ckpt_format, ".ckpt", NULL, NULL, { 0 } },
	{ &rsh_torch_format, "epoch3_step400.pth", "epoch3_step400.pth",
	  "epoch#_step#.pth", { .n = 2, .numbers = { 3, 400 } } },
	{ &rsh_torch_format, "m_rank7_12.pth.tar", "m_rank7_12.pth.tar",
	  "m_rank#_#.pth.tar", { .n = 1, .numbers = { 12 } } },
	{ &rsh_torch_format, "a_" HUGE_NUMBER "_2.pt", "a_" HUGE_NUMBER
	  "_2.pt", "a_" HUGE_NUMBER "_#.pt", { .n = 1, .numbers = { 2 } } },
	{ &rsh_torch_format, "1.2.3.4.5.6.7.8.9.pt", "1.2.3.4.5.6.7.8.9.pt",
	  "#.#.#.#.#.#.#.#.9.pt",
	  { .n = 8, .numbers = { 1, 2, 3, 4, 5, 6, 7, 8 } } },
	{ &rsh_torch_format, "model_best.pt", "model_best.pt",
	  "model_best.pt", { 0 } },
	{ &rsh_tensorflow_format, "ckpt-12.index", "ckpt-12", "ckpt",
	  { .n = 1, .numbers = { 12 } } },
	{ &rsh_tensorflow_format, "ckpt-12.data-00001-of-00002", "ckpt-12",
	  "ckpt", { .n = 1, .numbers = { 12 } } },
	{ &rsh_tensorflow_format, "best.index", "best", "best", { 0 } },
	{ &rsh_tensorflow_format, "ckpt-" HUGE_NUMBER ".index",
	  "ckpt-" HUGE_NUMBER, "ckpt-" HUGE_NUMBER, { 0 } },
	{ &rsh_tensorflow_format, "ckpt-1.data-00002-of-00002", NULL, NULL,
	  { 0 } },
	{ &rsh_tensorflow_format, "ckpt-1.data-0001-of-00002", NULL, NULL,
	  { 0 } },
	{ &rsh_tensorflow_format, "checkpoint", NULL, NULL, { 0 } },
};

TEST(test_names)
{
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		struct rsh_step_name got = { .step = { .n = 0 } };
		const struct rsh_step *s = &names[i].step;

		print_message("# %s\n", names[i].file);
		assert_int_equal(names[i].format->part(names[i].file, &got),
				 names[i].label ? RSH_PART_YES : RSH_PART_NO);
		if (!names[i].label)
			continue;
		assert_string_equal(got.label, names[i].label);
		assert_string_equal(got.series, names[i].series);
		assert_int_equal(got.step.n, s->n);
		assert_memory_equal(got.step.numbers, s->numbers,
				    s->n * sizeof(s->numbers[0]));
		assert_int_equal(got.step.run, s->run);
		assert_int_equal(got.step.breakpoint, s->breakpoint);
	}
}

/* Names of directories in which steps are. */
TEST(test_step_dirs)
{
	static const struct {
		const struct rsh_format *format;
		const char *path;
		enum rsh_part part;
		const char *label; /* NULL: it does not matter */
	} paths[] = {
		{ &rsh_megatron_format, "iter_0000012/", RSH_PART_YES,
		  "iter_0000012" },
		{ &rsh_megatron_format, "iter_0000012/mp_rank_00/",
		  RSH_PART_YES, "iter_0000012" },
		{ &rsh_megatron_format, "iter_0000012/mp_rank_00/x.pt",
		  RSH_PART_YES, "iter_0000012" },
		{ &rsh_megatron_format, "iter_0000012/mp_rank_00/.x.pt",
		  RSH_PART_NO, NULL },
		{ &rsh_megatron_format, "iter_0000012/mp_rank_00/x.txt",
		  RSH_PART_NO, NULL },
		{ &rsh_megatron_format, "iter_0000012/x.pt", RSH_PART_NO, NULL },
		{ &rsh_megatron_format, "iter_0000012/other/", RSH_PART_NO,
		  NULL },
		{ &rsh_megatron_format, "iter_12a/", RSH_PART_NO, NULL },
		{ &rsh_megatron_format, "iter_" HUGE_NUMBER "/", RSH_PART_NO,
		  NULL },
		{ &rsh_megatron_format, "release/", RSH_PART_NO, NULL },
		{ &rsh_checkpoint2_format, "iteration_00000008/", RSH_PART_YES,
		  "iteration_00000008" },
		{ &rsh_checkpoint2_format, "iteration_00000008/metadata.json",
		  RSH_PART_YES, "iteration_00000008" },
		{ &rsh_checkpoint2_format, "iteration_00000008/.tmp",
		  RSH_PART_NO, NULL },
		{ &rsh_checkpoint2_format, "iteration_00000008/sub/",
		  RSH_PART_NO, NULL },
		{ &rsh_checkpoint2_format, "iteration/", RSH_PART_NO, NULL },
		{ &rsh_dcp_format, "step-100/", RSH_PART_MAYBE, "step-100" },
		{ &rsh_dcp_format, "step-100/.metadata", RSH_PART_YES,
		  "step-100" },
		{ &rsh_dcp_format, "step-100/__0_0.distcp", RSH_PART_YES,
		  "step-100" },
		{ &rsh_dcp_format, "step-100/common.pt", RSH_PART_MAYBE,
		  "step-100" },
		{ &rsh_dcp_format, "step-100/sub/", RSH_PART_NO, NULL },
	};

	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		struct rsh_step_name got = { .step = { .n = 0 } };

		print_message("# %s\n", paths[i].path);
		assert_int_equal(paths[i].format->part(paths[i].path, &got),
				 paths[i].part);
		if (paths[i].label)
			assert_string_equal(got.label, paths[i].label);
	}
}

TEST(test_power_off)
{
	static const struct {
		const char *name;
		uint64_t epoch, step;
		bool is, complete;
	} dirs[] = {
		{ "tft_saved_checkpoints-step_20", 0, 20, true, true },
		{ "ttp_saved_checkpoints-3_20", 3, 20, true, true },
		{ "ttp_saved_checkpoints-3_20_tmp", 3, 20, true, false },
		{ "ttp_saved_checkpoints-3_20x", 0, 0, false, false },
		{ "ttp_saved_checkpoints-_20", 0, 0, false, false },
		{ "ttp_saved_checkpoints-3_" HUGE_NUMBER, 0, 0, false, false },
		{ "tf_saved_checkpoints-step_20", 0, 0, false, false },
	};

	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++) {
		uint64_t epoch = 0, step = 0;
		bool complete = false;

		print_message("# %s\n", dirs[i].name);
		assert_int_equal(rsh_power_off_read(dirs[i].name, &epoch,
						    &step, &complete) &&
				 complete, dirs[i].complete);
		if (!dirs[i].is)
			continue;
		assert_int_equal(epoch, dirs[i].epoch);
		assert_int_equal(step, dirs[i].step);
	}
}

/* What a name says of a file without a step. */
TEST(test_kinds_of_names)
{
	static const struct {
		const char *name, *is; /* a letter for each function below */
	} kinds[] = {
		{ "model.safetensors", "m" }, { "model.pth.tar", "m" },
		{ ".model.ckpt", "" }, { "model.json", "" },
		{ "model-00001-of-00001.safetensors", "m" },
		{ "model-00001-of-00002.safetensors", "p" },
		{ "model-of-2.ckpt", "m" }, { "-of-2", "" },
		{ "model-1-of-x.ckpt", "m" },
		{ "model0-mp1.safetensors", "m" },
		{ "model0-mp8.safetensors", "s" },
		{ "optimizer.pt", "" }, { "adapter_model.safetensors", "" },
		{ "model.safetensors.index.json", "i" },
		{ "m.safetensors.index.fp16.json", "i" },
		{ "recipe_state.pt", "" }, { "trainer_state.pt", "" },
		{ "training_state.pth", "" }, { "random_states_0.pt", "" },
		{ "optimizer_state.pt", "" }, { "training.pt", "m" },
		{ "m.txt.index.json", "" }, { ".m.ckpt.index.json", "" },
		{ "net_rank_3-1_5.ckpt", "mr" }, { "rank7", "r" },
		{ "Rank-0.pt", "mr" }, { "rank_x", "" }, { "frank_1", "" },
		{ "lora_rank16.ckpt", "m" }, { "lora-rank-8_rank_2.ckpt", "mr" },
		{ "lorank_1", "" }, { "flora_rank_1", "r" },
		{ "low_rank4", "" }, { "rank_0", "rd" }, { "ckpt_12", "d" },
		{ "rank_", "" }, { "ckpt_1x", "" }, { "xrank_1", "" },
		{ "rank_0_x", "r" },
	};

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		const char *name = kinds[i].name;
		const size_t n = strlen(name);
		size_t begin, end, k = 0;
		char is[8];

		if (rsh_format_may_hold_model(name))
			is[k++] = 'm';
		if (rsh_format_is_part(name))
			is[k++] = 'p';
		if (rsh_format_is_slice(name))
			is[k++] = 's';
		if (rsh_format_is_map(name))
			is[k++] = 'i';
		if (rsh_rank_in_name(name, n, &begin, &end))
			is[k++] = 'r';
		if (rsh_rank_dir_is(name, n))
			is[k++] = 'd';
		is[k] = '\0';
		print_message("# %s\n", name);
		assert_string_equal(is, kinds[i].is);
	}
	assert_true(rsh_rank_dir_is("rank_12/x", 7));
	assert_false(rsh_rank_dir_is("rank_12", 5));
}

/* A run is the rank's number where that is known to be another. */
TEST(test_runs)
{
	static const char name[] = "n_rank_3-1_5";
	struct rsh_step s = { .n = 0 };

	assert_int_equal(rsh_modelcheckpoint_read(name, strlen(name), 3, &s),
			 strlen("n_rank_3"));
	assert_int_equal(s.run, 0);
	assert_int_equal(rsh_modelcheckpoint_read(name, strlen(name), 4, &s),
			 strlen("n_rank"));
	assert_int_equal(s.run, 3);
}

TEST(test_order)
{
	/* From the oldest to the newest. */
	static const struct rsh_step steps[] = {
		{ .n = 0 },
		{ .n = 1, .numbers = { 1 } },
		{ .n = 2, .numbers = { 1, 0 } },
		{ .n = 2, .numbers = { 1, 100 } },
		{ .n = 2, .numbers = { 2, 1 } },
		{ .n = 2, .numbers = { 10, 0 } },
		{ .n = 2, .numbers = { 1, 1 }, .dir_step = 1 },
		{ .n = 2, .numbers = { 1, 1 }, .dir_epoch = 1 },
	};
	const size_t n = sizeof(steps) / sizeof(steps[0]);

	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < n; k++) {
			int d = rsh_step_cmp(&steps[i], &steps[k]);

			assert_int_equal((d > 0) - (d < 0), (i < k) - (i > k));
		}
}
