/* SPDX-License-Identifier: Apache-2.0 */
/* source/source_i.h - the parts of a source tree, for this room only. */
#ifndef RSH_SOURCE_SOURCE_I_H
#define RSH_SOURCE_SOURCE_I_H

#include <pthread.h>

#include "rsh/source/format.h"
#include "rsh/source/metadata.h"
#include "rsh/wire/file_type.h"
#include "rsh/wire/safetensors.h"

/* ---- names with a rank in them (template.c) ---- */

/* Matches a name with a template of n characters: "{rank}", '*', '?' and plain
 * text.  If *rank is known "{rank}" stands for that one, else *rank is set. */
bool rsh_template_match(const char *t, size_t n, const char *name,
			uint32_t *rank);
bool rsh_template_has_rank(const char *t, size_t n);
/* Does the template match one name only, itself? */
bool rsh_template_is_plain(const char *t, size_t n);

/* ---- all checkpoints of the tree (found.c) ---- */

/* This is a directory that belongs to one rank, to be searched or not. */
struct rsh_rank_dir {
	uint32_t rank;
	char *name; /* "rank_3" */
};

struct rsh_listing {
	struct rsh_checkpoint *files;
	size_t n, cap;
	struct rsh_rank_dir *dirs; /* ascending by rank, each once */
	size_t n_dirs, cap_dirs;
	/* These are files of ranks that the strategy does not have. */
	struct rsh_checkpoint *beyond;
	size_t n_beyond, cap_beyond;
};

void rsh_listing_clear(struct rsh_listing *l);
/* Adds one file, whose name (from malloc, or NULL when memory was out) is taken
 * over.  0 or -ENOMEM. */
int rsh_listing_add(struct rsh_listing *l, const struct rsh_checkpoint *c);
int rsh_listing_add_beyond(struct rsh_listing *l,
			   const struct rsh_checkpoint *c);
/* Adds the directory of a rank.  0 or -ENOMEM. */
int rsh_listing_add_dir(struct rsh_listing *l, const char *name, uint32_t rank);

/* The largest plans known have a few megabytes a stage. */
#define RSH_STRATEGY_BYTES_MAX (UINT64_C(1) << 30)

struct rsh_path_list {
	char **v; /* from malloc, as are its strings */
	size_t n, cap;
};
/* Adds a copy of the path.  0 or -ENOMEM. */
int rsh_path_list_add(struct rsh_path_list *l, const char *path);
void rsh_path_list_clear(struct rsh_path_list *l);
/* Adds the strategy files that `path` stands for: itself, or those in the
 * directory, sorted by name or `as_listed` (strategy_load.c). */
int rsh_strategy_list(const char *path, bool as_listed,
		      struct rsh_path_list *list, bool *directory,
		      struct rsh_error *err);

/* ---- metadata.json as a strategy (metadata_load.c) ---- */

/* Finds the metadata.json of Checkpoint 2.0 that `path` stands for: itself,
 * that of a step's directory, or of the step that a save directory's tracker
 * names.  *out is its path (from malloc), NULL if there is none.  0 or
 * -ENOMEM. */
int rsh_metadata_find(const char *path, char **out, struct rsh_error *err);
int rsh_metadata_load(const char *path, struct rsh_ckpt2 **out,
		      struct rsh_error *err);
int rsh_metadata_strategy(const char *path, struct rsh_names *names,
			  struct rsh_strategy **out, struct rsh_error *err);
/* Gives the xxh3 of its bytes. */
int rsh_metadata_digest(const char *path, uint64_t *xxh3,
			struct rsh_error *err);

/* ---- which of them belong together (step.c, order.c, select.c) ---- */

/* A candidate is files first .. end-1 of the sorted listing. */
struct rsh_candidate {
	size_t first, end;
};

/* Fills in what the name says of epoch, step and run. */
void rsh_checkpoint_parse(struct rsh_checkpoint *c);
void rsh_checkpoint_clear(struct rsh_checkpoint *c);
/* Drops from the listing what was not selected, sorts the rest and makes the
 * candidates.  0 or -errno with a sentence. */
int rsh_candidates_make(struct rsh_source *s,
			const struct rsh_source_options *opts,
			struct rsh_error *err);

/* ---- the tree (tree.c) ---- */

/* This is a file of the chosen candidate; that of the store has the same
 * number. */
struct rsh_source_file {
	uint32_t rank;
	uint64_t base; /* where it begins among the files of its rank, whose
			* index goes over all of them */
	/* This is set by rsh_source_index(), and constant from then on. */
	const struct rsh_ckpt_index *index;
};

struct rsh_source {
	struct rsh_store *store;
	const char *path; /* the store's root, for messages */
	char *file; /* in it, which SOURCE is; NULL: it is the root */
	unsigned n_threads;
	unsigned far; /* requests that may be under way, as rsh_store_far() */
	enum rsh_check check;
	enum rsh_select select;
	int index_dirfd; /* where indexes are stored; -1: nowhere */

