/* SPDX-License-Identifier: Apache-2.0 */
/* wire/zip_check.c checks whether the directory of a zip archive reads to the
 * end.
 *
 * It takes a few small reads for each entry, and none of the content unless
 * CRCs are wanted. */
#include "config.h"

#include "rsh/wire/intact.h"

#include <stdlib.h>
#include <zlib.h>

#include "rsh/util/mem.h"
#include "rsh/wire/bytes.h"
#include "rsh/wire/zip.h"

static uint32_t zip_crc(uint32_t crc, const uint8_t *p, size_t n)
{
	return (uint32_t)crc32(crc, p, (uInt)n);
}

static int zip_check_content(const struct rsh_byte_source *src,
			     const struct rsh_zip_entry *e, uint64_t at,
			     struct rsh_error *err)
{
	uint32_t found;
	int rc;

	if (e->method != 0)
		return 0;
	rc = rsh_bytes_crc(src, at, e->content_bytes, zip_crc, &found, err);
	if (rc)
		return rc;
	return found == e->crc ? 0 :
	       rsh_bytes_damaged(src, at, "a zip entry that does not match "
				 "its CRC", err);
}

/* Tells whether any entry has a CRC: torch can be told to write 0 for each. */
static int zip_find_crc(const struct rsh_byte_source *src,
			const struct rsh_zip_directory *d, uint8_t *room,
			bool *any, struct rsh_error *err)
{
	uint64_t at = d->offset;

	*any = false;
	for (uint64_t i = 0; i < d->n_entries && !*any; i++) {
		struct rsh_zip_entry e;
		int rc = rsh_zip_read_entry(src, d, at, room, &e, err);

		if (rc)
			return rc;
		*any = e.crc != 0;
		at = rsh_zip_next_entry(&e);
	}
	return 0;
}

int rsh_zip_check(const struct rsh_byte_source *src, bool full, bool *unsummed,
		  struct rsh_error *err)
{
	cleanup_free uint8_t *room = malloc(RSH_ZIP_ROOM + RSH_ZIP_ROOM / 2);
	struct rsh_zip_directory d = { 0 };
	bool found = false, any = false;
	uint64_t at, content = 0;
	int rc;

	*unsummed = false;
	if (!room)
		return rsh_error_nomem(err);
	rc = rsh_zip_read_directory(src, &d, err);
	if (rc == 0 && full)
		rc = zip_find_crc(src, &d, room, &any, err);
	if (rc)
		return rc;
	*unsummed = full && !any;
	at = d.offset;
	for (uint64_t i = 0; i < d.n_entries; i++) {
		struct rsh_zip_entry e;

		rc = rsh_zip_read_entry(src, &d, at, room, &e, err);
		if (rc == 0)
			rc = rsh_zip_read_local(src, &d, &e,
						room + RSH_ZIP_ROOM, &content,
						err);
		if (rc == 0 && any)
			rc = zip_check_content(src, &e, content, err);
		if (rc)
			return rc;
		found |= rsh_zip_is_torch_object(&e);
		at = rsh_zip_next_entry(&e);
	}
	if (at != d.end)
		return rsh_bytes_damaged(src, at, "the zip directory has more "
					 "entries than its end record says",
					 err);
	return found ? 0 :
	       rsh_bytes_damaged(src, d.offset, "a zip archive without "
				 "data.pkl", err);
}
