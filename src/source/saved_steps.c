/* SPDX-License-Identifier: Apache-2.0 */
/* source/saved_steps.c has the list of saved steps, and the state of their
 * files. */
#include "config.h"

#include "save_dir_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "rsh/util/clock.h"
#include "rsh/util/files.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"
#include "source_i.h"

void rsh_saved_step_clear(struct rsh_saved_step *t)
{
	free(t->name);
	free(t->path);
	free(t->ranks);
	free(t->why);
	rsh_step_files_free(t->files);
}

int rsh_saved_step_copy(const struct rsh_saved_step *from,
			struct rsh_saved_step *to)
{
	const size_t bytes = from->n_ranks * sizeof(*from->ranks);

	*to = *from;
	to->name = strdup(from->name);
	to->path = strdup(from->path);
	to->ranks = from->ranks ? malloc(bytes) : NULL;
	to->why = from->why ? strdup(from->why) : NULL;
	if (to->files)
		atomic_fetch_add(&to->files->users, 1);
	if (!to->name || !to->path || (from->ranks && !to->ranks) ||
	    (from->why && !to->why)) {
		rsh_saved_step_clear(to);
		return -ENOMEM;
	}
	if (to->ranks)
		memcpy(to->ranks, from->ranks, bytes);
	return 0;
}

void rsh_saved_steps_clear(struct rsh_saved_steps *l)
{
	for (size_t i = 0; i < l->n; i++)
		rsh_saved_step_clear(&l->v[i]);
	free(l->v);
	free(l->foreign);
	*l = (struct rsh_saved_steps){ .n = 0 };
}

struct rsh_saved_step *rsh_saved_steps_add(struct rsh_saved_steps *l,
					   const struct rsh_saved_step *from)
{
	if (rsh_grow(&l->v, &l->cap, l->n + 1, sizeof(*l->v)) ||
	    rsh_saved_step_copy(from, &l->v[l->n]))
		return NULL;
	return &l->v[l->n++];
}

static int step_order(const void *a, const void *b)
{
	const struct rsh_saved_step *x = a, *y = b;
	const int d = (x->step.n > 0) - (y->step.n > 0);

	/* A name without a number comes first: it is never the newest. */
	if (d)
		return d;
	if (x->step.n > 0 && rsh_step_cmp(&x->step, &y->step))
		return -rsh_step_cmp(&x->step, &y->step);
	return strcmp(x->name, y->name);
}

const struct rsh_saved_step *
rsh_saved_steps_find(const struct rsh_saved_steps *l,
		     const struct rsh_saved_step *like)
{
	return l->n ? bsearch(like, l->v, l->n, sizeof(*l->v), step_order) :
		      NULL;
}

int rsh_saved_steps_add_foreign(struct rsh_saved_steps *l, uint64_t hash)
{
	int rc = rsh_grow(&l->foreign, &l->cap_foreign, l->n_foreign + 1,
			  sizeof(*l->foreign));

	if (rc == 0)
		l->foreign[l->n_foreign++] = hash;
	return rc;
}

static int foreign_order(const void *a, const void *b)
{
	return rsh_compare_u64(*(const uint64_t *)a, *(const uint64_t *)b);
}

bool rsh_saved_steps_has_foreign(const struct rsh_saved_steps *l, uint64_t hash)
{
	return l->n_foreign > 0 &&
	       bsearch(&hash, l->foreign, l->n_foreign, sizeof(hash),
		       foreign_order);
}

void rsh_saved_steps_sort(struct rsh_saved_steps *l)
{
	if (l->n > 0)
		qsort(l->v, l->n, sizeof(*l->v), step_order);
	if (l->n_foreign > 0)
		qsort(l->foreign, l->n_foreign, sizeof(*l->foreign),
		      foreign_order);
}

/* ---- the state of files ---- */

/* NFS gives this name to a file that was removed while it is open, also by this
 * program. */
static bool is_removed_file(const char *name)
{
	return strncmp(name, ".nfs", strlen(".nfs")) == 0;
}

/* Python and safetensors make the other names: tmpabcdefgh, .tmpabcdef. */
static bool is_temporary(const char *name)
{
	return rsh_has_suffix(name, ".tmp") || strncmp(name, "tmp", 3) == 0 ||
	       strncmp(name, ".tmp", 4) == 0;
}

/* Directories list names in no particular order, so the hashes are added. */
void rsh_files_state_add(struct rsh_files_state *state, const char *path,
			 const struct rsh_stat *st)
{
	const bool dir = st->kind == RSH_IS_DIR;
	const char *slash = strrchr(path, '/');
	const uint64_t parts[] = {
		(uint64_t)st->kind, dir ? 0 : st->size,
		dir ? 0 : (uint64_t)st->attr.mtime.tv_sec,
		dir ? 0 : (uint64_t)st->attr.mtime.tv_nsec,
		dir ? 0 : (uint64_t)st->attr.ctime.tv_sec,
		dir ? 0 : (uint64_t)st->attr.ctime.tv_nsec,
	};

	state->hash += XXH3_64bits_withSeed(path, strlen(path),
					    XXH3_64bits(parts, sizeof(parts)));
	if (dir || is_temporary(slash ? slash + 1 : path))
		return;
	state->n++;
	if (rsh_clock_compare(&st->attr.mtime, &state->newest) > 0)
		state->newest = st->attr.mtime;
}

int rsh_files_state_add_dir(const struct rsh_store *store, const char *dir,
			    unsigned depth, struct rsh_files_state *state)
{
	cleanup_dir struct rsh_dir *at = NULL;
	int rc = rsh_dir_open(store, dir, &at);
	const char *name;

	if (rc == -EACCES && *dir) {
		state->unreadable = true;
		return 0;
	}
	/* Something was removed in the meantime. */
	if (rc == -ENOENT || rc == -ENOTDIR)
		return 0;
	while (rc >= 0 && (rc = rsh_dir_next(at, &name)) > 0) {
		cleanup_free char *path = NULL;
		struct rsh_stat st;

		if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
		    is_removed_file(name))
			continue;
		rc = rsh_dir_look(at, name, &st);
		state->unreadable |= rsh_errno_is_unread(-rc);
		if (rc)
			continue;
		path = rsh_text_format("%s%s%s", dir, *dir ? "/" : "", name);
		if (!path)
			return -ENOMEM;
		rsh_files_state_add(state, path, &st);
		if (st.kind == RSH_IS_DIR && depth > 1)
			rc = rsh_files_state_add_dir(store, path, depth - 1,
						     state);
		/* What reads such a directory says that it leads out. */
		if (rc == -EXDEV)
			rc = 0;
	}
	return rc;
}

int rsh_files_state_of(const struct rsh_store *store, const char *name,
		       const struct rsh_stat *st, struct rsh_files_state *state)
{
	*state = (struct rsh_files_state){ .hash = 0 };
	rsh_files_state_add(state, name, st);
	return st->kind == RSH_IS_DIR ?
	       rsh_files_state_add_dir(store, name, RSH_SAVE_DEPTH_MAX - 1,
				       state) : 0;
}
