/* SPDX-License-Identifier: Apache-2.0 */
/* formats/torch_ranks/describe.c joins what the files of all ranks say about
 * their tensors to the description of a distributed checkpoint.
 *
 * A chunk is what one rank has of a tensor.  If a strided shard gives a rank
 * several runs of an axis, the chunks are boxes in an order of the axis in
 * which the elements of each rank are together (`axes`, formats/dcp.h). */
#include "config.h"

#include "torch_ranks_i.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/formats/files.h"
#include "rsh/util/checked.h"
#include "rsh/util/mem.h"

/* All cuts of a model have fewer runs than this. */
#define RUNS_MAX (UINT64_C(1) << 20)
#define MISSING_MAX 64

/* A tensor of one file. */
struct ref {
	const char *name; /* as it is shown */
	const struct rsh_ranks_entry *e;
	uint32_t file, rank;
	struct rsh_ranks_shown_name shown;
	/* The parameter of which it is a state; NULL: it is not one. */
	const struct rsh_ranks_entry *param;
};

/* An axis as it is cut; tensors of one size and way share it. */
struct known_cut {
	const struct rsh_ranks_how *how;
	uint32_t axis;
	uint64_t size;
	struct rsh_ranks_cut cut;
	const uint64_t *from; /* [piece]: where the chunks begin */
	struct rsh_dcp_axis runs; /* n is 0: pieces are ranges of the axis */
};

struct describing {
	struct rsh_source_ranks *st;
	struct rsh_dcp *d;
	struct ref *refs;
	size_t n_refs;
	struct known_cut *cuts;
	size_t n_cuts, cap_cuts;
	uint64_t budget;
	struct rsh_dcp_tensor *tensors;
	/* Names of files that are not there. */
	const char **files;
	size_t n_files, cap_files;
	struct rsh_dcp_chunk *chunks; /* of one tensor */
	size_t n_chunks, cap_chunks;
	const struct ref **holders; /* [chunk]; NULL: no file has it */
	size_t cap_holders;
};

static const char *describing_path(const struct describing *w, uint32_t file)
{
	return w->st->listed[file].name;
}

/* ---- problems ---- */

__attribute__((format(printf, 4, 5)))
static int describing_blame(struct describing *w, const char *name, int code,
			    const char *fmt, ...)
{
	va_list ap;
	int rc;

	va_start(ap, fmt);
	rc = rsh_tensor_problems_add(&w->st->all.problems, &w->d->arena_, name,
				     code, fmt, ap);
	va_end(ap);
	return rc;
}

/* ---- axes ---- */

/* Sets where the chunks of an axis begin: at their elements if each has one run
 * or none, else one after the other. */
static int cut_place(struct describing *w, struct known_cut *k)
{
	const struct rsh_ranks_cut *c = &k->cut;
	uint64_t *from = rsh_arena_array(&w->d->arena_, uint64_t, c->n);
	struct rsh_dcp_run *runs;
	bool several = false;
	uint64_t at = 0;
	uint32_t n = 0;

	for (uint32_t i = 0; i < c->n; i++)
		several |= c->first[i + 1] - c->first[i] > 1;
	runs = rsh_arena_array(&w->d->arena_, struct rsh_dcp_run,
			       several ? c->n_runs : 0);
	if (!from || !runs)
		return -ENOMEM;
	for (uint32_t i = 0; i < c->n; i++) {
		from[i] = several ? at : c->first[i + 1] > c->first[i] ?
			  c->runs[c->first[i]].from : k->size;
		for (uint32_t r = c->first[i]; several && r < c->first[i + 1];
		     r++) {
			runs[n++] = (struct rsh_dcp_run){
				c->runs[r].from, at, c->runs[r].n,
			};
			at += c->runs[r].n;
		}
	}
	k->from = from;
	k->runs = (struct rsh_dcp_axis){ n, runs };
	return 0;
}

static int cut_find(struct describing *w, const struct rsh_ranks_how *how,
		    uint32_t axis, uint64_t size, struct known_cut **out)
{
	struct known_cut *k;
	int rc;

	for (size_t i = w->n_cuts; i-- > 0;) {
		*out = &w->cuts[i];
		if ((*out)->how == how && (*out)->axis == axis &&
		    (*out)->size == size)
			return 0;
	}
	if (rsh_grow(&w->cuts, &w->cap_cuts, w->n_cuts + 1, sizeof(*w->cuts)))
		return -ENOMEM;
	k = &w->cuts[w->n_cuts];
	*k = (struct known_cut){ how, axis, size, .from = NULL };
	rc = rsh_ranks_cut_axis(how, axis, size, &w->budget, &k->cut) ?:
	     cut_place(w, k);
	if (rc) {
		rsh_ranks_cut_clear(&k->cut);
		return rc;
	}
	w->n_cuts++;
	*out = k;
	return 0;
}

