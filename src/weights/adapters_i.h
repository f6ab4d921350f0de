/* SPDX-License-Identifier: Apache-2.0 */
/* weights/adapters_i.h - what adapters do to an offer; for adapters.c,
 * adapters_merge.c, own_adapters.c and peft.c only. */
#pragma once

#include "rsh/plan/writer.h"
#include "rsh/util/arena.h"
#include "rsh/weights/adapters.h"

struct adapters_change {
	uint32_t n;
	struct rsh_low_rank *by;     /* [n] */
	struct rsh_factors *factors; /* [n] */
	const struct rsh_tensor *instead; /* NULL: it is not replaced */
	/* 1 + the number of the adapter that was added last, or has replaced
	 * it; 0: none */
	uint32_t added_by, replaced_by;
};

/* The embedding and the head of a model.  While they are tied the head's name
 * means the embedding's offer. */
struct adapters_tie {
	uint32_t embedding, head; /* 1 + index of the offer; 0: none */
	char head_name[512];
	bool tied;
};

struct adapting {
	const struct rsh_adapter *adapters;
	uint32_t n_adapters, a; /* the present one */
	struct rsh_arena *arena;
	struct rsh_error *err;
	struct rsh_catalogue *cat;
	const struct rsh_ckpt_index *index; /* of the present adapter */
	struct rsh_offer *v;
	uint32_t n;
	struct rsh_offer_index names; /* of the offers before any is added */
	struct adapters_change *changes; /* [offer] */
	const struct rsh_adapters *how;
	struct adapters_tie tie;
	struct rsh_adapted *done;
	/* Of the present adapter: a square weight, and whether another weight
	 * is stored otherwise than its config says. */
	const struct rsh_offer *square;
	bool differs;
	/* How stacks that the config targets are stored, as far as shapes tell
	 * it: each matrix as [out, in] or [in, out]. */
	bool has_plain, has_turned;
};

/* The two matrices of a module, A [rank, in] and B [out, rank]. */
struct adapting_pair {
	const char *name;   /* of A */
	const char *module;
	struct rsh_offer *weight; /* [out, in], or [in, out] if it is turned; a
				   * stack of these has another dimension */
	bool embeds, turned;
	bool is_tied_head; /* the weight is the embedding */
	bool is_parameter; /* the config targets it by its own name */
	/* If the weight is a part of what the config targets: the number of
	 * matrices of this, which one has the weight, and from which row. */
	uint64_t n_planes, plane, first_row;
	const struct rsh_tensor *a, *b;
};

/* Sets a sentence that begins with the file and a tensor of it; returns
 * -code. */
int adapting_bad(const struct adapting *w, const char *name, int code,
		 const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* Adds a record of the adapter to the catalogue.  Returns 0 or -errno with a
 * sentence. */
int adapting_tensor(struct adapting *w, const struct rsh_record *r,
		    const struct rsh_tensor **out);
/* Finds a record by its name; NULL: there is none. */
const struct rsh_record *adapting_record(const struct adapting *w,
					 const char *name);
/* Finds the offer with a name; NULL: there is none. */
struct rsh_offer *adapting_offer(const struct adapting *w, const char *name);

/* ---- adapters_tied.c ---- */

/* Finds the embedding and the head, and whether they are tied.  There must be
 * room for one more offer and its change. */
void adapters_tie_find(struct adapting *w);
/* Prepares what is tied for the present adapter, which may give the embedding
 * or the head a weight of its own.  Returns 0, or -errno with a sentence. */
int adapters_tie_prepare(struct adapting *w);
/* Leaves out the head that files have, if it is tied to an embedding that has
 * changed. */
void adapters_tie_finish(struct adapting *w);

/* Returns the dimensions of a weight, or of each of a stack. */
const uint64_t *adapting_dims(const struct rsh_offer *o);
/* Checks that adapters can be added to an offer.  Returns 0, or -ENOTSUP with a
 * sentence. */
int adapting_plain(const struct adapting *w, const struct rsh_offer *o,
		   const char *name);
/* Returns what is done to an offer, with memory for a change by each adapter;
 * NULL: out of memory. */
struct adapters_change *adapting_change(struct adapting *w,
					const struct rsh_offer *o);
/* Checks that no other tensor of the adapter has changed an offer in this way:
 * there is memory for one of each adapter.  Returns 0, or -EINVAL with a
 * sentence. */
int adapting_once(const struct adapting *w, const char *name,
		  const struct rsh_offer *o, uint32_t *last);
/* Adds the product of two matrices to the weight of a module.  Returns 0 or
 * -errno with a sentence. */
int adapting_add(struct adapting *w, struct adapting_pair *m);

/* Adds the changed tensor to the catalogue, and makes it the offer's.  The
 * offer is a whole tensor of the catalogue, or one that is transposed.  Returns
 * 0 or -ENOMEM with a sentence. */
int adapters_change_offer(struct rsh_catalogue *cat, struct rsh_arena *arena,
			  const struct adapters_change *c, struct rsh_offer *o,
			  struct rsh_error *err);

/* Adds a tensor that stands for an adapted weight to the catalogue, in no file,
 * and offers it.  A name that is NULL: memory was out.  Returns 0 or
 * -ENOMEM. */
int adapters_stand_in(struct rsh_catalogue *cat, struct rsh_arena *arena,
		      const struct rsh_tensor *t, const char *name,
		      struct rsh_offer *o);

/* ---- adapters_lacks.c ---- */

/* Finds what the present adapter lacks, after it was merged.  Returns 0,
 * -ENOMEM, or -EINVAL with a sentence: a weight that its config says it has. */
int adapters_find_lacks(struct adapting *w);

/* ---- own_adapters.c ---- */

/* Checks that a matrix of an adapter has two dimensions and a type of floats,
 * and is a tensor of the catalogue.  Returns 0, or -ENOTSUP with a sentence. */
int own_check_matrix(const struct rsh_catalogue *cat, const struct rsh_offer *o,
		     struct rsh_error *err);
