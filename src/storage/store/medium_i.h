/* SPDX-License-Identifier: Apache-2.0 */
/* storage/store/medium_i.h - the medium of the files of a store; only this room
 * includes it.
 *
 * A medium finds files by their names below its root, opens and reads them.  It
 * does not know the list of files, the cache or outages, which are the store's.
 * There are files of a file system (files.c), objects behind HTTP (objects.c),
 * files that are made of others (made.c), and injected faults in front of
 * another medium (fault.c).
 *
 * Names are as in store.h; "" is the root.  Any thread may call `open` and the
 * functions of an open file.  Functions return 0 or -errno if nothing else is
 * said.
 */
#pragma once

#include <limits.h>
#include <sys/uio.h>

#include "rsh/storage/store.h"

/* Each medium appends its own members. */
struct rsh_medium {
	const struct rsh_medium_ops *ops;
	const char *path; /* the root in messages; NULL: the path as given */
	const char *single; /* its only file, if the path is that of the file */
	struct rsh_store_attr attr;     /* of the root */
	struct rsh_store_identity root; /* identity of the root */
	bool is_remote, is_stacked;     /* as of rsh_store_is_remote() */
	int dirfd; /* the root's descriptor; -1: it is no directory of a file
		    * system */
};

/* The number of users is guarded by the pool's lock.  The last user closes a
 * handle that its file no longer has. */
struct rsh_handle {
	struct rsh_medium *medium;
	const char *name; /* that of the store's file, or NULL */
	bool anew;        /* opened by path, perhaps on a new mount */
	unsigned users;
};

struct rsh_dir {
	const struct rsh_medium_ops *ops;
	struct rsh_medium *owned; /* freed with the directory; NULL: none */
};

struct rsh_medium_ops {
	bool keeps_nothing; /* there is no page cache */
	bool tries_again;   /* reads retry by themselves */
	bool is_made;       /* EBADMSG of a read means that the inputs are
			     * damaged (made.h) */
	void (*free)(struct rsh_medium *m);
	/* The headers of files were read, and content is from now on.  NULL:
	 * that makes no difference. */
	void (*start)(struct rsh_medium *m);

	/* ---- names ---- */

	/* Opens a file; the caller closes the handle. */
	int (*open)(struct rsh_medium *m, const char *name,
		    struct rsh_handle **out);
	/* Searches the root again and opens a file, after `open` has failed
	 * with rc, which is returned if that does not help.  NULL: roots do not
	 * move. */
	int (*open_again)(struct rsh_medium *m, const char *name, int rc,
			  struct rsh_handle **out);
	/* Writes the target of a link that leads out; returns false if it is
	 * unknown.  NULL: there are no links. */
	bool (*leads)(struct rsh_medium *m, const char *name,
		      char place[PATH_MAX]);
	int (*look)(struct rsh_medium *m, const char *name,
		    struct rsh_stat *out);
	int (*list)(struct rsh_medium *m, const char *name,
		    struct rsh_dir **out);

	/* ---- directories, as of rsh_dir_next() and the others ---- */

	int (*dir_next)(struct rsh_dir *d, const char **name);
	int (*dir_look)(struct rsh_dir *d, const char *name,
			struct rsh_stat *out);
	void (*dir_close)(struct rsh_dir *d);

	/* ---- open files ---- */

	/* NULL: the handle is freed. */
	void (*close)(struct rsh_handle *h);
	/* Gets identity and attributes in one call; each may be NULL. */
	int (*identify)(const struct rsh_handle *h,
			struct rsh_store_identity *id, struct rsh_stat *st);
	/* Computes a name of the content that is equal on all nodes with the
	 * same path or address of the root: from name, times and what a server
	 * returns, not from numbers of the local kernel. */
	void (*share)(const struct rsh_medium *m, const char *name,
		      const struct rsh_store_identity *id, uint64_t out[2]);
	/* Reduces the mode by the access control list and the directories
	 * above.  NULL: no reduction. */
	void (*limit)(const struct rsh_handle *h, struct rsh_store_attr *attr);
	/* Compares with the file that was identified.  Returns 0, RSH_CHANGED
	 * or a positive errno; `anew` as above.  NULL: each read compares. */
	int (*compare)(const struct rsh_handle *h,
		       const struct rsh_store_identity *id, bool anew);
	/* Reads like preadv(2).  Returns the number of bytes or -errno, also
	 * -RSH_CHANGED. */
	ssize_t (*read)(struct rsh_handle *h, const struct iovec *iov, int n,
			uint64_t offset);
	/* Drops a range from the page cache.  NULL: there is none. */
	int (*forget)(const struct rsh_handle *h, uint64_t offset,
		      uint64_t len);
	/* Returns whether the file is on a network or FUSE file system.  NULL:
	 * as the medium. */
	bool (*is_remote)(const struct rsh_handle *h);
	/* Returns the descriptor, which the handle owns.  NULL: there is
	 * none. */
	int (*descriptor)(const struct rsh_handle *h);
};

/* Open the directory of a file system, and an address of objects. */
rsh_medium_open_fn rsh_files_open;
rsh_medium_open_fn rsh_objects_medium;
/* Returns what `compare` of the medium of files does. */
int rsh_files_compare(const struct rsh_store_identity *id, int fd, bool anew);
