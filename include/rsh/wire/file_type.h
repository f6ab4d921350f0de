/* SPDX-License-Identifier: Apache-2.0 */
/* wire/file_type.h - the two types of checkpoint files, told apart by the ends
 * of their names, and what both have.  Any thread may call. */
#ifndef RSH_WIRE_FILE_TYPE_H
#define RSH_WIRE_FILE_TYPE_H

#include <stdbool.h>

#include "rsh/util/error.h"
#include "rsh/util/names.h"
#include "rsh/wire/ckpt.h"

enum rsh_file_type {
	RSH_FILE_CKPT,
	RSH_FILE_SAFETENSORS,
	RSH_FILE_OTHER /* a file of neither */
};

/* Returns the format of a file that is called `name`; RSH_FILE_OTHER if it is
 * no checkpoint, or the name is only a suffix. */
enum rsh_file_type rsh_file_type_of(const char *name);
/* Returns the suffix of a format: ".ckpt" or ".safetensors". */
const char *rsh_file_type_suffix(enum rsh_file_type f);

/* Scans a file as rsh_ckpt_scan() or rsh_safetensors_scan() does, with their
 * errors.  If `full`, it also reads all bytes and compares their checksum, if
 * the file has one.  For both formats has_crc of the index says whether it
 * has. */
int rsh_file_scan(enum rsh_file_type f, const struct rsh_byte_source *src,
		    bool full, struct rsh_names *names,
		    struct rsh_ckpt_index **out, struct rsh_error *err);

#endif
