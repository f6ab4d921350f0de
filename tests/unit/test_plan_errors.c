/* SPDX-License-Identifier: Apache-2.0 */
/* Every sentence with which a plan is refused, on jobs that just miss being
 * right. */
#include "plan_support.h"

static const char w_src[] = LAYOUT("w", "[2]", "[0]");
static const char w_dst[] = LAYOUT("w", "[4]", "[0]");

/* ---- files and records that are missing ---- */

TEST(needed_rank_is_missing)
{
	struct job *j = job_new(w_src, w_dst);

	job_file(j, 0, FILE_WITH(F32("w", 2)));
	job_refused(j, -ENOENT,
		    "rank 1 has no valid checkpoint file, but rank 2 needs "
		    "its slice of parameter w (from mesh [2] map [0] "
		    "to mesh [4] map [0])");
}

TEST(unneeded_rank_may_be_missing)
{
	cleanup_job struct job *j = job_new(LAYOUT("w", "[2,2]", "[0]"),
					    LAYOUT("w", "[2]", "[0]"));

	job_file(j, 0, FILE_WITH(F32("w", 2)));
	job_file(j, 1, FILE_WITH(F32("w", 2)));
	job_plan(j);
	assert_records(j, 1, "w[2]");
}

TEST(needed_slice_is_missing)
{
	struct job *j = job_new(w_src, NULL);

	job_file(j, 0, FILE_WITH(F32("w", 2)));
	job_file(j, 1, FILE_WITH(I64_SCALAR("step")));
	job_refused(j, -ENOENT,
		    "rank_1.ckpt: the file is valid, but lacks parameter w, of "
		    "which rank 0 needs its slice (from mesh [2] map "
		    "[0] to unsharded)");
}

/* The file that is missing is that of the parameter's own stage. */
TEST(needed_rank_of_a_stage_is_missing)
{
	struct job *j = job_new(LAYOUT("0-w", "[2]", "[0]") ","
				LAYOUT("1-v", "[2]", "[0]"), NULL);

	job_file(j, 0, FILE_WITH(F32("w", 2)));
	job_file(j, 1, FILE_WITH(F32("w", 2)));
	job_file(j, 2, FILE_WITH(F32("v", 2)));
	job_refused(j, -ENOENT,
		    "rank 3 has no valid checkpoint file, but rank 0 needs "
		    "its slice of parameter v (from mesh [2] map [0] to unsharded)");
}

TEST(whole_stage_is_missing)
{
	struct job *j = job_new(LAYOUT("0-w", "[2]", "[0]") ","
				LAYOUT("1-v", "[2]", "[0]"), NULL);

	job_file(j, 0, FILE_WITH(F32("w", 2)));
	job_file(j, 1, FILE_WITH(F32("w", 2)));
	job_refused(j, -ENOENT,
		    "ranks 2 to 3 have no valid checkpoint file, but parameter v is "
		    "needed from them");
}

/* The only file that a rank would load. */
TEST(only_needed_rank_is_missing)
{
	struct job *j = job_new(LAYOUT("w", "[2,2]", "[0]"),
				LAYOUT("w", "[2]", "[0]"));

	job_file(j, 1, FILE_WITH(F32("w", 2)));
	job_file(j, 2, FILE_WITH(F32("w", 2)));
	job_file(j, 3, FILE_WITH(F32("w", 2)));
	job_refused(j, -ENOENT,
		    "rank 0 has no valid checkpoint file, but rank 0 needs "
		    "its slice of parameter w (from mesh [2,2] map [0] "
		    "to mesh [2] map [0])");
}

TEST(nothing_in_common)
{
	struct job *j = job_new(w_src, LAYOUT("x", "[4]", "[0]"));

	job_files(j, 2, FILE_WITH(F32("w", 2)));
	job_refused(j, -EINVAL,
		    "rank 0: no parameter of the source files is listed by "
		    "src.json and dst.json");

	j = job_new(w_src, NULL);
	job_files(j, 2, FILE_WITH(F32("x", 2)));
	job_refused(j, -EINVAL,
		    "rank 0: no parameter of the source files is listed by "
		    "src.json");

	j = job_new(NULL, w_dst);
	job_file(j, 0, FILE_WITH(F32("x", 2)));
	job_refused(j, -EINVAL,
		    "rank 0: no parameter of the source files is listed by "
		    "dst.json");
}

