/* SPDX-License-Identifier: Apache-2.0 */
/* formats/dcp/dcp_i.h - distributed checkpoints of PyTorch (formats/dcp.h): a
 * directory with ".metadata", with one metadata file of each rank, or with
 * shard-*.safetensors that have DCP_SHARDING_INFO.
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
#ifndef RSH_FORMATS_DCP_I_H
#define RSH_FORMATS_DCP_I_H

#include "rsh/formats/dcp.h"
#include "rsh/source/format.h"
#include "rsh/util/arena.h"

/* The place of an item with elements. */
struct rsh_dcp_place {
	uint32_t file;
	uint64_t offset, length;
	const struct rsh_dcp_tensor *tensor; /* one that it is of */
};

/* This is what a source knows of its checkpoint. */
struct rsh_source_dcp {
	struct rsh_dcp *read;       /* by metadata.c; NULL: pub is made of the
				     * headers of safetensors */
	const struct rsh_dcp *pub;
	struct rsh_arena arena;     /* of what is made of headers */
	bool *holds; /* [file]: it has a chunk with elements */
	size_t n;
	struct rsh_dcp_place *places; /* ascending by file and offset */
};

/* Gives what the source knows, and what its metadata says, which the source
 * owns. */
static inline const struct rsh_source_dcp *
rsh_dcp_of(const struct rsh_source *s)
{
	return rsh_source_state(s);
}
static inline const struct rsh_dcp *rsh_source_dcp(const struct rsh_source *s)
{
	return rsh_dcp_of(s)->pub;
}

/* ---- its files (listing.c) ---- */

int rsh_dcp_bid(const struct rsh_look *look);
bool rsh_dcp_is_step(const struct rsh_look *look);
/* Reads the metadata, and lists its files, which are one candidate.  0 or
 * -errno with a sentence. */
int rsh_dcp_open(struct rsh_source *s, const struct rsh_source_options *opts,
		 struct rsh_error *err);
void rsh_dcp_close(void *state);
/* Is it the name of the metadata of one rank, "__3.metadata" or
 * ".rank3_metadata"? */
bool rsh_dcp_is_of_rank(const char *name);

/* Has the chunk no elements? */
bool rsh_dcp_chunk_is_empty(const struct rsh_dcp_tensor *t,
			    const struct rsh_dcp_chunk *c);

/* Sets holds[file] of each file that has a chunk with elements; others may be
 * of any format. */
void rsh_dcp_mark_files(const struct rsh_dcp *d, bool *holds);

/* ---- shard-*.safetensors (shards.c) ---- */

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

/* ---- indexes (index.c): struct rsh_format says what these do ---- */

int rsh_dcp_index_scan(const struct rsh_source *s, uint32_t file,
		       const struct rsh_byte_source *bytes, enum rsh_scan how,
		       struct rsh_names *names, struct rsh_ckpt_index **out,
		       struct rsh_error *err);
/* Has the index all records that the metadata wants of the file?  One that was
 * stored may have been made for other metadata. */
bool rsh_dcp_index_fits(const struct rsh_source *s, uint32_t file,
			const struct rsh_ckpt_index *ix,
			struct rsh_names *names);
/* A file of many items either was saved with CRCs or without any. */
bool rsh_dcp_has_crc(const struct rsh_source *s,
		     const struct rsh_ckpt_index *ix);

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

/* ---- its tensors (reader.c, values.c, list.c, verify.c) ---- */

/* Makes the catalogue and the offers of the tensors that are wanted.  Of the
 * options, wanted, allow_missing and report_lost count; with allow_missing a
 * tensor that lacks chunks is left out where there is no destination, and else
 * its files are to be lost.  0, or -errno with a sentence: -EBADMSG where a
 * file contradicts the metadata, -ENOENT for chunks that no file has, -ENOTSUP
 * for a type of elements that is not known. */
int rsh_dcp_read(const struct rsh_read_job *job, struct rsh_offers *out,
		 struct rsh_error *err);
/* Reads the values that are wanted, several at a time. */
int rsh_dcp_values(struct rsh_source *source,
		   const struct rsh_plan_options *opts,
		   struct rsh_values *out, char **note, struct rsh_error *err);
void rsh_dcp_each(const struct rsh_source *s,
		  void (*fn)(void *ctx, const char *name, uint64_t bytes),
		  void *ctx);
int rsh_dcp_list(const struct rsh_source *s, struct rsh_arena *arena,
		 struct rsh_listed *out, struct rsh_error *err);
int rsh_dcp_verify(const struct rsh_verifier *v);
/* Says how many of a tensor's elements are in no chunk.  0, -ENOMEM, or -errno
 * with a sentence that names the tensor: -EINVAL for boxes that overlap in part
 * or leave the tensor, -EFBIG for more elements than can be. */
int rsh_dcp_uncovered(const struct rsh_dcp_tensor *t, uint64_t *elements,
		      struct rsh_error *err);

extern const struct rsh_resume_format rsh_dcp_resume;

#endif
