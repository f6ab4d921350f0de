/* SPDX-License-Identifier: Apache-2.0 */
/* store/store.h - files below one directory, opened: their bytes, and the proof
 * that they are still the ones that were there at first.
 *
 * A store knows files by number and bytes by offset.  What is in them, and which
 * of them belong together, its caller knows: an entry's owner is all that a
 * store is told of that.
 *
 *   rsh_store_open()      the directory
 *   rsh_store_add()       files, numbered from 0 in this order
 *   rsh_store_identify()  each of them, which may lie on several threads
 *   rsh_store_start()     from here on they are read
 *   rsh_store_read(), rsh_store_use()
 *   rsh_store_clear()     for other files, or rsh_store_free()
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
 * A file that cannot be reached has not changed.  Its descriptor is given up, it
 * is opened again, and if that does no better the reader gets -EIO.  From then
 * on it is tried again, by a thread of the store and by each who reads it, for
 * as long as the store lives.  Where the root itself is dead, as after a server
 * of FUSE has ended, files are looked for below the path where it was; they are
 * on another device then.  What must be the same there is name, inode, size and
 * mtime.  Of FUSE file systems the ctime will do for device and inode, at any
 * time, since many of their servers (s3fs, whatever has libfuse number its
 * inodes) give others to what the kernel has forgotten.  GlusterFS, whose inodes
 * stay, has a true ctime, too; with a server that gives mtime for it, as sshfs
 * and rclone do, another file of the same name, size and mtime is taken for the
 * old one.
 */
#ifndef RSH_STORE_STORE_H
#define RSH_STORE_STORE_H

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "rsh/store/io.h"
#include "rsh/util/error.h"

struct rsh_store;

/* ---- the directory ---- */

/* Who opens by path for those who may not any more: a mount that is new on its
 * mount point is none that a sandbox knows of.  Any thread. */
struct rsh_store_opener {
	/* As rsh_store_find(), of the place and options that this store was
	 * opened with.  0, or -errno if no answer came in a bounded time. */
	int (*find)(void *ctx, const char *name, int fd[2]);
	void *ctx;
};

/* Opens the directory `place`, fd[0], and the file `name` of a store there,
 * fd[1], which leads out of it only if `outside` is set; both are the caller's,
 * or -errno. */
void rsh_store_find(const char *place, bool outside, const char *name,
		    int fd[2]);

struct rsh_store_options {
	/* Links below the directory may lead out of it.  Otherwise one that
	 * does is refused with EXDEV and a sentence; the directory itself may
	 * be a link, and a name that begins with '/' may be of any file. */
	bool follow_outside;
	const struct rsh_store_opener *opener; /* NULL: none is needed */
	struct rsh_store_io *io;               /* NULL: none */
};

/* Opens the directory; 0 or -errno with a sentence. */
int rsh_store_open(const char *path, const struct rsh_store_options *opts,
		   struct rsh_store **out, struct rsh_error *err);
/* No read may be running.  NULL: none.  What a thread still needs that does not
 * come back from a read stays. */
void rsh_store_free(struct rsh_store *s);

/* The directory as it was given, but for slashes at its end. */
const char *rsh_store_root(const struct rsh_store *s);
/* Its descriptor, owned by the store. */
int rsh_store_dirfd(const struct rsh_store *s);
/* True if it lies on a file system that hands reads on to another one. */
bool rsh_store_is_stacked(const struct rsh_store *s);
/* True if it lies on a file system that a network or a process stands behind,
 * which may go away and come back. */
bool rsh_store_is_remote(const struct rsh_store *s);
/* False if what is scanned may not be what the files hold. */
bool rsh_store_is_true(const struct rsh_store *s);

struct rsh_store_attr {
	/* Permission bits.  Of a file only those to read, less what the
	 * directories above it, from the root on, keep from whom; its owner's
	 * alone if there is an access control list. */
	mode_t mode;
	uid_t uid;
	gid_t gid;
	struct timespec mtime;
};
void rsh_store_root_attr(const struct rsh_store *s, struct rsh_store_attr *out);
/* The mode under which something of another owner and group is open to nobody
 * who may not have the original. */
mode_t rsh_store_mode_as(const struct rsh_store_attr *a, uid_t uid, gid_t gid);

/* ---- anything below it ---- */

/* O_NONBLOCK: something may have put a FIFO in a file's place. */
#define RSH_OPEN_FLAGS (O_RDONLY | O_NOCTTY | O_NONBLOCK)
/* As openat(2) from the directory, close-on-exec; -EXDEV where a link leads out
 * of it and must not.  A descriptor or -errno. */
int rsh_store_openat(const struct rsh_store *s, const char *name, int flags);
/* The sentence for its failure; returns rc. */
int rsh_store_open_error(const struct rsh_store *s, const char *name, int rc,
			 struct rsh_error *err);
/* Reads a small file whole (from malloc), of at most `max` bytes.  `what` is
 * what it should be. */
int rsh_store_load(const struct rsh_store *s, const char *name, uint64_t max,
		   const char *what, uint8_t **data, size_t *len,
		   struct rsh_error *err);
/* The same of a file anywhere. */
int rsh_load_whole(const char *path, uint64_t max, const char *what,
		   uint8_t **data, size_t *len, struct rsh_error *err);

/* ---- files ---- */

struct rsh_store_entry {
	const char *name; /* below the directory, or absolute; copied */
	uint32_t owner;   /* files of one owner fail together */
	uint64_t epoch, step; /* what its blocks are marked with in a cache */
};
/* 0 or -ENOMEM. */
int rsh_store_add(struct rsh_store *s, const struct rsh_store_entry *e);
/* Opens the file, the descriptor being the caller's, and takes its identity;
 * 0 or -errno with a sentence.  Any thread, each file once. */
