/* SPDX-License-Identifier: Apache-2.0 */
/* The records of virtual files: which, in which order, from which files. */
#include "plan_support.h"

/* What has to be true of a plan: one of the functions of plan_support.h. */
struct want {
	enum { END, ALL, RECORDS, SOURCES, CONTENT, FILES, NOTE, UNNOTED } what;
	uint32_t number; /* the rank, or how many ranks or files there are */
	const char *text, *record;
};

struct conversion {
	const char *name, *src, *dst;
	struct files files[4];
	struct want want[7];
	bool replicas;
};

#define ALL(n, text) { ALL, n, text, NULL }
#define RECORDS(rank, text) { RECORDS, rank, text, NULL }
#define SOURCES(rank, text) { SOURCES, rank, text, NULL }
#define CONTENT(rank, record, text) { CONTENT, rank, text, record }
#define FILES(n) { FILES, n, NULL, NULL }
#define NOTE(text) { NOTE, 0, text, NULL }
#define NO_NOTES { UNNOTED, 0, NULL, NULL }

static const struct conversion conversions[] = {
	/* ---- the order of records ---- */
	/* Rows over 4 to rows over 8 loads ranks 3, 2, 1, 0. */
	{ "highest_rank_gives_the_order",
	  LAYOUT("a", "[4]", "[0]") "," LAYOUT("b", "[4]", "[0]") ","
	    LAYOUT("c", "[4]", "[0]"),
	  LAYOUT("b", "[8]", "[0]") "," LAYOUT("a", "[8]", "[0]") ","
	    LAYOUT("c", "[8]", "[0]"),
	  { { 0, 2, FILE_WITH(F32("b", 2), F32("a", 2), I64_SCALAR("step"),
	      F32("c", 2), I64_SCALAR("epoch")) },
	    { 3, 3, FILE_WITH(I64_SCALAR("epoch"), F32("a", 2), F32("c", 2),
	      F32("b", 2)) } },
	  { FILES(8), ALL(8, "a[1] c[1] b[1] Int64*epoch[] Int64*step[]") } },
	/* Replicas that are not loaded have no say: each rank has its own order. */
	{ "only_loaded_ranks_give_the_order",
	  LAYOUT("a", "[2,2]", "[0]") "," LAYOUT("b", "[2,2]", "[0]"),
	  LAYOUT("a", "[2]", "[0]") "," LAYOUT("b", "[2]", "[0]"),
	  { { 0, 0, FILE_WITH(F32("b", 2), F32("a", 2)) },
	    { 1, 1, FILE_WITH(F32("a", 2), F32("b", 2)) } },
	  { RECORDS(0, "b[2] a[2]"), RECORDS(1, "a[2] b[2]"), SOURCES(0, "0"),
	      SOURCES(1, "1"), NO_NOTES } },
	/* No file has "gone": nothing tells the dimensions of its longer map, and
	 * it has no say. */
	{ "unsaved_maps_of_other_lengths_load_nothing",
	  LAYOUT("a", "[4]", "[0]") "," LAYOUT("b", "[4]", "[0]") ","
	    LAYOUT("gone", "[2,2]", "[0,1]"),
	  LAYOUT("a", "[2,2]", "[1]") "," LAYOUT("b", "[2,2]", "[1]") ","
	    LAYOUT("gone", "[2,2]", "[1,0,-1]"),
	  { { 0, 1, FILE_WITH(F32("b", 2), F32("a", 2)) },
	    { 2, 3, FILE_WITH(F32("a", 2), F32("b", 2)) } },
	  { RECORDS(0, "b[4] a[4]"), RECORDS(3, "a[4] b[4]") } },
	/* The files of the last stage are loaded first. */
	{ "last_stage_comes_first",
	  LAYOUT("0-a", "[2]", "[0]") "," LAYOUT("1-b", "[2]", "[0]"),
	  LAYOUT("a", "[2]", "[0]") "," LAYOUT("b", "[2]", "[0]"),
	  { { 0, 1, FILE_WITH(F32("a", 2), I64_SCALAR("first")) },
	    { 2, 3, FILE_WITH(I64_SCALAR("last"), F32("b", 2)) } },
	  { FILES(2), RECORDS(1, "b[2] a[2] Int64*last[] Int64*first[]"),
	      SOURCES(0, "0 2"), SOURCES(1, "1 3"), CONTENT(1, "a", "1@100+8"),
	      CONTENT(1, "b", "3@208+8") } },
	/* Files that lack what their replicas hold have parts of one order: a
	 * name comes after the one before it in its file. */
	{ "parts_of_an_order_are_joined",
	  LAYOUT("a", "[3]", "[-1]") "," LAYOUT("b", "[3]", "[-1]") ","
	    LAYOUT("c", "[3]", "[-1]") "," LAYOUT("d", "[3]", "[-1]") ","
	    LAYOUT("e", "[3]", "[-1]") "," LAYOUT("f", "[3]", "[-1]"), NULL,
	  { { 0, 0, FILE_WITH(F32("b", 1), F32("e", 1), F32("f", 1)) },
	    { 1, 1, FILE_WITH(F32("b", 1), F32("d", 1), F32("f", 1)) },
	    { 2, 2, FILE_WITH(F32("a", 1), F32("b", 1), F32("c", 1)) } },
	  { RECORDS(0, "a[1] b[1] e[1] d[1] f[1] c[1]") }, true },
	/* Without a source strategy too, also if each has as many. */
	{ "files_that_lack_parameters_are_joined",
	  NULL,
	  LAYOUT("b", "[2]", "[0]"),
	  { { 0, 0, FILE_WITH(F32("a", 1), F32("b", 2)) },
	    { 1, 1, FILE_WITH(F32("b", 2), F32("c", 1)) } },
	  { ALL(2, "b[1] *a[1] *c[1]"), SOURCES(1, "0 1"),
	      CONTENT(1, "b", "0@208+4"), CONTENT(0, "c", "1@208+4") }, true },
	/* ---- which records ---- */
	/* A stage's files hold its own parameters, and what no strategy lists. */
	{ "other_stages_are_left_out",
	  LAYOUT("a", "[2]", "[0]") "," LAYOUT("b", "[2]", "[0]"),
	  LAYOUT("0-a", "[2]", "[0]") "," LAYOUT("1-b", "[2]", "[0]"),
	  { { 0, 1, FILE_WITH(F32("a", 2), F32("b", 2), I64_SCALAR("step")) } },
	  { FILES(4), RECORDS(0, "a[2] Int64*step[]"),
	      RECORDS(3, "b[2] Int64*step[]"), SOURCES(3, "1") } },
	/* What only one strategy lists is copied as the source's raw slice. */
	{ "listed_on_one_side_is_copied",
	  LAYOUT("w", "[4]", "[0]") "," LAYOUT("adam", "[4]", "[0]"),
	  LAYOUT("w", "[2]", "[0]") "," LAYOUT("extra", "[2]", "[0]"),
	  { { 0, 3, FILE_WITH(F32("adam", 3), F32("extra", 5), F32("w", 1)) } },
	  { RECORDS(1, "w[2] *adam[3] *extra[5]"),
	      CONTENT(1, "adam", "1@100+12"),
	      CONTENT(1, "w", "2@332+4 3@332+4"), SOURCES(1, "1 2 3") } },
	/* Parameters in no file: the job did not save them.  The one that has the
	 * same layouts as a saved one tells nothing of dimensions. */
	{ "unsaved_parameters_are_left_out",
	  LAYOUT("gone", "[2]", "[0]") "," LAYOUT("w", "[2]", "[0]") ","
	    LAYOUT("lost", "[2]", "[-1]"),
	  NULL,
	  { { 0, 1, FILE_WITH(F32("w", 1)) } },
	  { RECORDS(0, "w[2]") } },
	{ "no_source_strategy_reads_rank_0",
	  NULL,
	  LAYOUT("w", "[2]", "[0]"),
	  { { 0, 0, FILE_WITH(I64_SCALAR("step"), F32("w", 4),
	      F32("unlisted", 2)) },
	    { 1, 1, FILE_WITH(F32("w", 400)) } },
	  { FILES(2), RECORDS(1, "w[2] Int64*step[] *unlisted[2]"),
	      SOURCES(1, "0") } },
	{ "no_destination_strategy_makes_one_file",
	  LAYOUT("0-w", "[2]", "[0,-1]") "," LAYOUT("1-v", "[2]", "[-1]"),
	  NULL,
	  { { 0, 1, FILE_WITH(F32("w", 2, 3), I64_SCALAR("step")) },
	    { 2, 3, FILE_WITH(F32("v", 7)) } },
	  { FILES(1), RECORDS(0, "v[7] w[4,3] Int64*step[]"),
	      CONTENT(0, "w", "0@100+24 1@100+24"), CONTENT(0, "v", "2@100+28")
	      } },
	/* ---- copied records ---- */
	/* From the rank's own counterpart, counted modulo the source's ranks. */
	{ "copies_come_from_the_counterpart",
	  LAYOUT("w", "[2]", "[0]"),
	  LAYOUT("w", "[4]", "[0]"),
	  { { 0, 1, FILE_WITH(F32("w", 2), I64_SCALAR("step")) } },
	  { CONTENT(0, "step", "0@208+8"), CONTENT(1, "step", "1@208+8"),
	      CONTENT(2, "step", "0@208+8"), CONTENT(3, "step", "1@208+8"),
	      NO_NOTES } },
	{ "copies_come_from_the_lowest_stage",
	  LAYOUT("0-w", "[2]", "[0]") "," LAYOUT("1-v", "[2]", "[0]"),
	  LAYOUT("w", "[2]", "[0]") "," LAYOUT("v", "[2]", "[0]"),
	  { { 0, 1, FILE_WITH(F32("w", 2), I64_SCALAR("step")) },
	    { 2, 3, FILE_WITH(F32("v", 2), I64_SCALAR("step"),
	      I64_SCALAR("loss")) } },
	  { CONTENT(1, "step", "1@208+8"), CONTENT(1, "loss", "3@316+8") } },
	/* The converter dies where its rank lacks the record; the lowest loaded
	 * rank that has it steps in. */
	{ "missing_copies_come_from_elsewhere",
	  LAYOUT("w", "[4]", "[0]"),
	  LAYOUT("w", "[2]", "[0]"),
	  { { 0, 1, FILE_WITH(F32("w", 1)) },
	    { 2, 3, FILE_WITH(F32("w", 1), I64_SCALAR("step")) } },
	  { RECORDS(0, "w[2] Int64*step[]"), CONTENT(0, "step", "2@204+8"),
	      SOURCES(0, "0 1 2"), NOTE("read from another rank (step)") } },
	/* ---- parameters of several stages ---- */
	/* Each slice comes from the lowest stage whose file holds it. */
	{ "lowest_stage_supplies_shared_slices",
	  LAYOUT("0-emb", "[2]", "[0]") "," LAYOUT("1-emb", "[2]", "[0]"),
	  LAYOUT("emb", "[1]", "[0]"),
	  { { 0, 0, FILE_WITH(F32("emb", 2)) },
	    { 1, 1, FILE_WITH(I64_SCALAR("step")) },
	    { 2, 3, FILE_WITH(F32("emb", 2)) } },
	  { CONTENT(0, "emb", "0@100+8 3@100+8"), SOURCES(0, "0 1 3") } },
	/* ---- where it differs from the converter ---- */
	{ "non_multiples_are_noted",
	  LAYOUT("w", "[3]", "[0]"),
	  LAYOUT("w", "[2]", "[0]"),
	  { { 0, 2, FILE_WITH(F32("w", 2), I64_SCALAR("step")) } },
	  { NOTE("refuses these layouts"), CONTENT(0, "w", "0@100+8 1@100+4"),
	      CONTENT(1, "w", "1@104+4 2@100+8"), CONTENT(1, "step", "1@208+8")
	      } },
	{ "dashes_are_noted",
	  LAYOUT("0-net-w", "[2]", "[0]"),
	  NULL,
	  { { 0, 1, FILE_WITH(F32("net-w", 2), F32("a-copy", 2)) } },
	  { NOTE("names with '-' are kept; MindSpore's converter cannot read "
		 "them (net-w)") } },

	/* ---- runs ---- */
	{ "equal_slices_are_one_run",
	  LAYOUT("w", "[4]", "[0,-1]"), LAYOUT("w", "[4]", "[0,-1]"),
	  { { 0, 3, FILE_WITH(F32("w", 3, 5)) } },
	  { CONTENT(2, "w", "2@100+60") } },
	{ "rows_are_one_run_a_slice",
	  LAYOUT("w", "[4]", "[0,-1]"), LAYOUT("w", "[2]", "[0,-1]"),
	  { { 0, 3, FILE_WITH(F32("w", 3, 5)) } },
	  { CONTENT(1, "w", "2@100+60 3@100+60") } },
	{ "columns_are_one_run_a_row", LAYOUT("w", "[2]", "[-1,0]"), NULL,
	  { { 0, 1, FILE_WITH(F32("w", 3, 2)) } },
	  { CONTENT(0, "w", "0@100+8 1@100+8 0@108+8 1@108+8 0@116+8 "
		    "1@116+8") } },
	/* Whole: 2x4x3. */
	{ "rows_become_columns",
	  LAYOUT("w", "[2]", "[0,-1,-1]"), LAYOUT("w", "[2]", "[-1,0,-1]"),
	  { { 0, 1, FILE_WITH(F32("w", 1, 4, 3)) } },
	  { CONTENT(0, "w", "0@100+24 1@100+24"),
	      CONTENT(1, "w", "0@124+24 1@124+24") } },
	/* Dimensions that both sides cut alike are runs together.  Rank 3 is
	 * (0,1,1): half of dimension 1 of the slice of rank 1. */
	{ "dimensions_cut_alike_are_joined",
	  LAYOUT("w", "[2,2]", "[1,-1,0]"), LAYOUT("w", "[2,2,2]", "[2,1,0]"),
	  { { 0, 3, FILE_WITH(F32("w", 2, 4, 3)) } },
	  { CONTENT(3, "w", "1@124+24 1@172+24") } },
	/* 12 elements in slices of 4 to slices of 6. */
	{ "non_multiples_cut_runs",
	  LAYOUT("w", "[3]", "[0]"), LAYOUT("w", "[2]", "[0]"),
	  { { 0, 2, FILE_WITH(F32("w", 4)) } },
	  { CONTENT(0, "w", "0@100+16 1@100+8"),
	      CONTENT(1, "w", "1@108+8 2@100+16") } },
	/* Each rank reads the replica that is its own counterpart. */
	{ "replicas_are_spread",
	  LAYOUT("w", "[2,2]", "[0]"), LAYOUT("w", "[4]", "[-1]"),
	  { { 0, 3, FILE_WITH(F32("w", 2)) } },
	  { CONTENT(1, "w", "0@100+8 1@100+8"),
	      CONTENT(2, "w", "2@100+8 3@100+8"), SOURCES(2, "2 3") } },
	{ "scalars_are_resharded",
	  LAYOUT("s", "[2]", "[]"), LAYOUT("s", "[4]", "[]"),
	  { { 0, 1, FILE_WITH(I64_SCALAR("s")) } },
	  { RECORDS(3, "Int64:s[]"), CONTENT(3, "s", "1@100+8") } },
};

