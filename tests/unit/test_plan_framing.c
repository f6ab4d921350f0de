/* SPDX-License-Identifier: Apache-2.0 */
/* Virtual files in the safetensors format: one header, then the contents. */
#include "plan_support.h"

#define MIB (UINT64_C(1024) * 1024)
#define OF(n, t, ...) { .name = (n), .dtype = (t), DIMS_OF(__VA_ARGS__) }
#define I8(n, ...) OF(n, RSH_DTYPE_INT8, __VA_ARGS__)
#define INT4(n, ...) OF(n, RSH_DTYPE_INT4, __VA_ARGS__)

static struct job *safetensors_job(const char *src, const char *dst)
{
	struct job *j = job_new(src, dst);

	j->src_format = RSH_FILE_SAFETENSORS;
	j->format = RSH_FILE_SAFETENSORS;
	return j;
}

/* The bytes of a file before its first record, as text behind their length. */
static void assert_header(const struct job *j, uint32_t rank, const char *want)
{
	struct rsh_piece_iter *it =
		rsh_piece_iter_new(j->c, rank, 0, UINT64_MAX, NULL);
	uint64_t length = 0;
	struct rsh_piece p;
	size_t n;

	assert_non_null(it);
	assert_true(rsh_piece_iter_next(it, &p));
	assert_true(p.is_header && p.length > 8);
	for (int i = 8; i-- > 0;)
		length = length << 8 | p.header[i];
	assert_int_equal(length, p.length - 8);
	assert_int_equal(length % 8, 0);
	for (n = (size_t)length; n > 0 && p.header[8 + n - 1] == ' ';)
		n--;
	assert_int_equal(n, strlen(want));
	assert_memory_equal(p.header + 8, want, n);
	rsh_piece_iter_free(it);
}

#define TENSOR(name, type, shape, from, to) \
	"\"" name "\":{\"dtype\":\"" type "\",\"shape\":[" shape "]," \
	"\"data_offsets\":[" from "," to "]}"
#define MS "{\"__metadata__\":{\"format\":\"ms\"},"

/* Types by descending rank, then names, whatever the order of the source. */
TEST(contents_follow_one_header)
{
	struct job *j = safetensors_job(LAYOUT("w", "[2]", "[0,-1]"), NULL);
	uint64_t size;

	job_files(j, 2, FILE_WITH(I8("b", 3), F32("w", 2, 3), F32("a", 1),
				  I64_SCALAR("step")));
	job_plan(j);
	assert_header(j, 0,
		      MS TENSOR("step", "I64", "", "0", "8") ","
		      TENSOR("a", "F32", "1", "8", "12") ","
		      TENSOR("w", "F32", "4,3", "12", "60") ","
		      TENSOR("b", "I8", "3", "60", "63") "}");
	size = rsh_plan_size(j->c, 0);
	/* In the source the contents lie GAP apart. */
	assert_pieces(j, 0, size - 63, 63,
		      "0@431+8 0@327+4 0@203+24 1@203+24 0@100+3");
	job_free(j);
}

TEST(ranges_begin_and_end_anywhere)
{
	cleanup_job struct job *j = safetensors_job(LAYOUT("w", "[2]", "[0]"),
						    LAYOUT("w", "[2]", "[0]"));
	uint64_t size, begin;

	job_files(j, 2, FILE_WITH(F32("w", 10)));
	job_plan_compat(j);
	size = rsh_plan_size(j->c, 1);
	begin = size - 40;
	assert_pieces(j, 1, 3, 7, "h7");
	assert_pieces(j, 1, begin - 5, 12, "h5 1@100+7");
	assert_pieces(j, 1, begin, 40, "1@100+40");
	assert_pieces(j, 1, size - 3, 10, "1@137+3");
	assert_pieces(j, 1, size, 10, "");
}

TEST(ranks_share_the_header)
{
	cleanup_job struct job *j = safetensors_job(LAYOUT("w", "[4]", "[0]"),
						    LAYOUT("w", "[2]", "[0]"));
	struct rsh_piece p[2];

	job_files(j, 4, FILE_WITH(F32("w", 6)));
	job_plan(j);
	for (uint32_t rank = 0; rank < 2; rank++) {
		struct rsh_piece_iter *it =
			rsh_piece_iter_new(j->c, rank, 0, 1, NULL);

		assert_true(rsh_piece_iter_next(it, &p[rank]));
		rsh_piece_iter_free(it);
	}
	assert_ptr_equal(p[0].header, p[1].header);
}

/* Copied records of one size but another type are other records. */
TEST(headers_differ_where_types_do)
{
	cleanup_job struct job *j = safetensors_job(LAYOUT("w", "[2]", "[0]"),
						    LAYOUT("w", "[2]", "[0]"));

	job_file(j, 0, FILE_WITH(F32("w", 2), F32("x", 1)));
	job_file(j, 1, FILE_WITH(F32("w", 2),
				 { .name = "x", .dtype = RSH_DTYPE_INT32,
				   DIMS_OF(1) }));
	job_plan_compat(j);
	assert_header(j, 0, MS TENSOR("w", "F32", "2", "0", "8") ","
			    TENSOR("x", "F32", "1", "8", "12") "}");
	assert_header(j, 1, MS TENSOR("w", "F32", "2", "0", "8") ","
			    TENSOR("x", "I32", "1", "8", "12") "}");
}

