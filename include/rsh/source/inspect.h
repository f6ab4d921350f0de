/* SPDX-License-Identifier: Apache-2.0 */
/* source/inspect.h reads one checkpoint file, or the checkpoints of a tree, for
 * commands that list them. */
#pragma once

#include "rsh/source/source.h"
#include "rsh/wire/safetensors.h"

/* ---- one file ---- */

struct rsh_inspected {
	enum rsh_file_type format;
	struct rsh_ckpt_index *index;
	struct rsh_safetensors_meta meta; /* empty for a .ckpt */
	uint64_t bytes;                   /* size of the file; set after a
					   * failure too, if it could be
					   * opened */
};

/* Scans the headers of one file: as .safetensors if its name says so, else as
 * .ckpt.  With `check_crc` it compares the CRC as well.  *out must be cleared,
 * also after a failure.  Returns 0 or -errno with a sentence. */
int rsh_inspect_file(const char *path, bool check_crc, struct rsh_names *names,
		     struct rsh_inspected *out, struct rsh_error *err);
void rsh_inspected_clear(struct rsh_inspected *in);

/* Returns what a file is that is neither a checkpoint file nor a strategy, by
 * its name and first bytes, such as "a zip archive"; NULL if it is unknown. */
const char *rsh_other_file(const char *path);

/* ---- a tree ---- */

/* This is the step of a candidate by the names of its files. */
struct rsh_candidate_step {
	bool stepped;    /* epoch and step are known */
	bool alone;      /* only the step is known, because epochs are not
			  * counted */
	bool breakpoint; /* saved by a job that crashed */
	uint64_t epoch, step;
	uint64_t run;    /* distinguishes several runs of that step; 0: the
			  * first or only one */
};
void rsh_source_candidate_step(const struct rsh_source *s, uint32_t i,
			       struct rsh_candidate_step *out);
/* This is what the files of a step say about the training.  Numbers that are
 * unknown are 0. */
struct rsh_training_state {
	uint64_t step;
	uint64_t epoch;
	uint64_t batch_size; /* of all ranks together */
	double loss_scale;
};
/* Sets what the chosen candidate says about the training, except the step, if
 * its format says anything and that can be read.  Returns 0 or -ENOMEM. */
int rsh_source_training_state(const struct rsh_source *s,
			      struct rsh_training_state *out);
/* Returns the number of candidates: first the rsh_source_n_candidates() that
 * are tried, then those that are only listed. */
uint32_t rsh_source_n_listed(const struct rsh_source *s);
/* Returns the candidate that was chosen last. */
uint32_t rsh_source_chosen(const struct rsh_source *s);
void rsh_source_chosen_text(const struct rsh_source *s, char *text,
			    size_t size);
/* This is an indexed file of the chosen candidate. */
struct rsh_source_file_info {
	uint32_t rank;
	const char *name; /* below the root, or absolute */
	const char *path; /* path in messages */
	bool valid;       /* it was not left out; otherwise the members below
			   * are unknown */
	const char *why;  /* why it was left out; NULL: it was not, or memory
			   * was out */
	dev_t dev;
	ino_t inode;
	uint64_t bytes;
	struct timespec mtime, ctime;
};
/* Opens file i of the chosen candidate as for a mount; the caller owns the
 * handle.  Returns 0 or -errno with a sentence; -EXDEV if the file is outside
 * the source and this is not allowed. */
int rsh_source_file_open(const struct rsh_source *s, uint32_t i,
			 struct rsh_handle **h, struct rsh_error *err);
/* These use such a handle.  rsh_source_file_inspect() scans the file as
 * rsh_inspect_file() does, but with the source's format and with checksums.
 * The other one reads content as pread(2) does, through the source's io but
 * without any cache, and returns the number of bytes or -errno.  Any thread may
 * call them. */
int rsh_source_file_inspect(const struct rsh_source *s, uint32_t i,
			    struct rsh_handle *h, struct rsh_names *names,
			    struct rsh_inspected *out, struct rsh_error *err);
ssize_t rsh_source_file_pread(const struct rsh_source *s, uint32_t i,
			      struct rsh_handle *h, void *buf, size_t len,
			      uint64_t offset);
/* Returns the number of chosen files.  They ascend by rank; the parts of a
 * model are in the order of its map. */
uint32_t rsh_source_n_files(const struct rsh_source *s);
void rsh_source_file_info(const struct rsh_source *s, uint32_t i,
			  struct rsh_source_file_info *out);
/* Finds parameters that the map of a model names and none of n indexes has, and
 * writes a sentence about them, which does not name SOURCE.  Returns false if
 * there are none. */
#define RSH_MAP_LACKS 512
bool rsh_source_map_lacks(const struct rsh_source *s, struct rsh_names *names,
			  const struct rsh_ckpt_index *const *index, uint32_t n,
			  char *text, size_t size);
/* Returns the index of file i; NULL: it was left out. */
const struct rsh_ckpt_index *rsh_source_file_index(const struct rsh_source *s,
						   uint32_t i);
/* Sets the first file of a rank, and returns the number of its files, which are
 * consecutive.  It is 0 for parts of a whole model, which counts as one file
 * with the path of the source. */
uint32_t rsh_source_rank_files(const struct rsh_source *s, uint32_t rank,
			       uint32_t *first);
/* Sets the ranks that have a directory or a file of any candidate, ascending
 * (from malloc).  Returns 0 or -ENOMEM. */
int rsh_source_ranks(const struct rsh_source *s, uint32_t **ranks, size_t *n);
