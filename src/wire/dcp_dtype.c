/* SPDX-License-Identifier: Apache-2.0 */
/* wire/dcp_dtype.c knows the element types and storages of torch by name. */
#include "config.h"

#include "dcp_dtype_i.h"

#include <string.h>

static const struct {
	const char *name, *storage; /* NULL: elements of an UntypedStorage */
	enum rsh_dtype dtype;
} dtypes[] = {
	{ "float32", "FloatStorage", RSH_DTYPE_FLOAT32 },
	{ "bfloat16", "BFloat16Storage", RSH_DTYPE_BFLOAT16 },
	{ "float16", "HalfStorage", RSH_DTYPE_FLOAT16 },
	{ "float64", "DoubleStorage", RSH_DTYPE_FLOAT64 },
	{ "int64", "LongStorage", RSH_DTYPE_INT64 },
	{ "int32", "IntStorage", RSH_DTYPE_INT32 },
	{ "int16", "ShortStorage", RSH_DTYPE_INT16 },
	{ "int8", "CharStorage", RSH_DTYPE_INT8 },
	{ "uint8", "ByteStorage", RSH_DTYPE_UINT8 },
	{ "bool", "BoolStorage", RSH_DTYPE_BOOL },
	{ "complex64", "ComplexFloatStorage", RSH_DTYPE_COMPLEX64 },
	{ "complex128", "ComplexDoubleStorage", RSH_DTYPE_COMPLEX128 },
	{ "uint16", NULL, RSH_DTYPE_UINT16 },
	{ "uint32", NULL, RSH_DTYPE_UINT32 },
	{ "uint64", NULL, RSH_DTYPE_UINT64 },
	{ "float8_e4m3fn", NULL, RSH_DTYPE_FLOAT8E4M3FN },
	{ "float8_e5m2", NULL, RSH_DTYPE_FLOAT8E5M2 },
};

#define N_DTYPES (sizeof(dtypes) / sizeof(dtypes[0]))

enum rsh_dtype rsh_dcp_dtype(const struct rsh_pickle_value *v)
{
	if (v->kind == RSH_PV_TEXT)
		return rsh_dtype_parse(v->text, v->n);
	for (size_t i = 0; i < N_DTYPES; i++)
		if (rsh_pickle_is_class(v, "torch", dtypes[i].name))
			return dtypes[i].dtype;
	return RSH_DTYPE_UNKNOWN;
}

enum rsh_dtype rsh_dcp_storage_dtype(const struct rsh_pickle_value *v)
{
	for (size_t i = 0; i < N_DTYPES; i++)
		if (dtypes[i].storage &&
		    rsh_pickle_is_class(v, "torch", dtypes[i].storage))
			return dtypes[i].dtype;
	return RSH_DTYPE_UNKNOWN;
}
