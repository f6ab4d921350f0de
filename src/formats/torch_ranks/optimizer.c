/* SPDX-License-Identifier: Apache-2.0 */
/* formats/torch_ranks/optimizer.c finds the names of an optimizer's states.
 *
 * optimizer.state_dict() has numbers in place of names: state.12.exp_avg.  With
 * one group of parameters they run over model.parameters(), which are the
 * distributed tensors of the model's file in their order; two names of one
 * parameter (tied weights) count once.  With several groups the numbers follow
 * the groups, and nothing says which parameters these have. */
#include "config.h"

#include "torch_ranks_i.h"

#include <stdlib.h>
#include <string.h>

#include "rsh/util/mem.h"
#include "rsh/util/text.h"

#define STATE "state."

/* Reads the number in "state.12.exp_avg", and sets what follows it. */
static bool state_number(const char *name, uint64_t *number, const char **rest)
{
	const size_t n = strlen(STATE);
	size_t digits;

	if (strncmp(name, STATE, n) != 0)
		return false;
	digits = rsh_count_digits(name + n, strlen(name + n));
	*rest = name + n + digits;
	return **rest == '.' && rsh_number_read(name + n, digits, number);
}

uint32_t rsh_ranks_lowest(const struct rsh_source_ranks *st, uint32_t item)
{
	uint32_t found = st->all.n;

	for (uint32_t i = 0; i < st->all.n; i++)
		if (st->all.files[i] && st->listed[i].item == item &&
		    (found == st->all.n ||
		     st->listed[i].rank < st->listed[found].rank))
			found = i;
	return found;
}

/* ---- parameters ---- */

/* Compares their places in the file. */
RSH_ORDER(param_by_number, struct rsh_ranks_entry *const,
	  rsh_compare_u64((uintptr_t)*x, (uintptr_t)*y))

RSH_ORDER(param_by_storage, struct rsh_ranks_entry *const,
	  rsh_by_u32(&(*x)->storage, &(*y)->storage) ?:
	  rsh_compare_u64((*x)->from, (*y)->from) ?:
	  param_by_number(x, y))

/* Returns whether each state that is as large as a parameter has the shape of
 * the parameter that its number means. */
static bool params_fit(const struct rsh_ranks_file *optimizer,
		       const struct rsh_ranks_params *params)
{
	const char *rest;
	uint64_t number;

	for (uint32_t i = 0; i < optimizer->n; i++) {
		const struct rsh_ranks_entry *e = &optimizer->v[i];
		const struct rsh_ranks_spec *p;

		if (!state_number(e->name, &number, &rest))
			continue;
		if (number >= params->n)
			return false;
		p = params->v[number]->spec;
		if (e->spec && !rsh_dims_equal(e->spec->dims, e->spec->n_dims,
					       p->dims, p->n_dims))
			return false;
	}
	return true;
}

int rsh_ranks_params_find(struct rsh_source_ranks *st)
{
	const struct rsh_ranks_file *model = NULL, *optimizer = NULL, *f;
	uint32_t lowest[RSH_RANKS_VALUES] = { UINT32_MAX, UINT32_MAX };
	struct rsh_ranks_params p = { .n = 0 };
	uint32_t kept = 0;
	uint64_t number;
	const char *rest;

	/* The files of the lowest rank that were read. */
	for (uint32_t i = 0; i < st->all.n; i++) {
		const enum rsh_ranks_role role = rsh_ranks_role_of(st, i);

		f = st->all.files[i];
		if (!f || role == RSH_RANKS_VALUES ||
		    st->listed[i].rank >= lowest[role])
			continue;
		lowest[role] = st->listed[i].rank;
		*(role == RSH_RANKS_MODEL ? &model : &optimizer) = f;
	}
	if (!model || !optimizer)
		return 0;
	/* The states of FSDP1 are those of flat parameters, whose parts have no
	 * names. */
	st->is_flat = false;
	for (uint32_t i = 0; i < optimizer->n && model->specs.n > 0 &&
	     optimizer->specs.n == 0; i++)
		st->is_flat |= optimizer->v[i].n_dims == 1 &&
			       state_number(optimizer->v[i].name, &number,
					    &rest);
	if (st->is_flat || optimizer->n_groups != 1)
		return 0;
	p.v = rsh_arena_array(&st->all.arena, const struct rsh_ranks_entry *,
			      model->n);
	if (!p.v)
		return -ENOMEM;
	for (uint32_t i = 0; i < model->n; i++)
		if (model->v[i].spec && model->v[i].piece == 0)
			p.v[p.n++] = &model->v[i];
	/* Two names of one parameter count once. */
	rsh_sort(p.v, p.n, param_by_storage);
	for (uint32_t i = 0; i < p.n; i++)
		if (i == 0 || p.v[i]->storage != p.v[kept - 1]->storage ||
		    p.v[i]->from != p.v[kept - 1]->from)
			p.v[kept++] = p.v[i];
	p.n = kept;
	rsh_sort(p.v, p.n, param_by_number);
	if (p.n == optimizer->n_params && params_fit(optimizer, &p))
		st->params = p;
	return 0;
}

/* ---- names ---- */

const struct rsh_ranks_entry *
rsh_ranks_param_of(const struct rsh_source_ranks *st, uint32_t item,
		   const char *name)
{
	const char *rest;
	uint64_t number;

	return st->items[item].role == RSH_RANKS_OPTIMIZER &&
	       state_number(name, &number, &rest) && number < st->params.n ?
	       st->params.v[number] : NULL;
}

int rsh_ranks_name_show(const struct rsh_source_ranks *st, uint32_t item,
			const char *name, const struct rsh_path_key *keys,
			uint32_t n_keys, struct rsh_arena *arena,
			struct rsh_joined_value *out)
{
	const struct rsh_ranks_item *it = &st->items[item];
	const struct rsh_ranks_entry *of = rsh_ranks_param_of(st, item, name);
	const char *param = of ? of->name : NULL;
	const char *rest = of ? strchr(name + strlen(STATE), '.') : "";
	struct rsh_path_key *more;

	*out = (struct rsh_joined_value){ name, keys, n_keys };
	if (!it->word && !param)
		return 0;
	out->name = rsh_arena_format(arena, "%s%s%s%s%s",
				     it->word ? it->word : "",
				     it->word ? "." : "", param ? STATE : "",
				     param ? param : name, param ? rest : "");
	more = rsh_arena_array(arena, struct rsh_path_key, (size_t)n_keys + 2);
	if (!out->name || !more)
		return -ENOMEM;
	out->keys = more;
	out->n_keys = 0;
	if (it->word)
		more[out->n_keys++].text = it->word;
	if (n_keys == 0)
		more[out->n_keys++].text = name;
	for (uint32_t i = 0; i < n_keys; i++)
		more[out->n_keys++] = i == 1 && param ?
			(struct rsh_path_key){ .text = param } : keys[i];
	return 0;
}
