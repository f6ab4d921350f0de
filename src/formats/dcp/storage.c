/* SPDX-License-Identifier: Apache-2.0 */
/* formats/dcp/storage.c reads storage_data, which gives the file and the place
 * of each item of a checkpoint. */
#include "config.h"

#include "metadata_i.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/checked.h"
#include "rsh/util/mem.h"

static int dcp_entry_compare_box(const struct rsh_dcp_entry *x,
				 const struct rsh_dcp_entry *y)
{
	int order = x->name == y->name ? 0 : strcmp(x->name, y->name);

	if (order == 0)
		order = rsh_compare_u64(x->n_dims, y->n_dims);
	for (uint32_t d = 0; d < x->n_dims && order == 0; d++)
		order = rsh_compare_u64((uint64_t)x->from[d].number,
					(uint64_t)y->from[d].number);
	return order;
}

static int dcp_entry_compare(const void *a, const void *b)
{
	const struct rsh_dcp_entry *x = a, *y = b;
	int order = dcp_entry_compare_box(x, y);

	if (order == 0)
		order = (x->index > y->index) - (x->index < y->index);
	if (order == 0)
		order = strcmp(x->path, y->path);
	return order ? order : rsh_compare_u64(x->offset, y->offset);
}

/* Reads a MetadataIndex. */
static int dcp_read_key(struct rsh_dcp_reader *r,
			const struct rsh_pickle_value *v,
			struct rsh_dcp_entry *e)
{
	const struct rsh_pickle_value *from, *index;
	uint64_t numbers[RSH_MAX_DIMS];
	int rc = rsh_dcp_expect(r, v, "MetadataIndex");

	if (rc == 0)
		rc = rsh_dcp_name(r, rsh_dcp_attribute(v, "fqn"), &e->name);
	if (rc)
		return rc;
	index = rsh_dcp_attribute(v, "index");
	e->index = index->kind == RSH_PV_NUMBER && index->number >= 0 ?
		   index->number : RSH_DCP_NO_INDEX;
	from = rsh_dcp_attribute(v, "offset");
	if (from->kind == RSH_PV_NONE)
		return 0;
	if (from->n > RSH_MAX_DIMS)
		return rsh_dcp_bad(r, "a chunk of too many dimensions");
	rc = rsh_dcp_numbers(r, from, from->n, numbers);
	e->from = from->items;
	e->n_dims = from->n;
	return rc;
}

/* Reads offset and length.  HyperParallel's writer does not know the length of
 * an item in a safetensors file, and writes -1. */
static int dcp_read_place(const struct rsh_dcp_reader *r,
			  const struct rsh_pickle_value *v,
			  struct rsh_dcp_entry *e)
{
	const struct rsh_pickle_value *offset = rsh_dcp_attribute(v, "offset");
	const struct rsh_pickle_value *length = rsh_dcp_attribute(v, "length");
	uint64_t end;

	if (offset->kind != RSH_PV_NUMBER || offset->number < 0 ||
	    length->kind != RSH_PV_NUMBER ||
	    length->number < (r->d->by_name ? -1 : 0))
		return rsh_dcp_bad(r, "an item without offset and length");
	e->offset = (uint64_t)offset->number;
	e->length = length->number < 0 ? RSH_DCP_BY_NAME :
					 (uint64_t)length->number;
	return length->number < 0 || (rsh_add_u64(e->offset, e->length, &end) &&
				      end <= INT64_MAX) ? 0 :
	       rsh_dcp_bad(r, "an item that ends behind any file");
}

/* Returns whether the items are stored without transforms such as
 * compression. */
static bool dcp_is_plain(const struct rsh_pickle_value *transforms)
{
	switch (transforms->kind) {
	case RSH_PV_NONE:
		return true;
	case RSH_PV_TUPLE:
		return transforms->n == 0;
	case RSH_PV_LIST:
		return transforms->list->n == 0;
	default:
		return false;
	}
}

/* Reads a _StorageInfo, which HyperParallel calls StorageInfo. */
static int dcp_read_info(struct rsh_dcp_reader *r,
			 const struct rsh_pickle_value *v,
			 struct rsh_dcp_entry *e)
{
	const char *path = NULL;
	int rc = rsh_dcp_expect(r, v, r->d->by_name ? "StorageInfo" :
						      "_StorageInfo");

