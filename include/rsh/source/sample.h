/* SPDX-License-Identifier: Apache-2.0 */
/* source/sample.h - what whoever judges the contents of a source asks of it,
 * once its files are chosen and indexed. */
#ifndef RSH_SOURCE_SAMPLE_H
#define RSH_SOURCE_SAMPLE_H

#include "rsh/source/source.h"

/* Gives the path as it was given, for messages. */
const char *rsh_source_path(const struct rsh_source *s);
/* Gives the source's rank that is rank 0 of the strategy. */
uint32_t rsh_source_first_rank(const struct rsh_source *s);
enum rsh_check rsh_source_check(const struct rsh_source *s);

/* Was the chosen candidate told apart from others, by a step or a name? */
bool rsh_source_has_step(const struct rsh_source *s);
/* Says how many ranks have a file of the chosen step - or of any, if none of
 * those that were asked for has a file - be they listed or beyond those.
 * *beyond is the file of the lowest one that is not below `n_ranks`; NULL: there
 * is none. */
uint32_t rsh_source_count_ranks(const struct rsh_source *s, uint32_t n_ranks,
				const char **beyond);

/* Gives the newest step before the chosen one that a rank not below `n_ranks`
 * has a file of; false: there is none. */
bool rsh_source_older_beyond(const struct rsh_source *s, uint32_t n_ranks,
			     uint64_t *epoch, uint64_t *step);

/* Reads `len` bytes of what the rank's index describes, at `offset`, past the
 * cache, for a sample is not what will be read next.  False if not all of it is
 * to be had: nobody waits for it, and it is no failure of the file.  Any thread
 * may call this. */
bool rsh_source_sample(struct rsh_source *s, uint32_t rank, uint64_t offset,
		       uint8_t *buf, size_t len);

/* Makes a number that stands for the chosen files as they are.  False if what
 * is found of them cannot be kept: there is no index cache, or they may still
 * change unnoticed, or this is a drill, which may neither hide nor leave
 * anything. */
bool rsh_source_digest(struct rsh_source *s, uint64_t *digest);
/* The first says whether the files that `digest` stands for were found right
 * before, the second remembers that they were found right now. */
bool rsh_source_was_right(const struct rsh_source *s, uint64_t digest);
void rsh_source_keep_right(const struct rsh_source *s, uint64_t digest);

#endif
