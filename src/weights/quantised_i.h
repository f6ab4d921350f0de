/* SPDX-License-Identifier: Apache-2.0 */
/* weights/quantised_i.h - making dense tensors of quantised ones: schemes.c
 * knows the schemes, quantised_names.c finds tensors by their names,
 * quantised.c replaces the offers. */
#pragma once

#include "rsh/weights/quantised.h"

#define QUANTISED_TEXT ((size_t)8192) /* longest name */
/* The contents of weight_shape are compared when mounting if the source does
 * not have more tensors: each is a read of its own. */
#define QUANTISED_FEW 4096

struct quantised_work {
	const struct rsh_dequantise *o;
	const struct rsh_quantisation *says;
	struct rsh_arena *arena;
	struct rsh_catalogue *cat;
	struct rsh_offer *v;
	uint32_t n;
	struct rsh_offer_index names;
	struct rsh_error *err;
	bool *used;         /* [offer]: it is not shown any more */
	bool *made;         /* [offer]: it is dense now */
};

/* A tensor while it becomes dense. */
struct quantised_tensor {
	uint32_t at;       /* index of the offer with the elements */
	size_t stem;       /* length of the part of its name that the names
			    * beside it have as well */
	const char *dense; /* end of the dense tensor's name, after the stem */
	struct rsh_quantised q;
	uint64_t rows, columns; /* of the dense matrix as it is stored */
	uint64_t planes;   /* 0: there is one, and no dimension for it */
	bool transposed;   /* it is shown with rows and columns exchanged */
	uint64_t divided;  /* 0: a row is one dimension of the catalogue's
			    * tensor; otherwise blocks of so many elements have
			    * one of their own, since the source cuts it */
};

/* ---- schemes.c ---- */

/* Reads what an offer is.  Returns 0 and sets *is if it has quantised
 * elements.  Returns -errno with a sentence. */
int quantised_recognise(struct quantised_work *w, uint32_t at,
			struct quantised_tensor *t, bool *is);
/* Checks a tensor that is not part of any quantised one: it must not look
 * quantised.  Returns 0, or -EINVAL or -ENOTSUP with a sentence. */
int quantised_check_left(struct quantised_work *w, uint32_t at);
/* Checks, after all are dense, that a tensor is not beside one of them without
 * being read.  Returns 0, or -EINVAL with a sentence. */
int quantised_check_unread(struct quantised_work *w, uint32_t at);
/* Checks that the method is known, its bits, its version and all keys.  Returns
 * 0, or -errno with a sentence. */
int quantised_check_config(const struct quantised_work *w);

/* ---- quantised_names.c ---- */

const char *quantised_name(const struct quantised_work *w, uint32_t at);
/* Returns whether the name is longer than the end and has it; *stem is the
 * length of what is before it. */
bool quantised_ends(const char *name, const char *end, size_t *stem);
/* Returns 1 + the index of the offer with this name, 0 if there is none: the
 * first `stem` bytes of another's, and an end. */
uint32_t quantised_index(const struct quantised_work *w, uint32_t at,
			 size_t stem, const char *end);
/* Finds the offer with this name: the first `stem` bytes of another's, and an
 * end.  Returns NULL if there is none. */
const struct rsh_offer *quantised_find(const struct quantised_work *w,
				       uint32_t at, size_t stem,
				       const char *end);
/* Returns the tensor of the catalogue that an offer is; NULL with a sentence if
 * it is not exactly one. */
const struct rsh_tensor *quantised_plain(const struct quantised_work *w,
					 const struct rsh_offer *o);
/* Returns the tensor of the offer with this name, which exists, and marks the
 * offer as one that is not shown.  NULL with a sentence as
 * quantised_plain(). */
const struct rsh_tensor *quantised_take(struct quantised_work *w, uint32_t at,
					size_t stem, const char *end);
/* Sets a sentence that begins with the name; returns -EINVAL. */
int quantised_bad(const struct quantised_work *w, uint32_t at, const char *fmt,
		  ...)
	__attribute__((format(printf, 3, 4)));
/* Sets a sentence: the tensor beside it is missing whose name has this end;
 * returns -EINVAL. */
int quantised_lacks(const struct quantised_work *w,
		    const struct quantised_tensor *t, const char *end);
