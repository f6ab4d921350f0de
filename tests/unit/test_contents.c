/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_contents.c - a strategy is held against the bytes, without a
 * mount.
 *
 * The files are made of a function of tensor, slice and element, so that a test
 * says by which layout it cuts and what it does otherwise. */
#include "config.h"

#include <sys/stat.h>
#include <utime.h>

#include "strategy_support.h"
#include "rsh/contents/contents.h"
#include "rsh/util/log.h"
#include "source_support.h"

#define ROWS 6
#define COLUMNS 40

/* What a rank holds of a tensor: the seed of its numbers. */
typedef uint64_t seed_fn(uint32_t rank);

struct record {
	const char *name;
	uint32_t rows; /* 0: a vector */
	seed_fn *seed;
	enum { NUMBERS, ONES, ROWS_ALIKE, FLAGS } what; /* FLAGS: two Bools */
};

static uint64_t whole(uint32_t rank) { (void)rank; return 1; }
static uint64_t mod4(uint32_t rank) { return rank % 4; }
static uint64_t mod2(uint32_t rank) { return rank % 2; }
static uint64_t div4(uint32_t rank) { return rank / 4; }
static uint64_t each(uint32_t rank) { return rank; }
/* two stages of four ranks, of which each has another slice */
static uint64_t mod2_of_stage(uint32_t rank) { return rank % 2 + rank / 4 * 2; }

static size_t fill(const struct record *r, uint32_t rank, uint8_t *to)
{
	struct numbers x = { (r->seed(rank) + 1) * 1000003 +
			     strlen(r->name) };
	uint32_t n = (r->rows ? r->rows : 1) * COLUMNS;
	float *f = (float *)to;

	if (r->what == FLAGS) {
		to[0] = 0;
		to[1] = 1;
		return 2;
	}
	for (uint32_t i = 0; i < n; i++) {
		if (r->what == ROWS_ALIKE && i >= COLUMNS)
			f[i] = f[i - COLUMNS];
		else
			f[i] = r->what == ONES ? 1.0f :
			       (float)numbers_below(&x, 1 << 24);
	}
	return n * sizeof(*f);
}

static void save(const char *tree, uint32_t rank, unsigned step,
		 const struct record *records)
{
	uint8_t file[1 << 16], content[8 * ROWS * COLUMNS];
	char name[64];
	size_t at = 0;

	for (; records->name; records++) {
		const bool flags = records->what == FLAGS;
		const int64_t dims[] = {
			records->rows ? records->rows : COLUMNS,
			flags ? 2 : COLUMNS,
		};
		size_t n = fill(records, rank, content);
		const struct rsh_record_shape shape = {
			.name = records->name,
			.name_len = strlen(records->name),
			.dtype = flags ? RSH_DTYPE_BOOL : RSH_DTYPE_FLOAT32,
			.n_dims = records->rows ? 2 : 1, .dims = dims,
			.content_bytes = n,
		};

		at += rsh_ckpt_header_write(&shape, n, file + at);
		memcpy(file + at, content, n);
		at += n;
	}
	snprintf(name, sizeof(name), "rank_%u/net-1_%u.ckpt", rank, step);
	tree_write(tree, name, file, at);
}

struct job {
	char *tree;
	struct rsh_names *names;
	struct rsh_strategy *src, *dst;
	struct rsh_error err;
};

static void begin(struct job *j, uint32_t n_ranks,
		  const struct record *records, const char *json)
{
	*j = (struct job){ .tree = tree_make(), .names = rsh_names_new() };
	for (uint32_t r = 0; r < n_ranks; r++)
		save(j->tree, r, 5, records);
	if (json)
		j->src = make_strategy(j->names, "src.json", json);
}

static void end(struct job *j)
{
	rsh_strategy_free(j->src);
	rsh_strategy_free(j->dst);
	rsh_names_free(j->names);
	tree_remove(j->tree);
}

static void lose(const struct job *j, unsigned rank)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/rank_%u/net-1_5.ckpt", j->tree, rank);
	remove(path);
}

