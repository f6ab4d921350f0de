/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_formats_shown_versions.c - directories of versions: what full ones
 * and deltas show, and what is refused.  Frames of zstd have stored blocks. */
#include "config.h"

#include <zlib.h>

#include "shown_support.h"

/* ---- writing ---- */

static void put(struct buffer *b, uint64_t v, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		buffer_append(b, &(uint8_t){ (uint8_t)(v >> 8 * i) }, 1);
}

static void append_frame(struct buffer *to, const struct buffer *content)
{
	const size_t most = 100000;
	size_t at = 0;

	put(to, 0xfd2fb528, 4);
	put(to, 0xc0, 1); /* the size of the content has 8 bytes */
	put(to, 9 << 3, 1);
	put(to, content->len, 8);
	do {
		const size_t n = content->len - at < most ? content->len - at :
							    most;

		put(to, (at + n == content->len) | n << 3, 3);
		buffer_append(to, content->data + at, n);
		at += n;
	} while (at < content->len);
}

/* Bytes first, first + 1, .. of a tensor, which a delta makes of others. */
struct change {
	const char *name;
	size_t n;
	uint8_t old, new;
	const char *sum; /* NULL: the right one; "": none */
	unsigned flip; /* bytes before the end of its frame; 0: it is whole */
};

static void make_content(const struct change *c, bool overwrite,
			 struct buffer *to)
{
	if (overwrite) {
		put(to, c->n, 4);
		for (size_t i = 0; i < c->n; i++)
			put(to, i, 4);
	}
	for (size_t i = 0; i < c->n; i++)
		put(to, (uint8_t)(c->new + i) ^
				(overwrite ? 0 : (uint8_t)(c->old + i)), 1);
}

static void sum_text(const struct change *c, char text[16])
{
	uLong sum = adler32(0, NULL, 0);

	for (size_t i = 0; i < c->n; i++)
		sum = adler32(sum, &(Bytef){ (Bytef)(c->new + i) }, 1);
	snprintf(text, 16, "%08lx", (unsigned long)sum);
}

struct delta {
	unsigned version, base;
	bool overwrite;
	struct change changes[3];
	const char *names; /* more in the map; NULL: none */
	const char *dtype; /* NULL: U8 */
};

static void write_delta(const char *tree, const struct delta *d)
{
	struct buffer frames = { NULL, 0 }, b = { NULL, 0 };
	struct unit_text header = { "", 0 }, map = { "", 0 }, sums = { "", 0 };
	char name[64], sum[16];

	for (unsigned i = 0; i < 3 && d->changes[i].name; i++) {
		const struct change *c = &d->changes[i];
		struct buffer content = { NULL, 0 };
		const size_t from = frames.len;

		make_content(c, d->overwrite, &content);
		append_frame(&frames, &content);
		if (c->flip)
			frames.data[frames.len - c->flip] ^= 1;
		buffer_free(&content);
		unit_put(&header, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[%zu],"
			 "\"data_offsets\":[%zu,%zu]}", c->name,
			 d->dtype ? d->dtype : "U8", frames.len - from, from,
			 frames.len);
		unit_put(&map, "%s\"%s\":\"m.safetensors\"", i ? "," : "",
			 c->name);
		sum_text(c, sum);
		if (!c->sum || *c->sum)
			unit_put(&sums, "%s\"%s\":\"%s\"", sums.n ? "," : "",
				 c->name, c->sum ? c->sum : sum);
	}
	append_hex(&b, "");
	put(&b, strlen("{\"__metadata__\":{}}") + sums.n + header.n, 8);
	buffer_append(&b, "{\"__metadata__\":{", 17);
	buffer_append(&b, sums.s, sums.n);
	buffer_append(&b, "}", 1);
	buffer_append(&b, header.s, header.n);
	buffer_append(&b, "}", 1);
	buffer_append(&b, frames.data, frames.len);
	snprintf(name, sizeof(name), "weight_v%06u/m.safetensors", d->version);
	tree_write(tree, name, b.data, b.len);
	snprintf(name, sizeof(name), "weight_v%06u/model.safetensors.index.json",
		 d->version);
	header.n = 0;
	unit_put(&header, "{\"metadata\":{\"version\":\"%06u\",\"base_version\":"
		 "\"%06u\",\"delta_encoding\":\"%s\",\"compression_format\":"
		 "\"zstd\",\"checksum_format\":\"adler32\"},\"weight_map\":{"
		 "%s%s}}", d->version, d->base, d->overwrite ? "overwrite" :
		 "xor", map.s, d->names ? d->names : "");
	tree_write(tree, name, header.s, header.n);
	buffer_free(&b);
	buffer_free(&frames);
}

