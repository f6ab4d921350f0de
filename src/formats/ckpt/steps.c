/* SPDX-License-Identifier: Apache-2.0 */
/* formats/ckpt/steps.c finds, checks and shows .ckpt and .safetensors files
 * with the names of MindSpore's ModelCheckpoint, plain or encrypted. */
#include "config.h"

#include "ckpt_i.h"

#include <errno.h>
#include <string.h>

#include "rsh/source/resume.h"
#include "rsh/util/files.h"
#include "rsh/util/log.h"
#include "rsh/wire/file_type.h"

static const char mindspore_ckpt[] = ".ckpt";
static const char mindspore_safetensors[] = ".safetensors";

static const char *mindspore_suffix(const char *name)
{
	return rsh_has_suffix(name, mindspore_ckpt) ? mindspore_ckpt :
						      mindspore_safetensors;
}

/* Sets the series of a name that has a step: the text before the step, without
 * the rank's number, and the suffix. */
static void mindspore_series(const char *file, size_t n_prefix, char *series)
{
	size_t begin = n_prefix, end = n_prefix;
	bool ranked = rsh_rank_in_name(file, n_prefix, &begin, &end);
	char *to = mempcpy(series, file, begin);

	if (ranked)
		*to++ = '#';
	to = mempcpy(to, file + end, n_prefix - end);
	strcpy(to, mindspore_suffix(file));
}

static bool mindspore_parse(const char *file, struct rsh_step_name *out)
{
	size_t n, n_prefix;

	if (!rsh_has_suffix(file, mindspore_ckpt) &&
	    !rsh_has_suffix(file, mindspore_safetensors))
		return false;
	n = strlen(file) - strlen(mindspore_suffix(file));
	n_prefix = rsh_modelcheckpoint_read(file, n, RSH_RANK_UNKNOWN,
					    &out->step);
	if (out->step.n > 0) {
		strcpy(out->label, file);
		mindspore_series(file, n_prefix, out->series);
		return true;
	}
	/* Names without a step may contain the rank's number, as
	 * checkpoint_3.ckpt does, so their series has no numbers. */
	rsh_step_name_read(file, n_prefix, out);
	out->step.n = 0;
	return true;
}

static int mindspore_check(const struct rsh_byte_source *files,
			   const char *const *names, size_t n, bool full,
			   struct rsh_error *err)
{
	const bool is_ckpt = rsh_has_suffix(names[0], mindspore_ckpt);
	int rc = is_ckpt ? rsh_encrypted_check(files, err) : -ENOTSUP;

	(void)n;
	if (rc == -ENOTSUP) {
		struct rsh_names *table = rsh_names_new();
		struct rsh_ckpt_index *index = NULL;

		if (!table)
			return rsh_error_nomem(err);
		rc = rsh_file_scan(is_ckpt ? RSH_FILE_CKPT :
					     RSH_FILE_SAFETENSORS,
				   files, full, table, &index, err);
		if (rc == 0)
			rsh_ckpt_index_free(index);
		rsh_names_free(table);
		if (rc != -ENOTSUP)
			return rc;
		/* A file that cannot be converted can still be used for
		 * resuming. */
		rsh_log_notice("%s: not looked into", err->text);
		*err = (struct rsh_error)RSH_ERROR_INIT;
		return 0;
	}
	if (rc == 0)
		rsh_log_notice("%s: encrypted, only the lengths of its blocks "
			       "were checked", files[0].path);
	return rc;
}

static int mindspore_show(struct rsh_resume *r, const struct rsh_saved *saved,
			  size_t n)
{
	return rsh_resume_show_each(r, saved, n, mindspore_suffix);
}

const struct rsh_resume_format rsh_ckpt_resume = {
	.name = "MindSpore",
	.parse = mindspore_parse,
	.check = mindspore_check,
	.show = mindspore_show,
};
