/* SPDX-License-Identifier: Apache-2.0 */
/* formats/dcp/output.c shows one whole model as a distributed checkpoint of
 * PyTorch or of HyperParallel, which torch.distributed.checkpoint.load() or
 * hyper_parallel.core.distributed_checkpoint.load() opens on any number of
 * ranks:
 *
 *   /__0_<file>.distcp    items: parts of tensors (plan/dcp_framing.c); the
 *                         last file has values that are not tensors
 *   /metadata.json        this file and the next one are for Megatron-Core
 *   /common.pt
 *
 *   /_rank<file>_.safetensors   tensors
 *   /_rank0_.bytes        a pickle of each value that is not a tensor
 *
 *   /.metadata            of both, a pickle: types, shapes and parts of all
 *                         tensors, and the file and the place of each item
 *
 * torch 2.3.1 to 2.15.0 load this form of the pickle: properties of a tensor
 * have five fields, as torch wrote them before 2.9.  HyperParallel's loader for
 * MindSpore reads a whole file for any part of it, so its files are small.
 *
 * A class, a key or another value that occurs often is written once, and
 * recalled from the memo of the pickle later. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/formats/outputs.h"
#include "rsh/util/mem.h"
#include "rsh/util/names.h"
#include "rsh/wire/pickle_emit.h"
#include "rsh/wire/torch_item.h"

#define METADATA_NAME ".metadata"
#define TORCH "torch.distributed.checkpoint"
#define TORCH_META TORCH ".metadata "
#define HYPER "hyper_parallel.core.distributed_checkpoint."
#define HYPER_META HYPER "metadata "
#define HYPER_PART_BYTES (UINT64_C(64) * 1024 * 1024)

static const char megatron_config[] =
	"{\"sharded_backend\": \"torch_dist\", "
	"\"sharded_backend_version\": 1, \"common_backend\": \"torch\", "
	"\"common_backend_version\": 1}";

/* A tensor or a value. */
struct entry {
	const char *name; /* the source or the plan owns it */
	const struct rsh_virtual_record *r; /* NULL: it is a value */
	uint32_t file;           /* of a tensor */
	uint64_t offset, length; /* of a value in the file of values */
};

struct shown {
	const struct rsh_output_tree *t;
	bool torch;
	struct rsh_pickle_out out; /* the metadata */
	struct rsh_names *often;   /* what occurs often, as text */
	uint32_t *memo;            /* [number of the text]: its place */
	size_t cap_memo;
	uint8_t common[RSH_TORCH_TAIL_MAX];
	struct entry *values;
	uint32_t n_values;
	uint8_t *bytes; /* the content of their file */
	size_t n_bytes;
	char values_name[NAME_MAX + 1];
	uint32_t n_files; /* of the plan */
	uint32_t *names; /* [tensor], and then [value]: place in the memo,
			  * while the metadata is made */
};

static void shown_free(void *state)
{
	struct shown *d = state;

	if (!d)
		return;
	rsh_pickle_clear(&d->out);
	rsh_names_free(d->often);
	free(d->memo);
	free(d->values);
	free(d->bytes);
	free(d->names);
	free(d);
}

/* ---- writing the pickle ---- */

/* Recalls a value that was written before, or keeps the one that the caller
 * writes next.  Returns whether it was recalled. */
static bool often_recall(struct shown *d, const char *text)
{
	const uint32_t id = rsh_names_find(d->often, text, strlen(text));

	if (id != RSH_NAME_NONE)
		rsh_pickle_recall(&d->out, d->memo[id]);
	return id != RSH_NAME_NONE;
}

static void often_keep(struct shown *d, const char *text)
{
	const uint32_t id = rsh_names_add(d->often, text, strlen(text));

	if (id == RSH_NAME_NONE ||
	    rsh_room(d->memo, d->cap_memo, (size_t)id + 1))
		d->out.failed = true;
	else
		d->memo[id] = rsh_pickle_remember(&d->out);
}

/* Puts "module name". */
static void put_class(struct shown *d, const char *class, bool often)
{
	const char *space = strchr(class, ' ');
	char module[128];

	if (often && often_recall(d, class))
		return;
	snprintf(module, sizeof(module), "%.*s", (int)(space - class), class);
	rsh_pickle_put_global(&d->out, module, space + 1);
	if (often)
		often_keep(d, class);
}

