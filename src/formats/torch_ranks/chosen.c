/* SPDX-License-Identifier: Apache-2.0 */
/* formats/torch_ranks/chosen.c decides what the files of the chosen step are:
 * their items and ranks. */
#include "config.h"

#include "torch_ranks_i.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/files.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"
#include "rsh/wire/json_load.h"

int rsh_ranks_state_init(struct rsh_source_ranks *st, size_t n)
{
	if (!st)
		return -ENOMEM;
	pthread_mutex_init(&st->ways.lock, NULL);
	st->items = rsh_arena_array(&st->all.arena, struct rsh_ranks_item, 2);
	st->listed = rsh_arena_array(&st->all.arena, struct rsh_ranks_listed,
				     n);
	if (!st->items || !st->listed)
		return -ENOMEM;
	st->items[0].role = RSH_RANKS_MODEL;
	st->items[1] = (struct rsh_ranks_item){
		RSH_RANKS_OPTIMIZER, "optimizer",
	};
	st->n_items = 2;
	return 0;
}

/* ---- the world ---- */

/* Sets *out to the number of ranks that fsdp_config.json has; 0: it has none.
 * Fails only if it cannot be read now. */
static int config_world(const struct rsh_source *s, const char *dir,
			uint32_t *out, struct rsh_error *err)
{
	static const struct rsh_small_file kind = { "fsdp_config.json", 65536 };
	struct rsh_error why = RSH_ERROR_INIT;
	cleanup_free char *name = rsh_text_format("%sfsdp_config.json", dir);
	cleanup_free uint8_t *data = NULL;
	json_t *all = NULL;
	json_int_t n;
	size_t len;
	int rc;

	*out = 0;
	if (!name)
		return rsh_error_nomem(err);
	rc = rsh_store_load(rsh_source_store(s), name, &kind, &data, &len,
			    &why);
	if (rsh_errno_is_unread(-rc))
		return rsh_error_set(err, -rc, "%s", why.text);
	if (rc || rsh_json_load(&(struct rsh_memory){ data, len }, 0, name,
				"a fsdp_config.json", &all, &why))
		return 0;
	n = json_integer_value(json_object_get(all, "world_size"));
	json_decref(all);
	if (n > 0 && n <= RSH_MESH_RANKS_MAX)
		*out = (uint32_t)n;
	return 0;
}

/* Sets v[0 .. return value - 1] to the worlds of these files of models, one for
 * each file, in ascending order. */
static size_t worlds_find(struct rsh_source *s, size_t first, size_t end,
			  uint32_t *v)
{
	struct rsh_ranks_name parts;
	size_t n = 0;

	for (size_t i = first; i < end; i++)
		if (rsh_ranks_name_read(rsh_source_on_list(s, i)->base,
					&parts) &&
		    parts.role == RSH_RANKS_MODEL)
			v[n++] = parts.world;
	rsh_sort(v, n, rsh_by_u32);
	return n;
}

/* Decides which world is taken; files of others get RSH_RANK_UNKNOWN.  Several
 * may be in one directory if a job went on with another number of ranks. */
static int choose_world(struct rsh_source *s, struct rsh_source_ranks *st,
			size_t first, size_t end, struct rsh_error *err)
{
	cleanup_free uint32_t *v = rsh_alloc_array(end - first, sizeof(*v));
	const size_t n = v ? worlds_find(s, first, end, v) : 0;
	uint32_t n_whole = 0, whole = 0, config;
	bool is_there = false;
	int rc;

	if (!v)
		return rsh_error_nomem(err);
	if (n == 0)
		return rsh_joined_refuse(&st->all, st->all.dir, ENOENT, err,
					 "it has files of an optimizer, and "
					 "none of a model");
	rc = config_world(s, st->all.dir, &config, err);
	if (rc && v[0] != v[n - 1])
		return rc;
	for (size_t i = 0, next; i < n; i = next) {
		for (next = i; next < n && v[next] == v[i];)
			next++;
		is_there |= v[i] == config;
		if (next - i == v[i]) {
			n_whole++;
			whole = v[i];
		}
	}
	if (config && !is_there)
		return rsh_error_set(err, EBADMSG, "%s/%sfsdp_config.json says "
				     "that there are %u ranks, and the files "
				     "are of %u%s", rsh_source_path(s),
				     st->all.dir, config, v[0],
				     v[0] != v[n - 1] ? " and others" : "");
	st->world = v[0] == v[n - 1] ? v[0] :
		    config ? config : n_whole == 1 ? whole : 0;
	if (!st->world)
		return rsh_joined_refuse(
			&st->all, st->all.dir, EINVAL, err, "files of %u and "
			"of %u ranks are side by side, and no fsdp_config.json "
			"says which are the newer ones", v[0], v[n - 1]);
	if (v[0] != v[n - 1])
		rsh_log_warning("%s%s%s: files of several jobs are side by "
				"side; those of %u ranks are taken",
				rsh_source_path(s), *st->all.dir ? "/" : "",
				st->all.dir, st->world);
	return 0;
}

