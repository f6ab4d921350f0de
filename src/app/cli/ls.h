/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/ls.h has the parts of the command `ls`. */
#ifndef RSH_APP_CLI_LS_H
#define RSH_APP_CLI_LS_H

#include "printer.h"
#include "rsh/source/inspect.h"
#include "rsh/strategy/strategy.h"

/* Each prints one kind of operand.  Returns 0 or -ENOMEM. */
int rsh_ls_records(const struct rsh_printer *out, const char *path,
		   const struct rsh_inspected *file,
		   const struct rsh_names *names);
int rsh_ls_strategy(const struct rsh_printer *out, const struct rsh_strategy *s,
		    const struct rsh_names *names);

/* Writes a shape as "[2,3]"; returns text. */
#define RSH_LS_SHAPE_MAX (RSH_MAX_DIMS * 21 + 3)
const char *rsh_ls_shape(const int64_t *dims, uint32_t n,
			 char text[RSH_LS_SHAPE_MAX]);
json_t *rsh_ls_shape_json(const int64_t *dims, uint32_t n);

/* Prints the steps of the open tree, and what a mount with these options would
 * show.  *taken is true if a mount would show something, or if the options do
 * not describe a conversion.  Returns 0 or -errno with a sentence. */
int rsh_ls_source(const struct rsh_printer *out, const struct rsh_options *o,
		  struct rsh_source *source, bool *taken,
		  struct rsh_error *err);

/* Prints the tensors of an open source whose format lists them; *taken is true
 * if the source is complete.  Returns 0 or -errno with a sentence. */
int rsh_ls_whole(const struct rsh_printer *out, const struct rsh_options *o,
		 const struct rsh_source *source, bool *taken,
		 struct rsh_error *err);

#endif
