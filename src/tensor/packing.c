/* SPDX-License-Identifier: Apache-2.0 */
/* tensor/packing.c says how large the units of each packing are. */
#include "rsh/tensor/scaled.h"

bool rsh_packing_is_plain(enum rsh_packing p)
{
	return p >= RSH_PACK_BF16;
}

enum rsh_dtype rsh_packing_type(enum rsh_packing p)
{
	return p == RSH_PACK_BF16 ? RSH_DTYPE_BFLOAT16 :
	       p == RSH_PACK_F16 ? RSH_DTYPE_FLOAT16 : RSH_DTYPE_FLOAT32;
}

void rsh_packing_unit(enum rsh_packing p, uint32_t *elements, uint32_t *bytes)
{
	if (rsh_packing_is_plain(p)) {
		*elements = 1;
		*bytes = rsh_dtype_size(rsh_packing_type(p));
		return;
	}
	*elements = p == RSH_PACK_AWQ ? 8 :
		    p == RSH_PACK_E2M1 || p == RSH_PACK_U4 ? 2 : 1;
	*bytes = p == RSH_PACK_AWQ || p == RSH_PACK_GPTQ ? 4 : 1;
}

uint32_t rsh_packing_rows(enum rsh_packing p)
{
	return p == RSH_PACK_GPTQ ? 8 : 1;
}
