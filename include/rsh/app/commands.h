/* SPDX-License-Identifier: Apache-2.0 */
/* app/commands.h offers the table of subcommands, from which the parser and
 * --help are made.  The table is constant, and any thread may read it. */
#pragma once

#include <stddef.h>

#include "rsh/app/options.h"
#include "rsh/util/suggestion.h"

enum rsh_command_id {
	RSH_COMMAND_MOUNT,
	RSH_COMMAND_UMOUNT,
	RSH_COMMAND_LS,
	RSH_COMMAND_PLAN,
	RSH_COMMAND_EXPORT,
	RSH_COMMAND_VERIFY,
	RSH_COMMAND_STRATEGY, /* any of its forms */
	RSH_COMMAND_SHOW,
	RSH_COMMAND_MERGE,
	RSH_COMMAND_CHECK,
	RSH_COMMAND_DERIVE,
	RSH_COMMAND_INFER,
	RSH_COMMAND_CONVERT, /* any of its forms */
	RSH_COMMAND_TABLES,
	RSH_COMMAND_TABLE_SHOW,
	RSH_COMMAND_TABLE_CHECK,
	RSH_COMMAND_WARM,
	RSH_COMMAND_STATS,
	RSH_COMMAND_STEPS,
	RSH_COMMAND_LIST,
	RSH_COMMAND_DOCTOR,
	RSH_COMMAND_COMPLETION,
	RSH_COMMAND_HELP,
	RSH_COMMAND_LIBRARY, /* not a command: the options of libreshard */
};

#define RSH_MAX_OPERANDS 4

/* RSH_IN() is the bit of a command; RSH_IN_ALL has the bits of all commands. */
#define RSH_IN(id) (1u << (id))
#define RSH_IN_ALL (~0u)

struct rsh_command {
	const char *name;
	enum rsh_command_id id;
	/* Names the operands in order.  An operand in brackets may be omitted;
	 * an operand that ends in "..."  is repeated any number of times. */
	const char *operands[RSH_MAX_OPERANDS];
	const char *summary; /* one line, printed after the name; NULL: help
			      * does not list the command */
	const char *about;   /* the description in --help, wrapped when it is
			      * printed */
	/* Checks operands and options together, and settles what follows from
	 * SOURCE (app/check.h); NULL: neither is needed.  Returns 0, or -errno
	 * with a sentence. */
	int (*check)(struct rsh_options *o, struct rsh_error *err);
	/* These are the bits of the forms of a command; 0: it has none.  A form
	 * is a command whose name has another word, "strategy derive". */
	unsigned forms;
	/* The log is so many levels quieter than RSH_LOG_NOTICE: the output has
	 * the chosen step and the notes on it, and that of `ls` the files that
	 * are left out. */
	unsigned quieter;
};

/* Returns the bits of the command, or of its forms. */
static inline unsigned rsh_command_bits(const struct rsh_command *command)
{
	return command->forms ? command->forms : RSH_IN(command->id);
}

/* Returns the commands in the order of --help, each before its forms; the first
 * one is the command that is used if no name is given. */
const struct rsh_command *rsh_command_table(size_t *n);
/* Returns NULL if no command has that name. */
const struct rsh_command *rsh_command_find(const char *name);
/* Returns the form of the command that is called `word`, such as "derive" of
 * `strategy`; NULL if there is none. */
const struct rsh_command *rsh_command_form(const struct rsh_command *command,
					   const char *word);
/* Writes " (did you mean NAME?)" for a word that is similar to a command, or
 * else "". */
void rsh_command_guess(const char *word, char text[RSH_SUGGESTION_BYTES]);
