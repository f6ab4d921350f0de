/* SPDX-License-Identifier: Apache-2.0 */
/* app/check.h has the `check` of each command, which the table of commands
 * calls: it judges operands, options that are missing, and options that
 * contradict each other.
 *
 * Each check takes the operands out of the options, and returns 0, or -EINVAL
 * or -ENOMEM with a sentence.  The thread that fills the options calls it.
 */
#ifndef RSH_APP_CHECK_H
#define RSH_APP_CHECK_H

#include "rsh/app/options.h"

/* Checks what all commands that describe a conversion have in common, without
 * operands. */
int rsh_check_conversion(struct rsh_options *o, struct rsh_error *err);

/* Checks the options that say which files of SOURCE are meant. */
int rsh_check_files(const struct rsh_options *o, struct rsh_error *err);

int rsh_check_ls(struct rsh_options *o, struct rsh_error *err);
int rsh_check_warm(struct rsh_options *o, struct rsh_error *err);
int rsh_check_plan(struct rsh_options *o, struct rsh_error *err);
int rsh_check_export(struct rsh_options *o, struct rsh_error *err);
int rsh_check_verify(struct rsh_options *o, struct rsh_error *err);
int rsh_check_mount(struct rsh_options *o, struct rsh_error *err);
int rsh_check_umount(struct rsh_options *o, struct rsh_error *err);
int rsh_check_stats(struct rsh_options *o, struct rsh_error *err);
int rsh_check_strategy(struct rsh_options *o, struct rsh_error *err);
int rsh_check_convert(struct rsh_options *o, struct rsh_error *err);
int rsh_check_help(struct rsh_options *o, struct rsh_error *err);

/* Takes `word` for the form of the command that is meant.  Returns 0, or
 * -EINVAL with a sentence. */
int rsh_check_form(struct rsh_options *o, const struct rsh_command *command,
		   const char *word, struct rsh_error *err);
/* Takes the first operand for the form, and checks how many follow it. */
int rsh_check_form_operands(struct rsh_options *o, struct rsh_error *err);
/* Refuses options that only other forms take and, unless the form has a `tree`
 * to look into, those that say which of its files are meant; `without` says how
 * it would have one. */
int rsh_check_form_use(const struct rsh_options *o, bool tree,
		       const char *without, struct rsh_error *err);

/* ---- what `verify` compares ---- */

/* The kinds follow from what the operands are. */
enum rsh_verify_kind {
	RSH_VERIFY_SOURCE,   /* SOURCE: its files, and where there is one by the
			      * manifest in it */
	RSH_VERIFY_TREE,     /* SOURCE TREE: files by the plan */
	RSH_VERIFY_MANIFEST, /* SOURCE MANIFEST: the plan by a manifest */
	RSH_VERIFY_FILES,    /* MANIFEST [TREE], TREE MANIFEST */
};
/* Returns false for a directory and for what cannot be looked at. */
bool rsh_is_file(const char *path);
enum rsh_verify_kind rsh_verify_kind_of(const struct rsh_options *o);
/* Does SOURCE have a manifest, by which its files are verified? */
bool rsh_verify_has_manifest(const struct rsh_options *o);
/* Returns the first given option that describes SOURCE as a checkpoint, so that
 * a manifest in SOURCE is not enough; NULL: there is none. */
const char *rsh_verify_of_source(const struct rsh_options *o);

#endif
