/* SPDX-License-Identifier: Apache-2.0 */
/* storage/store/name_list_dir_i.h - directories for a medium that has none: a
 * list of all files with their names below the root, in which a slash is what
 * there is of a directory.  For this room only; nothing here does I/O, and any
 * thread may call it while the list stays as it is. */
#pragma once

#include "medium_i.h"

struct rsh_name_list_file {
	const char *name;
	uint64_t size;
	struct timespec mtime;
};

struct rsh_name_list {
	const struct rsh_name_list_file
		*files; /* by name, as strcmp() compares */
	size_t n;
	/* All files and directories are this user's. */
	uid_t uid;
	gid_t gid;
};

/* Finds a file; NULL: there is none. */
const struct rsh_name_list_file *
rsh_name_list_find(const struct rsh_name_list *f, const char *name);
void rsh_name_list_stat(const struct rsh_name_list *f,
			const struct rsh_name_list_file *file,
			struct rsh_stat *out);
/* These are what `look` and `list` of a medium are, and its directories, whose
 * base.ops the caller sets. */
int rsh_name_list_look(const struct rsh_name_list *f, const char *name,
		  struct rsh_stat *out);
int rsh_name_list_list(const struct rsh_name_list *f, const char *name,
		  struct rsh_dir **out);
int rsh_name_list_dir_next(struct rsh_dir *d, const char **name);
int rsh_name_list_dir_look(struct rsh_dir *d, const char *name,
		      struct rsh_stat *out);
void rsh_name_list_dir_close(struct rsh_dir *d);
