/* SPDX-License-Identifier: Apache-2.0 */
/* cli/plan_svg.c lays out the page of `plan --svg`: a title, some tensors, who
 * reads of whom, and what the marks mean. */
#include "config.h"

#include "plan_svg.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/source/inspect.h"
#include "rsh/util/mem.h"
#include "text.h"
#include "write_file.h"

#define TENSORS_MAX 12
/* Numbers and runs of them that one label has. */
#define NUMBERS_MAX 8

static const char head[] =
	"<style>\n"
	"text{font-family:\"DejaVu Sans\",Verdana,Arial,sans-serif;"
	"font-size:11px;fill:#222}\n"
	".title{font-size:18px;font-weight:bold}\n"
	".name{font-size:14px;font-weight:bold}\n"
	".caption{font-size:11px}\n"
	".small,.legend{font-size:10px;fill:#555}\n"
	".faint{font-size:10px;fill:#999}\n"
	".right{text-anchor:end;fill:#555}\n"
	".label,.number,.axis{text-anchor:middle}\n"
	".axis{font-size:10px;fill:#555}\n"
	".number,.sum{font-size:10px}\n"
	".rowlabel{text-anchor:end}\n"
	"rect{fill:none}\n"
	".page{fill:#fff}\n"
	".cell{stroke:#555;stroke-width:1}\n"
	".shard{stroke:#555;stroke-width:1;stroke-dasharray:3 2}\n"
	".slice{stroke:#333;stroke-width:1.5}\n"
	".paper{fill:#fff;fill-opacity:.6}\n"
	".piece{stroke:#fff;stroke-opacity:.8;stroke-width:1}\n"
	".flat{stroke:none}\n"
	".copy{stroke:#fff;stroke-width:.5}\n"
	".bar{stroke:none}\n"
	".empty{fill:#fafafa}\n"
	".grid{stroke:#ddd;stroke-width:1}\n"
	".rule{stroke:#ccc;stroke-width:1}\n"
	".arrow{stroke:#777;stroke-width:2;stroke-linecap:round}\n"
	".bracket{stroke:#777;stroke-width:1.5}\n"
	".lost{fill:url(#lost);stroke:#b33;stroke-width:1}\n"
	"</style>\n"
	"<defs><pattern id=\"lost\" width=\"6\" height=\"6\" "
	"patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">"
	"<rect width=\"6\" height=\"6\" style=\"fill:#fff\"/>"
	"<rect width=\"2\" height=\"6\" style=\"fill:#e06666\"/>"
	"</pattern></defs>\n"
	"<rect class=\"page\" width=\"100%\" height=\"100%\"/>\n";

/* Returns how many ranks or parts are shown. */
static uint32_t n_shown(const struct rsh_plan *plan)
{
	return rsh_plan_n_files(plan) / rsh_plan_files_of_rank(plan);
}

const char *rsh_plan_page_color(const struct rsh_plan_page *p, uint32_t file,
				char text[RSH_SVG_COLOR_SIZE])
{
	return rsh_svg_color(file, p->by_source ?
				   p->n_sources :
				   n_shown(p->report->view->plan), text);
}

/* ---- numbers ---- */

/* Returns how many of the numbers follow each other at equal distances. */
static size_t numbers_run(const uint32_t *v, size_t n)
{
	size_t k = 2;

	if (n < 3)
		return 1;
	while (k < n && v[k] - v[k - 1] == v[1] - v[0])
		k++;
	/* Two neighbours, or three numbers apart, are written out. */
	return k > 3 || (k == 3 && v[1] - v[0] == 1) ? k : 1;
}

/* Writes runs of them, no more than `most`; what is left is counted. */
static void numbers_write(const uint32_t *v, size_t n, unsigned most,
			  char *text, size_t size)
{
	size_t at = 0, i = 0;

	*text = '\0';
	for (unsigned item = 0; i < n && item < most && at + 48 < size;
	     item++) {
		const size_t k = numbers_run(v + i, n - i);

		at += (size_t)snprintf(text + at, size - at, "%s%" PRIu32,
				       i ? "," : "", v[i]);
		if (k > 1 && v[i + 1] - v[i] == 1)
			at += (size_t)snprintf(text + at, size - at,
					       "-%" PRIu32, v[i + k - 1]);
		else if (k > 1)
			at += (size_t)snprintf(text + at, size - at,
					       ",%" PRIu32 "..%" PRIu32,
					       v[i + 1], v[i + k - 1]);
		i += k;
	}
	if (i < n)
		snprintf(text + at, size - at, " +%zu", n - i);
}

