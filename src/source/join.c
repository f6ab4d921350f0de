/* SPDX-License-Identifier: Apache-2.0 */
/* source/join.c makes one index for a rank that has several files.
 *
 * The files are treated as one, end to end: rsh_source_locate() finds the file,
 * and the offset in it, from an offset of the rank's index.  A file that was
 * left out has no records and no bytes in it.
 */
#include "config.h"

#include "source_i.h"

#include <errno.h>
#include <inttypes.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/checked.h"
#include "rsh/util/clock.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"

/* ---- the tensors of blocks, for the cache ---- */

/* From `offset` on the file has bytes of a record. */
struct place {
	uint64_t offset;
	uint32_t record;
	uint32_t unit; /* bytes of an element */
};

/* These are the places of an index, ascending. */
struct places {
	const struct rsh_ckpt_index *index;
	uint32_t n;
	struct place *v;
};

struct rsh_source_kinds {
	uint32_t n;
	struct places v[]; /* ascending by the address of the index */
};

RSH_ORDER(place_order, struct place, rsh_compare_u64(x->offset, y->offset))

static int places_take(struct places *p, const struct rsh_ckpt_index *ix)
{
	p->index = ix;
	p->v = rsh_alloc_array(ix->n_extents, sizeof(*p->v));
	if (!p->v)
		return -ENOMEM;
	for (uint32_t i = 0; i < ix->n_records; i++) {
		const struct rsh_record *r = &ix->records[i];
		const uint32_t unit = r->wide_bf16 ? 4 :
			rsh_dtype_size((enum rsh_dtype)r->dtype);

		for (uint32_t k = 0; k < r->n_extents && p->n < ix->n_extents;
		     k++)
			p->v[p->n++] = (struct place){
				ix->extents[r->first_extent + k].offset, i,
				unit,
			};
	}
	rsh_sort(p->v, p->n, place_order);
	return 0;
}

RSH_ORDER(places_order, struct places,
	  rsh_compare_u64((uintptr_t)x->index, (uintptr_t)y->index))

/* Bytes between two records belong to the record before them. */
static void kind_find(const void *source, uint32_t file, uint64_t offset,
		      uint32_t len, struct rsh_cache_kind *out)
{
	const struct rsh_source *s = source;
	const struct places wanted = { .index = s->files[file].index };
	const struct places *p = rsh_find(&wanted, s->kinds->v, s->kinds->n,
					  places_order);
	const uint64_t middle = offset + len / 2;
	const uint32_t after = rsh_first(i, p ? p->n : 0,
					 p->v[i].offset <= middle);

	*out = (struct rsh_cache_kind){ 0 };
	if (after)
		*out = (struct rsh_cache_kind){
			.tensor = p->v[after - 1].record + UINT64_C(1),
			.unit = p->v[after - 1].unit,
		};
}

void rsh_source_kinds_free(struct rsh_source_kinds *k)
{
	for (uint32_t i = 0; k && i < k->n; i++)
		free(k->v[i].v);
	free(k);
}

int rsh_source_kinds_tell(struct rsh_source *s)
{
	struct rsh_source_kinds *k;
	int rc = 0;

	if (!rsh_store_compresses(s->store))
		return 0;
	k = calloc(1, sizeof(*k) + s->n_indexes * sizeof(*k->v));
	if (!k)
		return -ENOMEM;
	while (rc == 0 && k->n < s->n_indexes) {
		rc = places_take(&k->v[k->n], s->indexes[k->n]);
		k->n++;
	}
	if (rc) {
		rsh_source_kinds_free(k);
		return rc;
	}
	rsh_sort(k->v, k->n, places_order);
	s->kinds = k;
	rsh_store_tell_kinds(s->store, kind_find, s);
	return 0;
}

/* ---- one index ---- */

uint32_t rsh_source_rank_first(const struct rsh_source *s, uint32_t rank,
			       uint32_t *n)
{
	const bool is = rank < s->n_ranks + s->n_beside;
	const uint32_t first = is ? s->by_rank[rank] : 0;

	*n = is ? s->by_rank[rank + 1] - first : 0;
	return first;
}

