/* SPDX-License-Identifier: Apache-2.0 */
/* tensor/dtype.c holds the table of element types: their names and sizes. */
#include "rsh/tensor/dtype.h"

#include <string.h>

static const struct {
	const char *name;
	unsigned size;
} dtypes[RSH_DTYPE_COUNT] = {
	[RSH_DTYPE_UNKNOWN] = { "?", 0 },
	[RSH_DTYPE_BOOL] = { "Bool", 1 },
	[RSH_DTYPE_INT4] = { "Int4", 1 },
	[RSH_DTYPE_INT8] = { "Int8", 1 },
	[RSH_DTYPE_INT16] = { "Int16", 2 },
	[RSH_DTYPE_INT32] = { "Int32", 4 },
	[RSH_DTYPE_INT64] = { "Int64", 8 },
	[RSH_DTYPE_UINT8] = { "UInt8", 1 },
	[RSH_DTYPE_UINT16] = { "UInt16", 2 },
	[RSH_DTYPE_UINT32] = { "UInt32", 4 },
	[RSH_DTYPE_UINT64] = { "UInt64", 8 },
	[RSH_DTYPE_FLOAT16] = { "Float16", 2 },
	[RSH_DTYPE_FLOAT32] = { "Float32", 4 },
	[RSH_DTYPE_FLOAT64] = { "Float64", 8 },
	[RSH_DTYPE_BFLOAT16] = { "BFloat16", 2 },
	[RSH_DTYPE_COMPLEX64] = { "Complex64", 8 },
	[RSH_DTYPE_COMPLEX128] = { "Complex128", 16 },
	[RSH_DTYPE_FLOAT8E4M3FN] = { "Float8E4M3FN", 1 },
	[RSH_DTYPE_FLOAT8E5M2] = { "Float8E5M2", 1 },
	[RSH_DTYPE_HIFLOAT8] = { "HiFloat8", 1 },
	[RSH_DTYPE_STR] = { "str", 4 },
	[RSH_DTYPE_FLOAT8E8M0] = { "Float8E8M0FNU", 1 },
	[RSH_DTYPE_FLOAT4X2] = { "Float4E2M1FNx2", 1 },
};

enum rsh_dtype rsh_dtype_parse(const char *s, size_t len)
{
	for (int t = RSH_DTYPE_UNKNOWN + 1; t < RSH_DTYPE_COUNT; t++)
		if (strlen(dtypes[t].name) == len &&
		    !memcmp(dtypes[t].name, s, len))
			return (enum rsh_dtype)t;
	return RSH_DTYPE_UNKNOWN;
}

const char *rsh_dtype_name(enum rsh_dtype t)
{
	return dtypes[t < RSH_DTYPE_COUNT ? t : RSH_DTYPE_UNKNOWN].name;
}

unsigned rsh_dtype_size(enum rsh_dtype t)
{
	return dtypes[t < RSH_DTYPE_COUNT ? t : RSH_DTYPE_UNKNOWN].size;
}

bool rsh_dtype_in_mindspore(enum rsh_dtype t)
{
	return t != RSH_DTYPE_UNKNOWN && t < RSH_DTYPE_FLOAT8E8M0;
}