static int check_in(struct job *j, enum rsh_check how, const char *cache)
{
	const struct rsh_source_options o = { .check = how,
					      .index_cache = cache };
	uint32_t n = j->src ? j->src->n_stages * j->src->stage_ranks :
			      UINT32_MAX;
	struct rsh_source *s;
	int rc;

	j->err = (struct rsh_error)RSH_ERROR_INIT;
	assert_int_equal(rsh_source_open(j->tree, 0, n, &o, &s, &j->err), 0);
	assert_int_equal(rsh_source_choose(s, 0, &j->err), 0);
	rc = j->src ? rsh_contents_check_ranks(s, j->src, j->dst, &j->err) : 0;
	if (rc == 0)
		rc = rsh_source_index(s, j->names, &j->err);
	if (rc == 0)
		rc = rsh_contents_check(s, j->src, j->dst, RSH_GRID_RUNTIME,
					j->names, &j->err);
	if (rc == 0)
		rc = rsh_contents_check_older(s, &o, j->src, RSH_GRID_RUNTIME,
					      j->names, &j->err);
	rsh_source_free(s);
	return rc;
}

static int check(struct job *j, enum rsh_check how)
{
	return check_in(j, how, NULL);
}

static void assert_says(const struct job *j, const char *words)
{
	if (!strstr(j->err.text, words))
		fail_msg("\"%s\" is not in: %s", words, j->err.text);
}

/* A network cut by four, twice. */
static const struct record network[] = {
	{ "up.weight", ROWS, mod4, NUMBERS },
	{ "norm.gamma", 0, whole, NUMBERS },
	{ "moments.up.weight", ROWS, mod4, NUMBERS },
	{ NULL, 0, NULL, NUMBERS },
};

#define STAGE(stage, mesh, up, norm)                        \
	FILE_OF(stage, LAYOUT("up.weight", mesh, up) ","    \
		LAYOUT("norm.gamma", mesh, norm) ","        \
		LAYOUT("moments.up.weight", mesh, up))
#define NETWORK(mesh, up, norm) STAGE("0", mesh, up, norm)
#define RIGHT NETWORK("[2,4]", "[0,-1]", "[-1]")

TEST(test_right)
{
	FREED_BY(end) struct job j;

	begin(&j, 8, network, RIGHT);
	assert_int_equal(check(&j, RSH_CHECK_SAMPLE), 0);
	assert_int_equal(check(&j, RSH_CHECK_FULL), 0);
}

TEST(test_wrong_mesh)
{
	struct job j;

	for (int full = 0; full < 2; full++) {
		begin(&j, 8, network, NETWORK("[4,2]", "[0,-1]", "[-1]"));
		assert_int_equal(check(&j, full ? RSH_CHECK_FULL :
					      RSH_CHECK_SAMPLE), -EINVAL);
		assert_says(&j, "src.json is not the strategy of this tree: "
			    "parameter up.weight (mesh [4,2] map [0,-1]): ranks "
			    "0 and 2 should hold the same slice, but their "
			    "bytes differ (ranks 0 and 4 hold the same, ranks 0 "
			    "to 3 do not); 2 of 3 tensors");
		assert_says(&j, "; mesh [2,4] cut over axis 1 would explain it");
		assert_int_equal(check(&j, RSH_CHECK_STRUCTURE), 0);
		end(&j);
	}
}

TEST(test_too_fine)
{
	FREED_BY(end) struct job j;

	begin(&j, 8, network, NETWORK("[8]", "[0,-1]", "[-1]"));
	assert_int_equal(check(&j, RSH_CHECK_SAMPLE), -EINVAL);
	assert_says(&j, "ranks 0 and 4 should hold different slices, but their "
		    "bytes are the same");
}

TEST(test_swapped)
{
	FREED_BY(end) struct job j;

	begin(&j, 8, network, NETWORK("[4,2]", "[0,-1]", "[-1]"));
	j.dst = make_strategy(j.names, "dst.json", RIGHT);
	assert_int_equal(check(&j, RSH_CHECK_SAMPLE), -EINVAL);
	assert_says(&j, "the tree fits dst.json: are source and destination "
		    "swapped?");
}

