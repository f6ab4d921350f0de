/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_source_step.c - which of a rank's checkpoints is taken. */
#include "config.h"

#include <sys/stat.h>
#include <unistd.h>

#include "rsh/source/format.h"
#include "rsh/source/source.h"
#include "rsh/util/log.h"
#include "source_support.h"

#define N_RANKS 3
#define N_NAMES 6

struct step_case {
	const char *title;
	const char *names[N_RANKS][N_NAMES]; /* files of each rank */
	/* The one that is taken; NULL: the rank has none. */
	const char *taken[N_RANKS];
	const char *error; /* part of the sentence; NULL: no error */
	uint32_t candidate;
	struct rsh_source_options opts;
};

static const struct step_case cases[] = {
	{ "one file without a step each",
	  { { "checkpoint_0.ckpt" }, { "checkpoint_1.ckpt" } },
	  { "checkpoint_0.ckpt", "checkpoint_1.ckpt" }, NULL, .candidate = 0 },
	{ "steps count as numbers, not as text",
	  { { "x-9_1.ckpt", "x-10_1.ckpt", "x-10_0.ckpt" } },
	  { "x-10_1.ckpt" }, NULL, .candidate = 0 },
	{ "the epoch counts before the step",
	  { { "x-2_1.ckpt", "x-1_100.ckpt" } }, { "x-2_1.ckpt" }, NULL, .candidate = 0 },
	{ "the newest step that all have",
	  { { "x-1_5.ckpt", "x-1_10.ckpt", "x-1_15.ckpt" },
	    { "x-1_5.ckpt", "x-1_10.ckpt" },
	    { "x-1_15.ckpt", "x-1_10.ckpt" } },
	  { "x-1_10.ckpt", "x-1_10.ckpt", "x-1_10.ckpt" }, NULL,
	  .candidate = 1 },
	{ "and before it the one that only some have",
	  { { "x-1_15.ckpt", "x-1_10.ckpt" },
	    { "x-1_5.ckpt", "x-1_10.ckpt" },
	    { "x-1_15.ckpt", "x-1_10.ckpt" } },
	  { "x-1_15.ckpt", NULL, "x-1_15.ckpt" }, NULL, .candidate = 0 },
	{ "a rank without files does not vote",
	  { { "x-1_5.ckpt", "x-1_10.ckpt" }, { NULL },
	    { "x-1_5.ckpt", "x-1_10.ckpt" } },
	  { "x-1_10.ckpt", NULL, "x-1_10.ckpt" }, NULL, .candidate = 0 },
	{ "the rank number in the prefix",
	  { { "net_rank_0-1_5.ckpt", "net_rank_0-1_10.ckpt" },
	    { "net_rank_1-1_5.ckpt", "net_rank_1-1_10.ckpt" } },
	  { "net_rank_0-1_10.ckpt", "net_rank_1-1_10.ckpt" }, NULL, .candidate = 0 },
	{ "of several runs the last",
	  { { "x-1_5.ckpt", "x_2-1_5.ckpt", "x_10-1_5.ckpt" },
	    { "x-1_5.ckpt", "x_2-1_5.ckpt", "x_10-1_5.ckpt" } },
	  { "x_10-1_5.ckpt", "x_10-1_5.ckpt" }, NULL, .candidate = 0 },
	{ "of several runs the last that all have",
	  { { "x-1_5.ckpt", "x_1-1_5.ckpt" }, { "x-1_5.ckpt" } },
	  { "x-1_5.ckpt", "x-1_5.ckpt" }, NULL, .candidate = 1 },
	{ "a newer step counts before a later run",
	  { { "x-2_5.ckpt", "x_1-1_5.ckpt" } }, { "x-2_5.ckpt" }, NULL, .candidate = 0 },
	{ "runs with the rank number in the prefix",
	  { { "n_rank_0-1_5.ckpt", "n_rank_0_1-1_5.ckpt" },
	    { "n_rank_1-1_5.ckpt", "n_rank_1_1-1_5.ckpt" },
	    { "n_rank_2_1-1_5.ckpt", "n_rank_2-1_5.ckpt" } },
	  { "n_rank_0_1-1_5.ckpt", "n_rank_1_1-1_5.ckpt",
	    "n_rank_2_1-1_5.ckpt" }, NULL, .candidate = 0 },
	{ "a breakpoint file does not count beside others",
	  { { "x-1_5.ckpt", "x-1_9_breakpoint.ckpt" },
	    { "x-1_5.ckpt" } },
	  { "x-1_5.ckpt", "x-1_5.ckpt" }, NULL, .candidate = 0 },
	{ "nor beside those of other ranks",
	  { { "x-1_5.ckpt" }, { "x-1_5_breakpoint.ckpt" } },
	  { "x-1_5.ckpt", NULL }, NULL, .candidate = 0 },
	{ "nor alone",
	  { { "x-1_5_breakpoint.ckpt", "x-1_9_breakpoint.ckpt" },
	    { "x-1_9_breakpoint.ckpt" } },
	  { NULL }, "breakpoints count with --breakpoint" },
	{ "dot files and other suffixes do not count",
	  { { ".x-2_5.ckpt", "x-1_5.ckpt", "x-3_5.tmp", "x-4_5.ckpt.tmp",
	      "x-graph.meta" } },
	  { "x-1_5.ckpt" }, NULL, .candidate = 0 },
	{ "a name that is only the suffix does not count",
	  { { ".ckpt", "x-1_5.ckpt" } }, { "x-1_5.ckpt" }, NULL, .candidate = 0 },
	{ "a step too large for a number is no step",
	  { { "x-1_99999999999999999999.ckpt" } },
	  { "x-1_99999999999999999999.ckpt" }, NULL, .candidate = 0 },
	{ "no common step",
	  { { "x-1_5.ckpt" }, { "x-1_5.ckpt" }, { "x-1_6.ckpt" } },
	  { NULL, NULL, "x-1_6.ckpt" }, NULL, .candidate = 0 },
	{ "one step after the other, never two",
	  { { "x-1_5.ckpt" }, { "x-1_5.ckpt" }, { "x-1_6.ckpt" } },
	  { "x-1_5.ckpt", "x-1_5.ckpt", NULL }, NULL, .candidate = 1 },
	{ "a file without a step beside those with one",
	  { { "x-1_5.ckpt", "final.ckpt" }, { "x-1_5.ckpt" } },
	  { "x-1_5.ckpt", "x-1_5.ckpt" }, NULL, .candidate = 0 },
	{ "and a rank that has no other",
	  { { "x-1_5.ckpt", "final.ckpt" }, { "final.ckpt" } }, { NULL },
	  "final.ckpt: use --select name=GLOB", .candidate = 0 },
	{ "two without a step",
	  { { "a.ckpt", "b.ckpt" } }, { NULL }, "a.ckpt, b.ckpt", .candidate = 0 },
	{ "two prefixes at one step",
	  { { "a-1_5.ckpt", "b-1_5.ckpt" } }, { NULL }, "b-1_5.ckpt", .candidate = 0 },
	{ "safetensors files count the same",
	  { { "x-9_1.safetensors", "x-10_1.safetensors", "x-11_1.tmp" },
	    { "x-10_1.safetensors", "x-11_1_breakpoint.safetensors" } },
	  { "x-10_1.safetensors", "x-10_1.safetensors" }, NULL,
	  .candidate = 0 },
	{ "both formats at different steps",
	  { { "x-9_1.ckpt", "x-10_1.safetensors" } },
	  { "x-10_1.safetensors" }, NULL, .candidate = 0 },
	{ "both formats at one step",
	  { { "x-1_5.ckpt", "x-1_5.safetensors" } }, { NULL },
	  "x-1_5.safetensors", .candidate = 0 },
	{ "both formats at one step, one of them asked for",
	  { { "x-1_5.ckpt", "x-1_5.safetensors" } }, { "x-1_5.ckpt" }, NULL,
	  .opts = { .select = RSH_SELECT_NAME, .glob = "*.ckpt" } },
	{ "breakpoint files of both formats",
	  { { "x-1_5_breakpoint.ckpt", "x-1_5_breakpoint.safetensors" } },
	  { NULL }, "x-1_5_breakpoint.safetensors",
	  .opts = { .breakpoints = RSH_BREAKPOINTS_INCLUDE } },
	{ "ranks of different formats",
	  { { "x-1_5.ckpt" }, { "x-1_5.safetensors" } }, { NULL },
	  "all files must be .ckpt or all .safetensors", .candidate = 0 },
	{ "the converter's choice: the last as text",
	  { { "x-9_1.ckpt", "x-10_1.ckpt" },
	    { "x-1_1.ckpt", "x-1_1_breakpoint.ckpt" }, { "b.ckpt", "a.ckpt" } },
	  { "x-9_1.ckpt", "x-1_1_breakpoint.ckpt", "b.ckpt" }, NULL,
	  .opts = { .select = RSH_SELECT_MINDSPORE } },
	{ "a step that is asked for",
	  { { "x-1_5.ckpt", "x-2_5.ckpt" }, { "x-1_5.ckpt", "x-2_5.ckpt" } },
	  { "x-1_5.ckpt", "x-1_5.ckpt" }, NULL,
	  .opts = { .select = RSH_SELECT_STEP, .epoch = 1, .step = 5 } },
	{ "its runs, the last first",
	  { { "x-1_5.ckpt", "x_1-1_5.ckpt" }, { "x-1_5.ckpt", "x_1-1_5.ckpt" } },
	  { "x-1_5.ckpt", "x-1_5.ckpt" }, NULL, .candidate = 1,
	  .opts = { .select = RSH_SELECT_STEP, .epoch = 1, .step = 5 } },
	{ "a step that is asked for and not there",
	  { { "x-1_5.ckpt", "x-2_5.ckpt" } }, { NULL },
	  "no checkpoint of epoch 3 step 7; rank_0 contains",
	  .opts = { .select = RSH_SELECT_STEP, .epoch = 3, .step = 7 } },
	{ "names by a pattern",
	  { { "a-1_5.ckpt", "b-1_5.ckpt", "b-1_4.ckpt", "final.ckpt" },
	    { "b-1_4.ckpt", "a-1_5.ckpt", "b-1_5.ckpt" } },
	  { "b-1_5.ckpt", "b-1_5.ckpt" }, NULL,
	  .opts = { .select = RSH_SELECT_NAME, .glob = "b-*" } },
	{ "a pattern that matches nothing",
	  { { "a-1_5.ckpt" } }, { NULL }, "no checkpoint named c*",
	  .opts = { .select = RSH_SELECT_NAME, .glob = "c*" } },
	{ "breakpoint files beside others",
	  { { "x-1_5.ckpt", "x-1_9_breakpoint.ckpt" },
	    { "x-1_5.ckpt", "x-1_9_breakpoint.ckpt" } },
	  { "x-1_9_breakpoint.ckpt", "x-1_9_breakpoint.ckpt" }, NULL,
	  .opts = { .breakpoints = RSH_BREAKPOINTS_INCLUDE } },
	{ "breakpoint files only",
	  { { "x-3_5.ckpt", "x-1_9_breakpoint.ckpt" }, { "x-3_5.ckpt" } },
	  { "x-1_9_breakpoint.ckpt", NULL }, NULL,
	  .opts = { .breakpoints = RSH_BREAKPOINTS_ONLY } },
	{ "breakpoint files only, and there are none",
	  { { "x-3_5.ckpt" } }, { NULL }, "no breakpoint checkpoint",
	  .opts = { .breakpoints = RSH_BREAKPOINTS_ONLY } },
	{ "files of another name that a template gives",
	  { { "net_0.model", "net_0.ckpt" }, { "net_1.model" },
	    { "net_1.model" } },
	  { "net_0.model", "net_1.model", NULL }, NULL,
	  .opts = { .file = "net_{rank}.m*" } },
	{ "a step of unknown files is never an older one",
	  { { "final.ckpt" }, { "x-1_5.ckpt", "x-1_6.ckpt" },
	    { "x-1_5.ckpt" } },
	  { "final.ckpt", "x-1_5.ckpt", "x-1_5.ckpt" }, NULL, .candidate = 0 },
};

