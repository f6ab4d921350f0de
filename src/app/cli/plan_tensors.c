/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/plan_tensors.c describes where the bytes of each record of a plan
 * come from, and for each tensor how both sides cut it, which ranks have which
 * slice, and which source file each slice is read from. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "rsh/plan/query.h"
#include "rsh/strategy/strategy.h"
#include "rsh/util/mem.h"

/* This is a file, and the member of a cut whose cell the file has. */
struct holding {
	uint32_t member, file;
};

/* This is one side of a tensor. */
struct side {
	const struct rsh_cut *cut;
	const uint64_t *dims;
	uint32_t n_dims;
	uint32_t first_file;  /* file that should have member 0's cell */
	struct holding *held; /* by member, then by file */
	size_t n_held, cap;
};

/* This is a tensor that is shown, with the first tensor that is cut and held in
 * the same way. */
struct shown_tensor {
	struct rsh_plan_tensor of;
	struct side source, destination;
	bool is_shown;
	uint32_t
		first_alike; /* its number; the tensor's own if it is the
			      * first */
};

/* ---- which rank holds which slice ---- */

RSH_ORDER(by_member, struct holding,
	  rsh_compare_u64(x->member, y->member) ?:
	  rsh_compare_u64(x->file, y->file))

static int side_add(struct side *s, uint32_t member, uint32_t file)
{
	return rsh_push(s->held, s->n_held, s->cap,
			(struct holding){ member, file });
}

/* ---- which tensors share an entry ---- */

static bool sides_are_equal(const struct side *a, const struct side *b)
{
	return a->cut == b->cut && a->first_file == b->first_file &&
	       a->n_held == b->n_held &&
	       rsh_dims_equal(a->dims, a->n_dims, b->dims, b->n_dims) &&
	       (a->n_held == 0 ||
		memcmp(a->held, b->held, a->n_held * sizeof(*a->held)) == 0);
}

static bool tensors_are_alike(const struct shown_tensor *a,
			      const struct shown_tensor *b)
{
	return a->of.dtype == b->of.dtype && a->of.lost == b->of.lost &&
	       a->of.n_parts == b->of.n_parts &&
	       a->of.from->dtype == b->of.from->dtype &&
	       sides_are_equal(&a->source, &b->source) &&
	       sides_are_equal(&a->destination, &b->destination) &&
	       memcmp(a->of.axis, b->of.axis, sizeof(a->of.axis)) == 0;
}

/* ---- printing ---- */

static void print_origin(void *ctx, const struct rsh_box *box,
			 const struct rsh_holder *holder)
{
	rsh_json(ctx, "{offset:% shape:% rank:%}",
		 rsh_v_sizes(box->from, box->n_dims),
		 rsh_v_sizes(box->size, box->n_dims),
		 RSH_V_IF(holder, holder->file));
}

/* Returns the first of a member's files, or where it would be. */
static size_t find_held(const struct side *s, uint32_t member)
{
	const struct holding wanted = { member, 0 };

	return rsh_first(i, s->n_held, by_member(&s->held[i], &wanted) < 0);
}

/* Prints the slices of a side.  `plan` is given for the destination, whose
 * slices also list the files that they are read from; those of the source list
 * the files that should have them. */
static void print_cells(struct rsh_printer *out, const struct side *s,
			const struct rsh_plan *plan, uint32_t tensor)
{
	rsh_json(out, "[");
	for (uint32_t cell = 0; cell < rsh_cut_n_cells(s->cut); cell++) {
		const uint32_t n = rsh_cut_n_replicas(s->cut, cell);
		uint32_t has = 0;
		bool any = false;
		struct rsh_box box;

		rsh_cut_box(s->cut, s->dims, cell, &box);
		rsh_json(out, "{offset:% shape:% ranks:[",
			 rsh_v_sizes(box.from, box.n_dims),
			 rsh_v_sizes(box.size, box.n_dims));
		for (uint32_t k = 0; k < n; k++) {
			const uint32_t m = rsh_cut_member(s->cut, cell, k);

			for (size_t i = find_held(s, m);
			     i < s->n_held && s->held[i].member == m; i++) {
				rsh_json(out, "%", s->held[i].file);
				has = m;
				any = true;
			}
		}
		rsh_json(out, plan ? "]" : "] missing:[");
		for (uint32_t k = 0; !plan && k < n; k++) {
			const uint32_t m = rsh_cut_member(s->cut, cell, k);
			const size_t i = find_held(s, m);

			if (i == s->n_held || s->held[i].member != m)
				rsh_json(out, "%", s->first_file + m);
		}
		rsh_json(out, plan ? any ? "from:[" : "" : "]");
		if (plan && any) {
			rsh_plan_origins(plan, tensor, has, print_origin, out);
			rsh_json(out, "]");
		}
		rsh_json(out, "}");
	}
	rsh_json(out, "]");
}

