/* SPDX-License-Identifier: Apache-2.0 */
/* unit/shown_support.h - the whole model that a source shows, as text. */
#ifndef SHOWN_SUPPORT_H
#define SHOWN_SUPPORT_H

#include "rsh/vfs/vfs.h"
#include "support.h"
#include "torch_support.h"

/* Opens what is at `below` in a tree ("": the tree), and gives a line for each
 * tensor of the model, in the order of its file: "w F32[2,3] 5 6 7 8 9 10",
 * and then what was logged: "warning: .."; or the sentence of its failure.  In
 * both the tree is called SOURCE.  The source and the output of cfg are set
 * here.  Sets *rc; the caller frees the text. */
char *shown(const char *tree, const char *below, struct rsh_vfs_config cfg,
	    int *rc);
/* Writes all that the tree of *cfg, whose output is set, shows of a source into
 * the directory `to`; the test fails where this does. */
void shown_write(const char *tree, const char *below, struct rsh_vfs_config cfg,
		 const char *to);
/* Without options it is `want`. */
void assert_shown(const char *tree, const char *below, const char *want);
/* What the format of a source lists is `want`: what it is, and a line for each
 * tensor with its chunks: "w F32[4]: [2]@0 in a.pt, [2]@2 in b.pt"; a chunk
 * that has a place in its file ends with offset and length: " at 7+8". */
void assert_listed(const char *tree, const char *below, const char *want);
/* The values that are not tensors are `want`: the file beside the weights; "":
 * there is none. */
void assert_values(const char *tree, const char *below, const char *want);
/* It fails with -code, and its sentence has the words. */
void assert_not_shown(const char *tree, const char *below, int code,
		      const char *words);

/* Files that are shown as `want`, and files that are refused. */
struct shown_tree {
	const char *name;
	struct torch_text files[8];
	const char *want;
};
struct shown_refused {
	const char *name;
	struct torch_text files[8];
	int code;
	const char *words;
};
void shown_tree_check(const struct shown_tree *t);
void shown_refused_check(const struct shown_refused *t);

#endif
