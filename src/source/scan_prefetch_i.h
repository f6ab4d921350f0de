/* SPDX-License-Identifier: Apache-2.0 */
/* source/scan_prefetch_i.h - the reads of a scan, of which the next ones are
 * guessed; for this room only.
 *
 * A scan of a .ckpt learns from each header where the next one is, so that it
 * waits for one small read after the other.  The layers of a model are alike,
 * and so are the distances between its headers: what followed the last time
 * that the distances were such is asked for together with the read that is
 * waited for.  A wrong guess costs a request and nothing else, since what a
 * scan is given are always the bytes of the place that it asked for.
 */
#ifndef RSH_SOURCE_SCAN_PREFETCH_I_H
#define RSH_SOURCE_SCAN_PREFETCH_I_H

#include "rsh/wire/ckpt.h"

struct rsh_scan_prefetch;

/* Returns how many reads of each of n_files may be under way, where of all that
 * is `far`, as rsh_store_far() gives it: 1 where a guess is worth nothing. */
unsigned rsh_scan_prefetch_suited(unsigned far, size_t n_files);

/* Makes a source of the bytes of `file`, which outlasts it, with up to n reads
 * at a time, 64 at most; several threads call pread_fn of `file`.  Returns NULL
 * if there is nothing to gain, which is an n of 1, or if memory is out. */
struct rsh_scan_prefetch *
rsh_scan_prefetch_new(const struct rsh_byte_source *file, unsigned n);
/* Gives that source, which one thread may read: `file` itself if g is NULL. */
struct rsh_byte_source rsh_scan_prefetch_source(struct rsh_scan_prefetch *g,
					const struct rsh_byte_source *file);
void rsh_scan_prefetch_free(struct rsh_scan_prefetch *g);

#endif
