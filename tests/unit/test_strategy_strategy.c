/* SPDX-License-Identifier: Apache-2.0 */
/* The strategy of a job made of one file or of the files of its stages. */
#include "strategy_support.h"

/* ---- merging ---- */

struct given {
	const char *path;
	const char *json;
};

static struct rsh_strategy *try_merge(const struct given *given, uint32_t n,
				      enum rsh_strategy_form form,
				      struct rsh_names *names,
				      struct rsh_error *err)
{
	struct rsh_strategy_file **files = calloc(n, sizeof(*files));
	struct rsh_strategy *s = NULL;
	int rc;

	assert_non_null(files);
	for (uint32_t i = 0; i < n; i++)
		files[i] = parse_strategy(given[i].path, given[i].json);
	rc = rsh_strategy_merge(&(struct rsh_strategy_set){ files, n,
				form, "job" }, names, &s, err);
	assert_int_equal(rc, s ? 0 : -EINVAL);
	return s;
}

static struct rsh_strategy *merge(const struct given *given, uint32_t n,
				  enum rsh_strategy_form form,
				  struct rsh_names *names)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_strategy *s = try_merge(given, n, form, names, &err);

	if (!s)
		fail_msg("%s", err.text);
	assert_string_equal(s->path, "job");
	return s;
}

static void assert_refused(const struct given *given, uint32_t n,
			   enum rsh_strategy_form form, const char *sentence)
{
	cleanup_names struct rsh_names *names = rsh_names_new();
	struct rsh_error err = RSH_ERROR_INIT;

	assert_null(try_merge(given, n, form, names, &err));
	assert_int_equal(err.code, EINVAL);
	assert_string_equal(err.text, sentence);
}

/* The parameters with their stages: "w@0 v@0,1". */
static void assert_params(const struct rsh_strategy *s,
			  const struct rsh_names *names, const char *want)
{
	struct unit_text text = { "", 0 };

	for (uint32_t i = 0; i < s->n_params; i++) {
		const struct rsh_strategy_param *p = &s->params[i];

		assert_ptr_equal(rsh_strategy_find(s, p->name), p);
		unit_put(&text, "%s%s@", i ? " " : "",
			 rsh_names_text(names, p->name));
		for (uint32_t k = 0; k < p->n_stages; k++)
			unit_put(&text, "%s%u", k ? "," : "",
				 p->stages[k].stage);
	}
	assert_string_equal(text.s, want);
}

static const struct rsh_strategy_param *
param(const struct rsh_strategy *s, struct rsh_names *names, const char *name)
{
	const struct rsh_strategy_param *p = rsh_strategy_find(
		s, rsh_names_find(names, name, strlen(name)));

	assert_non_null(p);
	return p;
}

static void assert_layout(const struct rsh_param_stage *ps, const char *want)
{
	char text[128];

	assert_string_equal(rsh_item_text(ps->item, text, sizeof(text)), want);
}

/* ---- one file ---- */

TEST(one_file_is_a_job_of_one_stage)
{
	static const struct given f = {
		"s.json", FILE_OF("0", LAYOUT("w", "[2,4]", "[1,0]") ","
				  LAYOUT("net.b", "[8]", "[-1]"))
	};
	cleanup_names struct rsh_names *names = rsh_names_new();
	struct rsh_strategy *s = merge(&f, 1, RSH_STRATEGY_FILE, names);

	assert_params(s, names, "w@0 net.b@0");
	assert_int_equal(s->n_stages, 1);
	assert_int_equal(s->stage_ranks, 8);
	assert_int_equal(s->lone_stage, 0);
	assert_null(rsh_strategy_find(s, rsh_names_add(names, "x", 1)));
	rsh_strategy_free(s);
}

TEST(merged_file_names_its_stages)
{
	static const struct given f = {
		"s.json",
		FILE_OF("0", LAYOUT("1-w", "[4]", "[0]") ","
			LAYOUT("0-emb", "[4]", "[0]") ","
			LAYOUT("0-a-b", "[4]", "[0]") ","
			LAYOUT("1-emb", "[2,2]", "[0]") ","
			LAYOUT("2-v", "[4]", "[-1]"))
	};
	cleanup_names struct rsh_names *names = rsh_names_new();
	struct rsh_strategy *s = merge(&f, 1, RSH_STRATEGY_FILE, names);

	/* A shared parameter has its layouts in the order of the file. */
	assert_params(s, names, "w@1 emb@0,1 a-b@0 v@2");
	assert_int_equal(s->n_stages, 3);
	assert_int_equal(s->stage_ranks, 4);
	assert_int_equal(s->lone_stage, 0);
	assert_true(rsh_param_in_stage(param(s, names, "emb"), 1));
	assert_true(!rsh_param_in_stage(param(s, names, "emb"), 2));
	rsh_strategy_free(s);
}