/* ---- chunks ---- */

/* Adds a chunk that a ref has; r is NULL: no file has it. */
static struct rsh_dcp_chunk *chunk_add(struct describing *w, const struct ref *r,
				       uint32_t n_dims, uint64_t **from,
				       uint64_t **size)
{
	uint64_t *box = rsh_arena_array(&w->d->arena_, uint64_t,
					2 * (size_t)n_dims);
	struct rsh_dcp_chunk *c;

	if (!box || rsh_grow(&w->chunks, &w->cap_chunks, w->n_chunks + 1,
			     sizeof(*w->chunks)) ||
	    rsh_grow(&w->holders, &w->cap_holders, w->n_chunks + 1,
		     sizeof(*w->holders)))
		return NULL;
	w->holders[w->n_chunks] = r;
	c = &w->chunks[w->n_chunks++];
	*from = box;
	*size = box + n_dims;
	*c = (struct rsh_dcp_chunk){
		.from = box, .size = box + n_dims,
		.file = r ? r->file : RSH_DCP_NO_FILE,
		.key = r ? r->e->key : NULL, .length = RSH_DCP_BY_NAME,
	};
	return c;
}

/* A plain tensor is whole in each file. */
static int chunk_whole(struct describing *w, const struct ref *r)
{
	uint64_t *from, *size;

	if (!chunk_add(w, r, r->e->n_dims, &from, &size))
		return -ENOMEM;
	if (r->e->n_dims > 0)
		memcpy(size, r->e->dims, r->e->n_dims * sizeof(*size));
	return 0;
}

/* Sets the box of the rank at a place in the mesh; `cuts` are those of the axes
 * that are not cut into ranges. */
static void box_placed(const struct rsh_ranks_how *how,
		       const struct rsh_ranks_spec *s,
		       struct known_cut *const *cuts, uint32_t place,
		       struct rsh_box *out)
{
	out->n_dims = s->n_dims;
	for (uint32_t d = 0; d < s->n_dims; d++) {
		uint32_t piece;

		if (rsh_ranks_cut_range(how, d, s->dims[d], place,
					&out->from[d], &out->size[d]))
			continue;
		piece = rsh_ranks_cut_piece(how, d, place);
		out->from[d] = cuts[d]->from[piece];
		out->size[d] = cuts[d]->cut.length[piece];
	}
}

/* Adds a box.  r is NULL: no file has it. */
static int chunk_placed(struct describing *w, const struct rsh_box *box,
			const struct ref *r)
{
	const uint32_t n_dims = box->n_dims;
	uint64_t *from, *size;

	if (!chunk_add(w, r, n_dims, &from, &size))
		return -ENOMEM;
	memcpy(from, box->from, n_dims * sizeof(*from));
	memcpy(size, box->size, n_dims * sizeof(*size));
	return 0;
}

/* Returns the first chunk before `end` that has a box; `end`: there is none. */
static size_t chunk_find(const struct describing *w, size_t end,
			 const uint64_t *from, const uint64_t *size,
			 uint32_t n_dims)
{
	const size_t bytes = n_dims * sizeof(*from);
	size_t i = 0;

	while (i < end && (memcmp(w->chunks[i].from, from, bytes) != 0 ||
			   memcmp(w->chunks[i].size, size, bytes) != 0))
		i++;
	return i;
}

/* Returns whether a box has no elements, or a chunk before `end` has it. */
static bool box_is_held(const struct describing *w, size_t end,
			const uint64_t *from, const uint64_t *size,
			uint32_t n_dims)
{
	for (uint32_t d = 0; d < n_dims; d++)
		if (size[d] == 0)
			return true;
	return chunk_find(w, end, from, size, n_dims) < end;
}

/* ---- copies of which nothing says that they are equal ---- */

/* Opens a file; f is empty then if it is open already. */
static int file_bytes(const struct describing *w, uint32_t file,
		      struct rsh_format_file *f, struct rsh_error *err)
{
	*f = (struct rsh_format_file){ .path = NULL };
	if (w->st->all.source)
		return rsh_format_file_open(w->st->all.source,
					    describing_path(w, file), f, err);
	f->bytes = *w->st->bytes[file];
	return 0;
}

