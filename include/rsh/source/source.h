/* SPDX-License-Identifier: Apache-2.0 */
/* source/source.h opens a checkpoint tree on disk: it finds its files, their
 * indexes, and where in the files the bytes are.
 *
 * SOURCE/rank_N/ has the files of rank N, mostly of several steps.  They are
 * listed once and sorted into candidates: a candidate is what all ranks saved
 * at one step of one run.  One candidate is chosen at a time, and files of two
 * are never mixed.  All files of a candidate are .ckpt, or all are
 * .safetensors.  The tree is opened once, and its files are those of a store
 * (storage/store.h), with the same numbers; the store reads their bytes.
 * Threads: one thread opens, chooses and indexes; then any thread may read.
 *
 * This describes a tree of rank files.  Formats find, list and read all others
 * (source/format.h).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rsh/plan/files.h"
#include "rsh/storage/store.h"
#include "rsh/strategy/strategy.h"
#include "rsh/util/error.h"
#include "rsh/util/mem.h"
#include "rsh/util/names.h"
#include "rsh/util/option.h"
#include "rsh/wire/name_map.h"

struct rsh_source;
struct rsh_format; /* source/format.h */

/* Makes the index of a file, as rsh_file_scan() (wire/file_type.h). */
typedef int rsh_beside_scan(const struct rsh_byte_source *src, bool full,
			    struct rsh_names *names,
			    struct rsh_ckpt_index **out, struct rsh_error *err);

/* This says which candidates there are, and in which order they are tried. */
enum rsh_select {
	RSH_SELECT_NEWEST,    /* the greatest epoch and step first */
	RSH_SELECT_STEP,      /* one epoch and step only */
	RSH_SELECT_MTIME,     /* the candidate first that was written last */
	RSH_SELECT_NAME,      /* newest first, only names that a glob matches */
	RSH_SELECT_MINDSPORE, /* the converter's choice: the lexicographically
			       * last file of a rank; of safetensors the one
			       * with the greatest last numbers */
	RSH_SELECT_LONE_STEP, /* one step only, of names without epochs, or of
			       * the only epoch that has it */
};

/* This says whether files that a crashed job left (*_breakpoint.ckpt and
 * similar names) count. */
enum rsh_breakpoints {
	RSH_BREAKPOINTS_OUT, /* never counts */
	RSH_BREAKPOINTS_INCLUDE,
	RSH_BREAKPOINTS_ONLY,
};

/* This says how much of a source is checked before it is used. */
enum rsh_check {
	RSH_CHECK_SAMPLE,    /* headers, and a sample of the contents, which is
			      * compared with the strategy
			      * (contents/contents.h) */
	RSH_CHECK_STRUCTURE, /* only headers */
	RSH_CHECK_FULL,      /* everything: a file whose CRC trailer does not
			      * match is damaged, and all contents are compared
			      * with the strategy */
};

/* The files of one step, one of each directory of a rank, as a look at all
 * steps has found them (source/save_dir.h). */
struct rsh_step_files;

struct rsh_source_options {
	enum rsh_select select;
	uint64_t epoch, step; /* for RSH_SELECT_STEP and _LONE_STEP */
	const char *glob;     /* for RSH_SELECT_NAME */
	enum rsh_breakpoints breakpoints;

	/* These say where the files are below the root; "{rank}" means the
	 * rank, and '*' and '?' are as in a shell.  If there is a rank_dir, or
	 * `file` contains a '/', one of them must contain "{rank}".  NULL:
	 * *.ckpt and *.safetensors in rank_{rank} or ckpt_{rank}, and in
	 * directories named checkpoint* inside these. */
	const char *rank_dir;
	const char *file;
	/* This is a JSON file with the path of each rank's file; NULL: there is
	 * none. */
	const char *source_map;
	bool unsharded; /* no strategy file says how it is cut */
	/* These are the files of ranks, which are not listed then; NULL: they
	 * are listed. */
	const struct rsh_step_files *step_files;

	/* These are the formats that the source may have; the list ends with
	 * NULL.  NULL: only files of ranks. */
	const struct rsh_format *const *formats;

