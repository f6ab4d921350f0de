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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/files.h"
#include "rsh/util/mem.h"

/* All cuts of a model have fewer runs than this. */
#define RUNS_MAX (UINT64_C(1) << 20)
#define MISSING_MAX 64

/* A tensor of one file. */
struct ref {
	const char *name; /* as it is shown */
	const struct rsh_ranks_entry *e;
	uint32_t file, rank;
	struct rsh_joined_value shown;
	/* The parameter of which it is a state; NULL: it is not one. */
	const struct rsh_ranks_entry *param;
};

/* An axis as it is cut; tensors of one size and way share it. */
struct known_cut {
	struct known_cut *next;
	const struct rsh_ranks_how *how;
	uint32_t axis;
	uint64_t size;
	struct rsh_ranks_cut cut;
	const uint64_t *from; /* [piece]: where the chunks begin */
	struct rsh_dcp_axis runs; /* n is 0: pieces are ranges of the axis */
};

struct describing {
	struct rsh_source_ranks *st;
	struct rsh_joined *j; /* of st */
	struct rsh_arena *arena; /* of the description */
	struct ref *refs;
	size_t n_refs;
	struct known_cut *cuts; /* the newest first */
	uint64_t budget;
	/* The step of an optimizer, which another file has differently; NULL:
	 * all have the same. */
	const struct ref *unlike;
	uint32_t unlike_file;
};

/* ---- axes ---- */

/* Sets where the chunks of an axis begin: at their elements if each has one run
 * or none, else one after the other. */
