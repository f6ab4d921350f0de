/* SPDX-License-Identifier: Apache-2.0 */
/* plan/framing_i.h - what stands around the records' contents in a virtual
 * file, which is what its format comes down to. */
#ifndef RSH_PLAN_FRAMING_I_H
#define RSH_PLAN_FRAMING_I_H

#include "plan_i.h"

/* The records of a file while it is laid out. */
struct rsh_file_layout {
	uint32_t n;
	/* In the converter's order before, in the file's order afterwards; a
	 * slot's shape has its number. */
	struct rsh_slot *slots;
	struct rsh_record_shape *shapes;
	bool remove_redundancy; /* other ranks keep some of the parameters */
	/* Afterwards: what stands before the first record (malloced, NULL when
	 * nothing does), and the size of the file. */
	uint8_t *header;
	size_t header_bytes;
	uint64_t bytes;
};

/* How a record's content is divided, each chunk behind a header of its own. */
struct rsh_chunks {
	uint64_t n;
	uint64_t content_bytes; /* of all chunks but the last */
	uint64_t full_header;   /* header of such a chunk; 0: none */
	uint64_t last_header;
};

struct rsh_framing {
	/* 0, or -errno with a sentence: -EFBIG, -ENOTSUP for a parameter that
	 * the format cannot hold. */
	int (*lay_out)(struct rsh_file_layout *f, struct rsh_error *err);
	void (*chunks)(const struct rsh_record_shape *s,
		       struct rsh_chunks *out);
	/* NULL if chunks have no headers. */
	size_t (*write_header)(const struct rsh_record_shape *s,
			       uint64_t chunk_bytes, uint8_t *buf);
};

extern const struct rsh_framing rsh_ckpt_framing;
/* The two differ in what the metadata calls the file's format. */
extern const struct rsh_framing rsh_safetensors_framing;
extern const struct rsh_framing rsh_hf_framing;

/* For the framings: the file got too large with this record. */
int rsh_layout_too_large(const struct rsh_record_shape *s,
			 struct rsh_error *err);

#endif