static void put_tuple(struct shown *d, unsigned n, const uint64_t *v)
{
	rsh_pickle_put(&d->out, '(');
	for (unsigned i = 0; i < n; i++)
		rsh_pickle_put_number(&d->out, v ? v[i] : 0);
	rsh_pickle_put(&d->out, 't');
}

/* Writes by a template.  Each character is an instruction without argument, as
 * pickletools names them ('(' is MARK, 'u' SETITEMS, ...), except these:
 *
 *   %s  a text                         %d  an int64_t
 *   %k  a text that occurs often       %r  what is at a place of the memo
 *   %c  a class that occurs often, "module name"
 *   %g  a class that occurs once
 *   %o  the same as %c, and begins an object of it: its attributes follow, and
 *       "ub" ends it
 *   %t  a tuple of n numbers, an unsigned and an array; NULL: they are 0
 *   %z  the same as torch.Size
 *   %f  the result of calling a function, "module name", that occurs often:
 *       its argument is the next text or, if that is NULL, 0 */
static void put(struct shown *d, const char *template, ...)
{
	struct rsh_pickle_out *o = &d->out;
	const char *text, *argument;
	const uint64_t *numbers;
	va_list ap;
	unsigned n;

	va_start(ap, template);
	for (const char *c = template; *c && !o->failed; c++) {
		if (*c != '%') {
			rsh_pickle_put(o, (uint8_t)*c);
			continue;
		}
		switch (*++c) {
		case 'd':
			rsh_pickle_put_signed(o, va_arg(ap, int64_t));
			break;
		case 'r':
			rsh_pickle_recall(o, va_arg(ap, uint32_t));
			break;
		case 's':
		case 'k':
			text = va_arg(ap, const char *);
			if (*c == 'k' && often_recall(d, text))
				break;
			rsh_pickle_put_text(o, text, strlen(text));
			if (*c == 'k')
				often_keep(d, text);
			break;
		case 'f':
			text = va_arg(ap, const char *);
			argument = va_arg(ap, const char *);
			if (often_recall(d, text))
				break;
			put_class(d, text, false);
			if (argument)
				put(d, "%s", argument);
			else
				rsh_pickle_put_number(o, 0);
			put(d, "\x85R");
			often_keep(d, text);
			break;
		case 't':
			n = va_arg(ap, unsigned);
			numbers = va_arg(ap, const uint64_t *);
			if (n == 0)
				rsh_pickle_put(o, ')');
			else
				put_tuple(d, n, numbers);
			break;
		case 'z':
			n = va_arg(ap, unsigned);
			put_class(d, "torch Size", true);
			put_tuple(d, n, va_arg(ap, const uint64_t *));
			put(d, "\x85R");
			break;
		default: /* g, c, o */
			put_class(d, va_arg(ap, const char *), *c != 'g');
			if (*c == 'o')
				put(d, ")\x81}(");
		}
	}
	va_end(ap);
}

/* ---- PyTorch ---- */

static void torch_describe(struct shown *d, uint32_t number,
			   const struct entry *e)
{
	const struct rsh_record_shape *s = e->r ? &e->r->shape : NULL;
	struct rsh_chunks k = { .n = 0 };
	char type[64];

	put(d, "%s", e->name);
	d->names[number] = rsh_pickle_remember(&d->out);
	if (!s) {
		put(d, "%oub", TORCH_META "BytesStorageMetadata");
		return;
	}
	snprintf(type, sizeof(type), "torch %s",
		 rsh_torch_dtype_name(s->dtype));
	/* TensorProperties have a special state: (type, layout, requires_grad,
	 * memory format, pin_memory). */
	put(d, "%o%k%c)\x81(%c%f\x89%f\x89tb%k%z%k](",
	    TORCH_META "TensorStorageMetadata", "properties",
	    TORCH_META "TensorProperties", type,
	    "torch.serialization _get_layout", "torch.strided",
	    TORCH_META "_MEM_FORMAT_ENCODING", NULL, "size", s->n_dims,
	    (const uint64_t *)s->dims, "chunks");
	rsh_dcp_framing.chunks(s, &k);
	for (uint64_t i = 0; i < k.n && !d->out.failed; i++) {
		struct rsh_torch_chunk c;

		rsh_torch_chunk_at(s, i * k.content_bytes, k.content_bytes, &c);
		put(d, "%o%k%z%k%zub", TORCH_META "ChunkStorageMetadata",
		    "offsets", s->n_dims, c.offsets, "sizes", s->n_dims,
		    c.sizes);
	}
	put(d, "eub");
}

