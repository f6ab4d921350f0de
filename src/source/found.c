/* SPDX-License-Identifier: Apache-2.0 */
/* source/found.c keeps the list of what was found in a tree. */
#include "config.h"

#include "source_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/mem.h"

static int found_add_to(struct rsh_checkpoint **files, size_t *n, size_t *cap,
			const struct rsh_checkpoint *found)
{
	struct rsh_checkpoint c = *found;
	const char *slash;

	if (!c.name || rsh_grow(files, cap, *n + 1, sizeof(**files))) {
		free(c.name);
		return -ENOMEM;
	}
	slash = strrchr(c.name, '/');
	c.base = slash ? slash + 1 : c.name;
	rsh_checkpoint_parse(&c);
	(*files)[(*n)++] = c;
	return 0;
}

int rsh_listing_add(struct rsh_listing *l, const struct rsh_checkpoint *found)
{
	return found_add_to(&l->files, &l->n, &l->cap, found);
}

int rsh_listing_add_beyond(struct rsh_listing *l,
			   const struct rsh_checkpoint *found)
{
	return found_add_to(&l->beyond, &l->n_beyond, &l->cap_beyond, found);
}

int rsh_listing_add_dir(struct rsh_listing *l, const char *name, uint32_t rank)
{
	char *copy;

	for (size_t i = l->n_dirs; i > 0; i--)
		if (l->dirs[i - 1].rank == rank &&
		    strcmp(l->dirs[i - 1].name, name) == 0)
			return 0;
	copy = strdup(name);
	if (!copy || rsh_grow(&l->dirs, &l->cap_dirs, l->n_dirs + 1,
			      sizeof(*l->dirs))) {
		free(copy);
		return -ENOMEM;
	}
	l->dirs[l->n_dirs++] = (struct rsh_rank_dir){ rank, copy };
	return 0;
}

void rsh_listing_clear(struct rsh_listing *l)
{
	for (size_t i = 0; i < l->n; i++)
		rsh_checkpoint_clear(&l->files[i]);
	for (size_t i = 0; i < l->n_dirs; i++)
		free(l->dirs[i].name);
	for (size_t i = 0; i < l->n_beyond; i++)
		rsh_checkpoint_clear(&l->beyond[i]);
	free(l->beyond);
	free(l->files);
	free(l->dirs);
}
