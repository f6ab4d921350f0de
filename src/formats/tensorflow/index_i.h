/* SPDX-License-Identifier: Apache-2.0 */
/* formats/tensorflow/index_i.h - the .index of a TensorFlow 2 checkpoint; only
 * this directory includes it. */
#pragma once

#include <stdbool.h>

#include "rsh/util/error.h"
#include "rsh/wire/ckpt.h"

/* Checks an index.  It must be a sorted table whose blocks match their CRCs.
 * Its header entry must have the number of data files, and all tensors must be
 * within these.  shards[i] is .data-<i>-of-<n_shards>.  If `full`, also reads
 * the tensors and verifies their CRCs, except strings, whose CRC does not cover
 * their bytes.  Returns 0; -EBADMSG with a sentence that names file and offset;
 * -ENOMEM; or the error of pread_fn. */
int rsh_tf_index_check(const struct rsh_byte_source *index,
		       const struct rsh_byte_source *const *shards,
		       uint32_t n_shards, bool full, struct rsh_error *err);
