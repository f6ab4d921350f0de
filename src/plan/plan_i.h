/* SPDX-License-Identifier: Apache-2.0 */
/* plan/plan_i.h - the parts of a plan, for the files of plan/ only:
 *   plan.c     making and freeing a plan, information about files
 *   recipe.c   checks recipes
 *   mapping.c  maps elements of a shown tensor to the catalogue
 *   order.c    the order of dimensions that the source has
 *   cursor.c   finds one element by a mapping
 *   digits.c   the elements of a part in a slice
 *   files.c    adds files, computes their layout
 *   needs.c    the source files that a virtual file needs
 *   query.c    the tensors of a plan and their origins
 *   lost.c     the slices that no file holds
 *   pieces.c   from a range of a file to the places of its bytes
 */
#pragma once

#include "rsh/plan/blueprint.h"
#include "rsh/util/arena.h"

void rsh_copies_free(struct rsh_copies *c);

/* ---- mappings ---- */

/* A span is one or more dimensions of a shown tensor that a mapping treats as
 * one, since they are contiguous in all its cells and in all cells that these
 * are made of.  Lengths are in units: bytes, or elements if there is a codec or
 * if the mapping is `apart`. */
struct rsh_span {
	uint32_t lead;  /* the first of its dimensions */
	uint64_t inner; /* units between two neighbours along it */
	uint64_t len;   /* of a cell, if a grid cuts it */
};

/* An in-span is a span of a tensor of the catalogue. */
struct rsh_in_span {
	uint32_t lead;
	uint64_t base;   /* where the part begins along it */
	uint64_t inner;
	/* Set if a grid cuts the tensor: */
	uint64_t len;
	uint64_t stride; /* units between two neighbours in a cell */
	uint32_t weight; /* difference between the numbers of two cells that
			  * are neighbours along it */
};

/* The shown tensor and the part's tensor are cut in the same way along these
 * dimensions, so cells have the same coordinate. */
struct rsh_alike {
	uint8_t dim, in_dim;
	uint32_t weight; /* as in struct rsh_in_span */
};

struct rsh_part; /* parts_i.h */

/* A mapping finds the elements of a shown tensor in the catalogue. */
struct rsh_mapping {
	uint32_t name;
	uint32_t pair;      /* index into rsh_plan.pairs, or RSH_NO_PAIR */
	bool lost;          /* slices are needed that no file holds */
	bool apart;         /* a part is no box, or neighbours along the last
			     * dimension are not neighbours in the source */
	uint8_t dtype;      /* enum rsh_dtype, as shown */
	uint8_t codec;      /* enum rsh_codec */
	uint8_t n_dims;
	uint8_t n_spans;
	uint8_t unit_in, unit_out; /* bytes of a unit */
	uint8_t by;         /* the span by which parts are sorted */
	uint32_t n_parts;
	/* The order in which a file has the dimensions, and the mapping of the
	 * tensor with its dimensions in this order; NULL: row-major order. */
	const uint8_t *order;
	const struct rsh_mapping *ordered;
	const struct rsh_cut *cut;
	const uint64_t *dims;      /* of the whole tensor */
	/* [cell]; a single entry if the cut is a grid. */
	const int64_t *slice_dims;
	const uint64_t *slice_bytes;
	const struct rsh_span *spans;
	const struct rsh_part *parts;
	const uint64_t *reach; /* [part]: where those up to it end along span
				* `by` */
};

/* Tensors of one pair are shown unchanged, with the same cuts and copies, so
 * they need the same files. */
#define RSH_NO_PAIR UINT32_MAX
struct rsh_pair {
	const struct rsh_cut *src, *dst;
	const struct rsh_copies *copies;
};

/* Returns whether the element types of a part and of the shown tensor fit the
 * codec. */
bool rsh_recipe_types_fit(const struct rsh_shown *t,
			  const struct rsh_tensor *in);
/* Returns whether the scales of a tensor have the right shape; true if it is
 * not quantised. */
bool rsh_quantised_fits(const struct rsh_tensor *t);
int rsh_mapping_make(struct rsh_plan *p, const struct rsh_shown *t,
		     struct rsh_mapping **out, struct rsh_error *err);

/* If the source has the tensor in another order of dimensions and the plan's
 * framing keeps it, sets w->order and w->ordered.  0 or -errno with a
 * message. */
int rsh_mapping_keep_order(struct rsh_plan *p, const struct rsh_shown *t,
			   struct rsh_mapping *w, struct rsh_error *err);

/* Returns the index of a member's cell in the mapping's slices. */
static inline uint32_t rsh_mapping_slice(const struct rsh_mapping *w,
					 uint32_t member)
{
	return rsh_cut_grid(w->cut) ? 0 : rsh_cut_cell(w->cut, member);
}

static inline uint64_t rsh_mapping_bytes(const struct rsh_mapping *w,
					 uint32_t member)
{
	return w->slice_bytes[rsh_mapping_slice(w, member)];
}

