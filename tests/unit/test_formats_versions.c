/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_formats_versions.c - deltas of tensors that are applied in parts of
 * any size, frames that are damaged, names of versions and checksums.  Frames
 * have stored and repeated blocks, so the library that inflates has no part in
 * making them. */
#include "config.h"

#include "formats/versions/versions_i.h"
#include "support.h"

#define TENSOR_MAX 10000
#define BLOCK_MAX 1000
/* Count, positions and values of all bytes, and one too many. */
#define CONTENT_MAX (4 + 5 * TENSOR_MAX + 1)
#define FRAME_MAX (2 * CONTENT_MAX + 64)

/* ---- frames ---- */

struct frame_bytes {
	uint8_t bytes[FRAME_MAX];
	size_t n;
};

static void put(struct frame_bytes *f, uint64_t v, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		f->bytes[f->n++] = (uint8_t)(v >> 8 * i);
}

/* Writes the content in blocks of random sizes. */
static void make_frame(struct frame_bytes *f, const uint8_t *content, size_t n)
{
	size_t at = 0;

	f->n = 0;
	put(f, 0xfd2fb528, 4);
	put(f, 0xc0, 1); /* the size of the content has 8 bytes */
	put(f, 9 << 3, 1);
	put(f, n, 8);
	do {
		size_t part = 1 + below(BLOCK_MAX), same = 1;

		part = n - at < part ? n - at : part;
		while (same < part && content[at + same] == content[at])
			same++;
		if (part > 0 && same == part) {
			put(f, (at + part == n) | 1 << 1 | part << 3, 3);
			put(f, content[at], 1);
		} else {
			put(f, (at + part == n) | part << 3, 3);
			memcpy(f->bytes + f->n, content + at, part);
			f->n += part;
		}
		at += part;
	} while (at < n);
}

static int read_bytes(void *ctx, uint32_t file, uint64_t offset, void *buf,
		      size_t len)
{
	const struct frame_bytes *f = ctx;

	assert_int_equal(file, 7);
	assert_true(offset + len <= f->n);
	memcpy(buf, f->bytes + offset, len);
	return 0;
}

static struct rsh_frame_place place_of(struct frame_bytes *f)
{
	return (struct rsh_frame_place){
		read_bytes, f, 7, 0, f->n, 1 + below(300),
	};
}

/* ---- deltas ---- */

static size_t make_content(enum rsh_delta_form form, const uint8_t *old,
			   const uint8_t *new, size_t n, uint8_t *content)
{
	uint32_t count = 0;
	size_t at = 4;

	if (form == RSH_DELTA_XOR) {
		for (size_t i = 0; i < n; i++)
			content[i] = old[i] ^ new[i];
		return n;
	}
	for (size_t i = 0; i < n; i++)
		if (old[i] != new[i]) {
			for (unsigned k = 0; k < 4; k++)
				content[at++] = (uint8_t)(i >> 8 * k);
			count++;
		}
	for (size_t i = 0; i < n; i++)
		if (old[i] != new[i])
			content[at++] = new[i];
	for (unsigned k = 0; k < 4; k++)
		content[k] = (uint8_t)(count >> 8 * k);
	return at;
}

/* Applies a delta in parts of random sizes. */
static int apply(struct frame_bytes *f, enum rsh_delta_form form, uint8_t *p,
		 size_t n)
{
	const struct rsh_frame_place at = place_of(f);
	struct rsh_change *c;
	int rc = rsh_change_open(&at, form, n, &c);

	assert_int_equal(rc, 0);
	for (size_t done = 0, part; rc == 0 && done < n; done += part) {
		part = 1 + below(1500);
		part = n - done < part ? n - done : part;
		rc = rsh_change_apply(c, p + done, part);
	}
	rsh_change_close(c);
	return rc;
}

struct case_of {
	size_t n, n_content;
	uint8_t old[TENSOR_MAX], new[TENSOR_MAX], content[CONTENT_MAX];
	struct frame_bytes frame;
};

static void make_case(struct case_of *c, enum rsh_delta_form form)
{
	/* Of few changes a short frame has more than is inflated at once. */
	const uint32_t share = below(3) ? 1 + below(200) : TENSOR_MAX;

	c->n = 1 + below(TENSOR_MAX);
	for (size_t i = 0; i < c->n; i++) {
		c->old[i] = (uint8_t)below(256);
		c->new[i] = below(share) ? c->old[i] : (uint8_t)below(256);
	}
	c->n_content = make_content(form, c->old, c->new, c->n, c->content);
	make_frame(&c->frame, c->content, c->n_content);
}

TEST(test_deltas)
{
	cleanup_free struct case_of *c = malloc(sizeof(*c));

	assert_non_null(c);
	for (unsigned i = 0; i < 400; i++) {
		const enum rsh_delta_form form = i % 2;
		struct rsh_frame_place at;
		uint64_t size;

		make_case(c, form);
		at = place_of(&c->frame);
		assert_int_equal(rsh_frame_size(&at, &size), 0);
		assert_int_equal(size, c->n_content);
		assert_true(size <= rsh_change_content_max(form, c->n));
		assert_int_equal(apply(&c->frame, form, c->old, c->n), 0);
		assert_memory_equal(c->old, c->new, c->n);
	}
}

