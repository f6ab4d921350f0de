/* SPDX-License-Identifier: Apache-2.0 */
/* plan/converter/converter_i.h - the state of a conversion, for the files of
 * converter/ only.
 *
 * A parameter is *resharded*, or its record is *copied* from one source file.
 * The *key* of a source file is its rank within its stage.  The converter
 * distinguishes slices by their keys.  A key is *held* if some stage has a file
 * with this key.
 *
 * The reference is mindspore.transform_checkpoints of release 2.10, "the
 * converter".  It does the following, which is not in its documentation.  The
 * file before each rule implements it:
 *   slices.c  It takes the number of devices from the first layout, and
 *       distinguishes slices by the rank modulo that number.  The file of the
 *       lowest stage is used: if two stages of 4 ranks saved the embedding,
 *       rank 0 is read, not rank 4.
 *   redistribution.c, common_layout.c  It infers the ranks to load over made-up
 *       shapes, and may load more than it uses.
 *   loaded_keys.c  If it cannot infer them (neither number of devices is a
 *       multiple of the other), reshardfs loads the ranks that hold needed
 *       slices, and the rank modulo the source ranks, from which records are
 *       copied.
 *   dst_stage.c  Names are in the order of the files that it loads, the highest
 *       rank first.  Resharded parameters come before copied ones.
 *   copy_source.c  Copied records come from the local rank modulo the number of
 *       devices of the last resharded parameter.  If that file lacks the
 *       record, the converter raises KeyError; reshardfs copies it from the
 *       lowest loaded key that has it.
 *   conversion.c  If both strategies have one stage, and the source's names are
 *       a proper subset of the destination's, it converts by stage: it loads
 *       all ranks in ascending order and names files "_part<stage>".
 *   strategy/grid.c (place_simple)  It misplaces an optimizer shard if the only
 *       replicated mesh axis is the first one, and the map lists axes out of
 *       order.
 *   rsh_param_dest_stage()  For ranks above stage 0 it uses the layout of a
 *       shared parameter in the last such stage in the order of the file.
 *   whole.c  If both sides cut everything in the same way it still writes new
 *       files; reshardfs shows the source files unchanged.
 * --compat=mindspore follows the last four rules, and the conversions that lose
 * data (notes.c).  tests/oracle/naive_reshard.py implements the same rules.
 *
 * The converter converts safetensors differently: BFloat16 is not converted to
 * float32 and back, tensors without elements are kept, and nothing notes that
 * an I8 was Int4.  Four of its faults there are never reproduced: it writes
 * wrong bytes for slices that are not contiguous; it starts a process for each
 * stage and does not detect that one has failed; it writes a shared parameter
 * only for the first of several stages that need the same ranks; and in each
 * file it notes the Int4 of all source files.
 */
#pragma once

#include "rsh/plan/blueprint.h"
#include "rsh/plan/catalogue.h"
#include "rsh/plan/conversion.h"
#include "rsh/plan/name_filter.h"
#include "rsh/plan/policy.h"
#include "rsh/plan/redistribution.h"
#include "rsh/plan/slices.h"
#include "rsh/strategy/grid.h"

/* The properties that all ranks of a destination stage have in common. */
struct rsh_dst_stage {
	uint32_t n_stages;      /* source stages that the converter loads,
				 * ascending */
	uint32_t *stages;
};

/* The sources of the copied records in the file of a destination rank. */
struct rsh_copy_order {
	const struct rsh_dst_stage *dst_stage;
	const bool *keys;       /* [held]: keys the converter loads */
	uint32_t copy_key;      /* the key that is tried first */
};

/* A parameter that is resharded for the ranks of a destination stage. */
struct rsh_resharded {
	uint32_t tensor;        /* of the catalogue */
	bool reduced;           /* an existing file lacks it */
};

/* Differences from the result of MindSpore's converter ("it"). */
enum rsh_note {
	RSH_NOTE_SIMPLE_SHARD, /* optimizer shard that it misplaces */
	RSH_NOTE_BY_STAGE,     /* files that it names _part */
	RSH_NOTE_REFUSED,      /* layouts that it cannot redistribute */
	RSH_NOTE_SHARED,       /* layout of another stage that it takes */
	RSH_NOTE_MANUAL,       /* rows split manually that it misplaces */
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
	const char *path; /* path of its file; NULL: the note is not about a
			   * certain file */
};

