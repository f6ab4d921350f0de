/* SPDX-License-Identifier: Apache-2.0 */
/* formats/torch_ranks/steps.c parses the names of steps of verl and SkyRL, and
 * checks whether a job can go on from one: global_step_N/ACTOR/ has the files
 * of each rank, and data.pt beside ACTOR/ the state of the data. */
#include "config.h"

#include "torch_ranks_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/formats/steps.h"
#include "rsh/util/files.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"

/* The files of a step that are not of ranks: verl's and SkyRL's. */
static bool is_of_step(const char *name)
{
	return strcmp(name, "data.pt") == 0 ||
	       strcmp(name, "trainer_state.pt") == 0;
}

/* Knows "global_step_5/", "global_step_5/actor/" and the files in both. */
enum rsh_part rsh_ranks_step_part(const char *path, struct rsh_step_name *out)
{
	const char *unit = rsh_step_dir_read(path, RSH_RANKS_STEP, out), *file;
	struct rsh_ranks_name parts;

	if (!unit)
		return RSH_PART_NO;
	file = strchr(unit, '/');
	if (!*unit)
		return RSH_PART_YES;
	if (!file)
		return is_of_step(unit) ? RSH_PART_YES : RSH_PART_MAYBE;
	if (!file[1])
		return strncmp(unit, "actor/", 6) == 0 ||
		       strncmp(unit, "policy/", 7) == 0 ||
		       strncmp(unit, "critic/", 7) == 0 ||
		       strncmp(unit, "ref/", 4) == 0 ? RSH_PART_YES :
						       RSH_PART_NO;
	return rsh_ranks_name_read(file + 1, &parts) ? RSH_PART_YES :
						       RSH_PART_MAYBE;
}

/* ---- the check ---- */

/* Checks that each rank of a world has a file of that role, or none has. */
static int check_role(const char *const *names, size_t n, uint32_t world,
		      enum rsh_ranks_role role, bool may_lack,
		      const char *path, struct rsh_error *err)
{
	cleanup_free bool *has = calloc((size_t)world + 1, sizeof(*has));
	struct rsh_ranks_name parts;
	uint32_t rank = 0, found = 0;

	if (!has)
		return rsh_error_nomem(err);
	for (size_t i = 0; i < n; i++)
		if (rsh_ranks_name_read(names[i], &parts) &&
		    parts.world == world && parts.role == role) {
			has[parts.rank] = true;
			found++;
		}
	while (rank < world && has[rank])
		rank++;
	return rank == world || (may_lack && found == 0) ? 0 :
	       rsh_error_set(err, ENOENT, "%s: rank %u of %u has no such file",
			     path, rank, world);
}

static int check_world(struct rsh_source_ranks *st,
		       const struct rsh_byte_source *files,
		       const char *const *names, size_t n, bool full,
		       struct rsh_error *err)
{
	struct rsh_names *all = rsh_names_new();
	struct rsh_error wrong = RSH_ERROR_INIT;
	int rc = all ? 0 : rsh_error_nomem(err);

	for (size_t i = 0; i < n && rc == 0; i++) {
		struct rsh_ckpt_index *ix = NULL;
		struct rsh_ranks_name parts;
		bool unsummed;
		uint32_t file;

		if (!rsh_ranks_name_read(names[i], &parts) ||
		    parts.world != st->world) {
			/* These are no files of ranks. */
			continue;
		}
		if (parts.role == RSH_RANKS_VALUES) {
			rc = rsh_torch_check(&files[i], full, &unsummed, err);
			continue;
		}
		file = rsh_joined_add_file(&st->all, names[i]);
		if (file == RSH_DCP_NO_FILE) {
			rc = rsh_error_nomem(err);
			break;
		}
		st->all.bytes[file] = &files[i];
		st->listed[file] = (struct rsh_ranks_listed){
			.rank = parts.rank,
			.item = parts.role == RSH_RANKS_OPTIMIZER,
			.at = parts.at, .n = parts.n,
		};
		rc = rsh_ranks_kept_read(st, file, &files[i], full, all,
					 &st->all.files[file], &ix, err);
		if (rc == 0 && ix->n_unsummed)
			rsh_step_say_unsummed(files[i].path);
		rsh_ckpt_index_free(ix);
	}
	rc = rc ?: rsh_joined_describe(&st->all, err);
	if (rc == 0 && (rsh_joined_judge(&st->all, false, &wrong) ||
			rsh_joined_judge(&st->all, true, &wrong)))
		rc = rsh_error_nomem(err);
	if (rc == 0 && wrong.code)
		rc = rsh_error_set(err, wrong.code, "%s", wrong.text);
	rsh_names_free(all);
	return rc;
}

int rsh_ranks_step_check(const struct rsh_byte_source *files,
		    const char *const *names, size_t n, bool full,
		    struct rsh_error *err)
{
	static const enum rsh_ranks_role roles[] = {
		RSH_RANKS_MODEL, RSH_RANKS_OPTIMIZER, RSH_RANKS_VALUES,
	};
	struct rsh_source_ranks *st;
	struct rsh_ranks_name parts;
	uint32_t world = 0;
	bool unsummed;
	int rc = 0;

	for (size_t i = 0; i < n && rc == 0; i++) {
		if (is_of_step(names[i]))
			rc = rsh_torch_check(&files[i], full, &unsummed, err);
		if (!rsh_ranks_name_read(names[i], &parts))
			continue;
		if (world && parts.world != world)
			return rsh_error_set(err, EINVAL, "%s: files of %u and "
					     "of %u ranks are side by side",
					     files[i].path, world, parts.world);
		world = parts.world;
	}
	if (rc || !world)
		return rc;
	for (size_t i = 0; i < 3 && rc == 0; i++)
		rc = check_role(names, n, world, roles[i], i > 0,
				files->path, err);
	if (rc)
		return rc;
	st = rsh_joined_new(&rsh_ranks_files, sizeof(*st), NULL, n);
	if (rsh_ranks_state_init(st, n)) {
		rsh_joined_free(st);
		return rsh_error_nomem(err);
	}
	st->world = world;
	st->all.bytes = rsh_arena_array(&st->all.arena,
					const struct rsh_byte_source *, n);
	rc = st->all.bytes ? check_world(st, files, names, n, full, err) :
			 rsh_error_nomem(err);
	rsh_joined_free(st);
	return rc;
}
