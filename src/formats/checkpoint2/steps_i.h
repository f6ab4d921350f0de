/* SPDX-License-Identifier: Apache-2.0 */
/* formats/checkpoint2/steps_i.h - steps of Checkpoint 2.0; only this directory
 * includes it.
 *
 * A tree has a directory for each step.  In it every rank has two files, one of
 * weights and one of the optimizer's state.  They count as one file, whose
 * index covers both.  The metadata.json of a step is its strategy. */
#ifndef RSH_FORMATS_CHECKPOINT2_STEPS_I_H
#define RSH_FORMATS_CHECKPOINT2_STEPS_I_H

#include "rsh/source/format.h"
#include "rsh/source/metadata.h"
#include "rsh/wire/checkpoint2.h"

/* struct rsh_format describes the functions that are its members. */

/* ---- finding steps (listing.c) ---- */

int rsh_checkpoint2_bid(const struct rsh_look *look);
int rsh_checkpoint2_open(struct rsh_source *s,
			 const struct rsh_source_options *opts,
			 struct rsh_error *err);

/* ---- the description of a step (metadata.c, reconcile.c) ---- */

/* This is the state of a source; NULL until a step with a metadata.json is
 * chosen. */
struct rsh_described {
	char *path; /* for messages */
	struct rsh_ckpt2 *metadata;
	struct rsh_index_key key; /* identity of the metadata.json */
	uint32_t n_absent;
	uint32_t *absent;  /* files of the metadata that do not exist */
	bool any_opt;      /* at least one file has the optimizer's state */
	/* These are the numbers of parameters that no file has, and of names in
	 * files that are not described, each with the first one as an example.
	 * They are set when the strategy is made. */
	uint32_t n_nowhere, n_unlisted;
	const char *nowhere, *unlisted;
};

/* Reads the metadata.json of a candidate and sets the ranks of its files in the
 * listing.  Files that are not in it get RSH_RANK_UNKNOWN.  Returns 0 or -errno
 * with a sentence: the step is not complete, or cannot be parsed. */
int rsh_checkpoint2_choose(struct rsh_source *s, uint32_t candidate,
			   struct rsh_error *err);
void rsh_described_free(void *described);
bool rsh_checkpoint2_absent(const struct rsh_source *s, uint32_t i,
			    struct rsh_source_file_info *out);
const char *rsh_checkpoint2_notes(const struct rsh_source *s,
				  const char *choice, FILE *to);
/* Returns the name of a rank's files for messages, which is made from the name
 * of one of them (from malloc).  Returns NULL if out of memory. */
char *rsh_described_path(const char *path);
int rsh_checkpoint2_strategy(struct rsh_source *s, bool allow_missing,
			     struct rsh_names *names,
			     struct rsh_strategy **out, struct rsh_error *err);

/* ---- common.json (training_state.c) ---- */

int rsh_checkpoint2_training_state(const struct rsh_source *s,
				   struct rsh_training_state *out);
/* Reads all fields but the step.  Numbers that the text does not have stay
 * unchanged.  Returns 0, -ENOMEM, or -EBADMSG with a sentence if it is not a
 * JSON object. */
int rsh_checkpoint2_common_parse(const void *data, size_t len, const char *path,
				 struct rsh_training_state *c,
				 struct rsh_error *err);

extern const struct rsh_resume_format rsh_checkpoint2_resume;

#endif