	/* SOURCE is a step of this directory, with others that the format may
	 * read, too; NULL: it is not known to be one. */
	const char *steps_dir;
	/* The model on which the first step is built: an absolute path; NULL:
	 * not given. */
	const char *base;

	/* These are absolute paths or addresses of files that do not belong to
	 * the checkpoint, but are read for it.  The files have the numbers
	 * after the highest rank.  Files whose names end with ".bin" are
	 * scanned by scan_bin, all others are safetensors. */
	const char *const *beside;
	uint32_t n_beside;
	rsh_beside_scan *scan_bin;

	struct rsh_store_options store; /* how files are opened and read */
	enum rsh_check check;
	/* This is the directory of the index cache; NULL: there is none.  If it
	 * cannot be used, this is a warning if the user asked for it. */
	const char *index_cache;
	bool index_cache_asked;
	unsigned n_threads; /* for indexing; 0: a suitable number */
};

/* The options of the command line: those that choose files, and those for
 * checks and for the index cache. */
extern const struct rsh_option rsh_source_rows[], rsh_source_check_rows[],
	rsh_source_cache_rows[];
/* Checks them together.  Returns 0, or -EINVAL with a sentence. */
int rsh_source_options_check(const struct rsh_source_options *o,
			     struct rsh_error *err);

/* Opens the tree at `path` and lists the files of ranks first .. first+n-1.
 * No content is read yet; a rank directory that cannot be read is logged and
 * counts as empty.  Returns 0, or -errno with a sentence: there is no such
 * directory, it has no rank directory, nothing is selected, the step of files
 * is ambiguous, or a rank occurs twice (rank_1 and rank_01). */
int rsh_source_open(const char *path, uint32_t first, uint32_t n,
		    const struct rsh_source_options *opts,
		    struct rsh_source **out, struct rsh_error *err);
/* Returns the directory with the files of SOURCE: SOURCE itself or, if it is a
 * file, the file's directory (from malloc); of addresses only those of maps
 * from weights to parts are files here.  NULL: out of memory. */
char *rsh_source_directory(const char *path);
/* Returns the path as it was given, for messages. */
const char *rsh_source_path(const struct rsh_source *s);
/* Returns the format of an open source. */
const struct rsh_format *rsh_source_format(const struct rsh_source *s);
/* Returns the format of a path of which nothing else is known, and sets *bid to
 * its bid (enum rsh_bid); RSH_BID_ANY means that nothing there shows the
 * format.  NULL: no format takes it or, if err->code is not 0, it cannot be
 * opened or read.  Any thread may call it. */
const struct rsh_format *
rsh_source_format_at(const char *path, const struct rsh_store_options *how,
		     const struct rsh_format *const *formats, int *bid,
		     struct rsh_error *err);
/* Finds the step to show if SOURCE is a directory of steps that a format sorts
 * itself and that are each a SOURCE: the first complete one, which opts->select
 * and a tracker may put first, of at most 1 + `fallbacks`.  Logs which one it
 * is, and why others before it are not.  Sets *out to its directory (from
 * malloc); NULL: SOURCE itself is the step.  Returns 0 or -errno with a
 * sentence: no step is complete, or one that may be cannot be read now. */
int rsh_source_find_step(const char *path,
			 const struct rsh_source_options *opts,
			 uint32_t fallbacks, char **out, struct rsh_error *err);
/* Writes the end of a sentence, "; ...", about a file that is no SOURCE: its
 * directory is one; "": it is none.  Any thread may call it. */
void rsh_source_hint_around(const char *path,
			    const struct rsh_store_options *how,
			    const struct rsh_format *const *formats, char *buf,
			    size_t max);
/* Writes the end of a sentence, "; ...", about a SOURCE in which no checkpoint
 * is found: it is not a directory, or it has a checkpoint or belongs to one
 * that may have been meant, or has one without its metadata.  Writes "" if
 * nothing is known.  Any thread may call it. */
void rsh_source_hint(const char *path, const struct rsh_store_options *how,
		     const struct rsh_format *const *formats, char *buf,
		     size_t max);
/* Returns whether a directory is itself one step of a format, and not a
 * directory of several.  Any thread may call it. */
bool rsh_source_is_one_step(const char *path,
			    const struct rsh_store_options *how,
			    const struct rsh_format *const *formats);
