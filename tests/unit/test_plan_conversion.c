/* SPDX-License-Identifier: Apache-2.0 */
/* The records of virtual files: which, in which order, from which files. */
#include "plan_support.h"

/* ---- the order of records ---- */

/* Rows over 4 to rows over 8 loads ranks 3, 2, 1, 0. */
static void highest_rank_gives_the_order(void **state)
{
	struct job *j = job_new(LAYOUT("a", "[4]", "[0]") ","
				LAYOUT("b", "[4]", "[0]") ","
				LAYOUT("c", "[4]", "[0]"),
				LAYOUT("b", "[8]", "[0]") ","
				LAYOUT("a", "[8]", "[0]") ","
				LAYOUT("c", "[8]", "[0]"));

	(void)state;
	job_files(j, 3, FILE_WITH(F32("b", 2), F32("a", 2), I64_SCALAR("step"),
				  F32("c", 2), I64_SCALAR("epoch")));
	job_file(j, 3, FILE_WITH(I64_SCALAR("epoch"), F32("a", 2), F32("c", 2),
				 F32("b", 2)));
	job_plan(j);
	assert_int_equal(rsh_plan_n_files(j->c), 8);
	for (uint32_t r = 0; r < 8; r++)
		assert_records(j, r, "a[1] c[1] b[1] Int64*epoch[] "
				     "Int64*step[]");
	assert_string_equal(rsh_plan_name_suffix(j->c), "");
	job_free(j);
}

/* Replicas that are not loaded have no say: each rank has its own order. */
static void only_loaded_ranks_give_the_order(void **state)
{
	struct job *j = job_new(LAYOUT("a", "[2,2]", "[0]") ","
				LAYOUT("b", "[2,2]", "[0]"),
				LAYOUT("a", "[2]", "[0]") ","
				LAYOUT("b", "[2]", "[0]"));

	(void)state;
	job_file(j, 0, FILE_WITH(F32("b", 2), F32("a", 2)));
	job_file(j, 1, FILE_WITH(F32("a", 2), F32("b", 2)));
	job_plan(j);
	assert_records(j, 0, "b[2] a[2]");
	assert_records(j, 1, "a[2] b[2]");
	assert_sources(j, 0, "0");
	assert_sources(j, 1, "1");
	assert_no_notes(j);
	job_free(j);
}

/* No file has "gone": nothing tells the dimensions of its longer map, and it has
 * no say. */
static void unsaved_maps_of_other_lengths_load_nothing(void **state)
{
	struct job *j = job_new(LAYOUT("a", "[4]", "[0]") ","
				LAYOUT("b", "[4]", "[0]") ","
				LAYOUT("gone", "[2,2]", "[0,1]"),
				LAYOUT("a", "[2,2]", "[1]") ","
				LAYOUT("b", "[2,2]", "[1]") ","
				LAYOUT("gone", "[2,2]", "[1,0,-1]"));

	(void)state;
	job_files(j, 2, FILE_WITH(F32("b", 2), F32("a", 2)));
	for (uint32_t r = 2; r < 4; r++)
		job_file(j, r, FILE_WITH(F32("a", 2), F32("b", 2)));
	job_plan(j);
	assert_records(j, 0, "b[4] a[4]");
	assert_records(j, 3, "a[4] b[4]");
	job_free(j);
}

/* The files of the last stage are loaded first. */
static void last_stage_comes_first(void **state)
{
	struct job *j = job_new(LAYOUT("0-a", "[2]", "[0]") ","
				LAYOUT("1-b", "[2]", "[0]"),
				LAYOUT("a", "[2]", "[0]") ","
				LAYOUT("b", "[2]", "[0]"));

	(void)state;
	for (uint32_t r = 0; r < 2; r++)
		job_file(j, r, FILE_WITH(F32("a", 2), I64_SCALAR("first")));
	for (uint32_t r = 2; r < 4; r++)
		job_file(j, r, FILE_WITH(I64_SCALAR("last"), F32("b", 2)));
	job_plan(j);
	assert_int_equal(rsh_plan_n_files(j->c), 2);
	assert_records(j, 1, "b[2] a[2] Int64*last[] Int64*first[]");
	assert_sources(j, 0, "0 2");
	assert_sources(j, 1, "1 3");
	assert_content(j, 1, "a", "1@100+8");
	assert_content(j, 1, "b", "3@208+8");
	job_free(j);
}

/* ---- which records ---- */

/* A stage's files hold its own parameters, and what no strategy lists. */
static void other_stages_are_left_out(void **state)
{
	struct job *j = job_new(LAYOUT("a", "[2]", "[0]") ","
				LAYOUT("b", "[2]", "[0]"),
				LAYOUT("0-a", "[2]", "[0]") ","
				LAYOUT("1-b", "[2]", "[0]"));

	(void)state;
	job_files(j, 2, FILE_WITH(F32("a", 2), F32("b", 2),
				  I64_SCALAR("step")));
	job_plan(j);
	assert_int_equal(rsh_plan_n_files(j->c), 4);
	assert_records(j, 0, "a[2] Int64*step[]");
	assert_records(j, 3, "b[2] Int64*step[]");
	assert_sources(j, 3, "1");
	job_free(j);
}

