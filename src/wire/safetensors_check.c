/* wire/safetensors_check.c - do the tensors of a .safetensors file fill it?
 *
 * Eight bytes say how long the header is, the header is a JSON object of
 * tensors (type, shape, begin and end of its bytes), their bytes follow. */
#include "config.h"

#include "rsh/wire/intact.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "bytes_i.h"
#include "rsh/util/checked.h"
#include "rsh/util/mem.h"

#define LENGTH_BYTES 8
#define HEADER_MAX 100000000 /* the format's own limit */

struct range {
	uint64_t begin, end;
};

static const struct {
	const char *name;
	unsigned bits;
} types[] = {
	{ "BOOL", 8 }, { "U8", 8 }, { "I8", 8 }, { "F8_E5M2", 8 },
	{ "F8_E4M3", 8 }, { "F8_E8M0", 8 }, { "F4", 4 }, { "F6_E2M3", 6 },
	{ "F6_E3M2", 6 }, { "I16", 16 }, { "U16", 16 }, { "F16", 16 },
	{ "BF16", 16 }, { "I32", 32 }, { "U32", 32 }, { "F32", 32 },
	{ "C64", 64 }, { "F64", 64 }, { "I64", 64 }, { "U64", 64 },
};

static unsigned type_bits(const char *name)
{
	for (size_t i = 0; name && i < sizeof(types) / sizeof(types[0]); i++)
		if (strcmp(types[i].name, name) == 0)
			return types[i].bits;
	return 0;
}

static bool take_number(const json_t *j, uint64_t *out)
{
	if (!json_is_integer(j) || json_integer_value(j) < 0)
		return false;
	*out = (uint64_t)json_integer_value(j);
	return true;
}

static bool take_range(const json_t *tensor, struct range *r)
{
	const json_t *offsets = json_object_get(tensor, "data_offsets");

	return json_array_size(offsets) == 2 &&
	       take_number(json_array_get(offsets, 0), &r->begin) &&
	       take_number(json_array_get(offsets, 1), &r->end) &&
	       r->begin <= r->end;
}

static bool fits_shape(const json_t *tensor, const struct range *r)
{
	const json_t *shape = json_object_get(tensor, "shape");
	uint64_t bits = type_bits(json_string_value(
				  json_object_get(tensor, "dtype")));
	uint64_t dim;

	if (!bits || !json_is_array(shape))
		return false;
	for (size_t i = 0; i < json_array_size(shape); i++)
		if (!take_number(json_array_get(shape, i), &dim) ||
		    !rsh_mul_u64(bits, dim, &bits))
			return false;
	return bits % 8 == 0 && r->end - r->begin == bits / 8;
}

static int by_begin(const void *a, const void *b)
{
	const struct range *x = a, *y = b;

	if (x->begin != y->begin)
		return x->begin < y->begin ? -1 : 1;
	return x->end < y->end ? -1 : x->end > y->end;
}

static int check_ranges(const struct rsh_byte_source *src, struct range *r,
			size_t n, uint64_t data, struct rsh_error *err)
{
	uint64_t end = 0;

	qsort(r, n, sizeof(*r), by_begin);
	for (size_t i = 0; i < n; i++) {
		if (r[i].begin != end)
			return rsh_bytes_damaged(src, data + end, "tensors "
						 "overlap or leave a gap", err);
		end = r[i].end;
	}
	if (end > src->size - data)
		return rsh_error_set(err, EBADMSG, "%s: truncated: it has %"
				     PRIu64 " bytes, its header speaks of %"
				     PRIu64 " more", src->path, src->size,
				     end - (src->size - data));
	return end == src->size - data ? 0 :
	       rsh_bytes_damaged(src, data + end, "the file goes on after its "
				 "last tensor", err);
}

static int check_tensors(const struct rsh_byte_source *src, json_t *header,
			 uint64_t data, struct rsh_error *err)
{
	cleanup_free struct range *ranges =
		rsh_alloc_array(json_object_size(header) + 1, sizeof(*ranges));
	const char *name;
	json_t *tensor;
	size_t n = 0;

	if (!ranges)
		return rsh_error_nomem(err);
	json_object_foreach(header, name, tensor) {
		if (strcmp(name, "__metadata__") == 0)
			continue;
		if (!take_range(tensor, &ranges[n]) ||
		    !fits_shape(tensor, &ranges[n]))
			return rsh_error_set(err, EBADMSG, "%s: tensor \"%s\": "
					     "type, shape and place do not "
					     "agree", src->path, name);
		n++;
	}
	return check_ranges(src, ranges, n, data, err);
}

int rsh_safetensors_check(const struct rsh_byte_source *src,
			  struct rsh_error *err)
{
	cleanup_free char *text = NULL;
	uint8_t length[LENGTH_BYTES];
	json_error_t why;
	json_t *header;
	uint64_t n;
	int rc;

	if (src->size == 0)
		return rsh_bytes_damaged(src, 0, "it is empty", err);
	rc = rsh_bytes_read(src, length, sizeof(length), 0, err);
	if (rc)
		return rc;
	n = rsh_le64(length);
	if (n > HEADER_MAX)
		return rsh_bytes_damaged(src, 0, "a header longer than the "
					 "format allows", err);
	if (n > src->size - LENGTH_BYTES)
		return rsh_bytes_damaged(src, src->size, "truncated within "
					 "the header", err);
	text = malloc((size_t)n + 1);
	if (!text)
		return rsh_error_nomem(err);
	rc = rsh_bytes_read(src, text, (size_t)n, LENGTH_BYTES, err);
	if (rc)
		return rc;
	header = json_loadb(text, (size_t)n, JSON_REJECT_DUPLICATES, &why);
	if (!json_is_object(header)) {
		json_decref(header);
		return rsh_bytes_damaged(src, LENGTH_BYTES, "the header is no "
					 "JSON object", err);
	}
	rc = check_tensors(src, header, LENGTH_BYTES + n, err);
	json_decref(header);
	return rc;
}
