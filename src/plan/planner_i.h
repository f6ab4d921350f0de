/* SPDX-License-Identifier: Apache-2.0 */
/* plan/planner_i.h - the state of planning one destination stage, shared by
 * the files that do it:
 *   block.c  which parameters take part; the files in turn
 *   loads.c  which source ranks the converter would load
 *   order.c  the order of the records that follows from it
 *   deal.c   which parameters a rank keeps when redundancy is removed
 *   slots.c  the records of one file
 *   whole.c  a file that is a source file
 *   parts.c  a file that is cut into several
 *   needs.c  the source files that it needs, and those that are lost
 */
#ifndef RSH_PLAN_PLANNER_I_H
#define RSH_PLAN_PLANNER_I_H

#include "conversion_i.h"
#include "framing_i.h"
#include "rsh/strategy/redistribution.h"

enum fate {
	FATE_COPIED,
	FATE_HANDLED,
	FATE_DROPPED, /* belongs to other destination stages only */
};

/* Parameters with the same two layouts load the same keys. */
struct layout_pair {
	const struct rsh_strategy_item *src;
	const struct rsh_strategy_item *dst;
	struct rsh_redistribution *redist; /* NULL: the converter refuses */
	uint32_t transfer; /* of one such parameter; RSH_NO_TRANSFER: none */
	void *classes;     /* a tree of struct key_class (loads.c) */
};

/* The names of a file in order, for one sequence of distinct indexes. */
struct name_list {
	uint32_t n_seq;
	uint32_t *seq;     /* ids of the indexes walked */
	uint32_t n;
	uint32_t n_handled;
	uint32_t *names;   /* handled ones first */
};

/* Marked keys, as far as that makes a difference: of the keys between two that
 * are held all mean the file of the next one, those above the last one wrap
 * around. */
struct rsh_marks {
	bool *exact; /* [held]: this key */
	bool *near;  /* [held + 1]: it, or one between it and the one before;
		      * the last: one above all */
};

struct planner {
	struct rsh_conversion *c;
	uint32_t block;
	struct rsh_block *b;
	uint8_t *fate;         /* [name], enum fate */
	uint32_t *transfer_of; /* [name] */
	/* Epochs in which something was last met; a walk is an epoch. */
	uint32_t *seen;        /* [name] */
	uint32_t *seen_index;  /* [index id] */
	uint32_t epoch;
	bool reduced;          /* files lack parameters that replicas hold */
	bool absent;           /* a stage that is needed has no file at all */
	uint32_t n_held;       /* names in all files, see rsh_plan_is_part() */
	uint32_t n_pairs, n_lists;
	struct layout_pair *pairs;
	struct name_list *lists;
	size_t pairs_cap, lists_cap;
	/* scratch of one rank */
	struct rsh_marks marks; /* keys that the converter loads */
	struct rsh_marks some;  /* those of one pair of layouts */
	bool *used;            /* [global rank] */
	uint32_t n_used;
	uint32_t *used_ranks;  /* [present] */
	bool *dealt;           /* [name]: another rank keeps it; NULL: none */
	uint32_t *by_text;     /* handled names of the destination, bytewise */
	uint32_t n_by_text;
	uint32_t *seq;         /* [index id]: a rank that has it */
	const struct rsh_slot_list **whole; /* [index id]: see whole.c */
	struct rsh_slot *slots;
	struct rsh_record_shape *shapes;
	size_t slots_cap, shapes_cap;
	uint32_t *pair_done;   /* [pair]: 1 + the rank last marked */
};


static inline const struct rsh_strategy_param *
rsh_listed(const struct rsh_strategy *s, uint32_t name)
{
	return s ? rsh_strategy_find(s, name) : NULL;
}

static inline const char *rsh_plan_name(const struct planner *p, uint32_t name)
{
	return rsh_names_text(p->c->names, name);
}

/* Is the parameter of the destination one of this block's ranks? */
bool rsh_plan_in_block(const struct planner *p,
		       const struct rsh_strategy_param *src,
		       const struct rsh_strategy_param *dst);

