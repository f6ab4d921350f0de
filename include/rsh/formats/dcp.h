/* SPDX-License-Identifier: Apache-2.0 */
/* formats/dcp.h - distributed checkpoints of PyTorch
 * (torch.distributed.checkpoint, 2.4 to 2.15, including Megatron-Core's
 * torch_dist) and of HyperParallel: the content of ".metadata", and where the
 * elements of an item are.
 *
 * ".metadata" is a pickle.  The reader calls and imports nothing.  A class is
 * only a name, and an object is a record of its arguments and state.  An object
 * of another class than those needed is an error, or is skipped if it is not
 * used.  Depth, memo and memory are limited by the file's size.
 *
 * A tensor is the union of its chunks, which are any boxes.  An item of PyTorch
 * is a zip archive of torch.save(), at an offset in a ".distcp" file.
 * HyperParallel stores the chunks of a rank in a safetensors file, under the
 * names in the metadata, and its values in a file of pickles. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "rsh/source/format.h"
#include "rsh/util/arena.h"
#include "rsh/util/error.h"
#include "rsh/wire/ckpt.h"
#include "rsh/wire/plain.h"

#define RSH_DCP_METADATA ".metadata"
#define RSH_DCP_NO_FILE UINT32_MAX
/* This length means that the item is found by its name in the file. */
#define RSH_DCP_BY_NAME UINT64_MAX

/* A run of indexes of an axis: `n` from `from` on, which are at `at` where the
 * chunks are given. */
struct rsh_dcp_run {
	uint64_t from, at, n;
};
struct rsh_dcp_axis {
	uint32_t n; /* 0: the indexes of the axis are those of the chunks */
	const struct rsh_dcp_run *runs; /* ascending by `at`, without gaps */
};

/* A chunk has as many offsets and sizes as its tensor has dimensions. */
struct rsh_dcp_chunk {
	const uint64_t *from, *size;
	/* number of its file; RSH_DCP_NO_FILE: not in storage_data */
	uint32_t file;
	uint64_t offset;  /* of the item in the file */
	uint64_t length;  /* or RSH_DCP_BY_NAME */
	/* With RSH_DCP_BY_NAME it is the name in the file; NULL: the tensor's.
	 * A file may have several boxes of a tensor. */
	const char *key;
};

struct rsh_dcp_tensor {
	const char *name;
	/* RSH_DTYPE_UNKNOWN: this version does not know the type of torch.
	 * Such a tensor can be listed and left out, but not shown. */
	enum rsh_dtype dtype;
	uint32_t n_dims;
	const uint64_t *dims;
	uint32_t n_chunks;
	struct rsh_dcp_chunk *chunks; /* in the order of the file */
	/* [n_dims]: a rank may have several runs of an axis, which are together
	 * in its chunk.  NULL: the boxes of the chunks are those of the
	 * tensor. */
	const struct rsh_dcp_axis *axes;
	uint32_t n_keys; /* 0: the name is the only key */
	const struct rsh_path_key *keys; /* from planner_data */
};

/* This is a value that is not a tensor.  If there are several copies, it is the
 * first. */
struct rsh_dcp_value {
	const char *name;
	const char *file; /* NULL: not in storage_data */
	uint64_t offset, length;
	uint32_t n_keys; /* as of a tensor */
	const struct rsh_path_key *keys;
};

struct rsh_dcp {
	bool by_name;     /* records have names (RSH_DCP_BY_NAME) */
	/* Names relative to the directory, ascending; those of HyperParallel
	 * may begin with "../".  Files that have only its values are not
	 * included. */
	uint32_t n_files;
	const char *const *files;
	uint32_t n_tensors;
	const struct rsh_dcp_tensor *tensors; /* ascending by name */
	uint32_t n_values;
	const struct rsh_dcp_value *values; /* ascending by name */
	struct rsh_arena arena_;
};

/* Reads a .metadata, or one of several per-rank ones (__R.metadata,
 * .rankR_metadata, R.metadata).  Returns 0 and *out, -ENOMEM, the error of
 * pread_fn, or -EBADMSG with a sentence that names path, tensor and offset: not
 * a pickle, a pickle that needs something unknown, a box outside its tensor, an
 * absolute path, or for PyTorch any path outside the directory; -ENOTSUP: items
 * are compressed or encrypted, or the version is not known.
 * rsh_cut_of_boxes() checks whether boxes overlap in part: copies of a chunk
 * have equal boxes, and several chunks without elements may be at one place. */
int rsh_dcp_parse(const struct rsh_byte_source *src, struct rsh_dcp **out,
		  struct rsh_error *err);
/* Does the same with the metadata that each rank of one save wrote: the result
 * is the union of their chunks.  `path` names the checkpoint and must outlive
 * the builder; NULL: memory is out.  -EBADMSG: they contradict each other.
 * After a failure, and after rsh_dcp_builder_finish(), the builder can only be
 * freed. */
struct rsh_dcp_builder;
struct rsh_dcp_builder *rsh_dcp_builder_new(const char *path);
int rsh_dcp_builder_add(struct rsh_dcp_builder *b,
			const struct rsh_byte_source *src,
			struct rsh_error *err);
int rsh_dcp_builder_finish(struct rsh_dcp_builder *b, struct rsh_dcp **out,
			   struct rsh_error *err);
