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

/* Returns the lowest rank's file of the items of that role; NULL: there is
 * none. */
static const struct rsh_ranks_file *lowest_file(const struct rsh_source_ranks *st,
						enum rsh_ranks_role role)
{
	uint32_t found = st->all.n;

	for (uint32_t k = 0; k < st->n_items; k++) {
		const uint32_t i = st->items[k].role == role ?
				   rsh_ranks_lowest(st, k) : st->all.n;

		if (i < st->all.n &&
		    (found == st->all.n ||
		     st->listed[i].rank < st->listed[found].rank ||
		     (st->listed[i].rank == st->listed[found].rank &&
		      i < found)))
			found = i;
	}
	return found < st->all.n ? st->all.files[found] : NULL;
}

/* ---- parameters ---- */

struct param_at {
	const struct rsh_ranks_entry *of;
	uint32_t number;
};

RSH_ORDER(param_by_storage, struct param_at,
	  rsh_by_u32(&x->of->storage, &y->of->storage) ?:
	  rsh_compare_u64(x->of->from, y->of->from) ?:
	  rsh_by_u32(&x->number, &y->number))

RSH_ORDER(param_by_number, struct param_at, rsh_by_u32(&x->number, &y->number))

/* Returns how many parameters the file has, which become the first ones; *all
 * is from malloc.  Returns -ENOMEM if memory is out. */
static int64_t params_list(const struct rsh_ranks_file *f,
			   struct param_at **all)
{
	uint32_t n = 0, kept = 0;

	*all = rsh_alloc_array((size_t)f->n + 1, sizeof(**all));
	if (!*all)
		return -1;
	for (uint32_t i = 0; i < f->n; i++)
		if (f->v[i].spec && f->v[i].piece == 0)
			(*all)[n++] = (struct param_at){ &f->v[i], i };
	rsh_sort(*all, n, param_by_storage);
	for (uint32_t i = 0; i < n; i++)
		if (i == 0 ||
		    (*all)[i].of->storage != (*all)[kept - 1].of->storage ||
		    (*all)[i].of->from != (*all)[kept - 1].of->from)
			(*all)[kept++] = (*all)[i];
	rsh_sort(*all, kept, param_by_number);
	return kept;
}

/* Returns whether each state that is as large as a parameter has the shape of
 * the parameter that its number means. */
static bool params_fit(const struct rsh_ranks_file *optimizer,
		       const struct param_at *v, uint32_t n)
{
	const char *rest;
	uint64_t number;

	for (uint32_t i = 0; i < optimizer->n; i++) {
		const struct rsh_ranks_entry *e = &optimizer->v[i];
		const struct rsh_ranks_spec *p;

		if (!state_number(e->name, &number, &rest))
			continue;
		if (number >= n)
			return false;
		p = v[number].of->spec;
		if (e->spec && !rsh_dims_equal(e->spec->n_dims, e->spec->dims,
					       p->n_dims, p->dims))
			return false;
	}
	return true;
}

/* The states of FSDP1 are those of flat parameters, whose parts have no
 * names. */
static bool optimizer_is_flat(const struct rsh_ranks_file *model,
			      const struct rsh_ranks_file *optimizer)
{
	const char *rest;
	uint64_t number;
	bool any = false;

	if (model->specs.n == 0 || optimizer->specs.n > 0)
		return false;
	for (uint32_t i = 0; i < optimizer->n; i++)
		any |= optimizer->v[i].n_dims == 1 &&
		       state_number(optimizer->v[i].name, &number, &rest);
	return any;
}

int rsh_ranks_params_find(struct rsh_source_ranks *st)
{
	const struct rsh_ranks_file *model = lowest_file(st, RSH_RANKS_MODEL);
	const struct rsh_ranks_file *optimizer =
		lowest_file(st, RSH_RANKS_OPTIMIZER);
	cleanup_free struct param_at *all = NULL;
	int64_t n;

	if (!model || !optimizer)
		return 0;
	st->is_flat = optimizer_is_flat(model, optimizer);
	if (st->is_flat || optimizer->n_groups != 1)
		return 0;
	n = params_list(model, &all);
	if (n < 0)
		return -ENOMEM;
	if (n != optimizer->n_params || !params_fit(optimizer, all,
						    (uint32_t)n))
		return 0;
	st->params.v = rsh_arena_array(&st->all.arena,
				       const struct rsh_ranks_entry *,
				       (size_t)n);
	if (!st->params.v)
		return -ENOMEM;
	for (int64_t i = 0; i < n; i++)
		st->params.v[i] = all[i].of;
	st->params.n = (uint32_t)n;
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
