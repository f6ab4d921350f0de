/* SPDX-License-Identifier: Apache-2.0 */
/* catalogue/catalogue.h - what a source holds: its tensors, how each is cut into
 * cells, and for every cell its copies.
 *
 * A dialect's reader fills it: it knows what lies in the source's files and says
 * it in these words, which know no framework.  A copy is a record of a file;
 * where the record's bytes lie is what the file's index says, and files with
 * equal indexes share one, as cuts and copies are shared by all tensors that
 * have equal ones.  A thousand ranks of two thousand tensors are a few megabytes.
 *
 *   tensor w Float32 [8,4]     cut 2x1 over 4 ranks      copies
 *                              cell 0: rows 0 to 3       files 0 and 2
 *                              cell 1: rows 4 to 7       files 1 and 3
 *
 * A catalogue is filled by one thread; from then on any thread may read it.
 */
#ifndef RSH_CATALOGUE_CATALOGUE_H
#define RSH_CATALOGUE_CATALOGUE_H

#include <stdatomic.h>

#include "rsh/catalogue/files.h"
#include "rsh/tensor/cut.h"

#define RSH_NO_FILE UINT32_MAX
#define RSH_NO_TENSOR UINT32_MAX
/* The record of a copy is the one that has the tensor's name. */
#define RSH_BY_NAME UINT32_MAX

struct rsh_copies;

/* A tensor of the source. */
struct rsh_tensor {
	uint32_t name;
	enum rsh_dtype dtype;
	bool wide_bf16;         /* as struct rsh_record has it, in all copies */
	uint8_t n_dims;
	const uint64_t *dims;   /* of the whole */
	const struct rsh_cut *cut;
	const struct rsh_copies *copies;
	/* The file that would be the own one of rank 0 of the cut, those of the
	 * others following; for sentences about what is missing. */
	uint32_t first_file;
};

/* Everything in it is to be read only; the functions below fill it. */
struct rsh_catalogue {
	struct rsh_names *names; /* not owned */
	uint32_t n_names;

	/* The files, by their number; in a tree of ranks the global rank. */
	uint32_t n_files;
	const struct rsh_ckpt_index **index; /* [file]; NULL: none.  The indexes
					      * are not owned. */
	char **path;                         /* [file]; may be NULL */
	uint32_t *index_id;  /* [file]: equal for files that share an index */
	uint32_t n_indexes;  /* distinct ones */
	uint32_t n_present;
	uint32_t *present;   /* files that there are, ascending */

	uint32_t n_tensors, n_cuts, n_copies;
	struct rsh_tensor **tensors;
	struct rsh_cut **cuts;
	struct rsh_copies **copies;
	size_t tensors_cap, cuts_cap, copies_cap;
};

/* Takes over what the view says of files; its arrays need not live on, its
 * indexes and names must.  NULL: out of memory. */
struct rsh_catalogue *rsh_catalogue_new(const struct rsh_source_view *view);
void rsh_catalogue_free(struct rsh_catalogue *c);

/* Takes the cut over, also on failure, and gives the catalogue's own equal one.
 * NULL: out of memory. */
const struct rsh_cut *rsh_catalogue_keep_cut(struct rsh_catalogue *c,
					     struct rsh_cut *cut);

/* A file that holds the cell of a rank of the cut. */
struct rsh_holder {
	uint32_t rank;
	uint32_t file;
	uint32_t record; /* number in the file's index, or RSH_BY_NAME */
};

/* The copies of a tensor's cells: n holders, of which the first of a rank is
 * preferred to its others.  The cut is one that was kept.  `replicas`: whether
 * ranks of one cell make up for each other.  NULL: out of memory. */
const struct rsh_copies *
rsh_catalogue_keep_copies(struct rsh_catalogue *c, const struct rsh_cut *cut,
			  const struct rsh_holder *holders, uint32_t n,
			  bool replicas);

/* Adds a tensor; its dims are copied, cut and copies are ones that were kept.
 * 0 and its number, or -ENOMEM. */
int rsh_catalogue_add(struct rsh_catalogue *c, const struct rsh_tensor *t,
		      uint32_t *number);

/* ---- asking ---- */

/* The index of a file, NULL if there is none. */
const struct rsh_ckpt_index *rsh_catalogue_index(const struct rsh_catalogue *c,
						 uint32_t file);
/* The record of `name` in a file, NULL if file or record is missing. */
const struct rsh_record *rsh_catalogue_record(const struct rsh_catalogue *c,
					      uint32_t file, uint32_t name);
/* "?" where a file has none. */
const char *rsh_catalogue_path(const struct rsh_catalogue *c, uint32_t file);
/* The first of c->present that is no lower than the file; their number if none
 * is. */
uint32_t rsh_catalogue_present_from(const struct rsh_catalogue *c,
				    uint32_t file);

/* ---- copies ---- */

/* Which copy supplies a cell: the one policy for all tensors that have cells.
 * (Of records that are copied as they stand the writer knows.)
 * First comes the preferred replica (rsh_cut_replica()), then, if replicas make
 * up for each other, the ones after it, the first after the last one, so that
 * the load of a lost file spreads.  Files for which avoid[file] is set are left
 * out (NULL: none are); what they leave is then found among all replicas.  False:
 * no file is left. */
bool rsh_copies_pick(const struct rsh_copies *c, uint32_t cell,
		     uint32_t replica, const atomic_bool *avoid,
		     struct rsh_holder *out);
/* How many cells some file holds, and holders there are. */
uint32_t rsh_copies_n_cells(const struct rsh_copies *c);
uint32_t rsh_copies_n_holders(const struct rsh_copies *c);
/* Tells each cell that some file holds, ascending. */
void rsh_copies_each(const struct rsh_copies *c, rsh_cell_fn *each, void *ctx);

/* Is the file to be left out? */
static inline bool rsh_is_avoided(const atomic_bool *avoid, uint32_t file)
{
	return avoid && atomic_load_explicit(&avoid[file],
					     memory_order_relaxed);
}

#endif
