/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_formats_dcp_damage.c - distributed checkpoints that are damaged, and
 * pickles that nobody would write in good faith. */
#include "config.h"

#include "rsh/formats/dcp.h"
#include "support.h"
#include "wire_support.h"

#define TORCH "torch.distributed.checkpoint.metadata"

/* ---- .metadata ---- */

static int parse_bytes(struct buffer *b, struct rsh_error *err)
{
	struct rsh_byte_source src = buffer_source(b);
	struct rsh_dcp *d;
	int rc;

	*err = (struct rsh_error)RSH_ERROR_INIT;
	rc = rsh_dcp_parse(&src, &d, err);
	assert_true((rc == 0) == (d != NULL));
	rsh_dcp_free(d);
	return rc;
}

TEST(test_truncated)
{
	struct buffer b = load_file("data/dcp/torch-2.15/uneven2d/.metadata");
	struct rsh_error err;

	for (size_t len = 0; len < b.len; len++) {
		struct buffer cut = { b.data, len };

		assert_int_equal(parse_bytes(&cut, &err), -EBADMSG);
		assert_non_null(strstr(err.text, "test.ckpt: "));
	}
	assert_int_equal(parse_bytes(&b, &err), 0);
	buffer_append(&b, "", 1);
	assert_int_equal(parse_bytes(&b, &err), -EBADMSG);
	assert_non_null(strstr(err.text, "after the end of the pickle"));
	buffer_free(&b);
}

/* Whatever bit is wrong, there is a checkpoint or a sentence. */
TEST(test_flipped)
{
	static const char *const trees[] = {
		"torch-2.4/kinds", "torch-2.15/fsdp_tp", "torch-2.15/threads",
		"torch-2.15/uneven2d", "megatron-core-0.16/mcore-torch_dist",
	};
	struct rsh_error err;

	for (size_t i = 0; i < sizeof(trees) / sizeof(trees[0]); i++) {
		struct buffer b;
		char path[256];
		int n;

		snprintf(path, sizeof(path), "data/dcp/%s/.metadata",
			 trees[i]);
		b = load_file(path);
		n = rounds((int)b.len);
		for (int k = 0; k < n; k++) {
			const size_t at = b.len * (size_t)k / (size_t)n;
			const uint8_t bit = (uint8_t)(1u << (at * 5 % 8));
			int rc;

			b.data[at] ^= bit;
			rc = parse_bytes(&b, &err);
			b.data[at] ^= bit;
			if (rc && (rc != -err.code || !err.text[0] ||
				   (rc != -EBADMSG && rc != -ENOTSUP)))
				fail_msg("%s at %zu: rc %d, \"%s\"", path, at,
					 rc, err.text);
		}
		buffer_free(&b);
	}
}

/* ---- changed while it is read ---- */

/* A file of which somebody else has made something else after two reads. */
static ssize_t changing_pread(void *ctx, void *buf, size_t len, uint64_t offset)
{
	static unsigned n_reads;
	const struct buffer *b = ctx;

	assert_true(offset <= b->len && len <= b->len - offset);
	if (n_reads++ < 2)
		memcpy(buf, (const char *)b->data + offset, len);
	else
		memset(buf, 'x', len);
	return (ssize_t)len;
}

/* The name of the class begins in one window of 64 KiB and ends in the next, so
 * it is read once more. */
TEST(test_changing)
{
	static const char head[] = { '\x80', 2, 'X', '\xf3', '\xff', 0, 0 };
	static const char class[] = "ctorch\nSize\n.";
	static char text[65523];
	cleanup_buffer struct buffer b = { NULL, 0 };
	struct rsh_byte_source src;
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_dcp *d;

	buffer_append(&b, head, sizeof(head));
	buffer_append(&b, text, sizeof(text));
	buffer_append(&b, class, sizeof(class) - 1);
	src = buffer_source(&b);
	src.pread_fn = changing_pread;
	src.ctx = &b;
	assert_int_equal(rsh_dcp_parse(&src, &d, &err), -EBADMSG);
	assert_non_null(strstr(err.text, "changed while it was read"));
}

/* ---- made by hand ---- */

static void put(struct buffer *b, const char *bytes)
{
	buffer_append(b, bytes, strlen(bytes));
}

static void put_text(struct buffer *b, const char *text)
{
	const uint8_t head[] = { 0x8c, (uint8_t)strlen(text) };

	buffer_append(b, head, 2);
	put(b, text);
}

static void put_number(struct buffer *b, uint8_t n)
{
	const uint8_t bytes[] = { 'K', n };

	buffer_append(b, bytes, 2);
}

