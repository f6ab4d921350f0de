/* SPDX-License-Identifier: Apache-2.0 */
/* formats/dcp/shards.c combines the headers of shard-*.safetensors to the
 * description of a model.  No header has the shape of a tensor: it is computed
 * from the ends of the chunks. */
#include "config.h"

#include "dcp_i.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "rsh/formats/files.h"
#include "rsh/util/checked.h"
#include "rsh/util/files.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"
#include "rsh/util/thread.h"
#include "rsh/wire/json_load.h"
#include "rsh/wire/safetensors.h"

#define INFO "DCP_SHARDING_INFO"

bool rsh_dcp_is_shard(const char *name)
{
	return strncmp(name, "shard-", strlen("shard-")) == 0 &&
	       rsh_has_suffix(name, rsh_file_type_suffix(RSH_FILE_SAFETENSORS));
}

/* ---- one file ---- */

struct shard {
	struct rsh_ckpt_index *index;
	struct rsh_safetensors_meta meta;
	char *path;
};

struct shards {
	const struct rsh_source *source;
	const char *const *names;
	struct rsh_names *tensors;
	struct shard *v;
};

static const char *shard_info(const struct shard *s)
{
	for (uint32_t i = 0; i < s->meta.n_entries; i++)
		if (strcmp(s->meta.entries[i].key, INFO) == 0)
			return s->meta.entries[i].value;
	return NULL;
}

static void shard_clear(struct shard *s)
{
	rsh_ckpt_index_free(s->index);
	rsh_safetensors_meta_clear(&s->meta);
	free(s->path);
}

static int shard_scan(const struct rsh_source *s, const char *name,
		      struct rsh_names *names, struct shard *out,
		      struct rsh_error *err)
{
	cleanup_format_file struct rsh_format_file f;
	int rc = rsh_format_file_open(s, name, &f, err);

	if (rc)
		return rc;
	out->path = steal_pointer(&f.path);
	return rsh_safetensors_scan(&f.bytes, names, &out->index, &out->meta,
				    err);
}

int rsh_dcp_shard_look(const struct rsh_source *s, const char *name, bool *has,
		       struct rsh_error *err)
{
	cleanup_names struct rsh_names *names = rsh_names_new();
	struct shard one = { 0 };
	int rc = names ? shard_scan(s, name, names, &one, err) :
			 rsh_error_nomem(err);

	*has = rc == 0 && shard_info(&one);
	shard_clear(&one);
	return rc;
}

static int shard_read(void *ctx, size_t i, struct rsh_error *err)
{
	struct shards *s = ctx;

	return shard_scan(s->source, s->names[i], s->tensors, &s->v[i], err);
}

int rsh_dcp_sharding_info(const char *text, const char *path,
			  rsh_dcp_offsets_fn *each, void *ctx,
			  struct rsh_error *err)
{
	json_error_t where;
	cleanup_json json_t *root =
		rsh_json_parse(&(struct rsh_memory){ text, strlen(text) },
			       JSON_REJECT_DUPLICATES, &where);
	const char *name;
	json_t *v, *offset;
	size_t i;
	int rc = 0;

	if (!json_is_object(root))
		return rsh_error_set(err, EBADMSG, "%s: DCP_SHARDING_INFO is "
				     "not a JSON object%s%s", path,
				     root ? "" : ": ", root ? "" : where.text);
	json_object_foreach(root, name, v) {
		const json_t *list = json_object_get(v, "saved_offsets");
		const size_t n = json_array_size(list);
		uint64_t offsets[RSH_MAX_DIMS];

		if (!json_is_array(list) || n > RSH_MAX_DIMS)
			return rsh_error_set(err, EBADMSG, "%s: "
					     "DCP_SHARDING_INFO: \"%s\" has "
					     "no list of offsets", path, name);
		json_array_foreach(list, i, offset) {
			const json_int_t at = json_integer_value(offset);

			if (!json_is_integer(offset) || at < 0)
				return rsh_error_set(err, EBADMSG, "%s: "
					"DCP_SHARDING_INFO: an offset of "
					"\"%s\" is not an integer of 0 or "
					"more", path, name);
			offsets[i] = (uint64_t)at;
		}
		rc = each(ctx, name, (uint32_t)n, offsets);
		if (rc)
			break;
	}
	return rc;
}

/* ---- all files ---- */

/* The tensors of the builder from `first` on are the records of this file, in
 * the same order. */
struct gathering {
	struct rsh_dcp_builder *b;
	struct rsh_names *names;
	const struct shard *shard;
	size_t first;
	const char *wrong; /* a tensor whose offsets do not fit its shape */
};

