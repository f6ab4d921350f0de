/* SPDX-License-Identifier: Apache-2.0 */
/* wire/safetensors_scan.c scans a safetensors file: it reads the whole header
 * and no content.
 *
 * Each member of the header is parsed for itself: a tree of all of them takes
 * ten times the memory of the text.
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

#include "rsh/util/arena.h"
#include "rsh/util/checked.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"
#include "rsh/wire/bytes.h"
#include "safetensors_i.h"

/* This is one tensor of the header. */
struct tensor {
	const char *name; /* in the arena, as `dims` */
	const uint64_t *dims;
	uint64_t begin; /* data_offsets */
	uint64_t end;
	uint32_t place; /* its place in the header */
	uint8_t dtype, n_dims;
};

struct scan {
	const struct rsh_byte_source *src;
	struct rsh_names *names;
	struct rsh_error *err;
	bool may_be_delta;
	char *text;       /* the header */
	size_t len, at;   /* its bytes, and how many are parsed */
	json_t *metadata; /* NULL: none */
	uint64_t data;    /* offset of the tensors' bytes */
	struct rsh_arena arena;
	struct tensor *tensors;
	uint32_t n_tensors;
	size_t cap, n_dims; /* of all tensors */
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

static int load_header(struct scan *s)
{
	uint64_t len = 0;
	int rc;
	uint8_t bytes[SAFETENSORS_LENGTH_BYTES];

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
	s->text = rsh_alloc_array(len, 1);
	if (!s->text)
		return rsh_error_nomem(s->err);
	s->len = len;
	s->data = SAFETENSORS_LENGTH_BYTES + len;
	return read_exactly(s, s->text, len, SAFETENSORS_LENGTH_BYTES);
}

static int st_not_json(struct scan *s, size_t at, const char *why)
{
	return st_damaged(s, NULL, SAFETENSORS_LENGTH_BYTES + (uint64_t)at,
			  "the header is not JSON: %s", why);
}

/* Returns the next character that is not blank; 0: there is none. */
static char st_peek(struct scan *s)
{
	while (s->at < s->len && memchr(" \t\n\r", s->text[s->at], 4))
		s->at++;
	return s->at < s->len ? s->text[s->at] : '\0';
}

static int st_expect(struct scan *s, char c, const char *what)
{
	if (st_peek(s) != c)
		return st_not_json(s, s->at, what);
	s->at++;
	return 0;
}

/* Parses the next value. */
static int st_value(struct scan *s, json_t **out)
{
	json_error_t where;

	*out = json_loadb(s->text + s->at, s->len - s->at,
			  JSON_REJECT_DUPLICATES | JSON_DECODE_ANY |
			  JSON_DISABLE_EOF_CHECK, &where);
	if (!*out)
		return json_error_code(&where) == json_error_out_of_memory ?
		       rsh_error_nomem(s->err) :
		       st_not_json(s, s->at + (size_t)where.position,
				   where.text);
	s->at += (size_t)where.position;
	return 0;
}

/* ---- the metadata ---- */

static int bad_metadata(struct scan *s, const char *key, const char *what)
{
	return st_damaged(s, NULL, SAFETENSORS_LENGTH_BYTES,
			  "\"%s\" of \"" SAFETENSORS_METADATA "\" is not %s",
			  key, what);
}

static int st_is_twice(struct scan *s, const char *name)
{
	return st_damaged(s, name, SAFETENSORS_LENGTH_BYTES, "the header is "
			  "not JSON: it has this as a duplicate object key");
}

static int take_metadata(struct scan *s, json_t *from)
{
	const char *key;
	json_t *value;

	if (s->metadata)
		return st_is_twice(s, SAFETENSORS_METADATA);
	if (json_is_null(from))
		return 0;
	s->metadata = json_incref(from);
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

		e->key = rsh_arena_strdup(&meta->arena_, key);
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

static int st_read_shape(struct scan *s, const json_t *shape, struct tensor *t)
{
	const size_t n = json_array_size(shape);
	uint64_t *dims = rsh_arena_array(&s->arena, uint64_t, n);

	if (!dims)
		return rsh_error_nomem(s->err);
	for (size_t i = 0; i < n; i++)
		if (!st_get_u64(json_array_get(shape, i), &dims[i]))
			return st_damaged(s, t->name, s->data + t->begin,
					  "dimension %zu is not a size", i);
	t->dims = dims;
	t->n_dims = (uint8_t)n;
	s->n_dims += n;
	return 0;
}

static int st_read_tensor(struct scan *s, const json_t *info, struct tensor *t)
{
	const json_t *offsets = json_object_get(info, "data_offsets");
	enum rsh_dtype dtype;
	const json_t *v;
	const char *text;
	int rc;

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
	v = json_object_get(info, "shape");
	if (!json_is_array(v))
		return st_damaged(s, t->name, SAFETENSORS_LENGTH_BYTES,
				  "\"shape\" is not a list");
	if (json_array_size(v) > RSH_MAX_DIMS)
		return st_damaged(s, t->name, SAFETENSORS_LENGTH_BYTES,
				  "more than %d dimensions", RSH_MAX_DIMS);
	rc = st_read_shape(s, v, t);
	if (rc)
		return rc;
	v = json_object_get(info, "dtype");
	text = json_string_value(v);
	if (!text)
		return st_damaged(s, t->name, SAFETENSORS_LENGTH_BYTES,
				  "\"dtype\" is not a string");
	switch (rsh_safetensors_dtype_parse(text, &dtype)) {
	case SAFETENSORS_DTYPE:
		t->dtype = (uint8_t)dtype;
		return 0;
	case SAFETENSORS_DTYPE_FOREIGN:
		return rsh_error_set(
			s->err, ENOTSUP,
			"%s: parameter \"%s\" is of element type %s, which is not supported",
			s->src->path, t->name, text);
	case SAFETENSORS_DTYPE_UNKNOWN:
	default:
		return st_damaged(s, t->name, SAFETENSORS_LENGTH_BYTES,
				  "unknown element type \"%.64s\"", text);
	}
}

/* A version of weights that is a delta has compressed bytes, all UInt8 of one
 * dimension, and the checksum of each tensor under its name. */
static int check_no_delta(struct scan *s)
{
	bool is = s->metadata && s->n_tensors > 0 && !s->may_be_delta;

	for (uint32_t i = 0; i < s->n_tensors && is; i++) {
		const struct tensor *t = &s->tensors[i];
		const json_t *sum = json_object_get(s->metadata, t->name);
		const char *text = sum ? json_string_value(sum) : "";
		const size_t n = strlen(text);

		is = t->dtype == RSH_DTYPE_UINT8 &&
		     t->n_dims == 1 &&
		     (n == 8 || n == 32 || n == 64) &&
		     strspn(text, "0123456789abcdef") == n;
	}
	return !is ? 0 :
	       rsh_error_set(s->err, ENOTSUP, "%s: the weights are a delta of "
			     "another version, not a model: the engine that "
			     "pulls them, such as SGLang, applies it to that "
			     "version", s->src->path);
}

/* Tensors without elements have equal offsets. */
RSH_ORDER(compare_tensors, struct tensor,
	  rsh_compare_u64(x->begin, y->begin) ?:
	  rsh_compare_u64(x->end, y->end) ?:
	  rsh_compare_u64(x->place, y->place))

static int add_tensor(struct scan *s, const char *name, const json_t *info)
{
	struct tensor t = { .place = s->n_tensors };
	int rc;

	t.name = rsh_arena_strdup(&s->arena, name);
	if (!t.name || rsh_room(s->tensors, s->cap, (size_t)s->n_tensors + 1))
		return rsh_error_nomem(s->err);
	rc = st_read_tensor(s, info, &t);
	/* A header has fewer tensors than 32 bits can count. */
	if (rc == 0)
		s->tensors[s->n_tensors++] = t;
	return rc;
}

static int read_member(struct scan *s)
{
	json_t *key = NULL, *value = NULL;
	const char *name;
	int rc = st_peek(s) == '"' ? st_value(s, &key) :
		 st_not_json(s, s->at, "a name or '}' expected");

	rc = rc ?: st_expect(s, ':', "':' expected") ?: st_value(s, &value);
	name = json_string_value(key);
	if (rc == 0)
		rc = strcmp(name, SAFETENSORS_METADATA) == 0 ?
		     take_metadata(s, value) : add_tensor(s, name, value);
	json_decref(key);
	json_decref(value);
	return rc;
}

static int read_members(struct scan *s)
{
	int rc;

	if (st_peek(s) == '[')
		return st_damaged(s, NULL, SAFETENSORS_LENGTH_BYTES,
				  "the header is not a JSON object");
	rc = st_expect(s, '{', "'{' expected");
	if (rc == 0 && st_peek(s) != '}')
		do {
			rc = read_member(s);
		} while (rc == 0 && st_peek(s) == ',' && ++s->at);
	rc = rc ?: st_expect(s, '}', "',' or '}' expected");
	if (rc)
		return rc;
	/* What is not blank may be a zero. */
	st_peek(s);
	return s->at == s->len ? 0 :
	       st_not_json(s, s->at, "end of file expected");
}

static int read_header(struct scan *s)
{
	int rc = load_header(s) ?: read_members(s);

	free(s->text);
	s->text = NULL;
	if (rc)
		return rc;
	/* The metadata says which Int8 are Int4. */
	for (uint32_t i = 0; s->metadata && i < s->n_tensors; i++) {
		struct tensor *t = &s->tensors[i];
		const json_t *v = t->dtype != RSH_DTYPE_INT8 ?
					  NULL :
					  json_object_get(s->metadata, t->name);

		if (v && !strcmp(json_string_value(v), SAFETENSORS_INT4))
			t->dtype = RSH_DTYPE_INT4;
	}
	rsh_sort(s->tensors, s->n_tensors, compare_tensors);
	/* Two records of one name and place would be said to overlap.  Other
	 * duplicates are found when the index is sorted by name. */
	for (uint32_t i = 1; i < s->n_tensors; i++)
		if (s->tensors[i].begin == s->tensors[i - 1].begin &&
		    strcmp(s->tensors[i].name, s->tensors[i - 1].name) == 0)
			return st_is_twice(s, s->tensors[i].name);
	return check_no_delta(s);
}

/* ---- the index ---- */

/* Appends the dimensions to the index and computes the size in bytes. */
static int st_add_shape(struct scan *s, const struct tensor *t, uint64_t *bytes)
{
	struct rsh_ckpt_index *ix = s->index;
	const size_t n = t->n_dims;
	int64_t *dims = ix->dims + ix->n_dims;
	uint64_t elements;

	for (size_t i = 0; i < n; i++)
		dims[i] = (int64_t)t->dims[i];
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
		.dtype = t->dtype,
		.n_dims = t->n_dims,
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
	int rc;

	s->index = rsh_ckpt_index_new(s->n_tensors, s->n_tensors, s->n_dims);
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

/* Returns whether an entry says something that MindSpore and the library do not
 * write themselves, or that the index has. */
static bool is_of_user(const struct scan *s, const char *key, const char *text)
{
	const uint32_t name = rsh_names_find(s->names, key, strlen(key));

	return strcmp(key, "crc_num") != 0 &&
	       strcmp(key, "remove_redundancy") != 0 &&
	       (strcmp(text, SAFETENSORS_INT4) != 0 ||
		name == RSH_NAME_NONE || !rsh_ckpt_find(s->index, name));
}

/* Of metadata that are too long only a few keys are kept. */
#define KEYS_KEPT 3
#define KEY_MAX 200

static char *metadata_text(json_t *all)
{
	char *text = json_dumps(all, JSON_COMPACT | JSON_SORT_KEYS);
	const char *key;
	json_t *value, *keys;

	if (!text || strlen(text) <= RSH_INDEX_METADATA_MAX)
		return text;
	free(text);
	keys = json_object();
	json_object_foreach(all, key, value)
		if (json_object_size(keys) < KEYS_KEPT &&
		    strlen(key) < KEY_MAX)
			json_object_set_new(keys, key, json_null());
	text = json_dumps(keys, JSON_COMPACT | JSON_SORT_KEYS);
	json_decref(keys);
	return text;
}

/* Gives the index the metadata.  What MindSpore wrote has nothing to keep, and
 * Hugging Face's tools always write {"format": "pt"}. */
static int keep_metadata(struct scan *s)
{
	const char *format =
		json_string_value(json_object_get(s->metadata, "format"));
	json_t *value, *kept;
	const char *key;
	bool failed;

	if (!s->metadata || s->may_be_delta ||
	    (format && strcmp(format, "ms") == 0))
		return 0;
	kept = json_object();
	failed = !kept;
	json_object_foreach(s->metadata, key, value)
		if (is_of_user(s, key, json_string_value(value)))
			failed |= json_object_set(kept, key, value) != 0;
	if (!failed && json_object_size(kept) >
		       (format && strcmp(format, "pt") == 0)) {
		s->index->metadata = metadata_text(kept);
		failed = !s->index->metadata;
	}
	json_decref(kept);
	return failed ? rsh_error_nomem(s->err) : 0;
}

static int scan_file(struct scan *s, struct rsh_ckpt_index **out,
		     struct rsh_safetensors_meta *meta)
{
	uint32_t twice;
	int rc;

	if (meta)
		*meta = (struct rsh_safetensors_meta){ .n_entries = 0 };
	rc = read_header(s) ?: add_records(s);
	if (!rc && rsh_ckpt_index_sort(s->index, &twice))
		rc = st_is_twice(s, rsh_names_text(s->names, twice));
	rc = rc ?: keep_metadata(s);
	if (!rc && meta)
		rc = read_metadata(s, meta);
	free(s->tensors);
	rsh_arena_clear(&s->arena);
	json_decref(s->metadata);
	if (rc) {
		rsh_ckpt_index_free(s->index);
		if (meta)
			rsh_safetensors_meta_clear(meta);
		return rc;
	}
	*out = s->index;
	return 0;
}

int rsh_safetensors_scan(const struct rsh_byte_source *src,
			 struct rsh_names *names, struct rsh_ckpt_index **out,
			 struct rsh_safetensors_meta *meta,
			 struct rsh_error *err)
{
	struct scan s = { .src = src, .names = names, .err = err };

	return scan_file(&s, out, meta);
}

int rsh_safetensors_scan_delta(const struct rsh_byte_source *src,
			       struct rsh_names *names,
			       struct rsh_ckpt_index **out,
			       struct rsh_safetensors_meta *meta,
			       struct rsh_error *err)
{
	struct scan s = { .src = src, .names = names, .err = err,
			  .may_be_delta = true };

	return scan_file(&s, out, meta);
}
