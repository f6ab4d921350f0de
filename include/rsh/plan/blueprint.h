/* SPDX-License-Identifier: Apache-2.0 */
/* plan/blueprint.h - what is to be shown, as a dialect's writer says it: files,
 * each an ordered list of records, and how every tensor in them is made.
 *
 * A writer makes a plan of a catalogue, says which tensors are shown and how
 * each is cut over the files, then describes the files one after the other, and
 * finishes.  Nobody else calls these functions, and one thread makes a plan.
 * Where a call fails the plan stays the caller's to free.
 *
 * A *recipe* says how a shown tensor is made of tensors of the catalogue:
 * parts, each a box of the shown tensor whose elements are those of one tensor
 * of the catalogue, and at most one element-wise step for all of them.  A part
 * is an index map: along dimension i of the catalogue's tensor one goes as
 * along dimension axis[i] of the shown one, beginning at base[i]; where axis[i]
 * is RSH_FIXED one stays at base[i].  Every dimension of the box that is longer
 * than 1 is followed by exactly one.
 *
 *   the same         axis 0 1       base 0 0     box all
 *   transposed       axis 1 0       base 0 0     box all
 *   rows 4 to 7      axis 0 1       base 4 0     box all of a [4,n]
 *   fused of q and k two parts: q's box the upper rows, k's the lower ones
 *   layer 3 of a stack [L,m,n]     axis FIXED 0 1    base 3 0 0
 */
#ifndef RSH_PLAN_BLUEPRINT_H
#define RSH_PLAN_BLUEPRINT_H

#include "rsh/plan/catalogue.h"
#include "rsh/plan/plan.h"
#include "rsh/tensor/codec.h"

#define RSH_FIXED UINT8_MAX

struct rsh_framing;

struct rsh_recipe_part {
	uint32_t tensor;    /* its number in the catalogue */
	struct rsh_box box; /* of the shown tensor */
	uint64_t base[RSH_MAX_DIMS];
	uint8_t axis[RSH_MAX_DIMS];
};

/* A factored part is one whose elements make no box on one of the two sides:
 * rows that alternate with those of another part, groups of heads, halves that
 * become pairs.  Its dimensions are products of *factors*.  A factor counts
 * from 0 to size - 1, and one more along it is shown_step further along a
 * dimension of the shown tensor and step further along one of the catalogue's.
 *
 *   shown dimension d:      shown_from[d] + sum of k * shown_step, over the
 *                           factors whose shown_dim is d
 *   catalogue's dimension i: from[i] + sum of k * step, over those whose dim
 *                           is i
 *
 *   rows of q to every other row     [f,h] to [2f,h]:  f: shown_step 2, step 1
 *   transposed                       [h,f] to [f,h]:   f: 0 -> 1, h: 1 -> 0
 *   pairs become halves              [n b 2] to [n 2 b]: n, b: shown_step 1,
 *                                    step 2, and the pair: shown_step b, step 1
 *
 * On each side the factors of a dimension are the digits of a number: sorted by
 * step, the one with the larger step is no smaller than the size times the step
 * of the next.  An element of the part has one place on each side.  Factors of
 * size 1 say nothing, and a part with one of size 0 has no elements. */
struct rsh_factor {
	uint64_t size;
	uint64_t shown_step, step;
	uint8_t shown_dim, dim;
};

/* Elements of a tensor of scaled blocks (RSH_CODEC_FP8_SCALED) are multiplied
 * with element [row / block[0], column / block[1]] of another tensor of the
 * catalogue, of Float32. */
struct rsh_recipe_scale {
	uint32_t tensor;
	uint64_t block[2];
};

struct rsh_factored_part {
	uint32_t tensor;
	uint32_t n_factors;
	const struct rsh_factor *factors;
	const uint64_t *shown_from;           /* [dimension that is shown] */
	const uint64_t *from;                 /* [the catalogue's dimension] */
	const struct rsh_recipe_scale *scale; /* NULL: none */
};

