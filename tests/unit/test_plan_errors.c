/* SPDX-License-Identifier: Apache-2.0 */
/* Every sentence with which a plan is refused, on jobs that just miss being
 * right. */
#include "plan_support.h"

#define ROWS_2 LAYOUT("w", "[2]", "[0]")
#define ROWS_4 LAYOUT("w", "[4]", "[0]")
#define TWO_STAGES LAYOUT("0-w", "[2]", "[0]") "," LAYOUT("1-v", "[2]", "[0]")
#define WIDE_OF(n) \
	.name = "w", .dtype = RSH_DTYPE_BFLOAT16, DIMS_OF(n), .wide = true
#define WIDE(n) { WIDE_OF(n) }
#define INT8(n, ...) \
	{ .name = (n), .dtype = RSH_DTYPE_INT8, DIMS_OF(__VA_ARGS__) }
#define POWER(n) (INT64_C(1) << (n))
/* A codec cannot begin in the middle of an element, whichever file it is in. */
#define CHUNKED { WIDE_OF(4), .chunks = (const uint64_t[]){ 6, 2, 8, 0 } }
/* An expanded map is folded with the shape that the destination tells; the
 * slice still has to be one of that shape. */
#define EXPANDED SHAPED("w", "[2,4]", "[1,0,-1]", "[2,8,10]")
#define FOLDED SHAPED("w", "[8]", "[0,-1]", "[16,10]")