const char *rsh_plan_numbers(const uint32_t *v, size_t n, int width, int font,
			     char *text, size_t size)
{
	numbers_write(v, n, NUMBERS_MAX, text, size);
	/* Rather the first ones alone than half of them. */
	if (strchr(text, '+') || rsh_svg_text_width(text, font) > width)
		numbers_write(v, n, 1, text, size);
	if (rsh_svg_text_width(text, font) > width)
		*text = '\0';
	return text;
}

/* ---- which tensors ---- */

/* This stands for all tensors whose cuts are the same. */
struct chosen {
	uint32_t number; /* of the tensor in the plan */
	uint32_t alike;  /* others */
	struct rsh_plan_tensor tensor;
	struct rsh_side_file *held;
	size_t n_held, cap;
};

struct choice {
	struct chosen v[TENSORS_MAX];
	uint32_t n;
	uint32_t left; /* tensors that are neither drawn nor like one that
			* is */
};

/* Is a part of `a` the same share as one of b's? */
static bool is_same_share(uint64_t part_a, uint64_t a, uint64_t part_b,
			  uint64_t b)
{
	return (unsigned __int128)part_a * b == (unsigned __int128)part_b * a;
}

/* Do two lists of boxes look the same, each drawn in its own scale?  Grids know
 * no sizes, and the catalogue keeps equal ones once. */
static bool looks_the_same(const struct rsh_cut *a, const uint64_t *dims_a,
			   const struct rsh_cut *b, const uint64_t *dims_b)
{
	const uint32_t n = rsh_cut_n_cells(a);
	struct rsh_box x, y;

	if (a == b || rsh_cut_grid(a) || rsh_cut_grid(b) ||
	    n != rsh_cut_n_cells(b))
		return a == b;
	for (uint32_t c = 0; c < n; c++) {
		rsh_cut_box(a, dims_a, c, &x);
		rsh_cut_box(b, dims_b, c, &y);
		if (x.n_dims != y.n_dims)
			return false;
		for (uint32_t d = 0; d < x.n_dims; d++)
			if (!is_same_share(x.from[d], dims_a[d], y.from[d],
					   dims_b[d]) ||
			    !is_same_share(x.size[d], dims_a[d], y.size[d],
					   dims_b[d]))
				return false;
	}
	return true;
}

static uint8_t axis_of(const struct rsh_plan_tensor *t, uint32_t d)
{
	return t->axis ? t->axis[d] : (uint8_t)d;
}

/* Would two tensors be the same picture? */
static bool tensors_are_alike(const struct rsh_plan_tensor *a,
			      const struct rsh_plan_tensor *b)
{
	if (a->lost != b->lost || a->n_dims != b->n_dims ||
	    a->n_parts != b->n_parts || a->from->n_dims != b->from->n_dims)
		return false;
	for (uint32_t d = 0; d < a->from->n_dims; d++)
		if (axis_of(a, d) != axis_of(b, d))
			return false;
	return looks_the_same(a->from->cut, a->from->dims, b->from->cut,
			      b->from->dims) &&
	       looks_the_same(a->cut, a->dims, b->cut, b->dims);
}

static bool choice_has(struct choice *c, const struct rsh_plan_tensor *t)
{
	for (uint32_t i = 0; i < c->n; i++)
		if (tensors_are_alike(&c->v[i].tensor, t)) {
			c->v[i].alike++;
			return true;
		}
	return false;
}

/* Chooses one tensor of each pair of cuts, or each of few if people have said
 * which they want. */
static void choose_tensors(const struct rsh_plan_report *r, const bool *shown,
			   struct choice *c)
{
	const uint32_t n = rsh_plan_n_tensors(r->view->plan);
	uint32_t wanted = 0;
	bool each;

