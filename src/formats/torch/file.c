/* SPDX-License-Identifier: Apache-2.0 */
/* formats/torch/file.c reads a file of torch.save() of either form. */
#include "config.h"

#include "torch_i.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/checked.h"
#include "rsh/util/mem.h"
#include "rsh/wire/file_type.h"
#include "rsh/wire/bytes.h"

/* ---- the form ---- */

#define PICKLE_PROTO 0x80
/* This is LONG1 0x1950a86a20f9469cfc6c, the first of several pickles. */
static const uint8_t torch_legacy_magic[] = {
	0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19,
};
/* The magic number is searched in this many bytes; PROTO and FRAME may precede
 * it. */
#define MAGIC_WITHIN 32
#define TAR_MAGIC_AT 257

enum rsh_torch_form rsh_torch_form(const uint8_t *start, size_t n)
{
	if (n >= 4 && memcmp(start, "PK\3\4", 4) == 0)
		return RSH_TORCH_ZIP;
	if (n > 0 && start[0] == PICKLE_PROTO)
		return memmem(start, n < MAGIC_WITHIN ? n : MAGIC_WITHIN,
			      torch_legacy_magic, sizeof(torch_legacy_magic)) ?
			       RSH_TORCH_LEGACY : RSH_TORCH_PICKLE;
	return n >= RSH_TORCH_START &&
	       memcmp(start + TAR_MAGIC_AT, "ustar", 5) == 0 ?
		       RSH_TORCH_TAR : RSH_TORCH_NONE;
}

static int torch_refuse_form(const struct rsh_byte_source *src,
			  enum rsh_torch_form form, struct rsh_error *err)
{
	if (form == RSH_TORCH_TAR)
		return rsh_error_set(err, ENOTSUP, "%s: a tar archive of "
				     "torch.save() from before PyTorch 0.1.10, "
				     "which is not read; load it with PyTorch "
				     "and save it again", src->path);
	if (form == RSH_TORCH_PICKLE)
		return rsh_error_set(err, EBADMSG, "%s: a pickle that "
				     "torch.save() did not write, which is not "
				     "read; save it with torch.save()",
				     src->path);
	return rsh_file_explain(src, rsh_error_set(
		err, EBADMSG, "%s: no file of torch.save()", src->path), err);
}

/* ---- the form before PyTorch 1.6, which PyTorch still writes on request ----
 *
 * It has five pickles (a magic number, a version, the system, the object, the
 * keys of the storages).  Then, for each storage in the order of the keys, it
 * has the number of elements and the elements. */

#define LEGACY_VERSION 1001
#define COUNT_BYTES 8
/* The pickles of a model have fewer bytes than this. */
#define PICKLES_MAX ((uint64_t)1024 * 1024 * 1024)

/* Reads the pickles before the object. */
static int legacy_read_system(struct rsh_torch_reader *r, uint64_t end)
{
	const struct rsh_pickle_value *little;
	struct rsh_pickle_value v;
	uint64_t at;
	/* The first one is the magic number, from which the form was
	 * detected. */
	int rc = rsh_torch_pickle(r, end, true, &v);

	at = r->pickle.at;
	if (rc == 0)
		rc = rsh_torch_pickle(r, end, true, &v);
	if (rc == 0 && (v.kind != RSH_PV_NUMBER || v.number != LEGACY_VERSION))
		rc = rsh_torch_bad(r, at, "a version that is not known");
	at = r->pickle.at;
	if (rc == 0)
		rc = rsh_torch_pickle(r, end, true, &v);
	if (rc)
		return rc;
	little = rsh_pickle_find(&v, "little_endian");
	return little && little->kind == RSH_PV_BOOL && little->number ? 0 :
	       rsh_torch_bad(r, at, "elements that are not little-endian");
}

