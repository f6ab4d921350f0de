/* SPDX-License-Identifier: Apache-2.0 */
/* plan/plan.c makes and frees a plan, and returns information about its
 * files. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parts_i.h"
#include "rsh/plan/framing.h"
#include "rsh/util/mem.h"

/* ---- making and freeing ---- */

struct rsh_plan *rsh_blueprint_new(struct rsh_catalogue *c,
				   const struct rsh_plan_ops *writer,
				   const struct rsh_blueprint *b)
{
	struct rsh_plan *p = calloc(1, sizeof(*p));
	struct rsh_building *w;

	if (!p) {
		rsh_catalogue_free(c);
		if (writer->free)
			writer->free(writer->ctx);
		return NULL;
	}
	p->cat = c;
	p->ops = *writer;
	p->b = *b;
	w = &p->building;
	w->used = rsh_arena_array(&w->arena, bool, c->n_files);
	w->used_files = rsh_arena_array(&w->arena, uint32_t, c->n_present);
	w->kinds_of_lists = rsh_names_new();
	if (w->arena.failed || !w->kinds_of_lists ||
	    rsh_room(p->files, p->files_cap, b->n_ranks + 1)) {
		rsh_plan_free(p);
		return NULL;
	}
	return p;
}

static void building_clear(struct rsh_building *b)
{
	rsh_arena_clear(&b->arena);
	free(b->pair_done);
	rsh_names_free(b->kinds_of_lists);
	*b = (struct rsh_building){ 0 };
}

int rsh_blueprint_finish(struct rsh_plan *p,
			 void (*report)(void *ctx, const char *sentence),
			 void *ctx, struct rsh_error *err)
{
	building_clear(&p->building);
	return p->n_lost ? rsh_plan_report_lost(p, report, ctx, err) : 0;
}

void rsh_plan_free(struct rsh_plan *p)
{
	if (!p)
		return;
	building_clear(&p->building);
	free(p->lists);
	free(p->files);
	for (uint32_t i = 0; i < p->n_notes; i++)
		free(p->notes[i].text);
	free(p->notes);
	free(p->mappings);
	free(p->pairs);
	free(p->lost);
	free(p->lost_whole);
	rsh_arena_clear(&p->arena);
	if (p->ops.free)
		p->ops.free(p->ops.ctx);
	rsh_catalogue_free(p->cat);
	free(p);
}

int rsh_blueprint_show(struct rsh_plan *p, const struct rsh_shown *t,
		       uint32_t *number, struct rsh_error *err)
{
	struct rsh_mapping *w;
	int rc = rsh_mapping_make(p, t, &w, err) ?:
		 rsh_mapping_keep_order(p, t, w, err);

	if (rc)
		return rc;
	if (rsh_room(p->mappings, p->mappings_cap, p->n_mappings + 1))
		return rsh_error_nomem(err);
	*number = p->n_mappings;
	p->mappings[p->n_mappings++] = w;
	return 0;
}

int rsh_blueprint_add_note(struct rsh_plan *p, char *sentence, bool difference)
{
	if (!sentence || rsh_room(p->notes, p->notes_cap, p->n_notes + 1)) {
		free(sentence);
		return -ENOMEM;
	}
	p->notes[p->n_notes++] = (struct rsh_plan_note){ sentence, difference };
	return 0;
}

void rsh_blueprint_name_suffix(struct rsh_plan *p, const char *suffix)
{
	snprintf(p->suffix, sizeof(p->suffix), "%s", suffix);
}

/* ---- records ---- */

const char *rsh_plan_written_name(const struct rsh_plan *p, uint32_t name)
{
	const char *written = p->ops.written_name ?
		p->ops.written_name(p->ops.ctx, name) : NULL;

	return written ? written : rsh_names_text(p->cat->names, name);
}

void rsh_blueprint_shape(const struct rsh_plan *p, uint32_t shown,
			 uint32_t member, struct rsh_record_shape *out)
{
	const struct rsh_mapping *w = p->mappings[shown];
	const uint32_t slice = rsh_mapping_slice(w, member);

	out->name = rsh_plan_written_name(p, w->name);
	out->name_len = strlen(out->name);
	out->dtype = w->dtype;
	out->n_dims = w->n_dims;
	out->dims = w->slice_dims + (size_t)slice * w->n_dims;
	out->order = w->order;
	out->content_bytes = w->slice_bytes[slice];
	out->number = 0;
}

