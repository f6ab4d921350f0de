/* SPDX-License-Identifier: Apache-2.0 */
/* source/format.h is the contract of a format: it defines what one kind of
 * checkpoint implements, and the functions that it may use.
 *
 * A format is a constant struct rsh_format in its own directory below
 * src/formats/, and one line of the list there.  No other code names it:
 * options, `ls`, `verify`, `mount` and --resume call the format of the source.
 * A member that is NULL or 0 means what is right for files of ranks that the
 * user's strategy describes; each member says what that is.
 *
 * Functions return 0 or -errno with a message in `err`, unless they say
 * otherwise.  Threads: until a source is open, one thread calls them; then any
 * thread may call the functions that take a `const struct rsh_source *`.
 */
#pragma once

#include <stdio.h>

#include "rsh/plan/writer.h"
#include "rsh/source/counters.h"
#include "rsh/source/inspect.h"
#include "rsh/source/source.h"
#include "rsh/source/step.h"
#include "rsh/util/arena.h"
#include "rsh/wire/ckpt.h"
#include "rsh/wire/plain.h"

/* ---- types of the contract ---- */

/* This is SOURCE before anything in it is opened. */
struct rsh_look {
	const struct rsh_source *source; /* it has no files yet; it is here for
					  * its store */
	/* NULL: there are none. */
	const struct rsh_source_options *opts;
	/* SOURCE is this file in the directory of the store; NULL: SOURCE is
	 * the directory. */
	const char *file;
	bool listed;              /* `names` is set: SOURCE is a directory
				   * that could be read */
	const char *const *names; /* its entries, ascending */
	size_t n;
	struct rsh_error *failed; /* code 0: every file that was looked into
				   * could be read */
};
/* Says that a file which decides about a bid could not be opened or read, with
 * -errno.  If nothing is known of the file after that (rsh_errno_is_unread()),
 * the look itself fails. */
void rsh_look_fail(const struct rsh_look *l, const char *name, int rc);
/* Returns whether an entry with that name exists.  If that is not known, the
 * look itself fails. */
bool rsh_look_has(const struct rsh_look *l, const char *name);
/* Returns whether an entry is the directory of a rank with weights: programs
 * put logs and states of generators into such directories too. */
bool rsh_look_has_ranks(const struct rsh_look *l);
/* Returns whether the layout of files is the usual one (no --rank-dir, --file,
 * --source-map). */
bool rsh_look_is_plain(const struct rsh_look *l);
/* Returns whether a strategy file is given for SOURCE. */
bool rsh_look_is_sharded(const struct rsh_look *l);

/* A bid says how sure a format is that SOURCE has it; the highest bid wins. */
enum rsh_bid {
	RSH_BID_NO = 0,
	RSH_BID_ANY = 1,     /* if no other format bids more */
	RSH_BID_MODEL = 30,  /* it contains the weights of a model, and maybe
			      * other things */
	RSH_BID_RANKS = 50,  /* directories of ranks */
	RSH_BID_STEPS = 70,  /* one of its steps, or a directory of them */
	RSH_BID_SURE = 90,   /* a file that only it has */
};

/* This is what a format says with its bid. */
struct rsh_bid_more {
	bool is_step; /* SOURCE is one step, and not a directory of several */
	bool owns_all; /* files that another format knows are its own */
	bool is_beside; /* it is a checkpoint beside another one, which is
			 * preferred: both are named though it bids little */
	/* Here the format may write the end of a message, "; ...", about a
	 * SOURCE that almost has it.  It is "" before; NULL: no message is
	 * wanted. */
	char *hint;
	size_t max;
};

/* This says where the layout of the tensors comes from. */
enum rsh_layout_from {
	RSH_LAYOUT_GIVEN, /* from the user's strategy */
	RSH_LAYOUT_OWN,   /* each step contains it */
	RSH_LAYOUT_WHOLE, /* none is needed: the source is one whole model */
};

/* This says to which rank or model the files of a step belong. */
enum rsh_file_owner {
	RSH_OWNER_RANK,	  /* each rank has one */
	RSH_OWNER_RANKS,  /* each rank may have several, which are treated as
			   * one, end to end */
	RSH_OWNER_MODEL,  /* all are parts of one model, in the listing's order,
			   * and none of them may be missing */
	RSH_OWNER_NOBODY, /* each file counts as a separate rank */
};

