/* SPDX-License-Identifier: Apache-2.0 */
/* source/header_i.h - headers of safetensors files that are the same byte for
 * byte, for index.c.
 *
 * Ranks mostly save tensors of the same names and shapes, and to take the JSON
 * of a header apart is nearly all that a scan costs: a header that was seen
 * before, of a file of that size, has the index that it had then. */
#ifndef RSH_SOURCE_HEADER_I_H
#define RSH_SOURCE_HEADER_I_H

#include <xxhash.h>

#include "rsh/wire/ckpt.h"

/* The first bytes of a file, up to the end of the header, and the rest. */
struct rsh_header {
	uint8_t *bytes; /* NULL: they are no header, or memory is out */
	size_t n;
	XXH128_hash_t hash; /* of them and the file's size */
	const struct rsh_byte_source *file;
};

/* Reads the header; what is wrong with it is for the scan to say. */
void rsh_header_read(const struct rsh_byte_source *file,
		     struct rsh_header *out);
void rsh_header_clear(struct rsh_header *h);
/* Gives a source of the file's bytes that does not read the header again; it
 * lasts as long as h. */
struct rsh_byte_source rsh_header_source(struct rsh_header *h);

#endif
