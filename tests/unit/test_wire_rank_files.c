/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_wire_rank_files.c - source maps, group information, CRC trailers.
 */
#include "config.h"

#include <zlib.h>

#include "rsh/wire/ckpt.h"
#include "rsh/wire/strategy_file.h"
#include "rsh/wire/source_map.h"
#include "tests.h"

/* ---- source maps ---- */

TEST(test_map)
{
	const char text[] = "{\"10\": \"a/b.ckpt\", \"0\": \"/c\"}";
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_source_map *m;

	assert_int_equal(rsh_source_map_parse(text, strlen(text), "m", &m,
					      &err), 0);
	assert_int_equal(m->n, 2);
	assert_int_equal(m->entries[0].rank, 10);
	assert_string_equal(m->entries[0].path, "a/b.ckpt");
	assert_int_equal(m->entries[1].rank, 0);
	assert_string_equal(m->entries[1].path, "/c");
	rsh_source_map_free(m);
	rsh_source_map_free(NULL);
}

TEST(test_bad_maps)
{
	static const struct {
		const char *text, *word;
	} bad[] = {
		{ "", "not JSON" },
		{ "{", "not JSON" },
		{ "{\"0\": \"a\"} x", "not JSON" },
		{ "{\"0\": \"a\", \"0\": \"b\"}", "not JSON" },
		{ "[]", "not a map" },
		{ "{\"\": \"a\"}", "\"\" is not" },
		{ "{\"x\": \"a\"}", "\"x\" is not" },
		{ "{\"01\": \"a\"}", "\"01\" is not" },
		{ "{\"-1\": \"a\"}", "\"-1\" is not" },
		{ "{\"4294967295\": \"a\"}", "is not the number" },
		{ "{\"4294967296\": \"a\"}", "is not the number" },
		{ "{\"7\": \"\"}", "rank 7" },
		{ "{\"7\": 8}", "rank 7" },
		{ "{\"1\": \"a\", \"7\": null}", "rank 7" },
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct rsh_error err = RSH_ERROR_INIT;
		struct rsh_source_map *m = NULL;

		assert_int_equal(rsh_source_map_parse(bad[i].text,
						      strlen(bad[i].text),
						      "the.json", &m, &err),
				 -EBADMSG);
		assert_null(m);
		if (!strstr(err.text, bad[i].word) ||
		    !strstr(err.text, "the.json"))
			fail_msg("%s: %s", bad[i].text, err.text);
	}
}

/* ---- group information ---- */

TEST(test_group_info)
{
	/* A group "g" of ranks 0 and 1; the restore list is 300 and 4. */
	static const uint8_t file[] = {
		0x0a, 0x09, 0x0a, 0x01, 'g', 0x12, 0x04, 0x08, 0x00, 0x08, 0x01,
		0x12, 0x05, 0x08, 0xac, 0x02, 0x08, 0x04,
	};
	struct rsh_error err = RSH_ERROR_INIT;
	uint32_t *ranks, n;

	assert_int_equal(rsh_group_info_parse(file, sizeof(file), "f", &ranks,
					      &n, &err), 0);
	assert_int_equal(n, 2);
	assert_int_equal(ranks[0], 300);
	assert_int_equal(ranks[1], 4);
	free(ranks);
	/* Old jobs wrote no list. */
	assert_int_equal(rsh_group_info_parse(file, 11, "f", &ranks, &n, &err),
			 0);
	assert_int_equal(n, 0);
	free(ranks);
	for (size_t len = 0; len < sizeof(file); len++) {
		if (len == 11)
			continue;
		assert_int_equal(rsh_group_info_parse(file, len, "the.pb",
						      &ranks, &n, &err),
				 -EBADMSG);
		assert_non_null(strstr(err.text, "the.pb"));
	}
}

/* ---- CRC trailers ---- */

struct bytes {
	const uint8_t *data;
	size_t len;
	size_t step; /* most that one pread gives */
};

static ssize_t pread_bytes(void *ctx, void *buf, size_t len, uint64_t offset)
{
	const struct bytes *b = ctx;

	if (offset >= b->len)
		return 0;
	if (len > b->len - offset)
		len = b->len - (size_t)offset;
	if (len > b->step)
		len = b->step;
	memcpy(buf, b->data + offset, len);
	return (ssize_t)len;
}

/* More than one step of reading, and no multiple of it. */
#define CONTENT_BYTES (3 * 1024 * 1024 + 17)
#define TRAILER_BYTES 17

static int check(struct bytes *b, uint32_t crc, struct rsh_error *err)
{
	const struct rsh_byte_source src = {
		pread_bytes, b, CONTENT_BYTES + TRAILER_BYTES, "the.ckpt",
	};
	const struct rsh_ckpt_index index = {
		.has_crc = true, .crc = crc,
		.file_bytes = CONTENT_BYTES + TRAILER_BYTES,
	};

	return rsh_ckpt_check_crc(&src, &index, err);
}

TEST(test_crc)
{
	cleanup_free uint8_t *data = calloc(1, CONTENT_BYTES + TRAILER_BYTES);
	struct bytes b = { data, CONTENT_BYTES + TRAILER_BYTES, SIZE_MAX };
	const struct rsh_ckpt_index without = { .file_bytes = 1 };
	const struct rsh_byte_source nothing = { .path = "x" };
	struct rsh_error err = RSH_ERROR_INIT;
	uint32_t crc;

	assert_non_null(data);
	for (size_t i = 0; i < CONTENT_BYTES; i++)
		data[i] = (uint8_t)(i * 2654435761u >> 13);
	crc = (uint32_t)crc32(0, data, CONTENT_BYTES);
	assert_int_equal(check(&b, crc, &err), 0);
	b.step = 99999;
	assert_int_equal(check(&b, crc, &err), 0);

	assert_int_equal(check(&b, crc ^ 1, &err), -EBADMSG);
	assert_non_null(strstr(err.text, "the.ckpt"));
	data[CONTENT_BYTES - 1] ^= 0x80;
	assert_int_equal(check(&b, crc, &err), -EBADMSG);
	data[CONTENT_BYTES - 1] ^= 0x80;
	/* The trailer itself is not part of it. */
	data[CONTENT_BYTES] ^= 0x80;
	assert_int_equal(check(&b, crc, &err), 0);
	b.len = CONTENT_BYTES - 1;
	assert_int_equal(check(&b, crc, &err), -ESTALE);
	assert_int_equal(rsh_ckpt_check_crc(&nothing, &without, &err), 0);
}
