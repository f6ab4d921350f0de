/* safetensors_i.h - what the parts of the safetensors code share: the table of
 * element types. */
#ifndef RSH_WIRE_SAFETENSORS_I_H
#define RSH_WIRE_SAFETENSORS_I_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rsh/wire/dtype.h"

#define SAFETENSORS_LENGTH_BYTES 8 /* before the header */
#define SAFETENSORS_METADATA "__metadata__"
#define SAFETENSORS_INT4 "Int4" /* a metadata value */

enum safetensors_known {
	SAFETENSORS_DTYPE,         /* *out is the type */
	SAFETENSORS_DTYPE_FOREIGN, /* the format has it, MindSpore has not */
	SAFETENSORS_DTYPE_UNKNOWN,
};

enum safetensors_known safetensors_dtype_parse(const char *s,
					       enum rsh_dtype *out);
/* Tensors are written by descending rank; -1 if the format has not the type. */
int safetensors_dtype_rank(enum rsh_dtype t);

#endif