void rsh_dcp_builder_free(struct rsh_dcp_builder *b); /* b may be NULL */
void rsh_dcp_free(struct rsh_dcp *d);
/* Returns whether the size of a tensor in bytes can be computed, even if a
 * dimension is 0: code that uses the tensor multiplies some of its sizes.
 * rsh_dcp_parse() returns only such tensors. */
bool rsh_dcp_is_countable(const struct rsh_dcp_tensor *t);
/* Returns whether the chunk has no elements. */
bool rsh_dcp_chunk_is_empty(const struct rsh_dcp_tensor *t,
			    const struct rsh_dcp_chunk *c);
void rsh_dcp_box(const struct rsh_dcp_tensor *t, const struct rsh_dcp_chunk *c,
		 struct rsh_box *out);

/* This is what an item of PyTorch says about its tensor. */
struct rsh_dcp_item {
	enum rsh_dtype dtype;
	uint32_t n_dims;
	uint64_t dims[RSH_MAX_DIMS];
	/* The order of the dimensions in which the elements are stored:
	 * order[0] is the slowest.  0, 1, .. is row-major. */
	uint8_t order[RSH_MAX_DIMS];
	uint64_t offset;  /* of the elements, in the file */
	uint64_t bytes;   /* of all elements */
	bool has_crc;     /* false: it was saved without CRCs */
	uint32_t crc;     /* of the elements, from the archive */
};
/* Reads both ends and the directory of an item's archive and its data.pkl, with
 * some small reads.  -EBADMSG with a sentence that names path and offset: not
 * such an archive, sizes that contradict each other, gaps between the
 * elements. */
int rsh_dcp_item_read(const struct rsh_byte_source *file, uint64_t offset,
		      uint64_t length, struct rsh_dcp_item *out,
		      struct rsh_error *err);

/* Reads all elements of the item and verifies their checksum.  An item without
 * one passes.  Returns 0, -EBADMSG with a sentence if it differs, or the error
 * of pread_fn. */
int rsh_dcp_item_check(const struct rsh_byte_source *file,
		       const struct rsh_dcp_item *item, struct rsh_error *err);

/* Reads a value that is not a tensor.  The caller must call rsh_plain_clear().
 * With `bare` it is a pickle, otherwise an item.  -EBADMSG with a sentence: as
 * for an item. */
int rsh_dcp_value_read(const struct rsh_byte_source *file, uint64_t offset,
		       uint64_t length, bool bare, struct rsh_plain *out,
		       struct rsh_error *err);

/* Reads the positions of chunks in Hugging Face's sharded form from the text of
 * DCP_SHARDING_INFO in a file's "__metadata__".  Calls `each` for every name.
 * -EBADMSG with a sentence. */
typedef int rsh_dcp_offsets_fn(void *ctx, const char *name, uint32_t n_dims,
			       const uint64_t *offsets);
int rsh_dcp_sharding_info(const char *text, const char *path,
			  rsh_dcp_offsets_fn *each, void *ctx,
			  struct rsh_error *err);

/* ---- for formats whose files have boxes of tensors ---- */

/* This is the beginning of the state of a source (rsh_source_keep()) whose
 * format uses the functions below as members.  The files of the source have the
 * numbers of the description. */
struct rsh_dcp_place;
struct rsh_dcp_source {
	struct rsh_dcp *pub;
	bool *holds; /* [file]: it has a chunk with elements */
	size_t n;
	struct rsh_dcp_place *places; /* sorted by file and offset */
};

/* Makes the catalogue and the offers of the tensors in `wanted`.  Of the
 * options, wanted, allow_missing and report_lost are used.  With allow_missing,
 * a tensor with missing chunks is left out if there is no destination;
 * otherwise the output files that need it are marked lost.  Returns 0, or
 * -errno with a sentence: -EBADMSG if a file contradicts the metadata, -ENOENT
 * if no file has a chunk, -ENOTSUP if an element type is not known. */
int rsh_dcp_read(const struct rsh_read_job *job, struct rsh_offers *out,
		 struct rsh_error *err);
/* Adds the paths of all names.  Returns 0 or -ENOMEM. */
int rsh_dcp_add_paths(const struct rsh_dcp *d, struct rsh_values *out);
/* Lists tensors, values and files; out->wrong is not set. */
int rsh_dcp_list(const struct rsh_list_job *job, struct rsh_listed *out,
		 struct rsh_error *err);
/* Checks that each element of a tensor is in a chunk.  Returns 0, -ENOMEM, or
 * -errno with a sentence that names the tensor: -EBADMSG if not, -EINVAL if
 * boxes overlap in part or are outside the tensor, -EFBIG if there are too many
 * elements. */
int rsh_dcp_check_covered(const struct rsh_dcp_tensor *t,
			  struct rsh_error *err);

/* A part of a chunk's box that is one box of the tensor as well. */
struct rsh_dcp_part {
	struct rsh_box box; /* of the tensor */
	uint64_t at[RSH_MAX_DIMS]; /* where it begins in the chunks' indexes */
};
/* Calls fn for each part of a box that is given as the chunks are.  Stops if it
 * does not return 0, and returns that. */
int rsh_dcp_parts(const struct rsh_dcp_tensor *t, const struct rsh_box *box,
		  int (*fn)(void *ctx, const struct rsh_dcp_part *part),
		  void *ctx);
