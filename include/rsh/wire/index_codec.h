/* SPDX-License-Identifier: Apache-2.0 */
/* wire/index_codec.h - encodes the index of a checkpoint file as bytes that can
 * be stored, and decodes it.
 *
 * The bytes do not depend on a process: they contain the names themselves,
 * because name ids are valid in one process only.  They also contain a checksum
 * of all the rest.  Equal files give equal bytes.  The bytes say whether there
 * is a CRC trailer, but do not contain its value.  Any thread may call these
 * functions. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "rsh/util/names.h"
#include "rsh/wire/ckpt.h"

/* Encodes an index.  Returns 0 and *out, which the caller frees, or -ENOMEM. */
int rsh_index_encode(const struct rsh_ckpt_index *index,
		     const struct rsh_names *names, uint8_t **out, size_t *len);

/* Decodes an index.  Returns 0 and *out (owned by the caller), -ENOMEM, or
 * -EBADMSG if the bytes are not what rsh_index_encode() writes for an index of
 * a scan.  Every number in *out has been checked against file_bytes and the
 * other numbers, as a scan does.  Memory is in proportion to len.  Names may
 * have been added even if the function fails. */
int rsh_index_decode(const uint8_t *data, size_t len, struct rsh_names *names,
		     struct rsh_ckpt_index **out);
