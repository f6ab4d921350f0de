/* SPDX-License-Identifier: Apache-2.0 */
/* recipe_support.h - random tensors in files that exist in memory alone, cut in
 * random ways, and random recipes that show them. */
#ifndef RECIPE_SUPPORT_H
#define RECIPE_SUPPORT_H

#include "plan_support.h"
#include "support.h"

#include "rsh/plan/blueprint.h"
#include "rsh/plan/query.h"

#define MAX_TENSORS 3
#define MAX_CELLS 24
#define MAX_PARTS 4
#define MAX_DIGITS 12
/* No source has more elements than this. */
#define MAX_ELEMENTS 1200

/* Adds a tensor of this name, with a cut and with holders that are copied; takes
 * the cut over.  Gives its number. */
uint32_t tensor_add(struct rsh_catalogue *c, const char *name,
		    struct rsh_tensor t, struct rsh_cut *cut,
		    const struct rsh_holder *holders, uint32_t n);

/* Goes to the next element of a box of these sizes, row-major; false, and to the
 * first one: there is none. */
bool scene_step(uint64_t *at, const uint64_t *size, uint32_t n);

/* ---- sources: one file a rank and tensor ---- */

struct image {
	uint8_t *bytes;
	uint64_t n;
};

struct source {
	uint32_t n_dims;
	uint64_t dims[RSH_MAX_DIMS];
	uint16_t first; /* element i has the value first + i */
	uint32_t number;
};

struct scene {
	struct rsh_names *names;
	struct rsh_ckpt_index *index[MAX_FILES];
	struct image files[MAX_FILES];
	uint32_t n_files;
	struct source tensors[MAX_TENSORS];
	struct rsh_cut *cuts[MAX_TENSORS];
	struct rsh_holder holders[MAX_TENSORS][MAX_CELLS];
	uint32_t n_holders[MAX_TENSORS];
	bool by_name[MAX_TENSORS];
	/* Boxes may be missing, and files be lost. */
	bool gaps;
	/* [element]: bit i: file i has it */
	uint64_t *have[MAX_TENSORS];
	struct rsh_plan *plan;
	struct rsh_catalogue *cat;
	uint64_t checked;
};

/* What is_tiled pieces gave so far, in bytes. */
extern uint64_t scene_tiled;

/* A box of what is shown.  Dimension i of the tensor is its dimension axis[i],
 * from base[i] on, or it is RSH_FIXED at base[i]. */
struct box_part {
	uint32_t tensor;
	struct rsh_box box;
	uint64_t base[RSH_MAX_DIMS];
	uint8_t axis[RSH_MAX_DIMS];
};

struct target {
	uint32_t n_dims;
	uint64_t dims[RSH_MAX_DIMS];
	uint32_t n_boxes; /* the parts are these boxes; 0: they are none */
	struct box_part boxes[MAX_PARTS];
	uint32_t n_parts;
	struct rsh_recipe_part parts[MAX_PARTS];
	struct rsh_factor factors[MAX_PARTS][MAX_DIGITS];
	uint64_t shown_from[MAX_PARTS][RSH_MAX_DIMS];
	uint64_t from[MAX_PARTS][RSH_MAX_DIMS];
	/* [element] of one that is not made of boxes: where a plain loop puts it */
	struct scene_place {
		uint32_t which, number;
	} places[MAX_PARTS * MAX_ELEMENTS];
	bool wide; /* shown as Float32 */
};

/* Makes tensor `which` and its files; then scene_catalogue() has all of them. */
void scene_source(struct scene *s, uint32_t which);
void scene_catalogue(struct scene *s, uint32_t n_tensors);
/* Frees all but the scene itself, the plan with it. */
void scene_clear(struct scene *s);

struct rsh_cut *scene_cut(const uint64_t *dims, uint32_t n);
/* Draws a shown tensor whose parts have the numbers of `tensors`. */
void scene_target(struct scene *s, uint32_t n_tensors, struct target *t);

/* Calls `each` with one seed after the other, as RSH_SEED and RSH_CASES say,
 * and checks that it checked some bytes each time. */
void scene_cases(uint64_t (*each)(void));

/* ---- bytes ---- */

/* Reads a range of a virtual file, taking rows together or one by one. */
void scene_read(const struct scene *s, uint32_t file, uint64_t from,
		uint64_t len, uint8_t *out);
/* Does the same with an iterator that begins at `from`, which it frees. */
void scene_take(const struct scene *s, struct rsh_piece_iter *it, uint64_t from,
		uint64_t len, uint8_t *out);
/* Makes the bytes that a box of a target has to have, one element after the
 * other, and says how many they are.  *all, if not NULL, says whether files have
 * all of them. */
uint64_t scene_slice(const struct scene *s, const struct target *t,
		     const struct rsh_box *box, bool *all, uint8_t *out);
/* Finds the element of a source that one of a target is. */
const struct source *scene_place(const struct scene *s, const struct target *t,
				 const uint64_t *at, uint64_t *number);
/* Says which files have an element of a target: bit i stands for file i. */
uint64_t scene_files(const struct scene *s, const struct target *t,
		     const uint64_t *at);

#endif
