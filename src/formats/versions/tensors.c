/* SPDX-License-Identifier: Apache-2.0 */
/* formats/versions/tensors.c finds which tensors of a version have changed, and
 * where.  The index of a delta must name exactly what its files have; every
 * tensor must be in the model that is changed, with the same size. */
#include "config.h"

#include "versions_i.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/checked.h"
#include "rsh/util/mem.h"
#include "rsh/util/names.h"
#include "rsh/util/text.h"
#include "rsh/wire/safetensors.h"

/* A read of a frame; a read of an object costs more. */
#define CHUNK_BYTES ((size_t)64 << 10)
#define CHUNK_BYTES_FAR ((size_t)1 << 20)
/* Of the base, so many tensors are compared with their checksums before a base
 * is called a wrong one. */
#define PROBES 2
#define SMALL_BYTES 4096
/* So many versions before this one are looked for in the cache. */
#define EARLIER_MAX 16

/* A change of a tensor, while files are read. */
struct found {
	uint32_t tensor; /* by its name */
	struct rsh_patch patch;
};

/* All tensors of the full version. */
struct whole {
	bool is;
	uint32_t file;
	uint64_t offset, bytes;
};

struct opening {
	struct rsh_version_chain *c;
	struct whole *whole; /* [number of a name] */
	size_t n_whole, cap_whole;
	struct found *found;
	size_t n_found, cap_found;
	uint32_t n_inputs;
	struct rsh_arena arena; /* of what only opening needs */
	struct rsh_error *err;
};

/* ---- files ---- */

static int add_input(struct opening *o, const char *dir, const char *name)
{
	cleanup_free char *path = rsh_text_format("%s/%s", dir, name);

	return path && rsh_store_add(o->c->inputs, &(struct rsh_store_entry){
			.name = path }) == 0 ? 0 : rsh_error_nomem(o->err);
}

/* Adds all files, in the order in which they are read. */
static int add_inputs(struct opening *o)
{
	struct rsh_version_links *l = &o->c->links;
	uint32_t n = l->n_files;
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < l->n_files; i++)
		rc = add_input(o, l->full, l->files[i]);
	for (uint32_t i = l->n; rc == 0 && i-- > 0;) {
		const struct rsh_version_index *x = &l->v[i].index;

		for (uint32_t f = 0; rc == 0 && f < x->n_files; f++)
			rc = add_input(o, l->v[i].name,
				       rsh_names_text(x->file_names, f));
		n += x->n_files;
		l->v[i].n_inputs = n;
	}
	return rc;
}

/* Opens the next input, and reads its header. */
static int read_input(struct opening *o, const char *dir, const char *name,
		      uint32_t *file, struct rsh_ckpt_index **ix,
		      struct rsh_safetensors_meta *meta)
{
	struct rsh_store *s = o->c->inputs;
	cleanup_handle struct rsh_handle *h = NULL;
	struct rsh_error why = RSH_ERROR_INIT;
	struct rsh_byte_source bytes = { .pread_fn = rsh_handle_pread };
	int rc;

	*file = o->n_inputs++;
	rc = rsh_store_identify(s, *file, &h, &why);
	if (rc == -ENOENT)
		return rsh_error_set(o->err, EAGAIN, "%s: %s is missing", dir,
				     name);
	if (rc)
		return rsh_error_set(o->err, -rc, "%s", why.text);
	rsh_store_adopt(s, *file, steal_pointer(&h));
	rc = rsh_store_open_file(s, *file, &h, o->err);
	bytes.ctx = h;
	bytes.path = rsh_store_path(s, *file);
	bytes.size = rsh_store_identity(s, *file)->size;
	rc = rc ?: (meta ? rsh_safetensors_scan_delta :
			   rsh_safetensors_scan)(&bytes, o->c->all_names, ix,
						 meta, o->err);
	if (rc == 0 && rsh_store_compare(s, *file, h)) {
		rsh_ckpt_index_free(*ix);
		*ix = NULL;
		return rsh_error_set(o->err, EAGAIN, "%s: it is being written",
				     bytes.path);
	}
	return rc;
}

/* ---- the full version ---- */

