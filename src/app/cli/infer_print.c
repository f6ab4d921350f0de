/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/infer_print.c prints what was inferred, as a table and text, or as
 * JSON. */
#include "config.h"

#include "infer.h"

#include <stdlib.h>
#include <string.h>

#include "rsh/source/inspect.h"
#include "rsh/util/mem.h"

/* So many are listed, the others are counted. */
#define GROUPS_MAX 4
#define RANKS_MAX 4
#define NAMES_MAX 3
#define SETS_MAX 16

/* ---- ranks ---- */

/* Prints ranks as "0-3", "0,4", "0-2,4-7" or "0,8,16,...,1016". */
static void say_ranks(struct rsh_printer *out, const uint32_t *ranks,
		      uint32_t n)
{
	unsigned told = 0;
	uint32_t end;

	for (uint32_t i = 0; i < n; i = end) {
		bool run = i + 2 < n && ranks[i + 2] == ranks[i] + 2;

		for (end = i + 1; run && end < n &&
				  ranks[end] == ranks[end - 1] + 1; end++)
			;
		if (++told == RANKS_MAX && end < n) {
			rsh_say(out, ",...,%", ranks[n - 1]);
			return;
		}
		rsh_say(out, "%%", i ? "," : "", ranks[i]);
		if (run)
			rsh_say(out, "-%", ranks[end - 1]);
	}
}

/* Prints the ranks of each group: arrays, or "0,1 | 2,3" if neither all groups
 * nor all ranks are alone.  Group numbers are below `span`. */
static void print_groups(struct rsh_printer *out, const uint32_t *ranks,
			 const uint32_t *group, uint32_t n, uint32_t span)
{
	cleanup_free uint32_t *some = rsh_alloc_array(n, sizeof(*some));
	cleanup_free bool *seen = calloc((size_t)span + 1, sizeof(*seen));
	uint32_t told = 0, n_groups = 0;

	out->failed |= !some || !seen;
	for (uint32_t i = 0; !out->failed && i < n; i++) {
		n_groups += !seen[group[i]];
		seen[group[i]] = true;
	}
	if (!out->json && (n_groups == n || n_groups == 1)) {
		rsh_say(out, n_groups == 1 ? "all" : "-");
		return;
	}
	rsh_json(out, "[");
	for (uint32_t i = 0; !out->failed && i < n; i++) {
		uint32_t k = 0;

		if (!seen[group[i]])
			continue;
		seen[group[i]] = false;
		for (uint32_t j = i; j < n; j++)
			if (group[j] == group[i])
				some[k++] = ranks[j];
		rsh_json(out, "%", rsh_v_u32s(some, k));
		rsh_say(out, told ? " | " : "");
		if (!out->json && told++ == GROUPS_MAX) {
			rsh_say(out, "... (% groups)", n_groups);
			break;
		}
		say_ranks(out, some, k);
	}
	rsh_json(out, "]");
}

/* ---- a tensor ---- */

struct row {
	const struct rsh_infer *infer;
	const struct rsh_infer_tensor *tensor;
};

static void put_ranks(struct rsh_printer *out, const void *ctx)
{
	const struct row *row = ctx;
	const struct rsh_infer_set *s =
		&row->infer->sets[row->tensor->set];

	say_ranks(out, s->ranks, s->n);
}

/* Prints the groups that were compared.  People see those of the tensor's
 * mesh if there is one. */
static void put_groups(struct rsh_printer *out, const void *ctx)
{
	const struct row *row = ctx;
	const struct rsh_infer_tensor *t = row->tensor;
	const struct rsh_infer_set *s = &row->infer->sets[t->set];
	cleanup_free uint32_t *group = NULL;

	if (out->json || (t->n > 1 && t->verdict != RSH_VERDICT_MESH)) {
		print_groups(out, t->ranks, t->group, t->n, s->n);
		if (t->n < s->n)
			rsh_say(out, " of % compared", t->n);
	} else if (t->n < 2) {
		rsh_say(out, "-");
	} else {
		group = rsh_infer_groups(row->infer, t);
		out->failed |= !group;
		if (group)
			print_groups(out, s->ranks, group, s->n, s->span);
	}
}

