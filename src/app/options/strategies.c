/* SPDX-License-Identifier: Apache-2.0 */
/* app/options/strategies.c has the options that give strategies, and those that
 * derive, merge and check them. */
#include "config.h"

#include <strings.h>

#include "options_i.h"

static int set_strategy(const struct rsh_setting *s)
{
	struct rsh_strategy_at *at = s->to;
	int rc = rsh_set_text(s);

	if (rc)
		return rc;
	at->from = RSH_FROM_FILE;
	/* MindSpore's converter is called with None. */
	if (strcasecmp(s->value, "none") == 0)
		*at = (struct rsh_strategy_at){ .from = RSH_FROM_NONE };
	return 0;
}

/* Sets the option of enum rsh_derive_option that `min` is. */
static int set_derive(const struct rsh_setting *s)
{
	struct rsh_vfs_config *v = &((struct rsh_options *)s->base)->vfs;
	int rc;

	if (!v->derive)
		v->derive = rsh_derive_options_new();
	if (!v->derive)
		return rsh_error_nomem(s->err);
	/* A strategy that is given as well is refused later. */
	if (s->def->min == RSH_DERIVE_MESH && !v->dst.from)
		v->dst.from = RSH_FROM_DERIVED;
	if (s->def->min == RSH_DERIVE_MESH)
		v->mesh = s->value;
	rc = rsh_derive_options_set(v->derive,
				    (enum rsh_derive_option)s->def->min,
				    s->value, s->err);
	if (rc)
		rsh_error_prefix(s->err, "%s", s->def->name);
	return rc;
}

const struct rsh_option rsh_strategy_rows[] = {
	{ "src-strategy", "PATH|none",
	  "strategy of SOURCE: file, directory, or none if not sharded "
	  "(required for rank files)", set_strategy, .opens_links = true,
	  RSH_AT(vfs.src), .first = true, .commands = RSH_CONVERSIONS |
		      RSH_IN(RSH_COMMAND_CHECK) |
		      RSH_IN(RSH_COMMAND_TABLE_CHECK),
	  .needs = "checkpoint|SOURCE" },
	{ "dst-strategy", "PATH|none",
	  "destination strategy: file, directory, or none for whole tensors "
	  "(required for rank files)", set_strategy, .opens_links = true,
	  RSH_AT(vfs.dst), .first = true },
	{ "dst-mesh", "MESH", "destination mesh: dp=2,mp=4[,pp=2][,ep=4]",
	  set_derive, RSH_AT(vfs.derive), .min = RSH_DERIVE_MESH, .first = true,
	  .excludes = "dst-strategy" },
	{ "pipeline-layers", "N,N,...",
	  "with megatron: number of layers in each stage (default: equal)",
	  rsh_set_text, RSH_AT(vfs.pipeline_layers),
	  .decides = RSH_DECIDES_TEXT },
	{ "dst-ranks", "N",
	  "number of ranks to show if neither side has a strategy (default: 1)",
	  rsh_set_number, RSH_AT(vfs.plan.n_shown_ranks), .min = 1,
	  .max = 1000000, .decides = RSH_DECIDES_VALUE,
	  .excludes = "convert|lora|lora-alpha|dequantize" },
	{ "group-info", "PATH",
	  "group_info.pb to compare with --src-strategy (default: those in "
	  "SOURCE)", rsh_set_text, RSH_AT(vfs.group_info), .opens = true },
	{ .name = NULL },
};

const struct rsh_option rsh_derive_rows[] = {
	{ "output", "FILE", "file to write", rsh_set_text, RSH_AT(output),
	  .first = true, .letter = 'o',
	  .commands = RSH_IN(RSH_COMMAND_MERGE) | RSH_IN(RSH_COMMAND_DERIVE),
	  .must = true },
	{ "mesh", "MESH", "mesh to derive: dp=2,mp=4[,pp=2][,ep=4]", set_derive,
	  RSH_AT(vfs.derive), .min = RSH_DERIVE_MESH, .first = true,
	  .must = true },
	{ "opt", "-1|K",
	  "optimizer shard size: K ranks, -1 for all replicas, 0 for none "
	  "(default: as in STRATEGY)", set_derive, RSH_AT(vfs.derive),
	  .min = RSH_DERIVE_OPT, .first = true },
	{ "checkpoint", "SOURCE",
	  "checkpoint saved with STRATEGY: shapes and order of its parameters "
	  "are used", rsh_set_text, RSH_AT(checkpoint), .first = true,
	  .is_source = true,
	  .commands = RSH_IN(RSH_COMMAND_CHECK) | RSH_IN(RSH_COMMAND_DERIVE),
	  .needs = "src-strategy" },
	{ "src-mesh", "MESH", "mesh of STRATEGY (default: detected)",
	  set_derive, RSH_AT(vfs.derive), .min = RSH_DERIVE_SRC_MESH },
	{ "split", "REGEX=DIM:AXIS",
	  "split dimension DIM of these parameters over mesh axis AXIS, or "
	  "over none", set_derive, RSH_AT(vfs.derive),
	  .min = RSH_DERIVE_SPLIT },
	{ "axes", "REGEX=AXIS,...",
	  "mesh axes of these parameters, slowest first", set_derive,
	  RSH_AT(vfs.derive), .min = RSH_DERIVE_AXES },
	{ "stage", "REGEX=N|first|last", "pipeline stage of these parameters",
	  set_derive, RSH_AT(vfs.derive), .min = RSH_DERIVE_STAGE },
	{ "layers", "N,N,...",
	  "number of layers in each stage (default: equal)", set_derive,
	  RSH_AT(vfs.derive), .min = RSH_DERIVE_LAYERS },
	{ "drop", "REGEX", "leave out parameters whose name matches",
	  set_derive, RSH_AT(vfs.derive), .min = RSH_DERIVE_DROP,
	  .once = true },
	{ "opt-include", "REGEX",
	  "apply optimizer sharding to these parameters if it divides them",
	  set_derive, RSH_AT(vfs.derive), .min = RSH_DERIVE_OPT_INCLUDE,
	  .once = true },
	{ "opt-exclude", "REGEX",
	  "do not apply optimizer sharding to these parameters", set_derive,
	  RSH_AT(vfs.derive), .min = RSH_DERIVE_OPT_EXCLUDE,
	  .once = true },
	{ .name = NULL },
};