static int legacy_place(struct rsh_torch_reader *r, size_t i, uint64_t *at)
{
	const struct rsh_torch_stored *s = &r->stored[i];
	struct rsh_torch_storage *to = &r->storages[i];
	uint8_t count[COUNT_BYTES];
	int rc;

	if (s->width == 0)
		return rsh_error_set(r->err, ENOTSUP, "%s: storage %s is of an "
				     "unknown class, so the place of the "
				     "next one is not known", r->src.path, s->key);
	if (to->key)
		return rsh_torch_bad(r, *at, "a storage that is listed twice");
	to->key = rsh_arena_strdup(&r->file->arena_, s->key);
	if (!to->key)
		return rsh_error_nomem(r->err);
	if (!rsh_mul_u64(s->count, s->width, &to->bytes) ||
	    r->src.size - *at < COUNT_BYTES ||
	    to->bytes > r->src.size - *at - COUNT_BYTES)
		return rsh_torch_bad(r, r->src.size, "truncated: the storages "
				     "do not end within the file");
	to->offset = *at + COUNT_BYTES;
	/* The count is known already, so it is compared only if these bytes
	 * were read with others. */
	if (rsh_torch_view_has(&r->view, *at, COUNT_BYTES)) {
		rc = rsh_bytes_read(&r->src, count, sizeof(count), *at, r->err);
		if (rc || rsh_le64(count) != s->count)
			return rc ? rc :
			       rsh_torch_bad(r, *at, "a storage of another "
					     "size than the object says");
	}
	*at = to->offset + to->bytes;
	return 0;
}

static int legacy_place_all(struct rsh_torch_reader *r,
			    const struct rsh_pickle_value *keys)
{
	uint64_t at = r->pickle.at;
	int rc = 0;

	if (keys->kind != RSH_PV_LIST || keys->list->n != r->n_stored)
		return rsh_torch_bad(r, at, "a list of storages that are not "
				     "those of the object");
	r->storages = rsh_arena_array(&r->file->arena_,
				      struct rsh_torch_storage, r->n_stored);
	if (!r->storages)
		return rsh_error_nomem(r->err);
	for (uint32_t i = 0; i < keys->list->n && rc == 0; i++) {
		const struct rsh_pickle_value *v = &keys->list->values[i];
		uint32_t number = v->kind == RSH_PV_TEXT ?
				  rsh_names_find(r->keys, v->text, v->n) :
				  RSH_NAME_NONE;

		if (number == RSH_NAME_NONE)
			return rsh_torch_bad(r, at, "a list of storages that "
					     "are not those of the object");
		rc = legacy_place(r, number, &at);
	}
	if (rc == 0 && at != r->src.size)
		rc = rsh_torch_bad(r, at, "bytes after the last storage");
	return rc;
}

/* Reads the object and the places of its storages. */
static int legacy_read(struct rsh_torch_reader *r,
		       struct rsh_pickle_value *root)
{
	const uint64_t end = rsh_min_u64(r->src.size, PICKLES_MAX);
	struct rsh_pickle_value keys;

	r->pickle.at = 0;
	return legacy_read_system(r, end) ?:
	       rsh_torch_pickle(r, end, true, root) ?:
	       rsh_torch_pickle(r, end, true, &keys) ?:
	       legacy_place_all(r, &keys);
}

/* ---- either form ---- */

/* This many bytes are read at once at the end of a file: the directory of some
 * 2,500 storages, or all of a small file. */
#define TAIL_BYTES ((uint64_t)256 * 1024)
static const uint8_t zip_end_mark[] = { 'P', 'K', 5, 6 };

/* Detects the form of the file from its first bytes.  This is not needed if the
 * end of a long file, which the view has, shows that it is a zip archive; its
 * beginning is then read together with data.pkl. */
static int torch_find_form(struct rsh_torch_reader *r,
			   enum rsh_torch_form *form)
{
	const uint64_t n = rsh_min_u64(r->src.size, RSH_TORCH_START);
	uint8_t start[RSH_TORCH_START] = { 0 };
	int rc;

	rc = rsh_bytes_read(&r->src, start, (size_t)n, 0, r->err);
	if (rc == 0)
		*form = rsh_torch_form(start, (size_t)n);
	return rc;
}

