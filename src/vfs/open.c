/* SPDX-License-Identifier: Apache-2.0 */
/* vfs/open.c makes a tree from the configuration of a command line.  It loads
 * the strategies, opens the files of the source ranks that these need, plans
 * the first candidate that can be planned, and builds the tree. */
#include "config.h"

#include "vfs_i.h"

#include <stdlib.h>
#include <string.h>

#include "rsh/plan/conversion.h"
#include "rsh/source/strategies.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"

static int strategies_load(const struct rsh_vfs_config *cfg,
			   const struct rsh_strategy_at *at,
			   struct rsh_names *names, struct rsh_strategy **out,
			   struct rsh_error *err)
{
	return at->from == RSH_FROM_FILE ?
		rsh_strategy_load(at->path, cfg->plan.compat, names, out, err) :
		0;
}

/* Derives the destination's strategy from the source's.  It logs all notes in
 * one line. */
static int derive(const struct rsh_vfs_config *cfg, struct rsh_names *names,
		  const struct rsh_strategy *src, struct rsh_strategy **dst,
		  struct rsh_error *err)
{
	struct rsh_derive_shapes *shapes = rsh_derive_shapes_new();
	struct rsh_source_options files = cfg->files;
	struct rsh_derived *derived = NULL;
	cleanup_free char *all = NULL;
	FILE *to = NULL;
	size_t size;
	int rc;

	if (!shapes)
		return rsh_error_nomem(err);
	files.unsharded = !src;
	rc = rsh_source_shapes(cfg->source, &files, src, names, shapes, err);
	if (rc == 0) {
		rc = rsh_strategy_derive(src, shapes, cfg->derive, names,
					 &derived, err);
		if (rc)
			rsh_error_prefix(err, "--dst-mesh (`reshardfs strategy "
					      "derive` has more options)");
	}
	if (rc == 0) {
		if (derived->n_notes)
			to = open_memstream(&all, &size);
		for (uint32_t i = 0; to && i < derived->n_notes; i++)
			fprintf(to, "%s%s", i ? "; " : "", derived->notes[i]);
		if (to && fclose(to) == 0)
			rsh_log_notice("--dst-mesh: %s", all);
		rc = rsh_derived_strategy(derived, "the derived strategy",
					  names, dst, err);
	}
	rsh_derived_free(derived);
	rsh_derive_shapes_free(shapes);
	return rc;
}

int rsh_vfs_load_strategies(const struct rsh_vfs_config *cfg,
			    struct rsh_names *names, struct rsh_strategy **src,
			    struct rsh_strategy **dst, struct rsh_error *err)
{
	return strategies_load(cfg, &cfg->src, names, src, err) ?:
	       cfg->dst.from == RSH_FROM_DERIVED ?
	       derive(cfg, names, *src, dst, err) :
	       strategies_load(cfg, &cfg->dst, names, dst, err);
}

/* ---- the tree ---- */

static int reshard_open_source(struct rsh_reshard *v,
			       const struct rsh_vfs_config *cfg,
			       struct rsh_error *err)
{
	struct rsh_source_options files = cfg->files;
	enum rsh_layout_from layout;
	uint32_t first, n;
	int rc;

	files.unsharded = cfg->src.from != RSH_FROM_FILE;
	/* The converter does not use replicas of an unsharded source. */
	rsh_conversion_source_ranks(v->src, v->dst, v->names,
				    cfg->plan.replicas && !cfg->plan.compat,
				    &first, &n);
	rc = rsh_source_open(cfg->source, first, n, &files, &v->source, err);
	if (rc)
		return rc;
	layout = rsh_source_format(v->source)->layout;
	if ((v->src && layout == RSH_LAYOUT_WHOLE) ||
	    (layout == RSH_LAYOUT_OWN && cfg->src.from != RSH_FROM_SOURCE))
		return rsh_source_needs_none(v->source, err);
	if (!v->src) {
		if (cfg->group_info)
			rsh_log_warning("%s: without a source strategy there "
					"is nothing to compare it with",
					cfg->group_info);
		return 0;
	}
	return rsh_source_check_groups(v->source, cfg->group_info, v->src,
				       v->names, err);
}

int rsh_vfs_open(const struct rsh_vfs_config *cfg, struct rsh_vfs **out,
		 struct rsh_error *err)
{
	struct rsh_reshard *v = calloc(1, sizeof(*v));
	int rc;

	if (!v)
		return rsh_error_nomem(err);
	v->vfs.ops = &rsh_reshard_ops;
	v->replicas = cfg->plan.replicas;
	v->output = cfg->output;
	v->names = rsh_names_new();
	rc = !v->names ? rsh_error_nomem(err) :
	     rsh_vfs_load_strategies(cfg, v->names, &v->src, &v->dst, err) ?:
	     reshard_open_source(v, cfg, err) ?:
	     rsh_vfs_load_weights(v, cfg, err) ?:
	     rsh_vfs_take_candidate(v, cfg, err) ?:
	     rsh_reshard_build(v, cfg, err);
	if (rc) {
		rsh_vfs_free(&v->vfs);
		return rc;
	}
	rsh_log_info("%s: %u files, %llu bytes", cfg->source, v->n_files,
		     (unsigned long long)v->vfs.total_bytes);
	*out = &v->vfs;
	return 0;
}
