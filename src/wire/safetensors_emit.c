/* SPDX-License-Identifier: Apache-2.0 */
/* wire/safetensors_emit.c orders tensors as the safetensors library does and
 * writes the header of a file. */
#include "rsh/wire/safetensors.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/checked.h"
#include "rsh/util/mem.h"
#include "rsh/wire/json_text.h"
#include "safetensors_i.h"

#define ALIGNMENT 8 /* of the header's length */

static int compare_shapes(const void *a, const void *b, void *ctx)
{
	const uint32_t *i = a, *j = b;
	const struct rsh_record_shape *shapes = ctx;
	const struct rsh_record_shape *x = &shapes[*i], *y = &shapes[*j];
	int x_rank = rsh_safetensors_dtype_rank(x->dtype);
	int y_rank = rsh_safetensors_dtype_rank(y->dtype);
	int c;

	if (x_rank != y_rank)
		return x_rank > y_rank ? -1 : 1;
	c = memcmp(x->name, y->name,
		   x->name_len < y->name_len ? x->name_len : y->name_len);
	if (c)
		return c;
	return x->name_len < y->name_len ? -1 : x->name_len > y->name_len;
}

void rsh_safetensors_order(const struct rsh_record_shape *shapes, uint32_t n,
			   uint32_t *order)
{
	union {
		const void *in;
		void *out;
	} ctx = { .in = shapes }; /* qsort_r passes it on unchanged */

	for (uint32_t i = 0; i < n; i++)
		order[i] = i;
	qsort_r(order, n, sizeof(*order), compare_shapes, ctx.out);
}

/* ---- the header ---- */

RSH_ORDER(compare_entries, struct rsh_safetensors_entry, strcmp(x->key, y->key))

static int put_metadata(struct rsh_json_text *t,
			const struct rsh_safetensors_entry *entries, uint32_t n,
			struct rsh_error *err)
{
	cleanup_free struct rsh_safetensors_entry *sorted =
		rsh_alloc_array(n, sizeof(*sorted));

	if (!sorted)
		return rsh_error_nomem(err);
	memcpy(sorted, entries, n * sizeof(*sorted));
	rsh_sort(sorted, n, compare_entries);
	rsh_json_text_puts(t, "\"" SAFETENSORS_METADATA "\":{");
	for (uint32_t i = 0; i < n; i++) {
		const struct rsh_safetensors_entry *e = &sorted[i];

		for (int k = 0; k < 2; k++) {
			const char *text = k ? e->value : e->key;

			rsh_json_text_puts(t, k ? ":" : i ? "," : "");
			if (!rsh_json_text_put_string(t, text, strlen(text),
						      RSH_ESCAPES_SERDE))
				return rsh_error_set(err, EINVAL,
						     "the metadata entry "
						     "\"%s\" is not UTF-8",
						     e->key);
		}
	}
	rsh_json_text_puts(t, "}");
	return 0;
}

/* Writes the tensor whose content begins at *offset and moves *offset past
 * it. */
static int put_tensor(struct rsh_json_text *t, const struct rsh_record_shape *s,
		      uint64_t *offset, struct rsh_error *err)
{
	static const size_t reserved = sizeof(SAFETENSORS_METADATA) - 1;
	uint64_t begin = *offset;

	if (!rsh_safetensors_dtype(s->dtype))
		return rsh_error_set(err, ENOTSUP,
				     "parameter \"%.*s\" is of type %s, which safetensors files cannot hold",
				     (int)s->name_len, s->name,
				     rsh_dtype_name(s->dtype));
	if (s->name_len == reserved &&
	    !memcmp(s->name, SAFETENSORS_METADATA, reserved))
		return rsh_error_set(err, EINVAL,
				     "a parameter of a safetensors file cannot have the name \"%s\"",
				     SAFETENSORS_METADATA);
	if (!rsh_json_text_put_string(t, s->name, s->name_len,
				      RSH_ESCAPES_SERDE))
		return rsh_error_set(err, EINVAL,
				     "the name of parameter \"%.*s\" is not UTF-8",
				     (int)s->name_len, s->name);
	if (!rsh_add_u64(begin, s->content_bytes, offset))
		return rsh_error_set(err, EFBIG,
				     "a safetensors file of more than 2^64 bytes");
	rsh_json_text_printf(t, ":{\"dtype\":\"%s\",\"shape\":[",
			     rsh_safetensors_dtype(s->dtype));
	/* The shape of F4 counts numbers, two in a byte. */
	for (unsigned i = 0; i < s->n_dims; i++)
		rsh_json_text_printf(
			t, "%s%" PRIu64, i ? "," : "",
			(uint64_t)s->dims[i]
				<< (s->dtype == RSH_DTYPE_FLOAT4X2 &&
				    i + 1u == s->n_dims));
	rsh_json_text_printf(t, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}",
			     begin, *offset);
	return 0;
}

/* Writes the header's length into the bytes reserved for it. */
static int finish(struct rsh_json_text *t, struct rsh_error *err)
{
	uint64_t len = t->len - SAFETENSORS_LENGTH_BYTES;

	if (t->failed)
		return rsh_error_nomem(err);
	if (len > RSH_SAFETENSORS_HEADER_MAX)
		return rsh_error_set(err, EFBIG,
				     "a safetensors header of %" PRIu64
				     " bytes; readers take %" PRIu64,
				     len, RSH_SAFETENSORS_HEADER_MAX);
	for (unsigned i = 0; i < SAFETENSORS_LENGTH_BYTES; i++)
		t->data[i] = (char)(len >> (8 * i) & 0xff);
	return 0;
}

int rsh_safetensors_header(const struct rsh_safetensors_contents *c,
			   uint8_t **out, size_t *out_len,
			   struct rsh_error *err)
{
	static const char length[SAFETENSORS_LENGTH_BYTES];
	struct rsh_json_text t = { 0 };
	uint64_t offset = 0;
	int rc = 0;

	_Static_assert(sizeof(length) % ALIGNMENT == 0,
		       "the padding counts from the text's begin");
	rsh_json_text_put(&t, length, sizeof(length));
	rsh_json_text_puts(&t, "{");
	if (c->n_entries)
		rc = put_metadata(&t, c->entries, c->n_entries, err);
	for (uint32_t i = 0; !rc && i < c->n; i++) {
		if (i || c->n_entries)
			rsh_json_text_puts(&t, ",");
		rc = put_tensor(&t, &c->shapes[c->order ? c->order[i] : i],
				&offset, err);
	}
	rsh_json_text_puts(&t, "}");
	while (!t.failed && t.len % ALIGNMENT)
		rsh_json_text_puts(&t, " ");
	rc = rc ?: finish(&t, err);
	if (rc) {
		rsh_json_text_clear(&t);
		return rc;
	}
	*out = (uint8_t *)t.data;
	*out_len = t.len;
	return 0;
}
