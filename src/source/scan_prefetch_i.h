/* SPDX-License-Identifier: Apache-2.0 */
/* source/scan_prefetch_i.h reads the next headers of a scan in advance.  It is
 * private to src/source.
 *
 * In a .ckpt each header shows where the next one is, so a scan waits for one
 * small read after the other.  The layers of a model are similar, and so are
 * the distances between their headers.  So the reads that followed the last
 * time the distances were similar are sent together with the current read.  A
 * wrong prediction costs one request and nothing else, because a scan always
 * gets the bytes of the offset that it reads.
 */
#pragma once

#include "rsh/wire/ckpt.h"

struct rsh_scan_prefetch;

/* Returns how many reads of each of n_files may run at the same time.  `far` is
 * the limit for all files, from rsh_store_far().  1 means that predictions are
 * useless. */
unsigned rsh_scan_prefetch_suited(unsigned far, size_t n_files);

/* Makes a source of the bytes of `file`, which must outlive it, with up to n
 * reads at the same time, at most 64.  Several threads call pread_fn of `file`.
 * Returns NULL if n is 1, because there is nothing to gain, or if memory is
 * out. */
struct rsh_scan_prefetch *
rsh_scan_prefetch_new(const struct rsh_byte_source *file, unsigned n);
/* Returns the byte source, which one thread may read: `file` itself if g is
 * NULL. */
struct rsh_byte_source rsh_scan_prefetch_source(struct rsh_scan_prefetch *g,
					const struct rsh_byte_source *file);
void rsh_scan_prefetch_free(struct rsh_scan_prefetch *g);
