/* SPDX-License-Identifier: Apache-2.0 */
/* source/described_i.h - steps of Checkpoint 2.0, for this room only. */
#ifndef RSH_SOURCE_DESCRIBED_I_H
#define RSH_SOURCE_DESCRIBED_I_H

#include "index_cache_i.h"
#include "rsh/wire/checkpoint2.h"
#include "source_i.h"

/* ---- which there are (checkpoint2.c) ---- */

/* Is the root a Checkpoint 2.0 tree, or one step of one? */
bool rsh_checkpoint2_present(const struct rsh_source *s);
/* Does the same; *ranks says whether there are directories of ranks. */
bool rsh_checkpoint2_look(const struct rsh_source *s, bool *ranks);
/* Lists the steps and makes them the candidates.  0 or -errno with a
 * sentence. */
int rsh_checkpoint2_list(struct rsh_source *s,
			 const struct rsh_source_options *opts,
			 struct rsh_error *err);

/* ---- what one says of itself (described.c) ---- */

struct rsh_described {
	char *path; /* for messages */
	struct rsh_ckpt2 *metadata;
	struct rsh_index_key key; /* which file that was */
	uint32_t n_absent;
	uint32_t *absent;  /* files of the metadata that are not there */
	bool any_opt;      /* some file has the optimizer's state */
	/* These count parameters that no file has, and names in files that are
	 * not described; each first one is an example.  They are known once the
	 * strategy was made. */
	uint32_t n_nowhere, n_unlisted;
	const char *nowhere, *unlisted;
};

/* Reads the metadata.json of a candidate and gives its files in the listing
 * the ranks that it says; those of which it knows nothing get
 * RSH_RANK_UNKNOWN.  0 or -errno with a sentence: the step is not whole, or
 * not to be understood. */
int rsh_described_take(struct rsh_source *s, uint32_t candidate,
		       struct rsh_error *err);
/* Logs what of the chosen candidate is not there, or not as described, and which
 * one it is if there was a choice; `choice` is NULL if there was none. */
void rsh_described_log(const struct rsh_source *s, const char *choice);
void rsh_described_free(struct rsh_described *d);
/* Gives the name by which messages call the files of a rank, which that of one
 * of them is made of (from malloc); NULL: out of memory. */
char *rsh_described_path(const char *path);

#endif
