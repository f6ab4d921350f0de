/* SPDX-License-Identifier: Apache-2.0 */
/* wire/torch_dtype.h - element types and storages as pickles of torch name
 * them. */
#ifndef RSH_WIRE_TORCH_DTYPE_H
#define RSH_WIRE_TORCH_DTYPE_H

#include "rsh/wire/pickle_values.h"

/* No element has more bytes. */
#define RSH_TORCH_ELEMENT_MAX 16

/* Returns the type that is meant by a class such as torch.float32, or by a text
 * such as "Float32" or "torch.float32". */
enum rsh_dtype rsh_torch_dtype(const struct rsh_pickle_value *v);
/* Is it a class of one of the modules that have torch's storages? */
bool rsh_torch_is_storage(const struct rsh_pickle_value *v);
/* Returns the type of the elements of a storage, which is a class such as
 * torch.FloatStorage. */
enum rsh_dtype rsh_torch_storage_dtype(const struct rsh_pickle_value *v);
/* Returns the bytes of an element of the storage whose class has a name of this
 * rsh_pickle_hash(); 0: it is not known. */
unsigned rsh_torch_storage_bytes(uint64_t hash);

#endif