/* A recipe has parts that are boxes, or else factored ones.  The plan copies
 * them.  What both can say may be said by either. */
struct rsh_recipe {
	uint32_t n_parts;
	const struct rsh_recipe_part *parts;
	enum rsh_codec codec;
	uint32_t n_factored;
	const struct rsh_factored_part *factored;
};

/* Gives the part of a recipe that shows a tensor as it is. */
void rsh_recipe_same(const struct rsh_catalogue *c, uint32_t tensor,
		     struct rsh_recipe_part *out);

/* This is a tensor that is shown.  Each file has the cell of it that the file's
 * member holds. */
struct rsh_shown {
	uint32_t name;          /* number; rsh_writer.written() has the text */
	enum rsh_dtype dtype;   /* as it is shown */
	uint8_t n_dims;
	const uint64_t *dims;   /* of the whole tensor */
	const struct rsh_cut *cut; /* one that the catalogue keeps */
	struct rsh_recipe recipe;
};

/* A plan asks this of the writer that made it, while it is made and as long as
 * it lives, from any thread.  `ctx` is the first argument of each function. */
struct rsh_writer {
	void *ctx;
	/* Gives what is written for a name; NULL: the name itself.  May be
	 * NULL. */
	const char *(*written)(const void *ctx, uint32_t name);
	/* Finds the file from which a record is copied as it stands, to the
	 * file of `rank`, as the writer counts them.  False: no file has it but
	 * those to be avoided.  May be NULL where no record is copied. */
	bool (*pick)(const void *ctx, uint32_t rank, uint32_t name,
		     const atomic_bool *avoid, uint32_t *file);
	/* Says what a copied record looks like when shown. */
	void (*shape)(const void *ctx, const struct rsh_ckpt_index *ix,
		      const struct rsh_record *r, struct rsh_record_shape *out,
		      enum rsh_codec *codec);
	/* Do both files hold the same slice of everything?  May be NULL: then
	 * none does. */
	bool (*holds_same)(const void *ctx, uint32_t a, uint32_t b);
	/* Writes what a sentence on a lost slice of a tensor is to say of how
	 * it is cut: "" or " (...)".  May be NULL. */
	void (*explain)(const void *ctx, uint32_t rank, uint32_t name,
			char *text, size_t size);
	/* Hears that a cell is taken from another file than its own, which is
	 * missing or lacks it.  May be NULL. */
	void (*stands_in)(void *ctx, uint32_t own_file, uint32_t name);
	void (*free)(void *ctx);
};

/* This says how the files are written. */
struct rsh_blueprint {
	const struct rsh_framing *framing; /* plan/framing.h */
	bool remove_redundancy; /* other ranks keep some of the records */
	bool replicas;          /* a slice that cannot be had marks its files
				 * lost; without, it is an error */
	bool allow_missing;     /* files that are lost are no error */
	uint32_t n_ranks;       /* for which room is made; there may be more */
};

/* Begins a plan; takes over the catalogue and the writer, also on failure.
 * NULL: out of memory. */
struct rsh_plan *rsh_blueprint_new(struct rsh_catalogue *c,
				   const struct rsh_writer *writer,
				   const struct rsh_blueprint *b);

/* Adds a tensor that records may show.  0 and its number; -EINVAL with a
 * sentence: the parts do not fit the tensors, have elements in common or leave
 * some out; -ENOTSUP with one: a tensor with scales, or these, are cut in the
 * source; -ENOMEM. */
int rsh_blueprint_show(struct rsh_plan *p, const struct rsh_shown *t,
		       uint32_t *number, struct rsh_error *err);
/* Describes, as a record, the slice of a shown tensor in the file of
 * `member`. */
void rsh_blueprint_shape(const struct rsh_plan *p, uint32_t shown,
			 uint32_t member, struct rsh_record_shape *out);

/* Gives how it is cut. */
const struct rsh_cut *rsh_blueprint_cut(const struct rsh_plan *p,
					uint32_t shown);

#define RSH_COPIED UINT32_MAX

