/* SPDX-License-Identifier: Apache-2.0 */
/* vfs/strategies.c loads or derives the strategies of a conversion. */
#include "config.h"

#include "rsh/source/strategies.h"

#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "vfs_i.h"

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
	int rc = strategies_load(cfg, &cfg->src, names, src, err);

	if (rc)
		return rc;
	return cfg->dst.from == RSH_FROM_DERIVED ?
		derive(cfg, names, *src, dst, err) :
		strategies_load(cfg, &cfg->dst, names, dst, err);
}