int rsh_store_identify(struct rsh_store *s, uint32_t file, int *fd,
		       struct rsh_error *err);
/* Gives an open descriptor of an identified file to the pool, which closes it
 * where memory is out. */
void rsh_store_adopt(struct rsh_store *s, uint32_t file, int fd);
/* Those that could be are identified.  Reads nothing: where that decides
 * whether they are cached, the first reads will tell.  0 or -ENOMEM. */
int rsh_store_start(struct rsh_store *s);
/* Forgets the files.  False if a thread does not come back from one: nothing is
 * forgotten then, and nothing but rsh_store_free() is left to do. */
bool rsh_store_clear(struct rsh_store *s);

uint32_t rsh_store_n_files(const struct rsh_store *s);
const char *rsh_store_name(const struct rsh_store *s, uint32_t file);
/* For messages: the root as it was given, and the name. */
const char *rsh_store_path(const struct rsh_store *s, uint32_t file);

struct rsh_store_identity {
	dev_t dev;
	ino_t ino;
	off_t size;
	struct timespec mtime, ctime;
};
/* As they were taken. */
const struct rsh_store_identity *rsh_store_identity(const struct rsh_store *s,
						    uint32_t file);
const struct rsh_store_attr *rsh_store_attr(const struct rsh_store *s,
					    uint32_t file);

/* ---- before the start: what a file is is read off it ---- */

/* For a struct rsh_byte_source, whose ctx it is.  Headers and checksums are read
 * so, which of all faults meet the flipped bytes alone. */
struct rsh_store_scan {
	const struct rsh_store *store; /* NULL: the file is of none */
	uint32_t file;
	int fd;
};
ssize_t rsh_store_scan_pread(void *scan, void *buf, size_t len,
			     uint64_t offset);
/* The same, with a pointer to a descriptor: no fault meets it. */
ssize_t rsh_fd_pread(void *fd, void *buf, size_t len, uint64_t offset);

/* A positive errno that no file system gives: the file is not the one that was
 * identified.  ESTALE is what network file systems say of handles that their
 * server has forgotten, which a new descriptor cures. */
#define RSH_CHANGED EREMCHG

/* 0 if the file behind fd is still the one that was identified; RSH_CHANGED; or
 * the positive errno for which that cannot be told. */
int rsh_store_compare(const struct rsh_store *s, uint32_t file, int fd);

/* ---- after it ---- */

/* Reads exactly `len` bytes of the file at `offset`.  0, -ESTALE when it changed
 * or shrank, which is logged once a file, or -errno.  `wait`: up to 3 s for a
 * file that cannot be reached, counted from the beginning of the outage.  Any
 * thread. */
int rsh_store_read(struct rsh_store *s, uint32_t file, uint64_t offset,
		   void *buf, size_t len, bool wait);

/* What is done with a descriptor of the file: 0 or a positive errno. */
typedef int rsh_store_use_fn(void *ctx, int fd);
/* Opens the file where it is not, calls fn, and sees to it that the file has
 * stayed the same: 0, or a positive errno or RSH_CHANGED, and nothing that was
 * read may be used.  A descriptor that failed is not used again. */
int rsh_store_try(struct rsh_store *s, uint32_t file, rsh_store_use_fn *fn,
		  void *ctx);
/* The same as often as the outage has it, where fn may be called several times;
 * 0, or what the reader is to see, as rsh_store_read(). */
int rsh_store_use(struct rsh_store *s, uint32_t file, bool wait,
		  rsh_store_use_fn *fn, void *ctx);

/* In such an fn: reads all of [offset, offset + len): 0, or a positive errno;
 * RSH_CHANGED at the end of the file. */
int rsh_store_pread(struct rsh_store *s, uint32_t file, int fd, void *buf,
		    size_t len, uint64_t offset);
/* The range was read and its pages will not be missed: `partly`, for the sake
 * of some of its bytes. */
void rsh_store_spent(const struct rsh_store *s, int fd, uint64_t offset,
		     uint64_t len, bool partly);
/* As pread(), past any cache: all faults meet it, and it is counted.  The number
 * of bytes or -errno. */
ssize_t rsh_store_pread_once(const struct rsh_store *s, uint32_t file, int fd,
			     void *buf, size_t len, uint64_t offset);

/* ---- files as they are ---- */

/* True if reads of the file give its bytes as they are and keep nothing: no
 * fault and no cache stands between.  May read a little of it to find out. */
bool rsh_store_is_straight(struct rsh_store *s, uint32_t file);
/* A descriptor of the file, which is the caller's: 0, -ESTALE when it is no
 * longer the one that was identified, or -errno, as rsh_store_read(); -EMFILE
 * when there are too many. */
int rsh_store_descriptor(struct rsh_store *s, uint32_t file, int *fd);
/* Whether what that descriptor belongs to has stayed as it was: 0 or -ESTALE,
 * which is logged. */
int rsh_store_check(struct rsh_store *s, uint32_t file, int fd);

/* ---- what cannot be read ---- */

/* True if the file cannot be reached at present, or has changed. */
bool rsh_store_file_failed(const struct rsh_store *s, uint32_t file);
/* For each owner whether that is true of one of its files, and of how many files
 * it is. */
const atomic_bool *rsh_store_failed(const struct rsh_store *s);
unsigned rsh_store_n_failed(const struct rsh_store *s);
/* How often a file has been found so: only ever grows. */
unsigned rsh_store_n_marks(const struct rsh_store *s);

/* An outage begins with the first file that cannot be reached and ends when one
 * of those answers again; each is logged once then. */
struct rsh_store_outages {
	uint64_t n; /* so far */
	bool on;    /* there is one now */
};
void rsh_store_outages(const struct rsh_store *s,
		       struct rsh_store_outages *out);

#endif
