/* SPDX-License-Identifier: Apache-2.0 */
/* formats/torch.h - files of torch.save(): what tensors and values one holds,
 * and where the elements are.
 *
 * A file is a zip archive (since PyTorch 1.6) or pickles followed by storages.
 * Nothing of a pickle is ever called or imported: a class is a name, a call of
 * a name on the list of harmless ones is a value without effect, and every
 * other call refuses the file, also one whose result is thrown away.  Names are
 * flattened: keys and indexes joined by dots.  A tensor is a view of a storage,
 * which several tensors may share.
 *
 * What was read does not change, and any thread may ask; whoever asked for it
 * frees it. */
#ifndef RSH_FORMATS_TORCH_H
#define RSH_FORMATS_TORCH_H

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
/* This many bytes at the beginning tell the form, or all bytes of a file that
 * is shorter. */
#define RSH_TORCH_START 262
enum rsh_torch_form rsh_torch_form(const uint8_t *start, size_t n);

/* Checks that a .pt or .pth of torch.save() reaches its end.  A job that was
 * killed leaves a file that ends too early.
 *
 * A zip archive has its end record (and those of zip64) at the end of the file.
 * The central directory lies right before them and has as many entries as they
 * say.  Each entry's local header stands where the directory says and names the
 * same entry, and its content ends before the directory.  One entry is
 * data.pkl.
 *
 * A legacy file has pickles one after the other (a magic number, a version, the
 * system, the object, the storages' keys), then the storages.  The pickles must
 * read to their ends, and the rest of the file be as long as the storages that
 * the object refers to; it may be longer if a storage is of an element class
 * that is not known here.  No pickle is executed.  In a tar archive each header
 * leads to the next one, and two blocks of zeros end it, in the last tar record
 * of the file.  A file of pickle.dump() is one pickle that ends with the file.
 *
 * Every number is compared with the file's size, and little is allocated
 * whatever the bytes are.  If `full`, checksums are compared, and *unsummed
 * says that the file has none.  Returns 0; -EBADMSG with a sentence that names
 * file and offset; -ENOMEM; or what pread_fn gave.  Any thread may call it. */
int rsh_torch_check(const struct rsh_byte_source *src, bool full,
		    bool *unsummed, struct rsh_error *err);

/* ---- what a file holds ---- */

struct rsh_torch_storage {
	const char *key;
	uint64_t offset, bytes; /* in the file */
	uint32_t n_tensors;     /* that are in it */
	bool has_crc;           /* zip only */
	uint32_t crc;
};

struct rsh_torch_tensor {
	const char *name;
	/* RSH_DTYPE_UNKNOWN is a type that is not known here: such a tensor can
	 * be listed and left out, not shown. */
	enum rsh_dtype dtype;
	uint32_t n_dims;
	const uint64_t *dims, *strides; /* strides in elements */
	uint64_t elements;
	uint32_t storage; /* its number */
	uint64_t from;    /* the first element, counted from the storage's
			   * begin */
};

/* This is what is no tensor, or one of another make. */
struct rsh_torch_value {
	const char *name;
	char *json;       /* NULL: it is no plain data */
	const char *make; /* of a tensor that cannot be shown; else NULL */
};

struct rsh_torch_file {
	bool is_zip;
	/* All in the order of the file. */
	uint32_t n_tensors, n_values, n_storages;
	const struct rsh_torch_tensor *tensors;
	const struct rsh_torch_value *values;
	const struct rsh_torch_storage *storages;
	uint64_t file_bytes;
	struct rsh_arena arena_;
	struct rsh_names *names_;
};

/* Reads what a file holds: of a zip archive its end, its directory where that
 * is longer, and data.pkl.  Returns 0, -ENOMEM, what pread_fn gave, -ENOTSUP
 * for a program (TorchScript), a tar archive, an object or a bare tensor, or
 * -EBADMSG, with a sentence that names path and offset. */
int rsh_torch_file_read(const struct rsh_byte_source *src,
			struct rsh_torch_file **out, struct rsh_error *err);
void rsh_torch_file_free(struct rsh_torch_file *f);

/* ---- as an index ---- */

/* Finds the order of the dimensions, slowest first, in which elements with
 * these strides fill a stretch; 0, 1, .. if there are no elements.  False: they
 * do not fill one; the order is then that of the strides. */
bool rsh_torch_order(uint32_t n_dims, const uint64_t *dims,
		     const uint64_t *strides, uint8_t *order);

/* How the elements of a tensor are stored. */
struct rsh_torch_layout {
	/* Where the elements fill a stretch when the dimensions stand in this
	 * order, the record has them so; 0, 1, ... is row-major. */
	bool dense;
	uint8_t order[RSH_MAX_DIMS];
	/* Else the record is the stretch from the first element to the last. */
	uint64_t span; /* elements of the record */
};
void rsh_torch_layout(const struct rsh_torch_tensor *t,
		      struct rsh_torch_layout *out);

/* Makes an index with a record for each tensor, of its name and in the same
 * order; tensors of one storage share its bytes.  A tensor of unknown type has
 * a record without content.  0, or -ENOMEM with a sentence. */
int rsh_torch_index(const struct rsh_torch_file *f, struct rsh_names *names,
		    struct rsh_ckpt_index **out, struct rsh_error *err);

/* Reads all storages and compares their checksums.  *n_unsummed is how many
 * have none.  0, -EBADMSG with a sentence, or what pread_fn gave. */
int rsh_torch_file_check(const struct rsh_byte_source *src,
			 const struct rsh_torch_file *f, uint32_t *n_unsummed,
			 struct rsh_error *err);

/* Reads a file and makes its index for a caller that finds tensors by name
 * alone. A tensor that is not stored row by row has RSH_TORCH_ORDER and the
 * order of its dimensions behind its name: "w\1/1,0".  `full` compares
 * checksums as well. 0, or -errno with a sentence: -ENOTSUP for elements that
 * fill no stretch. */
#define RSH_TORCH_ORDER "\1"
int rsh_torch_scan_by_name(const struct rsh_byte_source *src, bool full,
			   struct rsh_names *names,
			   struct rsh_ckpt_index **out, struct rsh_error *err);

/* ---- as a catalogue ---- */

/* Makes the catalogue and the offers of the tensors that are wanted, of n files
 * that are parts of one model: rank 0 of job->view, whose index is that of
 * rsh_torch_index() or several of them joined.  Of the options, `wanted`
 * counts. The catalogue is the caller's; the offers live as long as job->arena
 * and the files.  0, or -errno with a sentence: -ENOTSUP for a type that is not
 * known or strides that need too many parts. */
int rsh_torch_offers(const struct rsh_torch_file *const *files, uint32_t n,
		     const struct rsh_read_job *job, struct rsh_offers *out,
		     struct rsh_error *err);

#endif