/* Sets the error that a source whose format contains the layout needs no
 * strategy; returns -EINVAL. */
int rsh_source_needs_none(const struct rsh_source *s, struct rsh_error *err);
/* No read may be running when this is called. */
void rsh_source_free(struct rsh_source *s);
RSH_GUARD(rsh_source_guard_, struct rsh_source, rsh_source_free)
#define cleanup_source __attribute__((cleanup(rsh_source_guard_)))

/* Returns the number of candidates that are tried: at least 1, because a tree
 * without files is one candidate without files.  If every rank has names with a
 * step, names without a step do not count. */
uint32_t rsh_source_n_candidates(const struct rsh_source *s);
/* Makes the files of candidate i those of the source; 0 is the best candidate.
 * Indexes and descriptors of an earlier choice are freed.  A rank may have no
 * file.  Returns 0, or -EINVAL with a sentence: a rank has two such files, or
 * their formats differ. */
int rsh_source_choose(struct rsh_source *s, uint32_t i, struct rsh_error *err);
/* Writes the name of candidate i for messages, such as "epoch 3 step 40". */
void rsh_source_candidate_text(const struct rsh_source *s, uint32_t i,
			       char *text, size_t size);
/* rsh_source_log_choice() logs what was chosen, if there was a choice, and the
 * ranks without a file of it, and what the others log.
 * rsh_source_log_left_out() logs in one line the files that were left out,
 * rsh_source_log_other() that SOURCE has files of another format, too, and
 * rsh_source_log_doubt() that the chosen step may be of two saves, by the times
 * of its files. */
void rsh_source_log_choice(const struct rsh_source *s);
void rsh_source_log_left_out(const struct rsh_source *s);
void rsh_source_log_other(const struct rsh_source *s);
void rsh_source_log_doubt(const struct rsh_source *s);
/* Writes a sentence about ranks of which there is nothing, though there are
 * lower and higher ones, or "".  A strategy says which ranks there are, so this
 * is for sources without one. */
void rsh_source_gap(const struct rsh_source *s, char *text, size_t size);
/* Checks that no file of the chosen step is younger than this one.  Returns 0,
 * or -errno with a sentence; -ENOENT: it is not there. */
int rsh_source_check_times(const struct rsh_source *s, const char *last,
			   struct rsh_error *err);
/* Returns what the files of the other format are; NULL: there are none. */
const char *rsh_source_other(const struct rsh_source *s);

/* Scans the headers of all chosen files, several at a time; equal indexes are
 * stored once.  Files in the index cache are not read, and other files are
 * added to it by a thread that ends before another candidate is chosen.  A file
 * that is damaged or cannot be read is left out, as if the rank had none; if it
 * is a part of a model, it is an error.  Returns 0 or -errno with a
 * sentence. */
int rsh_source_index(struct rsh_source *s, struct rsh_names *names,
		     struct rsh_error *err);
/* Checks that the indexed files of ranks are of one save, by the numbers of
 * steps in them (counters.h).  If only the structure is checked, nothing is
 * read.  A check that found nothing is remembered in the index cache.  Returns
 * 0, -EBADMSG with a sentence that names two files, or -ENOMEM. */
int rsh_source_check_counters(struct rsh_source *s, struct rsh_names *names,
			      struct rsh_error *err);
/* Chooses and indexes candidate i, and checks whether it was saved completely.
 * The names must outlive the source.  Returns 0, or -errno with a sentence: a
 * file is missing or damaged, or the format finds the save unfinished. */
int rsh_source_check_whole(struct rsh_source *s, uint32_t i,
			   struct rsh_names *names, struct rsh_error *err);
/* Compares group_info.pb files with the strategy.  These are the files in the
 * rank directories or, instead, `given`: one file, a directory with
 * rank_N/group_info.pb, or a path with "{rank}" in it; NULL: not given.
 * Returns 0, or -EINVAL with a sentence that names the file, the ranks and a
 * parameter if they contradict the strategy.  If `given` is set, its files must
 * be readable as well. */
int rsh_source_check_groups(const struct rsh_source *s, const char *given,
			    const struct rsh_strategy *strategy,
			    const struct rsh_names *names,
			    struct rsh_error *err);
