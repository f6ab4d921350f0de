/* SPDX-License-Identifier: Apache-2.0 */
/* plan/catalogue.h - a catalogue lists the tensors of a source, how each tensor
 * is cut into cells, and the copies of every cell.
 *
 * The reader of a format fills a catalogue, and plans are made from it.  It
 * depends on no framework.  A copy is a record of a file; the file's index says
 * where the record's bytes are.  Files with equal indexes share one index, and
 * tensors with equal cuts or copies share these.  So a catalogue of a thousand
 * ranks and two thousand tensors takes a few megabytes.
 *
 *   tensor w Float32 [8,4]     cut 2x1 over 4 ranks      copies
 *                              cell 0: rows 0 to 3       files 0 and 2
 *                              cell 1: rows 4 to 7       files 1 and 3
 *
 * One thread fills a catalogue; from then on any thread may read it.  It owns
 * its tensors, cuts and copies.  It owns neither names nor indexes.  Functions
 * fail only if memory is out.
 */
#pragma once

#include <stdatomic.h>

#include "rsh/plan/files.h"
#include "rsh/plan/kinds.h"
#include "rsh/tensor/cut.h"
#include "rsh/tensor/scaled.h"
#include "rsh/util/arena.h"

#define RSH_NO_FILE UINT32_MAX
#define RSH_NO_TENSOR UINT32_MAX
/* The copy is the record that has the tensor's name. */
#define RSH_BY_NAME UINT32_MAX

struct rsh_copies;

struct rsh_tensor;

/* How the elements of a tensor are quantised.  The tensor is a matrix or a
 * stack of matrices; the tensors beside it are matrices of the catalogue, or
 * have other dimensions and the same elements in the same order.  If files have
 * parts of blocks, a stack has a fourth dimension, the elements of a block;
 * each block is then a row of the matrix that has scales. */
struct rsh_quantised {
	enum rsh_packing packing;
	enum rsh_dtype via;  /* struct rsh_scaled */
	enum rsh_dtype type; /* the type that was asked for */
	const struct rsh_tensor *scales; /* of n_rows x n_columns */
	enum rsh_dtype scale_type; /* Float8E8M0FNU also if it is UInt8 */
	uint64_t n_rows, n_columns;
	uint64_t block[2];
	/* Two integers, the dimensions of the matrix, which are checked when
	 * the scales are read; NULL: none. */
	const struct rsh_tensor *shape;
	uint64_t shape_is[2];
	/* A Float32 by which the scales are divided; NULL: none. */
	const struct rsh_tensor *divisor;
	const struct rsh_tensor *zeros; /* NULL: all zero points are `zero` */
	enum rsh_zeros_packing zeros_packing;
	uint8_t zero_bits;
	uint8_t zero;      /* with `zeros`: what is added to each of them,
			    * modulo 2 to the power of zero_bits */
	/* Int32: the row of scales of each row; NULL: rows are in blocks. */
	const struct rsh_tensor *groups;
	/* Adapters that are added to the dense elements, with the tensors
	 * `factors` [n_adapters].  Elements that are not quantised
	 * (rsh_packing_is_plain()) have no scales. */
	uint32_t n_adapters;
	const struct rsh_low_rank *adapters;
	const struct rsh_factors *factors;
};

/* The two matrices of an adapter.  Number k of row r is rows[r, k], or rows[k,
 * r] if `rows_turned`; number k of column c is columns[k, c], or columns[c, k]
 * if `columns_turned`.
 *
 * Adapters of a stack have the numbers of all n_planes matrices: number k of
 * matrix p has the index k * n_planes + p as a column, and p * rank + k as a
 * row.  `plane` is the matrix of the tensor's first one. */
struct rsh_factors {
	const struct rsh_tensor *rows, *columns;
	bool rows_turned, columns_turned;
	uint64_t n_planes, plane; /* n_planes 0: as 1 */
	uint64_t first[2]; /* row and column of the product: the tensor's
			    * first element */
};

