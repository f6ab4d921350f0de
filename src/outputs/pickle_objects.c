/* SPDX-License-Identifier: Apache-2.0 */
/* outputs/pickle_objects.c writes the objects of the metadata of a distributed
 * checkpoint, and its values that are not tensors. */
#include "config.h"

#include "pickle_objects_i.h"

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

bool rsh_pickle_known(struct rsh_pickle_objects *p, unsigned value)
{
	if (p->memo[value])
		rsh_pickle_recall(&p->out, p->memo[value] - 1);
	return p->memo[value];
}

void rsh_pickle_keep(struct rsh_pickle_objects *p, unsigned value)
{
	p->memo[value] = 1 + rsh_pickle_remember(&p->out);
}

void rsh_pickle_put_class(struct rsh_pickle_objects *p, unsigned value,
			  const char *module, const char *name)
{
	if (rsh_pickle_known(p, value))
		return;
	rsh_pickle_put_global(&p->out, module, name);
	rsh_pickle_keep(p, value);
}

void rsh_pickle_put_key(struct rsh_pickle_objects *p, unsigned value,
			const char *key)
{
	if (rsh_pickle_known(p, value))
		return;
	rsh_pickle_put_text(&p->out, key, strlen(key));
	rsh_pickle_keep(p, value);
}

/* Makes an object of the class that was put, and begins its attributes. */
static void pickle_begin_attributes(struct rsh_pickle_out *o)
{
	rsh_pickle_put(o, RSH_PICKLE_OP_EMPTY_TUPLE);
	rsh_pickle_put(o, RSH_PICKLE_OP_NEWOBJ);
	rsh_pickle_put(o, RSH_PICKLE_OP_EMPTY_DICT);
	rsh_pickle_put(o, RSH_PICKLE_OP_MARK);
}

void rsh_pickle_begin_object(struct rsh_pickle_objects *p, unsigned value,
			     const char *module, const char *name)
{
	rsh_pickle_put_class(p, value, module, name);
	pickle_begin_attributes(&p->out);
}

void rsh_pickle_end_object(struct rsh_pickle_objects *p)
{
	rsh_pickle_put(&p->out, RSH_PICKLE_OP_SETITEMS);
	rsh_pickle_put(&p->out, RSH_PICKLE_OP_BUILD);
}

/* ---- the metadata ---- */

void rsh_pickle_begin_metadata(struct rsh_pickle_objects *p, const char *module)
{
	rsh_pickle_begin(&p->out);
	/* Its class occurs once, so it is not kept in the memo. */
	rsh_pickle_put_global(&p->out, module, "Metadata");
	pickle_begin_attributes(&p->out);
}

int rsh_pickle_end_metadata(struct rsh_pickle_objects *p)
{
	rsh_pickle_end_object(p);
	rsh_pickle_end(&p->out);
	return p->out.failed ? -ENOMEM : 0;
}

void rsh_pickle_put_member(struct rsh_pickle_objects *p,
			   const struct rsh_output_tree *t,
			   const struct rsh_pickle_items *values,
			   const char *key, rsh_pickle_tensor_fn *put_tensor,
			   rsh_pickle_value_fn *put_value)
{
	uint32_t number = 0;

	rsh_pickle_put_text(&p->out, key, strlen(key));
	rsh_pickle_put(&p->out, RSH_PICKLE_OP_EMPTY_DICT);
	rsh_pickle_put(&p->out, RSH_PICKLE_OP_MARK);
	for (uint32_t f = 0; f < rsh_plan_n_files(t->plan); f++)
		for (uint32_t i = 0; i < rsh_plan_n_records(t->plan, f); i++) {
			struct rsh_virtual_record r;

			rsh_plan_record(t->plan, f, i, &r);
			put_tensor(t, number++, f, &r);
		}
	for (uint32_t i = 0; i < values->n; i++)
		put_value(t, number++, &values->v[i]);
	rsh_pickle_put(&p->out, RSH_PICKLE_OP_SETITEMS);
}
