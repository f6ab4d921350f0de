/* SPDX-License-Identifier: Apache-2.0 */
/* formats/dcp/metadata.c reads a ".metadata": it takes tensors and their chunks
 * from the values that the pickle builds.
 *
 * A crafted file may use one value in many places. Therefore no path through
 * the values is longer than a few steps, names and lists of attributes are
 * short, and there are at most as many chunks as the file has room for. */
#include "config.h"

#include "metadata_i.h"

#include <stdlib.h>
#include <string.h>

#include "rsh/util/mem.h"
#include "rsh/wire/bytes.h"
#include "rsh/wire/pickle_values.h"
#include "rsh/wire/torch_dtype.h"

/* A chunk takes at least this many bytes of a pickle. */
#define CHUNK_LEAST_BYTES 8

/* ---- state_dict_metadata ---- */

/* Checks whether a box is within its tensor. */
static bool dcp_is_inside(const struct rsh_dcp_tensor *t, const uint64_t *from,
			  const uint64_t *size)
{
	for (uint32_t d = 0; d < t->n_dims; d++)
		if (from[d] > t->dims[d] || size[d] > t->dims[d] - from[d])
			return false;
	return true;
}

static int dcp_read_chunk(struct rsh_dcp_reader *r,
			  const struct rsh_pickle_value *v,
			  const struct rsh_dcp_tensor *t, uint32_t index,
			  struct rsh_dcp_chunk *out)
{
	uint64_t *from = rsh_arena_array(&r->d->arena_, uint64_t,
					 2 * (size_t)t->n_dims);
	const struct rsh_pickle_value *offsets;
	const struct rsh_dcp_entry *e;
	int rc = from ? rsh_dcp_expect(r, v, "ChunkStorageMetadata") :
			rsh_error_nomem(r->err);

	if (rc)
		return rc;
	offsets = rsh_dcp_attribute(v, "offsets");
	rc = rsh_dcp_numbers(r, offsets, t->n_dims, from);
	if (rc == 0)
		rc = rsh_dcp_numbers(r, rsh_dcp_attribute(v, "sizes"),
				     t->n_dims, from + t->n_dims);
	if (rc == 0 && !dcp_is_inside(t, from, from + t->n_dims))
		rc = rsh_dcp_bad(r, "a chunk that leaves the tensor");
	if (rc)
		return rc;
	e = rsh_dcp_entry_find(r, &(struct rsh_dcp_entry){
		.name = t->name, .from = offsets->items, .n_dims = t->n_dims,
		.path = "", .index = index,
	});
	*out = (struct rsh_dcp_chunk){
		.from = from, .size = from + t->n_dims,
		.file = e ? e->file : RSH_DCP_NO_FILE,
		.offset = e ? e->offset : 0, .length = e ? e->length : 0,
	};
	return 0;
}

static int dcp_read_chunks(struct rsh_dcp_reader *r,
			   const struct rsh_pickle_value *v,
			   struct rsh_dcp_tensor *t)
{
	struct rsh_dcp_chunk *chunks;
	int rc = 0;

	if (v->kind != RSH_PV_LIST)
		return rsh_dcp_bad(r, "a tensor without a list of chunks");
	r->n_chunks += v->list->n;
	if (r->n_chunks > r->src->size / CHUNK_LEAST_BYTES)
		return rsh_dcp_bad(r, "more chunks than the file has room for");
	chunks = rsh_arena_array(&r->d->arena_, struct rsh_dcp_chunk,
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
	int rc = rsh_dcp_expect(r, v, "TensorStorageMetadata");

	if (rc)
		return rc;
	size = rsh_dcp_attribute(v, "size");
	if (size->kind != RSH_PV_TUPLE || size->n > RSH_MAX_DIMS)
		return rsh_dcp_bad(r, "a tensor without a size");
	dims = rsh_arena_array(&r->d->arena_, uint64_t, size->n);
	if (!dims)
		return rsh_error_nomem(r->err);
	rc = rsh_dcp_numbers(r, size, size->n, dims);
	if (rc)
		return rc;
	t->n_dims = size->n;
	t->dims = dims;
	if (!rsh_dcp_is_countable(t))
		return rsh_dcp_bad(r, "a tensor whose bytes cannot be counted");
	properties = rsh_dcp_attribute(v, "properties");
	rc = rsh_dcp_expect(r, properties, "TensorProperties");
	if (rc)
		return rc;
	t->dtype = dcp_dtype(properties);
	return dcp_read_chunks(r, rsh_dcp_attribute(v, "chunks"), t);
}

static int dcp_read_value(struct rsh_dcp_reader *r, struct rsh_dcp_value *v)
{
	const struct rsh_dcp_entry key = {
		.name = v->name, .path = "", .index = RSH_DCP_NO_INDEX,
	};
	const struct rsh_dcp_entry *e = rsh_dcp_entry_find(r, &key);

	if (!e)
		return 0;
	v->file = e->file != RSH_DCP_NO_FILE ? r->d->files[e->file] :
		  rsh_arena_strndup(&r->d->arena_, e->path, strlen(e->path));
	v->offset = e->offset;
	v->length = e->length;
	return v->file ? 0 : rsh_error_nomem(r->err);
}

/* Reads the entry of a name in state_dict_metadata. */
static int dcp_read_named(struct rsh_dcp_reader *r,
			  const struct rsh_pickle_value *v,
			  struct rsh_dcp_tensor *tensors,
			  struct rsh_dcp_value *values)
{
	const char *name = NULL;
	int rc = rsh_dcp_name(r, &v[0], &name);

