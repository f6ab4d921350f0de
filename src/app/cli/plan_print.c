/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/plan_print.c prints the report of `plan`. */
#include "config.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "rsh/source/inspect.h"
#include "rsh/util/mem.h"

/* The estimate assumes that the source delivers so many bytes per second, and
 * that each run costs the following time beside its bytes: to find it, and its
 * part of a scattered read.  These are about the values of small runs of files
 * in the page cache. */
#define BYTES_PER_SECOND 1000000000
#define RUN_SECONDS 1e-6

/* These numbers belong to a key: runs of a length, or bytes of a source rank.
 * They are ascending by key. */
struct count {
	uint64_t key;
	uint64_t n;
};

struct counts {
	struct count *v;
	size_t n, cap, last;
};

/* This is one virtual file: the file of a destination rank, or a part. */
struct file {
	uint32_t file;       /* its number in the plan */
	uint32_t rank;
	const char *kind;    /* kind of file, if the rank has several; NULL: it
			      * has one */
	uint64_t bytes;      /* of the virtual file */
	bool lost;           /* the file needs slices that are not available */
	uint64_t read_bytes; /* from all sources */
	/* A run is contiguous in the source file and in the virtual file. */
	uint64_t n_runs;
	uint64_t min_run, median_run, max_run; /* bytes; 0 without runs */
	struct counts sources; /* bytes of each source rank */
};

/* This is one source file, as all virtual files read it. */
struct source {
	uint32_t rank;
	const char *path;
	uint64_t bytes; /* bytes that all virtual files read from it */
	size_t n_users, cap_users;
	uint32_t *users; /* ranks that read it */
};

struct report {
	const struct rsh_vfs_view *view;
	struct file *files; /* those that are wanted */
	size_t n_files;
	bool slices;

	struct source *v;
	size_t n;
	/* [source rank]: the lowest rank that holds the same content. */
	uint32_t *first;
	uint32_t n_first;
};

/* This is a row of a table. */
struct row {
	const struct report *report;
	const struct file *file;
};

/* ---- what a file reads ---- */

static int count(struct counts *c, uint64_t key, uint64_t n)
{
	/* Consecutive runs mostly have the same key. */
	const size_t at = c->last < c->n && c->v[c->last].key == key ?
		c->last : rsh_first(i, c->n, c->v[i].key < key);

	if (at == c->n || c->v[at].key != key) {
		if (rsh_room(c->v, c->cap, c->n + 1))
			return -ENOMEM;
		memmove(&c->v[at + 1], &c->v[at], (c->n - at) * sizeof(*c->v));
		c->v[at] = (struct count){ key, 0 };
		c->n++;
	}
	c->v[at].n += n;
	c->last = at;
	return 0;
}

static int walk_pieces(struct counts *lengths, struct counts *sources,
		       struct rsh_piece_iter *it)
{
	struct rsh_piece p;

	while (rsh_piece_iter_next(it, &p)) {
		uint64_t length = p.src_length, n = 1;
		uint32_t rank = p.src_rank;

		/* A tile is read once, row by row, for all pieces that show a
		 * part of it. */
		if (p.is_header || (p.is_tiled && p.tile_offset))
			continue;
		if (p.is_tiled) {
			length = rsh_tile_stored(&p.tile, p.tile.n_columns);
			n = p.tile.n_rows;
			rank = p.tile.src_rank;
		}
		if (count(lengths, length, n) ||
		    count(sources, rank, length * n))
			return -ENOMEM;
	}
	return rsh_piece_iter_status(it);
}

static void sum_up(const struct counts *lengths, struct file *out)
{
	const struct count *length = lengths->v;
	uint64_t before = 0;

	if (lengths->n == 0)
		return;
	for (size_t i = 0; i < lengths->n; i++) {
		out->n_runs += length[i].n;
		out->read_bytes += length[i].key * length[i].n;
	}
	out->min_run = length[0].key;
	out->max_run = length[lengths->n - 1].key;
	/* If there are two middle values, the lower one is the median. */
	for (size_t i = 0; before <= (out->n_runs - 1) / 2; i++) {
		out->median_run = length[i].key;
		before += length[i].n;
	}
}

/* Fills *out, also after a failure, for a file of the plan.  It visits the
 * file's pieces in the order in which a reader of the whole file would. */
static int measure_file(const struct rsh_plan *c, uint32_t file,
			struct file *out)
{
	const uint32_t per_rank = rsh_plan_files_of_rank(c);
	struct counts lengths = { 0 }; /* runs of each length */
	struct rsh_piece_iter *it;
	int rc = 0;

	*out = (struct file){
		.file = file,
		.rank = file / per_rank,
		.kind = per_rank == 1 ? NULL : file % 2 ? "opt" : "model",
		.bytes = rsh_plan_size(c, file),
		.lost = rsh_plan_is_lost(c, file),
	};
	if (out->lost)
		return 0;
	it = rsh_piece_iter_new(c, file, 0, out->bytes, NULL);
	rc = it ? walk_pieces(&lengths, &out->sources, it) : -ENOMEM;
	rsh_piece_iter_free(it);
	if (rc == 0)
		sum_up(&lengths, out);
	free(lengths.v);
	return rc;
}

