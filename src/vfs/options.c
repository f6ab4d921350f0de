/* SPDX-License-Identifier: Apache-2.0 */
/* vfs/options.c has the options of struct rsh_vfs_config that are of no other
 * struct in it. */
#include "config.h"

#include "rsh/vfs/vfs.h"

#include <errno.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define AT(member) RSH_OPTION_AT(struct rsh_vfs_config, member)

void rsh_vfs_config_init(struct rsh_vfs_config *cfg)
{
	*cfg = (struct rsh_vfs_config){
		.output = rsh_output_default(),
		.plan = rsh_plan_usual,
		.fallbacks = 5,
		.tree = {
			.prefix = "checkpoint_",
			.uid = getuid(),
			.gid = getgid(),
		},
	};
}

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

/* A strategy that is given as well is refused later. */
static int set_dst_mesh(const struct rsh_setting *s)
{
	struct rsh_vfs_config *v = s->base;

	if (!v->dst.from)
		v->dst.from = RSH_FROM_DERIVED;
	v->mesh = s->value;
	return rsh_set_derive(s);
}

const struct rsh_option rsh_vfs_strategy_rows[] = {
	{ "src-strategy", "PATH|none",
	  "strategy of SOURCE: file, directory, or none if not sharded "
	  "(required for rank files)", set_strategy, .opens_links = true,
	  AT(src), .first = true, .checks = true,
	  .needs = "checkpoint|SOURCE" },
	{ "dst-strategy", "PATH|none",
	  "destination strategy: file, directory, or none for whole tensors "
	  "(required for rank files)", set_strategy, .opens_links = true,
	  AT(dst), .first = true },
	{ "dst-mesh", "MESH", "destination mesh: dp=2,mp=4[,pp=2][,ep=4]",
	  set_dst_mesh, AT(derive), .min = RSH_DERIVE_MESH, .first = true,
	  .excludes = "dst-strategy" },
	{ "pipeline-layers", "N,N,...",
	  "with megatron: number of layers in each stage (default: equal)",
	  rsh_set_text, AT(pipeline_layers), .decides = RSH_DECIDES_TEXT },
	{ "group-info", "PATH",
	  "group_info.pb to compare with --src-strategy (default: those in "
	  "SOURCE)", rsh_set_text, AT(group_info), .opens = true },
	{ .name = NULL },
};

const struct rsh_option rsh_vfs_fallback_rows[] = {
	{ "fallbacks", "N",
	  "number of older checkpoints to try if the newest is incomplete "
	  "(default: 5)", rsh_set_number, AT(fallbacks), .min = 0,
	  .max = 1000000 },
	{ .name = NULL },
};

static int set_output(const struct rsh_setting *s)
{
	const struct rsh_output *output = rsh_output_find(s->value);

	if (!output)
		return rsh_option_refuse_word(s);
	*(const struct rsh_output **)s->to = output;
	return 0;
}

/* The converter refuses more, since it joins the prefix to a path.  Here only
 * the prefixes are refused that do not make the plain name of a file. */
static int check_prefix(const char *value, struct rsh_error *err)
{
	if (strchr(value, '/') || value[0] == '.' || strstr(value, ".."))
		return rsh_error_set(err, EINVAL, "prefix: \"%s\" must not "
				     "contain '/' or \"..\" or begin with "
				     "'.'", value);
	for (const char *c = value; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			return rsh_error_set(err, EINVAL, "prefix: the value "
					     "contains a control character");
	return 0;
}

const struct rsh_option rsh_vfs_output_rows[] = {
	{ "format", RSH_OUTPUT_WORDS,
	  "output format (default: ckpt; hf for models)", set_output,
	  .decides = RSH_DECIDES_OUTPUT, AT(output), .first = true },
	{ "model-files", "DIR|none",
	  "with hf: also show files of DIR such as config.json (default: "
	  "none; SOURCE for a Hugging Face model)", rsh_set_text, .opens = true,
	  AT(model_files), .none = "none" },
	{ "optimizer", "auto|keep",
	  "with hf: leave out optimizer states, or keep them (default: auto)",
	  rsh_set_word, AT(keep_states), .decides = RSH_DECIDES_VALUE },
	{ "prefix", "STR",
	  "show files as rank_N/STRN.ckpt (default: checkpoint_); with "
	  "megatron: name of the step, iter_N (default: release)", rsh_set_text,
	  .decides = RSH_DECIDES_TEXT, AT(tree.prefix),
	  .check = check_prefix, .may_be_empty = true },
	{ "rename", "FILE",
	  "JSON file that maps old parameter names to new ones", rsh_set_text,
	  AT(rename), .decides = RSH_DECIDES_FILE, .opens = true,
	  .may_be_empty = true, .once = true },
	{ .name = NULL },
};
