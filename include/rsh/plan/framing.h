/* SPDX-License-Identifier: Apache-2.0 */
/* plan/framing.h - what stands around the records' contents in a virtual file,
 * and how what is shown is divided into files.
 *
 * A framing has no state, and any thread may call it.
 */
#ifndef RSH_PLAN_FRAMING_H
#define RSH_PLAN_FRAMING_H

#include "rsh/plan/blueprint.h"

/* Says how a writer divides what is shown into files. */
enum rsh_division {
	/* Each rank has a file; without ranks there is one. */
	RSH_DIVIDE_RANKS,
	/* A rank's weights are in one file and what its optimizer has in
	 * another, which is left out where the source has nothing for it;
	 * gradients are left out. */
	RSH_DIVIDE_KINDS,
	/* The whole model is cut into files whose contents have at most so many
	 * bytes, or which hold one larger tensor. */
	RSH_DIVIDE_PARTS,
};

/* These are the records of a file while it is laid out. */
struct rsh_file_layout {
	uint32_t n;
	/* They come in the writer's order and leave in the file's; a slot's
	 * shape has the same place as the slot. */
	struct rsh_slot *slots;
	struct rsh_record_shape *shapes;
	bool remove_redundancy; /* other ranks keep some of the parameters */
	/* lay_out() sets what stands before the first record (malloced, NULL
	 * when nothing does), and the size of the file. */
	uint8_t *header;
	size_t header_bytes;
	uint64_t bytes;
};

/* This says how a record's content is divided, each chunk between a header and
 * a trailer of its own. */
struct rsh_chunks {
	uint64_t n;
	uint64_t content_bytes; /* of all chunks but the last */
	uint64_t full_header;   /* bytes of such a chunk's header; 0: it has
				 * none */
	uint64_t last_header;
	uint64_t full_trailer, last_trailer; /* 0: there is none */
};

struct rsh_framing {
	enum rsh_file_type type; /* that readers take the file for */
	/* Lays a file out.  0, or -errno with a sentence: -EFBIG, -ENOTSUP for
	 * a parameter that the format cannot hold. */
	int (*lay_out)(struct rsh_file_layout *f, struct rsh_error *err);
	void (*chunks)(const struct rsh_record_shape *s,
		       struct rsh_chunks *out);
	/* Writes the header of the chunk whose content has `chunk_bytes` and
	 * begins at byte `at` of the record's; NULL if chunks have none. */
	size_t (*write_header)(const struct rsh_record_shape *s, uint64_t at,
			       uint64_t chunk_bytes, uint8_t *buf);
	/* Writes the trailer of a chunk; NULL if chunks have none. */
	size_t (*write_trailer)(const struct rsh_record_shape *s, uint64_t at,
				uint64_t chunk_bytes, uint8_t *buf);
};

extern const struct rsh_framing rsh_ckpt_framing;
/* These two differ in what the metadata calls the file's format: that of
 * MindSpore, and that which Hugging Face's loaders want. */
extern const struct rsh_framing rsh_safetensors_framing;
extern const struct rsh_framing rsh_hf_framing;
/* A file of items of a PyTorch distributed checkpoint: each chunk is an archive
 * of torch.save() (wire/torch_item.h), which begins on a multiple of
 * RSH_TORCH_ALIGNMENT. */
extern const struct rsh_framing rsh_dcp_framing;

/* Sets the sentence that a file got too large with this record; -EFBIG. */
int rsh_layout_too_large(const struct rsh_record_shape *s,
			 struct rsh_error *err);

#endif