/* One name without a stage, and every "-" is part of a name. */
TEST(dash_is_part_of_a_name)
{
	static const struct given files[] = {
		{ "a.json", FILE_OF("0", LAYOUT("0-w", "[4]", "[0]") ","
				    LAYOUT("net-w", "[4]", "[0]")) },
		{ "b.json", FILE_OF("0", LAYOUT("0-w", "[4]", "[0]") ","
				    LAYOUT("7-", "[4]", "[0]")) },
		{ "c.json", FILE_OF("0", LAYOUT("99999999999-w", "[4]", "[0]")) },
		{ "d.json", FILE_OF("0", LAYOUT("-w", "[4]", "[0]")) },
	};
	static const char *const want[] = {
		"0-w@0 net-w@0", "0-w@0 7-@0", "99999999999-w@0", "-w@0",
	};

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		struct rsh_names *names = rsh_names_new();
		struct rsh_strategy *s = merge(&files[i], 1, RSH_STRATEGY_FILE,
					       names);

		assert_params(s, names, want[i]);
		rsh_strategy_free(s);
		rsh_names_free(names);
	}
}

TEST(lone_file_of_a_later_stage)
{
	static const struct given f = {
		"s.json", FILE_OF("3", LAYOUT("w", "[4]", "[0]"))
	};
	static const struct given merged = {
		"s.json", FILE_OF("3", LAYOUT("0-w", "[4]", "[0]"))
	};
	cleanup_names struct rsh_names *names = rsh_names_new();
	struct rsh_strategy *s = merge(&f, 1, RSH_STRATEGY_FILE, names);

	assert_params(s, names, "w@0");
	assert_int_equal(s->n_stages, 1);
	assert_int_equal(s->lone_stage, 3);
	rsh_strategy_free(s);
	s = merge(&merged, 1, RSH_STRATEGY_FILE, names);
	assert_int_equal(s->lone_stage, 0);
	rsh_strategy_free(s);
}

/* ---- directories ---- */

static const struct given stage_0 = {
	"s0.json", FILE_OF("0", LAYOUT("emb", "[4]", "[0]") ","
			   LAYOUT("a", "[4]", "[0]"))
};
static const struct given stage_1 = {
	"s1.json", FILE_OF("1", LAYOUT("b", "[4]", "[0]") ","
			   LAYOUT("emb", "[2,2]", "[0]"))
};
static const struct given stage_2 = {
	"s2.json", FILE_OF("2", LAYOUT("c", "[4]", "[-1]"))
};

TEST(directory_is_taken_by_stage)
{
	const struct given files[] = { stage_2, stage_0, stage_1 };
	cleanup_names struct rsh_names *names = rsh_names_new();
	struct rsh_strategy *s = merge(files, 3, RSH_STRATEGY_DIR, names);

	assert_params(s, names, "emb@0,1 a@0 b@1 c@2");
	assert_int_equal(s->n_stages, 3);
	rsh_strategy_free(s);
	s = merge(files, 3, RSH_STRATEGY_DIR_AS_LISTED, names);
	assert_params(s, names, "c@2 emb@0,1 a@0 b@1");
	rsh_strategy_free(s);
}

/* One file a rank holds each stage many times, with items in any order. */
TEST(stage_counts_once)
{
	const struct given files[] = {
		stage_1,
		{ "r1.json", FILE_OF("0", LAYOUT("a", "[4]", "[0]") ","
					  LAYOUT("second", "[4]", "[-1]")) },
		{ "r0.json", FILE_OF("0", LAYOUT("second", "[4]", "[-1]") ","
					  LAYOUT("a", "[4]", "[0]")) },
		stage_1,
	};
	cleanup_names struct rsh_names *names = rsh_names_new();
	struct rsh_strategy *s = merge(files, 4, RSH_STRATEGY_DIR, names);

	assert_params(s, names, "second@0 a@0 b@1 emb@1");
	assert_string_equal(s->files[0]->path, "r0.json");
	rsh_strategy_free(s);
}

