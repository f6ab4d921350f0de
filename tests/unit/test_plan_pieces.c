/* SPDX-License-Identifier: Apache-2.0 */
/* Where the bytes of a virtual file come from: ranges, chunks, codecs; runs are
 * in test_plan_conversion.c. */
#include "plan_support.h"

#define MIB (UINT64_C(1024) * 1024)
#define CHUNK (512 * MIB)

/* ---- ranges ---- */

static struct job *two_records(void)
{
	struct job *j = job_new(LAYOUT("w", "[2]", "[0]"), NULL);

	job_files(j, 2, FILE_WITH(F32("w", 2), I64_SCALAR("step")));
	job_plan(j);
	return j;
}

/* Headers are 0a len 0a 01 'w' 12 len 08 04 12 07 "Float32" 1a 10 (20 bytes)
 * and the one of "step" without the two of the dimension, but with three more
 * of the name and two less of the type (19 bytes). */
TEST(ranges_cut_pieces)
{
	cleanup_job struct job *j = two_records();
	uint64_t size = rsh_plan_size(j->c, 0);

	assert_int_equal(size, 20 + 16 + 19 + 8);
	assert_pieces(j, 0, 0, size, "h20 0@100+8 1@100+8 h19 0@208+8");
	assert_pieces(j, 0, 0, UINT64_MAX, "h20 0@100+8 1@100+8 h19 0@208+8");
	assert_pieces(j, 0, 7, 4, "h4");
	assert_pieces(j, 0, 19, 2, "h1 0@100+1");
	assert_pieces(j, 0, 23, 10, "0@103+5 1@100+5");
	assert_pieces(j, 0, 35, 2, "1@107+1 h1");
	assert_pieces(j, 0, size - 1, 1, "0@215+1");
	assert_pieces(j, 0, size - 1, 100, "0@215+1");
	assert_pieces(j, 0, 5, UINT64_MAX, "h15 0@100+8 1@100+8 h19 0@208+8");
}

TEST(ranges_without_bytes_have_no_pieces)
{
	cleanup_job struct job *j = two_records();
	uint64_t size = rsh_plan_size(j->c, 0);

	assert_pieces(j, 0, 5, 0, "");
	assert_pieces(j, 0, size, 1, "");
	assert_pieces(j, 0, size + 1, 1, "");
	assert_pieces(j, 0, UINT64_MAX, UINT64_MAX, "");
	assert_null(rsh_piece_iter_new(j->c, 1, 0, 1, NULL));
	rsh_piece_iter_free(NULL);
}

TEST(header_bytes_are_the_record)
{
	static const uint8_t want[] = "\x0a\x22\x0a\x01w\x12\x1d\x08\x04\x12\x07"
				      "Float32\x1a\x10";
	cleanup_job struct job *j = two_records();

	for (uint64_t at = 0; at < 20; at++) {
		struct rsh_piece_iter *it = rsh_piece_iter_new(j->c, 0, at, 3,
							       NULL);
		struct rsh_piece p;

		assert_true(rsh_piece_iter_next(it, &p));
		assert_true(p.is_header);
		assert_memory_equal(p.header, want + at, p.length);
		rsh_piece_iter_free(it);
	}
}

/* ---- tensors over 512 MiB ---- */

/* 1200 MiB in two slices of 600, each written in chunks of 512 and 88. */
static const uint64_t chunks_600[] = { CHUNK, 88 * MIB, 0 };

static struct job *large_job(void)
{
	struct job *j = job_new(LAYOUT("w", "[2]", "[0,-1]"), NULL);

	job_files(j, 2, FILE_WITH({ .name = "w", .dtype = RSH_DTYPE_FLOAT32,
				    DIMS_OF(600, 256 * 1024),
				    .chunks = chunks_600 },
				  I64_SCALAR("step")));
	job_plan(j);
	return j;
}

/* Two full chunks and one of 176 MiB, whose header has three lengths of one
 * byte less; each repeats the whole shape. */
#define FULL_HEADER 37
#define LAST_HEADER 34
#define STEP_BYTES (19 + 8)

