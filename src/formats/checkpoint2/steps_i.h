/* SPDX-License-Identifier: Apache-2.0 */
/* formats/checkpoint2/steps_i.h - steps of Checkpoint 2.0, for this
 * directory only.
 *
 * A tree has a directory for each step, in which every rank has two files, of
 * weights and of the optimizer's state; they count as one, whose index goes
 * over both.  Its metadata.json is the strategy, each step having its own. */
#ifndef RSH_FORMATS_CHECKPOINT2_STEPS_I_H
#define RSH_FORMATS_CHECKPOINT2_STEPS_I_H

#include "rsh/source/format.h"
#include "rsh/source/metadata.h"
#include "rsh/wire/checkpoint2.h"

/* struct rsh_format says what those functions do that it has. */

/* ---- which there are (listing.c) ---- */

int rsh_checkpoint2_bid(const struct rsh_look *look);
int rsh_checkpoint2_open(struct rsh_source *s,
			 const struct rsh_source_options *opts,
			 struct rsh_error *err);

/* ---- what one says of itself (metadata.c, reconcile.c) ---- */

/* This is the state of a source: NULL as long as no step with a metadata.json
 * is chosen. */
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
int rsh_checkpoint2_choose(struct rsh_source *s, uint32_t candidate,
			   struct rsh_error *err);
void rsh_described_free(void *described);
bool rsh_checkpoint2_absent(const struct rsh_source *s, uint32_t i,
			    struct rsh_source_file_info *out);
const char *rsh_checkpoint2_notes(const struct rsh_source *s,
				  const char *choice, FILE *to);
/* Gives the name by which messages call the files of a rank, which that of one
 * of them is made of (from malloc); NULL: out of memory. */
char *rsh_described_path(const char *path);
int rsh_checkpoint2_strategy(struct rsh_source *s, bool allow_missing,
			     struct rsh_names *names,
			     struct rsh_strategy **out, struct rsh_error *err);

/* ---- common.json (training_state.c) ---- */

int rsh_checkpoint2_training_state(const struct rsh_source *s,
				   struct rsh_training_state *out);
/* Reads all but the step, and leaves numbers alone that the text does not know.
 * Returns 0, -ENOMEM, or -EBADMSG with a sentence if it is no JSON object. */
int rsh_checkpoint2_common_parse(const void *data, size_t len, const char *path,
				 struct rsh_training_state *c,
				 struct rsh_error *err);

extern const struct rsh_resume_format rsh_checkpoint2_resume;

#endif
