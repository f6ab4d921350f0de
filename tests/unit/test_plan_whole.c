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

TEST(ranks_show_their_own_file)
{
	cleanup_job struct job *j = job_of(both, both);

	job_files(j, 4, trained);
	job_plan(j);
	for (uint32_t rank = 0; rank < 4; rank++)
		assert_whole(j, rank, rank, "step w bn m");
	assert_note(j, "files are shown unchanged");
}

/* Slices of the stage whose layout counts are lost; the other stage's file holds
 * nothing but its own, and is whole. */
TEST(own_layouts_are_no_loss)
{
	static const char shared[] = LAYOUT("0-w", "[1]", "[-1]") ","
				     LAYOUT("1-w", "[1]", "[0]");
	cleanup_job struct job *j = job_of(shared, shared);

	j->allow_missing = true;
	job_file(j, 1, FILE_WITH(F32("w", 4)));
	job_plan(j);
	assert_true(rsh_plan_is_lost(j->c, 0));
	assert_false(rsh_plan_is_lost(j->c, 1));
	assert_whole(j, 1, 1, "w");
}

TEST(compat_writes_them_anew)
{
	cleanup_job struct job *j = job_of(both, both);

	job_files(j, 4, trained);
	job_plan_compat(j);
	assert_records(j, 1, "w[4] m[4] Int64*step[] *bn[3]");
	assert_no_notes(j);
}

/* Axes of size 1, one axis as two, an expanded map, a shard that is a cut. */
TEST(other_drawings_mean_the_same)
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
	cleanup_job struct job *j = job_of(src, dst);

	job_files(j, 4, FILE_WITH(F32("x", 2), F32("w", 4)));
	job_plan(j);
	for (uint32_t rank = 0; rank < rsh_plan_n_files(j->c); rank++) {
		struct rsh_virtual_record r;

		rsh_plan_record(j->c, rank, 0, &r);
		assert_string_equal(r.shape.name, "w");
	}
}

