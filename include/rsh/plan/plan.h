/* SPDX-License-Identifier: Apache-2.0 */
/* plan/plan.h - a plan describes the content of every virtual file.
 *
 * A plan has the records of each virtual file, their offsets and sizes, and for
 * every byte the source file and offset that it comes from.  Code that makes or
 * uses a plan does not read source files.
 *
 * Files of different ranks nearly always have the same records.  These are
 * stored once; the rank is used only when pieces are computed.
 *
 * A plan is immutable once it is made (plan/blueprint.h), and any thread may
 * use it.  It owns what its functions return.  The caller owns iterators.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "rsh/plan/param_kind.h"
#include "rsh/tensor/codec.h"
#include "rsh/tensor/cut.h"
#include "rsh/util/error.h"
#include "rsh/wire/ckpt.h"
#include "rsh/wire/file_type.h"

struct rsh_plan;
struct rsh_catalogue;
struct rsh_tensor;

void rsh_plan_free(struct rsh_plan *p);

/* Returns the i-th note for the log; NULL past the last. */
const char *rsh_plan_note(const struct rsh_plan *p, uint32_t i);
/* Returns whether note i is about a difference from what MindSpore's converter
 * would write. */
bool rsh_plan_note_is_difference(const struct rsh_plan *p, uint32_t i);

/* Returns the kind of a parameter of a plan that divides or casts kinds. */
enum rsh_kind rsh_plan_kind(const struct rsh_plan *p, uint32_t name,
			    const char *text);

/* Returns a sentence about the lost slices, with the first as an example; NULL:
 * none is lost. */
const char *rsh_plan_lost(const struct rsh_plan *p);

uint32_t rsh_plan_n_files(const struct rsh_plan *p);
/* Returns how many files each rank has, 1 or 2.  File i belongs to the rank
 * i / this number, rounded down. */
uint32_t rsh_plan_files_of_rank(const struct rsh_plan *p);

/* ---- one virtual file ----
 *
 * `rank` is the number of the file: of the file of that destination rank, or of
 * that part of the model. */

/* Returns the size in bytes.  A file that needs lost slices has at least 1
 * byte: programs do not read empty files, and so would not get the error. */
uint64_t rsh_plan_size(const struct rsh_plan *p, uint32_t rank);
uint32_t rsh_plan_n_records(const struct rsh_plan *p, uint32_t rank);
/* Returns the part of file names between the rank and the format's suffix: ""
 * or, in compat mode after a by-stage conversion, "_part<stage>". */
const char *rsh_plan_name_suffix(const struct rsh_plan *p);
/* Returns the source files whose bytes the file holds, in ascending order. */
const uint32_t *rsh_plan_sources(const struct rsh_plan *p, uint32_t rank,
				 uint32_t *n);

/* Returns whether the file needs lost slices.  Such a file must not be read. */
bool rsh_plan_is_lost(const struct rsh_plan *p, uint32_t rank);

/* A record of a virtual file. */
struct rsh_virtual_record {
	struct rsh_record_shape shape;
	uint64_t offset;      /* of its first header in the virtual file */
	uint64_t total_bytes; /* headers included */
	bool resharded;       /* false: copied from one source file */
	uint32_t name;        /* its number in the catalogue's names */
	/* Of the tensor that it is a cell of; NULL for a copied record. */
	const struct rsh_cut *cut;
	const uint64_t *whole_dims;
};
void rsh_plan_record(const struct rsh_plan *p, uint32_t rank, uint32_t i,
		     struct rsh_virtual_record *out);
/* Returns whether two files have the same records, which are cells of the same
 * tensors. */
bool rsh_plan_same_records(const struct rsh_plan *p, uint32_t a, uint32_t b);

/* A tile is a matrix of elements of a source file that is shown transposed.  In
 * the file the rows are `stride` elements apart, and the elements of a row
 * follow each other.  The virtual file shows its columns: the first column,
 * then the second, each of n_rows elements.  Equal tiles have equal contents as
 * long as the source does not change.
 *
 * Tiles are as large as RSH_TILE_BYTES allows, so that each byte of the source
 * is read once for many parts of the virtual file. */
#define RSH_TILE_BYTES ((uint64_t)8 * 1024 * 1024)