	/* These are set by rsh_source_open(), and constant from then on. */
	uint32_t first_rank; /* the rank that is the strategy's rank 0 */
	uint32_t n_listed_ranks; /* from that one on */
	const struct rsh_format *const *formats; /* that were asked */
	const struct rsh_format *format; /* whose SOURCE is */
	void *state;                     /* what it keeps */
	bool no_rank_dirs; /* no directory of a rank was found */
	bool resumed; /* what is shown is one of --resume's steps */
	struct rsh_listing listing; /* sorted: the best candidate first */
	size_t n_always;            /* files at the listing's end that belong
				     * to every candidate, by rank */
	uint32_t n_tried; /* how many candidates are tried, from the first one
			   * on; the others are there to be listed */
	uint32_t n_candidates;
	size_t cap_candidates;
	struct rsh_candidate *candidates;

	/* Everything below is of the chosen candidate. */
	uint32_t chosen;
	enum rsh_file_type type; /* of all files, where they have one */
	uint32_t n_bad; /* files that were left out */
	struct rsh_error first_bad;

	uint32_t n_files;
	size_t cap_files;
	struct rsh_source_file *files; /* ascending by rank and base */

	/* By rank; n_ranks is the highest rank that has a file, plus 1. */
	uint32_t n_ranks;
	uint32_t *by_rank; /* [rank]: its first file; those of the next one
			    * follow, and [n_ranks] is n_files */
	const struct rsh_ckpt_index **view_index;
	const char **view_path;
	char **rank_paths; /* [rank]: the text at view_path, where one was
			    * made; NULL: none was */

	uint32_t n_indexes;
	size_t cap_indexes;
	struct rsh_ckpt_index **indexes; /* the distinct indexes */
	struct rsh_index_cache *index_cache; /* NULL: none */
	struct rsh_source_kinds
		*kinds; /* what the cache is told; NULL: nothing */
	bool joined; /* some rank has several files */
	/* [rank]: what is said of all its files together; NULL: no rank has
	 * several. */
	struct rsh_store_attr *rank_attr;
};

/* Makes a source with its directory open and no files yet. */
int rsh_source_new(const char *path, const struct rsh_store_options *opts,
		   struct rsh_source **out, struct rsh_error *err);
/* Does the same, but of a file opens the directory that it is in; *file is its
 * name (from malloc), or NULL. */
int rsh_source_open_root(const char *path, const struct rsh_store_options *opts,
			 struct rsh_source **out, char **file,
			 struct rsh_error *err);
/* Asks all formats, and sets s->format to the one that is surest; NULL: none
 * takes it.  0 or -ENOMEM. */
int rsh_source_find_format(struct rsh_source *s,
			   const struct rsh_source_options *opts,
			   const char *file, struct rsh_error *err);
/* Calls fn with a look at the root, or at the file of it.  -ENOMEM, or what fn
 * returns. */
int rsh_source_look_at(const struct rsh_source *s,
		       const struct rsh_source_options *opts, const char *file,
		       int (*fn)(const struct rsh_look *look, void *ctx),
		       void *ctx);
/* Makes the index of a file, as its format does. */
int rsh_source_scan_file(const struct rsh_source *s, uint32_t file,
			 const struct rsh_byte_source *bytes, enum rsh_scan how,
			 struct rsh_names *names, struct rsh_ckpt_index **out,
			 struct rsh_error *err);
/* Whose is each of its files? */
enum rsh_file_owner rsh_source_owner(const struct rsh_source *s);
/* Adds a file; files come ascending by rank, which is the entry's owner.  0 or
 * -ENOMEM. */
int rsh_source_add(struct rsh_source *s, const struct rsh_store_entry *e);
/* Makes the tables that go by rank, once all files are there.  0 or -ENOMEM. */
int rsh_source_number_files(struct rsh_source *s);

/* ---- ranks with several files (join.c) ---- */

/* Gives the first file of a rank and how many there are, which follow it. */
uint32_t rsh_source_rank_first(const struct rsh_source *s, uint32_t rank,
			       uint32_t *n);
/* Lets the cache know which tensors its blocks are of, if it asks, once all
 * files were scanned (kinds.c).  0 or -ENOMEM. */
int rsh_source_kinds_tell(struct rsh_source *s);
void rsh_source_kinds_free(struct rsh_source_kinds *k);
/* Gives each rank its index once all files were scanned: that of its file, or
 * the joined one of its files, which ranks with equal files share.  0 or -errno
 * with a sentence. */
int rsh_source_join(struct rsh_source *s, struct rsh_names *names,
		    struct rsh_error *err);

#endif
