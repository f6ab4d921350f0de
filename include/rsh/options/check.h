/* SPDX-License-Identifier: Apache-2.0 */
/* options/check.h - the `check` of each command: operands, options that are
 * missing, and options that contradict each other. */
#ifndef RSH_OPTIONS_CHECK_H
#define RSH_OPTIONS_CHECK_H

#include "rsh/options/options.h"

/* What all that speak of a conversion have in common, without operands. */
int rsh_check_conversion(struct rsh_options *o, struct rsh_error *err);

/* Options that say which files of SOURCE are meant. */
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
int rsh_check_help(struct rsh_options *o, struct rsh_error *err);

/* Takes `word` for the form of `strategy` that is meant.  0, or -EINVAL with a
 * sentence. */
int rsh_check_form(struct rsh_options *o, const char *word,
		   struct rsh_error *err);

/* ---- which of its questions `verify` is asked ---- */

/* By what the operands are. */
enum rsh_verify_kind {
	RSH_VERIFY_SOURCE,   /* SOURCE: its files */
	RSH_VERIFY_TREE,     /* SOURCE TREE: files by the plan */
	RSH_VERIFY_MANIFEST, /* SOURCE MANIFEST: the plan by a manifest */
	RSH_VERIFY_FILES,    /* MANIFEST [TREE], TREE MANIFEST */
};
/* False for a directory and for what cannot be looked at. */
bool rsh_is_file(const char *path);
enum rsh_verify_kind rsh_verify_kind_of(const struct rsh_options *o);

#endif
