/* SPDX-License-Identifier: Apache-2.0 */
/* formats/torch/steps.c finds, checks and shows .pt, .pth and .pth.tar of
 * torch.save().  The form of a file is detected from the first bytes.  Of a zip
 * archive only the places of its entries are checked: a rank may save objects
 * that are not read as a model.
 *
 * PyTorch leaves names to its users (checkpoint_12.pt, epoch3_step400.pth,
 * model_best.pth.tar): the numbers of a name, from left to right, are its
 * step. */
#include "config.h"

#include "reader_i.h"

#include <stdlib.h>
#include <string.h>

#include "rsh/formats/steps.h"
#include "rsh/util/files.h"
#include "rsh/util/mem.h"
#include "rsh/wire/bytes.h"
#include "rsh/wire/zip.h"

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

static int torch_zip_check(const struct rsh_byte_source *src, bool full,
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

/* ---- all forms ---- */

int rsh_torch_check(const struct rsh_byte_source *src, bool full,
		    bool *unsummed, struct rsh_error *err)
{
	uint8_t start[RSH_TORCH_START] = { 0 };
	size_t n = src->size < sizeof(start) ? (size_t)src->size :
					       sizeof(start);
	enum rsh_torch_form form;
	int rc;

	*unsummed = false;
	if (src->size == 0)
		return rsh_bytes_damaged(src, 0, "it is empty", err);
	rc = rsh_bytes_read(src, start, n, 0, err);
	if (rc)
		return rc;
	form = rsh_torch_form(start, n);
	return form == RSH_TORCH_ZIP ? torch_zip_check(src, full, unsummed, err) :
	       form == RSH_TORCH_LEGACY ? rsh_torch_check_legacy(src, err) :
					  rsh_torch_refuse_form(src, form, err);
}

/* ---- steps ---- */

static const char *torch_suffix(const char *name)
{
	static const char *const suffixes[] = { ".pth.tar", ".pth", ".pt" };

	for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++)
		if (rsh_has_suffix(name, suffixes[i]))
			return suffixes[i];
	return NULL;
}

static bool torch_parse(const char *file, struct rsh_step_name *out)
{
	const char *suffix = torch_suffix(file);

	if (suffix)
		rsh_step_name_read(file, strlen(file) - strlen(suffix), out);
	return suffix;
}

static int torch_check(const struct rsh_byte_source *files,
		       const char *const *names, size_t n, bool full,
		       struct rsh_error *err)
{
	bool unsummed;
	int rc = rsh_torch_check(files, full, &unsummed, err);

	(void)names, (void)n;
	if (unsummed)
		rsh_step_say_unsummed(files->path);
	return rc;
}

static int torch_show(struct rsh_resume *r, const struct rsh_saved *saved,
		      size_t n)
{
	return rsh_resume_show_each(r, saved, n, torch_suffix);
}

const struct rsh_resume_format rsh_torch_resume = {
	.name = "PyTorch",
	.parse = torch_parse,
	.check = torch_check,
	.show = torch_show,
};