static int same_bytes(const struct describing *w, const struct ref *a,
		      const struct ref *b, bool *same, struct rsh_error *err)
{
	cleanup_format_file struct rsh_format_file f, g;
	int rc = file_bytes(w, a->file, &f, err);

	rc = file_bytes(w, b->file, &g, rc ? NULL : err) ?: rc;
	return rc ?: rsh_format_same_bytes(&f.bytes, a->e->offset, &g.bytes,
					   b->e->offset, a->e->bytes, same,
					   err);
}

static bool same_order(const struct rsh_ranks_entry *a,
		       const struct rsh_ranks_entry *b)
{
	return a->order == b->order ||
	       (a->order && b->order &&
		memcmp(a->order, b->order, a->n_dims) == 0);
}

/* Compares the checksums of two copies, or their bytes if there are none. */
static int check_same(struct describing *w, const struct ref *a,
		      const struct ref *b, const char *what)
{
	struct rsh_error why = RSH_ERROR_INIT;
	bool same = a->e->bytes == b->e->bytes && same_order(a->e, b->e);
	int rc = 0;

	if (same && a->e->bytes > 0) {
		if (a->e->has_crc && b->e->has_crc)
			same = a->e->crc == b->e->crc;
		else
			rc = same_bytes(w, a, b, &same, &why);
	}
	if (rc == -ENOMEM || same)
		return rc;
	if (rc)
		return describing_blame(w, a->name, -rc, "%s", why.text);
	return describing_blame(w, a->name, EBADMSG, "it %s, and differs "
				"between %s and %s: nothing says how these are "
				"joined (--drop leaves it out)", what,
				describing_path(w, a->file),
				describing_path(w, b->file));
}

/* ---- one tensor ---- */

static int plain_take(struct describing *w, const struct ref *r, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		int rc = i ? check_same(w, r, &r[i], "is a plain tensor") : 0;

		if (rc || (rc = chunk_whole(w, &r[i])))
			return rc;
	}
	return 0;
}

/* Returns the number of the file that a rank should have, beside that of `like`
 * and in its place; RSH_DCP_NO_FILE: memory is out. */
static uint32_t missing_file(struct describing *w, uint32_t like, uint32_t rank)
{
	const struct rsh_ranks_listed *l = &w->st->listed[like];
	const char *name;

	if (rank == UINT32_MAX)
		return RSH_DCP_NO_FILE;
	if (w->st->tc)
		name = rsh_tc_find_file(w->st->tc, l->name, rank);
	else
		name = l->n == 0 ? NULL :
		       rsh_arena_format(&w->d->arena_, "%.*s%0*u%s",
					(int)l->at, l->name,
					l->name[l->at] == '0' ? (int)l->n : 0,
					rank, l->name + l->at + l->n);
	for (size_t i = 0; name && i < w->n_files; i++)
		if (strcmp(w->files[i], name) == 0)
			return w->st->all.n + (uint32_t)i;
	for (uint32_t i = 0; name && i < w->st->all.n; i++)
		if (strcmp(w->st->listed[i].name, name) == 0)
			return i;
	if (!name || rsh_grow(&w->files, &w->cap_files, w->n_files + 1,
			      sizeof(*w->files)))
		return RSH_DCP_NO_FILE;
	w->files[w->n_files++] = name;
	return w->st->all.n + (uint32_t)w->n_files - 1;
}

/* Finds the cuts of the axes that are not cut into ranges. */
static int cuts_find(struct describing *w, const struct ref *r,
		     const struct rsh_ranks_how *how, struct known_cut **cuts)
{
	const struct rsh_ranks_spec *s = r->e->spec;
	size_t at[RSH_MAX_DIMS] = { 0 };
	struct known_cut *found = NULL;
	uint64_t from, n;
	int rc = 0;

	for (uint32_t d = 0; d < s->n_dims && rc == 0; d++) {
		if (rsh_ranks_cut_range(how, d, s->dims[d], 0, &from, &n))
			continue;
		rc = cut_find(w, how, d, s->dims[d], &found);
		if (rc == 0)
			at[d] = 1 + (size_t)(found - w->cuts);
	}
	/* The array may have moved. */
	for (uint32_t d = 0; d < s->n_dims && rc == 0; d++)
		cuts[d] = at[d] ? &w->cuts[at[d] - 1] : NULL;
	return rc != -EFBIG ? rc :
	       describing_blame(w, r->name, EBADMSG, "damaged: it is cut into "
				"too many pieces");
}

