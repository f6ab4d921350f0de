/* SPDX-License-Identifier: Apache-2.0 */
/* formats/torch/zip_i.h reads the directory of a zip archive entry by entry.
 *
 * libzip is not used because it reads the whole directory into memory, opens by
 * name or takes ownership of the descriptor (whose identity is being proved),
 * and accepts archives that torch.load() does not (with bytes before the
 * archive). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "rsh/util/error.h"
#include "rsh/wire/ckpt.h"

#define RSH_ZIP_STORED 0
/* Flags of an entry. */
#define RSH_ZIP_ENCRYPTED 1
#define RSH_ZIP_DESCRIBED 8 /* a descriptor follows the content */
/* This is the size of the longest name and the longest extra field of an entry
 * together. */
#define RSH_ZIP_ROOM (2 * 0x10000)

/* This is what the end records of the archive say about its directory. */
struct rsh_zip_directory {
	uint64_t offset, bytes, n_entries;
	uint64_t end; /* offset of the end records */
};

struct rsh_zip_entry {
	uint64_t at; /* offset of its central header */
	uint64_t content_bytes, original_bytes, local_offset;
	uint16_t n_name, n_extra, n_comment, disk;
	const uint8_t *name, *extra;
	uint16_t method, flags;
	bool is_wide; /* some of its numbers are in zip64 fields */
	uint32_t crc;
};

/* This function and those below return 0; -EBADMSG with a sentence that names
 * file and offset; -ENOMEM; or the error of pread_fn. */
int rsh_zip_read_directory(const struct rsh_byte_source *src,
			   struct rsh_zip_directory *d, struct rsh_error *err);
/* Reads the entry at *at of the directory, which becomes the place of the next
 * one. `room` has RSH_ZIP_ROOM bytes; the name and the extra field are stored
 * there. */
int rsh_zip_read_entry(const struct rsh_byte_source *src,
		       const struct rsh_zip_directory *d, uint64_t *at,
		       uint8_t *room, struct rsh_zip_entry *e,
		       struct rsh_error *err);
/* Reads the local header of an entry.  *content is the offset of the entry's
 * bytes; all of them are before the directory. `room` has half of RSH_ZIP_ROOM
 * bytes. */
int rsh_zip_read_local(const struct rsh_byte_source *src,
		       const struct rsh_zip_directory *d,
		       const struct rsh_zip_entry *e, uint8_t *room,
		       uint64_t *content, struct rsh_error *err);
