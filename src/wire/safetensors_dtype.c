/* SPDX-License-Identifier: Apache-2.0 */
/* wire/safetensors_dtype.c maps the type names of safetensors to element types
 * and back, and gives the library's order of types. */
#include "rsh/wire/safetensors.h"

#include <string.h>

#include "safetensors_i.h"

/* These are the library's types in the order of its Dtype, by which it sorts
 * tensors on writing.  The rank of a type is its place in the table. */
static const struct {
	const char *name;
	enum rsh_dtype dtype; /* RSH_DTYPE_UNKNOWN: not supported */
} dtypes[] = {
	{ "BOOL", RSH_DTYPE_BOOL },
	{ "F4", RSH_DTYPE_FLOAT4X2 },
	{ "F6_E2M3", RSH_DTYPE_UNKNOWN },
	{ "F6_E3M2", RSH_DTYPE_UNKNOWN },
	{ "U8", RSH_DTYPE_UINT8 },
	{ "I8", RSH_DTYPE_INT8 },
	{ "F8_E5M2", RSH_DTYPE_FLOAT8E5M2 },
	{ "F8_E4M3", RSH_DTYPE_FLOAT8E4M3FN },
	{ "F8_E8M0", RSH_DTYPE_FLOAT8E8M0 },
	{ "F8_E4M3FNUZ", RSH_DTYPE_UNKNOWN },
	{ "F8_E5M2FNUZ", RSH_DTYPE_UNKNOWN },
	{ "I16", RSH_DTYPE_INT16 },
	{ "U16", RSH_DTYPE_UINT16 },
	{ "F16", RSH_DTYPE_FLOAT16 },
	{ "BF16", RSH_DTYPE_BFLOAT16 },
	{ "I32", RSH_DTYPE_INT32 },
	{ "U32", RSH_DTYPE_UINT32 },
	{ "F32", RSH_DTYPE_FLOAT32 },
	{ "C64", RSH_DTYPE_COMPLEX64 },
	{ "F64", RSH_DTYPE_FLOAT64 },
	{ "I64", RSH_DTYPE_INT64 },
	{ "U64", RSH_DTYPE_UINT64 },
};

#define N_DTYPES (sizeof(dtypes) / sizeof(dtypes[0]))

enum safetensors_known rsh_safetensors_dtype_parse(const char *s,
						   enum rsh_dtype *out)
{
	for (size_t i = 0; i < N_DTYPES; i++) {
		if (strcmp(dtypes[i].name, s))
			continue;
		*out = dtypes[i].dtype;
		return *out == RSH_DTYPE_UNKNOWN ? SAFETENSORS_DTYPE_FOREIGN :
						   SAFETENSORS_DTYPE;
	}
	return SAFETENSORS_DTYPE_UNKNOWN;
}

int rsh_safetensors_dtype_rank(enum rsh_dtype t)
{
	if (t == RSH_DTYPE_INT4)
		t = RSH_DTYPE_INT8;
	for (size_t i = 0; i < N_DTYPES && t != RSH_DTYPE_UNKNOWN; i++)
		if (dtypes[i].dtype == t)
			return (int)i;
	return -1;
}

const char *rsh_safetensors_dtype(enum rsh_dtype t)
{
	int rank = rsh_safetensors_dtype_rank(t);

	return rank < 0 ? NULL : dtypes[rank].name;
}
