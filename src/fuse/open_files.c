/* SPDX-License-Identifier: Apache-2.0 */
/* fuse/open_files.c lists the files that are open. */
#include "config.h"

#include "ops_i.h"

#include <stdlib.h>

struct rsh_open_file *rsh_open_file_new(struct rsh_open_files *all)
{
	struct rsh_open_file *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	pthread_mutex_lock(&all->lock);
	LIST_INSERT_HEAD(&all->list, f, next);
	pthread_mutex_unlock(&all->lock);
	return f;
}

struct rsh_open_file *rsh_open_file_of(const struct fuse_file_info *fi)
{
	return (struct rsh_open_file *)(uintptr_t)fi->fh;
}

static void open_file_discard(struct rsh_open_file *f)
{
	LIST_REMOVE(f, next);
	free(f->text);
	free(f);
}

void rsh_open_file_free(struct rsh_open_files *all, struct rsh_open_file *f)
{
	if (!f)
		return;
	pthread_mutex_lock(&all->lock);
	open_file_discard(f);
	pthread_mutex_unlock(&all->lock);
}

void rsh_open_files_clear(struct rsh_open_files *all)
{
	struct rsh_open_file *f;

	while ((f = LIST_FIRST(&all->list)))
		open_file_discard(f);
}
