/* SPDX-License-Identifier: Apache-2.0 */
/* copy/list.c lists the files of a virtual tree. */
#include "config.h"

#include "copy_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/mem.h"

struct walk {
	const struct rsh_vfs *vfs;
	const bool *wanted;
	struct rsh_copy_list *list;
	struct rsh_vfs_view view;
};

static int add_listed(void *ctx, uint64_t node, const char *path,
		      const struct stat *st)
{
	struct walk *w = ctx;
	struct rsh_copy_list *l = w->list;
	struct rsh_copy_file *f;

	if (rsh_room(l->files, l->cap, l->n + 1))
		return -ENOMEM;
	f = &l->files[l->n];
	*f = (struct rsh_copy_file){
		.node = node,
		.rank = RSH_COPY_NO_RANK,
		.size = (uint64_t)st->st_size,
		.mode = st->st_mode & 07777,
		.asked = true,
		.wanted = true,
	};
	f->path = strdup(path);
	if (!f->path)
		return -ENOMEM;
	l->n++;
	if (!rsh_vfs_rank(w->vfs, node, &f->rank))
		return 0;
	f->asked = f->wanted = !w->wanted || w->wanted[f->rank];
	f->lost = rsh_plan_is_lost(w->view.plan, f->rank);
	return 0;
}

RSH_ORDER(listed_by_path, struct rsh_copy_file *const,
	  strcmp((*x)->path, (*y)->path))

int rsh_copy_list_make(const struct rsh_vfs *vfs, const bool *wanted,
		       struct rsh_copy_list *out)
{
	struct walk w = { vfs, wanted, out, { 0 } };
	int rc;

	*out = (struct rsh_copy_list){ 0 };
	if (!rsh_vfs_view(vfs, &w.view))
		return -EINVAL;
	rc = rsh_vfs_each_file(vfs, add_listed, &w);
	if (rc)
		return rc;
	out->by_path = rsh_alloc_array(out->n, sizeof(struct rsh_copy_file *));
	if (!out->by_path)
		return -ENOMEM;
	for (size_t i = 0; i < out->n; i++)
		out->by_path[i] = &out->files[i];
	rsh_sort(out->by_path, out->n, listed_by_path);
	return 0;
}

RSH_ORDER(listed_by_size, struct rsh_copy_file *const,
	  rsh_compare_u64((*y)->size, (*x)->size) ?:
	  strcmp((*x)->path, (*y)->path))

/* Assigns the largest remaining file to the share with the fewest bytes (the
 * first one if several have the fewest), until no file remains. */
int rsh_copy_list_share(struct rsh_copy_list *l,
			const struct rsh_copy_share *share)
{
	cleanup_free struct rsh_copy_file **by_size = NULL;
	cleanup_free uint64_t *bytes = NULL;

	if (share->of < 2)
		return 0;
	by_size = rsh_alloc_array(l->n, sizeof(struct rsh_copy_file *));
	bytes = calloc(share->of, sizeof(*bytes));
	if (!by_size || !bytes)
		return -ENOMEM;
	for (size_t i = 0; i < l->n; i++)
		by_size[i] = &l->files[i];
	rsh_sort(by_size, l->n, listed_by_size);
	for (size_t i = 0; i < l->n; i++) {
		unsigned least = 0;

		if (!by_size[i]->wanted)
			continue;
		for (unsigned k = 1; k < share->of; k++)
			if (bytes[k] < bytes[least])
				least = k;
		/* Empty files also take time, so each file counts one byte
		 * more. */
		bytes[least] += by_size[i]->size + 1;
		by_size[i]->wanted = least == share->number;
	}
	return 0;
}

void rsh_copy_list_clear(struct rsh_copy_list *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->files[i].path);
	free(l->files);
	free(l->by_path);
	*l = (struct rsh_copy_list){ 0 };
}

struct rsh_copy_file *rsh_copy_list_find(const struct rsh_copy_list *l,
					 const char *path)
{
	const struct rsh_copy_file wanted = { .path = (char *)(uintptr_t)path };
	const struct rsh_copy_file *key = &wanted;
	struct rsh_copy_file **found = rsh_find(&key, l->by_path, l->n,
						listed_by_path);

	return found ? *found : NULL;
}

int rsh_copy_records(const struct rsh_vfs *vfs, const struct rsh_copy_file *f,
		     struct rsh_arena *arena, struct rsh_manifest_record **out,
		     uint32_t *n)
{
	struct rsh_vfs_view view;

	*n = 0;
	*out = NULL;
	if (f->rank == RSH_COPY_NO_RANK || !rsh_vfs_view(vfs, &view))
		return 0;
	*n = rsh_plan_n_records(view.plan, f->rank);
	*out = rsh_arena_array(arena, struct rsh_manifest_record, *n);
	if (!*out)
		return -ENOMEM;
	for (uint32_t i = 0; i < *n; i++) {
		struct rsh_virtual_record r;

		rsh_plan_record(view.plan, f->rank, i, &r);
		(*out)[i] = (struct rsh_manifest_record){
			.name = r.shape.name,
			.dtype = r.shape.dtype,
			.n_dims = r.shape.n_dims,
			.dims = r.shape.dims,
			.offset = r.offset,
			.bytes = r.total_bytes,
		};
	}
	return 0;
}
