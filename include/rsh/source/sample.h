/* SPDX-License-Identifier: Apache-2.0 */
/* source/sample.h has the functions for contents/, which compares the contents
 * of a source with its strategy when its files are chosen and indexed. */
#pragma once

#include "rsh/source/source.h"

/* Returns the source's rank that is rank 0 of the strategy. */
uint32_t rsh_source_first_rank(const struct rsh_source *s);
enum rsh_check rsh_source_check(const struct rsh_source *s);

/* Returns whether the chosen candidate has a step or a name that distinguishes
 * it. */
bool rsh_source_has_step(const struct rsh_source *s);
/* Returns how many ranks have a file of the chosen step (of any step, if no
 * listed rank has a file), whether these are listed or not.  *beyond is the
 * file of the lowest rank >= `n_ranks`; NULL: there is none. */
uint32_t rsh_source_count_ranks(const struct rsh_source *s, uint32_t n_ranks,
				const char **beyond);

/* Sets the newest step before the chosen one of which a rank >= `n_ranks` has a
 * file; returns false if there is none. */
bool rsh_source_older_beyond(const struct rsh_source *s, uint32_t n_ranks,
			     uint64_t *epoch, uint64_t *step);

/* Reads `len` bytes of the rank's files at `offset` of its index, without the
 * cache, because samples are not read again.  Returns false if the bytes cannot
 * be read at once; this does not count as a failure of the file.  Any thread
 * may call it. */
bool rsh_source_sample(struct rsh_source *s, uint32_t rank, uint64_t offset,
		       uint8_t *buf, size_t len);

/* Computes a digest that identifies the chosen files in their current state.
 * Returns false if results about them cannot be stored: there is no index
 * cache, a file changed so recently that another change could result in the
 * same times, or faults are injected. */
bool rsh_source_digest(struct rsh_source *s, uint64_t *digest);
/* These return whether an earlier check of the files with this digest found no
 * error, and store that a check found none. */
bool rsh_source_was_right(const struct rsh_source *s, uint64_t digest);
void rsh_source_keep_right(const struct rsh_source *s, uint64_t digest);
