/* SPDX-License-Identifier: Apache-2.0 */
/* plan/conversion_i.h - inside of a conversion, for the files of plan/ only.
 *
 * Words: a parameter is *handled* when it is resharded, and *copied* when one
 * source file's record is taken as it is; a *block* is a destination stage; the
 * *key* of a source file is its rank within its stage, which is how the
 * converter tells slices apart.
 */
#ifndef RSH_PLAN_CONVERSION_I_H
#define RSH_PLAN_CONVERSION_I_H

#include "rsh/strategy/grid.h"
#include "rsh/plan/conversion.h"

#define RSH_NO_TRANSFER UINT32_MAX
#define RSH_NO_RANK UINT32_MAX

/* A file that holds a slice. */
struct rsh_holder {
	uint32_t place; /* rsh_grid_place() of its key */
	uint32_t rank;  /* global */
	uint32_t key;
};

/* The files that hold the slices of one parameter, or of several that are cut
 * alike and lie in the same files. */
struct rsh_supply {
	const struct rsh_grid *grid;
	bool replicas;          /* they make up for files that are missing */
	uint32_t *own;          /* [held]: its global rank, or RSH_NO_RANK */
	uint32_t n;
	struct rsh_holder *at;  /* by place */
	uint32_t n_cells;       /* slices that some file holds */
	uint32_t *all;          /* [key], or NULL if that would be too many */
};

/* Two grids, and so which source slices a destination rank's slice touches,
 * and the files that supply them. */
struct rsh_grid_pair {
	const struct rsh_grid *src;
	const struct rsh_grid *dst;
	const struct rsh_supply *supply;
};

/* The source slices that a destination slice touches: in each dimension
 * from .. to - 1. */
struct rsh_box {
	uint32_t n_dims;
	uint32_t from[RSH_MAX_DIMS];
	uint32_t to[RSH_MAX_DIMS];
	uint64_t n_cells;
};

/* Neighbouring dimensions that are contiguous in both slices, as one: a
 * leading dimension that may be cut differently, and inner ones that are cut
 * alike.  Lengths are in units: bytes, or elements where there is a codec. */
struct rsh_span_dim {
	uint64_t src_len;    /* of a source slice along it */
	uint64_t dst_len;    /* of a destination slice */
	uint64_t src_stride; /* between two neighbours in a source slice */
	uint32_t lead;       /* the leading dimension */
};

/* How one parameter gets from its source slices to the destination slices of
 * one block. */
struct rsh_transfer {
	uint32_t name;
	uint32_t pair;          /* index into rsh_conversion.pairs */
	bool reduced;           /* a file that is there lacks it */
	bool lost;              /* slices are needed that no file holds */
	uint8_t dtype;          /* enum rsh_dtype, as emitted */
	uint8_t codec;          /* enum rsh_codec */
	uint8_t n_dims;
	uint8_t n_spans;
	uint64_t content_bytes; /* of a destination slice, as emitted */
	const int64_t *dims;    /* of a destination slice */
	struct rsh_span_dim spans[];
};

/* One record of a virtual file. */
struct rsh_slot {
	uint64_t offset;        /* of its first header in the file */
	uint64_t content_bytes; /* as emitted */
	uint32_t name;
	uint32_t transfer;      /* RSH_NO_TRANSFER: copied */
};

/* The records of a virtual file; shared by the ranks whose files have the
 * same. */
struct rsh_slot_list {
	uint64_t bytes;
	uint8_t *header;        /* before the first record; NULL: nothing */
	size_t header_bytes;
	uint32_t n;
	struct rsh_slot slots[];
};

/* What all ranks of one destination stage share. */
struct rsh_block {
	uint32_t n_stages;      /* source stages that are loaded, ascending */
	uint32_t *stages;
};

struct rsh_virtual_file {
	const struct rsh_slot_list *list;
	const struct rsh_block *block;
	const bool *keys;       /* [held]: keys the converter loads */
	uint32_t local;         /* rank within its stage */
	uint32_t copy_key;      /* key that copied records are taken from */
	uint32_t origin;        /* the rank whose file it is, byte for byte, or
				 * RSH_NO_RANK (whole.c) */
	uint32_t n_sources;
	uint32_t *sources;
	bool lost;              /* needs a slice that cannot be had */
};

/* A way in which the result differs from the converter's. */
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
	uint32_t n;       /* parameters that it applies to */
	uint32_t example; /* name id of the first */
	const char *path; /* of its file; NULL: of no certain one */
	char *text;       /* made by rsh_notes_write() */
};

/* A parameter of which slices are lost. */
struct rsh_lost {
	uint32_t name;
	uint32_t transfer; /* RSH_NO_TRANSFER: a copied or unseen parameter */
};

struct rsh_framing;

