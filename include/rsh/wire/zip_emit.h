/* SPDX-License-Identifier: Apache-2.0 */
/* wire/zip_emit.h - writes the parts of a zip archive around the contents of
 * its entries, which are stored as they are.  Numbers of more than 32 bits are
 * in zip64 fields, which are written only if needed.
 *
 * The functions keep no state, so any thread may call them.  They return the
 * number of bytes written. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct rsh_zip_entry {
	const char *name;
	uint64_t bytes;  /* of the content */
	uint64_t offset; /* of the local header in the archive */
	uint32_t crc;    /* of the content */
};

/* The local header and the entry of the directory of a name of n bytes are not
 * larger than this, if the content is not aligned to more than 64 bytes. */
#define RSH_ZIP_ENTRY_MAX(n) ((size_t)(n) + 128)
/* The end of an archive is not larger than this. */
#define RSH_ZIP_END_MAX 98

/* Writes the header before the content of an entry, which is at e->offset.  The
 * content then begins on a multiple of `alignment`; 0: wherever it is. */
size_t rsh_zip_local(const struct rsh_zip_entry *e, unsigned alignment,
		     uint8_t *buf);
/* Writes the entry of the directory. */
size_t rsh_zip_central(const struct rsh_zip_entry *e, uint8_t *buf);
/* Writes the end of an archive, whose directory of n entries is at `at` and has
 * `bytes` bytes. */
size_t rsh_zip_end(uint64_t at, uint64_t bytes, uint64_t n, uint8_t *buf);
