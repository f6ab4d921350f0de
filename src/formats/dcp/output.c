/* SPDX-License-Identifier: Apache-2.0 */
/* formats/dcp/output.c shows one whole model as a distributed checkpoint of
 * PyTorch, which torch.distributed.checkpoint.load() opens on any number of
 * ranks:
 *
 *   /__0_<file>.distcp    items: parts of tensors (plan/dcp_framing.c); the
 *                         last file has values that are not tensors
 *   /.metadata            a pickle: types, shapes and parts of all tensors, and
 *                         the file, offset and length of each item
 *   /metadata.json        this file and the next one are for Megatron-Core
 *   /common.pt
 *
 * torch 2.3.1 to 2.15.0 load this form of the pickle: properties of a tensor
 * have five fields, as torch wrote them before 2.9. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pickle_objects_i.h"
#include "rsh/formats/outputs.h"
#include "rsh/util/mem.h"
#include "rsh/wire/torch_item.h"

#define METADATA_NAME ".metadata"
#define CHECKPOINT "torch.distributed.checkpoint"
#define METADATA CHECKPOINT ".metadata "

static const char megatron_config[] =
	"{\"sharded_backend\": \"torch_dist\", "
	"\"sharded_backend_version\": 1, \"common_backend\": \"torch\", "
	"\"common_backend_version\": 1}";

struct dcp_shown {
	struct rsh_pickle_objects metadata;
	uint8_t common[RSH_TORCH_TAIL_MAX];
	struct rsh_pickle_items values;
	char values_name[NAME_MAX + 1];
	uint32_t n_files; /* of the plan */

	uint32_t *names; /* [tensor], and then [value]: place in the memo,
			  * while the metadata is made */
};

static void dcp_free(void *state)
{
	struct dcp_shown *d = state;

	if (!d)
		return;
	rsh_pickle_objects_clear(&d->metadata);
	rsh_pickle_items_clear(&d->values);
	free(d->names);
	free(d);
}

/* ---- tensors ---- */

/* Puts torch.Size(v). */
static void dcp_put_size(struct dcp_shown *d, unsigned n, const uint64_t *v)
{
	rsh_pickle_write(&d->metadata, "%c", "torch Size");
	rsh_pickle_put_tuple(&d->metadata, n, v);
	rsh_pickle_write(&d->metadata, "\x85R");
}

/* TensorProperties have a special state: (type, layout, requires_grad, memory
 * format, pin_memory). */
static void dcp_put_properties(struct dcp_shown *d, enum rsh_dtype dtype)
{
	char type[64];

	snprintf(type, sizeof(type), "torch %s", rsh_torch_dtype_name(dtype));
	rsh_pickle_write(&d->metadata, "%c)\x81(%c%f\x89%f\x89tb",
			 METADATA "TensorProperties", type,
			 "torch.serialization _get_layout", "torch.strided",
			 METADATA "_MEM_FORMAT_ENCODING", NULL);
}

static void dcp_put_chunks(struct dcp_shown *d,
			   const struct rsh_record_shape *s)
{
	struct rsh_pickle_objects *p = &d->metadata;
	struct rsh_chunks k;

	rsh_dcp_framing.chunks(s, &k);
	rsh_pickle_write(p, "](");
	for (uint64_t i = 0; i < k.n && !p->out.failed; i++) {
		struct rsh_torch_chunk c;

		rsh_torch_chunk_at(s, i * k.content_bytes, k.content_bytes, &c);
		rsh_pickle_write(p, "%o%k", METADATA "ChunkStorageMetadata",
				 "offsets");
		dcp_put_size(d, s->n_dims, c.offsets);
		rsh_pickle_write(p, "%k", "sizes");
		dcp_put_size(d, s->n_dims, c.sizes);
		rsh_pickle_write(p, "ub");
	}
	rsh_pickle_write(p, "e");
}

static void dcp_put_tensor(const struct rsh_output_tree *t, uint32_t number,
			   uint32_t file, const struct rsh_virtual_record *r)
{
	struct dcp_shown *d = t->state;
	const struct rsh_record_shape *s = &r->shape;
	uint64_t dims[RSH_MAX_DIMS];

	(void)file;
	for (unsigned i = 0; i < s->n_dims; i++)
		dims[i] = (uint64_t)s->dims[i];
	rsh_pickle_write(&d->metadata, "%s", s->name);
	d->names[number] = rsh_pickle_remember(&d->metadata.out);
	rsh_pickle_write(&d->metadata, "%o%k",
			 METADATA "TensorStorageMetadata", "properties");
	dcp_put_properties(d, s->dtype);
	rsh_pickle_write(&d->metadata, "%k", "size");
	dcp_put_size(d, s->n_dims, dims);
	rsh_pickle_write(&d->metadata, "%k", "chunks");
	dcp_put_chunks(d, s);
	rsh_pickle_write(&d->metadata, "ub");
}

