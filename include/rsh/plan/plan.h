/* SPDX-License-Identifier: Apache-2.0 */
/* plan/plan.h - what every virtual file holds and where its bytes are.
 *
 * A plan is a blueprint laid over a catalogue: of each virtual file it knows
 * the records, their places and sizes, and for every byte the source file and
 * offset that it comes from.  Nothing is read here.
 *
 * Files of different ranks nearly always have the same records, so these are
 * stored once and the rank enters only when pieces are asked for.
 *
 * A plan is immutable once made (plan/blueprint.h), and any thread may ask it.
 * It owns all that it gives, but for iterators.
 */
#ifndef RSH_PLAN_PLAN_H
#define RSH_PLAN_PLAN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rsh/tensor/codec.h"
#include "rsh/tensor/cut.h"
#include "rsh/util/error.h"
#include "rsh/wire/ckpt.h"
#include "rsh/wire/file_type.h"

struct rsh_plan;

void rsh_plan_free(struct rsh_plan *p);

/* Gives the i-th sentence on what is shown, for the log; NULL past the last. */
const char *rsh_plan_note(const struct rsh_plan *p, uint32_t i);
/* Does that one say where the result differs from what others would make, and
 * nothing else? */
bool rsh_plan_note_is_aside(const struct rsh_plan *p, uint32_t i);

/* Gives a sentence on the slices that cannot be had, with the first as an
 * example; NULL: there are none. */
const char *rsh_plan_lost(const struct rsh_plan *p);

uint32_t rsh_plan_n_files(const struct rsh_plan *p);
/* Gives how many files each rank has, 1 or 2; file number i is one of rank i
 * divided by this. */
uint32_t rsh_plan_files_of_rank(const struct rsh_plan *p);

/* ---- one virtual file: the file of destination rank `rank`, or that part of
 * the model ---- */

/* Gives the size in bytes.  It is never 0 for a file that needs lost slices:
 * nobody reads an empty one, and so nobody would be told. */
uint64_t rsh_plan_size(const struct rsh_plan *p, uint32_t rank);
uint32_t rsh_plan_n_records(const struct rsh_plan *p, uint32_t rank);
/* Gives what the files' names have between the rank and the format's suffix: ""
 * or, in compat mode after a by-stage conversion, "_part<stage>". */
const char *rsh_plan_name_suffix(const struct rsh_plan *p);
/* Gives the source files whose bytes the file holds, in ascending order. */
const uint32_t *rsh_plan_sources(const struct rsh_plan *p, uint32_t rank,
				 uint32_t *n);

/* Does the file need slices that cannot be had?  Then it must not be read. */
bool rsh_plan_is_lost(const struct rsh_plan *p, uint32_t rank);

/* This is a record of a virtual file, for those who list them. */
struct rsh_virtual_record {
	struct rsh_record_shape shape;
	uint64_t offset;      /* of its first header in the virtual file */
	uint64_t total_bytes; /* headers included */
	bool resharded;       /* false: copied from one source file */
	uint32_t name;        /* its number in the catalogue's names */
	/* These are of the tensor that it is a cell of, and NULL if it is
	 * copied. */
	const struct rsh_cut *cut;
	const uint64_t *whole_dims;
};
void rsh_plan_record(const struct rsh_plan *p, uint32_t rank, uint32_t i,
		     struct rsh_virtual_record *out);
/* Do two files have the same records, cells of the same tensors? */
bool rsh_plan_same_records(const struct rsh_plan *p, uint32_t a, uint32_t b);

/* A tile is a matrix of elements of a source file that is shown transposed.
 * Rows of it follow each other in the file, `stride` elements apart, and so do
 * the elements of a row.  What is shown is its columns: the tile's first
 * column, then the second, each of n_rows elements.  Equal tiles have equal
 * contents, whoever asks for them, as long as the source stays the same.
 *
 * Plans make tiles as large as RSH_TILE_BYTES allows, so that each byte of the
 * source is read once for many stretches of the virtual file. */
#define RSH_TILE_BYTES ((uint64_t)8 * 1024 * 1024)

