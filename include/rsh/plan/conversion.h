/* SPDX-License-Identifier: Apache-2.0 */
/* plan/conversion.h - what every virtual file holds and where its bytes are.
 *
 * A conversion joins a source strategy, a destination strategy and the record
 * indexes of the source files.  From it follow, for each destination rank, the
 * records of its file in the converter's order, their sizes, and for every
 * byte the source file and offset it comes from.  Nothing is read here.
 *
 * Where both strategies put every slice on the same ranks, and nothing is asked
 * for that would change it, a rank's file is its source file, byte for byte, or
 * that of a rank that holds the same slice of everything.
 *
 * Files of different ranks nearly always have the same records, so these are
 * stored once and the rank enters only when pieces are asked for.
 *
 * Immutable once made: any thread may ask.
 */
#ifndef RSH_PLAN_CONVERSION_H
#define RSH_PLAN_CONVERSION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rsh/strategy/strategy.h"
#include "rsh/tensor/codec.h"
#include "rsh/util/error.h"
#include "rsh/util/names.h"
#include "rsh/wire/ckpt.h"
#include "rsh/wire/format.h"

/* The source files as the plan sees them; arrays go by the global rank. */
struct rsh_source_view {
	uint32_t n_ranks;                           /* length of the arrays */
	const struct rsh_ckpt_index *const *index;  /* [rank]; NULL: no file,
						     * or none that is valid */
	const char *const *path;                    /* [rank]; for messages */
	struct rsh_names *names;
	enum rsh_format format;                     /* of the files */
	bool joined; /* rank 0's index is that of several files end to end */
};

enum rsh_unlisted {
	RSH_UNLISTED_COPY, /* the converter's way */
	RSH_UNLISTED_DROP,
	RSH_UNLISTED_ERROR,
};

struct rsh_conversion_options {
	enum rsh_format format; /* of the virtual files */
	/* Without a destination strategy: the whole model is cut into files
	 * whose contents have at most so many bytes, or which hold one larger
	 * tensor, in the form that Hugging Face tools read (safetensors).  0:
	 * one file. */
	uint64_t part_bytes;
	/* The bytes MindSpore's converter writes, also where they are wrong or
	 * lossy.  Where it writes none, the same as without. */
	bool compat;
	/* A slice whose file is missing, or lacks the parameter, comes from
	 * another rank that holds the same slice. */
	bool replicas;
	/* Plan although some slices cannot be had: the files that need them
	 * are marked lost. */
	bool allow_missing;
	/* Without any strategy: how many ranks to show, each the copy of its
	 * own file or, with replicas, of whichever there is, and with what
	 * that one lacks and another has.  0: one. */
	uint32_t copies;
	/* What becomes of records that the destination's strategy does not
	 * list. */
	enum rsh_unlisted unlisted;
	/* Which parameters are wanted, by their names in the source; NULL:
	 * all.  That none is left is an error. */
	bool (*wanted)(void *ctx, const char *name);
	/* The name to be written instead, which must live as long as the
	 * conversion, or NULL to keep it; may be NULL. */
	const char *(*rename)(void *ctx, const char *name);
	/* Weights of another floating point type are given this one:
	 * RSH_DTYPE_BFLOAT16, _FLOAT16 or _FLOAT32; RSH_DTYPE_UNKNOWN: none.
	 * Weights are Float32, Float16 and BFloat16 tensors of at least one
	 * dimension that are not the optimizer's. */
	enum rsh_dtype cast;
	/* Each handled parameter is kept by one rank of those that hold the
	 * same slice of it, dealt out as MindSpore's ModelCheckpoint does with
	 * remove_redundancy. */
	bool remove_redundancy;
	/* Told one sentence for each slice that cannot be had; may be NULL. */
	void (*report_lost)(void *ctx, const char *sentence);
	void *ctx;
};

struct rsh_conversion;

/* The source ranks that the strategies speak of, whose files are worth
 * indexing: first .. first + n - 1.  Without a source strategy that is any rank
 * (*n is UINT32_MAX), as all hold the same, or with a destination's and no
 * replicas rank 0. */
void rsh_conversion_source_ranks(const struct rsh_strategy *src,
				 const struct rsh_strategy *dst,
				 const struct rsh_names *names, bool replicas,
				 uint32_t *first, uint32_t *n);

