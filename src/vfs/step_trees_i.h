/* SPDX-License-Identifier: Apache-2.0 */
/* vfs/step_trees_i.h - the state of a tree of several steps, for steps.c and
 * steps_look.c. */
#pragma once

#include <pthread.h>
#include <sys/queue.h>

#include "rsh/vfs/steps.h"
#include "vfs_i.h"

#define RSH_STEPS_LATEST "latest"

/* Nodes of a step have the step's number above these bits, which are enough for
 * the nodes of a tree and of the control directory. */
#define RSH_STEP_BITS 41

/* A step that is shown, or has gone and is still used. */
struct rsh_shown_step {
	uint64_t number; /* from 1 */
	struct rsh_saved_step saved; /* it owns the strings */
	atomic_uint users;           /* of the tree; grows under the lock */
	struct timespec ctime; /* of its trees, which may be planned again */
	/* What the first tree was made of; the thread that plans has it. */
	bool made;
	uint64_t hash;

	/* The lock of the steps guards all below. */
	bool listed;          /* it is in the root */
	bool replaced;        /* what else it is made of has changed */
	struct rsh_vfs *tree; /* NULL: not planned */
	bool planning;
	int failed; /* the -errno of the last attempt to plan it; 0: none */
	struct rsh_error why;
	uint64_t tried_ns, used_ns;
};

struct rsh_shown_list {
	struct rsh_shown_step **v;
	size_t n, cap;
};

/* The root at a time: an immutable tree of a directory for each step, and the
 * link. */
struct rsh_steps_root {
	struct rsh_vfs vfs;
	const char *latest; /* NULL: there is no step */
	atomic_uint users; /* grows under the lock */
	STAILQ_ENTRY(rsh_steps_root) next;
};

/* A tree of several steps.  Its `vfs` has the control directory. */
struct rsh_steps {
	struct rsh_vfs vfs;
	struct rsh_steps_config cfg;
	struct rsh_source *source; /* the directory, without files */
	struct rsh_save_watch *watch; /* NULL: inotify does not work there */
	pthread_t thread;
	bool started;

	pthread_mutex_t lock; /* guards all below */
	pthread_cond_t changed; /* a look or a plan has ended, or `stopping` */
	bool stopping, ended; /* the thread must end, or has ended */
	struct rsh_shown_list steps;  /* all, ascending by number */
	struct rsh_shown_list listed; /* those in the root, the oldest first,
				       * as in `found` */
	uint64_t n_steps; /* numbers that were given */
	struct rsh_steps_root *root;
	STAILQ_HEAD(, rsh_steps_root) old; /* roots that may be used */
	bool planning;
	/* Looks are numbered from 1.  The thread that looks owns `found`, whose
	 * strings other threads read only under the lock. */
	bool looking;
	uint64_t n_begun, n_ended;
	struct rsh_saved_steps found;
	struct rsh_error error; /* why the directory cannot be listed; code 0:
				 * it can */
};

/* Unlike other trees, this one changes, under its lock. */
static inline struct rsh_steps *rsh_steps_of(const struct rsh_vfs *v)
{
	return (struct rsh_steps *)(uintptr_t)v;
}

/* steps_look.c: looks at the directory, after all looks that have begun, and
 * replaces the root if something changed.  Returns 0 or -errno with a
 * sentence. */
int rsh_steps_look(struct rsh_steps *s, struct rsh_error *err);
/* Frees trees that nobody uses: of steps that have gone, and others than the
 * last used ones. */
void rsh_steps_sweep(struct rsh_steps *s);
void rsh_shown_step_free(struct rsh_shown_step *t);
void rsh_steps_root_free(struct rsh_steps_root *r);