/* Puts the entry of a name: the keys that lead to it in the dictionaries of the
 * source, or the name alone. */
static void torch_path(struct shown *d, uint32_t number, const struct entry *e)
{
	const struct rsh_name_path *path = rsh_values_path(d->t->values,
							   e->name);

	put(d, path ? "%r(" : "%r%r\x85", d->names[number], d->names[number]);
	for (uint32_t i = 0; path && i < path->n; i++)
		if (path->keys[i].text)
			put(d, "%s", path->keys[i].text);
		else
			put(d, "%d", (int64_t)path->keys[i].index);
	if (path)
		put(d, "t");
}

static void torch_place(struct shown *d, const char *name, uint64_t offset,
			uint64_t length)
{
	put(d, "%o%k%k%k%d%k%dub", TORCH ".filesystem _StorageInfo",
	    "relative_path", name, "offset", (int64_t)offset, "length",
	    (int64_t)length);
}

/* Puts the key of each item, and its place. */
static void torch_places(struct shown *d, uint32_t number,
			 const struct entry *e)
{
	const struct rsh_record_shape *s = e->r ? &e->r->shape : NULL;
	uint64_t at = e->r ? e->r->offset : 0;
	uint8_t tail[RSH_TORCH_TAIL_MAX];
	struct rsh_chunks k = { .n = 0 };
	char name[NAME_MAX + 1];

	if (!s) {
		put(d, "%o%k%rub", TORCH_META "MetadataIndex", "fqn",
		    d->names[number]);
		torch_place(d, d->values_name, e->offset, e->length);
		return;
	}
	rsh_output_file_name(d->t->tree, e->file, name, sizeof(name));
	rsh_dcp_framing.chunks(s, &k);
	for (uint64_t i = 0; i < k.n && !d->out.failed; i++) {
		const bool last = i + 1 == k.n;
		const uint64_t header = last ? k.last_header : k.full_header;
		struct rsh_torch_chunk c;

		rsh_torch_chunk_at(s, i * k.content_bytes, k.content_bytes, &c);
		put(d, "%o%k%r%k%z%k%dub", TORCH_META "MetadataIndex", "fqn",
		    d->names[number], "offset", s->n_dims, c.offsets, "index",
		    (int64_t)i);
		/* Trailers end with padding that is not part of the item. */
		torch_place(d, name, at, header + c.bytes +
			    rsh_torch_item_tail(s, &c, tail));
		at += k.full_header + c.bytes + k.full_trailer;
	}
}

/* ---- HyperParallel ---- */

/* A tensor is one chunk.  Loaders take the type from the file. */
static void hyper_describe(struct shown *d, uint32_t number,
			   const struct entry *e)
{
	const struct rsh_record_shape *s = e->r ? &e->r->shape : NULL;
	const uint64_t *dims = s ? (const uint64_t *)s->dims : NULL;
	const char *name = s ? rsh_torch_dtype_name(s->dtype) : NULL;
	char dtype[64];

	(void)number;
	if (!s) {
		put(d, "%s%oub", e->name, HYPER_META "BytesStorageMetadata");
		return;
	}
	snprintf(dtype, sizeof(dtype), "%s%s", name ? "torch." : "",
		 name ? name : rsh_dtype_name(s->dtype));
	put(d, "%s%o%k%o%k%k%k\x89%kNub%k%t%k](%o%k%t%k%tubeub", e->name,
	    HYPER_META "TensorStorageMetadata", "properties",
	    HYPER_META "TensorProperties", "dtype", dtype, "requires_grad",
	    "memory_format", "size", s->n_dims, dims, "chunks",
	    HYPER_META "ChunkStorageMetadata", "offsets", s->n_dims, NULL,
	    "sizes", s->n_dims, dims);
}