/* Adds the first parts of ranks of a mesh that have no file, if no other rank
 * has them: a message names one, and the others are elements in no chunk. */
static int placed_add_missing(struct describing *w, const struct ref *r,
			      size_t n, const struct rsh_ranks_how *how)
{
	struct known_cut *cuts[RSH_MAX_DIMS] = { NULL };
	const uint32_t n_dims = r->e->spec->n_dims;
	cleanup_free bool *has = calloc(how->mesh->n, sizeof(*has));
	const struct ref *like = NULL;
	struct rsh_box box;
	int rc = has ? cuts_find(w, r, how, cuts) : -ENOMEM;

	for (size_t i = 0; i < n && rc == 0; i++)
		if (r[i].e->spec->how == how &&
		    r[i].e->spec->place != UINT32_MAX) {
			has[r[i].e->spec->place] = true;
			like = &r[i];
		}
	for (uint32_t place = 0, missing = 0; rc == 0 && like &&
	     place < how->mesh->n && missing < MISSING_MAX; place++) {
		if (has[place])
			continue;
		box_placed(how, r->e->spec, cuts, place, &box);
		if (box_is_held(w, w->n_chunks, box.from, box.size, n_dims))
			continue;
		missing++;
		rc = chunk_placed(w, &box, NULL);
		if (rc == 0)
			w->chunks[w->n_chunks - 1].file = missing_file(
				w, like->file, how->mesh->ranks[place]);
	}
	return rc;
}

/* Checks that the file has what the placements say. */
static int placed_check(struct describing *w, const struct ref *r,
			const struct rsh_box *box)
{
	const struct rsh_ranks_spec *s = r->e->spec;
	char has[256], says[256];
	bool fits = r->e->n_dims == s->n_dims, none = false;

	for (uint32_t d = 0; d < s->n_dims; d++) {
		fits = fits && box->size[d] == r->e->dims[d];
		none |= box->size[d] == 0;
	}
	/* Of nothing fully_shard() saves any shape without elements. */
	if (fits || (none && r->e->bytes == 0))
		return 0;
	rsh_dims_text(r->e->dims, r->e->n_dims, has, sizeof(has));
	rsh_dims_text(box->size, s->n_dims, says, sizeof(says));
	return describing_blame(w, r->name, EBADMSG, "%s has %s of it, and its "
				"placement says %s", describing_path(w, r->file),
				has, says);
}

/* Takes the tensors of one mesh: those of the n refs that have this way. */
static int placed_take_mesh(struct describing *w, const struct ref *r, size_t n,
			    const struct rsh_ranks_how *how,
			    struct rsh_dcp_axis *axes)
{
	struct known_cut *cuts[RSH_MAX_DIMS] = { NULL };
	const struct rsh_ranks_spec *s = r->e->spec;
	struct rsh_box box;
	cleanup_free bool *has = calloc(how->mesh->n, sizeof(*has));
	int rc = has ? cuts_find(w, r, how, cuts) : -ENOMEM;

	for (uint32_t d = 0; d < s->n_dims && rc == 0; d++)
		axes[d] = cuts[d] ? cuts[d]->runs :
				    (struct rsh_dcp_axis){ 0, NULL };
	for (size_t i = 0; i < n && rc == 0; i++) {
		const struct rsh_ranks_spec *own = r[i].e->spec;

		if (own->how != how || own->place == UINT32_MAX)
			continue;
		if (has[own->place])
			return describing_blame(w, r->name, EBADMSG, "two files "
						"are of rank %u, such as %s",
						own->rank,
						describing_path(w, r[i].file));
		has[own->place] = true;
		box_placed(how, s, cuts, own->place, &box);
		rc = placed_check(w, &r[i], &box) ?:
		     chunk_placed(w, &box, &r[i]);
	}
	return rc;
}

/* Compares the chunks of a mesh, from `first` on, with those of the meshes
 * before it. */
static int meshes_compare(struct describing *w, uint32_t n_dims, size_t first)
{
	int rc = 0;

	for (size_t i = first; i < w->n_chunks && rc == 0; i++) {
		const struct rsh_dcp_chunk *c = &w->chunks[i];
		const size_t k = chunk_find(w, first, c->from, c->size, n_dims);

		if (k < first)
			rc = check_same(w, w->holders[k], w->holders[i],
					"is distributed over several groups of "
					"ranks");
	}
	return rc;
}

