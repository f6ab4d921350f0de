/* SPDX-License-Identifier: Apache-2.0 */
/* formats/torch_ranks/file.c reads what the file of one rank has. */
#include "config.h"

#include "torch_ranks_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/mem.h"
#include "rsh/wire/file_type.h"

/* ---- tensors ---- */

static bool has_no_piece(const struct rsh_ranks_spec *s)
{
	return !s->how && s->n_boxes == 0;
}

/* Tensors and specs are in the order of the file.  A piece after the first has
 * the name of its tensor and a number. */
static int file_take(struct rsh_ranks_file *f, const struct rsh_torch_file *of,
		     const char *path, struct rsh_error *err)
{
	struct rsh_ranks_specs *s = &f->specs;
	size_t at = 0;

	f->v = rsh_arena_array(&f->arena, struct rsh_ranks_entry,
			       of->n_tensors);
	if (!f->v)
		return rsh_error_nomem(err);
	for (size_t i = 0; i < s->n; i++)
		if (f->rank == UINT32_MAX)
			f->rank = s->v[i].rank;
	for (uint32_t i = 0; i < of->n_tensors; i++) {
		const struct rsh_torch_tensor *t = &of->tensors[i];
		const struct rsh_torch_storage *in = &of->storages[t->storage];
		const unsigned width = rsh_dtype_size(t->dtype);
		struct rsh_ranks_entry *e = &f->v[f->n++];
		struct rsh_torch_layout l;

		rsh_torch_layout(t, &l);
		*e = (struct rsh_ranks_entry){
			.key = rsh_ranks_text_keep(s->ways, t->name),
			.dtype = t->dtype, .n_dims = t->n_dims,
			.dims = rsh_ranks_dims_keep(s, t->dims, t->n_dims),
			.storage = t->storage, .from = t->from,
			/* The storage may have padding, too. */
			.has_crc = in->has_crc && t->from == 0 &&
				   in->bytes == t->elements * width,
			.crc = in->crc, .offset = in->offset + t->from * width,
			.bytes = l.span * width, .n_keys = t->n_keys,
			.order = l.dense && !rsh_torch_is_row_major(
						    l.order, t->n_dims) ?
				 rsh_arena_copy(&f->arena, l.order,
						t->n_dims) : NULL,
			/* The file of torch is freed. */
			.keys = rsh_path_keys_copy(t->keys, t->n_keys,
						   &f->arena),
		};
		e->name = e->key;
		if (!e->key || f->arena.failed)
			return rsh_error_nomem(err);
		if (strchr(t->name, '\2') && i > 0 && e[-1].spec) {
			e->spec = e[-1].spec;
			e->piece = e[-1].piece + 1;
			e->name = e->spec->name;
			continue;
		}
		/* A rank may have no piece of a tensor. */
		while (at < s->n && s->v[at].name != t->name &&
		       has_no_piece(&s->v[at]))
			at++;
		if (at < s->n && s->v[at].name == t->name) {
			e->spec = &s->v[at++];
			/* This text lives as long as the entries. */
			s->v[at - 1].name = e->name;
		}
	}
	while (at < s->n && has_no_piece(&s->v[at]))
		at++;
	if (at < s->n)
		return rsh_error_set(err, EBADMSG, "%s: tensor %s: damaged: it "
				     "is not where it should be", path,
				     s->v[at].name);
	/* Names of tensors of which the file has no piece. */
	for (size_t i = 0; i < s->n; i++)
		if (has_no_piece(&s->v[i])) {
			s->v[i].name = rsh_ranks_text_keep(s->ways,
							   s->v[i].name);
			if (!s->v[i].name)
				return rsh_error_nomem(err);
		}
	return 0;
}

bool rsh_ranks_is_params(const struct rsh_torch_value *v)
{
	return v->n_keys == 3 && v->keys[0].text && v->keys[2].text &&
	       strcmp(v->keys[0].text, "param_groups") == 0 &&
	       strcmp(v->keys[2].text, "params") == 0;
}

/* ---- reading ---- */

/* Moves the specs, which have grown, to the memory of the file. */
static int specs_keep(struct rsh_ranks_specs *s, int rc, struct rsh_error *err)
{
	void *grown = s->v;

	s->v = rsh_arena_copy(s->arena, s->v, s->n);
	free(grown);
	return rc || s->v ? rc : rsh_error_nomem(err);
}

static int read_torch(struct rsh_ranks_file *f,
		      const struct rsh_byte_source *bytes, bool full,
		      struct rsh_names *names, struct rsh_ckpt_index **index,
		      struct rsh_error *err)
{
	const struct rsh_torch_parts parts = { &f->specs, rsh_ranks_spec_take };
	struct rsh_torch_file *of = NULL;
	int rc = rsh_torch_file_read(bytes, &parts, &of, err);

	rc = specs_keep(&f->specs, rc, err) ?:
	     file_take(f, of, bytes->path, err);

