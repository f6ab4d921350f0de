/* SPDX-License-Identifier: Apache-2.0 */
/* derive/derive_i.h - shared by the parts of a derivation. */
#ifndef RSH_DERIVE_DERIVE_I_H
#define RSH_DERIVE_DERIVE_I_H

#include <regex.h>
#include <stdbool.h>
#include <stdint.h>

#include "rsh/derive/derive.h"
#include "rsh/strategy/mesh.h"
#include "rsh/util/arena.h"

/* ---- options, parsed (derive_options.c) ---- */

#define MAX_RULES 64

/* "REGEX=..."; which fields count depends on the option. */
struct derive_rule {
	char *text; /* the rule as it was given */
	regex_t re;
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
	bool has_include, has_exclude, has_drop;
	regex_t include, exclude, drop;
};

bool rsh_derive_matches(const regex_t *re, const char *name);

/* ---- shapes (derive_shapes.c) ---- */

struct derive_shape {
	uint32_t name;
	uint32_t n_dims;
	int64_t dims[RSH_MAX_DIMS]; /* of the whole tensor */
};

struct rsh_derive_shapes {
	size_t n, cap;
	struct derive_shape *v;
	/* [name id] -> place in v plus one, 0 for none. */
	size_t cap_places;
	uint32_t *places;
};

/* NULL when it is not known. */
const struct derive_shape *
rsh_derive_shape_of(const struct rsh_derive_shapes *s, uint32_t name);

/* ---- a derivation ---- */

/* The axes that every derivation knows, whether they are there or not. */
enum {
	AXIS_REST, /* "*": the ranks that the other axes of a mesh leave */
	AXIS_DP,
	AXIS_CP,
	AXIS_MP,
	AXIS_EP,
	N_KNOWN_AXES,
};

struct derive_axis {
	char name[RSH_MESH_NAME_SIZE];
	uint32_t src, dst; /* sizes; 0: not known yet */
	bool used;         /* the result is split over it */
};

struct derive_param {
	uint32_t name;
	const char *text;
	uint32_t base; /* the parameter that this optimizer state belongs to,
			* an index of params; its own if it is none */
	const struct rsh_strategy_param *listed; /* NULL: unsharded source */
	const struct rsh_strategy_item *item;    /* NULL: as above */
	const struct derive_shape *shape;        /* NULL: not known */
	bool left_out;
	uint32_t n_stages; /* in which it is wanted; two if it is shared */
	uint32_t stages[2];
	struct rsh_strategy_item out;
	uint32_t style; /* of out */
};

/* How meshes are written: planned by tuples of numbers they lose their axes of
 * size 1, by Layout objects they keep them. */
#define STYLE_STRIPPED 1u
#define STYLE_KEPT 2u

struct derivation {
	const struct rsh_strategy *src; /* NULL: unsharded */
	const struct rsh_derive_shapes *shapes;
	const struct rsh_derive_options *o;
	struct rsh_names *names;
	struct rsh_arena *arena;
	struct rsh_error *err;
	uint32_t src_ranks, dst_ranks; /* of a stage */
	uint32_t src_stages, dst_stages;
	uint32_t n_axes;
	struct derive_axis axes[2 * RSH_MESH_MAX_AXES + 8];
	bool with_cp;    /* meshes kept as they are have the axes dp, cp, mp */
	bool same_mesh;  /* nothing changes but the optimizer shard */
	bool json;       /* the source is */
	uint8_t *styles; /* [param of src], as its operator says; 0: unknown */
	uint8_t file_style; /* those of all operators */
	int32_t src_opt, opt; /* sizes of optimizer shards; 0: none */
	bool opt_full; /* no rank of the source was left out of a shard */
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

/* Is the expression about this parameter, or about the one that this optimizer
 * state belongs to? */
bool rsh_derive_is_about(const struct derivation *d, const regex_t *re,
			 const struct derive_param *p);
/* The last rule about it, NULL if there is none. */
const struct derive_rule *rsh_derive_rule_for(const struct derivation *d,
					      const struct derive_rules *rules,
					      const struct derive_param *p);

/* An index of axes; UINT32_MAX: no such axis. */
uint32_t rsh_derive_axis_find(const struct derivation *d, const char *name);
uint32_t rsh_derive_axis_add(struct derivation *d, const char *name);

/* Finds out what the source's axes are (derive_source.c). */
int rsh_derive_name_axes(struct derivation *d);
/* The mesh of most parameters; its length. */
uint32_t rsh_derive_usual_axes(const struct derivation *d, uint32_t style,
			       uint8_t *axes);
/* A mesh of these axes, with the source's sizes: does it look like the item's?
 * Then place[] is the axis of each of the item's. */
bool rsh_derive_explains(const struct derivation *d, const uint8_t *axes,
			 uint32_t n, uint32_t style,
			 const struct rsh_strategy_item *it, uint8_t *place);
/* The styles in which the parameter's mesh may be written. */
uint32_t rsh_derive_styles_of(const struct derivation *d,
			      const struct derive_param *p);

/* Mesh and map of p->out (derive_mesh.c). */
int rsh_derive_layout(struct derivation *d, struct derive_param *p);

/* Which shard is wanted, and that of p->out, whose mesh and map are there
 * (derive_opt.c). */
int rsh_derive_opt_begin(struct derivation *d);
int rsh_derive_opt_shard(struct derivation *d, struct derive_param *p);

/* p->stages of all parameters (derive_stage.c). */
int rsh_derive_stages(struct derivation *d);

#endif
