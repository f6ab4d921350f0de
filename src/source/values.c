/* SPDX-License-Identifier: Apache-2.0 */
/* source/values.c keeps the values of a source that are not tensors. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>

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

void rsh_values_clear(struct rsh_values *v)
{
	for (uint32_t i = 0; i < v->n; i++)
		rsh_plain_clear(&v->values[i]);
	free(v->values);
	free(v->names);
	*v = (struct rsh_values){ .n = 0 };
}