/* One tensor of the source, with all its cells. */
struct rsh_tensor {
	uint32_t name;
	enum rsh_dtype dtype;
	bool wide_bf16;         /* of all copies, as in struct rsh_record */
	uint8_t n_dims;
	const uint64_t *dims;   /* of the whole tensor */
	const struct rsh_cut *cut;
	/* NULL: no file has the tensor, and all its elements are zero.  Its
	 * cut has one cell. */
	const struct rsh_copies *copies;
	/* NULL: elements are as they are.  Otherwise the dimensions count
	 * quantised elements; the records have them in units.  Cells begin and
	 * end between units. */
	const struct rsh_quantised *quantised;
	/* Messages about missing slices name file first_file + r as the file of
	 * rank r of the cut. */
	uint32_t first_file;
};

/* Callers only read the fields. */
struct rsh_catalogue {
	struct rsh_arena arena;
	struct rsh_names *names; /* not owned */
	uint32_t n_names;

	/* [file] is the number of a file; in a tree of ranks this is the global
	 * rank. */
	uint32_t n_files;
	const struct rsh_ckpt_index **index; /* [file]; NULL: none.  The indexes
					      * are not owned. */
	char **path;                         /* [file]; may be NULL */
	uint32_t *index_id;  /* [file]: equal for files that share an index */
	uint32_t n_indexes;  /* distinct indexes */
	uint32_t n_present;
	uint32_t *present;   /* files that have an index, ascending */
	/* [name that a file has]: the first and the last such file, or
	 * UINT32_MAX */
	uint32_t *first, *last;
	uint32_t n_ends;     /* length of both: no file has other names */

	uint32_t n_tensors;
	struct rsh_tensor **tensors;
	size_t tensors_cap;
	void *cuts, *copies; /* tsearch() trees */
	struct rsh_kinds *kinds; /* NULL: they were not asked for */
	/* The rows of the vocabulary with padding, if the source says that; 0:
	 * it does not. */
	uint64_t padded_rows;
};

/* Makes a catalogue of the files of a view, without tensors.  The view's
 * indexes and names must outlive it; the view's arrays need not.  NULL: out of
 * memory. */
struct rsh_catalogue *rsh_catalogue_new(const struct rsh_source_view *view);
void rsh_catalogue_free(struct rsh_catalogue *c);
/* Adds the files beside the checkpoint that the view of the catalogue has.
 * They have the same numbers.  Returns 0 or -ENOMEM. */
int rsh_catalogue_add_beside(struct rsh_catalogue *c,
			     const struct rsh_source_view *view);
/* Updates n_names after names were added to the table. */
void rsh_catalogue_update_names(struct rsh_catalogue *c);

/* Finds the kinds of the parameters of its files, once.  Returns 0 or
 * -ENOMEM. */
int rsh_catalogue_find_kinds(struct rsh_catalogue *c);

/* Checks that no tensor of its files is quantised, unless some were made dense:
 * a cast would round scales, and not change codes.  `by` is the file that says
 * that weights are; NULL: none does.  Returns 0, -ENOMEM, or -EINVAL with a
 * sentence. */
int rsh_catalogue_check_cast(const struct rsh_catalogue *c, const char *by,
			     struct rsh_error *err);

/* Takes the cut over, also on failure, and returns the catalogue's cut that is
 * equal to it.  NULL: out of memory, or `cut` is NULL. */
const struct rsh_cut *rsh_catalogue_keep_cut(struct rsh_catalogue *c,
					     struct rsh_cut *cut);

/* Record `record` of `file` is the cell of `rank` of the cut. */
struct rsh_holder {
	uint32_t rank;
	uint32_t file;
	uint32_t record; /* number in the file's index, or RSH_BY_NAME */
};

/* Keeps the copies of a tensor's cells.  The copies are the n holders.  If one
 * rank has several, the first is preferred.  `cut` is from
 * rsh_catalogue_keep_cut().
 * With `replicas` a cell may be read from any rank that holds it.  The
 * catalogue owns the result and keeps equal copies once.  NULL: out of
 * memory. */
const struct rsh_copies *
rsh_catalogue_keep_copies(struct rsh_catalogue *c, const struct rsh_cut *cut,
			  const struct rsh_holder *holders, uint32_t n,
			  bool replicas);

/* Adds a tensor.  Its dims are copied; cut and copies are the catalogue's.  0
 * and its number, or -ENOMEM. */
int rsh_catalogue_add(struct rsh_catalogue *c, const struct rsh_tensor *t,
		      uint32_t *number);
