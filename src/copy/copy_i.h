/* SPDX-License-Identifier: Apache-2.0 */
/* copy/copy_i.h - the parts of export and verify, for the files of copy/ only.
 */
#ifndef RSH_COPY_COPY_I_H
#define RSH_COPY_COPY_I_H

#include <stddef.h>
#include <sys/types.h>

#include "rsh/copy/copy.h"
#include "rsh/copy/verify.h"
#include "rsh/read/stream.h"
#include "rsh/util/arena.h"
#include "rsh/util/thread.h"
#include "rsh/util/xxh3.h"
#include "rsh/vfs/inspect.h"
#include "rsh/wire/manifest.h"

/* ---- the files of a virtual tree (list.c) ---- */

#define RSH_COPY_NO_RANK UINT32_MAX

struct rsh_copy_file {
	char *path; /* below the root */
	uint64_t node;
	uint32_t rank; /* file of the plan, or RSH_COPY_NO_RANK */
	uint64_t size;
	mode_t mode;
	bool lost;     /* its slices cannot be had */
	bool wanted;
};

struct rsh_copy_list {
	struct rsh_copy_file *files; /* in the order of the tree */
	size_t n, cap;
	struct rsh_copy_file **by_path;
};

/* Lists the files; `wanted` is as in copy/export.h.  Returns 0 or -ENOMEM; the
 * list is to be cleared in any case. */
int rsh_copy_list_make(const struct rsh_vfs *vfs, const bool *wanted,
		       struct rsh_copy_list *out);
/* Leaves of the files that are wanted those of a share.  Returns 0 or
 * -ENOMEM. */
int rsh_copy_list_share(struct rsh_copy_list *l,
			const struct rsh_copy_share *share);
void rsh_copy_list_clear(struct rsh_copy_list *l);
/* Returns NULL if no file has that path. */
struct rsh_copy_file *rsh_copy_list_find(const struct rsh_copy_list *l,
					 const char *path);
/* Gives the records of a file, from the arena; xxh3 is still 0.  Returns 0 or
 * -ENOMEM. */
int rsh_copy_records(const struct rsh_vfs *vfs, const struct rsh_copy_file *f,
		     struct rsh_arena *arena,
		     struct rsh_manifest_record **out, uint32_t *n);

/* ---- reading files (digest.c) ---- */

/* Takes the bytes of a file from front to back; returns 0 or -errno. */
typedef int rsh_copy_sink(void *ctx, const uint8_t *data, size_t len,
			  uint64_t offset);

/* Feeds a virtual file, or all bytes of a real one, to a sink.  Returns 0;
 * -EINTR when it is time to stop, -EIO when a real file ends early, or what
 * source or sink gave. */
int rsh_copy_feed_virtual(const struct rsh_vfs *vfs,
			  struct rsh_streams *streams,
			  const struct rsh_copy_file *f,
			  const struct rsh_copy_control *c,
			  rsh_copy_sink *sink, void *ctx);
int rsh_copy_feed_real(const struct rsh_byte_source *file,
		       const struct rsh_copy_control *c, rsh_copy_sink *sink,
		       void *ctx);

bool rsh_copy_stopped(const struct rsh_copy_control *c);

/* Computes the xxh3 of a file and of its records as its bytes are read. */
struct rsh_digest {
	XXH3_state_t *file, *record;
	const struct rsh_manifest_record *records; /* only their places are
						    * looked at */
	uint32_t n, at;
	uint64_t *sums; /* [record] */
};

/* `sums` has room for n and stays the caller's, as do the records.  Returns 0
 * or -ENOMEM. */
int rsh_digest_init(struct rsh_digest *d,
		    const struct rsh_manifest_record *records, uint32_t n,
		    uint64_t *sums);
void rsh_digest_clear(struct rsh_digest *d);
rsh_copy_sink rsh_digest_sink; /* ctx: a struct rsh_digest */
/* Returns the digest of the file, after its last byte. */
uint64_t rsh_digest_end(struct rsh_digest *d);

/* ---- the origin of files in a manifest (origin.c) ---- */

struct rsh_origin {
	struct rsh_manifest_head head;
	struct rsh_manifest_source *sources;
	uint32_t n_sources;
	char *source_path;
	char step[256];
};

/* Fills *out, which points to the tree and to cfg.  Returns 0 or -errno with a
 * sentence; *out is to be cleared in any case. */