/* This is a request to read a source for a plan. */
struct rsh_read_job {
	const struct rsh_source *source; /* must be indexed */
	const struct rsh_source_view *view;
	const struct rsh_strategy *src, *dst; /* NULL: none */
	const struct rsh_plan_options *opts;
	struct rsh_arena *arena; /* owns the offers */
	/* For a rule table: a tensor whose shape is not the order of its bytes
	 * is offered with the shape of its bytes. */
	bool by_bytes;
};

/* The way to a tensor or value through nested dictionaries and lists, of which
 * its name is made. */
struct rsh_name_path {
	const char *name;
	const struct rsh_path_key *keys;
	uint32_t n;
};

/* These are the values of a source that are not tensors. */
struct rsh_values {
	uint32_t n;
	const char **names;       /* the source owns the names */
	struct rsh_plain *values; /* [n] */
	size_t cap_names, cap_values;
	struct rsh_store_attr attr; /* readable for users who can read all files
				     * with values */
	bool has_attr;              /* `attr` is set */
	/* Of tensors and values; the source owns names and keys.  Sorted by
	 * rsh_values_sort_paths().  A name that is not here is the only key. */
	struct rsh_name_path *paths;
	size_t n_paths, cap_paths;
};

/* This is what a step has. */
struct rsh_listed_chunk {
	/* [n_dims]; NULL: its elements are not a box. */
	const uint64_t *from, *size;
	const char *file; /* NULL: no file has it */
	bool placed;      /* offset and length are known */
	uint64_t offset, length;
	/* With RSH_LIST_RECORDS: record `record` of the view's file `number`
	 * has it, with its dimensions in this order; NULL: it has none to
	 * compare.  And why it has none, if that is a problem. */
	uint32_t number, record;
	const uint8_t *order; /* [n_dims] */
	const char *wrong;
};
struct rsh_listed_tensor {
	const char *name;
	enum rsh_dtype dtype;
	uint32_t n_dims, n_chunks;
	const uint64_t *dims;
	const struct rsh_listed_chunk *chunks;
	const char
		*shares; /* the tensor whose elements it shares; NULL: none */
	const char *wrong; /* a problem of it alone; NULL: none */
};
struct rsh_listed {
	const struct rsh_listed_tensor *tensors;
	uint32_t n_tensors;
	const char *const *values; /* names */
	uint32_t n_values;
	const char *const *files;
	uint32_t n_files;
	const char *about; /* what it is, for people; NULL: nothing to say */
	struct rsh_strategy *strategy; /* rsh_source_strategy() */
	struct rsh_training_state state; /* rsh_source_training_state() */
};

/* This is a request to list the chosen step. */
struct rsh_list_job {
	const struct rsh_source *source;
	enum rsh_listed_part {
		RSH_LIST_TENSORS, /* tensors without chunks, values and files */
		RSH_LIST_CHUNKS, /* with chunks; no file need be indexed */
		/* With the records of the chunks in `view`, whose files were
		 * scanned with RSH_SCAN_VERIFY, and with all that is wrong. */
		RSH_LIST_RECORDS,
		RSH_LIST_LAYOUT, /* the strategy, of indexed files */
		RSH_LIST_STATE,  /* the state of the training */
	} part;
	struct rsh_arena *arena; /* it or the format's state owns the result */
	const struct rsh_source_view *view; /* for records and layout */
	bool allow_missing;                 /* for the layout */
	/* If it is not NULL, a format with many tensors calls it for each, with
	 * memory that is freed after the call, and lists none.  Returns 0 or
	 * -ENOMEM.  Any other format ignores it (rsh_source_each()). */
	int (*take)(void *ctx, const struct rsh_listed_tensor *t);
	void *ctx;
};

/* This is what a format knows of the chosen step beside its files, when it has
 * opened SOURCE or chosen the step.  It is a part of the format's state
 * (rsh_source_keep()).  Only `notes` change later, when the layout is made. */
