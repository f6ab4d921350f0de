/* SPDX-License-Identifier: Apache-2.0 */
/* converter/converter_i.h - what the files of converter/ share: the job at
 * hand, in the words of MindSpore's converter.
 *
 * Words: a parameter is *handled* when it is resharded, and *copied* when one
 * source file's record is taken as it is; a *block* is a destination stage; the
 * *key* of a source file is its rank within its stage, which is how the
 * converter tells slices apart, and it is *held* if some stage has its file.
 *
 * The measure is mindspore.transform_checkpoints of release 2.10.  This is what
 * it does beyond what is documented, with the file that follows it:
 *   slices.c  It takes the number of devices from the first layout, tells
 *       slices apart by the rank modulo that, and the lowest stage's file wins:
 *       if two stages of 4 saved the embedding, rank 0 is read, not rank 4.
 *   redistribution.c, unify.c  It infers the ranks to load over made-up
 *       shapes, and may load more than it uses.
 *   loads.c  Where it cannot infer (numbers of devices in no multiple relation)
 *       we load the ranks that hold what is needed, and the rank's counterpart
 *       (its number modulo the source ranks), which copied records come from.
 *   order.c  Names come in the order of the files that it loads, the highest
 *       rank first, what is resharded before what is copied.
 *   lookup.c  Copied records come from the local rank modulo the number of
 *       devices of the last handled parameter; if that file lacks the record,
 *       from the lowest key that is loaded and has it (it raises KeyError).
 *   conversion.c  With both strategies of one stage, and source names a true
 *       subset of the destination's, it goes by stage: it loads all ranks in
 *       ascending order and names files "_part<stage>".
 *   strategy/grid.c (place_simple)  A shard is misplaced whose only replicated
 *       mesh axis is the first one, with a map that lists axes out of order.
 *   rsh_param_dest_stage()  For ranks above stage 0 a shared parameter's layout
 *       is that of the last such stage in the order of the file.
 *   whole.c  Where both sides cut everything alike it writes the files anew; we
 *       show them as they are, since who asks for what he has wants it back.
 * --compat=mindspore follows the last four, and the conversions that lose
 * something (notes.c).  tests/oracle/naive_reshard.py knows the same rules.
 *
 * From safetensors it takes another road: BFloat16 makes no detour over float32,
 * tensors without elements stay, and nothing notes that an I8 was Int4.  Four of
 * its faults there are never followed: it writes slices wrong that are not
 * contiguous; it makes processes of stages, which may die unnoticed; a shared
 * parameter reaches only the first stage of several that one list of ranks
 * serves; and each file notes the Int4 of all source files.
 */
#ifndef RSH_CONVERTER_CONVERTER_I_H
#define RSH_CONVERTER_CONVERTER_I_H

#include "rsh/converter/conversion.h"
#include "rsh/converter/slices.h"
#include "rsh/plan/blueprint.h"
#include "rsh/plan/catalogue.h"
#include "rsh/plan/name_filter.h"
#include "rsh/strategy/grid.h"

#define RSH_NO_SHOWN UINT32_MAX

/* All ranks of one destination stage share this. */
struct rsh_block {
	uint32_t n_stages;      /* source stages that the converter loads,
				 * ascending */
	uint32_t *stages;
};

/* This says where the copied records of one destination rank's file are taken
 * from. */
struct rsh_copy_order {
	const struct rsh_block *block;
	const bool *keys;       /* [held]: keys the converter loads */
	uint32_t copy_key;      /* the key that comes first */
};

/* This is a parameter that is resharded for the ranks of one block. */
struct rsh_handled {
	uint32_t tensor;        /* of the catalogue */
	bool reduced;           /* a file that is there lacks it */
};

/* Each note is a way in which the result differs from the converter's; "it" is
 * the converter. */
enum rsh_note {
	RSH_NOTE_SIMPLE_SHARD, /* optimizer shard that it misplaces */
	RSH_NOTE_BY_STAGE,     /* files that it names _part */
	RSH_NOTE_REFUSED,      /* layouts that it cannot redistribute */
	RSH_NOTE_SHARED,       /* layout of another stage that it takes */
	RSH_NOTE_BF16,         /* NaNs that it makes canonical */
	RSH_NOTE_INT4,         /* Int4 that it turns into Int8 */
	RSH_NOTE_EMPTY,        /* tensors without elements that it drops */
	RSH_NOTE_STR,          /* strings that it crashes on */
	RSH_NOTE_MISSING_COPY, /* records missing where it looks for them */
	RSH_NOTE_DASH,         /* names that it cannot parse */
	RSH_NOTE_NONE,         /* no strategy at all */
	RSH_NOTE_WHOLE,        /* files shown as they are that it writes anew */
	RSH_NOTE_REPLICA,      /* files missing that it needs */
	RSH_NOTE_LACKING,      /* files that lack a record that it needs */
	RSH_NOTE_COUNT
};

