/* SPDX-License-Identifier: Apache-2.0 */
/* formats/dcp/shards.c combines the headers of shard-*.safetensors to the
 * description of a model.  No header has the shape of a tensor: it is computed
 * from the ends of the chunks. */
#include "config.h"

#include "dcp_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/formats/files.h"
#include "rsh/util/checked.h"
#include "rsh/util/files.h"
#include "rsh/util/mem.h"
#include "rsh/util/thread.h"
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
	size_t n;
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
	struct rsh_names *names = rsh_names_new();
	struct shard one = { 0 };
	int rc = names ? shard_scan(s, name, names, &one, err) :
			 rsh_error_nomem(err);

	*has = rc == 0 && shard_info(&one);
	shard_clear(&one);
	rsh_names_free(names);
	return rc;
}

static int shard_read(void *ctx, size_t i, struct rsh_error *err)
{
	struct shards *s = ctx;

	return shard_scan(s->source, s->names[i], s->tensors, &s->v[i], err);
}

/* ---- all files ---- */

/* This is a chunk whose tensor is only a number so far. */
struct piece {
	uint32_t tensor;
	uint32_t file;
	enum rsh_dtype dtype;
	uint32_t n_dims;
	bool placed; /* its offsets are known */
	uint64_t *from; /* `size` follows it; both are in the arena */
	uint64_t *size;
};

struct gathering {
	struct shards *shards;
	struct rsh_source_dcp *out;
	struct rsh_dcp *pub;
	struct piece *pieces; /* those of one file are adjacent */
	size_t n;
};

static int gather_record(struct gathering *g, uint32_t file, uint32_t record)
{
	const struct rsh_ckpt_index *ix = g->shards->v[file].index;
	const struct rsh_record *r = &ix->records[record];
	const int64_t *dims = rsh_record_dims(ix, r);
	struct piece *p = &g->pieces[g->n++];

	*p = (struct piece){
		.tensor = r->name, .file = file,
		.dtype = (enum rsh_dtype)r->dtype, .n_dims = r->n_dims,
		.from = rsh_arena_array(&g->out->arena, uint64_t,
					2 * (size_t)r->n_dims),
	};
	if (!p->from)
		return -ENOMEM;
	p->size = p->from + r->n_dims;
	for (uint32_t d = 0; d < r->n_dims; d++)
		p->size[d] = (uint64_t)dims[d];
	return 0;
}

/* Offsets of tensors that the file does not have are ignored. */
struct offsets_of {
	struct gathering *g;
	uint32_t file;
	size_t first;
	const char *wrong; /* a tensor whose offsets do not fit its shape */
};

static int gather_offsets(void *ctx, const char *name, uint32_t n_dims,
			  const uint64_t *offsets)
{
	struct offsets_of *o = ctx;
	struct shards *s = o->g->shards;
	const struct rsh_ckpt_index *ix = s->v[o->file].index;
	const struct rsh_record *r =
		rsh_ckpt_find(ix, rsh_names_find(s->tensors, name,
						 strlen(name)));
	struct piece *p;
	uint64_t end;

	if (!r)
		return 0;
	p = &o->g->pieces[o->first + (size_t)(r - ix->records)];
	p->placed = true;
	if (n_dims != p->n_dims)
		o->wrong = rsh_names_text(s->tensors, r->name);
	for (uint32_t d = 0; d < n_dims && d < p->n_dims; d++) {
		p->from[d] = offsets[d];
		if (!rsh_add_u64(offsets[d], p->size[d], &end) ||
		    end > INT64_MAX)
			o->wrong = rsh_names_text(s->tensors, r->name);
	}
	return 0;
}

static int gather_file(struct gathering *g, uint32_t file,
		       struct rsh_error *err)
{
	const struct shard *s = &g->shards->v[file];
	const char *info = shard_info(s);
	struct offsets_of o = { g, file, g->n, NULL };
	size_t at = g->n;
	int rc = 0;

	for (uint32_t i = 0; i < s->index->n_records; i++)
		if (gather_record(g, file, i))
			return rsh_error_nomem(err);
	if (!info)
		return rsh_error_set(err, EBADMSG, "%s: no " INFO " in it, "
				     "which other files have", s->path);
	rc = rsh_dcp_sharding_info(info, s->path, gather_offsets, &o, err);
	if (rc == 0 && o.wrong)
		return rsh_error_set(err, EBADMSG, "%s: the offsets of tensor "
				     "%s do not fit its shape", s->path,
				     o.wrong);
	while (at < g->n && g->pieces[at].placed)
		at++;
	/* Without offsets it is not known which part of a tensor the file
	 * has. */
	if (rc == 0 && at < g->n)
		return rsh_error_set(err, EBADMSG, "%s: " INFO " does not tell "
				     "the offsets of tensor %s", s->path,
				     rsh_names_text(g->shards->tensors,
						    g->pieces[at].tensor));
	return rc;
}

static int piece_by_tensor(const void *a, const void *b, void *names)
{
	const struct piece *x = a, *y = b;

	if (x->tensor != y->tensor)
		return strcmp(rsh_names_text(names, x->tensor),
			      rsh_names_text(names, y->tensor));
	return rsh_by_u32(&x->file, &y->file);
}

