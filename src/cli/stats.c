/* SPDX-License-Identifier: Apache-2.0 */
/* cli/stats.c - `stats`: what a mount has counted so far. */
#include "config.h"

#include "stats.h"

#include <errno.h>

#include "ask.h"
#include "figures.h"
#include "output.h"
#include "rsh/util/mem.h"
#include "text.h"

static int print_heading(const struct rsh_output *out, json_t *all)
{
	const char *source, *step, *level;
	int pid;

	if (json_unpack(all, "{s:s,s:s,s:s,s:i}", "source", &source, "step",
			&step, "log_level", &level, "pid", &pid))
		return -EINVAL;
	rsh_output_put(out, source);
	fputs(": ", out->f);
	rsh_output_put(out, step);
	fprintf(out->f, ", process %d, log level ", pid);
	rsh_output_put(out, level);
	fputs("\n\n", out->f);
	return 0;
}

enum rsh_exit rsh_stats(const struct rsh_options *o)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_output out;
	json_t *all = NULL;
	int rc = rsh_ask(o->mountpoint, "stats", &all, &err);

	rsh_output_init(&out, o);
	if (rc == 0 && o->json) {
		rc = rsh_output_json(&out, json_incref(all));
	} else if (rc == 0) {
		rc = print_heading(&out, all);
		if (rc == 0)
			rc = rsh_figures_print(all, &out);
		if (rc == -EINVAL)
			rc = rsh_ask_refuse(o->mountpoint, &err);
	}
	json_decref(all);
	if (rc == -ENOMEM)
		rsh_error_nomem(&err);
	return rc ? rsh_exit_failed(o, rc, &err) : RSH_EXIT_GOOD;
}