struct rsh_step_facts {
	/* The file that describes the step, for messages, and what is logged
	 * about the step, "; ..." each; NULL: nothing. */
	const char *path, *notes;
	const char *about; /* what the step is, for people; NULL: nothing to
			    * say */
	const struct rsh_index_key *key; /* identity of that file; NULL: none */
	/* These are the files that the step lists and that do not exist. */
	const struct rsh_absent_file {
		uint32_t rank;
		const char *name;
	} *absent;
	uint32_t n_absent;
	/* This says which file of a model has a weight, if several have it, and
	 * which weights there must be.  NULL: two records with one name in
	 * files of a rank are an error. */
	const struct rsh_weight_map *map;
	bool reads_last; /* the framework reads another copy, which is logged */
};

/* This says whether a name belongs to a step. */
enum rsh_part {
	RSH_PART_NO,
	RSH_PART_MAYBE, /* if another name of the directory does */
	RSH_PART_YES,
};

/* This says how much of a file is read. */
enum rsh_scan {
	RSH_SCAN_HEADERS,
	RSH_SCAN_CRC,    /* and all bytes, compared with their checksums */
	RSH_SCAN_VERIFY, /* and checks whether anything is missing */
};

/* A file of a source that is scanned. */
struct rsh_scan_job {
	const struct rsh_source *source;
	uint32_t file;
	const struct rsh_byte_source *bytes;
	enum rsh_scan how;
	struct rsh_names *names;
	/* This is an index of the file in its present state, which was stored.
	 * NULL: the file is scanned. */
	const struct rsh_ckpt_index *stored;
};

struct rsh_format {
	const char *name; /* as in `ls --json`: "dcp" */
	/* ---- traits ---- */
	struct {
		const char *says; /* in messages: "distributed checkpoint" */
		enum rsh_layout_from layout;
		enum rsh_file_owner owner;
		/* The directory with the weights, in a step that has other
		 * files beside it (save_dir.h).  NULL: they are in the
		 * directory of the step. */
		const char *below;
		/* The directory in that of a step that has config.json and the
		 * other files of the model.  "..": SOURCE, if it has a
		 * config.json, or else what is above it, of which only the
		 * entries for which is_beside() returns true belong to
		 * the model.  NULL: there is none. */
		const char *beside;
		bool (*is_beside)(const char *name, bool is_dir);
		/* Finds that directory instead, if it is not the same for all
		 * steps: sets *out to its path (from malloc), or to NULL.
		 * Returns 0 or -errno with a sentence.  NULL: `beside` says
		 * it. */
		int (*find_beside)(const char *source,
				   const struct rsh_source_options *opts,
				   char **out, struct rsh_error *err);
		/* Records have the names of parameters, so that ranks can be
		 * compared with each other and with a strategy, and the rules
		 * of MindSpore's converter apply (plan/conversion.h).
		 * Otherwise a slice may be read from any file that has it, and
		 * --replicas has no effect. */
		bool by_name;
		/* This says whether the default output is a Hugging Face model:
		 * RSH_SHOWN_RANKS: no.  RSH_SHOWN_HF: yes, unless the names
		 * become MindSpore's.  RSH_SHOWN_HF_BESIDE: yes, with the other
		 * files of SOURCE. */
		enum rsh_shown_as {
			RSH_SHOWN_RANKS,
			RSH_SHOWN_HF,
			RSH_SHOWN_HF_BESIDE
		} shown;
		/* This says which names --convert finds: unknown, of either
		 * form, or MindSpore's. */
		enum rsh_words_of {
			RSH_WORDS_ANY,
			RSH_WORDS_EITHER,
			RSH_WORDS_MINDSPORE
		} words;
		/* It is an adapter (LoRA), which is shown alone. */
		bool is_adapter;
		/* This is the framework whose steps --resume shows; NULL: it
		 * shows none. */
		const char *framework;
		/* The first step may be built on another model (--base). */
		bool takes_base;
		/* A step is a directory in SOURCE.  Otherwise it is files in
		 * the directories of ranks, or in SOURCE. */
		bool step_dirs;
		/* The directories in that of a step are not those of ranks, and
		 * may have different files. */
		bool unlike_units;
		/* The framework finds the newest step by a file `latest`, which
		 * has its name.  Otherwise `latest` is a link. */
		bool latest_is_text;
		/* The file by which the framework finds the newest step is
		 * shown: Megatron's, if the names of steps begin with this, or
		 * TensorFlow's, if it is "". */
		const char *tracked;
		/* The file of a step that is written last, by which
		 * rsh_source_log_doubt() finds a step that a job is saving
		 * again.  NULL: there is none. */
		const char *written_last;
	};

