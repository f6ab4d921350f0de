/* SPDX-License-Identifier: Apache-2.0 */
/* source/walk_i.h - how a tree is walked for its checkpoints, for this room
 * only. */
#ifndef RSH_SOURCE_WALK_I_H
#define RSH_SOURCE_WALK_I_H

#include "source_i.h"

struct rsh_walk {
	struct rsh_source *source;
	const char *file; /* the template's last part; NULL: any checkpoint */
	uint32_t first, n; /* ranks that count */
	uint64_t dir_epoch, dir_step;
	size_t n_dir;
	bool any;   /* a directory of some rank was found */
	bool named; /* a file was found that counts by its name */
	bool again; /* the same directories are walked for the second time */
	bool beyond; /* the directory is one of a rank that does not count */
	unsigned n_unreadable; /* directories that are left out */
	struct rsh_error unreadable; /* the sentence about the first */
};

/* Decides what becomes of a directory that cannot be read, for which rc is the
 * reason: 0 if it is left out, or -errno with a sentence.  The root is never
 * left out, nor a directory that must not be read. */
int rsh_walk_unreadable(struct rsh_walk *w, const char *dir, int rc,
			struct rsh_error *err);
/* Logs the directories that were left out, in one line. */
void rsh_walk_log_unreadable(const struct rsh_walk *w);
/* Adds a file, whose name is taken over, to the listing.  A rank that does not
 * count is remembered if the strategy might be of fewer ranks than the tree.
 * 0 or -ENOMEM. */
int rsh_walk_add(struct rsh_walk *w, struct rsh_checkpoint *c);
/* Lists the files below `at` that the rest of a template leads to; those of
 * `rank` if it is known.  0 or -errno with a sentence. */
int rsh_walk_template(struct rsh_walk *w, const char *at, const char *rest,
		      uint32_t rank, struct rsh_error *err);

#endif