/* The values are in a file after those of the plan. */
static void dcp_values_name(const struct dcp_shown *d, char *name, size_t max)
{
	snprintf(name, max, "__0_%" PRIu32 ".distcp", d->n_files);
}

/* Puts the place of an item. */
static void dcp_put_storage(struct dcp_shown *d, const struct rsh_tree *t,
			    uint32_t file, uint64_t offset, uint64_t length)
{
	char name[NAME_MAX + 1];

	if (file == d->n_files)
		dcp_values_name(d, name, sizeof(name));
	else
		rsh_output_file_name(t, file, name, sizeof(name));
	rsh_pickle_write(&d->metadata, "%o%k%k%k%d%k%dub",
			 CHECKPOINT ".filesystem _StorageInfo",
			 "relative_path", name, "offset", (int64_t)offset,
			 "length", (int64_t)length);
}

/* Puts the key of each item of a tensor, and its place. */
static void dcp_put_places(const struct rsh_output_tree *t, uint32_t number,
			   uint32_t file, const struct rsh_virtual_record *r)
{
	struct dcp_shown *d = t->state;
	struct rsh_pickle_objects *p = &d->metadata;
	const struct rsh_record_shape *s = &r->shape;
	uint8_t tail[RSH_TORCH_TAIL_MAX];
	uint64_t at = r->offset;
	struct rsh_chunks k;

	rsh_dcp_framing.chunks(s, &k);
	for (uint64_t i = 0; i < k.n && !p->out.failed; i++) {
		const bool last = i + 1 == k.n;
		const uint64_t header = last ? k.last_header : k.full_header;
		struct rsh_torch_chunk c;

		rsh_torch_chunk_at(s, i * k.content_bytes, k.content_bytes, &c);
		rsh_pickle_write(p, "%o%k%r%k", METADATA "MetadataIndex",
				 "fqn", d->names[number], "offset");
		dcp_put_size(d, s->n_dims, c.offsets);
		rsh_pickle_write(p, "%k%dub", "index", (int64_t)i);
		/* Trailers end with padding that is not part of the item. */
		dcp_put_storage(d, t->tree, file, at, header + c.bytes +
				rsh_torch_item_tail(s, &c, tail));
		at += k.full_header + c.bytes + k.full_trailer;
	}
}

/* Puts the entry of a name: the keys that lead to it in the dictionaries of the
 * source, or the name alone. */
static void dcp_put_name(const struct rsh_output_tree *t, uint32_t number,
			 const char *name)
{
	const struct rsh_name_path *path = rsh_values_path(t->values, name);
	struct dcp_shown *d = t->state;
	struct rsh_pickle_objects *p = &d->metadata;

	rsh_pickle_write(p, path ? "%r(" : "%r%r\x85", d->names[number],
			 d->names[number]);
	for (uint32_t i = 0; path && i < path->n; i++) {
		const struct rsh_path_key *k = &path->keys[i];

		if (k->text)
			rsh_pickle_write(p, "%s", k->text);
		else
			rsh_pickle_write(p, "%d", (int64_t)k->index);
	}
	if (path)
		rsh_pickle_write(p, "t");
}

static void dcp_put_names(const struct rsh_output_tree *t, uint32_t number,
			  uint32_t file, const struct rsh_virtual_record *r)
{
	(void)file;
	dcp_put_name(t, number, r->shape.name);
}

/* ---- values ---- */

static void dcp_put_value(const struct rsh_output_tree *t, uint32_t number,
			  const struct rsh_pickle_item *v)
{
	struct dcp_shown *d = t->state;

	rsh_pickle_write(&d->metadata, "%s", v->name);
	d->names[number] = rsh_pickle_remember(&d->metadata.out);
	rsh_pickle_write(&d->metadata, "%oub",
			 METADATA "BytesStorageMetadata");
}

static void dcp_put_value_name(const struct rsh_output_tree *t, uint32_t number,
			       const struct rsh_pickle_item *v)
{
	dcp_put_name(t, number, v->name);
}