/* ---- files ---- */

/* Adds the file of a rank to the files of the source; NULL: memory is out. */
static struct rsh_ranks_listed *ranks_add(struct rsh_source_ranks *st,
					  struct rsh_checkpoint *c,
					  uint32_t item, uint32_t rank)
{
	const uint32_t file = rsh_joined_add_file(&st->all, c->name);

	if (file == RSH_DCP_NO_FILE)
		return NULL;
	c->rank = rank;
	st->listed[file] = (struct rsh_ranks_listed){
		.item = item,
		.rank = rank,
	};
	return &st->listed[file];
}

/* Finds the critic beside the model of an actor. */
static int find_critic(const struct rsh_source *s, struct rsh_source_ranks *st)
{
	cleanup_free char *name = NULL;
	struct rsh_stat stat;
	size_t n = strlen(st->all.dir);

	if (n < 2 || rsh_has_suffix(st->all.dir, "critic/"))
		return 0;
	while (n > 1 && st->all.dir[n - 2] != '/')
		n--;
	name = rsh_text_format("%.*scritic", (int)n - 1, st->all.dir);
	if (!name)
		return -ENOMEM;
	if (rsh_store_look(rsh_source_store(s), name, &stat) ||
	    stat.kind != RSH_IS_DIR)
		return 0;
	st->critic = rsh_arena_strdup(&st->all.arena, name);
	return st->critic ? 0 : -ENOMEM;
}

static int take_verl(struct rsh_source *s, struct rsh_source_ranks *st,
		     size_t first, size_t end, struct rsh_error *err)
{
	uint32_t lowest = UINT32_MAX;
	int rc = choose_world(s, st, first, end, err);

	if (rc)
		return rc;
	for (size_t i = first; i < end; i++) {
		struct rsh_checkpoint *c = rsh_source_on_list(s, i);
		struct rsh_ranks_name parts;
		struct rsh_ranks_listed *l;

		c->rank = RSH_RANK_UNKNOWN;
		if (!rsh_ranks_name_read(c->base, &parts) ||
		    parts.world != st->world)
			continue;
		l = ranks_add(st, c, parts.role == RSH_RANKS_OPTIMIZER,
			      parts.rank);
		if (!l)
			return rsh_error_nomem(err);
		l->at = (size_t)(c->base - c->name) + parts.at;
		l->n = parts.n;
		if (parts.role == RSH_RANKS_MODEL && parts.rank < lowest)
			lowest = parts.rank;
	}
	st->values = rsh_arena_format(&st->all.arena,
				      "%sextra_state_world_size_%u_rank_%u.pt",
				      st->all.dir, st->world, lowest);
	return st->values && find_critic(s, st) == 0 ? 0 :
						       rsh_error_nomem(err);
}

/* Returns what an item is by the stem of its files: model_0.pt, optim_0.pt. */
static enum rsh_ranks_role role_of(const char *stem)
{
	return strncmp(stem, "optim", 5) == 0 ? RSH_RANKS_OPTIMIZER :
						RSH_RANKS_MODEL;
}

/* Returns whether two names differ only in numbers. */
static bool same_but_numbers(const char *a, const char *b)
{
	while (*a || *b) {
		a += rsh_count_digits(a, strlen(a));
		b += rsh_count_digits(b, strlen(b));
		if (*a != *b)
			return false;
		a += *a != '\0';
		b += *b != '\0';
	}
	return true;
}

