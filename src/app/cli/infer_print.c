/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/infer_print.c prints what was inferred, as a table and text, or as
 * JSON. */
#include "config.h"

#include "infer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/source/inspect.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"

/* So many are listed, the others are counted. */
#define GROUPS_MAX 4
#define RANKS_MAX 4
#define NAMES_MAX 3
#define SETS_MAX 16

static const struct rsh_column columns[] = {
	{ "PARAMETER", .shorten = true },
	{ "TYPE" },
	{ "SLICE" },
	{ "RANKS", .shorten = true },
	{ "SAME ON RANKS", .shorten = true },
	{ "MESH", .shorten = true },
};

/* ---- ranks ---- */

/* Prints ranks as "0-3", "0,4", "0-2,4-7" or "0,8,16,...,1016". */
static void put_ranks(struct rsh_table *to, const uint32_t *ranks, uint32_t n)
{
	unsigned told = 0;
	uint32_t end;

	for (uint32_t i = 0; i < n; i = end) {
		bool run = i + 2 < n && ranks[i + 2] == ranks[i] + 2;

		for (end = i + 1; run && end < n &&
				  ranks[end] == ranks[end - 1] + 1; end++)
			;
		if (++told == RANKS_MAX && end < n) {
			rsh_table_add(to, ",...,%" PRIu32, ranks[n - 1]);
			return;
		}
		rsh_table_add(to, "%s%" PRIu32, i ? "," : "", ranks[i]);
		if (run)
			rsh_table_add(to, "-%" PRIu32, ranks[end - 1]);
	}
}

static void put_groups(struct rsh_table *to, const uint32_t *ranks,
		       const uint32_t *group, uint32_t n, uint32_t n_groups)
{
	cleanup_free uint32_t *some = rsh_alloc_array(n, sizeof(*some));
	uint32_t told = 0;

	if (n_groups == n || n_groups == 1 || !some) {
		rsh_table_add(to, "%s", n_groups == 1 ? "all" : "-");
		return;
	}
	for (uint32_t i = 0; i < n; i++) {
		uint32_t first = 0, k = 0;

		while (group[first] != group[i])
			first++;
		if (first != i)
			continue;
		rsh_table_add(to, "%s", told ? " | " : "");
		if (told++ == GROUPS_MAX) {
			rsh_table_add(to, "... (%" PRIu32 " groups)", n_groups);
			return;
		}
		for (uint32_t j = i; j < n; j++)
			if (group[j] == group[i])
				some[k++] = ranks[j];
		put_ranks(to, some, k);
	}
}

static uint32_t count_groups(const uint32_t *group, uint32_t n, uint32_t span)
{
	cleanup_free bool *seen = calloc((size_t)span + 1, sizeof(*seen));
	uint32_t k = 0;

	for (uint32_t i = 0; seen && i < n; i++) {
		k += !seen[group[i]];
		seen[group[i]] = true;
	}
	return k;
}

/* Prints the groups of the tensor's mesh, or else the groups that were
 * compared. */
static int put_same(struct rsh_table *to, const struct rsh_infer *x,
		    const struct rsh_infer_tensor *t)
{
	const struct rsh_infer_set *s = &x->sets[t->set];
	cleanup_free uint32_t *group = NULL;

	if (t->n < 2) {
		rsh_table_add(to, "-");
		return 0;
	}
	if (t->verdict != RSH_VERDICT_MESH) {
		put_groups(to, t->ranks, t->group, t->n, t->n_groups);
		if (t->n < s->n)
			rsh_table_add(to, " of %" PRIu32 " compared", t->n);
		return 0;
	}
	group = rsh_infer_groups(x, t);
	if (!group)
		return -ENOMEM;
	put_groups(to, s->ranks, group, s->n,
		   count_groups(group, s->n, s->span));
	return 0;
}

/* ---- the table ---- */

static void add_mesh(struct rsh_table *table, const struct rsh_infer_tensor *t)
{
	static const char *const texts[RSH_N_VERDICTS] = {
		[RSH_VERDICT_ALONE] = "-",
		[RSH_VERDICT_UNREAD] = "? (unreadable)",
		[RSH_VERDICT_SCATTERED] = "- (ranks not consecutive)",
		[RSH_VERDICT_SIMPLE] = "? (constant)",
		[RSH_VERDICT_SEVERAL] = "? (several match)",
		[RSH_VERDICT_NONE] = "none",
		[RSH_VERDICT_PRIVATE] = "- (differs by rank)",
	};
	char text[256];

	if (t->verdict != RSH_VERDICT_MESH) {
		rsh_table_mark(table, t->verdict == RSH_VERDICT_NONE ?
			       RSH_MARK_BAD : RSH_MARK_NONE, texts[t->verdict]);
		return;
	}
	/* The cell has a text such as "[2,4] cut over axis 1". */
	rsh_partition_mesh_text(t->mesh.axes, t->mesh.n_axes, text,
				sizeof(text));
	rsh_table_mark(table, t->fits ? RSH_MARK_NONE : RSH_MARK_BAD,
		       text + strlen("mesh "));
}

