/* SPDX-License-Identifier: Apache-2.0 */
/* source/walk_i.h searches a tree for its checkpoints.  It is private to
 * src/source. */
#pragma once

#include "source_i.h"

struct rsh_walk {
	struct rsh_source *source;
	const char *file; /* the last part of the template; NULL: any
			   * checkpoint */
	uint32_t first, n; /* ranks that count */
	uint64_t dir_epoch, dir_step;
	size_t n_dir;
	bool any;   /* a directory of a rank was found */
	bool named; /* a file with a matching name was found */
	bool again; /* the same directories are walked again */
	bool beyond; /* the directory is that of a rank that does not count */
	unsigned n_unreadable; /* number of directories that were left out */
	struct rsh_error unreadable; /* the sentence about the first one */
};

/* Handles a directory that cannot be read because of rc: returns 0 if it is
 * left out, or -errno with a sentence.  The root is never left out, and a
 * directory that must not be read is not left out either. */
int rsh_walk_unreadable(struct rsh_walk *w, const char *dir, int rc,
			struct rsh_error *err);
/* Logs the directories that were left out, in one line. */
void rsh_walk_log_unreadable(const struct rsh_walk *w);
/* Adds a file to the listing, and takes ownership of its name.  If the rank
 * does not count, the file is recorded as well, because the strategy may have
 * fewer ranks than the tree.  Returns 0 or -ENOMEM. */
int rsh_walk_add(struct rsh_walk *w, struct rsh_checkpoint *c);
/* Lists the files below `at` that the rest of a template matches; only those of
 * `rank` if it is known.  Returns 0 or -errno with a sentence. */
int rsh_walk_template(struct rsh_walk *w, const char *at, const char *rest,
		      uint32_t rank, struct rsh_error *err);
