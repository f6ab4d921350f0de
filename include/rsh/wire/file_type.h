/* SPDX-License-Identifier: Apache-2.0 */
/* wire/file_type.h - the two types of checkpoint files, which are recognized by
 * the suffixes of their names, and functions for both.  Any thread may call
 * these functions. */
#pragma once

#include <stdbool.h>

#include "rsh/util/error.h"
#include "rsh/util/names.h"
#include "rsh/wire/ckpt.h"

enum rsh_file_type {
	RSH_FILE_CKPT,
	RSH_FILE_SAFETENSORS,
	RSH_FILE_OTHER /* neither of the two */
};

/* Returns the type of a file with this name.  Returns RSH_FILE_OTHER if it is
 * not a checkpoint, or if the name is only a suffix. */
enum rsh_file_type rsh_file_type_of(const char *name);
/* Returns the suffix of a format: ".ckpt" or ".safetensors". */
const char *rsh_file_type_suffix(enum rsh_file_type f);

/* Returns what a file is that begins with these n bytes and is none of a
 * checkpoint in safetensors or .ckpt, such as "a web page or XML"; NULL: it is
 * unknown.  RSH_FILE_BEGIN bytes are enough. */
#define RSH_FILE_BEGIN 32
const char *rsh_file_begins_as(const void *begin, size_t n);
/* Replaces the error of reading a file if it is one of those; returns rc. */
int rsh_file_explain(const struct rsh_byte_source *src, int rc,
		     struct rsh_error *err);

/* Scans a file as rsh_ckpt_scan() or rsh_safetensors_scan() does, with their
 * errors, or says what the file is instead.  If `full` is true, also reads all
 * bytes and verifies the checksum, if the file has one.  For both types,
 * has_crc of the index says whether the file has a checksum. */
int rsh_file_scan(enum rsh_file_type f, const struct rsh_byte_source *src,
		    bool full, struct rsh_names *names,
		    struct rsh_ckpt_index **out, struct rsh_error *err);
