/* SPDX-License-Identifier: Apache-2.0 */
/* formats/torch/check.c checks whether a file of torch.save() is complete.  The
 * form is detected from the first bytes, and each form has a separate check. */
#include "config.h"

#include "torch_i.h"

#include <stdlib.h>
#include <string.h>

#include "rsh/util/mem.h"
#include "rsh/wire/bytes.h"
#include "rsh/wire/zip.h"

#define PICKLE_PROTO 0x80
/* This is LONG1 0x1950a86a20f9469cfc6c, the first of several pickles. */
static const uint8_t torch_legacy_magic[] = {
	0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19,
};
/* The magic number is searched in this many bytes; PROTO and FRAME may precede
 * it. */
#define MAGIC_WITHIN 32
#define TAR_BLOCK_BYTES 512u
#define TAR_SIZE_AT 124
#define TAR_SIZE_BYTES 12
#define TAR_MAGIC_AT 257
/* Zeros fill the last record of a tar archive, which has this many bytes. */
#define TAR_RECORD_BYTES 10240u

/* ---- zip: a few small reads for each entry; content is read only for CRCs
 * ---- */

static int zip_check_content(const struct rsh_byte_source *src,
			     const struct rsh_zip_entry *e, uint64_t at,
			     struct rsh_error *err)
{
	uint32_t found;
	int rc;

	if (e->method != 0)
		return 0;
	rc = rsh_bytes_crc(src, at, e->content_bytes, rsh_crc32, &found, err);
	if (rc)
		return rc;
	return found == e->crc ? 0 :
	       rsh_bytes_damaged(src, at, "a zip entry that does not match "
				 "its CRC", err);
}

/* Finds out whether any entry has a CRC: set_crc32_options(False) writes 0 for
 * each. */
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

int rsh_torch_zip_check(const struct rsh_byte_source *src, bool full,
			bool *unsummed, struct rsh_error *err)
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

/* ---- tar: PyTorch before 0.1.10; later releases still read it ---- */

/* Reads a size: octal digits, or a binary number if it needs more digits than
 * there are. */
static uint64_t tar_size(const uint8_t *p)
{
	uint64_t size = 0;

	if (p[0] == 0x80)
		for (size_t i = 4; i < TAR_SIZE_BYTES; i++)
			size = size << 8 | p[i];
	else
		for (size_t i = 0; i < TAR_SIZE_BYTES; i++)
			if (p[i] >= '0' && p[i] <= '7')
				size = size * 8 + (uint64_t)(p[i] - '0');
	return size;
}

static bool torch_is_tar(const uint8_t *start, size_t n)
{
	return n >= RSH_TORCH_START &&
	       memcmp(start + TAR_MAGIC_AT, "ustar", 5) == 0;
}

static int tar_check(const struct rsh_byte_source *src, struct rsh_error *err)
{
	static const uint8_t zeros[TAR_BLOCK_BYTES];
	uint8_t block[TAR_BLOCK_BYTES];
	unsigned n_zeros = 0;
	uint64_t at = 0;

	/* Two blocks of zeros end the archive. */
	while (n_zeros < 2) {
		uint64_t size = 0;
		int rc = rsh_bytes_read(src, block, sizeof(block), at, err);

		if (rc)
			return rc;
		at += sizeof(block);
		if (memcmp(block, zeros, sizeof(block)) == 0) {
			n_zeros++;
			continue;
		}
		n_zeros = 0;
		if (!torch_is_tar(block, sizeof(block)))
			return rsh_bytes_damaged(src, at - sizeof(block), "no "
						 "header of a tar archive",
						 err);
		size = tar_size(block + TAR_SIZE_AT);
		if (size > src->size - at)
			return rsh_bytes_damaged(src, at, "truncated: the file "
						 "ends within an entry", err);
		at += size + (TAR_BLOCK_BYTES - size % TAR_BLOCK_BYTES) %
			     TAR_BLOCK_BYTES;
	}
	/* After a crash of the machine, blocks that were not written to the
	 * disk may read as zeros.  So more zeros than fill a tar record are an
	 * error. */
	return src->size - at < TAR_RECORD_BYTES ? 0 :
	       rsh_bytes_damaged(src, at, "bytes after the end of the archive",
				 err);
}

/* ---- all forms ---- */

static int torch_check_pickles(const struct rsh_byte_source *src, bool legacy,
			       struct rsh_error *err)
{
	cleanup_free struct rsh_pickle *p = calloc(1, sizeof(*p));
	int rc;

	if (!p)
		return rsh_error_nomem(err);
	p->src = src;
	p->err = err;
	rc = legacy ? rsh_torch_legacy_check(p) : rsh_pickle_skip(p);
	return rc || legacy || p->at == src->size ? rc :
	       rsh_bytes_damaged(src, p->at, "bytes after the end of the "
				 "pickle", err);
}

enum rsh_torch_form rsh_torch_form(const uint8_t *start, size_t n)
{
	if (n >= 4 && memcmp(start, "PK\3\4", 4) == 0)
		return RSH_TORCH_ZIP;
	if (n > 0 && start[0] == PICKLE_PROTO)
		return memmem(start, n < MAGIC_WITHIN ? n : MAGIC_WITHIN,
			      torch_legacy_magic, sizeof(torch_legacy_magic)) ?
			       RSH_TORCH_LEGACY : RSH_TORCH_PICKLE;
	return torch_is_tar(start, n) ? RSH_TORCH_TAR : RSH_TORCH_NONE;
}

int rsh_torch_check(const struct rsh_byte_source *src, bool full,
		    bool *unsummed, struct rsh_error *err)
{
	uint8_t start[RSH_TORCH_START] = { 0 };
	size_t n = src->size < sizeof(start) ? (size_t)src->size :
					       sizeof(start);
	int rc;

	*unsummed = false;
	if (src->size == 0)
		return rsh_bytes_damaged(src, 0, "it is empty", err);
	rc = rsh_bytes_read(src, start, n, 0, err);
	if (rc)
		return rc;
	switch (rsh_torch_form(start, n)) {
	case RSH_TORCH_ZIP:
		return rsh_torch_zip_check(src, full, unsummed, err);
	case RSH_TORCH_LEGACY:
		return torch_check_pickles(src, true, err);
	case RSH_TORCH_PICKLE:
		return torch_check_pickles(src, false, err);
	case RSH_TORCH_TAR:
		return tar_check(src, err);
	case RSH_TORCH_NONE:
		break;
	}
	return rsh_bytes_damaged(src, 0, "not of torch.save(): no zip "
				 "archive, pickle or tar archive", err);
}
