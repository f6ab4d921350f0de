/* SPDX-License-Identifier: Apache-2.0 */
/* app/options/values.c sets defaults, and frees struct rsh_options. */
#include "config.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rsh/app/commands.h"
#include "rsh/app/options.h"
#include "rsh/formats/formats.h"
#include "rsh/util/checked.h"
#include "rsh/util/mem.h"

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

/* Uses the directory that the XDG base directory specification defines, which
 * requires absolute paths.  If there is none, or memory for the name is out, no
 * index cache is used. */
static void set_index_cache(struct rsh_options *o)
{
	const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	struct rsh_source_options *f = &o->vfs.files;
	char path[PATH_MAX];
	int n = PATH_MAX;

	if (f->index_cache_asked || f->index_cache)
		return;
	if (base && *base == '/')
		n = snprintf(path, sizeof(path), "%s/reshardfs/index", base);
	else if (home && *home == '/')
		n = snprintf(path, sizeof(path), "%s/.cache/reshardfs/index",
			     home);
	if (n >= 0 && n < PATH_MAX)
		f->index_cache = rsh_options_keep(o, path);
}

/* The answers of these commands have the chosen step and the notes on it, and
 * that of `ls` the files that are left out. */
static enum rsh_log_level level_of_command(enum rsh_command_id id)
{
	switch (id) {
	case RSH_COMMAND_LS:
		return RSH_LOG_ERROR;
	case RSH_COMMAND_PLAN:
	case RSH_COMMAND_EXPORT:
	case RSH_COMMAND_VERIFY:
	case RSH_COMMAND_LIBRARY:
		return RSH_LOG_WARNING;
	default:
		return RSH_LOG_NOTICE;
	}
}

void rsh_options_settle(struct rsh_options *o)
{
	struct rsh_vfs_config *v = &o->vfs;

	set_index_cache(o);
	o->asked = o->vfs;
	v->weights.part_bytes = v->plan.part_bytes ? v->plan.part_bytes :
				v->output->part_bytes ? v->output->part_bytes :
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
	o->log_level = level_of_command(o->command->id);
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
