/* SPDX-License-Identifier: Apache-2.0 */
/* plan/converter/dst_stage_i.h - the state of planning one destination stage,
 * for the files of converter/ only:
 *   dst_stage.c    which parameters are resharded, which records a file has
 *   loaded_keys.c  which source ranks the converter would load
 *   records.c      one record
 *   whole.c        files that equal a source file */
#pragma once

#include "converter_i.h"
#include "rsh/plan/redistribution.h"
#include "rsh/plan/policy.h"

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

static inline const struct rsh_strategy_param *
rsh_listed(const struct rsh_strategy *s, uint32_t name)
{
	return s ? rsh_strategy_find(s, name) : NULL;
}

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