	/* ---- a source ---- */
	/* Returns an enum rsh_bid, from names and at most one small read, and
	 * says more (never NULL).  NULL: no source has the format. */
	int (*bid)(const struct rsh_look *look, struct rsh_bid_more *more);

	/* Lists the files of all steps (rsh_source_list()), and sets its state
	 * (rsh_source_keep()).  A whole model (RSH_LAYOUT_WHOLE) gives each
	 * file a rank of its own, or all of them rank 0 (RSH_OWNER_MODEL).  If
	 * it has no steps, it ends with rsh_source_take_list(); its files need
	 * not exist.  If it has `choose`, its steps are directories, of which
	 * one is taken in the place of SOURCE (rsh_source_find_step()). */
	int (*open)(struct rsh_source *s, const struct rsh_source_options *opts,
		    struct rsh_error *err);
	/* This is called before the files of candidate i are used; it replaces
	 * the state of an earlier candidate.  NULL: nothing to do. */
	int (*choose)(struct rsh_source *s, uint32_t i, struct rsh_error *err);
	/* Makes the index of a file (rsh_ckpt_index_new()), or does not change
	 * *out.  A file that fails counts as missing, but if it is a part of a
	 * model (RSH_OWNER_MODEL), the source fails.  Any thread may call it.
	 * If job->stored is not NULL, it reads nothing, but returns 0 or
	 * -ESTALE: other inputs of the format may have changed, so that the
	 * scan would make another index.
	 * NULL: the name of the file says how it is scanned, and all files have
	 * the same suffix. */
	int (*scan)(const struct rsh_scan_job *job, struct rsh_ckpt_index **out,
		    struct rsh_error *err);
	/* Judges the chosen step, which is indexed or listed with its chunks:
	 * finds the first thing that is missing or does not fit, by names,
	 * headers and sizes.  With `ended`, its files are all complete by
	 * themselves, and it finds also whether the save has ended, by the
	 * order in which the framework writes files.  Returns 0, or -errno with
	 * a sentence, which need not name SOURCE.  NULL: files of ranks need
	 * one of each rank; all others are complete.  rsh_source_judge() calls
	 * it for all who show a step or say what it is. */
	int (*judge)(const struct rsh_source *s, bool ended,
		     struct rsh_error *err);

	/* ---- its tensors ---- */
	/* Makes a catalogue of what the files hold, and offers of all tensors
	 * that are wanted (job->opts->wanted; NULL: all).  The view's arrays go
	 * by the `rank` that open listed a file under; a file that is missing
	 * or damaged has a NULL index.  Names that no index has are added to
	 * view->names before rsh_catalogue_new().  The offers live in
	 * job->arena; on failure the catalogue is freed.  Where records have
	 * the names of parameters, rsh_ranks_offer() does all that
	 * (formats/ranks.h). */
	int (*read)(const struct rsh_read_job *job, struct rsh_offers *out,
		    struct rsh_error *err);
	/* Reads the values that are not tensors and are wanted, before `read`
	 * is called, so that the memory of the two is not used at a time.  The
	 * caller must call rsh_values_clear(), also after a failure.  NULL:
	 * there are no such values. */
	int (*values)(struct rsh_source *s, const struct rsh_plan_options *opts,
		      struct rsh_values *out, struct rsh_error *err);
	/* Lists a part of what the step has, without reading tensors: layout
	 * and state with RSH_LAYOUT_OWN, all else with RSH_LAYOUT_WHOLE.
	 * *out is empty before.  NULL: the records of the indexes are the
	 * tensors, steps are listed, and files are compared by rank and
	 * strategy. */
	int (*list)(const struct rsh_list_job *job, struct rsh_listed *out,
		    struct rsh_error *err);