static int placed_take(struct describing *w, const struct ref *r, size_t n,
		       struct rsh_dcp_axis *axes)
{
	const struct rsh_ranks_how *first = r->e->spec->how;
	cleanup_free const struct rsh_ranks_how **hows =
		rsh_alloc_array(n, sizeof(*hows));
	size_t n_hows = 0;
	int rc = hows ? 0 : -ENOMEM;

	for (uint32_t d = 0; d < first->mesh->n_dims; d++)
		if (first->placements[d].kind == RSH_RANKS_PARTIAL)
			return describing_blame(w, r->name, ENOTSUP, "each rank "
						"has one summand of it "
						"(Partial), and they were not "
						"added before it was saved "
						"(--drop leaves it out)");
	for (size_t i = 0; i < n && rc == 0; i++) {
		const struct rsh_ranks_how *how = r[i].e->spec->how;
		const size_t n_before = w->n_chunks;
		size_t k = n_hows;

		while (k > 0 && hows[k - 1] != how)
			k--;
		if (k > 0)
			continue;
		hows[n_hows++] = how;
		if (!rsh_ranks_how_alike(first, how))
			return describing_blame(w, r->name, EBADMSG, "%s and %s "
						"say that it is distributed in "
						"different ways",
						describing_path(w, r->file),
						describing_path(w, r[i].file));
		rc = placed_take_mesh(w, r, n, how, axes);
		if (rc == 0 && n_before > 0)
			rc = meshes_compare(w, r->e->spec->n_dims, n_before);
	}
	for (size_t i = 0; i < n_hows && rc == 0; i++)
		rc = placed_add_missing(w, r, n, hows[i]);
	return rc;
}

/* A ShardedTensor says its boxes itself, and those of all ranks. */
static int sharded_take(struct describing *w, const struct ref *r, size_t n)
{
	const struct rsh_ranks_spec *s = r->e->spec;
	uint64_t *from, *size;
	int rc = 0;

	for (size_t i = 0; i < n && rc == 0; i++) {
		const struct rsh_ranks_spec *own = r[i].e->spec;
		const struct rsh_ranks_box *b = &own->boxes[r[i].e->piece];
		size_t k;

		if (!chunk_add(w, &r[i], s->n_dims, &from, &size))
			return -ENOMEM;
		for (uint32_t d = 0; d < s->n_dims; d++) {
			from[d] = b->from[d];
			size[d] = b->size[d];
			if (r[i].e->n_dims != s->n_dims ||
			    r[i].e->dims[d] != size[d])
				return describing_blame(w, r->name, EBADMSG,
							"%s has another shape "
							"of its shard than it "
							"says",
							describing_path(
								w, r[i].file));
		}
		k = chunk_find(w, i, from, size, s->n_dims);
		if (k < i)
			rc = check_same(w, &r[k], &r[i], "has one shard in "
					"several files");
	}
	for (uint32_t i = 0; i < s->n_all && rc == 0; i++) {
		struct rsh_dcp_chunk *c = chunk_add(w, NULL, s->n_dims, &from,
						    &size);

		if (!c)
			return -ENOMEM;
		for (uint32_t d = 0; d < s->n_dims; d++) {
			from[d] = s->all[i].from[d];
			size[d] = s->all[i].size[d];
		}
		if (box_is_held(w, w->n_chunks - 1, from, size, s->n_dims))
			w->n_chunks--;
		else
			c->file = missing_file(w, r->file, s->all[i].rank);
	}
	return rc;
}

/* Checks that all files say the same type and shape.  Returns 0, 1 after a
 * problem, or -ENOMEM. */