static int add_verdict_row(struct rsh_table *table, const struct rsh_infer *x,
			   const struct rsh_infer_tensor *t)
{
	const struct rsh_infer_set *s = &x->sets[t->set];
	int rc;

	rsh_table_cell(table, "%s", rsh_names_text(x->names, t->name));
	rsh_table_type(table, (enum rsh_dtype)t->record->dtype,
		       rsh_record_dims(t->index, t->record), t->record->n_dims);
	rsh_table_cell(table, "%s", "");
	put_ranks(table, s->ranks, s->n);
	rsh_table_cell(table, "%s", "");
	rc = put_same(table, x, t);
	add_mesh(table, t);
	return rc;
}

/* ---- below the table ---- */

static void print_set_verdict(FILE *f, const struct rsh_infer *x, uint32_t set,
			      enum rsh_verdict verdict, const char *said)
{
	uint32_t n = x->sets[set].by_verdict[verdict];
	uint32_t told = 0;

	if (verdict == RSH_VERDICT_MESH)
		n -= x->sets[set].n_fit;
	if (n == 0)
		return;
	fprintf(f, "  %" PRIu32 " %s", n, said);
	/* Print " (a, b, c and 5 more)". */
	for (size_t i = 0; i < x->n_tensors && told < NAMES_MAX; i++) {
		const struct rsh_infer_tensor *t = &x->tensors[i];
		char *name;

		if (t->set != set || t->verdict != verdict || t->fits)
			continue;
		name = rsh_text_escape(rsh_names_text(x->names, t->name));
		fprintf(f, "%s%s", told++ ? ", " : " (", name ? name : "?");
		free(name);
	}
	if (n > told)
		fprintf(f, " and %" PRIu32 " more", n - told);
	if (told > 0)
		fputs(")\n", f);
}

static void print_set(FILE *f, const struct rsh_infer *x, uint32_t set)
{
	const struct rsh_infer_set *s = &x->sets[set];
	const uint32_t n_mesh = s->by_verdict[RSH_VERDICT_MESH];
	char ranks[256], mesh[256];

	fprintf(f, "rank%s %s: %" PRIu32 " tensor%s", s->n == 1 ? "" : "s",
		rsh_partition_ranks_text(s->ranks, s->n, ranks, sizeof(ranks)),
		s->n_tensors, s->n_tensors == 1 ? "" : "s");
	if (s->first != s->ranks[0] ||
	    s->first + s->span - 1 != s->ranks[s->n - 1])
		fprintf(f, "; taken for a part of ranks %" PRIu32 " to %"
			PRIu32, s->first, s->first + s->span - 1);
	if (s->n == 1)
		fputs("; nothing to compare them with\n", f);
	else if (n_mesh == 0)
		fputs("; none of them shows a mesh\n", f);
	else
		fprintf(f, "; %s explains %" PRIu32 " of the %" PRIu32 " "
			"that show one\n",
			rsh_partition_mesh_text(s->mesh.axes, s->mesh.n_axes,
						mesh, sizeof(mesh)),
			s->n_fit, n_mesh);
	print_set_verdict(f, x, set, RSH_VERDICT_MESH, "do not match it");
	print_set_verdict(f, x, set, RSH_VERDICT_NONE, "match no mesh");
	print_set_verdict(f, x, set, RSH_VERDICT_SEVERAL,
			  "match several meshes");
	print_set_verdict(
		f, x, set, RSH_VERDICT_PRIVATE,
		"differ on all ranks and are not weights by their names: "
		"each rank seems to have its own");
	print_set_verdict(
		f, x, set, RSH_VERDICT_SIMPLE,
		"show nothing: the data that ranks share is constant, or a "
		"single number");
	print_set_verdict(f, x, set, RSH_VERDICT_UNREAD, "could not be read");
	print_set_verdict(
		f, x, set, RSH_VERDICT_SCATTERED,
		"are not used to find a mesh: their ranks are not consecutive");
}

/* ---- JSON ---- */

static json_t *groups_json(const struct rsh_infer_tensor *t)
{
	json_t *groups = json_array();

	for (uint32_t i = 0; i < t->n; i++) {
		json_t *group;
		uint32_t k = 0;

		while (t->group[k] != t->group[i])
			k++;
		if (k < i)
			continue;
		group = json_array();
		for (; k < t->n; k++)
			if (t->group[k] == t->group[i])
				json_array_append_new(
					group, json_integer(t->ranks[k]));
		json_array_append_new(groups, group);
	}
	return groups;
}

