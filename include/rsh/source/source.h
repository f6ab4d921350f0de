/* SPDX-License-Identifier: Apache-2.0 */
/* source/source.h - a checkpoint tree on disk: which files it consists of,
 * their indexes, and their bytes.
 *
 * SOURCE/rank_N/ holds the files of rank N, mostly of several steps.  They are
 * listed once and sorted into candidates: what all ranks saved at one step of
 * one run.  One candidate is chosen at a time, and the files of two are never
 * mixed.  All of a candidate are .ckpt or all are .safetensors.  The tree is
 * opened once, by directory descriptor, so that a relative path and a later
 * rename of a parent do no harm.  Files are opened read-only and never written.
 *
 * A whole model in parts is rank 0: SOURCE/model.safetensors.index.json and the
 * files that it names, or MindSpore's param_name_map.json with
 * part*.safetensors and hyper_param.safetensors, or model.safetensors alone.
 *
 * Identity: device, inode, size and mtime of a file are taken when it is
 * indexed and compared when it is opened again and after each read; a file
 * that changed gives -ESTALE, never bytes of two checkpoints.
 *
 * A file that cannot be reached has not changed.  Its descriptor is given up, it
 * is opened again, and if that does no better the reader gets -EIO.  From then
 * on it is tried again, by a thread of the source and by each who reads it, for
 * as long as the source lives.  Where the root itself is dead, as after a server
 * of FUSE has ended, files are looked for below the path where it was; they are
 * on another device then.  What must be the same there is name, inode, size and
 * mtime.  Of FUSE file systems the ctime will do for device and inode, at any
 * time, since many of their servers (s3fs, whatever has libfuse number its
 * inodes) give others to what the kernel has forgotten.  GlusterFS, whose inodes
 * stay, has a true ctime, too; with a server that gives mtime for it, as sshfs
 * and rclone do, another file of the same name, size and mtime is taken for the
 * old one.
 */
#ifndef RSH_SOURCE_SOURCE_H
#define RSH_SOURCE_SOURCE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "rsh/catalogue/files.h"
#include "rsh/source/io.h"
#include "rsh/strategy/strategy.h"
#include "rsh/util/error.h"
#include "rsh/util/names.h"
#include "rsh/wire/name_map.h"

struct rsh_source;

/* In which order candidates are tried, and which there are. */
enum rsh_select {
	RSH_SELECT_NEWEST,    /* the greatest epoch and step first */
	RSH_SELECT_STEP,      /* one epoch and step only */
	RSH_SELECT_MTIME,     /* the most recently written first */
	RSH_SELECT_NAME,      /* newest first, of names that a glob matches */
	RSH_SELECT_MINDSPORE, /* the converter's choice: the lexicographically
			       * last file of a rank, of safetensors that with
			       * the greatest last numbers */
};

/* What a crashed job left behind (*_breakpoint.ckpt and the like). */
enum rsh_breakpoints {
	RSH_BREAKPOINTS_OUT, /* never counts */
	RSH_BREAKPOINTS_INCLUDE,
	RSH_BREAKPOINTS_ONLY,
};

/* How much of a source is looked at before it is taken. */
enum rsh_check {
	RSH_CHECK_SAMPLE,    /* headers, and a sample of the contents is held
			      * against the strategy (source/contents.h) */
	RSH_CHECK_STRUCTURE, /* headers alone */
	RSH_CHECK_FULL,      /* everything: a file whose CRC trailer does not
			      * match is a damaged one, and all contents are
			      * held against the strategy */
};

/* Who opens by path for those who may not any more: a mount that is new on its
 * mount point is none that a sandbox knows of.  Any thread. */
struct rsh_source_opener {
	/* As rsh_source_find(), of the place and options that this source was
	 * opened with.  0, or -errno if no answer came in a bounded time. */
	int (*find)(void *ctx, const char *name, int fd[2]);
	void *ctx;
};

/* Opens the directory `place`, fd[0], and the file `name` of a source there,
 * fd[1], which leads out of it only if `outside` is set; both are the caller's,
 * or -errno. */
void rsh_source_find(const char *place, bool outside, const char *name,
		     int fd[2]);

struct rsh_source_options {
	enum rsh_select select;
	uint64_t epoch, step; /* of RSH_SELECT_STEP */
	const char *glob;     /* of RSH_SELECT_NAME */
	enum rsh_breakpoints breakpoints;