/* loads.c: finds the pairs of layouts, then marks p->marks for one rank. */
int rsh_plan_collect_pairs(struct planner *p, struct rsh_error *err);
int rsh_plan_mark_keys(struct planner *p, uint32_t local);
/* Without a source strategy: the rank whose file stands for rank `local`'s. */
uint32_t rsh_plan_file_to_copy(const struct planner *p, uint32_t local);
/* Without a source strategy all ranks hold the same: does the rank's file lack
 * what another has? */
bool rsh_plan_is_part(struct planner *p, uint32_t rank);
void rsh_plan_pairs_clear(struct planner *p);
/* The conversion's own copy of p->marks.exact; NULL when memory is out. */
const bool *rsh_plan_keep_keys(struct planner *p);

/* order.c: the names for the marked keys, NULL when memory is out.  Lists are
 * kept for the next rank and valid until another one is asked for. */
const struct name_list *rsh_plan_list_names(struct planner *p);

/* deal.c: fills p->dealt for one rank; nothing to do unless redundancy is to be
 * removed. */
int rsh_plan_deal(struct planner *p, uint32_t local, struct rsh_error *err);

/* slots.c: describes the records of a file, in the converter's order.  The
 * layout's arrays are scratch of the planner. */
int rsh_plan_make_slots(struct planner *p, struct rsh_virtual_file *f,
			const struct name_list *names,
			struct rsh_file_layout *out, struct rsh_error *err);
/* Which slice a copied record is follows from any file that holds one. */
int rsh_plan_learn_copy_grid(struct planner *p, uint32_t name,
			     struct rsh_error *err);
/* The conversion's own copy of a file's records; takes over the layout's
 * header.  NULL when memory is out. */
const struct rsh_slot_list *rsh_plan_keep_list(struct rsh_conversion *c,
					       struct rsh_file_layout *f);
/* Lays them out: fills f->list, and f->sources as rsh_plan_list_sources(). */
int rsh_plan_finish_file(struct planner *p, struct rsh_virtual_file *f,
			 struct rsh_file_layout *layout, struct rsh_error *err);

/* whole.c: makes it a source file, which f->origin then says, if it can be. */
int rsh_plan_take_whole(struct planner *p, struct rsh_virtual_file *f,
			struct rsh_error *err);

/* parts.c: the same for a file that is cut into parts, which take its place at
 * the end of the conversion's files. */
int rsh_plan_cut_file(struct planner *p, const struct rsh_virtual_file *whole,
		      struct rsh_file_layout *layout, struct rsh_error *err);

/* needs.c: a source file that the file at hand needs. */
void rsh_plan_use(struct planner *p, uint32_t rank);
/* None any more. */
void rsh_plan_unuse(struct planner *p);
/* Fills f->sources, or says what is missing.  A slice that no replica
 * holds either is remembered as lost and marks the file. */
int rsh_plan_list_sources(struct planner *p, struct rsh_virtual_file *f,
			  struct rsh_error *err);
/* A copied or handled parameter that no file holds: remembers it, with the
 * sentence, and marks the file.  0 or -ENOMEM. */
int rsh_plan_lose(struct planner *p, struct rsh_virtual_file *f, uint32_t name,
		  struct rsh_error *sentence);
/* -ENOENT and the sentence about a copied parameter that no file holds as the
 * virtual one needs it. */
int rsh_plan_missing_copy(const struct planner *p,
			  const struct rsh_virtual_file *f, uint32_t name,
			  struct rsh_error *err);
/* Why a file would hold nothing that is resharded. */
int rsh_plan_nothing_handled(struct planner *p, struct rsh_virtual_file *f,
			     struct rsh_error *err);
/* No loaded file holds a handled parameter: was it not saved, or lost? */
int rsh_plan_check_absent(struct planner *p, uint32_t name,
			  struct rsh_error *err);

#endif
