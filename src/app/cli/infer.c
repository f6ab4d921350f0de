/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/infer.c runs `strategy infer`: it chooses the step, groups the
 * tensors that the same ranks hold into sets, and finds a mesh for each set. */
#include "config.h"

#include "commands.h"
#include "infer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/source/format.h"
#include "rsh/source/inspect.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/vfs/choice.h"

/* ---- what is printed ---- */

/* Besides what was inferred there are sentences about what shapes and holders
 * of slices suggest, and what contents cannot show. */

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

	if (out->json || (t->of.n > 1 && t->verdict != RSH_VERDICT_MESH)) {
		print_groups(out, t->of.ranks, t->of.group, t->of.n, s->n);
		if (t->of.n < s->n)
			rsh_say(out, " of % compared", t->of.n);
	} else if (t->of.n < 2) {
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

static void put_axes(struct rsh_printer *out, const void *ctx)
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
		const struct rsh_record *r = t->of.record;
		const struct row row = { x, t };
		const bool has = t->verdict == RSH_VERDICT_MESH;
		const bool bad = t->verdict == RSH_VERDICT_NONE ||
				 (has && !t->fits);

		rsh_row(out, rsh_names_text(x->names, t->of.name),
			rsh_dtype_name((enum rsh_dtype)r->dtype),
			rsh_v_dims(rsh_record_dims(t->of.index, r), r->n_dims),
			r->content_bytes, t->set,
			rsh_v_u32s(t->of.ranks, t->of.n),
			rsh_v_call(put_ranks, &row),
			rsh_v_call(put_groups, &row), verdicts[t->verdict].word,
			rsh_v_marked(bad ? RSH_MARK_BAD : RSH_MARK_NONE,
				     has ? rsh_v_call(put_axes, &t->mesh) :
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
				rsh_names_text(x->names, t->of.name));
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
		 RSH_V_IF(n_mesh, rsh_v_call(put_axes, &s->mesh)), s->n_fit);
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

/* ---- hints, and what cannot be known ---- */

#define say(x, ...) rsh_sentences_add(&(x)->sentences, __VA_ARGS__)

static const char *hint_shape(const struct rsh_ckpt_index *ix,
			      const struct rsh_record *r, char *text)
{
	return rsh_dims_text((const uint64_t *)rsh_record_dims(ix, r),
			     r->n_dims, text, RSH_SHAPE_TEXT_MAX);
}

/* Returns whether the slice of a state is a part of its parameter's slice in
 * one dimension, the only one in which they differ. */
static bool is_cut_further(const struct rsh_infer_tensor *state,
			   const struct rsh_infer_tensor *of, uint32_t *dim,
			   int64_t *times)
{
	const int64_t *a = rsh_record_dims(state->of.index, state->of.record);
	const int64_t *b = rsh_record_dims(of->of.index, of->of.record);
	uint32_t n = 0;

	if (state->of.record->n_dims != of->of.record->n_dims)
		return false;
	for (uint32_t d = 0; d < of->of.record->n_dims; d++)
		if (a[d] != b[d]) {
			*dim = d;
			n++;
		}
	if (n != 1 || a[*dim] == 0 || b[*dim] <= a[*dim] || b[*dim] % a[*dim])
		return false;
	*times = b[*dim] / a[*dim];
	return true;
}

static void say_states(struct rsh_infer *x)
{
	const uint32_t n_names = rsh_names_count(x->names);
	/* Tensors by the numbers of their names. */
	cleanup_free const struct rsh_infer_tensor **at =
		calloc((size_t)n_names + 1, sizeof(*at));
	const struct rsh_infer_tensor *state = NULL, *of = NULL;
	char a[RSH_SHAPE_TEXT_MAX], b[RSH_SHAPE_TEXT_MAX];
	uint32_t n = 0, dim = 0;
	int64_t times = 0;

	x->sentences.failed |= !at;
	for (size_t i = 0; at && i < x->n_tensors; i++)
		at[x->tensors[i].of.name] = &x->tensors[i];
	for (size_t i = x->n_tensors; at && i-- > 0;) {
		const struct rsh_infer_tensor *t = &x->tensors[i];
		const struct rsh_infer_tensor *whole =
			t->of.state_of == RSH_NAME_NONE ? NULL :
			at[t->of.state_of];
		uint32_t d;
		int64_t q;

		if (!whole || !is_cut_further(t, whole, &d, &q))
			continue;
		n++;
		state = t;
		of = whole;
		dim = d;
		times = q;
	}
	if (n > 0)
		say(x, "%u optimizer state%s smaller than what %s of: "
		    "dimension %u of %s %s is cut %lld times more than that of "
		    "%s %s, as by an optimizer shard", n,
		    n == 1 ? " is" : "s are",
		    n == 1 ? "it is" : "they are", dim,
		    rsh_names_text(x->names, state->of.name),
		    hint_shape(state->of.index, state->of.record, a),
		    (long long)times, rsh_names_text(x->names, of->of.name),
		    hint_shape(of->of.index, of->of.record, b));
}

static void say_odd_shapes(struct rsh_infer *x)
{
	const struct rsh_infer_tensor *first = NULL;
	char a[RSH_SHAPE_TEXT_MAX], b[RSH_SHAPE_TEXT_MAX];
	const struct rsh_ckpt_index *ix;
	uint32_t n = 0;

	for (size_t i = x->n_tensors; i-- > 0;)
		if (x->tensors[i].of.odd_rank != UINT32_MAX) {
			first = &x->tensors[i];
			n++;
		}
	if (n == 0)
		return;
	ix = x->view.index[first->of.odd_rank];
	say(x, "%u tensor%s not of one shape or type on all ranks: %s is %s on "
	    "rank %u and %s on rank %u; where only one dimension differs, that "
	    "one is cut", n, n == 1 ? " is" : "s are",
	    rsh_names_text(x->names, first->of.name),
	    hint_shape(first->of.index, first->of.record, a),
	    x->sets[first->set].ranks[0],
	    hint_shape(ix, rsh_ckpt_find(ix, first->of.name), b),
	    first->of.odd_rank);
}

static void say_sets(struct rsh_infer *x)
{
	if (x->n_sets < 2)
		return;
	if (rsh_any(i, x->n_tensors,
		    x->tensors[i].verdict == RSH_VERDICT_MESH &&
		    x->tensors[i].of.n_groups < x->tensors[i].of.n))
		say(x, "tensors are on %zu different sets of ranks: sets that "
		    "follow each other are pipeline stages", x->n_sets);
	else
		say(x, "tensors are on %zu different sets of ranks, and no two "
		    "ranks hold the same data: either pipeline stages, or a "
		    "save with redundancy removed; in that case the replicas "
		    "are unknown, and a tensor has as many slices as ranks "
		    "that hold it", x->n_sets);
}

static void say_lost(struct rsh_infer *x)
{
	cleanup_free uint32_t *lost = rsh_alloc_array(
		x->n_there + x->view.n_ranks, sizeof(*lost));
	char text[256];
	uint32_t n = 0, next = 0;

	x->sentences.failed |= !lost;
	/* These are the ranks of the tree, and the ranks missing between
	 * them. */
	for (size_t i = 0; lost && i < x->n_there; i++) {
		for (; next < x->there[i] && next < x->view.n_ranks; next++)
			if (!rsh_infer_has_file(x, next))
				lost[n++] = next;
		if (!rsh_infer_has_file(x, x->there[i]))
			lost[n++] = x->there[i];
		next = x->there[i] + 1;
	}
	if (n > 0)
		say(x, "rank%s %s ha%s no valid file of this step: data that "
		    "no other rank holds is unknown, and meshes include %s",
		    n == 1 ? "" : "s",
		    rsh_partition_ranks_text(lost, n, text, sizeof(text)),
		    n == 1 ? "s" : "ve", n == 1 ? "it" : "them");
}

/* ---- all ---- */

static void infer_print(struct rsh_printer *out, struct rsh_infer *x)
{
	struct rsh_sentences *s = &x->sentences;
	size_t n_hints;

	say_lost(x);
	say_sets(x);
	say_states(x);
	say_odd_shapes(x);
	n_hints = s->n;
	say(x, "which dimension of a tensor is cut, and in which order its "
	    "slices follow each other: a whole tensor is as large as its "
	    "different slices together, in one dimension or in several");
	say(x, "whether ranks that hold the same are replicas: slices may be "
	    "the same because they began as copies (experts) or repeat "
	    "(heads, tables)");
	say(x, "what an axis is for, and whether one is several that are "
	    "always used together");
	rsh_json(out, "{source:% step:% parameters:", x->options->vfs.source,
		 x->step);
	print_tensors(out, x);
	rsh_say(out, "\n%, % files\n", x->step, rsh_source_n_files(x->source));
	rsh_json(out, "sets:[");
	for (uint32_t i = 0; i < x->n_sets; i++)
		print_set(out, x, i);
	rsh_json(out, "] hints:");
	rsh_say(out, n_hints > 0 ? "\nHints:\n" : "");
	rsh_sentences_print(s, 0, n_hints, "- ", out);
	rsh_json(out, "unknown:");
	rsh_say(out, "\nContents cannot tell\n");
	rsh_sentences_print(s, n_hints, s->n, "- ", out);
	rsh_json(out, "}");
	rsh_sentences_clear(s);
}

/* ---- which step ---- */

/* Chooses and indexes step i; *n is how many ranks have a valid file of it. */
static int look_at_subject(struct rsh_infer *x, uint32_t i, size_t *n,
			   struct rsh_error *err)
{
	int rc;

	/* Names of another step must not remain in the table. */
	rsh_names_free(x->names);
	x->names = rsh_names_new();
	if (!x->names)
		return rsh_error_nomem(err);
	*n = 0;
	rc = rsh_source_choose(x->source, i, err) ?:
	     rsh_source_index(x->source, x->names, err);
	rsh_source_view(x->source, x->names, &x->view);
	for (size_t k = 0; rc == 0 && k < x->n_there; k++)
		*n += rsh_infer_has_file(x, x->there[k]);
	rsh_source_candidate_text(x->source, i, x->step, sizeof(x->step));
	return rc;
}

/* Takes the newest step of which all ranks of the tree have a valid file, or
 * else the step of which most ranks have one.  It logs a line for each
 * incomplete step, with the first damaged file. */
static int take_inferred_step(struct rsh_infer *x, struct rsh_error *err)
{
	const uint32_t n = rsh_source_n_candidates(x->source);
	uint32_t best = 0;
	size_t most = 0;

	for (uint32_t i = 0; i < n; i++) {
		const char *bad;
		size_t have;
		int rc = look_at_subject(x, i, &have, err);

		if (rc == -ENOMEM || (rc && n == 1))
			return rc;
		if (rc == 0 && have == x->n_there && have > 0)
			return 0;
		if (rsh_source_n_bad(x->source, &bad) == 0)
			bad = NULL;
		if (have > 0 || bad)
			rsh_log_warning("%s: %s is incomplete: %zu of %zu "
					"ranks have a valid file%s%s",
					x->options->vfs.source, x->step, have,
					x->n_there, bad ? "; " : "",
					bad ? bad : "");
		if (have > most) {
			most = have;
			best = i;
		}
	}
	if (most == 0)
		return rsh_error_set(err, ENOENT, "%s: no rank has a valid "
				     "checkpoint file", x->options->vfs.source);
	return n == 1 ? 0 : look_at_subject(x, best, &most, err);
}

/* ---- its tensors ---- */

static bool is_subject(void *ctx, const char *name)
{
	const struct rsh_infer *x = ctx;

	return !x->choice || rsh_choice_wants(x->choice, name);
}

static int infer_add_tensor(void *ctx, const struct rsh_inferred *t)
{
	struct rsh_infer *x = ctx;
	struct rsh_infer_tensor *to;
	struct rsh_infer_set s = { .n = t->n_holders, .follows = true };

	if (rsh_room(x->tensors, x->cap_tensors, x->n_tensors + 1))
		return -ENOMEM;
	to = &x->tensors[x->n_tensors++];
	*to = (struct rsh_infer_tensor){ .of = *t };
	to->of.ranks = rsh_arena_copy(&x->arena, t->ranks, t->n);
	to->of.group = rsh_arena_copy(&x->arena, t->group, t->n);
	if (!to->of.ranks || !to->of.group)
		return -ENOMEM;
	/* Mostly it is the set of the previous tensor. */
	for (size_t i = x->n_sets; i-- > 0;)
		if (x->sets[i].n == s.n &&
		    memcmp(x->sets[i].ranks, t->holders,
			   s.n * sizeof(*s.ranks)) == 0) {
			to->set = (uint32_t)i;
			return 0;
		}
	s.ranks = rsh_arena_copy(&x->arena, t->holders, s.n);
	if (!s.ranks || rsh_room(x->sets, x->cap_sets, x->n_sets + 1))
		return -ENOMEM;
	s.first = s.ranks[0];
	s.span = s.ranks[s.n - 1] - s.ranks[0] + 1;
	for (uint32_t i = 1; i < s.n; i++)
		for (uint32_t r = s.ranks[i - 1] + 1; r < s.ranks[i]; r++)
			s.follows &= !rsh_infer_has_file(x, r);
	to->set = (uint32_t)x->n_sets;
	x->sets[x->n_sets++] = s;
	return 0;
}

/* ---- all ---- */

static int infer_layouts(struct rsh_infer *x, struct rsh_printer *out,
			 struct rsh_error *err)
{
	const struct rsh_options *o = x->options;
	int rc = rsh_choice_new(&o->vfs.choice, &x->choice, err) ?:
		 rsh_source_open(o->vfs.source, 0, UINT32_MAX,
				 &o->vfs.files, &x->source, err);

	if (rc)
		return rc;
	if (!rsh_source_format(x->source)->by_name &&
	    rsh_source_format(x->source)->layout == RSH_LAYOUT_WHOLE)
		return rsh_error_set(err, EINVAL, "%s: a %s has no rank "
				     "files to infer a strategy from",
				     o->vfs.source,
				     rsh_source_format(x->source)->says);
	if (rsh_source_ranks(x->source, &x->there, &x->n_there))
		return rsh_error_nomem(err);
	rc = take_inferred_step(x, err);
	if (rc)
		return rc;
	rsh_source_log_choice(x->source);
	rc = rsh_contents_infer(x->source, x->names, is_subject, infer_add_tensor,
				x) ?:
	     rsh_infer_explain(x);
	if (rc)
		return rsh_error_nomem(err);
	infer_print(out, x);
	return 0;
}

int rsh_infer(const struct rsh_options *o, struct rsh_run *run)
{
	struct rsh_infer x = { .options = o };
	int rc = infer_layouts(&x, &run->out, &run->err);

	rsh_arena_clear(&x.arena);
	free(x.tensors);
	free(x.sets);
	free(x.there);
	rsh_choice_free(x.choice);
	rsh_source_free(x.source);
	rsh_names_free(x.names);
	return rc;
}