/* The first file as listed counts, as for the converter; else they must say the
 * same. */
TEST(stage_of_two_jobs)
{
	const struct given files[] = {
		stage_1,
		{ "r1.json", FILE_OF("0", LAYOUT("second", "[4]", "[0]")) },
		{ "r0.json", FILE_OF("0", LAYOUT("first", "[4]", "[0]")) },
	};
	const struct given other[] = {
		{ "r0.json", FILE_OF("0", LAYOUT("a", "[4]", "[0]") ","
					  LAYOUT("b", "[4]", "[0]")) },
		{ "r1.json", FILE_OF("0", LAYOUT("b", "[4]", "[-1]") ","
					  LAYOUT("a", "[4]", "[0]")) },
	};
	const struct given more[] = {
		{ "r0.json", FILE_OF("0", LAYOUT("a", "[4]", "[0]")) }, other[0],
	};
	cleanup_names struct rsh_names *names = rsh_names_new();
	struct rsh_strategy *s =
		merge(files, 3, RSH_STRATEGY_DIR_AS_LISTED, names);

	assert_params(s, names, "b@1 emb@1 second@0");
	rsh_strategy_free(s);
	assert_refused(files, 3, RSH_STRATEGY_DIR,
		       "r1.json: it is of stage 0 like r0.json, but only one of "
		       "them has parameter first: they are of two jobs");
	assert_refused(other, 2, RSH_STRATEGY_DIR,
		       "r1.json: it is of stage 0 like r0.json, but splits "
		       "parameter b in another way: they are of two jobs");
	assert_refused(more, 2, RSH_STRATEGY_DIR,
		       "r0.json: it is of stage 0 like r0.json, but only one of "
		       "them has parameter b: they are of two jobs");
}

/* In a directory a stage is never part of a name. */
TEST(directory_does_not_split_names)
{
	const struct given f = {
		"s0.json", FILE_OF("0", LAYOUT("1-w", "[4]", "[0]"))
	};
	cleanup_names struct rsh_names *names = rsh_names_new();
	struct rsh_strategy *s = merge(&f, 1, RSH_STRATEGY_DIR, names);

	assert_params(s, names, "1-w@0");
	rsh_strategy_free(s);
}

/* ---- what cannot be a job ---- */

/* Field numbers and lengths by hand: one operator of stage 0, then a layout
 * "w" on 4 devices. */
static const char protobuf[] =
	"\x08\x01\x12\x07\x0a\x01n\x12\x02\x08\x00\x1a\x0d\x0a\x01w\x12\x08"
	"\x0a\x02\x08\x04\x12\x02\x08\x00";

TEST(mixed_formats_are_refused)
{
	struct rsh_strategy_file **files = calloc(2, sizeof(*files));
	cleanup_names struct rsh_names *names = rsh_names_new();
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_strategy *s = NULL;

	assert_non_null(files);
	if (rsh_strategy_parse(protobuf, sizeof(protobuf) - 1, "s0.ckpt",
			       &files[0], &err))
		fail_msg("%s", err.text);
	files[1] = parse_strategy("s1.json", stage_1.json);
	assert_int_equal(rsh_strategy_merge(&(struct rsh_strategy_set){ files, 2,
				RSH_STRATEGY_DIR, "job" }, names, &s, &err), -EINVAL);
	assert_null(s);
	assert_string_equal(err.text,
			    "job: protobuf and JSON strategies in one directory "
			    "(s0.ckpt, s1.json)");
}

TEST(file_without_a_stage_is_refused)
{
	const struct given files[] = {
		stage_0,
		{ "x.json", "{\"parallel_layout_item\":{"
			    LAYOUT("w", "[4]", "[0]") "}}" },
	};
	cleanup_names struct rsh_names *names = rsh_names_new();

	assert_refused(files, 2, RSH_STRATEGY_DIR,
		       "x.json: it has no strategy items, so its pipeline stage "
		       "is not known");
	/* As a file on its own it needs none. */
	rsh_strategy_free(make_strategy(names, files[1].path, files[1].json));
}