static int take_whole(struct opening *o, uint32_t file,
		      const struct rsh_ckpt_index *ix)
{
	struct rsh_version_chain *c = o->c;
	const uint32_t n = rsh_names_count(c->all_names);
	const size_t before = o->cap_whole;

	if (rsh_room(o->whole, o->cap_whole, (size_t)n + 1))
		return rsh_error_nomem(o->err);
	memset(o->whole + before, 0,
	       (o->cap_whole - before) * sizeof(*o->whole));
	for (uint32_t i = 0; i < ix->n_records; i++) {
		const struct rsh_record *r = &ix->records[i];
		struct whole *w = &o->whole[r->name];

		if (w->is)
			return rsh_error_set(
				o->err, EINVAL, "%s: %s is in %s, too",
				rsh_store_path(c->inputs, file),
				rsh_names_text(c->all_names, r->name),
				c->links.files[w->file]);
		*w = (struct whole){
			.is = true, .file = file, .bytes = r->content_bytes,
			.offset = r->n_extents ?
				ix->extents[r->first_extent].offset : 0,
		};
	}
	o->n_whole = n;
	return 0;
}

/* ---- deltas ---- */

RSH_ORDER(changed_order, struct rsh_changed_name, strcmp(x->name, y->name))

RSH_ORDER(entry_order, struct rsh_safetensors_entry, strcmp(x->key, y->key))

/* Checks one tensor of file number `of` of a delta. */
static int check_record(struct opening *o, const struct rsh_version_link *link,
			uint32_t of, const struct rsh_record *r)
{
	const char *name = rsh_names_text(o->c->all_names, r->name);
	const struct rsh_changed_name key = { .name = name };
	const struct rsh_changed_name *known = rsh_find(
		&key, link->index.names, link->index.n_names, changed_order);

	if (!known || known->file != of)
		return rsh_error_set(o->err, EBADMSG, "%s: %s has %s, which "
				     "the index gives to %s", link->name,
				     rsh_names_text(link->index.file_names, of), name, known ?
				     rsh_names_text(link->index.file_names,
						    known->file) :
				     "no file");
	if (r->name >= o->n_whole || !o->whole[r->name].is)
		return rsh_error_set(o->err, EINVAL, "%s: %s is not in the "
				     "model that it changes%s", link->name,
				     name, o->c->links.is_base ?
				     ": --base is not the model that the run "
				     "began with" : "");
	if (r->dtype != RSH_DTYPE_UINT8 || r->n_dims != 1)
		return rsh_error_set(o->err, EBADMSG, "%s: %s is not a "
				     "compressed tensor: UInt8 with one "
				     "dimension", link->name, name);
	return 0;
}

static int take_records(struct opening *o, uint32_t delta, uint32_t of,
			uint32_t file, const struct rsh_ckpt_index *ix,
			const struct rsh_safetensors_meta *meta)
{
	struct rsh_version_chain *c = o->c;
	const struct rsh_version_link *link = &c->links.v[delta];
	struct rsh_safetensors_entry *sums = rsh_arena_copy(
		&o->arena, meta->entries, meta->n_entries);
	int rc = sums ? 0 : rsh_error_nomem(o->err);

	if (sums)
		rsh_sort(sums, meta->n_entries, entry_order);
	for (uint32_t i = 0; rc == 0 && i < ix->n_records; i++) {
		const struct rsh_record *r = &ix->records[i];
		const struct rsh_safetensors_entry
			key = { rsh_names_text(c->all_names, r->name), NULL },
			*sum = rsh_find(&key, sums, meta->n_entries,
					entry_order);
		struct found f = {
			.tensor = r->name,
			.patch = { .delta = delta, .file = file,
				   .length = r->content_bytes },
		};

		rc = check_record(o, link, of, r);
		if (rc)
			break;
		if (r->n_extents)
			f.patch.offset = ix->extents[r->first_extent].offset;
		if (sum && rsh_sum_is_valid(link->index.sum, sum->value))
			f.patch.sum = rsh_arena_strdup(&c->arena, sum->value);
		if (rsh_push(o->found, o->n_found, o->cap_found, f))
			rc = rsh_error_nomem(o->err);
	}
	return rc;
}

/* A name of the index is in the file that it says if the files have as many
 * tensors as the index has names, each of which is in its file. */
static int open_delta(struct opening *o, uint32_t delta)
{
	const struct rsh_version_link *link = &o->c->links.v[delta];
	const struct rsh_version_index *x = &link->index;
	const size_t before = o->n_found;
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < x->n_files; i++) {
		struct rsh_safetensors_meta meta = { .n_entries = 0 };
		struct rsh_ckpt_index *ix = NULL;
		uint32_t file;

		rc = read_input(o, link->name,
				rsh_names_text(x->file_names, i), &file, &ix,
				&meta) ?:
		     take_records(o, delta, i, file, ix, &meta);
		rsh_ckpt_index_free(ix);
		rsh_safetensors_meta_clear(&meta);
	}
	if (rc == 0 && o->n_found - before != x->n_names)
		return rsh_error_set(o->err, EBADMSG, "%s: its index names %u "
				     "tensors, and its files have %zu",
				     link->name, x->n_names,
				     o->n_found - before);
	return rc;
}

