/* SPDX-License-Identifier: Apache-2.0 */
#include "wire_support.h"

#include <ctype.h>
#include <sys/types.h>

#include "checkpoint.pb-c.h"

struct buffer load_file(const char *name)
{
	const char *dir = getenv("srcdir");
	struct buffer b = { NULL, 0 };
	uint8_t block[4096];
	char path[4096];
	size_t n;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", *name == '/' ? "" : dir ?: ".",
		 name);
	f = fopen(path, "rb");
	if (!f)
		fail_msg("cannot open %s", path);
	while ((n = fread(block, 1, sizeof(block), f)) > 0)
		buffer_append(&b, block, n);
	assert_false(ferror(f));
	fclose(f);
	return b;
}

/* A small buffer has just its bytes, so that a sanitizer sees who goes beyond
 * them.  A large one that grew has room for more: to copy it for each byte
 * takes for ever. */
static size_t buffer_room(size_t len)
{
	size_t n = 65536;

	if (len < n)
		return len;
	while (n < len)
		n *= 2;
	return n;
}

void buffer_append(struct buffer *b, const void *data, size_t len)
{
	const size_t room = buffer_room(b->len + len);

	if (!len)
		return;
	if (!b->data || room != buffer_room(b->len))
		b->data = realloc(b->data, room);
	assert_non_null(b->data);
	memcpy(b->data + b->len, data, len);
	b->len += len;
}

void buffer_free(struct buffer *b)
{
	free(b->data);
	*b = (struct buffer){ NULL, 0 };
}

static ssize_t pread_buffer(void *ctx, void *buf, size_t len, uint64_t offset)
{
	const struct buffer *b = ctx;
	size_t n = 0;

	if (offset < b->len)
		n = b->len - offset < len ? b->len - offset : len;
	if (n)
		memcpy(buf, b->data + offset, n);
	return (ssize_t)n;
}

struct rsh_byte_source buffer_source(struct buffer *b)
{
	return (struct rsh_byte_source){ pread_buffer, b, b->len, "test.ckpt" };
}

/* protobuf-c takes pointers to what it does not change. */
static void *unconst(const void *p)
{
	union {
		const void *in;
		void *out;
	} u = { .in = p };

	return u.out;
}

void append_record(struct buffer *b, const struct tensor *t)
{
	Rsh__Pb__TensorProto tensor = RSH__PB__TENSOR_PROTO__INIT;
	Rsh__Pb__CheckpointValue value = RSH__PB__CHECKPOINT_VALUE__INIT;
	Rsh__Pb__Checkpoint checkpoint = RSH__PB__CHECKPOINT__INIT;
	Rsh__Pb__CheckpointValue *values = &value;
	uint8_t *packed;
	size_t len;

	tensor.n_dims = t->n_dims;
	tensor.dims = unconst(t->dims);
	tensor.tensor_type = unconst(t->type);
	tensor.has_tensor_content = t->content != NULL;
	tensor.tensor_content.data = unconst(t->content);
	tensor.tensor_content.len = t->content_len;
	value.tag = unconst(t->tag);
	value.tensor = &tensor;
	checkpoint.n_value = 1;
	checkpoint.value = &values;
	len = rsh__pb__checkpoint__get_packed_size(&checkpoint);
	packed = malloc(len);
	assert_non_null(packed);
	assert_int_equal(rsh__pb__checkpoint__pack(&checkpoint, packed), len);
	buffer_append(b, packed, len);
	free(packed);
}

void append_hex(struct buffer *b, const char *hex)
{
	for (; *hex; hex++) {
		char digits[3] = { hex[0], hex[1], '\0' };
		uint8_t byte;

		if (isspace((unsigned char)*hex))
			continue;
		byte = (uint8_t)strtoul(digits, NULL, 16);
		buffer_append(b, &byte, 1);
		hex++;
	}
}

/* ---- scans of either format ---- */

void scanned_free(struct scanned *s)
{
	rsh_safetensors_meta_clear(&s->meta);
	rsh_ckpt_index_free(s->index);
	rsh_names_free(s->names);
}

void require(const struct scanned *s)
{
	if (s->rc)
		fail_msg("scan failed: %s", s->err.text);
}

void assert_refusal(const struct scanned *s, int code, const char *word)
{
	if (s->rc != -code || !strstr(s->err.text, word))
		fail_msg("rc %d, sentence \"%s\"; wanted %d and \"%s\"", s->rc,
			 s->err.text, -code, word);
}

const struct rsh_record *record(const struct scanned *s, const char *name)
{
	uint32_t id = rsh_names_find(s->names, name, strlen(name));
	const struct rsh_record *r = NULL;

	if (id != RSH_NAME_NONE)
		r = rsh_ckpt_find(s->index, id);
	if (!r)
		fail_msg("no record \"%s\"", name);
	return r;
}

void assert_record(const struct scanned *s, const char *name,
		   enum rsh_dtype dtype, size_t n_dims, const int64_t *dims,
		   uint64_t content_bytes)
{
	const struct rsh_record *r = record(s, name);

	assert_int_equal(r->dtype, dtype);
	assert_int_equal(r->n_dims, n_dims);
	if (n_dims)
		assert_memory_equal(rsh_record_dims(s->index, r), dims,
				    n_dims * sizeof(*dims));
	assert_int_equal(r->content_bytes, content_bytes);
}

struct buffer content_of(const struct scanned *s, const struct rsh_record *r,
			 const struct buffer *file)
{
	struct buffer b = { NULL, 0 };

	for (uint32_t i = 0; i < r->n_extents; i++) {
		const struct rsh_extent *e =
			&s->index->extents[r->first_extent + i];

		assert_true(e->offset + e->length <= file->len);
		buffer_append(&b, file->data + e->offset, e->length);
	}
	assert_int_equal(b.len, r->content_bytes);
	return b;
}

void assert_scanned(const struct scanned *s, const char *name,
		    const struct buffer *file, const void *bytes, size_t len)
{
	struct buffer content = content_of(s, record(s, name), file);

	assert_int_equal(content.len, len);
	assert_memory_equal(content.data, bytes, len);
	buffer_free(&content);
}