	for (uint32_t i = 0; i < n; i++)
		wanted += shown[i];
	each = rsh_option_given(r->options, "only") && wanted <= TENSORS_MAX;
	for (uint32_t i = 0; i < n; i++) {
		struct rsh_plan_tensor t;

		rsh_plan_tensor(r->view->plan, i, &t);
		if (!shown[i] || !t.from || (!each && choice_has(c, &t)))
			continue;
		if (c->n == TENSORS_MAX) {
			c->left++;
			continue;
		}
		c->v[c->n++] = (struct chosen){ .number = i, .tensor = t };
	}
}

/* Notes of each chosen tensor which files show it. */
static int list_holders(const struct rsh_plan *plan, bool *shown,
			struct choice *c)
{
	for (uint32_t f = 0; f < rsh_plan_n_files(plan); f++) {
		memset(shown, 0, rsh_plan_n_tensors(plan));
		rsh_plan_mark_tensors(plan, f, shown);
		for (uint32_t i = 0; i < c->n; i++) {
			struct chosen *one = &c->v[i];

			if (!shown[one->number])
				continue;
			if (rsh_grow(&one->held, &one->cap, one->n_held + 1,
				     sizeof(*one->held)))
				return -ENOMEM;
			one->held[one->n_held++] = (struct rsh_side_file){
				rsh_plan_member(plan, f),
				f / rsh_plan_files_of_rank(plan)
			};
		}
	}
	return 0;
}

static void choice_clear(struct choice *c)
{
	for (uint32_t i = 0; i < c->n; i++)
		free(c->v[i].held);
}

static int svg_choose(const struct rsh_plan_report *r, struct choice *c)
{
	const struct rsh_plan *plan = r->view->plan;
	cleanup_free bool *shown = calloc(rsh_plan_n_tensors(plan) + 1,
					  sizeof(*shown));

	if (!shown)
		return -ENOMEM;
	for (uint32_t f = 0; f < rsh_plan_n_files(plan); f++)
		rsh_plan_mark_tensors(plan, f, shown);
	choose_tensors(r, shown, c);
	return list_holders(plan, shown, c);
}

static int draw_tensors(struct rsh_plan_page *p, struct choice *c)
{
	int rc = 0;

	for (uint32_t i = 0; i < c->n && rc == 0; i++)
		rc = rsh_plan_draw_tensor(p, c->v[i].number, c->v[i].held,
					  c->v[i].n_held, c->v[i].alike);
	if (c->n == 0)
		rsh_svg_text(&p->svg, PAGE_MARGIN, p->y + 10, "caption",
			     "No tensor is cut: records are copied as they "
			     "are.");
	else if (c->left > 0)
		rsh_svg_text(&p->svg, PAGE_MARGIN, p->y - 6, "caption",
			     "%" PRIu32 " more tensors are cut in other ways "
			     "(--only draws those that it names).", c->left);
	p->y += c->n == 0 || c->left > 0 ? 30 : 0;
	return rc;
}

/* ---- the page ---- */

static void put_rule(struct rsh_plan_page *p)
{
	rsh_svg_line(&p->svg, PAGE_MARGIN, p->y, PAGE_WIDTH - PAGE_MARGIN,
		     p->y, "rule");
	p->y += 16;
}

/* Says how many there are of what, and under which strategy. */
static void put_about(char *text, size_t size, uint32_t n, const char *what,
		      const struct rsh_strategy *s, const char *strategy)
{
	char name[256];

	snprintf(name, sizeof(name), "%s", strategy ? strategy : "none");
	rsh_text_shorten(name, 40);
	if (!s)
		snprintf(text, size, "%" PRIu32 " %s%s", n, what,
			 n == 1 ? "" : "s");
	else if (s->n_stages > 1)
		snprintf(text, size, "%" PRIu32 " ranks in %" PRIu32
			 " stages (%s)", s->n_stages * s->stage_ranks,
			 s->n_stages, name);
	else
		snprintf(text, size, "%" PRIu32 " ranks (%s)", s->stage_ranks,
			 name);
}

