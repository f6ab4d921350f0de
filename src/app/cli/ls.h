/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/ls.h has the parts of the command `ls`. */
#pragma once

#include "commands.h"
#include "rsh/source/inspect.h"
#include "rsh/source/source.h"
#include "rsh/strategy/derive.h"

void rsh_ls_strategy(struct rsh_printer *out, const struct rsh_strategy *s,
		     const struct rsh_names *names);

/* Prints the steps of the open tree, and what a mount with these options would
 * show.  The status is RSH_EXIT_NO if a mount would show nothing or, without
 * options of a conversion, if no step is complete.  Returns 0 or -errno with a
 * sentence. */
int rsh_ls_source(struct rsh_run *run, const struct rsh_options *o,
		  struct rsh_source *source);

/* Prints the tensors of an open source whose format lists them; the status is
 * RSH_EXIT_NO if the source is not complete.  Returns 0 or -errno with a
 * sentence. */
int rsh_ls_whole(struct rsh_run *run, const struct rsh_options *o,
		 const struct rsh_source *source);

/* Tells people which directories in SOURCE, a whole model, are checkpoints of
 * other formats: what a job saves beside the weights. */
void rsh_ls_beside(struct rsh_printer *out, const struct rsh_options *o);
/* Prints the command line that mounts what is listed, if `known`. */
void rsh_ls_next(struct rsh_printer *out, const struct rsh_options *o,
		 bool known);

/* ---- a whole model in parts ---- */

struct rsh_ls_model {
	char *architecture; /* from config.json; NULL: unknown */
	bool is_adapter;
	bool is_other;	    /* no weight is one of the architecture */
	char other[RSH_ERROR_TEXT_MAX]; /* a sentence about that */
	char form[256]; /* which form the names have; "": there is one */
	uint32_t n_parts, n_tensors;
	uint64_t bytes, file_bytes;
	uint32_t n_of[RSH_DTYPE_COUNT];
	uint64_t bytes_of[RSH_DTYPE_COUNT];
};

/* Fills *m from the chosen and indexed parts; `path` is for messages.  The
 * caller frees the architecture.  Returns 0 or -ENOMEM. */
int rsh_ls_model_take(struct rsh_ls_model *m, const char *path,
		      const struct rsh_source *source,
		      const struct rsh_source_view *view);
void rsh_ls_model_print(struct rsh_printer *out, const void *model);
