/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/stats.c runs `stats`, which prints the statistics of a mount, and
 * `steps`, which lists its steps and waits for one. */
#include "config.h"

#include "commands.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "rsh/app/control_client.h"
#include "rsh/app/figures.h"
#include "rsh/source/step.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"

static int print_figures(const struct rsh_options *o, json_t *all,
			 struct rsh_printer *out, struct rsh_error *err)
{
	static const struct rsh_column columns[] = {
		{ NULL, "FIGURE" },
		{ NULL, "VALUE", .right = true },
		{ NULL, "MEANING", .wrap = ' ' },
		{ NULL, NULL }
	};
	const char *source, *step, *level;
	size_t n;
	const struct rsh_figure *table = rsh_figure_table(&n);
	int pid;

	if (json_unpack(all, "{s:s,s:s,s:s,s:i}", "source", &source, "step",
			&step, "log_level", &level, "pid", &pid))
		return rsh_control_refuse(o->mountpoint, err);
	rsh_say(out, "%: %, process %, log level %\n\n", source, step, pid,
		level);
	rsh_rows(out, columns);
	for (size_t i = 0; i < n; i++) {
		const json_t *group = json_object_get(all, table[i].group);
		const json_t *value = json_object_get(group, table[i].key);
		struct rsh_value v;
		char figure[64];

		/* A mount of another release has other figures. */
		if (json_is_null(group) || !value)
			continue;
		if (!json_is_number(value))
			return rsh_control_refuse(o->mountpoint, err);
		v = table[i].unit == RSH_FIGURE_NS ?
			rsh_v_seconds(json_number_value(value)) :
			rsh_v_number(json_integer_value(value));
		if (table[i].unit == RSH_FIGURE_BYTES)
			v.kind = RSH_IS_BYTES;
		snprintf(figure, sizeof(figure), "%s %s", table[i].group,
			 table[i].key);
		rsh_row(out, figure, v, table[i].help);
	}
	rsh_rows_end(out);
	return 0;
}

/* ---- steps ---- */

/* A mount answers from memory, so asking it often reads no source. */
#define PAUSE_MS 200

static const char *text_of(const json_t *step, const char *key)
{
	const char *text = json_string_value(json_object_get(step, key));

	return text ? text : "";
}

static bool is_shown(const json_t *step)
{
	return json_is_true(json_object_get(step, "shown"));
}

static void print_steps(const json_t *all, struct rsh_printer *out)
{
	static const struct rsh_column columns[] = {
		{ NULL, "STEP" },
		{ NULL, "STATE" },
		{ NULL, "WHY", .wrap = ' ' },
		{ NULL, NULL }
	};
	const json_t *steps = json_object_get(all, "steps");
	size_t i;
	json_t *step;

	rsh_rows(out, columns);
	json_array_foreach(steps, i, step)
		rsh_row(out, text_of(step, "name"), is_shown(step) ?
			rsh_v_marked(RSH_MARK_GOOD, rsh_v_text("complete")) :
			rsh_v_marked(RSH_MARK_BAD, rsh_v_text("not shown")),
			text_of(step, "why"));
	rsh_rows_end(out);
}

/* Returns whether a step has a later name than the wanted one: the same name
 * with larger numbers.  A number alone is not compared with names of several
 * numbers, such as epoch and step. */
static bool is_later(const char *name, const char *wanted)
{
	struct rsh_step_name x = { .step = { .n = 0 } }, y = x;

	if (strlen(name) > NAME_MAX || strlen(wanted) > NAME_MAX)
		return false;
	rsh_step_name_read(name, strlen(name), &x);
	rsh_step_name_read(wanted, strlen(wanted), &y);
	return y.step.n > 0 && x.step.n == y.step.n &&
	       rsh_step_cmp(&x.step, &y.step) < 0 &&
	       (strcmp(y.series, "#") == 0 || strcmp(x.series, y.series) == 0);
}

/* Returns whether the wanted step is shown.  *later is a step that is shown and
 * later, if there is nothing of the wanted one; NULL: that one may come. */
static bool has_step(const json_t *all, const char *wanted, const char **later)
{
	const json_t *steps = json_object_get(all, "steps");
	char *end;
	const unsigned long long n = strtoull(wanted, &end, 10);
	const bool is_number = *wanted && !*end;
	bool shown = false, any = false;
	size_t i;
	json_t *step;

	*later = NULL;
	json_array_foreach(steps, i, step) {
		const char *name = text_of(step, "name");
		const json_t *number = json_object_get(step, "step");
		/* A number means the last number of a name. */
		const bool is_wanted = strcmp(name, wanted) == 0 ||
			(is_number && json_is_integer(number) &&
			 (unsigned long long)json_integer_value(number) == n);

		any |= is_wanted;
		shown |= is_wanted && is_shown(step);
		if (is_shown(step) && is_later(name, wanted))
			*later = name;
	}
	*later = any ? NULL : *later;
	return shown;
}

/* Asks until the step is there.  *gone is true if it does not come. */
static int wait_for_step(const struct rsh_options *o, json_t **all, bool *gone,
			 struct rsh_error *err)
{
	const struct timespec pause = { .tv_nsec = PAUSE_MS * 1000 * 1000 };
	cleanup_free char *path = rsh_text_format("%s/%s", o->mountpoint,
						  o->wait);
	const char *later;
	bool looked = false;
	int rc = path ? 0 : rsh_error_nomem(err);

	while (rc == 0 && !has_step(*all, o->wait, &later)) {
		*gone = later && looked;
		if (*gone)
			return rsh_error_set(err, ENOENT, "%s: step %s is not "
					     "there, but the later step %s is: "
					     "it was removed or never saved",
					     o->mountpoint, o->wait, later);
		/* The answer may be older than the step.  A lookup of a name
		 * that is not there makes the mount look at its source. */
		looked = later;
		if (looked)
			access(path, F_OK);
		else
			nanosleep(&pause, NULL);
		json_decref(*all);
		*all = NULL;
		rc = rsh_control_query(o->mountpoint, "steps", all, err);
	}
	return rc;
}

/* ---- the commands ---- */

int rsh_stats(const struct rsh_options *o, struct rsh_run *run)
{
	const bool steps = o->command->id == RSH_COMMAND_STEPS;
	struct rsh_error *err = &run->err;
	cleanup_free char *text = NULL;
	json_t *all = NULL;
	bool gone = false;
	int rc = rsh_control_query(o->mountpoint, steps ? "steps" : "stats",
				   &all, err);

	if (rc == 0 && o->wait)
		rc = wait_for_step(o, &all, &gone, err);
	if (rc == 0 && o->json)
		text = rsh_json_dump(json_incref(all), JSON_COMPACT |
				     JSON_REAL_PRECISION(6));
	if (rc == 0 && o->json && !text)
		rc = rsh_error_nomem(err);
	if (rc == 0 && o->json)
		rsh_json(&run->out, "%", rsh_v_json(text));
	else if (rc == 0 && !steps)
		rc = print_figures(o, all, &run->out, err);
	else if (rc == 0 && !o->wait)
		print_steps(all, &run->out);
	json_decref(all);
	if (!gone)
		return rc;
	rsh_exit_failed(o, rc, err);
	run->status = RSH_EXIT_NO;
	return 0;
}
