/* SPDX-License-Identifier: Apache-2.0 */
/* outputs/pickle_items.c makes items of values that are not tensors. */
#include "config.h"

#include "pickle_items_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/mem.h"
#include "rsh/util/names.h"
#include "rsh/wire/torch_item.h"

/* Adds the names of all tensors.  Returns 0 or -ENOMEM. */
static int items_add_tensors(const struct rsh_plan *p, struct rsh_names *names)
{
	for (uint32_t f = 0; f < rsh_plan_n_files(p); f++)
		for (uint32_t i = 0; i < rsh_plan_n_records(p, f); i++) {
			struct rsh_virtual_record r;

			rsh_plan_record(p, f, i, &r);
			if (rsh_names_add(names, r.shape.name,
					  r.shape.name_len) == RSH_NAME_NONE)
				return -ENOMEM;
		}
	return 0;
}

int rsh_pickle_items_make(const struct rsh_output_tree *t, bool archives,
			  struct rsh_pickle_items *out)
{
	const struct rsh_values *v = t->values;
	struct rsh_names *names;
	size_t most = 0;
	int rc;

	*out = (struct rsh_pickle_items){ .n = 0 };
	if (v->n == 0)
		return 0;
	names = rsh_names_new();
	rc = names ? items_add_tensors(t->plan, names) : -ENOMEM;
	for (uint32_t i = 0; i < v->n; i++)
		most += v->values[i].n_pickle + RSH_TORCH_TAIL_MAX;
	out->v = rsh_alloc_array(v->n, sizeof(*out->v));
	out->bytes = rsh_alloc_array(most, 1);
	if (!out->v || !out->bytes)
		rc = -ENOMEM;
	for (uint32_t i = 0; rc == 0 && i < v->n; i++) {
		const struct rsh_plain *p = &v->values[i];
		uint8_t *to = out->bytes + out->n_bytes;
		size_t n = p->n_pickle;

		if (!p->pickle ||
		    rsh_names_find(names, v->names[i], strlen(v->names[i])) !=
			    RSH_NAME_NONE)
			continue;
		if (archives)
			n = rsh_torch_save_pickle(p->pickle, n, to);
		else
			memcpy(to, p->pickle, n);
		out->v[out->n++] = (struct rsh_pickle_item){
			v->names[i], out->n_bytes, n
		};
		out->n_bytes += n;
	}
	rsh_names_free(names);
	return rc;
}

void rsh_pickle_items_clear(struct rsh_pickle_items *items)
{
	free(items->v);
	free(items->bytes);
	*items = (struct rsh_pickle_items){ .n = 0 };
}
