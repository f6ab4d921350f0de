/* SPDX-License-Identifier: Apache-2.0 */
/* formats/dcp/object.c reads the objects of the pickle in a ".metadata": their
 * classes, attributes, names and numbers. */
#include "config.h"

#include "metadata_i.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "rsh/wire/bytes.h"

#define NAME_MAX_BYTES 4096
#define ATTRIBUTES_MAX 64

int rsh_dcp_bad(const struct rsh_dcp_reader *r, const char *what)
{
	if (!r->name)
		return rsh_bytes_damaged(r->src, r->at, what, r->err);
	return rsh_error_set(r->err, EBADMSG, "%s: damaged at offset %" PRIu64
			     ": \"%s\": %s", r->src->path, r->at, r->name,
			     what);
}

bool rsh_dcp_is_made_of(const struct rsh_pickle_value *v, const char *class)
{
	static const char torch[] = "torch.distributed.";
	static const char hyper[] = "hyper_parallel.core.";
	const struct rsh_pickle_class *c =
		v->kind == RSH_PV_OBJECT ? v->object->class : NULL;

	return c && strcmp(c->name, class) == 0 &&
	       (strncmp(c->module, torch, sizeof(torch) - 1) == 0 ||
		strncmp(c->module, hyper, sizeof(hyper) - 1) == 0);
}

int rsh_dcp_expect(struct rsh_dcp_reader *r, const struct rsh_pickle_value *v,
		   const char *class)
{
	const struct rsh_pickle_value *state;

	if (!rsh_dcp_is_made_of(v, class))
		return rsh_error_set(r->err, EBADMSG, "%s: damaged at offset %"
				     PRIu64 ": something else than a %s",
				     r->src->path, r->at, class);
	r->at = v->object->at;
	state = &v->object->state;
	return state->kind == RSH_PV_DICT &&
	       state->list->n > 2 * ATTRIBUTES_MAX ?
		       rsh_dcp_bad(r, "an object with too many attributes") : 0;
}

const struct rsh_pickle_value *
rsh_dcp_attribute(const struct rsh_pickle_value *v, const char *name)
{
	static const struct rsh_pickle_value none = { .kind = RSH_PV_NONE };
	const struct rsh_pickle_value *found =
		rsh_pickle_find(&v->object->state, name);

	return found ? found : &none;
}

int rsh_dcp_name(const struct rsh_dcp_reader *r,
		 const struct rsh_pickle_value *v, const char **out)
{
	if (v->kind != RSH_PV_TEXT || v->n == 0 || v->n > NAME_MAX_BYTES ||
	    memchr(v->text, '\0', v->n))
		return rsh_dcp_bad(r, "not a name");
	*out = v->text;
	return 0;
}

int rsh_dcp_numbers(const struct rsh_dcp_reader *r,
		    const struct rsh_pickle_value *v, uint32_t n_dims,
		    uint64_t *out)
{
	if (v->kind != RSH_PV_TUPLE || v->n != n_dims)
		return rsh_dcp_bad(r, "a box whose numbers are not one for "
				   "each dimension");
	for (uint32_t d = 0; d < n_dims; d++) {
		if (v->items[d].kind != RSH_PV_NUMBER || v->items[d].number < 0)
			return rsh_dcp_bad(r, "a size or an offset that is not "
					   "an integer of 0 or more");
		out[d] = (uint64_t)v->items[d].number;
	}
	return 0;
}
