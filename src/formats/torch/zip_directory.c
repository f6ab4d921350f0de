/* SPDX-License-Identifier: Apache-2.0 */
/* formats/torch/zip_directory.c reads the directory of a zip archive and finds
 * its entries.  Every size and offset is checked to be within the file. */
#include "config.h"

#include "zip_i.h"

#include <stdlib.h>
#include <string.h>

#include "rsh/util/mem.h"
#include "rsh/wire/bytes.h"

#define LOCAL_SIGNATURE 0x04034b50
#define CENTRAL_SIGNATURE 0x02014b50
#define END_SIGNATURE 0x06054b50
#define END64_SIGNATURE 0x06064b50
#define LOCATOR64_SIGNATURE 0x07064b50

#define LOCAL_BYTES 30
#define CENTRAL_BYTES 46
#define END_BYTES 22
#define END64_BYTES 56
#define LOCATOR64_BYTES 20
#define COMMENT_MAX 0xffff

#define ZIP64_EXTRA 1

static bool zip_is_end(const uint8_t *p, size_t n)
{
	return rsh_le32(p) == END_SIGNATURE &&
	       rsh_le16(p + 20) == n - END_BYTES;
}

/* Finds the end record: the last one whose comment, which is usually empty,
 * ends at the end of the file. */
static int zip_find_end(const struct rsh_byte_source *src, uint64_t *at,
			uint8_t end[END_BYTES], struct rsh_error *err)
{
	size_t n = src->size < END_BYTES + COMMENT_MAX ?
		   (size_t)src->size : END_BYTES + COMMENT_MAX;
	cleanup_free uint8_t *tail = NULL;
	int rc;

	if (n >= END_BYTES) {
		*at = src->size - END_BYTES;
		rc = rsh_bytes_read(src, end, END_BYTES, *at, err);
		if (rc || zip_is_end(end, END_BYTES))
			return rc;
	}
	tail = malloc(n ? n : 1);
	if (!tail)
		return rsh_error_nomem(err);
	rc = rsh_bytes_read(src, tail, n, src->size - n, err);
	if (rc)
		return rc;
	for (size_t i = n < END_BYTES ? 0 : n - END_BYTES + 1; i-- > 0;) {
		if (!zip_is_end(tail + i, n - i))
			continue;
		memcpy(end, tail + i, END_BYTES);
		*at = src->size - n + i;
		return 0;
	}
	return rsh_bytes_damaged(src, src->size, "truncated: the zip archive's "
				 "directory is not at its end", err);
}

/* If there is a zip64 record, an old field has the same number or all ones. */
static bool zip_agrees(uint64_t field, uint64_t all_ones, uint64_t wide)
{
	return field == wide || field == all_ones;
}

static int zip_read_end64(const struct rsh_byte_source *src, uint64_t at,
			  const uint8_t *locator, struct rsh_zip_directory *d,
			  struct rsh_error *err)
{
	const struct rsh_zip_directory old = *d;
	const uint64_t locator_at = at - LOCATOR64_BYTES;
	uint8_t end[END64_BYTES];
	int rc;

	d->end = rsh_le64(locator + 8);
	if (rsh_le32(locator + 4) != 0 || rsh_le32(locator + 16) > 1 ||
	    d->end > locator_at || locator_at - d->end < END64_BYTES)
		return rsh_bytes_damaged(src, locator_at, "a zip64 locator "
					 "that points outside", err);
	rc = rsh_bytes_read(src, end, sizeof(end), d->end, err);
	if (rc)
		return rc;
	if (rsh_le32(end) != END64_SIGNATURE ||
	    rsh_le64(end + 4) != locator_at - d->end - 12)
		return rsh_bytes_damaged(src, d->end,
					 "no zip64 end record", err);
	d->n_entries = rsh_le64(end + 32);
	d->bytes = rsh_le64(end + 40);
	d->offset = rsh_le64(end + 48);
	return zip_agrees(old.n_entries, UINT16_MAX, d->n_entries) &&
	       zip_agrees(old.bytes, UINT32_MAX, d->bytes) &&
	       zip_agrees(old.offset, UINT32_MAX, d->offset) ? 0 :
	       rsh_bytes_damaged(src, at, "two end records that do not agree",
				 err);
}

int rsh_zip_read_directory(const struct rsh_byte_source *src,
			   struct rsh_zip_directory *d, struct rsh_error *err)
{
	uint8_t end[END_BYTES] = { 0 }, locator[LOCATOR64_BYTES];
	uint64_t at = 0;
	int rc = zip_find_end(src, &at, end, err);

	if (rc)
		return rc;
	if (rsh_le16(end + 4) != 0 || rsh_le16(end + 6) != 0)
		return rsh_bytes_damaged(src, at, "a zip archive in several "
					 "parts", err);
	*d = (struct rsh_zip_directory){
		.n_entries = rsh_le16(end + 10), .bytes = rsh_le32(end + 12),
		.offset = rsh_le32(end + 16), .end = at,
	};
	if (at >= LOCATOR64_BYTES) {
		rc = rsh_bytes_read(src, locator, sizeof(locator),
				    at - LOCATOR64_BYTES, err);
		if (rc == 0 && rsh_le32(locator) == LOCATOR64_SIGNATURE)
			rc = zip_read_end64(src, at, locator, d, err);
		if (rc)
			return rc;
	}
	if (d->offset > d->end || d->bytes != d->end - d->offset)
		return rsh_bytes_damaged(src, at, "the zip directory is not "
					 "where its end record says", err);
	return 0;
}

