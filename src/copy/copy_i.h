/* SPDX-License-Identifier: Apache-2.0 */
/* copy/copy_i.h - the parts of export and verify, for the files of copy/ only.
 */
#pragma once

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
	bool lost;     /* it needs slices that are lost */
	bool asked;    /* it is wanted, or another share writes it */
	bool wanted;
};

struct rsh_copy_list {
	struct rsh_copy_file *files; /* in the order of the tree */
	size_t n, cap;
	struct rsh_copy_file **by_path;
};

/* Lists the files.  `wanted` is as in copy/export.h.  Returns 0 or -ENOMEM.
 * The caller must clear the list in any case. */
int rsh_copy_list_make(const struct rsh_vfs *vfs, const bool *wanted,
		       struct rsh_copy_list *out);
/* Marks wanted files that are not in the share as not wanted.  Returns 0 or
 * -ENOMEM. */
int rsh_copy_list_share(struct rsh_copy_list *l,
			const struct rsh_copy_share *share);
void rsh_copy_list_clear(struct rsh_copy_list *l);
/* Finds a file by its path.  NULL: no file has it. */
struct rsh_copy_file *rsh_copy_list_find(const struct rsh_copy_list *l,
					 const char *path);
/* Gives the records of a file, allocated from the arena.  Their xxh3 is 0.
 * Returns 0 or -ENOMEM. */
int rsh_copy_records(const struct rsh_vfs *vfs, const struct rsh_copy_file *f,
		     struct rsh_arena *arena,
		     struct rsh_manifest_record **out, uint32_t *n);

/* Gets the bytes of a file in order.  Returns 0 or -errno. */
typedef int rsh_copy_sink(void *ctx, const uint8_t *data, size_t len,
			  uint64_t offset);

/* ---- contents with a CRC (digest.c) ---- */

/* A content with the header and the trailer that have its CRC. */
struct rsh_copy_item {
	struct rsh_record_shape shape;
	uint64_t at;     /* where the content begins in that of the record */
	uint64_t bytes;  /* of the content */
	uint64_t offset; /* of the header in the file */
	size_t n_header, n_trailer;
	uint32_t crc;    /* 0: not computed yet */
};

/* The items of a file, in its order. */
struct rsh_copy_items {
	const struct rsh_plan *plan;
	const struct rsh_framing *framing; /* NULL: the file has no items */
	uint32_t file, record;
	uint64_t chunk; /* of the record */
};

bool rsh_copy_has_items(const struct rsh_vfs *vfs,
			const struct rsh_copy_file *f);
/* Begins with the first item.  Files that have no CRCs have no items. */
void rsh_copy_items_init(struct rsh_copy_items *it, const struct rsh_vfs *vfs,
			 const struct rsh_copy_file *f);
/* Gives the next item.  False past the last. */
bool rsh_copy_items_next(struct rsh_copy_items *it, struct rsh_copy_item *out);
/* Continues the CRC with the bytes at `offset` of the file that are in the
 * content.  It must get them in order. */
void rsh_copy_item_add(struct rsh_copy_item *item, const uint8_t *data,
		       size_t len, uint64_t offset);
/* Passes the header and the trailer to sinks, which may be NULL.  Returns 0,
 * -ENOMEM or an error of a sink. */
int rsh_copy_item_frame(const struct rsh_copy_items *it,
			const struct rsh_copy_item *item,
			rsh_copy_sink *header, rsh_copy_sink *trailer,
			void *ctx);

/* ---- reading files (digest.c) ---- */

/* Passes all bytes of a virtual file, or of a real one, to a sink.  Returns 0;
 * -EINTR if the work was stopped; -EIO if a real file ends early; or an error
 * of the source or the sink. */
int rsh_copy_feed_virtual(const struct rsh_vfs *vfs,
			  struct rsh_streams *streams,
			  const struct rsh_copy_file *f,
			  const struct rsh_copy_control *c,
			  rsh_copy_sink *sink, void *ctx);
/* Does the same with the bytes that an export of the file has: its headers have
 * the CRCs of their contents.  The contents of such a file are read twice. */
int rsh_copy_feed_exported(const struct rsh_vfs *vfs,
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
						    * used */
	uint32_t n, at;
	uint64_t *sums; /* [record] */
};

/* Begins a digest of a file with n records, which the caller owns.  Returns 0
 * or -ENOMEM. */
int rsh_digest_init(struct rsh_digest *d,
		    const struct rsh_manifest_record *records, uint32_t n);
void rsh_digest_clear(struct rsh_digest *d);
rsh_copy_sink rsh_digest_sink; /* ctx: a struct rsh_digest */
/* Returns the digest of the file, after its last byte, and sets those of
 * `records`, which may be NULL. */
uint64_t rsh_digest_end(struct rsh_digest *d,
			struct rsh_manifest_record *records);

/* ---- the origin of files in a manifest (origin.c) ---- */

struct rsh_origin {
	struct rsh_manifest_head head;
	struct rsh_manifest_source *sources;
	uint32_t n_sources;
	uint64_t ctimes; /* a hash of those of the sources */
	char *source_path;
	char step[256];
};