TEST(test_too_few_ranks)
{
	FREED_BY(end) struct job j;

	begin(&j, 8, network, NETWORK("[4]", "[0,-1]", "[-1]"));
	assert_int_equal(check(&j, RSH_CHECK_SAMPLE), -EINVAL);
	assert_says(&j, "8 ranks have a checkpoint of epoch 1 step 5, but "
		    "src.json is of 4 ranks and does not have "
		    "rank_4/net-1_5.ckpt; if the job is a pipeline of 2 stages, "
		    "the strategy file of stage 1 is missing: give those of "
		    "all 2, in a directory or merged");
	assert_says(&j, "; --check structure leaves these ranks out");
	assert_null(strstr(j.err.text, "swapped"));
	j.dst = make_strategy(j.names, "dst.json", RIGHT);
	assert_int_equal(check(&j, RSH_CHECK_SAMPLE), -EINVAL);
	assert_says(&j, "dst.json is of 8: are source and destination swapped?");
	assert_int_equal(check(&j, RSH_CHECK_STRUCTURE), 0);
}

/* Some stages' files of a pipeline's, and no guess where ranks are lost. */
TEST(test_too_few_stages)
{
	FREED_BY(end) struct job j;

	begin(&j, 8, network, NETWORK("[2]", "[0,-1]", "[-1]"));
	assert_int_equal(check(&j, RSH_CHECK_SAMPLE), -EINVAL);
	assert_says(&j, "a pipeline of 4 stages, the strategy files of stages "
		    "1 to 3 are missing: give those of all 4");
	lose(&j, 0);
	assert_int_equal(check(&j, RSH_CHECK_SAMPLE), -EINVAL);
	assert_says(&j, "7 ranks have a checkpoint");
	assert_null(strstr(j.err.text, "pipeline"));
}

/* Four of eight ranks have saved a newer step, and the strategy is of four. */
TEST(test_half_written)
{
	static const struct record cut_by_8[] = {
		{ "up.weight", ROWS, each, NUMBERS },
		{ "norm.gamma", 0, whole, NUMBERS },
		{ "moments.up.weight", ROWS, each, NUMBERS },
		{ NULL, 0, NULL, NUMBERS },
	};
	static const struct record cut_by_4[] = {
		{ "up.weight", 2 * ROWS, each, NUMBERS },
		{ "norm.gamma", 0, whole, NUMBERS },
		{ "moments.up.weight", 2 * ROWS, each, NUMBERS },
		{ NULL, 0, NULL, NUMBERS },
	};
	static const struct {
		const struct record *old, *new;
		bool refused;
	} cases[] = {
		{ cut_by_8, cut_by_8, true },  /* a half of it would be shown */
		{ network, network, false },   /* a replica is not there yet */
		{ cut_by_8, cut_by_4, false }, /* it went on with four ranks */
	};

	for (unsigned i = 0; i < 3; i++) {
		struct job j;

		begin(&j, 8, cases[i].old, NETWORK("[4]", "[0,-1]", "[-1]"));
		for (uint32_t rank = 0; rank < 4; rank++)
			save(j.tree, rank, 10, cases[i].new);
		assert_int_equal(check(&j, RSH_CHECK_SAMPLE),
				 cases[i].refused ? -EINVAL : 0);
		if (cases[i].refused)
			assert_says(&j, "epoch 1 step 10 may be half written: "
				    "parameter up.weight has 4 slices by it, "
				    "but in epoch 1 step 5, which more ranks "
				    "have saved, there are at least 8");
		assert_int_equal(check(&j, RSH_CHECK_STRUCTURE), 0);
		end(&j);
	}
}

