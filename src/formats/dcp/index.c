/* SPDX-License-Identifier: Apache-2.0 */
/* formats/dcp/index.c makes the index of a .distcp file from its items.
 *
 * The name of a record is the place of its item, "OFFSET+LENGTH".  "/2,0,1" is
 * appended if the dimensions are stored in another order than the tensor's. So
 * the index describes the file and does not depend on the metadata. */
#include "config.h"

#include "dcp_i.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/formats/torch.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"
#include "rsh/wire/bytes.h"
#include "rsh/wire/pickle_values.h"

/* ---- items: archives of torch.save() ---- */

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
	cleanup_arena struct rsh_arena values = { 0 };
	struct rsh_pickle_value v;

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
	return rsh_pickle_values(p, &rules, &values, &v) ?:
	       rsh_plain_make(&v, out);
}

int rsh_dcp_value_read(const struct rsh_byte_source *file, uint64_t offset,
		       uint64_t length, bool bare, struct rsh_plain *out,
		       struct rsh_error *err)
{
	*out = (struct rsh_plain){ .json = NULL };
	return bare ? value_read_pickle(file, offset, length, out, err) :
	       rsh_torch_item_value(file, offset, length, out, err);
}

/* ---- names of records ---- */

/* Two numbers, and an order of up to 32 dimensions. */
#define NAME_BYTES (2 * 20 + 2 + RSH_MAX_DIMS * 3 + 1)

static size_t item_name(uint64_t offset, uint64_t length,
			const struct rsh_dcp_item *item, char name[NAME_BYTES])
{
	int at = snprintf(name, NAME_BYTES, "%" PRIu64 "+%" PRIu64, offset,
			  length);

	for (uint32_t d = 0; item && !rsh_torch_is_row_major(item->order, item->n_dims) &&
			     d < item->n_dims; d++)
		at += snprintf(name + at, NAME_BYTES - (size_t)at, "%c%u",
			       d ? ',' : '/', item->order[d]);
	return (size_t)at;
}

/* ---- making an index ---- */

/* Returns the items that the file has according to the metadata. */
static const struct rsh_dcp_place *file_places(const struct rsh_dcp_source *d,
					       uint32_t file, size_t *n)
{
	const size_t first = rsh_first(i, d->n, d->places[i].file < file);

	*n = rsh_first(i, d->n, d->places[i].file <= file) - first;
	return d->places + first;
}

static bool place_is_there(const struct rsh_dcp_place *p, uint64_t size)
{
	return p->offset <= size && p->length <= size - p->offset;
}

static int dcp_contradicts(const struct rsh_dcp_place *p, const char *path,
			   const char *what, struct rsh_error *err)
{
	return rsh_error_set(err, EBADMSG, "%s: tensor %s: the item at offset "
			     "%" PRIu64 " %s", path, p->tensor->name,
			     p->offset, what);
}

static int dcp_index_item(struct rsh_ckpt_index *ix,
			  const struct rsh_dcp_place *p,
			  const struct rsh_byte_source *bytes, bool full,
			  struct rsh_names *names, struct rsh_error *err)
{
	struct rsh_record *r = &ix->records[ix->n_records];
	char name[NAME_BYTES];
	struct rsh_dcp_item item;
	int rc = rsh_dcp_item_read(bytes, p->offset, p->length, &item, err);

	if (rc == 0 && item.n_dims != p->tensor->n_dims)
		rc = dcp_contradicts(p, bytes->path, "has other dimensions "
				     "than the metadata says", err);
	if (rc == 0 && item.bytes == 0)
		rc = dcp_contradicts(p, bytes->path, "is empty, and the "
				     "metadata says that it is not", err);
	if (rc == 0 && full)
		rc = rsh_dcp_item_check(bytes, &item, err);
	if (rc)
		return rc;
	ix->n_unsummed += full && !item.has_crc;
	*r = (struct rsh_record){
		.name = rsh_names_add(names, name,
				      item_name(p->offset, p->length, &item,
						name)),
		.dtype = (uint8_t)item.dtype, .n_dims = (uint8_t)item.n_dims,
		.first_dim = ix->n_dims, .first_extent = ix->n_extents,
		.n_extents = 1, .content_bytes = item.bytes,
	};
	if (r->name == RSH_NAME_NONE)
		return rsh_error_nomem(err);
	/* The index has room for as many dimensions as the tensor has. */
	for (uint32_t d = 0; d < item.n_dims; d++)
		ix->dims[ix->n_dims++] = (int64_t)item.dims[item.order[d]];
	ix->extents[ix->n_extents++] = (struct rsh_extent){
		item.offset, item.bytes,
	};
	ix->n_records++;
	return 0;
}