struct rsh_tile {
	uint32_t src_rank;   /* the source file */
	uint64_t src_offset; /* of its first element */
	uint64_t n_rows, n_columns;
	uint64_t stride;     /* elements from row to row, >= n_columns */
	uint32_t unit_in;    /* bytes of a unit in the source */
	uint32_t unit_out;   /* bytes of an element as it is shown */
	uint32_t per;        /* elements of a unit, which divide n_columns and
			      * stride; 0 means 1 */
	uint32_t down;       /* rows that have elements in one unit, which
			      * divide n_rows: `stride` goes from one row of
			      * units to the next; 0 means 1 */
};

/* Returns the bytes of n elements of a row in the source. */
static inline uint64_t rsh_tile_stored(const struct rsh_tile *t, uint64_t n)
{
	return (t->per ? n / t->per : n) * t->unit_in;
}

/* The quantised tensor of a piece or tile, and the cell that has it.  Element
 * `first` of the cell, in row-major order, is the first one of the piece or
 * tile, and begins a unit. */
struct rsh_scales {
	const struct rsh_catalogue *cat;
	const struct rsh_tensor *tensor; /* NULL: not quantised */
	uint64_t from[3]; /* these and the next lines as in struct rsh_scaled */
	uint64_t rows, columns;
	uint64_t parts, first_part;
	uint64_t first;
};

/* A piece is a range of a virtual file that has one origin. */
struct rsh_piece {
	uint64_t file_offset; /* in the virtual file */
	uint64_t length;      /* bytes of the virtual file, > 0 */
	bool is_header;       /* the bytes are at `header`, none are read */
	const uint8_t *header; /* valid until the iterator's next call */
	/* Set unless it is a header: */
	uint32_t src_rank;    /* the source file */
	uint64_t src_offset;  /* in the source file: the first element */
	uint64_t src_length;  /* bytes to read there; == length if no codec */
	enum rsh_codec codec;
	uint32_t skip;        /* codec: bytes of what is decoded that precede
			       * file_offset */
	bool is_tiled;        /* the bytes are those of `tile` as it is shown,
			       * from byte tile_offset on; src_offset,
			       * src_length and skip are not used */
	struct rsh_tile tile;
	uint64_t tile_offset;
	struct rsh_scales scales; /* set for a codec with scales */
};

struct rsh_piece_iter;

/* Makes an iterator over the pieces of bytes [offset, offset+length) of the
 * file, in ascending order; they cover exactly that range, cut at the file's
 * size.  `avoid` is NULL or has true for each source file to avoid (replicas
 * are read instead); it may change while the iterator lives.  The caller owns
 * the iterator, which is for one thread.  NULL: out of memory, or there is no
 * such file. */
struct rsh_piece_iter *rsh_piece_iter_new(const struct rsh_plan *p,
					  uint32_t rank, uint64_t offset,
					  uint64_t length,
					  const atomic_bool *avoid);
/* Makes an iterator over bytes [offset, offset+length) of the content of a
 * record, cut at its end.  No piece is a header of the file's format, and
 * file_offset is an offset in the content. */
struct rsh_piece_iter *rsh_piece_iter_content(const struct rsh_plan *p,
					      uint32_t rank, uint32_t record,
					      uint64_t offset, uint64_t length,
					      const atomic_bool *avoid);
/* Gives the next piece.  False past the last one or after a failure. */
bool rsh_piece_iter_next(struct rsh_piece_iter *it, struct rsh_piece *out);
/* Returns why there is no next piece: 0 past the last one, -ENOMEM, or -EIO if
 * no file is left that holds it. */
int rsh_piece_iter_status(const struct rsh_piece_iter *it);

/* Rows of a matrix that come from the same source files in the same way. */
struct rsh_rows {
	uint64_t n;          /* > 0 */
	uint64_t bytes;      /* of one, in the virtual file */
	uint64_t src_stride; /* from row to row in each of the source files */
};

/* True if the last pieces make a row without codecs that repeats: `out` then
 * describes the n rows that follow, which have the same pieces. */
bool rsh_piece_iter_rows(const struct rsh_piece_iter *it, struct rsh_rows *out);
/* Moves the iterator to the position after these rows. */
void rsh_piece_iter_skip(struct rsh_piece_iter *it,
			 const struct rsh_rows *rows);

void rsh_piece_iter_free(struct rsh_piece_iter *it);