static void make_files(const char *tree, const struct step_case *c)
{
	char name[256];

	for (unsigned r = 0; r < N_RANKS; r++) {
		snprintf(name, sizeof(name), "%s/rank_%u", tree, r);
		assert_int_equal(mkdir(name, 0755), 0);
		for (unsigned i = 0; i < N_NAMES && c->names[r][i]; i++) {
			snprintf(name, sizeof(name), "rank_%u/%s", r,
				 c->names[r][i]);
			tree_write(tree, name, "", 0);
		}
	}
}

static void check_taken(const struct rsh_source *s, const struct step_case *c)
{
	struct rsh_source_view view;

	rsh_source_view(s, NULL, &view);
	for (unsigned r = 0; r < N_RANKS; r++) {
		const char *path = r < view.n_ranks ? view.path[r] : NULL;

		if (!c->taken[r])
			assert_null(path);
		else if (!path)
			fail_msg("%s: rank %u has no file", c->title, r);
		else
			assert_string_equal(strrchr(path, '/') + 1,
					    c->taken[r]);
	}
}

static void check_case(const struct step_case *c)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_source *s = NULL;
	cleanup_tree char *tree = tree_make();
	int rc;

	print_message("# %s\n", c->title);
	make_files(tree, c);
	rc = rsh_source_open(tree, 0, N_RANKS, &c->opts, &s, &err);
	if (rc == 0) {
		assert_true(c->candidate < rsh_source_n_candidates(s));
		rc = rsh_source_choose(s, c->candidate, &err);
	}
	if (c->error) {
		assert_true(rc == -EINVAL || rc == -ENOENT);
		assert_int_equal(err.code, -rc);
		if (!strstr(err.text, c->error) || !strstr(err.text, tree))
			fail_msg("%s: %s", c->title, err.text);
	} else {
		if (rc)
			fail_msg("%s: %s", c->title, err.text);
		check_taken(s, c);
	}
	rsh_source_free(s);
}