static json_t *mesh_json(const struct rsh_infer_mesh *m)
{
	json_t *mesh = json_array(), *cut = json_array();

	for (unsigned i = 0; i < m->n_axes; i++) {
		json_array_append_new(mesh, json_integer(m->axes[i].size));
		if (m->axes[i].cuts)
			json_array_append_new(cut, json_integer(i));
	}
	return json_pack("{s:o,s:o}", "mesh", mesh, "cut", cut);
}

static json_t *tensor_json(const struct rsh_infer *x,
			   const struct rsh_infer_tensor *t)
{
	static const char *const verdicts[RSH_N_VERDICTS] = {
		[RSH_VERDICT_ALONE] = "alone",
		[RSH_VERDICT_UNREAD] = "unreadable",
		[RSH_VERDICT_SCATTERED] = "scattered",
		[RSH_VERDICT_SIMPLE] = "constant",
		[RSH_VERDICT_MESH] = "mesh",
		[RSH_VERDICT_SEVERAL] = "several",
		[RSH_VERDICT_NONE] = "none",
		[RSH_VERDICT_PRIVATE] = "private",
	};

	return json_pack("{s:o,s:s,s:o,s:o,s:i,s:o,s:o,s:s,s:o,s:b}", "name",
			 rsh_json_text(rsh_names_text(x->names, t->name)),
			 "dtype",
			 rsh_dtype_name((enum rsh_dtype)t->record->dtype),
			 "shape",
			 rsh_ls_shape_json(rsh_record_dims(t->index, t->record),
					   t->record->n_dims),
			 "bytes", rsh_json_u64(t->record->content_bytes),
			 "set", (int)t->set, "compared",
			 rsh_json_u32s(t->ranks, t->n), "groups",
			 groups_json(t), "verdict", verdicts[t->verdict],
			 "layout", t->verdict == RSH_VERDICT_MESH ?
			 mesh_json(&t->mesh) : json_null(), "fits", t->fits);
}

static json_t *sentences_json(const struct rsh_infer *x, size_t from,
			      size_t end)
{
	json_t *all = json_array();

	for (size_t i = from; i < end; i++)
		json_array_append_new(all, rsh_json_text(x->sentences.v[i]));
	return all;
}

static int print_inferred_json(const struct rsh_printer *out,
			       const struct rsh_infer *x)
{
	json_t *tensors = json_array(), *sets = json_array();

	for (size_t i = 0; i < x->n_tensors; i++)
		json_array_append_new(tensors, tensor_json(x, &x->tensors[i]));
	for (size_t i = 0; i < x->n_sets; i++) {
		const struct rsh_infer_set *s = &x->sets[i];

		json_array_append_new(
			sets, json_pack("{s:o,s:i,s:i,s:i,s:o,s:i}", "ranks",
					rsh_json_u32s(s->ranks, s->n), "first",
					(int)s->first, "span", (int)s->span,
					"tensors", (int)s->n_tensors, "layout",
					s->by_verdict[RSH_VERDICT_MESH] ?
					mesh_json(&s->mesh) : json_null(),
					"explained", (int)s->n_fit));
	}
	return rsh_printer_json(
		out, json_pack("{s:o,s:o,s:o,s:o,s:o,s:o}", "source",
			       rsh_json_text(x->options->vfs.source), "step",
			       rsh_json_text(x->step), "parameters", tensors,
			       "sets", sets, "hints",
			       sentences_json(x, 0, x->n_hints), "unknown",
			       sentences_json(x, x->n_hints, x->sentences.n)));
}

/* ---- all ---- */

static void print_sentences(const struct rsh_printer *out,
			    const struct rsh_infer *x, size_t from, size_t end)
{
	for (size_t i = from; i < end; i++) {
		fputs("- ", out->f);
		rsh_printer_line(out, x->sentences.v[i]);
	}
}

int rsh_infer_print(const struct rsh_printer *out, const struct rsh_infer *x)
{
	struct rsh_table *table;
	int rc = 0;

	if (out->json)
		return print_inferred_json(out, x);
	table = RSH_TABLE(columns);
	for (size_t i = 0; i < x->n_tensors && rc == 0; i++)
		rc = add_verdict_row(table, x, &x->tensors[i]);
	if (rc)
		rsh_table_free(table);
	if (rc || rsh_table_print(table, out))
		return -ENOMEM;
	fprintf(out->f, "\n%s, %" PRIu32 " files\n", x->step,
		rsh_source_n_files(x->source));
	for (uint32_t i = 0; i < x->n_sets && i < SETS_MAX; i++)
		print_set(out->f, x, i);
	if (x->n_sets > SETS_MAX)
		fprintf(out->f, "and %zu more sets of ranks; --json has all\n",
			x->n_sets - SETS_MAX);
	if (x->n_hints > 0)
		fputs("\nHints:\n", out->f);
	print_sentences(out, x, 0, x->n_hints);
	fputs("\nContents cannot tell\n", out->f);
	print_sentences(out, x, x->n_hints, x->sentences.n);
	return 0;
}
