/* SPDX-License-Identifier: Apache-2.0 */
/* plan/files.h - the files of a source.  rsh_source_view() gives them to the
 * reader of a format, and the reader makes a catalogue of them. */
#pragma once

#include "rsh/util/names.h"
#include "rsh/wire/ckpt.h"
#include "rsh/wire/file_type.h"

/* [rank] is the number of a file; in a tree of ranks this is the global rank.
 * A view owns nothing that it points to. */
struct rsh_source_view {
	uint32_t n_ranks;                           /* length of the arrays */
	/* The arrays go on with files that do not belong to the checkpoint, but
	 * are read for it. */
	uint32_t n_beside;
	const struct rsh_ckpt_index *const *index;  /* [rank]; NULL: no valid
						     * file, or one that was
						     * not scanned */
	const char *const *path;                    /* [rank]; for messages */
	struct rsh_names *names;
	enum rsh_file_type format;                     /* of the files */
	bool joined; /* the index of some rank covers several concatenated
		      * files */
	/* MindSpore's converter cannot read files of this kind, so notes about
	 * differences from it are pointless. */
	bool foreign;
};