	/* Where files lie below the root; "{rank}" stands for the rank, '*' and
	 * '?' as in a shell.  With a rank_dir, or a '/' in file, "{rank}" has
	 * to be in one of them.  NULL: rank_{rank} or ckpt_{rank} and
	 * directories named checkpoint* in these; *.ckpt and *.safetensors. */
	const char *rank_dir;
	const char *file;
	/* A JSON file that names each rank's file; NULL: none. */
	const char *source_map;
	/* The source has no strategy: it may be a whole model in parts, as
	 * rank 0, if nothing was selected and no other place given. */
	bool unsharded;

	/* Links in the tree may lead out of it.  Otherwise one that does, among
	 * what is read, is refused with EXDEV and a sentence; the root itself
	 * may be a link, and a map may name any file. */
	bool follow_outside;
	const struct rsh_source_opener *opener; /* NULL: none is needed */

	enum rsh_check check;
	struct rsh_source_io *io; /* NULL: none */
	/* Directory of the index cache; NULL: none.  That it cannot be used is
	 * worth a warning if the user asked for it. */
	const char *index_cache;
	bool index_cache_asked;
	unsigned n_threads; /* for indexing; 0: as many as make it fast */
};

/* Opens the tree at `path` and lists the files of ranks first .. first+n-1.
 * Nothing of their content is read yet; a rank directory that cannot be read
 * is logged and counts as empty.  0, or -errno with a sentence: no such
 * directory, no rank directory in it, nothing that was selected, files of which
 * it is not clear what step they are, a rank twice (rank_1 and rank_01). */
int rsh_source_open(const char *path, uint32_t first, uint32_t n,
		    const struct rsh_source_options *opts,
		    struct rsh_source **out, struct rsh_error *err);
/* No read may be running. */
void rsh_source_free(struct rsh_source *s);

/* Those to be tried, at least 1: a tree without files is one candidate without
 * files.  Names without a step do not count where every rank has some with. */
uint32_t rsh_source_n_candidates(const struct rsh_source *s);
/* Makes the files of candidate i, the best being 0, those of the source;
 * indexes and descriptors of an earlier choice go.  A rank may have no file.
 * 0, or -EINVAL with a sentence: a rank has two such files, or their formats
 * differ. */
int rsh_source_choose(struct rsh_source *s, uint32_t i, struct rsh_error *err);
/* "epoch 3 step 40" and the like, of candidate i, for messages. */
void rsh_source_candidate_text(const struct rsh_source *s, uint32_t i,
			       char *text, size_t size);
/* Logs what was chosen, if there was a choice, ranks that lack it, and in a line
 * the files that were left out. */
void rsh_source_log_choice(const struct rsh_source *s);
void rsh_source_log_left_out(const struct rsh_source *s);

/* Scans the headers of all chosen files, several at a time; equal indexes are
 * held once.  Files that the index cache knows are not read, and others are
 * entered there, in a thread that ends with the choice at the latest.  A file
 * that is damaged or cannot be read is left out, as if that rank had
 * none; of a model in parts it is an error.  0 or -errno with a sentence. */
int rsh_source_index(struct rsh_source *s, struct rsh_names *names,
		     struct rsh_error *err);
/* Compares what group_info.pb files say with the strategy: those in the rank
 * directories or, instead, `given`, which is one file, a directory that holds
 * rank_N/group_info.pb, or a path with "{rank}" in it; NULL: not given.  0, or
 * -EINVAL with a sentence that names the file, the ranks and a parameter when
 * they contradict each other; what was given has to be readable as well. */
int rsh_source_check_groups(const struct rsh_source *s, const char *given,
			    const struct rsh_strategy *strategy,
			    const struct rsh_names *names,
			    struct rsh_error *err);
/* How many files were left out, and the sentence about the first. */
uint32_t rsh_source_n_bad(const struct rsh_source *s, const char **first);
/* For rsh_convert(); valid while the source lives.  A rank without a
 * file has a NULL index. */
void rsh_source_view(const struct rsh_source *s, struct rsh_names *names,
		     struct rsh_source_view *view);

