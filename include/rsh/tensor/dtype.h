/* SPDX-License-Identifier: Apache-2.0 */
/* tensor/dtype.h - element types of checkpoint tensors, with their names and
 * sizes.  The table is constant; any thread may call these functions.
 *
 * TensorProto.tensor_type has MindSpore's C++ type names; the content is
 * little-endian memory in C order.  `str` is numpy's <U layout: UTF-32LE code
 * points, four bytes an element.  Names of safetensors are in
 * wire/safetensors_dtype.c.  The index cache stores the numbers: append new
 * types. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum rsh_dtype {
	RSH_DTYPE_UNKNOWN,
	RSH_DTYPE_BOOL,
	RSH_DTYPE_INT4, /* qint4x2: stored in one byte an element */
	RSH_DTYPE_INT8,
	RSH_DTYPE_INT16,
	RSH_DTYPE_INT32,
	RSH_DTYPE_INT64,
	RSH_DTYPE_UINT8,
	RSH_DTYPE_UINT16,
	RSH_DTYPE_UINT32,
	RSH_DTYPE_UINT64,
	RSH_DTYPE_FLOAT16,
	RSH_DTYPE_FLOAT32,
	RSH_DTYPE_FLOAT64,
	RSH_DTYPE_BFLOAT16,
	RSH_DTYPE_COMPLEX64,
	RSH_DTYPE_COMPLEX128,
	RSH_DTYPE_FLOAT8E4M3FN,
	RSH_DTYPE_FLOAT8E5M2,
	RSH_DTYPE_HIFLOAT8,
	RSH_DTYPE_STR,
	RSH_DTYPE_FLOAT8E8M0, /* a power of two, as scales have */
	RSH_DTYPE_FLOAT4X2,   /* two E2M1 in a byte, which is one element */
	RSH_DTYPE_COUNT
};

/* Returns the type of that name, RSH_DTYPE_UNKNOWN if there is none. */
enum rsh_dtype rsh_dtype_parse(const char *s, size_t len);
/* Returns the name, such as "Float32", or "?" for RSH_DTYPE_UNKNOWN. */
const char *rsh_dtype_name(enum rsh_dtype t);
/* Returns the bytes of a stored element, 0 for RSH_DTYPE_UNKNOWN. */
unsigned rsh_dtype_size(enum rsh_dtype t);
/* Returns whether MindSpore has the type, so that a .ckpt may contain it. */
bool rsh_dtype_in_mindspore(enum rsh_dtype t);