static int take_groups(struct rsh_source *s, struct rsh_source_ranks *st,
		       size_t first, size_t end, struct rsh_error *err)
{
	cleanup_free const char **names =
		rsh_alloc_array(end - first + 1, sizeof(*names));
	struct rsh_ranks_group *groups;
	size_t n = 0;
	int rc = names ? 0 : -ENOMEM;

	for (size_t i = first; i < end && names; i++)
		names[i - first] = rsh_source_on_list(s, i)->name;
	if (rc || rsh_ranks_groups_find(names, end - first, &st->all.arena, &groups,
					&n))
		return rsh_error_nomem(err);
	st->items = rsh_arena_array(&st->all.arena, struct rsh_ranks_item, n);
	if (!st->items)
		return rsh_error_nomem(err);
	for (size_t g = 1; g < n; g++)
		if (same_but_numbers(groups[g - 1].stem, groups[g].stem))
			return rsh_error_set(err, EINVAL, "%s: %s and %s are "
					     "files of two saves: SOURCE is a "
					     "directory with one of them",
					     rsh_source_path(s),
					     groups[g - 1].v->name,
					     groups[g].v->name);
	for (size_t g = 0; g < n; g++) {
		const char *stem = strrchr(groups[g].stem, '/');

		stem = stem ? stem + 1 : groups[g].stem;
		st->items[g].role = n > 1 ? role_of(stem) : RSH_RANKS_MODEL;
		if (n > 1 && strcmp(stem, "model") != 0)
			st->items[g].word = stem;
	}
	st->n_items = (uint32_t)n;
	/* Numbers of files are in the order of the list. */
	for (size_t i = first; i < end; i++) {
		struct rsh_checkpoint *c = rsh_source_on_list(s, i);
		struct rsh_ranks_listed *l = NULL;

		c->rank = RSH_RANK_UNKNOWN;
		for (size_t g = 0; g < n && !l; g++)
			for (uint32_t k = 0; k < groups[g].n && !l; k++) {
				const struct rsh_ranks_numbered *v =
					&groups[g].v[k];

				if (strcmp(v->name, c->name) != 0)
					continue;
				l = ranks_add(st, c, (uint32_t)g,
					      (uint32_t)v->number);
				if (!l)
					return rsh_error_nomem(err);
				l->at = v->at;
				l->n = v->n;
			}
	}
	return 0;
}

static int take_described(struct rsh_source *s, struct rsh_source_ranks *st,
			  size_t first, size_t end, struct rsh_error *err)
{
	const struct rsh_pickle_list *items;
	cleanup_free bool *there = NULL;
	int rc = rsh_tc_load(s, &st->tc, err);

	if (rc)
		return rc;
	items = st->tc->items->list;
	there = calloc(items->n / 2 + 1, sizeof(*there));
	st->items = rsh_arena_array(&st->all.arena, struct rsh_ranks_item,
				    items->n / 2);
	if (!st->items || !there)
		return rsh_error_nomem(err);
	for (uint32_t i = 0; i + 1 < items->n; i += 2) {
		const char *name = items->values[i].text;

		st->items[i / 2] = (struct rsh_ranks_item){
			role_of(name),
			strcmp(name, "model") == 0 ? NULL : name,
		};
	}
	st->n_items = items->n / 2;
	for (size_t i = first; i < end; i++) {
		struct rsh_checkpoint *c = rsh_source_on_list(s, i);
		const struct rsh_tc_file *f = NULL;
		struct rsh_ranks_listed *l;

		for (size_t k = 0; k < st->tc->n_files && !f; k++)
			if (strcmp(st->tc->files[k].name, c->name) == 0)
				f = &st->tc->files[k];
		c->rank = RSH_RANK_UNKNOWN;
		if (!f)
			continue;
		l = ranks_add(st, c, (uint32_t)(f->item - items->values) / 2,
			      f->rank);
		if (!l)
			return rsh_error_nomem(err);
		l->described = f->has_names ? f : NULL;
		there[(f->item - items->values) / 2] = true;
	}
	for (uint32_t i = 0; i < st->n_items; i++)
		if (!there[i])
			rsh_log_warning("%s/" RSH_TC_METADATA ": no file of "
					"\"%.200s\" is there: nothing of it is "
					"shown", rsh_source_path(s),
					items->values[2 * (size_t)i].text);
	return 0;
}

int rsh_ranks_choose(struct rsh_source *s, uint32_t candidate,
		     struct rsh_error *err)
{
	struct rsh_checkpoint *one;
	struct rsh_ranks_name parts;
	size_t first, end;
	int has;
	struct rsh_source_ranks *st = rsh_joined_choose(
		&rsh_ranks_files, sizeof(*st), s, candidate, &first, &end);

	if (rsh_ranks_state_init(st, end - first))
		return rsh_error_nomem(err);
	if (first == end)
		return rsh_error_set(err, ENOENT, "%s: no file of a rank is in "
				     "it", rsh_source_path(s));
	one = rsh_source_on_list(s, first);
	st->all.dir = rsh_arena_strndup(&st->all.arena, one->name,
				    (size_t)(one->base - one->name));
	if (!st->all.dir)
		return rsh_error_nomem(err);
	/* The only file has all of the model: its mesh has one rank. */
	if (rsh_source_file(s)) {
		st->n_items = 1;
		return ranks_add(st, one, 0, one->rank) ? 0 :
							  rsh_error_nomem(err);
	}
	if (rsh_ranks_name_read(one->base, &parts))
		return take_verl(s, st, first, end, err);
	has = rsh_store_has(rsh_source_store(s), RSH_TC_METADATA, err);
	return has < 0 ? has : has ? take_described(s, st, first, end, err) :
				     take_groups(s, st, first, end, err);
}
