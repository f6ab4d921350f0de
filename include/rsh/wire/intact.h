/* SPDX-License-Identifier: Apache-2.0 */
/* wire/intact.h - whether a checkpoint file of another kind is whole.
 *
 * A job that was killed leaves a file that ends too early.  Each check reads
 * just enough to know that a file reaches its end as its own directory says:
 * headers and directories, and tensors only if `full` asks for their checksums.
 * The checks compare every number with the file's size and allocate little,
 * whatever the bytes are.
 *
 * All return 0; -EBADMSG with a sentence that names file and offset; -ENOMEM;
 * or what pread_fn gave.  They keep no state; any thread may call.
 */
#ifndef RSH_WIRE_INTACT_H
#define RSH_WIRE_INTACT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rsh/util/error.h"
#include "rsh/wire/ckpt.h"

/* The forms of a file of torch.save(). */
enum rsh_torch_form {
	RSH_TORCH_NONE,
	RSH_TORCH_ZIP,    /* since PyTorch 1.6 */
	RSH_TORCH_LEGACY, /* pickles, then storages */
	RSH_TORCH_PICKLE, /* a pickle of any kind */
	RSH_TORCH_TAR,    /* before PyTorch 0.1.10 */
};
/* A form is told by this many bytes at the beginning, or fewer of a file that
 * is shorter. */
#define RSH_TORCH_START 262
enum rsh_torch_form rsh_torch_form(const uint8_t *start, size_t n);

/* Checks a .pt or .pth of torch.save().
 *
 * Since PyTorch 1.6 that is a zip archive: its end record (and those of zip64)
 * stand at the end of the file, and the central directory lies right before
 * them and has as many entries as they say.  Each entry's local header stands
 * where the directory says and names the same entry, and its content ends
 * before the directory.  One entry is data.pkl.
 *
 * Older files are pickles one after the other (a magic number, a version, the
 * system, the object, the storages' keys), then the storages.  The pickles must
 * read to their ends, and the rest of the file be as long as the storages that
 * the object refers to.  No pickle is executed.  Where a storage is of an
 * element class that is not known here, the rest may be longer.  The oldest
 * files are tar archives: header by header one must come to the two blocks of
 * zeros that end it, in the last tar record of the file.
 *
 * A file of pickle.dump() is one pickle that ends with the file. */
int rsh_torch_check(const struct rsh_byte_source *src, bool full,
		    bool *unsummed, struct rsh_error *err);
/* Checks the zip archive of a .pt.  If `full`, it reads all entries that are
 * stored as they are, as PyTorch's are, and compares their CRCs; *unsummed then
 * says that there is none to compare, as torch.serialization's
 * set_crc32_options(False) has it. */
int rsh_zip_check(const struct rsh_byte_source *src, bool full, bool *unsummed,
		  struct rsh_error *err);

/* Checks the .index of a TensorFlow 2 checkpoint: a sorted table whose blocks
 * match their CRCs, whose header entry says how many data files there are, and
 * whose tensors lie within those; shards[i] is .data-<i>-of-<n_shards>.  If
 * `full`, it reads the tensors and compares their CRCs, but for strings, whose
 * CRC is not one of their bytes. */
int rsh_tf_index_check(const struct rsh_byte_source *index,
		       const struct rsh_byte_source *const *shards,
		       uint32_t n_shards, bool full, struct rsh_error *err);

/* Checks whether the blocks of an encrypted .ckpt, which say how long they are,
 * fill the file.  Returns -ENOTSUP, without a sentence, if it is not an
 * encrypted one.  A file cut between two blocks (64 MiB of plain text each)
 * passes. */
int rsh_encrypted_check(const struct rsh_byte_source *src,
			struct rsh_error *err);

#endif