/* A slot is one record of a shown file. */
struct rsh_slot {
	uint64_t offset;        /* of its first header in the file, or of its
				 * content if it has none; the plan sets it */
	uint64_t content_bytes; /* of the content as it is shown */
	uint32_t name;
	uint32_t shown;         /* number of the tensor; RSH_COPIED: a record
				 * that is copied from the file that the writer
				 * picks */
};

/* This is a file with n records in the order wanted; the format may reorder the
 * arrays in place.  `rank` is how the writer counts the file, `member` whose
 * cells it holds; `lost` says that some of it cannot be had, as the writer
 * knows already. */
struct rsh_shown_file {
	uint32_t rank;
	uint32_t member;
	bool lost;
	uint32_t n;
	struct rsh_slot *slots;
	struct rsh_record_shape *shapes; /* of the slots */
};
/* Adds a file.  0 or -errno with a sentence: -EFBIG, -ENOTSUP for what the
 * format cannot hold, -ENOENT for a slice that no file holds where the
 * blueprint has no replicas. */
int rsh_blueprint_add_file(struct rsh_plan *p, const struct rsh_shown_file *f,
			   struct rsh_error *err);
/* Adds it as files whose contents have at most `limit` bytes, or which hold one
 * larger tensor; with a limit of 0 as one. */
int rsh_blueprint_add_parts(struct rsh_plan *p,
			    const struct rsh_shown_file *whole, uint64_t limit,
			    struct rsh_error *err);

/* Adds two files in place of one: that of the records whose written names are
 * not `apart`, and that of the others.  A plan has two files for every rank or
 * for none.  Returns what rsh_blueprint_add_file() does. */
int rsh_blueprint_add_two(struct rsh_plan *p, const struct rsh_shown_file *f,
			  bool (*apart)(const char *name),
			  struct rsh_error *err);

/* Adds a file that is source file `origin`, byte for byte, of `bytes` bytes.
 * Its slots have their offsets; there may be none, where nothing is known of
 * what it holds.  0 or -ENOMEM with a sentence. */
int rsh_blueprint_add_whole(struct rsh_plan *p, const struct rsh_shown_file *f,
			    uint32_t origin, uint64_t bytes,
			    struct rsh_error *err);

/* Remembers as lost a name that no shown tensor stands for and of which slices
 * cannot be had; keeps the sentence if it is the first one.  0 or -ENOMEM. */
int rsh_blueprint_lose(struct rsh_plan *p, uint32_t name,
		       struct rsh_error *sentence);
/* Are all slices there that the file of `rank` would need of a shown tensor?
 * *lost is set where they are not.  Returns what rsh_blueprint_add_file()
 * would. */
int rsh_blueprint_probe(struct rsh_plan *p, uint32_t shown, uint32_t rank,
			uint32_t member, bool *lost, struct rsh_error *err);
/* Sets the sentence on a slice that no file holds, and returns -ENOENT.  `file`
 * is where it should be, `rank` needs it, and `more` ends the sentence. */
int rsh_blueprint_missing(const struct rsh_plan *p, uint32_t file,
			  uint32_t rank, uint32_t name, const char *more,
			  struct rsh_error *err);

/* Adds a sentence for the log (from malloc, taken over; NULL: out of memory),
 * which rsh_plan_note() gives.  0 or -ENOMEM. */
int rsh_blueprint_note(struct rsh_plan *p, char *sentence);
/* Does the same with a sentence on what others would make, which tells nothing
 * of what is shown. */
int rsh_blueprint_aside(struct rsh_plan *p, char *sentence);
/* Sets what the files' names have between the rank and the format's suffix. */
void rsh_blueprint_name_suffix(struct rsh_plan *p, const char *suffix);

/* Ends the making: tells `report`, if there is one, the slices that are lost.
 * 0, or -ENOENT with a sentence where some are and that is not allowed. */
int rsh_blueprint_finish(struct rsh_plan *p,
			 void (*report)(void *ctx, const char *sentence),
			 void *ctx, struct rsh_error *err);

#endif
