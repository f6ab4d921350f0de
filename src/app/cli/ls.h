/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/ls.h has the parts of the command `ls`. */
#pragma once

#include "printer.h"
#include "rsh/source/inspect.h"
#include "rsh/source/source.h"
#include "rsh/strategy/derive.h"

/* Prints a strategy.  Returns 0 or -ENOMEM. */
int rsh_ls_strategy(const struct rsh_printer *out, const struct rsh_strategy *s,
		    const struct rsh_names *names);

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

/* ---- the next command ---- */

/* The command line mounts what is listed.  rsh_ls_next_print() prints it and
 * returns 0 or -ENOMEM; rsh_ls_next_json() returns it as a string, or NULL. */
int rsh_ls_next_print(const struct rsh_printer *out,
		      const struct rsh_options *o);
json_t *rsh_ls_next_json(const struct rsh_options *o);

/* ---- a whole model in parts ---- */

struct rsh_ls_model {
	char *architecture; /* from config.json; NULL: unknown */
	bool is_other;	    /* no weight is one of the architecture */
	char other[RSH_ERROR_TEXT_MAX]; /* a sentence about that */
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
json_t *rsh_ls_model_json(const struct rsh_ls_model *m);
void rsh_ls_model_print(const struct rsh_ls_model *m,
			const struct rsh_printer *out);

/* ---- the tensors of a step, with their whole shapes by a strategy ---- */

/* This is a tensor, with its shape in a file and its whole shape. */
struct rsh_ls_tensor {
	uint32_t name;
	enum rsh_dtype dtype;
	uint32_t n_dims;
	int64_t dims[RSH_MAX_DIMS];  /* shape in the file */
	int64_t whole[RSH_MAX_DIMS];
	uint64_t bytes; /* of the whole tensor as it is stored */
	bool listed;    /* the strategy lists the tensor */
};

struct rsh_ls_tensors {
	struct rsh_ls_tensor *v; /* in the order of the files; from malloc */
	size_t n, cap;
	struct rsh_error why; /* why the tensors contradict the strategy; code
			       * 0: they do not */
};

/* Adds the tensors of the files of ranks first .. first + n - 1; `src` is the
 * strategy, NULL: the files have whole tensors.  Returns 0 or -ENOMEM. */
int rsh_ls_tensors_take(struct rsh_ls_tensors *t,
			const struct rsh_strategy *src, uint32_t first,
			uint32_t n, const struct rsh_source_view *view);
json_t *rsh_ls_tensors_json(const struct rsh_ls_tensors *t,
			    const struct rsh_names *names);
/* Returns 0 or -ENOMEM. */
int rsh_ls_tensors_print(const struct rsh_ls_tensors *t,
			 const struct rsh_printer *out,
			 const struct rsh_names *names);
