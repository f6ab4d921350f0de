/* SPDX-License-Identifier: Apache-2.0 */
/* app/table.h offers one table of all options of all commands; a row has
 * everything about one option.  The parser, -o, --help, the sandbox and the
 * identities of mounts and conversions are made from the table, and the
 * completions of shells from --help.  The table is constant, and any thread may
 * read it.
 *
 * An option is written --name, or -letter if it has one.  In commands that take
 * -o it is also written -o name, with '_' for '-'.  Options marked `bare` are
 * only written with -o, as users of mount(8) expect.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "rsh/app/commands.h"
#include "rsh/app/options.h"

struct rsh_option;
/* Sets the option; `value` is NULL if the option takes none.  Returns 0, or
 * -EINVAL with a sentence that names the option. */
typedef int rsh_option_setter(struct rsh_options *o,
			      const struct rsh_option *def, const char *value,
			      struct rsh_error *err);

/* What rsh_options_digest() hashes of an option's member. */
enum rsh_decides {
	RSH_DECIDES_NOTHING, /* the option does not decide about bytes */
	RSH_DECIDES_VALUE,   /* the bytes of the member */
	RSH_DECIDES_TEXT,
	RSH_DECIDES_FILE,    /* the content of the file that it names */
	RSH_DECIDES_OUTPUT,  /* the format of the output */
};

struct rsh_option {
	const char *name;  /* NULL: it has a letter only */
	char letter;       /* 0: none */
	/* This is the name of the value in --help, "a|b" if the value is one of
	 * these words; NULL: the option takes no value. */
	const char *arg;
	unsigned commands; /* bits of the commands that take it */
	/* This is the text of --help.  In a row without commands it is a
	 * heading; NULL: --help does not list the option. */
	const char *help;
	rsh_option_setter *set; /* NULL: the value is a list of options */
	bool bare;
	bool first;    /* --help lists it, not only --help-all */
	bool aside;    /* it does not change what a mount shows */
	bool converts; /* it is for conversions, not for `mount --resume` */
	enum rsh_decides decides;
	/* If one of these is set, the member is a path that is opened for
	 * reading.  `opens_links` is for a directory: the targets of its links
	 * are opened as well. */
	bool opens, opens_links;
	bool is_source; /* it may be an address with secrets, as SOURCE may
			 * be */
	/* The setters of one member use these: offset and size of the member,
	 * the range of a number, and the numbers for the words of `arg`.  Those
	 * are `values`, or min, min + 1 ... if it is NULL. */
	size_t at, size;
	unsigned min, max;
	const unsigned *values;
};

/* RSH_IN() is the bit of a command; RSH_IN_ALL has the bits of all commands. */
#define RSH_IN(id) (1u << (id))
#define RSH_IN_ALL (~0u)

/* Returns the row after `def` (NULL: the first one), also if it is a heading;
 * NULL after the last one. */
const struct rsh_option *rsh_option_next(const struct rsh_option *def);
/* Finds the option of a command by its name, which has n characters, with '-'
 * or '_'; NULL: there is none. */
const struct rsh_option *rsh_option_find(const struct rsh_command *command,
					 const char *name, size_t n);

static inline bool rsh_option_is_of(const struct rsh_option *def,
				    const struct rsh_command *command)
{
	return def->commands & RSH_IN(command->id);
}

/* Does rsh_option_next() for the options of a command. */
static inline const struct rsh_option *
rsh_option_next_of(const struct rsh_command *command,
		   const struct rsh_option *def)
{
	do {
		def = rsh_option_next(def);
	} while (def && !rsh_option_is_of(def, command));
	return def;
}