/* The ranks that are asked for are the file's, whatever stage it is of. */
TEST(test_lone_stage)
{
	FREED_BY(end) struct job j;

	begin(&j, 8, network, NULL);
	j.src = make_strategy(j.names, "src.json", STAGE("1", "[2,4]", "[0,-1]",
						      "[-1]"));
	assert_int_equal(j.src->lone_stage, 1);
	assert_int_equal(check(&j, RSH_CHECK_SAMPLE), 0);
	rsh_strategy_free(j.src);
	j.src = make_strategy(j.names, "src.json", STAGE("1", "[4,2]", "[0,-1]",
						      "[-1]"));
	assert_int_equal(check(&j, RSH_CHECK_SAMPLE), -EINVAL);
	assert_says(&j, "ranks 0 and 2 should hold the same slice");
	rsh_strategy_free(j.src);
	/* It may be one of several stages. */
	j.src = make_strategy(j.names, "src.json", STAGE("1", "[4]", "[0,-1]",
						      "[-1]"));
	assert_int_equal(check(&j, RSH_CHECK_SAMPLE), -EINVAL);
	assert_says(&j, "8 ranks have a checkpoint of epoch 1 step 5, but "
		    "src.json is of 4 ranks and does not have "
		    "rank_4/net-1_5.ckpt; it is the strategy file of stage 1: "
		    "give those of all stages");
	assert_int_equal(check(&j, RSH_CHECK_STRUCTURE), 0);
	for (uint32_t rank = 0; rank < 4; rank++)
		lose(&j, rank);
	assert_int_equal(check(&j, RSH_CHECK_SAMPLE), -EINVAL);
	assert_says(&j, "4 ranks have a checkpoint, but src.json is of 4 ranks "
		    "and does not have rank_4/net-1_5.ckpt");
}

/* The embedding of a model whose head is tied is in the first and in the last
 * stage, which must have the same. */
