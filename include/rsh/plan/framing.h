/* SPDX-License-Identifier: Apache-2.0 */
/* plan/framing.h - the file formats of virtual files.  A framing defines the
 * headers and trailers of records, and their order in a file.
 *
 * A framing has no state; any thread may call it.
 */
#pragma once

#include "rsh/plan/blueprint.h"
#include "rsh/wire/safetensors.h"

/* This says how records are divided into files. */
enum rsh_division {
	/* Each rank has a file; without ranks there is one. */
	RSH_DIVIDE_RANKS,
	/* Each rank has a file of weights and a file of optimizer parameters.
	 * The second is left out if the source has none.  Gradients are left
	 * out. */
	RSH_DIVIDE_KINDS,
	/* The whole model is divided into files of at most so many bytes of
	 * content, or of one larger tensor. */
	RSH_DIVIDE_PARTS,
};

/* The records of a file whose layout is computed. */
struct rsh_file_layout {
	uint32_t n;
	/* lay_out() sorts both arrays into the order of the file. */
	struct rsh_slot *slots;
	struct rsh_record_shape *shapes; /* [slot] */
	bool remove_redundancy; /* other ranks keep some of the parameters */
	const void *form; /* struct rsh_plan_options */
	/* lay_out() sets these: the bytes before the first record and after the
	 * last one (from malloc; NULL: none), and the size of the file. */
	uint8_t *header, *trailer;
	size_t header_bytes, trailer_bytes;
	uint64_t bytes;
};

/* This says how a record's content is divided into chunks.  Each chunk follows
 * a header of its own and is followed by a trailer of its own. */
struct rsh_chunks {
	uint64_t n;
	uint64_t content_bytes; /* of each chunk but the last */
	uint64_t full_header;   /* header bytes of such a chunk; may be 0 */
	uint64_t last_header;   /* header bytes of the last chunk */
	uint64_t full_trailer, last_trailer; /* bytes after the content */
};

struct rsh_framing {
	enum rsh_file_type type;
	/* Computes the layout; header and trailer are NULL before.  0, or
	 * -errno with a message: -EFBIG, -ENOTSUP for a parameter that the
	 * format cannot hold. */
	int (*lay_out)(struct rsh_file_layout *f, struct rsh_error *err);
	void (*chunks)(const struct rsh_record_shape *s,
		       struct rsh_chunks *out);
	/* Writes the header of a chunk.  The chunk's content has `chunk_bytes`
	 * bytes and begins at byte `at` of the record's content.  `crc` is the
	 * CRC-32 of the content; 0: it is not known.  NULL: chunks have no
	 * header. */
	size_t (*write_header)(const struct rsh_record_shape *s, uint64_t at,
			       uint64_t chunk_bytes, uint32_t crc,
			       uint8_t *buf);
	/* Writes the trailer of a chunk.  NULL: chunks have no trailer. */
	size_t (*write_trailer)(const struct rsh_record_shape *s, uint64_t at,
				uint64_t chunk_bytes, uint32_t crc,
				uint8_t *buf);
	/* Headers or trailers have the CRC.  Files that are written have it.
	 * Files that are computed when they are read do not. */
	bool has_crc;
	/* Returns whether a tensor that the source has in another order of
	 * dimensions, s->order, is written in that order.  NULL: all tensors
	 * are written in row-major order. */
	bool (*keeps_order)(const struct rsh_record_shape *s);
};

extern const struct rsh_framing rsh_ckpt_framing;
/* These two differ in the format that the metadata names: "ms", and "pt" for
 * Hugging Face's loaders. */
extern const struct rsh_framing rsh_safetensors_framing;
extern const struct rsh_framing rsh_hf_framing;
/* The form of the second one is the metadata of every file, which name the
 * format too.  NULL: the format alone. */
struct rsh_hf_form {
	uint32_t n;
	struct rsh_safetensors_entry entries[];
};
/* A file of items of a PyTorch distributed checkpoint: each chunk is an archive
 * of torch.save() (wire/torch_item.h), which begins on a multiple of
 * RSH_TORCH_ALIGNMENT. */
extern const struct rsh_framing rsh_dcp_framing;

/* Sets the message that this record makes the file too large, and returns
 * -EFBIG. */
int rsh_layout_too_large(const struct rsh_record_shape *s,
			 struct rsh_error *err);