TEST(other_cuts_do_not)
{
	const char *src = LAYOUT("w", "[2,2]", "[0]");

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
TEST(one_side_alone_lists_a_record)
{
	cleanup_job struct job *j = job_of(LAYOUT("w", "[2]", "[0]") ","
					   LAYOUT("adam_m.x", "[2]", "[0]"),
					   LAYOUT("w", "[2]", "[0]"));

	job_files(j, 2, FILE_WITH(F32("adam_m.x", 2), F32("w", 4)));
	job_plan(j);
	assert_records(j, 0, "w[4] *adam_m.x[2]");
}

/* Whichever side says so, and also if neither does. */
TEST(one_rank_is_no_strategy)
{
	static const char one[] = LAYOUT("w", "[1,1]", "[0]");
	static const char *const sides[][2] = {
		{ NULL, NULL }, { one, NULL }, { NULL, one }, { one, one },
	};

	for (size_t i = 0; i < 4; i++) {
		struct job *j = job_of(sides[i][0], sides[i][1]);

		job_file(j, 0, FILE_WITH(F32("x", 2), F32("w", 4)));
		job_plan(j);
		assert_whole(j, 0, 0, "x w");
		job_free(j);
	}
}

TEST(stages_may_share)
{
	static const char two[] =
		LAYOUT("0-e", "[2]", "[0]") "," LAYOUT("1-e", "[2]", "[-1]")
		"," LAYOUT("1-w", "[2]", "[0]");
	cleanup_job struct job *j = job_of(two, two);

	job_file(j, 0, FILE_WITH(F32("x", 1), F32("e", 2)));
	job_file(j, 1, FILE_WITH(F32("x", 1), F32("e", 2)));
	job_file(j, 2, FILE_WITH(F32("w", 1), F32("e", 4)));
	job_file(j, 3, FILE_WITH(F32("w", 1), F32("e", 4)));
	job_plan(j);
	assert_whole(j, 0, 0, "x e");
	assert_whole(j, 3, 3, "w e");
}

/* The destination wants e on both stages. */
TEST(stages_may_be_others)
{
	cleanup_job struct job *j = job_of(LAYOUT("0-e", "[1]", "[0]") ","
					   LAYOUT("1-w", "[1]", "[0]"),
					   LAYOUT("0-e", "[1]", "[0]") ","
					   LAYOUT("1-e", "[1]", "[0]") ","
					   LAYOUT("1-w", "[1]", "[0]"));

	job_file(j, 0, FILE_WITH(F32("x", 1), F32("e", 2)));
	job_file(j, 1, FILE_WITH(F32("x", 1), F32("w", 2)));
	job_plan(j);
	assert_records(j, 0, "e[2] *x[1]");
	assert_content(j, 1, "e", "0@204+8");
}

TEST(chunks_and_odd_records_stay)
{
	static const uint64_t odd[] = { 3, 5, 0 };
	cleanup_job struct job *j = job_of(LAYOUT("w", "[1]", "[0]"), NULL);

	job_file(j, 0, FILE_WITH({ .name = "b", .dtype = RSH_DTYPE_BFLOAT16,
				   DIMS_OF(3), .wide = true },
				 F32("none", 0),
				 { .name = "w", .dtype = RSH_DTYPE_FLOAT32,
				   DIMS_OF(2), .chunks = odd },
				 { .name = "note", .dtype = RSH_DTYPE_STR,
				   DIMS_OF(0), .bytes = 8 }));
	job_plan(j);
	assert_whole(j, 0, 0, "b none w note");
}

TEST(safetensors_keep_their_header)
{
	cleanup_job struct job *j = job_of(both, both);

	j->format = j->src_format = RSH_FILE_SAFETENSORS;
	job_files(j, 4, trained);
	job_plan(j);
	assert_whole(j, 2, 2, "step w bn m");
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
TEST(nothing_has_a_place)
{
	cleanup_job struct job *j = job_of(LAYOUT("w", "[1]", "[-1]"),
					   LAYOUT("w", "[1]", "[-1]"));
	uint64_t begin;

	j->format = j->src_format = RSH_FILE_SAFETENSORS;
	job_file(j, 0, FILE_WITH(F32("none", 0), F32("w", 4), F32("x", 0)));
	begin = j->index[0]->file_bytes - 16;
	job_plan(j);
	assert_whole(j, 0, 0, "none w x");
	assert_place(j, 0, begin, 0);
	assert_place(j, 1, begin, 16);
	assert_place(j, 2, begin + 16, 0);
}

TEST(parts_of_a_model_are_no_file)
{
	cleanup_job struct job *j = job_of(NULL, NULL);

	j->format = j->src_format = RSH_FILE_SAFETENSORS;
	j->joined = true;
	job_file(j, 0, FILE_WITH(F32("w", 4)));
	job_plan(j);
	assert_pieces(j, 0, 0, 3, "h3");
}

/* ---- files that are missing ---- */

TEST(lost_ranks_are_replicas)
{
	cleanup_job struct job *j = job_of(both, both);

	for (uint32_t rank = 1; rank < 4; rank++)
		job_file(j, rank, trained);
	job_plan(j);
	assert_whole(j, 0, 2, "step w bn m");
	assert_whole(j, 2, 2, "step w bn m");
	assert_note(j, "files are shown unchanged");
	assert_note(j, "ranks without a valid file");
}

/* No rank has what rank 0 has: each record comes from one that has it. */
TEST(lost_ranks_may_be_put_together)
{
	static const char apart[] = LAYOUT("w", "[2,2]", "[0]") ","
				    LAYOUT("m", "[2,2]", "[1]");
	cleanup_job struct job *j = job_of(apart, apart);

	for (uint32_t rank = 1; rank < 4; rank++)
		job_file(j, rank, trained);
	job_plan(j);
	assert_records(j, 0, "w[4] m[4] Int64*step[] *bn[3]");
	assert_content(j, 0, "w", "2@208+16");
	assert_content(j, 0, "m", "1@436+16");
	assert_whole(j, 1, 1, "step w bn m");
}

/* What a rank left to another one is had from there. */
TEST(without_redundancy_it_is_completed)
{
	cleanup_job struct job *j = job_of(both, both);

	job_file(j, 0, FILE_WITH(F32("x", 1), F32("m", 4)));
	job_file(j, 1, FILE_WITH(F32("x", 1), F32("m", 4), F32("w", 4)));
	job_file(j, 2, FILE_WITH(F32("x", 1), F32("w", 4)));
	job_file(j, 3, FILE_WITH(F32("x", 1), F32("m", 4), F32("w", 4)));
	job_plan(j);
	assert_content(j, 0, "w", "2@204+16");
	assert_content(j, 0, "m", "0@204+16");
	assert_whole(j, 1, 1, "x m w");
}

TEST(strategies_of_another_model_are_refused)
{
	static const char other[] = LAYOUT("v", "[2,2]", "[0]");
	struct job *j = job_of(other, other);

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

TEST(a_failing_file_is_its_replica)
{
	cleanup_job struct job *j = job_of(both, both);
	atomic_bool avoid[MAX_FILES] = { true };
	char text[128];

	job_files(j, 4, trained);
	job_plan(j);
	put_source(j, avoid, 5, 20, text, sizeof(text));
	assert_string_equal(text, "2@5+20 ");
	/* Nobody else has all of it, and what stands between the records of
	 * these files is no header that could be written anew. */
	avoid[2] = true;
	put_source(j, avoid, 208, 16, text, sizeof(text));
	assert_string_equal(text, "");
}

/* Another order of records, although the slices are the same. */
TEST(replicas_have_the_same_places)
{
	cleanup_job struct job *j = job_of(both, both);
	atomic_bool avoid[MAX_FILES] = { true };
	char text[128];

	job_file(j, 0, trained);
	job_file(j, 1, trained);
	job_file(j, 2, FILE_WITH(F32("m", 4), F32("w", 4), F32("bn", 3),
				 I64_SCALAR("step")));
	job_file(j, 3, trained);
	job_plan(j);
	put_source(j, avoid, 0, 4, text, sizeof(text));
	assert_string_equal(text, "");
}