struct rsh_source_attr {
	/* Permission bits.  Of a file only those to read, less what the
	 * directories above it, from the root on, keep from whom; its owner's
	 * alone if there is an access control list. */
	mode_t mode;
	uid_t uid;
	gid_t gid;
	struct timespec mtime;
};
/* False when the rank has no file. */
bool rsh_source_attr(const struct rsh_source *s, uint32_t rank,
		     struct rsh_source_attr *out);
/* The mode under which something of another owner and group is open to nobody
 * who may not have the original. */
mode_t rsh_source_mode_as(const struct rsh_source_attr *a, uid_t uid,
			  gid_t gid);
/* Of the tree's root directory. */
void rsh_source_root_attr(const struct rsh_source *s,
			  struct rsh_source_attr *out);
/* Descriptor of the root, owned by the source (for fstatvfs). */
int rsh_source_dirfd(const struct rsh_source *s);

/* Reads exactly `len` bytes of the rank's file at `offset`.  0, -ESTALE when
 * the file changed or shrank, which is logged once a file, or -errno.  Waits up
 * to 3 s for a file that cannot be reached, counted from the beginning of the
 * outage.  Any
 * thread. */
int rsh_source_read(struct rsh_source *s, uint32_t rank, uint64_t offset,
		    void *buf, size_t len);

/* ---- files as they are ---- */

/* True if the file with the first byte of the rank's index has `bytes` bytes
 * and nothing, no fault and no cache, stands between it and who reads it; *file
 * is its number then. */
bool rsh_source_whole(struct rsh_source *s, uint32_t rank, uint64_t bytes,
		      uint32_t *file);
/* A descriptor, which is the caller's, of file number `file`: 0, -ESTALE when
 * it is no longer the one that was indexed, or -errno, as rsh_source_read();
 * -EMFILE when there are too many. */
int rsh_source_file_open(struct rsh_source *s, uint32_t file, int *fd);
/* Whether what that descriptor belongs to has stayed as it was: 0 or -ESTALE,
 * which is logged. */
int rsh_source_file_check(struct rsh_source *s, uint32_t file, int fd);
/* True if the tree lies on a file system that hands reads on to another one. */
bool rsh_source_is_stacked(const struct rsh_source *s);
/* True if the tree lies on a file system that a network or a process stands
 * behind, which may go away and come back. */
bool rsh_source_is_remote(const struct rsh_source *s);
/* True if the file cannot be reached at present, or has changed. */
bool rsh_source_file_failed(const struct rsh_source *s, uint32_t file);

/* For each rank below the view's n_ranks whether that is true of its file, or of
 * one of its files, and of how many files it is. */
const atomic_bool *rsh_source_failed(const struct rsh_source *s);
unsigned rsh_source_n_failed(const struct rsh_source *s);
/* How often a file has been found so: only ever grows. */
unsigned rsh_source_n_marks(const struct rsh_source *s);

/* An outage begins with the first file that cannot be reached and ends when one
 * of those answers again; each is logged once then. */
struct rsh_source_outages {
	uint64_t n; /* so far */
	bool on;    /* there is one now */
};
void rsh_source_outages(const struct rsh_source *s,
			struct rsh_source_outages *out);

/* Reads a strategy: a file, or a directory of per-stage files (all its *.ckpt
 * or all its *.json), sorted by name or `as_listed` by the directory.  "none"
 * is not handled here. */
int rsh_strategy_load(const char *path, bool as_listed,
		      struct rsh_names *names, struct rsh_strategy **out,
		      struct rsh_error *err);

/* xxh3 of the bytes of that file or, of a directory, of its files' names and
 * bytes by name.  0 or -errno with a sentence. */
int rsh_strategy_digest(const char *path, uint64_t *xxh3,
			struct rsh_error *err);

/* What is read and written besides the tree, for who has to know before it is
 * opened.  Makes the directory of the index cache, and those above it; 0 or
 * -errno. */
int rsh_source_make_index_dir(const char *path);
/* Calls fn for each file that a source map names.  0 or -errno with a
 * sentence. */
int rsh_source_map_each(const char *map,
			void (*fn)(void *ctx, const char *path), void *ctx,
			struct rsh_error *err);

/* Reads the JSON file of old and new parameter names. */
int rsh_name_map_load(const char *path, struct rsh_name_map **out,
		      struct rsh_error *err);

#endif
