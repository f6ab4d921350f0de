/* SPDX-License-Identifier: Apache-2.0 */
/* strategy/derive_i.h has what the parts of a derivation share.  It is private
 * to src/strategy. */
#pragma once

#include <regex.h>
#include <stdbool.h>
#include <stdint.h>

#include "rsh/strategy/derive.h"
#include "rsh/strategy/mesh.h"
#include "rsh/util/arena.h"

/* ---- options, parsed (derive_options.c) ---- */

#define MAX_RULES 64

struct derive_regex {
	bool given;
	regex_t re;
};

/* This is a rule "REGEX=..."; the option decides which members are used. */
struct derive_rule {
	char *text; /* the rule as it was given */
	struct derive_regex re;
	uint32_t dim;    /* SPLIT */
	uint32_t n_axes; /* AXES; SPLIT: 1, or 0 for none */
	char axes[RSH_MESH_MAX_AXES][RSH_MESH_NAME_SIZE];
	uint32_t stage; /* STAGE; UINT32_MAX: the last */
};

struct derive_rules {
	uint32_t n;
	struct derive_rule v[MAX_RULES];
};

struct rsh_derive_options {
	bool has_mesh, has_src_mesh, has_opt;
	struct rsh_mesh mesh, src_mesh;
	int32_t opt;
	struct derive_rules split, axes, stage;
	uint32_t n_layers;
	uint32_t layers[RSH_STRATEGY_MAX_DIMS * 4];
	struct derive_regex include, exclude, drop;
};

/* ---- shapes (derive_shapes.c) ---- */

struct derive_shape {
	uint32_t name;
	uint32_t n_dims;
	int64_t dims[RSH_MAX_DIMS]; /* of the whole tensor */
};

struct rsh_derive_shapes {
	size_t n, cap;
	struct derive_shape *v;
	/* places[name id] is the index in v plus one, 0 for none. */
	size_t cap_places;
	uint32_t *places;
};

/* Returns the shape, NULL if it is unknown; `s` may be NULL. */
const struct derive_shape *
rsh_derive_shape_of(const struct rsh_derive_shapes *s, uint32_t name);

/* ---- a derivation ---- */

/* Every derivation has these axes, even if no mesh has them. */
enum {
	AXIS_REST, /* "*": all ranks that the other axes of the mesh do not
		    * use */
	AXIS_DP,
	AXIS_CP,
	AXIS_MP,
	AXIS_EP,
	N_KNOWN_AXES,
};

struct derive_axis {
	char name[RSH_MESH_NAME_SIZE];
	uint32_t src, dst; /* its sizes in both meshes; 0: unknown yet */
	bool used;         /* the result is split over the axis */
};

struct derive_param {
	uint32_t name;
	const char *text;
	uint32_t base; /* index in params of the parameter whose optimizer state
		        * this is; its own index if it is not a state */
	const struct rsh_strategy_param *listed; /* NULL: unsharded source */
	const struct rsh_strategy_item *item;    /* NULL: unsharded source */
	const struct derive_shape *shape;        /* NULL: unknown */
	bool left_out;
	uint32_t n_stages; /* number of stages that get it; two if they share
			    * it */
	uint32_t stages[2];
	struct rsh_strategy_item out;
	uint32_t style; /* STYLE_* of out */
};

/* These are the ways in which meshes are written.  If the operators were
 * planned with tuples of numbers, axes of size 1 are removed; if they were
 * planned with Layout objects, these axes are kept. */
#define STYLE_STRIPPED 1u
#define STYLE_KEPT 2u

struct derivation {
	const struct rsh_strategy *src; /* NULL: unsharded */
	const char *path; /* path of the source, for messages */
	const struct rsh_derive_shapes *shapes;
	const struct rsh_derive_options *o;
	struct rsh_names *names;
	struct rsh_arena *arena;
	struct rsh_error *err;
	uint32_t src_ranks, dst_ranks; /* ranks of a stage */
	uint32_t src_stages, dst_stages;
	uint32_t n_axes;
	struct derive_axis axes[2 * RSH_MESH_MAX_AXES + 8];
	bool with_cp;    /* meshes of STYLE_KEPT are [dp, cp, mp] */
	bool same_mesh;  /* only the optimizer shard changes */
	bool json;       /* the source is in JSON */
	uint8_t *styles; /* [param of src]: style of its operator; 0: unknown */
	uint8_t file_style; /* the styles of all operators */
	int32_t src_opt, opt; /* sizes of optimizer shards; 0: none */
	bool opt_full; /* all shards of the source use all ranks of their
		        * groups */
	uint32_t n_params;
	struct derive_param *params;
	uint32_t n_notes, cap_notes;
	const char **notes;
};

int rsh_derive_refuse(struct derivation *d, const struct derive_param *p,
		      const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
int rsh_derive_note(struct derivation *d, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* Returns whether the expression matches this parameter, or the parameter whose
 * optimizer state it is. */
bool rsh_derive_is_about(const struct derivation *d,
			 const struct derive_regex *re,
			 const struct derive_param *p);
/* Returns the last rule for a parameter, NULL if there is none. */
const struct derive_rule *rsh_derive_rule_for(const struct derivation *d,
					      const struct derive_rules *rules,
					      const struct derive_param *p);

/* These return an index of axes.  UINT32_MAX means that there is no such axis,
 * or no room for another one. */
uint32_t rsh_derive_axis_find(const struct derivation *d, const char *name);
uint32_t rsh_derive_axis_add(struct derivation *d, const char *name);

/* Finds the purpose of the source's axes (derive_source.c). */
int rsh_derive_name_axes(struct derivation *d);
/* Fills axes[] with the mesh of most parameters, and returns its number of
 * axes. */
uint32_t rsh_derive_usual_axes(const struct derivation *d, uint32_t style,
			       uint8_t *axes);
/* Computes the sizes of a mesh of these axes with the source's or the wanted
 * sizes.  Returns whether the mesh has all ranks of a stage. */
bool rsh_derive_sizes(const struct derivation *d, const uint8_t *axes,
		      uint32_t n, bool wanted, uint32_t *sizes);
/* Returns whether a mesh of these axes, with the source's sizes, is the item's
 * mesh.  If so, place[] is set to the axis at each place of the item's mesh. */
bool rsh_derive_explains(const struct derivation *d, const uint8_t *axes,
			 uint32_t n, uint32_t style,
			 const struct rsh_strategy_item *it, uint8_t *place);
/* Returns the styles in which the parameter's mesh may be written. */
uint32_t rsh_derive_styles_of(const struct derivation *d,
			      const struct derive_param *p);

/* Computes mesh and map of p->out (derive_mesh.c). */
int rsh_derive_layout(struct derivation *d, struct derive_param *p);

/* Sets p->stages of all parameters (derive_stage.c). */
int rsh_derive_stages(struct derivation *d);
