/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_formats_check.c - whole files pass, and no shorter one does.
 *
 * The archives are laid out as torch.save() lays them out: stored entries
 * below one directory, contents aligned by padding in the local header's extra
 * field, zip64 end records always, no comment.  The files below unit/data were
 * made by make_intact.py. */
#include "config.h"

#include "formats/ckpt/ckpt_i.h"
#include "formats/tensorflow/index_i.h"
#include "rsh/formats/torch.h"
#include "wire_support.h"

#define SHARD_BYTES 128

/* The data files that unit/data/bundle.index speaks of hold zeros; their sizes
 * are given, and how many there are. */
static int check_bundle(const struct rsh_byte_source *index,
			const size_t *bytes, uint32_t n, bool full,
			struct rsh_error *err)
{
	uint8_t zeros[SHARD_BYTES + 1] = { 0 };
	struct buffer b[3];
	struct rsh_byte_source sources[3];
	const struct rsh_byte_source *shards[3];

	for (uint32_t i = 0; i < n; i++) {
		b[i] = (struct buffer){ zeros, bytes[i] };
		sources[i] = buffer_source(&b[i]);
		shards[i] = &sources[i];
	}
	return rsh_tf_index_check(index, shards, n, full, err);
}

static int check_tf(const struct rsh_byte_source *src, struct rsh_error *err)
{
	const size_t bytes[] = { SHARD_BYTES, SHARD_BYTES };

	return check_bundle(src, bytes, 2, false, err);
}

static int check_torch(const struct rsh_byte_source *src,
		       struct rsh_error *err)
{
	bool unsummed;
	int rc = rsh_torch_check(src, false, &unsummed, err);

	assert_false(unsummed);
	return rc;
}

static int check_torch_full(const struct rsh_byte_source *src,
			    struct rsh_error *err)
{
	bool unsummed;
	int rc = rsh_torch_check(src, true, &unsummed, err);

	assert_false(unsummed);
	return rc;
}

/* Of the first tensor of torch.pt. */
static const uint8_t contents[] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 };

typedef int check_fn(const struct rsh_byte_source *src, struct rsh_error *err);

static const struct {
	const char *name;
	check_fn *check;
} files[] = {
	{ "unit/data/torch.pt", check_torch },
	{ "unit/data/torch.pt", check_torch_full },
	{ "unit/data/torch_zip64.pt", check_torch },
	{ "unit/data/torch_commented.pt", check_torch },
	{ "unit/data/torch_legacy.pt", check_torch },
	{ "unit/data/torch_legacy_2.pt", check_torch },
	{ "unit/data/torch_legacy_4.pt", check_torch },
	{ "unit/data/bundle.index", check_tf },
};
#define N_FILES (sizeof(files) / sizeof(files[0]))

TEST(test_whole)
{
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
	cleanup_buffer struct buffer copy = { NULL, 0 };
	struct rsh_byte_source src;
	struct rsh_error err = RSH_ERROR_INIT;

	buffer_append(&copy, b->data, b->len);
	src = buffer_source(&copy);
	if (check(&src, &err) != -EBADMSG)
		fail_msg("%s %s at %zu passes", name, how, at);
	assert_int_equal(err.code, EBADMSG);
	assert_non_null(strstr(err.text, "test.ckpt"));
}

