/* SPDX-License-Identifier: Apache-2.0 */
/* vfs/steps.c finds the tree of a node in a mount of several steps, and plans
 * it if nobody has done so. */
#include "config.h"

#include "step_trees_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/checked.h"
#include "rsh/util/clock.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/thread.h"

/* The default intervals between looks. */
#define LOCAL_NS (UINT64_C(2) * 1000000000)
#define REMOTE_NS (UINT64_C(30) * 1000000000)

/* The least time between a change and the look that it causes. */
#define LEAST_NS (UINT64_C(100) * 1000000)

/* The time that the thread may take to return from its source at the end. */
#define STOP_NS (UINT64_C(2) * 1000000000)

static const struct rsh_vfs_ops steps_ops;

bool rsh_vfs_has_steps(const struct rsh_vfs *v)
{
	return v->ops == &steps_ops;
}

/* ---- planning; lock held ---- */

/* Plans the tree of a step.  Files that changed since the look belong to
 * another state of the step, which the next lookup of its name has to find. */
static int step_open(struct rsh_steps *s, struct rsh_shown_step *t,
		     struct rsh_vfs **tree, struct rsh_error *err)
{
	uint64_t hash = 0;
	int rc = s->cfg.open(s->cfg.ctx, &t->saved, tree, &hash, err), same;
	struct rsh_error why = RSH_ERROR_INIT;

	if (rc == 0)
		(*tree)->tree.ctime = t->ctime;
	same = rsh_saved_step_check(&s->cfg.dir, &t->saved, &why);
	if (rc == 0 && same == 0 && t->made && hash != t->hash) {
		same = -ESTALE;
		pthread_mutex_lock(&s->lock);
		t->replaced = true;
		pthread_mutex_unlock(&s->lock);
	}
	if (rc == 0 && same == 0) {
		t->made = true;
		t->hash = hash;
	}
	if (same) {
		rsh_vfs_free(*tree);
		*tree = NULL;
	}
	/* A source that cannot be read now fails in many ways. */
	if (same && same != -ESTALE) {
		*err = why;
		rc = same;
	}
	if (same != -ESTALE) {
		if (rc)
			rsh_log_warning("%s: %s cannot be shown: %s",
					s->cfg.dir.path, t->saved.name,
					err->text);
		return rc;
	}
	rsh_steps_look(s, &why);
	return rsh_error_set(err, ESTALE, "%s: %s has changed",
			     s->cfg.dir.path, t->saved.name);
}

static int step_need_tree(struct rsh_steps *s, struct rsh_shown_step *t)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_vfs *tree = NULL;
	int rc;

	while (!t->tree && s->planning && !s->stopping)
		pthread_cond_wait(&s->changed, &s->lock);
	if (t->tree)
		return 0;
	if (s->stopping)
		return -EINTR;
	if (!t->listed)
		return -ESTALE;
	/* An error is returned for a while, because a directory is entered
	 * several times for each access. */
	if (t->failed && rsh_clock_ns() - t->tried_ns < s->cfg.interval_ns)
		return t->failed;
	s->planning = t->planning = true;
	pthread_mutex_unlock(&s->lock);
	rc = step_open(s, t, &tree, &err);
	pthread_mutex_lock(&s->lock);
	s->planning = t->planning = false;
	t->tree = tree;
	t->failed = rc;
	t->why = err;
	t->tried_ns = rsh_clock_ns();
	pthread_cond_broadcast(&s->changed);
	return rc;
}

/* ---- nodes ---- */

static int by_number(const void *key, const void *element)
{
	const uint64_t number = *(const uint64_t *)key;
	const struct rsh_shown_step *t =
		*(struct rsh_shown_step *const *)element;

	return (number > t->number) - (number < t->number);
}

/* *planned is true if it planned a tree. */
static int enter_node(struct rsh_steps *s, uint64_t node, bool inside,
		      struct rsh_vfs_at *at, bool *planned)
{
	const uint64_t number = node >> RSH_STEP_BITS;
	struct rsh_shown_step *t, **found = rsh_find(
		&number, s->steps.v, s->steps.n, by_number);
	int rc;

