/* SPDX-License-Identifier: Apache-2.0 */
/* formats/checkpoint2/steps.c finds and checks steps of MindSpore
 * Transformers' Checkpoint 2.0: iteration_<step>/ with model-*.safetensors,
 * opt-*.safetensors and a metadata.json that names them, and
 * latest_checkpointed_iteration.txt, which contains the newest step.
 *
 * A step of one card has no metadata.json; the names of its files show this. */
#include "config.h"

#include "steps_i.h"

#include <errno.h>
#include <string.h>

#include "rsh/formats/steps.h"
#include "rsh/wire/checkpoint2.h"
#include "rsh/wire/file_type.h"

static const char ckpt2_metadata[] = "metadata.json";

enum rsh_part rsh_checkpoint2_part(const char *path, struct rsh_step_name *out)
{
	const char *file = rsh_step_dir_read(path, RSH_CKPT2_STEP, out);

	if (!file || *file == '.' || strchr(file, '/') ||
	    !rsh_ckpt2_step_parse(out->label, &out->step.numbers[0]))
		return RSH_PART_NO;
	return RSH_PART_YES;
}

int rsh_checkpoint2_check(const struct rsh_byte_source *files,
			  const char *const *names, size_t n, bool full,
			  struct rsh_error *err)
{
	const size_t at = rsh_step_place(names, n, ckpt2_metadata);
	struct rsh_ckpt2_name parts;
	struct rsh_ckpt2 *c = NULL;
	bool alone = false; /* the files are of one card */
	int rc = 0;

	for (size_t i = 0; i < n && rc == 0; i++) {
		if (rsh_file_type_of(names[i]) != RSH_FILE_SAFETENSORS)
			continue;
		alone |= rsh_ckpt2_name_parse(names[i], &parts) &&
			 parts.of == 1;
		rc = rsh_step_check_file(RSH_FILE_SAFETENSORS, &files[i], full,
					 err);
	}
	if (rc)
		return rc;
	if (at == n)
		return alone ? 0 :
		       rsh_error_set(err, EBADMSG, "%s: no %s beside it: "
				     "the save was not finished",
				     files[0].path, ckpt2_metadata);
	rc = rsh_ckpt2_parse(&files[at], &c, err);
	if (rc)
		return rc;
	for (uint32_t i = 0; i < c->n_files && rc == 0; i++)
		if (rsh_step_place(names, n, c->files[i].name) == n)
			rc = rsh_error_set(err, EBADMSG, "%s: %s is missing",
					   files[at].path, c->files[i].name);
	for (uint32_t i = 0; i < c->n_params && rc == 0; i++)
		if (c->params[i].n_stored > 0 &&
		    c->params[i].n_stored < c->params[i].n_slices)
			rc = rsh_error_set(err, EBADMSG, "%s: %u of %u "
					   "slices of parameter %s are in no "
					   "file", files[at].path,
					   c->params[i].n_slices -
					   c->params[i].n_stored,
					   c->params[i].n_slices,
					   c->params[i].name);
	rsh_ckpt2_free(c);
	return rc;
}