/* ---- both together ---- */

static int by_tensor(const void *a, const void *b, void *whole)
{
	const struct found *x = a, *y = b;
	const struct whole *p = &((const struct whole *)whole)[x->tensor];
	const struct whole *q = &((const struct whole *)whole)[y->tensor];

	/* An empty tensor has no place. */
	return rsh_compare_u64(p->file, q->file) ?:
	       rsh_compare_u64(p->offset, q->offset) ?:
	       rsh_compare_u64(x->tensor, y->tensor) ?:
	       rsh_compare_u64(y->patch.delta, x->patch.delta);
}

static int make_tensors(struct opening *o)
{
	struct rsh_version_chain *c = o->c;
	struct rsh_patch *patches = rsh_arena_array(&c->arena,
						    struct rsh_patch,
						    o->n_found + 1);
	size_t i = 0, end;

	c->tensors = rsh_arena_array(&c->arena, struct rsh_made_tensor,
				     o->n_found + 1);
	if (!patches || !c->tensors)
		return rsh_error_nomem(o->err);
	if (o->n_found > 1)
		qsort_r(o->found, o->n_found, sizeof(*o->found), by_tensor,
			o->whole);
	memset(c->first, 0, (c->links.n_files + 1) * sizeof(*c->first));
	for (; i < o->n_found; i = end) {
		const struct whole *w = &o->whole[o->found[i].tensor];
		struct rsh_made_tensor *t = &c->tensors[c->n_tensors++];

		for (end = i; end < o->n_found && o->found[end].tensor ==
						  o->found[i].tensor; end++)
			patches[end] = o->found[end].patch;
		*t = (struct rsh_made_tensor){
			.name = rsh_names_text(c->all_names,
					       o->found[i].tensor),
			.file = w->file,
			.offset = w->offset,
			.bytes = w->bytes,
			.patches = &patches[i],
			.n_patches = (uint32_t)(end - i),
			.reported = ATOMIC_FLAG_INIT,
		};
		c->first[w->file + 1] = c->n_tensors;
	}
	for (uint32_t f = 0; f < c->links.n_files; f++)
		if (c->first[f + 1] < c->first[f])
			c->first[f + 1] = c->first[f];
	return 0;
}

/* ---- sizes ---- */

static int check_size(const struct rsh_version_chain *c,
		      const struct rsh_made_tensor *t,
		      const struct rsh_patch *p, struct rsh_error *err)
{
	const struct rsh_version_link *link = &c->links.v[p->delta];
	const struct rsh_frame_place at = rsh_patch_place(c, p);
	const uint64_t max = rsh_change_content_max(link->index.form, t->bytes);
	uint64_t size;
	int rc = rsh_frame_size(&at, &size);

	/* A read of it fails, and others do not. */
	if (rc == -EBADMSG)
		return 0;
	if (rc)
		return rsh_error_file(err, -rc,
				      rsh_store_path(c->inputs, p->file));
	if (size == UINT64_MAX || size == max ||
	    (link->index.form == RSH_DELTA_OVERWRITE && size <= max))
		return 0;
	return rsh_error_set(err, EBADMSG, "%s changes %" PRIu64 " bytes of "
			     "%s, and it has %" PRIu64 " in %s%s", link->name,
			     size, t->name, t->bytes,
			     rsh_version_label(&c->links, c->links.n),
			     c->links.is_base ? ": not the model that the run "
			     "began with" : "");
}

/* ---- the base ---- */

/* Returns the smallest tensor of the first delta that has a checksum and is
 * larger than another one; NULL: there is none. */
static struct rsh_made_tensor *next_probe(const struct rsh_version_chain *c,
					  const struct rsh_made_tensor *after)
{
	struct rsh_made_tensor *best = NULL;

	for (uint32_t i = 0; i < c->n_tensors; i++) {
		struct rsh_made_tensor *t = &c->tensors[i];

		if (t->patches[0].sum && t->bytes > 0 &&
		    (!after || t->bytes > after->bytes ||
		     (t->bytes == after->bytes && t > after)) &&
		    (!best || t->bytes < best->bytes))
			best = t;
	}
	return best;
}

