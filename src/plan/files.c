/* SPDX-License-Identifier: Apache-2.0 */
/* plan/files.c adds virtual files to a plan: it computes their layout, keeps
 * equal lists of records once, and divides records into several files.
 *
 * A part of a model is closed when the next tensor would make it larger than
 * the limit, as the Hugging Face tools do. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "plan_i.h"
#include "rsh/plan/framing.h"
#include "rsh/util/mem.h"

static bool is_same_list(const struct rsh_slot_list *l,
			 const struct rsh_file_layout *f)
{
	return l->n == f->n && l->bytes == f->bytes &&
	       l->header_bytes == f->header_bytes &&
	       l->trailer_bytes == f->trailer_bytes &&
	       (f->n == 0 ||
		memcmp(l->slots, f->slots, f->n * sizeof(*f->slots)) == 0) &&
	       (f->header_bytes == 0 ||
		memcmp(l->header, f->header, f->header_bytes) == 0) &&
	       (f->trailer_bytes == 0 ||
		memcmp(l->trailer, f->trailer, f->trailer_bytes) == 0);
}

/* Returns the plan's copy of a file's records, and takes over the layout's
 * header and trailer.  NULL: out of memory. */
static const struct rsh_slot_list *
files_keep_list(struct rsh_plan *p, struct rsh_file_layout *f)
{
	cleanup_free uint8_t *header = f->header;
	cleanup_free uint8_t *trailer = f->trailer;
	struct rsh_names *kinds = p->building.kinds_of_lists;
	const uint32_t n_kinds = rsh_names_count(kinds);
	struct rsh_arena *a = &p->arena;
	struct rsh_slot_list *l;
	char kind[96];
	uint32_t i;

	/* Equal lists are of one kind.  A model may be divided into as many
	 * files as it has tensors, and then each is of its own. */
	snprintf(kind, sizeof(kind), "%u %" PRIu64 " %u %u", f->n, f->bytes,
		 f->n ? f->slots[0].name : 0, f->n ? f->slots[f->n - 1].name : 0);
	i = rsh_names_add(kinds, kind, strlen(kind));
	if (i == RSH_NAME_NONE)
		return NULL;
	/* The first list of the kind comes after those of all kinds before. */
	for (i = i < n_kinds ? i : p->n_lists; i < p->n_lists; i++)
		if (is_same_list(p->lists[i], f))
			return p->lists[i];
	l = rsh_arena_alloc(a, sizeof(*l) + f->n * sizeof(*l->slots),
			    _Alignof(struct rsh_slot_list));
	if (!l || rsh_room(p->lists, p->lists_cap, p->n_lists + 1))
		return NULL;
	l->n = f->n;
	l->bytes = f->bytes;
	l->header_bytes = f->header_bytes;
	l->trailer_bytes = f->trailer_bytes;
	l->header = rsh_arena_copy(a, header, f->header_bytes);
	l->trailer = rsh_arena_copy(a, trailer, f->trailer_bytes);
	if (!l->header || !l->trailer)
		return NULL;
	if (f->n)
		memcpy(l->slots, f->slots, f->n * sizeof(*l->slots));
	p->lists[p->n_lists++] = l;
	return l;
}

static struct rsh_virtual_file *new_file(struct rsh_plan *p,
					 const struct rsh_shown_file *f)
{
	if (rsh_room(p->files, p->files_cap, p->n_files + 1))
		return NULL;
	p->files[p->n_files] = (struct rsh_virtual_file){
		.rank = f->rank, .member = f->member, .lost = f->lost,
		.origin = RSH_NO_FILE,
	};
	return &p->files[p->n_files];
}

int rsh_blueprint_add_file(struct rsh_plan *p, const struct rsh_shown_file *f,
			   struct rsh_error *err)
{
	struct rsh_virtual_file *v = new_file(p, f);
	struct rsh_file_layout layout = {
		.n = f->n, .slots = f->slots, .shapes = f->shapes,
		.remove_redundancy = p->b.remove_redundancy,
		.form = p->b.form,
	};
	int rc = v ? p->b.framing->lay_out(&layout, err) : rsh_error_nomem(err);