/* An object of a class, to whose attributes what follows is added; end() ends
 * them. */
static void put_object(struct buffer *b, const char *module, const char *class)
{
	put_text(b, module);
	put_text(b, class);
	put(b, "\x93)\x81}(");
}

static void put_end(struct buffer *b)
{
	put(b, "ub");
}

static void put_pair(struct buffer *b, const char *name, uint8_t x, uint8_t y)
{
	put_text(b, name);
	put_number(b, x);
	put_number(b, y);
	put(b, "\x86");
}

/* A checkpoint of one tensor; what is to be odd is said by the test. */
struct made {
	uint8_t rows, from, size; /* of the tensor, of its chunk */
	const char *path;
	const char *dtype;
	const char *extra; /* instructions: an attribute of the item */
	const char *in_size; /* instead of the tensor's size */
};

static void put_chunk(struct buffer *b, const struct made *m)
{
	put_object(b, TORCH, "ChunkStorageMetadata");
	put_pair(b, "offsets", m->from, 0);
	put_pair(b, "sizes", m->size, 2);
	put_end(b);
}

static void put_tensor(struct buffer *b, const struct made *m)
{
	put_object(b, TORCH, "TensorStorageMetadata");
	put_text(b, "properties");
	put_text(b, TORCH);
	put_text(b, "TensorProperties");
	put(b, "\x93)\x81(");
	put_text(b, "torch");
	put_text(b, m->dtype);
	put(b, "\x93tb");
	if (m->in_size) {
		put_text(b, "size");
		put(b, m->in_size);
	} else {
		put_pair(b, "size", m->rows, 2);
	}
	put_text(b, "chunks");
	put(b, "](");
	put_chunk(b, m);
	put(b, "e");
	put_end(b);
}

static void put_storage(struct buffer *b, const struct made *m)
{
	put_object(b, TORCH, "MetadataIndex");
	put_text(b, "fqn");
	put_text(b, "w");
	put_pair(b, "offset", m->from, 0);
	put_end(b);
	put_object(b, "torch.distributed.checkpoint.filesystem",
		   "_StorageInfo");
	put_text(b, "relative_path");
	put_text(b, m->path);
	put_text(b, "offset");
	put_number(b, 7);
	put_text(b, "length");
	put_number(b, 100);
	put(b, m->extra);
	put_end(b);
}

static struct buffer make(const struct made *m)
{
	struct buffer b = { NULL, 0 };

	put(&b, "\x80\x04");
	put_object(&b, TORCH, "Metadata");
	put_text(&b, "state_dict_metadata");
	put(&b, "}(");
	put_text(&b, "w");
	put_tensor(&b, m);
	put(&b, "u");
	put_text(&b, "storage_data");
	put(&b, "}(");
	put_storage(&b, m);
	put(&b, "u");
	put_end(&b);
	put(&b, ".");
	return b;
}