/* Offsets in a file are signed numbers of 64 bits. */
TEST(files_have_less_than_2_63_bytes)
{
	uint64_t header = 0;

	for (int more = -1; more <= 1; more++) {
		const uint64_t n = (uint64_t)INT64_MAX - header - 1000 * !header +
				   (uint64_t)(header ? more : 0);
		const int64_t dims[] = { (int64_t)n };
		struct rsh_record_shape shape = {
			.name = "w", .name_len = 1, .dtype = RSH_DTYPE_INT8,
			.n_dims = 1, .dims = dims, .content_bytes = n,
		};
		struct rsh_slot slot = { .name = 0 };
		struct rsh_file_layout f = {
			.n = 1, .slots = &slot, .shapes = &shape,
		};
		struct rsh_error err = RSH_ERROR_INIT;
		int rc = rsh_safetensors_framing.lay_out(&f, &err);

		assert_int_equal(rc, more > 0 ? -EFBIG : 0);
		if (rc == 0) {
			header = f.header_bytes;
			assert_int_equal(slot.offset, header);
			assert_int_equal(f.bytes, n + header);
			free(f.header);
		} else {
			assert_null(f.header);
		}
	}
}

TEST(large_tensors_are_one_piece)
{
	struct job *j = safetensors_job(LAYOUT("w", "[2]", "[0,-1]"),
					LAYOUT("w", "[2]", "[0,-1]"));

	job_files(j, 2, FILE_WITH(I8("w", 3 * 1024, 1024 * 1024)));
	job_plan_compat(j);
	assert_content(j, 1, "w", "1@100+3221225472");
	assert_pieces(j, 1, rsh_plan_size(j->c, 1) - 2048 * MIB,
		      1024, "1@1073741924+1024");
	job_free(j);
}

TEST(tensors_without_elements_take_no_room)
{
	struct job *j = safetensors_job(LAYOUT("w", "[1]", "[0]"), NULL);

	job_files(j, 1, FILE_WITH(F32("a", 0), F32("w", 1), F32("z", 2, 0)));
	job_plan_compat(j);
	assert_no_notes(j);
	assert_header(j, 0, MS TENSOR("a", "F32", "0", "0", "0") ","
			    TENSOR("w", "F32", "1", "0", "4") ","
			    TENSOR("z", "F32", "2,0", "4", "4") "}");
	assert_pieces(j, 0, rsh_plan_size(j->c, 0) - 4, 4, "0@100+4");
	job_free(j);
}

TEST(metadata_tells_int4_from_int8)
{
	struct job *j = safetensors_job(LAYOUT("w", "[2]", "[-1]"), NULL);

	job_files(j, 2, FILE_WITH(INT4("w", 2)));
	job_plan(j);
	assert_note(j, "Int4 stays Int4");
	assert_header(j, 0,
		      "{\"__metadata__\":{\"format\":\"ms\",\"w\":\"Int4\"},"
		      TENSOR("w", "I8", "2", "0", "2") "}");
	job_free(j);

	j = safetensors_job(LAYOUT("w", "[2]", "[-1]"), NULL);
	job_files(j, 2, FILE_WITH(INT4("w", 2)));
	job_plan_compat(j);
	assert_header(j, 0, MS TENSOR("w", "I8", "2", "0", "2") "}");
	job_free(j);
}

/* As ModelCheckpoint notes it, so that a loader asks the other ranks. */
TEST(metadata_tells_removed_redundancy)
{
	struct job *j = safetensors_job(LAYOUT("v", "[2]", "[-1]") ","
					LAYOUT("w", "[2]", "[-1]"),
					LAYOUT("v", "[2]", "[-1]") ","
					LAYOUT("w", "[2]", "[-1]"));

	j->remove_redundancy = true;
	job_files(j, 2, FILE_WITH(F32("v", 1), F32("w", 1)));
	job_plan(j);
	assert_header(j, 0, "{\"__metadata__\":{\"format\":\"ms\","
			    "\"remove_redundancy\":\"True\"},"
			    TENSOR("v", "F32", "1", "0", "4") "}");
	assert_header(j, 1, "{\"__metadata__\":{\"format\":\"ms\","
			    "\"remove_redundancy\":\"True\"},"
			    TENSOR("w", "F32", "1", "0", "4") "}");
	job_free(j);
}

/* The converter's detour of BFloat16 over float32 is one of .ckpt only. */
TEST(bfloat16_nans_stay)
{
	struct job *j = safetensors_job(LAYOUT("w", "[1]", "[0]"), NULL);

	j->format = RSH_FILE_CKPT;
	job_files(j, 1, FILE_WITH(BF16("w", 3)));
	job_plan_compat(j);
	assert_no_notes(j);
	assert_content(j, 0, "w", "0@100+6");
	job_free(j);

	j = job_new(LAYOUT("w", "[1]", "[0]"), NULL);
	job_files(j, 1, FILE_WITH(BF16("w", 3)));
	job_plan_compat(j);
	assert_content(j, 0, "w", "0@100+6>6");
	job_free(j);
}