/* Puts a key and its place.  The key has the index of the chunk, or None for a
 * value.  Without a tensor_key a tensor has its own name in the file, whose
 * header says where it is, so its length is -1. */
static void hyper_place(struct shown *d, uint32_t number, const struct entry *e)
{
	char name[NAME_MAX + 1];

	(void)number;
	if (e->r)
		rsh_output_file_name(d->t->tree, e->file, name, sizeof(name));
	put(d, "%o%k%s%k%t%k", HYPER_META "MetadataIndex", "fqn", e->name,
	    "offset", e->r ? e->r->shape.n_dims : 0u, NULL, "index");
	put(d, e->r ? "%dub" : "Nub", (int64_t)0);
	put(d, "%o%k%s%k%d%k%d%kNub", HYPER "storage StorageInfo",
	    "relative_path", e->r ? name : d->values_name, "offset",
	    (int64_t)e->offset, "length", e->r ? (int64_t)-1 :
	    (int64_t)e->length, "tensor_key");
}

/* ---- the metadata ---- */

/* Puts a member of the metadata: a dictionary with entries of each tensor and
 * each value. */
static void put_member(struct shown *d, const char *key,
		       void (*put_entry)(struct shown *d, uint32_t number,
					 const struct entry *e))
{
	const struct rsh_plan *p = d->t->plan;
	uint32_t number = 0;

	put(d, "%s}(", key);
	for (uint32_t f = 0; f < d->n_files; f++)
		for (uint32_t i = 0; i < rsh_plan_n_records(p, f); i++) {
			struct rsh_virtual_record r;

			rsh_plan_record(p, f, i, &r);
			put_entry(d, number++, &(struct entry){
				.name = r.shape.name, .r = &r, .file = f });
		}
	for (uint32_t i = 0; i < d->n_values; i++)
		put_entry(d, number++, &d->values[i]);
	put(d, "u");
}

static int make_metadata(struct shown *d)
{
	size_t n = d->n_values;

	for (uint32_t f = 0; f < d->n_files; f++)
		n += rsh_plan_n_records(d->t->plan, f);
	d->names = rsh_alloc_array(n, sizeof(*d->names));
	d->often = rsh_names_new();
	if (!d->names || !d->often)
		return -ENOMEM;
	rsh_pickle_begin(&d->out);
	put(d, "%g)\x81}(", d->torch ? TORCH_META "Metadata" :
				       HYPER_META "Metadata");
	put_member(d, "state_dict_metadata",
		   d->torch ? torch_describe : hyper_describe);
	if (d->torch)
		put_member(d, "planner_data", torch_path);
	else
		put(d, "%sN", "planner_data");
	put_member(d, "storage_data", d->torch ? torch_places : hyper_place);
	if (!d->torch)
		put(d, "%s%s", "version", "1.0");
	put(d, "ub");
	rsh_pickle_end(&d->out);
	free(steal_pointer(&d->names));
	return d->out.failed ? -ENOMEM : 0;
}

/* ---- values that are not tensors ---- */

/* Makes an item of each value that is plain data, except if a tensor of the
 * plan has its name: a pickle, for torch in a file of torch.save(). */
