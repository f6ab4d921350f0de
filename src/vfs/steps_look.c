/* SPDX-License-Identifier: Apache-2.0 */
/* vfs/steps_look.c looks at the directory of all steps, replaces the root of
 * the mount, and frees what nobody uses. */
#include "config.h"

#include "step_trees_i.h"

#include <stdlib.h>
#include <string.h>

#include "rsh/util/clock.h"
#include "rsh/util/log.h"

/* The most trees that nobody uses, and how long they stay. */
#define UNUSED_MAX 4
#define UNUSED_NS (UINT64_C(60) * 1000000000)

/* ---- the root ---- */

static const struct rsh_steps_root *root_of(const struct rsh_vfs *v)
{
	return (const struct rsh_steps_root *)v;
}

static int root_show(const struct rsh_vfs *v, uint32_t leaf,
		     struct rsh_leaf *out)
{
	(void)leaf;
	*out = (struct rsh_leaf){
		.mode = 0777, .size = strlen(root_of(v)->latest),
		.mtime = v->tree.dir_mtime,
	};
	return 0;
}

static const char *root_link(const struct rsh_vfs *v, uint32_t leaf)
{
	(void)leaf;
	return root_of(v)->latest;
}

static int root_attribute(const struct rsh_vfs *v, uint32_t leaf,
			  enum rsh_attribute which, FILE *to)
{
	(void)v, (void)leaf, (void)which, (void)to;
	return -ENODATA;
}

/* The root has no files. */
static const struct rsh_vfs_ops root_ops = {
	.show = root_show,
	.link = root_link,
	.attribute = root_attribute,
};

void rsh_steps_root_free(struct rsh_steps_root *r)
{
	if (!r)
		return;
	rsh_vfs_clear(&r->vfs);
	free(r->latest);
	free(r);
}

static int root_add(struct rsh_steps_root *r, uint64_t number,
		    enum rsh_node_kind kind, const char *name)
{
	struct rsh_tree *t = &r->vfs.tree;
	struct rsh_item *item = rsh_arena_array(&t->arena, struct rsh_item, 1);
	char *copy = rsh_arena_strndup(&t->arena, name, strlen(name));
	const struct rsh_row row = {
		.n = 1, .first = number, .step = 1, .parent = RSH_VFS_ROOT,
		.items = item,
	};

	if (!item || !copy)
		return -ENOMEM;
	*item = (struct rsh_item){ copy, kind, kind == RSH_NODE_DIR ?
					       RSH_NO_LEAF : 0 };
	return rsh_tree_add(t, &row);
}

/* Makes the root of the listed steps, which are in the order of the list. */
static struct rsh_steps_root *root_new(struct rsh_steps *s)
{
	struct rsh_steps_root *r = calloc(1, sizeof(*r));
	const struct rsh_shown_step *t, *latest = NULL;
	int rc = 0;

	if (!r)
		return NULL;
	r->vfs.ops = &root_ops;
	rsh_vfs_own(&r->vfs, s->source, s->cfg.uid, s->cfg.gid);
	clock_gettime(CLOCK_REALTIME, &r->vfs.tree.dir_mtime);
	/* A lookup finds the control directory; its nodes are in the other
	 * tree. */
	r->vfs.control.root = RSH_CONTROL_NODE;
	TAILQ_FOREACH(t, &s->steps, next) {
		if (!t->listed || rc)
			continue;
		rc = root_add(r, t->number << RSH_STEP_BITS | RSH_VFS_ROOT,
			      RSH_NODE_DIR, t->saved.name);
		latest = t;
	}
	if (latest && rc == 0) {
		r->latest = strdup(latest->saved.name);
		rc = r->latest ? root_add(r, RSH_VFS_ROOT + 1, RSH_NODE_LINK,
					  RSH_STEPS_LATEST) : -ENOMEM;
	}
	if (rc == 0)
		return r;
	rsh_steps_root_free(r);
	return NULL;
}

/* ---- what a look has found; lock held ---- */

static const struct rsh_saved_step *
found_step(const struct rsh_saved_steps *l, const struct rsh_shown_step *t)
{
	for (size_t i = 0; i < l->n; i++)
		if (l->v[i].state.hash == t->saved.state.hash && !l->v[i].why &&
		    strcmp(l->v[i].name, t->saved.name) == 0 &&
		    strcmp(l->v[i].path, t->saved.path) == 0)
			return &l->v[i];
	return NULL;
}

static struct rsh_shown_step *shown_step(struct rsh_steps *s,
					 const struct rsh_saved_step *saved)
{
	struct rsh_shown_step *t;

	TAILQ_FOREACH(t, &s->steps, next)
		if (t->listed && strcmp(t->saved.name, saved->name) == 0)
			return t;
	return NULL;
}

static struct rsh_shown_step *step_new(struct rsh_steps *s,
				       const struct rsh_saved_step *saved)
{
	struct rsh_shown_step *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->saved = *saved;
	t->saved.why = NULL;
	t->saved.name = strdup(saved->name);
	t->saved.path = strdup(saved->path);
	if (!t->saved.name || !t->saved.path) {
		rsh_shown_step_free(t);
		return NULL;
	}
	t->why = (struct rsh_error)RSH_ERROR_INIT;
	t->listed = true;
	t->number = ++s->n_steps;
	return t;
}

/* Marks steps that have gone or changed.  Returns whether there are any. */
static bool steps_remove(struct rsh_steps *s, const struct rsh_saved_steps *now)
{
	struct rsh_shown_step *t;
	bool any = false;

	TAILQ_FOREACH(t, &s->steps, next) {
		if (!t->listed || found_step(now, t))
			continue;
		t->listed = false;
		any = true;
		rsh_log_info("%s: %s has gone", s->cfg.dir.path,
			     t->saved.name);
	}
	return any;
}

