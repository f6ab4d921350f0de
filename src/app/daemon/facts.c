/* SPDX-License-Identifier: Apache-2.0 */
/* app/daemon/facts.c makes the text of each file of the control directory when
 * that file is opened. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon_i.h"
#include "rsh/app/figures.h"
#include "rsh/app/json.h"
#include "rsh/util/clock.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"
#include "rsh/vfs/attribute.h"

int rsh_facts_init(struct rsh_facts *f, const struct rsh_options *o,
		   rsh_mount_planner *plan)
{
	*f = (struct rsh_facts){
		.options = o,
		.plan = plan,
		.source = realpath(o->vfs.source, NULL),
		.mountpoint = realpath(o->mountpoint, NULL),
		.identity = rsh_identity(o),
		.begun = rsh_clock_ns(),
	};
	if (!f->source)
		f->source = strdup(o->vfs.source);
	if (!f->mountpoint)
		f->mountpoint = strdup(o->mountpoint);
	return f->source && f->mountpoint && f->identity ? 0 : -ENOMEM;
}

void rsh_facts_clear(struct rsh_facts *f)
{
	free(f->source);
	free(f->mountpoint);
	json_decref(f->identity);
}

uint32_t rsh_facts_n_plans(const struct rsh_facts *f)
{
	struct rsh_vfs_view view;

	return rsh_vfs_view(f->tree, &view) ?
	       rsh_plan_n_files(view.plan) /
		       rsh_plan_files_of_rank(view.plan) : 0;
}

/* ---- stats, metrics ---- */

static void take_figures(const struct rsh_facts *f, struct rsh_figures *out)
{
	struct rsh_store *store = rsh_vfs_store(f->tree);
	struct rsh_store_outages outages;

	rsh_store_outages(store, &outages);
	*out = (struct rsh_figures){
		.uptime_ns = rsh_clock_ns() - f->begun,
		.failed_files = rsh_store_n_failed(store),
		.outages = outages.n,
		.unreachable = outages.on,
	};
	rsh_log_counts(&out->errors, &out->warnings);
	rsh_server_stats(f->server, &out->streams);
	rsh_store_io_stats_get(f->io, &out->io);
}

/* Makes the members with which both stats and config begin. */
static json_t *heading(const struct rsh_facts *f)
{
	cleanup_free char *step = NULL;
	json_t *shown = NULL;

	if (rsh_vfs_has_steps(f->tree))
		shown = json_string("all");
	else if (rsh_vfs_step(f->tree, &step) == 0)
		shown = rsh_json_text(step);
	return json_pack("{s:s,s:i,s:o,s:o,s:o,s:s}", "version",
			 PACKAGE_VERSION, "pid", (int)getpid(), "source",
			 rsh_json_text(f->source), "mountpoint",
			 rsh_json_text(f->mountpoint), "step", shown,
			 "log_level", rsh_log_level_name(rsh_log_get_level()));
}

/* ---- config ---- */

static json_t *cache_json(const struct rsh_facts *f, bool cached)
{
	const struct rsh_cache_options *c = &f->options->io.cache;

	if (!cached)
		return json_null();
	return json_pack("{s:o,s:s,s:o,s:o,s:o,s:b}", "memory_bytes",
			 rsh_json_u64(f->cache_bytes), "compress",
			 c->compress == RSH_COMPRESS_OFF ? "off" : "auto",
			 "directory", rsh_json_optional(c->dir), "disk_bytes",
			 c->dir ? rsh_json_u64(c->disk_bytes) : json_null(),
			 "servers", rsh_json_optional(c->servers.list),
			 "keyed", c->servers.key_file != NULL);
}

static json_t *config_json(const struct rsh_facts *f)
{
	static const char *const logs[] = {
		[RSH_LOG_TO_AUTO] = "syslog",
		[RSH_LOG_TO_STDERR] = "stderr",
		[RSH_LOG_TO_FILE] = "file",
		[RSH_LOG_TO_SYSLOG] = "syslog",
		[RSH_LOG_TO_JOURNAL] = "journal",
	};
	const struct rsh_options *o = f->options;
	struct rsh_store_io_stats io;
	struct rsh_vfs_view view;
	json_t *all = heading(f), *more, *given = json_object();

	for (size_t i = 0; i < o->n_given; i++)
		json_object_set_new(given, o->given[i].name,
				    o->given[i].value ?
				    rsh_json_text(o->given[i].value) :
				    json_true());
	rsh_store_io_stats_get(f->io, &io);
	more = json_pack(
		"{s:b,s:o,s:o,s:o,s:o,s:o,s:s,s:b,s:o,s:s,s:o,s:O}", "resume",
		o->resume, "src_strategy",
		rsh_json_optional(rsh_strategy_text(&o->vfs.src)),
		"dst_strategy",
		rsh_json_optional(rsh_strategy_text(&o->vfs.dst)), "format",
		rsh_json_optional(rsh_vfs_view(f->tree, &view) ?
				  view.output->name : NULL), "prefix",
		rsh_json_optional(o->resume ? NULL : o->vfs.tree.prefix),
		"replicas",
		o->resume ? json_null() : json_boolean(o->vfs.plan.replicas),
		"io_mode", rsh_server_is_direct(f->server) ? "direct" :
							     "cached",
		"cached", io.cached, "cache", cache_json(f, io.cached),
		"log_to", o->log_to == RSH_LOG_TO_AUTO && o->foreground ?
		"stderr" : logs[o->log_to], "options", given, "made_of",
		f->identity);
	if (!all || !more || json_object_update(all, more)) {
		json_decref(all);
		all = NULL;
	}
	json_decref(more);
	return all;
}

/* ---- all ---- */

/* Drops the value; the value is NULL if memory was out. */
static int dump(json_t *value, char **text)
{
	cleanup_free char *json =
		rsh_json_dump(value, JSON_INDENT(2) | JSON_REAL_PRECISION(9));

	*text = json ? rsh_text_format("%s\n", json) : NULL;
	return *text ? 0 : -ENOMEM;
}

int rsh_facts_make(void *facts, enum rsh_control_file which, uint32_t rank,
		   char **text)
{
	const struct rsh_facts *f = facts;
	struct rsh_figures figures;
	struct rsh_vfs_view view;
	json_t *value = NULL;
	size_t length;
	FILE *to;

	switch (which) {
	case RSH_CONTROL_STATS:
		value = heading(f);
		take_figures(f, &figures);
		if (value && rsh_figures_json(&figures, value)) {
			json_decref(value);
			value = NULL;
		}
		return dump(value, text);
	case RSH_CONTROL_METRICS:
		to = open_memstream(text, &length);
		if (!to)
			return -ENOMEM;
		take_figures(f, &figures);
		rsh_figures_metrics(&figures, to);
		return fclose(to) ? -ENOMEM : 0;
	case RSH_CONTROL_LOG:
		*text = rsh_log_recent();
		return *text ? 0 : -ENOMEM;
	case RSH_CONTROL_CONFIG:
		return dump(config_json(f), text);
	case RSH_CONTROL_STEPS:
		return dump(rsh_mount_steps_json(f->tree), text);
	case RSH_CONTROL_NO_PLAN:
		return rsh_mount_steps_plans(f->options, f->tree, text);
	case RSH_CONTROL_PLAN:
		rsh_vfs_view(f->tree, &view);
		return f->plan(f->options, &view, rank, text);
	}
	return -ENOENT;
}
