/* SPDX-License-Identifier: Apache-2.0 */
/* source/source.h - a checkpoint tree on disk: which files it consists of,
 * their indexes, and where in them bytes lie.
 *
 * SOURCE/rank_N/ holds the files of rank N, mostly of several steps.  They are
 * listed once and sorted into candidates: what all ranks saved at one step of
 * one run.  One candidate is chosen at a time, and the files of two are never
 * mixed.  All of a candidate are .ckpt or all are .safetensors.  The tree is
 * opened once and its files are those of a store (storage/store.h), under the
 * numbers that they have here: all that is done with their bytes is done there.
 * One thread opens, chooses and indexes; then any thread may read and ask.
 *
 * That is what a tree of rank files is.  Others are found, listed and read by
 * their formats (source/format.h).
 */
#ifndef RSH_SOURCE_SOURCE_H
#define RSH_SOURCE_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rsh/plan/files.h"
#include "rsh/storage/store.h"
#include "rsh/strategy/strategy.h"
#include "rsh/util/error.h"
#include "rsh/util/names.h"
#include "rsh/wire/name_map.h"

struct rsh_source;
struct rsh_format; /* source/format.h */

/* This says in which order candidates are tried, and which there are. */
enum rsh_select {
	RSH_SELECT_NEWEST,    /* the greatest epoch and step first */
	RSH_SELECT_STEP,      /* one epoch and step only */
	RSH_SELECT_MTIME,     /* the most recently written first */
	RSH_SELECT_NAME,      /* newest first, of names that a glob matches */
	RSH_SELECT_MINDSPORE, /* the converter's choice: the lexicographically
			       * last file of a rank, of safetensors that with
			       * the greatest last numbers */
	RSH_SELECT_LONE_STEP, /* one step only, of what counts no epochs, or
			       * of the only epoch that has it */
};

/* This says whether files that a crashed job left behind count
 * (*_breakpoint.ckpt and the like). */
enum rsh_breakpoints {
	RSH_BREAKPOINTS_OUT, /* never counts */
	RSH_BREAKPOINTS_INCLUDE,
	RSH_BREAKPOINTS_ONLY,
};

/* This says how much of a source is looked at before it is taken. */
enum rsh_check {
	RSH_CHECK_SAMPLE,    /* headers, and a sample of the contents is held
			      * against the strategy (contents/contents.h) */
	RSH_CHECK_STRUCTURE, /* headers alone */
	RSH_CHECK_FULL,      /* everything: a file whose CRC trailer does not
			      * match is a damaged one, and all contents are
			      * held against the strategy */
};

struct rsh_source_options {
	enum rsh_select select;
	uint64_t epoch, step; /* for RSH_SELECT_STEP and _LONE_STEP */
	const char *glob;     /* for RSH_SELECT_NAME */
	enum rsh_breakpoints breakpoints;

	/* These say where files lie below the root; "{rank}" stands for the
	 * rank, '*' and '?' as in a shell.  With a rank_dir, or a '/' in file,
	 * "{rank}" has to be in one of them.  NULL: in rank_{rank} or
	 * ckpt_{rank} and directories named checkpoint* in these; *.ckpt and
	 * *.safetensors. */
	const char *rank_dir;
	const char *file;
	/* This is a JSON file that names each rank's file; NULL: there is
	 * none. */
	const char *source_map;
	bool unsharded; /* no strategy file says how it is cut */

	/* The formats of which it may be, ending with NULL; NULL: files of
	 * ranks alone. */
	const struct rsh_format *const *formats;

