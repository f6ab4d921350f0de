/* SPDX-License-Identifier: Apache-2.0 */
/* formats/joined.h - for formats of which each file has a part of every tensor.
 * A file is read when it is scanned, or when it is only listed, and what was
 * read is kept.  All together become the description of a distributed
 * checkpoint (formats/dcp.h), whose reader does the rest. */
#pragma once

#include <pthread.h>

#include "rsh/formats/dcp.h"
#include "rsh/formats/problems.h"
#include "rsh/source/format.h"

/* What a format does with one file. */
struct rsh_joined_format {
	/* Returns the name of a file below SOURCE. */
	const char *(*name)(const void *state, uint32_t file);
	/* Reads a file, and makes its index if `names` is not NULL.  Any thread
	 * may call it.  Returns 0 or -errno with a sentence. */
	int (*read)(void *state, uint32_t file,
		    const struct rsh_byte_source *bytes, bool full,
		    struct rsh_names *names, void **out,
		    struct rsh_ckpt_index **index, struct rsh_error *err);
	void (*free_it)(void *file); /* may be NULL */
};

/* This is the beginning of the state of such a source. */
struct rsh_joined {
	struct rsh_dcp_source dcp; /* is first: the reader of distributed
				    * checkpoints uses it */
	const struct rsh_joined_format *format;
	const struct rsh_source *source;
	uint32_t n;
	/* The mutex guards `files` while several threads make indexes. */
	pthread_mutex_t lock;
	void **files; /* [n]; NULL: not read */
	bool described;
	struct rsh_tensor_problems problems;
};
/* Makes room for n files; the caller sets the number.  Returns 0 or -ENOMEM.
 * The caller must call rsh_joined_clear() in both cases. */
int rsh_joined_init(struct rsh_joined *j,
		    const struct rsh_joined_format *format,
		    const struct rsh_source *source, size_t n);
void rsh_joined_clear(struct rsh_joined *j);

/* Is the `scan` of such a format. */
int rsh_joined_scan(const struct rsh_scan_job *job,
		    struct rsh_ckpt_index **out, struct rsh_error *err);
/* Reads a file, unless it was read: then it stays, until the source is closed.
 * Any thread may call it.  Returns 0 or -errno with a sentence. */
int rsh_joined_need(struct rsh_joined *j, uint32_t file, struct rsh_error *err);
/* Reads the files that were not read, with several threads.  One that is
 * damaged is not an error. */
int rsh_joined_load(const struct rsh_source *s, struct rsh_error *err);

/* The name under which a value is shown, and its keys (n is 0: it is the only
 * one). */
struct rsh_joined_value {
	const char *name;
	const struct rsh_path_key *keys;
	uint32_t n_keys;
};
/* Adds values of a file.  `take` returns whether one is shown, with its name in
 * *out, or -ENOMEM; copies of names are in the arena.  If the file cannot be
 * read, this is logged.  Returns 0 or -ENOMEM. */
struct rsh_torch_value;
int rsh_joined_values(const struct rsh_source *s, const char *file,
		      const struct rsh_plan_options *opts,
		      struct rsh_arena *arena,
		      int (*take)(void *ctx, const struct rsh_torch_value *v,
				  struct rsh_joined_value *out),
		      void *ctx, struct rsh_values *out);

/* Begins a description, without problems; NULL: memory is out. */
struct rsh_dcp *rsh_joined_begin(struct rsh_joined *j);
/* Calls `take` for each run of elements with the same name, which is their
 * first member (const char *), in an array that ascends by it.  Stops if it
 * does not return 0, and returns that. */
int rsh_joined_each(void *v, size_t n, size_t size,
		    int (*take)(void *ctx, void *first, size_t n), void *ctx);

/* Finds a part of a tensor that no file has; wrong->code stays 0 if there is
 * none. */
void rsh_joined_find_lost(const struct rsh_joined *j,
			  const struct rsh_dcp_tensor *t,
			  struct rsh_error *wrong);
/* Does this for all tensors of the description, until one has such a part. */
void rsh_joined_lost(const struct rsh_joined *j, struct rsh_error *wrong);
