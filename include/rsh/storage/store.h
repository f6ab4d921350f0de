/* SPDX-License-Identifier: Apache-2.0 */
/* storage/store.h - opened files below one directory: their bytes, and the
 * proof that they are still the files that were opened first.
 *
 * A store addresses files by number and bytes by offset.  It does not know what
 * the files contain, or which of them belong together, except for an entry's
 * owner.
 *
 *   rsh_store_open()      opens the directory
 *   rsh_store_add()       adds files, numbered from 0 in this order
 *   rsh_store_identify()  for each of them, possibly by several threads
 *   rsh_store_start()     from now on they are read
 *   rsh_store_read(), rsh_store_attempt()
 *   rsh_store_clear()     for other files, or rsh_store_free()
 *
 * Only the store knows the medium of the files (a file system, HTTP): an open
 * file is a handle, which may or may not have a descriptor.
 *
 * The directory is opened once, so that the store also works with a relative
 * path and after a rename of a parent directory.  Files are opened read-only.
 * There may be more files than descriptors: unused files are closed and opened
 * again.
 *
 * Identity: device, inode, size, mtime and ctime of a file are recorded when it
 * is identified, and compared when it is opened again and after each read.  A
 * read of a file that changed fails with -ESTALE; it never returns bytes of two
 * files.  The ctime is compared because `rsync --inplace -t` and `touch -r`
 * restore the mtime.  It also changes with the mode, the owner, the name and
 * the number of links.  Only the removal of the last name is allowed, as jobs
 * remove old checkpoints while they are read.
 *
 * A file that cannot be reached counts as unchanged.  Its handle is closed and
 * it is opened again.  If that fails as well the read fails with -EIO.  From
 * then on a thread of the store, and each read of the file, tries it again.
 * Functions that any thread may call say so.
 *
 * If the root itself is dead, as after the end of a FUSE server, files are
 * searched below the path of the root; they are on another device then.  Name,
 * inode, size and times must be the same.  On FUSE file systems the inode need
 * not be, at any time, because many servers (s3fs, all that use libfuse's inode
 * numbers) renumber what the kernel has dropped.  If the file system does not
 * keep the ctime (squashfs; sshfs and rclone return the mtime), a file of
 * another mount always counts as changed.
 */
#pragma once

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "rsh/storage/io.h"
#include "rsh/util/error.h"
#include "rsh/util/mem.h"

struct rsh_store;

/* ---- the directory ---- */

/* Opens by path outside the sandbox: a file system that was mounted after the
 * sandbox was entered is not accessible in it.  Any thread may call it. */
struct rsh_store_opener {
	/* Does rsh_store_find() with the place and options of this store.
	 * Returns 0, or -errno if it takes too long. */
	int (*find)(void *ctx, const char *name, int fd[2]);
	void *ctx;
};

/* Opens the directory `place` as fd[0], and its file `name` as fd[1]; `outside`
 * and `within` are follow_outside and within of struct rsh_store_options.  The
 * caller closes both; each may be -errno instead. */
void rsh_store_find(const char *place, bool outside, const char *within,
		    const char *name, int fd[2]);

struct rsh_medium;
struct rsh_objects;
struct rsh_objects_options;
struct rsh_store_options;
/* Opens the medium of the files of a store.  Returns 0 or -errno with a
 * sentence. */
typedef int rsh_medium_open_fn(const char *path,
			       const struct rsh_store_options *opts,
			       struct rsh_medium **out, struct rsh_error *err);

struct rsh_store_options {
	rsh_medium_open_fn *medium; /* NULL: the medium of the path */
	/* Options for an address of objects; NULL: those of the environment. */
	const struct rsh_objects_options *objects;
	/* The opened address, or one above it, which outlives the store; NULL:
	 * the store opens it. */
	struct rsh_objects *place;
	/* The opened addresses of joined directories, or of this one, which
	 * outlive the store; some may be NULL. */
	struct rsh_objects *const *joined;
	unsigned n_joined;
	/* The path may be the s3:// address of a single file.  Its directory
	 * has only this file then. */
	bool single;
	/* Links below the directory may lead out of it.  Otherwise such links
	 * are refused with EXDEV and a sentence, but in a snapshot of the cache
	 * of Hugging Face they may lead to the blobs of the same model.  The
	 * directory itself may be a link, and a name that begins with '/' may
	 * be that of any file. */
	bool follow_outside;
	/* Links, and names with "../", may lead to any file below this
	 * directory; it outlives the store.  NULL: only below the store's. */
	const char *within;
	/* Other machines write here: servers are asked for names and attributes
	 * each time.  The kernel's memory of them may be a minute old. */
	bool fresh;
	const struct rsh_store_opener *opener; /* NULL: none */
	/* What is opened by name counts for this store (rsh_store_opened()),
	 * which outlives the other; NULL: for the store itself. */
	const struct rsh_store *opens_of;
	struct rsh_store_io *io;               /* NULL: none */
};

