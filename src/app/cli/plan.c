/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/plan.c runs `plan`, which prints what a conversion reads and costs.
 * With --rank-list, which reads no checkpoint, it prints the lists of
 * rank_list_for_transform. */
#include "config.h"

#include "commands.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "plan.h"
#include "rsh/app/options.h"
#include "rsh/plan/rank_list.h"
#include "rsh/source/source.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"

struct lists {
	struct rsh_names *names;
	struct rsh_strategy *src, *dst; /* NULL: none */
	uint32_t n_ranks, n_sources;
	bool *wanted;  /* [destination rank] */
	bool *sources; /* [source rank]: in the list being printed */
	struct rsh_printer out;
	bool refused;
};

static uint32_t count_list_ranks(const struct rsh_strategy *s)
{
	return s ? s->n_stages * s->stage_ranks : 1;
}

static int load_lists(const struct rsh_options *o, struct lists *l,
		      struct rsh_error *err)
{
	const struct rsh_vfs_config *cfg = &o->vfs;
	int rc;

	l->names = rsh_names_new();
	if (!l->names)
		return rsh_error_nomem(err);
	rc = rsh_vfs_load_strategies(cfg, l->names, &l->src, &l->dst, err);
	if (rc)
		return rc;
	l->n_ranks = count_list_ranks(l->dst);
	l->n_sources = count_list_ranks(l->src);
	l->wanted = rsh_alloc_array(l->n_ranks, sizeof(*l->wanted));
	l->sources = rsh_alloc_array(l->n_sources, sizeof(*l->sources));
	if (!l->wanted || !l->sources)
		return rsh_error_nomem(err);
	return rsh_ranks_mark(o, 1, l->n_ranks, l->wanted, err);
}

/* Prints a list; if `list` is NULL there is none, and `reason` says why.  The
 * highest rank comes first, as in the lists of MindSpore's function. */
static void tell_list(struct lists *l, const struct rsh_rank_list *list,
		      uint32_t rank, const char *reason)
{
	struct rsh_printer *out = &l->out;

	rsh_json(out, list ? "{rank:% sources:[" : "{rank:% sources:", rank);
	if (list) {
		rsh_rank_list_mark(list, rank, l->sources, l->n_sources);
		rsh_say(out, "%:", rank);
	}
	for (uint32_t s = l->n_sources; list && s-- > 0;)
		if (l->sources[s]) {
			rsh_json(out, "%", s);
			rsh_say(out, " %", s);
		}
	rsh_say(out, list ? "\n" : "");
	if (list)
		rsh_json(out, "]");
	else
		rsh_json(out, "%", RSH_V_NULL);
	rsh_json(out, "reason:%}", reason);
}

static int tell_stage(struct lists *l, uint32_t stage, struct rsh_error *err)
{
	uint32_t per_stage = l->dst ? l->dst->stage_ranks : 1;
	uint32_t first = stage * per_stage;
	struct rsh_rank_list *list = NULL;
	int rc;

	if (!memchr(l->wanted + first, true, per_stage))
		return 0;
	rc = rsh_rank_list_new(l->src, l->dst, stage, l->names, &list, err);
	if (rc && rc != -EDOM)
		return rc;
	if (rc) {
		l->refused = true;
		rsh_log_error("stage %" PRIu32 ": %s", stage, err->text);
	}
	for (uint32_t r = first; r < first + per_stage; r++)
		if (l->wanted[r])
			tell_list(l, list, r, rc ? err->text : NULL);
	rsh_rank_list_free(list);
	return 0;
}

static int print_rank_lists(const struct rsh_options *o, bool *refused,
			    struct rsh_error *err)
{
	struct lists l = { 0 };
	int rc = load_lists(o, &l, err);

	rsh_printer_init(&l.out, o);
	rsh_json(&l.out, "{rank_lists:[");
	for (uint32_t s = 0; rc == 0 && s < (l.dst ? l.dst->n_stages : 1); s++)
		rc = tell_stage(&l, s, err);
	rsh_json(&l.out, "]}");
	rc = rsh_printer_end(&l.out, rc, err);
	*refused = l.refused;
	free(l.wanted);
	free(l.sources);
	rsh_strategy_free(l.src);
	rsh_strategy_free(l.dst);
	rsh_names_free(l.names);
	return rc;
}

/* ---- what a conversion reads ---- */

static int report_plan(const struct rsh_options *o, struct rsh_error *err)
{
	cleanup_free bool *wanted = NULL;
	struct rsh_vfs *vfs = NULL;
	struct rsh_vfs_view view;
	struct rsh_printer out;
	int rc = rsh_vfs_open(&o->vfs, &vfs, err);

	if (rc == 0 && !rsh_vfs_view(vfs, &view))
		rc = rsh_error_set(err, EINVAL, "nothing is converted");
	rc = rc ?: rsh_ranks_mark_files(o, 1, view.plan, &wanted, err);
	rsh_printer_init(&out, o);
	if (rc == 0 && rsh_plan_print(&out, o->vfs.source, &view, wanted,
				      o->slices, o->slices))
		rc = rsh_error_nomem(err);
	rc = rsh_printer_end(&out, rc, err);
	rsh_vfs_free(vfs);
	return rc;
}

enum rsh_exit rsh_plan(const struct rsh_options *o)
{
	struct rsh_error err = RSH_ERROR_INIT;
	bool refused = false;
	int rc = o->rank_list ? print_rank_lists(o, &refused, &err) :
				report_plan(o, &err);

	if (rc)
		return rsh_exit_failed(o, rc, &err);
	return refused ? RSH_EXIT_NO : RSH_EXIT_GOOD;
}
