/* SPDX-License-Identifier: Apache-2.0 */
/* formats/joined.h - for formats of which each file has a part of every tensor.
 * A file is read when it is scanned, or when it is only listed, and what was
 * read is kept.  All together become the description of a distributed
 * checkpoint (formats/dcp.h), whose reader does the rest.  A format says what a
 * file has, how its tensors are joined, and which of them are states of an
 * optimizer, which a model does not need. */
#pragma once

#include <pthread.h>

#include "rsh/formats/dcp.h"
#include "rsh/source/format.h"

/* What a format does with its files.  `state` begins with a struct
 * rsh_joined. */
struct rsh_joined_format {
	/* Reads a file, and makes its index if `names` is not NULL.  *out
	 * begins with an arena, which owns all that was read.  Any thread may
	 * call it.  Returns 0 or -errno with a sentence. */
	int (*read)(void *state, uint32_t file,
		    const struct rsh_byte_source *bytes, bool full,
		    struct rsh_names *names, void **out,
		    struct rsh_ckpt_index **index, struct rsh_error *err);
	/* Adds all tensors of the files that were read; one with a problem is
	 * not in the description.  Returns 0 or -errno with a sentence; if
	 * memory is out, the arena of the description has failed, which is
	 * asked once. */
	int (*describe)(void *state, struct rsh_error *err);
	/* Says what it is, for people; NULL: memory is out. */
	const char *(*about)(const void *state, struct rsh_arena *arena);
	/* Returns whether a tensor is a state.  NULL: none is. */
	bool (*is_state)(const void *state, const char *name);
	/* Finds what is wrong with the files of the model or of states, before
	 * their tensors are judged.  NULL: nothing. */
	void (*judge)(const void *state, bool of_states,
		      struct rsh_error *wrong);
	/* Lists what only reads of contents find.  NULL: nothing. */
	int (*list_more)(const void *state, const struct rsh_list_job *job);
	/* Lists the tensors.  NULL: rsh_dcp_list(). */
	int (*list)(const struct rsh_list_job *job, struct rsh_listed *out,
		    struct rsh_error *err);
	void (*clear)(void *state); /* frees its own members; may be NULL */
	bool has_gaps; /* elements may be in no chunk */
};

/* What is wrong with a tensor, which is not in the description: it is an error
 * only if the tensor is wanted. */
struct rsh_joined_problem {
	const char *name; /* of the tensor */
	int code;
	const char *text; /* a sentence that begins with the tensor */
};

/* This is the beginning of the state of such a source. */
struct rsh_joined {
	struct rsh_dcp_source dcp; /* is first: the reader of distributed
				    * checkpoints uses it */
	const struct rsh_joined_format *format;
	const struct rsh_source *source; /* NULL: the files are in none */
	const struct rsh_byte_source **bytes; /* [n]: where they are then */
	const char *path; /* of the source, for messages; or "" */
	const char *dir;  /* of the step below it, with a slash; or "" */
	struct rsh_arena arena;
	/* The mutex guards `files` while several threads make indexes. */
	pthread_mutex_t lock;
	void **files; /* [n]; NULL: not read */
	uint32_t n;
	/* Below SOURCE: those of the n files, then of files that should be
	 * there. */
	const char **names;
	uint32_t n_names;
	size_t cap_names;
	bool described;
	/* In the order in which they were found. */
	struct rsh_joined_problem *problems;
	size_t n_problems, cap_problems;
	/* While it is described: its tensors, and chunks of the next one. */
	struct rsh_dcp_tensor *tensors;
	size_t n_tensors, cap_tensors;
	struct rsh_dcp_chunk *chunks;
	size_t n_chunks, cap_chunks;
};
/* Makes a state of `size` bytes with room for n files; NULL: memory is out. */
void *rsh_joined_new(const struct rsh_joined_format *format, size_t size,
		     const struct rsh_source *source, size_t n);
void rsh_joined_free(void *state); /* state may be NULL */
void rsh_joined_file_free(void *file); /* file may be NULL */
/* Makes and keeps the state of a candidate, whose files are `first` to `end` of
 * the list. */
void *rsh_joined_choose(const struct rsh_joined_format *format, size_t size,
			struct rsh_source *s, uint32_t candidate, size_t *first,
			size_t *end);
/* Adds a file, or only a name while it is described.  Returns its number, or
 * RSH_DCP_NO_FILE: memory is out. */
uint32_t rsh_joined_add_file(struct rsh_joined *j, const char *name);
uint32_t rsh_joined_add_name(struct rsh_joined *j, const char *name);

/* Is the `scan` of such a format. */
int rsh_joined_scan(const struct rsh_scan_job *job,
		    struct rsh_ckpt_index **out, struct rsh_error *err);
/* Reads a file, unless it was read: then it stays, until the source is closed.
 * Any thread may call it.  Returns 0 or -errno with a sentence. */
