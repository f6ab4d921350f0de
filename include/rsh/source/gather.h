/* SPDX-License-Identifier: Apache-2.0 */
/* source/gather.h - the bytes of a plan's pieces, read from a source. */
#ifndef RSH_SOURCE_GATHER_H
#define RSH_SOURCE_GATHER_H

#include "rsh/plan/plan.h"
#include "rsh/source/source.h"

/* Fills buf with the bytes that the iterator's pieces stand for, in order;
 * `len` is their total.  Neighbouring runs of one source file are read in one
 * request and scattered.  `wait`: for files that cannot be reached, as
 * rsh_source_read() does.  0 or -errno.  Any thread, one iterator each. */
int rsh_source_gather(struct rsh_source *s, struct rsh_piece_iter *it,
		      uint8_t *buf, size_t len, bool wait);

#endif