TEST(test_made)
{
	static const struct {
		struct made made;
		int code;
		const char *word;
	} cases[] = {
		{ { 9, 4, 5, "f", "float32", "", NULL }, 0, NULL },
		{ { 9, 9, 0, "f", "float32", "", NULL }, 0, NULL },
		/* of a type that is not known */
		{ { 9, 0, 9, "f", "float8_e8m0fnu", "", NULL }, 0, NULL },
		{ { 9, 4, 5, "f", "float32", "\x8c\x15transform_descriptors]",
		    NULL }, 0, NULL },
		{ { 9, 4, 5, "f", "float32", "\x8c\x15transform_descriptors"
		    "](K\1e", NULL }, ENOTSUP, "compressed" },
		{ { 9, 4, 6, "f", "float32", "", NULL }, EBADMSG,
		  "\"w\": a chunk that leaves" },
		{ { 9, 10, 0, "f", "float32", "", NULL }, EBADMSG, "leaves" },
		{ { 9, 4, 5, "a/f", "float32", "", NULL }, EBADMSG, "\"a/f\"" },
		{ { 9, 4, 5, "/f", "float32", "", NULL }, EBADMSG, "\"/f\"" },
		{ { 9, 4, 5, "..", "float32", "", NULL }, EBADMSG, "\"..\"" },
		{ { 9, 4, 5, "", "float32", "", NULL }, EBADMSG, "name" },
		/* negative, too many dimensions, too large, no tuple */
		{ { 9, 4, 5, "f", "float32", "", "J\xff\xff\xff\xffK\1\x86" },
		  EBADMSG, "not an integer" },
		{ { 9, 4, 5, "f", "float32", "", "K\1\x85" }, EBADMSG,
		  "dimension" },
		{ { 9, 4, 5, "f", "float32", "", "\x8a\x08\1\1\1\1\1\1\1\x7f"
		    "K\2\x86" }, EBADMSG, "counted" },
		{ { 9, 4, 5, "f", "float32", "", "\x8a\x09\1\1\1\1\1\1\1\1\1"
		    "K\2\x86" }, EBADMSG, "not an integer" },
		{ { 9, 4, 5, "f", "float32", "", "N" }, EBADMSG, "size" },
		/* POP, an extension, INST, a place of the memo, a gap in it,
		 * a persistent id */
		{ { 9, 4, 5, "f", "float32", "0", NULL }, EBADMSG, "0x30" },
		{ { 9, 4, 5, "f", "float32", "\x82\1", NULL }, EBADMSG,
		  "0x82" },
		{ { 9, 4, 5, "f", "float32", "ios\nsystem\n", NULL }, EBADMSG,
		  "0x69" },
		{ { 9, 4, 5, "f", "float32", "h\7", NULL }, EBADMSG, "memo" },
		{ { 9, 4, 5, "f", "float32", "q\7", NULL }, EBADMSG, "memo" },
		{ { 9, 4, 5, "f", "float32", "K\1Q", NULL }, EBADMSG,
		  "persistent" },
		/* a call of what is not known is carried, and ignored */
		{ { 9, 4, 5, "f", "float32", "\x8c\1x" "cos\nsystem\n"
		    "\x8c\2ls\x85R", NULL }, 0, NULL },
		/* a list that contains itself */
		{ { 9, 4, 5, "f", "float32", "\x8c\1x]\x94\x94h\1" "a",
		    NULL }, 0, NULL },
		{ { 9, 4, 5, "f", "float32", "t", NULL }, EBADMSG, "" },
		{ { 9, 4, 5, "f", "float32", "eee", NULL }, EBADMSG, "" },
		{ { 9, 4, 5, "f", "float32", "uuuuuu", NULL }, EBADMSG, "" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct buffer b = make(&cases[i].made);
		struct rsh_error err;
		int rc = parse_bytes(&b, &err);

		if (rc != -cases[i].code ||
		    (rc && !strstr(err.text, cases[i].word)))
			fail_msg("case %zu: rc %d, \"%s\"", i, rc, err.text);
		buffer_free(&b);
	}
}

/* ---- items ---- */

#define KINDS "data/dcp/torch-2.15/kinds/"

/* Loads the item of a tensor of that checkpoint. */
static struct buffer load_item(const char *name)
{
	struct buffer metadata = load_file(KINDS ".metadata");
	struct buffer file = load_file(KINDS "__0_0.distcp");
	struct rsh_byte_source src = buffer_source(&metadata);
	struct buffer item = { NULL, 0 };
	struct rsh_dcp *d;

	assert_int_equal(rsh_dcp_parse(&src, &d, NULL), 0);
	for (uint32_t i = 0; i < d->n_tensors; i++)
		if (strcmp(d->tensors[i].name, name) == 0)
			buffer_append(&item,
				      file.data + d->tensors[i].chunks->offset,
				      d->tensors[i].chunks->length);
	assert_true(item.len > 0);
	rsh_dcp_free(d);
	buffer_free(&metadata);
	buffer_free(&file);
	return item;
}

static int read_item(struct buffer *b, struct rsh_dcp_item *item,
		     struct rsh_error *err)
{
	struct rsh_byte_source src = buffer_source(b);
	int rc;

	*err = (struct rsh_error)RSH_ERROR_INIT;
	rc = rsh_dcp_item_read(&src, 0, b->len, item, err);
	if (rc == 0)
		assert_true(item->offset <= b->len &&
			    item->bytes <= b->len - item->offset);
	else if (rc != -EBADMSG || err->code != EBADMSG ||
		 !strstr(err->text, "test.ckpt, item at 0: "))
		fail_msg("rc %d, \"%s\"", rc, err->text);
	return rc;
}

TEST(test_item_truncated)
{
	cleanup_buffer struct buffer b = load_item("odd.transposed");
	struct rsh_byte_source src = buffer_source(&b);
	struct rsh_dcp_item item;
	struct rsh_error err;

	for (size_t len = 0; len < b.len; len++) {
		struct buffer cut = { b.data, len };

		assert_int_equal(read_item(&cut, &item, &err), -EBADMSG);
	}
	assert_int_equal(read_item(&b, &item, &err), 0);
	assert_int_equal(rsh_dcp_item_read(&src, 1, b.len, &item, &err),
			 -EBADMSG);
	assert_non_null(strstr(err.text, "truncated"));
}

TEST(test_item_flipped)
{
	static const char *const names[] = {
		"odd.transposed", "weights.f8_e4m3", "odd.scalar",
	};
	struct rsh_dcp_item item;
	struct rsh_error err;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		struct buffer b = load_item(names[i]);

		for (size_t bit = 0; bit < 8 * b.len; bit++) {
			b.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
			read_item(&b, &item, &err);
			b.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
		}
		buffer_free(&b);
	}
}

