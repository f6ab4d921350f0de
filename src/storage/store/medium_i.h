/* SPDX-License-Identifier: Apache-2.0 */
/* storage/store/medium_i.h - what the files of a store lie on, for this room only.
 *
 * A medium finds files by their names below its root, opens them and reads
 * them.  Which files a store has, what is cached, what an outage is: all of
 * that the store knows, and no medium.  There are files of a file system
 * (files.c), and in front of any medium the faults of a drill (fault.c).
 *
 * Names are as in store.h, "" being the root.  A function that is called of an
 * open file may be called by any thread, and so may `open`.  Where nothing else
 * is said they give 0 or -errno.
 */
#ifndef RSH_STORAGE_MEDIUM_I_H
#define RSH_STORAGE_MEDIUM_I_H

#include <limits.h>
#include <sys/uio.h>

#include "rsh/storage/store.h"

/* Each medium has more of its own behind these. */
struct rsh_medium {
	const struct rsh_medium_ops *ops;
	const char *path; /* what messages call the root; NULL: as it was
			   * given */
	struct rsh_store_attr attr;     /* of the root */
	struct rsh_store_identity root; /* tells this root from others */
	bool is_remote, is_stacked;     /* as of rsh_store_is_remote() */
	int dirfd; /* the root's descriptor; -1: it is no directory of a file
		    * system */
};

/* What is in use has users and is changed under the pool's lock; one that is no
 * longer its file's is closed by the last of them. */
struct rsh_handle {
	struct rsh_medium *medium;
	const char *name; /* of the store's file that it is of; else NULL */
	bool anew;        /* the file was found by path, perhaps on a new
			   * mount */
	unsigned users;
};

struct rsh_dir {
	const struct rsh_medium_ops *ops;
	struct rsh_medium *owned; /* goes with the directory; NULL: nothing */
};

struct rsh_medium_ops {
	/* Does nobody keep what was read, as the kernel keeps pages? */
	bool keeps_nothing;
	/* Does a read that fails try by itself what may help? */
	bool tries_again;
	void (*free)(struct rsh_medium *m);

	/* ---- names ---- */

	/* Opens a file; the handle is the caller's. */
	int (*open)(struct rsh_medium *m, const char *name,
		    struct rsh_handle **out);
	/* Opens where the root is now, after `open` has failed with rc, which
	 * is given back where that does not help.  NULL: roots stay. */
	int (*open_again)(struct rsh_medium *m, const char *name, int rc,
			  struct rsh_handle **out);
	/* Writes where a name leads that must not be followed; false if that is
	 * not known.  NULL: there are no links. */
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

	void (*close)(struct rsh_handle *h);
	/* Tells in one call what the file is; each may be NULL. */
	int (*identify)(const struct rsh_handle *h,
			struct rsh_store_identity *id, struct rsh_stat *st);
	/* Says what tells the content of a file from others, on all nodes that
	 * have the same path or address for the root: the name, the times, and
	 * what a server says; no number that a kernel made up. */
	void (*share)(const struct rsh_medium *m, const char *name,
		      const struct rsh_store_identity *id, uint64_t out[2]);
	/* Takes from the mode to read what an access control list and the
	 * directories above keep from readers.  NULL: nothing. */
	void (*limit)(const struct rsh_handle *h, struct rsh_store_attr *attr);
	/* Is it the file that was identified?  0, RSH_CHANGED or a positive
	 * errno; `anew` as above. */
	int (*compare)(const struct rsh_handle *h,
		       const struct rsh_store_identity *id, bool anew);
	/* Reads as preadv(2) does: the number of bytes or -errno, among which
	 * -RSH_CHANGED may be. */
	ssize_t (*read)(struct rsh_medium *m, struct rsh_handle *h,
			const struct iovec *iov, int n, uint64_t offset);
	/* Lets go of what is kept of a range.  NULL: nothing is. */
	int (*forget)(const struct rsh_handle *h, uint64_t offset,
		      uint64_t len);
	/* Does a network or a process stand behind the file? */
	bool (*is_remote)(const struct rsh_handle *h);
	/* Gives the descriptor, which stays the handle's.  NULL: there is
	 * none. */
	int (*descriptor)(const struct rsh_handle *h);
};

/* These open the directory of a file system, and what lies at an address. */
rsh_medium_open_fn rsh_files_open;
rsh_medium_open_fn rsh_objects_medium;
/* Returns what `compare` of the medium of files does. */
int rsh_files_compare(const struct rsh_store_identity *id, int fd, bool anew);

#endif
