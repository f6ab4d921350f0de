/* SPDX-License-Identifier: Apache-2.0 */
/* options/conversion.c turns the options of a command into what source/ and
 * vfs/ are asked for. */
#include "config.h"

#include "rsh/options/conversion.h"

#include <string.h>
#include <unistd.h>

static const char *strategy_path(const char *given)
{
	return given && strcmp(given, "none") != 0 ? given : NULL;
}

struct rsh_source_options rsh_files_of(const struct rsh_options *o)
{
	struct rsh_source_options so = o->files;

	/* The converter knows no steps. */
	if (o->compat && !o->has_select)
		so.select = RSH_SELECT_MINDSPORE;
	so.unsharded = !strategy_path(o->src_strategy);
	return so;
}

struct rsh_vfs_config rsh_conversion_of(const struct rsh_options *o)
{
	return (struct rsh_vfs_config){
		.source = o->source,
		.src_strategy = strategy_path(o->src_strategy),
		.dst_strategy = strategy_path(o->dst_strategy),
		.derive = o->dst_mesh ? o->derive : NULL,
		.compat = o->compat,
		.replicas = !o->no_replicas,
		.allow_missing = o->allow_missing,
		.dst_ranks = o->dst_ranks,
		.files = rsh_files_of(o),
		.fallbacks = o->fallbacks,
		.group_info = o->group_info,
		.unlisted = o->unlisted,
		.only = o->only,
		.drop = o->drop,
		.rename = o->rename,
		.cast = o->cast,
		.remove_redundancy = o->remove_redundancy,
		.format = o->format,
		.part_bytes = o->in_parts ? o->part_bytes : 0,
		.tree = {
			.prefix = o->prefix,
			.uid = getuid(),
			.gid = getgid(),
		},
	};
}
