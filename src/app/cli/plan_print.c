/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/plan_print.c prints the report of `plan`. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>

#include "plan.h"
#include "rsh/source/inspect.h"
#include "rsh/util/mem.h"

/* The estimate assumes that the source delivers so many bytes per second, and
 * that each run costs the following time beside its bytes: to find it, and its
 * part of a scattered read.  These are about the values of small runs of files
 * in the page cache. */
#define BYTES_PER_SECOND 1000000000
#define RUN_SECONDS 1e-6

/* This is one source file, as all virtual files read it. */
struct source {
	uint32_t rank;
	const char *path;
	uint64_t bytes; /* bytes that all virtual files read from it */
	size_t n_users;
	uint32_t *users; /* ranks that read it */
	size_t cap;
	uint32_t group;  /* lowest rank that holds the same content */
};

struct sources {
	struct source *v;
	size_t n;
	uint32_t *first; /* [source rank]: its group; NULL: unknown */
	uint32_t n_first;
	char step[256];  /* the step that was taken */
};

/* ---- collecting ---- */

static double seconds(uint64_t bytes, uint64_t runs)
{
	return (double)bytes / BYTES_PER_SECOND + (double)runs * RUN_SECONDS;
}

static struct rsh_plan_file sum(const struct rsh_plan_report *r)
{
	struct rsh_plan_file all = { 0 };

	for (size_t i = 0; i < r->n; i++) {
		all.bytes += r->files[i].bytes;
		all.read_bytes += r->files[i].read_bytes;
		all.n_runs += r->files[i].n_runs;
		all.lost |= r->files[i].lost;
	}
	return all;
}

static int source_add_user(struct source *s, uint32_t rank, uint64_t bytes)
{
	s->bytes += bytes;
	if (s->n_users && s->users[s->n_users - 1] == rank)
		return 0;
	if (rsh_grow(&s->users, &s->cap, s->n_users + 1, sizeof(*s->users)))
		return -ENOMEM;
	s->users[s->n_users++] = rank;
	return 0;
}

static int collect_sources(const struct rsh_plan_report *r, struct sources *s)
{
	struct rsh_source_view view;
	uint32_t n;

	rsh_source_candidate_text(r->view->source,
				  rsh_source_chosen(r->view->source), s->step,
				  sizeof(s->step));
	rsh_source_view(r->view->source, r->view->names, &view);
	/* Adapters have the numbers after those of the ranks. */
	n = view.n_ranks + view.n_beside;
	s->v = calloc((size_t)n + 1, sizeof(*s->v));
	if (!s->v || rsh_vfs_replicas(r->view->src, &s->first, &s->n_first))
		return -ENOMEM;
	s->n = n;
	for (uint32_t rank = 0; rank < n; rank++)
		s->v[rank] = (struct source){
			.rank = rank, .path = view.path[rank],
			.group = rank < s->n_first ? s->first[rank] : rank,
		};
	for (size_t i = 0; i < r->n; i++)
		for (size_t k = 0; k < r->files[i].n_sources; k++) {
			const struct rsh_plan_source *from =
				&r->files[i].sources[k];

			if (source_add_user(&s->v[from->rank], r->files[i].rank,
					    from->bytes))
				return -ENOMEM;
		}
	/* What is left are those that are read. */
	s->n = 0;
	for (uint32_t rank = 0; rank < n; rank++)
		if (s->v[rank].n_users)
			s->v[s->n++] = s->v[rank];
	return 0;
}

static void sources_clear(struct sources *s)
{
	for (size_t i = 0; s->v && i < s->n; i++)
		free(s->v[i].users);
	free(s->v);
	free(s->first);
}

/* ---- JSON ---- */

static json_t *sources_json(const struct sources *s)
{
	json_t *all = json_array();

	for (size_t i = 0; i < s->n; i++) {
		const struct source *one = &s->v[i];
		json_t *replicas = json_array();

		for (uint32_t r = 0; r < s->n_first; r++)
			if (r != one->rank && s->first[r] == one->group)
				json_array_append_new(replicas,
						      json_integer(r));
		json_array_append_new(
			all, json_pack("{s:i,s:o,s:o,s:o,s:o}", "rank",
				       (int)one->rank, "path",
				       rsh_json_text(one->path), "bytes",
				       rsh_json_u64(one->bytes), "read_by",
				       rsh_json_u32s(one->users, one->n_users),
				       "replicas", replicas));
	}
	return all;
}

