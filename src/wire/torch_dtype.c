/* SPDX-License-Identifier: Apache-2.0 */
/* wire/torch_dtype.c maps torch's names to element types and storages. */
#include "config.h"

#include "rsh/wire/torch_dtype.h"

#include <string.h>

#include "rsh/util/text.h"
#include "rsh/wire/torch_item.h"

static const struct {
	const char *name, *storage; /* NULL: UntypedStorage has the elements */
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
	{ "float8_e8m0fnu", NULL, RSH_DTYPE_FLOAT8E8M0 },
	{ "float4_e2m1fn_x2", NULL, RSH_DTYPE_FLOAT4X2 },
};

/* The elements of these storages are not plain numbers. */
static const struct {
	const char *storage;
	unsigned bytes;
} other_storages[] = {
	{ "QInt8Storage", 1 }, { "QUInt8Storage", 1 },
	{ "QInt32Storage", 4 }, { "QUInt4x2Storage", 1 },
	{ "QUInt2x4Storage", 1 }, { "UntypedStorage", 1 },
};

#define N_OTHERS (sizeof(other_storages) / sizeof(other_storages[0]))
#define N_DTYPES (sizeof(dtypes) / sizeof(dtypes[0]))

enum rsh_dtype rsh_torch_dtype(const struct rsh_pickle_value *v)
{
	static const char module[] = "torch.";
	const size_t n = sizeof(module) - 1;

	if (v->kind == RSH_PV_TEXT && strncmp(v->text, module, n) != 0)
		return rsh_dtype_parse(v->text, v->n);
	for (size_t i = 0; v->kind == RSH_PV_TEXT && i < N_DTYPES; i++)
		if (strcmp(v->text + n, dtypes[i].name) == 0)
			return dtypes[i].dtype;
	for (size_t i = 0; i < N_DTYPES; i++)
		if (rsh_pickle_is_class(v, "torch", dtypes[i].name))
			return dtypes[i].dtype;
	return RSH_DTYPE_UNKNOWN;
}

const char *rsh_torch_dtype_name(enum rsh_dtype t)
{
	for (size_t i = 0; i < N_DTYPES; i++)
		if (dtypes[i].dtype == t)
			return dtypes[i].name;
	return NULL;
}

const char *rsh_torch_storage_name(enum rsh_dtype t)
{
	for (size_t i = 0; i < N_DTYPES; i++)
		if (dtypes[i].dtype == t)
			return dtypes[i].storage;
	return NULL;
}

bool rsh_torch_is_storage(const struct rsh_pickle_value *v)
{
	return v->kind == RSH_PV_CLASS &&
	       rsh_is_any(v->class->module, "torch", "torch.storage",
			  "torch.cuda");
}

enum rsh_dtype rsh_torch_storage_dtype(const struct rsh_pickle_value *v)
{
	for (size_t i = 0; i < N_DTYPES; i++)
		if (dtypes[i].storage && v->kind == RSH_PV_CLASS &&
		    strcmp(v->class->name, dtypes[i].storage) == 0 &&
		    rsh_torch_is_storage(v))
			return dtypes[i].dtype;
	return RSH_DTYPE_UNKNOWN;
}

unsigned rsh_torch_storage_bytes(const char *name)
{
	for (size_t i = 0; i < N_DTYPES; i++)
		if (dtypes[i].storage && strcmp(dtypes[i].storage, name) == 0)
			return rsh_dtype_size(dtypes[i].dtype);
	for (size_t i = 0; i < N_OTHERS; i++)
		if (strcmp(other_storages[i].storage, name) == 0)
			return other_storages[i].bytes;
	return 0;
}
