/* vfs/open.c - from a command line's words to a tree that can be read:
 * strategies, the source ranks they speak of, those ranks' files and indexes,
 * the conversion, the tree. */
#include "config.h"

#include "vfs_i.h"

#include <stdlib.h>
#include <string.h>

#include "rsh/util/log.h"

static int load_strategy(const char *path, bool compat, struct rsh_names *names,
			 struct rsh_strategy **out, struct rsh_error *err)
{
	return path ? rsh_strategy_load(path, compat, names, out, err) : 0;
}

static int open_source(struct rsh_vfs *v, const struct rsh_vfs_config *cfg,
		       struct rsh_error *err)
{
	const struct rsh_source_options opts = {
		/* The converter knows no steps. */
		.lexicographic = cfg->compat,
		.unsharded = !cfg->src_strategy,
	};
	uint32_t first, n;
	int rc;

	rsh_conversion_source_ranks(v->src, v->dst, v->names, &first, &n);
	rc = rsh_source_open(cfg->source, first, n, &opts, &v->source, err);
	return rc ? rc : rsh_source_index(v->source, v->names, cfg->replicas,
					  err);
}

/* The sentence of a plan that cannot be made names a file of SOURCE, or else
 * speaks of SOURCE as a whole without knowing its name. */
static void name_source(const struct rsh_vfs_config *cfg,
			struct rsh_error *err)
{
	if (err && strncmp(err->text, cfg->source, strlen(cfg->source)) != 0)
		rsh_error_prefix(err, "%s", cfg->source);
}

/* What the plan calls back with. */
struct planning {
	const struct rsh_vfs_config *cfg;
	const struct rsh_name_map *renames;
	struct rsh_choice *choice;
};

static void report_lost(void *ctx, const char *sentence)
{
	const struct planning *p = ctx;

	rsh_log_error("%s: %s", p->cfg->source, sentence);
}

static bool is_wanted(void *ctx, const char *name)
{
	const struct planning *p = ctx;

	return rsh_choice_wants(p->choice, name);
}

static const char *new_name(void *ctx, const char *name)
{
	const struct planning *p = ctx;

	return rsh_name_map_get(p->renames, name);
}

static int convert(struct rsh_vfs *v, struct planning *p, struct rsh_error *err)
{
	const struct rsh_vfs_config *cfg = p->cfg;
	const struct rsh_conversion_options opts = {
		.format = cfg->format,
		.part_bytes = cfg->part_bytes,
		.compat = cfg->compat,
		.replicas = cfg->replicas,
		.allow_missing = cfg->allow_missing,
		.copies = cfg->dst_ranks,
		.unlisted = cfg->unlisted,
		.wanted = p->choice ? is_wanted : NULL,
		.rename = p->renames ? new_name : NULL,
		.cast = cfg->cast,
		.report_lost = report_lost,
		.ctx = p,
	};
	struct rsh_source_view view;

	rsh_source_view(v->source, v->names, &view);
	return rsh_conversion_new(v->src, v->dst, &view, &opts, &v->conversion,
				  err);
}

static int plan(struct rsh_vfs *v, const struct rsh_vfs_config *cfg,
		struct rsh_error *err)
{
	struct planning p = { .cfg = cfg };
	const char *note;
	int rc = 0;

	if (cfg->rename)
		rc = rsh_name_map_load(cfg->rename, &v->renames, err);
	p.renames = v->renames;
	if (rc == 0)
		rc = rsh_choice_new(cfg->only, cfg->drop, &p.choice, err);
	if (rc)
		return rc;
	rc = convert(v, &p, err);
	rsh_choice_free(p.choice);
	if (rc) {
		name_source(cfg, err);
		return rc;
	}
	for (uint32_t i = 0; (note = rsh_conversion_note(v->conversion, i));
	     i++)
		rsh_log_notice("%s: %s", cfg->source, note);
	return 0;
}

int rsh_vfs_open(const struct rsh_vfs_config *cfg, struct rsh_vfs **out,
		 struct rsh_error *err)
{
	struct rsh_vfs *v = calloc(1, sizeof(*v));
	int rc = 0;

	if (!v)
		return rsh_error_nomem(err);
	v->replicas = cfg->replicas;
	v->in_parts = cfg->part_bytes != 0;
	v->names = rsh_names_new();
	if (!v->names)
		rc = rsh_error_nomem(err);
	if (rc == 0)
		rc = load_strategy(cfg->src_strategy, cfg->compat, v->names, &v->src, err);
	if (rc == 0)
		rc = load_strategy(cfg->dst_strategy, cfg->compat, v->names, &v->dst, err);
	if (rc == 0)
		rc = open_source(v, cfg, err);
	if (rc == 0)
		rc = plan(v, cfg, err);
	if (rc == 0)
		rc = rsh_tree_build(v, &cfg->tree, err);
	if (rc == 0 && cfg->part_bytes)
		rc = rsh_weight_map_build(v, err);
	if (rc) {
		rsh_vfs_free(v);
		return rc;
	}
	rsh_log_info("%s: %u files, %llu bytes", cfg->source, v->n_files,
		     (unsigned long long)v->total_bytes);
	*out = v;
	return 0;
}

void rsh_vfs_free(struct rsh_vfs *v)
{
	if (!v)
		return;
	free(v->files);
	free(v->map);
	free(v->prefix);
	rsh_conversion_free(v->conversion);
	rsh_name_map_free(v->renames);
	rsh_source_free(v->source);
	rsh_strategy_free(v->dst);
	rsh_strategy_free(v->src);
	rsh_names_free(v->names);
	free(v);
}
