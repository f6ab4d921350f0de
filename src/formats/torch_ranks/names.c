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
	const size_t before = strlen(RSH_RANKS_STEP);

	return n > before && strncmp(name, RSH_RANKS_STEP, before) == 0 &&
	       rsh_number_read(name + before, n - before, step);
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

/* A name, and the place of the number in it. */
struct numbered {
	const char *name;
	size_t at, n;
	uint64_t number;
};

/* Compares what is before and after the numbers. */
static int by_frame(const struct numbered *a, const struct numbered *b)
{
	return rsh_compare_u64(a->at, b->at) ?:
	       strncmp(a->name, b->name, a->at) ?:
	       strcmp(a->name + a->at + a->n, b->name + b->at + b->n);
}

RSH_ORDER(by_frame_and_number, struct numbered,
	  by_frame(x, y) ?: rsh_compare_u64(x->number, y->number))

static int group_fill(const struct numbered *v, size_t n,
		      struct rsh_arena *arena, struct rsh_ranks_group *g)
{
	size_t stem = v->at;

	while (stem > 0 && strchr("_-.", v->name[stem - 1]))
		stem--;
	*g = (struct rsh_ranks_group){
		.at = v->at, .n = (uint32_t)n,
		.stem = rsh_arena_strndup(arena, v->name, stem),
		.names = rsh_arena_array(arena, char *, n),
		.ranks = rsh_arena_array(arena, uint32_t, n),
	};
	if (!g->stem || !g->names || !g->ranks)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		g->ranks[i] = (uint32_t)v[i].number;
		g->names[i] = rsh_arena_strdup(arena, v[i].name);
		if (!g->names[i])
			return -ENOMEM;
	}
	return 0;
}

int rsh_ranks_groups_find(const char *const *names, size_t n,
			  struct rsh_arena *arena,
			  struct rsh_ranks_group **out, size_t *n_out)
{
	cleanup_free struct numbered *v = rsh_alloc_array(n + 1, sizeof(*v));
	size_t n_numbered = 0;

	*n_out = 0;
	*out = rsh_arena_array(arena, struct rsh_ranks_group, n);
	if (!v || !*out)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		struct numbered *to = &v[n_numbered];
		size_t begin, end;

		to->name = names[i];
		/* Parts of one model are no files of ranks. */
		if (names[i][0] != '.' && rsh_ranks_has_suffix(names[i]) &&
		    (!rsh_format_is_part(names[i]) ||
		     rsh_rank_in_name(names[i], strlen(names[i]), &begin,
				      &end)) &&
		    number_find(names[i], &to->at, &to->n) &&
		    rsh_digits_read(names[i] + to->at, to->n,
				    RSH_MESH_RANKS_MAX, &to->number))
			n_numbered++;
	}
	rsh_sort(v, n_numbered, by_frame_and_number);
	for (size_t i = 0, end; i < n_numbered; i = end) {
		for (end = i + 1; end < n_numbered &&
		     by_frame(&v[i], &v[end]) == 0;)
			end++;
		if (group_fill(&v[i], end - i, arena, &(*out)[*n_out]))
			return -ENOMEM;
		++*n_out;
	}
	return 0;
}