/* The first checksums are of tensors that the base has made. */
static int probe_base(struct rsh_version_chain *c, struct rsh_error *err)
{
	struct rsh_error why = RSH_ERROR_INIT;
	struct rsh_made_tensor *t = NULL;
	const char *first = NULL;
	int rc = 0;

	for (unsigned i = 0; c->links.is_base && i < PROBES; i++) {
		t = next_probe(c, t);
		if (!t)
			break;
		rc = rsh_version_verify(c, t, 1, &why);
		if (rc != -EKEYREJECTED && rc != -EBADMSG)
			break;
		first = first ? first : t->name;
	}
	if (rc == -EKEYREJECTED)
		return rsh_error_set(err, EBADMSG, "%s: %s has another "
				     "checksum than the trainer's: %s is not "
				     "the model that the run began with, or it "
				     "was changed",
				     rsh_version_label(&c->links,
						       c->links.n - 1),
				     first, c->links.full);
	return rc ? rsh_error_set(err, -rc, "%s", why.text) : 0;
}

/* ---- versions in the cache ---- */

static int find_earlier(struct rsh_version_chain *c, struct rsh_error *err)
{
	const struct rsh_version_links *l = &c->links;

	c->n_earlier = l->n ? rsh_min_u64(l->n - 1, EARLIER_MAX) : 0;
	c->earlier = rsh_arena_array(&c->arena, uint32_t, (size_t)c->n_earlier *
							  l->n_files + 1);
	if (!c->earlier)
		return rsh_error_nomem(err);
	for (uint32_t i = 0; i < c->n_earlier; i++)
		for (uint32_t f = 0; f < l->n_files; f++)
			c->earlier[i * l->n_files + f] = rsh_store_find_made(
				c->inputs, l->v[i + 1].n_inputs, f,
				rsh_store_identity(c->inputs, f)->size,
				l->v[i + 1].index.version);
	return 0;
}

/* ---- opening ---- */

static int open_all(struct opening *o)
{
	struct rsh_version_chain *c = o->c;
	const bool remote = rsh_store_is_remote(c->inputs);
	int rc = add_inputs(o);

	for (uint32_t i = 0; rc == 0 && i < c->links.n_files; i++) {
		struct rsh_ckpt_index *ix = NULL;
		uint32_t file;

		rc = read_input(o, c->links.full, c->links.files[i], &file, &ix,
				NULL) ?: take_whole(o, file, ix);
		rsh_ckpt_index_free(ix);
	}
	for (uint32_t i = c->links.n; rc == 0 && i-- > 0;)
		rc = open_delta(o, i);
	if (rc == 0 && rsh_store_start(c->inputs))
		rc = rsh_error_nomem(o->err);
	rc = rc ?: make_tensors(o);
	/* Each size costs a request of an object, so there only reads find
	 * them. */
	for (uint32_t i = 0; i < c->n_tensors && !remote; i++)
		for (uint32_t k = 0; rc == 0 && k < c->tensors[i].n_patches;
		     k++)
			rc = check_size(c, &c->tensors[i],
					&c->tensors[i].patches[k], o->err);
	rc = rc ?: probe_base(c, o->err);
	/* A page of the kernel has several small tensors, and the damage of one
	 * would make the others unreadable. */
	for (uint32_t i = 0; rc == 0 && i < c->n_tensors && !remote; i++)
		if (c->tensors[i].bytes <= SMALL_BYTES)
			rc = rsh_version_verify(c, &c->tensors[i],
						c->tensors[i].n_patches,
						o->err);
	if (rc == -EKEYREJECTED) {
		rc = -EBADMSG;
		o->err->code = EBADMSG;
	}
	return rc ?: find_earlier(c, o->err);
}

int rsh_version_chain_open(const struct rsh_versions_place *at,
			   uint64_t version, struct rsh_version_chain **out,
			   struct rsh_error *err)
{
	struct rsh_version_chain *c = calloc(1, sizeof(*c));
	struct opening o = { .c = c, .err = err };
	int rc = c ? rsh_version_links_find(at, version, &c->links, err) :
		     rsh_error_nomem(err);

	if (rc == 0) {
		c->inputs = c->links.store;
		c->all_names = rsh_names_new();
		c->first = rsh_arena_array(&c->arena, uint32_t,
					   (size_t)c->links.n_files + 1);
		c->chunk = rsh_store_far(at->dir, at->store) ?
			   CHUNK_BYTES_FAR : CHUNK_BYTES;
		if (!c->all_names || !c->first)
			rc = rsh_error_nomem(err);
	}
	rc = rc ?: open_all(&o);
	free(o.whole);
	free(o.found);
	rsh_arena_clear(&o.arena);
	if (rc) {
		rsh_version_chain_close(c);
		return rc;
	}
	c->room = rsh_store_tile_room(c->inputs);
	*out = c;
	return 0;
}

void rsh_version_chain_close(void *chain)
{
	struct rsh_version_chain *c = chain;

	if (!c)
		return;
	rsh_version_forget(c);
	rsh_version_links_clear(&c->links);
	rsh_names_free(c->all_names);
	rsh_arena_clear(&c->arena);
	free(c);
}