/* The tile around a unit: a struct rsh_tile (plan/plan.h) before the extents of
 * the source are known. */
struct rsh_cursor_tile {
	uint64_t row, column;       /* of the unit */
	uint64_t n_rows, n_columns; /* n_rows is 0: there is no tile */
	uint64_t stride;
	uint64_t column_step; /* units from column to column as shown */
};

/* A cursor is a position in a mapping: the cell of one file, and the unit that
 * was looked up last. */
struct rsh_cursor {
	uint64_t from[RSH_MAX_DIMS]; /* [span]: where the file's cell begins */
	uint64_t len[RSH_MAX_DIMS];
	uint32_t shown_at[RSH_MAX_DIMS]; /* the cell's, if a grid cuts it */
	uint32_t member;

	/* The current part. */
	const struct rsh_tensor *tensor;
	const struct rsh_part *part;
	uint32_t cell_base;
	uint32_t replica;

	/* The current unit. */
	uint32_t cell;   /* the cell of the part's tensor */
	uint64_t src;    /* units before it in that cell */
	uint64_t run;    /* contiguous units from it on, on both sides */
	uint64_t rows;   /* how often the run repeats after it */
	uint64_t stride; /* units from one repeat to the next in the source */
	struct rsh_cursor_tile tile;
};

void rsh_cursor_enter(const struct rsh_mapping *w, uint32_t member,
		      struct rsh_cursor *s);
/* Finds a unit of the file's cell.  False: it is in no cell of the source. */
bool rsh_cursor_find(const struct rsh_mapping *w, uint64_t unit,
		     struct rsh_cursor *s);

/* ---- files ---- */

/* The records of a virtual file; files with equal records share them. */
struct rsh_slot_list {
	uint64_t bytes;
	/* Bytes before the first record, and after the last one. */
	uint8_t *header, *trailer;
	size_t header_bytes, trailer_bytes;
	uint32_t n;
	struct rsh_slot slots[];
};

struct rsh_virtual_file {
	const struct rsh_slot_list *list;
	uint32_t rank;          /* as in struct rsh_shown_file */
	uint32_t member;
	uint32_t origin;        /* the source file that it equals, byte for
				 * byte, or RSH_NO_FILE */
	uint32_t n_sources;
	uint32_t *sources;
	bool lost;              /* it needs a missing slice */
};

/* A name of which slices are lost. */
struct rsh_lost {
	uint32_t name;
	uint32_t shown; /* RSH_COPIED: no shown tensor has it */
};

/* State that is needed only while files are added. */
struct rsh_building {
	struct rsh_arena arena;
	bool *used;            /* [source file]: the current file needs it */
	uint32_t n_used;
	uint32_t *used_files;  /* the numbers of those, n_used */
	uint32_t *pair_done;   /* [pair]: 1 + the file checked last */
	size_t pair_done_cap;
	struct rsh_names *kinds_of_lists; /* what equal lists have in common */
};

/* A sentence for the log. */
struct rsh_plan_note {
	char *text;
	bool difference;
};

struct rsh_plan {
	struct rsh_catalogue *cat;
	struct rsh_plan_ops ops;
	struct rsh_blueprint b;
	struct rsh_arena arena; /* owns the mappings, the lists and what files
				 * have */

	uint32_t n_mappings, n_pairs, n_lists, n_files;
	struct rsh_mapping **mappings;
	struct rsh_pair *pairs;
	struct rsh_slot_list **lists;
	struct rsh_virtual_file *files;
	size_t mappings_cap, pairs_cap, lists_cap, files_cap;
	struct rsh_building building;

	uint32_t n_lost;
	struct rsh_lost *lost;
	size_t lost_cap;
	bool *lost_whole;   /* [name]: it is in `lost` without a shown tensor */
	struct rsh_error first_lost;

	bool two_files; /* of each rank */
	char suffix[32];
	struct rsh_plan_note *notes;
	uint32_t n_notes;
	size_t notes_cap;
};

const char *rsh_plan_written_name(const struct rsh_plan *p, uint32_t name);

/* Fills f->sources, or sets a message about what is missing (needs.c).  A slice
 * that no file holds is added to p->lost and marks the file as lost. */
int rsh_plan_list_sources(struct rsh_plan *p, struct rsh_virtual_file *f,
			  struct rsh_error *err);
/* rsh_plan_lose() adds a loss and keeps the message of the first one.  At the
 * end rsh_plan_report_lost() reports the lost slices, up to a limit, and fails
 * unless losses are allowed (lost.c). */
int rsh_plan_lose(struct rsh_plan *p, const struct rsh_lost *lost,
		  struct rsh_error *sentence);
int rsh_plan_report_lost(struct rsh_plan *p,
			 void (*report)(void *ctx, const char *sentence),
			 void *ctx, struct rsh_error *err);