/* Fills *out, which contains pointers into the tree and cfg.  Returns 0 or
 * -errno with a sentence.  The caller must clear *out in any case. */
int rsh_origin_make(const struct rsh_vfs *vfs, const struct rsh_vfs_config *cfg,
		    const struct rsh_copy_list *list, struct rsh_origin *out,
		    struct rsh_error *err);
void rsh_origin_clear(struct rsh_origin *o);
/* Hashes all of a strategy that decides about bytes.  Returns 0 or -ENOMEM. */
int rsh_origin_hash_strategy(const struct rsh_strategy *s,
			     const struct rsh_names *names, uint64_t *xxh3);

/* ---- lines of a file (manifest_reader.c) ---- */

struct rsh_lines {
	int fd;
	const char *path;
	char *buf;
	size_t len, cap, at;
	uint64_t offset; /* of buf[0] in the file */
	uint64_t number; /* number of the last line, from 1 on */
	uint64_t begin;  /* where that line begins */
	bool ended;
};

/* Prepares to read the lines of a file from its beginning.  The caller owns
 * `fd`. */
void rsh_lines_init(struct rsh_lines *l, int fd, const char *path);
void rsh_lines_clear(struct rsh_lines *l);
/* Gives the next line that is not empty, without its end.  Returns 1, 0 past
 * the last, or -errno with a sentence (-EBADMSG: the line is longer than
 * RSH_MANIFEST_LINE_MAX). */
int rsh_lines_next(struct rsh_lines *l, const char **text, size_t *len,
		   struct rsh_error *err);

/* ---- writing a manifest (manifest_writer.c) ---- */

/* The known properties of a finished file, perhaps from an earlier run. */
struct rsh_known {
	int fd;          /* the file with its line; -1: nothing is known */
	uint64_t offset; /* where the line begins; `len` includes its end */
	size_t len;
	struct rsh_manifest_file is; /* what the line says, without its path
				      * and its records */
};

/* The manifest, or the record of another run. */
struct rsh_other_draft {
	char *name;
	int fd; /* -1: it does not exist */
	off_t size; /* its size when it was read */
};

/* During a run, lines of finished files are written to the record, which is
 * another file in the manifest's directory.  At the end the manifest is
 * written, with the files that all runs have finished. */
struct rsh_manifest_writer {
	const struct rsh_origin *origin;
	const struct rsh_copy_list *list;
	struct rsh_known *known; /* [file of the list] */
	struct rsh_arena arena; /* of the names, and of `known` */
	const char *path;   /* path of the manifest */
	const char *name;   /* last part of the path; the names of the record
			     * and of `fresh` contain it */
	const char *record; /* name of the record */
	const char *fresh;  /* temporary name of the new manifest */
	const char *lock;
	int dirfd;
	int lock_fd; /* -1: the lock is not held */
	int record_fd;
	_Atomic uint64_t record_end;
	bool overwrite;
	struct rsh_other_draft *others;
	size_t n_others, cap_others;
	/* The paths that the manifest and records of other conversions list,
	 * sorted, as they were when this one was opened; in the arena. */
	const char **foreign;
	size_t n_foreign, cap_foreign;
	size_t n_before; /* n_others before rsh_manifest_writer_join() */
	bool ending;     /* rsh_manifest_writer_join() was called */
};

/* A writer that need not be cleared. */
#define RSH_DRAFT_NONE { .dirfd = -1, .lock_fd = -1, .record_fd = -1 }

struct rsh_manifest_writer_options {
	struct rsh_copy_share share; /* the record is of it */
	bool overwrite;
};

/* Begins or resumes the manifest at `path`.  Returns 0, or -errno with a
 * sentence: -EBUSY, or -EEXIST if the manifest is of another conversion and
 * `overwrite` is not set.  The caller must clear the writer in any case.  This
 * keeps the record for another run. */
int rsh_manifest_writer_open(struct rsh_manifest_writer *s, const char *path,
		   const struct rsh_manifest_writer_options *o,
		   const struct rsh_origin *origin,
		   const struct rsh_copy_list *list, struct rsh_error *err);
void rsh_manifest_writer_clear(struct rsh_manifest_writer *s);
/* Records file i of the list and syncs the record.  Any thread may call it, but
 * two threads must not call it for the same file.  Returns 0 or -errno. */
int rsh_manifest_writer_add(struct rsh_manifest_writer *s, size_t i,
			    const struct rsh_manifest_file *file);
/* Waits until no other run writes the manifest.  Then reads which files others
 * have finished, except the files that are wanted here.  Returns 0 or -errno
 * with a sentence: -EINTR, or -EEXIST as above. */
int rsh_manifest_writer_join(struct rsh_manifest_writer *s,
			     struct rsh_error *err);
/* Writes the manifest with all known files, after rsh_manifest_writer_join().
 * Removes the record, and the records of runs whose process has ended.  Returns
 * 0 or -errno with a sentence. */
