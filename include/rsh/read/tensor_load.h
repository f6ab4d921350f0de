/* SPDX-License-Identifier: Apache-2.0 */
/* read/tensor_load.h - reads a small tensor of a source while a tree is
 * planned.  Any thread may call this. */
#ifndef RSH_READ_TENSOR_LOAD_H
#define RSH_READ_TENSOR_LOAD_H

#include "rsh/plan/catalogue.h"
#include "rsh/source/source.h"

/* Reads all `bytes` of a tensor to `to`, for which there is room.  Returns 0,
 * or -errno with a sentence. */
int rsh_tensor_load(struct rsh_source *source, const struct rsh_catalogue *c,
		    const struct rsh_tensor *t, uint8_t *to, size_t bytes,
		    struct rsh_error *err);

#endif