TEST(large_tensors_are_emitted_in_chunks)
{
	cleanup_job struct job *j = large_job();
	uint64_t second = FULL_HEADER + CHUNK;

	assert_records(j, 0, "w[1200,262144] Int64*step[]");
	assert_int_equal(rsh_plan_size(j->c, 0),
			 2 * FULL_HEADER + LAST_HEADER + 1200 * MIB +
				 STEP_BYTES);
	assert_pieces(j, 0, 0, rsh_plan_size(j->c, 0) - STEP_BYTES,
		      "h37 0@100+536870912 "
		      "h37 0@536871112+92274688 1@100+444596224 "
		      "h34 1@444596324+92274688 1@536871112+92274688");
	assert_pieces(j, 0, second - 1, 39, "0@536871011+1 h37 0@536871112+1");
	assert_pieces(j, 0, 2 * second + 33, 2, "h1 1@444596324+1");
}

/* Every header tells its own chunk's length. */
TEST(chunk_headers_tell_their_length)
{
	static const uint64_t lengths[] = { CHUNK, CHUNK, 176 * MIB };
	static const int64_t dims[] = { 1200, 262144 };
	struct rsh_record_shape shape = {
		.name = "w", .name_len = 1, .dtype = RSH_DTYPE_FLOAT32,
		.n_dims = 2, .dims = dims,
	};
	cleanup_job struct job *j = large_job();

	for (uint64_t k = 0; k < 3; k++) {
		uint8_t want[64];
		size_t n = rsh_ckpt_header_write(&shape, lengths[k], want);
		struct rsh_piece_iter *it = rsh_piece_iter_new(
			j->c, 0, k * (FULL_HEADER + CHUNK), 64, NULL);
		struct rsh_piece p;

		assert_true(rsh_piece_iter_next(it, &p));
		assert_true(p.is_header);
		assert_int_equal(p.length, n);
		assert_memory_equal(p.header, want, n);
		rsh_piece_iter_free(it);
	}
}

/* Exactly a chunk is one chunk. */
TEST(limit_is_one_chunk)
{
	cleanup_job struct job *j = job_new(LAYOUT("w", "[2]", "[0]"), NULL);

	job_files(j, 2, FILE_WITH(F32("w", 64 * MIB)));
	job_plan(j);
	assert_pieces(j, 0, 0, UINT64_MAX,
		      "h35 0@100+268435456 1@100+268435456");
}

/* A copied tensor is emitted in MindSpore's chunks, however it was stored. */
TEST(copied_tensors_are_cut_anew)
{
	static const uint64_t odd[] = { 300 * MIB, 1, 300 * MIB - 1, 0 };
	cleanup_job struct job *j = job_new(LAYOUT("w", "[2]", "[-1]"), NULL);

	job_files(j, 2, FILE_WITH(F32("w", 1),
				 { .name = "v", .dtype = RSH_DTYPE_INT8,
				   DIMS_OF(600 * MIB), .chunks = odd }));
	job_plan(j);
	assert_pieces(j, 0, 24, rsh_plan_size(j->c, 0) - 24,
		      "h33 0@204+314572800 0@314573104+1 0@314573205+222298111 "
		      "h30 0@536871316+92274688");
}

/* ---- codecs ---- */

TEST(wide_bfloat16_is_narrowed)
{
	cleanup_job struct job *j = job_new(LAYOUT("w", "[2]", "[0]"), NULL);

	job_files(j, 2, FILE_WITH({ .name = "w", .dtype = RSH_DTYPE_BFLOAT16,
				    DIMS_OF(3), .wide = true },
				  { .name = "v", .dtype = RSH_DTYPE_BFLOAT16,
				    DIMS_OF(2), .wide = true }));
	job_plan(j);
	assert_records(j, 0, "BFloat16:w[6] BFloat16*v[2]");
	assert_content(j, 0, "w", "0@100+12>6 1@100+12>6");
	assert_content(j, 0, "v", "0@212+8>4");
	/* Within an element: the rest of it, and the start of the next. */
	assert_pieces(j, 0, 22, 3, "0@100+8>3/1");
	assert_pieces(j, 0, 22, 1, "0@100+4>1/1");
	assert_pieces(j, 0, 26, 2, "0@108+4>1/1 1@100+4>1");
}

