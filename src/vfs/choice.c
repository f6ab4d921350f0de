/* SPDX-License-Identifier: Apache-2.0 */
/* vfs/choice.c matches names of parameters against --only and --drop. */
#include "config.h"

#include "vfs_i.h"

#include <errno.h>
#include <regex.h>
#include <stdlib.h>

struct rsh_choice {
	bool has_only, has_drop;
	regex_t only, drop;
};

static int choice_compile(regex_t *to, const char *option, const char *text,
			  struct rsh_error *err)
{
	int rc = regcomp(to, text, REG_EXTENDED | REG_NOSUB);
	char why[256];

	if (rc == 0)
		return 0;
	regerror(rc, to, why, sizeof(why));
	return rsh_error_set(err, EINVAL, "%s: \"%s\": %s", option, text, why);
}

int rsh_choice_new(const char *only, const char *drop, struct rsh_choice **out,
		   struct rsh_error *err)
{
	struct rsh_choice *c;
	int rc = 0;

	*out = NULL;
	if (!only && !drop)
		return 0;
	c = calloc(1, sizeof(*c));
	if (!c)
		return rsh_error_nomem(err);
	if (only) {
		rc = choice_compile(&c->only, "only", only, err);
		c->has_only = rc == 0;
	}
	if (rc == 0 && drop) {
		rc = choice_compile(&c->drop, "drop", drop, err);
		c->has_drop = rc == 0;
	}
	if (rc)
		rsh_choice_free(c);
	else
		*out = c;
	return rc;
}

void rsh_choice_free(struct rsh_choice *c)
{
	if (!c)
		return;
	if (c->has_only)
		regfree(&c->only);
	if (c->has_drop)
		regfree(&c->drop);
	free(c);
}

bool rsh_choice_wants(const struct rsh_choice *c, const char *name)
{
	if (c->has_only && regexec(&c->only, name, 0, NULL, 0) != 0)
		return false;
	return !c->has_drop || regexec(&c->drop, name, 0, NULL, 0) != 0;
}
