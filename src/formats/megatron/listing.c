/* SPDX-License-Identifier: Apache-2.0 */
/* formats/megatron/listing.c finds trees of Megatron-LM: SOURCE/iter_N or
 * SOURCE/release, or SOURCE is one of these, with
 * mp_rank_TT[_PPP][_EEE]/model_optim_rng.pt.
 *
 * The tracker is written last of all, so a step that is newer than the one it
 * names is not complete. */
#include "config.h"

#include "megatron_i.h"

#include <errno.h>
#include <string.h>

#include "rsh/formats/files.h"
#include "rsh/util/files.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"

/* ---- names ---- */

bool rsh_megatron_step_read(const char *name, size_t n, uint64_t *step)
{
	*step = 0;
	return (n == strlen(RSH_MEGATRON_RELEASE) &&
		strncmp(name, RSH_MEGATRON_RELEASE, n) == 0) ||
	       rsh_number_after(RSH_MEGATRON_ITERATION, name, n, step);
}

/* Reads "mp_rank_01_003", up to a slash. */
static bool dir_read(const char *name, struct rsh_megatron_listed *out)
{
	static const char prefix[] = "mp_rank";
	const char *at = name + strlen(prefix);
	uint64_t number;

	out->n_numbers = 0;
	if (strncmp(name, prefix, strlen(prefix)) != 0)
		return false;
	while (*at == '_' && out->n_numbers < 3) {
		const size_t n = rsh_count_digits(at + 1, strlen(at + 1));

		/* Numbers of two or three digits and more. */
		if (n < (out->n_numbers ? 3 : 2) ||
		    !rsh_digits_read(at + 1, n, RSH_MEGATRON_RANKS_MAX,
				     &number))
			return false;
		out->numbers[out->n_numbers++] = (uint32_t)number;
		at += n + 1;
	}
	return out->n_numbers > 0 && (!*at || *at == '/');
}

/* ---- directories ---- */

/* Lists the files of the step in a directory: those of the model, then those of
 * states.  *out is empty for a step of another form.  Returns 0 or -errno. */
static int step_list(const struct rsh_store *store, const char *dir,
		     struct rsh_path_list *out)
{
	static const char *const kinds[] = {
		RSH_MEGATRON_FILE, RSH_MEGATRON_OPTIMIZER,
	};
	cleanup_path_list struct rsh_path_list names = { 0 };
	struct rsh_megatron_listed l;
	struct rsh_stat st;
	int rc = rsh_path_list_read(&names, store, dir);

	for (size_t i = 0; i < names.n; i++)
		if (strcmp(names.v[i], RSH_DCP_METADATA) == 0)
			return rc;
	for (unsigned k = 0; k < 2 && (k == 0 || out->n > 0); k++)
		for (size_t i = 0; i < names.n && rc == 0; i++) {
			cleanup_free char *path = NULL;

			if (!dir_read(names.v[i], &l))
				continue;
			path = rsh_text_format("%s%s%s/%s", dir,
					       *dir ? "/" : "", names.v[i],
					       kinds[k]);
			rc = path ? rsh_store_look(store, path, &st) : -ENOMEM;
			if (rc == 0)
				rc = rsh_path_list_add(out, path);
			else if (rsh_errno_is_absent(-rc))
				rc = 0;
		}
	return rc;
}

/* ---- bidding ---- */

/* Returns 1 if a directory has the files of a step, 2 if it has those of
 * another form, in which the job saves now, 0 if neither, or -errno. */
static int has_step(const struct rsh_store *store, const char *dir)
{
	cleanup_free char *metadata = rsh_text_format("%s/" RSH_DCP_METADATA,
						      dir);
	cleanup_path_list struct rsh_path_list files = { 0 };
	struct rsh_error unused = RSH_ERROR_INIT;
	int other = *dir && metadata ? rsh_store_has(store, metadata, &unused) :
				       0;

	if (other)
		return other < 0 ? other : 2;
	return step_list(store, dir, &files) ?: files.n > 0;
}

int rsh_megatron_bid(const struct rsh_look *l, struct rsh_bid_more *more)
{
	struct rsh_megatron_listed parts;
	bool any = false;
	int has = 0;

	if (l->file || !rsh_look_is_plain(l) || rsh_look_is_sharded(l))
		return RSH_BID_NO;
	for (size_t i = 0; i < l->n && !any; i++)
		any = dir_read(l->names[i], &parts);
	if (any)
		has = has_step(rsh_source_store(l->source), "");
	rsh_look_fail(l, "", has < 0 ? has : 0);
	more->is_step = has > 0;
	return more->is_step ||
	       rsh_joined_look(l, rsh_megatron_step_read, has_step) == 1 ?
	       RSH_BID_SURE : RSH_BID_NO;
}

