/* SPDX-License-Identifier: Apache-2.0 */
/* vfs/steps.h - the tree of a mount that shows all steps of a job, while the
 * job saves:
 *
 *   /step-20/...   the tree of a step, as a mount of it alone shows it
 *   /latest        a link to the newest complete step
 *
 * The root changes, so it is not a struct rsh_vfs that is read directly.  Its
 * owner asks for the tree that has a node (rsh_vfs_enter), uses that tree,
 * which does not change, and returns it (rsh_vfs_leave).  This works for a
 * mount of one step as well.
 *
 * A step gets a number when it is complete, which is a part of the numbers of
 * its nodes and is never used again.  If one of its files changes it becomes
 * another step, with another number; the nodes of the old one give ESTALE,
 * unless somebody still uses its tree.  So nodes of two steps, or of two states
 * of a step, are never mixed.  What is not in the step (a strategy, an adapter,
 * config.json, the model below a delta) is looked at when its tree is planned
 * again: if that has changed, the step becomes another one too.
 *
 * The tree of a step is planned when somebody enters it.  Trees that nobody
 * uses are freed: at once if the step has gone, after a minute, or if there are
 * more than four of them.
 *
 * Threads: any thread may call these functions, after rsh_steps_open() and
 * until rsh_vfs_free().  Trees are planned one at a time, and the directory is
 * looked at by one thread at a time.  No lock is held during either.
 */
#pragma once

#include "rsh/source/save_dir.h"
#include "rsh/vfs/vfs.h"

struct rsh_steps_config {
	/* The directory, and the ranks that a step must have.  All that it
	 * points to must outlive the tree. */
	struct rsh_save_dir_options dir;
	/* The time between two looks at the directory; 0: 2 s on a local file
	 * system, and 30 s on networks, FUSE and HTTP. */
	uint64_t interval_ns;
	uid_t uid;            /* owner of everything */
	gid_t gid;
	/* Opens the tree of one step, and sets *hash to a hash of what decides
	 * the bytes of its files.  One thread at a time calls it.  Returns 0 or
	 * -errno with a sentence. */
	int (*open)(void *ctx, const struct rsh_saved_step *step,
		    struct rsh_vfs **out, uint64_t *hash,
		    struct rsh_error *err);
	void *ctx;
};

/* Looks at the directory once, and makes the tree.  Returns 0 or -errno with a
 * sentence. */
int rsh_steps_open(const struct rsh_steps_config *cfg, struct rsh_vfs **out,
		   struct rsh_error *err);
/* Starts the thread that looks at the directory.  Does nothing for the tree of
 * one step.  Returns 0 or -errno. */
int rsh_steps_start(struct rsh_vfs *v);
/* Ends the thread.  Returns false if it hangs in its source after some seconds:
 * then the tree must not be freed. */
bool rsh_steps_stop(struct rsh_vfs *v);

/* Returns whether the tree is one of several steps. */
bool rsh_vfs_has_steps(const struct rsh_vfs *v);

/* ---- nodes ---- */

/* A tree that is used. */
struct rsh_vfs_at {
	const struct rsh_vfs *vfs; /* it does not change while it is used */
	uint64_t node; /* the number of the node in that tree */
	uint64_t base; /* is added to its numbers in the mount */
	bool lasting;  /* what the tree says of its nodes never changes */
	/* Private: the users of the tree. */
	atomic_uint *users;
};

/* Finds the tree of a node of the mount.  If the node is the directory of a
 * step, this is the tree of that step with `inside`, and else the root's tree,
 * in which it is a directory.  Returns 0, -ESTALE if the step has gone, or the
 * error of planning it.  With several steps it may wait for the source. */
int rsh_vfs_enter(struct rsh_vfs *v, uint64_t node, bool inside,
		  struct rsh_vfs_at *at);
/* Ends the use of the tree. */
void rsh_vfs_leave(struct rsh_vfs_at *at);
/* Ends a use whose rsh_vfs_at was copied; `users` is its member. */
void rsh_vfs_leave_users(void *users);
/* Looks at the directory again, because a name is not in the root. */
void rsh_steps_look_anew(struct rsh_vfs *v);

/* What is known about one step. */
struct rsh_step_status {
	const struct rsh_saved_step *saved; /* valid until the next look */
	bool shown;
	bool planned; /* its tree is in memory */
	const char *why; /* a sentence: why it is not shown, or cannot be read;
			  * NULL: nothing is wrong */
};
/* Calls fn for each step, the oldest first.  fn must not wait.  *unlisted is a
 * sentence about why the directory cannot be listed (from malloc); NULL: it
 * can. */
void rsh_steps_each(const struct rsh_vfs *v,
		    void (*fn)(void *ctx, const struct rsh_step_status *status),
		    void *ctx, char **unlisted);
