/* SPDX-License-Identifier: Apache-2.0 */
/* outputs/model_files.h - the files beside the weights of a Hugging Face model:
 * config.json, the tokenizer's files and so on.  They are read into memory, so
 * that a mount can show them even if their directory changes later.
 *
 * They do not change after they are loaded, so any thread may read them. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "rsh/storage/store.h"
#include "rsh/util/error.h"

/* The largest known tokenizers have some 40 MB. */
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
	struct rsh_model_file *v; /* sorted by name */
	size_t n, cap;
};

/* Loads the regular files of a directory, except weights, maps of weights, and
 * files whose names begin with a dot.  `how` has the options of SOURCE.  For a
 * directory that is not SOURCE, only the option for links that lead out of it
 * is used.  The caller owns the loaded files, also after a failure.  Returns 0
 * or -errno with a sentence that names a file: -EFBIG if one file, or all
 * together, are larger than the limit. */
int rsh_model_files_load(const char *dir, const char *source,
			 const struct rsh_store_options *how,
			 struct rsh_model_files *out, struct rsh_error *err);
void rsh_model_files_clear(struct rsh_model_files *f);