/* This is a joined index, with the files from which it was joined. */
struct joined {
	const struct rsh_source_file *files;
	uint32_t n;
	const struct rsh_ckpt_index *index;
};

static int joined_compare(const void *a, const void *b)
{
	const struct joined *x = a, *y = b;

	if (x->n != y->n)
		return x->n < y->n ? -1 : 1;
	/* Equal indexes are shared, so pointers can be compared. */
	for (uint32_t i = 0; i < x->n; i++)
		if (x->files[i].index != y->files[i].index)
			return (uintptr_t)x->files[i].index <
			       (uintptr_t)y->files[i].index ? -1 : 1;
	return 0;
}

/* `wrong` is what the map is wrong about; NULL: nothing, or there is none. */
static int join_refuse(const struct rsh_source *s, uint32_t first, uint32_t n,
		       const struct rsh_names *names, uint32_t twice,
		       const struct rsh_weight *wrong, struct rsh_error *err)
{
	cleanup_free char *why = wrong ? rsh_text_format(
		"; the map of its parts does not decide, since it is not of "
		"these files: %.400s is not in %.400s, as it says", wrong->name,
		s->facts->map->files[wrong->file]) : NULL;
	const char *in[2] = { NULL };
	unsigned n_in = 0;

	for (uint32_t i = first; i < first + n && n_in < 2; i++)
		if (s->files[i].index &&
		    rsh_ckpt_find(s->files[i].index, twice))
			in[n_in++] = rsh_store_name(s->store, i);
	return rsh_error_set(err, EINVAL, "%s: parameter %s is in two of its "
			     "files, %s and %s%s",
			     s->view_path[s->files[first].rank],
			     rsh_names_text(names, twice), in[0], in[1],
			     why ?: "");
}

struct part_name {
	const char *text;
	uint32_t place;
};

RSH_ORDER(part_by_text, struct part_name, strcmp(x->text, y->text))

/* Returns for each file of the map its number among the first n files, counted
 * from 1 (0: none).  Returns NULL if out of memory. */
static uint32_t *join_find_parts(const struct rsh_source *s, uint32_t n)
{
	const struct rsh_weight_map *map = s->facts->map;
	uint32_t *part = calloc((size_t)map->n_files + 1, sizeof(*part));
	cleanup_free struct part_name *names =
		calloc((size_t)n + 1, sizeof(*names));

	if (!part || !names) {
		free(part);
		return NULL;
	}
	for (uint32_t i = 0; i < n; i++)
		names[i] = (struct part_name){ rsh_store_name(s->store, i),
					       i + 1 };
	rsh_sort(names, n, part_by_text);
	for (uint32_t f = 0; f < map->n_files; f++) {
		const struct part_name key = { map->files[f], 0 };
		const struct part_name *found = rsh_find(&key, names, n,
							 part_by_text);

		part[f] = found ? found->place : 0;
	}
	return part;
}

/* If a parameter is in two parts, the map says which copy is loaded.  Scripts
 * of mindformers write those that prediction layers share with the network
 * twice.  A map that is wrong about a parameter was made for other parts, and
 * decides nothing; *wrong is then that one.  Returns [name]: the number of the
 * file among the first n, from 1, or 0; NULL: memory is out. */
static uint32_t *join_find_homes(const struct rsh_source *s, uint32_t n,
				 struct rsh_names *names,
				 const struct rsh_weight **wrong)
{
	const struct rsh_weight_map *map = s->facts->map;
	const size_t n_names = rsh_names_count(names);
	cleanup_free uint32_t *part = join_find_parts(s, n);
	uint32_t *home = part ? calloc(n_names + 1, sizeof(*home)) : NULL;

	for (uint32_t i = 0; home && i < map->n_weights && !*wrong; i++) {
		const char *text = map->weights[i].name;
		const uint32_t name = rsh_names_find(names, text, strlen(text));
		const uint32_t at = part[map->weights[i].file];
		const struct rsh_ckpt_index *ix =
			at ? s->files[at - 1].index : NULL;

		if (ix && name != RSH_NAME_NONE && rsh_ckpt_find(ix, name))
			home[name] = at;
		else
			*wrong = &map->weights[i];
	}
	if (home && *wrong)
		memset(home, 0, n_names * sizeof(*home));
	return home;
}

