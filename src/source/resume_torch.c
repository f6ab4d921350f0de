/* SPDX-License-Identifier: Apache-2.0 */
/* source/resume_torch.c - .pt, .pth and .pth.tar of torch.save().
 *
 * PyTorch leaves names to its users (checkpoint_12.pt, epoch3_step400.pth,
 * model_best.pth.tar): the numbers of a name, from left to right, are its step.
 */
#include "config.h"

#include "resume_i.h"

#include <errno.h>
#include <string.h>

#include "rsh/wire/intact.h"

static const char *suffix(const char *name)
{
	static const char *const suffixes[] = { ".pth.tar", ".pth", ".pt" };

	for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++)
		if (rsh_has_suffix(name, suffixes[i]))
			return suffixes[i];
	return NULL;
}

static int parse(struct rsh_job *job, const char *file, struct rsh_saved *out)
{
	const char *end = suffix(file);

	if (!end)
		return 0;
	out->name = rsh_arena_strndup(&job->arena, file, strlen(file));
	if (!out->name ||
	    rsh_number_name(job, file, rsh_stem_length(file, end), out))
		return -ENOMEM;
	return 1;
}

static int check(const struct rsh_byte_source *files, const char *const *names,
		 size_t n, bool full, struct rsh_error *err)
{
	(void)names, (void)n;
	return rsh_torch_check(files, full, err);
}

static int find(struct rsh_job *job, struct rsh_error *err)
{
	return rsh_find_in_ranks(job, parse, err);
}

static int show(struct rsh_resume *r, const struct rsh_saved *step, size_t n)
{
	return rsh_show_one_file_each(r, step, n, suffix);
}

const struct rsh_resume_format rsh_resume_torch = {
	.name = "PyTorch",
	.find = find,
	.check = check,
	.show = show,
};
