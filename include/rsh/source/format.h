/* SPDX-License-Identifier: Apache-2.0 */
/* source/format.h - the contract of a format: all that the program asks of one
 * kind of checkpoint, and what it offers to who answers.
 *
 * A format is a constant struct rsh_format in a directory of its own below
 * src/formats/, and one line of the list there.  Nobody else names it: finding,
 * options, `ls`, `verify`, `mount` and --resume ask the format that a source
 * was found to be of.  A member that is NULL or 0 is what a format of files of
 * ranks does, which the user's strategy describes; each says what that is.
 *
 * Functions return 0 or -errno with a sentence in `err`, unless they say
 * otherwise.  Who opens a source calls them from one thread; from then on those
 * with a `const struct rsh_source *` are called by any.
 */
#ifndef RSH_SOURCE_FORMAT_H
#define RSH_SOURCE_FORMAT_H

#include <stdio.h>

#include "rsh/plan/writer.h"
#include "rsh/source/inspect.h"
#include "rsh/source/resume_format.h"
#include "rsh/source/source.h"
#include "rsh/source/step.h"
#include "rsh/util/arena.h"
#include "rsh/wire/ckpt.h"

/* ---- what a format is asked ---- */

/* This is SOURCE before anything was opened in it. */
struct rsh_look {
	const struct rsh_source *source; /* has no files yet; for its store */
	/* NULL: nobody asked for anything. */
	const struct rsh_source_options *opts;
	/* SOURCE is this file in the directory that the store has; NULL: it is
	 * the directory. */
	const char *file;
	bool listed;              /* the directory could be read: */
	const char *const *names; /* its entries, ascending */
	size_t n;
};
/* Is there an entry of that name that can be looked at? */
bool rsh_look_has(const struct rsh_look *l, const char *name);
/* Does nothing say where files lie (--rank-dir, --file, --source-map)? */
bool rsh_look_is_plain(const struct rsh_look *l);
/* Does a strategy file say how SOURCE is cut? */
bool rsh_look_is_sharded(const struct rsh_look *l);

/* How sure a format is that SOURCE is of it; the surest one gets it. */
enum rsh_bid {
	RSH_BID_NO = 0,
	RSH_BID_ANY = 1,     /* for want of a better one */
	RSH_BID_MODEL = 30,  /* the weights of a model lie there, which may lie
			      * beside something else */
	RSH_BID_RANKS = 50,  /* directories of ranks */
	RSH_BID_STEPS = 70,  /* a directory of one of its steps, or one */
	RSH_BID_SURE = 90,   /* a file that only it has */
};

/* Who says how the tensors are cut. */
enum rsh_layout_from {
	RSH_LAYOUT_GIVEN, /* the user, by a strategy */
	RSH_LAYOUT_OWN,   /* each step says it itself */
	RSH_LAYOUT_WHOLE, /* nobody has to: the source is one whole model */
};

/* Whose the files of a step are. */
enum rsh_file_owner {
	RSH_OWNER_RANK,    /* each rank has one */
	RSH_OWNER_RANKS,   /* each rank may have several, laid end to end */
	RSH_OWNER_MODEL,   /* all are parts of one model, in the listing's order,
			    * and none of them may be missing */
	RSH_OWNER_NOBODY,  /* each counts as a rank of its own */
};

/* What is read of a source to be planned. */
struct rsh_read_job {
	const struct rsh_source *source; /* is indexed */
	const struct rsh_source_view *view;
	const struct rsh_strategy *src, *dst; /* NULL: none */
	const struct rsh_plan_options *opts;
	struct rsh_arena *arena; /* what is offered lives as long */
};

/* What of a source is no tensor. */
struct rsh_values {
	char *text; /* a JSON object of what is plain data, by name (from
		     * malloc); NULL: there are none */
	size_t len;
	struct rsh_store_attr attr; /* who may read all of their files */
};

/* What there is of a source that is one whole model, for `ls`. */
struct rsh_listed_chunk {
	const uint64_t *from, *size; /* [n_dims] */
	const char *file; /* NULL: in none */
	bool placed;      /* offset and length are known */
	uint64_t offset, length;
};
struct rsh_listed_tensor {
	const char *name;
	enum rsh_dtype dtype;
	uint32_t n_dims, n_chunks;
	const uint64_t *dims;
	const struct rsh_listed_chunk *chunks;
	const char *shares; /* has the elements of this tensor; NULL: its own */
};
struct rsh_listed {
	const struct rsh_listed_tensor *tensors;
	uint32_t n_tensors;
	const char *const *values; /* names */
	uint32_t n_values;
	const char *const *files;
	uint32_t n_files;
	struct rsh_error wrong; /* why it is not whole; code 0: it is */
};

/* What `verify` knows of a source whose files were read to their ends. */
struct rsh_verifier {
	const struct rsh_source *source;
	const struct rsh_source_view *view; /* a damaged file has no index */
	void *ctx;
	/* Adds a problem of the source.  0 or -ENOMEM. */
	int (*problem)(void *ctx, const struct rsh_error *why);
	/* Compares what two files hold.  0 or -ENOMEM. */
	int (*compare)(void *ctx, uint32_t file, uint32_t record,
		       uint32_t other, uint32_t other_record,
		       const char *what);
};

