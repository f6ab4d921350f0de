/* SPDX-License-Identifier: Apache-2.0 */
/* source/dcp.h - a source that is a distributed checkpoint of PyTorch
 * (wire/dcp.h): a directory with ".metadata", with one metadata file of each
 * rank, or with shard-*.safetensors that have DCP_SHARDING_INFO.
 *
 * Its files are those that the metadata names, in the same order, each a rank
 * of its own; they need not be there.  The index of a file has a record for
 * each item with elements, called by where it lies and not by its tensor:
 * whatever the metadata says, the same bytes of a file are the same record, and
 * so an index may be kept beyond the mount.  Files that are safetensors have
 * their own index, whose records have the tensors' names.
 *
 * What is said of a source does not change, and any thread may ask.
 */
#ifndef RSH_SOURCE_DCP_H
#define RSH_SOURCE_DCP_H

#include "rsh/source/source.h"
#include "rsh/wire/dcp.h"

/* Is it the name of the metadata of one rank, "__3.metadata" or
 * ".rank3_metadata"? */
bool rsh_dcp_is_of_rank(const char *name);

/* Gives what the metadata says, which the source owns; NULL: the source is no
 * such checkpoint. */
const struct rsh_dcp *rsh_source_dcp(const struct rsh_source *s);

/* Has the chunk no elements? */
bool rsh_dcp_chunk_is_empty(const struct rsh_dcp_tensor *t,
			    const struct rsh_dcp_chunk *c);

/* Sets holds[file] of each file that has a chunk with elements; others may be
 * of any format. */
void rsh_dcp_mark_files(const struct rsh_dcp *d, bool *holds);

/* This is what a file holds of a chunk. */
struct rsh_dcp_held {
	uint32_t record; /* number in the index of the chunk's file */
	/* As of struct rsh_dcp_item; the record's dims are in this order. */
	uint8_t order[RSH_MAX_DIMS];
};
/* Finds the record of a chunk that has elements.  -ENOENT: the file is not
 * there or too short for it.  -EBADMSG with a sentence that names file, tensor
 * and offset: type or shape are not what the metadata says. */
int rsh_dcp_find_held(const struct rsh_dcp *d, const struct rsh_dcp_tensor *t,
		      const struct rsh_dcp_chunk *c,
		      const struct rsh_source_view *view,
		      struct rsh_dcp_held *out, struct rsh_error *err);

#endif