	if (number > 0 && !found)
		return -ESTALE;
	t = found ? *found : NULL;
	if (number == 0 ||
	    (!inside && t->listed &&
	     node == (number << RSH_STEP_BITS | RSH_VFS_ROOT))) {
		atomic_fetch_add(&s->root->users, 1);
		*at = (struct rsh_vfs_at){
			.vfs = &s->root->vfs,
			.node = node,
			.users = &s->root->users,
		};
		return 0;
	}
	atomic_fetch_add(&t->users, 1);
	*planned = !t->tree;
	rc = step_need_tree(s, t);
	if (rc) {
		atomic_fetch_sub(&t->users, 1);
		return rc;
	}
	t->used_ns = rsh_clock_ns();
	*at = (struct rsh_vfs_at){
		.vfs = t->tree,
		.node = node & ((UINT64_C(1) << RSH_STEP_BITS) - 1),
		.base = t->number << RSH_STEP_BITS, .lasting = true,
		.users = &t->users,
	};
	return 0;
}

int rsh_vfs_enter(struct rsh_vfs *v, uint64_t node, bool inside,
		  struct rsh_vfs_at *at)
{
	struct rsh_steps *s = rsh_steps_of(v);
	bool planned = false;
	int rc;

	*at = (struct rsh_vfs_at){ .vfs = v, .node = node, .lasting = true };
	if (!rsh_vfs_has_steps(v) || rsh_control_owns(node))
		return 0;
	pthread_mutex_lock(&s->lock);
	rc = enter_node(s, node, inside, at, &planned);
	pthread_mutex_unlock(&s->lock);
	/* Who visits all steps may plan hundreds of them before the thread
	 * looks again. */
	if (planned)
		rsh_steps_sweep(s);
	return rc;
}

void rsh_vfs_leave_users(void *users)
{
	if (users)
		atomic_fetch_sub((atomic_uint *)users, 1);
}

void rsh_vfs_leave(struct rsh_vfs_at *at)
{
	rsh_vfs_leave_users(at->users);
	at->users = NULL;
}

void rsh_steps_look_anew(struct rsh_vfs *v)
{
	struct rsh_error err = RSH_ERROR_INIT;

	/* The look logs an error. */
	rsh_steps_look(rsh_steps_of(v), &err);
	rsh_steps_sweep(rsh_steps_of(v));
}

/* ---- status ---- */

void rsh_steps_each(const struct rsh_vfs *v,
		    void (*fn)(void *ctx, const struct rsh_step_status *status),
		    void *ctx, char **unlisted)
{
	struct rsh_steps *s = rsh_steps_of(v);
	size_t at = 0;

	rsh_hold_lock(&s->lock);
	*unlisted = s->error.code ? strdup(s->error.text) : NULL;
	/* The steps in the root have the same order. */
	for (size_t i = 0; i < s->found.n; i++) {
		const struct rsh_saved_step *f = &s->found.v[i];
		const bool shown = at < s->listed.n &&
			strcmp(s->listed.v[at]->saved.name, f->name) == 0;
		const struct rsh_shown_step *t =
			shown ? s->listed.v[at++] : NULL;
		const struct rsh_step_status status = {
			.saved = f, .shown = shown,
			.planned = t && t->tree,
			.why = f->why ? f->why :
			       t && t->failed ? t->why.text : NULL,
		};

		fn(ctx, &status);
	}
}

/* ---- the thread ---- */

static void steps_pause(struct rsh_steps *s, uint64_t ns)
{
	const uint64_t until = rsh_clock_ns() + ns;

	while (!s->stopping && rsh_clock_ns() < until)
		rsh_clock_wait(&s->changed, &s->lock, until);
}

/* Waits until the directory changes, or for the interval.  A job that writes
 * causes many changes, so looks take a tenth of the time at most. */
static void steps_await(struct rsh_steps *s, uint64_t look_ns)
{
	bool changed;

	if (!s->watch) {
		steps_pause(s, s->cfg.interval_ns);
		return;
	}
	pthread_mutex_unlock(&s->lock);
	changed = rsh_save_watch_wait(s->watch, s->cfg.interval_ns);
	pthread_mutex_lock(&s->lock);
	if (changed)
		steps_pause(s, rsh_min_u64(s->cfg.interval_ns,
					   LEAST_NS + 9 * look_ns));
}

