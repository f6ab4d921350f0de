/* SPDX-License-Identifier: Apache-2.0 */
/* source/inspect.h - the contents of one checkpoint file, and the checkpoints
 * of a tree, for commands that list them. */
#ifndef RSH_SOURCE_INSPECT_H
#define RSH_SOURCE_INSPECT_H

#include "rsh/source/source.h"
#include "rsh/wire/safetensors.h"

/* ---- one file ---- */

struct rsh_inspected {
	enum rsh_file_type format;
	struct rsh_ckpt_index *index;
	struct rsh_safetensors_meta meta; /* empty for a .ckpt */
	uint64_t bytes;                   /* size of the file, also after a
					   * failure if it could be opened */
};

/* Scans the headers of one file, a .safetensors if its name says so and else a
 * .ckpt; with `check_crc` it compares the CRC as well.  *out is to be cleared,
 * also after a failure.  0 or -errno with a sentence. */
int rsh_inspect_file(const char *path, bool check_crc, struct rsh_names *names,
		     struct rsh_inspected *out, struct rsh_error *err);
void rsh_inspected_clear(struct rsh_inspected *in);

/* Says what a file is that could not be read as a checkpoint file or a
 * strategy, by its name and first bytes, "a zip archive"; NULL: that is not
 * known.  With *of_directory it is a part of what lies in its directory. */
const char *rsh_other_file(const char *path, bool *of_directory);

/* ---- a tree ---- */

/* The step of candidate i by the names of its files. */
struct rsh_candidate_step {
	bool stepped;    /* epoch and step are known */
	bool alone;      /* the step is, and epochs are not counted */
	bool breakpoint; /* saved by a job that crashed */
	uint64_t epoch, step;
	uint64_t run;    /* tells several of that step apart; 0: the first or
			  * only one */
};
void rsh_source_candidate_step(const struct rsh_source *s, uint32_t i,
			       struct rsh_candidate_step *out);
/* What a step says of the training beside its files.  Numbers that are not
 * known are 0. */
struct rsh_training_state {
	uint64_t step;
	uint64_t epoch;
	uint64_t batch_size; /* of all ranks */
	double loss_scale;
};
/* Sets what the chosen candidate says, except the step, where its format says
 * anything and that can be read.  0 or -ENOMEM. */
int rsh_source_training_state(const struct rsh_source *s,
			      struct rsh_training_state *out);
/* Returns the number of candidates: rsh_source_n_candidates() that are tried,
 * and after them those that are only listed. */
uint32_t rsh_source_n_listed(const struct rsh_source *s);
/* Returns the candidate that was chosen last. */
uint32_t rsh_source_chosen(const struct rsh_source *s);
/* A file of the chosen candidate, as it was indexed. */
struct rsh_source_file_info {
	uint32_t rank;
	const char *name; /* below the root, or absolute */
	const char *path; /* as messages have it */
	bool valid;       /* it was not left out; else the rest is not known */
	dev_t dev;
	ino_t inode;
	uint64_t bytes;
	struct timespec mtime;
};
/* Gives a handle, which is the caller's, of file i of the chosen candidate,
 * opened as for a mount: 0 or -errno with a sentence, -EXDEV if the file leads
 * out of the source and must not. */
int rsh_source_file_open(const struct rsh_source *s, uint32_t i,
			 struct rsh_handle **h, struct rsh_error *err);
/* These do with such a handle what rsh_inspect_file() does, checksums compared
 * and by the source's format, and, with the
 * content, pread(2), as the source's io reads it but past any cache.  The
 * latter gives the number of bytes or -errno.  Any thread may call them. */
int rsh_source_file_inspect(const struct rsh_source *s, uint32_t i,
			    struct rsh_handle *h, struct rsh_names *names,
			    struct rsh_inspected *out, struct rsh_error *err);
ssize_t rsh_source_file_pread(const struct rsh_source *s, uint32_t i,
			      struct rsh_handle *h, void *buf, size_t len,
			      uint64_t offset);
/* The chosen files, ascending by rank; the parts of a model are in the order of
 * its map. */
uint32_t rsh_source_n_files(const struct rsh_source *s);
void rsh_source_file_info(const struct rsh_source *s, uint32_t i,
			  struct rsh_source_file_info *out);
/* Gives the index of file i; NULL: it was left out. */
const struct rsh_ckpt_index *rsh_source_file_index(const struct rsh_source *s,
						   uint32_t i);
/* Gives the first of the files of a rank and says how many there are, which
 * follow it; 0 for parts of a whole model, which counts as one file there, by
 * the source's path. */
uint32_t rsh_source_rank_files(const struct rsh_source *s, uint32_t rank,
			       uint32_t *first);
/* Has all content of a file that was indexed a checksum? */
bool rsh_source_has_crc(const struct rsh_source *s,
			const struct rsh_ckpt_index *ix);
/* Gives file i of those that the chosen candidate lists and that do not exist;
 * false past the last. */
bool rsh_source_absent(const struct rsh_source *s, uint32_t i,
		       struct rsh_source_file_info *out);
/* Gives the ranks that have a directory or a file of any candidate, ascending
 * (from malloc).  0 or -ENOMEM. */
int rsh_source_ranks(const struct rsh_source *s, uint32_t **ranks, size_t *n);

#endif
