/* SPDX-License-Identifier: Apache-2.0 */
/* plan/files.h - the files of a source, as rsh_source_view() hands them to
 * the reader of a dialect, who makes a catalogue of them. */
#ifndef RSH_PLAN_FILES_H
#define RSH_PLAN_FILES_H

#include "rsh/util/names.h"
#include "rsh/wire/ckpt.h"
#include "rsh/wire/file_type.h"

/* A view's arrays go by the number of a file, which in a tree of ranks is the
 * global rank.  A view owns nothing of what it points to. */
struct rsh_source_view {
	uint32_t n_ranks;                           /* length of the arrays */
	const struct rsh_ckpt_index *const *index;  /* [rank]; NULL: no file,
						     * none that is valid, or
						     * one nobody looks into */
	const char *const *path;                    /* [rank]; for messages */
	struct rsh_names *names;
	enum rsh_file_type format;                     /* of the files */
	bool joined; /* rank 0's index is that of several files end to end */
	/* The files are of a kind that MindSpore's converter cannot read, so
	 * that nobody wants to hear what it would have made of them. */
	bool foreign;
};

#endif