/* ---- slices that contradict one another ---- */

TEST(types_differ)
{
	struct job *j = job_new(w_src, w_dst);

	job_file(j, 0, FILE_WITH(F32("w", 2)));
	job_file(j, 1, FILE_WITH(BF16("w", 2)));
	job_refused(j, -EINVAL,
		    "rank_1.ckpt: parameter w is BFloat16, but in rank_0.ckpt "
		    "it is Float32");

	j = job_new(w_src, w_dst);
	job_file(j, 0, FILE_WITH({ .name = "w", .dtype = RSH_DTYPE_BFLOAT16,
				   DIMS_OF(2), .wide = true }));
	job_file(j, 1, FILE_WITH(BF16("w", 2)));
	job_refused(j, -EINVAL,
		    "rank_1.ckpt: parameter w is BFloat16, but in rank_0.ckpt "
		    "it is BFloat16 of 4 bytes");
}

TEST(shapes_differ)
{
	struct job *j = job_new(LAYOUT("w", "[2]", "[0,-1]"), NULL);

	job_file(j, 0, FILE_WITH(F32("w", 2, 3)));
	job_file(j, 1, FILE_WITH(F32("w", 3, 2)));
	job_refused(j, -EINVAL,
		    "rank_1.ckpt: parameter w has shape [3,2], but in "
		    "rank_0.ckpt it is [2,3]; with mesh [2] map [0,-1] "
		    "(src.json) all slices are equal");

	j = job_new(w_src, NULL);
	job_file(j, 0, FILE_WITH(F32("w", 2)));
	job_file(j, 1, FILE_WITH(F32("w", 2, 1)));
	job_refused(j, -EINVAL,
		    "rank_1.ckpt: parameter w has shape [2,1], but in "
		    "rank_0.ckpt it is [2]; with mesh [2] map [0] (src.json) "
		    "all slices are equal");
}

TEST(strings_cannot_be_resharded)
{
	struct job *j = job_new(w_src, w_dst);

	job_files(j, 2, FILE_WITH({ .name = "w", .dtype = RSH_DTYPE_STR,
				    DIMS_OF(0), .bytes = 8 }));
	job_refused(j, -EINVAL,
		    "rank_0.ckpt: parameter w is a string, but both strategies "
		    "list it as a tensor");
}

/* ---- layouts that do not fit ---- */

TEST(map_does_not_fit_the_slice)
{
	struct job *j = job_new(w_src, w_dst);

	job_files(j, 2, FILE_WITH(F32("w", 2, 3)));
	job_refused(j, -EINVAL,
		    "rank_0.ckpt: parameter w of shape [2,3] cannot go from "
		    "mesh [2] map [0] (src.json) to mesh [4] map [0] "
		    "(dst.json): its tensor map has 1 dimensions, the tensor "
		    "has 2");
}

TEST(destination_does_not_divide)
{
	struct job *j = job_new(NULL, LAYOUT("w", "[2,2]", "[1]"));

	job_file(j, 0, FILE_WITH(F32("w", 3)));
	job_refused(j, -EINVAL,
		    "rank_0.ckpt: parameter w of shape [3] cannot go from "
		    "unsharded to mesh [2,2] map [1] (dst.json): dimension 0 "
		    "of size 3 cannot be cut into 2 equal slices");
}

TEST(shape_is_another)
{
	struct job *j = job_new(SHAPED("w", "[2]", "[0]", "[8]"), w_dst);

	job_files(j, 2, FILE_WITH(F32("w", 2)));
	job_refused(j, -EINVAL,
		    "rank_0.ckpt: parameter w of shape [2] cannot go from mesh "
		    "[2] map [0] (src.json) to mesh [4] map [0] (dst.json): "
		    "dimension 0 of the whole tensor is 4, its strategy says "
		    "8");
}

/* An expanded map is folded with the shape that the destination tells; the
 * slice still has to be one of that shape.  2^62 rows times 2 would wrap. */