/* ---- collecting ---- */

static double seconds(uint64_t bytes, uint64_t runs)
{
	return (double)bytes / BYTES_PER_SECOND + (double)runs * RUN_SECONDS;
}

static int collect(struct report *r, const bool *wanted)
{
	const struct rsh_plan *plan = r->view->plan;
	const uint32_t n_files = rsh_plan_n_files(plan);
	struct rsh_source_view view;
	uint32_t n;

	rsh_source_view(r->view->source, r->view->names, &view);
	/* Adapters have the numbers after those of the ranks. */
	n = view.n_ranks + view.n_beside;
	r->files = rsh_alloc_array(n_files, sizeof(*r->files));
	r->v = calloc((size_t)n + 1, sizeof(*r->v));
	if (!r->files || !r->v ||
	    rsh_vfs_replicas(r->view->src, &r->first, &r->n_first))
		return -ENOMEM;
	r->n = n;
	for (uint32_t rank = 0; rank < n; rank++)
		r->v[rank] = (struct source){
			.rank = rank, .path = view.path[rank],
		};
	for (uint32_t i = 0; i < n_files; i++) {
		struct file *f = &r->files[r->n_files];

		if (!wanted[i])
			continue;
		r->n_files++;
		if (measure_file(plan, i, f))
			return -ENOMEM;
		for (size_t k = 0; k < f->sources.n; k++) {
			struct source *s = &r->v[f->sources.v[k].key];

			s->bytes += f->sources.v[k].n;
			if (s->n_users && s->users[s->n_users - 1] == f->rank)
				continue;
			if (rsh_push(s->users, s->n_users, s->cap_users,
				     f->rank))
				return -ENOMEM;
		}
	}
	/* What is left are those that are read. */
	r->n = 0;
	for (uint32_t rank = 0; rank < n; rank++)
		if (r->v[rank].n_users)
			r->v[r->n++] = r->v[rank];
	return 0;
}

/* ---- files ---- */

static const struct rsh_column file_columns[] = {
	{ "rank", "RANK", .right = true },
	{ "bytes", "SIZE", .right = true },
	{ "lost", NULL },
	{ "records", NULL },
	{ "read_bytes", "READS", .right = true },
	{ "sources", NULL },
	{ "runs", NULL },
	{ NULL, "RUNS", .right = true },
	{ NULL, "MIN", .right = true },
	{ NULL, "MEDIAN", .right = true },
	{ NULL, "MAX", .right = true },
	{ "seconds", "TIME", .right = true },
	{ NULL, "FROM RANKS", .wrap = ',' },
	{ NULL, NULL }
};

static void put_rank(struct rsh_printer *out, const void *ctx)
{
	const struct file *f = ctx;

	rsh_json(out, "%", f->rank);
	rsh_say(out, "%%%", f->rank, f->kind ? " " : "",
		f->kind ? f->kind : "");
}

static void put_sources(struct rsh_printer *out, const void *ctx)
{
	const struct file *f = ctx;

	rsh_json(out, "[");
	for (size_t i = 0; i < f->sources.n; i++) {
		const struct count *s = &f->sources.v[i];

		rsh_json(out, "{rank:% bytes:%}", s->key, s->n);
		rsh_say(out, "%%: %", i ? ", " : "", s->key,
			rsh_v_bytes(s->n));
	}
	rsh_json(out, "]");
	rsh_say(out, f->lost ? "slices are lost" : f->sources.n ? "" : "-");
}

static void put_runs(struct rsh_printer *out, const void *ctx)
{
	const struct file *f = ctx;

	rsh_json(out, "{count:% min:% median:% max:%}", f->n_runs, f->min_run,
		 f->median_run, f->max_run);
}

/* Only some files have the other keys. */
static void put_seconds(struct rsh_printer *out, const void *ctx)
{
	const struct row *row = ctx;
	const struct file *f = row->file;
	const struct rsh_vfs_view *view = row->report->view;
	const double time = seconds(f->read_bytes, f->n_runs);
	char name[NAME_MAX + 1];

	rsh_json(out, "%", time);
	rsh_say(out, "%", rsh_v_seconds(time));
	if (f->kind)
		rsh_json(out, "kind:%", f->kind);
	if (!out->json || !row->report->slices)
		return;
	rsh_json(out, "slices:");
	rsh_plan_print_slices(out, view->plan, f->file);
	rsh_vfs_file_name(view->vfs, f->file, name, sizeof(name));
	rsh_json(out, "name:%", name);
}

/* ---- sources ---- */

static const struct rsh_column source_columns[] = {
	{ "rank", "SOURCE RANK", .right = true },
	{ NULL, "READ", .right = true },
	{ NULL, "BY RANKS", .shorten = true },
	{ NULL, "REPLICAS", .shorten = true },
	{ "path", "FILE", .shorten = true },
	{ "bytes", NULL },
	{ "read_by", NULL },
	{ "replicas", NULL },
	{ NULL, NULL }
};

/* ---- the report ---- */