	if (rc)
		return rc;
	v->list = files_keep_list(p, &layout);
	if (!v->list)
		return rsh_error_nomem(err);
	rc = rsh_plan_list_sources(p, v, err);
	if (rc == 0)
		p->n_files++;
	return rc;
}

int rsh_blueprint_add_whole(struct rsh_plan *p, const struct rsh_shown_file *f,
			    uint32_t origin, uint64_t bytes,
			    struct rsh_error *err)
{
	struct rsh_virtual_file *v = new_file(p, f);
	struct rsh_file_layout layout = {
		.n = f->n, .slots = f->slots, .bytes = bytes,
	};

	if (!v)
		return rsh_error_nomem(err);
	v->list = files_keep_list(p, &layout);
	v->sources = rsh_arena_array(&p->arena, uint32_t, 1);
	if (!v->list || !v->sources)
		return rsh_error_nomem(err);
	v->origin = origin;
	v->sources[0] = origin;
	v->n_sources = 1;
	p->n_files++;
	return 0;
}

/* Returns how many records from `first` on make up a part. */
static uint32_t part_length(const struct rsh_shown_file *f, uint32_t first,
			    uint64_t limit)
{
	uint64_t bytes = f->slots[first].content_bytes;
	uint32_t n = 1;

	/* A tensor larger than the limit is a part of its own. */
	for (; first + n < f->n; n++) {
		uint64_t next = f->slots[first + n].content_bytes;

		if (bytes > limit || next > limit - bytes)
			break;
		bytes += next;
	}
	return n;
}

int rsh_blueprint_add_parts(struct rsh_plan *p,
			    const struct rsh_shown_file *whole, uint64_t limit,
			    struct rsh_error *err)
{
	struct rsh_shown_file part = *whole;
	uint32_t first = 0;
	int rc;

	if (!limit)
		return rsh_blueprint_add_file(p, whole, err);
	do {
		part.n = whole->n ? part_length(whole, first, limit) : 0;
		part.slots = whole->slots + first;
		part.shapes = whole->shapes + first;
		rc = rsh_blueprint_add_file(p, &part, err);
		first += part.n;
	} while (rc == 0 && first < whole->n);
	return rc;
}

/* Moves the records of the second file after those of the first, and keeps the
 * order within each file.  0 or -ENOMEM. */
static int split_records(const struct rsh_plan *p,
			 const struct rsh_shown_file *f,
			 bool (*in_second)(const void *ctx,
			 const struct rsh_catalogue *cat,
			 uint32_t name),
			 const void *ctx, uint32_t *n_first)
{
	cleanup_free struct rsh_slot *slots =
		rsh_alloc_array(f->n, sizeof(*slots));
	cleanup_free struct rsh_record_shape *shapes =
		rsh_alloc_array(f->n, sizeof(*shapes));
	uint32_t n = 0, n_second = 0;

	if (!slots || !shapes)
		return -ENOMEM;
	for (uint32_t i = 0; i < f->n; i++) {
		if (in_second(ctx, p->cat, f->slots[i].name)) {
			slots[n_second] = f->slots[i];
			shapes[n_second++] = f->shapes[i];
		} else {
			f->slots[n] = f->slots[i];
			f->shapes[n++] = f->shapes[i];
		}
	}
	memcpy(f->slots + n, slots, n_second * sizeof(*slots));
	memcpy(f->shapes + n, shapes, n_second * sizeof(*shapes));
	*n_first = n;
	return 0;
}

int rsh_blueprint_add_two(struct rsh_plan *p, const struct rsh_shown_file *f,
			  bool (*in_second)(const void *ctx,
			  const struct rsh_catalogue *cat,
			  uint32_t name),
			  const void *ctx, struct rsh_error *err)
{
	struct rsh_shown_file one = *f;
	int rc;

	p->two_files = true;
	if (f->n && split_records(p, f, in_second, ctx, &one.n))
		return rsh_error_nomem(err);
	rc = rsh_blueprint_add_file(p, &one, err);
	one.slots += one.n;
	one.shapes += one.n;
	one.n = f->n - one.n;
	return rc ?: rsh_blueprint_add_file(p, &one, err);
}
