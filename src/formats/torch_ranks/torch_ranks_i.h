/* SPDX-License-Identifier: Apache-2.0 */
/* formats/torch_ranks/torch_ranks_i.h - files of torch.save() that each have
 * one rank's part of every tensor: verl, SkyRL, any program that saves
 * model.state_dict() after fully_shard(), torch_checkpointing.
 *
 *   names.c     names of files: which rank, which world, which item
 *   listing.c   the files of a source, its steps, the bid
 *   chosen.c    what the files of the chosen step are
 *   spec.c      what a pickle says about a tensor: mesh, placements, boxes
 *   metadata.c  the same from the metadata.pkl of torch_checkpointing
 *   cut.c       which elements a rank has: arithmetic
 *   file.c      what one file has
 *   describe.c  all files together, as a distributed checkpoint
 *               (formats/dcp.h), whose reader does the rest
 *   optimizer.c names of the optimizer's states
 *
 * Terms are torch's: a mesh has dimensions and ranks; a tensor has for each
 * dimension of its mesh a placement, which says what that dimension does to it.
 * An item is what the files of all ranks have under one name: the model, the
 * optimizer. */
#pragma once

#include <pthread.h>

#include "rsh/formats/joined.h"
#include "rsh/formats/torch.h"
#include "rsh/source/format.h"
#include "rsh/util/arena.h"
#include "rsh/util/names.h"
#include "rsh/wire/pickle_values.h"

/* torch has no limit, and jobs have 5 at most. */
#define RSH_MESH_DIMS_MAX 8
#define RSH_MESH_RANKS_MAX 65536
/* A larger factor of a strided shard is not from a job. */
#define RSH_SPLIT_FACTOR_MAX 65536

/* ---- how a tensor is distributed (spec.c) ---- */

struct rsh_ranks_mesh {
	uint32_t n_dims, dims[RSH_MESH_DIMS_MAX];
	uint32_t n; /* product of dims */
	const uint32_t *ranks; /* in row-major order, each once */
	char text[64]; /* for people: "dp=2, tp=4" or "2, 4" */
};

struct rsh_ranks_placement {
	enum rsh_ranks_placed {
		RSH_RANKS_REPLICATED,
		RSH_RANKS_SHARDED,
		RSH_RANKS_STRIDED, /* by `factor` */
		RSH_RANKS_PARTIAL, /* each rank has a summand */
	} kind;
	uint32_t axis;
	uint32_t factor;
};

static inline bool rsh_ranks_is_cut(const struct rsh_ranks_placement *p)
{
	return p->kind == RSH_RANKS_SHARDED || p->kind == RSH_RANKS_STRIDED;
}

/* This is the same for all tensors of a model that are distributed in one way;
 * equal ones are one object. */
struct rsh_ranks_how {
	const struct rsh_ranks_mesh *mesh;
	struct rsh_ranks_placement placements[RSH_MESH_DIMS_MAX]; /* [dim] */
	/* The order in which dimensions of the mesh cut the tensor. */
	uint8_t order[RSH_MESH_DIMS_MAX];
};

/* All distinct ways of a step.  Any thread may add to it. */
struct rsh_ranks_ways {
	pthread_mutex_t lock; /* guards all below */
	struct rsh_arena arena;
	struct rsh_ranks_mesh **meshes;
	struct rsh_ranks_how **hows;
	size_t n_meshes, cap_meshes, n_hows, cap_hows;
	struct rsh_names *names; /* NULL: there is none yet */
};

void rsh_ranks_ways_clear(struct rsh_ranks_ways *w);
/* Returns the text as all files of the step share it; NULL: memory is out. */
const char *rsh_ranks_text_keep(struct rsh_ranks_ways *w, const char *text);
/* Returns the object that equals *h, which is added if there is none; NULL:
 * memory is out. */
const struct rsh_ranks_how *rsh_ranks_how_keep(struct rsh_ranks_ways *w,
					       const struct rsh_ranks_how *h);
/* Returns whether both cut a tensor alike, perhaps over other ranks. */
bool rsh_ranks_how_alike(const struct rsh_ranks_how *a,
			 const struct rsh_ranks_how *b);

/* A box of a tensor, of as many dimensions as it has. */
struct rsh_ranks_box {
	const uint64_t *from, *size;
	uint32_t rank; /* which should have it; UINT32_MAX: unknown */
};