/* Prints the files, and adds them up to `all`. */
static void print_files(struct rsh_printer *out, const struct report *r,
			struct file *all)
{
	rsh_rows(out, file_columns);
	for (size_t i = 0; i < r->n_files; i++) {
		const struct file *f = &r->files[i];
		const struct row row = { r, f };
		const struct rsh_value from = rsh_v_call(put_sources, f);

		all->bytes += f->bytes;
		all->read_bytes += f->read_bytes;
		all->n_runs += f->n_runs;
		rsh_row(out, rsh_v_call(put_rank, f), rsh_v_bytes(f->bytes),
			f->lost, rsh_plan_n_records(r->view->plan, f->file),
			rsh_v_bytes(f->read_bytes), from,
			rsh_v_call(put_runs, f), f->n_runs,
			rsh_v_bytes(f->min_run), rsh_v_bytes(f->median_run),
			rsh_v_bytes(f->max_run), rsh_v_call(put_seconds, &row),
			rsh_v_marked(f->lost ? RSH_MARK_BAD : RSH_MARK_NONE,
				     from));
	}
	rsh_rows_end(out);
}

static void print_sources(struct rsh_printer *out, const struct report *r)
{
	cleanup_free uint32_t *others = rsh_alloc_array(r->n_first,
							sizeof(*others));

	out->failed |= !others;
	rsh_rows(out, source_columns);
	for (size_t i = 0; i < r->n && others; i++) {
		const struct source *s = &r->v[i];
		const struct rsh_value users = rsh_v_u32s(s->users, s->n_users);
		struct rsh_value replicas;
		size_t n = 0;

		/* Those of all rows together may be as many as the ranks
		 * squared. */
		for (uint32_t k = 0; s->rank < r->n_first && k < r->n_first;
		     k++)
			if (k != s->rank && r->first[k] == r->first[s->rank])
				others[n++] = k;
		replicas = rsh_v_u32s(others, n);
		rsh_row(out, s->rank, rsh_v_bytes(s->bytes), users, replicas,
			s->path, s->bytes, users, replicas);
	}
	rsh_rows_end(out);
}

static void print_report(struct rsh_printer *out, const struct report *r,
			 const char *source, bool tensors)
{
	struct file all = { 0 };
	double time;
	char step[256];
	const char *note;

	rsh_source_chosen_text(r->view->source, step, sizeof(step));
	rsh_json(out, "{source:% step:% notes:[", source, step);
	for (uint32_t i = 0; (note = rsh_plan_note(r->view->plan, i)); i++)
		rsh_json(out, "%", note);
	rsh_json(out, "] files:");
	print_files(out, r, &all);
	rsh_say(out, "\n");
	rsh_json(out, "sources:");
	print_sources(out, r);
	time = seconds(all.read_bytes, all.n_runs);
	rsh_say(out, "\n%: % file{|s} of % read % from % source file{|s} in "
		"about % at % MB/s\n", step, r->n_files,
		rsh_v_bytes(all.bytes), rsh_v_bytes(all.read_bytes), r->n,
		rsh_v_seconds(time), BYTES_PER_SECOND / 1000000);
	for (uint32_t i = 0; (note = rsh_plan_note(r->view->plan, i)); i++)
		rsh_say(out, "note: %\n", note);
	rsh_json(out, "total:{bytes:% read_bytes:% runs:% seconds:%} "
		 "assumed:{bytes_per_second:% run_seconds:%}", all.bytes,
		 all.read_bytes, all.n_runs, time, BYTES_PER_SECOND,
		 RUN_SECONDS);
	if (out->json && tensors) {
		rsh_json(out, "tensors:");
		rsh_plan_print_tensors(out, r->view);
	}
	rsh_json(out, "}");
}

int rsh_plan_print(struct rsh_printer *out, const char *source,
		   const struct rsh_vfs_view *view, const bool *wanted,
		   bool slices, bool tensors)
{
	struct report r = { .view = view, .slices = slices };
	int rc = collect(&r, wanted);

	if (rc == 0)
		print_report(out, &r, source, tensors);
	for (size_t i = 0; i < r.n_files; i++)
		free(r.files[i].sources.v);
	free(r.files);
	for (size_t i = 0; r.v && i < r.n; i++)
		free(r.v[i].users);
	free(r.v);
	free(r.first);
	return rc;
}

int rsh_plan_rank_text(const struct rsh_options *o,
		       const struct rsh_vfs_view *view, uint32_t rank,
		       char **text)
{
	const uint32_t n = rsh_plan_files_of_rank(view->plan);
	cleanup_free bool *wanted = calloc(
		(size_t)rsh_plan_n_files(view->plan) + 1, sizeof(*wanted));
	struct rsh_printer out;

	if (!wanted)
		return -ENOMEM;
	memset(wanted + (size_t)rank * n, true, n);
	rsh_printer_init_text(&out, 9, 2);
	out.failed |= rsh_plan_print(&out, o->vfs.source, view, wanted, true,
				     false) != 0;
	*text = rsh_printer_take(&out);
	return *text ? 0 : -ENOMEM;
}