static int make_values(struct shown *d)
{
	const struct rsh_values *v = d->t->values;
	cleanup_names struct rsh_names *names = v->n ? rsh_names_new() : NULL;
	struct rsh_virtual_record r;
	size_t most = 0;
	int rc = names || !v->n ? 0 : -ENOMEM;

	for (uint32_t f = 0; names && f < d->n_files; f++)
		for (uint32_t i = 0; i < rsh_plan_n_records(d->t->plan, f);
		     i++) {
			rsh_plan_record(d->t->plan, f, i, &r);
			if (rsh_names_add(names, r.shape.name,
					  r.shape.name_len) == RSH_NAME_NONE)
				rc = -ENOMEM;
		}
	for (uint32_t i = 0; i < v->n; i++)
		most += v->values[i].n_pickle + RSH_TORCH_TAIL_MAX;
	d->values = rsh_alloc_array(v->n, sizeof(*d->values));
	d->bytes = rsh_alloc_array(most, 1);
	if (!d->values || !d->bytes)
		rc = -ENOMEM;
	for (uint32_t i = 0; rc == 0 && i < v->n; i++) {
		const struct rsh_plain *p = &v->values[i];
		uint8_t *to = d->bytes + d->n_bytes;
		size_t n = p->n_pickle;

		if (!p->pickle ||
		    rsh_names_find(names, v->names[i], strlen(v->names[i])) !=
			    RSH_NAME_NONE)
			continue;
		if (d->torch)
			n = rsh_torch_save_pickle(p->pickle, n, to);
		else
			memcpy(to, p->pickle, n);
		d->values[d->n_values++] = (struct entry){
			.name = v->names[i], .offset = d->n_bytes, .length = n,
		};
		d->n_bytes += n;
	}
	return rc;
}

/* ---- the tree ---- */

static int add_text(struct shown *d, struct rsh_output_tree *t, uint64_t number,
		    const char *name, const void *text, size_t bytes)
{
	/* The file of values has the number after those of the files. */
	return rsh_output_add_file(
		t, RSH_NODE_BESIDE(d->n_files) + number +
		   (d->torch || d->n_values > 0), t->tree->root, name,
		&(struct rsh_output_text){
			.body = rsh_body_of_text(text, bytes), .mode = 0444,
		});
}

static int add_rows(struct shown *d, struct rsh_output_tree *t)
{
	/* a pickle of {} */
	static const uint8_t empty[] = { 0x80, 2, '}', '.' };
	const struct rsh_row files = {
		.n = d->n_files, .first = RSH_NODE_OF_FILE(0), .step = 2,
		.parent = t->tree->root, .kind = RSH_NODE_FILE,
		.before = d->torch ? "__0_" : "_rank",
		.after = t->output->suffix,
	};
	int rc = rsh_tree_add(t->tree, &files) ?: make_values(d);

	if (rc == 0 && d->n_values > 0)
		rc = rsh_output_add_values_file(t, 0, d->values_name, d->bytes,
						d->n_bytes);
	rc = rc ?: make_metadata(d) ?:
	     add_text(d, t, 0, METADATA_NAME, d->out.data, d->out.n);
	if (rc || !d->torch)
		return rc;
	return add_text(d, t, 1, "metadata.json", megatron_config,
			sizeof(megatron_config) - 1) ?:
	       add_text(d, t, 2, "common.pt", d->common,
			rsh_torch_save_pickle(empty, sizeof(empty),
					      d->common));
}

static int build(struct rsh_output_tree *t, struct rsh_error *err)
{
	struct shown *d = t->state = calloc(1, sizeof(*d));

	if (!d)
		return rsh_error_nomem(err);
	d->t = t;
	d->torch = t->output == &rsh_output_dcp;
	d->n_files = rsh_plan_n_files(t->plan);
	snprintf(d->values_name, sizeof(d->values_name), d->torch ?
		 "__0_%" PRIu32 ".distcp" : "_rank0_.bytes", d->n_files);
	return add_rows(d, t) ? rsh_error_nomem(err) : 0;
}

#define TAKES (RSH_TAKES_HF_NAMES | RSH_TAKES_VALUES | RSH_TAKES_PICKLES)

const struct rsh_output rsh_output_dcp = {
	.name = "dcp",
	.suffix = ".distcp",
	.framing = &rsh_dcp_framing,
	.division = RSH_DIVIDE_PARTS,
	.takes = TAKES,
	.options = "part-size",
	.last = METADATA_NAME,
	.build = build,
	.free = shown_free,
};

const struct rsh_output rsh_output_hyperparallel = {
	.name = "hyperparallel",
	.digest = 3,
	.suffix = "_.safetensors",
	.framing = &rsh_safetensors_framing,
	.division = RSH_DIVIDE_PARTS,
	.part_bytes = HYPER_PART_BYTES,
	.takes = TAKES,
	.options = "part-size",
	.last = METADATA_NAME,
	.build = build,
	.free = shown_free,
};