/* Returns whether `path` is an address of objects on an HTTP server. */
bool rsh_store_is_address(const char *path);
/* Returns the most requests in progress at a time to such an address; 0 for a
 * path. */
unsigned rsh_store_far(const char *path, const struct rsh_store_options *o);
/* Opens the directory.  The caller frees the store.  Returns 0 or -errno with a
 * sentence. */
int rsh_store_open(const char *path, const struct rsh_store_options *opts,
		   struct rsh_store **out, struct rsh_error *err);
/* No read may be running; s may be NULL.  If a thread hangs in a read, the
 * memory that it uses is not freed. */
void rsh_store_free(struct rsh_store *s);
/* Prepares for files of another directory, whose names are absolute paths or
 * addresses.  Returns 0 or -errno with a sentence. */
int rsh_store_join(struct rsh_store *s, const char *directory,
		   struct rsh_error *err);

/* Returns the path of the directory without trailing slashes. */
const char *rsh_store_root(const struct rsh_store *s);
/* Returns the name of the file if the path was that of a single file (see
 * `single`), or NULL. */
const char *rsh_store_single(const struct rsh_store *s);
/* Returns the directory's descriptor, which the store owns; -1 if it is not in
 * a file system. */
int rsh_store_dirfd(const struct rsh_store *s);
/* Returns whether the directory is on a stacked file system (overlayfs,
 * FUSE). */
bool rsh_store_is_stacked(const struct rsh_store *s);
/* Returns whether the directory is on a network or FUSE file system, which may
 * be unavailable for a time. */
bool rsh_store_is_remote(const struct rsh_store *s);
/* Returns the reason why a file may have changed though its identity is the
 * same, for messages. */
const char *rsh_store_unseen(const struct rsh_store *s);
/* Returns whether nodes share blocks by the servers of a cache. */
bool rsh_store_is_shared(const struct rsh_store *s);
/* Returns false if faults flip bits of what is scanned. */
bool rsh_store_is_true(const struct rsh_store *s);

struct rsh_store_attr {
	/* Permission bits.  Those of a file are only read bits, without those
	 * of users who cannot enter its directories below the root; only the
	 * owner's if there is an access control list. */
	mode_t mode;
	uid_t uid;
	gid_t gid;
	struct timespec mtime, ctime;
};
void rsh_store_root_attr(const struct rsh_store *s, struct rsh_store_attr *out);
/* Returns a mode for the owner `uid` and group `gid` that gives access only to
 * users who have access to the original. */
mode_t rsh_store_mode_as(const struct rsh_store_attr *a, uid_t uid, gid_t gid);

/* ---- anything below it ---- */

enum rsh_stat_kind { RSH_IS_FILE, RSH_IS_DIR, RSH_IS_OTHER };

struct rsh_stat {
	enum rsh_stat_kind kind;
	uint64_t size;
	struct rsh_store_attr attr; /* with the mode of the file itself */
};
/* Does stat(2) of a name below the directory ("": the directory) and follows
 * all links.  Returns 0 or -errno. */
int rsh_store_look(const struct rsh_store *s, const char *name,
		   struct rsh_stat *out);
/* Returns 1 if something is there, 0 if nothing is, or -errno with a sentence
 * if nothing is known of it (rsh_errno_is_unread()): where its presence decides
 * what is read, it counts neither as there nor as absent. */
int rsh_store_has(const struct rsh_store *s, const char *name,
		  struct rsh_error *err);

/* A directory that is being listed. */
struct rsh_dir;
/* Opens a directory ("": the store's directory).  Returns 0, -EXDEV if a link
 * leads out of the store's directory and this is not allowed, or -errno. */
int rsh_dir_open(const struct rsh_store *s, const char *name,
		 struct rsh_dir **out);
/* Opens any directory by its path or address.  Returns 0 or -errno. */
int rsh_dir_open_path(const char *path, const struct rsh_store_options *how,
		      struct rsh_dir **out);
void rsh_dir_close(struct rsh_dir *d); /* d may be NULL */
/* Sets *name to the next name, valid until the next call, in no particular
 * order and perhaps "." or "..".  Returns 1, 0 at the end, or -errno. */