/* This is what one rank's file says about a tensor. */
struct rsh_ranks_spec {
	const char *name;
	enum rsh_dtype dtype;
	uint32_t n_dims;
	const uint64_t *dims; /* of the whole tensor */
	/* NULL: the rank has boxes (ShardedTensor). */
	const struct rsh_ranks_how *how;
	uint32_t rank;  /* that of the file */
	uint32_t place; /* of the rank in the mesh; UINT32_MAX: not in it */
	/* Of a ShardedTensor: the boxes of this rank, one for each piece, and
	 * those of all ranks. */
	uint32_t n_boxes, n_all;
	const struct rsh_ranks_box *boxes, *all;
	/* The keys of its name, only from metadata.pkl. */
	uint32_t n_keys;
	const struct rsh_path_key *keys;
};

/* Reads the specs of one file; its members are set by the caller. */
struct rsh_ranks_specs {
	struct rsh_ranks_ways *ways;
	struct rsh_arena *arena; /* owns what is read */
	/* In the order of the file; from malloc while they are read. */
	struct rsh_ranks_spec *v;
	size_t n, cap;
	/* The last mesh, which most tensors share, and where it was read. */
	const void *seen;
	const struct rsh_ranks_mesh *mesh;
	uint32_t rank, place;
	uint32_t world; /* 1 + the highest rank that any mesh names */
	/* Shapes that were kept last: most tensors have one of a few. */
	struct {
		const uint64_t *dims;
		uint32_t n;
	} recent[8];
	uint32_t n_kept;
};
/* Returns n sizes that equal those, which the arena owns; NULL: memory is
 * out. */
const uint64_t *rsh_ranks_dims_keep(struct rsh_ranks_specs *s,
				    const uint64_t *dims, uint32_t n);
/* Sets *out to the list of ranks, from malloc (NULL: memory is out), and their
 * number; false: v is no such list. */
bool rsh_ranks_list_read(const struct rsh_pickle_value *v, uint32_t **out,
			 uint32_t *n);
/* Sets the dimensions of a mesh and their product; false: v is no such list. */
bool rsh_ranks_mesh_sizes(const struct rsh_pickle_value *v,
			  struct rsh_ranks_mesh *m);

/* A tensor of which something is read, for messages. */
struct rsh_ranks_reading {
	struct rsh_ranks_specs *specs;
	const char *path, *name;
	struct rsh_error *err;
};
/* These return 0 or -errno with a sentence. */
int rsh_ranks_bad(const struct rsh_ranks_reading *r, const char *what);
/* Sets n_dims and dims of *out. */
int rsh_ranks_shape_read(const struct rsh_ranks_reading *r,
			 const struct rsh_pickle_value *v,
			 struct rsh_ranks_spec *out);
/* Checks the ranks of a mesh, sets its text, with the names of its dimensions
 * if there are some, and *out to the object that equals it. */
int rsh_ranks_mesh_finish(const struct rsh_ranks_reading *r,
			  struct rsh_ranks_mesh *m,
			  const struct rsh_pickle_value *names,
			  const struct rsh_ranks_mesh **out);
/* Reads the placement of that name; `of` has its members. */
int rsh_ranks_placement_read(const struct rsh_ranks_reading *r,
			     const char *name,
			     const struct rsh_pickle_value *of, uint32_t n_dims,
			     struct rsh_ranks_placement *out);
int rsh_ranks_spec_add(const struct rsh_ranks_reading *r,
		       const struct rsh_ranks_spec *spec);
/* Is `take` of struct rsh_torch_parts; ctx is a struct rsh_ranks_specs. */
int rsh_ranks_spec_take(void *ctx, const char *path, const char *name,
			const struct rsh_pickle_value *args,
			const struct rsh_pickle_value
				*pieces[RSH_TORCH_PIECES_MAX],
			uint32_t *n, struct rsh_error *err);
/* ---- which elements a rank has (cut.c) ---- */

/* How one axis of a tensor is cut: piece i has the indexes in the runs
 * first[i] .. first[i+1]-1. */
struct rsh_ranks_cut {
	uint32_t n; /* pieces */
	uint32_t *first; /* [n + 1] */
	struct rsh_ranks_run {
		uint64_t from, n;
	} *runs;
	size_t n_runs, cap_runs;
	uint64_t *length; /* [n]: of the pieces */
};
/* Computes the pieces of an axis of `size` elements.  *budget is how many runs
 * may still be made.  Returns 0, -ENOMEM, or -EFBIG if there are more.  The
 * caller must call rsh_ranks_cut_clear(), also after a failure. */
int rsh_ranks_cut_axis(const struct rsh_ranks_how *h, uint32_t axis,
		       uint64_t size, uint64_t *budget,
		       struct rsh_ranks_cut *out);