static const struct {
	const char *word, *text;
} verdicts[RSH_N_VERDICTS] = {
	[RSH_VERDICT_ALONE] = { "alone", "-" },
	[RSH_VERDICT_UNREAD] = { "unreadable", "? (unreadable)" },
	[RSH_VERDICT_SCATTERED] = { "scattered", "- (ranks not consecutive)" },
	[RSH_VERDICT_SIMPLE] = { "constant", "? (constant)" },
	[RSH_VERDICT_MESH] = { "mesh", NULL },
	[RSH_VERDICT_SEVERAL] = { "several", "? (several match)" },
	[RSH_VERDICT_NONE] = { "none", "none" },
	[RSH_VERDICT_PRIVATE] = { "private", "- (differs by rank)" },
};

static void put_mesh(struct rsh_printer *out, const void *ctx)
{
	const struct rsh_infer_mesh *m = ctx;
	char text[256];

	rsh_json(out, "{mesh:[");
	for (unsigned i = 0; i < m->n_axes; i++)
		rsh_json(out, "%", m->axes[i].size);
	rsh_json(out, "] cut:[");
	for (unsigned i = 0; i < m->n_axes; i++)
		if (m->axes[i].cuts)
			rsh_json(out, "%", i);
	rsh_json(out, "]}");
	/* People see a text such as "[2,4] cut over axis 1". */
	rsh_partition_mesh_text(m->axes, m->n_axes, text, sizeof(text));
	rsh_say(out, "%", text + strlen("mesh "));
}

static void print_tensors(struct rsh_printer *out, const struct rsh_infer *x)
{
	static const struct rsh_column columns[] = {
		{ "name", "PARAMETER", .shorten = true },
		{ "dtype", "TYPE" },
		{ "shape", "SLICE" },
		{ "bytes", NULL },
		{ "set", NULL },
		{ "compared", NULL },
		{ NULL, "RANKS", .shorten = true },
		{ "groups", "SAME ON RANKS", .shorten = true },
		{ "verdict", NULL },
		{ "layout", "MESH", .shorten = true },
		{ "fits", NULL },
		{ NULL, NULL }
	};

	rsh_rows(out, columns);
	for (size_t i = 0; i < x->n_tensors; i++) {
		const struct rsh_infer_tensor *t = &x->tensors[i];
		const struct rsh_record *r = t->record;
		const struct row row = { x, t };
		const bool has = t->verdict == RSH_VERDICT_MESH;
		const bool bad = t->verdict == RSH_VERDICT_NONE ||
				 (has && !t->fits);

		rsh_row(out, rsh_names_text(x->names, t->name),
			rsh_dtype_name((enum rsh_dtype)r->dtype),
			rsh_v_dims(rsh_record_dims(t->index, r), r->n_dims),
			r->content_bytes, t->set, rsh_v_u32s(t->ranks, t->n),
			rsh_v_call(put_ranks, &row),
			rsh_v_call(put_groups, &row), verdicts[t->verdict].word,
			rsh_v_marked(bad ? RSH_MARK_BAD : RSH_MARK_NONE,
				     has ? rsh_v_call(put_mesh, &t->mesh) :
				     out->json ? RSH_V_NULL :
				     rsh_v_text(verdicts[t->verdict].text)),
			t->fits);
	}
	rsh_rows_end(out);
}

/* ---- a set of ranks ---- */

/* Prints " 5 do not match it (a, b, c and 2 more)". */
static void say_verdict(struct rsh_printer *out, const struct rsh_infer *x,
			uint32_t set, enum rsh_verdict verdict,
			const char *said)
{
	uint32_t n = x->sets[set].by_verdict[verdict];
	uint32_t told = 0;

	if (verdict == RSH_VERDICT_MESH)
		n -= x->sets[set].n_fit;
	if (n == 0)
		return;
	rsh_say(out, "  % %", n, said);
	for (size_t i = 0; i < x->n_tensors && told < NAMES_MAX; i++) {
		const struct rsh_infer_tensor *t = &x->tensors[i];

		if (t->set == set && t->verdict == verdict && !t->fits)
			rsh_say(out, "%%", told++ ? ", " : " (",
				rsh_names_text(x->names, t->name));
	}
	if (n > told)
		rsh_say(out, " and % more", n - told);
	rsh_say(out, told ? ")\n" : "");
}