static const struct refusal {
	const char *name, *src, *dst;
	struct files files[4];
	int rc;
	const char *sentence;
} refused[] = {
	/* ---- files and records that are missing ---- */
	{ "needed_rank_is_missing", ROWS_2, ROWS_4,
	  { { 0, 0, FILE_WITH(F32("w", 2)) } }, -ENOENT,
	  "rank 1 has no valid checkpoint file, but rank 2 needs its slice of "
	  "parameter w (from mesh [2] map [0] to mesh [4] map [0])" },
	{ "needed_slice_is_missing", ROWS_2, NULL,
	  { { 0, 0, FILE_WITH(F32("w", 2)) },
	    { 1, 1, FILE_WITH(I64_SCALAR("step")) } }, -ENOENT,
	  "rank_1.ckpt: the file is valid, but lacks parameter w, of which "
	  "rank 0 needs its slice (from mesh [2] map [0] to unsharded)" },
	/* The file that is missing is that of the parameter's own stage. */
	{ "needed_rank_of_a_stage_is_missing", TWO_STAGES, NULL,
	  { { 0, 1, FILE_WITH(F32("w", 2)) },
	    { 2, 2, FILE_WITH(F32("v", 2)) } },
	  -ENOENT,
	  "rank 3 has no valid checkpoint file, but rank 0 needs its slice of "
	  "parameter v (from mesh [2] map [0] to unsharded)" },
	{ "whole_stage_is_missing", TWO_STAGES, NULL,
	  { { 0, 1, FILE_WITH(F32("w", 2)) } }, -ENOENT,
	  "ranks 2 to 3 have no valid checkpoint file, but parameter v is "
	  "needed from them" },
	/* The only file that a rank would load. */
	{ "only_needed_rank_is_missing", LAYOUT("w", "[2,2]", "[0]"), ROWS_2,
	  { { 1, 3, FILE_WITH(F32("w", 2)) } }, -ENOENT,
	  "rank 0 has no valid checkpoint file, but rank 0 needs its slice of "
	  "parameter w (from mesh [2,2] map [0] to mesh [2] map [0])" },
	{ "nothing_in_common", ROWS_2, LAYOUT("x", "[4]", "[0]"),
	  { { 0, 1, FILE_WITH(F32("w", 2)) } }, -EINVAL,
	  "rank 0: no parameter of the source files is listed by src.json and "
	  "dst.json" },
	{ "nothing_of_the_source", ROWS_2, NULL,
	  { { 0, 1, FILE_WITH(F32("x", 2)) } }, -EINVAL,
	  "rank 0: no parameter of the source files is listed by src.json" },
	{ "nothing_of_the_destination", NULL, ROWS_4,
	  { { 0, 0, FILE_WITH(F32("x", 2)) } }, -EINVAL,
	  "rank 0: no parameter of the source files is listed by dst.json" },

	/* ---- slices that contradict one another ---- */
	{ "types_differ", ROWS_2, ROWS_4,
	  { { 0, 0, FILE_WITH(F32("w", 2)) },
	    { 1, 1, FILE_WITH(BF16("w", 2)) } },
	  -EINVAL,
	  "rank_1.ckpt: parameter w is BFloat16, but in rank_0.ckpt it is "
	  "Float32" },
	{ "bytes_of_a_type_differ", ROWS_2, ROWS_4,
	  { { 0, 0, FILE_WITH(WIDE(2)) }, { 1, 1, FILE_WITH(BF16("w", 2)) } },
	  -EINVAL,
	  "rank_1.ckpt: parameter w is BFloat16, but in rank_0.ckpt it is "
	  "BFloat16 of 4 bytes" },
	{ "shapes_differ", LAYOUT("w", "[2]", "[0,-1]"), NULL,
	  { { 0, 0, FILE_WITH(F32("w", 2, 3)) },
	    { 1, 1, FILE_WITH(F32("w", 3, 2)) } }, -EINVAL,
	  "rank_1.ckpt: parameter w has shape [3,2], but in rank_0.ckpt it is "
	  "[2,3]; with mesh [2] map [0,-1] (src.json) all slices are equal" },
	{ "dimensions_differ", ROWS_2, NULL,
	  { { 0, 0, FILE_WITH(F32("w", 2)) },
	    { 1, 1, FILE_WITH(F32("w", 2, 1)) } },
	  -EINVAL,
	  "rank_1.ckpt: parameter w has shape [2,1], but in rank_0.ckpt it is "
	  "[2]; with mesh [2] map [0] (src.json) all slices are equal" },
	{ "strings_cannot_be_resharded", ROWS_2, ROWS_4,
	  { { 0, 1, FILE_WITH({ .name = "w", .dtype = RSH_DTYPE_STR, DIMS_OF(0),
				.bytes = 8 }) } }, -EINVAL,
	  "rank_0.ckpt: parameter w is a string, but both strategies list it "
	  "as a tensor" },

	/* ---- layouts that do not fit ---- */
	{ "map_does_not_fit_the_slice", ROWS_2, ROWS_4,
	  { { 0, 1, FILE_WITH(F32("w", 2, 3)) } }, -EINVAL,
	  "rank_0.ckpt: parameter w of shape [2,3] cannot go from mesh [2] map "
	  "[0] (src.json) to mesh [4] map [0] (dst.json): its tensor map has 1 "
	  "dimensions, the tensor has 2" },
	{ "destination_does_not_divide", NULL, LAYOUT("w", "[2,2]", "[1]"),
	  { { 0, 0, FILE_WITH(F32("w", 3)) } }, -EINVAL,
	  "rank_0.ckpt: parameter w of shape [3] cannot go from unsharded to "
	  "mesh [2,2] map [1] (dst.json): dimension 0 of size 3 cannot be cut "
	  "into 2 equal slices" },
	{ "shape_is_another", SHAPED("w", "[2]", "[0]", "[8]"), ROWS_4,
	  { { 0, 1, FILE_WITH(F32("w", 2)) } }, -EINVAL,
	  "rank_0.ckpt: parameter w of shape [2] cannot go from mesh [2] map "
	  "[0] (src.json) to mesh [4] map [0] (dst.json): dimension 0 of the "
	  "whole tensor is 4, its strategy says 8" },
	{ "folded_slice_is_another", EXPANDED, FOLDED,
	  { { 0, 7, FILE_WITH(F32("w", 4, 10)) } }, -EINVAL,
	  "rank_0.ckpt: parameter w of shape [4,10] cannot go from mesh [2,4] "
	  "map [1,0,-1] (src.json) to mesh [8] map [0,-1] (dst.json): "
	  "dimension 0 of the whole tensor is 16 in the destination" },
	/* 2^62 rows times 2 would wrap. */
	{ "folded_slice_is_huge", EXPANDED, FOLDED,
	  { { 0, 7, FILE_WITH(F32("w", POWER(62), 0)) } }, -EINVAL,
	  "rank_0.ckpt: parameter w of shape [4611686018427387904,0] cannot go "
	  "from mesh [2,4] map [1,0,-1] (src.json) to mesh [8] map [0,-1] "
	  "(dst.json): dimension 0 of the whole tensor is 16 in the "
	  "destination" },

	/* ---- sizes out of range ---- */
	{ "whole_tensor_is_too_large", LAYOUT("w", "[2,2]", "[1,0]"), NULL,
	  { { 0, 3, FILE_WITH(INT8("w", POWER(31), POWER(31))) } }, -EINVAL,
	  "rank_0.ckpt: parameter w of shape [2147483648,2147483648] cannot go "
	  "from mesh [2,2] map [1,0] (src.json) to unsharded: its slice is too "
	  "large" },
	{ "file_is_too_large", ROWS_2, NULL,
	  { { 0, 1, FILE_WITH(INT8("w", POWER(60)), INT8("u", POWER(62)),
			      INT8("v", POWER(61))) } }, -EFBIG,
	  "parameter v makes the file of a rank too large" },

	/* ---- chunks ---- */
	{ "chunk_ends_within_an_element", ROWS_2, ROWS_4,
	  { { 0, 0, FILE_WITH(CHUNKED) },
	    { 1, 1, FILE_WITH(WIDE(4)) } }, -EINVAL,
	  "rank_0.ckpt: parameter w: a chunk at offset 100 ends within an "
	  "element" },
	{ "chunk_of_another_rank_ends_within_an_element", ROWS_2, ROWS_4,
	  { { 0, 0, FILE_WITH(WIDE(4)) },
	    { 1, 1, FILE_WITH(CHUNKED) } }, -EINVAL,
	  "rank_1.ckpt: parameter w: a chunk at offset 100 ends within an "
	  "element" },
	{ "chunk_of_a_copy_ends_within_an_element",
	  LAYOUT("v", "[2]", "[0]"), NULL,
	  { { 0, 1, FILE_WITH(F32("v", 2), CHUNKED) } }, -EINVAL,
	  "rank_0.ckpt: parameter w: a chunk at offset 208 ends within an "
	  "element" },
};