/* Adds a tensor that no file has: all elements are zero.  Its cut and copies
 * are not looked at.  0 and its number, or -ENOMEM. */
int rsh_catalogue_add_zeros(struct rsh_catalogue *c, const struct rsh_tensor *t,
			    uint32_t *number);
/* Adds the tensor that a record of the file has whole; it is in no other file.
 * 0 and its number, or -errno with a sentence. */
int rsh_catalogue_add_record(struct rsh_catalogue *c, uint32_t file,
			     const struct rsh_ckpt_index *ix, uint32_t record,
			     uint32_t *number, struct rsh_error *err);

/* ---- queries ---- */

/* Returns the index of a file, NULL if it has none. */
const struct rsh_ckpt_index *rsh_catalogue_index(const struct rsh_catalogue *c,
						 uint32_t file);
/* Returns the record of `name` in a file, NULL if file or record is missing. */
const struct rsh_record *rsh_catalogue_record(const struct rsh_catalogue *c,
					      uint32_t file, uint32_t name);
/* Returns the first file with a record of `name`, UINT32_MAX if none has it. */
uint32_t rsh_catalogue_first(const struct rsh_catalogue *c, uint32_t name);
/* Returns the last such file, UINT32_MAX if none has it. */
uint32_t rsh_catalogue_last(const struct rsh_catalogue *c, uint32_t name);
/* Returns the path of a file for messages, "?" if it has none. */
const char *rsh_catalogue_path(const struct rsh_catalogue *c, uint32_t file);
/* Returns the index in c->present of the first file >= `file`, or n_present. */
uint32_t rsh_catalogue_present_from(const struct rsh_catalogue *c,
				    uint32_t file);

/* ---- copies ---- */

/* Picks the copy of a cell to read.  (For copied records rsh_plan_ops.pick()
 * does this.)  It first tries the preferred replica (rsh_cut_replica()).  If
 * `replicas` was set, it then tries the replicas after that one, and continues
 * with the first after the last: so the reads of a lost file are spread over
 * the others.  It skips files with avoid[file] set.  If `avoid` is not NULL it
 * tries all replicas, even if `replicas` was not set.  False: no file is
 * left. */
bool rsh_copies_pick(const struct rsh_copies *c, uint32_t cell,
		     uint32_t replica, const atomic_bool *avoid,
		     struct rsh_holder *out);
/* Calls `each` for the tensors beside a quantised tensor. */
void rsh_quantised_each(const struct rsh_quantised *q,
			void (*each)(void *ctx, const struct rsh_tensor *t),
			void *ctx);

/* Returns how tensors of this type are described that are not quantised and
 * have no adapter; NULL: adapters cannot be added to tensors of this type. */
const struct rsh_quantised *rsh_quantised_plain(enum rsh_dtype type);

/* Bytes of a record that are contiguous in a file. */
struct rsh_stretch {
	uint32_t file;
	uint64_t offset, length;
	uint64_t at; /* where they are among the elements that were asked for */
};
/* Calls `each` for the places of the elements of a box of the tensor, in any
 * order.  The function stops when `each` does not return 0, and returns that.
 * Returns -EIO if no file holds some of the elements. */
int rsh_tensor_box(const struct rsh_catalogue *c, const struct rsh_tensor *t,
		   const struct rsh_box *box, const atomic_bool *avoid,
		   int (*each)(void *ctx, const struct rsh_stretch *s),
		   void *ctx);

/* Return the number of cells that some file holds, and of holders. */
uint32_t rsh_copies_n_cells(const struct rsh_copies *c);
uint32_t rsh_copies_n_holders(const struct rsh_copies *c);
/* Returns whether the copies were kept with `replicas`. */
bool rsh_copies_have_replicas(const struct rsh_copies *c);
/* Returns the holders, in the order given to rsh_catalogue_keep_copies(). */
const struct rsh_holder *rsh_copies_holders(const struct rsh_copies *c);
/* Calls `each` for every cell that some file holds, in ascending order. */
void rsh_copies_each(const struct rsh_copies *c, rsh_cell_fn *each, void *ctx);

/* Returns whether the file must not be read. */
static inline bool rsh_is_avoided(const atomic_bool *avoid, uint32_t file)
{
	return avoid && atomic_load_explicit(&avoid[file],
					     memory_order_relaxed);
}
