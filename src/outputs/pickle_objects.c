/* SPDX-License-Identifier: Apache-2.0 */
/* outputs/pickle_objects.c writes the objects of a pickle. */
#include "config.h"

#include "pickle_objects_i.h"

#include <string.h>

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

void rsh_pickle_begin_object(struct rsh_pickle_objects *p, unsigned value,
			     const char *module, const char *name)
{
	rsh_pickle_put_class(p, value, module, name);
	rsh_pickle_put(&p->out, RSH_PICKLE_OP_EMPTY_TUPLE);
	rsh_pickle_put(&p->out, RSH_PICKLE_OP_NEWOBJ);
	rsh_pickle_put(&p->out, RSH_PICKLE_OP_EMPTY_DICT);
	rsh_pickle_put(&p->out, RSH_PICKLE_OP_MARK);
}

void rsh_pickle_end_object(struct rsh_pickle_objects *p)
{
	rsh_pickle_put(&p->out, RSH_PICKLE_OP_SETITEMS);
	rsh_pickle_put(&p->out, RSH_PICKLE_OP_BUILD);
}
