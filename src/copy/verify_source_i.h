/* SPDX-License-Identifier: Apache-2.0 */
/* copy/verify_source_i.h - the state of source files while they are verified,
 * for verify_source.c and verify_same.c only. */
#pragma once

#include "copy_i.h"
#include "rsh/source/inspect.h"
#include "rsh/strategy/strategy.h"

/* A file and the results of its check. */
struct rsh_verify_file {
	struct rsh_source_file_info info;
	struct rsh_inspected in;  /* index NULL: it is damaged */
	XXH128_hash_t *sums;      /* [record] */
	bool *compared;           /* [record]: it was compared with a record of
				   * another file */
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
	/* [rank of the strategy]: the first file of the rank.  Its other files
	 * follow this one.  NULL: the rank has no file. */
	struct rsh_verify_file **by_rank;
	uint32_t n_ranks;
	uint32_t n_lost;      /* slices that no file has */
	uint32_t lost, loser; /* the parameter of one of these slices, and a
			       * rank that needs it */
	struct rsh_answer *out;
};

/* A record that is read. */
struct rsh_verify_content {
	const struct rsh_verify_job *job;
	const struct rsh_verify_file *file;
	struct rsh_handle *handle;
	const struct rsh_record *record;
};
/* Reads bytes of a record's content, as pread() does.  The content may be in
 * several extents. */
ssize_t rsh_verify_pread(const struct rsh_verify_content *c, uint8_t *buf,
			 size_t len, uint64_t offset);
/* Returns the next undamaged file of the rank after f, or the first one if f is
 * NULL. */
struct rsh_verify_file *rsh_verify_sound_file(const struct rsh_verify_job *j,
					      uint32_t rank,
					      struct rsh_verify_file *f);

/* ---- comparison of copies (verify_same.c) ---- */

/* The first record that was found of several equal ones.  `file` is NULL until
 * there is one. */
struct rsh_verify_leader {
	struct rsh_verify_file *file;
	const struct rsh_record *record;
};
/* Makes a record the leader if there is none yet.  Otherwise compares it with
 * the leader's record, which should be equal, and adds a problem if they
 * differ.  `what` names the content for the message, for example "slice".  0 or
 * -ENOMEM. */
int rsh_verify_compare(struct rsh_verify_job *j,
		       struct rsh_verify_leader *leader,
		       struct rsh_verify_file *f, const struct rsh_record *r,
		       const char *what);
/* Compares the ranks that hold the same slice by the strategy.  If all ranks
 * hold whole parameters, compares the parameters that have the same name.  0 or
 * -ENOMEM. */
int rsh_verify_same(struct rsh_verify_job *j);