int rsh_origin_make(const struct rsh_vfs *vfs, const struct rsh_vfs_config *cfg,
		    const struct rsh_copy_list *list, struct rsh_origin *out,
		    struct rsh_error *err);
void rsh_origin_clear(struct rsh_origin *o);

/* ---- lines of a file (manifest_reader.c) ---- */

struct rsh_lines {
	int fd;
	const char *path;
	char *buf;
	size_t len, cap, at;
	uint64_t offset; /* of buf[0] in the file */
	uint64_t number; /* number of the line given last, from 1 */
	uint64_t begin;  /* where that line begins */
	bool ended;
};

/* The file is read from its beginning; `fd` stays the caller's. */
void rsh_lines_init(struct rsh_lines *l, int fd, const char *path);
void rsh_lines_clear(struct rsh_lines *l);
/* Gives the next line that is not empty, without its end.  Returns 1, 0 past
 * the last, or -errno with a sentence (-EBADMSG: the line is longer than
 * RSH_MANIFEST_LINE_MAX). */
int rsh_lines_next(struct rsh_lines *l, const char **text, size_t *len,
		   struct rsh_error *err);

/* ---- writing a manifest (manifest_writer.c) ---- */

/* Has what is known of a file that was finished, perhaps by an earlier run. */
struct rsh_known {
	int fd;          /* where its line stands; -1: nothing is known */
	uint64_t offset; /* where the line begins; `len` includes its end */
	size_t len;
	uint64_t size, xxh3;
	bool written;
	uint64_t inode;
	int64_t mtime_s;
	uint32_t mtime_ns;
};

/* This is the manifest, or the record of another run. */
struct rsh_other_draft {
	char *name;
	int fd; /* -1: it is not there */
	off_t size; /* when it was read */
};

/* Lines of finished files are kept in a file of their own beside the manifest,
 * the record; the manifest is put together at the end, of what all runs have
 * finished. */
struct rsh_manifest_writer {
	const struct rsh_origin *origin;
	const struct rsh_copy_list *list;
	struct rsh_known *known; /* [file of the list] */
	char *path;   /* path of the manifest */
	char *name;   /* last part of it; the record and `fresh` are named after
		       * it */
	char *record; /* the file that has what is finished */
	char *fresh;  /* the manifest that is being put together */
	char *lock;
	int dirfd;
	int lock_fd; /* -1: the lock is not held */
	int record_fd;
	_Atomic uint64_t record_end;
	bool overwrite;
	struct rsh_other_draft *others;
	size_t n_others, cap_others;
	size_t n_before; /* others before rsh_manifest_writer_join() */
	bool ending;     /* rsh_manifest_writer_join() was called */
};

/* Nothing has to be cleared of this one. */
#define RSH_DRAFT_NONE { .dirfd = -1, .lock_fd = -1, .record_fd = -1 }

struct rsh_manifest_writer_options {
	struct rsh_copy_share share; /* the record is of it */
	bool overwrite;
};

/* Begins or goes on with the manifest at `path`.  Returns 0, or -errno with a
 * sentence: -EBUSY, or -EEXIST if it is another conversion's and `overwrite` is
 * not set.  The draft is to be cleared in any case, which leaves the record for
 * another run. */
int rsh_manifest_writer_open(struct rsh_manifest_writer *s, const char *path,
		   const struct rsh_manifest_writer_options *o,
		   const struct rsh_origin *origin,
		   const struct rsh_copy_list *list, struct rsh_error *err);
void rsh_manifest_writer_clear(struct rsh_manifest_writer *s);
/* Records file i of the list, durably.  Any thread may call it, each for other
 * files.  Returns 0 or -errno. */
int rsh_manifest_writer_add(struct rsh_manifest_writer *s, size_t i,
			    const struct rsh_manifest_file *file);
/* Waits until no other run makes the manifest, and learns what others have
 * finished of the files that are not wanted here.  Returns 0 or -errno with a
 * sentence: -EINTR, or -EEXIST as above. */
int rsh_manifest_writer_join(struct rsh_manifest_writer *s,
			     struct rsh_error *err);
/* After rsh_manifest_writer_join(), makes the manifest of all files that are
 * known, and drops the record and those of runs that are dead.  Returns 0 or
 * -errno with a sentence. */