/* How much of a file is looked at. */
enum rsh_scan {
	RSH_SCAN_HEADERS,
	RSH_SCAN_CRC,    /* and all bytes, held against their checksums */
	RSH_SCAN_VERIFY, /* and whether all is there that should be */
};

struct rsh_format {
	/* ---- what it is ---- */
	const char *name; /* as in `ls --json`: "dcp" */
	const char *says; /* in sentences: "distributed checkpoint" */
	enum rsh_layout_from layout;
	enum rsh_file_owner owner;
	bool lone;     /* SOURCE is one checkpoint: there is nothing to select */
	bool any_type; /* its files need not be of one type by their names */
	/* Its files hold slices of parameters, or whole ones, by name, so that
	 * ranks can be held against each other and a strategy. */
	bool by_name;
	/* A slice that several files have is taken from any of them, whatever
	 * --replicas says. */
	bool any_copy;
	/* Without another word it is shown as Hugging Face's model: never, as
	 * long as the names are not said to become MindSpore's, or always,
	 * with the files that lie beside it. */
	enum rsh_shown_as { RSH_SHOWN_RANKS, RSH_SHOWN_HF, RSH_SHOWN_HF_BESIDE }
		shown;
	/* Which names it has for --convert: of MindSpore's strategies, of
	 * either side, or nobody knows. */
	enum rsh_words_of { RSH_WORDS_ANY, RSH_WORDS_EITHER, RSH_WORDS_MINDSPORE }
		words;

	/* ---- finding ---- */
	/* Says how sure it is, from names and one small read at most. */
	int (*bid)(const struct rsh_look *look);
	/* Is SOURCE one step, and not a place for several?  NULL: no. */
	bool (*is_step)(const struct rsh_look *look);
	/* Writes the end of a sentence about a SOURCE that is nearly of it,
	 * "; ...", or nothing.  NULL: it knows none. */
	void (*hint)(const struct rsh_look *look, char *buf, size_t max);

	/* ---- a source ---- */
	/* Lists the files of all steps (rsh_source_list() and its like), and
	 * keeps what it needs (rsh_source_keep()).  What was kept is closed
	 * after a failure too; close() hears NULL if nothing was.  A lone
	 * checkpoint gives each file a rank of its own, or all of them rank 0
	 * as RSH_OWNER_MODEL, and ends with rsh_source_take_list(); files that
	 * it names need not be there. */
	int (*open)(struct rsh_source *s, const struct rsh_source_options *opts,
		    struct rsh_error *err);
	void (*close)(void *state);
	/* Looks at candidate i before its files are taken; what an earlier one
	 * left in the state goes.  NULL: there is nothing to look at. */
	int (*choose)(struct rsh_source *s, uint32_t i, struct rsh_error *err);
	/* Makes the index of a file (rsh_ckpt_index_new()), or leaves *out
	 * alone; a file that fails counts as missing, but for a part of a
	 * model (RSH_OWNER_MODEL), which fails all.  Any thread may call.
	 * NULL: its name tells how. */
	int (*scan)(const struct rsh_source *s, uint32_t file,
		    const struct rsh_byte_source *bytes, enum rsh_scan how,
		    struct rsh_names *names, struct rsh_ckpt_index **out,
		    struct rsh_error *err);
	/* Is an index that was kept the one that scan would make?  The file
	 * is the same; what else the format makes it by may have changed.
	 * NULL: yes, for it is made of the file alone. */
	bool (*fits)(const struct rsh_source *s, uint32_t file,
		     const struct rsh_ckpt_index *ix, struct rsh_names *names);
	/* Has all content of a file a checksum?  NULL: the index says it. */
	bool (*has_crc)(const struct rsh_source *s,
			const struct rsh_ckpt_index *ix);
	/* Says which of a rank's n files counts for a name that two of them
	 * have: home[name], from 1; 0: none.  NULL: that is an error. */
	int (*home)(const struct rsh_source *s, uint32_t n,
		    struct rsh_names *names, uint32_t *home);
	/* Hears that all ranks have their indexes. */
	void (*indexed)(const struct rsh_source *s, struct rsh_names *names);
	/* Makes the strategy of the chosen step, for RSH_LAYOUT_OWN alone: as
	 * rsh_source_strategy() says. */
	int (*strategy)(struct rsh_source *s, bool allow_missing,
			struct rsh_names *names, struct rsh_strategy **out,
			struct rsh_error *err);
	/* Gives what people call all files of a rank, of which `path` is one
	 * (from malloc).  NULL: the one file's path. */
	char *(*rank_path)(const char *path);
	/* Writes what a candidate is called.  NULL: by epoch and step. */
	void (*step_text)(const struct rsh_source *s, uint32_t i, char *text,
			  size_t size);
	/* Writes what is to be said of the chosen step, each part after "; ",
	 * and gives the file that says so; `choice` is NULL if there was none.
	 * NULL: the core says what was chosen. */
	const char *(*step_notes)(const struct rsh_source *s,
				  const char *choice, FILE *to);
	/* Gives file i of those that the step names and that are not there;
	 * false past the last.  NULL: it names none. */
	bool (*absent)(const struct rsh_source *s, uint32_t i,
		       struct rsh_source_file_info *out);
	/* Gives bytes that tell apart what steps say of themselves.  NULL: they
	 * say nothing. */
	const void *(*key)(const struct rsh_source *s, size_t *n);
	/* Sets what the chosen step says of the training, except the step
	 * (rsh_source_training_state()).  0 or -ENOMEM. */
	int (*training_state)(const struct rsh_source *s,
			      struct rsh_training_state *out);

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
	/* Plans what is shown.  NULL: the general writer does, of what was
	 * read. */
	int (*plan)(const struct rsh_read_job *job, struct rsh_plan **out,
		    struct rsh_error *err);
	/* Reads what is no tensor; *note says what is left out (from malloc;
	 * NULL: nothing).  NULL: there is nothing else. */
	int (*values)(struct rsh_source *s, const struct rsh_plan_options *opts,
		      struct rsh_values *out, char **note,
		      struct rsh_error *err);
	/* Calls fn for each tensor that SOURCE holds, with its bytes there.
	 * NULL: the records of the indexes are the tensors. */
	void (*each)(const struct rsh_source *s,
		     void (*fn)(void *ctx, const char *name, uint64_t bytes),
		     void *ctx);
	/* Lists tensors and files, without looking into any; what is listed
	 * lives in the arena or the state.  NULL: steps are listed. */
	int (*list)(const struct rsh_source *s, struct rsh_arena *arena,
		    struct rsh_listed *out, struct rsh_error *err);
	/* Judges what the files hold together; each by itself was scanned by
	 * RSH_SCAN_VERIFY.  NULL: by rank and strategy.  0 or -ENOMEM. */
	int (*verify)(const struct rsh_verifier *v);

