/* SPDX-License-Identifier: Apache-2.0 */
/* app/table.h offers the options of all commands, as a list of the lists that
 * features bring (util/option.h).  The parser, -o, --help, the sandbox and the
 * identities of mounts and conversions are made from it, and the completions of
 * shells from --help.  The lists are constant, and any thread may read them.
 *
 * An option is written --name, or -letter if it has one.  In commands that take
 * -o it is also written -o name, with '_' for '-'.  Lists marked `bare`
 * are only written with -o, as users of mount(8) expect.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "rsh/app/commands.h"
#include "rsh/app/options.h"
#include "rsh/util/option.h"

struct rsh_option_list {
	const char *heading; /* in --help-all; NULL: that of the list before */
	const struct rsh_option *rows;
	size_t base;       /* offset of their struct in struct rsh_options */
	unsigned commands; /* bits of those that take its options */
	unsigned checks;   /* those that take its rows with this mark too */
	bool converts;     /* for all rows */
	bool bare;         /* they are only written with -o */
	const char *needs; /* for all rows that need nothing themselves */
};

/* This is an option in its list.  All zero: before the first one. */
struct rsh_option_at {
	const struct rsh_option_list *list;
	const struct rsh_option *row;
};

/* Goes to the next option; returns false after the last one. */
bool rsh_option_next(struct rsh_option_at *at);
/* Goes to the next option of a command, or of its forms. */
bool rsh_option_next_of(const struct rsh_command *command,
			struct rsh_option_at *at);
/* Finds the option of a command by its name, which has n characters, with '-'
 * or '_'; returns whether there is one. */
bool rsh_option_find(const struct rsh_command *command, const char *name,
		     size_t n, struct rsh_option_at *at);

/* Returns the bits of the commands that take it. */
static inline unsigned rsh_option_commands(const struct rsh_option_at *at)
{
	return at->row->commands ? at->row->commands :
	       at->list->commands | (at->row->checks ? at->list->checks : 0);
}

static inline bool rsh_option_converts(const struct rsh_option_at *at)
{
	return at->row->converts || at->list->converts;
}

/* Returns the member that the option sets. */
static inline void *rsh_option_member(const struct rsh_options *o,
				      const struct rsh_option_at *at)
{
	return (char *)(uintptr_t)o + at->list->base + at->row->at;
}