int rsh_dir_next(struct rsh_dir *d, const char **name);
/* Does rsh_store_look() for a name in the directory. */
int rsh_dir_look(struct rsh_dir *d, const char *name, struct rsh_stat *out);

/* An open file.  Any thread may use it. */
struct rsh_handle;
/* Opens a file, which need not have been added.  Returns 0, -EXDEV if a link
 * leads out of the directory and this is not allowed, or -errno. */
int rsh_handle_open(const struct rsh_store *s, const char *name,
		    struct rsh_handle **out);
/* Opens any file by its path.  Returns 0 or -errno. */
int rsh_handle_open_path(const char *path, struct rsh_handle **out);
void rsh_handle_close(struct rsh_handle *h); /* h may be NULL */
/* Reads like pread(2), without faults.  Returns the number of bytes or -errno.
 * It is the read function of a struct rsh_byte_source whose ctx is a handle. */
ssize_t rsh_handle_pread(void *handle, void *buf, size_t len, uint64_t offset);
/* Does fstat(2).  Returns 0 or -errno. */
int rsh_handle_look(const struct rsh_handle *h, struct rsh_stat *out);

RSH_GUARD(rsh_dir_guard_, struct rsh_dir, rsh_dir_close)
RSH_GUARD(rsh_handle_guard_, struct rsh_handle, rsh_handle_close)
#define cleanup_dir __attribute__((cleanup(rsh_dir_guard_)))
#define cleanup_handle __attribute__((cleanup(rsh_handle_guard_)))

/* Sets the sentence for a failure to open or list something, -ENOMEM too, and
 * returns rc. */
int rsh_store_open_error(const struct rsh_store *s, const char *name, int rc,
			 struct rsh_error *err);
/* A kind of small files. */
struct rsh_small_file {
	const char *what; /* in messages: "rule table" */
	uint64_t max;     /* bytes */
	bool aside; /* rsh_store_opened() leaves it out: it does not say how
		     * other files are read */
};
/* Reads a complete file of a kind into memory of malloc.  Returns 0 or -errno
 * with a sentence. */
int rsh_store_load(const struct rsh_store *s, const char *name,
		   const struct rsh_small_file *kind, uint8_t **data,
		   size_t *len, struct rsh_error *err);
/* Does the same as rsh_store_load() for any path. */
int rsh_load_whole(const char *path, const struct rsh_small_file *kind,
		   uint8_t **data, size_t *len, struct rsh_error *err);

/* ---- files ---- */

struct rsh_store_entry {
	/* below the directory, or an absolute path, or below a joined
	 * directory; copied */
	const char *name;
	uint32_t owner;   /* files of one owner fail together */
	uint64_t epoch, step; /* part of its identity in a cache */
};
/* Adds a file.  Returns 0 or -ENOMEM. */
int rsh_store_add(struct rsh_store *s, const struct rsh_store_entry *e);
/* Opens the file and records its identity; the caller closes the handle.
 * Returns 0 or -errno with a sentence.  Any thread may call this, once for each
 * file. */
int rsh_store_identify(struct rsh_store *s, uint32_t file,
		       struct rsh_handle **h, struct rsh_error *err);
/* Passes the handle of an identified file to the store. */
void rsh_store_adopt(struct rsh_store *s, uint32_t file, struct rsh_handle *h);
/* Opens the file separately for the caller, who closes the handle.  Returns 0
 * or -errno with a sentence.  Any thread may call this. */
int rsh_store_open_file(const struct rsh_store *s, uint32_t file,
			struct rsh_handle **h, struct rsh_error *err);
/* Returns whether there is a cache that compresses. */
bool rsh_store_compresses(const struct rsh_store *s);
/* Sets the kind of a part of a file (cache.h).  Any thread may call it, until
 * rsh_store_clear(). */
typedef void (*rsh_store_kind_fn)(const void *ctx, uint32_t file,
				  uint64_t offset, uint32_t len,
				  struct rsh_cache_kind *out);
/* Sets the function that returns the kinds.  It is called before
 * rsh_store_start(). */
void rsh_store_tell_kinds(struct rsh_store *s, rsh_store_kind_fn kind,
			  const void *ctx);
/* Prepares for reads, after the files were identified.  It reads nothing: the
 * first reads decide whether files are cached (io.h).  Returns 0 or -ENOMEM. */
int rsh_store_start(struct rsh_store *s);
/* Removes all files.  Returns false, and removes nothing, if a thread hangs in
 * a read: then only rsh_store_free() may be called. */
