/* SPDX-License-Identifier: Apache-2.0 */
/* plan/query.h - returns the tensors of a plan and the origins of their slices,
 * for the command `plan` and its picture.  The plan owns what the functions
 * return.  Any thread may call them. */
#pragma once

#include "rsh/plan/catalogue.h"
#include "rsh/plan/plan.h"

#define RSH_FIXED UINT8_MAX

/* A tensor that is shown.  If several pipeline stages have a parameter there
 * may be several tensors of its name. */
struct rsh_plan_tensor {
	const char *name;     /* as it is written */
	uint32_t number;      /* number of its name in the source */
	bool lost;            /* it needs slices that no file holds */
	enum rsh_dtype dtype; /* as it is shown */
	uint32_t n_dims;
	const uint64_t *dims; /* of the whole tensor */
	const struct rsh_cut *cut;
	uint32_t n_parts;     /* tensors of the catalogue that it is made of */
	const struct rsh_tensor *from; /* the first of these */
	uint8_t axis[RSH_MAX_DIMS]; /* [dimension of `from`]: the dimension
				     * that shows it, or RSH_FIXED; all are
				     * RSH_FIXED if a part is no box, or the
				     * tensor is shown as it is */
};

uint32_t rsh_plan_n_tensors(const struct rsh_plan *p);
void rsh_plan_tensor(const struct rsh_plan *p, uint32_t i,
		     struct rsh_plan_tensor *out);

/* Returns the member of the tensors' cuts whose cells a file has. */
uint32_t rsh_plan_member(const struct rsh_plan *p, uint32_t file);
/* Sets shown[i] to true for each tensor i that a file has. */
void rsh_plan_mark_tensors(const struct rsh_plan *p, uint32_t file,
			   bool *shown);

/* Calls `each` for the boxes of tensor i that make up a member's cell, with the
 * holder of each box; `holder` is NULL if no file has it. */
typedef void rsh_origin_fn(void *ctx, const struct rsh_box *box,
			   const struct rsh_holder *holder);
void rsh_plan_origins(const struct rsh_plan *p, uint32_t i, uint32_t member,
		      rsh_origin_fn *each, void *ctx);
