/* SPDX-License-Identifier: Apache-2.0 */
/* formats/dcp/metadata.c reads a ".metadata": it takes tensors and their chunks
 * from the values that the pickle builds, and from storage_data the file and
 * the place of each item.
 *
 * A crafted file may use one value in many places. Therefore no path through
 * the values is longer than a few steps, names and lists of attributes are
 * short, and there are at most as many chunks as the file has room for. */
#include "config.h"

#include "dcp_i.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/checked.h"
#include "rsh/util/mem.h"
#include "rsh/wire/bytes.h"
#include "rsh/wire/pickle_values.h"
#include "rsh/wire/torch_dtype.h"

#define NAME_MAX_BYTES 4096
#define ATTRIBUTES_MAX 64

/* Limits the bytes of all texts that are copied for each use; each key of a
 * path takes two bytes of a pickle. */
#define TEXTS_PER_BYTE 16
#define TEXTS_AT_LEAST 65536

#define RSH_DCP_NO_INDEX (-1)

/* This is an entry of storage_data: the key of an item and its place. */
struct rsh_dcp_entry {
	const char *name;
	const struct rsh_pickle_value *from;
	uint32_t n_dims;
	uint32_t file; /* or RSH_DCP_NO_FILE for a value */
	const char *path;
	const char *key; /* name of the item in the file; NULL: that of the
			  * tensor */
	/* index among the tensor's chunks, or RSH_DCP_NO_INDEX */
	int64_t index;
	uint64_t offset, length;
};

/* An entry of planner_data: a name, and the keys of which it is made. */
struct dcp_planned {
	const char *name;
	const struct rsh_pickle_value *keys;
	uint32_t n;
};

struct rsh_dcp_reader {
	const struct rsh_byte_source *src;
	struct rsh_error *err;
	struct rsh_arena values; /* memory of the pickle's values */
	struct rsh_dcp_builder *b;
	struct rsh_arena *arena; /* of what is kept */
	bool by_name;
	struct rsh_dcp_entry *entries; /* sorted */
	uint32_t n_entries;
	uint64_t n_chunks; /* of all tensors */
	/* Entries of planner_data that have a path, sorted. */
	struct dcp_planned *planned;
	uint32_t n_planned;
	uint64_t text_bytes_left; /* that paths, keys and files may take */
	const char *name;  /* the current tensor */
	uint64_t at;       /* offset of the current object */
};

/* Sets a sentence about the current tensor and object.  Returns -EBADMSG. */
static int dcp_bad(const struct rsh_dcp_reader *r, const char *what)
{
	if (!r->name)
		return rsh_bytes_damaged(r->src, r->at, what, r->err);
	return rsh_error_set(r->err, EBADMSG, "%s: damaged at offset %" PRIu64
			     ": \"%s\": %s", r->src->path, r->at, r->name,
			     what);
}

/* Returns whether a value is an object of one of the needed classes. */
static bool dcp_is_made_of(const struct rsh_pickle_value *v, const char *class)
{
	static const char torch[] = "torch.distributed.";
	static const char hyper[] = "hyper_parallel.core.";
	const struct rsh_pickle_class *c =
		v->kind == RSH_PV_OBJECT ? v->object->class : NULL;

	return c && strcmp(c->name, class) == 0 &&
	       (strncmp(c->module, torch, sizeof(torch) - 1) == 0 ||
		strncmp(c->module, hyper, sizeof(hyper) - 1) == 0);
}

/* Checks whether a value is an object of a class, and makes it the current
 * object. */
static int dcp_expect(struct rsh_dcp_reader *r,
		      const struct rsh_pickle_value *v, const char *class)
{
	const struct rsh_pickle_value *state;

	if (!dcp_is_made_of(v, class))
		return rsh_error_set(r->err, EBADMSG, "%s: damaged at offset %"
				     PRIu64 ": something else than a %s",
				     r->src->path, r->at, class);
	r->at = v->object->at;
	state = &v->object->state;
	return state->kind == RSH_PV_DICT &&
	       state->list->n > 2 * ATTRIBUTES_MAX ?
		       dcp_bad(r, "an object with too many attributes") : 0;
}

