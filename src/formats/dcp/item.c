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
#include "rsh/util/checked.h"
#include "rsh/util/mem.h"
#include "rsh/wire/bytes.h"
#include "rsh/wire/pickle_values.h"
#include "rsh/wire/torch_dtype.h"
#include "rsh/wire/zip.h"

/* This many bytes are read at once at either end of an item.  For the items
 * that torch writes, no other reads are necessary. */
#define END_BYTES 4096
/* The data.pkl of a tensor is not larger than this. */
#define OBJECT_MAX ((uint64_t)1024 * 1024)
/* All entries that are needed are among the first ones; torch writes fewer than
 * ten for a tensor.  The limit matters if items share a large directory. */
#define ENTRIES_MAX 1024
#define NAME_SUFFIX_MAX 64
#define ITEM_PATH_MAX 1024
/* A flag of an entry: its CRC and sizes are after its content. */
#define ZIP_HAS_DESCRIPTOR 0x08

/* This is an item as if it were a separate file.  Both of its ends have been
 * read. */
struct item_view {
	const struct rsh_byte_source *file;
	uint64_t base, size;
	size_t n; /* bytes of each end */
	uint8_t head[END_BYTES], tail[END_BYTES];
};

/* This is the content of data.pkl. */
struct item_tensor {
	enum rsh_dtype dtype;
	bool in_bytes; /* the storage counts bytes, not elements */
	uint64_t n_stored;
	const char *key; /* the name of the storage */
	const struct rsh_pickle_value *from, *sizes, *strides;
};

struct item_reader {
	struct rsh_byte_source src; /* reads through the view */
	struct rsh_error *err;
	struct rsh_arena values;
	struct item_view view;
	struct rsh_pickle pickle;
	uint8_t room[RSH_ZIP_ROOM + RSH_ZIP_ROOM / 2];
	struct rsh_zip_directory directory;
};

static int item_bad(const struct item_reader *r, uint64_t at, const char *what)
{
	return rsh_bytes_damaged(&r->src, at, what, r->err);
}

/* ---- the item as a file ---- */

static ssize_t item_pread(void *ctx, void *buf, size_t len, uint64_t offset)
{
	const struct item_view *v = ctx;
	const uint64_t tail_at = v->size - v->n;

	if (offset <= v->n && len <= v->n - offset) {
		memcpy(buf, v->head + offset, len);
		return (ssize_t)len;
	}
	if (offset >= tail_at && offset <= v->size && len <= v->size - offset) {
		memcpy(buf, v->tail + (offset - tail_at), len);
		return (ssize_t)len;
	}
	return v->file->pread_fn(v->file->ctx, buf, len, v->base + offset);
}

static int item_open(struct item_reader *r, const struct rsh_byte_source *file,
		     uint64_t offset, uint64_t length)
{
	struct item_view *v = &r->view;
	int rc;

	if (offset > file->size || length > file->size - offset)
		return rsh_error_set(r->err, EBADMSG, "%s: truncated: an item "
				     "of %" PRIu64 " bytes at offset %" PRIu64
				     " of a file of %" PRIu64, file->path,
				     length, offset, file->size);
	v->file = file;
	v->base = offset;
	v->size = length;
	v->n = (size_t)rsh_min_u64(length, END_BYTES);
	rc = rsh_bytes_read(file, v->tail, v->n, offset + length - v->n,
			    r->err);
	if (rc == 0 && v->n == length)
		memcpy(v->head, v->tail, v->n);
	else if (rc == 0)
		rc = rsh_bytes_read(file, v->head, v->n, offset, r->err);
	return rc;
}

/* ---- entries ---- */

/* Finds the entry "<root>/<suffix>", whose name has n bytes before the suffix.
 * e->at is 0 if there is none. */