/* Plans the file of every destination rank.  A NULL strategy is the whole
 * model on one device.  The conversion keeps pointers into both strategies and
 * the view's indexes and names, which must outlive it; the view itself and its
 * arrays need not.  0, or -errno with a sentence: -EINVAL when the strategies
 * and files contradict each other, -ENOENT when a needed file is missing, -EFBIG
 * when a virtual file would be larger than files can be, -ENOTSUP when its
 * format cannot hold a parameter. */
int rsh_conversion_new(const struct rsh_strategy *src,
		       const struct rsh_strategy *dst,
		       const struct rsh_source_view *view,
		       const struct rsh_conversion_options *opts,
		       struct rsh_conversion **out, struct rsh_error *err);
void rsh_conversion_free(struct rsh_conversion *c);

/* Sentences on where the result differs from the converter's, one at a time,
 * for the log; NULL past the last. */
const char *rsh_conversion_note(const struct rsh_conversion *c, uint32_t i);

/* A sentence on the slices that cannot be had, with the first as an example;
 * NULL: there is none. */
const char *rsh_conversion_lost(const struct rsh_conversion *c);

enum rsh_format rsh_conversion_format(const struct rsh_conversion *c);
uint32_t rsh_conversion_n_files(const struct rsh_conversion *c);

/* ---- one virtual file: the file of destination rank `rank`, or that part of
 * the model ---- */

/* In bytes.  Never 0 of a file that needs lost slices: nobody reads an empty
 * one, and so nobody would be told. */
uint64_t rsh_conversion_size(const struct rsh_conversion *c, uint32_t rank);
uint32_t rsh_conversion_n_records(const struct rsh_conversion *c,
				  uint32_t rank);
/* What the file's name has between the rank and the format's suffix: "" or, in
 * compat mode after a by-stage conversion, "_part<stage>". */
const char *rsh_conversion_name_suffix(const struct rsh_conversion *c);
/* Ascending list of the source ranks whose bytes the file holds. */
const uint32_t *rsh_conversion_sources(const struct rsh_conversion *c,
				       uint32_t rank, uint32_t *n);

/* True if the file needs slices that cannot be had: it must not be read. */
bool rsh_conversion_is_lost(const struct rsh_conversion *c, uint32_t rank);

/* A record of a virtual file, for those who list them. */
struct rsh_virtual_record {
	struct rsh_record_shape shape;
	uint64_t offset;      /* of its first header in the virtual file */
	uint64_t total_bytes; /* headers included */
	bool resharded;       /* false: copied from one source file */
};
void rsh_conversion_record(const struct rsh_conversion *c, uint32_t rank,
			   uint32_t i, struct rsh_virtual_record *out);

/* A stretch of a virtual file that has one origin. */
struct rsh_piece {
	uint64_t file_offset; /* in the virtual file */
	uint64_t length;      /* bytes of the virtual file, > 0 */
	bool is_header;       /* the bytes are at `header`, nothing to read */
	const uint8_t *header; /* valid until the iterator moves on */
	/* else: */
	uint32_t src_rank;
	uint64_t src_offset;  /* in the source file: the first element */
	uint64_t src_length;  /* bytes to read there; == length if no codec */
	enum rsh_codec codec;
	uint32_t skip;        /* codec: bytes of the first decoded element that
			       * stand before file_offset */
};

struct rsh_piece_iter;

/* Walks the pieces of bytes [offset, offset+length) of the file in ascending
 * order; they cover exactly that range cut at the file's size.  `avoid` is NULL
 * or says for each global source rank whether its file is to be avoided, by
 * taking replicas; it may change while the iterator lives.  An iterator is for
 * one thread.  NULL: out of memory. */
struct rsh_piece_iter *rsh_piece_iter_new(const struct rsh_conversion *c,
					  uint32_t rank, uint64_t offset,
					  uint64_t length,
					  const atomic_bool *avoid);
/* False past the last piece, and where they end early: no file is left that
 * holds the next, or memory is out. */
bool rsh_piece_iter_next(struct rsh_piece_iter *it, struct rsh_piece *out);

/* Rows of a matrix that come from the same source files in the same way. */
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