/* Returns 0 or -ENOMEM. */
static int add_slices(const struct rsh_plan_report *r, uint32_t file,
		      json_t *to)
{
	char name[NAME_MAX + 1];
	json_t *slices;

	if (rsh_plan_slices_json(r->view->plan, file, &slices))
		return -ENOMEM;
	rsh_vfs_file_name(r->view->vfs, file, name, sizeof(name));
	return json_object_set_new(to, "slices", slices) ||
	       json_object_set_new(to, "name", rsh_json_text(name)) ?
		       -ENOMEM : 0;
}

static json_t *planned_file_json(const struct rsh_plan_report *r,
				 const struct rsh_plan_file *f)
{
	json_t *from = json_array(), *file;

	for (size_t i = 0; i < f->n_sources; i++)
		json_array_append_new(
			from, json_pack("{s:i,s:o}", "rank",
					(int)f->sources[i].rank, "bytes",
					rsh_json_u64(f->sources[i].bytes)));
	file = json_pack(
		"{s:i,s:o,s:b,s:i,s:o,s:o,s:{s:o,s:o,s:o,s:o},s:f}", "rank",
		(int)f->rank, "bytes", rsh_json_u64(f->bytes), "lost", f->lost,
		"records", (int)rsh_plan_n_records(r->view->plan, f->file),
		"read_bytes", rsh_json_u64(f->read_bytes), "sources", from,
		"runs", "count", rsh_json_u64(f->n_runs), "min",
		rsh_json_u64(f->min_run), "median",
		rsh_json_u64(f->median_run), "max", rsh_json_u64(f->max_run),
		"seconds", seconds(f->read_bytes, f->n_runs));
	if (f->kind)
		json_object_set_new(file, "kind", json_string(f->kind));
	if (r->slices && add_slices(r, f->file, file)) {
		json_decref(file);
		return NULL;
	}
	return file;
}

static json_t *report_json(const struct rsh_plan_report *r,
			   const struct sources *s)
{
	const struct rsh_plan_file all = sum(r);
	json_t *files = json_array(), *notes = json_array(), *report, *tensors;
	const char *note;

	for (uint32_t i = 0; (note = rsh_plan_note(r->view->plan, i)); i++)
		json_array_append_new(notes, rsh_json_text(note));
	for (size_t i = 0; i < r->n; i++)
		json_array_append_new(files,
				      planned_file_json(r, &r->files[i]));
	report = json_pack("{s:o,s:o,s:o,s:o,s:o,s:{s:o,s:o,s:o,s:f},"
			   "s:{s:o,s:f}}", "source",
			   rsh_json_text(r->options->vfs.source), "step",
			   rsh_json_text(s->step), "notes", notes, "files",
			   files, "sources", sources_json(s), "total", "bytes",
			   rsh_json_u64(all.bytes), "read_bytes",
			   rsh_json_u64(all.read_bytes), "runs",
			   rsh_json_u64(all.n_runs), "seconds",
			   seconds(all.read_bytes, all.n_runs), "assumed",
			   "bytes_per_second", rsh_json_u64(BYTES_PER_SECOND),
			   "run_seconds", RUN_SECONDS);
	if (!report || !r->tensors)
		return report;
	if (rsh_plan_tensors_json(r->view, &tensors)) {
		json_decref(report);
		return NULL;
	}
	json_object_set_new(report, "tensors", tensors);
	return report;
}

int rsh_plan_rank_json(const struct rsh_options *o,
		       const struct rsh_vfs_view *view, uint32_t rank,
		       json_t **out)
{
	const uint32_t n = rsh_plan_files_of_rank(view->plan);
	struct rsh_plan_file files[2] = { 0 };
	const struct rsh_plan_report r = {
		.options = o, .view = view, .n = n, .files = files,
		.slices = true,
	};
	struct sources s = { 0 };
	int rc = 0;

	for (uint32_t i = 0; i < n && rc == 0; i++)
		rc = rsh_plan_measure(view->plan, rank * n + i, &files[i]);
	rc = rc ?: collect_sources(&r, &s);
	*out = rc ? NULL : report_json(&r, &s);
	sources_clear(&s);
	for (uint32_t i = 0; i < n; i++)
		free(files[i].sources);
	return *out ? 0 : -ENOMEM;
}

/* ---- for people ---- */

static const struct rsh_column file_columns[] = {
	{ "RANK", .right = true },
	{ "SIZE", .right = true },
	{ "READS", .right = true },
	{ "RUNS", .right = true },
	{ "MIN", .right = true },
	{ "MEDIAN", .right = true },
	{ "MAX", .right = true },
	{ "TIME", .right = true },
	{ "FROM RANKS", .wrap = true },
};