struct rsh_converter {
	struct rsh_arena arena;
	const struct rsh_strategy *src; /* NULL: unsharded */
	const struct rsh_strategy *dst;
	struct rsh_plan_options o;
	enum rsh_file_type src_format;
	struct rsh_name_filter chosen;
	bool joined;            /* rank 0's index is of several files */
	bool foreign;           /* the converter cannot read the files */
	bool same;              /* files are shown as they are (whole.c) */
	uint32_t *same_as;      /* [source rank]: the lowest rank that holds the
				 * same slices; NULL: not needed */
	uint32_t n_whole;       /* number of files that equal a source file */
	bool by_stage;          /* the converter's by-stage dispatch applies */
	struct rsh_job_files files; /* of the source */
	uint32_t n_dst_stages;
	uint32_t dst_ranks;     /* destination ranks in a stage */

	struct rsh_catalogue *cat; /* the plan owns it, and this struct */
	struct rsh_plan *plan;
	/* [name]: how the source cuts a copied parameter that it lists; NULL:
	 * not known. */
	const struct rsh_grid **copy_grids;
	struct rsh_resharded *resharded; /* [number of the shown tensor] */
	size_t resharded_cap;
	struct rsh_dst_stage *dst_stages;
	struct rsh_copy_order *orders; /* [destination rank] */
	void *key_sets; /* a tree of struct key_set (loaded_keys.c) */
	struct rsh_note_state notes[RSH_NOTE_COUNT];
};

/* ---- files that equal a source file (whole.c) ---- */

/* Sets c->same to whether both sides cut in the same way and no option changes
 * the content.  If so, with replicas, also sets c->same_as.  0 or -ENOMEM. */
int rsh_whole_prepare(struct rsh_converter *c);
/* Implements rsh_plan_ops.same_slices(). */
bool rsh_converter_same_slices(const void *converter, uint32_t a, uint32_t b);

/* ---- sources of copied records (copy_source.c) ---- */

/* Finds the file from which a parameter is copied.  This is the file of the
 * copy key in the lowest loaded stage.  If that file does not have it,
 * *elsewhere (which may be NULL) is set, and another file is used: a replica's
 * if the source's strategy lists the parameter; or the file of the lowest key
 * that the converter would load; or, with replicas, of any key.  False: no file
 * holds the parameter. */
bool rsh_copy_source(const struct rsh_converter *c,
		     const struct rsh_copy_order *o, uint32_t name,
		     const atomic_bool *avoid, uint32_t *rank, bool *elsewhere);

/* ---- shapes and types of records (records.c) ---- */

/* Implements rsh_plan_ops.copy_shape(). */
void rsh_copy_shape(const void *converter, const struct rsh_ckpt_index *ix,
		    const struct rsh_record *r, struct rsh_record_shape *out,
		    enum rsh_codec *codec);
/* Returns whether the converter drops tensors without elements. */
bool rsh_drops_empty(const struct rsh_converter *c);
/* Returns the codec that converts a record's elements, and gives their type
 * afterwards. */
enum rsh_codec rsh_record_codec(const struct rsh_converter *c,
				const struct rsh_record *r,
				enum rsh_dtype *dtype);
/* Returns how many bytes that codec reads at a time. */
uint32_t rsh_record_unit(const struct rsh_converter *c,
			 const struct rsh_record *r);
/* Returns the name that is written for a parameter. */
const char *rsh_written_name(const struct rsh_converter *c, uint32_t name);

/* ---- planning ---- */

/* rsh_note_add() counts a difference; rsh_notes_write() adds the notes to the
 * plan at the end (notes.c). */
void rsh_note_add(struct rsh_converter *c, enum rsh_note note, uint32_t name);
/* Counts a record that the file of a rank lacks and a replica has. */
void rsh_note_add_lacking(struct rsh_converter *c, uint32_t rank,
			  uint32_t name);
int rsh_notes_write(struct rsh_converter *c);

/* ---- the state of planning one destination stage ----
 *
 *   dst_stage.c    which parameters are resharded, which records a file has
 *   loaded_keys.c  which source ranks the converter would load
 *   records.c      one record
 *   whole.c        files that equal a source file */

enum param_action {
	ACTION_COPY,
	ACTION_RESHARD,
	ACTION_DROP, /* left out, or of other destination stages only */
};

