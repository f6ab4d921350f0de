/* SPDX-License-Identifier: Apache-2.0 */
/* plan/catalogue.c keeps the files, tensors and cuts of a source. */
#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "plan_i.h"
#include "rsh/util/mem.h"

/* ---- files ---- */

/* Pairs a file with its index, which it may share with others. */
struct index_user {
	const struct rsh_ckpt_index *index;
	uint32_t file;
};

RSH_ORDER(index_users_by_index, struct index_user,
	  x->index < y->index ? -1 : x->index > y->index)

/* A job may have a million ranks of which few have a file.  So loops visit only
 * the files that exist. */
static int catalogue_list_present(struct rsh_catalogue *c)
{
	cleanup_free struct index_user *o = NULL;
	uint32_t n = 0;

	for (uint32_t f = 0; f < c->n_files; f++)
		n += c->index[f] != NULL;
	c->present = rsh_arena_array(&c->arena, uint32_t, n);
	c->index_id = rsh_arena_array(&c->arena, uint32_t, c->n_files);
	o = rsh_alloc_array(n, sizeof(*o));
	if (!c->present || !c->index_id || !o)
		return -ENOMEM;
	for (uint32_t f = 0; f < c->n_files; f++) {
		if (!c->index[f])
			continue;
		o[c->n_present] = (struct index_user){ c->index[f], f };
		c->present[c->n_present++] = f;
	}
	qsort(o, n, sizeof(*o), index_users_by_index);
	for (uint32_t i = 0; i < n; i++) {
		if (i == 0 || o[i].index != o[i - 1].index)
			c->n_indexes++;
		c->index_id[o[i].file] = c->n_indexes - 1;
	}
	return 0;
}

/* Finds the first or, backwards, the last file of each name.  Most files share
 * their index with the file beside them, so an index that equals the one before
 * is skipped. */
static uint32_t *catalogue_find_ends(struct rsh_catalogue *c, bool backwards)
{
	const struct rsh_ckpt_index *before = NULL;
	uint32_t *ends = rsh_arena_array(&c->arena, uint32_t, c->n_names);

	if (!ends)
		return NULL;
	memset(ends, 0xff, (size_t)c->n_names * sizeof(*ends));
	for (uint32_t i = 0; i < c->n_present; i++) {
		const uint32_t file =
			c->present[backwards ? c->n_present - 1 - i : i];
		const struct rsh_ckpt_index *ix = c->index[file];

		for (uint32_t r = 0; ix != before && r < ix->n_records; r++) {
			const uint32_t name = ix->records[r].name;

			if (name < c->n_names && ends[name] == UINT32_MAX)
				ends[name] = file;
		}
		before = ix;
	}
	return ends;
}

static int catalogue_copy_files(struct rsh_catalogue *c,
				const struct rsh_source_view *view)
{
	c->names = view->names;
	c->n_names = view->names ? rsh_names_count(view->names) : 0;
	c->n_files = view->n_ranks;
	c->index = rsh_arena_array(&c->arena, const struct rsh_ckpt_index *,
				   c->n_files);
	c->path = rsh_arena_array(&c->arena, char *, c->n_files);
	if (c->arena.failed)
		return -ENOMEM;
	for (uint32_t f = 0; f < c->n_files; f++) {
		c->index[f] = view->index ? view->index[f] : NULL;
		if (view->path && view->path[f])
			c->path[f] = rsh_arena_strndup(&c->arena, view->path[f],
						       strlen(view->path[f]));
	}
	if (catalogue_list_present(c))
		return -ENOMEM;
	c->n_ends = c->n_names;
	c->first = catalogue_find_ends(c, false);
	c->last = catalogue_find_ends(c, true);
	return c->arena.failed ? -ENOMEM : 0;
}

struct rsh_catalogue *rsh_catalogue_new(const struct rsh_source_view *view)
{
	struct rsh_catalogue *c = calloc(1, sizeof(*c));

	if (c && catalogue_copy_files(c, view)) {
		rsh_catalogue_free(c);
		return NULL;
	}
	return c;
}

int rsh_catalogue_find_kinds(struct rsh_catalogue *c)
{
	if (!c->kinds)
		c->kinds = rsh_kinds_new(c->names, c->index, c->n_files);
	return c->kinds ? 0 : -ENOMEM;
}

int rsh_catalogue_add_beside(struct rsh_catalogue *c,
			     const struct rsh_source_view *view)
{
	const uint32_t n = view->n_beside, from = c->n_files;
	struct {
		void *array;
		uint32_t n;
		size_t size;
	} all[] = {
		{ &c->index, from, sizeof(*c->index) },
		{ &c->path, from, sizeof(*c->path) },
		{ &c->index_id, from, sizeof(*c->index_id) },
		{ &c->present, c->n_present, sizeof(*c->present) },
	};

	for (size_t i = 0; i < 4; i++) {
		void **array = all[i].array;
		void *longer = rsh_arena_alloc(&c->arena,
					       (all[i].n + (size_t)n) *
					       all[i].size,
					       sizeof(void *));

		if (!longer)
			return -ENOMEM;
		memcpy(longer, *array, all[i].n * all[i].size);
		*array = longer;
	}
	for (uint32_t i = from; i < from + n; i++) {
		c->index[i] = view->index[i];
		c->index_id[i] = c->n_indexes++;
		c->present[c->n_present++] = i;
		c->n_files++;
		c->path[i] = rsh_arena_strndup(&c->arena, view->path[i],
					       strlen(view->path[i]));
	}
	return c->arena.failed ? -ENOMEM : 0;
}

static void catalogue_free_cut(void *cut)
{
	rsh_cut_free(cut);
}