/* What only one strategy lists is copied as the source's raw slice. */
static void listed_on_one_side_is_copied(void **state)
{
	struct job *j = job_new(LAYOUT("w", "[4]", "[0]") ","
				LAYOUT("adam", "[4]", "[0]"),
				LAYOUT("w", "[2]", "[0]") ","
				LAYOUT("extra", "[2]", "[0]"));

	(void)state;
	job_files(j, 4, FILE_WITH(F32("adam", 3), F32("extra", 5),
				  F32("w", 1)));
	job_plan(j);
	assert_records(j, 1, "w[2] *adam[3] *extra[5]");
	assert_content(j, 1, "adam", "1@100+12");
	assert_content(j, 1, "w", "2@332+4 3@332+4");
	assert_sources(j, 1, "1 2 3");
	job_free(j);
}

/* Parameters in no file: the job did not save them.  The one that has the same
 * layouts as a saved one tells nothing of dimensions. */
static void unsaved_parameters_are_left_out(void **state)
{
	struct job *j = job_new(LAYOUT("gone", "[2]", "[0]") ","
				LAYOUT("w", "[2]", "[0]") ","
				LAYOUT("lost", "[2]", "[-1]"), NULL);

	(void)state;
	job_files(j, 2, FILE_WITH(F32("w", 1)));
	job_plan(j);
	assert_records(j, 0, "w[2]");
	job_free(j);
}

static void no_source_strategy_reads_rank_0(void **state)
{
	struct job *j = job_new(NULL, LAYOUT("w", "[2]", "[0]"));

	(void)state;
	job_file(j, 0, FILE_WITH(I64_SCALAR("step"), F32("w", 4),
				 F32("unlisted", 2)));
	job_file(j, 1, FILE_WITH(F32("w", 400)));
	job_plan(j);
	assert_int_equal(rsh_plan_n_files(j->c), 2);
	assert_records(j, 1, "w[2] Int64*step[] *unlisted[2]");
	assert_sources(j, 1, "0");
	job_free(j);
}

static void no_destination_strategy_makes_one_file(void **state)
{
	struct job *j = job_new(LAYOUT("0-w", "[2]", "[0,-1]") ","
				LAYOUT("1-v", "[2]", "[-1]"), NULL);

	(void)state;
	for (uint32_t r = 0; r < 4; r++)
		job_file(j, r, r < 2 ?
			 FILE_WITH(F32("w", 2, 3), I64_SCALAR("step")) :
			 FILE_WITH(F32("v", 7)));
	job_plan(j);
	assert_int_equal(rsh_plan_n_files(j->c), 1);
	assert_records(j, 0, "v[7] w[4,3] Int64*step[]");
	assert_content(j, 0, "w", "0@100+24 1@100+24");
	assert_content(j, 0, "v", "2@100+28");
	job_free(j);
}

static void without_strategies_rank_0_is_shown(void **state)
{
	struct job *j = job_new(NULL, NULL);

	(void)state;
	job_file(j, 0, FILE_WITH(F32("w", 2), I64_SCALAR("step")));
	job_plan(j);
	assert_int_equal(rsh_plan_n_files(j->c), 1);
	assert_whole(j, 0, 0, "w step");
	assert_note(j, "neither side has a strategy");
	job_free(j);
}

/* ---- copied records ---- */

/* From the rank's own counterpart, counted modulo the source's ranks. */
static void copies_come_from_the_counterpart(void **state)
{
	struct job *j = job_new(LAYOUT("w", "[2]", "[0]"),
				LAYOUT("w", "[4]", "[0]"));

	(void)state;
	job_files(j, 2, FILE_WITH(F32("w", 2), I64_SCALAR("step")));
	job_plan(j);
	for (uint32_t r = 0; r < 4; r++)
		assert_content(j, r, "step", r % 2 ? "1@208+8" : "0@208+8");
	assert_no_notes(j);
	job_free(j);
}

static void copies_come_from_the_lowest_stage(void **state)
{
	struct job *j = job_new(LAYOUT("0-w", "[2]", "[0]") ","
				LAYOUT("1-v", "[2]", "[0]"),
				LAYOUT("w", "[2]", "[0]") ","
				LAYOUT("v", "[2]", "[0]"));

	(void)state;
	for (uint32_t r = 0; r < 4; r++)
		job_file(j, r, r < 2 ?
			 FILE_WITH(F32("w", 2), I64_SCALAR("step")) :
			 FILE_WITH(F32("v", 2), I64_SCALAR("step"),
				   I64_SCALAR("loss")));
	job_plan(j);
	assert_content(j, 1, "step", "1@208+8");
	assert_content(j, 1, "loss", "3@316+8");
	job_free(j);
}

/* The converter dies where its rank lacks the record; the lowest loaded rank
 * that has it steps in. */