static int item_find(struct item_reader *r, const char *root, size_t n,
		     const char *suffix, struct rsh_zip_entry *e)
{
	const size_t n_suffix = strlen(suffix);
	const uint64_t n_entries = rsh_min_u64(r->directory.n_entries,
					       ENTRIES_MAX);
	uint64_t at = r->directory.offset;

	for (uint64_t i = 0; i < n_entries; i++) {
		int rc = rsh_zip_read_entry(&r->src, &r->directory, at, r->room,
					    e, r->err);

		if (rc)
			return rc;
		if (root ? e->n_name == n + n_suffix &&
			   memcmp(e->name, root, n) == 0 &&
			   memcmp(e->name + n, suffix, n_suffix) == 0 :
			   rsh_zip_is_torch_object(e))
			return 0;
		at = rsh_zip_next_entry(e);
	}
	*e = (struct rsh_zip_entry){ .at = 0 };
	return 0;
}

/* Finds where the content of an entry begins.  The entry must not be
 * compressed. */
static int item_locate(struct item_reader *r, const struct rsh_zip_entry *e,
		       uint64_t *content)
{
	if (e->method != RSH_ZIP_STORED)
		return item_bad(r, e->at, "an item that is compressed");
	return rsh_zip_read_local(&r->src, &r->directory, e,
				  r->room + RSH_ZIP_ROOM, content, r->err);
}

static int item_check_order(struct item_reader *r, const char *root, size_t n)
{
	static const char little[] = { 'l', 'i', 't', 't', 'l', 'e' };
	char found[sizeof(little)] = { 0 };
	struct rsh_zip_entry e;
	uint64_t at;
	int rc = item_find(r, root, n, "byteorder", &e);

	/* Older releases did not write this entry. */
	if (rc || e.at == 0)
		return rc;
	rc = item_locate(r, &e, &at);
	if (rc == 0 && e.content_bytes == sizeof(found))
		rc = rsh_bytes_read(&r->src, found, sizeof(found), at, r->err);
	if (rc)
		return rc;
	return memcmp(found, little, sizeof(little)) == 0 ? 0 :
	       item_bad(r, e.at, "elements that are not little-endian");
}

/* ---- data.pkl ---- */

static bool item_number(const struct rsh_pickle_value *v, uint64_t *out)
{
	*out = (uint64_t)v->number;
	return v->kind == RSH_PV_NUMBER && v->number >= 0;
}

/* Reads ("storage", class, key, location, number of elements). */
static bool item_take_storage(const struct rsh_pickle_value *v,
			      struct item_tensor *t)
{
	const struct rsh_pickle_value *id;

	if (v->kind != RSH_PV_OBJECT || v->object->class ||
	    v->object->args.kind != RSH_PV_TUPLE || v->object->args.n < 5)
		return false;
	id = v->object->args.items;
	if (!rsh_pickle_is_text(&id[0], "storage") ||
	    id[2].kind != RSH_PV_TEXT || id[2].n >= NAME_SUFFIX_MAX - 8)
		return false;
	t->key = id[2].text;
	t->in_bytes = rsh_pickle_is_class(&id[1], "torch.storage",
					  "UntypedStorage");
	t->dtype = rsh_torch_storage_dtype(&id[1]);
	return item_number(&id[4], &t->n_stored);
}

/* Reads the arguments of the functions of torch._utils that build tensors. */
static bool item_take(const struct rsh_pickle_value *v, struct item_tensor *t)
{
	const struct rsh_pickle_value *args;
	struct rsh_pickle_value class = { .kind = RSH_PV_CLASS };
	bool typed, of_npu;

	if (v->kind != RSH_PV_OBJECT || !v->object->class)
		return false;
	args = &v->object->args;
	class.class = v->object->class;
	typed = rsh_pickle_is_class(&class, "torch._utils",
				    "_rebuild_tensor_v3");
	of_npu = rsh_torch_is_npu(class.class);
	if (!typed && !of_npu &&
	    !rsh_pickle_is_class(&class, "torch._utils", "_rebuild_tensor_v2"))
		return false;
	if (args->kind != RSH_PV_TUPLE || args->n < (typed ? 7 : 6) ||
	    !item_take_storage(&args->items[0], t) ||
	    (!of_npu && rsh_torch_is_marked(args, typed ? 7 : 6)))
		return false;
	if (typed)
		t->dtype = rsh_torch_dtype(&args->items[6]);
	t->from = &args->items[1];
	t->sizes = &args->items[2];
	t->strides = &args->items[3];
	return t->dtype != RSH_DTYPE_UNKNOWN &&
	       t->sizes->kind == RSH_PV_TUPLE &&
	       t->strides->kind == RSH_PV_TUPLE &&
	       t->sizes->n == t->strides->n && t->sizes->n <= RSH_MAX_DIMS;
}

