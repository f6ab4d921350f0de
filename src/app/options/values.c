/* SPDX-License-Identifier: Apache-2.0 */
/* app/options/values.c sets the defaults that do not depend on SOURCE, and
 * frees struct rsh_options. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "options_i.h"
#include "rsh/formats/formats.h"
#include "rsh/formats/torch.h"
#include "rsh/util/checked.h"
#include "rsh/util/mem.h"
#include "rsh/util/memory_limits.h"

/* The cache has at most so many bytes, or a tenth of the memory if that is
 * less. */
#define MAX_CACHE_BYTES (UINT64_C(1) << 30)
#define DEFAULT_DISK_BYTES (UINT64_C(16) << 30)

void rsh_options_init(struct rsh_options *o)
{
	*o = (struct rsh_options){
		.server.subtype = "reshardfs",
		.io.cache = {
			.memory_bytes = rsh_min_u64(MAX_CACHE_BYTES,
						    rsh_physical_memory() / 10),
			.disk_bytes = DEFAULT_DISK_BYTES,
		},
	};
	rsh_vfs_config_init(&o->vfs);
	o->vfs.files.store.objects = &o->objects;
	o->vfs.files.formats = rsh_formats;
	o->vfs.files.scan_bin = rsh_torch_scan_by_name;
	o->vfs.digest = rsh_options_digest;
}

/* Uses the directory that the XDG base directory specification defines, which
 * requires absolute paths.  If there is none, or memory for the name is out, no
 * index cache is used. */
static void set_index_cache(struct rsh_options *o)
{
	const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	struct rsh_source_options *f = &o->vfs.files;

	f->index_cache_asked = rsh_option_given(o, "index-cache");
	if (f->index_cache_asked || f->index_cache)
		return;
	if (base && *base == '/')
		f->index_cache = rsh_arena_format(&o->memory,
						  "%s/reshardfs/index", base);
	else if (home && *home == '/')
		f->index_cache = rsh_arena_format(
			&o->memory, "%s/.cache/reshardfs/index", home);
}

void rsh_options_finish(struct rsh_options *o)
{
	struct rsh_vfs_config *v = &o->vfs;

	set_index_cache(o);
	o->asked = o->vfs;
	/* The converter does not choose steps, so files are selected by its
	 * rules. */
	if (v->plan.compat && !rsh_option_given(o, "select"))
		v->files.select = RSH_SELECT_MINDSPORE;
	v->files.unsharded = v->src.from != RSH_FROM_FILE;
	if (!o->server.fsname)
		o->server.fsname = v->source;
	o->server.mountpoint = o->mountpoint;
	o->foreground |= o->server.debug;
	o->contents |= o->n_shares > 0;
	if (rsh_option_given(o, "log-level"))
		return;
	o->log_level = o->server.debug ? RSH_LOG_DEBUG :
		       o->quiet ? RSH_LOG_ERROR :
				  RSH_LOG_NOTICE - o->command->quieter;
}

bool rsh_option_given(const struct rsh_options *o, const char *name)
{
	return rsh_any(i, o->n_given, strcmp(o->given[i].name, name) == 0);
}

const char *rsh_strategy_text(const struct rsh_strategy_at *at)
{
	static const char *const names[] = {
		[RSH_FROM_NONE] = "none",
		[RSH_FROM_DERIVED] = "derived",
		[RSH_FROM_SOURCE] = "metadata.json",
	};

	return at->from == RSH_FROM_FILE ? at->path :
	       at->from ? names[at->from] : NULL;
}

void rsh_options_clear(struct rsh_options *o)
{
	rsh_arena_clear(&o->memory);
	free(o->given);
	rsh_objects_options_clear(&o->objects);
	rsh_derive_options_free(o->vfs.derive);
}