TEST(folded_slice_is_another)
{
	static const char src[] =
		SHAPED("w", "[2,4]", "[1,0,-1]", "[2,8,10]");
	static const char dst[] = SHAPED("w", "[8]", "[0,-1]", "[16,10]");
	struct job *j = job_new(src, dst);

	job_files(j, 8, FILE_WITH(F32("w", 2, 10)));
	job_plan_compat(j);
	assert_records(j, 7, "w[2,10]");
	job_free(j);

	j = job_new(src, dst);
	job_files(j, 8, FILE_WITH(F32("w", 4, 10)));
	job_refused(j, -EINVAL,
		    "rank_0.ckpt: parameter w of shape [4,10] cannot go from "
		    "mesh [2,4] map [1,0,-1] (src.json) to mesh [8] map [0,-1] "
		    "(dst.json): dimension 0 of the whole tensor is 16 in the "
		    "destination");

	j = job_new(src, dst);
	job_files(j, 8, FILE_WITH(F32("w", INT64_C(1) << 62, 0)));
	job_refused(j, -EINVAL,
		    "rank_0.ckpt: parameter w of shape [4611686018427387904,0] "
		    "cannot go from mesh [2,4] map [1,0,-1] (src.json) to mesh "
		    "[8] map [0,-1] (dst.json): dimension 0 of the whole tensor "
		    "is 16 in the destination");
}

/* ---- sizes out of range ---- */

TEST(whole_tensor_is_too_large)
{
	struct job *j = job_new(LAYOUT("w", "[2,2]", "[1,0]"), NULL);

	job_files(j, 4, FILE_WITH({ .name = "w", .dtype = RSH_DTYPE_INT8,
				    DIMS_OF(INT64_C(1) << 31,
					    INT64_C(1) << 31) }));
	job_refused(j, -EINVAL,
		    "rank_0.ckpt: parameter w of shape [2147483648,2147483648] "
		    "cannot go from mesh [2,2] map [1,0] (src.json) to "
		    "unsharded: its slice is too large");
}

TEST(file_is_too_large)
{
	struct job *j = job_new(LAYOUT("w", "[2]", "[0]"), NULL);

	job_files(j, 2, FILE_WITH({ .name = "w", .dtype = RSH_DTYPE_INT8,
				    DIMS_OF(INT64_C(1) << 60) },
				  { .name = "u", .dtype = RSH_DTYPE_INT8,
				    DIMS_OF(INT64_C(1) << 62) },
				  { .name = "v", .dtype = RSH_DTYPE_INT8,
				    DIMS_OF(INT64_C(1) << 61) }));
	job_refused(j, -EFBIG,
		    "parameter v makes the file of a rank too large");
}

/* ---- chunks ---- */

/* A codec cannot begin in the middle of an element, whichever file it is in. */
TEST(chunk_ends_within_an_element)
{
	static const uint64_t odd[] = { 6, 2, 8, 0 };
	const struct tensor whole[] = {
		{ .name = "w", .dtype = RSH_DTYPE_BFLOAT16, DIMS_OF(4),
		  .wide = true },
		{ .name = NULL },
	};
	const struct tensor cut[] = {
		{ .name = "w", .dtype = RSH_DTYPE_BFLOAT16, DIMS_OF(4),
		  .wide = true, .chunks = odd },
		{ .name = NULL },
	};
	struct job *j = job_new(w_src, w_dst);

	job_file(j, 0, cut);
	job_file(j, 1, whole);
	job_refused(j, -EINVAL,
		    "rank_0.ckpt: parameter w: a chunk at offset 100 ends "
		    "within an element");

	j = job_new(w_src, w_dst);
	job_file(j, 0, whole);
	job_file(j, 1, cut);
	job_refused(j, -EINVAL,
		    "rank_1.ckpt: parameter w: a chunk at offset 100 ends "
		    "within an element");

	j = job_new(LAYOUT("v", "[2]", "[0]"), NULL);
	job_files(j, 2, FILE_WITH(F32("v", 2), cut[0]));
	job_refused(j, -EINVAL,
		    "rank_0.ckpt: parameter w: a chunk at offset 208 ends "
		    "within an element");
}

/* Bytes that are only moved may be cut anywhere. */
TEST(moved_elements_may_be_cut)
{
	static const uint64_t odd[] = { 3, 5, 0 };
	cleanup_job struct job *j = job_new(w_src, NULL);

	job_files(j, 2, FILE_WITH({ .name = "w", .dtype = RSH_DTYPE_FLOAT32,
				    DIMS_OF(2), .chunks = odd }));
	job_plan(j);
	assert_content(j, 0, "w", "0@100+3 0@203+5 1@100+3 1@203+5");
}
