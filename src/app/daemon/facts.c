/* SPDX-License-Identifier: Apache-2.0 */
/* app/daemon/facts.c makes the text of each file of the control directory when
 * that file is opened. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon_i.h"
#include "rsh/app/figures.h"
#include "rsh/copy/copy.h"
#include "rsh/util/clock.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"
#include "rsh/vfs/attribute.h"

int rsh_facts_init(struct rsh_facts *f, const struct rsh_options *o,
		   const json_t *identity, rsh_mount_planner *plan)
{
	*f = (struct rsh_facts){
		.options = o,
		.plan = plan,
		.source = realpath(o->vfs.source, NULL),
		.mountpoint = realpath(o->mountpoint, NULL),
		.identity = identity,
		.begun = rsh_clock_ns(),
	};
	if (!f->source)
		f->source = strdup(o->vfs.source);
	if (!f->mountpoint)
		f->mountpoint = strdup(o->mountpoint);
	return f->source && f->mountpoint ? 0 : -ENOMEM;
}

void rsh_facts_clear(struct rsh_facts *f)
{
	free(f->source);
	free(f->mountpoint);
	free(f->shown);
}

int rsh_facts_set_shown(struct rsh_facts *f, const struct rsh_vfs_config *cfg,
			struct rsh_error *err)
{
	struct rsh_vfs_view view;
	uint64_t hash;
	int rc;

	if (rsh_vfs_has_steps(f->tree))
		return 0;
	/* Files that --resume shows unchanged have no conversion. */
	if (!rsh_vfs_view(f->tree, &view)) {
		rc = rsh_vfs_step(f->tree, &f->shown);
		return rc ? rsh_error_nomem(err) : 0;
	}
	rc = rsh_conversion_hash(f->tree, cfg, &hash, err);
	if (rc == 0)
		f->shown = rsh_text_format("%016" PRIx64, hash);
	return rc ?: f->shown ? 0 : rsh_error_nomem(err);
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

/* Prints the members with which both stats and config begin. */
static void print_heading(struct rsh_printer *out, const struct rsh_facts *f)
{
	cleanup_free char *step = NULL;

	if (rsh_vfs_has_steps(f->tree))
		step = strdup("all");
	else if (rsh_vfs_step(f->tree, &step))
		step = NULL;
	out->failed |= !step;
	rsh_json(out, "{version:% pid:% source:% mountpoint:% step:% "
		 "log_level:%", PACKAGE_VERSION, getpid(), f->source,
		 f->mountpoint, step, rsh_log_level_name(rsh_log_get_level()));
}

/* ---- config ---- */

static void put_cache(struct rsh_printer *out, const void *ctx)
{
	const struct rsh_facts *f = ctx;
	const struct rsh_cache_options *c = &f->options->io.cache;

	rsh_json(out, "{memory_bytes:% compress:% directory:% disk_bytes:% "
		 "servers:% keyed:%}", f->cache_bytes,
		 c->compress == RSH_COMPRESS_OFF ? "off" : "auto", c->dir,
		 RSH_V_IF(c->dir, c->disk_bytes), c->servers.list,
		 rsh_v_bool(c->servers.key_file != NULL));
}

/* Prints the last value of each option. */
static void put_given(struct rsh_printer *out, const void *ctx)
{
	const struct rsh_options *o = ctx;

	rsh_json(out, "{");
	for (size_t i = 0; i < o->n_given; i++) {
		const struct rsh_given *last = &o->given[i];
		size_t first = 0;

		while (strcmp(o->given[first].name, last->name) != 0)
			first++;
		for (size_t k = i; k < o->n_given; k++)
			if (strcmp(o->given[k].name, last->name) == 0)
				last = &o->given[k];
		if (first == i)
			rsh_json(out, "%:%", last->name, last->value ?
				 rsh_v_text(last->value) : rsh_v_bool(true));
	}
	rsh_json(out, "}");
}

static void print_config(struct rsh_printer *out, const struct rsh_facts *f)
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
	json_t *line;
	size_t i;

	rsh_store_io_stats_get(f->io, &io);
	rsh_json(out, "resume:% src_strategy:% dst_strategy:% format:% "
		 "prefix:% replicas:% io_mode:% cached:% cache:% log_to:% "
		 "options:% shown:% made_of:[", o->resume,
		 rsh_strategy_text(&o->vfs.src), rsh_strategy_text(&o->vfs.dst),
		 rsh_vfs_view(f->tree, &view) ? view.output->name : NULL,
		 o->resume ? NULL : o->vfs.tree.prefix,
		 RSH_V_IF(!o->resume, o->vfs.plan.replicas),
		 rsh_server_is_direct(f->server) ? "direct" : "cached",
		 io.cached, RSH_V_IF(io.cached, rsh_v_call(put_cache, f)),
		 o->log_to == RSH_LOG_TO_AUTO && o->foreground ? "stderr" :
		 logs[o->log_to], rsh_v_call(put_given, o), f->shown);
	json_array_foreach(f->identity, i, line)
		rsh_json(out, "%", json_string_value(line));
	rsh_json(out, "]");
}

/* ---- all ---- */

int rsh_facts_make(void *facts, enum rsh_control_file which, uint32_t rank,
		   char **text)
{
	const struct rsh_facts *f = facts;
	struct rsh_figures figures;
	struct rsh_vfs_view view;
	struct rsh_printer out;
	size_t length;
	FILE *to;

	switch (which) {
	case RSH_CONTROL_STATS:
	case RSH_CONTROL_CONFIG:
	case RSH_CONTROL_STEPS:
		rsh_printer_init_text(&out, 9, 2);
		if (which == RSH_CONTROL_STEPS) {
			rsh_mount_steps_print(&out, f->tree);
		} else {
			print_heading(&out, f);
			if (which == RSH_CONTROL_CONFIG) {
				print_config(&out, f);
			} else {
				take_figures(f, &figures);
				rsh_figures_json(&figures, &out);
			}
			rsh_json(&out, "}");
		}
		*text = rsh_printer_take(&out);
		return *text ? 0 : -ENOMEM;
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
	case RSH_CONTROL_NO_PLAN:
		return rsh_mount_steps_plans(f->options, f->tree, text);
	case RSH_CONTROL_PLAN:
		rsh_vfs_view(f->tree, &view);
		return f->plan(f->options, &view, rank, text);
	}
	return -ENOENT;
}
