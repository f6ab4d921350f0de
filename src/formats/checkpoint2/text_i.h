/* SPDX-License-Identifier: Apache-2.0 */
/* formats/checkpoint2/text_i.h - metadata.json and common.json of a Checkpoint
 * 2.0 step (rsh/wire/checkpoint2.h) that is shown; only this directory includes
 * it.
 *
 * The size of metadata.json is in proportion to tensors times ranks, up to
 * hundreds of megabytes, so the text is never kept in memory.  The place of
 * each tensor in it is computed once, and each read writes its part of the text
 * again.  Every slice has one entry in storage_data, for the first rank that
 * has it; rank_group has all ranks that share the slice.
 *
 * Threads: a text does not change after it is made, so any thread may read
 * it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rsh/source/inspect.h"
#include "rsh/tensor/cut.h"
#include "rsh/tensor/dtype.h"
#include "rsh/util/error.h"

/* This is a tensor that is split over the ranks first .. first + n_ranks -
 * 1. */
struct rsh_ckpt2_tensor {
	const char *name;
	enum rsh_dtype dtype;
	uint32_t n_dims;
	const uint64_t *dims;      /* of the whole tensor */
	/* a grid of n_ranks ranks; NULL: each rank has the whole tensor */
	const struct rsh_cut *cut;
	uint32_t first, n_ranks;
	bool opt;                  /* it is in the ranks' opt files */
};

/* This is what a text describes.  All of it must outlive the text. */
struct rsh_ckpt2_tree {
	uint32_t n_ranks; /* number of ranks that have files */
	uint32_t n_tensors;
	const struct rsh_ckpt2_tensor *tensors; /* names are unique */
	/* Returns whether the file of a rank has its slice of a tensor. A slice
	 * that no file has is not described.  At least one slice of each tensor
	 * is in a file. */
	bool (*holds)(const void *ctx, uint32_t tensor, uint32_t rank);
	const void *ctx;
};

struct rsh_ckpt2_text;

/* Computes the size and the places of a metadata.json.  Returns 0 and *out,
 * which the caller frees; -ENOMEM; or with a sentence that names the tensor:
 * -EINVAL if a name is not UTF-8 or has control characters, -ENOTSUP if no
 * tensor map can express a cut. */
int rsh_ckpt2_text_new(const struct rsh_ckpt2_tree *tree,
		       struct rsh_ckpt2_text **out, struct rsh_error *err);
void rsh_ckpt2_text_free(struct rsh_ckpt2_text *t);
uint64_t rsh_ckpt2_text_size(const struct rsh_ckpt2_text *t);
/* Writes the bytes [offset, offset + len), which must be within the text. */
void rsh_ckpt2_text_read(const struct rsh_ckpt2_text *t, void *buf, size_t len,
			 uint64_t offset);

/* These write the names of a step's files and directories.  The buffers have
 * RSH_CKPT2_NAME_MAX bytes. */
#define RSH_CKPT2_NAME_MAX 64
int rsh_ckpt2_step_name(uint64_t step, char *name);
int rsh_ckpt2_file_name(bool opt, uint32_t rank, uint32_t n_ranks, char *name);

/* Writes a common.json with the keys that every release knows; a value of 0 is
 * written as null.  The caller frees *out.  Returns the length, or -ENOMEM. */
int rsh_ckpt2_common_format(const struct rsh_training_state *c, char **out);