static int torch_file_read(struct rsh_torch_reader *r)
{
	const uint64_t tail = rsh_min_u64(r->src.size, TAIL_BYTES);
	enum rsh_torch_form form = RSH_TORCH_ZIP;
	struct rsh_pickle_value root;
	int rc;

	if (r->src.size == 0)
		return rsh_torch_bad(r, 0, "it is empty");
	rc = rsh_torch_view_load(&r->view, r->src.size - tail, tail, r->err);
	if (rc)
		return rc;
	if (tail == r->src.size ||
	    !memmem(r->view.stretch[0].data, (size_t)tail, zip_end_mark,
		    sizeof(zip_end_mark)))
		rc = torch_find_form(r, &form);
	if (rc == 0 && form == RSH_TORCH_ZIP) {
		rc = rsh_torch_read_zip(r);
		/* The elements in a file of another form may contain the
		 * mark. */
		if (rc == -EBADMSG && tail < r->src.size &&
		    torch_find_form(r, &form) == 0 && form == RSH_TORCH_ZIP)
			return rc;
	}
	if (form == RSH_TORCH_LEGACY)
		return legacy_read(r, &root) ?: rsh_torch_walk(r, &root);
	return form == RSH_TORCH_ZIP ? rc :
	       torch_refuse_form(&r->src, form, r->err);
}

/* Gives what was read to the caller. */
static int reader_finish(struct rsh_torch_reader *r,
			 struct rsh_torch_file **out)
{
	struct rsh_torch_file *f = r->file;

	for (size_t i = 0; i < r->n_tensors; i++)
		r->storages[r->tensors[i].storage].n_tensors++;
	f->file_bytes = r->src.size;
	f->n_tensors = (uint32_t)r->n_tensors;
	f->n_values = (uint32_t)r->n_found;
	f->n_storages = (uint32_t)r->n_stored;
	f->tensors = rsh_arena_copy(&f->arena_, r->tensors, r->n_tensors);
	f->values = rsh_arena_copy(&f->arena_, r->found, r->n_found);
	f->storages = r->storages;
	if (!f->tensors || !f->values)
		return rsh_error_nomem(r->err);
	*out = steal_pointer(&r->file);
	return 0;
}

static void reader_free(struct rsh_torch_reader **reader)
{
	struct rsh_torch_reader *r = *reader;

	if (!r)
		return;
	rsh_torch_view_clear(&r->view);
	rsh_arena_clear(&r->values);
	rsh_torch_listed_leave(r);
	rsh_names_free(r->keys);
	rsh_torch_file_free(r->file);
	free(r->stored);
	free(r->name);
	free(r->steps);
	free(r->tensors);
	free(r->found);
	free(r);
}
#define cleanup_reader __attribute__((cleanup(reader_free)))

/* Makes a reader of an archive, which is this part of the file; `path` is its
 * name in messages.  NULL, and an error: memory is out. */
static struct rsh_torch_reader *reader_new(const struct rsh_byte_source *file,
					   uint64_t base, uint64_t bytes,
					   const char *path,
					   struct rsh_error *err)
{
	struct rsh_torch_reader *r = malloc(sizeof(*r));

	if (r) {
		memset(r, 0, offsetof(struct rsh_torch_reader, pickle.window));
		r->view.file = file;
		r->view.base = base;
		r->view.size = bytes;
		r->src = (struct rsh_byte_source){
			rsh_torch_view_pread, &r->view, bytes, path,
		};
		r->err = err;
		r->keys = rsh_names_new();
		r->file = calloc(1, sizeof(*r->file));
		if (r->file)
			r->file->names_ = rsh_names_new();
		if (r->keys && r->file && r->file->names_)
			return r;
	}
	reader_free(&r);
	rsh_error_nomem(err);
	return NULL;
}

int rsh_torch_file_read(const struct rsh_byte_source *src,
			const struct rsh_torch_parts *parts,
			struct rsh_torch_file **out, struct rsh_error *err)
{
	cleanup_reader struct rsh_torch_reader *r =
		reader_new(src, 0, src->size, src->path, err);

	*out = NULL;
	if (!r)
		return -ENOMEM;
	r->parts = parts;
	return torch_file_read(r) ?: reader_finish(r, out);
}