static void *watch(void *arg)
{
	struct rsh_steps *s = arg;
	pthread_mutex_lock(&s->lock);
	/* Changes before a directory is watched are found by the look after
	 * that. */
	while (!s->stopping) {
		const uint64_t begun = rsh_clock_ns();
		struct rsh_error err = RSH_ERROR_INIT;

		pthread_mutex_unlock(&s->lock);
		if (s->watch)
			rsh_save_watch_update(s->watch);
		rsh_steps_look(s, &err);
		rsh_steps_sweep(s);
		pthread_mutex_lock(&s->lock);
		steps_await(s, rsh_clock_ns() - begun);
	}
	s->ended = true;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

int rsh_steps_start(struct rsh_vfs *v)
{
	struct rsh_steps *s = rsh_steps_of(v);
	int rc;

	if (!rsh_vfs_has_steps(v))
		return 0;
	/* Without a watch the directory is looked at in intervals. */
	if (!rsh_store_is_remote(rsh_source_store(s->source)))
		rsh_save_watch_open(&s->cfg.dir, &s->watch);
	rc = rsh_thread_start(&s->thread, watch, s);
	s->started = rc == 0;
	return rc;
}

bool rsh_steps_stop(struct rsh_vfs *v)
{
	struct rsh_steps *s = rsh_steps_of(v);
	const uint64_t until = rsh_clock_ns() + STOP_NS;
	int rc = 0;
	bool ended;

	if (!rsh_vfs_has_steps(v) || !s->started)
		return true;
	pthread_mutex_lock(&s->lock);
	s->stopping = true;
	pthread_cond_broadcast(&s->changed);
	if (s->watch)
		rsh_save_watch_wake(s->watch);
	while (!s->ended && rc == 0)
		rc = rsh_clock_wait(&s->changed, &s->lock, until);
	ended = s->ended;
	pthread_mutex_unlock(&s->lock);
	if (ended) {
		pthread_join(s->thread, NULL);
		s->started = false;
	}
	return ended;
}

/* ---- opening and freeing ---- */

static void steps_free(struct rsh_vfs *v)
{
	struct rsh_steps *s = rsh_steps_of(v);
	struct rsh_steps_root *r;

	if (!rsh_steps_stop(v))
		return;
	for (size_t i = 0; i < s->steps.n; i++)
		rsh_shown_step_free(s->steps.v[i]);
	free(s->steps.v);
	free(s->listed.v);
	while ((r = STAILQ_FIRST(&s->old))) {
		STAILQ_REMOVE_HEAD(&s->old, next);
		rsh_steps_root_free(r);
	}
	rsh_steps_root_free(s->root);
	rsh_saved_steps_clear(&s->found);
	rsh_save_watch_free(s->watch);
	if (s->source)
		rsh_source_free(s->source);
	rsh_vfs_clear(v);
	pthread_cond_destroy(&s->changed);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

/* This tree has no leaves: the others have them. */
static const struct rsh_vfs_ops steps_ops = {
	.free = steps_free,
};

/* Refuses to begin with an older step because the newest one cannot be read
 * now. */
static int check_newest(const struct rsh_steps *s, struct rsh_error *err)
{
	const struct rsh_saved_step *unread = NULL;

	for (size_t i = s->found.n; i-- > 0;) {
		const struct rsh_saved_step *t = &s->found.v[i];

		if (!t->why)
			return !unread ? 0 :
			       rsh_error_set(err, EACCES, "%s: step %s cannot "
					     "be read now: %s: try again, or "
					     "mount %s without --steps",
					     s->cfg.dir.path, unread->name,
					     unread->why, t->path);
		if (!unread && t->unread && t->step.n > 0)
			unread = t;
	}
	return 0;
}

int rsh_steps_open(const struct rsh_steps_config *cfg, struct rsh_vfs **out,
		   struct rsh_error *err)
{
	struct rsh_steps *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return rsh_error_nomem(err);
	if (pthread_mutex_init(&s->lock, NULL) ||
	    rsh_clock_cond_init(&s->changed)) {
		free(s);
		return rsh_error_nomem(err);
	}
	s->vfs.ops = &steps_ops;
	s->cfg = *cfg;
	s->error = (struct rsh_error)RSH_ERROR_INIT;
	STAILQ_INIT(&s->old);
	rc = rsh_save_dir_open(&cfg->dir, &s->source, err);
	if (rc == 0 && s->cfg.interval_ns == 0)
		s->cfg.interval_ns =
			rsh_store_is_remote(rsh_source_store(s->source)) ?
			REMOTE_NS : LOCAL_NS;
	if (rc == 0) {
		rsh_vfs_own(&s->vfs, s->source, cfg->uid, cfg->gid);
		rc = rsh_steps_look(s, err) ?: check_newest(s, err);
	}
	if (rc) {
		rsh_vfs_free(&s->vfs);
		return rc;
	}
	*out = &s->vfs;
	return 0;
}