/* HyperParallel on torch gives files of torch.save() the suffix
 * .safetensors. */
static bool dcp_is_zip(const struct rsh_byte_source *bytes)
{
	uint8_t start[4];

	return bytes->pread_fn(bytes->ctx, start, sizeof(start), 0) ==
		       (ssize_t)sizeof(start) &&
	       rsh_torch_form(start, sizeof(start)) == RSH_TORCH_ZIP;
}

/* Returns whether the record is that of an item.  *order is the part of its
 * name with the order. */
static bool record_is_of(const char *name, uint64_t offset, uint64_t length,
			 const char **order)
{
	char wanted[NAME_BYTES];
	size_t len = item_name(offset, length, NULL, wanted);

	*order = name + len;
	return strncmp(name, wanted, len) == 0 &&
	       (name[len] == '\0' || name[len] == '/');
}

/* A stored index may have been made for other metadata.  It must have all
 * records that the metadata needs of the file. */
static int dcp_check_stored(const struct rsh_scan_job *job)
{
	const struct rsh_ckpt_index *ix = job->stored;
	const char *order;
	size_t n, r = 0;
	const struct rsh_dcp_place *p =
		file_places(rsh_dcp_of(job->source), job->file, &n);

	for (size_t i = 0; i < n; i++) {
		if (!place_is_there(&p[i], ix->file_bytes))
			continue;
		while (r < ix->n_records &&
		       !record_is_of(rsh_names_text(job->names,
						    ix->records[r].name),
				     p[i].offset, p[i].length, &order))
			r++;
		if (r++ >= ix->n_records)
			return -ESTALE;
	}
	return 0;
}

int rsh_dcp_index_scan(const struct rsh_scan_job *job,
		       struct rsh_ckpt_index **out, struct rsh_error *err)
{
	const struct rsh_dcp_source *d = rsh_dcp_of(job->source);
	const struct rsh_byte_source *bytes = job->bytes;
	const bool full = job->how != RSH_SCAN_HEADERS;
	size_t n, n_dims = 0, n_beyond = 0;
	const struct rsh_dcp_place *p = file_places(d, job->file, &n);
	struct rsh_ckpt_index *ix;
	uint32_t twice;
	int rc = 0;

	if (job->stored)
		return d->pub->by_name ? 0 : dcp_check_stored(job);
	for (size_t i = 0; i < n && job->how == RSH_SCAN_VERIFY; i++)
		n_beyond += !place_is_there(&p[i], bytes->size);
	if (n_beyond)
		return rsh_error_set(err, EBADMSG, "%s: truncated: %zu of its "
				     "%zu items are beyond its end",
				     bytes->path, n_beyond, n);
	if (d->pub->by_name && d->holds[job->file])
		return dcp_is_zip(bytes) ?
		       rsh_torch_scan_by_name(bytes, full, job->names, out,
					      err) :
		       rsh_file_scan(RSH_FILE_SAFETENSORS, bytes, full,
				     job->names, out, err);
	for (size_t i = 0; i < n; i++)
		n_dims += p[i].tensor->n_dims;
	ix = rsh_ckpt_index_new(n, n, n_dims);
	if (!ix)
		return rsh_error_nomem(err);
	ix->file_bytes = bytes->size;
	for (size_t i = 0; i < n && rc == 0; i++)
		if (place_is_there(&p[i], bytes->size))
			rc = dcp_index_item(ix, &p[i], bytes, full, job->names,
					    err);
	if (rc) {
		rsh_ckpt_index_free(ix);
		return rc;
	}
	ix->summed = full && ix->n_records > 0 && ix->n_unsummed == 0;
	/* Each item has one place, so no name occurs twice. */
	rsh_ckpt_index_sort(ix, &twice);
	*out = ix;
	return 0;
}

