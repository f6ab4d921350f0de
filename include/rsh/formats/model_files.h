/* SPDX-License-Identifier: Apache-2.0 */
/* formats/model_files.h - the files beside the weights of a Hugging Face model:
 * config.json, the tokenizer's files and so on.  They are read into memory, so
 * that a mount can show them even if their directory changes later.
 *
 * They do not change after they are loaded, so any thread may read them. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rsh/source/source.h"
#include "rsh/storage/store.h"
#include "rsh/util/error.h"

/* The largest known tokenizers have some 40 MB. */
#define RSH_MODEL_FILE_MAX (UINT64_C(64) * 1024 * 1024)
#define RSH_MODEL_FILES_MAX (UINT64_C(256) * 1024 * 1024)

struct rsh_model_file {
	char *name; /* below the directory: "1_Pooling/config.json" */
	char *text;
	uint64_t bytes;
	struct rsh_store_attr attr;
};
struct rsh_model_files {
	char *dir; /* for messages */
	struct rsh_model_file *v; /* sorted by name */
	size_t n, cap;
	char *left_out; /* names and reasons, for a message; NULL: none */
};

struct rsh_model_files_at {
	const char *dir;    /* NULL: no directory, but perhaps `config` */
	const char *config; /* the file that becomes config.json; NULL: that of
			     * the directory */
	const char *source; /* the path of SOURCE */
	const struct rsh_store_options *store; /* the options of SOURCE */
	/* With it, *left_out also has files of weights in the directory of
	 * SOURCE that are not files of SOURCE.  NULL: it does not. */
	const struct rsh_source *own;
	/* Returns whether an entry of the directory belongs to the model; NULL:
	 * all do. */
	bool (*is_beside)(const char *name, bool is_dir);
	/* The directory of which SOURCE is a step; NULL: none. */
	const char *steps_dir;
};

/* Loads the regular files of a directory and of its subdirectories.  Weights
 * and maps of weights of the directory itself, and names that begin with a dot,
 * do not belong to them.  For a directory that is not SOURCE, nor beside it in
 * `steps_dir`, only the option for links that lead out of it is used.
 *
 * A model is usable without most of these files, so none stops a mount: what
 * cannot be read or is larger than the limit is left out, a subdirectory as a
 * whole, and *left_out says so.  The caller owns the loaded files, also after a
 * failure.  Returns 0 or -errno with a sentence. */
int rsh_model_files_load(const struct rsh_model_files_at *at,
			 struct rsh_model_files *out, struct rsh_error *err);
/* Returns whether all these files are of the directory of SOURCE. */
bool rsh_model_files_own(const struct rsh_model_files_at *at);
void rsh_model_files_clear(struct rsh_model_files *f);