struct rsh_conversion {
	const struct rsh_strategy *src; /* NULL: unsharded */
	const struct rsh_strategy *dst;
	bool compat;
	bool replicas;
	bool allow_missing;
	enum rsh_format format; /* of the virtual files */
	enum rsh_format src_format;
	const struct rsh_framing *framing;
	uint64_t part_bytes;  /* 0: files are not cut into parts */
	enum rsh_dtype cast;
	enum rsh_unlisted unlisted;
	bool remove_redundancy;
	bool filtered;        /* some names may be unwanted */
	bool *unwanted;       /* [name]: left out */
	const char **renamed; /* [name]: what is written instead, or NULL */
	bool joined;            /* rank 0's index is of several files */
	bool same;              /* files are shown as they are (whole.c) */
	uint32_t *same_as;      /* [source rank]: the lowest that holds the same
				 * slices; NULL: nobody asks */
	uint32_t n_whole;       /* files with an origin */
	bool by_stage;          /* the converter's by-stage dispatch applies */
	uint32_t first_rank;    /* global rank of source stage 0, key 0 */
	uint32_t stage_ranks;   /* source ranks a stage */
	uint32_t n_stages;      /* source stages */
	uint32_t dst_ranks;     /* destination ranks a stage */

	struct rsh_names *names;
	uint32_t n_names;
	uint32_t n_view;
	const struct rsh_ckpt_index **index; /* [global rank] */
	char **path;                         /* [global rank], may be NULL */
	uint32_t *index_id;  /* [global rank]: equal for a shared index */
	uint32_t n_indexes;  /* distinct ones */
	/* The files that are there (present.c). */
	uint32_t n_present;
	uint32_t *present;   /* their global ranks, ascending */
	uint32_t n_held;
	uint32_t *held;      /* keys of which some stage has one, ascending */

	uint32_t n_grids, n_supplies, n_pairs, n_transfers, n_lists, n_blocks,
		n_files;
	struct rsh_grid **grids;
	struct rsh_supply **supplies;
	/* [name]: how the source cuts a copied parameter that it lists; NULL:
	 * not known.  Not owned. */
	const struct rsh_grid **copy_grids;
	struct rsh_grid_pair *pairs;
	struct rsh_transfer **transfers;
	struct rsh_slot_list **lists;
	struct rsh_block *blocks;
	struct rsh_virtual_file *files;
	void *key_sets; /* a tree of struct key_set (loads.c) */
	size_t grids_cap, supplies_cap, pairs_cap, transfers_cap, lists_cap;

	uint32_t n_lost;
	struct rsh_lost *lost;
	size_t lost_cap;
	bool *lost_whole;   /* [name]: it is in `lost` without a transfer */
	struct rsh_error first_lost;

	char suffix[32];
	struct rsh_note_state notes[RSH_NOTE_COUNT];
};

/* ---- looking things up, while planning and while reading (lookup.c) ---- */

/* Global source rank of a stage and key. */
static inline uint32_t rsh_source_rank(const struct rsh_conversion *c,
				       uint32_t stage, uint32_t key)
{
	return c->first_rank + stage * c->stage_ranks + key;
}

/* `avoid` as in rsh_piece_iter_new(). */
static inline bool rsh_is_avoided(const atomic_bool *avoid, uint32_t rank)
{
	return avoid && atomic_load_explicit(&avoid[rank],
					     memory_order_relaxed);
}

/* ---- the files that are there (present.c) ---- */

int rsh_present_make(struct rsh_conversion *c);
/* The first of c->present that is no lower than the rank, of c->held that is no
 * lower than the key; their number if none is. */
uint32_t rsh_present_from(const struct rsh_conversion *c, uint32_t rank);
uint32_t rsh_held_from(const struct rsh_conversion *c, uint32_t key);
/* Those of one stage: c->present[*from] .. c->present[*to - 1]. */
void rsh_stage_present(const struct rsh_conversion *c, uint32_t stage,
		       uint32_t *from, uint32_t *to);

/* ---- files that are a source file (whole.c) ---- */

/* Finds out whether both sides cut alike and nothing is asked for that changes
 * files: c->same, c->same_as.  1, 0 or -ENOMEM. */
int rsh_whole_prepare(struct rsh_conversion *c);
/* Do the source ranks hold the same slice of everything? */
bool rsh_holds_same(const struct rsh_conversion *c, uint32_t a, uint32_t b);
/* Where the record's content ends in its file; 0 if it has none. */
uint64_t rsh_whole_record_end(const struct rsh_ckpt_index *ix,
			      const struct rsh_record *r);

/* ---- which file supplies what (supply.c) ---- */

/* The conversion's own supply for slices cut by `grid` of which own[held] are
 * the files; takes `own` over.  0 or -ENOMEM. */
int rsh_supply_keep(struct rsh_conversion *c, const struct rsh_grid *grid,
		    uint32_t *own, const struct rsh_supply **out);
void rsh_supply_free(struct rsh_supply *s);
/* RSH_NO_RANK where no file does. */
uint32_t rsh_supply_rank(const struct rsh_supply *s, uint32_t key);

/* ---- looking things up ---- */

/* The index of a rank's file, NULL if there is none. */
const struct rsh_ckpt_index *rsh_rank_index(const struct rsh_conversion *c,
					    uint32_t rank);
/* The record of `name` in a rank's file, NULL if file or record is missing. */
const struct rsh_record *rsh_rank_record(const struct rsh_conversion *c,
					 uint32_t rank, uint32_t name);