static void missing_copies_come_from_elsewhere(void **state)
{
	struct job *j = job_new(LAYOUT("w", "[4]", "[0]"),
				LAYOUT("w", "[2]", "[0]"));

	(void)state;
	job_file(j, 0, FILE_WITH(F32("w", 1)));
	job_file(j, 1, FILE_WITH(F32("w", 1)));
	job_file(j, 2, FILE_WITH(F32("w", 1), I64_SCALAR("step")));
	job_file(j, 3, FILE_WITH(F32("w", 1), I64_SCALAR("step")));
	job_plan(j);
	assert_records(j, 0, "w[2] Int64*step[]");
	assert_content(j, 0, "step", "2@204+8");
	assert_sources(j, 0, "0 1 2");
	assert_note(j, "read from another rank (step)");
	job_free(j);
}

/* ---- parameters of several stages ---- */

/* Each slice comes from the lowest stage whose file holds it. */
static void lowest_stage_supplies_shared_slices(void **state)
{
	struct job *j = job_new(LAYOUT("0-emb", "[2]", "[0]") ","
				LAYOUT("1-emb", "[2]", "[0]"),
				LAYOUT("emb", "[1]", "[0]"));

	(void)state;
	job_file(j, 0, FILE_WITH(F32("emb", 2)));
	job_file(j, 1, FILE_WITH(I64_SCALAR("step")));
	job_file(j, 2, FILE_WITH(F32("emb", 2)));
	job_file(j, 3, FILE_WITH(F32("emb", 2)));
	job_plan(j);
	assert_content(j, 0, "emb", "0@100+8 3@100+8");
	assert_sources(j, 0, "0 1 3");
	job_free(j);
}

static const char shared_dst[] =
	LAYOUT("1-emb", "[2]", "[-1]") "," LAYOUT("0-emb", "[2]", "[0]") ","
	LAYOUT("2-emb", "[2]", "[0]");

static struct job *shared_job(void)
{
	struct job *j = job_new(LAYOUT("emb", "[1]", "[-1]"), shared_dst);

	job_file(j, 0, FILE_WITH(F32("emb", 4)));
	return j;
}

static void own_stages_layout_counts(void **state)
{
	struct job *j = shared_job();

	(void)state;
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

static void lone_stage_goes_by_stage(void **state)
{
	struct job *j = stage_job();
	uint32_t first, n;

	(void)state;
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

static void source_ranks_of_a_job(void **state)
{
	struct job *j = job_new_lone("1", LAYOUT("w", "[2,2]", "[0]"),
				     LAYOUT("w", "[4]", "[0]"));
	uint32_t first, n;

	(void)state;
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

static void misplaced_shards_are_put_right(void **state)
{
	struct job *j = misplaced_job();

	(void)state;
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

static void non_multiples_are_noted(void **state)
{
	struct job *j = job_new(LAYOUT("w", "[3]", "[0]"),
				LAYOUT("w", "[2]", "[0]"));

	(void)state;
	job_files(j, 3, FILE_WITH(F32("w", 2), I64_SCALAR("step")));
	job_plan(j);
	assert_note(j, "refuses these layouts");
	assert_content(j, 0, "w", "0@100+8 1@100+4");
	assert_content(j, 1, "w", "1@104+4 2@100+8");
	/* Copies come from the counterpart as in the cases it can do. */
	assert_content(j, 1, "step", "1@208+8");
	job_free(j);
}

static void dashes_are_noted(void **state)
{
	struct job *j = job_new(LAYOUT("0-net-w", "[2]", "[0]"), NULL);

	(void)state;
	job_files(j, 2, FILE_WITH(F32("net-w", 2), F32("a-copy", 2)));
	job_plan(j);
	assert_note(j, "names with '-' are kept; MindSpore's converter cannot "
		       "read them (net-w)");
	job_free(j);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(highest_rank_gives_the_order),
		cmocka_unit_test(only_loaded_ranks_give_the_order),
		cmocka_unit_test(unsaved_maps_of_other_lengths_load_nothing),
		cmocka_unit_test(last_stage_comes_first),
		cmocka_unit_test(other_stages_are_left_out),
		cmocka_unit_test(listed_on_one_side_is_copied),
		cmocka_unit_test(unsaved_parameters_are_left_out),
		cmocka_unit_test(no_source_strategy_reads_rank_0),
		cmocka_unit_test(no_destination_strategy_makes_one_file),
		cmocka_unit_test(without_strategies_rank_0_is_shown),
		cmocka_unit_test(copies_come_from_the_counterpart),
		cmocka_unit_test(copies_come_from_the_lowest_stage),
		cmocka_unit_test(missing_copies_come_from_elsewhere),
		cmocka_unit_test(lowest_stage_supplies_shared_slices),
		cmocka_unit_test(own_stages_layout_counts),
		cmocka_unit_test(lone_stage_goes_by_stage),
		cmocka_unit_test(source_ranks_of_a_job),
		cmocka_unit_test(misplaced_shards_are_put_right),
		cmocka_unit_test(non_multiples_are_noted),
		cmocka_unit_test(dashes_are_noted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
