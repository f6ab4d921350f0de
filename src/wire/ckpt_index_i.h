/* SPDX-License-Identifier: Apache-2.0 */
/* wire/ckpt_index_i.h - a step of making an index; only this room includes
 * it. */
#ifndef RSH_WIRE_CKPT_INDEX_I_H
#define RSH_WIRE_CKPT_INDEX_I_H

#include "rsh/wire/ckpt.h"

/* The CRC trailer is "crc_num" and ten bytes, big-endian. */
#define RSH_CRC_TRAILER_BYTES 17

/* Fills by_name, for which there is room.  Returns 0, or -EEXIST if two records
 * have one name, which is then in *twice. */
int rsh_ckpt_index_sort(struct rsh_ckpt_index *index, uint32_t *twice);

#endif