/* Adds new steps, and sorts the list as the steps that were found are. */
static int steps_add(struct rsh_steps *s, const struct rsh_saved_steps *now,
		     bool *any)
{
	for (size_t i = 0; i < now->n; i++) {
		struct rsh_shown_step *t;

		if (now->v[i].why)
			continue;
		t = shown_step(s, &now->v[i]);
		if (t) {
			TAILQ_REMOVE(&s->steps, t, next);
		} else {
			t = step_new(s, &now->v[i]);
			if (!t)
				return -ENOMEM;
			*any = true;
			rsh_log_info("%s: %s is complete", s->cfg.dir.path,
				     t->saved.name);
		}
		TAILQ_INSERT_TAIL(&s->steps, t, next);
	}
	return 0;
}

static int steps_replace(struct rsh_steps *s, const struct rsh_saved_steps *now)
{
	bool changed = steps_remove(s, now);
	int rc = steps_add(s, now, &changed);
	struct rsh_steps_root *r;

	if (rc || (!changed && s->root))
		return rc;
	r = root_new(s);
	if (!r)
		return -ENOMEM;
	if (s->root)
		STAILQ_INSERT_TAIL(&s->old, s->root, next);
	s->root = r;
	return 0;
}

/* A directory that cannot be listed may be on a server that does not answer, so
 * its steps stay. */
static void steps_unlisted(struct rsh_steps *s, const struct rsh_error *err)
{
	if (s->error.code != err->code)
		rsh_log_warning("%s", err->text);
	s->error = *err;
}

static int steps_look_once(struct rsh_steps *s, struct rsh_error *err)
{
	struct rsh_saved_steps now;
	int rc = rsh_save_dir_look(&s->cfg.dir, &s->found, &now, err);

	pthread_mutex_lock(&s->lock);
	if (rc == 0 && steps_replace(s, &now))
		rc = rsh_error_nomem(err);
	if (rc == 0) {
		const struct rsh_saved_steps old = s->found;

		s->found = now;
		now = old;
		s->error.code = 0;
	} else {
		steps_unlisted(s, err);
	}
	pthread_mutex_unlock(&s->lock);
	rsh_saved_steps_clear(&now);
	return rc;
}

int rsh_steps_look(struct rsh_steps *s, struct rsh_error *err)
{
	uint64_t mine;
	int rc = 0;

	pthread_mutex_lock(&s->lock);
	/* A look that has begun may have listed the directory before. */
	mine = s->n_begun + 1;
	while (s->n_ended < mine && !s->stopping) {
		if (s->looking) {
			pthread_cond_wait(&s->changed, &s->lock);
			continue;
		}
		s->looking = true;
		s->n_begun++;
		pthread_mutex_unlock(&s->lock);
		rc = steps_look_once(s, err);
		pthread_mutex_lock(&s->lock);
		s->looking = false;
		s->n_ended = s->n_begun;
		pthread_cond_broadcast(&s->changed);
	}
	pthread_mutex_unlock(&s->lock);
	return rc;
}

/* ---- freeing ---- */

void rsh_shown_step_free(struct rsh_shown_step *t)
{
	rsh_vfs_free(t->tree);
	free(t->saved.name);
	free(t->saved.path);
	free(t);
}

static bool is_unused(const struct rsh_shown_step *t)
{
	return t->tree && !t->planning && atomic_load(&t->users) == 0;
}

/* Finds a tree to free: of a step that was not used for a while, or the one
 * that was used first of too many. */
static struct rsh_shown_step *sweep_find(struct rsh_steps *s, uint64_t now)
{
	struct rsh_shown_step *t, *first = NULL;
	unsigned n = 0;

	TAILQ_FOREACH(t, &s->steps, next) {
		if (!is_unused(t))
			continue;
		n++;
		if (!first || t->used_ns < first->used_ns)
			first = t;
	}
	return n > UNUSED_MAX || (n > 0 && now - first->used_ns > UNUSED_NS) ?
	       first : NULL;
}

/* Takes steps that have gone and roots that were replaced, if nobody uses
 * them. */
static void sweep_gone(struct rsh_steps *s, struct rsh_shown_list *gone)
{
	struct rsh_shown_step *t, *after;
	struct rsh_steps_root *r, *later;

	for (t = TAILQ_FIRST(&s->steps); t; t = after) {
		after = TAILQ_NEXT(t, next);
		if (t->listed || t->planning || atomic_load(&t->users) > 0)
			continue;
		TAILQ_REMOVE(&s->steps, t, next);
		TAILQ_INSERT_TAIL(gone, t, next);
	}
	for (r = STAILQ_FIRST(&s->old); r; r = later) {
		later = STAILQ_NEXT(r, next);
		if (atomic_load(&r->users) > 0)
			continue;
		STAILQ_REMOVE(&s->old, r, rsh_steps_root, next);
		rsh_steps_root_free(r);
	}
}

void rsh_steps_sweep(struct rsh_steps *s)
{
	struct rsh_shown_list gone = TAILQ_HEAD_INITIALIZER(gone);
	struct rsh_shown_step *t;
	struct rsh_vfs *tree;

	pthread_mutex_lock(&s->lock);
	sweep_gone(s, &gone);
	while ((t = sweep_find(s, rsh_clock_ns()))) {
		tree = t->tree;
		t->tree = NULL;
		pthread_mutex_unlock(&s->lock);
		rsh_vfs_free(tree);
		pthread_mutex_lock(&s->lock);
	}
	pthread_mutex_unlock(&s->lock);
	while ((t = TAILQ_FIRST(&gone))) {
		TAILQ_REMOVE(&gone, t, next);
		rsh_shown_step_free(t);
	}
}