static void put_title(struct rsh_plan_page *p)
{
	const struct rsh_options *o = p->report->options;
	const struct rsh_vfs_view *view = p->report->view;
	char source[256], from[320], to[320], step[256];

	snprintf(source, sizeof(source), "%s", o->vfs.source);
	rsh_text_shorten(source, 50);
	rsh_source_candidate_text(view->source,
				  rsh_source_chosen(view->source), step,
				  sizeof(step));
	put_about(from, sizeof(from), p->n_sources,
		  p->boxes ? "file" : "rank", view->src,
		  rsh_strategy_text(&o->vfs.src));
	put_about(to, sizeof(to), n_shown(view->plan),
		  o->in_parts ? "part" : "rank", view->dst,
		  rsh_strategy_text(&o->vfs.dst));
	rsh_svg_text(&p->svg, PAGE_MARGIN, p->y + 14, "title", "%s", source);
	rsh_svg_text(&p->svg, PAGE_WIDTH - PAGE_MARGIN, p->y + 14, "right",
		     "%s", step);
	rsh_svg_text(&p->svg, PAGE_MARGIN, p->y + 36, "caption",
		     "%s \u2192 %s", from, to);
	p->y += 50;
}

static void put_legend(struct rsh_plan_page *p)
{
	static const char by_source[] =
		"A colour stands for a source file; a destination's cell wears "
		"those of the files that it is read from.";
	static const char by_destination[] =
		"A colour stands for a destination file; there is one source "
		"file.";
	struct rsh_svg_box b = { PAGE_MARGIN, p->y + 6, 26, 12 };

	rsh_svg_text(&p->svg, PAGE_MARGIN, p->y - 2, "legend", "%s",
		     p->by_source ? by_source : by_destination);
	rsh_svg_rect(&p->svg, &b, "slice", NULL);
	rsh_svg_text(&p->svg, b.x + 34, b.y + 10, "legend", "a slice");
	b.x += 90;
	rsh_svg_rect(&p->svg, &b, "shard", NULL);
	rsh_svg_text(&p->svg, b.x + 34, b.y + 10, "legend",
		     "cut by the optimizer's shard");
	b.x += 210;
	rsh_svg_rect(&p->svg, &b, "lost", NULL);
	rsh_svg_text(&p->svg, b.x + 34, b.y + 10, "legend",
		     "in no file; at a cell's foot: a copy of it that is "
		     "missing");
	rsh_svg_text(&p->svg, b.x + 360, b.y + 10, "legend",
		     "\u00d72: 0,4  two copies, of 0 and 4");
	p->y += 34;
}

static int draw_page(struct rsh_plan_page *p)
{
	struct choice choice = { 0 };
	int rc = svg_choose(p->report, &choice);

	for (uint32_t i = 0; i < choice.n; i++)
		p->boxes |= !rsh_cut_grid(choice.v[i].tensor.from->cut);
	put_title(p);
	put_rule(p);
	if (rc == 0)
		rc = draw_tensors(p, &choice);
	if (rc == 0) {
		put_rule(p);
		rc = rsh_plan_draw_flow(p);
	}
	put_rule(p);
	put_legend(p);
	choice_clear(&choice);
	return rc;
}

static int make_page(const struct rsh_plan_report *r, char **text, size_t *len)
{
	struct rsh_plan_page p = { .report = r, .y = PAGE_MARGIN };
	int rc;

	p.source = rsh_plan_catalogue(r->view->plan);
	p.n_sources = r->view->src ?
		r->view->src->n_stages * r->view->src->stage_ranks : 0;
	if (p.n_sources < p.source->n_files)
		p.n_sources = p.source->n_files;
	p.by_source = p.source->n_present > 1;
	rsh_svg_begin(&p.svg);
	rc = draw_page(&p);
	if (rc == 0)
		rc = rsh_svg_finish(&p.svg, PAGE_WIDTH, p.y,
				    r->options->vfs.source, head, text, len);
	rsh_svg_clear(&p.svg);
	return rc;
}

int rsh_plan_svg(const struct rsh_plan_report *r, const char *path,
		 struct rsh_error *err)
{
	char *text = NULL;
	size_t len = 0;
	int rc = make_page(r, &text, &len);

	if (rc)
		return rsh_error_nomem(err);
	rc = rsh_write_file(path, text, len, err);
	free(text);
	return rc;
}
