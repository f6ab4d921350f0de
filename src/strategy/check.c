/* SPDX-License-Identifier: Apache-2.0 */
/* strategy/check.c checks every item of strategy files and compares the files,
 * and reports everything that would fail later. */

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "derive_i.h"
#include "rsh/strategy/grid.h"
#include "rsh/strategy/strategy.h"

struct check {
	struct rsh_strategy_file *const *files;
	uint32_t n;
	const struct rsh_derive_shapes *shapes;
	struct rsh_names *names;
	rsh_strategy_report_fn *report;
	void *ctx;
	bool ranks_differ;
	bool stages_differ;
};

__attribute__((format(printf, 2, 3)))
static void found(struct check *c, const char *fmt, ...)
{
	char text[RSH_ERROR_TEXT_MAX];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	c->report(c->ctx, text);
}

/* ---- one item ---- */

static void check_item_layout(struct check *c,
			      const struct rsh_strategy_file *f,
			      const struct rsh_strategy_item *it)
{
	const struct rsh_strategy_item *first = c->files[0]->items;
	/* A name of a merged file has its stage: "0-w" is "w". */
	const size_t n = strspn(it->name, "0123456789");
	const char *name = n && it->name[n] == '-' && it->name[n + 1] ?
			   it->name + n + 1 : it->name;
	const uint32_t id = rsh_names_find(c->names, name, strlen(name));
	const struct derive_shape *shape =
		id == RSH_NAME_NONE ? NULL : rsh_derive_shape_of(c->shapes, id);
	struct rsh_error err = RSH_ERROR_INIT;
	const struct rsh_grid_sizes sizes = {
		shape ? shape->dims : it->shape,
		shape ? shape->n_dims : it->n_shape, false,
	};
	uint64_t whole[RSH_MAX_DIMS];
	struct rsh_cut *cut = NULL;
	cleanup_grid struct rsh_grid *g = NULL;
	int rc = shape || it->n_shape ?
		rsh_item_cut(it, &sizes, RSH_GRID_RUNTIME, &cut, whole, &err) :
		rsh_grid_new_unsized(it, &g, &err);

	if (rc)
		found(c, "%s: parameter %s: %s", f->path, it->name, err.text);
	rsh_cut_free(cut);
	if (strchr(name, '-'))
		found(c,
		      "%s: parameter %s: MindSpore's converter cannot read names with \"-\" in them",
		      f->path, it->name);
	if (rsh_item_ranks(it) == rsh_item_ranks(first))
		return;
	c->ranks_differ = true;
	found(c, "%s: parameter %s has a mesh of %u devices, but %s of %u",
	      f->path, it->name, rsh_item_ranks(it), first->name,
	      rsh_item_ranks(first));
}

/* ---- several files ---- */

static void check_stage(struct check *c, uint32_t i)
{
	const struct rsh_strategy_file *f = c->files[i];

	for (uint32_t k = 0; k < i; k++) {
		const struct rsh_strategy_file *other = c->files[k];

		/* All ranks of a stage write the same bytes, so equal files are
		 * allowed. */
		if (other->first_stage != f->first_stage ||
		    other->content_hash == f->content_hash)
			continue;
		c->stages_differ = true;
		found(c,
		      "%s: it is of stage %u like %s, but has other content",
		      f->path, f->first_stage, other->path);
		return;
	}
}

/* Compares the layouts of a parameter that several stages share. */
static void check_shared(struct check *c, const struct rsh_strategy *s,
			 const struct rsh_strategy_param *p)
{
	char a[256], b[256];

	for (uint32_t i = 1; i < p->n_stages; i++) {
		if (rsh_item_same_layout(p->stages[0].item, p->stages[i].item))
			continue;
		found(c, "%s: parameter %s: stage %u has %s, stage %u %s",
		      s->path, rsh_names_text(c->names, p->name),
		      p->stages[0].stage,
		      rsh_item_text(p->stages[0].item, a, sizeof(a)),
		      p->stages[i].stage,
		      rsh_item_text(p->stages[i].item, b, sizeof(b)));
	}
}

int rsh_strategy_check(const struct rsh_strategy_checked *what,
		       struct rsh_names *names, rsh_strategy_report_fn *report,
		       void *ctx, struct rsh_error *err)
{
	struct rsh_strategy_file **files = what->files;
	struct check c = { .files = files, .shapes = what->shapes,
			   .names = names, .report = report, .ctx = ctx };
	uint32_t n = what->n;
	struct rsh_error bad = RSH_ERROR_INIT;
	cleanup_strategy struct rsh_strategy *s = NULL;
	struct rsh_strategy_set set;
	int rc;

	/* Files without usable items are skipped. */
	for (uint32_t i = 0; i < n; i++) {
		if (files[i]->n_items)
			files[c.n++] = files[i];
		else
			rsh_strategy_file_free(files[i]);
	}
	n = c.n;
	for (uint32_t f = 0; f < n; f++) {
		for (uint32_t i = 0; i < files[f]->n_items; i++)
			check_item_layout(&c, files[f], &files[f]->items[i]);
		if (what->directory && files[f]->has_stage)
			check_stage(&c, f);
	}
	if (n == 0 || c.ranks_differ) {
		for (uint32_t i = 0; i < n; i++)
			rsh_strategy_file_free(files[i]);
		free(files);
		return 0;
	}
	/* What was reported is not reported again. */
	set = (struct rsh_strategy_set){
		files, n, !what->directory ? RSH_STRATEGY_FILE :
		c.stages_differ ? RSH_STRATEGY_DIR_AS_LISTED :
				  RSH_STRATEGY_DIR, what->path,
	};
	rc = rsh_strategy_merge(&set, names, &s, &bad);
	if (rc == -ENOMEM)
		return rsh_error_nomem(err);
	if (rc)
		report(ctx, bad.text);
	for (uint32_t i = 0; s && i < s->n_params; i++)
		check_shared(&c, s, &s->params[i]);
	return 0;
}
