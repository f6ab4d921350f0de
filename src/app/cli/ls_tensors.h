/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/ls_tensors.h lists the tensors of a step, with their whole shapes by
 * a strategy. */
#ifndef RSH_APP_CLI_LS_TENSORS_H
#define RSH_APP_CLI_LS_TENSORS_H

#include "printer.h"
#include "rsh/source/source.h"
#include "rsh/strategy/derive.h"

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
	struct rsh_ls_tensor *v; /* in the order of the files */
	size_t n, cap;
	struct rsh_error why; /* why the tensors contradict the strategy; code
			       * 0: they do not */
};

/* Adds the tensors of the files of ranks first ..  first + n - 1; `src` is the
 * strategy, NULL: the files have whole tensors.  Returns 0 or -ENOMEM. */
int rsh_ls_tensors_take(struct rsh_ls_tensors *t, const struct rsh_strategy *src,
			uint32_t first, uint32_t n,
			const struct rsh_source_view *view);
void rsh_ls_tensors_clear(struct rsh_ls_tensors *t);

json_t *rsh_ls_tensors_json(const struct rsh_ls_tensors *t,
			    const struct rsh_names *names);
/* Returns 0 or -ENOMEM. */
int rsh_ls_tensors_print(const struct rsh_ls_tensors *t,
			 const struct rsh_printer *out,
			 const struct rsh_names *names);

#endif
