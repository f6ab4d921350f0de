/* SPDX-License-Identifier: Apache-2.0 */
/* source/found.c has the lists of the files and directories found in a tree. */
#include "config.h"

#include "source_i.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/files.h"
#include "rsh/util/mem.h"

int rsh_path_list_add(struct rsh_path_list *l, const char *path)
{
	char *copy = strdup(path);

	if (copy && rsh_push(l->v, l->n, l->cap, copy) == 0)
		return 0;
	free(copy);
	return -ENOMEM;
}

static int path_order(const void *a, const void *b)
{
	return strverscmp(*(char *const *)a, *(char *const *)b);
}

void rsh_path_list_sort(struct rsh_path_list *l)
{
	rsh_sort(l->v, l->n, path_order);
}

int rsh_path_list_read(struct rsh_path_list *l, const struct rsh_store *store,
		       const char *dir)
{
	cleanup_dir struct rsh_dir *d = NULL;
	int more = rsh_dir_open(store, dir, &d);
	const char *name;

	while (more >= 0 && (more = rsh_dir_next(d, &name)) > 0)
		if (rsh_path_list_add(l, name))
			return -ENOMEM;
	rsh_path_list_sort(l);
	return more;
}

void rsh_path_list_clear(struct rsh_path_list *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->v[i]);
	free(l->v);
	*l = (struct rsh_path_list){ .n = 0 };
}

/* ---- files ---- */

int rsh_listing_add(struct rsh_listing *l, const struct rsh_checkpoint *found,
		    bool beyond)
{
	struct rsh_checkpoint c = *found;

	if (!c.name)
		return -ENOMEM;
	c.name = rsh_arena_strdup(&l->texts, c.name);
	if (c.label)
		c.label = rsh_arena_strdup(&l->texts, c.label);
	if (c.series)
		c.series = rsh_arena_strdup(&l->texts, c.series);
	if (l->texts.failed)
		return -ENOMEM;
	c.base = rsh_path_name(c.name);
	return beyond ? rsh_push(l->beyond, l->n_beyond, l->cap_beyond, c) :
			rsh_push(l->files, l->n, l->cap, c);
}

int rsh_listing_add_dir(struct rsh_listing *l, const char *name, uint32_t rank)
{
	const struct rsh_rank_dir dir = {
		rank, rsh_arena_strdup(&l->texts, name),
	};

	return dir.name ? rsh_push(l->dirs, l->n_dirs, l->cap_dirs, dir) :
			  -ENOMEM;
}

void rsh_listing_clear(struct rsh_listing *l)
{
	rsh_arena_clear(&l->texts);
	free(l->beyond);
	free(l->files);
	free(l->dirs);
}

/* ---- the files of one step ---- */

void rsh_step_files_free(struct rsh_step_files *files)
{
	if (!files || atomic_fetch_sub(&files->users, 1) > 1)
		return;
	for (size_t i = 0; i < files->n; i++)
		free(files->v[i].name);
	free(files);
}

/* Returns whether the files are one of each directory of a rank, and nothing
 * else belongs to the step. */
static bool step_files_suffice(const struct rsh_source *s,
			       const struct rsh_candidate *of)
{
	const struct rsh_listing *l = &s->listing;

	if (s->format->owner != RSH_OWNER_RANK || s->n_always ||
	    l->n_beyond || of->end - of->first != l->n_dirs)
		return false;
	for (size_t i = 0; i < l->n_dirs; i++) {
		const struct rsh_checkpoint *c = &l->files[of->first + i];
		const size_t n = strlen(l->dirs[i].name);

		if (c->n_dir || c->rank != l->dirs[i].rank ||
		    strncmp(c->name, l->dirs[i].name, n) != 0 ||
		    c->name[n] != '/')
			return false;
	}
	return true;
}

int rsh_step_files_new(const struct rsh_source *s,
		       const struct rsh_candidate *of,
		       struct rsh_step_files **out)
{
	const size_t n = of->end - of->first;
	struct rsh_step_files *files;

	*out = NULL;
	if (!step_files_suffice(s, of))
		return 0;
	files = calloc(1, sizeof(*files) + n * sizeof(*files->v));
	if (!files)
		return -ENOMEM;
	atomic_store(&files->users, 1);
	for (; files->n < n; files->n++) {
		const struct rsh_checkpoint *c =
			&s->listing.files[of->first + files->n];
		struct rsh_step_file *f = &files->v[files->n];

		f->name = strdup(c->name);
		if (!f->name) {
			rsh_step_files_free(files);
			return -ENOMEM;
		}
		f->rank = c->rank;
		f->n_folder = (uint32_t)strlen(s->listing.dirs[files->n].name);
		f->mtime = c->mtime;
		f->ctime = c->ctime;
	}
	*out = files;
	return 0;
}

/* ---- functions for formats ---- */

int rsh_source_list(struct rsh_source *s, const struct rsh_checkpoint *c)
{
	return rsh_listing_add(&s->listing, c, false);
}

size_t rsh_source_n_on_list(const struct rsh_source *s)
{
	return s->listing.n;
}

struct rsh_checkpoint *rsh_source_on_list(const struct rsh_source *s, size_t i)
{
	return &s->listing.files[i];
}

void rsh_source_unlist(struct rsh_source *s, size_t n)
{
	s->listing.n = n;
}

void rsh_source_take_list(struct rsh_source *s, const char *name)
{
	snprintf(s->step_name, sizeof(s->step_name), "%s", name);
	s->n_always = s->listing.n;
}