static int check_alike(struct describing *w, const struct ref *r, size_t n)
{
	const struct rsh_ranks_spec *s = r->e->spec;

	if (r->e->undescribed)
		return describing_blame(w, r->name, EBADMSG, "%s has it, and "
					RSH_TC_METADATA " does not say how it "
					"is distributed (--drop leaves it out)",
					describing_path(w, r->file));
	/* Arithmetic of torch 2.8 on DTensors may lose what a strided shard is,
	 * and the sizes of the parts are the same. */
	if (r->param && s && s->how && r->param->spec->how &&
	    s->rank == r->param->spec->rank && s->how != r->param->spec->how)
		return describing_blame(w, r->name, EBADMSG, "%s says that it is "
					"distributed in another way than its "
					"parameter",
					describing_path(w, r->file));
	for (size_t i = 0; i < n; i++)
		if (r[i].e->spec && r[i].e->spec->dtype != r[i].e->dtype)
			return describing_blame(w, r->name, EBADMSG, "%s has "
						"another type of it than it "
						"says",
						describing_path(w, r[i].file));
	for (size_t i = 1; i < n; i++) {
		const struct rsh_ranks_spec *t = r[i].e->spec;
		const char *what = NULL;

		if (!s != !t || (s && !s->how != !t->how))
			what = "one has a part of it, and the other all";
		else if (r->e->dtype != r[i].e->dtype)
			what = "they have different types of it";
		else if (s ? s->n_dims != t->n_dims ||
			     memcmp(s->dims, t->dims,
				    s->n_dims * sizeof(*s->dims)) != 0 :
			     r->e->n_dims != r[i].e->n_dims ||
			     memcmp(r->e->dims, r[i].e->dims,
				    r->e->n_dims * sizeof(*r->e->dims)) != 0)
			what = "they have different shapes of it";
		if (what)
			return describing_blame(w, r->name, EBADMSG, "%s and "
						"%s contradict each other: %s",
						describing_path(w, r->file),
						describing_path(w, r[i].file),
						what);
	}
	return 0;
}

/* Makes the tensor that n refs are parts of. */
static int tensor_take(void *ctx, void *first, size_t n)
{
	struct describing *w = ctx;
	const struct ref *r = first;
	const struct rsh_ranks_spec *s = r->e->spec;
	struct rsh_dcp_tensor *t = &w->tensors[w->d->n_tensors];
	struct rsh_dcp_axis axes[RSH_MAX_DIMS] = { { 0, NULL } };
	bool any = false;
	int rc = check_alike(w, r, n);

	w->n_chunks = 0;
	if (rc == 0)
		rc = !s ? plain_take(w, r, n) :
		     s->how ? placed_take(w, r, n, axes) :
			      sharded_take(w, r, n);
	if (rc)
		return rc < 0 ? rc : 0;
	*t = (struct rsh_dcp_tensor){
		.name = r->name, .dtype = r->e->dtype,
		.n_dims = s ? s->n_dims : r->e->n_dims,
		.dims = s ? s->dims : r->e->dims,
		.n_chunks = (uint32_t)w->n_chunks,
		.chunks = rsh_arena_array(&w->d->arena_, struct rsh_dcp_chunk,
					  w->n_chunks),
		.n_keys = r->shown.n_keys, .keys = r->shown.keys,
	};
	if (!t->chunks)
		return -ENOMEM;
	if (w->n_chunks > 0)
		memcpy(t->chunks, w->chunks, w->n_chunks * sizeof(*t->chunks));
	for (uint32_t d = 0; d < t->n_dims; d++)
		any |= axes[d].n > 0;
	if (any) {
		struct rsh_dcp_axis *kept = rsh_arena_array(
			&w->d->arena_, struct rsh_dcp_axis, t->n_dims);

		if (!kept)
			return -ENOMEM;
		memcpy(kept, axes, t->n_dims * sizeof(*kept));
		t->axes = kept;
	}
	w->d->n_tensors++;
	return 0;
}

/* ---- all tensors ---- */

static int ref_by_name(const void *a, const void *b)
{
	const struct ref *x = a, *y = b;

	return strcmp(x->name, y->name) ?: rsh_by_u32(&x->rank, &y->rank) ?:
	       rsh_by_u32(&x->file, &y->file) ?:
	       rsh_by_u32(&x->e->piece, &y->e->piece);
}

/* Returns whether a tensor of an item is shown. */
static bool is_shown(const struct rsh_source_ranks *st, uint32_t file,
		     const struct rsh_ranks_entry *e)
{
	const enum rsh_ranks_role role =
		st->items[st->listed[file].item].role;

	return role == RSH_RANKS_MODEL ||
	       (role == RSH_RANKS_OPTIMIZER &&
		!(st->is_flat && strncmp(e->name, "state.", 6) == 0));
}

