/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/plan.c runs `plan`, which prints what a conversion reads and costs.
 * With --rank-list, which reads no checkpoint, it prints the lists of
 * rank_list_for_transform.  The Python module draws pictures. */
#include "config.h"

#include "commands.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rsh/app/options.h"
#include "rsh/plan/rank_list.h"
#include "rsh/source/source.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"

/* ---- lists of ranks ---- */

/* Prints a list; if `list` is NULL there is none, and `reason` says why.  The
 * highest rank comes first, as in the lists of MindSpore's function. */
static void tell_list(struct rsh_printer *out, const struct rsh_rank_list *list,
		      uint32_t rank, const char *reason, bool *sources,
		      uint32_t n)
{
	rsh_json(out, "{rank:% sources:", rank);
	if (list) {
		rsh_rank_list_mark(list, rank, sources, n);
		rsh_json(out, "[");
		rsh_say(out, "%:", rank);
		while (n-- > 0)
			if (sources[n]) {
				rsh_json(out, "%", n);
				rsh_say(out, " %", n);
			}
		rsh_json(out, "]");
		rsh_say(out, "\n");
	} else {
		rsh_json(out, "%", RSH_V_NULL);
	}
	rsh_json(out, "reason:%}", reason);
}

static uint32_t ranks_of(const struct rsh_strategy *s)
{
	return s ? s->n_stages * s->stage_ranks : 1;
}

static int print_rank_lists(const struct rsh_options *o, struct rsh_run *run)
{
	struct rsh_printer *out = &run->out;
	struct rsh_error *err = &run->err;
	cleanup_names struct rsh_names *names = rsh_names_new();
	/* NULL: none */
	cleanup_strategy struct rsh_strategy *src = NULL, *dst = NULL;
	/* By destination rank, and by source rank: in the list. */
	cleanup_free bool *wanted = NULL, *sources = NULL;
	uint32_t n, per_stage;
	int rc = names ? rsh_vfs_load_strategies(&o->vfs, names, &src, &dst,
						 err) :
			 rsh_error_nomem(err);

	rsh_json(out, "{rank_lists:[");
	n = ranks_of(dst);
	per_stage = dst ? dst->stage_ranks : 1;
	wanted = rsh_alloc_array(n, sizeof(*wanted));
	sources = rsh_alloc_array(ranks_of(src), sizeof(*sources));
	if (rc == 0 && (!wanted || !sources))
		rc = rsh_error_nomem(err);
	rc = rc ?: rsh_ranks_mark(o, 1, n, wanted, err);
	for (uint32_t first = 0; rc == 0 && first < n; first += per_stage) {
		const uint32_t stage = first / per_stage;
		struct rsh_rank_list *list = NULL;

		if (!memchr(wanted + first, true, per_stage))
			continue;
		rc = rsh_rank_list_new(src, dst, stage, names, &list, err);
		if (rc && rc != -EDOM)
			break;
		if (rc) {
			run->status = RSH_EXIT_NO;
			rsh_log_error("stage %" PRIu32 ": %s", stage,
				      err->text);
		}
		for (uint32_t r = first; r < first + per_stage; r++)
			if (wanted[r])
				tell_list(out, list, r, rc ? err->text : NULL,
					  sources, ranks_of(src));
		rsh_rank_list_free(list);
		rc = 0;
	}
	rsh_json(out, "]}");
	return rc;
}

/* ---- what a conversion reads ---- */

/* With -m, Python would import files of the working directory, which may be
 * a checkpoint of others. */
#define DRAWS \
	"import sys; sys.path[:] = [p for p in sys.path if p]; " \
	"from reshardfs.picture import main; sys.exit(main())"

/* Runs the module, which reads JSON from standard input. */
static int draw(const char *json, const char *path, struct rsh_error *err)
{
	FILE *f = tmpfile();
	int status = -1;
	pid_t pid;

	if (!f || fputs(json, f) < 0 || fflush(f))
		return rsh_error_set(err, errno, "a temporary file: %s",
				     strerror(errno));
	rewind(f);
	pid = fork();
	if (pid == 0) {
		dup2(fileno(f), STDIN_FILENO);
		execlp("python3", "python3", "-c", DRAWS, "--", path,
		       (char *)NULL);
		_exit(127);
	}
	fclose(f);
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return rsh_error_set(err, errno, "python3: %s",
				     strerror(errno));
	if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
		return rsh_error_set(err, ENOENT, "--picture %s: there is no "
				     "python3, which draws it", path);
	return status ? rsh_error_set(err, EIO, "%s was not drawn: `python3 "
				      "-m reshardfs.picture` failed; the first "
				      "python3 in PATH needs the modules "
				      "reshardfs and matplotlib", path) : 0;
}

static int report_plan(const struct rsh_options *o, struct rsh_run *run)
{
	struct rsh_printer drawn, *out = o->picture ? &drawn : &run->out;
	struct rsh_error *err = &run->err;
	cleanup_free bool *wanted = NULL;
	struct rsh_vfs *vfs = NULL;
	struct rsh_vfs_view view;
	int rc = rsh_vfs_open(&o->vfs, &vfs, err);

	if (rc == 0 && !rsh_vfs_view(vfs, &view))
		rc = rsh_error_set(err, EINVAL, "nothing is converted");
	rc = rc ?: rsh_ranks_mark_files(o, 1, view.plan, &wanted, err);
	if (o->picture)
		rsh_printer_init_text(&drawn, 6, 0);
	if (rc == 0 && rsh_plan_print(out, o->vfs.source, &view, wanted,
				      o->slices || o->picture,
				      o->slices || o->picture))
		rc = rsh_error_nomem(err);
	rsh_vfs_free(vfs);
	if (o->picture) {
		cleanup_free char *json = rsh_printer_take(&drawn);

		rc = rc ?: json ? draw(json, o->picture, err) :
		     rsh_error_nomem(err);
	}
	return rc;
}

int rsh_plan(const struct rsh_options *o, struct rsh_run *run)
{
	return o->rank_list ? print_rank_lists(o, run) : report_plan(o, run);
}
