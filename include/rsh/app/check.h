/* SPDX-License-Identifier: Apache-2.0 */
/* app/check.h has the `check` of each command, which the table of commands
 * calls.  A check refuses wrong operands, missing options, and options that
 * contradict each other.
 *
 * Each check takes the operands out of the options, and returns 0, or -EINVAL
 * or -ENOMEM with a sentence.  The thread that fills the options calls it.
 */
#pragma once

#include "rsh/app/options.h"

/* Checks, without operands, what all commands that describe a conversion have
 * in common. */
int rsh_check_conversion(struct rsh_options *o, struct rsh_error *err);

/* Checks --convert and its options, finds the table of rules, and sets what
 * follows from the side that SOURCE is on: strategies, format, and the files
 * beside the weights.  Returns 0, or -errno with a sentence. */
int rsh_check_weights(struct rsh_options *o, struct rsh_error *err);

/* Checks the options that choose files of SOURCE. */
int rsh_check_files(const struct rsh_options *o, struct rsh_error *err);

int rsh_check_ls(struct rsh_options *o, struct rsh_error *err);
int rsh_check_warm(struct rsh_options *o, struct rsh_error *err);
int rsh_check_plan(struct rsh_options *o, struct rsh_error *err);
int rsh_check_export(struct rsh_options *o, struct rsh_error *err);
int rsh_check_verify(struct rsh_options *o, struct rsh_error *err);
int rsh_check_mount(struct rsh_options *o, struct rsh_error *err);
int rsh_check_mountpoint(struct rsh_options *o, struct rsh_error *err);
int rsh_check_strategy(struct rsh_options *o, struct rsh_error *err);
int rsh_check_convert(struct rsh_options *o, struct rsh_error *err);

/* Sets the form of the command from `word`.  Returns 0, or -EINVAL with a
 * sentence. */
int rsh_check_form(struct rsh_options *o, const struct rsh_command *command,
		   const char *word, struct rsh_error *err);

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