TEST(strings_are_refused)
{
	struct job *j = job_new(LAYOUT("w", "[1]", "[0]"), NULL);

	j->format = RSH_FILE_SAFETENSORS;
	job_files(j, 1, FILE_WITH(F32("w", 3), { .name = "note",
						 .dtype = RSH_DTYPE_STR,
						 .bytes = 8, DIMS_OF(0) }));
	job_refused(j, -ENOTSUP, "parameter \"note\" is of type str, which "
				 "safetensors files cannot hold");
}

/* ---- models in parts ---- */

static void parts(const struct job *j, char *text, size_t size)
{
	size_t at = 0;

	text[0] = '\0';
	for (uint32_t f = 0; f < rsh_plan_n_files(j->c); f++) {
		uint32_t n = rsh_plan_n_records(j->c, f);

		at += (size_t)snprintf(text + at, size - at, "%s",
				       f ? "| " : "");
		for (uint32_t i = 0; i < n; i++) {
			struct rsh_virtual_record r;

			rsh_plan_record(j->c, f, i, &r);
			at += (size_t)snprintf(text + at, size - at, "%s ",
					       r.shape.name);
		}
	}
}

static void assert_parts(uint64_t limit, const char *want)
{
	cleanup_job struct job *j = job_new(LAYOUT("a", "[2]", "[0]"), NULL);
	char text[256];

	j->format = RSH_FILE_SAFETENSORS;
	j->part_bytes = limit;
	job_files(j, 2, FILE_WITH(F32("z", 3), F32("a", 2), I8("b", 4),
				  F32("big", 25), F32("c", 1)));
	job_plan(j);
	parts(j, text, sizeof(text));
	assert_string_equal(text, want);
}

/* a has 16 bytes, z 12, b 4, big 100 and c 4; within a part the order is the
 * format's. */
TEST(parts_are_filled_in_order)
{
	assert_parts(1000, "a big c z b ");
	assert_parts(136, "a big c z b ");
	assert_parts(135, "a big z b | c ");
	assert_parts(32, "a z b | big | c ");
	assert_parts(31, "a z | b | big | c ");
	assert_parts(1, "a | z | b | big | c ");
}

TEST(parts_say_what_they_are)
{
	cleanup_job struct job *j = job_new(LAYOUT("w", "[2]", "[0]"), NULL);

	j->format = RSH_FILE_SAFETENSORS;
	j->part_bytes = 8;
	job_file(j, 0, FILE_WITH(F32("w", 1), F32("x", 2)));
	job_file(j, 1, FILE_WITH(F32("w", 1), F32("x", 2)));
	job_plan(j);
	assert_int_equal(rsh_plan_n_files(j->c), 2);
	assert_header(j, 1, "{\"__metadata__\":{\"format\":\"pt\"},"
			    TENSOR("x", "F32", "2", "0", "8") "}");
	assert_content(j, 0, "w", "0@100+4 1@100+4");
	assert_content(j, 1, "x", "0@204+8");
	/* Each part needs its own sources only. */
	assert_sources(j, 0, "0 1");
	assert_sources(j, 1, "0");
}

/* Returns whether a distributed checkpoint keeps this order of a Float32
 * tensor. */
static bool keeps_order(unsigned n, const int64_t *dims, const uint8_t *order)
{
	struct rsh_record_shape s = {
		.name = "w", .dtype = RSH_DTYPE_FLOAT32, .n_dims = (uint8_t)n,
		.dims = dims, .order = order, .content_bytes = 4,
	};

	for (unsigned i = 0; i < n; i++)
		s.content_bytes *= (uint64_t)dims[i];
	return rsh_dcp_framing.keeps_order(&s);
}

/* Items have whole rows of the first dimension in any case: many ranks load
 * some rows, and a loader loads the whole item for any part of it. */
TEST(items_keep_the_order_of_the_source)
{
	static const uint8_t turned[] = { 1, 0 }, stack[] = { 0, 2, 1 };
	static const uint8_t thin[] = { 0, 2, 1 };

	/* 64 MiB are one item, more are several. */
	assert_true(keeps_order(2, (int64_t[]){ 4096, 4096 }, turned));
	assert_false(keeps_order(2, (int64_t[]){ 4096, 4097 }, turned));
	/* The rows are matrices of 32 MiB, of 128 MiB. */
	assert_true(keeps_order(3, (int64_t[]){ 64, 4096, 2048 }, stack));
	assert_false(keeps_order(3, (int64_t[]){ 64, 8192, 4096 }, stack));
	assert_false(keeps_order(3, (int64_t[]){ 1, 8192, 4096 }, thin));
	assert_null(rsh_ckpt_framing.keeps_order);
	assert_null(rsh_safetensors_framing.keeps_order);
	assert_null(rsh_hf_framing.keeps_order);
}