TEST(test_truncated_everywhere)
{
	for (size_t i = 0; i < N_FILES; i++) {
		struct buffer b = load_file(files[i].name);
		const size_t n = b.len;

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
	cleanup_buffer struct buffer b = load_file(name);
	bool changed = false;

	for (size_t at = b.len; at-- > 0;) {
		changed |= b.data[at] != 0;
		b.data[at] = 0;
		if (changed)
			must_fail(name, check, &b, "zeroed", at);
	}
}

TEST(test_zeroed_from_everywhere)
{
	zero_from_everywhere("unit/data/torch.pt", check_torch);
	zero_from_everywhere("unit/data/torch_zip64.pt", check_torch);
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
		/* The name of a class may become one that is not known. */
		assert_true(rc == 0 || *err.text);
		assert_true(rc == 0 || rc == -EBADMSG || rc == -ENOTSUP);
		passed += rc == 0;
		b.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	buffer_free(&b);
	return passed;
}

TEST(test_flipped_bits)
{
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

TEST(test_tf_shards)
{
	static const struct {
		size_t bytes[3];
		uint32_t n;
	} bad[] = {
		{ { 127, 128 }, 2 }, { { 128, 127 }, 2 }, { { 128 }, 1 },
		{ { 128, 128, 0 }, 3 }, { { 0, 0 }, 2 }, { { 0 }, 0 },
	};
	const size_t longer[] = { 129, 129 };
	cleanup_buffer struct buffer b = load_data("bundle.index");
	struct rsh_byte_source src = buffer_source(&b);
	struct rsh_error err = RSH_ERROR_INIT;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(check_bundle(&src, bad[i].bytes, bad[i].n,
					      false, &err), -EBADMSG);
	assert_int_equal(check_bundle(&src, longer, 2, true, &err), 0);
}

/* Under a full check no byte of a tensor can change unseen. */
TEST(test_checksums)
{
	struct buffer b = load_data("bundle.index");
	struct rsh_byte_source index = buffer_source(&b);
	uint8_t data[2][SHARD_BYTES] = { { 0 } };
	struct buffer shard[] = { { data[0], SHARD_BYTES },
				  { data[1], SHARD_BYTES } };
	struct rsh_byte_source sources[] = { buffer_source(&shard[0]),
					     buffer_source(&shard[1]) };
	const struct rsh_byte_source *const shards[] = { &sources[0],
							 &sources[1] };
	struct rsh_error err = RSH_ERROR_INIT;

	for (size_t i = 0; i < 2 * SHARD_BYTES; i++) {
		data[i / SHARD_BYTES][i % SHARD_BYTES] ^= 0x10;
		assert_int_equal(rsh_tf_index_check(&index, shards, 2, true,
						    &err), -EBADMSG);
		assert_int_equal(rsh_tf_index_check(&index, shards, 2, false,
						    &err), 0);
		data[i / SHARD_BYTES][i % SHARD_BYTES] ^= 0x10;
	}
	buffer_free(&b);
	b = load_data("torch.pt");
	for (size_t i = 0; i < sizeof(contents); i++) {
		uint8_t *p = memmem(b.data, b.len, contents, sizeof(contents));

		assert_non_null(p);
		p[i] ^= 0x10;
		must_fail("torch.pt", check_torch_full, &b, "changed", i);
		p[i] ^= 0x10;
	}
	buffer_free(&b);
}

/* Appends a checksum as TensorFlow stores it. */
static void append_masked(struct buffer *b, const uint8_t *data, size_t n)
{
	uint32_t crc = UINT32_MAX;

	while (n-- > 0) {
		crc ^= *data++;
		for (unsigned bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
	}
	crc = ~crc;
	crc = (crc >> 15 | crc << 17) + 0xa282ead8;
	for (unsigned i = 0; i < 4; i++)
		buffer_append(b, &(uint8_t){ (uint8_t)(crc >> 8 * i) }, 1);
}

/* Appends a block of entries without points of restart, and sets its place. */
static void append_block(struct buffer *b, const char *entries,
			 uint8_t place[2])
{
	const size_t from = b->len;

	append_hex(b, entries);
	append_hex(b, "00000000");
	place[0] = (uint8_t)from;
	place[1] = (uint8_t)(b->len - from);
	append_hex(b, "00");
	append_masked(b, b->data + from, b->len - from);
}

/* Makes an index of one block, whose first entry is the header of a checkpoint
 * of one data file. */
static struct buffer make_tf_index(const char *entries)
{
	static const uint8_t magic[] = {
		0x57, 0xfb, 0x80, 0x8b, 0x24, 0x75, 0x47, 0xdb,
	};
	struct buffer b = { NULL, 0 };
	uint8_t place[2], places[40] = { 0 };
	char text[512];

	snprintf(text, sizeof(text), "000002 0801 %s", entries);
	append_block(&b, text, place);
	snprintf(text, sizeof(text), "000102 78 %02x%02x", place[0], place[1]);
	append_block(&b, "", places);
	append_block(&b, text, places + 2);
	buffer_append(&b, places, sizeof(places));
	buffer_append(&b, magic, sizeof(magic));
	return b;
}

/* The data file has the bytes 0 to 9. */
TEST(test_tf_entries)
{
	static const struct {
		const char *entries; /* shared, own, bytes of the value; both */
		int rc, full;
		const char *words;
	} cases[] = {
		{ "", 0, 0, "" },
		/* A tensor of one byte: dtype, offset, size and checksum. */
		{ "00010b 61 080a 2002 2801 35 @2", 0, 0, "" },
		{ "00010b 61 080a 2002 2801 35 @3", 0, -EBADMSG,
		  "a tensor that does not match its CRC" },
		/* Strings are hashed otherwise. */
		{ "00010b 61 0807 2002 2801 35 @3", 0, 0, "" },
		/* One without elements has no checksum. */
		{ "000104 61 080a 200a", 0, 0, "" },
		{ "000104 61 080a 200b", -EBADMSG, -EBADMSG, "truncated" },
		{ "000106 61 080a 200a 2801", -EBADMSG, -EBADMSG, "truncated" },
		/* A value without bytes has only defaults. */
		{ "000100 61", 0, 0, "" },
		{ "000200 61", -EBADMSG, -EBADMSG, "no entry of a table" },
		{ "000101 61", -EBADMSG, -EBADMSG, "no entry of a table" },
		{ "010100 61", -EBADMSG, -EBADMSG, "no entry of a table" },
		{ "000100 61 010100 62", 0, 0, "" },
	};
	uint8_t data[] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 };
	struct buffer shard = { data, sizeof(data) };
	const struct rsh_byte_source source = buffer_source(&shard);
	const struct rsh_byte_source *const shards[] = { &source };

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		for (int full = 0; full < 2; full++) {
			const char *sum = strchr(cases[i].entries, '@');
			struct rsh_error err = RSH_ERROR_INIT;
			struct buffer b, crc = { NULL, 0 };
			struct rsh_byte_source src;
			char text[256];
			int rc;

			if (sum)
				append_masked(&crc, data + sum[1] - '0', 1);
			snprintf(text, sizeof(text), "%.*s", (int)(sum ? sum -
				 cases[i].entries : 256), cases[i].entries);
			for (size_t k = 0; k < crc.len; k++)
				snprintf(text + strlen(text), 3, "%02x",
					 crc.data[k]);
			b = make_tf_index(text);
			src = buffer_source(&b);
			rc = rsh_tf_index_check(&src, shards, 1, full, &err);
			if (rc != (full ? cases[i].full : cases[i].rc) ||
			    (rc && !strstr(err.text, cases[i].words)))
				fail_msg("%zu, %d: rc %d, \"%s\"", i, full, rc,
					 err.text);
			buffer_free(&b);
			buffer_free(&crc);
		}
}

/* 0 in each entry is no CRC, and in some only a wrong one. */
TEST(test_without_crcs)
{
	cleanup_buffer struct buffer b = load_data("torch_nocrc.pt");
	const struct rsh_byte_source src = buffer_source(&b);
	struct rsh_error err = RSH_ERROR_INIT;
	uint8_t *p = memmem(b.data, b.len, contents, sizeof(contents));
	uint8_t *central = memmem(b.data, b.len, "PK\1\2", 4);
	bool unsummed = false;

	assert_true(p && central);
	*p ^= 0x10;
	assert_int_equal(rsh_torch_check(&src, true, &unsummed, &err), 0);
	assert_true(unsummed);
	assert_int_equal(rsh_torch_check(&src, false, &unsummed, &err), 0);
	assert_false(unsummed);
	central[16] ^= 0x10;
	must_fail("torch_nocrc.pt", check_torch_full, &b, "changed", 0);
}

/* A file is neither longer nor shorter than what is in it. */
TEST(test_longer)
{
	static const char *const names[] = {
		"unit/data/torch_legacy.pt", "unit/data/torch_legacy_4.pt",
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		struct buffer b = load_file(names[i]);

		append_hex(&b, "00");
		must_fail(names[i], check_torch, &b, "longer", b.len);
		buffer_free(&b);
	}
}

/* What torch.save() does not write any more, or not as far as is known. */
TEST(test_refused_forms)
{
	static const struct {
		const char *name, *says;
		int rc;
	} refused[] = {
		{ "unit/data/torch_tar.pt", "a tar archive of torch.save() from "
		  "before PyTorch 0.1.10, which is not read; load it with "
		  "PyTorch and save it again", -ENOTSUP },
		{ "unit/data/pickle.pt", "a pickle that torch.save() did not "
		  "write, which is not read; save it with torch.save()",
		  -EBADMSG },
		{ "unit/data/torch_legacy_other.pt", "is of an unknown class",
		  -ENOTSUP },
	};

	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		struct buffer b = load_file(refused[i].name);
		struct rsh_byte_source src = buffer_source(&b);
		struct rsh_error err = RSH_ERROR_INIT;

		assert_int_equal(check_torch(&src, &err), refused[i].rc);
		if (!strstr(err.text, refused[i].says))
			fail_msg("%s: %s", refused[i].name, err.text);
		buffer_free(&b);
	}
}

/* Pickles that end nowhere. */
TEST(test_legacy_nonsense)
{
	static const struct {
		const char *hex, *word;
	} objects[] = {
		{ "4e ff 2e", "no pickle instruction" },
		{ "28 4e 74 63 61 62", "truncated" },
	};

	for (size_t i = 0; i < sizeof(objects) / sizeof(objects[0]); i++) {
		struct buffer b = { NULL, 0 };
		struct rsh_error err = RSH_ERROR_INIT;
		struct rsh_byte_source src;

		append_hex(&b, "80 02 8a 0a 6cfc9c46f9206aa85019 2e"
			       "80 02 4d e903 2e 80 02 7d 58 0d000000"
			       "6c6974746c655f656e6469616e 88 73 2e 80 02");
		append_hex(&b, objects[i].hex);
		/* An empty list of keys, so that nothing else is wrong. */
		append_hex(&b, "80 02 5d 2e");
		src = buffer_source(&b);
		assert_int_equal(check_torch(&src, &err), -EBADMSG);
		if (!strstr(err.text, objects[i].word))
			fail_msg("%s: %s", objects[i].hex, err.text);
		buffer_free(&b);
	}
}

/* Two blocks, GCM and CBC: one cut between them is whole for all that can be
 * seen, every other one is not. */
TEST(test_encrypted)
{
	cleanup_buffer struct buffer b = { NULL, 0 };
	struct rsh_byte_source src;
	struct rsh_error err = RSH_ERROR_INIT;
	size_t first, whole;

	append_hex(&b, "d85e3a7f 00112233445566778899aabbccddeeff 1d000000"
		       "10000000 000102030405060708090a0b0c0d0e0f"
		       "05000000 0102030405");
	first = b.len;
	append_hex(&b, "d95e3a7f 28000000"
		       "10000000 000102030405060708090a0b0c0d0e0f"
		       "10000000 000102030405060708090a0b0c0d0e0f");
	whole = b.len;
	src = buffer_source(&b);
	assert_int_equal(rsh_encrypted_check(&src, &err), 0);
	for (b.len = 4; b.len < whole; b.len++)
		if (b.len != first)
			must_fail("encrypted", rsh_encrypted_check, &b,
				  "truncated", b.len);
	for (b.len = whole; b.len < whole + 4; )
		append_hex(&b, "00");
	must_fail("encrypted", rsh_encrypted_check, &b, "longer", b.len);
	b.data[0] ^= 1;
	b.data[1] ^= 1;
	src = buffer_source(&b);
	assert_int_equal(rsh_encrypted_check(&src, &err), -ENOTSUP);
}

TEST(test_other_things)
{
	static const char *const things[] = {
		"", "P", "PK\3\4", "\x80", "not a checkpoint at all",
		"\x89HDF\r\n\x1a\n", "\x80\2.more",
	};
	for (size_t i = 0; i < sizeof(things) / sizeof(things[0]); i++) {
		struct buffer b = { NULL, 0 };

		buffer_append(&b, things[i], strlen(things[i]));
		must_fail(things[i], check_torch, &b, "as it is", 0);
		must_fail(things[i], check_tf, &b, "as it is", 0);
		buffer_free(&b);
	}
}

/* The sentence says what the file is, or that it has too few bytes. */
TEST(test_sentences)
{
	static const struct {
		const char *bytes;
		size_t n;
		check_fn *check;
		const char *words;
	} cases[] = {
		{ "", 0, check_tf, "too short for an index" },
		{ "\x57\xfb\x80\x8b\x24\x75\x47\xdb", 8, check_tf,
		  "too short for an index" },
		{ "12345678901234567890123456789012345678901234567", 47,
		  check_tf, "too short for an index" },
		{ "123456789012345678901234567890123456789012345678", 48,
		  check_tf, "truncated, or not an index of TensorFlow: no "
		  "footer" },
		{ "\x80", 1, check_torch, "a pickle that torch.save() did not "
		  "write" },
		{ "\x80\2", 2, check_torch, "a pickle that torch.save() did not "
		  "write" },
		{ "PK\3", 3, check_torch, "no file of torch.save()" },
		{ "", 0, check_torch, "it is empty" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct buffer b = { NULL, 0 };
		struct rsh_error err = RSH_ERROR_INIT;
		struct rsh_byte_source src;

		buffer_append(&b, cases[i].bytes, cases[i].n);
		src = buffer_source(&b);
		assert_int_equal(cases[i].check(&src, &err), -EBADMSG);
		if (!strstr(err.text, cases[i].words))
			fail_msg("%zu: %s", i, err.text);
		buffer_free(&b);
	}
}

static ssize_t pread_fails(void *ctx, void *buf, size_t len, uint64_t offset)
{
	(void)ctx, (void)buf, (void)len, (void)offset;
	return -EIO;
}

TEST(test_read_error)
{
	const struct rsh_byte_source src = { pread_fails, NULL, 1000, "p" };
	struct rsh_error err = RSH_ERROR_INIT;

	assert_int_equal(check_torch(&src, &err), -EIO);
	assert_int_equal(check_tf(&src, &err), -EIO);
}
