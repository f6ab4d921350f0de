/* SPDX-License-Identifier: Apache-2.0 */
/* copy/verify_source_i.h has what is known of source files while they are
 * verified, for those who compare them (verify_source.c, verify_same.c). */
#ifndef RSH_COPY_VERIFY_SOURCE_I_H
#define RSH_COPY_VERIFY_SOURCE_I_H

#include "copy_i.h"
#include "rsh/source/inspect.h"
#include "rsh/strategy/strategy.h"

/* This has a file and what was found of it. */
struct rsh_verify_file {
	struct rsh_source_file_info info;
	struct rsh_inspected in;  /* index NULL: it is damaged */
	XXH128_hash_t *sums;      /* [record] */
	bool *compared;           /* [record]: with that of another file */
	struct rsh_problem problem;
};

struct rsh_verify_job {
	const struct rsh_source *source;
	const struct rsh_strategy *strategy; /* NULL: none */
	bool whole; /* ranks hold whole parameters */
	struct rsh_names *names;
	const struct rsh_copy_control *control;
	struct rsh_verify_file *files;
	size_t n;
	/* Of the strategy's ranks: the first file, which those of the same rank
	 * follow; NULL: there is none. */
	struct rsh_verify_file **by_rank;
	uint32_t n_ranks;
	uint32_t n_lost;      /* slices that no file has */
	uint32_t lost, loser; /* one's parameter, and a rank that wants it */
	struct rsh_answer *out;
};

/* Reads bytes of a record's content, which may lie in several extents, as
 * pread() does. */
ssize_t rsh_verify_pread(const struct rsh_verify_job *j,
			 const struct rsh_verify_file *f, struct rsh_handle *h,
			 const struct rsh_record *r, uint8_t *buf, size_t len,
			 uint64_t offset);
/* Gives the next sound file of the rank after f, which is NULL at first. */
struct rsh_verify_file *rsh_verify_sound_file(const struct rsh_verify_job *j,
					      uint32_t rank,
					      struct rsh_verify_file *f);

/* ---- what several hold (verify_same.c) ---- */

/* This is the first that is found to hold something; `file` is NULL before. */
struct rsh_verify_leader {
	struct rsh_verify_file *file;
	const struct rsh_record *record;
};
/* Takes a record for the leader, or else compares it with the leader's, of
 * which it is a copy, and adds a problem if they differ; `what` they hold is
 * "slice" and the like.  0 or -ENOMEM. */
int rsh_verify_compare(struct rsh_verify_job *j,
		       struct rsh_verify_leader *leader,
		       struct rsh_verify_file *f, const struct rsh_record *r,
		       const char *what);
/* Compares the ranks that hold one slice by the strategy, or, where all hold
 * whole parameters, those that have one name.  0 or -ENOMEM. */
int rsh_verify_same(struct rsh_verify_job *j);

#endif
