/* SPDX-License-Identifier: Apache-2.0 */
/* wire/safetensors_i.h - what the parts of the safetensors code share: the
 * table of element types, and JSON text as other writers write it.  Only this
 * room includes it. */
#ifndef RSH_WIRE_SAFETENSORS_I_H
#define RSH_WIRE_SAFETENSORS_I_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rsh/tensor/dtype.h"

#define SAFETENSORS_LENGTH_BYTES 8 /* before the header */
#define SAFETENSORS_METADATA "__metadata__"
#define SAFETENSORS_INT4 "Int4" /* a metadata value */

enum safetensors_known {
	SAFETENSORS_DTYPE,         /* *out is the type */
	SAFETENSORS_DTYPE_FOREIGN, /* the format has it, MindSpore has not */
	SAFETENSORS_DTYPE_UNKNOWN,
};

enum safetensors_known rsh_safetensors_dtype_parse(const char *s,
						   enum rsh_dtype *out);
/* Returns the rank of a type, by which tensors are written in descending order;
 * -1 if the format does not have the type. */
int rsh_safetensors_dtype_rank(enum rsh_dtype t);

/* This is a text that grows.  After a failure it takes no more, and `failed`
 * says so. */
struct json_text {
	char *data;
	size_t len;
	size_t cap;
	bool failed;
};

void rsh_json_text_put(struct json_text *t, const char *s, size_t len);
void rsh_json_text_puts(struct json_text *t, const char *s);
void rsh_json_text_put_u64(struct json_text *t, uint64_t v);
void rsh_json_text_clear(struct json_text *t);

enum json_escapes {
	JSON_ESCAPES_SERDE,  /* only what JSON demands; the rest is UTF-8 */
	JSON_ESCAPES_PYTHON, /* all that is not printable ASCII */
};

/* Writes the string with its quotes.  If it is not UTF-8, it returns false and
 * writes nothing. */
bool rsh_json_text_put_string(struct json_text *t, const char *s, size_t len,
			      enum json_escapes escapes);

#endif
