/* SPDX-License-Identifier: Apache-2.0 */
/* formats/torch_ranks/listing.c finds files of ranks:
 *
 *   SOURCE/model_world_size_8_rank_3.pt   verl and SkyRL; SOURCE may also be
 *                                         above actor/ (SkyRL: policy/), or
 *                                         above global_step_N/actor/
 *   SOURCE/rank_3.pt, model_3.pt ...      any program's
 *   SOURCE/rank3/model.pt ...             the same, in directories
 *
 * The names of verl are enough; of others the first file must have distributed
 * tensors. */
#include "config.h"

#include "torch_ranks_i.h"

#include <errno.h>
#include <string.h>

#include "rsh/formats/files.h"
#include "rsh/util/files.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"
#include "rsh/wire/checkpoint2.h"

#define SKYRL_TRACKER "latest_ckpt_global_step.txt"

/* The directories of a step that may have the model. */
static const char *const roles[] = { "", "actor", "policy", "critic" };
#define N_ROLES (sizeof(roles) / sizeof(roles[0]))

/* ---- directories ---- */

static bool is_model_name(const char *name)
{
	struct rsh_ranks_name parts;

	return rsh_ranks_name_read(name, &parts) &&
	       parts.role == RSH_RANKS_MODEL;
}

/* Returns the directory of a role below that of a step, from malloc. */
static char *role_dir(const char *step, const char *role)
{
	return rsh_text_format("%s%s%s", step, *step && *role ? "/" : "", role);
}

/* Returns whether a directory of a role below `step` has a model, or -errno. */
static int has_model(const struct rsh_store *store, const char *step)
{
	for (size_t i = 0; i < N_ROLES; i++) {
		cleanup_free char *path = role_dir(step, roles[i]);
		int rc = path ? rsh_joined_dir_has(store, path, is_model_name) :
				-ENOMEM;

		if (rc && !(rsh_errno_is_absent(-rc) && *roles[i]))
			return rc;
	}
	return 0;
}

/* ---- what a file has ---- */

/* Reads a file, and sets its rank and the number of ranks: that of its largest
 * mesh, or of the boxes of ShardedTensors.  Returns 1, 0 if it
 * is not one of torch.save() with parts of tensors, or -errno that says that
 * nothing is known. */
static int look_for_parts(const struct rsh_source *s, const char *name,
			  uint32_t *rank, uint32_t *world)
{
	struct rsh_ranks_listed listed = { .described = NULL };
	struct rsh_source_ranks st = { .listed = &listed };
	cleanup_format_file struct rsh_format_file file;
	struct rsh_error unused = RSH_ERROR_INIT;
	const struct rsh_ranks_file *f;
	void *read = NULL;
	int rc;

	pthread_mutex_init(&st.ways.lock, NULL);
	rc = rsh_format_file_open(s, name, &file, &unused) ?:
	     rsh_ranks_file_read(&st, 0, &file.bytes, false, NULL, &read, NULL,
				 &unused);
	f = read;
	if (rc)
		rc = rc == -ENOMEM || rsh_errno_is_unread(-rc) ? rc : 0;
	else if (f->specs.n > 0) {
		/* 1 if the file has all of the model. */
		*rank = f->rank;
		*world = 1;
		for (size_t i = 0; i < f->specs.n; i++) {
			const struct rsh_ranks_spec *of = &f->specs.v[i];
			const uint32_t n = of->how ? of->how->mesh->n :
						     of->n_all;

			*world = n > *world ? n : *world;
		}
		rc = 1;
	}
	rsh_joined_file_free(read);
	rsh_ranks_ways_clear(&st.ways);
	return rc;
}

/* ---- files of any program ---- */

/* Adds the files of directories of ranks to the names, as DIR/FILE: those that
 * one of the first two directories has. */
static int list_rank_dirs(const struct rsh_store *store,
			  const char *const *names, size_t n,
			  struct rsh_path_list *out)
{
	cleanup_path_list struct rsh_path_list dirs = { 0 }, files = { 0 };
	uint64_t rank;
	int rc = 0;

	/* rank3, rank_3 or 3 */
	for (size_t i = 0; i < n && rc == 0; i++) {
		const char *at = names[i] +
				 (rsh_begins_any(names[i], "rank_") ? 5 :
				  rsh_begins_any(names[i], "rank") ? 4 : 0);

		if (rsh_digits_read(at, strlen(at), RSH_MESH_RANKS_MAX, &rank))
			rc = rsh_path_list_add(&dirs, names[i]);
	}
	rsh_path_list_sort(&dirs);
	for (size_t d = 0; d < dirs.n && d < 2 && rc == 0 && files.n == 0; d++) {
		rc = rsh_path_list_read(&files, store, dirs.v[d]);
		if (rsh_errno_is_absent(-rc))
			rc = 0;
		if (!rsh_any(i, files.n, rsh_ranks_has_suffix(files.v[i])))
			rsh_path_list_clear(&files);
	}
	for (size_t i = 0; i < dirs.n * files.n && rc == 0; i++) {
		cleanup_free char *path =
			rsh_text_format("%s/%s", dirs.v[i / files.n],
					files.v[i % files.n]);
		struct rsh_error unused = RSH_ERROR_INIT;

		if (!path)
			rc = -ENOMEM;
		/* Opening one of which nothing is known reports the error. */
		else if (rsh_store_has(store, path, &unused))
			rc = rsh_path_list_add(out, path);
	}
	return rc;
}

