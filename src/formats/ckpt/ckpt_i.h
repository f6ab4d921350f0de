/* SPDX-License-Identifier: Apache-2.0 */
/* formats/ckpt/ckpt_i.h - MindSpore's rank files; only this directory includes
 * it. */
#pragma once

#include "rsh/source/format.h"

/* Checks whether the blocks of an encrypted .ckpt fill the file.  Each block
 * has its length.  Returns 0; -ENOTSUP, without a sentence, if the file is not
 * encrypted; -EBADMSG with a sentence that names file and offset; or the error
 * of pread_fn.  A file that was truncated between two blocks (64 MiB of plain
 * text each) passes. */
int rsh_encrypted_check(const struct rsh_byte_source *src,
			struct rsh_error *err);
