/* SPDX-License-Identifier: Apache-2.0 */
/* plan/catalogue.h - what a source holds: its tensors, how each is cut
 * into cells, and for every cell its copies.
 *
 * A dialect's reader fills a catalogue, and plans are laid over it.  The reader
 * knows what lies in the source's files and says it in these words, which know
 * no framework.  A copy is a record of a file; where the record's bytes lie is
 * what the file's index says, and files with equal indexes share one, as cuts
 * and copies are shared by all tensors that have equal ones.  A thousand ranks
 * of two thousand tensors are a few megabytes.
 *
 *   tensor w Float32 [8,4]     cut 2x1 over 4 ranks      copies
 *                              cell 0: rows 0 to 3       files 0 and 2
 *                              cell 1: rows 4 to 7       files 1 and 3
 *
 * One thread fills a catalogue; from then on any thread may read it.  It owns
 * its tensors, cuts and copies, but neither names nor indexes.  Want of memory
 * is the only error.
 */
#ifndef RSH_PLAN_CATALOGUE_H
#define RSH_PLAN_CATALOGUE_H

#include <stdatomic.h>

#include "rsh/plan/files.h"
#include "rsh/tensor/cut.h"

#define RSH_NO_FILE UINT32_MAX
#define RSH_NO_TENSOR UINT32_MAX
/* The record of a copy is the one that has the tensor's name. */
#define RSH_BY_NAME UINT32_MAX

struct rsh_copies;

/* This is one tensor of the source, with all its cells. */
struct rsh_tensor {
	uint32_t name;
	enum rsh_dtype dtype;
	bool wide_bf16;         /* in all copies, as in struct rsh_record */
	uint8_t n_dims;
	const uint64_t *dims;   /* of the whole tensor */
	const struct rsh_cut *cut;
	const struct rsh_copies *copies;
	/* Sentences on what is missing name file first_file + r as that of rank
	 * r of the cut. */
	uint32_t first_file;
};

/* Callers only read the fields; the functions below fill them. */
struct rsh_catalogue {
	struct rsh_names *names; /* not owned */
	uint32_t n_names;

	/* Arrays of files go by the number of a file, which in a tree of ranks
	 * is the global rank. */
	uint32_t n_files;
	const struct rsh_ckpt_index **index; /* [file]; NULL: none.  The indexes
					      * are not owned. */
	char **path;                         /* [file]; may be NULL */
	uint32_t *index_id;  /* [file]: equal for files that share an index */
	uint32_t n_indexes;  /* distinct indexes */
	uint32_t n_present;
	uint32_t *present;   /* files that have an index, ascending */
	uint32_t *first;     /* [name that a file has]: the first such file, or
			      * UINT32_MAX */
	uint32_t n_first;    /* length of it: of other names there is none */

	uint32_t n_tensors;
	struct rsh_tensor **tensors;
	size_t tensors_cap;
	void *cuts, *copies; /* trees of those that were kept */
};

/* Makes a catalogue of the files of a view; it has no tensors yet.  The view's
 * arrays need not live on, its indexes and names must.  NULL: out of memory. */
struct rsh_catalogue *rsh_catalogue_new(const struct rsh_source_view *view);
void rsh_catalogue_free(struct rsh_catalogue *c);
/* Takes account of names that were added to the table since. */
void rsh_catalogue_see_names(struct rsh_catalogue *c);

/* Takes the cut over, also on failure, and gives the catalogue's own equal one.
 * NULL: out of memory, here or when `cut` was made, which then is NULL. */
const struct rsh_cut *rsh_catalogue_keep_cut(struct rsh_catalogue *c,
					     struct rsh_cut *cut);

/* A holder says that a file has, in this record, the cell of a rank of the
 * cut. */
struct rsh_holder {
	uint32_t rank;
	uint32_t file;
	uint32_t record; /* number in the file's index, or RSH_BY_NAME */
};

/* Keeps the copies of a tensor's cells, which are the n holders; of those of
 * one rank the first is preferred.  `cut` is one that was kept.  With
 * `replicas` the ranks of one cell make up for each other.  The catalogue owns
 * what it gives, and keeps equal copies once.  NULL: out of memory. */
const struct rsh_copies *
rsh_catalogue_keep_copies(struct rsh_catalogue *c, const struct rsh_cut *cut,
			  const struct rsh_holder *holders, uint32_t n,
			  bool replicas);

/* Adds a tensor; its dims are copied, cut and copies are ones that were kept.
 * 0 and its number, or -ENOMEM. */
int rsh_catalogue_add(struct rsh_catalogue *c, const struct rsh_tensor *t,
		      uint32_t *number);

/* ---- asking ---- */

/* Gives the index of a file, NULL if there is none. */
const struct rsh_ckpt_index *rsh_catalogue_index(const struct rsh_catalogue *c,
						 uint32_t file);
/* Gives the record of `name` in a file, NULL if file or record is missing. */
const struct rsh_record *rsh_catalogue_record(const struct rsh_catalogue *c,
					      uint32_t file, uint32_t name);
/* Gives the first file that has a record of `name`, UINT32_MAX if none has. */
uint32_t rsh_catalogue_first(const struct rsh_catalogue *c, uint32_t name);
/* Gives the path of a file for messages, "?" if it has none. */
const char *rsh_catalogue_path(const struct rsh_catalogue *c, uint32_t file);
/* Gives the place in c->present of the first file that is no lower than `file`;
 * n_present if none is. */
uint32_t rsh_catalogue_present_from(const struct rsh_catalogue *c,
				    uint32_t file);

/* ---- copies ---- */

/* Picks the copy of a cell that is to be read.  This is the one policy for all
 * tensors that have cells; for records that are copied as they stand the writer
 * picks.  The preferred replica comes first (rsh_cut_replica()), then, if
 * replicas make up for each other, the ones after it, and the first after the
 * last one, so that the reads of a lost file spread.  Files for which
 * avoid[file] is set are left out, and where `avoid` is not NULL all replicas
 * are searched, even if they do not make up for each other.  False: no file is
 * left. */
bool rsh_copies_pick(const struct rsh_copies *c, uint32_t cell,
		     uint32_t replica, const atomic_bool *avoid,
		     struct rsh_holder *out);
/* These say how many cells some file holds, and how many holders there are. */
uint32_t rsh_copies_n_cells(const struct rsh_copies *c);
uint32_t rsh_copies_n_holders(const struct rsh_copies *c);
/* Gives the holders, in the order in which they were kept. */
const struct rsh_holder *rsh_copies_holders(const struct rsh_copies *c);
/* Tells `each` every cell that some file holds, in ascending order. */
void rsh_copies_each(const struct rsh_copies *c, rsh_cell_fn *each, void *ctx);

/* Is the file to be left out? */
static inline bool rsh_is_avoided(const atomic_bool *avoid, uint32_t file)
{
	return avoid && atomic_load_explicit(&avoid[file],
					     memory_order_relaxed);
}

#endif