/* Returns an attribute of an object, or None if the object does not have it. */
static const struct rsh_pickle_value *
dcp_attribute(const struct rsh_pickle_value *v, const char *name)
{
	static const struct rsh_pickle_value none = { .kind = RSH_PV_NONE };
	const struct rsh_pickle_value *found =
		rsh_pickle_find(&v->object->state, name);

	return found ? found : &none;
}

/* Reads a text as a name: it must be short and have no NUL. */
static int dcp_name(const struct rsh_dcp_reader *r,
		    const struct rsh_pickle_value *v, const char **out)
{
	if (v->kind != RSH_PV_TEXT || v->n == 0 || v->n > NAME_MAX_BYTES ||
	    memchr(v->text, '\0', v->n))
		return dcp_bad(r, "not a name");
	*out = v->text;
	return 0;
}

/* Takes memory for texts.  A crafted file may use one text many times. */
static int dcp_spend(struct rsh_dcp_reader *r, uint64_t bytes)
{
	if (bytes > r->text_bytes_left)
		return dcp_bad(r, "texts of more bytes than the file has room "
			       "for");
	r->text_bytes_left -= bytes;
	return 0;
}

static int dcp_copy(struct rsh_dcp_reader *r, const char *text, size_t n,
		    const char **out)
{
	int rc = dcp_spend(r, n);

	if (rc)
		return rc;
	*out = rsh_arena_strndup(r->arena, text, n);
	return *out ? 0 : rsh_error_nomem(r->err);
}

/* Reads the offsets or the sizes of a box; out has room for n_dims of them. */
static int dcp_numbers(const struct rsh_dcp_reader *r,
		       const struct rsh_pickle_value *v, uint32_t n_dims,
		       uint64_t *out)
{
	if (v->kind != RSH_PV_TUPLE || v->n != n_dims)
		return dcp_bad(r, "a box whose numbers are not one for "
			       "each dimension");
	for (uint32_t d = 0; d < n_dims; d++) {
		if (v->items[d].kind != RSH_PV_NUMBER || v->items[d].number < 0)
			return dcp_bad(r, "a size or an offset that is not "
				       "an integer of 0 or more");
		out[d] = (uint64_t)v->items[d].number;
	}
	return 0;
}

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

RSH_ORDER(dcp_entry_compare, struct rsh_dcp_entry,
	  dcp_entry_compare_box(x, y) ?:
	  (x->index > y->index) - (x->index < y->index) ?:
	  strcmp(x->path, y->path) ?:
	  rsh_compare_u64(x->offset, y->offset))

/* Reads a MetadataIndex. */
static int dcp_read_key(struct rsh_dcp_reader *r,
			const struct rsh_pickle_value *v,
			struct rsh_dcp_entry *e)
{
	const struct rsh_pickle_value *from, *index;
	uint64_t numbers[RSH_MAX_DIMS];
	int rc = dcp_expect(r, v, "MetadataIndex") ?:
		 dcp_name(r, dcp_attribute(v, "fqn"), &e->name);

	if (rc)
		return rc;
	index = dcp_attribute(v, "index");
	e->index = index->kind == RSH_PV_NUMBER && index->number >= 0 ?
		   index->number : RSH_DCP_NO_INDEX;
	from = dcp_attribute(v, "offset");
	if (from->kind == RSH_PV_NONE)
		return 0;
	if (from->n > RSH_MAX_DIMS)
		return dcp_bad(r, "a chunk of too many dimensions");
	rc = dcp_numbers(r, from, from->n, numbers);
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
	const struct rsh_pickle_value *offset = dcp_attribute(v, "offset");
	const struct rsh_pickle_value *length = dcp_attribute(v, "length");
	uint64_t end;

