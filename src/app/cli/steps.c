/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/steps.c runs `steps`, which lists the steps of a mount and waits for
 * one. */
#include "config.h"

#include "commands.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "printer.h"
#include "rsh/app/control_client.h"
#include "rsh/util/mem.h"

/* A mount answers from memory, so asking it often reads no source. */
#define PAUSE_MS 200

static const struct rsh_column step_columns[] = {
	{ "STEP" },
	{ "STATE" },
	{ "WHY", .shorten = true },
};

static const char *text_of(const json_t *step, const char *key)
{
	const char *text = json_string_value(json_object_get(step, key));

	return text ? text : "";
}

static bool is_shown(const json_t *step)
{
	return json_is_true(json_object_get(step, "shown"));
}

static int print_steps(const json_t *all, const struct rsh_printer *out)
{
	const json_t *steps = json_object_get(all, "steps");
	struct rsh_table *t = rsh_table_new(step_columns, 3);
	size_t i;
	json_t *step;
	int rc;

	json_array_foreach(steps, i, step) {
		rsh_table_cell(t, "%s", text_of(step, "name"));
		rsh_table_mark(t, is_shown(step) ? RSH_MARK_GOOD :
						   RSH_MARK_BAD,
			       is_shown(step) ? "complete" : "not shown");
		rsh_table_cell(t, "%s", text_of(step, "why"));
	}
	rc = rsh_table_print(t, out);
	rsh_table_free(t);
	return rc;
}

/* A number means the last number of a name. */
static bool is_step(const json_t *step, const char *wanted)
{
	const json_t *number = json_object_get(step, "step");
	char *end;
	const unsigned long long n = strtoull(wanted, &end, 10);

	if (strcmp(text_of(step, "name"), wanted) == 0)
		return true;
	return *wanted && !*end && json_is_integer(number) &&
	       (unsigned long long)json_integer_value(number) == n;
}

static bool has_step(const json_t *all, const char *wanted)
{
	const json_t *steps = json_object_get(all, "steps");
	size_t i;
	json_t *step;

	json_array_foreach(steps, i, step)
		if (is_shown(step) && is_step(step, wanted))
			return true;
	return false;
}

/* Asks until the step is there. */
static int wait_for_step(const struct rsh_options *o, json_t **all,
			 struct rsh_error *err)
{
	const struct timespec pause = { .tv_nsec = PAUSE_MS * 1000 * 1000 };
	int rc = 0;

	while (rc == 0 && !has_step(*all, o->wait)) {
		json_decref(*all);
		*all = NULL;
		nanosleep(&pause, NULL);
		rc = rsh_control_query(o->mountpoint, "steps", all, err);
	}
	return rc;
}

enum rsh_exit rsh_steps(const struct rsh_options *o)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_printer out;
	json_t *all = NULL;
	int rc = rsh_control_query(o->mountpoint, "steps", &all, &err);

	rsh_printer_init(&out, o);
	if (rc == 0 && o->wait)
		rc = wait_for_step(o, &all, &err);
	else if (rc == 0 && !o->json)
		rc = print_steps(all, &out);
	if (rc == 0 && o->json)
		rc = rsh_printer_json(&out, json_incref(all));
	json_decref(all);
	if (rc == -ENOMEM)
		rsh_error_nomem(&err);
	return rc ? rsh_exit_failed(o, rc, &err) : RSH_EXIT_GOOD;
}
