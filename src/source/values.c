/* SPDX-License-Identifier: Apache-2.0 */
/* source/values.c keeps the values of a source that are not tensors. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/source/format.h"
#include "rsh/util/mem.h"

int rsh_values_alloc(struct rsh_values *v, size_t n)
{
	*v = (struct rsh_values){
		.names = calloc(n + 1, sizeof(*v->names)),
		.values = calloc(n + 1, sizeof(*v->values)),
	};
	return v->names && v->values ? 0 : -ENOMEM;
}

void rsh_values_join_attr(struct rsh_values *v, const struct rsh_store_attr *a,
			  bool first)
{
	if (first)
		v->attr = *a;
	else
		v->attr.mode &= rsh_store_mode_as(a, v->attr.uid, v->attr.gid);
	v->attr.mode &= 0444;
}

int rsh_values_add_path(struct rsh_values *v, const char *name,
			const struct rsh_path_key *keys, uint32_t n)
{
	if (n == 0)
		return 0;
	if (rsh_grow(&v->paths, &v->cap_paths, v->n_paths + 1,
		     sizeof(*v->paths)))
		return -ENOMEM;
	v->paths[v->n_paths++] = (struct rsh_name_path){ name, keys, n };
	return 0;
}

static int values_path_by_name(const void *a, const void *b)
{
	const struct rsh_name_path *x = a, *y = b;

	return strcmp(x->name, y->name);
}

void rsh_values_sort_paths(struct rsh_values *v)
{
	if (v->n_paths)
		qsort(v->paths, v->n_paths, sizeof(*v->paths),
		      values_path_by_name);
}

const struct rsh_name_path *rsh_values_path(const struct rsh_values *v,
					    const char *name)
{
	const struct rsh_name_path key = { .name = name };

	return v->n_paths ? bsearch(&key, v->paths, v->n_paths,
				    sizeof(*v->paths), values_path_by_name) :
			    NULL;
}

void rsh_values_clear(struct rsh_values *v)
{
	free(v->paths);
	for (uint32_t i = 0; i < v->n; i++)
		rsh_plain_clear(&v->values[i]);
	free(v->values);
	free(v->names);
	*v = (struct rsh_values){ .n = 0 };
}
