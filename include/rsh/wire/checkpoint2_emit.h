/* SPDX-License-Identifier: Apache-2.0 */
/* wire/checkpoint2_emit.h - writes metadata.json and common.json, which it also
 * reads, of a Checkpoint 2.0 step (wire/checkpoint2.h) for files that somebody
 * else shows.
 *
 * metadata.json grows with tensors times ranks, to hundreds of megabytes, so
 * it is never in memory: where each tensor stands in it is worked out once, and
 * any stretch is written anew whenever it is asked for.  Every slice has one
 * entry in storage_data, that of the first rank which holds it, with all ranks
 * that share it in rank_group.
 *
 * Threads: a text does not change once it is made, so any thread may read it.
 */
#ifndef RSH_WIRE_CHECKPOINT2_EMIT_H
#define RSH_WIRE_CHECKPOINT2_EMIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rsh/tensor/cut.h"
#include "rsh/tensor/dtype.h"
#include "rsh/util/error.h"

/* A tensor that is cut over ranks first .. first + n_ranks - 1. */
struct rsh_ckpt2_tensor {
	const char *name;
	enum rsh_dtype dtype;
	uint32_t n_dims;
	const uint64_t *dims;      /* of the whole tensor */
	const struct rsh_cut *cut; /* a grid of n_ranks ranks; NULL: each of
				    * them has the whole tensor */
	uint32_t first, n_ranks;
	bool opt;                  /* it stands in the ranks' opt files */
};

/* This is what a text describes, all of which has to outlive it. */
struct rsh_ckpt2_tree {
	uint32_t n_ranks; /* that have files */
	uint32_t n_tensors;
	const struct rsh_ckpt2_tensor *tensors; /* no name comes twice */
	/* Does the file of a rank hold its slice of a tensor?  A slice that
	 * none holds is not described; of each tensor one is held at least. */
	bool (*holds)(const void *ctx, uint32_t tensor, uint32_t rank);
	const void *ctx;
};

struct rsh_ckpt2_text;

/* Works a metadata.json out.  Returns 0 and *out, which the caller frees;
 * -ENOMEM; or with a sentence that names the tensor: -EINVAL for a name that is
 * not UTF-8 or has control characters, -ENOTSUP for a cut that no tensor map
 * can express. */
int rsh_ckpt2_text_new(const struct rsh_ckpt2_tree *tree,
		       struct rsh_ckpt2_text **out, struct rsh_error *err);
void rsh_ckpt2_text_free(struct rsh_ckpt2_text *t);
uint64_t rsh_ckpt2_text_size(const struct rsh_ckpt2_text *t);
/* Writes bytes [offset, offset + len), all of which the text has. */
void rsh_ckpt2_text_read(const struct rsh_ckpt2_text *t, void *buf, size_t len,
			 uint64_t offset);

/* These say what files and directories of a step are called; the buffers have
 * RSH_CKPT2_NAME_MAX bytes. */
#define RSH_CKPT2_NAME_MAX 64
int rsh_ckpt2_step_name(uint64_t step, char *name);
int rsh_ckpt2_file_name(bool opt, uint32_t rank, uint32_t n_ranks, char *name);

/* What common.json says.  Numbers that are not known are 0. */
struct rsh_ckpt2_common {
	uint64_t step;
	uint64_t epoch;
	uint64_t batch_size; /* global_batch_size */
	double loss_scale;
};
/* Writes it, with the keys that every release knows; *out is the caller's.
 * Returns the length, or -ENOMEM. */
int rsh_ckpt2_common_format(const struct rsh_ckpt2_common *c, char **out);
/* Reads all but the step, and leaves alone what the text does not know.
 * Returns 0, -ENOMEM, or -EBADMSG with a sentence if it is no such text. */
int rsh_ckpt2_common_parse(const void *data, size_t len, const char *path,
			   struct rsh_ckpt2_common *c, struct rsh_error *err);

#endif
