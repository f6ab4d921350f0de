/* SPDX-License-Identifier: Apache-2.0 */
/* formats/torch.h - files of torch.save(): their tensors and values, and where
 * the elements are.
 *
 * A file is a zip archive (since PyTorch 1.6) or pickles followed by storages.
 * The reader calls and imports nothing from a pickle.  A class is only a name.
 * A call becomes a value without effect.  If a call that is not known has
 * tensors in its arguments, its value is marked; a file with a call that only
 * an attack makes is refused.  Names are flattened: keys and indexes are joined
 * by dots; of two values of one name the first one has it.  A tensor is a view
 * of a storage, which several tensors may share.
 *
 * The data does not change after it was read, and any thread may read it. The
 * caller that read it frees it. */
#pragma once

#include "rsh/plan/writer.h"
#include "rsh/source/format.h"
#include "rsh/util/arena.h"
#include "rsh/wire/ckpt.h"

/* ---- which form a file has, and whether it is complete ---- */

enum rsh_torch_form {
	RSH_TORCH_NONE,
	RSH_TORCH_ZIP,    /* since PyTorch 1.6 */
	RSH_TORCH_LEGACY, /* pickles, then storages */
	RSH_TORCH_PICKLE, /* a pickle of any kind */
	RSH_TORCH_TAR,    /* before PyTorch 0.1.10 */
};
/* The form can be detected from this many bytes at the beginning, or from all
 * bytes of a shorter file. */
#define RSH_TORCH_START 262
enum rsh_torch_form rsh_torch_form(const uint8_t *start, size_t n);

/* Checks that a .pt or .pth of torch.save() is complete.  A job that was killed
 * leaves a file that ends too early.
 *
 * A zip archive has its end record (and those of zip64) at the end of the file.
 * The central directory is directly before them and has the number of entries
 * that they give.  Each entry's local header is at the offset in the directory
 * and has the same name, and its content ends before the directory.  One entry
 * is data.pkl.
 *
 * A legacy file has several pickles (a magic number, a version, the system, the
 * object, the storages' keys), then the storages.  All pickles must be
 * complete, and the rest of the file must be as long as the storages that the
 * object refers to.  No pickle is executed.
 *
 * Every number is compared with the file's size.  If `full`, checksums are
 * verified, and *unsummed is true if the file has none.  Returns 0, -ENOMEM,
 * the error of pread_fn, or with a sentence that names the file: -EBADMSG;
 * -ENOTSUP for a tar archive, or if the storages or the calls of a legacy file
 * are not known.  Any thread may call it. */
int rsh_torch_check(const struct rsh_byte_source *src, bool full,
		    bool *unsummed, struct rsh_error *err);

/* This is a member of formats whose steps are such files. */
int rsh_torch_check_files(const struct rsh_byte_source *files,
			  const char *const *names, size_t n, bool full,
			  struct rsh_counters *says, struct rsh_error *err);

/* ---- the content of a file ---- */

struct rsh_torch_storage {
	const char *key;
	uint64_t offset, bytes; /* in the file */
	uint32_t n_tensors;     /* number of tensors in it */
	bool has_crc;           /* zip only */
	uint32_t crc;
};

struct rsh_torch_tensor {
	const char *name;
	/* RSH_DTYPE_UNKNOWN: this version does not know the type.  Such a
	 * tensor can be listed and left out, but not shown. */
	enum rsh_dtype dtype;
	uint32_t n_dims;
	const uint64_t *dims, *strides; /* strides in elements */
	uint64_t elements;
	uint32_t storage; /* its number */
	/* the first element, counted from the beginning of the storage */
	uint64_t from;
	/* The keys of which the name is made; 0: it is the only one. */
	uint32_t n_keys;
	const struct rsh_path_key *keys;
};

/* This is a value that is not a tensor, or a tensor of an unsupported kind. */
struct rsh_torch_value {
	const char *name;
	struct rsh_plain plain; /* without a pickle: it is not plain data */
	/* The kind of a tensor that cannot be shown, or of an object with
	 * tensors; else NULL. */
	const char *make;
	bool lost; /* a call that is not known made it of tensors */
	/* It is a tensor with no name of its own, for the reason in `make`.
	 * Several may have this name, which is made as far as it can be. */
	bool unnamed;
	uint32_t n_keys; /* as of a tensor */
	const struct rsh_path_key *keys;
};

struct rsh_torch_file {
	/* All are in the order of the file. */
	uint32_t n_tensors, n_values, n_storages;
	/* number of tensors that were left out, because they are those of
	 * another part of the model */
	uint32_t n_copies;
	const struct rsh_torch_tensor *tensors;
	const struct rsh_torch_value *values;
	const struct rsh_torch_storage *storages;
	uint64_t file_bytes;
	/* The directory of all entries of the archive, which torch.save() calls
	 * as the file to which it writes, without ".pt"; NULL: it is no
	 * archive. */
	const char *root;
	struct rsh_arena arena_;
	struct rsh_names *names_;
};

void rsh_torch_file_free(struct rsh_torch_file *f);

/* ---- a file that has one rank's part of each tensor ---- */

struct rsh_pickle_class;
struct rsh_pickle_value;
/* A rank has so many pieces of a tensor at most. */
#define RSH_TORCH_PIECES_MAX 64
/* Reads tensors of which the file has a part: DTensor, ShardedTensor; or a file
 * that says what it has of all tensors, as Megatron-LM's. */
