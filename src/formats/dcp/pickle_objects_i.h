/* SPDX-License-Identifier: Apache-2.0 */
/* formats/dcp/pickle_objects_i.h - the metadata of a distributed checkpoint: a
 * pickle of objects.  A class, a key or another value that occurs often is
 * written once, and recalled from the memo later.
 *
 * One thread writes a pickle. */
#pragma once

#include "rsh/formats/outputs.h"
#include "rsh/util/names.h"
#include "rsh/wire/pickle_emit.h"

struct rsh_pickle_objects {
	struct rsh_pickle_out out;
	struct rsh_names *often; /* what occurs often, as text */
	uint32_t *memo; /* [number of the text]: its place in the memo */
	size_t cap_memo;
};

/* Begins a pickle; rsh_pickle_objects_clear() must be called.  A failure is
 * reported by rsh_pickle_end_metadata(). */
void rsh_pickle_objects_begin(struct rsh_pickle_objects *p);
void rsh_pickle_objects_clear(struct rsh_pickle_objects *p);

/* Writes by a template.  Each character is an instruction without argument, as
 * pickletools names them ('(' is MARK, 'u' SETITEMS, ...), except these:
 *
 *   %s  a text                         %d  an int64_t
 *   %k  a text that occurs often       %r  what is at a place of the memo
 *   %c  a class that occurs often, "module name"
 *   %g  a class that occurs once
 *   %o  the same as %c, and begins an object of it: its attributes follow, and
 *       "ub" ends it
 *   %f  the result of calling a function, "module name", that occurs often:
 *       its argument is the next text or, if that is NULL, 0 */
void rsh_pickle_write(struct rsh_pickle_objects *p, const char *template, ...);
/* Puts a tuple of n numbers; if v is NULL they are 0. */
void rsh_pickle_put_tuple(struct rsh_pickle_objects *p, unsigned n,
			  const uint64_t *v);

/* ---- values that are not tensors ---- */

struct rsh_pickle_item {
	const char *name; /* the source owns it */
	uint64_t offset, length; /* in bytes[] */
};

struct rsh_pickle_items {
	struct rsh_pickle_item *v;
	uint32_t n;
	uint8_t *bytes;
	size_t n_bytes;
};

/* Makes an item of each value that is plain data, except if a tensor of the
 * plan has its name: a pickle, or with `archives` a file of torch.save().  The
 * caller must call rsh_pickle_items_clear(), also after a failure.  Returns 0
 * or -ENOMEM. */
int rsh_pickle_items_make(const struct rsh_output_tree *t, bool archives,
			  struct rsh_pickle_items *out);
void rsh_pickle_items_clear(struct rsh_pickle_items *items);

/* ---- the metadata ---- */

/* Ends the object "Metadata", and the pickle.  Returns 0 or -ENOMEM. */
int rsh_pickle_end_metadata(struct rsh_pickle_objects *p);

/* A function of this type puts the entries of a tensor, which is a record of a
 * file of the tree; tensors have numbers from 0. */
typedef void rsh_pickle_tensor_fn(const struct rsh_output_tree *t,
				  uint32_t number, uint32_t file,
				  const struct rsh_virtual_record *r);
/* A function of this type puts the entry of a value.  The numbers of values
 * follow those of tensors. */
typedef void rsh_pickle_value_fn(const struct rsh_output_tree *t,
				 uint32_t number,
				 const struct rsh_pickle_item *v);

/* Puts a member of the metadata: a dictionary whose entries these functions
 * put, for each tensor of the tree and each value. */
void rsh_pickle_put_member(struct rsh_pickle_objects *p,
			   const struct rsh_output_tree *t,
			   const struct rsh_pickle_items *values,
			   const char *key, rsh_pickle_tensor_fn *put_tensor,
			   rsh_pickle_value_fn *put_value);