/* ---- searching an index ---- */

/* Reads "/2,0,1", or an empty text for row-major.  Returns false if it is not
 * an order of n dimensions. */
static bool read_order(const char *text, uint32_t n, uint8_t *order)
{
	const bool any = *text;
	uint64_t seen = 0, d;

	for (uint32_t i = 0; i < n; i++) {
		size_t digits;

		order[i] = (uint8_t)i;
		if (!any)
			continue;
		if (*text++ != (i ? ',' : '/'))
			return false;
		digits = rsh_count_digits(text, strlen(text));
		if (!rsh_number_read(text, digits, &d) || d >= n ||
		    (seen & UINT64_C(1) << d))
			return false;
		seen |= UINT64_C(1) << d;
		order[i] = (uint8_t)d;
		text += digits;
	}
	return !*text;
}

/* Finds a tensor of a file of torch.save() that is not in row-major order. */
static const struct rsh_record *find_ordered(const struct rsh_ckpt_index *ix,
					     const struct rsh_names *names,
					     const char *name,
					     const char **order)
{
	const size_t n = strlen(name);

	for (uint32_t i = 0; i < ix->n_records; i++) {
		const char *text = rsh_names_text(names, ix->records[i].name);

		if (strncmp(text, name, n) != 0 ||
		    strncmp(text + n, RSH_TORCH_ORDER "/", 2) != 0)
			continue;
		*order = text + n + strlen(RSH_TORCH_ORDER);
		return &ix->records[i];
	}
	return NULL;
}

static bool find_record(const struct rsh_dcp *d, const struct rsh_dcp_tensor *t,
			const struct rsh_dcp_chunk *c,
			const struct rsh_ckpt_index *ix,
			struct rsh_names *names, struct rsh_dcp_held *out)
{
	const char *order = "", *key = c->key ? c->key : t->name;
	const struct rsh_record *r;

	if (d->by_name) {
		r = rsh_ckpt_find(ix, rsh_names_find(names, key, strlen(key)));
		if (!r)
			r = find_ordered(ix, names, key, &order);
		if (!r)
			return false;
		out->record = (uint32_t)(r - ix->records);
	} else {
		/* The first record whose elements begin at or after the chunk's
		 * offset. */
		r = ix->records;
		out->record = rsh_first(i, ix->n_records,
			ix->extents[r[i].first_extent].offset < c->offset);
		if (out->record == ix->n_records ||
		    !record_is_of(rsh_names_text(names, r[out->record].name),
				  c->offset, c->length, &order))
			return false;
	}
	return read_order(order, t->n_dims, out->order);
}

int rsh_dcp_find_held(const struct rsh_dcp *d, const struct rsh_dcp_tensor *t,
		      const struct rsh_dcp_chunk *c,
		      const struct rsh_source_view *view,
		      struct rsh_dcp_held *out, struct rsh_error *err)
{
	const struct rsh_ckpt_index *ix =
		c->file < view->n_ranks ? view->index[c->file] : NULL;
	const struct rsh_record *r;
	uint64_t at;
	bool fits;

	if (!ix || !find_record(d, t, c, ix, view->names, out))
		return -ENOENT;
	r = &ix->records[out->record];
	at = r->n_extents ? ix->extents[r->first_extent].offset : 0;
	if (r->dtype != t->dtype)
		return rsh_error_set(err, EBADMSG, "%s: tensor %s at offset "
				     "%" PRIu64 " is %s, and %s by the "
				     "metadata", view->path[c->file], t->name,
				     at, rsh_dtype_name(r->dtype),
				     rsh_dtype_name(t->dtype));
	fits = r->n_dims == t->n_dims;
	for (uint32_t i = 0; fits && i < r->n_dims; i++)
		fits = (uint64_t)rsh_record_dims(ix, r)[i] ==
		       c->size[out->order[i]];
	if (!fits)
		return rsh_error_set(err, EBADMSG, "%s: tensor %s at offset "
				     "%" PRIu64 " has another shape than the "
				     "metadata says", view->path[c->file],
				     t->name, at);
	return 0;
}