void rsh_ranks_cut_clear(struct rsh_ranks_cut *c);
/* Sets the piece that the rank at a place in the mesh has, and its range.
 * Returns false if a factor divides the axis itself, so that pieces have
 * several runs. */
bool rsh_ranks_cut_range(const struct rsh_ranks_how *h, uint32_t axis,
			 uint64_t size, uint32_t place, uint32_t *piece,
			 uint64_t *from, uint64_t *length);

/* ---- one file (file.c) ---- */

/* A tensor of a file. */
struct rsh_ranks_entry {
	const char *name;   /* in the file */
	const char *key;    /* of its record: the name, or that of a piece */
	enum rsh_dtype dtype;
	uint32_t n_dims;
	const uint64_t *dims; /* of what the file has */
	/* NULL: a plain tensor, which is whole. */
	const struct rsh_ranks_spec *spec;
	bool undescribed;   /* metadata.pkl should have a spec, and has none */
	uint32_t piece;     /* of the spec: 0, 1, ... */
	uint32_t storage;   /* its number, and the first element in it: */
	uint64_t from;      /* equal for two names of one parameter */
	bool has_crc;       /* of exactly these elements */
	uint32_t crc;
	uint64_t offset, bytes; /* in the file, with gaps between elements */
	/* The order of the dimensions in which it is stored; NULL: row-major.
	 * Not set if there are gaps. */
	const uint8_t *order;
	uint32_t n_keys;    /* see struct rsh_torch_tensor */
	const struct rsh_path_key *keys;
};

struct rsh_ranks_file {
	struct rsh_arena arena; /* first: rsh_joined_file_free() */
	struct rsh_ranks_entry *v; /* in the order of the file */
	uint32_t n;
	/* All tensors of which it has a part, even an empty one. */
	struct rsh_ranks_specs specs;
	uint32_t rank; /* by its content; UINT32_MAX: nothing says it */
	/* With numbers of parameters: param_groups of an optimizer. */
	uint32_t n_groups, n_params;
};

/* Is `read` of struct rsh_joined_format.  Of the state it uses `listed` and
 * `ways`. */
struct rsh_tc_file;
int rsh_ranks_file_read(void *state, uint32_t file,
			const struct rsh_byte_source *bytes, bool full,
			struct rsh_names *names, void **out,
			struct rsh_ckpt_index **index, struct rsh_error *err);
/* Returns whether a value is a list of numbers of parameters:
 * param_groups.0.params and so on. */
bool rsh_ranks_is_params(const struct rsh_torch_value *v);

/* ---- the metadata.pkl of torch_checkpointing (metadata.c) ---- */

#define RSH_TC_METADATA "metadata.pkl"
/* A file that it names. */
struct rsh_tc_file {
	const struct rsh_pickle_value *item; /* its name; its value follows */
	uint32_t rank;
	const char *name; /* below SOURCE */
	bool has_names;   /* it is a safetensors file */
};
struct rsh_tc {
	struct rsh_arena arena;
	const struct rsh_pickle_value *items; /* a dictionary */
	struct rsh_tc_file *files;
	size_t n_files;
};
int rsh_tc_load(const struct rsh_source *s, struct rsh_tc **out,
		struct rsh_error *err);
void rsh_tc_free(struct rsh_tc *tc); /* tc may be NULL */
/* Returns the file that a rank has in the place of `like`; NULL: it has
 * none. */
const char *rsh_tc_find_file(const struct rsh_tc *tc, const char *like,
			     uint32_t rank);
/* Adds what is said about the tensors of a file; `path` is for messages. */
int rsh_tc_specs(const struct rsh_tc_file *file, const char *path,
		 struct rsh_ranks_specs *specs, struct rsh_error *err);

/* ---- names of files (names.c) ---- */

enum rsh_ranks_role {
	RSH_RANKS_MODEL,
	RSH_RANKS_OPTIMIZER,
	RSH_RANKS_VALUES, /* none of its tensors is shown */
};

/* What a name says: model_world_size_8_rank_3.pt. */
struct rsh_ranks_name {
	enum rsh_ranks_role role;
	uint32_t world, rank;
	size_t at, n; /* the digits of the rank */
};
/* Returns false if verl and SkyRL do not write such a name. */
bool rsh_ranks_name_read(const char *name, struct rsh_ranks_name *out);

/* Returns whether a name ends as those of torch.save() do. */
bool rsh_ranks_has_suffix(const char *name);