/* Reads the numbers that do not fit into their 32-bit fields from the extra
 * field.  They are there in this order, each only if its field is all ones. */
static bool zip_read_wide_numbers(struct rsh_zip_entry *e)
{
	uint64_t *const wide[] = { &e->original_bytes, &e->content_bytes,
				   &e->local_offset };
	const uint8_t *p = e->extra, *end = e->extra + e->n_extra;

	while (end - p >= 4 && rsh_le16(p) != ZIP64_EXTRA) {
		if (end - p - 4 < rsh_le16(p + 2))
			return false;
		p += 4 + rsh_le16(p + 2);
	}
	if (end - p < 4)
		p = end;
	else if (end - p - 4 < rsh_le16(p + 2))
		return false;
	else
		end = p + 4 + rsh_le16(p + 2), p += 4;
	for (unsigned i = 0; i < 3; i++) {
		if (*wide[i] != UINT32_MAX)
			continue;
		if (end - p < 8)
			return false;
		*wide[i] = rsh_le64(p);
		e->is_wide = true;
		p += 8;
	}
	return true;
}

int rsh_zip_read_entry(const struct rsh_byte_source *src,
		       const struct rsh_zip_directory *d, uint64_t *next,
		       uint8_t *room, struct rsh_zip_entry *e,
		       struct rsh_error *err)
{
	const uint64_t at = *next;
	uint8_t h[CENTRAL_BYTES];
	int rc;

	if (d->end - at < CENTRAL_BYTES)
		return rsh_bytes_damaged(src, at, "the zip directory ends "
					 "early", err);
	rc = rsh_bytes_read(src, h, sizeof(h), at, err);
	if (rc)
		return rc;
	*e = (struct rsh_zip_entry){
		.at = at, .flags = rsh_le16(h + 8),
		.method = rsh_le16(h + 10), .crc = rsh_le32(h + 16),
		.content_bytes = rsh_le32(h + 20),
		.original_bytes = rsh_le32(h + 24), .n_name = rsh_le16(h + 28),
		.n_extra = rsh_le16(h + 30), .n_comment = rsh_le16(h + 32),
		.disk = rsh_le16(h + 34), .local_offset = rsh_le32(h + 42),
		.name = room,
	};
	e->extra = room + e->n_name;
	*next = at + CENTRAL_BYTES + (uint64_t)e->n_name + e->n_extra +
		e->n_comment;
	if (rsh_le32(h) != CENTRAL_SIGNATURE || e->disk != 0 ||
	    d->end - at - CENTRAL_BYTES <
	    (uint64_t)e->n_name + e->n_extra + e->n_comment)
		return rsh_bytes_damaged(src, at, "no entry of the zip "
					 "directory", err);
	return rsh_bytes_read(src, room, (size_t)e->n_name + e->n_extra,
			      at + CENTRAL_BYTES, err) ?:
	       zip_read_wide_numbers(e) ? 0 :
	       rsh_bytes_damaged(src, at, "a zip64 entry without its numbers",
				 err);
}

int rsh_zip_read_local(const struct rsh_byte_source *src,
		       const struct rsh_zip_directory *d,
		       const struct rsh_zip_entry *e, uint8_t *room,
		       uint64_t *content, struct rsh_error *err)
{
	uint8_t h[LOCAL_BYTES];
	int rc;

	if (e->local_offset > d->offset ||
	    d->offset - e->local_offset < LOCAL_BYTES)
		return rsh_bytes_damaged(src, e->at, "a zip entry that points "
					 "outside", err);
	rc = rsh_bytes_read(src, h, sizeof(h), e->local_offset, err);
	if (rc)
		return rc;
	*content = e->local_offset + LOCAL_BYTES + rsh_le16(h + 26) +
		   rsh_le16(h + 28);
	if (rsh_le32(h) != LOCAL_SIGNATURE || rsh_le16(h + 26) != e->n_name ||
	    rsh_le16(h + 8) != e->method)
		return rsh_bytes_damaged(src, e->local_offset, "no local "
					 "header of a zip entry", err);
	if (*content > d->offset || d->offset - *content < e->content_bytes)
		return rsh_bytes_damaged(src, e->local_offset, "a zip entry "
					 "that does not end within the "
					 "archive", err);
	/* An uncompressed entry has only one size. */
	if (e->method == 0 && e->content_bytes != e->original_bytes)
		return rsh_bytes_damaged(src, e->at, "a stored zip entry of "
					 "two sizes", err);
	return rsh_bytes_read(src, room, e->n_name,
			      e->local_offset + LOCAL_BYTES, err) ?:
	       memcmp(room, e->name, e->n_name) == 0 ? 0 :
	       rsh_bytes_damaged(src, e->local_offset, "a local header of "
				 "another zip entry", err);
}

