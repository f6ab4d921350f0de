/* SPDX-License-Identifier: Apache-2.0 */
/* wire/zip.h - the directory of a zip archive, entry by entry.
 *
 * libzip would do as well, but it reads the whole directory into memory, opens
 * by name or takes over the descriptor whose identity is being proved, and
 * accepts archives that torch.load() does not (with bytes before the
 * archive). */
#ifndef RSH_WIRE_ZIP_H
#define RSH_WIRE_ZIP_H

#include <stdbool.h>
#include <stdint.h>

#include "rsh/util/error.h"
#include "rsh/wire/ckpt.h"

#define RSH_ZIP_STORED 0
/* Flags of an entry. */
#define RSH_ZIP_ENCRYPTED 1
#define RSH_ZIP_DESCRIBED 8 /* a descriptor follows the content */
/* The longest name and the longest extra field of an entry together. */
#define RSH_ZIP_ROOM (2 * 0x10000)

/* This is what the records at the end of the archive say of its directory. */
struct rsh_zip_directory {
	uint64_t offset, bytes, n_entries;
	uint64_t end; /* where the end records begin */
};

struct rsh_zip_entry {
	uint64_t at; /* of its central header */
	uint64_t content_bytes, original_bytes, local_offset;
	uint16_t n_name, n_extra, n_comment, disk;
	const uint8_t *name, *extra;
	uint16_t method, flags;
	bool is_wide; /* zip64 has some of its numbers */
	uint32_t crc;
};

/* Returns the place of the next entry in the directory. */
uint64_t rsh_zip_next_entry(const struct rsh_zip_entry *e);

/* These return 0; -EBADMSG with a sentence that names file and offset; -ENOMEM;
 * or what pread_fn gave. */
int rsh_zip_read_directory(const struct rsh_byte_source *src,
			   struct rsh_zip_directory *d, struct rsh_error *err);
/* Reads the entry at this place of the directory; `room` has RSH_ZIP_ROOM
 * bytes, in which name and extra field are then. */
int rsh_zip_read_entry(const struct rsh_byte_source *src,
		       const struct rsh_zip_directory *d, uint64_t at,
		       uint8_t *room, struct rsh_zip_entry *e,
		       struct rsh_error *err);
/* Reads the local header of an entry; *content is where the entry's bytes
 * begin, all of which are before the directory.  `room` has half of
 * RSH_ZIP_ROOM. */
int rsh_zip_read_local(const struct rsh_byte_source *src,
		       const struct rsh_zip_directory *d,
		       const struct rsh_zip_entry *e, uint8_t *room,
		       uint64_t *content, struct rsh_error *err);

/* Tells whether an entry is "<directory>/data.pkl", the object that
 * torch.load() builds. */
bool rsh_zip_is_torch_object(const struct rsh_zip_entry *e);

#endif
