/* SPDX-License-Identifier: Apache-2.0 */
/* plan/blueprint.h - how a plan is made: virtual files, each an ordered list of
 * records, and a recipe for every tensor in them.
 *
 * Call rsh_blueprint_new() with a catalogue, rsh_blueprint_show() for each
 * tensor, one of the rsh_blueprint_add_*() for each file in order, and then
 * rsh_blueprint_finish().  One thread makes a plan.  When a call fails the
 * caller still has to free the plan.
 *
 * A *recipe* says how a shown tensor is made of tensors of the catalogue.  It
 * has parts and at most one element-wise conversion for all of them.  The
 * elements of a part come from one tensor of the catalogue.  A part is
 * described by *factors*.  The index of a factor runs from 0 to size - 1.  One
 * step of it is shown_step along a dimension of the shown tensor and step along
 * one of the catalogue's tensor.
 *
 *   shown dimension d:      shown_from[d] + sum of k * shown_step, over the
 *                           factors whose shown_dim is d
 *   catalogue's dimension i: from[i] + sum of k * step, over those whose dim
 *                           is i
 *
 *   transposed                       [h,f] to [f,h]:   f: 0 -> 1, h: 1 -> 0
 *   rows 4 to 7                      f of size 4, h, and from is 4 0
 *   layer 3 of a stack [L,m,n]       m: 1 -> 0, n: 2 -> 1, and from is 3 0 0
 *   fused of q and k                 two parts: q has the upper rows
 *   rows of q to every other row     [f,h] to [2f,h]:  f: shown_step 2, step 1
 *   pairs become halves              [n b 2] to [n 2 b]: n, b: shown_step 1,
 *                                    step 2, and the pair: shown_step b, step 1
 *
 * On each side the factors of a dimension are the digits of a mixed-radix
 * number: sorted by step, each step is at least the size times the step of the
 * next factor.  So each element of the part has one place on each side.
 * Factors of size 1 have no effect.  A part with a factor of size 0 has no
 * elements.
 */
#pragma once

#include "rsh/plan/catalogue.h"
#include "rsh/plan/plan.h"
#include "rsh/tensor/codec.h"

struct rsh_framing;

struct rsh_factor {
	uint64_t size;
	uint64_t shown_step, step;
	uint8_t shown_dim, dim;
};

struct rsh_recipe_part {
	uint32_t tensor; /* its number in the catalogue */
	uint32_t n_factors;
	const struct rsh_factor *factors;
	const uint64_t *shown_from; /* [dimension that is shown] */
	const uint64_t *from;       /* [the catalogue's dimension] */
};

/* The plan copies the parts. */
struct rsh_recipe {
	uint32_t n_parts;
	const struct rsh_recipe_part *parts;
	enum rsh_codec codec;
};

/* Sorts n factors by dimension and step as shown, the largest step first, and
 * merges those that continue each other on both sides.  Returns how many are
 * left. */
uint32_t rsh_factors_merge(struct rsh_factor *v, uint32_t n);
/* Gives the part of a recipe that shows a tensor of the catalogue whose
 * dimension i becomes order[i]; NULL: as it is.  The part uses `f`, which has
 * room for a factor of each dimension. */
struct rsh_recipe_part rsh_recipe_whole(const struct rsh_catalogue *c,
					uint32_t tensor, const uint8_t *order,
					struct rsh_factor *f);

/* A tensor that is shown.  A file contains one cell of it: the cell of the
 * file's member (struct rsh_shown_file). */
struct rsh_shown {
	uint32_t name;          /* its number; rsh_plan_ops.written_name() */
	enum rsh_dtype dtype;   /* after the recipe's conversion */
	uint8_t n_dims;
	const uint64_t *dims;   /* of the whole tensor */
	const struct rsh_cut *cut; /* from rsh_catalogue_keep_cut() */
	struct rsh_recipe recipe;
};

/* A plan calls these functions while it is made and until it is freed, from any
 * thread.  `ctx` is the first argument of each. */
struct rsh_plan_ops {
	void *ctx;
	/* Returns the name to write instead of `name`; NULL: the name itself.
	 * May be NULL. */
	const char *(*written_name)(const void *ctx, uint32_t name);
	/* Finds the source file from which a record of the file of `rank` is
	 * copied.  False: no file has it, or only files to be avoided.  May be
	 * NULL if no record is copied. */
	bool (*pick)(const void *ctx, uint32_t rank, uint32_t name,
		     const atomic_bool *avoid, uint32_t *file);
	/* Fills the shape of a copied record as it is shown. */
	void (*copy_shape)(const void *ctx, const struct rsh_ckpt_index *ix,
		      const struct rsh_record *r, struct rsh_record_shape *out,
		      enum rsh_codec *codec);
	/* Returns whether both source files hold the same slice of every
	 * parameter.  NULL: no two source files do. */
	bool (*same_slices)(const void *ctx, uint32_t a, uint32_t b);
	/* Writes how the tensor is cut, as " (...)", or writes "".  The text
	 * ends a message about a lost slice.  May be NULL. */
	void (*explain)(const void *ctx, uint32_t rank, uint32_t name,
			char *text, size_t size);
	/* The plan calls this if a cell is read from a replica because
	 * `own_file` is missing or lacks the cell.  May be NULL. */
	void (*replica_used)(void *ctx, uint32_t own_file, uint32_t name);
	void (*free)(void *ctx);
};