static int gather_record(struct gathering *g, const struct rsh_record *r,
			 uint32_t file)
{
	struct rsh_arena *arena = &g->b->d->arena_;
	const char *name = rsh_names_text(g->names, r->name);
	const int64_t *dims = rsh_record_dims(g->shard->index, r);
	struct rsh_dcp_tensor *t = rsh_dcp_builder_tensor(g->b);
	struct rsh_dcp_chunk *c = rsh_arena_array(arena, struct rsh_dcp_chunk,
						  1);
	uint64_t *from = rsh_arena_array(arena, uint64_t,
					 2 * (size_t)r->n_dims);

	if (!t || !c || !from)
		return -ENOMEM;
	for (uint32_t d = 0; d < r->n_dims; d++)
		from[r->n_dims + d] = (uint64_t)dims[d];
	/* The chunk has no offsets so far. */
	*c = (struct rsh_dcp_chunk){
		.size = from + r->n_dims, .file = file,
		.length = RSH_DCP_BY_NAME,
	};
	*t = (struct rsh_dcp_tensor){
		.name = rsh_arena_strndup(arena, name, strlen(name)),
		.dtype = (enum rsh_dtype)r->dtype, .n_dims = r->n_dims,
		.n_chunks = 1, .chunks = c,
	};
	return t->name ? 0 : -ENOMEM;
}

/* Offsets of tensors that the file does not have are ignored. */
static int gather_offsets(void *ctx, const char *name, uint32_t n_dims,
			  const uint64_t *offsets)
{
	struct gathering *g = ctx;
	const struct rsh_ckpt_index *ix = g->shard->index;
	const struct rsh_record *r =
		rsh_ckpt_find(ix, rsh_names_find(g->names, name,
						 strlen(name)));
	const struct rsh_dcp_tensor *t;
	uint64_t *from, end;

	if (!r)
		return 0;
	t = &g->b->tensors[g->first + (size_t)(r - ix->records)];
	from = rsh_arena_array(&g->b->d->arena_, uint64_t, n_dims);
	if (!from)
		return -ENOMEM;
	if (n_dims != t->n_dims)
		g->wrong = t->name;
	for (uint32_t d = 0; d < n_dims && d < t->n_dims; d++) {
		from[d] = offsets[d];
		if (!rsh_add_u64(offsets[d], t->chunks->size[d], &end) ||
		    end > INT64_MAX)
			g->wrong = t->name;
	}
	t->chunks->from = from;
	return 0;
}

static int gather_file(struct gathering *g, const char *file,
		       struct rsh_error *err)
{
	const struct shard *s = g->shard;
	const char *info = shard_info(s);
	const uint32_t number = rsh_names_add(g->b->files, file, strlen(file));
	int rc = 0;

	g->first = g->b->n_tensors;
	if (number == RSH_NAME_NONE)
		return rsh_error_nomem(err);
	for (uint32_t i = 0; i < s->index->n_records; i++)
		if (gather_record(g, &s->index->records[i], number))
			return rsh_error_nomem(err);
	if (!info)
		return rsh_error_set(err, EBADMSG, "%s: no " INFO " in it, "
				     "which other files have", s->path);
	rc = rsh_dcp_sharding_info(info, s->path, gather_offsets, g, err);
	if (rc == -ENOMEM)
		return rsh_error_nomem(err);
	if (rc == 0 && g->wrong)
		return rsh_error_set(err, EBADMSG, "%s: the offsets of tensor "
				     "%s do not fit its shape", s->path,
				     g->wrong);
	/* Without offsets it is not known which part of a tensor the file
	 * has. */
	for (size_t i = g->first; i < g->b->n_tensors && rc == 0; i++)
		if (!g->b->tensors[i].chunks->from)
			rc = rsh_error_set(err, EBADMSG, "%s: " INFO " does "
					   "not tell the offsets of tensor %s",
					   s->path, g->b->tensors[i].name);
	return rc;
}

/* torch writes so many, in the order of which names are sorted. */
#define SHARD_DIGITS 5

/* A rank that has no part of a tensor writes no file, so a number that lacks
 * is no error.  The files do not say how many there are. */
static void shards_warn_of_gap(const struct rsh_source *s,
			       const char *const *names, size_t n)
{
	uint64_t at = 0, last = 0, lacks = 0;

	for (size_t i = 0; i < n; i++, last = at) {
		const char *digits = names[i] + strlen("shard-");

		if (strspn(digits, "0123456789") != SHARD_DIGITS ||
		    !rsh_number_read(digits, SHARD_DIGITS, &at))
			return;
		if (at > last + 1 && !lacks)
			lacks = last + 1;
	}
	if (lacks)
		rsh_log_warning("%s: shard-%05" PRIu64 " is missing, and the "
				"last one is shard-%05" PRIu64 ": tensors that "
				"it had alone are not shown",
				rsh_source_path(s), lacks, last);
}

int rsh_dcp_shards_add(const struct rsh_source *s, const char *const *names,
		       size_t n, struct rsh_dcp_builder *b,
		       struct rsh_error *err)
{
	struct shards all = {
		.source = s, .names = names,
		.tensors = rsh_names_new(), .v = calloc(n, sizeof(*all.v)),
	};
	struct gathering g = { .b = b, .names = all.tensors };
	int rc = all.tensors && all.v ? 0 : rsh_error_nomem(err);

	shards_warn_of_gap(s, names, n);
	if (rc == 0)
		rc = rsh_parallel_for(rsh_source_scan_threads(s), n, shard_read,
				      &all, err);
	for (size_t i = 0; i < n && rc == 0; i++) {
		g.shard = &all.v[i];
		rc = gather_file(&g, names[i], err);
	}
	b->d->by_name = true;
	for (size_t i = 0; all.v && i < n; i++)
		shard_clear(&all.v[i]);
	free(all.v);
	rsh_names_free(all.tensors);
	return rc;
}