/* Does the stage cut the parameter as the layout that counts does? */
bool rsh_stage_fits(const struct rsh_conversion *c, uint32_t name,
		    uint32_t stage);
/* The file with this key of the lowest loaded stage that holds the name.
 * `avoid` as in rsh_piece_iter_new().  False when none does. */
bool rsh_find_in_stages(const struct rsh_conversion *c,
			const struct rsh_block *b, uint32_t name, uint32_t key,
			const atomic_bool *avoid, uint32_t *rank);
/* The same among the other ranks that `g` gives the slice of `key`. */
bool rsh_find_replica(const struct rsh_conversion *c,
		      const struct rsh_block *b, const struct rsh_grid *g,
		      uint32_t name, uint32_t key, const atomic_bool *avoid,
		      uint32_t *rank);
/* The file that supplies the slice `key` of a handled parameter: the one that
 * was planned or, if that is to be avoided, a replica's.  False when no file
 * does. */
bool rsh_transfer_source(const struct rsh_conversion *c,
			 const struct rsh_block *b,
			 const struct rsh_transfer *t, uint32_t key,
			 const atomic_bool *avoid, uint32_t *rank);
/* The file that a copied parameter is taken from: the lowest loaded stage's
 * with the file's copy key, or else (*elsewhere, which may be NULL) a replica's
 * if the source's strategy lists it, or the one of the lowest key that was
 * loaded.  False when no file holds it. */
bool rsh_copy_source(const struct rsh_conversion *c,
		     const struct rsh_virtual_file *f, uint32_t name,
		     const atomic_bool *avoid, uint32_t *rank, bool *elsewhere);
/* What a copied record looks like when emitted. */
void rsh_copy_shape(const struct rsh_conversion *c,
		    const struct rsh_ckpt_index *ix, const struct rsh_record *r,
		    struct rsh_record_shape *out, enum rsh_codec *codec);
/* An empty vector, which the converter reads as a scalar and writes as the
 * number 0 (compat). */
bool rsh_becomes_zero(const struct rsh_ckpt_index *ix,
		      const struct rsh_record *r);
/* Does the converter drop tensors without elements? */
bool rsh_drops_empty(const struct rsh_conversion *c);
/* A destination slice of the transfer as a record. */
void rsh_transfer_shape(const struct rsh_conversion *c,
			const struct rsh_transfer *t,
			struct rsh_record_shape *out);
/* How a record's elements become the virtual file's, and of which type they are
 * then. */
enum rsh_codec rsh_record_codec(const struct rsh_conversion *c,
				const struct rsh_record *r,
				enum rsh_dtype *dtype);
/* The name that is written for a parameter. */
const char *rsh_written_name(const struct rsh_conversion *c, uint32_t name);
/* The slices of which local destination rank `local` needs a byte, and the keys
 * that it has them of. */
void rsh_pair_box(const struct rsh_grid_pair *p, uint32_t local,
		  struct rsh_box *out);
void rsh_box_keys(const struct rsh_grid_pair *p, const struct rsh_box *box,
		  uint32_t local, rsh_key_fn *each, void *ctx);

/* ---- planning ---- */

/* Creates the transfer of a handled parameter for the ranks of a block
 * (transfer.c).  *out is RSH_NO_TRANSFER when no loaded file holds it. */
int rsh_transfer_make(struct rsh_conversion *c, const struct rsh_block *b,
		      uint32_t block, uint32_t name, uint32_t *out,
		      struct rsh_error *err);

/* A codec works on whole elements, so no chunk of a record may end within one
 * (transfer.c). */
int rsh_check_chunks(const struct rsh_conversion *c, uint32_t rank,
		     const struct rsh_record *r, struct rsh_error *err);

/* Finds how the source cuts a copied parameter: c->copy_grids (transfer.c). */
int rsh_copy_grid_make(struct rsh_conversion *c, uint32_t name,
		       const struct rsh_ckpt_index *ix,
		       const struct rsh_record *r, struct rsh_error *err);

/* Plans the files of all ranks of a block (block.c). */
int rsh_block_plan(struct rsh_conversion *c, uint32_t block,
		   struct rsh_error *err);

/* Remembers a parameter of which slices cannot be had; the first one's sentence
 * is kept.  -ENOMEM or 0.  At the end, tells the slices, as many as make sense,
 * and, unless they are allowed, fails (lost.c). */
int rsh_lost_add(struct rsh_conversion *c, const struct rsh_lost *lost,
		 const struct rsh_error *sentence);
int rsh_lost_report(struct rsh_conversion *c,
		    void (*report)(void *ctx, const char *sentence), void *ctx,
		    struct rsh_error *err);

/* Counts a difference, and at the end writes the sentences (notes.c). */
void rsh_note_add(struct rsh_conversion *c, enum rsh_note note, uint32_t name);
/* The file of a rank lacks the record, and another one makes up for it. */
void rsh_note_add_lacking(struct rsh_conversion *c, uint32_t rank,
			  uint32_t name);
int rsh_notes_write(struct rsh_conversion *c);

#endif
