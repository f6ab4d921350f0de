/* SPDX-License-Identifier: Apache-2.0 */
/* formats/dcp/dcp_i.h - distributed checkpoints of PyTorch (formats/dcp.h): a
 * directory with ".metadata", with one metadata file of each rank, or with
 * shard-*.safetensors that have DCP_SHARDING_INFO.
 *
 * The source's files are those that the metadata names, in the same order.
 * Each is a separate rank.  Files may be missing.
 *
 * The index of a file has a record for each item with elements.  The record's
 * name is the item's place, not its tensor: the same bytes of a file have the
 * same record with any metadata, so an index can be cached after the mount.
 * Files that are safetensors have their own index, whose records have the
 * tensors' names.
 *
 * The data of a source does not change, and any thread may read it. */
#pragma once

#include "rsh/formats/dcp.h"
#include "rsh/source/format.h"
#include "rsh/util/arena.h"
#include "rsh/util/names.h"

/* This is the place of an item with elements. */
struct rsh_dcp_place {
	uint32_t file;
	uint64_t offset, length;
	const struct rsh_dcp_tensor *tensor; /* a tensor that uses the item */
};

/* The first function returns the state of the source, the second its metadata.
 * The source owns both. */
static inline const struct rsh_dcp_source *
rsh_dcp_of(const struct rsh_source *s)
{
	return rsh_source_state(s);
}
static inline const struct rsh_dcp *rsh_source_dcp(const struct rsh_source *s)
{
	return rsh_dcp_of(s)->pub;
}

/* ---- the metadata (metadata.c, build.c) ---- */

/* What was found so far. */
struct rsh_dcp_builder {
	const char *path;
	unsigned n_parts;
	struct rsh_dcp *d; /* its arena has what is kept */
	struct rsh_names *files; /* chunks have their numbers here */
	struct rsh_dcp_tensor *tensors;
	struct rsh_dcp_value *values;
	size_t n_tensors, cap_tensors, n_values, cap_values;
};

/* These add an empty tensor or value; NULL: memory is out.  If a tensor has no
 * dims, the ends of its chunks are its shape. */
struct rsh_dcp_tensor *rsh_dcp_builder_tensor(struct rsh_dcp_builder *b);
struct rsh_dcp_value *rsh_dcp_builder_value(struct rsh_dcp_builder *b);

/* Returns whether the item of a chunk ends within a file of so many bytes.  The
 * file itself says where an item is that is found by its name. */
bool rsh_dcp_chunk_fits(const struct rsh_dcp_chunk *c, uint64_t file_bytes);
/* ---- its files (listing.c) ---- */

int rsh_dcp_bid(const struct rsh_look *look, struct rsh_bid_more *more);
/* Reads the metadata, and lists its files, which are one candidate.  Returns 0
 * or -errno with a sentence. */
int rsh_dcp_open(struct rsh_source *s, const struct rsh_source_options *opts,
		 struct rsh_error *err);
/* These are members of the format, for --resume. */
enum rsh_part rsh_dcp_part(const char *path, struct rsh_step_name *out);
int rsh_dcp_check(const struct rsh_byte_source *files,
		  const char *const *names, size_t n, bool full,
		  struct rsh_counters *says, struct rsh_error *err);

/* ---- whether it is complete (reader.c) ---- */

#define RSH_DCP_MISSING UINT64_MAX
#define RSH_DCP_IN_NO_FILE "tensor %s: a chunk is in no file"

/* Finds the first tensor whose boxes do not cover it, or else the first file
 * that is missing (its size is RSH_DCP_MISSING), or else the first tensor that
 * has a chunk in no file, or in one that is too short. */
int rsh_dcp_judge(const struct rsh_dcp *d, const uint64_t *sizes,
		  struct rsh_error *wrong);

/* ---- shard-*.safetensors (shards.c) ---- */

/* Returns whether this is the name of such a file. */
bool rsh_dcp_is_shard(const char *name);
/* Sets *has if the file has DCP_SHARDING_INFO.  Returns 0 or -errno with a
 * sentence. */
int rsh_dcp_shard_look(const struct rsh_source *s, const char *name, bool *has,
		       struct rsh_error *err);
/* Adds what the headers of n such files say, whose names are ascending. */
int rsh_dcp_shards_add(const struct rsh_source *s, const char *const *names,
		       size_t n, struct rsh_dcp_builder *b,
		       struct rsh_error *err);

/* ---- indexes (index.c): struct rsh_format describes these functions ---- */

int rsh_dcp_index_scan(const struct rsh_scan_job *job,
		       struct rsh_ckpt_index **out, struct rsh_error *err);

/* This is the record of a chunk in a file. */
struct rsh_dcp_held {
	uint32_t record; /* number in the index of the chunk's file */
	/* See struct rsh_dcp_item; the record's dims are in this order. */
	uint8_t order[RSH_MAX_DIMS];
};
/* Finds the record of a chunk that has elements.  -ENOENT: the file is missing
 * or too short.  -EBADMSG with a sentence that names file, tensor and offset:
 * type or shape differ from the metadata. */
int rsh_dcp_find_held(const struct rsh_dcp *d, const struct rsh_dcp_tensor *t,
		      const struct rsh_dcp_chunk *c,
		      const struct rsh_source_view *view,
		      struct rsh_dcp_held *out, struct rsh_error *err);
