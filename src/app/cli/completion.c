/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/completion.c runs `completion`, which prints the completion of a
 * shell. */
#include "config.h"

#include "commands.h"

#include <stdio.h>

/* It has lines_bash, lines_zsh and lines_fish, which end with NULL; made of
 * src/completions. */
#include "completions.h"

int rsh_completion(const struct rsh_options *o, struct rsh_run *run)
{
	/* The options have refused all other shells. */
	const char *shell = o->operands[0];
	const char *const *line = *shell == 'b' ? lines_bash :
				  *shell == 'z' ? lines_zsh : lines_fish;

	(void)run;
	while (*line)
		fputs(*line++, stdout);
	return 0;
}