struct rsh_note_state {
	uint32_t n;       /* parameters that the note applies to */
	uint32_t example; /* name of the first of them, by number */
	const char *path; /* path of its file; NULL: the note is of no certain
			   * file */
};

struct rsh_converter {
	const struct rsh_strategy *src; /* NULL: unsharded */
	const struct rsh_strategy *dst;
	struct rsh_plan_options o;
	enum rsh_file_type src_format;
	struct rsh_name_filter chosen;
	bool joined;            /* rank 0's index is of several files */
	bool foreign;           /* the converter cannot read the files */
	bool same;              /* files are shown as they are (whole.c) */
	uint32_t *same_as;      /* [source rank]: the lowest that holds the same
				 * slices; NULL: nobody asks */
	uint32_t n_whole;       /* how many files are a source file */
	bool by_stage;          /* the converter's by-stage dispatch applies */
	struct rsh_job_files files; /* of the source */
	uint32_t n_blocks;
	uint32_t dst_ranks;     /* destination ranks in a stage */

	struct rsh_catalogue *cat; /* the plan owns it, and this struct */
	struct rsh_plan *plan;
	/* [name]: how the source cuts a copied parameter that it lists; NULL:
	 * not known. */
	const struct rsh_grid **copy_grids;
	struct rsh_handled *handled; /* [number of the shown tensor] */
	size_t handled_cap;
	struct rsh_block *blocks;
	struct rsh_copy_order *orders; /* [destination rank] */
	void *key_sets; /* a tree of struct key_set (loads.c) */
	struct rsh_note_state notes[RSH_NOTE_COUNT];
};

/* ---- files that are a source file (whole.c) ---- */

/* Finds out whether both sides cut alike and nothing is asked for that changes
 * files, and sets c->same and c->same_as.  0 or -ENOMEM. */
int rsh_whole_prepare(struct rsh_converter *c);
/* Do the source ranks hold the same slice of everything?  The plan asks this of
 * the converter. */
bool rsh_holds_same(const void *converter, uint32_t a, uint32_t b);

/* ---- looking things up, while planning and while reading (lookup.c) ---- */

/* Finds the file that a copied parameter is taken from.  That is the one of the
 * copy key in the lowest loaded stage.  Else *elsewhere, which may be NULL, is
 * set, and it is a replica's if the source's strategy lists the parameter, or
 * the one of the lowest key that the converter would load; with replicas, then
 * of any key.  False: no file holds the parameter. */
bool rsh_copy_source(const struct rsh_converter *c,
		     const struct rsh_copy_order *o, uint32_t name,
		     const atomic_bool *avoid, uint32_t *rank, bool *elsewhere);

/* ---- what elements become (shapes.c) ---- */

/* Says what a copied record looks like when shown.  The plan asks this of the
 * converter. */
void rsh_copy_shape(const void *converter, const struct rsh_ckpt_index *ix,
		    const struct rsh_record *r, struct rsh_record_shape *out,
		    enum rsh_codec *codec);
/* Does the converter drop tensors without elements? */
bool rsh_drops_empty(const struct rsh_converter *c);
/* Says by which codec a record's elements become those of the virtual file, and
 * of which type they are then. */
enum rsh_codec rsh_record_codec(const struct rsh_converter *c,
				const struct rsh_record *r,
				enum rsh_dtype *dtype);
/* Says how many bytes of a record that codec takes at a time. */
uint32_t rsh_record_unit(const struct rsh_converter *c,
			 const struct rsh_record *r);
/* Gives the name that is written for a parameter. */
const char *rsh_written_name(const struct rsh_converter *c, uint32_t name);

/* ---- planning ---- */

/* Puts a parameter into the catalogue, out of the files of the block's stages,
 * and shows it to the ranks of the block (tensors.c).  *shown is RSH_NO_SHOWN
 * when no loaded file holds it. */
int rsh_handled_make(struct rsh_converter *c, const struct rsh_block *b,
		     uint32_t block, uint32_t name, uint32_t *shown,
		     struct rsh_error *err);

/* rsh_note_add() counts a difference; at the end rsh_notes_write() gives the
 * plan the sentences (notes.c). */
void rsh_note_add(struct rsh_converter *c, enum rsh_note note, uint32_t name);
/* Counts that the file of a rank lacks a record, for which another makes up. */
void rsh_note_add_lacking(struct rsh_converter *c, uint32_t rank,
			  uint32_t name);
int rsh_notes_write(struct rsh_converter *c);

#endif
