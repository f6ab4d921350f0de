/* SPDX-License-Identifier: Apache-2.0 */
/* vfs/steps_look.c looks at the directory of all steps, replaces the root of
 * the mount, and frees what nobody uses. */
#include "config.h"

#include "step_trees_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "rsh/util/clock.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"

/* The most trees that nobody uses, and how long they stay. */
#define UNUSED_MAX 4
#define UNUSED_NS (UINT64_C(60) * 1000000000)

/* ---- the root ---- */

static const char *root_link(const struct rsh_vfs *v, uint32_t leaf)
{
	(void)leaf;
	return ((const struct rsh_steps_root *)v)->latest;
}

static int root_show(const struct rsh_vfs *v, uint32_t leaf,
		     struct rsh_leaf *out)
{
	*out = (struct rsh_leaf){
		.mode = 0777, .size = strlen(root_link(v, leaf)),
		.mtime = v->tree.dir_mtime,
	};
	return 0;
}

/* The root has no files. */
static const struct rsh_vfs_ops root_ops = {
	.show = root_show,
	.link = root_link,
};

void rsh_steps_root_free(struct rsh_steps_root *r)
{
	if (r)
		rsh_vfs_clear(&r->vfs);
	free(r);
}

/* Adds nodes whose numbers follow each other as those of steps do. */
static int root_add(struct rsh_steps_root *r, uint64_t first, size_t n,
		    const struct rsh_item *items)
{
	const struct rsh_row row = {
		.n = (uint32_t)n, .first = first,
		.step = UINT64_C(1) << RSH_STEP_BITS, .parent = RSH_VFS_ROOT,
		.items = items,
	};

	return rsh_tree_add(&r->vfs.tree, &row);
}

/* Adds the directories of the listed steps, and the link.  Steps that came one
 * after the other are one row. */
static int root_fill(struct rsh_steps_root *r, const struct rsh_shown_list *l)
{
	struct rsh_arena *arena = &r->vfs.tree.arena;
	struct rsh_item *items = rsh_arena_array(arena, struct rsh_item,
						 l->n + 1);
	int rc = 0;
	size_t n;

	for (size_t i = 0; items && i < l->n; i++) {
		const char *name = l->v[i]->saved.name;

		r->latest = rsh_arena_strndup(arena, name, strlen(name));
		items[i] = (struct rsh_item){ r->latest, RSH_NODE_DIR,
					      RSH_NO_LEAF };
	}
	if (arena->failed)
		return -ENOMEM;
	for (size_t i = 0; i < l->n && rc == 0; i += n) {
		const uint64_t first = l->v[i]->number;

		for (n = 1; i + n < l->n && l->v[i + n]->number == first + n;)
			n++;
		rc = root_add(r, first << RSH_STEP_BITS | RSH_VFS_ROOT, n,
			      &items[i]);
	}
	if (rc || l->n == 0)
		return rc;
	items[l->n] = (struct rsh_item){ RSH_STEPS_LATEST, RSH_NODE_LINK, 0 };
	return root_add(r, RSH_VFS_ROOT + 1, 1, &items[l->n]);
}

/* Makes the root of the listed steps. */
static struct rsh_steps_root *root_new(struct rsh_steps *s)
{
	struct rsh_steps_root *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->vfs.ops = &root_ops;
	rsh_vfs_own(&r->vfs, s->source, s->cfg.uid, s->cfg.gid);
	clock_gettime(CLOCK_REALTIME, &r->vfs.tree.dir_mtime);
	/* A lookup finds the control directory; its nodes are in the other
	 * tree. */
	r->vfs.control.root = RSH_CONTROL_NODE;
	if (root_fill(r, &s->listed) == 0)
		return r;
	rsh_steps_root_free(r);
	return NULL;
}

/* ---- what a look has found; lock held ---- */

static struct rsh_shown_step *step_new(struct rsh_steps *s,
				       const struct rsh_saved_step *saved)
{
	struct rsh_shown_step *t = calloc(1, sizeof(*t));

	if (!t || rsh_saved_step_copy(saved, &t->saved)) {
		free(t);
		return NULL;
	}
	t->why = (struct rsh_error)RSH_ERROR_INIT;
	t->number = s->n_steps + 1;
	clock_gettime(CLOCK_REALTIME, &t->ctime);
	if (rsh_push(s->steps.v, s->steps.n, s->steps.cap, t)) {
		rsh_shown_step_free(t);
		return NULL;
	}
	s->n_steps++;
	return t;
}

/* Removes steps that have gone or changed from the list.  Returns whether there
 * are any. */
static bool steps_remove(struct rsh_steps *s, const struct rsh_saved_steps *now)
{
	struct rsh_shown_list *l = &s->listed;
	const size_t before = l->n;

	l->n = 0;
	for (size_t i = 0; i < before; i++) {
		struct rsh_shown_step *t = l->v[i];
		const struct rsh_saved_step *f =
			rsh_saved_steps_find(now, &t->saved);

		/* It stays if it was found again, in the same state.  The
		 * newest also stays if its state cannot be read now: `latest`
		 * must not go back. */
		t->listed = f && !t->replaced &&
			    strcmp(f->path, t->saved.path) == 0 &&
			    (f->why ? f->unread && i + 1 == before :
				      f->state.hash == t->saved.state.hash);
		if (t->listed)
			l->v[l->n++] = t;
		else
			rsh_log_info("%s: %s has gone", s->cfg.dir.path,
				     t->saved.name);
	}
	return l->n < before;
}

/* Lists all complete steps.  Those that are listed already have the same order.
 * Returns 0 or -ENOMEM. */
