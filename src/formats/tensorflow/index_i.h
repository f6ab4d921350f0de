/* SPDX-License-Identifier: Apache-2.0 */
/* formats/tensorflow/index_i.h - the .index of a TensorFlow 2 checkpoint, for
 * this directory only. */
#ifndef RSH_FORMATS_TENSORFLOW_INDEX_I_H
#define RSH_FORMATS_TENSORFLOW_INDEX_I_H

#include <stdbool.h>

#include "rsh/util/error.h"
#include "rsh/wire/ckpt.h"

/* Checks an index: a sorted table whose blocks match their CRCs, whose header
 * entry says how many data files there are, and whose tensors lie within those;
 * shards[i] is .data-<i>-of-<n_shards>.  If `full`, reads the tensors and
 * compares their CRCs, but for strings, whose CRC is not one of their bytes.
 * Returns 0; -EBADMSG with a sentence that names file and offset; -ENOMEM; or
 * what pread_fn gave. */
int rsh_tf_index_check(const struct rsh_byte_source *index,
		       const struct rsh_byte_source *const *shards,
		       uint32_t n_shards, bool full, struct rsh_error *err);

#endif
