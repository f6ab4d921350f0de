/* SPDX-License-Identifier: Apache-2.0 */
/* wire/torch_item.h - a part of a tensor in the form of torch.save(): a zip
 * archive.  The elements are between a head and a tail, which depend on type,
 * shape and order of dimensions only.  An item of a distributed checkpoint is
 * such an archive.
 *
 * torch 2.3.1 to 2.15.0 load this form, as a file and as a part of a larger
 * file.  A checksum of the elements that is 0 was not computed: torch writes it
 * after set_crc32_options(False), and never verifies it.
 *
 * The functions keep no state, so any thread may call them. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "rsh/tensor/box.h"
#include "rsh/wire/ckpt.h"
#include "rsh/wire/pickle_emit.h"

/* The offset of the elements in an item is a multiple of this. */
#define RSH_TORCH_ALIGNMENT 64
/* This is the maximum of bytes in a head and in a tail. */
#define RSH_TORCH_HEAD_MAX 4096
#define RSH_TORCH_TAIL_MAX 1024
/* A torch loader loads a whole item into memory, so larger tensors are cut into
 * items of about this size.  glibc keeps freed memory below 32 MiB for the next
 * item.  Memory for a larger item is mapped and cleared anew for each.  With
 * much smaller items, a loader spends its time between them. */
#define RSH_TORCH_CHUNK_BYTES ((uint64_t)16 << 20)
/* A tensor in another order is one item up to this size: several would not have
 * whole rows. */
#define RSH_TORCH_ORDERED_BYTES ((uint64_t)64 << 20)

/* The entries of an archive of torch.save(); the name of a storage follows the
 * last one. */
#define RSH_TORCH_PICKLE_ENTRY "archive/data.pkl"
#define RSH_TORCH_ORDER_ENTRY "archive/byteorder"
#define RSH_TORCH_VERSION_ENTRY "archive/version"
#define RSH_TORCH_DATA_ENTRY "archive/data/"

/* This is a part of a tensor: it has `sizes` elements and begins at
 * `offsets`. */
struct rsh_torch_chunk {
	uint64_t bytes; /* of its elements */
	uint32_t crc;   /* of its elements; 0: not computed */
	uint64_t offsets[RSH_MAX_DIMS];
	uint64_t sizes[RSH_MAX_DIMS];
};

/* Returns torch's name of a type, as "float32"; NULL if torch does not have
 * it. */
const char *rsh_torch_dtype_name(enum rsh_dtype t);
/* Returns the storage class of a type, as "FloatStorage"; NULL if its elements
 * are in an UntypedStorage. */
const char *rsh_torch_storage_name(enum rsh_dtype t);

/* Returns 0, or -ENOTSUP with a sentence if torch does not have the type of a
 * parameter. */
int rsh_torch_check_dtype(const struct rsh_record_shape *s,
			  struct rsh_error *err);

/* A tensor that is all of a storage. */
struct rsh_torch_view {
	enum rsh_dtype dtype; /* that torch has */
	unsigned n_dims;
	const uint64_t *sizes, *strides;
	const char *key; /* the name of the storage */
	uint64_t bytes;
};

/* 1 + the places in a pickle's memo of what tensors have in common; 0: it was
 * not put yet. */
struct rsh_torch_memo {
	uint32_t rebuild[2], dictionary;
	uint32_t storage[RSH_DTYPE_COUNT], type[RSH_DTYPE_COUNT];
};

/* Puts a tensor into a pickle.  `memo` may be NULL for the only tensor. */
void rsh_torch_put_tensor(struct rsh_pickle_out *o,
			  const struct rsh_torch_view *v,
			  struct rsh_torch_memo *memo);

/* Returns the size in bytes of all chunks of a tensor but the last.  A chunk is
 * whole rows of the first dimension in its order that is not 1, as many as fit
 * into RSH_TORCH_CHUNK_BYTES, or RSH_TORCH_ORDERED_BYTES if the tensor has an
 * order.  If one row is larger, a chunk is an equal part of it.  A tensor that
 * fits into one chunk is one chunk.  So is an empty tensor: its chunk has 0
 * bytes. */
uint64_t rsh_torch_chunk_bytes(const struct rsh_record_shape *s);
/* Describes the chunk whose elements begin at byte `at` of the tensor.  All
 * chunks but the last have `chunk_bytes`. */
void rsh_torch_chunk_at(const struct rsh_record_shape *s, uint64_t at,
			uint64_t chunk_bytes, struct rsh_torch_chunk *out);

/* Writes the part of an item before the elements of a chunk, in the order of
 * s->order.  `buf` has RSH_TORCH_HEAD_MAX bytes.  Returns the number of bytes
 * written, a multiple of RSH_TORCH_ALIGNMENT. */
size_t rsh_torch_item_head(const struct rsh_record_shape *s,
			   const struct rsh_torch_chunk *c, uint8_t *buf);
/* Writes the part of an item after the elements.  `buf` has RSH_TORCH_TAIL_MAX
 * bytes.  Returns the number of bytes written. */
size_t rsh_torch_item_tail(const struct rsh_record_shape *s,
			   const struct rsh_torch_chunk *c, uint8_t *buf);
/* Writes a file of torch.save() of a value without tensors, from its pickle of
 * n bytes.  `buf` has n + RSH_TORCH_TAIL_MAX bytes.  Returns the number of
 * bytes written. */
size_t rsh_torch_save_pickle(const void *pickle, size_t n, uint8_t *buf);