/* Files whose names differ only in one number, which is that of the rank. */
struct rsh_ranks_group {
	const char *stem; /* what is before it, without punctuation at the
			   * end */
	uint32_t n;
	struct rsh_ranks_numbered {
		const char *name;
		size_t at, n;    /* the digits of the number */
		uint64_t number; /* the rank */
	} *v; /* [n], ascending by rank */
};
/* Finds the groups of at least two of n names, which ascend, that have a suffix
 * of torch.save(), the same number as the only difference.  Returns 0 or
 * -ENOMEM. */
int rsh_ranks_groups_find(const char *const *names, size_t n,
			  struct rsh_arena *arena,
			  struct rsh_ranks_group **out, size_t *n_out);

/* ---- a source (listing.c) ---- */

/* What the files of all ranks have under one name. */
struct rsh_ranks_item {
	enum rsh_ranks_role role;
	const char *word; /* before the names of its tensors; NULL: nothing */
};

/* A file of the chosen step; its number is that in the source. */
struct rsh_ranks_listed {
	uint32_t item;
	uint32_t rank; /* by its name */
	size_t at, n;  /* the digits of the rank in the name */
	/* A safetensors file, whose tensors metadata.pkl describes; NULL: it is
	 * none. */
	const struct rsh_tc_file *described;
};

/* Parameters of the model by their numbers in the optimizer. */
struct rsh_ranks_params {
	uint32_t n;
	const struct rsh_ranks_entry **v; /* [n] */
};

/* The state of a source. */
struct rsh_source_ranks {
	struct rsh_joined all; /* files of struct rsh_ranks_file */
	struct rsh_ranks_ways ways;
	uint32_t world;  /* by the names; 0: they do not say it */
	uint32_t n_items;
	struct rsh_ranks_item *items;
	struct rsh_ranks_listed *listed; /* [all.n] */
	/* A file with values of the lowest rank; NULL: none. */
	const char *values;
	/* Another model in the same step; NULL: none. */
	const char *critic;
	struct rsh_tc *tc; /* metadata.pkl; NULL: none */

	/* ---- set by describe ---- */
	struct rsh_ranks_params params;
	/* No state of the optimizer is shown: it is of flat parameters. */
	bool is_flat;
};

/* Returns what a file of the step is. */
static inline enum rsh_ranks_role
rsh_ranks_role_of(const struct rsh_source_ranks *st, uint32_t file)
{
	return st->items[st->listed[file].item].role;
}

/* ---- the chosen step (chosen.c) ---- */

/* Makes room for n files, whose items are the model and the optimizer.  Returns
 * 0 or -ENOMEM; st may be NULL. */
int rsh_ranks_state_init(struct rsh_source_ranks *st, size_t n);
int rsh_ranks_choose(struct rsh_source *s, uint32_t candidate,
		     struct rsh_error *err);
extern const struct rsh_joined_format rsh_ranks_files;

/* ---- a source (listing.c) ---- */

int rsh_ranks_bid(const struct rsh_look *look, struct rsh_bid_more *more);
int rsh_ranks_open(struct rsh_source *s, const struct rsh_source_options *opts,
		   struct rsh_error *err);

/* ---- all files (describe.c, optimizer.c) ---- */

/* Is `judge` of struct rsh_joined_format: nobody knows what an item has of
 * which no file can be read, nor a rank that shares no tensor with others. */
void rsh_ranks_judge_files(const void *state, bool optimizer,
			   struct rsh_error *wrong);
/* Returns the file of the lowest rank that was read of an item; all.n: there is
 * none. */
uint32_t rsh_ranks_lowest(const struct rsh_source_ranks *st, uint32_t item);
/* Finds out which parameter each number of the optimizer means, from the files
 * of the lowest rank. */
int rsh_ranks_params_find(struct rsh_source_ranks *st);
/* Returns the parameter of which "state.12.exp_avg" of an item is a state;
 * NULL: it is not known. */
const struct rsh_ranks_entry *
rsh_ranks_param_of(const struct rsh_source_ranks *st, uint32_t item,
		   const char *name);
/* Returns the name that a tensor or value of an item has, and its keys (n is 0:
 * the name is the only key), from the arena; NULL: memory is out. */
int rsh_ranks_name_show(const struct rsh_source_ranks *st, uint32_t item,
			const char *name, const struct rsh_path_key *keys,
			uint32_t n_keys, struct rsh_arena *arena,
			struct rsh_joined_value *out);

#define RSH_RANKS_STEP "global_step_"
/* Reads the step from n bytes of the name of its directory. */
bool rsh_ranks_step_read(const char *name, size_t n, uint64_t *step);
