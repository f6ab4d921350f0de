/* SPDX-License-Identifier: Apache-2.0 */
/* plan/query.h - the tensors of a plan and where their slices come from, for
 * those who draw them.  A plan is as immutable here as in plan/plan.h, and owns
 * what is given. */
#ifndef RSH_PLAN_QUERY_H
#define RSH_PLAN_QUERY_H

#include "rsh/plan/catalogue.h"
#include "rsh/plan/plan.h"

/* Gives what the plan is laid over. */
const struct rsh_catalogue *rsh_plan_catalogue(const struct rsh_plan *p);

/* This is a tensor that is shown.  Of a name that several pipeline stages have
 * there may be several. */
struct rsh_plan_tensor {
	const char *name;     /* as it is written */
	uint32_t number;      /* of the name, before it is written */
	bool lost;            /* slices are needed that no file holds */
	enum rsh_dtype dtype; /* as it is shown */
	uint32_t n_dims;
	const uint64_t *dims; /* of the whole tensor */
	const struct rsh_cut *cut;
	uint32_t n_parts;     /* tensors of the catalogue that it is made of */
	const struct rsh_tensor *from; /* the first one of these */
	const uint8_t *axis;  /* of each dimension of `from`: the one that it
			       * follows, as in a recipe; NULL: its own */
};

uint32_t rsh_plan_n_tensors(const struct rsh_plan *p);
void rsh_plan_tensor(const struct rsh_plan *p, uint32_t i,
		     struct rsh_plan_tensor *out);

/* Gives the member of the tensors' cuts whose cells a file has. */
uint32_t rsh_plan_member(const struct rsh_plan *p, uint32_t file);
/* Sets shown[i] for each tensor i that a file has, and leaves the others
 * alone. */
void rsh_plan_mark_tensors(const struct rsh_plan *p, uint32_t file,
			   bool *shown);

/* Tells `each` the boxes of tensor i that make up a member's cell, and who has
 * each of them; `holder` is NULL if no file does. */
typedef void rsh_origin_fn(void *ctx, const struct rsh_box *box,
			   const struct rsh_holder *holder);
void rsh_plan_origins(const struct rsh_plan *p, uint32_t i, uint32_t member,
		      rsh_origin_fn *each, void *ctx);

#endif