struct rsh_torch_parts {
	void *ctx;
	/* Reads what the pickle says about the tensor `name`, whose text is
	 * valid as long as the file; `args` are those of
	 * torch._tensor._rebuild_from_type_v2.  Sets pieces[0 .. *n-1] to the
	 * values of the tensors that the file itself has; they get the names
	 * "name", "name\2" "1", "name\2" "2" and so on.  Values are valid only
	 * during the call.  NULL: such tensors are refused.  Returns 0, or
	 * -errno with a sentence. */
	int (*take)(void *ctx, const char *path, const char *name,
		    const struct rsh_pickle_value *args,
		    const struct rsh_pickle_value
			    *pieces[RSH_TORCH_PIECES_MAX],
		    uint32_t *n, struct rsh_error *err);
	/* Looks at the object of the file, before its tensors are found, and
	 * whether or not it is one rank's part of a checkpoint.  The value is
	 * valid only during the call.  NULL: such parts are refused.  Returns
	 * 0, or -errno with a sentence. */
	int (*look)(void *ctx, const char *path,
		    const struct rsh_pickle_value *root, struct rsh_error *err);
	/* Tensors are not collected, so they may be parts, and so may the
	 * file. */
	bool values_only;
};
/* Reads the content of a file.  Of a zip archive it reads the end, the
 * directory (if it is longer than that), and data.pkl.  Without `parts` the
 * file may have no parts of tensors; only zip archives can.  Returns 0,
 * -ENOMEM, the error of pread_fn, or with a sentence that names path and
 * offset: -ENOTSUP if it is a program (TorchScript), a tar archive, an object
 * or a bare tensor; or -EBADMSG. */
int rsh_torch_file_read(const struct rsh_byte_source *src,
			const struct rsh_torch_parts *parts,
			struct rsh_torch_file **out, struct rsh_error *err);

/* ---- an archive within a file: an item of a distributed checkpoint ---- */

#define RSH_TORCH_ITEM_PATH 1024
/* Reads an archive of one tensor, whose name is "", at this place of a file;
 * the places in the result are counted from there.  `path` is set to its name
 * in messages.  It reads both ends of the archive, and nothing else of those
 * that torch writes. */
int rsh_torch_item_read(const struct rsh_byte_source *file, uint64_t offset,
			uint64_t length, char path[RSH_TORCH_ITEM_PATH],
			struct rsh_torch_file **out, struct rsh_error *err);
/* Reads an archive of a value that is no tensor.  *out is empty if it is no
 * plain data; the caller must call rsh_plain_clear(). */
int rsh_torch_item_value(const struct rsh_byte_source *file, uint64_t offset,
			 uint64_t length, struct rsh_plain *out,
			 struct rsh_error *err);

/* ---- as an index ---- */

/* Returns whether the order of n dimensions is 0, 1, ..: row-major. */
bool rsh_torch_is_row_major(const uint8_t *order, uint32_t n);
/* This says how the elements of a tensor are stored. */
struct rsh_torch_layout {
	/* True: the elements are contiguous if the dimensions are in this
	 * order, and the record has the dimensions in it; 0, 1, ... is
	 * row-major. */
	bool dense;
	uint8_t order[RSH_MAX_DIMS];
	/* Else the record is the range from the first element to the last. */
	uint64_t span; /* elements of the record */
};
void rsh_torch_layout(const struct rsh_torch_tensor *t,
		      struct rsh_torch_layout *out);
/* Gives a tensor another shape, in row-major order from its first element on;
 * arena->failed: memory is out. */
void rsh_torch_reshape(struct rsh_torch_tensor *t, uint32_t n_dims,
		       const uint64_t *dims, struct rsh_arena *arena);

/* Reads all storages and verifies their checksums.  *n_unsummed is the number
 * of storages without a checksum.  Returns 0, -EBADMSG with a sentence, or the
 * error of pread_fn. */
int rsh_torch_file_check(const struct rsh_byte_source *src,
			 const struct rsh_torch_file *f, uint32_t *n_unsummed,
			 struct rsh_error *err);

/* Makes an index with one record for each tensor, with its name and in the same
 * order.  Tensors of one storage share its bytes.  A tensor of unknown type has
 * a record without content.  If `full`, also verifies checksums.
 *
 * With `by_name`, for a caller that finds tensors only by name: if a tensor is
 * not stored in row-major order, RSH_TORCH_ORDER and the order of its
 * dimensions are appended to its name: "w\1/1,0".  With gaps between its
 * elements it has many extents.  Returns 0, or -errno with a sentence: -ENOTSUP
 * if a tensor has too many extents.  The second function also reads the
 * file. */
#define RSH_TORCH_ORDER "\1"
int rsh_torch_index(struct rsh_torch_file *f, const struct rsh_byte_source *src,
		    bool full, bool by_name, struct rsh_names *names,
		    struct rsh_ckpt_index **out, struct rsh_error *err);
int rsh_torch_scan_by_name(const struct rsh_byte_source *src, bool full,
			   struct rsh_names *names,
			   struct rsh_ckpt_index **out, struct rsh_error *err);

/* ---- as a catalogue ---- */

/* Makes the catalogue and the offers of the tensors in `wanted` from n files
 * that are parts of one model.  They are rank 0 of job->view, whose index is
 * that of rsh_torch_index() or several of them joined.  Of the options only
 * `wanted` is used. The caller owns the catalogue.  The offers are valid as
 * long as job->arena and the files.  Returns 0, or -errno with a sentence:
 * -ENOTSUP if the type is not known or the strides need too many parts. */
int rsh_torch_offers(const struct rsh_torch_file *const *files, uint32_t n,
		     const struct rsh_read_job *job, struct rsh_offers *out,
		     struct rsh_error *err);