	/* ---- steps, for --resume ---- */
	/* Says whether a path below SOURCE, or below the directory of a rank,
	 * belongs to a step, and sets what its name says.  Paths of directories
	 * end with '/'; those below SOURCE are entered if they belong to one,
	 * and each directory in that of a step counts as one unit. */
	enum rsh_part (*part)(const char *path, struct rsh_step_name *out);
	/* Checks whether the checkpoint of one unit, a rank or Megatron's
	 * mp_rank, is complete: `names` are its n files, ascending; with `full`
	 * the checksums must match as well.  It may set *says, which is empty
	 * before and is compared with that of other units.  Returns 0, or
	 * -errno such as -EBADMSG. */
	int (*check)(const struct rsh_byte_source *files,
		     const char *const *names, size_t n, bool full,
		     struct rsh_counters *says, struct rsh_error *err);
};

/* Returns whether the format lists tensors. */
static inline bool rsh_format_lists(const struct rsh_format *f)
{
	return f->list && f->layout == RSH_LAYOUT_WHOLE;
}
/* Calls the judge of the format, if it has one.  The sentence names SOURCE. */
int rsh_source_judge(const struct rsh_source *s, bool ended,
		     struct rsh_error *err);
/* Lists tensors, and calls job->take for each.  Returns 0 or -errno. */
int rsh_source_each(const struct rsh_list_job *job, struct rsh_listed *out,
		    struct rsh_error *err);

/* ---- functions for formats ----
 *
 * `open`, `choose` and all that follow read other files of SOURCE by
 * rsh_handle_open() or rsh_store_load() of its store, or by another store whose
 * opens_of is that one.  Then an export is not continued when such a file has
 * changed (copy/origin.c). */

/* Makes room for n values.  All are empty, and *v has none yet.  Returns 0 or
 * -ENOMEM. */
int rsh_values_alloc(struct rsh_values *v, size_t n);
/* Limits the mode to that of a file with a value. */
void rsh_values_join_attr(struct rsh_values *v, const struct rsh_store_attr *a);
/* Adds a copy of a value of a file, if it is wanted.  A value that is no plain
 * data has only a name.  Returns 1, 0 or -ENOMEM. */
int rsh_values_add(struct rsh_values *v, const struct rsh_plan_options *opts,
		   const char *name, const struct rsh_plain *value,
		   const struct rsh_store_attr *a);
/* Adds the path of a name, unless n is 0.  Returns 0 or -ENOMEM. */
int rsh_values_add_path(struct rsh_values *v, const char *name,
			const struct rsh_path_key *keys, uint32_t n);
void rsh_values_sort_paths(struct rsh_values *v);
/* Returns NULL if the name is the only key. */
const struct rsh_name_path *rsh_values_path(const struct rsh_values *v,
					    const char *name);
/* Returns the key under which a training state has a tensor or value: the first
 * one of its path.  NULL: it has one key, or the first one is a number. */
const char *rsh_values_state_key(const struct rsh_values *v, const char *name);
void rsh_values_clear(struct rsh_values *v);

/* Returns the name of the file that SOURCE is, in the directory of the store;
 * NULL: SOURCE is the directory. */
const char *rsh_source_file(const struct rsh_source *s);

/* These set and return the format's state of SOURCE.  `free_it` is called with
 * it when it is replaced or SOURCE is closed, unless it is NULL.  `facts` are a
 * part of it; NULL: nothing is known. */
void rsh_source_keep(struct rsh_source *s, void *state,
		     const struct rsh_step_facts *facts,
		     void (*free_it)(void *state));
void *rsh_source_state(const struct rsh_source *s);
/* Never returns NULL. */
const struct rsh_step_facts *rsh_source_facts(const struct rsh_source *s);

/* This is a file of a step. */
struct rsh_checkpoint {
	uint32_t rank;    /* with --resume it is the number of its directory */
	const char *name; /* below the root, or absolute */
	const char *base; /* last part of the name */
	/* The part of `base` in which the names of a rank's files differ;
	 * messages about all of them have a '*' there.  n_kind is 0: the rank
	 * has one file. */
	unsigned kind_at, n_kind;
	/* Its name in messages, and that of its candidate; NULL: base, and
	 * epoch and step. */
	const char *label;
	/* The name without steps and ranks, if that distinguishes candidates;
	 * NULL: it does not. */
	const char *series;
	struct rsh_step step;
	size_t n_dir;     /* length of the directory of a power-off save at the
			   * beginning of the name */
	struct timespec mtime, ctime;
	int unread; /* -errno: this is the directory of a step, which could not
		     * be listed; 0: this is a file */
};

