/* SPDX-License-Identifier: Apache-2.0 */
/* options/verify_kind.h - which of its questions `verify` is asked. */
#ifndef RSH_OPTIONS_VERIFY_KIND_H
#define RSH_OPTIONS_VERIFY_KIND_H

#include "rsh/options/options.h"

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
