/* SPDX-License-Identifier: Apache-2.0 */
/* storage/store.h - files below one directory, opened: their bytes, and the proof
 * that they are still the ones that were there at first.
 *
 * A store knows files by number and bytes by offset.  What is in them, and
 * which of them belong together, its caller knows: an entry's owner is all that
 * a store is told of that.
 *
 *   rsh_store_open()      the directory
 *   rsh_store_add()       files, numbered from 0 in this order
 *   rsh_store_identify()  each of them, which may lie on several threads
 *   rsh_store_start()     from here on they are read
 *   rsh_store_read(), rsh_store_attempt()
 *   rsh_store_clear()     for other files, or rsh_store_free()
 *
 * What its files lie on, a store alone knows: above it an open file is a
 * handle, and only who asks for a descriptor learns whether there is one.
 *
 * The directory is opened once, so that a relative path and a later rename of a
 * parent do no harm.  Files are opened read-only and never written.  There may
 * be more files than descriptors: those that nobody uses are closed and opened
 * again.
 *
 * Identity: device, inode, size and mtime of a file are taken when it is
 * identified and compared when it is opened again and after each read; a file
 * that changed gives -ESTALE, never bytes of two files.
 *
 * A file that cannot be reached has not changed.  Its handle is given up, it is
 * opened again, and if that does no better the reader gets -EIO.  From then on
 * it is tried again, by a thread of the store and by each who reads it, for as
 * long as the store lives.  Functions that any thread may call say so.
 * Where the root itself is dead, as after a server of FUSE has ended, files are
 * looked for below the path where it was; they are on another device then.
 * What must be the same there is name, inode, size and mtime.  Of FUSE file
 * systems the ctime will do for device and inode, at any time, since many of
 * their servers (s3fs, whatever has libfuse number its inodes) give others to
 * what the kernel has forgotten.  GlusterFS, whose inodes stay, has a true
 * ctime, too.  Where a server gives the mtime for the ctime, as sshfs and
 * rclone do, another file of the same name, size and mtime is taken for the old
 * one.
 */
#ifndef RSH_STORAGE_STORE_H
#define RSH_STORAGE_STORE_H

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "rsh/storage/io.h"
#include "rsh/util/error.h"

struct rsh_store;

/* ---- the directory ---- */

/* An opener opens by path for those who may not any more: a mount that is new
 * on its mount point is none that a sandbox knows of.  Any thread may call
 * it. */
struct rsh_store_opener {
	/* Does what rsh_store_find() does, with the place and options that this
	 * store was opened with.  0, or -errno if no answer came in a bounded
	 * time. */
	int (*find)(void *ctx, const char *name, int fd[2]);
	void *ctx;
};

/* Opens the directory `place` as fd[0] and, as fd[1], the file `name` of a
 * store there, which leads out of it only if `outside` is set.  Both are the
 * caller's, and each may be -errno instead. */
void rsh_store_find(const char *place, bool outside, const char *name,
		    int fd[2]);

struct rsh_medium;
struct rsh_objects;
struct rsh_objects_options;
struct rsh_store_options;
/* Opens what the files of a store lie on.  0 or -errno with a sentence. */
typedef int rsh_medium_open_fn(const char *path,
			       const struct rsh_store_options *opts,
			       struct rsh_medium **out, struct rsh_error *err);

struct rsh_store_options {
	rsh_medium_open_fn *medium; /* NULL: the path tells */
	/* How objects are reached whose address the path is; NULL: as the
	 * environment says. */
	const struct rsh_objects_options *objects;
	struct rsh_objects *place; /* what lies there, opened, which outlives
				    * the store; NULL: the store opens it */
	/* Links below the directory may lead out of it.  Otherwise one that
	 * does is refused with EXDEV and a sentence; the directory itself may
	 * be a link, and a name that begins with '/' may be of any file. */
	bool follow_outside;
	const struct rsh_store_opener *opener; /* NULL: none is needed */
	struct rsh_store_io *io;               /* NULL: none */
};

