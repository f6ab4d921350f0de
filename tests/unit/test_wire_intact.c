/* unit/test_wire_intact.c - whole files pass, and no shorter one does.
 *
 * The archives are laid out as torch.save() lays them out: stored entries
 * below one directory, contents aligned by padding in the local header's extra
 * field, zip64 end records always, no comment.  The files below unit/data were
 * made by make_intact.py. */
#include "config.h"

#include <errno.h>
#include <stdio.h>

#include "rsh/wire/intact.h"
#include "wire_support.h"

/* Sizes of the data files that unit/data/bundle.index speaks of. */
static const uint64_t shards[] = { 128, 128 };

static int check_tf(const struct rsh_byte_source *src, struct rsh_error *err)
{
	return rsh_tf_index_check(src, shards, 2, err);
}

typedef int check_fn(const struct rsh_byte_source *src, struct rsh_error *err);

static const struct {
	const char *name;
	check_fn *check;
	/* Bytes at the end that a shorter file may lack unnoticed. */
	size_t blind;
} files[] = {
	{ "unit/data/torch.pt", rsh_torch_check, 0 },
	{ "unit/data/torch_zip64.pt", rsh_torch_check, 0 },
	{ "unit/data/torch_commented.pt", rsh_torch_check, 0 },
	/* The content of the last storages: see wire/intact.h. */
	{ "unit/data/torch_legacy.pt", rsh_torch_check, 24 },
	{ "unit/data/pickle.pt", rsh_torch_check, 0 },
	{ "unit/data/tensors.safetensors", rsh_safetensors_check, 0 },
	{ "unit/data/bundle.index", check_tf, 0 },
};
#define N_FILES (sizeof(files) / sizeof(files[0]))

static void test_whole(void **state)
{
	(void)state;
	for (size_t i = 0; i < N_FILES; i++) {
		struct buffer b = load_file(files[i].name);
		struct rsh_byte_source src = buffer_source(&b);
		struct rsh_error err = RSH_ERROR_INIT;

		if (files[i].check(&src, &err))
			fail_msg("%s: %s", files[i].name, err.text);
		buffer_free(&b);
	}
}

static void must_fail(const char *name, check_fn *check,
		      const struct buffer *b, const char *how, size_t at)
{
	/* A copy, so that a sanitizer sees every read beyond its end. */
	struct buffer copy = { NULL, 0 };
	struct rsh_byte_source src;
	struct rsh_error err = RSH_ERROR_INIT;

	buffer_append(&copy, b->data, b->len);
	src = buffer_source(&copy);
	if (check(&src, &err) != -EBADMSG)
		fail_msg("%s %s at %zu passes", name, how, at);
	assert_int_equal(err.code, EBADMSG);
	assert_non_null(strstr(err.text, "test.ckpt"));
	buffer_free(&copy);
}

static void test_truncated_everywhere(void **state)
{
	(void)state;
	for (size_t i = 0; i < N_FILES; i++) {
		struct buffer b = load_file(files[i].name);
		const size_t n = b.len - files[i].blind;

		for (b.len = 0; b.len < n; b.len++)
			must_fail(files[i].name, files[i].check, &b,
				  "truncated", b.len);
		buffer_free(&b);
	}
}

/* The size that it was to have, but nothing behind some place: what a crash of
 * the machine leaves.  (In a comment that cannot be seen.) */
static void zero_from_everywhere(const char *name, check_fn *check)
{
	struct buffer b = load_file(name);
	bool changed = false;

	for (size_t at = b.len; at-- > 0;) {
		changed |= b.data[at] != 0;
		b.data[at] = 0;
		if (changed)
			must_fail(name, check, &b, "zeroed", at);
	}
	buffer_free(&b);
}

static void test_zeroed_from_everywhere(void **state)
{
	(void)state;
	zero_from_everywhere("unit/data/torch.pt", rsh_torch_check);
	zero_from_everywhere("unit/data/torch_zip64.pt", rsh_torch_check);
	zero_from_everywhere("unit/data/pickle.pt", rsh_torch_check);
	zero_from_everywhere("unit/data/bundle.index", check_tf);
}

/* Whatever bit is wrong, a check comes to an end within the file (sanitizers
 * look on), and where a flip cannot matter it may pass. */
