/* SPDX-License-Identifier: Apache-2.0 */
/* vfs/attribute.h - the extended attributes of virtual files.  They describe
 * the origin of a file, as text without a newline at the end.
 *
 *   user.reshardfs.sources       paths of the source files that its bytes come
 *                                from, one on each line
 *   user.reshardfs.replicas      if the source is sharded: a line for each
 *                                source rank that was chosen, with "rank N:"
 *                                and the ranks that hold the same slices
 *   user.reshardfs.step          the checkpoint that was chosen
 *   user.reshardfs.record_count  how many records the file has
 *
 * A file has the attributes that apply to it, and the root has the step.  Other
 * directories and links have none.  Paths and the step are escaped
 * (util/text.h).  Any thread may call these functions.
 */
#pragma once

#include "rsh/vfs/vfs.h"

#define RSH_ATTRIBUTE_NAME_STEP "user.reshardfs.step"

/* The size of a buffer for the names of all attributes, in bytes. */
#define RSH_ATTRIBUTE_NAMES_MAX 256

/* Writes the names, each with its NUL, in the form of listxattr(2).  Returns
 * the number of bytes. */
size_t rsh_vfs_attribute_names(const struct rsh_vfs *v, uint64_t node,
			       char names[RSH_ATTRIBUTE_NAMES_MAX]);
/* Gives the value, from malloc, and its length.  Returns 0, -ENODATA or
 * -ENOMEM. */
int rsh_vfs_attribute(const struct rsh_vfs *v, uint64_t node, const char *name,
		      char **value, size_t *length);
/* Gives the step without escaping it, from malloc.  Returns 0, -ENODATA or
 * -ENOMEM. */
int rsh_vfs_step(const struct rsh_vfs *v, char **step);