/* Is it the address of objects behind HTTP, and no path? */
bool rsh_store_is_address(const char *path);
/* Returns how many requests to such an address, where the first byte of each
 * takes milliseconds, may be under way at a time; 0 of a path. */
unsigned rsh_store_far(const char *path, const struct rsh_store_options *o);
/* Says what follows "No such file or directory" where a path looks as if an
 * address was meant; "" where it does not. */
const char *rsh_store_hint(const char *path);
/* Opens the directory.  The store is the caller's.  0 or -errno with a
 * sentence. */
int rsh_store_open(const char *path, const struct rsh_store_options *opts,
		   struct rsh_store **out, struct rsh_error *err);
/* No read may be running; s may be NULL.  What is needed by a thread that does
 * not come back from a read is not freed. */
void rsh_store_free(struct rsh_store *s);

/* Gives the directory as it was given, but for slashes at its end. */
const char *rsh_store_root(const struct rsh_store *s);
/* Gives the directory's descriptor, which the store owns; -1 if it is no
 * directory of a file system. */
int rsh_store_dirfd(const struct rsh_store *s);
/* Does the directory lie on a file system that hands reads on to another
 * one? */
bool rsh_store_is_stacked(const struct rsh_store *s);
/* Does the directory lie on a file system behind which a network or a process
 * stands, which may go away and come back? */
bool rsh_store_is_remote(const struct rsh_store *s);
/* Do other nodes read for this one, too, by the servers of a cache? */
bool rsh_store_is_shared(const struct rsh_store *s);
/* Is what is scanned what the files hold?  It is not where faults flip bits. */
bool rsh_store_is_true(const struct rsh_store *s);

struct rsh_store_attr {
	/* These are permission bits.  Of a file they are only those to read,
	 * less what the directories above it, from the root on, keep from whom;
	 * and its owner's alone if there is an access control list. */
	mode_t mode;
	uid_t uid;
	gid_t gid;
	struct timespec mtime;
};
void rsh_store_root_attr(const struct rsh_store *s, struct rsh_store_attr *out);
/* Gives the mode under which something of another owner and group is open to
 * nobody who may not have the original. */
mode_t rsh_store_mode_as(const struct rsh_store_attr *a, uid_t uid, gid_t gid);

/* ---- anything below it ---- */

enum rsh_stat_kind { RSH_IS_FILE, RSH_IS_DIR, RSH_IS_OTHER };

struct rsh_stat {
	enum rsh_stat_kind kind;
	uint64_t size;
	struct rsh_store_attr attr; /* with the mode that it has by itself */
};
/* Looks at what lies there, "" being the directory itself; links are followed
 * wherever they lead.  0 or -errno. */
int rsh_store_look(const struct rsh_store *s, const char *name,
		   struct rsh_stat *out);

/* This is a directory that is being listed. */
struct rsh_dir;
/* Opens a directory, "" being the store's own.  0, -EXDEV where a link leads
 * out and must not, or -errno. */
int rsh_dir_open(const struct rsh_store *s, const char *name,
		 struct rsh_dir **out);
/* Opens a directory anywhere, by its path or address.  0 or -errno. */
int rsh_dir_open_path(const char *path, const struct rsh_store_options *how,
		      struct rsh_dir **out);
void rsh_dir_close(struct rsh_dir *d); /* d may be NULL */
/* Gives the next name, which lives until the next call, in no order and
 * perhaps with "." and "..": 1; 0 at the end, or -errno. */
int rsh_dir_next(struct rsh_dir *d, const char **name);
/* Looks at what is listed under that name, as rsh_store_look() does. */
int rsh_dir_look(struct rsh_dir *d, const char *name, struct rsh_stat *out);

/* This is an open file, for reading at any place.  Any thread may use it. */
struct rsh_handle;
/* Opens a file, which the store need not have.  0, -EXDEV where a link leads
 * out of the directory and must not, or -errno. */