TEST(test_choice)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		check_case(&cases[i]);
}

/* ---- rank directories ---- */

TEST(test_only_wanted_ranks)
{
	const struct rsh_source_options opts = { 0 };
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_source_view view;
	struct rsh_source *s;
	cleanup_tree char *tree = tree_make();

	tree_write(tree, "rank_0/x-1_9.ckpt", "", 0);
	tree_write(tree, "rank_4/x-1_5.ckpt", "", 0);
	tree_write(tree, "rank_5/x-1_5.ckpt", "", 0);
	tree_write(tree, "rank_6/x-1_9.ckpt", "", 0);
	tree_write(tree, "rank_12345678901234567890/x-1_9.ckpt", "", 0);
	/* Ranks outside 4 and 5 have no say in the step. */
	assert_int_equal(rsh_source_open(tree, 4, 2, &opts, &s, &err), 0);
	assert_int_equal(rsh_source_choose(s, 0, &err), 0);
	rsh_source_view(s, NULL, &view);
	assert_int_equal(view.n_ranks, 6);
	assert_null(view.path[0]);
	assert_non_null(strstr(view.path[4], "rank_4/x-1_5.ckpt"));
	assert_non_null(strstr(view.path[5], "rank_5/x-1_5.ckpt"));
	rsh_source_free(s);
}

