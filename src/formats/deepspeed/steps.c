/* SPDX-License-Identifier: Apache-2.0 */
/* formats/deepspeed/steps.c parses the names of steps, and checks whether a job
 * can go on from one: global_stepN/ has the files of all ranks. */
#include "config.h"

#include "deepspeed_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/formats/steps.h"
#include "rsh/util/mem.h"

#define STEP "global_step"

enum rsh_part rsh_ds_step_part(const char *path, struct rsh_step_name *out)
{
	const char *file = rsh_step_dir_read(path, STEP, out);
	struct rsh_ds_name is;

	if (!file)
		return RSH_PART_NO;
	return !*file || rsh_ds_name_read(file, &is) ? RSH_PART_YES :
						       RSH_PART_MAYBE;
}

/* Reads how many ranks have saved, from a file of the optimizer. */
static int check_world(const struct rsh_byte_source *file, uint32_t *world,
		       struct rsh_error *err)
{
	const struct rsh_ds_reading how = { .role = RSH_DS_OPTIMIZER };
	struct rsh_ds_file *f;
	int rc = rsh_ds_file_read(file, &how, NULL, &f, NULL, err);

	if (rc == 0)
		*world = f->zero.world;
	rsh_ds_file_free(f);
	return rc;
}

/* Checks that each rank of a world has a file of a role. */
static int check_role(const char *const *names, size_t n, uint32_t world,
		      enum rsh_ds_role role, const char *path,
		      struct rsh_error *err)
{
	cleanup_free bool *has = calloc((size_t)world + 1, sizeof(*has));
	struct rsh_ds_name is;
	uint32_t rank = 0;

	if (!has)
		return rsh_error_nomem(err);
	for (size_t i = 0; i < n; i++)
		if (rsh_ds_name_read(names[i], &is) && is.role == role &&
		    is.rank < world)
			has[is.rank] = true;
	while (rank < world && has[rank])
		rank++;
	return rank == world ? 0 :
	       rsh_error_set(err, ENOENT, "%s: rank %u of %u has no such file",
			     path, rank, world);
}

int rsh_ds_step_check(const struct rsh_byte_source *files,
		      const char *const *names, size_t n, bool full,
		      struct rsh_error *err)
{
	const char *model = NULL, *optimizer = NULL;
	struct rsh_ds_name is;
	uint32_t world = 0;
	bool is_3 = false;
	int rc = rsh_torch_check_files(files, names, n, full, err);

	for (size_t i = 0; i < n && rc == 0; i++) {
		if (!rsh_ds_name_read(names[i], &is))
			continue;
		if (is.role == RSH_DS_MODEL || is.role == RSH_DS_MODEL_PART)
			model = files[i].path;
		is_3 |= is.role == RSH_DS_MODEL_PART;
		if (is.role != RSH_DS_OPTIMIZER || optimizer)
			continue;
		optimizer = files[i].path;
		rc = check_world(&files[i], &world, err);
	}
	if (rc == 0 && n > 0 && !model)
		rc = rsh_error_set(err, ENOENT, "%s: no file of a model is "
				   "beside it", files->path);
	if (rc || !optimizer)
		return rc;
	return check_role(names, n, world, RSH_DS_OPTIMIZER, optimizer, err) ?:
	       (is_3 ? check_role(names, n, world, RSH_DS_MODEL_PART, model,
				  err) : 0);
}
