/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/completion.c runs `completion`, which prints the completion of a
 * shell. */
#include "config.h"

#include "commands.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* It has lines_bash, lines_zsh and lines_fish, which end with NULL; made of
 * src/completions. */
#include "completions.h"

int rsh_completion(const struct rsh_options *o, struct rsh_run *run)
{
	static const struct {
		const char *shell;
		const char *const *lines;
	} all[] = {
		{ "bash", lines_bash }, { "zsh", lines_zsh },
		{ "fish", lines_fish },
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		const char *const *line = all[i].lines;

		if (strcmp(all[i].shell, o->operands[0]) != 0)
			continue;
		while (*line)
			fputs(*line++, stdout);
		return 0;
	}
	return rsh_error_set(&run->err, EINVAL, "completion %s: expected bash, "
			     "zsh or fish", o->operands[0]);
}
