/* SPDX-License-Identifier: Apache-2.0 */
/* formats/ckpt/ckpt_i.h - MindSpore's files of ranks, for this directory
 * only. */
#ifndef RSH_FORMATS_CKPT_I_H
#define RSH_FORMATS_CKPT_I_H

#include "rsh/source/format.h"

/* Checks whether the blocks of an encrypted .ckpt, which say how long they are,
 * fill the file.  Returns 0; -ENOTSUP, without a sentence, if the file is not
 * encrypted; -EBADMSG with a sentence that names file and offset; or what
 * pread_fn gave.  A file cut between two blocks (64 MiB of plain text each)
 * passes. */
int rsh_encrypted_check(const struct rsh_byte_source *src,
			struct rsh_error *err);

extern const struct rsh_resume_format rsh_ckpt_resume;

#endif
