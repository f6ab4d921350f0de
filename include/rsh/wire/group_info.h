/* SPDX-License-Identifier: Apache-2.0 */
/* wire/group_info.h - group_info.pb, which a job writes to the path in
 * GROUP_INFO_FILE.  It is a ParallelGroupMap (proto/node_strategy.proto). Its
 * ckpt_restore_rank_list names the ranks whose checkpoints can replace the
 * rank's own.  Any thread may call this function. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "rsh/util/error.h"

/* Reads the restore list.  The caller frees it.  *n is 0 if the file has none.
 * Returns 0, or -ENOMEM or -EBADMSG with a sentence. */
int rsh_group_info_parse(const void *data, size_t len, const char *path,
			 uint32_t **ranks, uint32_t *n, struct rsh_error *err);