/* Makes the strategy that the chosen candidate contains, when it is indexed;
 * the caller owns it.  It is NULL if the candidate contains none.  A parameter
 * that is described but is in no file is left out.  If a file that may contain
 * it is missing, the call fails, or warns if `allow_missing` is true.  Returns
 * 0 or -errno with a sentence: files contradict the description, or no
 * parameter is left. */
int rsh_source_strategy(struct rsh_source *s, bool allow_missing,
			struct rsh_names *names, struct rsh_strategy **out,
			struct rsh_error *err);
/* Returns how many files were left out, and sets the sentence about the first
 * one. */
uint32_t rsh_source_n_bad(const struct rsh_source *s, const char **first);
/* Returns why a file of the chosen candidate, or all of it, cannot be read now
 * (rsh_errno_is_unread); NULL: nothing of it was refused. */
const struct rsh_error *rsh_source_unread(const struct rsh_source *s);
/* Fills a view for the reader of a format.  The source owns what the view
 * points to, except the names, and keeps it until another candidate is chosen.
 * A rank without a file has a NULL index. */
void rsh_source_view(const struct rsh_source *s, struct rsh_names *names,
		     struct rsh_source_view *view);

/* Sets the attributes of a rank's file.  Returns false if the rank has none. */
bool rsh_source_attr(const struct rsh_source *s, uint32_t rank,
		     struct rsh_store_attr *out);
/* ---- reading ---- */

/* Returns the store that opens and reads the files; the source owns it. */
struct rsh_store *rsh_source_store(const struct rsh_source *s);
/* Finds the file of the rank that has the byte at *offset of its index, and
 * sets *offset to the offset in that file.  Returns false if there is none. */
bool rsh_source_locate(const struct rsh_source *s, uint32_t rank,
		       uint64_t *offset, uint32_t *file);
/* Reads exactly `len` bytes of the rank's file at `offset`, as rsh_store_read()
 * does for a caller that waits; -ENOENT if the rank has no file. */
int rsh_source_read(struct rsh_source *s, uint32_t rank, uint64_t offset,
		    void *buf, size_t len);
/* Reads as rsh_source_read() does, but waits for a file only as `wait` says. */
int rsh_source_read_at(struct rsh_source *s, uint32_t rank, uint64_t offset,
		       void *buf, size_t len, const struct rsh_wait *wait);
/* Returns whether the file with the first byte of the rank's index has `bytes`
 * bytes and is read directly, without injected faults and without a cache.  If
 * so, *file is its number. */
bool rsh_source_whole(struct rsh_source *s, uint32_t rank, uint64_t bytes,
		      uint32_t *file);

/* ---- other files ---- */

/* Reads a strategy: a file, or a directory with a file for each stage (all its
 * *.ckpt or all its *.json), sorted by name or `as_listed` by the directory.
 * It may also be the metadata.json of a Checkpoint 2.0 step, the step's
 * directory, or a save directory whose tracker names a step.  "none" is not
 * handled here. */
int rsh_strategy_load(const char *path, bool as_listed,
		      struct rsh_names *names, struct rsh_strategy **out,
		      struct rsh_error *err);

/* Computes the xxh3 of a strategy file's bytes or, for a directory, of its
 * files' names and bytes, sorted by name.  Returns 0 or -errno with a
 * sentence. */
int rsh_strategy_digest(const char *path, uint64_t *xxh3,
			struct rsh_error *err);

/* Returns why the user's home, below which a path is, cannot be reached, as a
 * negative errno: a cache does not create it.  0: it can, or the path is in
 * another place. */
int rsh_source_check_home(const char *path);
/* Makes the directory of the index cache, and those above it, for a caller that
 * must know all writable directories before the tree is opened.  Returns 0 or
 * -errno. */
int rsh_source_make_index_dir(const char *path);
/* Calls fn for each file in a source map.  Returns 0 or -errno with a
 * sentence. */
int rsh_source_map_each(const char *map,
			void (*fn)(void *ctx, const char *path), void *ctx,
			struct rsh_error *err);

/* Reads the JSON file of old and new parameter names. */
int rsh_name_map_load(const char *path, struct rsh_name_map **out,
		      struct rsh_error *err);