static void check(const struct job *j, const struct want *w)
{
	switch (w->what) {
	case ALL:
		for (uint32_t r = 0; r < w->number; r++)
			assert_records(j, r, w->text);
		return;
	case RECORDS:
		return assert_records(j, w->number, w->text);
	case SOURCES:
		return assert_sources(j, w->number, w->text);
	case CONTENT:
		return assert_content(j, w->number, w->record, w->text);
	case FILES:
		return (void)assert_int_equal(rsh_plan_n_files(j->c), w->number);
	case NOTE:
		return assert_note(j, w->text);
	case UNNOTED:
		return assert_no_notes(j);
	case END:
		return;
	}
}

TEST_ROWS(conversions)
{
	const struct conversion *k = *state;
	cleanup_job struct job *j = job_new(k->src, k->dst);

	job_made(j, k->files);
	j->replicas = k->replicas;
	job_plan(j);
	assert_string_equal(rsh_plan_name_suffix(j->c), "");
	for (size_t i = 0; k->want[i].what; i++)
		check(j, &k->want[i]);
}

TEST(without_strategies_rank_0_is_shown)
{
	cleanup_job struct job *j = job_new(NULL, NULL);

	job_file(j, 0, FILE_WITH(F32("w", 2), I64_SCALAR("step")));
	job_plan(j);
	assert_int_equal(rsh_plan_n_files(j->c), 1);
	assert_whole(j, 0, 0, "w step");
	assert_note(j, "neither side has a strategy");
}

