/* SPDX-License-Identifier: Apache-2.0 */
/* formats/checkpoint2/steps_i.h - steps of Checkpoint 2.0; only this directory
 * includes it.
 *
 * A tree has a directory for each step.  In it every rank has two files, one of
 * weights and one of the optimizer's state.  They count as one file, whose
 * index covers both.  The metadata.json of a step is its strategy. */
#pragma once

#include "rsh/source/format.h"
#include "rsh/source/metadata.h"
#include "rsh/wire/checkpoint2.h"

/* This is the state of a source; NULL until a step with a metadata.json is
 * chosen. */
struct rsh_described {
	char *path; /* for messages */
	struct rsh_ckpt2 *metadata;
	struct rsh_index_key key; /* identity of the metadata.json */
	struct rsh_step_facts facts;
	struct rsh_absent_file *absent; /* those of `facts` */
	char *notes; /* those of `facts` */
	bool any_opt;      /* at least one file has the optimizer's state */
	/* These are the numbers of parameters that no file has, and of names in
	 * files that are not described, each with the first one as an example.
	 * They are set when the strategy is made. */
	uint32_t n_nowhere, n_unlisted;
	const char *nowhere, *unlisted;
};

/* Makes the notes of the numbers.  Returns 0 or -ENOMEM. */
int rsh_checkpoint2_note(struct rsh_described *d);

/* Makes the strategy of the chosen step, as rsh_source_strategy() says. */
int rsh_checkpoint2_strategy(const struct rsh_list_job *job,
			     struct rsh_strategy **out, struct rsh_error *err);

/* Reads all fields but the step.  Numbers that the text does not have stay
 * unchanged.  Returns 0, -ENOMEM, or -EBADMSG with a sentence if it is not a
 * JSON object. */
int rsh_checkpoint2_common_parse(const void *data, size_t len, const char *path,
				 struct rsh_training_state *c,
				 struct rsh_error *err);
