/* SPDX-License-Identifier: Apache-2.0 */
/* formats/checkpoint2/steps.c finds, checks and shows steps of MindSpore
 * Transformers' Checkpoint 2.0: iteration_<step>/ with model-*.safetensors,
 * opt-*.safetensors and a metadata.json that names them, and
 * latest_checkpointed_iteration.txt, which contains the newest step.
 *
 * A step of one card has no metadata.json; the names of its files show this. */
#include "config.h"

#include "steps_i.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "rsh/formats/steps.h"
#include "rsh/source/resume.h"
#include "rsh/wire/checkpoint2.h"
#include "rsh/wire/file_type.h"

static const char ckpt2_metadata[] = "metadata.json";

/* ---- finding ---- */

static int ckpt2_found_dir(struct rsh_finder *f, void *ctx, const char *name,
			   const struct rsh_stat *st, struct rsh_error *err)
{
	struct rsh_step_dir d = { .unit = 0 };

	(void)ctx, (void)st;
	if (!rsh_ckpt2_step_parse(name, &d.name.step.numbers[0]))
		return 0;
	d.name.step.n = 1;
	strcpy(d.name.series, "iteration_");
	snprintf(d.name.label, sizeof(d.name.label), "%s", name);
	if (rsh_finder_unit(f, "", &d.unit))
		return rsh_error_nomem(err);
	return rsh_finder_each(f, name, RSH_IS_FILE, rsh_step_dir_add, &d, err);
}

static int ckpt2_find(struct rsh_finder *f, struct rsh_error *err)
{
	return rsh_finder_each(f, "", RSH_IS_DIR, ckpt2_found_dir, NULL, err);
}

/* ---- checking ---- */

static int ckpt2_check(const struct rsh_byte_source *files,
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
		rc = rsh_step_check_tensors(&files[i], full, err);
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

/* ---- showing ---- */

static int ckpt2_show(struct rsh_resume *r, const struct rsh_saved *saved,
		      size_t n)
{
	return rsh_step_dirs_show(r, saved, n, true);
}

const struct rsh_resume_format rsh_checkpoint2_resume = {
	.name = "MindSpore Transformers",
	.find = ckpt2_find,
	.check = ckpt2_check,
	.show = ckpt2_show,
};