	/* All tensors of a file are of one rank. */
	for (size_t i = 0; i < f->specs.n && rc == 0; i++) {
		const struct rsh_ranks_spec *s = &f->specs.v[i];

		if (s->rank != UINT32_MAX && s->rank != f->rank)
			rc = rsh_error_set(err, EBADMSG, "%s: tensor %s is of "
					   "rank %u, and others are of rank %u",
					   bytes->path, s->name, s->rank,
					   f->rank);
	}
	/* Groups of parameters of an optimizer, and parameters of the last
	 * one. */
	for (uint32_t i = 0; rc == 0 && i < of->n_values; i++) {
		const struct rsh_torch_value *v = &of->values[i];
		const char *at = v->plain.json;

		if (!rsh_ranks_is_params(v))
			continue;
		f->n_groups++;
		f->n_params = at && strcmp(at, "[]") != 0;
		while (at && (at = strchr(at, ',')) != NULL) {
			f->n_params++;
			at++;
		}
	}
	if (rc == 0 && names)
		rc = rsh_torch_index(of, bytes, full, true, names, index,
				     err);
	rsh_torch_file_free(of);
	return rc;
}

/* ---- safetensors ---- */

RSH_ORDER(spec_by_name, struct rsh_ranks_spec, strcmp(x->name, y->name))

/* Takes the tensors of an index; those that metadata.pkl does not name are
 * plain. */
static int described_take(struct rsh_ranks_file *f,
			  const struct rsh_ckpt_index *ix,
			  const struct rsh_names *names)
{
	f->v = rsh_arena_array(&f->arena, struct rsh_ranks_entry,
			       ix->n_records);
	if (!f->v)
		return -ENOMEM;
	for (uint32_t i = 0; i < ix->n_records; i++) {
		const struct rsh_record *r = &ix->records[i];
		const int64_t *dims = rsh_record_dims(ix, r);
		struct rsh_ranks_entry *e = &f->v[f->n++];
		uint64_t *own = rsh_arena_array(&f->arena, uint64_t, r->n_dims);
		const char *name = rsh_ranks_text_keep(
			f->specs.ways, rsh_names_text(names, r->name));
		struct rsh_ranks_spec key = { .name = name };

		if (!own || !name)
			return -ENOMEM;
		for (uint32_t d = 0; d < r->n_dims; d++)
			own[d] = (uint64_t)dims[d];
		*e = (struct rsh_ranks_entry){
			.name = name, .key = name,
			.dtype = (enum rsh_dtype)r->dtype,
			.n_dims = r->n_dims, .dims = own, .storage = i,
			.offset = r->n_extents ?
				  ix->extents[r->first_extent].offset : 0,
			.bytes = r->content_bytes,
			.spec = rsh_find(&key, f->specs.v, f->specs.n,
					 spec_by_name),
		};
		e->undescribed = !e->spec;
		if (e->spec) {
			e->keys = e->spec->keys;
			e->n_keys = e->spec->n_keys;
		}
	}
	return 0;
}

static int read_described(struct rsh_ranks_file *f,
			  const struct rsh_byte_source *bytes,
			  const struct rsh_tc_file *of, bool full,
			  struct rsh_names *names,
			  struct rsh_ckpt_index **index, struct rsh_error *err)
{
	struct rsh_names *own = names ? names : rsh_names_new();
	struct rsh_ckpt_index *ix = NULL;
	int rc = own ? rsh_tc_specs(of, bytes->path, &f->specs, err) :
		       rsh_error_nomem(err);

	rc = specs_keep(&f->specs, rc, err) ?:
	     rsh_file_scan(RSH_FILE_SAFETENSORS, bytes, full, own, &ix, err);
	if (rc == 0 && f->specs.n)
		rsh_sort(f->specs.v, f->specs.n, spec_by_name);
	if (rc == 0 && described_take(f, ix, own))
		rc = rsh_error_nomem(err);
	for (size_t i = 0; rc == 0 && i < f->specs.n; i++) {
		const char *name = f->specs.v[i].name;

		if (f->specs.v[i].place != UINT32_MAX &&
		    !rsh_ckpt_find(ix, rsh_names_find(own, name, strlen(name))))
			rc = rsh_error_set(err, EBADMSG, "%s: it lacks tensor "
					   "%s, which " RSH_TC_METADATA " says "
					   "is in it", bytes->path, name);
	}
	if (rc == 0 && names)
		*index = ix;
	else
		rsh_ckpt_index_free(ix);
	if (!names)
		rsh_names_free(own);
	return rc;
}

int rsh_ranks_file_read(void *state, uint32_t file,
			const struct rsh_byte_source *bytes, bool full,
			struct rsh_names *names, void **out,
			struct rsh_ckpt_index **index, struct rsh_error *err)
{
	struct rsh_source_ranks *st = state;
	const struct rsh_tc_file *of = st->listed[file].described;
	struct rsh_ranks_file *f = calloc(1, sizeof(*f));
	int rc;

	*out = NULL;
	if (!f)
		return rsh_error_nomem(err);
	f->rank = of ? of->rank : UINT32_MAX;
	f->specs.ways = &st->ways;
	f->specs.arena = &f->arena;
	rc = of ? read_described(f, bytes, of, full, names, index, err) :
		  read_torch(f, bytes, full, names, index, err);
	if (rc)
		rsh_joined_file_free(f);
	else
		*out = f;
	return rc;
}