TEST(missing_stages_are_refused)
{
	const struct given files[] = { stage_0, stage_2 };
	const struct given only_1 = {
		"s.json", FILE_OF("0", LAYOUT("1-w", "[4]", "[0]"))
	};

	assert_refused(files, 2, RSH_STRATEGY_DIR,
		       "job: pipeline stage 1 is missing (there are stages up "
		       "to 2)");
	assert_refused(&files[1], 1, RSH_STRATEGY_DIR_AS_LISTED,
		       "job: pipeline stage 0 is missing (there are stages up "
		       "to 2)");
	assert_refused(&only_1, 1, RSH_STRATEGY_FILE,
		       "job: pipeline stage 0 is missing (there are stages up "
		       "to 1)");
}

TEST(absurd_stages_are_refused)
{
	const struct given in_directory = {
		"s.json", FILE_OF("65536", LAYOUT("w", "[4]", "[0]"))
	};

	assert_refused(&in_directory, 1, RSH_STRATEGY_DIR,
		       "job: pipeline stage 65536 of parameter w is out of "
		       "range");
}

/* Ranks are counted in 32 bits, which no file may overflow. */
TEST(absurd_rank_counts_are_refused)
{
	const struct given largest = {
		"s.json", FILE_OF("0", LAYOUT("w", "[1024,1024]", "[0]"))
	};
	const struct given one = {
		"s.json", FILE_OF("0", LAYOUT("w", "[32768,65535]", "[0]"))
	};
	const struct given stages = {
		"s.json", FILE_OF("0", LAYOUT("0-w", "[524289]", "[0]") ","
				  LAYOUT("1-w", "[524289]", "[0]"))
	};
	const struct given lone = {
		"s.json", FILE_OF("1073741824", LAYOUT("w", "[4]", "[0]"))
	};
	struct rsh_names *names = rsh_names_new();

	rsh_strategy_free(merge(&largest, 1, RSH_STRATEGY_FILE, names));
	rsh_names_free(names);
	assert_refused(&one, 1, RSH_STRATEGY_FILE,
		       "job: pipeline stage 0 of 2147450880 devices a stage "
		       "makes more than 1048576 ranks");
	assert_refused(&stages, 1, RSH_STRATEGY_FILE,
		       "job: pipeline stage 1 of 524289 devices a stage makes "
		       "more than 1048576 ranks");
	assert_refused(&lone, 1, RSH_STRATEGY_FILE,
		       "job: pipeline stage 1073741824 of 4 devices a stage "
		       "makes more than 1048576 ranks");
}

TEST(different_device_counts_are_refused)
{
	const struct given one = {
		"s.json", FILE_OF("0", LAYOUT("w", "[2,4]", "[0]") ","
				  LAYOUT("v", "[4]", "[0]"))
	};
	const struct given two[] = {
		stage_0,
		{ "s1.json", FILE_OF("1", LAYOUT("w", "[8]", "[0]")) },
	};

	assert_refused(&one, 1, RSH_STRATEGY_FILE,
		       "job: parameter v has a mesh of 4 devices, but w of 8");
	assert_refused(two, 2, RSH_STRATEGY_DIR,
		       "job: parameter w has a mesh of 8 devices, but emb of 4");
}

/* ---- parameters of several stages ---- */

TEST(smallest_stage_is_the_source)
{
	static const struct given f = {
		"s.json", FILE_OF("0", LAYOUT("1-w", "[4]", "[0]") ","
				  LAYOUT("0-w", "[2,2]", "[0]") ","
				  LAYOUT("2-w", "[2,2]", "[1]"))
	};
	cleanup_names struct rsh_names *names = rsh_names_new();
	struct rsh_strategy *s = merge(&f, 1, RSH_STRATEGY_FILE, names);

	assert_layout(rsh_param_source_stage(param(s, names, "w")),
		      "mesh [2,2] map [0]");
	rsh_strategy_free(s);
}

