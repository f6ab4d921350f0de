/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/strategy.c runs `strategy show`, `merge` and `derive`. */
#include "config.h"

#include "commands.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "infer.h"
#include "ls.h"
#include "rsh/app/commands.h"
#include "rsh/source/strategies.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/wire/strategy_emit.h"
#include "strategy.h"
#include "write_file.h"

static bool is_json_output(const char *path)
{
	size_t n = strlen(path);

	return n >= 5 && strcmp(path + n - 5, ".json") == 0;
}

/* ---- show ---- */

static int show_strategy(const struct rsh_options *o, struct rsh_names *names,
			 struct rsh_error *err)
{
	struct rsh_strategy *s;
	struct rsh_printer out;
	int rc = rsh_strategy_load(o->vfs.source, false, names, &s, err);

	if (rc)
		return rc;
	rsh_printer_init(&out, o);
	rc = rsh_ls_strategy(&out, s, names);
	rsh_strategy_free(s);
	return rc ? rsh_error_nomem(err) : 0;
}

/* ---- merge ---- */

static int merge_strategies(const struct rsh_options *o, struct rsh_error *err)
{
	cleanup_free void *data = NULL;
	bool json;
	size_t len;
	int rc = rsh_strategies_join(o->operands + 1, o->n_operands - 1, &json,
				     &data, &len, err);

	if (rc)
		return rc;
	/* MindSpore finds the format of a strategy file by its name. */
	if (json != is_json_output(o->output))
		return rsh_error_set(err, EINVAL, "%s: the name has %sto end "
				     "in .json, since the merged files are%s "
				     "JSON", o->output, json ? "" : "not ",
				     json ? "" : " not");
	return rsh_write_file(o->output, data, len, err);
}

/* ---- derive ---- */

static int write_derived(const struct rsh_options *o,
			 const struct rsh_derived *d, struct rsh_error *err)
{
	cleanup_free void *data = NULL;
	size_t len;
	int rc = rsh_strategy_emit(&d->items, is_json_output(o->output), &data,
				   &len, err);

	if (rc == 0)
		rc = rsh_write_file(o->output, data, len, err);
	for (uint32_t i = 0; rc == 0 && i < d->n_notes; i++)
		rsh_log_notice("%s", d->notes[i]);
	return rc;
}

static int derive_from_source(const struct rsh_options *o,
			      const struct rsh_strategy *src,
			      struct rsh_names *names, struct rsh_error *err)
{
	struct rsh_derive_shapes *shapes;
	struct rsh_derived *derived;
	int rc = rsh_strategy_shapes(o, src, names, &shapes, err);

	if (rc == 0 && o->vfs.drop)
		rc = rsh_derive_options_set(o->vfs.derive, RSH_DERIVE_DROP,
					    o->vfs.drop, err);
	if (rc == 0)
		rc = rsh_strategy_derive(src, shapes, o->vfs.derive, names,
					 &derived, err);
	rsh_derive_shapes_free(shapes);
	if (rc)
		return rc;
	rc = write_derived(o, derived, err);
	rsh_derived_free(derived);
	return rc;
}

static int derive_file(const struct rsh_options *o, struct rsh_names *names,
		       struct rsh_error *err)
{
	struct rsh_strategy *src = NULL;
	int rc = 0;

	if (strcmp(o->vfs.source, "none") != 0)
		rc = rsh_strategy_load(o->vfs.source, false, names, &src, err);
	if (rc == 0)
		rc = derive_from_source(o, src, names, err);
	if (src)
		rsh_strategy_free(src);
	return rc;
}

/* ---- all ---- */

enum rsh_exit rsh_strategy_command(const struct rsh_options *o)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_names *names;
	int rc;

	if (o->form->id == RSH_COMMAND_CHECK)
		return rsh_strategy_check_command(o);
	if (o->form->id == RSH_COMMAND_INFER)
		return rsh_infer_command(o);
	names = rsh_names_new();
	if (!names)
		rc = rsh_error_nomem(&err);
	else if (o->form->id == RSH_COMMAND_SHOW)
		rc = show_strategy(o, names, &err);
	else if (o->form->id == RSH_COMMAND_MERGE)
		rc = merge_strategies(o, &err);
	else
		rc = derive_file(o, names, &err);
	rsh_names_free(names);
	return rc ? rsh_exit_failed(o, rc, &err) : RSH_EXIT_GOOD;
}