TEST_ROWS(refused)
{
	const struct refusal *r = *state;
	struct job *j = job_new(r->src, r->dst);

	job_made(j, r->files);
	job_refused(j, r->rc, r->sentence);
}

/* ---- what is right beside them ---- */

TEST(unneeded_rank_may_be_missing)
{
	cleanup_job struct job *j = job_new(LAYOUT("w", "[2,2]", "[0]"),
					    ROWS_2);

	job_files(j, 2, FILE_WITH(F32("w", 2)));
	job_plan(j);
	assert_records(j, 1, "w[2]");
}

TEST(folded_slice_fits)
{
	cleanup_job struct job *j = job_new(EXPANDED, FOLDED);

	job_files(j, 8, FILE_WITH(F32("w", 2, 10)));
	job_plan_compat(j);
	assert_records(j, 7, "w[2,10]");
}

/* Bytes that are only moved may be cut anywhere. */
TEST(moved_elements_may_be_cut)
{
	static const uint64_t odd[] = { 3, 5, 0 };
	cleanup_job struct job *j = job_new(ROWS_2, NULL);

	job_files(j, 2, FILE_WITH({ .name = "w", .dtype = RSH_DTYPE_FLOAT32,
				    DIMS_OF(2), .chunks = odd }));
	job_plan(j);
	assert_content(j, 0, "w", "0@100+3 0@203+5 1@100+3 1@203+5");
}