static int item_read_object(struct item_reader *r,
			    const struct rsh_zip_entry *e,
			    struct rsh_pickle_value *v)
{
	static const struct rsh_pickle_rules rules = { .persistent_ids = true };
	struct rsh_byte_source within = r->src;
	int rc = item_locate(r, e, &r->pickle.at);

	if (rc)
		return rc;
	if (e->content_bytes > OBJECT_MAX)
		return item_bad(r, e->at, "a data.pkl too large for a tensor "
				"or a value");
	within.size = r->pickle.at + e->content_bytes;
	r->pickle.src = &within;
	r->pickle.err = r->err;
	return rsh_pickle_values(&r->pickle, &rules, &r->values, v);
}

/* ---- sizes and order ---- */

static int item_take_sizes(struct item_reader *r, const struct item_tensor *t,
			   uint64_t at, struct rsh_dcp_item *out)
{
	uint64_t strides[RSH_MAX_DIMS], from, elements = 1, reach = 1;

	out->dtype = t->dtype;
	out->n_dims = t->sizes->n;
	for (uint32_t d = 0; d < out->n_dims; d++) {
		if (!item_number(&t->sizes->items[d], &out->dims[d]) ||
		    !item_number(&t->strides->items[d], &strides[d]) ||
		    !rsh_mul_u64(reach, rsh_max_u64(out->dims[d], 1), &reach) ||
		    reach > INT64_MAX / RSH_TORCH_ELEMENT_MAX)
			return item_bad(r, at, "a tensor without sizes and "
					"strides");
		elements *= out->dims[d];
	}
	out->bytes = elements * rsh_dtype_size(out->dtype);
	if (t->n_stored != (t->in_bytes ? out->bytes : elements) ||
	    !item_number(t->from, &from) || from != 0)
		return item_bad(r, at, "a tensor that is not all of what is "
				"stored");
	return rsh_torch_order(out->n_dims, out->dims, strides, out->order) ?
	       0 :
	       item_bad(r, at, "elements with gaps between them");
}

/* ---- the whole item ---- */

static int item_find_elements(struct item_reader *r, const char *root, size_t n,
			      const char *key, struct rsh_dcp_item *out)
{
	char suffix[NAME_SUFFIX_MAX];
	struct rsh_zip_entry e;
	int rc;

	snprintf(suffix, sizeof(suffix), "data/%s", key);
	rc = item_find(r, root, n, suffix, &e);
	if (rc)
		return rc;
	if (e.at == 0)
		return item_bad(r, r->directory.offset, "no elements of the "
				"tensor");
	rc = item_locate(r, &e, &out->offset);
	if (rc)
		return rc;
	if (e.content_bytes != out->bytes)
		return item_bad(r, e.at, "elements of another size than the "
				"tensor has");
	out->offset += r->view.base;
	out->crc = e.crc;
	return 0;
}

/* Finds data.pkl and copies the part of its name before that: the names of all
 * entries begin with it. */
static int item_find_object(struct item_reader *r, struct rsh_zip_entry *e,
			    const char **root, size_t *n)
{
	int rc = rsh_zip_read_directory(&r->src, &r->directory, r->err) ?:
		 item_find(r, NULL, 0, "", e);

	if (rc)
		return rc;
	if (e->at == 0)
		return item_bad(r, r->directory.offset, "a zip archive without "
				"data.pkl");
	*n = e->n_name - strlen("data.pkl");
	*root = rsh_arena_strndup(&r->values, (const char *)e->name, *n);
	return *root ? 0 : rsh_error_nomem(r->err);
}

