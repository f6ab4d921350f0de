/* SPDX-License-Identifier: Apache-2.0 */
/* formats/dcp/hyperparallel.c shows one whole model as a distributed checkpoint
 * of HyperParallel, which hyper_parallel.core.distributed_checkpoint.load()
 * opens on any number of ranks:
 *
 *   /_rank<file>_.safetensors   tensors
 *   /_rank0_.bytes              a pickle of each value that is not a tensor
 *   /.metadata                  a pickle: types, shapes and places
 *
 * The loader of MindSpore reads a whole file for any part of it, so files are
 * small. */
#include "config.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pickle_objects_i.h"
#include "rsh/formats/outputs.h"
#include "rsh/util/mem.h"
#include "rsh/wire/torch_item.h"

#define METADATA_NAME ".metadata"
#define VALUES_NAME "_rank0_.bytes"
#define MODULE "hyper_parallel.core.distributed_checkpoint."
#define METADATA MODULE "metadata "
#define STORAGE MODULE "storage "

#define PART_BYTES (UINT64_C(64) * 1024 * 1024)

struct hyper_shown {
	struct rsh_pickle_objects metadata;
	struct rsh_pickle_items values;
};

static void hyper_free(void *state)
{
	struct hyper_shown *h = state;

	if (!h)
		return;
	rsh_pickle_objects_clear(&h->metadata);
	rsh_pickle_items_clear(&h->values);
	free(h);
}

/* ---- tensors ---- */

/* Puts a tuple: these numbers, or as many zeros if v is NULL. */
static void hyper_put_tuple(struct rsh_pickle_objects *p, unsigned n,
			    const int64_t *v)
{
	uint64_t numbers[RSH_MAX_DIMS];

	for (unsigned i = 0; v && i < n; i++)
		numbers[i] = (uint64_t)v[i];
	if (n == 0)
		rsh_pickle_write(p, ")");
	else
		rsh_pickle_put_tuple(p, n, v ? numbers : NULL);
}

/* A tensor is one chunk. */
static void hyper_put_tensor(const struct rsh_output_tree *t, uint32_t number,
			     uint32_t file, const struct rsh_virtual_record *r)
{
	struct hyper_shown *h = t->state;
	struct rsh_pickle_objects *p = &h->metadata;
	const struct rsh_record_shape *s = &r->shape;
	const char *name = rsh_torch_dtype_name(s->dtype);
	char dtype[64];

	(void)number;
	(void)file;
	/* Loaders take the type from the file. */
	snprintf(dtype, sizeof(dtype), "%s%s", name ? "torch." : "",
		 name ? name : rsh_dtype_name(s->dtype));
	rsh_pickle_write(p, "%s%o%k%o%k%k%k\x89%kNub%k", s->name,
			 METADATA "TensorStorageMetadata", "properties",
			 METADATA "TensorProperties", "dtype",
			 dtype, "requires_grad",
			 "memory_format", "size");
	hyper_put_tuple(p, s->n_dims, s->dims);
	rsh_pickle_write(p, "%k](%o%k", "chunks",
			 METADATA "ChunkStorageMetadata", "offsets");
	hyper_put_tuple(p, s->n_dims, NULL);
	rsh_pickle_write(p, "%k", "sizes");
	hyper_put_tuple(p, s->n_dims, s->dims);
	rsh_pickle_write(p, "ubeub");
}

/* Puts a key and its place.  The key has the index of the chunk, or None for a
 * value.  Without a tensor_key a tensor has its own name in the file. */
static void hyper_put_place(struct hyper_shown *h, const char *name,
			    unsigned n_dims, bool is_tensor, const char *path,
			    uint64_t offset, int64_t length)
{
	struct rsh_pickle_objects *p = &h->metadata;

	rsh_pickle_write(p, "%o%k%s%k", METADATA "MetadataIndex", "fqn", name,
			 "offset");
	hyper_put_tuple(p, n_dims, NULL);
	rsh_pickle_write(p, is_tensor ? "%k%dub" : "%kNub", "index",
			 (int64_t)0);
	rsh_pickle_write(p, "%o%k%s%k%d%k%d%kNub", STORAGE "StorageInfo",
			 "relative_path", path, "offset", (int64_t)offset,
			 "length", length, "tensor_key");
}

