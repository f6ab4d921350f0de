/* SPDX-License-Identifier: Apache-2.0 */
/* wire/strategy_emit.h - strategy files, written as MindSpore writes them.
 *
 * Both functions return one buffer, which the caller frees.  Protobuf has its
 * fields in the order of their numbers, and JSON is the output of Python's
 * json.dump, so that files of equal content have equal bytes.  The functions
 * keep no state, so any thread may call them. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rsh/util/error.h"
#include "rsh/wire/strategy_file.h"

/* ---- merging the files of a pipeline's stages ---- */

/* This is a strategy file as stored on disk. */
struct rsh_strategy_bytes {
	const char *path; /* for messages */
	const void *data;
	size_t len;
};

/* Makes the file that merge_pipeline_strategys makes of n >= 1 files of one
 * format (JSON if `json`): all their content, with parameters named
 * "<stage>-<name>" and stages in ascending order.  The stage of a file is that
 * of its first strategy item.  If several files have one stage, the first given
 * file is used. Returns 0, -ENOMEM, or -EBADMSG with a sentence: a file is not
 * of that format, or has no strategy item or no layout item. */
int rsh_strategy_join(const struct rsh_strategy_bytes *files, size_t n,
		      bool json, void **out, size_t *len,
		      struct rsh_error *err);

/* ---- writing computed layouts ---- */

struct rsh_staged_item {
	uint32_t stage;
	/* the axes of size 1 were removed from the mesh; see struct
	 * rsh_strategy_op */
	bool tuples;
	struct rsh_strategy_item item; /* its name is that of the parameter */
};

struct rsh_staged_items {
	uint32_t n_stages;
	size_t n;
	const struct rsh_staged_item *v; /* in ascending order of stages */
};

/* Writes one file of the items; with more than one stage it is like a merged
 * file.  The operators are not known.  Instead each parameter has a strategy
 * item "Parameter_<name>" with one strategy, which says how the parameter is
 * split.  Returns 0, -ENOMEM, or -EINVAL with a sentence: JSON has no form for
 * nested maps. */
int rsh_strategy_emit(const struct rsh_staged_items *items, bool json,
		      void **out, size_t *len, struct rsh_error *err);
