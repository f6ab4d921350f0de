/* SPDX-License-Identifier: Apache-2.0 */
/* wire/dcp_dtype_i.h - element types as pickles name them; only this room
 * includes it. */
#ifndef RSH_WIRE_DCP_DTYPE_I_H
#define RSH_WIRE_DCP_DTYPE_I_H

#include "pickle_values_i.h"

/* No element has more bytes. */
#define RSH_DCP_ELEMENT_MAX 16

/* Returns the type that is meant by a class such as torch.float32, or by a text
 * such as "Float32". */
enum rsh_dtype rsh_dcp_dtype(const struct rsh_pickle_value *v);
/* Returns the type of the elements of a storage, which is a class such as
 * torch.FloatStorage. */
enum rsh_dtype rsh_dcp_storage_dtype(const struct rsh_pickle_value *v);

#endif
