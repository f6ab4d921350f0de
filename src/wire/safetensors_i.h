/* SPDX-License-Identifier: Apache-2.0 */
/* wire/safetensors_i.h - the table of element types of safetensors; only this
 * directory includes it. */
#pragma once

#include "rsh/tensor/dtype.h"

#define SAFETENSORS_LENGTH_BYTES 8 /* before the header */
#define SAFETENSORS_METADATA "__metadata__"
#define SAFETENSORS_INT4 "Int4" /* a metadata value */

enum safetensors_known {
	SAFETENSORS_DTYPE,         /* *out is the type */
	SAFETENSORS_DTYPE_FOREIGN, /* in the format, not supported */
	SAFETENSORS_DTYPE_UNKNOWN,
};

enum safetensors_known rsh_safetensors_dtype_parse(const char *s,
						   enum rsh_dtype *out);
/* Returns the rank of a type; tensors are written by descending rank. Returns
 * -1 if the format does not have the type. */
int rsh_safetensors_dtype_rank(enum rsh_dtype t);