int rsh_handle_open(const struct rsh_store *s, const char *name,
		    struct rsh_handle **out);
/* Opens a file anywhere, by its path.  0 or -errno. */
int rsh_handle_open_path(const char *path, struct rsh_handle **out);
void rsh_handle_close(struct rsh_handle *h); /* h may be NULL */
/* Reads as pread(2) does; no fault meets it.  The number of bytes or -errno.
 * It is the function of a struct rsh_byte_source whose ctx is a handle. */
ssize_t rsh_handle_pread(void *handle, void *buf, size_t len, uint64_t offset);
/* Looks at the file as it is now.  0 or -errno. */
int rsh_handle_look(const struct rsh_handle *h, struct rsh_stat *out);

static inline void rsh_dir_guard_(struct rsh_dir **d)
{
	rsh_dir_close(*d);
}
static inline void rsh_handle_guard_(struct rsh_handle **h)
{
	rsh_handle_close(*h);
}
#define cleanup_dir __attribute__((cleanup(rsh_dir_guard_)))
#define cleanup_handle __attribute__((cleanup(rsh_handle_guard_)))

/* Sets the sentence for a failure to open something, and returns rc. */
int rsh_store_open_error(const struct rsh_store *s, const char *name, int rc,
			 struct rsh_error *err);
/* Reads a small file whole (from malloc), of at most `max` bytes.  `what` says
 * in sentences what it should be.  0 or -errno with a sentence. */
int rsh_store_load(const struct rsh_store *s, const char *name, uint64_t max,
		   const char *what, uint8_t **data, size_t *len,
		   struct rsh_error *err);
/* Does what rsh_store_load() does, for a file anywhere. */
int rsh_load_whole(const char *path, uint64_t max, const char *what,
		   uint8_t **data, size_t *len, struct rsh_error *err);

/* ---- files ---- */

struct rsh_store_entry {
	const char *name; /* below the directory, or absolute; copied */
	uint32_t owner;   /* files of one owner fail together */
	uint64_t epoch, step; /* its blocks are marked with them in a cache */
};
/* Adds a file.  0 or -ENOMEM. */
int rsh_store_add(struct rsh_store *s, const struct rsh_store_entry *e);
/* Opens the file, the handle being the caller's, and takes its identity; 0 or
 * -errno with a sentence.  Any thread may call this, once for each file. */
int rsh_store_identify(struct rsh_store *s, uint32_t file,
		       struct rsh_handle **h, struct rsh_error *err);
/* Gives the handle of an identified file to the pool. */
void rsh_store_adopt(struct rsh_store *s, uint32_t file, struct rsh_handle *h);
/* Opens the file by itself, whether it was identified or not, for the caller.
 * 0 or -errno with a sentence.  Any thread may call this. */
int rsh_store_open_file(const struct rsh_store *s, uint32_t file,
			struct rsh_handle **h, struct rsh_error *err);
/* Does a cache ask what is to be compressed? */
bool rsh_store_compresses(const struct rsh_store *s);
/* Says what a part of a file is (cache.h), until the files are forgotten.  Any
 * thread may call it. */
typedef void (*rsh_store_kind_fn)(const void *ctx, uint32_t file,
				  uint64_t offset, uint32_t len,
				  struct rsh_cache_kind *out);
/* Tells the store whom to ask, before it is started; nobody if this is not
 * called. */
void rsh_store_tell_kinds(struct rsh_store *s, rsh_store_kind_fn kind,
			  const void *ctx);
/* Starts the reading, when the files that can be are identified.  Nothing is
 * read here: where reads decide whether files are cached, the first ones will
 * tell.  0 or -ENOMEM. */
int rsh_store_start(struct rsh_store *s);
/* Forgets the files.  False if a thread does not come back from one: nothing is
 * forgotten then, and nothing but rsh_store_free() is left to do. */
bool rsh_store_clear(struct rsh_store *s);

