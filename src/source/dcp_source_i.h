/* SPDX-License-Identifier: Apache-2.0 */
/* source/dcp_source_i.h - a distributed checkpoint as a source, for this room
 * only. */
#ifndef RSH_SOURCE_DCP_SOURCE_I_H
#define RSH_SOURCE_DCP_SOURCE_I_H

#include "rsh/source/dcp.h"
#include "rsh/util/arena.h"
#include "source_i.h"

/* This is where an item with elements lies. */
struct rsh_dcp_place {
	uint32_t file;
	uint64_t offset, length;
	const struct rsh_dcp_tensor *tensor; /* one that it is of */
};

/* This is what a source knows of its checkpoint. */
struct rsh_source_dcp {
	struct rsh_dcp *read;       /* as wire/ read it; NULL: pub is made of
				     * the headers of safetensors */
	const struct rsh_dcp *pub;
	struct rsh_arena arena;     /* of what is made of headers */
	bool *holds; /* [file]: it has a chunk with elements */
	size_t n;
	struct rsh_dcp_place *places; /* ascending by file and offset */
};

/* Is there such a checkpoint in the root? */
bool rsh_dcp_present(const struct rsh_source *s);
/* Reads its metadata, and lists its files, which are one candidate.  0 or
 * -errno with a sentence. */
int rsh_dcp_list(struct rsh_source *s, struct rsh_error *err);
void rsh_source_dcp_free(struct rsh_source_dcp *d);

/* ---- shard-*.safetensors (dcp_shards.c) ---- */

/* Is it the name of such a file? */
bool rsh_dcp_is_shard(const char *name);
/* Says whether the file has DCP_SHARDING_INFO.  0 or -errno with a
 * sentence. */
int rsh_dcp_shard_look(const struct rsh_source *s, const char *name, bool *has,
		       struct rsh_error *err);
/* Makes d->pub of the headers of n such files, ascending by name. */
int rsh_dcp_shards_read(const struct rsh_source *s, const char *const *names,
			size_t n, struct rsh_source_dcp *d,
			struct rsh_error *err);

/* ---- indexes (dcp_index.c) ---- */

/* Does with a file what rsh_file_scan() does.  `full` compares the CRC of each
 * item that has one; how many have none the index tells. */
int rsh_dcp_index_scan(const struct rsh_source *s, uint32_t file,
		       const struct rsh_byte_source *bytes, bool full,
		       struct rsh_names *names, struct rsh_ckpt_index **out,
		       struct rsh_error *err);
/* Are all items that the file should have within it?  0 or -EBADMSG with a
 * sentence. */
int rsh_dcp_check_size(const struct rsh_source *s, uint32_t file,
		       const struct rsh_byte_source *bytes,
		       struct rsh_error *err);
/* Has the index all records that the metadata wants of the file?  One that was
 * stored may have been made for other metadata. */
bool rsh_dcp_index_fits(const struct rsh_source *s, uint32_t file,
			const struct rsh_ckpt_index *ix,
			struct rsh_names *names);

#endif
