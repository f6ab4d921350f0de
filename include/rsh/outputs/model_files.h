/* SPDX-License-Identifier: Apache-2.0 */
/* outputs/model_files.h - what is beside the weights of a Hugging Face model:
 * config.json, the tokenizer's files and the like.  They are read into memory,
 * so that a mount can show them whatever becomes of their directory.
 *
 * They do not change once they are loaded, so any thread may read them. */
#ifndef RSH_OUTPUTS_MODEL_FILES_H
#define RSH_OUTPUTS_MODEL_FILES_H

#include <stddef.h>
#include <stdint.h>

#include "rsh/storage/store.h"
#include "rsh/util/error.h"

/* The largest tokenizers known have some 40 MB. */
#define RSH_MODEL_FILE_MAX (UINT64_C(64) * 1024 * 1024)
#define RSH_MODEL_FILES_MAX (UINT64_C(256) * 1024 * 1024)

struct rsh_model_file {
	char *name;
	char *text;
	uint64_t bytes;
	struct rsh_store_attr attr;
};
struct rsh_model_files {
	char *dir; /* for messages */
	struct rsh_model_file *v; /* by name */
	size_t n, cap;
};

/* Loads the regular files of a directory that are neither weights nor maps of
 * weights, and whose names do not begin with a dot.  Of `how`, which is
 * SOURCE's, a directory that is not SOURCE takes only whether links may lead
 * out of it.  What was loaded is the caller's, also after a failure.  0 or
 * -errno with a sentence that names a file: -EFBIG for one, or all, of more
 * bytes than are kept. */
int rsh_model_files_load(const char *dir, const char *source,
			 const struct rsh_store_options *how,
			 struct rsh_model_files *out, struct rsh_error *err);
void rsh_model_files_clear(struct rsh_model_files *f);

#endif
