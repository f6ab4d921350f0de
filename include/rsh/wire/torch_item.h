/* SPDX-License-Identifier: Apache-2.0 */
/* wire/torch_item.h - a part of a tensor as torch.save() writes it: a zip
 * archive with the elements between a head and a tail, which follow from type
 * and shape alone.  An item of a distributed checkpoint is such an archive.
 *
 * torch 2.3.1 to 2.15.0 load the form that is written here, as a file and as
 * a slice of a larger file.  The checksum of the elements is 0, as torch writes
 * it after set_crc32_options(False): torch never compares it.
 *
 * No function keeps state, so any thread may call. */
#ifndef RSH_WIRE_TORCH_ITEM_H
#define RSH_WIRE_TORCH_ITEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rsh/tensor/box.h"
#include "rsh/wire/ckpt.h"

/* Elements begin on a multiple of this in an item. */
#define RSH_TORCH_ALIGNMENT 64
/* Head and tail have at most so many bytes each. */
#define RSH_TORCH_HEAD_MAX 4096
#define RSH_TORCH_TAIL_MAX 1024
/* A torch loader holds an item in memory as a whole, so larger tensors are cut
 * into items of about this size. */
#define RSH_TORCH_CHUNK_BYTES ((uint64_t)64 << 20)

/* This is a part of a tensor: `sizes` elements from `offsets` on. */
struct rsh_torch_chunk {
	uint64_t bytes; /* of its elements */
	uint64_t offsets[RSH_MAX_DIMS];
	uint64_t sizes[RSH_MAX_DIMS];
};

/* Returns torch's name of a type, as "float32"; NULL: torch has none. */
const char *rsh_torch_dtype_name(enum rsh_dtype t);
/* Returns the class of the storages of a type, as "FloatStorage"; NULL: an
 * UntypedStorage has its elements. */
const char *rsh_torch_storage_name(enum rsh_dtype t);

/* Returns the bytes of all chunks of a tensor but the last: whole rows of the
 * first dimension that is not 1, as many as RSH_TORCH_CHUNK_BYTES has room for;
 * where one row is larger, equal parts of it.  A tensor that has room in one
 * chunk is one, and so is an empty one: its bytes are 0. */
uint64_t rsh_torch_chunk_bytes(const struct rsh_record_shape *s);
/* Describes the chunk whose elements begin at byte `at` of the tensor, where
 * all but the last have `chunk_bytes`. */
void rsh_torch_chunk_at(const struct rsh_record_shape *s, uint64_t at,
			uint64_t chunk_bytes, struct rsh_torch_chunk *out);

/* Writes what is before the elements of an item.  `buf` has
 * RSH_TORCH_HEAD_MAX bytes; returns how many were written, a multiple of
 * RSH_TORCH_ALIGNMENT. */
size_t rsh_torch_item_head(enum rsh_dtype t, unsigned n_dims,
			   const uint64_t *sizes, uint64_t bytes,
			   uint8_t *buf);
/* Writes what is behind them.  `buf` has RSH_TORCH_TAIL_MAX bytes; returns how
 * many were written. */
size_t rsh_torch_item_tail(enum rsh_dtype t, unsigned n_dims,
			   const uint64_t *sizes, uint64_t bytes,
			   uint8_t *buf);
/* Writes a file of torch.save({}), as Megatron-Core's common.pt may be.
 * Returns how many bytes of `buf`, which has RSH_TORCH_TAIL_MAX. */
size_t rsh_torch_save_empty(uint8_t *buf);

#endif
