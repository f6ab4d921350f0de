/* SPDX-License-Identifier: Apache-2.0 */
/* wire/torch_dtype.h - the names of element types and storages in pickles of
 * torch. */
#pragma once

#include "rsh/wire/pickle_values.h"

/* This is the size of the largest element in bytes. */
#define RSH_TORCH_ELEMENT_MAX 16

/* Returns the type named by a class such as torch.float32, or by a text such as
 * "Float32" or "torch.float32". */
enum rsh_dtype rsh_torch_dtype(const struct rsh_pickle_value *v);
/* Returns whether the value is a class of one of the modules that have torch's
 * storages. */
bool rsh_torch_is_storage(const struct rsh_pickle_value *v);
/* Returns the element type of a storage, given as a class such as
 * torch.FloatStorage. */
enum rsh_dtype rsh_torch_storage_dtype(const struct rsh_pickle_value *v);
/* Returns the bytes of an element of a storage, given the name of its class.
 * Returns 0 if the class is not known. */
unsigned rsh_torch_storage_bytes(const char *name);