static int steps_add(struct rsh_steps *s, const struct rsh_saved_steps *now)
{
	struct rsh_shown_list all = { .n = 0 };
	size_t at = 0;

	for (size_t i = 0; i < now->n; i++) {
		const struct rsh_saved_step *f = &now->v[i];
		const bool old = at < s->listed.n &&
			strcmp(s->listed.v[at]->saved.name, f->name) == 0;
		struct rsh_shown_step *t;

		if (f->why && !(old && f->unread))
			continue;
		t = old ? s->listed.v[at++] : step_new(s, f);
		if (!t || rsh_push(all.v, all.n, all.cap, t)) {
			free(all.v);
			return -ENOMEM;
		}
	}
	for (size_t i = 0; i < all.n; i++) {
		if (!all.v[i]->listed)
			rsh_log_info("%s: %s is complete", s->cfg.dir.path,
				     all.v[i]->saved.name);
		all.v[i]->listed = true;
	}
	free(s->listed.v);
	s->listed = all;
	return 0;
}

static int steps_replace(struct rsh_steps *s, const struct rsh_saved_steps *now)
{
	const bool gone = steps_remove(s, now);
	const size_t before = s->listed.n;
	int rc = steps_add(s, now);
	struct rsh_steps_root *r;

	if (rc || (!gone && s->listed.n == before && s->root))
		return rc;
	if (!s->root && s->listed.n == 0 && now->n > 0)
		rsh_log_notice("%s: no step is shown yet: %s", s->cfg.dir.path,
			       now->v[now->n - 1].why);
	r = root_new(s);
	if (!r)
		return -ENOMEM;
	if (s->root)
		STAILQ_INSERT_TAIL(&s->old, s->root, next);
	s->root = r;
	return 0;
}

/* The sandbox does not let the mount read another directory that has the place
 * of the one it was started with. */
static int look_explain(const struct rsh_steps *s, struct rsh_error *err)
{
	const struct rsh_store_identity *was =
		rsh_store_root_identity(rsh_source_store(s->source));
	struct stat st;

	if (stat(s->cfg.dir.path, &st) || (st.st_dev == was->which[0] &&
					   st.st_ino == was->which[1]))
		return -err->code;
	return rsh_error_set(err, EACCES, "%s: another directory has its place "
			     "now, which the sandbox of this mount does not "
			     "allow: mount it again, or with --sandbox off",
			     s->cfg.dir.path);
}

int rsh_steps_look(struct rsh_steps *s, struct rsh_error *err)
{
	uint64_t mine;
	int rc = 0;
	struct rsh_saved_steps now;

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
		rc = rsh_save_dir_look(&s->cfg.dir, &s->found, &now, err);
		if (rc == -EACCES)
			rc = look_explain(s, err);
		pthread_mutex_lock(&s->lock);
		/* A directory that cannot be listed may be on a server that
		 * does not answer, so its steps stay. */
		if ((rc == 0 || rc == -ENOENT) && steps_replace(s, &now)) {
			rc = rsh_error_nomem(err);
		} else if (rc == 0 || rc == -ENOENT) {
			const struct rsh_saved_steps old = s->found;

			s->found = now;
			now = old;
		}
		if (rc && s->error.code != err->code)
			rsh_log_warning("%s", err->text);
		if (rc == 0 && s->error.code)
			rsh_log_notice("%s: it can be listed again",
				       s->cfg.dir.path);
		s->error = rc ? *err : (struct rsh_error)RSH_ERROR_INIT;
		pthread_mutex_unlock(&s->lock);
		rsh_saved_steps_clear(&now);
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
	rsh_saved_step_clear(&t->saved);
	free(t);
}

/* Finds a tree to free: of a step that was not used for a while, or the one
 * that was used first of too many. */
static struct rsh_shown_step *sweep_find(struct rsh_steps *s, uint64_t now)
{
	struct rsh_shown_step *first = NULL;
	unsigned n = 0;

	for (size_t i = 0; i < s->steps.n; i++) {
		struct rsh_shown_step *t = s->steps.v[i];

		if (!t->tree || t->planning || atomic_load(&t->users) > 0)
			continue;
		n++;
		if (!first || t->used_ns < first->used_ns)
			first = t;
	}
	return n > UNUSED_MAX || (n > 0 && now - first->used_ns > UNUSED_NS) ?
	       first : NULL;
}

void rsh_steps_sweep(struct rsh_steps *s)
{
	struct rsh_shown_list gone = { .n = 0 }, *l = &s->steps;
	struct rsh_steps_root *r, *later;
	struct rsh_shown_step *t;
	struct rsh_vfs *tree;
	size_t before;

	pthread_mutex_lock(&s->lock);
	/* Take steps that have gone, if nobody uses them.  Without memory they
	 * stay until the next time. */
	before = l->n;
	l->n = 0;
	for (size_t i = 0; i < before; i++) {
		t = l->v[i];
		if (t->listed || t->planning || atomic_load(&t->users) > 0 ||
		    rsh_push(gone.v, gone.n, gone.cap, t))
			l->v[l->n++] = t;
	}
	/* Free roots that were replaced, if nobody uses them. */
	for (r = STAILQ_FIRST(&s->old); r; r = later) {
		later = STAILQ_NEXT(r, next);
		if (atomic_load(&r->users) > 0)
			continue;
		STAILQ_REMOVE(&s->old, r, rsh_steps_root, next);
		rsh_steps_root_free(r);
	}
	while ((t = sweep_find(s, rsh_clock_ns()))) {
		tree = t->tree;
		t->tree = NULL;
		pthread_mutex_unlock(&s->lock);
		rsh_vfs_free(tree);
		pthread_mutex_lock(&s->lock);
	}
	pthread_mutex_unlock(&s->lock);
	for (size_t i = 0; i < gone.n; i++)
		rsh_shown_step_free(gone.v[i]);
	free(gone.v);
}
