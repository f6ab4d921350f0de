/* SPDX-License-Identifier: Apache-2.0 */
/* app/options/options_i.h has what the files of app/options share: the lists of
 * options of features, and the steps from a command line to settled options.
 * It is private to app/options. */
#pragma once

#include "rsh/app/table.h"
#include "rsh/util/option.h"
#include "rsh/util/suggestion.h"

/* These are sets of commands. */
#define RSH_MOUNTS RSH_IN(RSH_COMMAND_MOUNT)
/* These take the options of a conversion. */
#define RSH_CONVERSIONS                                                   \
	(RSH_MOUNTS | RSH_IN(RSH_COMMAND_LS) | RSH_IN(RSH_COMMAND_PLAN) | \
	 RSH_IN(RSH_COMMAND_EXPORT) | RSH_IN(RSH_COMMAND_VERIFY) |        \
	 RSH_IN(RSH_COMMAND_LIBRARY))

#define RSH_AT(member) RSH_OPTION_AT(struct rsh_options, member)

/* Checks that the output supports the given options that not every output
 * does. */
int rsh_rules_check_output(const struct rsh_options *o, struct rsh_error *err);

/* Returns our word for that of another program, "prefix" for "ckpt-prefix"; it
 * is in capitals if it is an operand.  NULL: there is none. */
const char *rsh_other_word(const char *word, size_t n);

/* These are the parts of rsh_check_conversion(): finding the format of SOURCE,
 * and settling the rest by it. */
int rsh_settle_look(struct rsh_options *o, struct rsh_error *err);
int rsh_settle_conversion(struct rsh_options *o, struct rsh_error *err);
/* An output that is one whole model needs no strategy. */
void rsh_settle_dst(struct rsh_vfs_config *v);
