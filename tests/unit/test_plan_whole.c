/* SPDX-License-Identifier: Apache-2.0 */
/* Virtual files that are a source file, byte for byte. */
#include "plan_support.h"

/* Two parameters of two halves each, of which ranks 0 and 2, 1 and 3 hold the
 * same. */
static const char both[] = LAYOUT("w", "[2,2]", "[0]") ","
			   LAYOUT("m", "[2,2]", "[0]");

static struct job *job_of(const char *src, const char *dst)
{
	struct job *j = job_new(src, dst);

	j->replicas = true;
	return j;
}

/* What no strategy lists stands between what one does. */
static const struct tensor trained[] = {
	I64_SCALAR("step"), F32("w", 4), F32("bn", 3), F32("m", 4),
	{ .name = NULL },
};

static void ranks_show_their_own_file(void **state)
{
	struct job *j = job_of(both, both);

	(void)state;
	job_files(j, 4, trained);
	job_plan(j);
	for (uint32_t rank = 0; rank < 4; rank++)
		assert_whole(j, rank, rank, "step w bn m");
	assert_note(j, "files are shown unchanged");
	job_free(j);
}

/* Slices of the stage whose layout counts are lost; the other stage's file holds
 * nothing but its own, and is whole. */
static void own_layouts_are_no_loss(void **state)
{
	static const char shared[] = LAYOUT("0-w", "[1]", "[-1]") ","
				     LAYOUT("1-w", "[1]", "[0]");
	struct job *j = job_of(shared, shared);

	(void)state;
	j->allow_missing = true;
	job_file(j, 1, FILE_WITH(F32("w", 4)));
	job_plan(j);
	assert_true(rsh_plan_is_lost(j->c, 0));
	assert_false(rsh_plan_is_lost(j->c, 1));
	assert_whole(j, 1, 1, "w");
	job_free(j);
}

static void compat_writes_them_anew(void **state)
{
	struct job *j = job_of(both, both);

	(void)state;
	job_files(j, 4, trained);
	job_plan_compat(j);
	assert_records(j, 1, "w[4] m[4] Int64*step[] *bn[3]");
	assert_no_notes(j);
	job_free(j);
}

/* Axes of size 1, one axis as two, an expanded map, a shard that is a cut. */
static void other_drawings_mean_the_same(void **state)
{
	static const char *const drawings[][2] = {
		{ LAYOUT("w", "[2,2]", "[0]"), LAYOUT("w", "[2,1,2]", "[0]") },
		{ LAYOUT("w", "[4,2]", "[0]"), LAYOUT("w", "[2,2,2]", "[0]") },
		{ LAYOUT("w", "[4]", "[0]"),
		  SHAPED("w", "[2,2]", "[1,0]", "[2,8]") },
		{ SHAPED("w", "[2,2]", "[1,0]", "[2,8]"),
		  LAYOUT("w", "[4]", "[0]") },
		{ SHARD("w", "[4]", "[-1]", "1", "-1"),
		  LAYOUT("w", "[4]", "[0]") },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(drawings) / sizeof(drawings[0]); i++) {
		struct job *j = job_of(drawings[i][0], drawings[i][1]);

		job_files(j, i == 1 ? 8 : 4, FILE_WITH(F32("x", 2),
						       F32("w", 4)));
		job_plan(j);
		assert_whole(j, 3, 3, "x w");
		job_free(j);
	}
}

static void assert_planned(const char *src, const char *dst)
{
	struct job *j = job_of(src, dst);

	job_files(j, 4, FILE_WITH(F32("x", 2), F32("w", 4)));
	job_plan(j);
	for (uint32_t rank = 0; rank < rsh_plan_n_files(j->c); rank++) {
		struct rsh_virtual_record r;

		rsh_plan_record(j->c, rank, 0, &r);
		assert_string_equal(r.shape.name, "w");
	}
	job_free(j);
}