TEST(destination_stage_is_the_ranks_own)
{
	static const struct given f = {
		"s.json", FILE_OF("0", LAYOUT("1-w", "[4]", "[0]") ","
				  LAYOUT("0-w", "[2,2]", "[0]") ","
				  LAYOUT("2-w", "[2,2]", "[1]") ","
				  LAYOUT("3-v", "[2,2]", "[1]"))
	};
	static const char *const own[] = {
		"mesh [2,2] map [0]", "mesh [4] map [0]", "mesh [2,2] map [1]",
	};
	/* The converter: the one of stage 0 for the first ranks, then the last
	 * of the later stages. */
	static const char *const theirs[] = {
		"mesh [2,2] map [0]", "mesh [2,2] map [1]", "mesh [2,2] map [1]",
	};
	cleanup_names struct rsh_names *names = rsh_names_new();
	struct rsh_strategy *s = merge(&f, 1, RSH_STRATEGY_FILE, names);
	const struct rsh_strategy_param *w = param(s, names, "w");

	for (uint32_t rank = 0; rank < 12; rank++) {
		assert_layout(rsh_param_dest_stage(s, w, rank, false),
			      own[rank / 4]);
		assert_layout(rsh_param_dest_stage(s, w, rank, true),
			      theirs[rank / 4]);
	}
	/* Of a stage that does not list it: the converter's again. */
	assert_layout(rsh_param_dest_stage(s, param(s, names, "v"), 0, false),
		      "mesh [2,2] map [1]");
	rsh_strategy_free(s);
}

/* ---- layouts ---- */

TEST(items_compare_by_layout)
{
	static const char *const different[] = {
		LAYOUT("w", "[2,4]", "[1,0]"),
		LAYOUT("w", "[4,2]", "[1,0]"),
		LAYOUT("w", "[2,4]", "[0,1]"),
		LAYOUT("w", "[2,4]", "[1,-1]"),
		LAYOUT("w", "[2,4]", "[1]"),
		LAYOUT("w", "[2,4]", "[[1],[0]]"),
		LAYOUT("w", "[2,4]", "[[1,0],[-1]]"),
		LAYOUT("w", "[2,4,1]", "[2,1]"),
		SHARD("w", "[2,4]", "[1,0]", "1", "-1"),
		SHARD("w", "[2,4]", "[1,0]", "1", "2"),
		SHARD("w", "[2,4]", "[1,0]", "4", "2"),
		SHAPED("w", "[2,4]", "[1,0]", "[4,4]"),
		SHAPED("w", "[2,4]", "[1,0]", "[4,8]"),
		LAYOUT("w", "[2,4]", "[]"),
	};
	enum { N = sizeof(different) / sizeof(different[0]) };
	struct rsh_strategy_file *a[N], *b[N];

	for (size_t i = 0; i < N; i++) {
		char json[512];

		snprintf(json, sizeof(json), FILE_OF("0", "%s"), different[i]);
		a[i] = parse_strategy("a.json", json);
		b[i] = parse_strategy("b.json", json);
	}
	for (size_t i = 0; i < N; i++) {
		assert_true(!rsh_item_same_layout(&a[i]->items[0], NULL));
		for (size_t k = 0; k < N; k++)
			assert_int_equal(
				rsh_item_same_layout(&a[i]->items[0],
						     &b[k]->items[0]),
				i == k);
	}
	assert_true(rsh_item_same_layout(NULL, NULL));
	for (size_t i = 0; i < N; i++) {
		rsh_strategy_file_free(a[i]);
		rsh_strategy_file_free(b[i]);
	}
}

TEST(items_as_text)
{
	static const struct {
		const char *item, *text;
	} cases[] = {
		{ LAYOUT("w", "[2,4]", "[1,-1]"), "mesh [2,4] map [1,-1]" },
		{ LAYOUT("w", "[2,4]", "[[1,0],[-1]]"),
		  "mesh [2,4] map [[1,0],-1]" },
		{ LAYOUT("w", "[2]", "[]"), "mesh [2] map []" },
		{ SHARD("w", "[8]", "[-1]", "1", "-1"),
		  "mesh [8] map [-1] optimizer shard -1" },
		{ SHARD("w", "[8]", "[-1]", "0", "4"), "mesh [8] map [-1]" },
	};
	char text[64];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char json[512];
		struct rsh_strategy_file *f;

		snprintf(json, sizeof(json), FILE_OF("0", "%s"), cases[i].item);
		f = parse_strategy("s.json", json);
		assert_string_equal(rsh_item_text(&f->items[0], text,
						  sizeof(text)),
				    cases[i].text);
		/* What does not fit is cut. */
		assert_string_equal(rsh_item_text(&f->items[0], text, 6),
				    "mesh ");
		rsh_strategy_file_free(f);
	}
	assert_string_equal(rsh_item_text(NULL, text, sizeof(text)),
			    "unsharded");
}