	struct rsh_store_options store; /* how files are opened and read */
	enum rsh_check check;
	/* This is the directory of the index cache; NULL: there is none.  That
	 * it cannot be used is worth a warning if the user asked for it. */
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
/* Gives the directory in which the files of SOURCE lie: SOURCE itself, or, of a
 * file, the one that it is in (from malloc).  NULL: out of memory. */
char *rsh_source_directory(const char *path);
/* Gives the format of which a source that was opened is. */
const struct rsh_format *rsh_source_format(const struct rsh_source *s);
/* Gives the format of what lies at a path, where nothing else is known of it,
 * and how sure that is (enum rsh_bid); RSH_BID_ANY: nothing that lies there
 * tells.  NULL: it cannot be opened.  Any thread may ask. */
const struct rsh_format *
rsh_source_format_at(const char *path, const struct rsh_store_options *how,
		     const struct rsh_format *const *formats, int *bid);
/* Finds the source that may have been meant by a path that is none: above it, as
 * of a file or of one rank's directory, or in it.  Returns its path, from malloc,
 * and its format; NULL: nothing is found, or the path is one. */
char *rsh_source_meant(const char *path, const struct rsh_store_options *how,
		       const struct rsh_format *const *formats,
		       const struct rsh_format **format);
/* Writes the end of a sentence about a SOURCE in which no checkpoint is found,
 * "; ...": that it is no directory, or holds a checkpoint that may have been
 * meant, or one without its metadata; "" if nothing is known.  Any thread may
 * ask. */
void rsh_source_hint(const char *path, const struct rsh_store_options *how,
		     const struct rsh_format *const *formats, char *buf,
		     size_t max);
/* Says whether a directory is one step of some format itself, and not a place
 * for several.  Any thread may ask. */
bool rsh_source_is_one_step(const char *path,
			    const struct rsh_store_options *how,
			    const struct rsh_format *const *formats);
/* Says that a source whose format tells how it is cut needs no strategy:
 * -EINVAL. */
int rsh_source_needs_none(const struct rsh_source *s, struct rsh_error *err);
/* No read may be running then. */
void rsh_source_free(struct rsh_source *s);

/* Says how many candidates are to be tried: at least 1, as a tree without files
 * is one candidate without files.  Names without a step do not count where
 * every rank has some with one. */
uint32_t rsh_source_n_candidates(const struct rsh_source *s);
/* Makes the files of candidate i, the best being 0, those of the source;
 * indexes and descriptors of an earlier choice go.  A rank may have no file.
 * 0, or -EINVAL with a sentence: a rank has two such files, or their formats
 * differ. */
int rsh_source_choose(struct rsh_source *s, uint32_t i, struct rsh_error *err);
/* Writes what candidate i is called in messages: "epoch 3 step 40" and the
 * like. */
void rsh_source_candidate_text(const struct rsh_source *s, uint32_t i,
			       char *text, size_t size);
/* The first logs what was chosen, if there was a choice, and ranks that lack
 * it; the second logs in a line the files that were left out. */
void rsh_source_log_choice(const struct rsh_source *s);
void rsh_source_log_left_out(const struct rsh_source *s);

/* Scans the headers of all chosen files, several at a time; equal indexes are
 * held once.  Files that the index cache knows are not read, and others are
 * entered there, in a thread that ends with the choice at the latest.  A file
 * that is damaged or cannot be read is left out, as if that rank had none; of a
 * model in parts it is an error.  0 or -errno with a sentence. */
int rsh_source_index(struct rsh_source *s, struct rsh_names *names,
		     struct rsh_error *err);
/* Compares what group_info.pb files say with the strategy.  They are those in
 * the rank directories or, instead, `given`, which is one file, a directory
 * that holds rank_N/group_info.pb, or a path with "{rank}" in it; NULL: not
 * given.  0, or -EINVAL with a sentence that names the file, the ranks and a
 * parameter when they contradict each other; what was given has to be readable
 * as well. */
int rsh_source_check_groups(const struct rsh_source *s, const char *given,
			    const struct rsh_strategy *strategy,
			    const struct rsh_names *names,
			    struct rsh_error *err);
/* Makes the strategy that the chosen candidate says of itself, as the files
 * have it, once they are indexed; it is the caller's, and NULL if the candidate
 * says nothing.  What is described and in no file is left out of it, but where
 * a file that may have had it is missing this fails, or with `allow_missing`
 * warns.  0 or -errno with a sentence: files contradict the description, or
 * nothing of it is left. */
int rsh_source_strategy(struct rsh_source *s, bool allow_missing,
			struct rsh_names *names, struct rsh_strategy **out,
			struct rsh_error *err);
/* Says how many files were left out, and gives the sentence about the first. */
uint32_t rsh_source_n_bad(const struct rsh_source *s, const char **first);
/* Fills a view for the reader of a format.  The source owns what the view
 * points to, but for the names, and keeps it until another candidate is chosen.
 * A rank without a file has a NULL index. */
void rsh_source_view(const struct rsh_source *s, struct rsh_names *names,
		     struct rsh_source_view *view);

/* Gives the attributes of a rank's file.  False when the rank has no file. */
bool rsh_source_attr(const struct rsh_source *s, uint32_t rank,
		     struct rsh_store_attr *out);
/* ---- its bytes ---- */

/* Gives the store by which the files are opened and read; the source owns
 * it. */
struct rsh_store *rsh_source_store(const struct rsh_source *s);
/* Finds that file of the rank which holds the byte at *offset of its index;
 * *offset becomes the place in the file.  False when there is none. */
bool rsh_source_locate(const struct rsh_source *s, uint32_t rank,
		       uint64_t *offset, uint32_t *file);
/* Reads exactly `len` bytes of the rank's file at `offset`, as rsh_store_read()
 * does for who waits; -ENOENT when the rank has none. */
int rsh_source_read(struct rsh_source *s, uint32_t rank, uint64_t offset,
		    void *buf, size_t len);
/* Reads as rsh_source_read() does, but waits for a file only as `wait` says. */
int rsh_source_read_at(struct rsh_source *s, uint32_t rank, uint64_t offset,
		       void *buf, size_t len, const struct rsh_wait *wait);
/* Does the file with the first byte of the rank's index have `bytes` bytes, and
 * does nothing, no fault and no cache, stand between it and who reads it?
 * *file is its number then. */
bool rsh_source_whole(struct rsh_source *s, uint32_t rank, uint64_t bytes,
		      uint32_t *file);

/* ---- what is read beside it ---- */

/* Reads a strategy: a file, or a directory of per-stage files (all its *.ckpt
 * or all its *.json), sorted by name or `as_listed` by the directory.  It may
 * as well be the metadata.json of a Checkpoint 2.0 step, the step's directory,
 * or a save directory whose tracker names one.  "none" is not handled here. */
int rsh_strategy_load(const char *path, bool as_listed,
		      struct rsh_names *names, struct rsh_strategy **out,
		      struct rsh_error *err);

/* Gives the xxh3 of a strategy file's bytes or, for a directory, of its files'
 * names and bytes, by name.  0 or -errno with a sentence. */
int rsh_strategy_digest(const char *path, uint64_t *xxh3,
			struct rsh_error *err);

/* Makes the directory of the index cache, and those above it, for who has to
 * know what is written besides the tree before that is opened.  0 or -errno. */
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
