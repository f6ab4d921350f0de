/* cli/completion.h - the shells' completions, made from the tables. */
#ifndef RSH_CLI_COMPLETION_H
#define RSH_CLI_COMPLETION_H

#include <stdio.h>

#include "options.h"

/* Writes the script that is sourced by bash, or lies in zsh's fpath. */
void rsh_completion_write(FILE *f, enum rsh_shell shell);

#endif