int rsh_manifest_writer_finish(struct rsh_manifest_writer *s,
			       struct rsh_error *err);

/* ---- reading a manifest (manifest_reader.c) ---- */

struct rsh_manifest_entry {
	char *path;
	uint64_t offset; /* of its line in the manifest */
	size_t len;
	uint64_t size;   /* of the file */
};

/* Knows where each file's line stands, so that one at a time need be in
 * memory. */
struct rsh_manifest_index {
	const char *path;
	int fd;
	uint64_t conversion;
	uint64_t n_of; /* files that the tree has, or would have */
	struct rsh_manifest_entry *entries; /* in the order of the manifest */
	size_t n, cap;
	const struct rsh_manifest_entry **by_path;
};

/* Reads all of the manifest once.  Returns 0, or -errno with a sentence:
 * -EBADMSG if a line makes no sense, the end is missing, or a file occurs
 * twice.  The index is to be cleared in any case. */
int rsh_manifest_index_open(struct rsh_manifest_index *x, const char *path,
			    struct rsh_error *err);
/* Does the same with a file that is open, which the index takes over. */
int rsh_manifest_index_read(struct rsh_manifest_index *x, int fd,
			    const char *path, struct rsh_error *err);
void rsh_manifest_index_clear(struct rsh_manifest_index *x);
/* Returns NULL if the manifest has no such file. */
const struct rsh_manifest_entry *
rsh_manifest_index_find(const struct rsh_manifest_index *x, const char *path);
/* Reads the line of an entry again.  Returns 0 and *out, to be cleared, or
 * -errno with a sentence.  Any thread may call it. */
int rsh_manifest_index_get(const struct rsh_manifest_index *x,
			   const struct rsh_manifest_entry *e,
			   struct rsh_manifest_line *out,
			   struct rsh_error *err);

/* ---- problems (answer.c) ---- */

/* Says what is wrong with dir/name (name alone if dir is NULL), in place of
 * what was said before.  Returns 0 or -ENOMEM. */
int rsh_problem_set(struct rsh_problem *p, const char *dir, const char *name,
		    const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* Says where a problem is; `record` may be NULL.  Returns 0 or -ENOMEM. */
int rsh_problem_place(struct rsh_problem *p, const char *record,
		      uint64_t offset);
/* Moves a problem to the answer, or does nothing if there is none.  Returns 0
 * or -ENOMEM. */
int rsh_answer_add(struct rsh_answer *a, struct rsh_problem *p);
/* Moves a list of problems, from malloc or NULL, and frees it. */
int rsh_answer_take(struct rsh_answer *a, struct rsh_problem *list, size_t n);

/* Holds what a digest has found against a manifest's line: the first record
 * that differs is the problem.  Returns 0 or -ENOMEM. */
int rsh_digest_compare(struct rsh_digest *d, const struct rsh_manifest_file *f,
		       const char *dir, struct rsh_problem *out);

/* Opens a file to be read and checked; returns 0 and *fd, or -errno. */
int rsh_open_regular(const char *dir, const char *name, int *fd,
		     uint64_t *size);

/* ---- where files are written (target.c) ---- */

/* Refuses a path that is, or would be, below the source's root.  Returns 0 or
 * -errno with a sentence. */
int rsh_target_check(const char *path, const struct rsh_source *source,
		     struct rsh_error *err);
/* Opens a directory below `at`, or makes it with that mode; links are not
 * followed unless `at` is AT_FDCWD.  Returns the descriptor or -errno. */
int rsh_target_dir(int at, const char *name, mode_t mode);

/* This is a file under its temporary name, which is locked while it lives. */
struct rsh_temp {
	int dirfd; /* the caller's */
	int fd;
	char name[64];
};

/* Makes the file; `number` tells apart the files of a directory.  Returns 0 or
 * -errno: -EBUSY when a living process writes the same. */
int rsh_temp_open(struct rsh_temp *t, int dirfd, uint32_t number);
/* Gives the file its name; with `replace` in the place of what is there.
 * Returns 0 or -errno: -EEXIST.  After a success there is nothing to drop. */
int rsh_temp_commit(struct rsh_temp *t, const char *name, bool replace);
/* Removes the file, if it was not given its name. */
void rsh_temp_drop(struct rsh_temp *t);
/* Removes the temporary files in a directory whose writers are dead. */
void rsh_temp_sweep(int dirfd);

#endif
