/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/strategy_check.c runs `strategy check`, which prints a line for each
 * finding. */
#include "config.h"

#include "strategy.h"

#include <stdlib.h>
#include <string.h>

#include "printer.h"
#include "rsh/source/strategies.h"

struct checking {
	struct rsh_printer out;
	bool quiet;
	bool any;         /* something was found */
	json_t *all;      /* NULL: not JSON */
	json_t *findings; /* findings of one strategy */
	unsigned n;
};

static void print_finding(struct checking *c, const char *line)
{
	rsh_printer_put(&c->out, line);
	fputc('\n', c->out.f);
}

static void tell_finding(void *ctx, const char *sentence)
{
	struct checking *c = ctx;

	c->any = true;
	c->n++;
	if (c->all)
		json_array_append_new(c->findings, rsh_json_text(sentence));
	else
		print_finding(c, sentence);
}

static int check_one(struct checking *c, const char *path,
		     const struct rsh_derive_shapes *shapes,
		     struct rsh_names *names, struct rsh_error *err)
{
	char good[4200];
	int rc;

	c->n = 0;
	c->findings = c->all ? json_array() : NULL;
	rc = rsh_strategies_check(path, shapes, names, tell_finding, c, err);
	if (c->all)
		json_array_append_new(c->all, json_pack("{s:o,s:o}", "strategy",
							rsh_json_text(path),
							"findings",
							c->findings));
	snprintf(good, sizeof(good), "%s: good", path);
	if (!c->all && rc == 0 && !c->n && !c->quiet)
		print_finding(c, good);
	return rc;
}

static int load_shapes(const struct rsh_options *o, struct rsh_names *names,
		       struct rsh_derive_shapes **shapes,
		       struct rsh_error *err)
{
	struct rsh_strategy *src = NULL;
	int rc = 0;

	if (o->vfs.src.path)
		rc = rsh_strategy_load(o->vfs.src.path, false, names, &src,
				       err);
	if (rc == 0)
		rc = rsh_strategy_shapes(o, src, names, shapes, err);
	if (src)
		rsh_strategy_free(src);
	return rc;
}

static int check_strategies(const struct rsh_options *o, struct checking *c,
			    struct rsh_names *names, struct rsh_error *err)
{
	struct rsh_derive_shapes *shapes = NULL;
	int rc = load_shapes(o, names, &shapes, err);

	for (unsigned i = 1; rc == 0 && i < o->n_operands; i++)
		rc = check_one(c, o->operands[i], shapes, names, err);
	rsh_derive_shapes_free(shapes);
	if (rc == 0 && c->all)
		rc = rsh_printer_json(&c->out,
				     json_pack("{s:O}", "strategies", c->all));
	return rc;
}

enum rsh_exit rsh_strategy_check_command(const struct rsh_options *o)
{
	struct checking c = { .quiet = o->quiet };
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_names *names = rsh_names_new();
	int rc;

	rsh_printer_init(&c.out, o);
	c.all = o->json ? json_array() : NULL;
	rc = names ? check_strategies(o, &c, names, &err) :
		     rsh_error_nomem(&err);
	rsh_names_free(names);
	json_decref(c.all);
	if (rc)
		return rsh_exit_failed(o, rc, &err);
	return c.any ? RSH_EXIT_NO : RSH_EXIT_GOOD;
}
