/* SPDX-License-Identifier: Apache-2.0 */
/* store/files_i.h - the medium of files, for files.c and access.c. */
#ifndef RSH_STORE_FILES_I_H
#define RSH_STORE_FILES_I_H

#include <fcntl.h>
#include <stdatomic.h>
#include <sys/stat.h>

#include "medium_i.h"

struct rsh_files {
	struct rsh_medium base;
	char *place; /* where the root was, without links; NULL: unknown */
	uint32_t fs_type; /* f_type of the root's file system */
	atomic_uint_fast64_t search_after; /* no search for the root begins
					    * before this */
	bool follow_outside;
	const struct rsh_store_opener *opener;
};

/* O_NONBLOCK: something may have put a FIFO in a file's place. */
#define RSH_FILES_OPEN_FLAGS (O_RDONLY | O_NOCTTY | O_NONBLOCK)

/* Returns what `compare` of a medium does. */
int rsh_files_compare(const struct rsh_store_identity *id, int fd, bool anew);

/* ---- who may read, where links lead (access.c) ---- */

/* Takes from the mode of an open file what an access control list and the
 * directories above it keep from readers. */
void rsh_files_limit(int root, int fd, struct rsh_store_attr *attr);
/* Opens `name` as openat(2) does from the root, close-on-exec.  A descriptor,
 * -EXDEV where a link leads out of the directory and must not, or -errno. */
int rsh_files_openat(const struct rsh_files *f, const char *name, int flags);
/* Opens as rsh_files_openat() does, but from where the root is by its path now.
 * `rc` is why that function does not do, and is the result where this one does
 * not either, because the root still answers or nothing like it is there. */
int rsh_files_open_again(struct rsh_files *f, const char *name, int rc,
			 bool *anew);
bool rsh_files_lead(const struct rsh_files *f, const char *name,
		    char place[PATH_MAX]);
/* Gives where the root is (from malloc); NULL if that cannot be told. */
char *rsh_files_place(int root);

/* linux/fuse.h, which has this number too, is for servers. */
#define RSH_FUSE_MAGIC 0x65735546

#endif