struct rsh_tile {
	uint32_t src_rank;   /* the source file */
	uint64_t src_offset; /* of its first element */
	uint64_t n_rows, n_columns;
	uint64_t stride;     /* elements from row to row, >= n_columns */
	uint32_t unit_in;    /* bytes of an element in the source */
	uint32_t unit_out;   /* and as it is shown */
};

/* A matrix of scales has at most so many bytes, since it is held whole. */
#define RSH_SCALES_MAX RSH_TILE_BYTES

/* Says where the scales of a piece or tile are: a matrix of Float32 in a source
 * file.  Element number e after the first one, counted in the source, is number
 * n = first + e of a matrix with `columns` columns, and is multiplied with
 * scale [n / columns / block[0], n % columns / block[1]]. */
struct rsh_scales {
	uint32_t src_rank;
	uint64_t src_offset;
	uint64_t n_rows, n_columns; /* of the scales */
	uint64_t block[2];
	uint64_t first, columns;    /* of the elements */
};

/* A piece is a stretch of a virtual file that has one origin. */
struct rsh_piece {
	uint64_t file_offset; /* in the virtual file */
	uint64_t length;      /* bytes of the virtual file, > 0 */
	bool is_header;       /* the bytes are at `header`, nothing to read */
	const uint8_t *header; /* valid until the iterator moves on */
	/* What follows is set unless it is a header: */
	uint32_t src_rank;    /* the source file */
	uint64_t src_offset;  /* in the source file: the first element */
	uint64_t src_length;  /* bytes to read there; == length if no codec */
	enum rsh_codec codec;
	uint32_t skip;        /* codec: bytes of the first decoded element that
			       * stand before file_offset */
	bool is_tiled;        /* the bytes are those of `tile` as it is shown,
			       * from byte tile_offset on; src_offset,
			       * src_length and skip mean nothing then */
	struct rsh_tile tile;
	uint64_t tile_offset;
	struct rsh_scales scales; /* set for RSH_CODEC_FP8_SCALED */
};

struct rsh_piece_iter;

/* Walks the pieces of bytes [offset, offset+length) of the file in ascending
 * order; they cover exactly that range cut at the file's size.  `avoid` is NULL
 * or says for each source file whether it is to be avoided, by taking replicas;
 * it may change while the iterator lives.  An iterator is for one thread and
 * belongs to the caller.  NULL: out of memory, or there is no such file. */
struct rsh_piece_iter *rsh_piece_iter_new(const struct rsh_plan *p,
					  uint32_t rank, uint64_t offset,
					  uint64_t length,
					  const atomic_bool *avoid);
/* The same of bytes [offset, offset+length) of the content of a record, cut at
 * its end: no piece is a header of the file's format, and places in the virtual
 * file are places in the content. */
struct rsh_piece_iter *rsh_piece_iter_content(const struct rsh_plan *p,
					      uint32_t rank, uint32_t record,
					      uint64_t offset, uint64_t length,
					      const atomic_bool *avoid);
/* Gives the next piece.  False past the last one, and where they end early. */
bool rsh_piece_iter_next(struct rsh_piece_iter *it, struct rsh_piece *out);
/* Says why there is no next piece: 0 past the last one, -ENOMEM, or -EIO where no
 * file is left that holds it. */
int rsh_piece_iter_status(const struct rsh_piece_iter *it);

/* These are rows of a matrix that come from the same source files in the same
 * way. */
struct rsh_rows {
	uint64_t n;          /* > 0 */
	uint64_t bytes;      /* of one, in the virtual file */
	uint64_t src_stride; /* from row to row in each of the source files */
};

/* True if the pieces given last make a row, none of them with a codec, and
 * `out` tells what the next ones would be: for each piece of that row one in
 * each of n further rows. */
bool rsh_piece_iter_rows(const struct rsh_piece_iter *it, struct rsh_rows *out);
/* Goes on behind these rows. */
void rsh_piece_iter_skip(struct rsh_piece_iter *it,
			 const struct rsh_rows *rows);

void rsh_piece_iter_free(struct rsh_piece_iter *it);

#endif