static void print_side(struct rsh_printer *out, const struct side *s,
		       enum rsh_dtype dtype,
		       const struct rsh_strategy *strategy, uint32_t name,
		       const struct rsh_plan *plan, uint32_t tensor)
{
	const struct rsh_strategy_param *p =
		strategy && s->n_held ? rsh_strategy_find(strategy, name) :
					NULL;
	const struct rsh_strategy_item *item = NULL;
	uint64_t by_axes = 0;
	char layout[256];

	if (p) {
		item = rsh_param_item(p, s->held[0].file /
					 strategy->stage_ranks);
		item = item ? item : rsh_param_source_stage(p)->item;
	}
	/* The optimizer shard cuts a slice of the mesh axes into so many. */
	if (item && item->opt_step && rsh_cut_grid(s->cut)) {
		by_axes = 1;
		for (uint32_t i = 0; i < item->n_map; i++)
			by_axes *= rsh_map_entry_split(item, &item->map[i]);
	}
	rsh_json(out, "{type:% shape:% layout:% optimizer_shards:% slices:",
		 rsh_dtype_name(dtype), rsh_v_sizes(s->dims, s->n_dims),
		 item ? rsh_item_text(item, layout, sizeof(layout)) : NULL,
		 by_axes ? (uint32_t)(rsh_cut_n_cells(s->cut) / by_axes) : 1);
	print_cells(out, s, plan, tensor);
	rsh_json(out, "}");
}

/* Takes the tensors, and records which files of the source and of the plan
 * have them. */
static int shown_tensors_take(const struct rsh_plan *plan,
			      struct shown_tensor *v, uint32_t n)
{
	cleanup_free bool *marks = calloc((size_t)n + 1, sizeof(*marks));
	int rc = marks ? 0 : -ENOMEM;

	for (uint32_t i = 0; i < n && rc == 0; i++) {
		struct shown_tensor *t = &v[i];
		const struct rsh_tensor *from;

		rsh_plan_tensor(plan, i, &t->of);
		t->destination = (struct side){
			.cut = t->of.cut, .dims = t->of.dims,
			.n_dims = t->of.n_dims,
		};
		from = t->of.from;
		if (!from)
			continue;
		t->source = (struct side){
			.cut = from->cut, .dims = from->dims,
			.n_dims = from->n_dims, .first_file = from->first_file,
		};
		for (size_t k = 0; k < rsh_copies_n_holders(from->copies) &&
				   rc == 0; k++) {
			const struct rsh_holder *h =
				&rsh_copies_holders(from->copies)[k];

			rc = side_add(&t->source, h->rank, h->file);
		}
	}
	for (uint32_t f = 0; f < rsh_plan_n_files(plan) && rc == 0; f++) {
		memset(marks, 0, n);
		rsh_plan_mark_tensors(plan, f, marks);
		for (uint32_t i = 0; i < n && rc == 0; i++) {
			if (!marks[i])
				continue;
			/* Records that are copied unchanged have no cut. */
			v[i].is_shown = v[i].of.from != NULL;
			rc = side_add(&v[i].destination,
				      rsh_plan_member(plan, f),
				      f / rsh_plan_files_of_rank(plan));
		}
	}
	for (uint32_t i = 0; i < n && rc == 0; i++) {
		rsh_sort(v[i].source.held, v[i].source.n_held, by_member);
		rsh_sort(v[i].destination.held, v[i].destination.n_held,
			 by_member);
	}
	return rc;
}

void rsh_plan_print_tensors(struct rsh_printer *out,
			    const struct rsh_vfs_view *view)
{
	const uint32_t n = rsh_plan_n_tensors(view->plan);
	cleanup_free struct shown_tensor *v = calloc((size_t)n + 1, sizeof(*v));

	out->failed |= !v || shown_tensors_take(view->plan, v, n) != 0;
	for (uint32_t i = 0; i < n && !out->failed; i++) {
		v[i].first_alike = i;
		for (uint32_t k = 0; k < i && v[i].is_shown; k++)
			if (v[k].is_shown && v[k].first_alike == k &&
			    tensors_are_alike(&v[k], &v[i])) {
				v[i].first_alike = k;
				break;
			}
	}
	rsh_json(out, "[");
	for (uint32_t i = 0; i < n && !out->failed; i++) {
		const struct rsh_plan_tensor *t = &v[i].of;

		if (!v[i].is_shown || v[i].first_alike != i)
			continue;
		rsh_json(out, "{names:[");
		for (uint32_t k = i; k < n; k++)
			if (v[k].is_shown && v[k].first_alike == i)
				rsh_json(out, "%", v[k].of.name);
		rsh_json(out, "] made_of:% lost:% source:", t->n_parts,
			 t->lost);
		print_side(out, &v[i].source, t->from->dtype, view->src,
			   t->from->name, NULL, i);
		rsh_json(out, "destination:");
		print_side(out, &v[i].destination, t->dtype, view->dst,
			   t->number, view->plan, i);
		rsh_json(out, "}");
	}
	rsh_json(out, "]");
	for (uint32_t i = 0; v && i < n; i++) {
		free(v[i].source.held);
		free(v[i].destination.held);
	}
}

