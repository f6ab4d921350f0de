/* SPDX-License-Identifier: Apache-2.0 */
/* formats/dcp/item.c finds the place and the order of an item's elements.
 *
 * An item is an archive of torch.save(): a directory at its end, data.pkl at
 * its beginning, and the elements between them. */
#include "config.h"

#include "rsh/formats/dcp.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/formats/torch.h"
#include "rsh/util/mem.h"
#include "rsh/wire/bytes.h"
#include "rsh/wire/pickle_values.h"

/* A value of HyperParallel has no more bytes than this. */
#define OBJECT_MAX ((uint64_t)1024 * 1024)

/* Takes the only tensor of the archive, which must be all of its storage. */
static int item_take(const struct rsh_torch_file *f, const char *path,
		     struct rsh_dcp_item *out, struct rsh_error *err)
{
	const struct rsh_torch_tensor *t = f->tensors;
	const struct rsh_torch_storage *s = &f->storages[t->storage];
	struct rsh_torch_layout l;
	const char *wrong;

	rsh_torch_layout(t, &l);
	*out = (struct rsh_dcp_item){
		.dtype = t->dtype, .n_dims = t->n_dims,
		.bytes = t->elements * rsh_dtype_size(t->dtype),
		.offset = s->offset, .has_crc = s->has_crc, .crc = s->crc,
	};
	memcpy(out->dims, t->dims, t->n_dims * sizeof(*t->dims));
	memcpy(out->order, l.order, sizeof(out->order));
	wrong = t->dtype == RSH_DTYPE_UNKNOWN ? "a type that is not known" :
		t->from != 0 || out->bytes != s->bytes ?
			"a tensor that is not all of what is stored" :
		l.dense ? NULL : "elements with gaps between them";
	return !wrong ? 0 : rsh_error_set(err, EBADMSG, "%s: damaged: %s", path,
					  wrong);
}

int rsh_dcp_item_read(const struct rsh_byte_source *file, uint64_t offset,
		      uint64_t length, struct rsh_dcp_item *out,
		      struct rsh_error *err)
{
	char path[RSH_TORCH_ITEM_PATH];
	struct rsh_torch_file *f;
	int rc = rsh_torch_item_read(file, offset, length, path, &f, err);

	*out = (struct rsh_dcp_item){ 0 };
	if (rc)
		return rc;
	rc = item_take(f, path, out, err);
	out->offset += offset;
	rsh_torch_file_free(f);
	return rc;
}

int rsh_dcp_item_check(const struct rsh_byte_source *file,
		       const struct rsh_dcp_item *item, struct rsh_error *err)
{
	uint32_t crc = 0;
	int rc;

	if (!item->has_crc)
		return 0;
	rc = rsh_bytes_crc(file, item->offset, item->bytes, rsh_crc32, &crc,
			   err);
	if (rc || crc == item->crc)
		return rc;
	return rsh_bytes_damaged(file, item->offset, "the elements do not "
				 "match their CRC", err);
}

/* A part of a file. */
struct section {
	const struct rsh_byte_source *file;
	uint64_t offset;
};

static ssize_t section_pread(void *section, void *buf, size_t len,
			     uint64_t offset)
{
	const struct section *s = section;

	return s->file->pread_fn(s->file->ctx, buf, len, s->offset + offset);
}

/* Reads a pickle that is a section of a file.  One that is larger than any
 * plain value is not read. */
static int value_read_pickle(const struct rsh_byte_source *file,
			     uint64_t offset, uint64_t length,
			     struct rsh_plain *out, struct rsh_error *err)
{
	static const struct rsh_pickle_rules rules = { .ctx = NULL };
	char path[RSH_TORCH_ITEM_PATH];
	struct section section = { file, offset };
	const struct rsh_byte_source bytes = {
		section_pread, &section, length, path,
	};
	cleanup_free struct rsh_pickle *p = NULL;
	struct rsh_arena values = { 0 };
	struct rsh_pickle_value v;
	int rc;

	snprintf(path, sizeof(path), "%s, value at %" PRIu64, file->path,
		 offset);
	if (offset > file->size || length > file->size - offset)
		return rsh_error_set(err, EBADMSG, "%s: truncated", path);
	if (length > OBJECT_MAX)
		return 0;
	p = calloc(1, sizeof(*p));
	if (!p)
		return rsh_error_nomem(err);
	p->src = &bytes;
	p->err = err;
	rc = rsh_pickle_values(p, &rules, &values, &v) ?:
	     rsh_plain_make(&v, out);
	rsh_arena_clear(&values);
	return rc;
}

int rsh_dcp_value_read(const struct rsh_byte_source *file, uint64_t offset,
		       uint64_t length, bool bare, struct rsh_plain *out,
		       struct rsh_error *err)
{
	*out = (struct rsh_plain){ .json = NULL };
	return bare ? value_read_pickle(file, offset, length, out, err) :
	       rsh_torch_item_value(file, offset, length, out, err);
}