/* This describes how the files are written. */
struct rsh_blueprint {
	const struct rsh_framing *framing; /* plan/framing.h */
	const void *form; /* struct rsh_plan_options */
	bool remove_redundancy; /* other ranks keep some of the records */
	bool replicas; /* true: a missing slice marks its files as lost;
			* false: it is an error */
	bool allow_missing;     /* lost files are no error */
	uint32_t n_ranks;       /* expected; there may be more */
};

/* Begins a plan.  It owns the catalogue and frees the context of `ops`, also on
 * failure.  NULL: out of memory. */
struct rsh_plan *rsh_blueprint_new(struct rsh_catalogue *c,
				   const struct rsh_plan_ops *writer,
				   const struct rsh_blueprint *b);

/* Adds a tensor that records may show.  0 and its number; -EINVAL with a
 * message: the parts do not fit the tensors, overlap or leave elements out;
 * -ENOMEM. */
int rsh_blueprint_show(struct rsh_plan *p, const struct rsh_shown *t,
		       uint32_t *number, struct rsh_error *err);
/* Fills the shape of the record that shows the cell of `member`. */
void rsh_blueprint_shape(const struct rsh_plan *p, uint32_t shown,
			 uint32_t member, struct rsh_record_shape *out);

/* Returns the cut of a shown tensor. */
const struct rsh_cut *rsh_blueprint_cut(const struct rsh_plan *p,
					uint32_t shown);

#define RSH_COPIED UINT32_MAX

/* A slot is one record of a virtual file. */
struct rsh_slot {
	uint64_t offset;        /* of its first header in the file, or of its
				 * content if it has none; the plan sets it */
	uint64_t content_bytes; /* of the content as it is shown */
	uint32_t name;
	uint32_t shown;         /* number of the tensor; RSH_COPIED: the record
				 * is copied from the file that
				 * rsh_plan_ops.pick() finds */
};

/* A file with n records in the wanted order.  The framing may reorder the
 * arrays in place.  The functions of rsh_plan_ops get `rank`.  The file
 * contains the cells of `member`, which is a rank of the tensors' cuts.  `lost`
 * is true if some slices are known to be missing. */
struct rsh_shown_file {
	uint32_t rank;
	uint32_t member;
	bool lost;
	uint32_t n;
	struct rsh_slot *slots;
	struct rsh_record_shape *shapes; /* of the slots */
};
/* Adds a file.  0 or -errno with a message: -EFBIG, -ENOTSUP for what the
 * file's format cannot hold, -ENOENT for a slice that no source file holds if
 * rsh_blueprint.replicas is false. */
int rsh_blueprint_add_file(struct rsh_plan *p, const struct rsh_shown_file *f,
			   struct rsh_error *err);
/* Adds the records as several files.  Each file has at most `limit` bytes of
 * content, or one tensor that is larger.  A limit of 0 adds one file. */
int rsh_blueprint_add_parts(struct rsh_plan *p,
			    const struct rsh_shown_file *whole, uint64_t limit,
			    struct rsh_error *err);

/* Adds the records as two files: the second has those for whose names
 * `in_second` returns true.  A plan has two files for every rank or for none.
 * Returns what rsh_blueprint_add_file() does. */
int rsh_blueprint_add_two(struct rsh_plan *p, const struct rsh_shown_file *f,
			  bool (*in_second)(const void *ctx,
					    const struct rsh_catalogue *cat,
					    uint32_t name),
			  const void *ctx, struct rsh_error *err);

/* Adds a file that equals source file `origin`, byte for byte.  Its size is
 * `bytes`.  The caller sets the offsets of its slots.  It may have no slots if
 * the content is not known.  0 or -ENOMEM with a message. */
int rsh_blueprint_add_whole(struct rsh_plan *p, const struct rsh_shown_file *f,
			    uint32_t origin, uint64_t bytes,
			    struct rsh_error *err);

/* Marks a name as lost: no shown tensor has this name, and some of its slices
 * are missing.  The plan keeps the first message.  0 or -ENOMEM. */
int rsh_blueprint_lose(struct rsh_plan *p, uint32_t name,
		       struct rsh_error *sentence);
/* Checks whether the source has all slices of a shown tensor that the file of
 * `rank` would need.  Sets *lost if it does not.  Returns what
 * rsh_blueprint_add_file() would return. */
int rsh_blueprint_probe(struct rsh_plan *p, uint32_t shown, uint32_t rank,
			uint32_t member, bool *lost, struct rsh_error *err);
/* Sets the message about a slice that no file holds, and returns -ENOENT.
 * `file` should have it, `rank` needs it, and `more` ends the message. */
int rsh_blueprint_missing(const struct rsh_plan *p, uint32_t file,
			  uint32_t rank, uint32_t name, const char *more,
			  struct rsh_error *err);

/* Adds a note for the log, which rsh_plan_note() returns.  `sentence` is from
 * malloc, and the plan takes it over.  If it is NULL, memory is out, and the
 * function returns -ENOMEM.  `difference`: it is one from what MindSpore's
 * converter would write.  0 or -ENOMEM. */
int rsh_blueprint_add_note(struct rsh_plan *p, char *sentence, bool difference);
#define rsh_blueprint_note(p, sentence) \
	rsh_blueprint_add_note(p, sentence, false)
/* Sets the part of file names between the rank and the format's suffix. */
void rsh_blueprint_name_suffix(struct rsh_plan *p, const char *suffix);

/* Finishes the plan and calls `report`, which may be NULL, for each lost slice.
 * 0, or -ENOENT with a message if slices are lost and that is not allowed. */
int rsh_blueprint_finish(struct rsh_plan *p,
			 void (*report)(void *ctx, const char *sentence),
			 void *ctx, struct rsh_error *err);
