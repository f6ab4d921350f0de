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
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/formats/files.h"
#include "rsh/util/files.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"

/* So many steps are looked at to recognise a source. */
#define STEPS_LOOKED_AT 16

/* ---- names ---- */

bool rsh_megatron_step_read(const char *name, size_t n, uint64_t *step)
{
	const size_t before = strlen(RSH_MEGATRON_ITERATION);

	*step = 0;
	if (n == strlen(RSH_MEGATRON_RELEASE) &&
	    strncmp(name, RSH_MEGATRON_RELEASE, n) == 0)
		return true;
	return n > before &&
	       strncmp(name, RSH_MEGATRON_ITERATION, before) == 0 &&
	       rsh_number_read(name + before, n - before, step);
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

/* Adds DIR/FILE for each of the directories that has it. */
static int add_files(const struct rsh_store *store, const char *step,
		     const struct rsh_path_list *dirs, const char *file,
		     struct rsh_path_list *out)
{
	struct rsh_stat st;
	int rc = 0;

	for (size_t i = 0; i < dirs->n && rc == 0; i++) {
		cleanup_free char *path = rsh_text_format("%s%s/%s", step,
							  dirs->v[i], file);

		rc = !path ? -ENOMEM : rsh_store_look(store, path, &st);
		if (rc == 0)
			rc = rsh_path_list_add(out, path);
		else if (rc == -ENOENT || rc == -ENOTDIR)
			rc = 0;
	}
	return rc;
}

/* Lists the files of a step, which is a directory with a slash at its end, or
 * "": those of the model, then those of states.  *out is empty for a step of
 * another form.  Returns 0 or -errno. */
static int step_list(const struct rsh_store *store, const char *step,
		     struct rsh_path_list *out)
{
	cleanup_free char *path = strndup(step, strlen(step) -
						(*step != '\0'));
	cleanup_dir struct rsh_dir *d = NULL;
	struct rsh_path_list dirs = { 0 };
	struct rsh_megatron_listed l;
	const char *name;
	bool other = false;
	int more = path ? rsh_dir_open(store, path, &d) : -ENOMEM, rc;

	while (more >= 0 && (more = rsh_dir_next(d, &name)) > 0) {
		other |= strcmp(name, RSH_DCP_METADATA) == 0;
		if (dir_read(name, &l) && rsh_path_list_add(&dirs, name))
			more = -ENOMEM;
	}
	rc = more < 0 ? more : 0;
	rsh_path_list_sort(&dirs);
	if (rc == 0 && !other)
		rc = add_files(store, step, &dirs, RSH_MEGATRON_FILE, out);
	if (rc == 0 && out->n > 0)
		rc = add_files(store, step, &dirs, RSH_MEGATRON_OPTIMIZER, out);
	rsh_path_list_clear(&dirs);
	return rc;
}

/* ---- bidding ---- */

static bool look_has_step(const struct rsh_look *l, const char *dir)
{
	struct rsh_path_list files = { 0 };
	int rc = step_list(rsh_source_store(l->source), dir, &files);
	const bool has = files.n > 0;

	rsh_path_list_clear(&files);
	rsh_look_fail(l, dir, rc);
	return rc == 0 && has;
}

static bool look_finds_step(const struct rsh_look *l)
{
	unsigned looked_at = 0;
	bool found = false;
	uint64_t step;

	for (size_t i = l->n; i-- > 0 && !found &&
	     looked_at < STEPS_LOOKED_AT;) {
		cleanup_free char *dir = NULL, *metadata = NULL;
		struct rsh_stat st;

		if (!rsh_megatron_step_read(l->names[i], strlen(l->names[i]),
					    &step))
			continue;
		looked_at++;
		dir = rsh_text_format("%s/", l->names[i]);
		metadata = rsh_text_format("%s/" RSH_DCP_METADATA,
					   l->names[i]);
		/* The job saves in another form now. */
		if (metadata && rsh_store_look(rsh_source_store(l->source),
					       metadata, &st) == 0)
			return false;
		found = dir && look_has_step(l, dir);
	}
	return found;
}

int rsh_megatron_bid(const struct rsh_look *l, struct rsh_bid_more *more)
{
	struct rsh_megatron_listed parts;
	bool any = false;

	if (l->file || !rsh_look_is_plain(l) || rsh_look_is_sharded(l))
		return RSH_BID_NO;
	for (size_t i = 0; i < l->n && !any; i++)
		any = dir_read(l->names[i], &parts);
	more->is_step = any && look_has_step(l, "");
	return more->is_step || look_finds_step(l) ? RSH_BID_SURE : RSH_BID_NO;
}

/* ---- listing ---- */

static int list_file(const struct rsh_format_step *d, const char *path)
{
	struct rsh_checkpoint c = {
		.name = strdup(path), .label = strdup(d->label),
		.step = d->step,
		/* Files of states are after all of the model. */
		.rank = rsh_has_suffix(path, RSH_MEGATRON_OPTIMIZER),
	};
	struct rsh_stat st;

	if (rsh_store_look(rsh_source_store(d->source), path, &st) == 0) {
		c.mtime = st.attr.mtime;
		c.ctime = st.attr.ctime;
	}
	return rsh_source_list(d->source, &c);
}

/* A release is older than all iterations. */
static int list_step(struct rsh_source *s, const char *name, uint64_t number,
		     struct rsh_error *err)
{
	const char *slash = strrchr(rsh_source_path(s), '/');
	const char *last = slash ? slash + 1 : rsh_source_path(s);
	const struct rsh_format_step d = {
		s, name, *name ? name : last,
		{ .n = *name != '\0', .numbers = { number } },
	};
	cleanup_free char *dir = rsh_text_format("%s%s", name,
						 *name ? "/" : "");
	struct rsh_path_list files = { 0 };
	int rc = dir ? step_list(rsh_source_store(s), dir, &files) : -ENOMEM;

	for (size_t i = 0; i < files.n && rc == 0; i++)
		rc = list_file(&d, files.v[i]);
	rsh_path_list_clear(&files);
	return rc ? rsh_format_list_unread(&d, rc, err) : 0;
}

/* ---- opening ---- */

/* Later steps than `last`, which the tracker names, are not listed. */
static int list_steps(struct rsh_source *s, uint64_t last,
		      struct rsh_error *err)
{
	cleanup_dir struct rsh_dir *d = NULL;
	struct rsh_path_list names = { 0 };
	int more = rsh_dir_open(rsh_source_store(s), "", &d), rc;
	bool there = last > 0;
	const char *name;
	uint64_t step;

	while (more >= 0 && (more = rsh_dir_next(d, &name)) > 0)
		if (rsh_megatron_step_read(name, strlen(name), &step) &&
		    rsh_path_list_add(&names, name))
			more = -ENOMEM;
	rc = more >= 0 ? 0 : more == -ENOMEM ? rsh_error_nomem(err) :
	     rsh_store_open_error(rsh_source_store(s), "", more, err);
	rsh_path_list_sort(&names);
	for (size_t i = 0; i < names.n; i++)
		there |= strcmp(names.v[i], RSH_MEGATRON_RELEASE) == 0;
	for (size_t i = 0; i < names.n && rc == 0; i++) {
		rsh_megatron_step_read(names.v[i], strlen(names.v[i]), &step);
		/* The release that the tracker names may be gone. */
		if (there && step > last)
			rsh_log_notice("%s/%s: the tracker names an older "
				       "step, so this one was not saved "
				       "completely", rsh_source_path(s),
				       names.v[i]);
		else
			rc = list_step(s, names.v[i], step, err);
	}
	rsh_path_list_clear(&names);
	return rc;
}

/* Later steps than the tracker's are not listed, so it is the first. */
static void tracker_check(const struct rsh_source *s, uint64_t step)
{
	size_t first, end;

	rsh_source_candidate_range(s, 0, &first, &end);
	if (first == end ||
	    rsh_source_on_list(s, first)->step.numbers[0] != step)
		rsh_log_warning("%s: its tracker names a step that is not "
				"there; the newest complete step is taken",
				rsh_source_path(s));
}

int rsh_megatron_open(struct rsh_source *s,
		      const struct rsh_source_options *opts,
		      struct rsh_error *err)
{
	uint64_t last = UINT64_MAX;
	int tracked = 0, rc = list_step(s, "", 0, err);

	if (rc == 0 && rsh_source_n_on_list(s) == 0) {
		if (opts->select == RSH_SELECT_NEWEST)
			tracked = rsh_source_read_tracker(
				s, RSH_MEGATRON_TRACKER, RSH_MEGATRON_RELEASE,
				&last, err);
		rc = tracked < 0 ? tracked :
		     list_steps(s, tracked ? last : UINT64_MAX, err);
	}
	if (rc == 0 && rsh_source_n_on_list(s) == 0)
		rc = rsh_error_set(err, ENOENT, "%s: no iteration in it has a "
				   RSH_MEGATRON_FILE, rsh_source_path(s));
	rc = rc ?: rsh_source_sort_steps(s, opts, err);
	if (rc == 0 && tracked)
		tracker_check(s, last);
	/* `ls` shows the only step without choosing it. */
	return rc || rsh_source_n_candidates(s) > 1 ? rc :
	       rsh_megatron_choose(s, 0, err);
}

/* ---- the chosen step ---- */

void rsh_megatron_state_clear(struct rsh_source_megatron *st)
{
	rsh_joined_clear(&st->all);
	free(st->layers);
	free(st->lost);
	free(st->pairs);
	free(st->folded);
	rsh_arena_clear(&st->arena);
}

static void state_free(void *state)
{
	if (state)
		rsh_megatron_state_clear(state);
	free(state);
}

/* Takes the files of the candidate, in whose order they are. */
static int take_files(struct rsh_source *s, struct rsh_source_megatron *st,
		      size_t first, size_t end)
{
	for (size_t i = first; i < end; i++) {
		struct rsh_checkpoint *c = rsh_source_on_list(s, i);
		struct rsh_megatron_listed *l = &st->listed[st->all.n];
		const char *dir = strstr(c->name, "mp_rank");

		/* That of a step that cannot be listed is no file. */
		if (!dir || !dir_read(dir, l))
			continue;
		if (!rsh_has_suffix(c->name, RSH_MEGATRON_OPTIMIZER))
			st->n++;
		c->rank = st->all.n++;
		l->name = rsh_arena_strndup(&st->arena, c->name,
					    strlen(c->name));
		st->dir = rsh_arena_strndup(&st->arena, c->name,
					    (size_t)(dir - c->name));
		if (!l->name || !st->dir)
			return -ENOMEM;
	}
	return 0;
}

/* Returns the file of the model in the directory of a file. */
static uint32_t model_beside(const struct rsh_source_megatron *st,
			     const char *name)
{
	const size_t n = (size_t)(strrchr(name, '/') - name) + 1;
	uint32_t i = 0;

	while (i < st->n && strncmp(st->listed[i].name, name, n) != 0)
		i++;
	return i < st->n ? i : RSH_MEGATRON_NO_FILE;
}

int rsh_megatron_choose(struct rsh_source *s, uint32_t candidate,
			struct rsh_error *err)
{
	struct rsh_source_megatron *st = calloc(1, sizeof(*st));
	size_t first, end;
	int rc;

	rsh_source_keep(s, st, NULL, state_free);
	if (!st)
		return rsh_error_nomem(err);
	rsh_source_candidate_range(s, candidate, &first, &end);
	rc = rsh_joined_init(&st->all, &rsh_megatron_files, s, end - first);
	st->path = rsh_source_path(s);
	st->dir = "";
	st->listed = rsh_arena_array(&st->arena, struct rsh_megatron_listed,
				     end - first);
	if (rc || !st->listed || take_files(s, st, first, end))
		return rsh_error_nomem(err);
	for (uint32_t i = 0; i < st->all.n; i++)
		st->listed[i].model = i < st->n ? i :
			model_beside(st, st->listed[i].name);
	return 0;
}
