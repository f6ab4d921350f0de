/* SPDX-License-Identifier: Apache-2.0 */
/* formats/steps.h - functions that check steps. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "rsh/source/step.h"
#include "rsh/util/error.h"
#include "rsh/wire/ckpt.h"
#include "rsh/wire/file_type.h"

/* Reads the name of a step's directory at the beginning of a path: a prefix and
 * a number.  Returns what follows its '/', or NULL if it is none. */
const char *rsh_step_dir_read(const char *path, const char *prefix,
			      struct rsh_step_name *out);

/* Returns the index of a name among n names in ascending order; n if it is not
 * among them. */
size_t rsh_step_place(const char *const *names, size_t n, const char *name);

/* Checks that a file of this type is complete.  If `full`, reads all of it.
 * Returns 0 or -errno with a sentence. */
int rsh_step_check_file(enum rsh_file_type type,
			const struct rsh_byte_source *file, bool full,
			struct rsh_error *err);

/* Logs that the content of a file is not verified, because torch wrote 0 for
 * each CRC.  Logs only once in a process, because all files of a job are
 * alike. */
void rsh_step_say_unsummed(const char *path);