/* The header of the file says where a tensor is, so its length is -1. */
static void hyper_put_file(const struct rsh_output_tree *t, uint32_t number,
			   uint32_t file, const struct rsh_virtual_record *r)
{
	struct hyper_shown *h = t->state;
	const struct rsh_record_shape *s = &r->shape;
	char name[NAME_MAX + 1];

	(void)number;
	rsh_output_file_name(t->tree, file, name, sizeof(name));
	hyper_put_place(h, s->name, s->n_dims, true, name, 0, -1);
}

/* ---- values ---- */

static void hyper_put_value(const struct rsh_output_tree *t, uint32_t number,
			    const struct rsh_pickle_item *v)
{
	struct hyper_shown *h = t->state;

	(void)number;
	rsh_pickle_write(&h->metadata, "%s%oub", v->name,
			 METADATA "BytesStorageMetadata");
}

static void hyper_put_value_file(const struct rsh_output_tree *t,
				 uint32_t number,
				 const struct rsh_pickle_item *v)
{
	(void)number;
	hyper_put_place(t->state, v->name, 0, false, VALUES_NAME, v->offset,
			(int64_t)v->length);
}

/* ---- the metadata ---- */

static int hyper_make_metadata(struct hyper_shown *h,
			       const struct rsh_output_tree *t)
{
	struct rsh_pickle_objects *p = &h->metadata;

	rsh_pickle_objects_begin(p);
	rsh_pickle_write(p, "%g)\x81}(", METADATA "Metadata");
	rsh_pickle_put_member(p, t, &h->values, "state_dict_metadata",
			      hyper_put_tensor, hyper_put_value);
	rsh_pickle_write(p, "%sN", "planner_data");
	rsh_pickle_put_member(p, t, &h->values, "storage_data", hyper_put_file,
			      hyper_put_value_file);
	rsh_pickle_write(p, "%s%s", "version", "1.0");
	return rsh_pickle_end_metadata(p);
}

/* ---- the tree ---- */

static int hyper_add_rows(struct hyper_shown *h, struct rsh_output_tree *t)
{
	const uint32_t n = rsh_plan_n_files(t->plan);
	struct rsh_item *item = rsh_arena_array(&t->tree->arena,
						struct rsh_item, 1);
	const struct rsh_row files = {
		.n = n, .first = RSH_NODE_OF_FILE(0), .step = 2,
		.parent = t->tree->root, .kind = RSH_NODE_FILE,
		.before = "_rank", .after = t->output->suffix,
	};
	struct rsh_row beside = {
		.n = 1, .step = 1, .parent = t->tree->root, .items = item,
	};
	struct rsh_output_text text = { .mode = 0444 };

	if (!item || rsh_tree_add(t->tree, &files) ||
	    rsh_pickle_items_make(t, false, &h->values) ||
	    (h->values.n > 0 &&
	     rsh_output_add_values_file(t, 0, VALUES_NAME, h->values.bytes,
					h->values.n_bytes)) ||
	    hyper_make_metadata(h, t))
		return -ENOMEM;
	beside.first = RSH_NODE_BESIDE(n) + (h->values.n > 0);
	text.body = rsh_body_of_text((char *)h->metadata.out.data,
				     h->metadata.out.n);
	*item = (struct rsh_item){ METADATA_NAME, RSH_NODE_FILE, 0 };
	if (rsh_output_add_text(t, &text, &item->leaf))
		return -ENOMEM;
	return rsh_tree_add(t->tree, &beside);
}

static int hyper_build(struct rsh_output_tree *t, struct rsh_error *err)
{
	struct hyper_shown *h = t->state = calloc(1, sizeof(*h));

	return h && hyper_add_rows(h, t) == 0 ? 0 : rsh_error_nomem(err);
}

const struct rsh_output rsh_output_hyperparallel = {
	.name = "hyperparallel",
	.digest = 3,
	.suffix = "_.safetensors",
	.framing = &rsh_safetensors_framing,
	.division = RSH_DIVIDE_PARTS,
	.part_bytes = PART_BYTES,
	.takes = RSH_TAKES_HF_NAMES | RSH_TAKES_VALUES | RSH_TAKES_PICKLES |
		 RSH_TAKES_PART_SIZE,
	.last = METADATA_NAME,
	.build = hyper_build,
	.free = hyper_free,
};
