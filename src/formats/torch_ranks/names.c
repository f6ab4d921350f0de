/* SPDX-License-Identifier: Apache-2.0 */
/* formats/torch_ranks/names.c reads the names of files of ranks. */
#include "config.h"

#include "torch_ranks_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/formats/files.h"
#include "rsh/util/files.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"

bool rsh_ranks_name_read(const char *name, struct rsh_ranks_name *out)
{
	static const struct {
		const char *before;
		enum rsh_ranks_role role;
	} known[] = {
		{ "model_world_size_", RSH_RANKS_MODEL },
		{ "optim_world_size_", RSH_RANKS_OPTIMIZER },
		{ "extra_state_world_size_", RSH_RANKS_VALUES },
	};
	static const char rank[] = "_rank_";

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		const size_t n = strlen(known[i].before);
		const char *at = name + n;
		uint64_t world, of;
		size_t digits;

		if (strncmp(name, known[i].before, n) != 0)
			continue;
		digits = rsh_count_digits(at, strlen(at));
		if (!rsh_digits_read(at, digits, RSH_MESH_RANKS_MAX, &world) ||
		    strncmp(at + digits, rank, strlen(rank)) != 0)
			return false;
		at += digits + strlen(rank);
		digits = rsh_count_digits(at, strlen(at));
		if (!rsh_digits_read(at, digits, RSH_MESH_RANKS_MAX, &of) ||
		    of >= world || strcmp(at + digits, ".pt") != 0)
			return false;
		*out = (struct rsh_ranks_name){
			known[i].role, (uint32_t)world, (uint32_t)of,
			(size_t)(at - name), digits,
		};
		return true;
	}
	return false;
}

bool rsh_ranks_step_read(const char *name, size_t n, uint64_t *step)
{
	return rsh_number_after(RSH_RANKS_STEP, name, n, step);
}

/* ---- names that differ in one number ---- */

bool rsh_ranks_has_suffix(const char *name)
{
	return rsh_has_suffix(name, ".pt") || rsh_has_suffix(name, ".pth") ||
	       rsh_has_suffix(name, ".bin");
}

/* Finds the number of the rank: that after "rank", or else the last one. */
static bool number_find(const char *name, size_t *at, size_t *n)
{
	const size_t len = strlen(name);
	size_t end, from = 0;

	if (rsh_rank_in_name(name, len, at, &end)) {
		*n = end - *at;
		return true;
	}
	*n = 0;
	while (from < len) {
		const size_t digits = rsh_count_digits(name + from, len - from);

		if (digits > 0) {
			*at = from;
			*n = digits;
		}
		from += digits ? digits : 1;
	}
	return *n > 0;
}

/* Compares what is before and after the numbers. */
static int by_frame(const struct rsh_ranks_numbered *a,
		    const struct rsh_ranks_numbered *b)
{
	return rsh_compare_u64(a->at, b->at) ?:
	       strncmp(a->name, b->name, a->at) ?:
	       strcmp(a->name + a->at + a->n, b->name + b->at + b->n);
}

RSH_ORDER(by_frame_and_number, struct rsh_ranks_numbered,
	  by_frame(x, y) ?: rsh_compare_u64(x->number, y->number))

int rsh_ranks_groups_find(const char *const *names, size_t n,
			  struct rsh_arena *arena,
			  struct rsh_ranks_group **out, size_t *n_out)
{
	struct rsh_ranks_numbered *v =
		rsh_arena_array(arena, struct rsh_ranks_numbered, n);
	size_t k = 0, begin, end;

	*n_out = 0;
	*out = rsh_arena_array(arena, struct rsh_ranks_group, n);
	for (size_t i = 0; i < n && v; i++)
		/* Parts of one model are no files of ranks. */
		if (names[i][0] != '.' && rsh_ranks_has_suffix(names[i]) &&
		    (!rsh_format_is_part(names[i]) ||
		     rsh_rank_in_name(names[i], strlen(names[i]), &begin,
				      &end)) &&
		    number_find(names[i], &v[k].at, &v[k].n) &&
		    rsh_digits_read(names[i] + v[k].at, v[k].n,
				    RSH_MESH_RANKS_MAX, &v[k].number))
			v[k++].name = rsh_arena_strdup(arena, names[i]);
	if (arena->failed)
		return -ENOMEM;
	rsh_sort(v, k, by_frame_and_number);
	for (size_t i = 0; i < k; i = end) {
		size_t stem = v[i].at;

		for (end = i + 1; end < k && by_frame(&v[i], &v[end]) == 0;)
			end++;
		while (stem > 0 && strchr("_-.", v[i].name[stem - 1]))
			stem--;
		(*out)[(*n_out)++] = (struct rsh_ranks_group){
			rsh_arena_strndup(arena, v[i].name, stem),
			(uint32_t)(end - i), &v[i],
		};
	}
	return arena->failed ? -ENOMEM : 0;
}
