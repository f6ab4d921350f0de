/* SPDX-License-Identifier: Apache-2.0 */
/* read/tensor_load.h - reads a small tensor of a source while a tree is
 * planned.  Any thread may call this. */
#pragma once

#include "rsh/plan/writer.h"
#include "rsh/plan/catalogue.h"
#include "rsh/source/source.h"

/* Reads all `bytes` of a tensor to `to`, for which there is room; `source` is a
 * struct rsh_source.  Returns 0, or -errno with a sentence. */
int rsh_tensor_load(void *source, const struct rsh_catalogue *c,
		    const struct rsh_tensor *t, uint8_t *to, size_t bytes,
		    struct rsh_error *err);

/* Returns 1 if two offers of one type and shape have the same elements, 0 if
 * not, -ENOTSUP if they are not whole tensors of the source that can be read,
 * or -ENOMEM with a sentence.  All elements are read. */
int rsh_tensors_same(struct rsh_source *source, const struct rsh_catalogue *c,
		     const struct rsh_offer *a, const struct rsh_offer *b,
		     struct rsh_error *err);