const char *rsh_store_name(const struct rsh_store *s, uint32_t file);
/* Gives a path for messages: the root as it was given, and the name. */
const char *rsh_store_path(const struct rsh_store *s, uint32_t file);

struct rsh_store_identity {
	uint64_t size;
	struct timespec mtime, ctime;
	/* This tells files of one size and mtime apart: of those of a file
	 * system it is device and inode. */
	uint64_t which[2];
};
/* Takes it of an open file as it is now.  0 or -errno. */
int rsh_handle_identity(const struct rsh_handle *h,
			struct rsh_store_identity *out);
/* Gives the directory's own. */
const struct rsh_store_identity *
rsh_store_root_identity(const struct rsh_store *s);
/* These give what rsh_store_identify() took. */
const struct rsh_store_identity *rsh_store_identity(const struct rsh_store *s,
						    uint32_t file);
const struct rsh_store_attr *rsh_store_attr(const struct rsh_store *s,
					    uint32_t file);

/* ---- before the start: what a file is is read off it ---- */

/* This is the ctx of a struct rsh_byte_source.  Headers and checksums are read
 * through it; of all faults the flipped bytes alone meet such reads. */
struct rsh_store_scan {
	const struct rsh_store *store; /* NULL: the file is of none */
	uint32_t file;
	struct rsh_handle *handle;
};
ssize_t rsh_store_scan_pread(void *scan, void *buf, size_t len,
			     uint64_t offset);

/* A positive errno that no file system gives: the file is not the one that was
 * identified.  ESTALE is what network file systems say of handles that their
 * server has forgotten, which a new handle cures. */
#define RSH_CHANGED EREMCHG

/* Compares an open file with the one that was identified: 0 if it is still that
 * one; RSH_CHANGED; or the positive errno for which that cannot be told. */
int rsh_store_compare(const struct rsh_store *s, uint32_t file,
		      const struct rsh_handle *h);

/* ---- after it ---- */

/* This says that a reader waits for a file that cannot be reached, up to 3 s
 * counted from the beginning of the outage; NULL in its place says that it does
 * not.  `begins`, unless it is NULL, is called when the reader is about to wait,
 * in which time it reads nothing; threads that read for the same reader may call
 * it at the same time. */
struct rsh_wait {
	void (*begins)(void *ctx);
	void *ctx;
};
#define RSH_WAIT (&(const struct rsh_wait){ NULL, NULL })

/* Reads exactly `len` bytes of the file at `offset`.  0, -ESTALE when it
 * changed or shrank, which is logged once a file, or -errno.  Any thread may
 * call this. */
int rsh_store_read(struct rsh_store *s, uint32_t file, uint64_t offset,
		   void *buf, size_t len, const struct rsh_wait *wait);

/* This is one read of a file over all its attempts, as many as an outage allows.
 * The caller sets `file` and `wait`, as for rsh_store_read(), and the rest to
 * 0:
 *
 *	while ((h = rsh_store_attempt(s, &a)))
 *		a.code = rsh_store_pread(s, a.file, h, buf, len, offset);
 *	return a.rc;
 *
 * `code` is what the caller says of an attempt: 0, as it is set before, or a
 * positive errno.  The loop must not be left in another way.  What was read may
 * be used if `rc` is 0 in the end: the file has stayed the same. */
struct rsh_attempts {
	uint32_t file;
	const struct rsh_wait *wait;
	int code;
	int rc;         /* 0, or what the reader is to see */
	/* The rest is the store's. */
	struct rsh_handle *handle; /* of the attempt that was begun last */
	uint64_t hit;   /* the outage that it was counted with; 0: none */
	uint64_t began; /* how often a source had come back when it began */
	unsigned n;
};
/* Ends the attempt before, if there was one, and begins another: returns a handle
 * of the file, which is opened if it is not, or NULL at the end. */
struct rsh_handle *rsh_store_attempt(struct rsh_store *s,
				     struct rsh_attempts *a);

