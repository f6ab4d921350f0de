/* SPDX-License-Identifier: Apache-2.0 */
/* options/table.h - one table of all options of all commands; the parser,
 * -o and --help are made from it, and the shells complete what --help says.
 *
 * An option is --name, -letter if it has one and, in commands that take -o, -o
 * name with '_' for '-'; those marked `bare` are -o options alone, as mount(8)
 * users know them. */
#ifndef RSH_OPTIONS_TABLE_H
#define RSH_OPTIONS_TABLE_H

#include <stdbool.h>
#include <stddef.h>

#include "rsh/options/commands.h"
#include "rsh/options/options.h"

struct rsh_option;
/* `value` is NULL if the option takes none.  0, or -EINVAL with a sentence that
 * names the option. */
typedef int rsh_option_setter(struct rsh_options *o,
			      const struct rsh_option *def, const char *value,
			      struct rsh_error *err);

struct rsh_option {
	const char *name;  /* NULL: it has a letter only */
	char letter;       /* 0: none */
	const char *arg;   /* what --help calls its value; NULL: it has none */
	unsigned commands; /* bits of those that it belongs to */
	const char *help;
	rsh_option_setter *set;
	bool bare;
	bool aside; /* says nothing of what a mount shows */
	/* For the setters of one member: which, and a number's range. */
	size_t at;
	unsigned min, max;
};

/* The bit of a command, and those of all. */
#define RSH_IN(id) (1u << (id))
#define RSH_IN_ALL (~0u)

const struct rsh_option *rsh_option_table(size_t *n);

static inline bool rsh_option_is_of(const struct rsh_option *def,
				    const struct rsh_command *command)
{
	return def->commands & RSH_IN(command->id);
}

#endif