/* Parameters with the same two layouts load the same keys. */
struct layout_pair {
	const struct rsh_strategy_item *src;
	const struct rsh_strategy_item *dst;
	struct rsh_redistribution *redist; /* NULL: the converter refuses */
	uint32_t shown;    /* a parameter with them; RSH_COPIED: none */
	void *classes;     /* a tree of struct key_class (loaded_keys.c) */
};

/* The names of a file in order, for one sequence of distinct indexes. */
struct name_list {
	uint32_t n_seq;
	uint32_t *seq;     /* ids of the indexes, in the order of loading */
	uint32_t n;
	uint32_t n_resharded;
	uint32_t *names;   /* resharded ones first */
};

/* The marked keys.  A key that is not held is mapped to the next held key.  A
 * key above the last held key is mapped to the first file of the stage. */
struct rsh_marks {
	bool *exact; /* [held]: this key is marked */
	bool *near;  /* [held + 1]: this key is marked, or a key between the
		      * previous held key and this one; last entry: a key above
		      * all held keys is marked */
};

struct stage_state {
	struct rsh_arena arena; /* of the current stage, as all below */
	struct rsh_converter *c;
	struct rsh_writer_state *w;
	/* Of the current stage. */
	uint32_t stage;
	struct rsh_dst_stage *dst_stage;
	uint8_t *action;         /* [name], enum param_action */
	uint32_t *shown_of;    /* [name]: w->shown */
	/* The pass in which a name or index was last seen.  Each pass over
	 * names or files gets a new number. */
	uint32_t *seen;        /* [name] */
	uint32_t *seen_index;  /* [index id] */
	uint32_t epoch;
	bool reduced;          /* files lack parameters that replicas hold */
	bool absent;           /* a stage that is needed has no file at all */
	uint32_t n_names;      /* names in all files; 0: not counted
				* (rsh_stage_is_part()) */
	uint32_t n_pairs, n_lists;
	struct layout_pair *pairs;
	struct name_list *lists;
	size_t pairs_cap, lists_cap;
	/* Scratch of one rank. */
	struct rsh_marks marks; /* keys that the converter loads */
	struct rsh_marks some;  /* keys that one pair of layouts marks */
	uint32_t *seq;         /* [index id]: a rank that has it */
	uint8_t *whole;        /* [index id], enum rsh_whole (whole.c) */
	struct rsh_slot *slots; /* of a whole file (whole.c) */
	uint32_t slots_of;     /* 1 + the id of the index whose records these
				* are */
	size_t slots_cap;
};

/* rsh_stage_collect_pairs() finds the pairs of layouts, and then
 * rsh_stage_mark_keys() fills p->marks for one rank (loaded_keys.c). */
int rsh_stage_collect_pairs(struct stage_state *p, struct rsh_error *err);
int rsh_stage_mark_keys(struct stage_state *p, uint32_t local);
/* Returns the rank whose file is used for rank `local` if the source has no
 * strategy. */
uint32_t rsh_stage_file_to_copy(const struct stage_state *p, uint32_t local);
/* Returns whether the rank's file lacks a parameter that another file has.
 * (Without a source strategy all files should hold the same.) */
bool rsh_stage_is_part(struct stage_state *p, uint32_t rank);
void rsh_stage_pairs_clear(struct stage_state *p);
/* Returns a copy of p->marks.exact that p->c owns; NULL: out of memory. */
const bool *rsh_stage_keep_keys(struct stage_state *p);

/* Functions of struct rsh_policy; ctx is a struct stage_state (dst_stage.c,
 * records.c). */
int rsh_dst_stage_begin(void *ctx, uint32_t stage, struct rsh_error *err);
bool rsh_dst_stage_deduplicates(void *ctx, uint32_t stage,
			const struct rsh_strategy_param *p);
int rsh_dst_stage_file(void *ctx, struct rsh_shown_file *f,
		   struct rsh_file_names *out, struct rsh_error *err);
int rsh_dst_stage_record(void *ctx, struct rsh_shown_file *f, uint32_t name,
		     struct rsh_record_shape *shape, bool *taken,
		     struct rsh_error *err);
/* Frees the state. */
void rsh_stage_clear(struct stage_state *p);

/* Sets copy_grids[name] by any file that has the record. */
int rsh_stage_learn_copy_grid(struct stage_state *p, uint32_t name,
				struct rsh_error *err);

/* If the file can equal a source file, adds it and sets *taken (whole.c). */
int rsh_stage_take_whole(struct stage_state *p, struct rsh_shown_file *f,
			   bool *taken, struct rsh_error *err);
