/* SPDX-License-Identifier: Apache-2.0 */
/* wire/checkpoint2.h - metadata.json of a Checkpoint 2.0 step, as MindSpore
 * Transformers (mindformers 1.7 to 2.1) writes it: which tensors the step has,
 * how each is cut, and which file of which rank holds which slice.
 *
 *   {"state_dict_metadata": {NAME: {"properties": .., "global_shape": [..],
 *       "axis_fragmentations": [..], "layout": LAYOUT or null, "chunk": [..]}},
 *    "storage_data": {"('NAME', (K,))": [{"file_name": .., "storage_rank": ..,
 *       "rank_group": [..]}, ..]}}
 *
 * K is the number of a slice: the map of LAYOUT, flattened, is walked from the
 * left, -1 is skipped, and K = K * size of the axis + coordinate on it.  The
 * optimizer's shard is in the map.  The file may have hundreds of megabytes, so
 * it is read as a stream, and what is kept is small: layouts are kept once, and
 * of storage_data which rank each file is of and which slices have a file.
 */
#ifndef RSH_WIRE_CHECKPOINT2_H
#define RSH_WIRE_CHECKPOINT2_H

#include <stdbool.h>
#include <stdint.h>

#include "rsh/util/error.h"
#include "rsh/wire/ckpt.h"
#include "rsh/wire/strategy_file.h"

/* The ranks among which a tensor is cut, place p of the mesh being ranks[p];
 * several layouts share one. */
struct rsh_ckpt2_ranks {
	uint32_t n;
	const uint32_t *ranks;
};

struct rsh_ckpt2_param {
	const char *name;
	enum rsh_dtype dtype;  /* RSH_DTYPE_UNKNOWN if the spelling is not
				* known; the files decide */
	uint32_t n_dims;
	const int64_t *dims;   /* of the whole tensor */
	/* Mesh and map; its name is that of the first parameter that has it,
	 * and it has neither shape nor optimizer shard.  NULL: the tensor is
	 * not split. */
	const struct rsh_strategy_item *layout;
	/* Of the layout's mesh; without a layout the ranks that hold it. */
	const struct rsh_ckpt2_ranks *ranks;
	uint32_t n_slices;     /* the product of what the map splits */
	uint32_t n_stored;     /* how many of them storage_data has a file for;
				* 0: described, but not in the checkpoint */
};

/* A file that storage_data names, without directory. */
struct rsh_ckpt2_file {
	const char *name;
	uint32_t rank;         /* that wrote it */
};

struct rsh_ckpt2 {
	uint32_t n_params;
	const struct rsh_ckpt2_param *params; /* in the order of the file */
	uint32_t n_files;
	const struct rsh_ckpt2_file *files;   /* ascending by name */
	uint32_t n_ranks;      /* 1 + the greatest rank that is named */
};

/* Reads a metadata.json.  Returns 0 and *out, -ENOMEM, what pread_fn gave, or
 * -EBADMSG with a sentence that names path, parameter and offset: no JSON, not
 * such a file, numbers out of range, an axis that the mesh does not have or
 * that splits a tensor twice, a dimension that its slices do not divide, ranks
 * that are not as many as the mesh has, a slice that the layout does not have,
 * a slice that is not the one that the layout gives the rank which wrote it, a
 * file with two ranks, a file name with a '/'; -ENOTSUP for interleaved
 * layouts.  Memory is in proportion to what is kept. */
int rsh_ckpt2_parse(const struct rsh_byte_source *src, struct rsh_ckpt2 **out,
		    struct rsh_error *err);
void rsh_ckpt2_free(struct rsh_ckpt2 *c);

/* Writes all that `c`, which a parser has made, says as a small text of our
 * own, to be kept where the file itself is not to be read once more.  Returns 0
 * and *out (from malloc), -ENOMEM, or -EINVAL if a name is not UTF-8. */
int rsh_ckpt2_keep(const struct rsh_ckpt2 *c, char **out, size_t *len);
/* Reads what rsh_ckpt2_keep() has written; checks and results are those of
 * rsh_ckpt2_parse(). */
int rsh_ckpt2_parse_kept(const struct rsh_byte_source *src,
			 struct rsh_ckpt2 **out, struct rsh_error *err);

/* Does the text, of which these are the first bytes, look like a metadata.json
 * of Checkpoint 2.0?  A strategy in JSON does not. */
bool rsh_ckpt2_is_metadata(const void *data, size_t len);

/* ---- names (Checkpoint 2.0, section "Directories and files") ---- */

/* Reads "[PREFIX-]model-0000003-0000008.safetensors" or "..opt-..". */
struct rsh_ckpt2_name {
	bool opt;          /* "opt", not "model" */
	uint32_t rank, of; /* the two numbers */
	size_t n_prefix;   /* how long PREFIX is, without its '-' */
};
bool rsh_ckpt2_name_parse(const char *name, struct rsh_ckpt2_name *out);
/* Reads "iteration_00000008". */
bool rsh_ckpt2_step_parse(const char *name, uint64_t *step);

/* The name of the tracker, which has the step of the newest whole directory in
 * decimal. */
#define RSH_CKPT2_TRACKER "latest_checkpointed_iteration.txt"

#endif
