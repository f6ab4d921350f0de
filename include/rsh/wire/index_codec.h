/* SPDX-License-Identifier: Apache-2.0 */
/* wire/index_codec.h - the index of a checkpoint file as bytes that outlive the
 * process.
 *
 * The bytes do not depend on a process: they hold the names, which are numbers
 * only inside of one, and a checksum of all the rest.  Equal files give equal
 * bytes.  Whether there is a CRC trailer is kept, its value is not.  Any thread
 * may call. */
#ifndef RSH_WIRE_INDEX_CODEC_H
#define RSH_WIRE_INDEX_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rsh/util/names.h"
#include "rsh/wire/ckpt.h"

/* Turns an index into bytes.  Returns 0 and *out, which the caller frees, or
 * -ENOMEM. */
int rsh_index_encode(const struct rsh_ckpt_index *index,
		     const struct rsh_names *names, uint8_t **out, size_t *len);

/* Makes an index of bytes.  Returns 0 and *out (owned by the caller), -ENOMEM,
 * or -EBADMSG: the bytes are not what rsh_index_encode() made of an index that
 * a scan gives.  Every number in *out has been checked against file_bytes and
 * the others as a scan does it.  It allocates in proportion to len; names may
 * be added even if it fails. */
int rsh_index_decode(const uint8_t *data, size_t len, struct rsh_names *names,
		     struct rsh_ckpt_index **out);

/* Tells whether the checksum is that of the bytes, without looking further. */
bool rsh_index_intact(const uint8_t *data, size_t len);

#endif
