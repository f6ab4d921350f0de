/* SPDX-License-Identifier: Apache-2.0 */
/* wire/safetensors_scan.c scans a safetensors file: it reads the whole header
 * and no content.
 *
 * The header's length is checked against the file before memory of that size is
 * allocated.  The offsets are checked in the order of the tensors: each tensor
 * must begin where the previous one ended. */
#include "rsh/wire/safetensors.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "rsh/util/checked.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"
#include "rsh/wire/bytes.h"
#include "safetensors_i.h"

/* This is one tensor of the header. */
struct tensor {
	const char *name; /* owned by the JSON */
	const json_t *shape;
	enum rsh_dtype dtype;
	uint64_t begin; /* data_offsets */
	uint64_t end;
	uint32_t place; /* its place in the header */
};

struct scan {
	const struct rsh_byte_source *src;
	struct rsh_names *names;
	struct rsh_error *err;
	json_t *header;
	json_t *metadata; /* borrowed from header; NULL: none */
	uint64_t data;    /* offset of the tensors' bytes */
	struct tensor *tensors;
	uint32_t n_tensors;
	struct rsh_ckpt_index *index;
};

static int st_damaged(struct scan *s, const char *name, uint64_t offset,
		      const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* `name` is the parameter or NULL. */
static int st_damaged(struct scan *s, const char *name, uint64_t offset,
		      const char *fmt, ...)
{
	va_list ap;
	int rc;

	va_start(ap, fmt);
	rc = rsh_bytes_vdamaged(s->src, name, offset, s->err, fmt, ap);
	va_end(ap);
	return rc;
}

/* ---- the header ---- */

static int read_exactly(struct scan *s, void *buf, size_t len, uint64_t offset)
{
	size_t got;
	int rc = rsh_bytes_read_some(s->src, buf, len, offset, &got, s->err);

	if (rc == 0 && got < len)
		return st_damaged(s, NULL, offset + got,
				  "the file ends here, though it has %" PRIu64
				  " bytes", s->src->size);
	return rc;
}

static int read_header(struct scan *s)
{
	cleanup_free char *text = NULL;
	uint64_t len = 0;
	int rc;
	uint8_t bytes[SAFETENSORS_LENGTH_BYTES];
	json_error_t where;

	if (!s->src->size)
		return rsh_error_set(s->err, EBADMSG, "%s: the file is empty",
				     s->src->path);
	if (s->src->size < sizeof(bytes))
		return st_damaged(s, NULL, 0,
				  "the file ends within the header's length");
	rc = read_exactly(s, bytes, sizeof(bytes), 0);
	if (rc)
		return rc;
	len = rsh_le64(bytes);
	if (len > RSH_SAFETENSORS_HEADER_MAX)
		return st_damaged(s, NULL, 0,
				  "a header of %" PRIu64
				  " bytes, which is more than the %" PRIu64
				  " of a safetensors file",
				  len, RSH_SAFETENSORS_HEADER_MAX);
	if (len > s->src->size - sizeof(bytes))
		return st_damaged(s, NULL, 0,
				  "a header of %" PRIu64
				  " bytes in a file of %" PRIu64,
				  len, s->src->size);
	text = rsh_alloc_array(len, 1);
	if (!text)
		return rsh_error_nomem(s->err);
	s->data = SAFETENSORS_LENGTH_BYTES + len;
	rc = read_exactly(s, text, len, SAFETENSORS_LENGTH_BYTES);
	if (rc)
		return rc;
	s->header = json_loadb(text, len, JSON_REJECT_DUPLICATES, &where);
	if (!s->header)
		return st_damaged(s, NULL, SAFETENSORS_LENGTH_BYTES +
					  (uint64_t)where.position,
				  "the header is not JSON: %s", where.text);
	if (!json_is_object(s->header))
		return st_damaged(s, NULL, SAFETENSORS_LENGTH_BYTES,
				  "the header is not a JSON object");
	return 0;
}

/* ---- the metadata ---- */

static int bad_metadata(struct scan *s, const char *key, const char *what)
{
	return st_damaged(s, NULL, SAFETENSORS_LENGTH_BYTES,
			  "\"%s\" of \"" SAFETENSORS_METADATA "\" is not %s",
			  key, what);
}

static int check_metadata(struct scan *s)
{
	const char *key;
	json_t *value;

	s->metadata = json_object_get(s->header, SAFETENSORS_METADATA);
	if (json_is_null(s->metadata))
		s->metadata = NULL;
	if (!s->metadata)
		return 0;
	if (!json_is_object(s->metadata))
		return st_damaged(s, NULL, SAFETENSORS_LENGTH_BYTES,
				  "\"" SAFETENSORS_METADATA
				  "\" is not a JSON object");
	json_object_foreach(s->metadata, key, value)
		if (!json_is_string(value))
			return bad_metadata(s, key, "a string");
	return 0;
}

static int read_metadata(struct scan *s, struct rsh_safetensors_meta *meta)
{
	struct rsh_safetensors_entry *entries;
	const char *key;
	json_t *value;
	uint64_t crc;

	if (!s->metadata)
		return 0;
	entries = rsh_arena_array(&meta->arena_, struct rsh_safetensors_entry,
				  json_object_size(s->metadata));
	if (!entries)
		return rsh_error_nomem(s->err);
	meta->entries = entries;
	json_object_foreach(s->metadata, key, value) {
		struct rsh_safetensors_entry *e = &entries[meta->n_entries++];

		e->key = rsh_arena_strndup(&meta->arena_, key, strlen(key));
		e->value = rsh_arena_strndup(&meta->arena_,
					     json_string_value(value),
					     json_string_length(value));
		if (!e->key || !e->value)
			return rsh_error_nomem(s->err);
		if (strcmp(key, "crc_num"))
			continue;
		meta->has_crc = rsh_digits_read(e->value, strlen(e->value),
						UINT32_MAX, &crc);
		if (!meta->has_crc)
			return bad_metadata(s, key, "a number of 32 bits");
		meta->crc = (uint32_t)crc;
	}
	return 0;
}

void rsh_safetensors_meta_clear(struct rsh_safetensors_meta *meta)
{
	rsh_arena_clear(&meta->arena_);
	*meta = (struct rsh_safetensors_meta){ .n_entries = 0 };
}

/* ---- the tensors ---- */

static bool st_get_u64(const json_t *v, uint64_t *out)
{
	json_int_t i = json_integer_value(v);

	*out = (uint64_t)i;
	return json_is_integer(v) && i >= 0;
}

static int st_read_tensor(struct scan *s, const json_t *info, struct tensor *t)
{
	const json_t *offsets = json_object_get(info, "data_offsets");
	const json_t *v;
	const char *text;

	if (!*t->name)
		return st_damaged(s, NULL, SAFETENSORS_LENGTH_BYTES,
				  "a parameter name of 0 bytes");
	if (!json_is_object(info))
		return st_damaged(
			s, t->name, SAFETENSORS_LENGTH_BYTES,
			"its value in the header is not an object");
	if (json_array_size(offsets) != 2 ||
	    !st_get_u64(json_array_get(offsets, 0), &t->begin) ||
	    !st_get_u64(json_array_get(offsets, 1), &t->end))
		return st_damaged(s, t->name, SAFETENSORS_LENGTH_BYTES,
				  "\"data_offsets\" is not a pair of offsets");
	t->shape = json_object_get(info, "shape");
	if (!json_is_array(t->shape))
		return st_damaged(s, t->name, SAFETENSORS_LENGTH_BYTES,
				  "\"shape\" is not a list");
	if (json_array_size(t->shape) > RSH_MAX_DIMS)
		return st_damaged(s, t->name, SAFETENSORS_LENGTH_BYTES,
				  "more than %d dimensions", RSH_MAX_DIMS);
	v = json_object_get(info, "dtype");
	text = json_string_value(v);
	if (!text)
		return st_damaged(s, t->name, SAFETENSORS_LENGTH_BYTES,
				  "\"dtype\" is not a string");
	switch (rsh_safetensors_dtype_parse(text, &t->dtype)) {
	case SAFETENSORS_DTYPE:
		break;
	case SAFETENSORS_DTYPE_FOREIGN:
		return rsh_error_set(
			s->err, ENOTSUP,
			"%s: parameter \"%s\" is of element type %s, which is not supported",
			s->src->path, t->name, text);
	case SAFETENSORS_DTYPE_UNKNOWN:
		return st_damaged(s, t->name, SAFETENSORS_LENGTH_BYTES,
				  "unknown element type \"%.64s\"", text);
	}
	if (t->dtype == RSH_DTYPE_INT8 && s->metadata) {
		v = json_object_get(s->metadata, t->name);
		if (v && !strcmp(json_string_value(v), SAFETENSORS_INT4))
			t->dtype = RSH_DTYPE_INT4;
	}
	return 0;
}

/* A version of weights that is a delta has compressed bytes, all UInt8 of one
 * dimension, and the checksum of each tensor under its name. */
static int check_no_delta(struct scan *s)
{
	bool is = s->metadata && s->n_tensors > 0;

	for (uint32_t i = 0; i < s->n_tensors && is; i++) {
		const struct tensor *t = &s->tensors[i];
		const json_t *sum = json_object_get(s->metadata, t->name);
		const char *text = sum ? json_string_value(sum) : "";
		const size_t n = strlen(text);

		is = t->dtype == RSH_DTYPE_UINT8 &&
		     json_array_size(t->shape) == 1 &&
		     (n == 8 || n == 32 || n == 64) &&
		     strspn(text, "0123456789abcdef") == n;
	}
	return !is ? 0 :
	       rsh_error_set(s->err, ENOTSUP, "%s: the weights are a delta of "
			     "another version, not a model: the engine that "
			     "pulls them, such as SGLang, applies it to that "
			     "version", s->src->path);
}

static int compare_tensors(const void *a, const void *b)
{
	const struct tensor *x = a, *y = b;

	/* Tensors without elements have equal offsets. */
	return rsh_compare_u64(x->begin, y->begin) ?:
	       rsh_compare_u64(x->end, y->end) ?:
	       rsh_compare_u64(x->place, y->place);
}

static int read_tensors(struct scan *s)
{
	const char *name;
	json_t *info;
	int rc;

	/* A header has fewer tensors than 32 bits can count. */
	s->tensors = rsh_alloc_array(json_object_size(s->header),
				     sizeof(*s->tensors));
	if (!s->tensors)
		return rsh_error_nomem(s->err);
	json_object_foreach(s->header, name, info) {
		struct tensor *t = &s->tensors[s->n_tensors];

		if (!strcmp(name, SAFETENSORS_METADATA))
			continue;
		*t = (struct tensor){ .name = name, .place = s->n_tensors++ };
		rc = st_read_tensor(s, info, t);
		if (rc)
			return rc;
	}
	qsort(s->tensors, s->n_tensors, sizeof(*s->tensors), compare_tensors);
	return check_no_delta(s);
}

/* ---- the index ---- */

/* Appends the dimensions to the index and computes the size in bytes. */
static int st_add_shape(struct scan *s, const struct tensor *t, uint64_t *bytes)
{
	struct rsh_ckpt_index *ix = s->index;
	size_t n = json_array_size(t->shape);
	int64_t *dims = ix->dims + ix->n_dims;
	uint64_t dim, elements;

	for (size_t i = 0; i < n; i++) {
		if (!st_get_u64(json_array_get(t->shape, i), &dim))
			return st_damaged(s, t->name, s->data + t->begin,
					  "dimension %zu is not a size", i);
		dims[i] = (int64_t)dim;
	}
	/* The shape of F4 counts numbers, and a byte has two of them. */
	if (t->dtype == RSH_DTYPE_FLOAT4X2) {
		if (n == 0 || dims[n - 1] % 2)
			return st_damaged(s, t->name, s->data + t->begin,
					  "its rows of F4 are not complete bytes");
		dims[n - 1] /= 2;
	}
	if (!rsh_product_i64(dims, n, &elements) ||
	    !rsh_mul_u64(elements, rsh_dtype_size(t->dtype), bytes))
		return st_damaged(s, t->name, s->data + t->begin,
				  "its dimensions are out of range");
	ix->n_dims += (uint32_t)n;
	return 0;
}

static int check_place(struct scan *s, const struct tensor *t,
		       uint64_t expected)
{
	uint64_t room = s->src->size - s->data;

	if (t->begin != expected)
		return st_damaged(s, t->name, s->data + expected,
				  "its data_offsets begin at %" PRIu64
				  ", the tensors before it end at %" PRIu64,
				  t->begin, expected);
	if (t->end < t->begin)
		return st_damaged(s, t->name, s->data + t->begin,
				  "its data_offsets are %" PRIu64
				  " and %" PRIu64, t->begin, t->end);
	if (t->end > room)
		return st_damaged(
			s, t->name, s->data + t->begin,
			"its %" PRIu64
			" bytes reach beyond the end of the file at %" PRIu64,
			t->end - t->begin, s->src->size);
	return 0;
}

static int st_add_record(struct scan *s, const struct tensor *t,
			 uint64_t expected)
{
	struct rsh_ckpt_index *ix = s->index;
	struct rsh_record *r = &ix->records[ix->n_records];
	uint64_t bytes = 0;
	int rc;

	*r = (struct rsh_record){
		.dtype = (uint8_t)t->dtype,
		.n_dims = (uint8_t)json_array_size(t->shape),
		.first_dim = ix->n_dims,
		.first_extent = ix->n_extents,
		.content_bytes = t->end - t->begin,
	};
	rc = check_place(s, t, expected) ?:
	     st_add_shape(s, t, &bytes);
	if (rc)
		return rc;
	if (bytes != r->content_bytes)
		return st_damaged(s, t->name, s->data + t->begin,
				  "its content has %" PRIu64
				  " bytes, its shape and type make %" PRIu64,
				  r->content_bytes, bytes);
	if (bytes) {
		ix->extents[ix->n_extents++] =
			(struct rsh_extent){ s->data + t->begin, bytes };
		r->n_extents = 1;
	}
	r->name = rsh_names_add(s->names, t->name, strlen(t->name));
	if (r->name == RSH_NAME_NONE)
		return rsh_error_nomem(s->err);
	ix->n_records++;
	return 0;
}

static int add_records(struct scan *s)
{
	uint64_t end = 0;
	size_t n_dims = 0;
	int rc;

	for (uint32_t i = 0; i < s->n_tensors; i++)
		n_dims += json_array_size(s->tensors[i].shape);
	s->index = rsh_ckpt_index_new(s->n_tensors, s->n_tensors, n_dims);
	if (!s->index)
		return rsh_error_nomem(s->err);
	s->index->file_bytes = s->src->size;
	for (uint32_t i = 0; i < s->n_tensors; i++) {
		rc = st_add_record(s, &s->tensors[i], end);
		if (rc)
			return rc;
		end = s->tensors[i].end;
	}
	if (s->data + end != s->src->size)
		return st_damaged(
			s, NULL, s->data + end,
			"the tensors end here, but the file has %" PRIu64
			" bytes", s->src->size);
	return 0;
}

int rsh_safetensors_scan(const struct rsh_byte_source *src,
			 struct rsh_names *names, struct rsh_ckpt_index **out,
			 struct rsh_safetensors_meta *meta,
			 struct rsh_error *err)
{
	struct scan s = { .src = src, .names = names, .err = err };
	uint32_t twice;
	int rc;

	if (meta)
		*meta = (struct rsh_safetensors_meta){ .n_entries = 0 };
	rc = read_header(&s) ?:
	     check_metadata(&s) ?:
	     read_tensors(&s) ?:
	     add_records(&s);
	if (!rc && meta)
		rc = read_metadata(&s, meta);
	free(s.tensors);
	json_decref(s.header);
	if (rc) {
		rsh_ckpt_index_free(s.index);
		if (meta)
			rsh_safetensors_meta_clear(meta);
		return rc;
	}
	/* The names in a header are unique, so this cannot fail. */
	rsh_ckpt_index_sort(s.index, &twice);
	*out = s.index;
	return 0;
}
