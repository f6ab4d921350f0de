/* SPDX-License-Identifier: Apache-2.0 */
/* wire/ckpt_index_i.h - the end of a .ckpt; only this directory includes it. */
#ifndef RSH_WIRE_CKPT_INDEX_I_H
#define RSH_WIRE_CKPT_INDEX_I_H

#include "rsh/wire/ckpt.h"

/* The CRC trailer is "crc_num" and ten bytes, big-endian. */
#define RSH_CRC_TRAILER_BYTES 17

#endif