#define FULL(version, tensors) \
	{ "weight_v" version "/model.safetensors", tensors }
#define V1 FULL("000001", "w U8[3]=10; v U8[2]=50; k U8[1]=9")

/* ---- what is shown ---- */

static const struct versions {
	const char *name;
	struct torch_text full[3];
	struct delta deltas[4];
	int code; /* 0: it is shown */
	const char *want;
} versions[] = {
	{ "a_full_one", { V1 }, { { 0 } }, 0,
	  "k U8[1] 9\nv U8[2] 50 51\nw U8[3] 10 11 12\n" },
	{ "the_newest_full_one", { V1, FULL("000012", "w U8[2]=7") }, { { 0 } },
	  0, "w U8[2] 7 8\n" },
	{ "xor", { V1 }, { { 2, 1, false, { { "w", 3, 10, 20 } } } }, 0,
	  "k U8[1] 9\nv U8[2] 50 51\nw U8[3] 20 21 22\n" },
	{ "overwrite", { V1 }, { { 2, 1, true, { { "v", 2, 50, 60 } } } }, 0,
	  "k U8[1] 9\nv U8[2] 60 61\nw U8[3] 10 11 12\n" },
	{ "one_after_the_other", { V1 },
	  { { 2, 1, false, { { "w", 3, 10, 20 }, { "k", 1, 9, 8 } } },
	    { 3, 2, true, { { "v", 2, 50, 60 } } },
	    { 4, 3, false, { { "w", 3, 20, 30 }, { "v", 2, 60, 70 } } } }, 0,
	  "k U8[1] 8\nv U8[2] 70 71\nw U8[3] 30 31 32\n" },
	{ "a_full_one_between", { V1, FULL("000003", "w U8[3]=40") },
	  { { 2, 1, false, { { "w", 3, 10, 20 } } },
	    { 4, 3, false, { { "w", 3, 40, 50 } } } }, 0,
	  "w U8[3] 50 51 52\n" },
	/* Larger than what is verified when it is opened. */
	{ "a_large_damaged_one", { FULL("000001", "w U8[5000]; k U8[1]=9") },
	  { { 2, 1, false, { { "w", 5000, 0, 1, NULL, 1 } } } }, 0,
	  "cannot be read: Bad message\nerror: SOURCE/weight_v000002: w has the "
	  "checksum a9209b6d (adler32), and the trainer wrote a91f9b6c\n" },

	/* ---- what is refused ---- */
	{ "a_version_between_is_missing", { V1 },
	  { { 3, 2, false, { { "w", 3, 10, 20 } } } }, EAGAIN,
	  "SOURCE/weight_v000003 builds on version 2, which is not there" },
	{ "of_a_base_that_is_not_given", { { NULL } },
	  { { 1, 0, false, { { "w", 3, 10, 20 } } },
	    { 2, 1, false, { { "w", 3, 20, 30 } } } }, EINVAL,
	  "SOURCE/weight_v000001 is a delta of the model that the run began "
	  "with: give it with --base DIR" },
	{ "not_in_the_model", { V1 },
	  { { 2, 1, false, { { "x", 3, 10, 20 } } } }, EINVAL,
	  "weight_v000002: x is not in the model that it changes" },
	/* A position that is not after the one before. */
	{ "a_damaged_delta", { V1 },
	  { { 2, 1, true, { { "w", 3, 10, 20, NULL, 11 } } } }, EBADMSG,
	  "SOURCE/weight_v000002: the delta of w is damaged" },
	{ "not_compressed", { V1 },
	  { { 2, 1, false, { { "w", 3, 10, 20 } }, NULL, "I8" } }, EBADMSG,
	  "weight_v000002: w is not a compressed tensor: UInt8 with one "
	  "dimension" },
	{ "a_name_that_is_in_no_file", { V1 },
	  { { 2, 1, false, { { "w", 3, 10, 20 } },
	      ",\"v\":\"m.safetensors\"" } }, EBADMSG,
	  "weight_v000002: its index names 2 tensors, and its files have 1" },
	{ "more_bytes_than_the_tensor", { V1 },
	  { { 2, 1, false, { { "w", 4, 10, 20 } } } }, EBADMSG,
	  "weight_v000002 changes 4 bytes of w, and it has 3 in "
	  "weight_v000001" },
	{ "fewer_bytes_than_the_tensor", { V1 },
	  { { 2, 1, false, { { "w", 2, 10, 20 } } } }, EBADMSG,
	  "weight_v000002 changes 2 bytes of w, and it has 3 in "
	  "weight_v000001" },
	{ "another_checksum", { V1 },
	  { { 2, 1, false, { { "w", 3, 10, 20, "00000001" } } } }, EBADMSG,
	  "weight_v000002: w has the checksum 007f0040 (adler32), and the "
	  "trainer wrote 00000001" },
	{ "another_checksum_before_the_last", { V1 },
	  { { 2, 1, false, { { "w", 3, 10, 20, "00000001" } } },
	    { 3, 2, false, { { "w", 3, 20, 30 } } } }, EBADMSG,
	  "weight_v000002: w has the checksum 007f0040 (adler32), and the "
	  "trainer wrote 00000001" },
	{ "no_checksum", { V1 },
	  { { 2, 1, false, { { "w", 3, 10, 20, "" } } } }, EBADMSG,
	  "weight_v000002: w has no checksum" },
	{ "a_checksum_that_is_none", { V1 },
	  { { 2, 1, false, { { "w", 3, 10, 20, "007f004g" } } } }, EBADMSG,
	  "weight_v000002: w has no checksum" },
};

