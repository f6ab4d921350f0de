/* SPDX-License-Identifier: Apache-2.0 */
/* source/source_i.h has the parts of a source tree.  It is private to
 * src/source, whose rooms are:
 *
 *   format.c, open.c          what SOURCE is: bids, opening, hints
 *   ranks.c, found.c          finding files of ranks; the list of all files
 *   names.c, steps.c          steps in names; candidates, and their order
 *   tree.c                    the chosen candidate, from opening to closing
 *   index.c, scan_prefetch.c  the indexes of its files
 *   join.c                    one index for each rank or model
 *   kept.c                    what the index cache keeps on disk
 *   inspect.c                 what is known of it, and messages about it
 *   save_dir.c, save_watch.c  a directory into which a job saves
 *   resume.c                  --resume
 *   strategies.c, group_info.c, tables.c   other files that are read
 *   failures.c, options.c     why candidates were left; options
 *   counters.c                numbers of steps in files of ranks
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "rsh/source/format.h"
#include "rsh/source/metadata.h"
#include "rsh/util/arena.h"
#include "rsh/wire/file_type.h"
#include "rsh/wire/safetensors.h"

/* ---- names with a rank (ranks.c) ---- */

#define RANK_MARK "{rank}"

/* Matches a name with a template of n characters: "{rank}", '*', '?' and plain
 * text.  If *rank is known, "{rank}" matches only that rank; otherwise *rank is
 * set. */
bool rsh_template_match(const char *t, size_t n, const char *name,
			uint32_t *rank);
bool rsh_template_has_rank(const char *t, size_t n);
/* Returns whether the template matches only one name, which is itself. */
bool rsh_template_is_plain(const char *t, size_t n);

/* Does what rsh_source_gap() does for these ranks, which ascend (inspect.c). */
void rsh_ranks_gap(const uint32_t *ranks, size_t n, char *text, size_t size);

/* ---- all checkpoints of the tree (found.c) ---- */

/* This is a directory of one rank.  It may also be one that is not searched. */
struct rsh_rank_dir {
	uint32_t rank;
	const char *name; /* "rank_3" */
};

struct rsh_listing {
	struct rsh_checkpoint *files;
	size_t n, cap;
	struct rsh_rank_dir *dirs; /* ascending by rank, each once */
	size_t n_dirs, cap_dirs;
	/* These are the files of ranks that the strategy does not have. */
	struct rsh_checkpoint *beyond;
	size_t n_beyond, cap_beyond;
	struct rsh_arena texts; /* of all of them */
};

void rsh_listing_clear(struct rsh_listing *l);
/* Adds one file as rsh_source_list() does, perhaps to those of other ranks.
 * Returns 0 or -ENOMEM. */
int rsh_listing_add(struct rsh_listing *l, const struct rsh_checkpoint *c,
		    bool beyond);
/* Adds the directory of a rank.  Returns 0 or -ENOMEM. */
int rsh_listing_add_dir(struct rsh_listing *l, const char *name, uint32_t rank);

/* The users share it, and it does not change. */
struct rsh_step_files {
	atomic_uint users;
	size_t n;
	struct rsh_step_file {
		char *name;        /* below the root; from malloc */
		uint32_t rank;     /* ascends */
		uint32_t n_folder; /* length of the directory of the rank at the
				    * beginning of the name */
		struct timespec mtime, ctime;
	} v[];
};
struct rsh_candidate;
/* Makes the list of a candidate's files.  *out is NULL if more than these files
 * must be known to open it.  Returns 0 or -ENOMEM. */
int rsh_step_files_new(const struct rsh_source *s,
		       const struct rsh_candidate *of,
		       struct rsh_step_files **out);
/* Ends the use of the list, which may be NULL. */
void rsh_step_files_free(struct rsh_step_files *files);

/* ---- candidates (steps.c) ---- */

/* A message lists so many names, and then how many more there are. */
#define RSH_LISTED_MAX 6

/* A candidate is the files first .. end-1 of the sorted listing. */
struct rsh_candidate {
	size_t first, end;
};

/* Returns the name of a checkpoint for messages: its file or, if the format
 * writes several files under one name, that name. */
static inline const char *rsh_checkpoint_label(const struct rsh_checkpoint *c)
{
	return c->label ? c->label : c->base;
}
/* Returns whether --select name=GLOB, if it is given, matches this name. */
bool rsh_name_is_selected(const char *label,
			  const struct rsh_source_options *o);
/* Removes files that are not selected from the listing, sorts the others and
 * makes the candidates.  Returns 0 or -errno with a sentence. */
int rsh_candidates_make(struct rsh_source *s,
			const struct rsh_source_options *opts,
			struct rsh_error *err);
/* Writes the end of a sentence about candidates that are not tried, or ""
 * (inspect.c). */
void rsh_candidates_beside(const struct rsh_source *s, char *text, size_t size);
/* ---- the tree (tree.c) ---- */

/* This is a file of the chosen candidate; the file of the store has the same
 * number. */
struct rsh_source_file {
	uint32_t rank;
	uint64_t base; /* its offset in the rank's index, which covers all files
		        * of the rank */
	/* This is set by rsh_source_index(), and does not change afterwards. */
	const struct rsh_ckpt_index *index;
	char *why; /* why it was left out; NULL: it was not */
	unsigned kind_at, n_kind; /* struct rsh_checkpoint */
};

