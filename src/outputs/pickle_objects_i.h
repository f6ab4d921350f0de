/* SPDX-License-Identifier: Apache-2.0 */
/* outputs/pickle_objects_i.h - the metadata of a distributed checkpoint: a
 * pickle of objects.  A class, a key or another value that occurs often is
 * written once, and recalled from the memo later.
 *
 * One thread writes a pickle. */
#pragma once

#include "rsh/outputs/outputs.h"
#include "rsh/tensor/dtype.h"
#include "rsh/wire/pickle_emit.h"

/* The numbers of values that occur often: first those of every format. */
enum rsh_pickle_memo {
	RSH_MEMO_TENSOR,
	RSH_MEMO_BYTES,
	RSH_MEMO_PROPERTIES,
	RSH_MEMO_CHUNK,
	RSH_MEMO_INDEX,
	RSH_MEMO_STORAGE,
	RSH_MEMO_KEY_PROPERTIES,
	RSH_MEMO_KEY_SIZE,
	RSH_MEMO_KEY_CHUNKS,
	RSH_MEMO_KEY_OFFSETS,
	RSH_MEMO_KEY_SIZES,
	RSH_MEMO_KEY_NAME,
	RSH_MEMO_KEY_OFFSET,
	RSH_MEMO_KEY_INDEX,
	RSH_MEMO_KEY_PATH,
	RSH_MEMO_KEY_LENGTH,
	RSH_MEMO_DTYPE,
	/* A format has up to three more. */
	RSH_MEMO_OWN = RSH_MEMO_DTYPE + RSH_DTYPE_COUNT,
	RSH_MEMO_COUNT = RSH_MEMO_OWN + 3,
};

struct rsh_pickle_objects {
	struct rsh_pickle_out out;
	/* [value]: its place in the memo, plus 1; 0: it is not written yet */
	uint32_t memo[RSH_MEMO_COUNT];
};

/* Recalls a value.  Returns false if it is not written yet; after it is written
 * rsh_pickle_keep() stores it. */
bool rsh_pickle_known(struct rsh_pickle_objects *p, unsigned value);
void rsh_pickle_keep(struct rsh_pickle_objects *p, unsigned value);

void rsh_pickle_put_class(struct rsh_pickle_objects *p, unsigned value,
			  const char *module, const char *name);
void rsh_pickle_put_key(struct rsh_pickle_objects *p, unsigned value,
			const char *key);
/* Begins an object without arguments.  Its attributes follow as the entries of
 * a dictionary. */
void rsh_pickle_begin_object(struct rsh_pickle_objects *p, unsigned value,
			     const char *module, const char *name);
void rsh_pickle_end_object(struct rsh_pickle_objects *p);

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

/* Begins the pickle and its object "Metadata".  Members follow. */
void rsh_pickle_begin_metadata(struct rsh_pickle_objects *p,
			       const char *module);
/* Ends both.  Returns 0 or -ENOMEM. */
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
