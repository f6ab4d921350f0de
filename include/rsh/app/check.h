/* SPDX-License-Identifier: Apache-2.0 */
/* app/check.h has the `check` of each command, which the table of commands
 * calls after the rules of options (util/option.h).  A check takes the operands
 * out of the options, and settles what follows from SOURCE.
 *
 * Each check returns 0, or -errno with a sentence.  The thread that fills the
 * options calls it.
 */
#pragma once

#include "rsh/app/options.h"

/* Checks the rules of the given options: what they need, and which contradict
 * each other; of conversions, or of the other lists. */
int rsh_rules_check(const struct rsh_options *o, bool converts,
		    struct rsh_error *err);

/* Replaces the name of a model in the cache of Hugging Face (storage/hub.h) by
 * the path of its snapshot; any other SOURCE stays as it is. */
int rsh_check_source(struct rsh_options *o, char **source,
		     struct rsh_error *err);

/* Looks at SOURCE, checks the rules of conversions, and settles what all
 * commands that describe one have in common: strategies, the form of the
 * weights, the output, and the files beside the weights.  The operands must be
 * set. */
int rsh_check_conversion(struct rsh_options *o, struct rsh_error *err);

int rsh_check_ls(struct rsh_options *o, struct rsh_error *err);
int rsh_check_verify(struct rsh_options *o, struct rsh_error *err);
int rsh_check_mount(struct rsh_options *o, struct rsh_error *err);
int rsh_check_convert(struct rsh_options *o, struct rsh_error *err);

/* ---- what `verify` compares ---- */

/* The operands decide the kind. */
enum rsh_verify_kind {
	RSH_VERIFY_SOURCE,   /* SOURCE: its files, compared with the manifest in
			      * it if there is one */
	RSH_VERIFY_TREE,     /* SOURCE TREE: files compared with the plan */
	RSH_VERIFY_MANIFEST, /* SOURCE MANIFEST: the plan compared with a
			      * manifest */
	RSH_VERIFY_FILES,    /* MANIFEST [TREE], TREE MANIFEST */
};
enum rsh_verify_kind rsh_verify_kind_of(const struct rsh_options *o);
/* Returns whether SOURCE has a manifest, which is then used to verify its
 * files. */
bool rsh_verify_has_manifest(const struct rsh_options *o);
/* Returns the first given option that describes SOURCE as a checkpoint, so that
 * a manifest in SOURCE is not enough; NULL if there is none. */
const char *rsh_verify_of_source(const struct rsh_options *o);