/* ---- listing ---- */

/* A release is older than all iterations. */
static int list_step(struct rsh_source *s, const char *name, uint64_t number,
		     struct rsh_error *err)
{
	const struct rsh_format_step d = {
		s, name, *name ? name : rsh_path_name(rsh_source_path(s)),
		{ .n = *name != '\0', .numbers = { number } },
	};
	cleanup_path_list struct rsh_path_list files = { 0 };
	int rc = step_list(rsh_source_store(s), name, &files);

	for (size_t i = 0; i < files.n && rc == 0; i++)
		/* Files of states are after all of the model. */
		rc = rsh_joined_list_file(s, files.v[i], d.label, d.step,
					  rsh_has_suffix(
						  files.v[i],
						  RSH_MEGATRON_OPTIMIZER));
	return rc ? rsh_format_list_unread(&d, rc, err) : 0;
}

/* ---- opening ---- */

int rsh_megatron_open(struct rsh_source *s,
		      const struct rsh_source_options *opts,
		      struct rsh_error *err)
{
	cleanup_path_list struct rsh_path_list names = { 0 };
	uint64_t step;
	int rc = list_step(s, "", 0, err);
	const bool steps = rc == 0 && rsh_source_n_on_list(s) == 0;

	if (steps)
		rc = rsh_path_list_read(&names, rsh_source_store(s), "");
	if (steps && rc)
		rc = rsh_store_open_error(rsh_source_store(s), "", rc, err);
	for (size_t i = 0; i < names.n && rc == 0; i++)
		if (rsh_megatron_step_read(names.v[i], strlen(names.v[i]),
					   &step))
			rc = list_step(s, names.v[i], step, err);
	rc = rc ?: rsh_source_sort_steps(s, opts, err);
	if (rc == 0 && steps && opts->select == RSH_SELECT_NEWEST)
		rc = rsh_source_try_tracked(s, RSH_MEGATRON_TRACKER,
					    RSH_MEGATRON_RELEASE, true, err);
	if (rc >= 0 && rsh_source_n_on_list(s) == 0)
		rc = rsh_error_set(err, ENOENT, "%s: no iteration in it has a "
				   RSH_MEGATRON_FILE, rsh_source_path(s));
	/* `ls` shows the only step without choosing it. */
	return rc < 0 ? rc : rsh_source_n_candidates(s) > 1 ? 0 :
	       rsh_megatron_choose(s, 0, err);
}

/* ---- the chosen step ---- */

int rsh_megatron_choose(struct rsh_source *s, uint32_t candidate,
			struct rsh_error *err)
{
	size_t first, end;
	struct rsh_source_megatron *st = rsh_joined_choose(
		&rsh_megatron_files, sizeof(*st), s, candidate, &first, &end);
	struct rsh_joined *j;

	if (!st)
		return rsh_error_nomem(err);
	j = &st->all;
	st->listed = rsh_arena_array(&j->arena, struct rsh_megatron_listed,
				     end - first);
	/* Files of the candidate are in its order. */
	for (size_t i = first; i < end && !j->arena.failed; i++) {
		struct rsh_checkpoint *c = rsh_source_on_list(s, i);
		const char *dir = strstr(c->name, "mp_rank");

		/* That of a step that cannot be listed is no file. */
		if (!dir || !dir_read(dir, &st->listed[j->n]))
			continue;
		st->n += !rsh_has_suffix(c->name, RSH_MEGATRON_OPTIMIZER);
		c->rank = rsh_joined_add_file(j, c->name);
		if (c->rank == RSH_DCP_NO_FILE)
			return rsh_error_nomem(err);
		j->dir = rsh_arena_strndup(&j->arena, c->name,
					   (size_t)(dir - c->name));
	}
	if (j->arena.failed)
		return rsh_error_nomem(err);
	/* The file of the model in the same directory. */
	for (uint32_t i = 0; i < j->n; i++) {
		const char *name = j->names[i];
		const size_t n = (size_t)(strrchr(name, '/') - name) + 1;
		uint32_t k = i < st->n ? i : 0;

		while (k < st->n && strncmp(j->names[k], name, n) != 0)
			k++;
		st->listed[i].model = k < st->n ? k : RSH_MEGATRON_NO_FILE;
	}
	return 0;
}
