/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt_index_i.h - making indexes, for this layer. */
#ifndef RSH_WIRE_CKPT_INDEX_I_H
#define RSH_WIRE_CKPT_INDEX_I_H

#include "rsh/wire/ckpt.h"

/* Fills by_name, for which there is room.  0, or -EEXIST when two records have
 * one name, which *twice then is. */
int rsh_ckpt_index_sort(struct rsh_ckpt_index *index, uint32_t *twice);

#endif