/* A list of names or paths. */
struct rsh_path_list {
	char **v; /* from malloc, and so are the strings */
	size_t n, cap;
};
/* Adds a copy of the path.  Returns 0 or -ENOMEM. */
int rsh_path_list_add(struct rsh_path_list *l, const char *path);
/* Sorts it as strverscmp() does: rank_2 is before rank_10. */
void rsh_path_list_sort(struct rsh_path_list *l);
/* Adds the names in a directory, and sorts the list.  Returns 0 or -errno. */
int rsh_path_list_read(struct rsh_path_list *l, const struct rsh_store *store,
		       const char *dir);
void rsh_path_list_clear(struct rsh_path_list *l);
#define cleanup_path_list __attribute__((cleanup(rsh_path_list_clear)))

/* Adds a file with copies of its texts, and sets its `base`.  A name that is
 * NULL: memory was out.  Returns 0 or -ENOMEM. */
int rsh_source_list(struct rsh_source *s, const struct rsh_checkpoint *c);
/* These return the number of listed files, and the i-th one, whose rank may be
 * set. */
size_t rsh_source_n_on_list(const struct rsh_source *s);
struct rsh_checkpoint *rsh_source_on_list(const struct rsh_source *s, size_t i);
/* Removes the last files from the list until n are left. */
void rsh_source_unlist(struct rsh_source *s, size_t n);
/* Logs that the directory of a step is left out, and why.  Returns 0, or -errno
 * if it must not be left out. */
int rsh_source_unreadable(struct rsh_source *s, const char *dir, int rc,
			  struct rsh_error *err);
/* Makes all files of the list one candidate, which has this name in
 * messages. */
void rsh_source_take_list(struct rsh_source *s, const char *name);
/* Sorts the list into candidates, one for each selected step, the newest first;
 * with --select mtime the one first that was written last. */
int rsh_source_sort_steps(struct rsh_source *s,
			  const struct rsh_source_options *opts,
			  struct rsh_error *err);
/* Sets the range of a candidate in the list, first .. end-1. */
void rsh_source_candidate_range(const struct rsh_source *s, uint32_t i,
				size_t *first, size_t *end);
/* Reads the name of a step in a tracker: one word, from malloc.  NULL: there is
 * no such file, or it has none, which is logged.  Returns 0, or -errno with a
 * sentence if it cannot be read now. */
int rsh_source_read_tracker(const struct rsh_source *s, const char *tracker,
			    char **word, struct rsh_error *err);
/* If there is a tracker with this name, moves the candidate of its step before
 * all others, and logs which newer one is not taken, or why there is none.  The
 * step is its label if the format's `latest_is_text` is set, and else its
 * number, or `zero` for step 0 (NULL: no word).  If the framework writes the
 * tracker when all else is written (`is_last`), newer steps are removed from
 * the list, also if its step is not there.  Returns 1 if its step is there, 0
 * if not, or -errno with a sentence if the tracker cannot be read now; -ENOENT
 * if no step is left. */
int rsh_source_try_tracked(struct rsh_source *s, const char *tracker,
			   const char *zero, bool is_last,
			   struct rsh_error *err);
/* A step that a tracker may name. */
struct rsh_tracked {
	const char *label;
	uint64_t step;
};
/* Does the same with n steps that are no candidates, the newest first: sets
 * *found to the number of the tracker's step, or logs that the first one is
 * taken.  Returns like rsh_source_try_tracked(). */
int rsh_source_find_tracked(const struct rsh_source *s, const char *tracker,
			    const struct rsh_tracked *steps, uint32_t n,
			    uint32_t *found, struct rsh_error *err);
/* Lists files in directories of ranks, or where the options say, and sorts them
 * into candidates.  Formats of files of ranks call this in `open`. */
int rsh_source_list_ranks(struct rsh_source *s,
			  const struct rsh_source_options *opts,
			  struct rsh_error *err);
/* Returns how many threads read the headers of files; each thread reads one
 * file after the other. */
unsigned rsh_source_scan_threads(const struct rsh_source *s);
/* Returns the directory of the index cache, in which a format may keep data
 * about open files; -1 if there is none, or if faults are injected. */
int rsh_source_index_dir(const struct rsh_source *s);