/* Sets the CRC of data.pkl in the archive's directory to 0: it has none. */
static void forget_crc(struct buffer *b)
{
	static const char name[] = "data.pkl";
	uint8_t *last = NULL, *at;
	size_t from = 0;

	while ((at = memmem(b->data + from, b->len - from, name,
			    sizeof(name) - 1))) {
		last = at;
		from = (size_t)(at - b->data) + 1;
	}
	assert_non_null(last);
	while (memcmp(last, "PK\1\2", 4) != 0)
		last--;
	memset(last + 16, 0, 4);
}

/* Each of these changes bytes of a tensor of [8,6] whose elements lie column by
 * column. */
TEST(test_item_refused)
{
	static const struct {
		const char *from, *to, *word;
	} cases[] = {
		{ "little", "biggle", "little-endian" },
		{ "K\1K\10\206", "K\1K\7\206", "gaps between them" },
		{ "K\1K\10\206", "K\0K\10\206", "gaps between them" },
		{ "K\10K\6\206", "K\10K\5\206", "not all of" },
		{ "K\10K\6\206", "K\7K\6\206", "not all of" },
		{ "tensor_v2", "tensor_v9", "no tensor" },
		{ "FloatStorage", "FlootStorage", "type that is not known" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct buffer b = load_item("odd.transposed");
		const size_t n = cases[i].from[0] == 'K' ? 5 :
					  strlen(cases[i].from);
		uint8_t *at = memmem(b.data, b.len, cases[i].from, n);
		struct rsh_dcp_item item;
		struct rsh_error err;

		assert_non_null(at);
		memcpy(at, cases[i].to, n);
		if (i > 0)
			assert_int_equal(read_item(&b, &item, &err), -EBADMSG);
		if (i > 0)
			assert_non_null(strstr(err.text, "match its CRC"));
		forget_crc(&b);
		if (read_item(&b, &item, &err) != -EBADMSG ||
		    !strstr(err.text, cases[i].word))
			fail_msg("case %zu: \"%s\"", i, err.text);
		buffer_free(&b);
	}
}

/* ---- Hugging Face's sharded form ---- */

struct seen {
	unsigned n;
	uint64_t sum;
};

static int see(void *ctx, const char *name, uint32_t n_dims,
	       const uint64_t *offsets)
{
	struct seen *s = ctx;

	s->n++;
	for (uint32_t i = 0; i < n_dims; i++)
		s->sum += offsets[i];
	return strcmp(name, "stop") == 0 ? -ECANCELED : 0;
}

TEST(test_sharding_info)
{
	static const struct {
		const char *text;
		int rc;
		unsigned n;
		uint64_t sum;
	} cases[] = {
		{ "{}", 0, 0, 0 },
		{ "{\"a\": {\"saved_offsets\": [3, 4]}, "
		  "\"b\": {\"saved_offsets\": [], \"more\": 1}}", 0, 2, 7 },
		{ "{\"stop\": {\"saved_offsets\": [1]}}", -ECANCELED, 1, 1 },
		{ "", -EBADMSG, 0, 0 },
		{ "[]", -EBADMSG, 0, 0 },
		{ "{\"a\": 1}", -EBADMSG, 0, 0 },
		{ "{\"a\": {}}", -EBADMSG, 0, 0 },
		{ "{\"a\": {\"saved_offsets\": 1}}", -EBADMSG, 0, 0 },
		{ "{\"a\": {\"saved_offsets\": [-1]}}", -EBADMSG, 0, 0 },
		{ "{\"a\": {\"saved_offsets\": [1.5]}}", -EBADMSG, 0, 0 },
		{ "{\"a\": {\"saved_offsets\": [0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,"
		  "0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]}}", -EBADMSG, 0, 0 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct rsh_error err = RSH_ERROR_INIT;
		struct seen seen = { 0, 0 };

		assert_int_equal(rsh_dcp_sharding_info(cases[i].text, "shard",
						       see, &seen, &err),
				 cases[i].rc);
		assert_int_equal(seen.n, cases[i].n);
		assert_int_equal(seen.sum, cases[i].sum);
		if (cases[i].rc == -EBADMSG)
			assert_non_null(strstr(err.text, "shard: "));
	}
}