static int cut_place(struct describing *w, struct known_cut *k)
{
	const struct rsh_ranks_cut *c = &k->cut;
	uint64_t *from = rsh_arena_array(w->arena, uint64_t, c->n);
	struct rsh_dcp_run *runs;
	const bool several = rsh_any(i, c->n,
				     c->first[i + 1] - c->first[i] > 1);
	uint64_t at = 0;
	uint32_t n = 0;

	runs = rsh_arena_array(w->arena, struct rsh_dcp_run,
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
	struct known_cut *k = w->cuts;
	int rc;

	while (k && (k->how != how || k->axis != axis || k->size != size))
		k = k->next;
	*out = k;
	if (k)
		return 0;
	*out = k = rsh_arena_array(w->arena, struct known_cut, 1);
	if (!k)
		return -ENOMEM;
	*k = (struct known_cut){ w->cuts, how, axis, size, .from = NULL };
	rc = rsh_ranks_cut_axis(how, axis, size, &w->budget, &k->cut) ?:
	     cut_place(w, k);
	if (rc)
		rsh_ranks_cut_clear(&k->cut);
	else
		w->cuts = k;
	return rc;
}

/* ---- chunks ---- */

/* Sets the box of the rank at a place in the mesh; `cuts` are those of the axes
 * that are not cut into ranges. */
static void box_placed(const struct rsh_ranks_how *how,
		       const struct rsh_ranks_spec *s,
		       struct known_cut *const *cuts, uint32_t place,
		       struct rsh_box *out)
{
	uint32_t piece;

	out->n_dims = s->n_dims;
	for (uint32_t d = 0; d < s->n_dims; d++)
		if (!rsh_ranks_cut_range(how, d, s->dims[d], place, &piece,
					 &out->from[d], &out->size[d])) {
			out->from[d] = cuts[d]->from[piece];
			out->size[d] = cuts[d]->cut.length[piece];
		}
}

/* Returns the first chunk before `end` that has a box; `end`: there is none. */
static size_t chunk_find(const struct describing *w, size_t end,
			 const uint64_t *from, const uint64_t *size,
			 uint32_t n_dims)
{
	const size_t bytes = n_dims * sizeof(*from);

	return rsh_index(i, end,
			 memcmp(w->j->chunks[i].from, from, bytes) == 0 &&
			 memcmp(w->j->chunks[i].size, size, bytes) == 0);
}

/* Returns whether a box has no elements, or a chunk has it. */
static bool box_is_held(const struct describing *w, const uint64_t *from,
			const uint64_t *size, uint32_t n_dims)
{
	return rsh_any(d, n_dims, size[d] == 0) ||
	       chunk_find(w, w->j->n_chunks, from, size, n_dims) <
	       w->j->n_chunks;
}

/* ---- copies of which nothing says that they are equal ---- */

/* Compares the checksums of two copies, or their bytes if there are none.  As
 * others it returns true after a problem. */
static bool check_same(struct describing *w, const struct ref *a,
		       const struct ref *b, const char *what)
{
	const struct rsh_ranks_entry *x = a->e, *y = b->e;
	struct rsh_error why = RSH_ERROR_INIT;
	bool same = x->bytes == y->bytes && !x->order == !y->order &&
		    (!x->order || memcmp(x->order, y->order, x->n_dims) == 0);
	int rc = 0;

	if (same && x->bytes > 0) {
		if (x->has_crc && y->has_crc)
			same = x->crc == y->crc;
		else
			rc = rsh_joined_same_bytes(w->j, (uint32_t[]){
				a->file, b->file }, (uint64_t[]){
				x->offset, y->offset }, x->bytes, &same, &why);
	}
	w->arena->failed |= rc == -ENOMEM;
	if (rc)
		return rsh_joined_blame(w->j, a->name, -rc, "%s", why.text);
	/* All ranks make a step together. */
	if (!same && !w->unlike &&
	    rsh_ranks_role_of(w->st, a->file) == RSH_RANKS_OPTIMIZER &&
	    rsh_has_suffix(a->name, ".step")) {
		w->unlike = a;
		w->unlike_file = b->file;
	}
	return !same &&
	       rsh_joined_blame(w->j, a->name, EBADMSG, "it %s, and differs "
				"between %s and %s: nothing says how these are "
				"joined (--drop leaves it out)", what,
				w->j->names[a->file], w->j->names[b->file]);
}

/* ---- one tensor ---- */

/* Returns the number of the file that a rank should have, beside that of `like`
 * and in its place; RSH_DCP_NO_FILE: it is not known. */
static uint32_t missing_file(struct describing *w, uint32_t like, uint32_t rank)
{
	const struct rsh_ranks_listed *l = &w->st->listed[like];
	const char *of = w->j->names[like], *name = NULL;

	if (rank == UINT32_MAX)
		return RSH_DCP_NO_FILE;
	if (w->st->tc)
		name = rsh_tc_find_file(w->st->tc, of, rank);
	else if (l->n > 0)
		name = rsh_arena_format(w->arena, "%.*s%0*u%s", (int)l->at, of,
					of[l->at] == '0' ? (int)l->n : 0, rank,
					of + l->at + l->n);
	for (uint32_t i = 0; name && i < w->j->n_names; i++)
		if (strcmp(w->j->names[i], name) == 0)
			return i;
	return name ? rsh_joined_add_name(w->j, name) : RSH_DCP_NO_FILE;
}

/* Finds the cuts of the axes that are not cut into ranges. */
static bool cuts_find(struct describing *w, const struct ref *r,
		      const struct rsh_ranks_how *how, struct known_cut **cuts)
{
	const struct rsh_ranks_spec *s = r->e->spec;
	uint64_t from, n;
	uint32_t piece;
	int rc = 0;

	for (uint32_t d = 0; d < s->n_dims && rc == 0; d++)
		if (!rsh_ranks_cut_range(how, d, s->dims[d], 0, &piece, &from,
					 &n))
			rc = cut_find(w, how, d, s->dims[d], &cuts[d]);
	w->arena->failed |= rc == -ENOMEM;
	return rc && rsh_joined_blame(w->j, r->name, EBADMSG, "damaged: it is "
				      "cut into too many pieces");
}

/* Adds the first parts of ranks of a mesh that have no file, if no other rank
 * has them: a message names one, and the others are elements in no chunk. */
static void placed_add_missing(struct describing *w, const struct ref *r,
			       size_t n, const struct rsh_ranks_how *how)
{
	struct known_cut *cuts[RSH_MAX_DIMS] = { NULL };
	const uint32_t n_dims = r->e->spec->n_dims;
	cleanup_free bool *has = calloc(how->mesh->n, sizeof(*has));
	const struct ref *like = NULL;
	struct rsh_box box;

	w->arena->failed |= !has;
	if (!has || cuts_find(w, r, how, cuts))
		return;
	for (size_t i = 0; i < n; i++)
		if (r[i].e->spec->how == how &&
		    r[i].e->spec->place != UINT32_MAX) {
			has[r[i].e->spec->place] = true;
			like = &r[i];
		}
	for (uint32_t place = 0, missing = 0; like && place < how->mesh->n &&
	     missing < MISSING_MAX; place++) {
		if (has[place])
			continue;
		box_placed(how, r->e->spec, cuts, place, &box);
		if (box_is_held(w, box.from, box.size, n_dims))
			continue;
		missing++;
		rsh_joined_chunk(w->j, missing_file(
			w, like->file, how->mesh->ranks[place]), NULL, n_dims,
			box.from, box.size);
	}
}

/* Checks that the file has what the placements say. */
static bool placed_check(struct describing *w, const struct ref *r,
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
		return false;
	rsh_dims_text(r->e->dims, r->e->n_dims, has, sizeof(has));
	rsh_dims_text(box->size, s->n_dims, says, sizeof(says));
	return rsh_joined_blame(w->j, r->name, EBADMSG, "%s has %s of it, and its "
				"placement says %s", w->j->names[r->file],
				has, says);
}

/* Returns the first place of the mesh that has the same part: that without the
 * coordinates of dimensions that replicate. */
static uint32_t placed_first(const struct rsh_ranks_how *how, uint32_t place)
{
	const struct rsh_ranks_mesh *m = how->mesh;
	uint32_t first = 0, stride = 1;

	for (uint32_t d = m->n_dims; d-- > 0; stride *= m->dims[d]) {
		if (how->placements[d].kind != RSH_RANKS_REPLICATED)
			first += place % m->dims[d] * stride;
		place /= m->dims[d];
	}
	return first;
}

/* Compares the checksums of two ranks that have the same part.  If these show
 * nothing, only `verify` compares the parts, since it reads all bytes. */
static bool placed_compare(struct describing *w, const struct ref *a,
			   const struct ref *b)
{
	const struct rsh_ranks_entry *x = a->e, *y = b->e;

	if (!x->has_crc || !y->has_crc || x->crc == y->crc || x->bytes == 0 ||
	    x->bytes != y->bytes || !x->order != !y->order ||
	    (x->order && memcmp(x->order, y->order, x->n_dims) != 0))
		return false;
	return rsh_joined_blame(w->j, a->name, EBADMSG, "%s and %s have the "
				"same part of it, and their bytes differ: one "
				"is of another save (--drop leaves it out)",
				w->j->names[a->file], w->j->names[b->file]);
}

/* Takes the tensors of one mesh: those of the n refs that have this way. */
static bool placed_take_mesh(struct describing *w, const struct ref *r,
			     size_t n, const struct rsh_ranks_how *how,
			     struct rsh_dcp_axis *axes)
{
	struct known_cut *cuts[RSH_MAX_DIMS] = { NULL };
	const struct rsh_ranks_spec *s = r->e->spec;
	struct rsh_box box;
	cleanup_free bool *has = calloc(how->mesh->n, sizeof(*has));
	cleanup_free const struct ref **part = calloc(how->mesh->n,
						      sizeof(*part));
	uint32_t place;

	w->arena->failed |= !has || !part;
	if (!has || !part || cuts_find(w, r, how, cuts))
		return true;
	for (uint32_t d = 0; d < s->n_dims; d++)
		axes[d] = cuts[d] ? cuts[d]->runs :
				    (struct rsh_dcp_axis){ 0, NULL };
	for (size_t i = 0; i < n; i++) {
		const struct rsh_ranks_spec *own = r[i].e->spec;

		if (own->how != how || own->place == UINT32_MAX)
			continue;
		if (has[own->place])
			return rsh_joined_blame(w->j, r->name, EBADMSG, "two "
						"files are of rank %u, such as "
						"%s", own->rank,
						w->j->names[r[i].file]);
		has[own->place] = true;
		box_placed(how, s, cuts, own->place, &box);
		place = placed_first(how, own->place);
		part[place] = part[place] ?: &r[i];
		if (placed_check(w, &r[i], &box) ||
		    placed_compare(w, part[place], &r[i]))
			return true;
		rsh_joined_chunk(w->j, r[i].file, r[i].e->key, s->n_dims,
				 box.from, box.size);
	}
	return false;
}

/* Returns the entry of which a chunk was made.  Two entries of one file may
 * have one name. */
static const struct ref *ref_of_chunk(const struct ref *r,
				      const struct rsh_dcp_chunk *c)
{
	while (r->file != c->file || r->e->key != c->key)
		r++;
	return r;
}

/* Compares the chunks of a mesh, from `first` on, with those of the meshes
 * before it. */
static bool meshes_compare(struct describing *w, const struct ref *r,
			   uint32_t n_dims, size_t first)
{
	const struct rsh_dcp_chunk *v = w->j->chunks;

	for (size_t i = first; i < w->j->n_chunks; i++) {
		const size_t k = chunk_find(w, first, v[i].from, v[i].size,
					    n_dims);

		if (k < first &&
		    check_same(w, ref_of_chunk(r, &v[k]),
			       ref_of_chunk(r, &v[i]), "is distributed over "
			       "several groups of ranks"))
			return true;
	}
	return false;
}

static bool placed_take(struct describing *w, const struct ref *r, size_t n,
			struct rsh_dcp_axis *axes)
{
	const struct rsh_ranks_how *first = r->e->spec->how;
	cleanup_free const struct rsh_ranks_how **hows =
		rsh_alloc_array(n, sizeof(*hows));
	size_t n_hows = 0;

	w->arena->failed |= !hows;
	if (!hows)
		return true;
	for (uint32_t d = 0; d < first->mesh->n_dims; d++)
		if (first->placements[d].kind == RSH_RANKS_PARTIAL)
			return rsh_joined_blame(w->j, r->name, ENOTSUP, "each "
						"rank has one summand of it "
						"(Partial), and they were not "
						"added before it was saved "
						"(--drop leaves it out)");
	for (size_t i = 0; i < n; i++) {
		const struct rsh_ranks_how *how = r[i].e->spec->how;
		const size_t n_before = w->j->n_chunks;
		size_t k = n_hows;

		while (k > 0 && hows[k - 1] != how)
			k--;
		if (k > 0)
			continue;
		hows[n_hows++] = how;
		if (!rsh_ranks_how_alike(first, how))
			return rsh_joined_blame(w->j, r->name, EBADMSG, "%s "
						"and %s say that it is "
						"distributed in different ways",
						w->j->names[r->file],
						w->j->names[r[i].file]);
		if (placed_take_mesh(w, r, n, how, axes) ||
		    (n_before > 0 && meshes_compare(w, r, r->e->spec->n_dims,
						    n_before)))
			return true;
	}
	for (size_t i = 0; i < n_hows; i++)
		placed_add_missing(w, r, n, hows[i]);
	return false;
}

/* A ShardedTensor says its boxes itself, and those of all ranks. */
static bool sharded_take(struct describing *w, const struct ref *r, size_t n)
{
	const struct rsh_ranks_spec *s = r->e->spec;

	for (size_t i = 0; i < n; i++) {
		const struct rsh_ranks_entry *e = r[i].e;
		const struct rsh_ranks_box *b = &e->spec->boxes[e->piece];
		size_t k;

		if (s->n_dims > 0 && !rsh_dims_equal(e->dims, e->n_dims,
						     b->size, s->n_dims))
			return rsh_joined_blame(w->j, r->name, EBADMSG, "%s "
						"has another shape of its "
						"shard than it says",
						w->j->names[r[i].file]);
		k = chunk_find(w, w->j->n_chunks, b->from, b->size, s->n_dims);
		rsh_joined_chunk(w->j, r[i].file, e->key, s->n_dims, b->from,
				 b->size);
		if (k < i && check_same(w, &r[k], &r[i], "has one shard in "
					"several files"))
			return true;
	}
	for (uint32_t i = 0; i < s->n_all; i++) {
		const struct rsh_ranks_box *b = &s->all[i];

		if (!box_is_held(w, b->from, b->size, s->n_dims))
			rsh_joined_chunk(w->j, missing_file(w, r->file,
							    b->rank), NULL,
					 s->n_dims, b->from, b->size);
	}
	return false;
}

/* Checks that all files say the same type and shape. */
static bool check_alike(struct describing *w, const struct ref *r, size_t n)
{
	const struct rsh_ranks_spec *s = r->e->spec;

	if (r->e->undescribed)
		return rsh_joined_blame(w->j, r->name, EBADMSG, "%s has it, and "
					RSH_TC_METADATA " does not say how it "
					"is distributed (--drop leaves it out)",
					w->j->names[r->file]);
	/* Arithmetic of torch 2.8 on DTensors may lose what a strided shard is,
	 * and the sizes of the parts are the same. */
	if (r->param && s && s->how && r->param->spec->how &&
	    s->rank == r->param->spec->rank && s->how != r->param->spec->how)
		return rsh_joined_blame(w->j, r->name, EBADMSG, "%s says that it is "
					"distributed in another way than its "
					"parameter",
					w->j->names[r->file]);
	for (size_t i = 0; i < n; i++)
		if (r[i].e->spec && r[i].e->spec->dtype != r[i].e->dtype)
			return rsh_joined_blame(w->j, r->name, EBADMSG, "%s has "
						"another type of it than it "
						"says",
						w->j->names[r[i].file]);
	for (size_t i = 1; i < n; i++) {
		const struct rsh_ranks_spec *t = r[i].e->spec;
		const char *what = NULL;

		if (!s != !t || (s && !s->how != !t->how))
			what = "one has a part of it, and the other all";
		else if (r->e->dtype != r[i].e->dtype)
			what = "they have different types of it";
		else if (s ? !rsh_dims_equal(s->dims, s->n_dims, t->dims,
					     t->n_dims) :
			     !rsh_dims_equal(r->e->dims, r->e->n_dims,
					     r[i].e->dims, r[i].e->n_dims))
			what = "they have different shapes of it";
		if (what)
			return rsh_joined_blame(w->j, r->name, EBADMSG, "%s and "
						"%s contradict each other: %s",
						w->j->names[r->file],
						w->j->names[r[i].file],
						what);
	}
	return false;
}

/* Makes the tensor that n refs are parts of. */
static void tensor_take(void *ctx, void *first, size_t n)
{
	struct describing *w = ctx;
	const struct ref *r = first;
	const struct rsh_ranks_spec *s = r->e->spec;
	struct rsh_dcp_axis axes[RSH_MAX_DIMS] = { { 0, NULL } };
	struct rsh_dcp_tensor t = {
		.name = r->name, .dtype = r->e->dtype,
		.n_dims = s ? s->n_dims : r->e->n_dims,
		.dims = s ? s->dims : r->e->dims,
		.n_keys = r->shown.n_keys, .keys = r->shown.keys,
	};

	if (check_alike(w, r, n) ||
	    (s && (s->how ? placed_take(w, r, n, axes) :
			    sharded_take(w, r, n))))
		return;
	/* A plain tensor is whole in each file. */
	for (size_t i = 0; i < n && !s; i++) {
		if (i && check_same(w, r, &r[i], "is a plain tensor"))
			return;
		rsh_joined_chunk(w->j, r[i].file, r[i].e->key, r[i].e->n_dims,
				 NULL, r[i].e->dims);
	}
	for (uint32_t d = 0; d < t.n_dims && !t.axes; d++)
		if (axes[d].n > 0)
			t.axes = rsh_arena_copy(w->arena, axes, t.n_dims);
	rsh_joined_tensor(w->j, &t);
}

/* ---- all tensors ---- */

RSH_ORDER(ref_by_name, struct ref,
	  strcmp(x->name, y->name) ?: rsh_by_u32(&x->rank, &y->rank) ?:
	  rsh_by_u32(&x->file, &y->file) ?:
	  rsh_by_u32(&x->e->piece, &y->e->piece))

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
		const enum rsh_ranks_role role = rsh_ranks_role_of(st, i);
		const uint32_t item = st->listed[i].item;

		for (uint32_t k = 0; f && k < f->n; k++) {
			struct ref *r = &w->refs[w->n_refs];
			const struct rsh_ranks_entry *e = &f->v[k];

			if (role == RSH_RANKS_VALUES ||
			    (role == RSH_RANKS_OPTIMIZER && st->is_flat &&
			     strncmp(e->name, "state.", 6) == 0))
				continue;
			*r = (struct ref){
				.e = e, .file = i, .rank = st->listed[i].rank,
				.param = rsh_ranks_param_of(st, item, e->name),
			};
			if (rsh_ranks_name_show(st, item, e->name, e->keys,
						e->n_keys, w->arena,
						&r->shown))
				return -ENOMEM;
			r->name = r->shown.name;
			w->n_refs++;
		}
	}
	rsh_sort(w->refs, w->n_refs, ref_by_name);
	return 0;
}