	if (offset->kind != RSH_PV_NUMBER || offset->number < 0 ||
	    length->kind != RSH_PV_NUMBER ||
	    length->number < (r->by_name ? -1 : 0))
		return dcp_bad(r, "an item without offset and length");
	e->offset = (uint64_t)offset->number;
	e->length = length->number < 0 ? RSH_DCP_BY_NAME :
					 (uint64_t)length->number;
	return length->number < 0 || (rsh_add_u64(e->offset, e->length, &end) &&
				      end <= INT64_MAX) ? 0 :
	       dcp_bad(r, "an item that ends behind any file");
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

static bool is_component(const char *at, size_t n)
{
	return n > 0 && strncmp(at, "..", n) != 0 && strncmp(at, ".", n) != 0;
}

/* Returns whether a file is in the directory.  HyperParallel may save only what
 * changed, and the files of earlier steps are "../step_1/NAME". */
static bool dcp_is_file_name(const struct rsh_dcp_reader *r, const char *path)
{
	const char *at = path;
	size_t n;

	while (r->by_name && strncmp(at, "../", 3) == 0)
		at += 3;
	for (n = strcspn(at, "/"); at > path && at[n]; n = strcspn(at, "/")) {
		if (!is_component(at, n))
			return false;
		at += n + 1;
	}
	return !at[n] && is_component(at, n);
}

/* Reads a _StorageInfo, which HyperParallel calls StorageInfo. */
static int dcp_read_info(struct rsh_dcp_reader *r,
			 const struct rsh_pickle_value *v,
			 struct rsh_dcp_entry *e)
{
	const struct rsh_pickle_value *key;
	const char *path = NULL;
	int rc = dcp_expect(r, v, r->by_name ? "StorageInfo" :
						  "_StorageInfo");

	if (rc)
		return rc;
	if (!dcp_is_plain(dcp_attribute(v, "transform_descriptors")))
		return rsh_error_set(r->err, ENOTSUP, "%s: the item of \"%s\" "
				     "is compressed or encrypted, which is "
				     "not supported", r->src->path, e->name);
	rc = dcp_name(r, dcp_attribute(v, "relative_path"), &path);
	if (rc)
		return rc;
	if (!dcp_is_file_name(r, path))
		return rsh_error_set(r->err, EBADMSG, "%s: damaged at offset %"
				     PRIu64 ": \"%s\" is not a file name",
				     r->src->path, r->at, path);
	e->path = path;
	key = dcp_attribute(v, "tensor_key");
	if (r->by_name && key->kind != RSH_PV_NONE)
		rc = dcp_name(r, key, &e->key);
	return rc ?: dcp_read_place(r, v, e);
}

/* Reads storage_data. */
static int dcp_read_entries(struct rsh_dcp_reader *r,
			    const struct rsh_pickle_value *v)
{
	const struct rsh_pickle_list *l = v->list;
	int rc = 0;

	if (v->kind != RSH_PV_DICT)
		return dcp_bad(r, "a Metadata without storage_data");
	r->entries = calloc(l->n / 2 + 1, sizeof(*r->entries));
	if (!r->entries)
		return rsh_error_nomem(r->err);
	for (uint32_t i = 0; i < l->n && rc == 0; i += 2) {
		struct rsh_dcp_entry *e = &r->entries[r->n_entries++];

		rc = dcp_read_key(r, &l->values[i], e) ?:
		     dcp_read_info(r, &l->values[i + 1], e);
		/* The files of HyperParallel's values have no tensors. */
		e->file = RSH_DCP_NO_FILE;
		if (rc || (r->by_name && e->length != RSH_DCP_BY_NAME))
			continue;
		e->file = rsh_names_add(r->b->files, e->path, strlen(e->path));
		if (e->file == RSH_NAME_NONE)
			return rsh_error_nomem(r->err);
	}
	if (rc)
		return rc;
	rsh_sort(r->entries, r->n_entries, dcp_entry_compare);
	return 0;
}

/* Returns the first entry with the same name and offsets whose index is not
 * lower.  Returns NULL if there is none. */
static const struct rsh_dcp_entry *
dcp_entry_from(const struct rsh_dcp_reader *r, const struct rsh_dcp_entry *key)
{
	const uint32_t at = rsh_first(i, r->n_entries, dcp_entry_compare(
					      &r->entries[i], key) < 0);

	return at < r->n_entries &&
	       dcp_entry_compare_box(&r->entries[at], key) == 0 ?
		       &r->entries[at] : NULL;
}

/* Finds the item of a chunk.  The index is a hint that distinguishes copies.
 * Returns NULL if there is none. */
static const struct rsh_dcp_entry *
dcp_entry_find(const struct rsh_dcp_reader *r, const struct rsh_dcp_entry *key)
{
	const struct rsh_dcp_entry *e = dcp_entry_from(r, key);
	struct rsh_dcp_entry any = *key;

	if (e && e->index == key->index)
		return e;
	any.index = RSH_DCP_NO_INDEX;
	return dcp_entry_from(r, &any);
}

/* A chunk takes at least this many bytes of a pickle. */
#define CHUNK_LEAST_BYTES 8

/* ---- state_dict_metadata ---- */

/* Checks whether a box is within its tensor. */
static bool dcp_is_inside(const struct rsh_dcp_tensor *t, const uint64_t *from,
			  const uint64_t *size)
{
	return !rsh_any(d, t->n_dims,
			from[d] > t->dims[d] || size[d] > t->dims[d] - from[d]);
}

static int dcp_read_chunk(struct rsh_dcp_reader *r,
			  const struct rsh_pickle_value *v,
			  const struct rsh_dcp_tensor *t, uint32_t index,
			  struct rsh_dcp_chunk *out)
{
	uint64_t *from = rsh_arena_array(r->arena, uint64_t,
					 2 * (size_t)t->n_dims);
	const struct rsh_pickle_value *offsets;
	const struct rsh_dcp_entry *e;
	int rc = from ? dcp_expect(r, v, "ChunkStorageMetadata") :
			rsh_error_nomem(r->err);

