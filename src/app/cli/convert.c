/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/convert.c runs `convert`: it lists and shows tables of rules. */
#include "config.h"

#include "commands.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "convert.h"
#include "rsh/app/commands.h"
#include "rsh/source/tables.h"
#include "rsh/util/mem.h"

/* ---- list ---- */

static const struct rsh_column columns[] = {
	{ "TABLE" },
	{ "WHAT IT IS FOR" },
	{ "SUITS", .wrap = true },
};

static json_t *listed_json(const struct rsh_table_at *at,
			   const struct rsh_rule_table *t,
			   const struct rsh_error *why)
{
	json_t *suits = json_array();
	const char *one;

	for (uint32_t i = 0; t && (one = rsh_rule_table_suits(t, i)); i++)
		json_array_append_new(suits, rsh_json_text(one));
	return json_pack("{s:o,s:o,s:o,s:o,s:o}", "name",
			 rsh_json_text(at->name), "path",
			 rsh_json_text(at->path), "title",
			 rsh_json_optional(t ? rsh_rule_table_title(t) : NULL),
			 "architectures", suits, "reason",
			 rsh_json_optional(t ? NULL : why->text));
}

static void listed_row(struct rsh_table *rows, const struct rsh_table_at *at,
		       const struct rsh_rule_table *t,
		       const struct rsh_error *why)
{
	char suits[512] = "-";
	const char *one;
	size_t n = 0;

	for (uint32_t i = 0; t && (one = rsh_rule_table_suits(t, i)) &&
			     n < sizeof(suits); i++)
		n += (size_t)snprintf(suits + n, sizeof(suits) - n, "%s%s",
				      i ? ", " : "", one);
	rsh_table_cell(rows, "%s", at->name);
	rsh_table_mark(rows, t ? RSH_MARK_NONE : RSH_MARK_BAD,
		       t ? rsh_rule_table_title(t) : why->text);
	rsh_table_cell(rows, "%s", suits);
}

/* A table that cannot be read is listed with the reason. */
static int list_one(const struct rsh_table_at *at, struct rsh_table *rows,
		    json_t *all, bool *good)
{
	struct rsh_error why = RSH_ERROR_INIT;
	struct rsh_rule_table *t = NULL;
	int rc = rsh_rule_table_load(at->path, &t, &why);

	if (rc == -ENOMEM)
		return rc;
	*good &= rc == 0;
	if (all)
		json_array_append_new(all, listed_json(at, t, &why));
	else
		listed_row(rows, at, t, &why);
	rsh_rule_table_free(t);
	return 0;
}

static int list_tables(const struct rsh_printer *out, bool *good)
{
	struct rsh_table *rows = rsh_table_new(columns, sizeof(columns) /
							sizeof(columns[0]));
	json_t *all = out->json ? json_array() : NULL;
	struct rsh_table_list l;
	int rc = rsh_tables_list(&l);

	for (size_t i = 0; rc == 0 && i < l.n; i++)
		rc = list_one(&l.v[i], rows, all, good);
	rsh_table_list_clear(&l);
	if (rc == 0)
		rc = out->json ?
			rsh_printer_json(out, json_pack("{s:O}", "tables",
						       all)) :
			rsh_table_print(rows, out);
	json_decref(all);
	rsh_table_free(rows);
	return rc;
}

/* ---- show ---- */

static int show_table(const char *path, struct rsh_error *err)
{
	cleanup_free uint8_t *data = NULL;
	size_t len;
	int rc = rsh_load_whole(path, &rsh_rule_table_file, &data, &len, err);

	/* A write error is detected at the end of the program. */
	if (rc == 0)
		(void)!fwrite(data, 1, len, stdout);
	return rc;
}

/* ---- all ---- */

enum rsh_exit rsh_convert_command(const struct rsh_options *o)
{
	struct rsh_error err = RSH_ERROR_INIT;
	cleanup_free char *path = NULL;
	struct rsh_printer out;
	bool good = true;
	int rc = 0;

	rsh_printer_init(&out, o);
	if (o->form->id == RSH_COMMAND_TABLES)
		rc = list_tables(&out, &good) ? rsh_error_nomem(&err) : 0;
	else if (o->form->id != RSH_COMMAND_TABLE_CHECK ||
		 strcmp(o->vfs.weights.table, RSH_TABLE_AUTO) != 0)
		rc = rsh_table_find(o->vfs.weights.table, &path, &err);
	if (rc == 0 && o->form->id == RSH_COMMAND_TABLE_CHECK)
		return rsh_convert_check(o, path ? path : RSH_TABLE_AUTO);
	if (rc == 0 && o->form->id == RSH_COMMAND_TABLE_SHOW)
		rc = show_table(path, &err);
	if (rc)
		return rsh_exit_failed(o, rc, &err);
	return good ? RSH_EXIT_GOOD : RSH_EXIT_NO;
}