/* Makes a tensor from n pieces. */
static int gather_tensor(struct gathering *g, const struct piece *p, size_t n,
			 struct rsh_dcp_tensor *t, struct rsh_error *err)
{
	struct rsh_arena *arena = &g->out->arena;
	const char *name = rsh_names_text(g->shards->tensors, p->tensor);
	struct rsh_dcp_chunk *chunks =
		rsh_arena_array(arena, struct rsh_dcp_chunk, n);
	uint64_t *dims = rsh_arena_array(arena, uint64_t, p->n_dims);

	*t = (struct rsh_dcp_tensor){
		.name = rsh_arena_strndup(arena, name, strlen(name)),
		.dtype = p->dtype, .n_dims = p->n_dims, .dims = dims,
		.n_chunks = (uint32_t)n, .chunks = chunks,
	};
	if (!t->name || !chunks || !dims)
		return rsh_error_nomem(err);
	for (size_t i = 0; i < n; i++) {
		if (p[i].dtype != t->dtype || p[i].n_dims != t->n_dims)
			return rsh_error_set(err, EBADMSG, "%s and %s: type or "
					     "number of dimensions of tensor "
					     "%s differ",
					     g->shards->v[p->file].path,
					     g->shards->v[p[i].file].path,
					     name);
		for (uint32_t d = 0; d < t->n_dims; d++)
			dims[d] = rsh_max_u64(dims[d], p[i].from[d] +
						       p[i].size[d]);
		chunks[i] = (struct rsh_dcp_chunk){
			.from = p[i].from, .size = p[i].size,
			.file = p[i].file, .length = RSH_DCP_BY_NAME,
		};
	}
	return rsh_dcp_is_countable(t) ? 0 :
	       rsh_error_set(err, EBADMSG, "%s: by the offsets in " INFO
			     " tensor %s has more bytes than can be counted",
			     rsh_source_path(g->shards->source), name);
}

static int gather_tensors(struct gathering *g, struct rsh_error *err)
{
	struct rsh_dcp_tensor *tensors =
		rsh_arena_array(&g->out->arena, struct rsh_dcp_tensor, g->n);
	int rc = 0;

	if (!tensors)
		return rsh_error_nomem(err);
	if (g->n > 0)
		qsort_r(g->pieces, g->n, sizeof(*g->pieces), piece_by_tensor,
			g->shards->tensors);
	for (size_t i = 0, end; i < g->n && rc == 0; i = end) {
		for (end = i; end < g->n &&
		     g->pieces[end].tensor == g->pieces[i].tensor; end++)
			;
		rc = gather_tensor(g, &g->pieces[i], end - i,
				   &tensors[g->pub->n_tensors++], err);
	}
	g->pub->tensors = tensors;
	return rc;
}

static int gather_files(struct gathering *g)
{
	const struct shards *s = g->shards;
	struct rsh_arena *arena = &g->out->arena;
	const char **files = rsh_arena_array(arena, const char *, s->n);

	for (size_t i = 0; files && i < s->n; i++) {
		files[i] = rsh_arena_strndup(arena, s->names[i],
					     strlen(s->names[i]));
		if (!files[i])
			return -ENOMEM;
	}
	g->pub->n_files = (uint32_t)s->n;
	g->pub->files = files;
	return files ? 0 : -ENOMEM;
}

static int gather_all(struct shards *s, struct rsh_source_dcp *out,
		      struct rsh_error *err)
{
	struct gathering g = {
		.shards = s, .out = out,
		.pub = rsh_arena_array(&out->arena, struct rsh_dcp, 1),
	};
	size_t n = 0;
	int rc = 0;

	for (size_t i = 0; i < s->n; i++)
		n += s->v[i].index->n_records;
	g.pieces = rsh_alloc_array(n, sizeof(*g.pieces));
	if (!g.pub || !g.pieces || gather_files(&g))
		rc = rsh_error_nomem(err);
	for (uint32_t i = 0; i < s->n && rc == 0; i++)
		rc = gather_file(&g, i, err);
	if (rc == 0)
		rc = gather_tensors(&g, err);
	free(g.pieces);
	if (rc)
		return rc;
	g.pub->by_name = true;
	out->pub = g.pub;
	return 0;
}

int rsh_dcp_shards_read(const struct rsh_source *s, const char *const *names,
			size_t n, struct rsh_source_dcp *d,
			struct rsh_error *err)
{
	struct shards all = {
		.source = s, .names = names, .n = n,
		.tensors = rsh_names_new(), .v = calloc(n, sizeof(*all.v)),
	};
	int rc = all.tensors && all.v ? 0 : rsh_error_nomem(err);

	if (rc == 0)
		rc = rsh_parallel_for(rsh_source_scan_threads(s), n, shard_read,
				      &all, err);
	if (rc == 0)
		rc = gather_all(&all, d, err);
	for (size_t i = 0; all.v && i < n; i++)
		shard_clear(&all.v[i]);
	free(all.v);
	rsh_names_free(all.tensors);
	return rc;
}
