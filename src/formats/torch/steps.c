/* SPDX-License-Identifier: Apache-2.0 */
/* formats/torch/steps.c parses the names of .pt, .pth and .pth.tar of
 * torch.save(), and checks the files.  Of a zip archive only the places of its
 * entries are checked: a rank may save objects that are not read as a model.
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

enum rsh_part rsh_torch_part(const char *file, struct rsh_step_name *out)
{
	const char *suffix = torch_suffix(file);

	if (!suffix)
		return RSH_PART_NO;
	rsh_step_name_read(file, strlen(file) - strlen(suffix), out);
	return RSH_PART_YES;
}

int rsh_torch_check_files(const struct rsh_byte_source *files,
			  const char *const *names, size_t n, bool full,
			  struct rsh_error *err)
{
	bool unsummed;
	int rc = 0;

	(void)names;
	for (size_t i = 0; i < n && rc == 0; i++) {
		rc = rsh_torch_check(&files[i], full, &unsummed, err);
		if (unsummed)
			rsh_step_say_unsummed(files[i].path);
	}
	return rc;
}