	if (rc)
		return rc;
	r->name = name;
	if (rsh_dcp_is_made_of(&v[1], "BytesStorageMetadata")) {
		values += r->d->n_values++;
		values->name = name;
		rc = dcp_read_value(r, values);
	} else {
		tensors += r->d->n_tensors++;
		tensors->name = name;
		rc = dcp_read_tensor(r, &v[1], tensors);
	}
	r->name = NULL;
	return rc;
}

static int dcp_check_names(struct rsh_dcp_reader *r)
{
	const struct rsh_dcp_tensor *t = r->d->tensors;
	const struct rsh_dcp_value *v = r->d->values;

	for (uint32_t i = 1; i < r->d->n_tensors; i++)
		if (strcmp(t[i - 1].name, t[i].name) == 0)
			r->name = t[i].name;
	for (uint32_t i = 1; i < r->d->n_values; i++)
		if (strcmp(v[i - 1].name, v[i].name) == 0)
			r->name = v[i].name;
	return r->name ? rsh_dcp_bad(r, "it is there twice") : 0;
}

static int dcp_keep_name(struct rsh_dcp_reader *r, const char **name)
{
	*name = rsh_arena_strndup(&r->d->arena_, *name, strlen(*name));
	return *name ? 0 : rsh_error_nomem(r->err);
}

static int dcp_read_all(struct rsh_dcp_reader *r,
			const struct rsh_pickle_value *v)
{
	struct rsh_dcp_tensor *tensors;
	struct rsh_dcp_value *values;
	int rc = 0;

	if (v->kind != RSH_PV_DICT)
		return rsh_dcp_bad(r, "a Metadata without state_dict_metadata");
	tensors = rsh_arena_array(&r->d->arena_, struct rsh_dcp_tensor,
				  v->list->n / 2);
	values = rsh_arena_array(&r->d->arena_, struct rsh_dcp_value,
				 v->list->n / 2);
	if (!tensors || !values)
		return rsh_error_nomem(r->err);
	for (uint32_t i = 0; i < v->list->n && rc == 0; i += 2)
		rc = dcp_read_named(r, &v->list->values[i], tensors, values);
	if (rc)
		return rc;
	qsort(tensors, r->d->n_tensors, sizeof(*tensors),
	      rsh_dcp_tensor_by_name);
	qsort(values, r->d->n_values, sizeof(*values), rsh_dcp_value_by_name);
	r->d->tensors = tensors;
	r->d->values = values;
	/* So far the names were those of the pickle.  They are copied only
	 * after the check that no name is repeated, because a small file may
	 * repeat a long name very often. */
	rc = dcp_check_names(r);
	for (uint32_t i = 0; i < r->d->n_tensors && rc == 0; i++)
		rc = dcp_keep_name(r, &tensors[i].name);
	for (uint32_t i = 0; i < r->d->n_values && rc == 0; i++)
		rc = dcp_keep_name(r, &values[i].name);
	return rc;
}

/* ---- the file ---- */

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
	rc = rsh_pickle_values(p, &rules, &r->values, &root);
	if (rc == 0)
		rc = rsh_dcp_expect(r, &root, "Metadata");
	if (rc)
		return rc;
	r->d->by_name = root.object->class->module[0] == 'h';
	rc = rsh_dcp_read_entries(r, rsh_dcp_attribute(&root, "storage_data"));
	if (rc)
		return rc;
	r->at = root.object->at;
	return dcp_read_all(r, rsh_dcp_attribute(&root, "state_dict_metadata"));
}

int rsh_dcp_parse(const struct rsh_byte_source *src, struct rsh_dcp **out,
		  struct rsh_error *err)
{
	struct rsh_dcp_reader r = { .src = src, .err = err };
	int rc;

	*out = NULL;
	r.d = calloc(1, sizeof(*r.d));
	if (!r.d)
		return rsh_error_nomem(err);
	rc = dcp_read_metadata(&r);
	rsh_arena_clear(&r.values);
	rsh_dcp_files_clear(&r.files);
	free(r.entries);
	if (rc)
		rsh_dcp_free(r.d);
	else
		*out = r.d;
	return rc;
}