/* ---- parameters of several stages ---- */

static const char shared_dst[] =
	LAYOUT("1-emb", "[2]", "[-1]") "," LAYOUT("0-emb", "[2]", "[0]") ","
	LAYOUT("2-emb", "[2]", "[0]");

static struct job *shared_job(void)
{
	struct job *j = job_new(LAYOUT("emb", "[1]", "[-1]"), shared_dst);

	job_file(j, 0, FILE_WITH(F32("emb", 4)));
	return j;
}

TEST(own_stages_layout_counts)
{
	struct job *j = shared_job();

	job_plan(j);
	assert_records(j, 1, "emb[2]");
	assert_records(j, 3, "emb[4]");
	assert_records(j, 5, "emb[2]");
	assert_note(j, "layout of the rank's own stage");
	job_free(j);

	j = shared_job();
	job_plan_compat(j);
	assert_records(j, 1, "emb[2]");
	assert_records(j, 3, "emb[2]");
	assert_records(j, 5, "emb[2]");
	assert_no_notes(j);
	job_free(j);
}

/* ---- the converter's by-stage dispatch ---- */

static struct job *stage_job(void)
{
	struct job *j = job_new_lone("1", LAYOUT("w", "[2]", "[0]") ","
				     LAYOUT("adam_m.w", "[2]", "[0]"),
				     LAYOUT("w", "[2,2]", "[1]") ","
				     LAYOUT("later", "[2,2]", "[0]"));

