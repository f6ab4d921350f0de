/* SPDX-License-Identifier: Apache-2.0 */
/* app/daemon/steps.c opens the tree of all steps of a job.  Each step is opened
 * with the options of a mount of it alone. */
#include "config.h"

#include "daemon_i.h"

#include <errno.h>
#include <stdlib.h>

#include "rsh/app/commands.h"
#include "rsh/copy/copy.h"
#include "rsh/plan/conversion.h"
#include "rsh/source/format.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"

/* Opens the tree of one step.  `hash` may be NULL. */
static int open_as(const struct rsh_mount_steps *m,
		   const struct rsh_saved_step *step, bool partly,
		   struct rsh_vfs **out, uint64_t *hash, struct rsh_error *err)
{
	struct rsh_options o;
	int rc = rsh_options_of_step(m->options, step, &m->files.store, &o,
				     err);

	o.vfs.plan.allow_missing = partly;
	rc = rc ?: rsh_vfs_open(&o.vfs, out, err);
	if (rc == 0 && hash) {
		rc = rsh_conversion_hash(*out, &o.vfs, hash, err);
		if (rc) {
			rsh_vfs_free(*out);
			*out = NULL;
		}
	}
	rsh_arena_clear(&o.memory);
	return rc;
}

static int open_step(void *ctx, const struct rsh_saved_step *step,
		     struct rsh_vfs **out, uint64_t *hash,
		     struct rsh_error *err)
{
	const struct rsh_mount_steps *m = ctx;

	return open_as(m, step, m->options->vfs.plan.allow_missing, out, hash,
		       err);
}

/* A step without the files of all ranks is shown if it can be planned. */
static int check_covers(void *ctx, const struct rsh_saved_step *step,
			bool partly, struct rsh_error *err)
{
	struct rsh_vfs *tree = NULL;
	int rc = open_as(ctx, step, partly, &tree, NULL, err);

	rsh_vfs_free(tree);
	return rc;
}

/* The ranks that each step must have are those of the source strategy. */
static int find_ranks(const struct rsh_options *o, uint32_t *first, uint32_t *n,
		      struct rsh_error *err)
{
	struct rsh_vfs_config cfg = o->asked;
	cleanup_strategy struct rsh_strategy *src = NULL, *dst = NULL;
	cleanup_names struct rsh_names *names = NULL;
	int rc;

	*first = 0;
	*n = UINT32_MAX;
	if (cfg.src.from != RSH_FROM_FILE)
		return 0;
	cfg.dst = (struct rsh_strategy_at){ .from = RSH_FROM_NONE };
	names = rsh_names_new();
	if (!names)
		return rsh_error_nomem(err);
	rc = rsh_vfs_load_strategies(&cfg, names, &src, &dst, err);
	if (rc == 0)
		rsh_conversion_source_ranks(src, NULL, names, true, first, n);
	return rc;
}

/* What the first look has found. */
struct first_look {
	struct rsh_saved_step newest; /* the newest complete step */
	bool any; /* there is a step, complete or not */
	bool shown;
};

static void take_status(void *ctx, const struct rsh_step_status *status)
{
	struct first_look *look = ctx;

	look->any |= status->saved->step.n > 0;
	if (!status->shown)
		return;
	look->shown = true;
	look->newest = *status->saved;
}

/* Options that do not fit the newest step are refused before anything is
 * mounted. */
static int check_first_look(struct rsh_mount_steps *m, const struct rsh_vfs *v,
			    struct rsh_error *err)
{
	struct first_look look = { .any = false };
	struct rsh_options o;
	char *unlisted;
	int rc;