/* Of another content, or of a frame that is cut or longer, no delta is applied
 * to its end. */
TEST(test_damage)
{
	cleanup_free struct case_of *c = malloc(sizeof(*c));

	assert_non_null(c);
	for (unsigned i = 0; i < 400; i++) {
		const enum rsh_delta_form form = i % 2;

		make_case(c, form);
		switch (below(form == RSH_DELTA_XOR ? 3 : 5)) {
		case 0:
			c->frame.n -= 1 + below((uint32_t)c->frame.n - 1);
			break;
		case 1:
			put(&c->frame, below(256), 1);
			break;
		case 2: /* of another size */
			c->content[c->n_content] = 0;
			make_frame(&c->frame, c->content,
				   below(2) ? c->n_content - 1 :
					      c->n_content + 1);
			break;
		case 3: /* a position beyond the tensor, or one twice */
			c->content[0] = 2;
			c->content[1] = c->content[2] = c->content[3] = 0;
			memset(c->content + 4, 0, 8);
			c->content[8] = below(2) ? 0 : (uint8_t)c->n;
			c->content[9] = c->content[8] ?
					(uint8_t)(c->n >> 8) : 0;
			c->content[12] = c->content[13] = 1;
			make_frame(&c->frame, c->content, 14);
			break;
		case 4: /* more positions than bytes */
			memset(c->content, 0xff, 4);
			make_frame(&c->frame, c->content, c->n_content);
			break;
		}
		assert_int_equal(apply(&c->frame, form, c->old, c->n),
				 -EBADMSG);
	}
}

/* ---- names, words and checksums ---- */

TEST(test_names)
{
	static const struct {
		const char *name;
		uint64_t version;
	} names[] = {
		{ "weight_v000001", 1 }, { "weight_v1234567", 1234567 },
		{ "weight_v00001", 0 }, { "weight_v000000", 0 },
		{ "weight_v000001.tmp", 0 }, { "weight_v-00001", 0 },
		{ "weights_v000001", 0 }, { "weight_v", 0 },
		{ "weight_v99999999999999999999", 0 },
	};
	uint64_t version;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		version = 0;
		if (!rsh_version_read(names[i].name, &version))
			version = 0;
		assert_int_equal(version, names[i].version);
	}
}

TEST(test_sums)
{
	static const struct {
		enum rsh_sum_form form;
		const char *of_abc;
	} sums[] = {
		{ RSH_SUM_ADLER32, "024d0127" },
		{ RSH_SUM_XXH3, "06b05ab6733a618578af5f94892f3950" },
		{ RSH_SUM_BLAKE3, "6437b3ac38465133ffb63b75273a8db5"
				  "48c558465d79db03fd359c6cd5bd9d85" },
	};
	struct rsh_summing s;
	char text[RSH_SUM_TEXT];

	for (size_t i = 0; i < sizeof(sums) / sizeof(sums[0]); i++) {
		assert_int_equal(rsh_summing_begin(&s, sums[i].form), 0);
		rsh_summing_add(&s, "a", 1);
		rsh_summing_add(&s, "bc", 2);
		rsh_summing_end(&s, text);
		assert_string_equal(text, sums[i].of_abc);
		assert_true(rsh_sum_is_valid(sums[i].form, text));
		text[0] = 'A';
		assert_false(rsh_sum_is_valid(sums[i].form, text));
		text[0] = '\0';
		assert_false(rsh_sum_is_valid(sums[i].form, text));
	}
}

TEST(test_index)
{
	static const char text[] =
		"{\"metadata\": {\"version\": \"000012\", \"base_version\": "
		"11, \"delta_encoding\": \"overwrite\", \"compression_format\":"
		" \"zstd\", \"checksum_format\": \"adler32\"}, \"weight_map\": "
		"{\"b\": \"2.safetensors\", \"a\": \"1.safetensors\", "
		"\"c\": \"2.safetensors\"}}";
	struct rsh_version_index x;
	struct rsh_error err = RSH_ERROR_INIT;

	assert_int_equal(rsh_version_index_parse(text, strlen(text), "index",
						 "weight_v000012", &x, &err),
			 0);
	assert_true(x.is_delta && x.version == 12 && x.base == 11);
	assert_true(x.form == RSH_DELTA_OVERWRITE && x.sum == RSH_SUM_ADLER32);
	assert_true(x.n_names == 3 && x.n_files == 2);
	assert_string_equal(x.names[0].name, "a");
	assert_string_equal(rsh_names_text(x.file_names, x.names[0].file),
			    "1.safetensors");
	rsh_version_index_clear(&x);
	assert_int_equal(rsh_version_index_parse("{}", 2, "index", "v", &x,
						 &err), 0);
	assert_false(x.is_delta);
	rsh_version_index_clear(&x);
}
