/* SPDX-License-Identifier: Apache-2.0 */
/* converter/planner_i.h - the state of planning one destination stage, shared
 * by the files that do it:
 *   block.c  which parameters take part, and what a file has
 *   loads.c  which source ranks the converter would load
 *   order.c  the order of the records that follows from it
 *   slots.c  one record
 *   whole.c  a file that is a source file
 */
#ifndef RSH_CONVERTER_PLANNER_I_H
#define RSH_CONVERTER_PLANNER_I_H

#include "converter_i.h"
#include "rsh/converter/redistribution.h"
#include "rsh/plan/policy.h"

enum fate {
	FATE_COPIED,
	FATE_HANDLED,
	FATE_DROPPED, /* left out, or of other destination stages only */
};

/* Parameters with the same two layouts load the same keys. */
struct layout_pair {
	const struct rsh_strategy_item *src;
	const struct rsh_strategy_item *dst;
	struct rsh_redistribution *redist; /* NULL: the converter refuses */
	uint32_t shown;    /* a parameter with them; RSH_NO_SHOWN: none */
	void *classes;     /* a tree of struct key_class (loads.c) */
};

/* This is the list of a file's names in order, for one sequence of distinct
 * indexes. */
struct name_list {
	uint32_t n_seq;
	uint32_t *seq;     /* ids of the indexes, in the order of loading */
	uint32_t n;
	uint32_t n_handled;
	uint32_t *names;   /* handled ones first */
};

/* These are the marked keys, as far as that makes a difference: all keys
 * between two that are held mean the file of the next one, and those above the
 * last one mean that of the first. */
struct rsh_marks {
	bool *exact; /* [held]: this key is marked */
	bool *near;  /* [held + 1]: this key is marked, or one between it and
		      * the held one before; the last entry: one above all held
		      * ones is */
};

struct planner {
	struct rsh_converter *c;
	struct rsh_writing *w;
	/* What follows is of one block. */
	uint32_t block;
	struct rsh_block *b;
	uint8_t *fate;         /* [name], enum fate */
	uint32_t *shown_of;    /* [name]: number of the shown tensor; it is
				* w->shown */
	/* These are the epochs in which something was last met; each pass over
	 * names or files is an epoch. */
	uint32_t *seen;        /* [name] */
	uint32_t *seen_index;  /* [index id] */
	uint32_t epoch;
	bool reduced;          /* files lack parameters that replicas hold */
	bool absent;           /* a stage that is needed has no file at all */
	uint32_t n_names;      /* names in all files; 0: not counted
				* (rsh_planner_is_part()) */
	uint32_t n_pairs, n_lists;
	struct layout_pair *pairs;
	struct name_list *lists;
	size_t pairs_cap, lists_cap;
	/* What follows is scratch of one rank. */
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

/* rsh_planner_collect_pairs() finds the pairs of layouts, and then
 * rsh_planner_mark_keys() fills p->marks for one rank (loads.c). */
int rsh_planner_collect_pairs(struct planner *p, struct rsh_error *err);
int rsh_planner_mark_keys(struct planner *p, uint32_t local);
/* Gives the rank whose file stands for that of rank `local` where the source
 * has no strategy. */
uint32_t rsh_planner_file_to_copy(const struct planner *p, uint32_t local);
/* Without a source strategy all ranks hold the same: does the rank's file lack
 * what another has? */
bool rsh_planner_is_part(struct planner *p, uint32_t rank);
void rsh_planner_pairs_clear(struct planner *p);
/* Gives a copy of p->marks.exact that p->c owns; NULL: out of memory. */
const bool *rsh_planner_keep_keys(struct planner *p);

/* Gives the names for the marked keys (order.c); NULL: out of memory.  Lists
 * are kept for the next rank, and valid until another one is asked for. */
const struct name_list *rsh_planner_list_names(struct planner *p);

/* These are what struct rsh_policy asks for, of which ctx is the planner
 * (block.c, slots.c). */
int rsh_block_stage(void *ctx, uint32_t stage, struct rsh_error *err);
bool rsh_block_is_dealt(void *ctx, uint32_t stage,
			const struct rsh_strategy_param *p);
int rsh_block_file(void *ctx, struct rsh_shown_file *f,
		   struct rsh_file_names *out, struct rsh_error *err);
int rsh_block_record(void *ctx, struct rsh_shown_file *f, uint32_t name,
		     struct rsh_record_shape *shape, bool *taken,
		     struct rsh_error *err);
/* Frees what the planner has of a block. */
void rsh_planner_clear(struct planner *p);

/* Learns which slice a copied record is, from any file that holds one. */
int rsh_planner_learn_copy_grid(struct planner *p, uint32_t name,
				struct rsh_error *err);

/* Adds a file as a source file if it can be one, and sets *taken then
 * (whole.c). */
int rsh_planner_take_whole(struct planner *p, struct rsh_shown_file *f,
			   bool *taken, struct rsh_error *err);

#endif