	job_file(j, 2, FILE_WITH(F32("adam_m.w", 2), I64_SCALAR("low"),
				 F32("w", 2)));
	job_file(j, 3, FILE_WITH(I64_SCALAR("high"), F32("w", 2)));
	return j;
}

TEST(lone_stage_goes_by_stage)
{
	struct job *j = stage_job();
	uint32_t first, n;

	rsh_conversion_source_ranks(j->src, j->dst, j->names, true, &first,
				    &n);
	assert_int_equal(first, 2);
	assert_int_equal(n, 2);
	job_plan(j);
	assert_int_equal(rsh_plan_n_files(j->c), 4);
	/* All files of the stage, the lowest rank's first. */
	assert_records(j, 0, "w[2] *adam_m.w[2] Int64*low[] Int64*high[]");
	assert_content(j, 3, "w", "3@208+8");
	assert_string_equal(rsh_plan_name_suffix(j->c), "");
	assert_note(j, "would convert by stage");
	job_free(j);

	j = stage_job();
	job_plan_compat(j);
	assert_records(j, 0, "w[2] *adam_m.w[2] Int64*low[] Int64*high[]");
	assert_string_equal(rsh_plan_name_suffix(j->c), "_part1");
	job_free(j);
}

TEST(source_ranks_of_a_job)
{
	struct job *j = job_new_lone("1", LAYOUT("w", "[2,2]", "[0]"),
				     LAYOUT("w", "[4]", "[0]"));
	uint32_t first, n;

	/* The same names on both sides: not by stage, whatever the file says. */
	rsh_conversion_source_ranks(j->src, j->dst, j->names, true, &first,
				    &n);
	assert_int_equal(first, 0);
	assert_int_equal(n, 4);
	rsh_conversion_source_ranks(NULL, j->dst, j->names, false, &first, &n);
	assert_int_equal(first, 0);
	assert_int_equal(n, 1);
	job_free(j);

	j = job_new(LAYOUT("0-w", "[2,2]", "[0]") ","
		    LAYOUT("1-v", "[2,2]", "[0]"), NULL);
	rsh_conversion_source_ranks(j->src, NULL, j->names, true, &first, &n);
	assert_int_equal(first, 0);
	assert_int_equal(n, 8);
	job_free(j);
}

/* ---- where it differs from the converter ---- */

static struct job *misplaced_job(void)
{
	struct job *j = job_new(SHARD("w", "[2,2,2]", "[0,1]", "4", "2"), NULL);

	job_files(j, 8, FILE_WITH(F32("w", 2, 2)));
	return j;
}

TEST(misplaced_shards_are_put_right)
{
	struct job *j = misplaced_job();

	job_plan(j);
	assert_note(j, "puts on the wrong ranks is on the right ones (w) "
		       "(--compat=mindspore does the same)");
	/* The first row: ranks 0 and 2 hold its halves. */
	assert_pieces(j, 0, rsh_plan_size(j->c, 0) - 128, 16,
		      "0@100+8 2@100+8");
	job_free(j);

	j = misplaced_job();
	job_plan_compat(j);
	assert_no_notes(j);
	assert_pieces(j, 0, rsh_plan_size(j->c, 0) - 128, 16,
		      "0@100+8 1@100+8");
	job_free(j);
}