TEST(narrow_bfloat16_is_read_as_it_is)
{
	struct job *j = job_new(LAYOUT("w", "[2]", "[0]"), NULL);

	job_files(j, 2, FILE_WITH(BF16("w", 3)));
	job_plan(j);
	assert_content(j, 0, "w", "0@100+6 1@100+6");
	assert_note(j, "BFloat16 NaNs are kept");
	job_free(j);

	j = job_new(LAYOUT("w", "[2]", "[0]"), NULL);
	job_files(j, 2, FILE_WITH(BF16("w", 3), BF16("v", 2)));
	job_plan_compat(j);
	assert_content(j, 0, "w", "0@100+6>6 1@100+6>6");
	assert_content(j, 0, "v", "0@206+4>4");
	assert_pieces(j, 0, 22, 3, "0@100+4>3/1");
	assert_no_notes(j);
	job_free(j);
}

/* Rows of two elements, gathered column by column. */
TEST(codecs_count_elements_in_runs)
{
	cleanup_job struct job *j = job_new(LAYOUT("w", "[2]", "[-1,0]"), NULL);

	job_files(j, 2, FILE_WITH({ .name = "w", .dtype = RSH_DTYPE_BFLOAT16,
				    DIMS_OF(2, 2), .wide = true }));
	job_plan(j);
	assert_content(j, 0, "w", "0@100+8>4 1@100+8>4 0@108+8>4 1@108+8>4");
}

/* A wide source has twice the chunks that its virtual file has. */
TEST(wide_sources_in_chunks)
{
	static const uint64_t chunks[] = { CHUNK, 88 * MIB, 0 };
	cleanup_job struct job *j = job_new(LAYOUT("w", "[2]", "[-1]"), NULL);

	job_files(j, 2, FILE_WITH({ .name = "w", .dtype = RSH_DTYPE_BFLOAT16,
				   DIMS_OF(150 * MIB), .wide = true,
				   .chunks = chunks }));
	job_plan(j);
	assert_pieces(j, 0, 0, UINT64_MAX,
		      "h36 0@100+536870912>268435456 "
		      "0@536871112+92274688>46137344");
}

static void assert_decoded(enum rsh_codec codec, const void *in, size_t n_in,
			   const void *want, size_t n_out)
{
	uint8_t out[32], place[32];

	assert_int_equal(rsh_codec_decode(codec, in, n_in, out), n_out);
	assert_memory_equal(out, want, n_out);
	memcpy(place, in, n_in);
	assert_int_equal(rsh_codec_decode(codec, place, n_in, place), n_out);
	assert_memory_equal(place, want, n_out);
}

TEST(codecs_decode)
{
	/* 1.0, inf, -inf, the smallest NaN, one with a payload and a sign. */
	static const uint8_t narrow[] = { 0x80, 0x3f, 0x80, 0x7f, 0x80, 0xff,
					  0x81, 0x7f, 0xff, 0xff };
	static const uint8_t canonical[] = { 0x80, 0x3f, 0x80, 0x7f, 0x80, 0xff,
					     0xc0, 0x7f, 0xc0, 0x7f };
	uint8_t wide[2 * sizeof(narrow)];

	for (size_t i = 0; i < sizeof(narrow); i += 2) {
		wide[2 * i] = 0xaa;
		wide[2 * i + 1] = 0x55;
		memcpy(wide + 2 * i + 2, narrow + i, 2);
	}
	assert_decoded(RSH_CODEC_NONE, wide, sizeof(wide), wide, sizeof(wide));
	assert_decoded(RSH_CODEC_BF16_NAN, narrow, sizeof(narrow), canonical,
		       sizeof(canonical));
	assert_decoded(RSH_CODEC_BF16_WIDE, wide, sizeof(wide), narrow,
		       sizeof(narrow));
	assert_decoded(RSH_CODEC_BF16_WIDE_NAN, wide, sizeof(wide), canonical,
		       sizeof(canonical));
}