/* Checks the rank of each file, by its content, against its name. */
static int ranks_check(const struct rsh_source_ranks *st, struct rsh_error *err)
{
	for (uint32_t i = 0; i < st->all.n; i++) {
		const struct rsh_ranks_listed *l = &st->listed[i];
		const struct rsh_ranks_file *f = st->all.files[i];

		if (f && f->rank != UINT32_MAX && f->rank != l->rank)
			return rsh_joined_refuse(
				&st->all, st->all.names[i], EBADMSG, err,
				"the file is of rank %u, not %u", f->rank,
				l->rank);
		for (size_t k = 0; f && st->world && k < f->specs.n; k++) {
			const struct rsh_ranks_how *how = f->specs.v[k].how;

			for (uint32_t j = 0; how && j < how->mesh->n; j++)
				if (how->mesh->ranks[j] >= st->world)
					return rsh_joined_refuse(
						&st->all, st->all.names[i],
						EBADMSG, err, "tensor %s: rank "
						"%u is in its mesh, and the "
						"names of the files say that "
						"there are %u ranks",
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

static int ranks_describe(void *state, struct rsh_error *err)
{
	struct rsh_source_ranks *st = state;
	struct describing w = {
		.st = st, .j = &st->all, .budget = RUNS_MAX,
		.arena = &st->all.dcp.pub->arena_,
	};
	int rc = ranks_check(st, err);

	if (rc)
		return rc;
	if (rsh_ranks_params_find(st) || refs_make(&w))
		w.arena->failed = true;
	rsh_joined_each(w.j, w.refs, w.n_refs, sizeof(*w.refs), tensor_take,
			&w);
	if (w.unlike)
		rc = rsh_joined_refuse(w.j, w.j->names[w.unlike_file], EBADMSG,
				       err, "it is of another step of the "
				       "optimizer than %s: they differ in %s",
				       w.j->names[w.unlike->file],
				       w.unlike->name);
	free(w.refs);
	for (; w.cuts; w.cuts = w.cuts->next)
		rsh_ranks_cut_clear(&w.cuts->cut);
	return rc;
}

/* ---- what is wrong with a description ---- */

static bool ranks_is_state(const void *state, const char *name)
{
	const struct rsh_source_ranks *st = state;

	for (uint32_t i = 0; i < st->n_items; i++) {
		const char *word = st->items[i].word;

		if (st->items[i].role == RSH_RANKS_OPTIMIZER && word &&
		    strncmp(name, word, strlen(word)) == 0 &&
		    name[strlen(word)] == '.')
			return true;
	}
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

		if (!f || rsh_ranks_role_of(st, i) != RSH_RANKS_MODEL)
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
	*rank = any && known ? rsh_index(i, world, !known[i]) : world;
	return known;
}

void rsh_ranks_judge_files(const void *state, bool optimizer,
			   struct rsh_error *wrong)
{
	const struct rsh_source_ranks *st = state;
	uint32_t world = st->world, unknown;

	for (uint32_t i = 0; i < st->all.n; i++) {
		const enum rsh_ranks_role role = rsh_ranks_role_of(st, i);
		const struct rsh_ranks_file *f = st->all.files[i];

		if (f && f->specs.world > world)
			world = f->specs.world;
		/* A file that was read is one of its item. */
		if (!f && (role == RSH_RANKS_OPTIMIZER) == optimizer &&
		    role != RSH_RANKS_VALUES && !wrong->code &&
		    rsh_ranks_lowest(st, st->listed[i].item) == st->all.n)
			rsh_error_set(wrong, ENOENT, "no file such as %s can be "
				      "read", st->all.names[i]);
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

/* ---- what it is ---- */

/* Says how many ranks have saved it, their largest mesh, and the step. */
static const char *ranks_about(const void *state, struct rsh_arena *arena)
{
	const struct rsh_source_ranks *st = state;
	const struct rsh_ranks_mesh *mesh = NULL;
	const char *step = strstr(st->all.dir, RSH_RANKS_STEP);
	uint32_t world = st->world;
	uint64_t number = 0;
	char at[48] = "";

	for (size_t i = 0; i < st->ways.n_meshes; i++)
		if (!mesh || st->ways.meshes[i]->n > mesh->n)
			mesh = st->ways.meshes[i];
	for (uint32_t i = 0; i < st->all.n && !st->world; i++)
		world = st->listed[i].rank >= world ? st->listed[i].rank + 1 :
						      world;
	if (mesh && mesh->n > world)
		world = mesh->n;
	if (!step && (step = strstr(st->all.path, "/" RSH_RANKS_STEP)))
		step++;
	if (step && rsh_ranks_step_read(step, strcspn(step, "/"), &number))
		snprintf(at, sizeof(at), ", step %llu",
			 (unsigned long long)number);
	return rsh_arena_format(arena, "a file of torch.save() for each of %u "
				"rank%s%s%s%s%s%s%s%s", world,
				world == 1 ? "" : "s", mesh ? " (mesh " : "",
				mesh ? mesh->text : "", mesh ? ")" : "", at,
				st->critic ? "; " : "",
				st->critic ? st->critic : "",
				st->critic ? " is another model" : "");
}

static void ranks_clear(void *state)
{
	struct rsh_source_ranks *st = state;

	rsh_tc_free(st->tc);
	rsh_ranks_ways_clear(&st->ways);
}

const struct rsh_joined_format rsh_ranks_files = {
	.read = rsh_ranks_file_read,
	.describe = ranks_describe,
	.about = ranks_about,
	.is_state = ranks_is_state,
	.judge = rsh_ranks_judge_files,
	.clear = ranks_clear,
	.has_gaps = true,
};
