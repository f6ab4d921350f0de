/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/stats.c runs `stats`, which prints the statistics of a mount. */
#include "config.h"

#include "commands.h"

#include <errno.h>

#include "printer.h"
#include "rsh/app/control_client.h"
#include "rsh/app/figures.h"
#include "rsh/util/mem.h"
#include "text.h"

static const struct rsh_column figure_columns[] = {
	{ "FIGURE" },
	{ "VALUE", .right = true },
	{ "MEANING", .shorten = true },
};

static void add_figure_value(struct rsh_table *t, const struct rsh_figure *def,
			      const json_t *value)
{
	char text[32];

	switch (def->unit) {
	case RSH_FIGURE_NUMBER:
		rsh_table_cell(t, "%" JSON_INTEGER_FORMAT,
			       json_integer_value(value));
		break;
	case RSH_FIGURE_BYTES:
		rsh_table_cell(t, "%s", rsh_text_bytes(
				       (uint64_t)json_integer_value(value),
				       text, sizeof(text)));
		break;
	case RSH_FIGURE_NS:
		rsh_table_cell(t, "%s", rsh_text_seconds(
				       json_number_value(value), text,
				       sizeof(text)));
		break;
	}
}

static int add_figures(struct rsh_table *t, const json_t *from)
{
	size_t n;
	const struct rsh_figure *table = rsh_figure_table(&n);

	for (size_t i = 0; i < n; i++) {
		const json_t *group = json_object_get(from, table[i].group);
		const json_t *value = json_object_get(group, table[i].key);

		/* A mount of another release has other figures. */
		if (json_is_null(group) || !value)
			continue;
		if (!json_is_number(value))
			return -EINVAL;
		rsh_table_cell(t, "%s %s", table[i].group, table[i].key);
		add_figure_value(t, &table[i], value);
		rsh_table_cell(t, "%s", table[i].help);
	}
	return 0;
}

/* Returns 0, -ENOMEM, or -EINVAL if a figure is not a number. */
static int print_figures(const json_t *from, const struct rsh_printer *out)
{
	struct rsh_table *t = rsh_table_new(figure_columns, 3);
	int rc = add_figures(t, from);

	if (rc == 0)
		rc = rsh_table_print(t, out);
	rsh_table_free(t);
	return rc;
}

static int print_heading(const struct rsh_printer *out, json_t *all)
{
	const char *source, *step, *level;
	int pid;

	if (json_unpack(all, "{s:s,s:s,s:s,s:i}", "source", &source, "step",
			&step, "log_level", &level, "pid", &pid))
		return -EINVAL;
	rsh_printer_put(out, source);
	fputs(": ", out->f);
	rsh_printer_put(out, step);
	fprintf(out->f, ", process %d, log level ", pid);
	rsh_printer_put(out, level);
	fputs("\n\n", out->f);
	return 0;
}

enum rsh_exit rsh_stats(const struct rsh_options *o)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_printer out;
	json_t *all = NULL;
	int rc = rsh_control_query(o->mountpoint, "stats", &all, &err);

	rsh_printer_init(&out, o);
	if (rc == 0 && o->json) {
		rc = rsh_printer_json(&out, json_incref(all));
	} else if (rc == 0) {
		rc = print_heading(&out, all);
		if (rc == 0)
			rc = print_figures(all, &out);
		if (rc == -EINVAL)
			rc = rsh_control_refuse(o->mountpoint, &err);
	}
	json_decref(all);
	if (rc == -ENOMEM)
		rsh_error_nomem(&err);
	return rc ? rsh_exit_failed(o, rc, &err) : RSH_EXIT_GOOD;
}