int rsh_torch_check(const struct rsh_byte_source *src, bool full,
		    bool *unsummed, struct rsh_error *err)
{
	cleanup_reader struct rsh_torch_reader *r =
		reader_new(src, 0, src->size, src->path, err);
	enum rsh_torch_form form;
	struct rsh_pickle_value root;
	int rc = r ? 0 : -ENOMEM;

	*unsummed = false;
	if (rc == 0 && src->size == 0)
		rc = rsh_torch_bad(r, 0, "it is empty");
	if (rc == 0)
		rc = torch_find_form(r, &form);
	if (rc)
		return rc;
	return form == RSH_TORCH_ZIP ?
	       rsh_torch_check_zip(r, full, unsummed) :
	       form == RSH_TORCH_LEGACY ? legacy_read(r, &root) :
	       torch_refuse_form(src, form, err);
}

void rsh_torch_file_free(struct rsh_torch_file *f)
{
	if (!f)
		return;
	rsh_arena_clear(&f->arena_);
	rsh_names_free(f->names_);
	free(f);
}

/* ---- an item of a distributed checkpoint ---- */

/* This many bytes are read at once at either end of an item.  For the items
 * that torch writes, no other reads are necessary. */
#define ITEM_END_BYTES ((uint64_t)4096)

static struct rsh_torch_reader *
torch_item_open(const struct rsh_byte_source *file, uint64_t offset,
		uint64_t length, char *path, int *rc, struct rsh_error *err)
{
	const uint64_t n = rsh_min_u64(length, ITEM_END_BYTES);
	struct rsh_torch_reader *r = NULL;

	snprintf(path, RSH_TORCH_ITEM_PATH, "%s, item at %" PRIu64, file->path,
		 offset);
	*rc = 0;
	if (offset > file->size || length > file->size - offset)
		*rc = rsh_error_set(err, EBADMSG, "%s: truncated: an item "
				    "of %" PRIu64 " bytes at offset %" PRIu64
				    " of a file of %" PRIu64, file->path,
				    length, offset, file->size);
	if (*rc == 0)
		r = reader_new(file, offset, length, path, err);
	if (*rc || !r) {
		*rc = *rc ? *rc : -ENOMEM;
		return NULL;
	}
	r->is_item = true;
	*rc = rsh_torch_view_load(&r->view, length - n, n, err) ?:
	      rsh_torch_view_load(&r->view, 0, n, err);
	return r;
}

int rsh_torch_item_read(const struct rsh_byte_source *file, uint64_t offset,
			uint64_t length, char path[RSH_TORCH_ITEM_PATH],
			struct rsh_torch_file **out, struct rsh_error *err)
{
	int rc;
	cleanup_reader struct rsh_torch_reader *r =
		torch_item_open(file, offset, length, path, &rc, err);

	*out = NULL;
	return rc ? rc : rsh_torch_read_zip(r) ?: reader_finish(r, out);
}

int rsh_torch_item_value(const struct rsh_byte_source *file, uint64_t offset,
			 uint64_t length, struct rsh_plain *out,
			 struct rsh_error *err)
{
	char path[RSH_TORCH_ITEM_PATH];
	struct rsh_pickle_value v;
	int rc;
	cleanup_reader struct rsh_torch_reader *r =
		torch_item_open(file, offset, length, path, &rc, err);

	*out = (struct rsh_plain){ .json = NULL };
	rc = rc ? rc : rsh_torch_read_zip_value(r, &v) ?:
	     rsh_plain_make(&v, out);
	out->has_floats = r && r->has_floats;
	return rc;
}

/* ---- checksums ---- */

int rsh_torch_file_check(const struct rsh_byte_source *src,
			 const struct rsh_torch_file *f, uint32_t *n_unsummed,
			 struct rsh_error *err)
{
	*n_unsummed = 0;
	for (uint32_t i = 0; i < f->n_storages; i++) {
		const struct rsh_torch_storage *s = &f->storages[i];
		uint32_t crc;
		int rc;

		*n_unsummed += !s->has_crc && s->bytes > 0;
		if (!s->has_crc)
			continue;
		rc = rsh_bytes_crc(src, s->offset, s->bytes, rsh_crc32, &crc,
				   err);
		if (rc == 0 && crc != s->crc)
			rc = rsh_bytes_damaged(src, s->offset, "the elements "
					       "do not match their CRC", err);
		if (rc)
			return rc;
	}
	return 0;
}
