/* SPDX-License-Identifier: Apache-2.0 */
/* formats/torch/steps.c finds, checks and shows .pt, .pth and .pth.tar of
 * torch.save().  Of a zip archive only the places of its entries are checked: a
 * rank may save objects that are not read as a model.
 *
 * PyTorch leaves names to its users (checkpoint_12.pt, epoch3_step400.pth,
 * model_best.pth.tar): the numbers of a name, from left to right, are its
 * step. */
#include "config.h"

#include "torch_i.h"

#include <stdlib.h>
#include <string.h>

#include "rsh/formats/steps.h"
#include "rsh/util/files.h"

static const char *torch_suffix(const char *name)
{
	static const char *const suffixes[] = { ".pth.tar", ".pth", ".pt" };

	for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++)
		if (rsh_has_suffix(name, suffixes[i]))
			return suffixes[i];
	return NULL;
}

static bool torch_parse(const char *file, struct rsh_step_name *out)
{
	const char *suffix = torch_suffix(file);

	if (suffix)
		rsh_step_name_read(file, strlen(file) - strlen(suffix), out);
	return suffix;
}

static int torch_check(const struct rsh_byte_source *files,
		       const char *const *names, size_t n, bool full,
		       struct rsh_error *err)
{
	bool unsummed;
	int rc = rsh_torch_check(files, full, &unsummed, err);

	(void)names, (void)n;
	if (unsummed)
		rsh_step_say_unsummed(files->path);
	return rc;
}

static int torch_show(struct rsh_resume *r, const struct rsh_saved *saved,
		      size_t n)
{
	return rsh_resume_show_each(r, saved, n, torch_suffix);
}

const struct rsh_resume_format rsh_torch_resume = {
	.name = "PyTorch",
	.parse = torch_parse,
	.check = torch_check,
	.show = torch_show,
};