static int item_read(struct item_reader *r, struct rsh_dcp_item *out)
{
	struct rsh_zip_entry e = { .at = 0 };
	struct item_tensor t = { .key = NULL };
	const char *root = NULL;
	size_t n = 0;
	int rc = item_find_object(r, &e, &root, &n);
	struct rsh_pickle_value v;

	if (rc == 0) {
		rc = item_read_object(r, &e, &v);
		if (rc == 0 && !item_take(&v, &t))
			rc = item_bad(r, e.at, "no tensor that is known here");
	}
	if (rc == 0)
		rc = item_check_order(r, root, n);
	if (rc == 0)
		rc = item_take_sizes(r, &t, e.at, out);
	if (rc == 0)
		rc = item_find_elements(r, root, n, t.key, out);
	/* torch.serialization.set_crc32_options(False) makes all CRCs of an
	 * archive 0.  This program writes 0 for the elements only, and no data
	 * descriptors, which torch always writes.  Otherwise a 0 is a real
	 * value, or damaged. */
	out->has_crc = out->crc != 0 ||
		       (e.crc != 0 && e.flags & ZIP_HAS_DESCRIPTOR);
	return rc;
}

static struct item_reader *item_reader_new(const struct rsh_byte_source *file,
					   uint64_t offset, uint64_t length,
					   char path[ITEM_PATH_MAX],
					   struct rsh_error *err)
{
	struct item_reader *r = malloc(sizeof(*r));

	if (!r)
		return NULL;
	snprintf(path, ITEM_PATH_MAX, "%s, item at %" PRIu64, file->path,
		 offset);
	r->src = (struct rsh_byte_source){ item_pread, &r->view, length, path };
	r->err = err;
	r->values = (struct rsh_arena){ 0 };
	r->pickle.window_at = r->pickle.n_window = 0;
	r->directory = (struct rsh_zip_directory){ 0 };
	return r;
}

int rsh_dcp_item_read(const struct rsh_byte_source *file, uint64_t offset,
		      uint64_t length, struct rsh_dcp_item *out,
		      struct rsh_error *err)
{
	char path[ITEM_PATH_MAX];
	cleanup_free struct item_reader *r =
		item_reader_new(file, offset, length, path, err);
	int rc;

	if (!r)
		return rsh_error_nomem(err);
	*out = (struct rsh_dcp_item){ 0 };
	rc = item_open(r, file, offset, length) ?: item_read(r, out);
	rsh_arena_clear(&r->values);
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

/* ---- values ---- */

int rsh_dcp_value_read(const struct rsh_byte_source *file, uint64_t offset,
		       uint64_t length, struct rsh_plain *out,
		       struct rsh_error *err)
{
	static const struct rsh_pickle_rules rules = { .ctx = NULL };
	const bool bare = length == RSH_DCP_BY_NAME;
	struct rsh_zip_entry e = { .at = 0 };
	struct rsh_pickle_value v;
	char path[ITEM_PATH_MAX];
	cleanup_free struct item_reader *r =
		item_reader_new(file, offset, length, path, err);
	const char *root = NULL;
	size_t n = 0;
	int rc;

	*out = (struct rsh_plain){ .json = NULL };
	if (!r)
		return rsh_error_nomem(err);
	if (bare && file->size > OBJECT_MAX)
		return 0;
	if (bare) {
		r->pickle.at = 0;
		r->pickle.src = file;
		r->pickle.err = r->err;
		rc = rsh_pickle_values(&r->pickle, &rules, &r->values, &v);
	} else {
		rc = item_open(r, file, offset, length) ?:
		     item_find_object(r, &e, &root, &n) ?:
		     item_read_object(r, &e, &v);
	}
	if (rc == 0)
		rc = rsh_plain_make(&v, out);
	rsh_arena_clear(&r->values);
	return rc;
}