	if (rc)
		return rc;
	offsets = dcp_attribute(v, "offsets");
	rc = dcp_numbers(r, offsets, t->n_dims, from) ?:
	     dcp_numbers(r, dcp_attribute(v, "sizes"),
			 t->n_dims, from + t->n_dims);
	if (rc == 0 && !dcp_is_inside(t, from, from + t->n_dims))
		rc = dcp_bad(r, "a chunk that leaves the tensor");
	if (rc)
		return rc;
	e = dcp_entry_find(r, &(struct rsh_dcp_entry){
		.name = t->name, .from = offsets->items, .n_dims = t->n_dims,
		.path = "", .index = index,
	});
	*out = (struct rsh_dcp_chunk){
		.from = from, .size = from + t->n_dims,
		.file = e ? e->file : RSH_DCP_NO_FILE,
		.offset = e ? e->offset : 0, .length = e ? e->length : 0,
	};
	return !e || !e->key || strcmp(e->key, t->name) == 0 ? 0 :
	       dcp_copy(r, e->key, strlen(e->key), &out->key);
}

static int dcp_read_chunks(struct rsh_dcp_reader *r,
			   const struct rsh_pickle_value *v,
			   struct rsh_dcp_tensor *t)
{
	struct rsh_dcp_chunk *chunks;
	int rc = 0;

	if (v->kind != RSH_PV_LIST)
		return dcp_bad(r, "a tensor without a list of chunks");
	r->n_chunks += v->list->n;
	if (r->n_chunks > r->src->size / CHUNK_LEAST_BYTES)
		return dcp_bad(r, "more chunks than the file has room for");
	chunks = rsh_arena_array(r->arena, struct rsh_dcp_chunk,
				 v->list->n);
	if (!chunks)
		return rsh_error_nomem(r->err);
	for (uint32_t i = 0; i < v->list->n && rc == 0; i++)
		rc = dcp_read_chunk(r, &v->list->values[i], t, i, &chunks[i]);
	t->n_chunks = v->list->n;
	t->chunks = chunks;
	return rc;
}

/* Reads the type in the properties: torch's are a tuple that begins with a
 * class, HyperParallel's contain the type's name. */
static enum rsh_dtype dcp_dtype(const struct rsh_pickle_value *properties)
{
	const struct rsh_pickle_value *state = &properties->object->state;
	const struct rsh_pickle_value *dtype;