TEST(test_links_are_followed)
{
	const struct rsh_source_options opts = { 0 };
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_source_view view;
	struct rsh_source *s;
	cleanup_tree char *tree = tree_make();
	char path[256], target[256];

	tree_write(tree, "elsewhere/file", "", 0);
	tree_write(tree, "rank_0/dangling", "", 0);
	snprintf(path, sizeof(path), "%s/rank_0/x-1_5.ckpt", tree);
	assert_int_equal(symlink("../elsewhere/file", path), 0);
	snprintf(path, sizeof(path), "%s/rank_0/x-1_6.ckpt", tree);
	assert_int_equal(symlink("../elsewhere/nothing", path), 0);
	snprintf(path, sizeof(path), "%s/rank_0/x-1_7.ckpt", tree);
	assert_int_equal(mkfifo(path, 0644), 0);
	snprintf(path, sizeof(path), "%s/rank_1", tree);
	snprintf(target, sizeof(target), "%s/rank_0", tree);
	assert_int_equal(symlink(target, path), 0);
	assert_int_equal(rsh_source_open(tree, 0, 8, &opts, &s, &err), 0);
	assert_int_equal(rsh_source_choose(s, 0, &err), 0);
	rsh_source_view(s, NULL, &view);
	assert_int_equal(view.n_ranks, 2);
	assert_non_null(strstr(view.path[0], "rank_0/x-1_5.ckpt"));
	assert_non_null(strstr(view.path[1], "rank_1/x-1_5.ckpt"));
	rsh_source_free(s);
}