int rsh_manifest_writer_finish(struct rsh_manifest_writer *s,
			       struct rsh_error *err);

/* ---- reading a manifest (manifest_reader.c) ---- */

struct rsh_manifest_entry {
	char *path;
	uint64_t offset; /* of its line in the manifest */
	size_t len;
	uint64_t size;   /* of the file */
};

/* The place of each file's line in the manifest, so that only one line at a
 * time must be in memory. */
struct rsh_manifest_index {
	const char *path;
	int fd;
	uint64_t conversion;
	uint64_t n_of; /* number of files in the complete tree */
	struct rsh_manifest_entry *entries; /* in the order of the manifest */
	size_t n, cap;
	const struct rsh_manifest_entry **by_path;
};

/* Reads the whole manifest once.  Returns 0, or -errno with a sentence:
 * -EBADMSG if a line is invalid, the end is missing, or a file occurs twice.
 * The caller must clear the index in any case. */
int rsh_manifest_index_open(struct rsh_manifest_index *x, const char *path,
			    struct rsh_error *err);
/* Does the same with an open file, which the index takes over. */
int rsh_manifest_index_read(struct rsh_manifest_index *x, int fd,
			    const char *path, struct rsh_error *err);
void rsh_manifest_index_clear(struct rsh_manifest_index *x);
/* Finds the entry of a file.  NULL: the manifest has no such file. */
const struct rsh_manifest_entry *
rsh_manifest_index_find(const struct rsh_manifest_index *x, const char *path);
/* Reads the line of an entry again.  Returns 0 and *out, which the caller must
 * clear, or -errno with a sentence.  Any thread may call it. */
int rsh_manifest_index_get(const struct rsh_manifest_index *x,
			   const struct rsh_manifest_entry *e,
			   struct rsh_manifest_line *out,
			   struct rsh_error *err);

/* ---- problems (answer.c) ---- */

/* Where a problem is. */
struct rsh_place {
	size_t order;       /* number of the file, for rsh_answer_sort() */
	const char *dir;    /* NULL: `name` is the path */
	const char *name;
	const char *record; /* NULL: not known */
	bool placed;        /* the offset is known */
	uint64_t offset;
};
/* Adds a problem to the answer.  Any thread may call it.  Returns 0 or
 * -ENOMEM. */
int rsh_answer_tell(struct rsh_answer *a, const struct rsh_place *at,
		    const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Sorts the problems from number `from` on, by their order and their paths. */
void rsh_answer_sort(struct rsh_answer *a, size_t from);

/* Compares a digest with a line of a manifest.  If they differ, adds a problem
 * with the first record that differs; `order` and `dir` are as in struct
 * rsh_place.  Returns 0 or -ENOMEM. */
int rsh_digest_compare(struct rsh_digest *d, const struct rsh_manifest_file *f,
		       size_t order, const char *dir, struct rsh_answer *out);

/* Opens a regular file for reading.  Returns 0 and *fd, or -errno. */
int rsh_open_regular(const char *dir, const char *name, int *fd,
		     uint64_t *size);

/* ---- files that stay in the target (others.c) ---- */

/* Looks for files in the target that the export does not replace and that are
 * not of an earlier run of it.  Warns of those that other ranks of it replace,
 * and of others whose names are like those of its files.  Returns 0, or -errno
 * with a sentence: -EEXIST if files of another conversion would stay for
 * good. */
int rsh_target_judge_others(const struct rsh_manifest_writer *draft,
			    const struct rsh_copy_list *list, int dirfd,
			    const char *dir, struct rsh_error *err);

/* ---- where files are written (target.c) ---- */

/* Checks that a path is not in the source's root, and would not be if it were
 * made.  Returns 0 or -errno with a sentence. */
int rsh_target_check(const char *path, const struct rsh_source *source,
		     struct rsh_error *err);
/* Opens a directory below `at`, or makes it with that mode.  It does not follow
 * links unless `at` is AT_FDCWD.  Returns the descriptor or -errno. */
int rsh_target_dir(int at, const char *name, mode_t mode);

/* A file under its temporary name.  It is locked until it is committed or
 * dropped. */
struct rsh_temp {
	int dirfd; /* the caller's */
	int fd;
	char name[64];
	unsigned place; /* 1 + its place in the list of rsh_temp_remove_all();
			 * 0: none */
};

/* Makes the file.  `number` must be unique in the directory.  Returns 0 or
 * -errno: -EBUSY if a running process writes the same file. */
int rsh_temp_open(struct rsh_temp *t, int dirfd, uint32_t number);
/* Gives the file its final name.  With `replace` it replaces an existing file.
 * Returns 0 or -errno: -EEXIST.  After a success nothing is left to drop. */
int rsh_temp_commit(struct rsh_temp *t, const char *name, bool replace);
/* Removes the file if it does not have its final name yet. */
void rsh_temp_drop(struct rsh_temp *t);
/* Removes the temporary files in a directory whose writers have ended. */
void rsh_temp_sweep(int dirfd);