	rsh_steps_each(v, take_status, &look, &unlisted);
	free(unlisted);
	if (!look.any) {
		/* A directory without steps may be that of a job which has not
		 * saved yet, or one step by mistake. */
		const char *path = m->options->vfs.source;
		struct rsh_error unused = RSH_ERROR_INIT;
		int bid;
		const struct rsh_format *f = rsh_source_format_at(
			path, &m->files.store, m->files.formats, &bid, &unused);

		if (f && bid >= RSH_BID_MODEL && f->layout != RSH_LAYOUT_GIVEN)
			return rsh_error_set(err, EINVAL, "%s: this is one "
					     "checkpoint, but --steps all "
					     "needs the directory above it",
					     path);
		rsh_log_notice("%s: it contains no step yet", path);
		return 0;
	}
	if (!look.shown)
		return 0;
	rc = rsh_options_of_step(m->options, &look.newest, &m->files.store, &o,
				 err);
	rsh_arena_clear(&o.memory);
	return rc;
}

int rsh_mount_steps_open(struct rsh_mount_steps *m, struct rsh_vfs **out,
			 struct rsh_error *err)
{
	const struct rsh_options *o = m->options;
	struct rsh_steps_config cfg = {
		.dir = {
			.path = o->vfs.source, .files = &m->files,
			.covers = check_covers, .ctx = m,
			.partly = o->vfs.plan.allow_missing,
		},
		.interval_ns = (uint64_t)o->steps_interval * 1000000,
		.uid = o->vfs.tree.uid, .gid = o->vfs.tree.gid,
		.open = open_step, .ctx = m,
	};
	return find_ranks(o, &cfg.dir.first_rank, &cfg.dir.n_ranks, err) ?:
	       rsh_steps_open(&cfg, out, err) ?:
	       check_first_look(m, *out, err);
}

/* ---- the files of the control directory ---- */

struct plans {
	const struct rsh_options *options;
	FILE *to;
};

static void write_plan(void *ctx, const struct rsh_step_status *status)
{
	const struct plans *p = ctx;
	const struct rsh_saved_step *saved = status->saved;
	const char *operands[] = { saved->path, NULL };
	cleanup_free char *line = NULL;

	if (!status->shown)
		return;
	line = rsh_options_line(p->options, rsh_command_find("plan"), operands);
	if (!line)
		return;
	fputs(line, p->to);
	if (saved->selected)
		fprintf(p->to, " --select=%s%s", saved->step.n < 2 ? "step=" :
			"", saved->name);
	fputc('\n', p->to);
}

int rsh_mount_steps_plans(const struct rsh_options *o, const struct rsh_vfs *v,
			  char **text)
{
	size_t length;
	struct plans p = { o, open_memstream(text, &length) };
	char *unlisted = NULL;

	if (!p.to)
		return -ENOMEM;
	fputs("Each step has a plan of its own, which is printed by\n", p.to);
	rsh_steps_each(v, write_plan, &p, &unlisted);
	free(unlisted);
	if (fclose(p.to) == 0)
		return 0;
	free(*text);
	return -ENOMEM;
}

struct statuses {
	struct rsh_printer steps;
	char *latest;
};

static void print_status(void *ctx, const struct rsh_step_status *status)
{
	struct statuses *all = ctx;
	const struct rsh_saved_step *saved = status->saved;
	const struct rsh_step *step = &saved->step;

	/* The last number of a name is its step. */
	rsh_json(&all->steps, "{name:% step:% shown:% planned:% why:%}",
		 saved->name, RSH_V_IF(step->n, step->numbers[(step->n_words ?:
							  step->n) - 1]),
		 status->shown, status->planned, status->why);
	if (!status->shown)
		return;
	free(all->latest);
	all->latest = strdup(saved->name);
	all->steps.failed |= !all->latest;
}

void rsh_mount_steps_print(struct rsh_printer *out, const struct rsh_vfs *v)
{
	struct statuses all = { .latest = NULL };
	cleanup_free char *unlisted = NULL;

	rsh_json(out, "{");
	rsh_printer_init_part(&all.steps, out);
	rsh_json(&all.steps, "[");
	rsh_steps_each(v, print_status, &all, &unlisted);
	rsh_json(&all.steps, "]");
	rsh_json(out, "latest:% error:% steps:", all.latest, unlisted);
	rsh_printer_put_part(out, &all.steps);
	rsh_json(out, "}");
	free(all.latest);
}
