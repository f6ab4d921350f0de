/* SPDX-License-Identifier: Apache-2.0 */
/* app/table.h offers one table of all options of all commands, and one row
 * has all there is to say of an option.  The parser, -o, --help, the sandbox
 * and the identities of mounts and conversions are made from it, and the shells
 * complete what --help says.  The table is constant, and any thread may read
 * it.
 *
 * An option is --name, -letter if it has one and, in commands that take -o, -o
 * name with '_' for '-'; those marked `bare` are -o options alone, as mount(8)
 * users know them.
 */
#ifndef RSH_APP_TABLE_H
#define RSH_APP_TABLE_H

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

/* Adds what `size` bytes at `member` stand for to the hash, an XXH3_state_t.
 * Returns 0 or -errno with a sentence. */
typedef int rsh_option_digester(void *hash, const void *member, size_t size,
				struct rsh_error *err);

struct rsh_option {
	const char *name;  /* NULL: it has a letter only */
	char letter;       /* 0: none */
	/* Says what --help calls its value, "a|b" where it is one of these
	 * words; NULL: it has none. */
	const char *arg;
	unsigned commands; /* bits of the commands that it belongs to */
	/* Says what it does.  For an option of no command this is a heading;
	 * NULL: --help does not tell it. */
	const char *help;
	rsh_option_setter *set;
	bool bare;
	bool first;    /* --help prints it */
	bool aside;    /* it has no influence on what a mount shows */
	bool converts; /* it is for conversions, not for `mount --resume` */
	/* Says how its member counts in what rsh_options_digest() makes; NULL:
	 * the option does not decide about bytes. */
	rsh_option_digester *decides;
	/* Its member is a path that is opened for reading; `opens_links` is for
	 * a directory, of which also what its links lead to is opened. */
	bool opens, opens_links;
	bool is_source; /* it may be an address, as SOURCE, with secrets */
	/* The setters of one member need these: which member it is, the range
	 * of a number, and what the words of `arg` stand for, which is
	 * `values`, or min, min + 1 ... */
	size_t at, size;
	unsigned min, max;
	const unsigned *values;
};

/* RSH_IN() is the bit of a command, RSH_IN_ALL has those of all. */
#define RSH_IN(id) (1u << (id))
#define RSH_IN_ALL (~0u)

const struct rsh_option *rsh_option_table(size_t *n);

static inline bool rsh_option_is_of(const struct rsh_option *def,
				    const struct rsh_command *command)
{
	return def->commands & RSH_IN(command->id);
}

#endif
