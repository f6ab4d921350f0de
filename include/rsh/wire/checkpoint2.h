/* SPDX-License-Identifier: Apache-2.0 */
/* wire/checkpoint2.h - reads the metadata.json of a Checkpoint 2.0 step, as
 * MindSpore Transformers (mindformers 1.7 to 2.1) writes it: which tensors the
 * step has, how each is split, and which file of which rank has which slice.
 *
 *   {"state_dict_metadata": {NAME: {"properties": .., "global_shape": [..],
 *       "axis_fragmentations": [..], "layout": LAYOUT or null, "chunk": [..]}},
 *    "storage_data": {"('NAME', (K,))": [{"file_name": .., "storage_rank": ..,
 *       "rank_group": [..]}, ..]}}
 *
 * K is the number of a slice.  It is computed from the flattened map of LAYOUT:
 * for each entry from the left, K = K * size of the axis + coordinate on it.
 * Entries of -1 are skipped.  The map includes the optimizer shard.
 *
 * The file may have hundreds of megabytes, so it is read as a stream and little
 * is kept.  Each layout is kept once.  Of storage_data, only the rank of each
 * file and the slices that have a file are kept. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "rsh/util/error.h"
#include "rsh/wire/ckpt.h"
#include "rsh/wire/strategy_file.h"

/* A tensor is split among these ranks: ranks[p] is at place p of the mesh.
 * Several layouts may share one list. */
struct rsh_ckpt2_ranks {
	uint32_t n;
	const uint32_t *ranks;
};

struct rsh_ckpt2_param {
	const char *name;
	/* RSH_DTYPE_UNKNOWN if the spelling is not known; the files decide
	 * then */
	enum rsh_dtype dtype;
	uint32_t n_dims;
	const int64_t *dims;   /* of the whole tensor */
	/* The mesh and the map.  Its name is that of the first parameter that
	 * has this layout.  It has neither shape nor optimizer shard.  NULL:
	 * the tensor is not split. */
	const struct rsh_strategy_item *layout;
	/* The ranks of the layout's mesh.  Without a layout: the ranks that
	 * have the tensor. */
	const struct rsh_ckpt2_ranks *ranks;
	uint32_t n_slices;     /* product of the splits in the map */
	/* number of slices that have a file in storage_data; 0: the tensor is
	 * described, but is not in the checkpoint */
	uint32_t n_stored;
};

/* storage_data names this file, without directory. */
struct rsh_ckpt2_file {
	const char *name;
	uint32_t rank;         /* the rank that wrote the file */
};

struct rsh_ckpt2 {
	uint32_t n_params;
	const struct rsh_ckpt2_param *params; /* in the order of the file */
	uint32_t n_files;
	const struct rsh_ckpt2_file *files;   /* ascending by name */
	uint32_t n_ranks;      /* 1 + the greatest rank in the file */
};

/* Reads a metadata.json.  Returns 0 and *out, -ENOMEM, the error of pread_fn,
 * or -EBADMSG with a sentence that names path, parameter and offset.  The
 * reasons for -EBADMSG are:
 * - the text is not JSON, or not such a file
 * - a number is out of range
 * - an axis is not in the mesh, or splits a tensor twice
 * - a dimension cannot be divided by the number of its slices
 * - the number of ranks is not that of the mesh
 * - the layout does not have a slice
 * - the layout gives the rank that wrote a slice another slice
 * - a file has two ranks
 * - a file name contains a '/'
 * -ENOTSUP: a layout is interleaved.  Memory is in proportion to what is
 * kept. */
int rsh_ckpt2_parse(const struct rsh_byte_source *src, struct rsh_ckpt2 **out,
		    struct rsh_error *err);
void rsh_ckpt2_free(struct rsh_ckpt2 *c);

/* Writes the content of `c`, which a parser has made, as a small text in
 * reshardfs's own format.  A cache can keep this text instead of the file.
 * Returns 0 and *out (from malloc), -ENOMEM, or -EINVAL if a name is not
 * UTF-8. */
int rsh_ckpt2_keep(const struct rsh_ckpt2 *c, char **out, size_t *len);
/* Reads the text that rsh_ckpt2_keep() has written.  The checks and results are
 * those of rsh_ckpt2_parse(). */
int rsh_ckpt2_parse_kept(const struct rsh_byte_source *src,
			 struct rsh_ckpt2 **out, struct rsh_error *err);

/* Returns whether a text that begins with these bytes looks like a
 * metadata.json of Checkpoint 2.0.  A strategy in JSON does not. */
bool rsh_ckpt2_is_metadata(const void *data, size_t len);

/* ---- names (Checkpoint 2.0, section "Directories and files") ---- */

/* Reads "[PREFIX-]model-0000003-0000008.safetensors" or "..opt-..". */
struct rsh_ckpt2_name {
	bool opt;          /* the name has "opt", not "model" */
	uint32_t rank, of; /* the two numbers in the name */
	size_t n_prefix;   /* bytes of PREFIX, without its '-' */
};
bool rsh_ckpt2_name_parse(const char *name, struct rsh_ckpt2_name *out);
#define RSH_CKPT2_STEP "iteration_"
/* Reads "iteration_00000008". */
bool rsh_ckpt2_step_parse(const char *name, uint64_t *step);

/* The tracker file has this name.  It contains the step of the newest complete
 * directory in decimal. */
#define RSH_CKPT2_TRACKER "latest_checkpointed_iteration.txt"
/* Reads the text of any tracker: one number, and white space. */
bool rsh_tracker_parse(const char *text, uint64_t *step);