static void other_cuts_do_not(void **state)
{
	const char *src = LAYOUT("w", "[2,2]", "[0]");

	(void)state;
	/* The same slices on other ranks, other slices, other ranks. */
	assert_planned(src, LAYOUT("w", "[2,2]", "[1]"));
	assert_planned(src, LAYOUT("w", "[2,2]", "[-1]"));
	assert_planned(src, LAYOUT("w", "[2]", "[0]"));
	assert_planned(src, LAYOUT("w", "[2,2,2]", "[0]"));
	assert_planned(src, NULL);
	/* To the converter the source is a part of a larger network. */
	assert_planned(src, LAYOUT("w", "[2,2]", "[0]") ","
			    LAYOUT("v", "[4]", "[0]"));
}

/* Nobody knows how the other side cuts it. */
static void one_side_alone_lists_a_record(void **state)
{
	struct job *j = job_of(LAYOUT("w", "[2]", "[0]") ","
			       LAYOUT("adam_m.x", "[2]", "[0]"),
			       LAYOUT("w", "[2]", "[0]"));

	(void)state;
	job_files(j, 2, FILE_WITH(F32("adam_m.x", 2), F32("w", 4)));
	job_plan(j);
	assert_records(j, 0, "w[4] *adam_m.x[2]");
	job_free(j);
}

/* Whichever side says so, and also if neither does. */
static void one_rank_is_no_strategy(void **state)
{
	static const char one[] = LAYOUT("w", "[1,1]", "[0]");
	static const char *const sides[][2] = {
		{ NULL, NULL }, { one, NULL }, { NULL, one }, { one, one },
	};

	(void)state;
	for (size_t i = 0; i < 4; i++) {
		struct job *j = job_of(sides[i][0], sides[i][1]);

		job_file(j, 0, FILE_WITH(F32("x", 2), F32("w", 4)));
		job_plan(j);
		assert_whole(j, 0, 0, "x w");
		job_free(j);
	}
}

static void stages_may_share(void **state)
{
	static const char two[] =
		LAYOUT("0-e", "[2]", "[0]") "," LAYOUT("1-e", "[2]", "[-1]")
		"," LAYOUT("1-w", "[2]", "[0]");
	struct job *j = job_of(two, two);

	(void)state;
	job_file(j, 0, FILE_WITH(F32("x", 1), F32("e", 2)));
	job_file(j, 1, FILE_WITH(F32("x", 1), F32("e", 2)));
	job_file(j, 2, FILE_WITH(F32("w", 1), F32("e", 4)));
	job_file(j, 3, FILE_WITH(F32("w", 1), F32("e", 4)));
	job_plan(j);
	assert_whole(j, 0, 0, "x e");
	assert_whole(j, 3, 3, "w e");
	job_free(j);
}

/* The destination wants e on both stages. */
static void stages_may_be_others(void **state)
{
	struct job *j = job_of(LAYOUT("0-e", "[1]", "[0]") ","
			       LAYOUT("1-w", "[1]", "[0]"),
			       LAYOUT("0-e", "[1]", "[0]") ","
			       LAYOUT("1-e", "[1]", "[0]") ","
			       LAYOUT("1-w", "[1]", "[0]"));

	(void)state;
	job_file(j, 0, FILE_WITH(F32("x", 1), F32("e", 2)));
	job_file(j, 1, FILE_WITH(F32("x", 1), F32("w", 2)));
	job_plan(j);
	assert_records(j, 0, "e[2] *x[1]");
	assert_content(j, 1, "e", "0@204+8");
	job_free(j);
}