static int refs_make(struct describing *w)
{
	const struct rsh_source_ranks *st = w->st;
	size_t n = 0;

	for (uint32_t i = 0; i < st->all.n; i++) {
		const struct rsh_ranks_file *f = st->all.files[i];

		n += f ? f->n : 0;
	}
	w->refs = rsh_alloc_array(n + 1, sizeof(*w->refs));
	if (!w->refs)
		return -ENOMEM;
	for (uint32_t i = 0; i < st->all.n; i++) {
		const struct rsh_ranks_file *f = st->all.files[i];

		for (uint32_t k = 0; f && k < f->n; k++) {
			struct ref *r = &w->refs[w->n_refs];
			const struct rsh_ranks_entry *e = &f->v[k];

			if (!is_shown(st, i, e))
				continue;
			*r = (struct ref){
				.e = e, .file = i, .rank = st->listed[i].rank,
			};
			if (rsh_ranks_name_show(st, st->listed[i].item, e->name,
						e->keys, e->n_keys,
						&w->d->arena_, &r->shown))
				return -ENOMEM;
			r->name = r->shown.name;
			r->param = rsh_ranks_param_of(st, st->listed[i].item,
						      e->name);
			w->n_refs++;
		}
	}
	qsort(w->refs, w->n_refs, sizeof(*w->refs), ref_by_name);
	return 0;
}

static int tensors_make(struct describing *w)
{
	int rc = refs_make(w);
	size_t n = rc == 0 && w->n_refs > 0;

	for (size_t i = 1; rc == 0 && i < w->n_refs; i++)
		n += strcmp(w->refs[i - 1].name, w->refs[i].name) != 0;
	w->tensors = rsh_arena_array(&w->d->arena_, struct rsh_dcp_tensor, n);
	if (rc || !w->tensors)
		return -ENOMEM;
	w->d->tensors = w->tensors;
	return rsh_joined_each(w->refs, w->n_refs, sizeof(*w->refs),
			       tensor_take, w);
}

static int files_make(struct describing *w)
{
	const struct rsh_source_ranks *st = w->st;
	const size_t n = st->all.n + w->n_files;
	const char **files = rsh_arena_array(&w->d->arena_, const char *, n);

	if (!files)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		files[i] = i < st->all.n ? st->listed[i].name :
				       w->files[i - st->all.n];
	w->d->files = files;
	w->d->n_files = (uint32_t)n;
	return 0;
}

/* Checks the rank of each file, by its content, against its name. */
static int ranks_check(const struct rsh_source_ranks *st, struct rsh_error *err)
{
	for (uint32_t i = 0; i < st->all.n; i++) {
		const struct rsh_ranks_listed *l = &st->listed[i];
		const struct rsh_ranks_file *f = st->all.files[i];

		if (f && f->rank != UINT32_MAX && f->rank != l->rank)
			return rsh_error_set(err, EBADMSG, "%s/%s: the file is "
					     "of rank %u, not %u",
					     st->path, l->name,
					     f->rank, l->rank);
		for (size_t k = 0; f && st->world && k < f->specs.n; k++) {
			const struct rsh_ranks_how *how = f->specs.v[k].how;

			for (uint32_t j = 0; how && j < how->mesh->n; j++)
				if (how->mesh->ranks[j] >= st->world)
					return rsh_error_set(
						err, EBADMSG, "%s/%s: tensor "
						"%s: rank %u is in its mesh, "
						"and the names of the files "
						"say that there are %u ranks",
						st->path, l->name,
						f->specs.v[k].name,
						how->mesh->ranks[j],
						st->world);
			/* Most tensors have the same mesh. */
			while (k + 1 < f->specs.n &&
			       f->specs.v[k + 1].how == how)
				k++;
		}
	}
	return 0;
}

int rsh_ranks_describe(struct rsh_source_ranks *st, struct rsh_error *err)
{
	struct describing w = { .st = st, .budget = RUNS_MAX };
	int rc;

	if (st->all.described)
		return 0;
	rc = ranks_check(st, err);
	if (rc)
		return rc;
	w.d = rsh_joined_begin(&st->all);
	if (!w.d)
		return rsh_error_nomem(err);
	rc = rsh_ranks_params_find(st) ?: tensors_make(&w) ?:
	     files_make(&w);
	free(w.refs);
	for (size_t i = 0; i < w.n_cuts; i++)
		rsh_ranks_cut_clear(&w.cuts[i].cut);
	free(w.cuts);
	free(w.chunks);
	free(w.holders);
	free(w.files);
	if (rc)
		return rsh_error_nomem(err);
	st->all.described = true;
	return 0;
}