static size_t count_passes(const char *name, check_fn *check)
{
	struct buffer b = load_file(name);
	size_t passed = 0;

	for (size_t bit = 0; bit < 8 * b.len; bit++) {
		struct rsh_byte_source src = buffer_source(&b);
		struct rsh_error err = RSH_ERROR_INIT;
		int rc;

		b.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
		rc = check(&src, &err);
		assert_true(rc == 0 || (rc == -EBADMSG && *err.text));
		passed += rc == 0;
		b.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	buffer_free(&b);
	return passed;
}

static void test_flipped_bits(void **state)
{
	(void)state;
	for (size_t i = 0; i < N_FILES; i++) {
		struct buffer b = load_file(files[i].name);

		assert_in_range(count_passes(files[i].name, files[i].check), 0,
				8 * b.len - 1);
		buffer_free(&b);
	}
	/* Everything in an index lies under a CRC but the footer, where of 40
	 * bytes 6 say where blocks lie and the rest is padding; and the last
	 * of the 6 may go on into the padding without a change of its value. */
	assert_int_equal(count_passes("unit/data/bundle.index", check_tf),
			 8 * (40 - 6) + 1);
}

/* ---- what each format forbids ---- */

static void test_tf_shards(void **state)
{
	static const struct {
		uint64_t bytes[3];
		uint32_t n;
	} bad[] = {
		{ { 127, 128 }, 2 }, { { 128, 127 }, 2 }, { { 128 }, 1 },
		{ { 128, 128, 0 }, 3 }, { { 0, 0 }, 2 }, { { 0 }, 0 },
	};
	const uint64_t longer[] = { 129, 129 };
	struct buffer b = load_file("unit/data/bundle.index");
	struct rsh_byte_source src = buffer_source(&b);
	struct rsh_error err = RSH_ERROR_INIT;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(rsh_tf_index_check(&src, bad[i].bytes,
						    bad[i].n, &err),
				 -EBADMSG);
	assert_int_equal(rsh_tf_index_check(&src, longer, 2, &err), 0);
	buffer_free(&b);
}

static void refuse_header(const char *header, size_t content,
			  const char *word)
{
	struct buffer b = { NULL, 0 };
	struct rsh_byte_source src;
	struct rsh_error err = RSH_ERROR_INIT;
	uint8_t n[8] = { (uint8_t)strlen(header) };
	uint8_t zeros[64] = { 0 };

	buffer_append(&b, n, sizeof(n));
	buffer_append(&b, header, strlen(header));
	buffer_append(&b, zeros, content);
	src = buffer_source(&b);
	assert_int_equal(rsh_safetensors_check(&src, &err), -EBADMSG);
	if (!strstr(err.text, word))
		fail_msg("no \"%s\" in: %s", word, err.text);
	buffer_free(&b);
}

#define TENSOR(name, type, shape, begin, end) \
	"\"" name "\":{\"dtype\":\"" type "\",\"shape\":" shape \
	",\"data_offsets\":[" begin "," end "]}"

static void test_safetensors(void **state)
{
	(void)state;
	refuse_header("{" TENSOR("a", "F32", "[2]", "0", "8") "}", 7,
		      "truncated");
	refuse_header("{" TENSOR("a", "F32", "[2]", "0", "8") "}", 9,
		      "goes on");
	refuse_header("{" TENSOR("a", "F32", "[3]", "0", "8") "}", 8, "\"a\"");
	refuse_header("{" TENSOR("a", "X32", "[2]", "0", "8") "}", 8, "\"a\"");
	refuse_header("{" TENSOR("a", "U8", "[-8]", "0", "8") "}", 8, "\"a\"");
	refuse_header("{" TENSOR("a", "U8", "[2]", "4", "2") "}", 8, "\"a\"");
	refuse_header("{" TENSOR("a", "U8", "[2]", "1", "3") "}", 3, "gap");
	refuse_header("{" TENSOR("a", "U8", "[2]", "0", "2") ","
		      TENSOR("b", "U8", "[2]", "1", "3") "}", 3, "overlap");
	refuse_header("{" TENSOR("a", "U8", "[4294967296,4294967296,16]", "0",
				 "0") "}", 0, "\"a\"");
	refuse_header("[]", 0, "JSON");
	refuse_header("{", 0, "JSON");
}

static void test_other_things(void **state)
{
	static const char *const things[] = {
		"", "P", "PK\3\4", "\x80", "not a checkpoint at all",
		"\x89HDF\r\n\x1a\n", "\x80\2.more",
	};
	(void)state;
	for (size_t i = 0; i < sizeof(things) / sizeof(things[0]); i++) {
		struct buffer b = { NULL, 0 };

		buffer_append(&b, things[i], strlen(things[i]));
		must_fail(things[i], rsh_torch_check, &b, "as it is", 0);
		must_fail(things[i], rsh_safetensors_check, &b, "as it is", 0);
		must_fail(things[i], check_tf, &b, "as it is", 0);
		buffer_free(&b);
	}
}

static ssize_t pread_fails(void *ctx, void *buf, size_t len, uint64_t offset)
{
	(void)ctx, (void)buf, (void)len, (void)offset;
	return -EIO;
}

static void test_read_error(void **state)
{
	const struct rsh_byte_source src = { pread_fails, NULL, 1000, "p" };
	struct rsh_error err = RSH_ERROR_INIT;

	(void)state;
	assert_int_equal(rsh_torch_check(&src, &err), -EIO);
	assert_int_equal(rsh_safetensors_check(&src, &err), -EIO);
	assert_int_equal(check_tf(&src, &err), -EIO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_whole),
		cmocka_unit_test(test_truncated_everywhere),
		cmocka_unit_test(test_zeroed_from_everywhere),
		cmocka_unit_test(test_flipped_bits),
		cmocka_unit_test(test_tf_shards),
		cmocka_unit_test(test_safetensors),
		cmocka_unit_test(test_other_things),
		cmocka_unit_test(test_read_error),
	};

	return cmocka_run_group_tests_name("intact", tests, NULL, NULL);
}