static void chunks_and_odd_records_stay(void **state)
{
	static const uint64_t odd[] = { 3, 5, 0 };
	struct job *j = job_of(LAYOUT("w", "[1]", "[0]"), NULL);

	(void)state;
	job_file(j, 0, FILE_WITH({ .name = "b", .dtype = RSH_DTYPE_BFLOAT16,
				   DIMS_OF(3), .wide = true },
				 F32("none", 0),
				 { .name = "w", .dtype = RSH_DTYPE_FLOAT32,
				   DIMS_OF(2), .chunks = odd },
				 { .name = "note", .dtype = RSH_DTYPE_STR,
				   DIMS_OF(0), .bytes = 8 }));
	job_plan(j);
	assert_whole(j, 0, 0, "b none w note");
	job_free(j);
}

static void safetensors_keep_their_header(void **state)
{
	struct job *j = job_of(both, both);

	(void)state;
	j->format = j->src_format = RSH_FILE_SAFETENSORS;
	job_files(j, 4, trained);
	job_plan(j);
	assert_whole(j, 2, 2, "step w bn m");
	job_free(j);
}

static void assert_place(const struct job *j, uint32_t i, uint64_t offset,
			 uint64_t bytes)
{
	struct rsh_virtual_record r;

	rsh_plan_record(j->c, 0, i, &r);
	assert_int_equal(r.offset, offset);
	assert_int_equal(r.total_bytes, bytes);
}

/* A tensor without elements is behind the header, as the others are. */
static void nothing_has_a_place(void **state)
{
	struct job *j = job_of(LAYOUT("w", "[1]", "[-1]"),
			       LAYOUT("w", "[1]", "[-1]"));
	uint64_t begin;

	(void)state;
	j->format = j->src_format = RSH_FILE_SAFETENSORS;
	job_file(j, 0, FILE_WITH(F32("none", 0), F32("w", 4), F32("x", 0)));
	begin = j->index[0]->file_bytes - 16;
	job_plan(j);
	assert_whole(j, 0, 0, "none w x");
	assert_place(j, 0, begin, 0);
	assert_place(j, 1, begin, 16);
	assert_place(j, 2, begin + 16, 0);
	job_free(j);
}

static void parts_of_a_model_are_no_file(void **state)
{
	struct job *j = job_of(NULL, NULL);

	(void)state;
	j->format = j->src_format = RSH_FILE_SAFETENSORS;
	j->joined = true;
	job_file(j, 0, FILE_WITH(F32("w", 4)));
	job_plan(j);
	assert_pieces(j, 0, 0, 3, "h3");
	job_free(j);
}

/* ---- files that are missing ---- */

static void lost_ranks_are_replicas(void **state)
{
	struct job *j = job_of(both, both);

	(void)state;
	for (uint32_t rank = 1; rank < 4; rank++)
		job_file(j, rank, trained);
	job_plan(j);
	assert_whole(j, 0, 2, "step w bn m");
	assert_whole(j, 2, 2, "step w bn m");
	assert_note(j, "files are shown unchanged");
	assert_note(j, "ranks without a valid file");
	job_free(j);
}

/* No rank has what rank 0 has: each record comes from one that has it. */
static void lost_ranks_may_be_put_together(void **state)
{
	static const char apart[] = LAYOUT("w", "[2,2]", "[0]") ","
				    LAYOUT("m", "[2,2]", "[1]");
	struct job *j = job_of(apart, apart);

	(void)state;
	for (uint32_t rank = 1; rank < 4; rank++)
		job_file(j, rank, trained);
	job_plan(j);
	assert_records(j, 0, "w[4] m[4] Int64*step[] *bn[3]");
	assert_content(j, 0, "w", "2@208+16");
	assert_content(j, 0, "m", "1@436+16");
	assert_whole(j, 1, 1, "step w bn m");
	job_free(j);
}