/* ---- what is wrong with a description ---- */

/* Returns whether the tensor is of an optimizer, which a model does not
 * need. */
static bool is_of_optimizer(const struct rsh_source_ranks *st, const char *name)
{
	for (uint32_t i = 0; i < st->n_items; i++) {
		const char *word = st->items[i].word;

		if (st->items[i].role == RSH_RANKS_OPTIMIZER && word &&
		    strncmp(name, word, strlen(word)) == 0 &&
		    name[strlen(word)] == '.')
			return true;
	}
	return false;
}

/* Returns whether a file of the item, or of any item of the model, was read. */
static bool item_is_read(const struct rsh_source_ranks *st, uint32_t item)
{
	for (uint32_t i = 0; i < st->all.n; i++)
		if (st->all.files[i] && st->listed[i].item == item)
			return true;
	return false;
}

/* Finds the lowest rank below `world` of which no file of the model says that
 * it has a part of a tensor; `world`: there is none.  Returns false if memory
 * is out. */
static bool find_unknown(const struct rsh_source_ranks *st, uint32_t world,
			 uint32_t *rank)
{
	cleanup_free bool *known = calloc((size_t)world + 1, sizeof(*known));
	bool any = false;

	for (uint32_t i = 0; known && i < st->all.n; i++) {
		const struct rsh_ranks_file *f = st->all.files[i];

		if (!f || st->items[st->listed[i].item].role != RSH_RANKS_MODEL)
			continue;
		if (st->listed[i].rank < world)
			known[st->listed[i].rank] = true;
		for (size_t k = 0; k < f->specs.n; k++) {
			const struct rsh_ranks_spec *s = &f->specs.v[k];

			any = true;
			for (uint32_t j = 0; j < s->n_all; j++)
				if (s->all[j].rank < world)
					known[s->all[j].rank] = true;
			if (k > 0 && s->how == s[-1].how)
				continue;
			for (uint32_t j = 0; s->how && j < s->how->mesh->n; j++)
				if (s->how->mesh->ranks[j] < world)
					known[s->how->mesh->ranks[j]] = true;
		}
	}
	/* Without distributed tensors all ranks have the same. */
	*rank = any ? 0 : world;
	while (known && *rank < world && known[*rank])
		++*rank;
	return known;
}

void rsh_ranks_judge_files(const struct rsh_source_ranks *st, bool optimizer,
			   struct rsh_error *wrong)
{
	uint32_t world = st->world, unknown;

	for (uint32_t i = 0; i < st->all.n; i++) {
		const uint32_t item = st->listed[i].item;
		const enum rsh_ranks_role role = st->items[item].role;
		const struct rsh_ranks_file *f = st->all.files[i];

		if (f && f->specs.world > world)
			world = f->specs.world;
		if ((role == RSH_RANKS_OPTIMIZER) == optimizer &&
		    role != RSH_RANKS_VALUES && !item_is_read(st, item) &&
		    !wrong->code)
			rsh_error_set(wrong, ENOENT, "no file such as %s can be "
				      "read", st->listed[i].name);
	}
	if (optimizer || wrong->code || world > RSH_MESH_RANKS_MAX)
		return;
	if (!find_unknown(st, world, &unknown))
		rsh_error_nomem(wrong);
	else if (unknown < world)
		rsh_error_set(wrong, ENOENT, "rank %u has no file that can be "
			      "read, and no other file says what it has",
			      unknown);
}

int rsh_ranks_judge(const struct rsh_source_ranks *st, bool optimizer,
		    struct rsh_error *wrong)
{
	const struct rsh_dcp *d = st->all.dcp.pub;

	rsh_ranks_judge_files(st, optimizer, wrong);
	for (size_t i = 0; i < st->all.problems.n && !wrong->code; i++) {
		const struct rsh_tensor_problem *p = &st->all.problems.v[i];

		if (is_of_optimizer(st, p->name) == optimizer)
			rsh_error_set(wrong, p->code, "%s", p->text);
	}
	for (uint32_t i = 0; i < d->n_tensors && !wrong->code; i++) {
		const struct rsh_dcp_tensor *t = &d->tensors[i];

		if (is_of_optimizer(st, t->name) != optimizer)
			continue;
		if (rsh_dcp_check_covered(t, wrong) == -ENOMEM)
			return -ENOMEM;
		if (!wrong->code)
			rsh_joined_find_lost(&st->all, t, wrong);
	}
	return 0;
}