	if (state->kind == RSH_PV_TUPLE)
		return state->n > 0 ? rsh_torch_dtype(&state->items[0]) :
				      RSH_DTYPE_UNKNOWN;
	dtype = rsh_pickle_find(state, "dtype");
	return dtype ? rsh_torch_dtype(dtype) : RSH_DTYPE_UNKNOWN;
}

static int dcp_read_tensor(struct rsh_dcp_reader *r,
			   const struct rsh_pickle_value *v,
			   struct rsh_dcp_tensor *t)
{
	const struct rsh_pickle_value *size, *properties;
	uint64_t *dims;
	int rc = dcp_expect(r, v, "TensorStorageMetadata");

	if (rc)
		return rc;
	size = dcp_attribute(v, "size");
	if (size->kind != RSH_PV_TUPLE || size->n > RSH_MAX_DIMS)
		return dcp_bad(r, "a tensor without a size");
	dims = rsh_arena_array(r->arena, uint64_t, size->n);
	if (!dims)
		return rsh_error_nomem(r->err);
	rc = dcp_numbers(r, size, size->n, dims);
	if (rc)
		return rc;
	t->n_dims = size->n;
	t->dims = dims;
	if (!rsh_dcp_is_countable(t))
		return dcp_bad(r, "a tensor whose bytes cannot be counted");
	properties = dcp_attribute(v, "properties");
	rc = dcp_expect(r, properties, "TensorProperties");
	if (rc)
		return rc;
	t->dtype = dcp_dtype(properties);
	return dcp_read_chunks(r, dcp_attribute(v, "chunks"), t);
}

static int dcp_read_value(struct rsh_dcp_reader *r, struct rsh_dcp_value *v)
{
	const struct rsh_dcp_entry key = {
		.name = v->name, .path = "", .index = RSH_DCP_NO_INDEX,
	};
	const struct rsh_dcp_entry *e = dcp_entry_find(r, &key);

	if (!e)
		return 0;
	v->offset = e->offset;
	v->length = e->length;
	return dcp_copy(r, e->path, strlen(e->path), &v->file);
}

/* ---- planner_data ---- */

RSH_ORDER(dcp_planned_by_name, struct dcp_planned, strcmp(x->name, y->name))

/* Returns whether the values are keys, and more than the name alone. */
static bool dcp_is_path(const struct dcp_planned *p)
{
	if (p->n == 1 && p->keys->kind == RSH_PV_TEXT &&
	    strcmp(p->keys->text, p->name) == 0)
		return false;
	for (uint32_t i = 0; i < p->n; i++) {
		const struct rsh_pickle_value *k = &p->keys[i];

		if ((k->kind != RSH_PV_NUMBER || k->number < 0) &&
		    (k->kind != RSH_PV_TEXT || k->n > NAME_MAX_BYTES ||
		     memchr(k->text, '\0', k->n)))
			return false;
	}
	return p->n > 0;
}

/* Lists the paths.  What is none is not an error: torch loads without them. */
static int dcp_read_planned(struct rsh_dcp_reader *r,
			    const struct rsh_pickle_value *v)
{
	const struct rsh_pickle_list *l = v->list;

	if (v->kind != RSH_PV_DICT)
		return 0;
	r->planned = calloc(l->n / 2 + 1, sizeof(*r->planned));
	if (!r->planned)
		return rsh_error_nomem(r->err);
	for (uint32_t i = 0; i + 1 < l->n; i += 2) {
		const struct rsh_pickle_value *to = &l->values[i + 1];
		struct dcp_planned *p = &r->planned[r->n_planned];
		const bool is_list = to->kind == RSH_PV_LIST;

		if (l->values[i].kind != RSH_PV_TEXT ||
		    (!is_list && to->kind != RSH_PV_TUPLE))
			continue;
		*p = (struct dcp_planned){
			l->values[i].text,
			is_list ? to->list->values : to->items,
			is_list ? to->list->n : to->n,
		};
		r->n_planned += dcp_is_path(p);
	}
	rsh_sort(r->planned, r->n_planned, dcp_planned_by_name);
	return 0;
}

/* Copies the path of a name. */
static int dcp_keep_path(struct rsh_dcp_reader *r, const char *name,
			 const struct rsh_path_key **out, uint32_t *n)
{
	const struct dcp_planned key = { .name = name };
	const struct dcp_planned *p = rsh_find(&key, r->planned, r->n_planned,
					       dcp_planned_by_name);
	struct rsh_path_key *keys;
	int rc;

	if (!p)
		return 0;
	rc = dcp_spend(r, p->n * sizeof(*keys));
	if (rc)
		return rc;
	keys = rsh_arena_array(r->arena, struct rsh_path_key, p->n);
	if (!keys)
		return rsh_error_nomem(r->err);
	for (uint32_t i = 0; i < p->n && rc == 0; i++) {
		const struct rsh_pickle_value *k = &p->keys[i];

		keys[i].text = NULL;
		if (k->kind == RSH_PV_NUMBER)
			keys[i].index = (uint64_t)k->number;
		else
			rc = dcp_copy(r, k->text, k->n, &keys[i].text);
	}
	*out = keys;
	*n = p->n;
	return rc;
}

/* Reads the entry of a name in state_dict_metadata. */
static int dcp_read_named(struct rsh_dcp_reader *r,
			  const struct rsh_pickle_value *v)
{
	struct rsh_dcp_tensor *t;
	struct rsh_dcp_value *value;
	int rc = dcp_name(r, &v[0], &r->name);

	if (rc)
		return rc;
	if (dcp_is_made_of(&v[1], "BytesStorageMetadata")) {
		value = rsh_dcp_builder_value(r->b);
		if (!value)
			return rsh_error_nomem(r->err);
		value->name = r->name;
		rc = dcp_read_value(r, value);
	} else {
		t = rsh_dcp_builder_tensor(r->b);
		if (!t)
			return rsh_error_nomem(r->err);
		t->name = r->name;
		rc = dcp_read_tensor(r, &v[1], t);
	}
	r->name = NULL;
	return rc;
}

/* Keeps the names of the tensors or values from `first` on, which are those of
 * the pickle so far, and their paths.  They are copied only after the check
 * that no name is repeated, because a small file may repeat a long name very
 * often. */
static int dcp_keep(struct rsh_dcp_reader *r, void *all, size_t first, size_t n,
		    size_t bytes, size_t keys_at, size_t n_keys_at)
{
	int rc = 0;

	/* The name is the first member of both. */
	if (n > first)
		qsort((char *)all + first * bytes, n - first, bytes,
		      rsh_by_text);
	for (size_t i = first; i < n && rc == 0; i++) {
		char *one = (char *)all + i * bytes;
		const char **name = (const char **)(void *)one;

		r->name = i + 1 < n && rsh_by_text(one, one + bytes) == 0 ?
			  *name : NULL;
		if (r->name)
			return dcp_bad(r, "it is there twice");
	}
	for (size_t i = first; i < n && rc == 0; i++) {
		char *one = (char *)all + i * bytes;
		const char **name = (const char **)(void *)one;

		*name = rsh_arena_strndup(r->arena, *name, strlen(*name));
		rc = !*name ? rsh_error_nomem(r->err) :
		     dcp_keep_path(r, *name, (void *)(one + keys_at),
				   (void *)(one + n_keys_at));
	}
	return rc;
}

static int dcp_read_all(struct rsh_dcp_reader *r,
			const struct rsh_pickle_value *v)
{
	struct rsh_dcp_builder *b = r->b;
	const size_t n_tensors = b->n_tensors, n_values = b->n_values;
	int rc = 0;

	if (v->kind != RSH_PV_DICT)
		return dcp_bad(r, "a Metadata without state_dict_metadata");
	for (uint32_t i = 0; i < v->list->n && rc == 0; i += 2)
		rc = dcp_read_named(r, &v->list->values[i]);
	if (rc)
		return rc;
	return dcp_keep(r, b->tensors, n_tensors, b->n_tensors,
			sizeof(*b->tensors),
			offsetof(struct rsh_dcp_tensor, keys),
			offsetof(struct rsh_dcp_tensor, n_keys)) ?:
	       dcp_keep(r, b->values, n_values, b->n_values, sizeof(*b->values),
			offsetof(struct rsh_dcp_value, keys),
			offsetof(struct rsh_dcp_value, n_keys));
}

/* ---- the file ---- */

/* HyperParallel writes the version of the structure, since 2026-04. */
static int dcp_check_version(const struct rsh_dcp_reader *r,
			     const struct rsh_pickle_value *version)
{
	static const char known[] = "is not known (1.0, 2.0)";

	if (version->kind == RSH_PV_NONE)
		return 0;
	if (version->kind != RSH_PV_TEXT || version->n > 64)
		return rsh_error_set(r->err, ENOTSUP, "%s: its version %s",
				     r->src->path, known);
	return strcmp(version->text, "1.0") == 0 ||
	       strcmp(version->text, "2.0") == 0 ? 0 :
	       rsh_error_set(r->err, ENOTSUP, "%s: version %s %s",
			     r->src->path, version->text, known);
}

static int dcp_read_metadata(struct rsh_dcp_reader *r)
{
	static const struct rsh_pickle_rules rules = { .ctx = NULL };
	cleanup_free struct rsh_pickle *p = calloc(1, sizeof(*p));
	struct rsh_pickle_value root;
	int rc;

	if (!p)
		return rsh_error_nomem(r->err);
	p->src = r->src;
	p->err = r->err;
	rc = rsh_pickle_values(p, &rules, &r->values, &root) ?:
	     dcp_expect(r, &root, "Metadata");
	if (rc)
		return rc;
	r->by_name = root.object->class->module[0] == 'h';
	if (r->b->n_parts++ > 0 && r->by_name != r->b->d->by_name)
		return rsh_error_set(r->err, EBADMSG, "%s: ranks of two kinds "
				     "of checkpoint", r->b->path);
	r->b->d->by_name = r->by_name;
	rc = r->by_name ? dcp_check_version(r, dcp_attribute(&root, "version")) :
			  0;
	rc = rc ?: dcp_read_entries(r, dcp_attribute(&root, "storage_data"));
	if (rc)
		return rc;
	r->at = root.object->at;
	return dcp_read_planned(r, dcp_attribute(&root, "planner_data")) ?:
	       dcp_read_all(r, dcp_attribute(&root, "state_dict_metadata"));
}

int rsh_dcp_builder_add(struct rsh_dcp_builder *b,
			const struct rsh_byte_source *src,
			struct rsh_error *err)
{
	struct rsh_dcp_reader r = {
		.src = src, .err = err, .b = b, .arena = &b->d->arena_,
		.text_bytes_left = TEXTS_PER_BYTE * src->size + TEXTS_AT_LEAST,
	};
	int rc = dcp_read_metadata(&r);

	rsh_arena_clear(&r.values);
	free(r.entries);
	free(r.planned);
	return rc;
}

int rsh_dcp_parse(const struct rsh_byte_source *src, struct rsh_dcp **out,
		  struct rsh_error *err)
{
	struct rsh_dcp_builder *b = rsh_dcp_builder_new(src->path);
	int rc = !b ? rsh_error_nomem(err) :
		 rsh_dcp_builder_add(b, src, err) ?:
		 rsh_dcp_builder_finish(b, out, err);

	if (rc)
		*out = NULL;
	rsh_dcp_builder_free(b);
	return rc;
}