static void refuse(const char *tree, int code, const char *words)
{
	const struct rsh_source_options opts = { 0 };
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_source *s;

	assert_int_equal(rsh_source_open(tree, 0, 8, &opts, &s, &err), -code);
	assert_int_equal(err.code, code);
	if (!strstr(err.text, words) || !strstr(err.text, tree))
		fail_msg("%s", err.text);
}

TEST(test_bad_trees)
{
	cleanup_tree char *tree = tree_make();
	char path[256];

	refuse(tree, ENOENT, "no rank_N directory");
	tree_write(tree, "rank_x/x-1_5.ckpt", "", 0);
	tree_write(tree, "rank_1x/x-1_5.ckpt", "", 0);
	tree_write(tree, "rank_/x-1_5.ckpt", "", 0);
	tree_write(tree, "./rank_2", "a plain file", 12);
	refuse(tree, ENOENT, "no rank_N directory");
	tree_write(tree, "rank_1/x-1_5.ckpt", "", 0);
	tree_write(tree, "rank_01/x-1_5.ckpt", "", 0);
	refuse(tree, EINVAL, "rank 1 has two directories: rank_01 and rank_1");
	snprintf(path, sizeof(path), "%s/rank_2", tree);
	refuse(path, EINVAL, "this is a text");
	snprintf(path, sizeof(path), "%s/nowhere", tree);
	refuse(path, ENOENT, "No such file");
}

/* ---- files of two kinds ---- */

static int bid_steps(const struct rsh_look *l, struct rsh_bid_more *more)
{
	(void)l, (void)more;
	return RSH_BID_STEPS;
}

static int bid_model(const struct rsh_look *l, struct rsh_bid_more *more)
{
	(void)l, (void)more;
	return RSH_BID_MODEL;
}

static int bid_adapter(const struct rsh_look *l, struct rsh_bid_more *more)
{
	(void)l, (void)more;
	return RSH_BID_MODEL - 2;
}

static int open_empty(struct rsh_source *s,
		      const struct rsh_source_options *opts,
		      struct rsh_error *err)
{
	(void)s, (void)opts, (void)err;
	return 0;
}