/* Makes one attempt: rsh_store_take() returns a handle of the file, which is opened if
 * it is not open; rsh_store_finish() ends its use.  `code` is the result of the
 * caller's read, 0 or a positive errno.  Both return 0 or a positive errno
 * (RSH_CHANGED), after which nothing that was read may be used. */
int rsh_store_take(struct rsh_store *s, uint32_t file, struct rsh_handle **h);
int rsh_store_finish(struct rsh_store *s, uint32_t file, struct rsh_handle *h,
		     int code);

/* Reads all of [offset, offset + len) within an attempt: 0, or a positive
 * errno; RSH_CHANGED at the end of the file. */
int rsh_store_pread(struct rsh_store *s, uint32_t file, struct rsh_handle *h,
		    void *buf, size_t len, uint64_t offset);
/* Says that the range was read and its pages will not be missed.  `partly`: it
 * was read for the sake of some of its bytes. */
void rsh_store_spent(const struct rsh_store *s, const struct rsh_handle *h,
		     uint64_t offset, uint64_t len, bool partly);
/* Reads as pread(2) does, past any cache.  All faults meet the read, and it is
 * counted.  The number of bytes or -errno. */
ssize_t rsh_store_pread_once(const struct rsh_store *s, uint32_t file,
			     struct rsh_handle *h, void *buf, size_t len,
			     uint64_t offset);

/* ---- tiles (plan/plan.h), which readers keep beside the cache ---- */

/* Says how much memory they may take: a quarter of what the cache may have, but
 * at least RSH_STORE_TILES_MIN and no more than RSH_STORE_TILES_MAX. */
#define RSH_STORE_TILES_MIN ((uint64_t)32 * 1024 * 1024)
#define RSH_STORE_TILES_MAX ((uint64_t)256 * 1024 * 1024)
uint64_t rsh_store_tile_room(const struct rsh_store *s);
/* Takes that much from the cache, as far as it has it, when the first tile is
 * made. */
void rsh_store_take_tile_room(struct rsh_store *s);
/* Tells what statistics are to say: how many were loaded, and what is taken. */
void rsh_store_count_tiles(struct rsh_store *s, uint64_t loaded,
			   uint64_t bytes);

/* ---- files as they are ---- */

/* Has the file a descriptor that gives its bytes as reads do and keeps nothing,
 * with no fault and no cache between?  May read a little of the file to find
 * out. */
bool rsh_store_is_straight(struct rsh_store *s, uint32_t file);
/* Gives a descriptor of the file, which is the caller's: 0, -ESTALE when the
 * file is no longer the one that was identified, or -errno, as
 * rsh_store_read(); -EMFILE when there are too many, and -ENOTSUP where files
 * have none. */
int rsh_store_descriptor(struct rsh_store *s, uint32_t file, int *fd);
/* Has the file that such a descriptor belongs to stayed as it was?  0, or as
 * rsh_store_read(); a change is logged. */
int rsh_store_check(struct rsh_store *s, uint32_t file, int fd);

/* ---- what cannot be read ---- */

/* Is the file one that cannot be reached at present, or has changed? */
bool rsh_store_file_failed(const struct rsh_store *s, uint32_t file);
/* These say of each owner whether one of its files is such a one, and how many
 * files are.  The array is the store's and goes by owner. */
const atomic_bool *rsh_store_failed(const struct rsh_store *s);
unsigned rsh_store_n_failed(const struct rsh_store *s);
/* Says how often a file has been found to be such a one.  It only ever
 * grows. */
unsigned rsh_store_n_marks(const struct rsh_store *s);

/* An outage begins with the first file that cannot be reached and ends when one
 * of those answers again; each is logged once then. */
struct rsh_store_outages {
	uint64_t n; /* how many there were so far */
	bool on;    /* there is one now */
};
void rsh_store_outages(const struct rsh_store *s,
		       struct rsh_store_outages *out);

#endif