/* What a rank left to another one is had from there. */
static void without_redundancy_it_is_completed(void **state)
{
	struct job *j = job_of(both, both);

	(void)state;
	job_file(j, 0, FILE_WITH(F32("x", 1), F32("m", 4)));
	job_file(j, 1, FILE_WITH(F32("x", 1), F32("m", 4), F32("w", 4)));
	job_file(j, 2, FILE_WITH(F32("x", 1), F32("w", 4)));
	job_file(j, 3, FILE_WITH(F32("x", 1), F32("m", 4), F32("w", 4)));
	job_plan(j);
	assert_content(j, 0, "w", "2@204+16");
	assert_content(j, 0, "m", "0@204+16");
	assert_whole(j, 1, 1, "x m w");
	job_free(j);
}

static void strategies_of_another_model_are_refused(void **state)
{
	static const char other[] = LAYOUT("v", "[2,2]", "[0]");
	struct job *j = job_of(other, other);

	(void)state;
	job_files(j, 4, trained);
	job_refused(j, -EINVAL, "rank 0: no parameter of the source files is "
				"listed by src.json and dst.json");
}

/* ---- files that cannot be read any more ---- */

static void put_source(const struct job *j, const atomic_bool *avoid,
		       uint64_t offset, uint64_t length, char *text,
		       size_t size)
{
	struct rsh_piece_iter *it =
		rsh_piece_iter_new(j->c, 0, offset, length, avoid);
	struct rsh_piece p;
	size_t at = 0;

	text[0] = '\0';
	assert_non_null(it);
	while (rsh_piece_iter_next(it, &p))
		at += (size_t)snprintf(text + at, size - at, "%u@%d+%d ",
				       p.src_rank, (int)p.src_offset,
				       (int)p.length);
	rsh_piece_iter_free(it);
}

static void a_failing_file_is_its_replica(void **state)
{
	struct job *j = job_of(both, both);
	atomic_bool avoid[MAX_FILES] = { true };
	char text[128];

	(void)state;
	job_files(j, 4, trained);
	job_plan(j);
	put_source(j, avoid, 5, 20, text, sizeof(text));
	assert_string_equal(text, "2@5+20 ");
	/* Nobody else has all of it, and what stands between the records of
	 * these files is no header that could be written anew. */
	avoid[2] = true;
	put_source(j, avoid, 208, 16, text, sizeof(text));
	assert_string_equal(text, "");
	job_free(j);
}

/* Another order of records, although the slices are the same. */
static void replicas_have_the_same_places(void **state)
{
	struct job *j = job_of(both, both);
	atomic_bool avoid[MAX_FILES] = { true };
	char text[128];

	(void)state;
	job_file(j, 0, trained);
	job_file(j, 1, trained);
	job_file(j, 2, FILE_WITH(F32("m", 4), F32("w", 4), F32("bn", 3),
				 I64_SCALAR("step")));
	job_file(j, 3, trained);
	job_plan(j);
	put_source(j, avoid, 0, 4, text, sizeof(text));
	assert_string_equal(text, "");
	job_free(j);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ranks_show_their_own_file),
		cmocka_unit_test(own_layouts_are_no_loss),
		cmocka_unit_test(compat_writes_them_anew),
		cmocka_unit_test(other_drawings_mean_the_same),
		cmocka_unit_test(other_cuts_do_not),
		cmocka_unit_test(one_side_alone_lists_a_record),
		cmocka_unit_test(one_rank_is_no_strategy),
		cmocka_unit_test(stages_may_share),
		cmocka_unit_test(stages_may_be_others),
		cmocka_unit_test(chunks_and_odd_records_stay),
		cmocka_unit_test(safetensors_keep_their_header),
		cmocka_unit_test(nothing_has_a_place),
		cmocka_unit_test(parts_of_a_model_are_no_file),
		cmocka_unit_test(lost_ranks_are_replicas),
		cmocka_unit_test(lost_ranks_may_be_put_together),
		cmocka_unit_test(without_redundancy_it_is_completed),
		cmocka_unit_test(strategies_of_another_model_are_refused),
		cmocka_unit_test(a_failing_file_is_its_replica),
		cmocka_unit_test(replicas_have_the_same_places),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
