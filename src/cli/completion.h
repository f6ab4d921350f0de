/* cli/completion.h - the shells' completions, made from the tables. */
#ifndef RSH_CLI_COMPLETION_H
#define RSH_CLI_COMPLETION_H

#include <stdbool.h>
#include <stdio.h>

#include "options.h"

/* True if an operand or a value that --help calls so is a place on disk. */
bool rsh_is_place(const char *name);

/* Writes the script that is sourced by bash, or lies in zsh's fpath. */
void rsh_completion_write(FILE *f, enum rsh_shell shell);

#endif