static const struct rsh_column source_columns[] = {
	{ "SOURCE RANK", .right = true },
	{ "READ", .right = true },
	{ "BY RANKS", .shorten = true },
	{ "REPLICAS", .shorten = true },
	{ "FILE", .shorten = true },
};

static void bytes_cell(struct rsh_table *t, uint64_t bytes)
{
	char text[32];

	rsh_table_cell(t, "%s", rsh_text_bytes(bytes, text, sizeof(text)));
}

static void add_file_row(struct rsh_table *t, const struct rsh_plan_file *f)
{
	char text[32];

	rsh_table_cell(t, "%" PRIu32 "%s%s", f->rank, f->kind ? " " : "",
		       f->kind ? f->kind : "");
	bytes_cell(t, f->bytes);
	bytes_cell(t, f->read_bytes);
	rsh_table_cell(t, "%" PRIu64, f->n_runs);
	bytes_cell(t, f->min_run);
	bytes_cell(t, f->median_run);
	bytes_cell(t, f->max_run);
	rsh_table_cell(t, "%s", rsh_text_seconds(seconds(f->read_bytes,
							 f->n_runs),
						 text, sizeof(text)));
	if (f->lost) {
		rsh_table_mark(t, RSH_MARK_BAD, "slices are lost");
		return;
	}
	rsh_table_cell(t, "%s", f->n_sources ? "" : "-");
	for (size_t i = 0; i < f->n_sources; i++)
		rsh_table_add(t, "%s%" PRIu32 ": %s", i ? ", " : "",
			      f->sources[i].rank,
			      rsh_text_bytes(f->sources[i].bytes, text,
					     sizeof(text)));
}

static void add_source_row(struct rsh_table *t, const struct sources *s,
			   const struct source *one)
{
	bool any = false;

	rsh_table_cell(t, "%" PRIu32, one->rank);
	bytes_cell(t, one->bytes);
	rsh_table_cell(t, "%s", one->n_users ? "" : "-");
	for (size_t i = 0; i < one->n_users; i++)
		rsh_table_add(t, "%s%" PRIu32, i ? " " : "", one->users[i]);
	rsh_table_cell(t, "%s", "");
	for (uint32_t r = 0; r < s->n_first; r++)
		if (r != one->rank && s->first[r] == one->group) {
			rsh_table_add(t, "%s%" PRIu32, any ? " " : "", r);
			any = true;
		}
	rsh_table_add(t, "%s", any ? "" : "-");
	rsh_table_cell(t, "%s", one->path);
}

static int print_tables(const struct rsh_printer *out,
			const struct rsh_plan_report *r,
			const struct sources *s)
{
	const struct rsh_plan_file all = sum(r);
	struct rsh_table *files = RSH_TABLE(file_columns);
	struct rsh_table *sources = RSH_TABLE(source_columns);
	char size[32], reads[32], time[32];
	const char *note;
	int rc;

	for (size_t i = 0; i < r->n; i++)
		add_file_row(files, &r->files[i]);
	for (size_t i = 0; i < s->n; i++)
		add_source_row(sources, s, &s->v[i]);
	rc = rsh_table_print(files, out);
	fputc('\n', out->f);
	if (rsh_table_print(sources, out) || rc)
		return -ENOMEM;
	fputc('\n', out->f);
	rsh_printer_put(out, s->step);
	fprintf(out->f, ": %zu file%s of %s read %s from %zu source file%s "
		"in about %s at %d MB/s\n", r->n, r->n == 1 ? "" : "s",
		rsh_text_bytes(all.bytes, size, sizeof(size)),
		rsh_text_bytes(all.read_bytes, reads, sizeof(reads)), s->n,
		s->n == 1 ? "" : "s",
		rsh_text_seconds(seconds(all.read_bytes, all.n_runs), time,
				 sizeof(time)), BYTES_PER_SECOND / 1000000);
	for (uint32_t i = 0; (note = rsh_plan_note(r->view->plan, i)); i++) {
		fputs("note: ", out->f);
		rsh_printer_line(out, note);
	}
	return 0;
}

int rsh_plan_print(const struct rsh_options *o, const struct rsh_plan_report *r)
{
	struct sources s = { 0 };
	struct rsh_printer out;
	int rc = collect_sources(r, &s);

	rsh_printer_init(&out, o);
	if (rc == 0)
		rc = out.json ? rsh_printer_json(&out, report_json(r, &s)) :
				print_tables(&out, r, &s);
	sources_clear(&s);
	return rc;
}