bool rsh_store_clear(struct rsh_store *s);

const char *rsh_store_name(const struct rsh_store *s, uint32_t file);
/* Returns a path for messages: the root and the name. */
const char *rsh_store_path(const struct rsh_store *s, uint32_t file);

struct rsh_store_identity {
	uint64_t size;
	struct timespec mtime, ctime;
	/* Device and inode, or another number that differs between files of one
	 * size and mtime. */
	uint64_t which[2];
	/* Whether every change of the content changes the ctime, or the ETag or
	 * time that a server sends.  Otherwise other files may have the same
	 * identity, before and after this mount of their file system. */
	bool keeps_ctime;
	/* The number of the file system, or that of its mount if it does not
	 * keep the ctime; 0: unknown. */
	uint64_t place;
};
/* Gets the present identity of an open file.  Returns 0 or -errno. */
int rsh_handle_identity(const struct rsh_handle *h,
			struct rsh_store_identity *out);
/* Returns the identity of the directory. */
const struct rsh_store_identity *
rsh_store_root_identity(const struct rsh_store *s);
/* These return what rsh_store_identify() recorded. */
const struct rsh_store_identity *rsh_store_identity(const struct rsh_store *s,
						    uint32_t file);
const struct rsh_store_attr *rsh_store_attr(const struct rsh_store *s,
					    uint32_t file);

/* ---- files that were opened by name ----
 *
 * These are files such as the metadata of a checkpoint.  What is made of the
 * store's files depends on them, too. */

struct rsh_opened {
	char *name;
	struct rsh_store_identity id; /* when it was opened */
};
/* Keeps from now on what rsh_handle_open() and rsh_store_load() open.  Returns
 * 0 or -ENOMEM. */
int rsh_store_keep_opened(struct rsh_store *s);
/* Returns how many are kept, and forgets all but the first n.  No thread may
 * open another one. */
size_t rsh_store_n_opened(const struct rsh_store *s);
void rsh_store_forget_opened(struct rsh_store *s, size_t n);
/* Lists those that are not files of the store, each state of one once, by name:
 * the order of threads has no effect.  *out is from malloc, but the store owns
 * the names.  Returns 0 or -ENOMEM. */
int rsh_store_opened(const struct rsh_store *s, struct rsh_opened **out,
		     size_t *n);

/* ---- before the start: scans of headers ---- */

/* The ctx of a struct rsh_byte_source that reads headers and checksums.  Of all
 * faults only flipped bits apply to these reads. */
struct rsh_store_scan {
	const struct rsh_store *store; /* NULL: no store */
	uint32_t file;
	struct rsh_handle *handle;
};
ssize_t rsh_store_scan_pread(void *scan, void *buf, size_t len,
			     uint64_t offset);

/* A positive errno that no file system returns: the file is not the one that
 * was identified.  (Network file systems return ESTALE for handles that their
 * server no longer has; a new handle helps.) */
#define RSH_CHANGED EREMCHG

/* Compares an open file with the one that was identified.  Returns 0,
 * RSH_CHANGED, or the positive errno with which the comparison failed. */
int rsh_store_compare(const struct rsh_store *s, uint32_t file,
		      const struct rsh_handle *h);

/* ---- after the start: reads ---- */

/* With a pointer to this, a read waits for a file that cannot be reached, until
 * 3 s after the beginning of the outage; with NULL it does not.  `begins`,
 * unless it is NULL, is called when the read begins to wait; threads that read
 * for the same reader may call it at the same time. */
struct rsh_wait {
	void (*begins)(void *ctx);
	void *ctx;
};
#define RSH_WAIT (&(const struct rsh_wait){ NULL, NULL })

/* Reads exactly `len` bytes of the file at `offset`.  Returns 0, -ESTALE if it
 * changed or shrank, which is logged once for a file, -EBADMSG if bytes in the
 * range are made of damaged ones (made.h), or another -errno.  Any thread may
 * call this. */
int rsh_store_read(struct rsh_store *s, uint32_t file, uint64_t offset,
		   void *buf, size_t len, const struct rsh_wait *wait);

/* The attempts of one read of a file.  The caller sets `file` and `wait`, as
 * for rsh_store_read(), and the rest to 0:
 *
 *	while ((h = rsh_store_attempt(s, &a)))
 *		a.code = rsh_store_pread(s, a.file, h, buf, len, offset);
 *	return a.rc;
 *
 * `code` is the result of an attempt: 0 (its initial value) or a positive
 * errno.  The loop must not be left in another way.  The bytes may be used if
 * `rc` is 0 at the end: then the file has not changed.
 */