static const char *other_of(const char *tree, const struct rsh_format *a,
			    const struct rsh_format *b,
			    const struct rsh_format *c)
{
	const struct rsh_format *const formats[] = { a, b, c, NULL };
	const struct rsh_source_options opts = { .formats = formats };
	struct rsh_error err = RSH_ERROR_INIT;
	const char *other;
	struct rsh_source *s;

	assert_int_equal(rsh_source_open(tree, 0, 1, &opts, &s, &err), 0);
	other = rsh_source_other(s);
	rsh_source_free(s);
	return other;
}

TEST(test_other_kind)
{
	static const struct rsh_format steps = {
		.says = "steps", .bid = bid_steps, .open = open_empty,
	}, model = {
		.says = "model", .bid = bid_model, .open = open_empty,
	}, adapter = {
		.says = "adapter", .bid = bid_adapter, .open = open_empty,
		.is_adapter = true,
	};
	cleanup_tree char *tree = tree_make();

	assert_string_equal(other_of(tree, &steps, &model, &adapter), "model");
	assert_string_equal(other_of(tree, &adapter, &model, &steps), "model");
	assert_string_equal(other_of(tree, &model, &adapter, NULL), "adapter");
	assert_string_equal(other_of(tree, &adapter, &model, NULL), "adapter");
	assert_null(other_of(tree, &steps, NULL, NULL));
}

/* ---- trackers ---- */

static bool tracker_is_last;
static int tracked;

static int open_tracked(struct rsh_source *s,
			const struct rsh_source_options *opts,
			struct rsh_error *err)
{
	static const char *const names[] = { "a_2", "a_4", "a_6" };

	for (uint64_t i = 0; i < 3; i++)
		assert_int_equal(rsh_source_list(s, &(struct rsh_checkpoint){
			.name = names[i], .label = names[i],
			.step = { .n = 1, .numbers = { 2 * (i + 1) } },
		}), 0);
	assert_int_equal(rsh_source_sort_steps(s, opts, err), 0);
	tracked = rsh_source_try_tracked(s, "tracker", NULL, tracker_is_last,
					 err);
	return tracked < 0 ? tracked : 0;
}

/* Returns what the function does with a tracker that has this text: its result
 * and the steps, the first one first. */
static void try_tracker(const char *text, bool is_last, int result,
			const char *steps)
{
	static const struct rsh_format by_number = {
		.says = "steps", .bid = bid_steps, .open = open_tracked,
	};
	const struct rsh_format *const formats[] = { &by_number, NULL };
	const struct rsh_source_options opts = { .formats = formats };
	struct rsh_error err = RSH_ERROR_INIT;
	cleanup_tree char *tree = tree_make();
	char found[64] = "", which[64];
	struct rsh_source *s;

	tree_write(tree, "tracker", text, strlen(text));
	tracker_is_last = is_last;
	assert_int_equal(rsh_source_open(tree, 0, 1, &opts, &s, &err), 0);
	for (uint32_t i = 0; i < rsh_source_n_candidates(s); i++) {
		rsh_source_candidate_text(s, i, which, sizeof(which));
		strcat(strcat(found, i > 0 ? " " : ""), which);
	}
	rsh_source_free(s);
	assert_int_equal(tracked, result);
	assert_string_equal(found, steps);
}

TEST(test_trackers)
{
	try_tracker("4", false, 1, "a_4 a_6 a_2");
	try_tracker("5", false, 0, "a_6 a_4 a_2");
	try_tracker("x", false, 0, "a_6 a_4 a_2");
	try_tracker("4", true, 1, "a_4 a_2");
	/* Later ones are removed, but its step is not there. */
	try_tracker("5", true, 0, "a_4 a_2");
	try_tracker("0", true, 0, "a_6 a_4 a_2");
}

int main(void)
{
	rsh_log_set_level(RSH_LOG_ERROR);
	return unit_run(NULL, NULL);
}