TEST(test_shared_by_stages)
{
#define OF_STAGES(first, last)                                             \
	FILE_OF("0", LAYOUT("0-tied.weight", "[2,2]", first) ","           \
		LAYOUT("0-up.weight", "[2,2]", "[0,-1]") ","               \
		LAYOUT("1-tied.weight", "[2,2]", last))
	static const struct {
		seed_fn *seed;
		const char *json;
		bool refused;
	} cases[] = {
		{ mod2, OF_STAGES("[0,-1]", "[0,-1]"), false },
		{ mod2_of_stage, OF_STAGES("[0,-1]", "[0,-1]"), true },
		/* Slices that are cut in two ways cannot be compared. */
		{ mod2_of_stage, OF_STAGES("[0,-1]", "[-1,0]"), false },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		for (int lost = -1; lost < 2; lost++) {
			const struct record records[] = {
				{ "tied.weight", ROWS, cases[i].seed, NUMBERS },
				{ "up.weight", ROWS, mod2, NUMBERS },
				{ NULL, 0, NULL, NUMBERS },
			};
			const int rc = cases[i].refused ? -EINVAL : 0;
			FREED_BY(end) struct job j;

			begin(&j, 8, records, cases[i].json);
			if (lost >= 0)
				lose(&j, (unsigned)lost);
			assert_int_equal(check(&j, RSH_CHECK_SAMPLE), rc);
			if (rc)
				assert_says(&j, " of two stages should hold the "
					    "same slice, but their bytes "
					    "differ");
			assert_int_equal(check(&j, RSH_CHECK_FULL), rc);
			assert_int_equal(check(&j, RSH_CHECK_STRUCTURE), 0);
		}
}

TEST(test_unsharded)
{
	static const struct record same[] = {
		{ "up.weight", ROWS, whole, NUMBERS },
		{ "bn.moving_mean", 0, each, NUMBERS },
		{ NULL, 0, NULL, NUMBERS },
	};
	struct job j;

	begin(&j, 5, same, NULL);
	assert_int_equal(check(&j, RSH_CHECK_SAMPLE), 0);
	end(&j);
	begin(&j, 8, network, NULL);
	assert_int_equal(check(&j, RSH_CHECK_SAMPLE), -EINVAL);
	assert_says(&j, "saved under a strategy");
	assert_says(&j, "ranks 0 and 4 hold the same, ranks 0 to 3 do not");
	end(&j);
}

/* What replicas keep for themselves is a line in the log. */
TEST(test_private)
{
	static const struct record own[] = {
		{ "up.weight", ROWS, mod4, NUMBERS },
		{ "bn.gamma", 0, whole, NUMBERS },
		{ "bn.moving_mean", 0, each, NUMBERS },
		{ "moments.up.weight", ROWS, mod4, NUMBERS },
		{ "accu_grads.up.weight", ROWS, each, NUMBERS },
		{ NULL, 0, NULL, NUMBERS },
	};
	FREED_BY(end) struct job j;

	begin(&j, 8, own, FILE_OF("0", LAYOUT("up.weight", "[2,4]", "[0,-1]") ","
				  LAYOUT("bn.gamma", "[2,4]", "[-1]") ","
				  LAYOUT("bn.moving_mean", "[2,4]", "[-1]") ","
				  LAYOUT("moments.up.weight", "[2,4]",
					 "[0,-1]") ","
				  LAYOUT("accu_grads.up.weight", "[2,4]",
					 "[0,-1]")));
	assert_int_equal(check(&j, RSH_CHECK_SAMPLE), 0);
	assert_int_equal(check(&j, RSH_CHECK_FULL), 0);
}

/* A weight that its strategy calls replicated is none of these. */
TEST(test_one_wrong_layout)
{
	static const struct record vocabulary[] = {
		{ "up.weight", ROWS, mod4, NUMBERS },
		{ "down.weight", ROWS, mod4, NUMBERS },
		{ "norm.gamma", 0, whole, NUMBERS },
		{ "emb.embedding_table", ROWS, mod4, NUMBERS },
		{ NULL, 0, NULL, NUMBERS },
	};
	const char *fmt = FILE_OF("0", LAYOUT("up.weight", "[2,4]", "[0,-1]") ","
				  LAYOUT("down.weight", "[2,4]", "[-1,0]") ","
				  LAYOUT("norm.gamma", "[2,4]", "[-1]") ","
				  LAYOUT("emb.embedding_table", "[2,4]",
					 "[-1,-1]"));
	FREED_BY(end) struct job j;

	begin(&j, 8, vocabulary, fmt);
	assert_int_equal(check(&j, RSH_CHECK_SAMPLE), -EINVAL);
	assert_says(&j, "parameter emb.embedding_table");
	assert_says(&j, "1 of 4 tensors");
}

/* Experts that began as copies of one are right, and so is what is constant;
 * the same bytes in what does not repeat itself are not. */
TEST(test_copies)
{
	struct record experts[] = {
		{ "up.weight", ROWS, mod4, NUMBERS },
		{ "moe.w1.weight", ROWS, whole, ROWS_ALIKE },
		{ "moments.moe.w1.weight", ROWS, whole, ONES },
		{ NULL, 0, NULL, NUMBERS },
	};
	const char *json = FILE_OF("0", LAYOUT("up.weight", "[2,4]", "[0,-1]") ","
				   LAYOUT("moe.w1.weight", "[2,4]",
					  "[1,-1]") ","
				   LAYOUT("moments.moe.w1.weight", "[2,4]",
					  "[1,-1]"));
	struct job j;

	begin(&j, 8, experts, json);
	assert_int_equal(check(&j, RSH_CHECK_SAMPLE), 0);
	end(&j);
	experts[1].what = NUMBERS;
	begin(&j, 8, experts, json);
	assert_int_equal(check(&j, RSH_CHECK_SAMPLE), -EINVAL);
	assert_says(&j, "parameter moe.w1.weight");
	end(&j);
}

/* Two flags a rank are soon the same on several. */
TEST(test_flags)
{
	static const struct record masks[] = {
		{ "causal.mask", 1, each, FLAGS },
		{ "window.mask", 1, each, FLAGS },
		{ NULL, 0, NULL, NUMBERS },
	};
	FREED_BY(end) struct job j;

	begin(&j, 8, masks,
	      FILE_OF("0", LAYOUT("causal.mask", "[8]", "[0,-1]") ","
		      LAYOUT("window.mask", "[8]", "[0,-1]")));
	assert_int_equal(check(&j, RSH_CHECK_SAMPLE), 0);
}

/* Heads of keys and values that are repeated for more ranks are right as long as
 * others bear the strategy out. */
TEST(test_repeated_heads)
{
	struct record heads[] = {
		{ "wq.weight", ROWS, mod4, NUMBERS },
		{ "wk.weight", ROWS, mod2, NUMBERS },
		{ "wv.weight", ROWS, whole, NUMBERS },
		{ "wk.bias", 0, mod2, NUMBERS },
		{ "wv.bias", 0, whole, NUMBERS },
		{ NULL, 0, NULL, NUMBERS },
	};
	const char *json = FILE_OF("0", LAYOUT("wq.weight", "[2,4]", "[0,-1]") ","
				   LAYOUT("wk.weight", "[2,4]", "[0,-1]") ","
				   LAYOUT("wv.weight", "[2,4]", "[0,-1]") ","
				   LAYOUT("wk.bias", "[2,4]", "[0]") ","
				   LAYOUT("wv.bias", "[2,4]", "[0]"));
	struct job j;

	begin(&j, 8, heads, json);
	assert_int_equal(check(&j, RSH_CHECK_SAMPLE), 0);
	end(&j);
	heads[0].seed = mod2;
	begin(&j, 8, heads, json);
	assert_int_equal(check(&j, RSH_CHECK_SAMPLE), -EINVAL);
	end(&j);
}

/* Ranks whose files are gone are compared by others. */
TEST(test_lost_files)
{
	FREED_BY(end) struct job j;

	begin(&j, 8, network, NETWORK("[4,2]", "[0,-1]", "[-1]"));
	lose(&j, 0);
	lose(&j, 2);
	assert_int_equal(check(&j, RSH_CHECK_SAMPLE), -EINVAL);
}

/* Any two ranks are lost, so that none may have all its neighbours. */
TEST(test_two_lost)
{
	struct job j;

	for (unsigned pair = 0; pair < 64; pair++) {
		begin(&j, 8, network, NETWORK("[4,2]", "[0,-1]", "[-1]"));
		lose(&j, pair / 8);
		lose(&j, pair % 8);
		assert_int_equal(check(&j, RSH_CHECK_SAMPLE), -EINVAL);
		rsh_strategy_free(j.src);
		j.src = make_strategy(j.names, "src.json", RIGHT);
		assert_int_equal(check(&j, RSH_CHECK_SAMPLE), 0);
		end(&j);
	}
}

/* 64 ranks, and for each stride a wrong mesh. */
TEST(test_any_stride)
{
	static const struct record cut[] = {
		{ "a.weight", ROWS, div4, NUMBERS },
		{ "b.weight", ROWS, mod2, NUMBERS },
		{ NULL, 0, NULL, NUMBERS },
	};
	char json[512];
	FREED_BY(end) struct job j;

	begin(&j, 64, cut, NULL);
	for (unsigned inner = 1; inner <= 64; inner *= 2) {
		bool right = inner == 4;

		snprintf(json, sizeof(json), FILE_OF("0",
			 LAYOUT("a.weight", "[%u,%u]", "[1,-1]") ","
			 LAYOUT("b.weight", "[32,2]", "[0,-1]")), 64 / inner,
			 inner);
		j.src = make_strategy(j.names, "src.json", json);
		assert_int_equal(check(&j, RSH_CHECK_SAMPLE),
				 right ? 0 : -EINVAL);
		rsh_strategy_free(j.src);
	}
	j.src = NULL;
}

static void age(const char *tree, unsigned n_ranks)
{
	const struct utimbuf old = { 1000000000, 1000000000 };
	char path[512];

	for (unsigned r = 0; r < n_ranks; r++) {
		snprintf(path, sizeof(path), "%s/rank_%u/net-1_5.ckpt", tree,
			 r);
		assert_int_equal(utime(path, &old), 0);
	}
}

/* What was written lately is not remembered, nor what was refused. */
TEST(test_not_remembered)
{
	cleanup_tree char *cache = tree_make();
	FREED_BY(end) struct job j;

	begin(&j, 8, network, NETWORK("[4,2]", "[0,-1]", "[-1]"));
	age(j.tree, 8);
	for (int i = 0; i < 2; i++)
		assert_int_equal(check_in(&j, RSH_CHECK_SAMPLE, cache),
				 -EINVAL);
}

int main(void)
{
	rsh_log_set_level(RSH_LOG_ERROR);
	return unit_run(NULL, NULL);
}