	/* ---- --resume ---- */
	const struct rsh_resume_format *resume; /* NULL: it is not for that */
};

/* ---- what is offered to a format ---- */

struct rsh_store *rsh_source_store(const struct rsh_source *s);
const char *rsh_source_path(const struct rsh_source *s);
/* Gives the name of the file that SOURCE is, in the directory that the store
 * has; NULL: it is the directory. */
const char *rsh_source_file(const struct rsh_source *s);

/* Gives SOURCE the state of its format, which close() frees; and gives that
 * back. */
void rsh_source_keep(struct rsh_source *s, void *state);
void *rsh_source_state(const struct rsh_source *s);

/* This is a file of a step. */
struct rsh_checkpoint {
	uint32_t rank;    /* with --resume the number of its directory */
	char *name;       /* below the root, or absolute; from malloc */
	const char *base; /* its last part */
	char *label;      /* what people call it; NULL: base */
	char *series;     /* the name without steps and ranks, where that tells
			   * candidates apart; NULL: it does not */
	struct rsh_step step;
	size_t n_dir;     /* how long the name of the directory of a power-off
			   * save is, which name begins with */
	struct timespec mtime;
};

/* Adds a file, of which `base` is found out; name and label (NULL: memory is
 * out) are taken over, also on failure.  0 or -ENOMEM. */
int rsh_source_list(struct rsh_source *s, const struct rsh_checkpoint *c);
/* Says how many were listed, and gives the i-th, whose rank may be set. */
size_t rsh_source_n_on_list(const struct rsh_source *s);
struct rsh_checkpoint *rsh_source_on_list(const struct rsh_source *s, size_t i);
/* Takes the last ones off the list until n are left. */
void rsh_source_unlist(struct rsh_source *s, size_t n);
/* Says why the directory of a step was left out.  0 or -errno if that is
 * worse. */
int rsh_source_unreadable(struct rsh_source *s, const char *dir, int rc,
			  struct rsh_error *err);
/* All files on the list belong to the one candidate. */
void rsh_source_take_list(struct rsh_source *s);
/* Sorts the list into candidates, one for each step that was selected, the
 * newest first; with --select mtime the one written last. */
int rsh_source_sort_steps(struct rsh_source *s,
			  const struct rsh_source_options *opts,
			  struct rsh_error *err);
/* Gives the range of a candidate on the list, first .. end-1. */
void rsh_source_candidate_range(const struct rsh_source *s, uint32_t i,
				size_t *first, size_t *end);
/* Has candidate i tried before all others. */
void rsh_source_try_first(struct rsh_source *s, uint32_t i);
/* Lists files in directories of ranks, or where the options say, and sorts them
 * into candidates: what a format of files of ranks does to open. */
int rsh_source_list_ranks(struct rsh_source *s,
			  const struct rsh_source_options *opts,
			  struct rsh_error *err);
/* Returns how many threads read the headers of files, each of them one after the
 * other. */
unsigned rsh_source_scan_threads(const struct rsh_source *s);
/* Gives the directory of the index cache, where a format may keep what is of
 * open files; -1: there is none, or what is read is not what lies there. */
int rsh_source_index_dir(const struct rsh_source *s);

#endif
