/* SPDX-License-Identifier: Apache-2.0 */
/* formats/dcp.h - distributed checkpoints of PyTorch
 * (torch.distributed.checkpoint, 2.4 to 2.15, Megatron-Core's torch_dist among
 * them) and of HyperParallel: what ".metadata" says, and where the elements of
 * an item lie.
 *
 * ".metadata" is a pickle.  Nothing is ever called or imported: a class is a
 * name, what is made of it is a record of its arguments and state, and what is
 * not one of the classes that are needed is refused or, where it does not
 * matter, skipped.  Depth, memo and memory are bounded by the file's size.
 *
 * A tensor is the union of its chunks, which are any boxes.  An item of PyTorch
 * is a zip archive as torch.save() writes it, at an offset of a ".distcp" file;
 * HyperParallel keeps the chunks of a rank in a safetensors file, under the
 * tensor's name.
 */
#ifndef RSH_FORMATS_DCP_H
#define RSH_FORMATS_DCP_H

#include <stdbool.h>
#include <stdint.h>

#include "rsh/util/arena.h"
#include "rsh/util/error.h"
#include "rsh/wire/ckpt.h"

#define RSH_DCP_METADATA ".metadata"
#define RSH_DCP_NO_FILE UINT32_MAX
/* The length of an item that has to be looked up by name in its file. */
#define RSH_DCP_BY_NAME UINT64_MAX

/* A chunk has as many offsets and sizes as its tensor has dimensions. */
struct rsh_dcp_chunk {
	const uint64_t *from, *size;
	uint32_t file;    /* number of its file; RSH_DCP_NO_FILE: storage_data
			   * does not have it */
	uint64_t offset;  /* of the item in the file */
	uint64_t length;  /* or RSH_DCP_BY_NAME */
};

struct rsh_dcp_tensor {
	const char *name;
	/* RSH_DTYPE_UNKNOWN is a type of torch that is not known here: such a
	 * tensor can be listed and left out, not shown. */
	enum rsh_dtype dtype;
	uint32_t n_dims;
	const uint64_t *dims;
	uint32_t n_chunks;
	const struct rsh_dcp_chunk *chunks; /* in the order of the file */
};

/* A value that is no tensor; of several copies the first. */
struct rsh_dcp_value {
	const char *name;
	const char *file; /* NULL: storage_data does not have it */
	uint64_t offset, length;
};

struct rsh_dcp {
	bool by_name;     /* HyperParallel's: the files are safetensors */
	/* Names relative to the directory, ascending.  HyperParallel's values,
	 * each of which is a file, are not among them. */
	uint32_t n_files;
	const char *const *files;
	uint32_t n_tensors;
	const struct rsh_dcp_tensor *tensors; /* ascending by name */
	uint32_t n_values;
	const struct rsh_dcp_value *values; /* ascending by name */
	struct rsh_arena arena_;
};

/* Reads a .metadata or one of several per-rank ones (__R.metadata,
 * .rankR_metadata).  Returns 0 and *out, -ENOMEM, what pread_fn gave, or
 * -EBADMSG with a sentence that names path, tensor and offset: no pickle, one
 * that needs what is not known, boxes that leave the tensor, a path that leaves
 * the directory; -ENOTSUP: items that are compressed or encrypted.  Whether
 * boxes share elements in part is left to rsh_cut_of_boxes(): copies of a chunk
 * have equal ones, and of chunks without elements several may stand at one
 * place. */
int rsh_dcp_parse(const struct rsh_byte_source *src, struct rsh_dcp **out,
		  struct rsh_error *err);
/* Joins the metadata that each rank of one save wrote: the union of their
 * chunks.  -EBADMSG: they contradict each other.  The parts stay the
 * caller's. */
int rsh_dcp_join(const struct rsh_dcp *const *parts, uint32_t n,
		 const char *path, struct rsh_dcp **out, struct rsh_error *err);
void rsh_dcp_free(struct rsh_dcp *d);
/* Can the bytes of a tensor be counted, even where a dimension is 0?  Others
 * multiply some of the sizes.  Of what rsh_dcp_parse() gives they can. */
bool rsh_dcp_is_countable(const struct rsh_dcp_tensor *t);
void rsh_dcp_box(const struct rsh_dcp_tensor *t, const struct rsh_dcp_chunk *c,
		 struct rsh_box *out);

/* This is what an item of PyTorch says of itself. */
struct rsh_dcp_item {
	enum rsh_dtype dtype;
	uint32_t n_dims;
	uint64_t dims[RSH_MAX_DIMS];
	/* The order of the dimensions as the elements are stored: order[0] is
	 * the slowest.  0, 1, .. is row-major. */
	uint8_t order[RSH_MAX_DIMS];
	uint64_t offset;  /* of the elements, in the file */
	uint64_t bytes;   /* of all elements */
	bool has_crc;     /* false: it was saved without CRCs */
	uint32_t crc;     /* of the elements, as the archive says */
};
/* Reads the ends and the directory of an item's archive and its data.pkl: some
 * small reads.  -EBADMSG with a sentence that names path and offset: no such
 * archive, sizes that contradict each other, elements with gaps between
 * them. */
int rsh_dcp_item_read(const struct rsh_byte_source *file, uint64_t offset,
		      uint64_t length, struct rsh_dcp_item *out,
		      struct rsh_error *err);

/* Reads all elements of the item and compares their checksum; an item without
 * one passes.  0, -EBADMSG with a sentence if they differ, or what pread_fn
 * gave. */
int rsh_dcp_item_check(const struct rsh_byte_source *file,
		       const struct rsh_dcp_item *item, struct rsh_error *err);

/* Reads a value that is no tensor, and gives it as JSON (from malloc); of
 * length RSH_DCP_BY_NAME the whole file is a pickle.  -ENOTSUP, without a
 * sentence: it is not plain data, of which None, truth, numbers, texts, lists
 * and dictionaries are made; -EBADMSG with a sentence as for an item. */
int rsh_dcp_value_read(const struct rsh_byte_source *file, uint64_t offset,
		       uint64_t length, char **json, struct rsh_error *err);

/* Reads where a chunk of Hugging Face's sharded form lies from the text of
 * DCP_SHARDING_INFO in a file's "__metadata__": calls `each` for every name.
 * -EBADMSG with a sentence. */
typedef int rsh_dcp_offsets_fn(void *ctx, const char *name, uint32_t n_dims,
			       const uint64_t *offsets);
int rsh_dcp_sharding_info(const char *text, const char *path,
			  rsh_dcp_offsets_fn *each, void *ctx,
			  struct rsh_error *err);

#endif