int rsh_joined_need(struct rsh_joined *j, uint32_t file, struct rsh_error *err);

/* The name under which a value is shown, and its keys (n is 0: it is the only
 * one). */
struct rsh_joined_value {
	const char *name;
	const struct rsh_path_key *keys;
	uint32_t n_keys;
};
/* Adds values of a file.  `take` is called for plain data that stand in the
 * file as they are; it returns whether one is shown, with its name in *out, or
 * -ENOMEM.  If the file cannot be read, this is logged.  Returns 0 or
 * -ENOMEM. */
struct rsh_torch_value;
int rsh_joined_values(struct rsh_joined *j, const char *file,
		      const struct rsh_plan_options *opts,
		      int (*take)(void *ctx, const struct rsh_torch_value *v,
				  struct rsh_joined_value *out),
		      void *ctx, struct rsh_values *out);

/* ---- the description ---- */

/* Describes the files that were read, once. */
int rsh_joined_describe(struct rsh_joined *j, struct rsh_error *err);
/* Calls `take` for each run of elements with the same name, which is their
 * first member (const char *), in an array that ascends by it, without
 * chunks, until memory is out. */
void rsh_joined_each(struct rsh_joined *j, void *v, size_t n, size_t size,
		     void (*take)(void *ctx, void *first, size_t n), void *ctx);
/* Sets the sentence "PATH/NAME: ..."; the name of a file or directory is below
 * SOURCE, or "".  Returns -code. */
int rsh_joined_refuse(const struct rsh_joined *j, const char *name, int code,
		      struct rsh_error *err, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));
/* Adds a problem of a tensor, whose name lives as long as the description.
 * Returns true, as functions do that find one. */
bool rsh_joined_blame(struct rsh_joined *j, const char *name, int code,
		      const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* Adds a box of the next tensor, which a file has under the name `key`; `from`
 * is NULL: it begins at 0. */
void rsh_joined_chunk(struct rsh_joined *j, uint32_t file, const char *key,
		      uint32_t n_dims, const uint64_t *from,
		      const uint64_t *size);
/* Orders tensors, for qsort(). */
int rsh_joined_by_name(const void *a, const void *b);
/* Adds a tensor, with the chunks that were added. */
void rsh_joined_tensor(struct rsh_joined *j, const struct rsh_dcp_tensor *t);
/* Compares n bytes of two files.  Returns 0 or -errno with a sentence. */
int rsh_joined_same_bytes(const struct rsh_joined *j, const uint32_t file[2],
			  const uint64_t offset[2], uint64_t n, bool *same,
			  struct rsh_error *err);

/* ---- what is wrong with it ---- */

/* Finds the first thing that is wrong with states, or with all else;
 * wrong->code is 0: nothing.  Returns 0 or -ENOMEM. */
int rsh_joined_judge(const struct rsh_joined *j, bool of_states,
		     struct rsh_error *wrong);
/* Returns whether the output has states of the optimizer, so that a loss of
 * them is a loss of what was asked for. */
bool rsh_joined_wants_states(const struct rsh_plan_options *o);
/* Warns of states that are not complete.  Returns 0 or -ENOMEM. */
int rsh_joined_tell_states(const struct rsh_joined *j);
/* Returns 0, or -errno with the sentence of the first problem of a tensor that
 * is wanted. */
int rsh_joined_check(const struct rsh_joined *j,
		     const struct rsh_plan_options *opts,
		     struct rsh_error *err);
/* Are the `judge` and the `list` of such a format. */
int rsh_joined_judge_step(const struct rsh_source *s, bool ended,
			  struct rsh_error *err);
int rsh_joined_list(const struct rsh_list_job *job, struct rsh_listed *out,
		    struct rsh_error *err);

/* Members that are alike in such formats. */
#define RSH_JOINED_FORMAT                                             \
	.layout = RSH_LAYOUT_WHOLE, .owner = RSH_OWNER_NOBODY,        \
	.shown = RSH_SHOWN_HF, .scan = rsh_joined_scan,               \
	.list = rsh_joined_list, .step_dirs = true

/* ---- finding steps ---- */

/* Returns 1 if a directory has an entry for which `is` returns true, 0 if not,
 * or -errno. */
int rsh_joined_dir_has(const struct rsh_store *store, const char *dir,
		       bool (*is)(const char *name));
/* Looks into the last entries of SOURCE that may be steps.  `has` returns 1 if
 * one is, 0 if not, or -errno; the first result above 0 is returned. */
int rsh_joined_look(const struct rsh_look *l,
		    bool (*may_be)(const char *name, size_t n, uint64_t *step),
		    int (*has)(const struct rsh_store *store, const char *dir));
/* Lists a file of a step and rank.  `label` is NULL: it is SOURCE's name.
 * Returns 0 or -ENOMEM. */
int rsh_joined_list_file(struct rsh_source *s, const char *name,
			 const char *label, struct rsh_step step,
			 uint32_t rank);
