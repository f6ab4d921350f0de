/* SPDX-License-Identifier: Apache-2.0 */
/* vfs/attribute.c writes the text of each extended attribute from the
 * conversion and the source. */
#include "config.h"

#include "rsh/vfs/attribute.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/source/inspect.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"
#include "rsh/vfs/inspect.h"
#include "vfs_i.h"

static const char *const names[RSH_N_ATTRIBUTES] = {
	[RSH_ATTRIBUTE_SOURCES] = "user.reshardfs.sources",
	[RSH_ATTRIBUTE_REPLICAS] = "user.reshardfs.replicas",
	[RSH_ATTRIBUTE_STEP] = RSH_ATTRIBUTE_NAME_STEP,
	[RSH_ATTRIBUTE_RECORD_COUNT] = "user.reshardfs.record_count",
};

/* Calls the tree's `attribute` for a node. */
static int write_attribute(const struct rsh_vfs *v, uint64_t number,
			   enum rsh_attribute which, FILE *to)
{
	struct rsh_node node;

	if (!v->ops->attribute || !rsh_tree_node(&v->tree, number, &node) ||
	    (node.kind == RSH_NODE_DIR && number != RSH_VFS_ROOT))
		return -ENODATA;
	return v->ops->attribute(v, node.leaf, which, to);
}

size_t rsh_vfs_attribute_names(const struct rsh_vfs *v, uint64_t node,
			       char list[RSH_ATTRIBUTE_NAMES_MAX])
{
	char *to = list;

	for (int i = 0; i < RSH_N_ATTRIBUTES; i++)
		if (write_attribute(v, node, (enum rsh_attribute)i, NULL) == 0)
			to = stpcpy(to, names[i]) + 1;
	return (size_t)(to - list);
}

static int attribute_print(const struct rsh_vfs *v, uint64_t node,
			   enum rsh_attribute which, char **value,
			   size_t *length)
{
	cleanup_free char *text = NULL;
	FILE *f = open_memstream(&text, length);
	int rc;

	if (!f)
		return -ENOMEM;
	rc = write_attribute(v, node, which, f);
	if (rc == 0 && ferror(f))
		rc = -ENOMEM;
	if (fclose(f) != 0 && rc == 0)
		rc = -ENOMEM;
	if (rc == 0)
		*value = steal_pointer(&text);
	return rc;
}

int rsh_vfs_step(const struct rsh_vfs *v, char **step)
{
	size_t length;

	return attribute_print(v, RSH_VFS_ROOT, RSH_ATTRIBUTE_STEP, step,
			       &length);
}

int rsh_vfs_attribute(const struct rsh_vfs *v, uint64_t node, const char *name,
		      char **value, size_t *length)
{
	cleanup_free char *exact = NULL;
	int rc = -ENODATA;

	for (int i = 0; i < RSH_N_ATTRIBUTES; i++) {
		if (strcmp(name, names[i]) != 0)
			continue;
		rc = attribute_print(v, node, (enum rsh_attribute)i, value,
				     length);
		if (rc || i != RSH_ATTRIBUTE_STEP)
			break;
		exact = *value;
		*value = rsh_text_escape(exact);
		if (!*value)
			return -ENOMEM;
		*length = strlen(*value);
	}
	return rc;
}

int rsh_attribute_path(FILE *to, const char *path)
{
	cleanup_free char *escaped = rsh_text_escape(path);

	return escaped && fputs(escaped, to) >= 0 ? 0 : -ENOMEM;
}

/* ---- of a conversion ---- */

static int reshard_print_sources(const struct rsh_reshard *v, uint32_t rank,
				 FILE *to)
{
	struct rsh_source_file_info f;
	struct rsh_source_view view;
	uint32_t n;
	int rc = 0;
	const uint32_t *ranks = rsh_plan_sources(v->plan, rank, &n);

	rsh_source_view(v->source, v->names, &view);
	for (uint32_t i = 0; i < n && rc == 0; i++) {
		uint32_t first, n_files;
		bool any = false;

		/* A rank may have several files. */
		n_files = rsh_source_rank_files(v->source, ranks[i], &first);
		if (i > 0)
			fputc('\n', to);
		if (n_files == 0)
			rc = rsh_attribute_path(to, view.path[ranks[i]]);
		for (uint32_t k = 0; k < n_files && rc == 0; k++) {
			rsh_source_file_info(v->source, first + k, &f);
			if (!f.valid)
				continue;
			if (any)
				fputc('\n', to);
			any = true;
			rc = rsh_attribute_path(to, f.path);
		}
	}
	return rc;
}

int rsh_vfs_replicas(const struct rsh_strategy *src, uint32_t **first,
		     uint32_t *n)
{
	*first = NULL;
	*n = src ? src->n_stages * src->stage_ranks : 0;
	if (!src)
		return 0;
	*first = rsh_alloc_array(*n, sizeof(**first));
	if (*first && rsh_strategy_replicas(src, *first) == 0)
		return 0;
	free(*first);
	*first = NULL;
	return -ENOMEM;
}

static int reshard_print_replicas(const struct rsh_reshard *v, uint32_t rank,
				  FILE *to)
{
	cleanup_free uint32_t *first = NULL;
	uint32_t n, n_first;
	const uint32_t *ranks = rsh_plan_sources(v->plan, rank, &n);
	int rc = rsh_vfs_replicas(v->src, &first, &n_first);

	for (uint32_t i = 0; rc == 0 && i < n; i++) {
		/* getfattr shows a value in base64 if it has fewer than eight
		 * letters a line, hence the word. */
		fprintf(to, "%srank %" PRIu32 ":", i ? "\n" : "", ranks[i]);
		for (uint32_t r = 0; r < n_first; r++)
			if (r != ranks[i] && first[r] == first[ranks[i]])
				fprintf(to, " %" PRIu32, r);
	}
	return rc;
}

/* A leaf that belongs to no rank or part is the index of a model's parts. */
int rsh_reshard_attribute(const struct rsh_vfs *vfs, uint32_t rank,
			  enum rsh_attribute which, FILE *to)
{
	const struct rsh_reshard *v = rsh_reshard_of(vfs);
	char step[256];

	if ((rank >= v->n_files && which != RSH_ATTRIBUTE_STEP) ||
	    (which == RSH_ATTRIBUTE_REPLICAS && !v->src))
		return -ENODATA;
	if (!to)
		return 0;
	switch (which) {
	case RSH_ATTRIBUTE_SOURCES:
		return reshard_print_sources(v, rank, to);
	case RSH_ATTRIBUTE_REPLICAS:
		return reshard_print_replicas(v, rank, to);
	case RSH_ATTRIBUTE_STEP:
		rsh_source_candidate_text(v->source,
					  rsh_source_chosen(v->source), step,
					  sizeof(step));
		fputs(step, to);
		break;
	case RSH_ATTRIBUTE_RECORD_COUNT:
		fprintf(to, "%" PRIu32, rsh_plan_n_records(v->plan,
								 rank));
		break;
	case RSH_N_ATTRIBUTES:
		return -ENODATA;
	}
	return 0;
}