static void dcp_put_value_place(const struct rsh_output_tree *t,
				uint32_t number,
				const struct rsh_pickle_item *v)
{
	struct dcp_shown *d = t->state;

	rsh_pickle_write(&d->metadata, "%o%k%rub", METADATA "MetadataIndex",
			 "fqn", d->names[number]);
	dcp_put_storage(d, t->tree, d->n_files, v->offset, v->length);
}

/* ---- the metadata ---- */

static int dcp_make_metadata(struct dcp_shown *d,
			     const struct rsh_output_tree *t)
{
	struct rsh_pickle_objects *p = &d->metadata;
	size_t n = d->values.n;

	for (uint32_t f = 0; f < d->n_files; f++)
		n += rsh_plan_n_records(t->plan, f);
	d->names = rsh_alloc_array(n, sizeof(*d->names));
	if (!d->names)
		return -ENOMEM;
	rsh_pickle_objects_begin(p);
	rsh_pickle_write(p, "%g)\x81}(", METADATA "Metadata");
	rsh_pickle_put_member(p, t, &d->values, "state_dict_metadata",
			      dcp_put_tensor, dcp_put_value);
	rsh_pickle_put_member(p, t, &d->values, "planner_data", dcp_put_names,
			      dcp_put_value_name);
	rsh_pickle_put_member(p, t, &d->values, "storage_data", dcp_put_places,
			      dcp_put_value_place);
	return rsh_pickle_end_metadata(p);
}

/* ---- the tree ---- */

static int dcp_add_text(struct rsh_output_tree *t, struct rsh_item *item,
			const char *name, const void *text, size_t bytes)
{
	const struct rsh_output_text added = {
		.body = rsh_body_of_text(text, bytes), .mode = 0444,
	};

	*item = (struct rsh_item){ name, RSH_NODE_FILE, 0 };
	return rsh_output_add_text(t, &added, &item->leaf);
}

static int dcp_add_values(struct dcp_shown *d, struct rsh_output_tree *t)
{
	int rc = rsh_pickle_items_make(t, true, &d->values);

	if (rc || d->values.n == 0)
		return rc;
	dcp_values_name(d, d->values_name, sizeof(d->values_name));
	return rsh_output_add_values_file(t, 0, d->values_name, d->values.bytes,
					  d->values.n_bytes);
}

static int dcp_add_rows(struct dcp_shown *d, struct rsh_output_tree *t)
{
	/* a pickle of {} */
	static const uint8_t empty[] = { 0x80, 2, '}', '.' };
	const uint32_t n = d->n_files;
	struct rsh_item *items = rsh_arena_array(&t->tree->arena,
						 struct rsh_item, 3);
	const struct rsh_row files = {
		.n = n, .first = RSH_NODE_OF_FILE(0), .step = 2,
		.parent = t->tree->root, .kind = RSH_NODE_FILE,
		.before = "__0_", .after = t->output->suffix,
	};
	/* The file of values has the number after those of the files. */
	const struct rsh_row beside = {
		.n = 3, .first = RSH_NODE_BESIDE(n) + 1, .step = 1,
		.parent = t->tree->root, .items = items,
	};

	if (!items || rsh_tree_add(t->tree, &files) ||
	    dcp_add_values(d, t) || dcp_make_metadata(d, t) ||
	    dcp_add_text(t, &items[0], METADATA_NAME, d->metadata.out.data,
			 d->metadata.out.n) ||
	    dcp_add_text(t, &items[1], "metadata.json", megatron_config,
			 sizeof(megatron_config) - 1) ||
	    dcp_add_text(t, &items[2], "common.pt", d->common,
			 rsh_torch_save_pickle(empty, sizeof(empty),
					       d->common)))
		return -ENOMEM;
	return rsh_tree_add(t->tree, &beside);
}

static int dcp_build(struct rsh_output_tree *t, struct rsh_error *err)
{
	struct dcp_shown *d = t->state = calloc(1, sizeof(*d));

	if (!d)
		return rsh_error_nomem(err);
	d->n_files = rsh_plan_n_files(t->plan);
	if (dcp_add_rows(d, t))
		return rsh_error_nomem(err);
	free(steal_pointer(&d->names));
	return 0;
}

const struct rsh_output rsh_output_dcp = {
	.name = "dcp",
	.suffix = ".distcp",
	.framing = &rsh_dcp_framing,
	.division = RSH_DIVIDE_PARTS,
	.takes = RSH_TAKES_HF_NAMES | RSH_TAKES_VALUES | RSH_TAKES_PICKLES |
		 RSH_TAKES_PART_SIZE,
	.last = METADATA_NAME,
	.build = dcp_build,
	.free = dcp_free,
};