	if (rc)
		return rc;
	if (!dcp_is_plain(rsh_dcp_attribute(v, "transform_descriptors")))
		return rsh_error_set(r->err, ENOTSUP, "%s: the item of \"%s\" "
				     "is compressed or encrypted, which is "
				     "not supported", r->src->path, e->name);
	rc = rsh_dcp_name(r, rsh_dcp_attribute(v, "relative_path"), &path);
	if (rc)
		return rc;
	/* The file must be in the directory. */
	if (strchr(path, '/') || strcmp(path, ".") == 0 ||
	    strcmp(path, "..") == 0)
		return rsh_error_set(r->err, EBADMSG, "%s: damaged at offset %"
				     PRIu64 ": \"%s\" is not a file name",
				     r->src->path, r->at, path);
	e->path = path;
	return dcp_read_place(r, v, e);
}

/* Sets the file number of each item. */
static int dcp_number_files(struct rsh_dcp_reader *r)
{
	int rc;

	for (uint32_t i = 0; i < r->n_entries; i++) {
		struct rsh_dcp_entry *e = &r->entries[i];

		e->file = RSH_DCP_NO_FILE;
		/* The file of this item has no tensors. */
		if (r->d->by_name && e->length != RSH_DCP_BY_NAME)
			continue;
		e->file = rsh_names_add(r->files.names, e->path,
					strlen(e->path));
		if (e->file == RSH_NAME_NONE)
			return rsh_error_nomem(r->err);
	}
	rc = rsh_dcp_files_sort(&r->files, r->d, r->err);
	for (uint32_t i = 0; i < r->n_entries && rc == 0; i++)
		if (r->entries[i].file != RSH_DCP_NO_FILE)
			r->entries[i].file =
				r->files.number[r->entries[i].file];
	return rc;
}

int rsh_dcp_read_entries(struct rsh_dcp_reader *r,
			 const struct rsh_pickle_value *v)
{
	const struct rsh_pickle_list *l = v->list;
	int rc = 0;

	if (v->kind != RSH_PV_DICT)
		return rsh_dcp_bad(r, "a Metadata without storage_data");
	r->files.names = rsh_names_new();
	r->entries = calloc(l->n / 2 + 1, sizeof(*r->entries));
	if (!r->files.names || !r->entries)
		return rsh_error_nomem(r->err);
	for (uint32_t i = 0; i < l->n && rc == 0; i += 2) {
		struct rsh_dcp_entry *e = &r->entries[r->n_entries++];

		rc = dcp_read_key(r, &l->values[i], e);
		if (rc == 0)
			rc = dcp_read_info(r, &l->values[i + 1], e);
	}
	if (rc == 0)
		rc = dcp_number_files(r);
	if (rc)
		return rc;
	if (r->n_entries > 0)
		qsort(r->entries, r->n_entries, sizeof(*r->entries),
		      dcp_entry_compare);
	return 0;
}

/* Returns the first entry with the same name and offsets whose index is not
 * lower.  Returns NULL if there is none. */
static const struct rsh_dcp_entry *
dcp_entry_from(const struct rsh_dcp_reader *r, const struct rsh_dcp_entry *key)
{
	uint32_t low = 0, high = r->n_entries;

	while (low < high) {
		const uint32_t middle = low + (high - low) / 2;

		if (dcp_entry_compare(&r->entries[middle], key) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low < r->n_entries &&
	       dcp_entry_compare_box(&r->entries[low], key) == 0 ?
		       &r->entries[low] : NULL;
}

const struct rsh_dcp_entry *rsh_dcp_entry_find(const struct rsh_dcp_reader *r,
					       const struct rsh_dcp_entry *key)
{
	const struct rsh_dcp_entry *e = dcp_entry_from(r, key);
	struct rsh_dcp_entry any = *key;

	if (e && e->index == key->index)
		return e;
	any.index = RSH_DCP_NO_INDEX;
	return dcp_entry_from(r, &any);
}