static int join_files(struct rsh_source *s, uint32_t first, uint32_t n,
		      struct rsh_names *names,
		      const struct rsh_ckpt_index **out, struct rsh_error *err)
{
	cleanup_free const struct rsh_ckpt_index **parts =
		rsh_alloc_array(n, sizeof(*parts));
	cleanup_free uint64_t *base = rsh_alloc_array(n, sizeof(*base));
	cleanup_free uint32_t *home = NULL;
	const struct rsh_weight *wrong = NULL;
	struct rsh_ckpt_index *whole;
	uint32_t n_valid = 0, twice;
	int rc;

	if (!parts || !base ||
	    rsh_room(s->indexes, s->cap_indexes, (size_t)s->n_indexes + 1))
		return rsh_error_nomem(err);
	for (uint32_t i = first; i < first + n; i++) {
		if (!s->files[i].index)
			continue;
		parts[n_valid] = s->files[i].index;
		base[n_valid++] = s->files[i].base;
	}
	if (n_valid == 0)
		return 0;
	rc = rsh_ckpt_index_join(parts, base, n_valid, NULL, &whole, &twice);
	/* If two files have a record with the same name, a map may decide which
	 * one is used. */
	if (rc == -EEXIST && s->facts->map) {
		home = join_find_homes(s, n_valid, names, &wrong);
		rc = !home ? -ENOMEM :
		     rsh_ckpt_index_join(parts, base, n_valid, home, &whole,
					 &twice);
	}
	if (rc == -EEXIST)
		return join_refuse(s, first, n, names, twice, wrong, err);
	if (rc)
		return rsh_error_nomem(err);
	*out = s->indexes[s->n_indexes++] = whole;
	return 0;
}

/* Several files together are readable for users who can read all of them, and
 * have the time of the newest one. */
static int join_attrs(struct rsh_source *s, struct rsh_error *err)
{
	s->rank_attr = rsh_arena_array(&s->of_choice, struct rsh_store_attr,
				       s->n_ranks);
	if (!s->rank_attr)
		return rsh_error_nomem(err);
	for (uint32_t rank = 0; rank < s->n_ranks; rank++) {
		uint32_t n, first = rsh_source_rank_first(s, rank, &n);
		struct rsh_store_attr *all = &s->rank_attr[rank];
		bool any = false;

		for (uint32_t i = first; n > 1 && i < first + n; i++) {
			const struct rsh_store_attr *a =
				rsh_store_attr(s->store, i);

			if (!s->files[i].index)
				continue;
			if (!any)
				*all = *a;
			else
				all->mode &= rsh_store_mode_as(a, all->uid,
							       all->gid);
			if (rsh_clock_compare(&a->mtime, &all->mtime) > 0)
				all->mtime = a->mtime;
			any = true;
		}
	}
	return 0;
}

/* Sets the rank's index to that of an earlier rank with equal files, or joins
 * its files. */
static int join_rank(struct rsh_source *s, uint32_t rank, void **tree,
		     struct rsh_names *names, struct rsh_error *err)
{
	uint32_t n, first = rsh_source_rank_first(s, rank, &n);
	struct joined *new = malloc(sizeof(*new)), **found;
	uint64_t at = 0;
	int rc = new ? 0 : rsh_error_nomem(err);

	/* Where in the rank's index does each of its files begin? */
	for (uint32_t i = first; rc == 0 && i < first + n; i++) {
		s->files[i].base = at;
		if (s->files[i].index &&
		    !rsh_add_u64(at, s->files[i].index->file_bytes, &at))
			rc = rsh_error_set(err, EFBIG, "%s: the model is too "
					   "large", s->path);
	}
	if (rc) {
		free(new);
		return rc;
	}
	*new = (struct joined){ &s->files[first], n, NULL };
	found = tsearch(new, tree, joined_compare);
	if (!found || *found != new)
		free(new);
	if (!found)
		return rsh_error_nomem(err);
	if (*found == new)
		rc = join_files(s, first, n, names, &new->index, err);
	s->view_index[rank] = (*found)->index;
	return rc;
}