/* Finds the groups of files of which the first one has parts of tensors, and
 * moves them to the beginning.  Returns 0 or -errno. */
static int groups_of_parts(const struct rsh_source *s,
			   const char *const *names, size_t n,
			   struct rsh_arena *arena,
			   struct rsh_ranks_group **out, size_t *n_out)
{
	cleanup_path_list struct rsh_path_list all = { 0 };
	size_t found = 0, kept = 0, at, end;
	uint32_t rank, world;
	int rc = 0;

	for (size_t i = 0; i < n && rc == 0; i++)
		rc = rsh_path_list_add(&all, names[i]);
	rc = rc ?: list_rank_dirs(rsh_source_store(s), names, n, &all) ?:
	     rsh_ranks_groups_find((const char *const *)all.v, all.n, arena,
				   out, &found);
	for (size_t i = 0; i < found && rc == 0; i++) {
		const struct rsh_ranks_group *g = &(*out)[i];
		int is = 0;

		/* Of a single file only a name with a rank is a reason to look
		 * into it. */
		if (g->n == 1 && !rsh_rank_in_name(g->v->name,
						   strlen(g->v->name), &at,
						   &end))
			continue;
		/* The file of one rank may be damaged. */
		for (uint32_t k = 0; k < g->n && k < 2 && is == 0; k++)
			is = look_for_parts(s, g->v[k].name, &rank, &world);
		rc = is < 0 ? is : 0;
		if (is > 0 && (g->n > 1 || world > 1))
			(*out)[kept++] = *g;
	}
	*n_out = kept;
	return rc;
}

/* ---- bidding ---- */

int rsh_ranks_bid(const struct rsh_look *l, struct rsh_bid_more *more)
{
	cleanup_arena struct rsh_arena arena = { NULL, 0 };
	struct rsh_ranks_group *groups;
	const char *first;
	uint32_t rank, world;
	const char *unread = NULL;
	size_t n = 0;
	int rc = 0;

	/* Files of one step, without a read of any. */
	if (!l->file && rsh_look_count(l, is_model_name, &first) > 0)
		more->is_step = true;
	for (size_t i = 1; i < N_ROLES && !l->file && !more->is_step && !unread;
	     i++) {
		rc = !rsh_look_has(l, roles[i]) ? 0 :
		     rsh_joined_dir_has(rsh_source_store(l->source), roles[i],
					is_model_name);
		more->is_step = rc > 0;
		unread = rc < 0 && rsh_errno_is_unread(-rc) ? roles[i] : NULL;
	}
	if (!rsh_look_is_plain(l) || rsh_look_is_sharded(l))
		return RSH_BID_NO;
	if (unread)
		rsh_look_fail(l, unread, rc);
	if (l->file) {
		if (!rsh_ranks_has_suffix(l->file))
			return RSH_BID_NO;
		rc = look_for_parts(l->source, l->file, &rank, &world);
		rsh_look_fail(l, l->file, rc < 0 ? rc : 0);
		/* Any file of torch.save() is one of PyTorch. */
		return rc > 0 ? RSH_BID_SURE + 1 : RSH_BID_NO;
	}
	if (more->is_step || rsh_joined_look(l, rsh_ranks_step_read, has_model))
		return RSH_BID_SURE;
	if (rsh_look_has(l, RSH_TC_METADATA)) {
		struct rsh_error why = RSH_ERROR_INIT;
		struct rsh_tc *tc;

		rc = rsh_tc_load(l->source, &tc, &why);
		rsh_look_fail(l, RSH_TC_METADATA, rc == -EXDEV ? 0 : rc);
		rsh_tc_free(tc);
		if (rc != -EBADMSG)
			return RSH_BID_SURE;
	}
	/* Any program's files are read if nothing in the directory says what
	 * they are. */
	rc = groups_of_parts(l->source, l->names, l->n, &arena, &groups, &n);
	rsh_look_fail(l, "", rc);
	return rc == 0 && n > 0 ? RSH_BID_SURE : RSH_BID_NO;
}

/* ---- listing ---- */

static bool step_take(const char *name, struct rsh_checkpoint *c)
{
	struct rsh_ranks_name parts;

	(void)c;
	return rsh_ranks_name_read(name, &parts) &&
	       parts.role != RSH_RANKS_VALUES;
}

/* Lists the files of verl in a step: `name` is its directory, or "".  The first
 * directory with a model has it. */
