/* SPDX-License-Identifier: Apache-2.0 */
/* app/options/values.c sets defaults, and frees struct rsh_options. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rsh/app/digest.h"
#include "rsh/formats/formats.h"
#include "rsh/util/checked.h"
#include "rsh/util/mem.h"
#include "set_i.h"

/* Hugging Face's tools use this size. */
#define DEFAULT_PART_BYTES UINT64_C(5000000000)

/* The cache has at most so many bytes, or a tenth of the memory if that is
 * less. */
#define MAX_CACHE_BYTES (UINT64_C(1) << 30)
#define DEFAULT_DISK_BYTES (UINT64_C(16) << 30)

void rsh_options_init(struct rsh_options *o)
{
	*o = (struct rsh_options){
		.subtype = "reshardfs",
		.log_level = RSH_LOG_NOTICE,
		.vfs = {
			.output = rsh_output_default(),
			.plan.replicas = true,
			.fallbacks = 5,
			.files.store.objects = &o->objects,
			.tree = {
				.prefix = "checkpoint_",
				.uid = getuid(),
				.gid = getgid(),
			},
		},
		.io.cache = {
			.memory_bytes = rsh_min_u64(MAX_CACHE_BYTES,
						    rsh_physical_memory() / 10),
			.disk_bytes = DEFAULT_DISK_BYTES,
		},
	};
}

/* Returns the directory that the XDG base directory specification defines,
 * which requires absolute paths; it is from malloc, or NULL if there is
 * none. */
static char *default_index_cache(void)
{
	const char *base = getenv("XDG_CACHE_HOME");
	const char *home = getenv("HOME");
	char *path;
	int n = -1;

	if (base && *base == '/')
		n = asprintf(&path, "%s/reshardfs/index", base);
	else if (home && *home == '/')
		n = asprintf(&path, "%s/.cache/reshardfs/index", home);
	return n < 0 ? NULL : path;
}

/* If memory for the name is out, no index cache is used. */
static void set_index_cache(struct rsh_options *o)
{
	struct rsh_source_options *f = &o->vfs.files;
	cleanup_free char *path = NULL;

	if (f->index_cache_asked || f->index_cache)
		return;
	path = default_index_cache();
	if (!path || rsh_grow(&o->copies, &o->cap_copies, o->n_copies + 1,
			      sizeof(*o->copies)))
		return;
	f->index_cache = o->copies[o->n_copies++] = steal_pointer(&path);
}

void rsh_options_settle(struct rsh_options *o)
{
	struct rsh_vfs_config *v = &o->vfs;

	set_index_cache(o);
	o->asked = o->vfs;
	v->weights.part_bytes = v->plan.part_bytes ? v->plan.part_bytes :
						     DEFAULT_PART_BYTES;
	v->plan.part_bytes = v->output->division == RSH_DIVIDE_PARTS ?
			     v->weights.part_bytes : 0;
	/* If a Hugging Face model is shown with the files beside its weights,
	 * its optimizer states belong to the model and are kept. */
	v->leave_states = v->output->takes & RSH_TAKES_OPTIMIZER &&
			  !v->keep_states && !v->only && !v->drop &&
			  !v->weights.table &&
			  !(o->format &&
			    o->format->shown == RSH_SHOWN_HF_BESIDE);
	/* The converter does not choose steps, so files are selected by its
	 * rules. */
	if (v->plan.compat && !rsh_option_given(o, "select"))
		v->files.select = RSH_SELECT_MINDSPORE;
	v->files.unsharded = v->src.from != RSH_FROM_FILE;
	v->files.formats = rsh_formats;
	v->digest = rsh_options_digest;
	if (!o->fsname)
		o->fsname = v->source;
	if (rsh_option_given(o, "log-level"))
		return;
	if (o->quiet)
		o->log_level = RSH_LOG_ERROR;
	if (o->debug)
		o->log_level = RSH_LOG_DEBUG;
}

bool rsh_option_given(const struct rsh_options *o, const char *name)
{
	for (size_t i = 0; i < o->n_given; i++)
		if (strcmp(o->given[i].name, name) == 0)
			return true;
	return false;
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
	for (size_t i = 0; i < o->n_copies; i++)
		free(o->copies[i]);
	free(o->copies);
	free(o->given);
	free(o->mount_opts);
	rsh_objects_options_clear(&o->objects);
	rsh_derive_options_free(o->vfs.derive);
}