bool rsh_source_map_lacks(const struct rsh_source *s, struct rsh_names *names,
			  const struct rsh_ckpt_index *const *index, uint32_t n,
			  char *text, size_t size)
{
	const struct rsh_weight_map *map = s->facts->map;
	const char *first = NULL;
	uint32_t n_lacking = 0;

	for (uint32_t i = 0; map && i < map->n_weights; i++) {
		const char *at = map->weights[i].name;
		uint32_t name = rsh_names_find(names, at, strlen(at));

		if ((name == RSH_NAME_NONE ||
		     !rsh_any(k, n, rsh_ckpt_find(index[k], name))) &&
		    n_lacking++ == 0)
			first = at;
	}
	if (n_lacking)
		snprintf(text, size, "the map of its parts names %u parameter%s "
			 "that none of them has (%s%s)", n_lacking,
			 n_lacking > 1 ? "s" : "", first,
			 n_lacking > 1 ? " and others" : "");
	return n_lacking > 0;
}

/* Logs where the parts of a model differ from its map. */
static void join_tell(const struct rsh_source *s, struct rsh_names *names)
{
	const struct rsh_step_facts *f = s->facts;
	const struct rsh_ckpt_index *whole = s->view_index[0];
	uint64_t n = 0, n_records = 0;
	char text[RSH_MAP_LACKS];

	/* The map may have been made for another version of a part, so missing
	 * parameters are logged. */
	if (whole && rsh_source_map_lacks(s, names, &whole, 1, text,
					  sizeof(text)))
		rsh_log_warning("%s: %s", s->path, text);
	for (uint32_t i = 0; i < s->n_files; i++) {
		const struct rsh_ckpt_index *ix = s->files[i].index;

		n += ix ? ix->n_copies : 0;
		n_records += ix ? ix->n_records : 0;
	}
	if (f->reads_last && whole)
		n += n_records - whole->n_records;
	if (n)
		rsh_log_warning("%s: %" PRIu64 " copies of tensors are in "
				"other parts than the map says, and are not "
				"read", s->path, n);
}

int rsh_source_join(struct rsh_source *s, struct rsh_names *names,
		    struct rsh_error *err)
{
	void *tree = NULL;
	uint32_t n;
	int rc = 0;

	for (uint32_t rank = 0; rank < s->n_ranks && rc == 0; rank++) {
		const uint32_t first = rsh_source_rank_first(s, rank, &n);

		s->joined |= n > 1;
		if (n == 1)
			s->view_index[rank] = s->files[first].index;
		else if (n > 1)
			rc = join_rank(s, rank, &tree, names, err);
	}
	tdestroy(tree, free);
	if (rc == 0)
		join_tell(s, names);
	return rc || !s->joined ? rc : join_attrs(s, err);
}

bool rsh_source_locate(const struct rsh_source *s, uint32_t rank,
		       uint64_t *offset, uint32_t *file)
{
	uint32_t n;
	const uint32_t first = rsh_source_rank_first(s, rank, &n);
	/* Mostly the rank has one file. */
	const uint32_t after = n < 2 ? n :
		rsh_first(i, n, s->files[first + i].base <= *offset);

	*file = first + (after ? after - 1 : 0);
	if (n > 0)
		*offset -= s->files[*file].base;
	return n > 0;
}

bool rsh_source_attr(const struct rsh_source *s, uint32_t rank,
		     struct rsh_store_attr *out)
{
	uint32_t n;
	const uint32_t first = rsh_source_rank_first(s, rank, &n);

	if (n == 0 || (n > 1 && !s->view_index[rank]))
		return false;
	*out = n > 1 && s->rank_attr ? s->rank_attr[rank] :
				       *rsh_store_attr(s->store, first);
	return true;
}