static int list_step(struct rsh_source *s, const char *name,
		     const struct rsh_step *step, struct rsh_error *err)
{
	const size_t n = rsh_source_n_on_list(s);
	struct rsh_format_step d = {
		.source = s, .step = *step,
		.label = *name ? name : rsh_path_name(rsh_source_path(s)),
	};

	for (size_t i = 0; i < N_ROLES; i++) {
		cleanup_free char *dir = role_dir(name, roles[i]);
		bool any = false;
		int rc;

		d.dir = dir;
		rc = dir ? rsh_format_list_step(&d, step_take) : -ENOMEM;
		for (size_t k = n; k < rsh_source_n_on_list(s); k++)
			any |= is_model_name(rsh_source_on_list(s, k)->base);
		if (any)
			return 0;
		rsh_source_unlist(s, n);
		if (!rc || (rsh_errno_is_absent(-rc) && *roles[i]))
			continue;
		d.dir = name;
		return *name ?
		       rsh_format_list_unread(&d, rc, err) :
		       rsh_store_open_error(rsh_source_store(s), name, rc, err);
	}
	if (*name)
		rsh_log_info("%s/%s: no file of a model is in it",
			     rsh_source_path(s), name);
	return 0;
}

/* ---- opening ---- */

static int list_all(struct rsh_source *s, bool *steps, struct rsh_error *err)
{
	const struct rsh_store *store = rsh_source_store(s);
	const struct rsh_step none = { .n = 0 };
	cleanup_arena struct rsh_arena arena = { NULL, 0 };
	cleanup_path_list struct rsh_path_list names = { 0 };
	struct rsh_step step = { .n = 1 };
	struct rsh_ranks_group *groups;
	struct rsh_tc *tc = NULL;
	size_t n = 0;
	int rc = rsh_path_list_read(&names, store, ""), has;

	if (rc)
		rc = rsh_store_open_error(store, "", rc, err);
	rc = rc ?: list_step(s, "", &none, err);
	*steps = rc == 0 && rsh_source_n_on_list(s) == 0;
	for (size_t i = 0; i < names.n && *steps && rc == 0; i++)
		if (rsh_ranks_step_read(names.v[i], strlen(names.v[i]),
					&step.numbers[0]))
			rc = list_step(s, names.v[i], &step, err);
	*steps = *steps && rsh_source_n_on_list(s) > 0;
	if (rc || rsh_source_n_on_list(s) > 0)
		return rc;
	/* The files that metadata.pkl names and that exist, or those of any
	 * program: all groups that have parts, as one step. */
	has = rsh_store_has(store, RSH_TC_METADATA, err);
	if (has < 0)
		return has;
	if (has) {
		struct rsh_error unused = RSH_ERROR_INIT;

		rc = rsh_tc_load(s, &tc, err);
		for (size_t i = 0; rc == 0 && i < tc->n_files; i++)
			if (rsh_store_has(store, tc->files[i].name, &unused))
				rc = rsh_joined_list_file(
					s, tc->files[i].name, NULL, none, 0);
		rc = rc == -ENOMEM ? rsh_error_nomem(err) : rc;
	} else {
		rc = groups_of_parts(s, (const char *const *)names.v, names.n,
				     &arena, &groups, &n);
		for (size_t i = 0; i < n && rc == 0; i++)
			for (uint32_t k = 0; k < groups[i].n && rc == 0; k++)
				rc = rsh_joined_list_file(
					s, groups[i].v[k].name, NULL, none, 0);
		rc = rc ? rsh_store_open_error(store, "", rc, err) : 0;
	}
	rsh_tc_free(tc);
	return rc;
}

int rsh_ranks_open(struct rsh_source *s, const struct rsh_source_options *opts,
		   struct rsh_error *err)
{
	const char *file = rsh_source_file(s);
	uint32_t rank = 0, world = 1;
	bool steps = false;
	int rc = file ? look_for_parts(s, file, &rank, &world) :
			list_all(s, &steps, err);

	if (rc < 0 && file)
		return rsh_store_open_error(rsh_source_store(s), file, rc, err);
	rc = rc < 0 ? rc : 0;
	if (world > 1)
		return rsh_error_set(err, EINVAL, "%s/%s: it is the part of "
				     "rank %u of %u: SOURCE is the directory "
				     "with the files of all ranks",
				     rsh_source_path(s), file, rank, world);

	if (rc == 0 && file &&
	    rsh_joined_list_file(s, file, file, (struct rsh_step){ .n = 0 }, 0))
		rc = rsh_error_nomem(err);
	if (rc == 0 && rsh_source_n_on_list(s) == 0)
		rc = rsh_error_set(err, ENOENT, "%s: the files of its ranks "
				   "were removed", rsh_source_path(s));
	rc = rc ?: rsh_source_sort_steps(s, opts, err);
	if (rc == 0 && steps && opts->select == RSH_SELECT_NEWEST)
		rc = rsh_source_try_tracked(s, RSH_CKPT2_TRACKER, NULL, false,
					    err) ?:
		     rsh_source_try_tracked(s, SKYRL_TRACKER, NULL, false, err);
	/* `ls` shows the only step without choosing it. */
	return rc < 0 ? rc : rsh_source_n_candidates(s) > 1 ? 0 :
	       rsh_ranks_choose(s, 0, err);
}