TEST(codecs_add_one)
{
	/* 0.5, 1, -1, 256, 258, infinity, NaN */
	static const uint16_t bf16[] = { 0x3f00, 0x3f80, 0xbf80, 0x4380, 0x4381,
					 0x7f80, 0x7fc1 };
	static const uint16_t more[] = { 0x3fc0, 0x4000, 0x0000, 0x4380, 0x4382,
					 0x7f80, 0x7fc0 };
	static const uint16_t less[] = { 0xbf00, 0x0000, 0xc000, 0x437f, 0x4380,
					 0x7f80, 0x7fc0 };
	/* 1, 2048, 2050 */
	static const uint16_t f16[] = { 0x3c00, 0x6800, 0x6801 };
	static const uint16_t f16_more[] = { 0x4000, 0x6800, 0x6802 };
	static const uint16_t f16_less[] = { 0x0000, 0x67ff, 0x6800 };
	static const float f32[] = { 0.25f, -3, 16777216 };
	static const float f32_more[] = { 1.25f, -2, 16777216 };
	static const float f32_less[] = { -0.75f, -4, 16777215 };

	assert_decoded(rsh_codec_add(RSH_DTYPE_BFLOAT16, 1), bf16, sizeof(bf16),
		       more, sizeof(more));
	assert_decoded(rsh_codec_add(RSH_DTYPE_BFLOAT16, -1), bf16,
		       sizeof(bf16), less, sizeof(less));
	assert_decoded(rsh_codec_add(RSH_DTYPE_FLOAT16, 1), f16, sizeof(f16),
		       f16_more, sizeof(f16_more));
	assert_decoded(rsh_codec_add(RSH_DTYPE_FLOAT16, -1), f16, sizeof(f16),
		       f16_less, sizeof(f16_less));
	assert_decoded(rsh_codec_add(RSH_DTYPE_FLOAT32, 1), f32, sizeof(f32),
		       f32_more, sizeof(f32_more));
	assert_decoded(rsh_codec_add(RSH_DTYPE_FLOAT32, -1), f32, sizeof(f32),
		       f32_less, sizeof(f32_less));
	assert_int_equal(rsh_codec_add(RSH_DTYPE_INT32, 1), RSH_CODEC_COUNT);
}

/* ---- types and sizes that the converter does not keep ---- */

static struct job *odd_job(void)
{
	struct job *j = job_new(LAYOUT("w", "[2]", "[0]") ","
				LAYOUT("rows", "[2]", "[-1,0]"), NULL);

	job_files(j, 2, FILE_WITH({ .name = "w", .dtype = RSH_DTYPE_INT4,
				    DIMS_OF(2) },
				  { .name = "q", .dtype = RSH_DTYPE_INT4,
				    DIMS_OF(3) },
				  F32("rows", 0, 3), F32("cols", 3, 0),
				  { .name = "none", .dtype = RSH_DTYPE_INT32,
				    DIMS_OF(0) },
				  { .name = "note", .dtype = RSH_DTYPE_STR,
				    DIMS_OF(0), .bytes = 20 },
				  I64_SCALAR("step")));
	return j;
}

TEST(odd_records_are_kept)
{
	cleanup_job struct job *j = odd_job();

	job_plan(j);
	assert_records(j, 0, "Int4:w[4] rows[0,6] Int4*q[3] *cols[3,0] "
			     "Int32*none[0] str*note[0] Int64*step[]");
	assert_content(j, 0, "w", "0@100+2 1@100+2");
	assert_content(j, 0, "q", "0@202+3");
	assert_content(j, 0, "note", "0@305+20");
	/* From the first empty tensor on: header after header. */
	assert_pieces(j, 0, 22, rsh_plan_size(j->c, 0) - 22,
		      "h24 h17 0@202+3 h25 h21 h19 0@305+20 h19 0@425+8");
	assert_note(j, "Int4 stays Int4");
	assert_note(j, "tensors without elements are kept");
	assert_note(j, "string records are kept");
}

TEST(odd_records_as_the_converter_leaves_them)
{
	cleanup_job struct job *j = odd_job();

	job_plan_compat(j);
	/* An empty vector becomes the scalar 0. */
	assert_records(j, 0, "Int8:w[4] Int8*q[3] Int32*none[] str*note[0] "
			     "Int64*step[]");
	assert_content(j, 0, "q", "0@202+3");
	assert_content(j, 0, "none", "h4");
}