static void print_set(struct rsh_printer *out, const struct rsh_infer *x,
		      uint32_t set)
{
	static const struct {
		enum rsh_verdict verdict;
		const char *said;
	} said[] = {
		{ RSH_VERDICT_MESH, "do not match it" },
		{ RSH_VERDICT_NONE, "match no mesh" },
		{ RSH_VERDICT_SEVERAL, "match several meshes" },
		{ RSH_VERDICT_PRIVATE, "differ on all ranks and are not "
		  "weights by their names: each rank seems to have its own" },
		{ RSH_VERDICT_SIMPLE, "show nothing: the data that ranks share "
		  "is constant, or a single number" },
		{ RSH_VERDICT_UNREAD, "could not be read" },
		{ RSH_VERDICT_SCATTERED, "are not used to find a mesh: their "
		  "ranks are not consecutive" },
	};
	const struct rsh_infer_set *s = &x->sets[set];
	const uint32_t n_mesh = s->by_verdict[RSH_VERDICT_MESH];
	const uint32_t last = s->first + s->span - 1;
	char text[256];

	rsh_json(out, "{ranks:% first:% span:% tensors:% layout:% explained:%}",
		 rsh_v_u32s(s->ranks, s->n), s->first, s->span, s->n_tensors,
		 RSH_V_IF(n_mesh, rsh_v_call(put_mesh, &s->mesh)), s->n_fit);
	if (out->json || set > SETS_MAX)
		return;
	if (set == SETS_MAX) {
		rsh_say(out, "and % more sets of ranks; --json has all\n",
			x->n_sets - SETS_MAX);
		return;
	}
	rsh_say(out, s->n == 1 ? "rank %: % tensor{|s}" :
		"ranks %: % tensor{|s}",
		rsh_partition_ranks_text(s->ranks, s->n, text, sizeof(text)),
		s->n_tensors);
	if (s->first != s->ranks[0] || last != s->ranks[s->n - 1])
		rsh_say(out, "; taken for a part of ranks % to %", s->first,
			last);
	if (s->n == 1)
		rsh_say(out, "; nothing to compare them with\n");
	else if (n_mesh == 0)
		rsh_say(out, "; none of them shows a mesh\n");
	else
		rsh_say(out, "; % explains % of the % that show one\n",
			rsh_partition_mesh_text(s->mesh.axes, s->mesh.n_axes,
						text, sizeof(text)),
			s->n_fit, n_mesh);
	for (size_t i = 0; i < sizeof(said) / sizeof(*said); i++)
		say_verdict(out, x, set, said[i].verdict, said[i].said);
}

/* ---- all ---- */

void rsh_infer_print(struct rsh_printer *out, const struct rsh_infer *x)
{
	const struct rsh_sentences *s = &x->sentences;

	rsh_json(out, "{source:% step:% parameters:", x->options->vfs.source,
		 x->step);
	print_tensors(out, x);
	rsh_say(out, "\n%, % files\n", x->step, rsh_source_n_files(x->source));
	rsh_json(out, "sets:[");
	for (uint32_t i = 0; i < x->n_sets; i++)
		print_set(out, x, i);
	rsh_json(out, "] hints:");
	rsh_say(out, x->n_hints > 0 ? "\nHints:\n" : "");
	rsh_sentences_print(s, 0, x->n_hints, "- ", out);
	rsh_json(out, "unknown:");
	rsh_say(out, "\nContents cannot tell\n");
	rsh_sentences_print(s, x->n_hints, s->n, "- ", out);
	rsh_json(out, "}");
}