const struct rsh_cut *rsh_blueprint_cut(const struct rsh_plan *p,
					uint32_t shown)
{
	return p->mappings[shown]->cut;
}

/* ---- queries ---- */

const char *rsh_plan_note(const struct rsh_plan *p, uint32_t i)
{
	return i < p->n_notes ? p->notes[i].text : NULL;
}

bool rsh_plan_note_is_difference(const struct rsh_plan *p, uint32_t i)
{
	return p->notes[i].difference;
}

enum rsh_kind rsh_plan_kind(const struct rsh_plan *p, uint32_t name,
			    const char *text)
{
	return rsh_kinds_of(p->cat->kinds, name, text);
}

const char *rsh_plan_lost(const struct rsh_plan *p)
{
	return p->n_lost ? p->first_lost.text : NULL;
}

uint32_t rsh_plan_n_files(const struct rsh_plan *p)
{
	return p->n_files;
}

uint32_t rsh_plan_files_of_rank(const struct rsh_plan *p)
{
	return p->two_files ? 2 : 1;
}

bool rsh_plan_same_records(const struct rsh_plan *p, uint32_t a, uint32_t b)
{
	return p->files[a].list == p->files[b].list;
}

uint64_t rsh_plan_size(const struct rsh_plan *p, uint32_t rank)
{
	uint64_t bytes = p->files[rank].list->bytes;

	return bytes == 0 && rsh_plan_is_lost(p, rank) ? 1 : bytes;
}

uint32_t rsh_plan_n_records(const struct rsh_plan *p, uint32_t rank)
{
	return p->files[rank].list->n;
}

const char *rsh_plan_name_suffix(const struct rsh_plan *p)
{
	return p->suffix;
}

bool rsh_plan_is_lost(const struct rsh_plan *p, uint32_t rank)
{
	return p->files[rank].lost;
}

const uint32_t *rsh_plan_sources(const struct rsh_plan *p, uint32_t rank,
				 uint32_t *n)
{
	*n = p->files[rank].n_sources;
	return p->files[rank].sources;
}

/* Describes a record of a file that equals a source file. */
static void describe_whole(const struct rsh_plan *p,
			   const struct rsh_virtual_file *f,
			   const struct rsh_slot *s,
			   struct rsh_virtual_record *out)
{
	const struct rsh_ckpt_index *ix =
		rsh_catalogue_index(p->cat, f->origin);
	const struct rsh_record *r = rsh_ckpt_find(ix, s->name);
	const char *name = rsh_names_text(p->cat->names, s->name);

	*out = (struct rsh_virtual_record){
		.shape = {
			.name = name,
			.name_len = strlen(name),
			.dtype = r->dtype,
			.n_dims = r->n_dims,
			.dims = rsh_record_dims(ix, r),
			.content_bytes = r->content_bytes,
		},
		.offset = s->offset,
		.name = s->name,
	};
	if (r->n_extents)
		out->total_bytes = rsh_record_end(ix, r) - s->offset;
}

void rsh_plan_record(const struct rsh_plan *p, uint32_t rank, uint32_t i,
		     struct rsh_virtual_record *out)
{
	const struct rsh_virtual_file *f = &p->files[rank];
	const struct rsh_slot *s = &f->list->slots[i];
	enum rsh_codec codec;
	uint32_t from;

	if (f->origin != RSH_NO_FILE) {
		describe_whole(p, f, s, out);
		return;
	}
	out->resharded = s->shown != RSH_COPIED;
	out->name = s->name;
	out->cut = out->resharded ? p->mappings[s->shown]->cut : NULL;
	out->whole_dims = out->resharded ? p->mappings[s->shown]->dims : NULL;
	if (out->resharded) {
		rsh_blueprint_shape(p, s->shown, f->member, &out->shape);
	} else if (p->ops.pick(p->ops.ctx, f->rank, s->name, NULL, &from)) {
		const struct rsh_ckpt_index *ix =
			rsh_catalogue_index(p->cat, from);

		p->ops.copy_shape(p->ops.ctx, ix, rsh_ckpt_find(ix, s->name),
				  &out->shape, &codec);
	}
	out->shape.number = i;
	out->offset = s->offset;
	out->total_bytes = (i + 1 < f->list->n ? f->list->slots[i + 1].offset :
			    f->list->bytes - f->list->trailer_bytes) -
			   s->offset;
}