struct rsh_attempts {
	uint32_t file;
	const struct rsh_wait *wait;
	int code;
	int rc;         /* 0, or the -errno of the read */
	/* The rest is private. */
	struct rsh_handle *handle; /* handle of the present attempt */
	uint64_t hit;   /* the outage that counted this read; 0: none */
	uint64_t began; /* n_returns of the outage when the attempt began */
	unsigned n;
};
/* Ends the present attempt, if there is one, and begins another.  Returns a
 * handle of the file, or NULL at the end. */
struct rsh_handle *rsh_store_attempt(struct rsh_store *s,
				     struct rsh_attempts *a);

/* Makes one attempt: rsh_store_take() returns a handle of the file, which is
 * opened if it is not open; rsh_store_finish() ends its use.  `code` is the
 * result of the caller's read, 0 or a positive errno.  Both return 0 or a
 * positive errno (RSH_CHANGED), after which nothing that was read may be
 * used. */
int rsh_store_take(struct rsh_store *s, uint32_t file, struct rsh_handle **h);
int rsh_store_finish(struct rsh_store *s, uint32_t file, struct rsh_handle *h,
		     int code);

/* Reads all of [offset, offset + len) in an attempt.  Returns 0 or a positive
 * errno; RSH_CHANGED at the end of the file. */
int rsh_store_pread(struct rsh_store *s, uint32_t file, struct rsh_handle *h,
		    void *buf, size_t len, uint64_t offset);
/* Reports that the range was read and that the kernel need not cache its pages.
 * `partly`: only some of its bytes were needed. */
void rsh_store_spent(const struct rsh_store *s, const struct rsh_handle *h,
		     uint64_t offset, uint64_t len, bool partly);
/* Reads like pread(2), without the cache, with faults; the read is counted.
 * Returns the number of bytes or -errno. */
ssize_t rsh_store_pread_once(const struct rsh_store *s, uint32_t file,
			     struct rsh_handle *h, void *buf, size_t len,
			     uint64_t offset);

/* ---- memory of tiles (plan/plan.h) ---- */

/* Returns how much memory tiles may use: a quarter of the cache's limit, at
 * least RSH_STORE_TILES_MIN and at most RSH_STORE_TILES_MAX. */
#define RSH_STORE_TILES_MIN ((uint64_t)32 * 1024 * 1024)
#define RSH_STORE_TILES_MAX ((uint64_t)256 * 1024 * 1024)
uint64_t rsh_store_tile_room(const struct rsh_store *s);
/* Moves this memory from the cache to tiles, but at most half of the cache's
 * limit; called for the first tile. */
void rsh_store_take_tile_room(struct rsh_store *s);
/* Sets the statistics of tiles: how many were loaded, and their memory. */
void rsh_store_count_tiles(struct rsh_store *s, uint64_t loaded,
			   uint64_t bytes);

/* ---- descriptors ---- */

/* Returns whether the file has a descriptor that reads the same bytes, without
 * faults or a cache.  It may read a little of the file to find out. */
bool rsh_store_is_straight(struct rsh_store *s, uint32_t file);
/* Gets a descriptor of the file, which the caller closes.  Returns 0, -ESTALE
 * if the file changed, or -errno, like rsh_store_read(); -EMFILE if there are
 * too many, -ENOTSUP if files have none. */
int rsh_store_descriptor(struct rsh_store *s, uint32_t file, int *fd);
/* Checks that the file of such a descriptor has not changed.  Returns like
 * rsh_store_read(); a change is logged. */
int rsh_store_check(struct rsh_store *s, uint32_t file, int fd);

/* ---- failed files ---- */

/* Returns whether the file failed: it cannot be reached at present, or has
 * changed. */
bool rsh_store_file_failed(const struct rsh_store *s, uint32_t file);
/* Return for each owner whether one of its files failed (an array of the
 * store), and how many files failed. */
const atomic_bool *rsh_store_failed(const struct rsh_store *s);
unsigned rsh_store_n_failed(const struct rsh_store *s);
/* Returns how many failures of files were found since the start. */
unsigned rsh_store_n_marks(const struct rsh_store *s);

/* An outage begins with the first file that cannot be reached and ends when one
 * of them answers again; both are logged once. */
struct rsh_store_outages {
	uint64_t n; /* number of outages so far */
	bool on;    /* there is an outage now */
};
void rsh_store_outages(const struct rsh_store *s,
		       struct rsh_store_outages *out);