static void catalogue_free_copies(void *copies)
{
	rsh_copies_free(copies);
}

void rsh_catalogue_update_names(struct rsh_catalogue *c)
{
	c->n_names = rsh_names_count(c->names);
}

void rsh_catalogue_free(struct rsh_catalogue *c)
{
	if (!c)
		return;
	free(c->tensors);
	tdestroy(c->copies, catalogue_free_copies);
	tdestroy(c->cuts, catalogue_free_cut);
	rsh_kinds_free(c->kinds);
	rsh_arena_clear(&c->arena);
	free(c);
}

/* ---- cuts and tensors ---- */

static int catalogue_by_cut(const void *a, const void *b)
{
	return rsh_cut_compare(a, b);
}

const struct rsh_cut *rsh_catalogue_keep_cut(struct rsh_catalogue *c,
					     struct rsh_cut *cut)
{
	struct rsh_cut **found;

	if (!cut)
		return NULL;
	found = tsearch(cut, &c->cuts, catalogue_by_cut);
	if (!found || *found != cut)
		rsh_cut_free(cut);
	return found ? *found : NULL;
}

int rsh_catalogue_add(struct rsh_catalogue *c, const struct rsh_tensor *t,
		      uint32_t *number)
{
	struct rsh_tensor *kept = rsh_arena_copy(&c->arena, t, 1);

	if (kept)
		kept->dims = rsh_arena_copy(&c->arena, t->dims, t->n_dims);
	if (!kept || !kept->dims ||
	    rsh_room(c->tensors, c->tensors_cap, c->n_tensors + 1))
		return -ENOMEM;
	*number = c->n_tensors;
	c->tensors[c->n_tensors++] = kept;
	return 0;
}

int rsh_catalogue_add_zeros(struct rsh_catalogue *c, const struct rsh_tensor *t,
			    uint32_t *number)
{
	struct rsh_grid *whole = rsh_grid_make_whole(t->n_dims);
	struct rsh_tensor zeros = *t;

	zeros.copies = NULL;
	zeros.cut = !whole ? NULL :
		rsh_catalogue_keep_cut(c, rsh_cut_of_grid(whole));
	return zeros.cut ? rsh_catalogue_add(c, &zeros, number) : -ENOMEM;
}

int rsh_catalogue_add_record(struct rsh_catalogue *c, uint32_t file,
			     const struct rsh_ckpt_index *ix, uint32_t record,
			     uint32_t *number, struct rsh_error *err)
{
	const struct rsh_record *r = &ix->records[record];
	const int64_t *dims = rsh_record_dims(ix, r);
	const struct rsh_holder holder = { 0, file, record };
	struct rsh_box box = { .n_dims = r->n_dims };
	struct rsh_tensor t = {
		.name = r->name, .dtype = (enum rsh_dtype)r->dtype,
		.n_dims = r->n_dims, .dims = box.size, .first_file = file,
	};
	struct rsh_cut *cut;
	int rc;

	for (uint32_t d = 0; d < r->n_dims; d++)
		box.size[d] = (uint64_t)dims[d];
	rc = rsh_cut_of_boxes(box.size, r->n_dims, &box, 1, &cut, err);
	if (rc)
		return rc;
	t.cut = rsh_catalogue_keep_cut(c, cut);
	if (t.cut)
		t.copies = rsh_catalogue_keep_copies(c, t.cut, &holder, 1,
						     true);
	return t.copies && rsh_catalogue_add(c, &t, number) == 0 ? 0 :
	       rsh_error_nomem(err);
}

/* ---- queries ---- */

const struct rsh_ckpt_index *rsh_catalogue_index(const struct rsh_catalogue *c,
						 uint32_t file)
{
	return file < c->n_files ? c->index[file] : NULL;
}

const struct rsh_record *rsh_catalogue_record(const struct rsh_catalogue *c,
					      uint32_t file, uint32_t name)
{
	const struct rsh_ckpt_index *ix = rsh_catalogue_index(c, file);

	return ix ? rsh_ckpt_find(ix, name) : NULL;
}

uint32_t rsh_catalogue_first(const struct rsh_catalogue *c, uint32_t name)
{
	return name < c->n_ends ? c->first[name] : UINT32_MAX;
}

uint32_t rsh_catalogue_last(const struct rsh_catalogue *c, uint32_t name)
{
	return name < c->n_ends ? c->last[name] : UINT32_MAX;
}

const char *rsh_catalogue_path(const struct rsh_catalogue *c, uint32_t file)
{
	return file < c->n_files && c->path[file] ? c->path[file] : "?";
}

uint32_t rsh_catalogue_present_from(const struct rsh_catalogue *c,
				    uint32_t file)
{
	return rsh_first_from(c->present, c->n_present, file);
}

bool rsh_recipe_types_fit(const struct rsh_shown *t,
			  const struct rsh_tensor *in)
{
	const uint32_t shown = rsh_dtype_size(t->dtype);
	uint32_t in_unit, out_unit;

	if (in->quantised || rsh_codec_is_scaled(t->recipe.codec))
		return in->quantised && rsh_codec_is_scaled(t->recipe.codec) &&
		       rsh_codec_scaled_type(t->recipe.codec) == t->dtype;
	if (t->recipe.codec == RSH_CODEC_NONE)
		return !in->wide_bf16 && rsh_dtype_size(in->dtype) == shown;
	rsh_codec_units(t->recipe.codec, &in_unit, &out_unit);
	return out_unit == shown &&
	       in_unit == (in->wide_bf16 ? 4 : rsh_dtype_size(in->dtype));
}
