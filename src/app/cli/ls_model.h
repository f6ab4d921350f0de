/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/ls_model.h describes a whole model in parts, and the next command to
 * type. */
#ifndef RSH_APP_CLI_LS_MODEL_H
#define RSH_APP_CLI_LS_MODEL_H

#include "printer.h"
#include "rsh/source/inspect.h"

struct rsh_ls_model {
	char *architecture; /* from config.json; NULL: unknown */
	uint32_t n_parts, n_tensors;
	uint64_t bytes, file_bytes;
	uint32_t n_of[RSH_DTYPE_COUNT];
	uint64_t bytes_of[RSH_DTYPE_COUNT];
};

/* Fills *m from the chosen and indexed parts; `path` is for messages.  Returns
 * 0 or -ENOMEM. */
int rsh_ls_model_take(struct rsh_ls_model *m, const char *path,
		      const struct rsh_source *source,
		      const struct rsh_source_view *view);
void rsh_ls_model_clear(struct rsh_ls_model *m);

json_t *rsh_ls_model_json(const struct rsh_ls_model *m);
void rsh_ls_model_print(const struct rsh_ls_model *m,
			const struct rsh_printer *out);

/* Returns the command line that mounts what is listed (from malloc; NULL: out
 * of memory).  rsh_ls_next_print() prints it and returns 0 or -ENOMEM;
 * rsh_ls_next_json() returns it as a string, or NULL. */
char *rsh_ls_next(const struct rsh_options *o);
int rsh_ls_next_print(const struct rsh_printer *out,
		      const struct rsh_options *o);
json_t *rsh_ls_next_json(const struct rsh_options *o);

#endif
