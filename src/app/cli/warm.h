/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/warm.h has the parts of the command `warm`. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "rsh/app/options.h"

struct rsh_warm_file {
	char *path;
	uint64_t size;
};

/* This is what a thread reads in one call. */
struct rsh_warm_part {
	size_t file;
	uint64_t offset, bytes;
};

struct rsh_warm_parts {
	struct rsh_warm_part *v; /* the caller owns it, from malloc */
	size_t n, cap;
	uint64_t bytes;    /* of all parts */
	uint64_t distinct; /* of all shares together */
};

/* Finds which parts of the files are this run's share (warm_share.c).  Bytes
 * that several files take from the same place of the source count once, and all
 * shares have equally many bytes.  Each run computes the same division, if the
 * mounts show the same.  Returns 0 or -errno with a sentence. */
int rsh_warm_divide(const struct rsh_options *o,
		    const struct rsh_warm_file *files, size_t n_files,
		    struct rsh_warm_parts *out, struct rsh_error *err);
