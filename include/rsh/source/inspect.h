/* SPDX-License-Identifier: Apache-2.0 */
/* source/inspect.h - for those who list what there is: one checkpoint file, and
 * which checkpoints a tree holds. */
#ifndef RSH_SOURCE_INSPECT_H
#define RSH_SOURCE_INSPECT_H

#include "rsh/source/source.h"
#include "rsh/wire/safetensors.h"

/* ---- one file ---- */

struct rsh_inspected {
	enum rsh_format format;
	struct rsh_ckpt_index *index;
	struct rsh_safetensors_meta meta; /* empty for a .ckpt */
	uint64_t bytes;                   /* of the file, also after a failure
					   * if it could be opened */
};

/* Scans the headers of one file, a .safetensors if its name says so and else a
 * .ckpt; `check_crc`: and compares its CRC.  *out is to be cleared, also after
 * a failure.  0 or -errno with a sentence. */
int rsh_inspect_file(const char *path, bool check_crc, struct rsh_names *names,
		     struct rsh_inspected *out, struct rsh_error *err);
void rsh_inspected_clear(struct rsh_inspected *in);

/* ---- a tree ---- */

/* What candidate i is by the names of its files. */
struct rsh_candidate_step {
	bool stepped;    /* epoch and step are known */
	bool breakpoint; /* saved by a job that crashed */
	uint64_t epoch, step;
	uint64_t run;    /* of several at that step; 0: the first or only one */
};
void rsh_source_candidate_step(const struct rsh_source *s, uint32_t i,
			       struct rsh_candidate_step *out);
/* Candidates that there are: those to be tried, rsh_source_n_candidates(), and
 * beyond them those that do not count beside these. */
uint32_t rsh_source_n_listed(const struct rsh_source *s);
/* The candidate that was chosen last. */
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
/* A descriptor, which is the caller's, of file i of the chosen candidate,
 * opened as for a mount: 0 or -errno with a sentence, -EXDEV if it leads out
 * of the source and must not. */
int rsh_source_file_descriptor(const struct rsh_source *s, uint32_t i, int *fd,
			       struct rsh_error *err);
/* With such a descriptor rsh_inspect_file() and, of the content, pread(), as
 * the source's io reads it, but past any cache.  The latter gives the number
 * of bytes or -errno.  Any thread. */
int rsh_source_file_inspect(const struct rsh_source *s, uint32_t i, int fd,
			    bool check_crc, struct rsh_names *names,
			    struct rsh_inspected *out, struct rsh_error *err);
ssize_t rsh_source_file_pread(const struct rsh_source *s, uint32_t i, int fd,
			      void *buf, size_t len, uint64_t offset);
/* Ascending by rank; the parts of a model in the order of its map. */
uint32_t rsh_source_n_files(const struct rsh_source *s);
void rsh_source_file_info(const struct rsh_source *s, uint32_t i,
			  struct rsh_source_file_info *out);
/* The ranks that have a directory or a file, ascending, of any candidate (from
 * malloc).  0 or -ENOMEM. */
int rsh_source_ranks(const struct rsh_source *s, uint32_t **ranks, size_t *n);

#endif