struct rsh_source {
	struct rsh_store *store;
	const char *path; /* root of the store, for messages */
	char *file; /* the file that SOURCE is, in the root; NULL: SOURCE is the
		     * root */
	unsigned n_threads;
	unsigned far; /* limit of requests at the same time, from
		       * rsh_store_far() */
	enum rsh_check check;
	enum rsh_select select;
	const char *const *beside; /* struct rsh_source_options */
	uint32_t n_beside;
	rsh_beside_scan *scan_bin;
	int index_dirfd; /* where indexes are stored; -1: nowhere */

	/* These are set by rsh_source_open(), and do not change afterwards. */
	uint32_t first_rank; /* number of ranks from that one on */
	uint32_t n_listed_ranks; /* from that one on */
	const struct rsh_format *const *formats; /* formats that made bids */
	const struct rsh_format *format; /* format of SOURCE */
	/* The format of other files in SOURCE, which are not read; NULL:
	 * none. */
	const struct rsh_format *other;
	void (*free_state)(void *state);
	char step_name[256]; /* of a checkpoint that is not one of several; "":
			      * it has none */
	void *state;                     /* state of the format */
	const struct rsh_step_facts *facts; /* a part of it; never NULL */
	size_t n_opened; /* what was opened for all candidates, of
			  * rsh_store_opened() */
	bool no_rank_dirs; /* no directory of a rank was found */
	bool usual_dirs; /* directories of ranks were found by their usual
			  * names, and all files in them are taken */
	bool resumed; /* the source is shown with --resume */
	struct rsh_listing listing; /* sorted: the best candidate first */
	size_t n_always;            /* files at the end of the listing that
				     * belong to every candidate, by rank */
	uint32_t n_tried; /* number of candidates that are tried; the candidates
			   * after them are only listed */
	uint32_t n_candidates;
	size_t cap_candidates;
	struct rsh_candidate *candidates;

	/* Everything below belongs to the chosen candidate. */
	uint32_t chosen;
	enum rsh_file_type type; /* type of all files, if they have one */
	uint32_t n_bad; /* number of files that were left out */
	struct rsh_error first_bad;
	/* Why the first file that cannot be read now (rsh_errno_is_unread) was
	 * left out, or the step cannot be opened; code 0: all could be read. */
	struct rsh_error unread;

	uint32_t n_files;
	size_t cap_files;
	struct rsh_source_file *files; /* ascending by rank and base; the
					* files beside them follow, and are not
					* counted in n_files */

	/* These are indexed by rank; n_ranks is the highest rank that has a
	 * file, plus 1. */
	uint32_t n_ranks;
	uint32_t *by_rank; /* [rank]: its first file; its other files follow,
			    * and [n_ranks] is n_files; the files beside them
			    * follow here, too */
	const struct rsh_ckpt_index **view_index;
	const char **view_path;
	struct rsh_arena of_choice; /* memory of the arrays by rank */

	uint32_t n_indexes;
	size_t cap_indexes;
	struct rsh_ckpt_index **indexes; /* the distinct indexes */
	struct rsh_index_cache *index_cache; /* NULL: none */
	struct rsh_source_kinds
		*kinds; /* kinds of blocks for the cache; NULL: none */
	bool joined; /* a rank has several files */
	/* [rank]: attributes of all its files together; NULL: no rank has
	 * several files. */
	struct rsh_store_attr *rank_attr;
};

/* Makes a source with an open directory and no files yet. */
int rsh_source_new(const char *path, const struct rsh_store_options *opts,
		   struct rsh_source **out, struct rsh_error *err);
/* Does the same, but if the path is a file, it opens the file's directory;
 * *file is its name (from malloc), or NULL. */
int rsh_source_open_root(const char *path, const struct rsh_store_options *opts,
			 struct rsh_source **out, char **file,
			 struct rsh_error *err);
/* Gets the bids of all formats, and sets s->format to the highest one; NULL: no
 * format makes a bid.  Returns 0 or -ENOMEM. */
int rsh_source_find_format(struct rsh_source *s,
			   const struct rsh_source_options *opts,
			   const char *file, struct rsh_error *err);
/* Calls fn with the names in the root, or with the file in it and no names.
 * Returns -ENOMEM, or the result of fn. */
int rsh_source_look_at(const struct rsh_source *s,
		       const struct rsh_source_options *opts, const char *file,
		       int (*fn)(const struct rsh_look *look, void *ctx),
		       void *ctx, struct rsh_error *err);
/* Returns which ranks or models the files belong to. */
enum rsh_file_owner rsh_source_owner(const struct rsh_source *s);

/* ---- ranks with several files (join.c) ---- */

/* Returns the first file of a rank, and the number of its files, which are
 * consecutive. */
uint32_t rsh_source_rank_first(const struct rsh_source *s, uint32_t rank,
			       uint32_t *n);
/* Provides the tensors of blocks for the cache if it uses them, when all files
 * are scanned.  Returns 0 or -ENOMEM. */
int rsh_source_kinds_tell(struct rsh_source *s);
void rsh_source_kinds_free(struct rsh_source_kinds *k);
/* Sets the index of each rank when all files are scanned: the index of its
 * file, or the joined index of its files, which ranks with equal files share.
 * Returns 0 or -errno with a sentence. */
int rsh_source_join(struct rsh_source *s, struct rsh_names *names,
		    struct rsh_error *err);