TEST_ROWS(versions)
{
	const struct versions *v = *state;
	cleanup_tree char *tree = tree_make();

	torch_write_all(tree, v->full);
	for (unsigned i = 0; i < 4 && v->deltas[i].version; i++)
		write_delta(tree, &v->deltas[i]);
	if (v->code)
		assert_not_shown(tree, "", v->code, v->want);
	else
		assert_shown(tree, "", v->want);
}

TEST(a_delta_alone_is_no_model)
{
	static const char another[] =
		"{\"metadata\":{\"version\":2,\"base_version\":1,"
		"\"delta_encoding\":\"rle\",\"compression_format\":\"zstd\"},"
		"\"weight_map\":{}}";
	const struct delta d = { 2, 1, true, { { "w", 3, 10, 20 } } };
	cleanup_tree char *tree = tree_make();

	write_delta(tree, &d);
	assert_not_shown(tree, "weight_v000002", EINVAL, "is a delta of version "
			 "1 (overwrite, zstd); mount the directory above it, "
			 "with --base and --select step=2");
	tree_write(tree, "weight_v000002/model.safetensors.index.json", another,
		   strlen(another));
	assert_not_shown(tree, "weight_v000002", ENOTSUP,
			 "SOURCE/weight_v000002: delta_encoding \"rle\" is not "
			 "known (xor, overwrite)");
}