/* ---- where each byte comes from ----
 *
 * The description is short, so that whole jobs can be compared: records with
 * equal descriptions take the same bytes.
 */

/* A run extends one of the last so many stretches, or begins a new one, because
 * a row may take bytes from that many files. */
#define STRETCHES_BACK 64

/* This is a number of runs of a source file with equal lengths and equal
 * distances. */
struct stretch {
	uint32_t rank;
	uint64_t at, bytes, n, stride;
};

struct reads {
	struct stretch *v;
	size_t n, cap;
	size_t next; /* index at which the search for the next run begins */
};

static int reads_add(struct reads *r, uint32_t rank, uint64_t at,
		     uint64_t bytes)
{
	const size_t back = r->n < STRETCHES_BACK ? r->n : STRETCHES_BACK;
	struct stretch *last = r->n ? &r->v[r->n - 1] : NULL;

	if (last && last->n == 1 && last->rank == rank &&
	    last->at + last->bytes == at) {
		last->bytes += bytes;
		return 0;
	}
	for (size_t k = 0; k < back; k++) {
		struct stretch *s = &r->v[r->n - back + (r->next + k) % back];

		if (s->rank != rank || s->bytes != bytes || at <= s->at ||
		    (s->n > 1 && at != s->at + s->n * s->stride))
			continue;
		s->stride = (at - s->at) / s->n;
		s->n++;
		r->next = r->next + k + 1;
		return 0;
	}
	if (rsh_push(r->v, r->n, r->cap,
		     (struct stretch){ rank, at, bytes, 1, 0 }))
		return -ENOMEM;
	r->next = 0;
	return 0;
}

static int reads_collect(struct reads *r, struct rsh_piece_iter *it)
{
	struct rsh_piece p;
	int rc = 0;

	while (rc == 0 && rsh_piece_iter_next(it, &p)) {
		const struct rsh_tile *t = &p.tile;

		if (!p.is_tiled)
			rc = reads_add(r, p.src_rank, p.src_offset,
				       p.src_length);
		for (uint64_t i = 0; p.is_tiled && i < t->n_rows && rc == 0 &&
				     !p.tile_offset; i++)
			rc = reads_add(r, t->src_rank, t->src_offset +
				       i * rsh_tile_stored(t, t->stride),
				       rsh_tile_stored(t, t->n_columns));
	}
	return rc ?: rsh_piece_iter_status(it);
}

static char *reads_text(const struct reads *r)
{
	cleanup_free char *text = NULL;
	size_t length;
	FILE *f = open_memstream(&text, &length);

	if (!f)
		return NULL;
	for (size_t i = 0; i < r->n; i++) {
		const struct stretch *s = &r->v[i];
		const bool whole = s->n > 1 && s->stride == s->bytes;

		fprintf(f, "%s%" PRIu32 ":%" PRIu64 "+%" PRIu64, i ? " " : "",
			s->rank, s->at, whole ? s->bytes * s->n : s->bytes);
		if (s->n > 1 && !whole)
			fprintf(f, "*%" PRIu64 "/%" PRIu64, s->n, s->stride);
	}
	return fclose(f) == 0 ? steal_pointer(&text) : NULL;
}

void rsh_plan_print_slices(struct rsh_printer *out, const struct rsh_plan *p,
			   uint32_t file)
{
	const uint32_t n = rsh_plan_is_lost(p, file) ? 0 :
		rsh_plan_n_records(p, file);

	rsh_json(out, "[");
	for (uint32_t i = 0; i < n && !out->failed; i++) {
		struct rsh_piece_iter *it = rsh_piece_iter_content(
			p, file, i, 0, UINT64_MAX, NULL);
		cleanup_free char *text = NULL;
		struct rsh_virtual_record record;
		struct reads reads = { 0 };

		rsh_plan_record(p, file, i, &record);
		if (it && reads_collect(&reads, it) == 0)
			text = reads_text(&reads);
		rsh_piece_iter_free(it);
		free(reads.v);
		out->failed |= !text;
		rsh_json(out, "[% % %]", record.offset, record.total_bytes,
			 text);
	}
	rsh_json(out, "]");
}
