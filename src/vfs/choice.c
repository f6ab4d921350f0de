/* SPDX-License-Identifier: Apache-2.0 */
/* vfs/choice.c matches names of parameters against --only and --drop. */
#include "config.h"

#include "vfs_i.h"

#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/log.h"
#include "rsh/util/pattern.h"
#include "rsh/util/text.h"
#include "rsh/vfs/choice.h"

struct rsh_choice {
	bool has[2];
	regex_t re[2]; /* --only, --drop */
};

int rsh_choice_new(const char *only, const char *drop, struct rsh_choice **out,
		   struct rsh_error *err)
{
	static const char *const words[] = { "only:", "drop:" };
	const char *const text[] = { only, drop };
	struct rsh_choice *c;
	int rc = 0;

	*out = NULL;
	if (!only && !drop)
		return 0;
	c = calloc(1, sizeof(*c));
	if (!c)
		return rsh_error_nomem(err);
	for (size_t i = 0; i < 2 && rc == 0; i++) {
		if (text[i])
			rc = rsh_pattern_compile(&c->re[i], words[i], text[i],
						 err);
		c->has[i] = text[i] && rc == 0;
	}
	if (rc)
		rsh_choice_free(c);
	else
		*out = c;
	return rc;
}

void rsh_choice_free(struct rsh_choice *c)
{
	for (size_t i = 0; c && i < 2; i++)
		if (c->has[i])
			regfree(&c->re[i]);
	free(c);
}

bool rsh_choice_wants(const struct rsh_choice *c, const char *name)
{
	return (!c->has[0] || regexec(&c->re[0], name, 0, NULL, 0) == 0) &&
	       (!c->has[1] || regexec(&c->re[1], name, 0, NULL, 0) != 0);
}

/* At most so many names are listed in a warning. */
#define UNUSED_LISTED 4

/* If memory is out there is no warning. */
static void unused_pattern(const struct rsh_vfs_config *cfg, const char *option,
			   const char *pattern, const struct rsh_names *asked)
{
	struct rsh_choice *only = NULL;
	struct rsh_error err;
	bool fits = false;

	if (!pattern || rsh_choice_new(pattern, NULL, &only, &err))
		return;
	for (uint32_t i = 0; i < rsh_names_count(asked) && !fits; i++)
		fits = rsh_choice_wants(only, rsh_names_text(asked, i));
	if (!fits)
		rsh_log_warning("%s: --%s \"%s\" matches no parameter; there "
				"are %u, such as %s", cfg->source, option,
				pattern, rsh_names_count(asked),
				rsh_names_text(asked, 0));
	rsh_choice_free(only);
}

/* The names in a name map that no parameter has. */
struct unused_names {
	struct rsh_names *asked;
	char text[512];
	size_t at, n;
};

static void unused_name(void *ctx, const char *name)
{
	struct unused_names *u = ctx;

	if (rsh_names_find(u->asked, name, strlen(name)) != RSH_NAME_NONE)
		return;
	if (u->n++ < UNUSED_LISTED)
		rsh_text_add(u->text, sizeof(u->text), &u->at, "%s%.100s",
			     u->n > 1 ? ", " : "", name);
}

void rsh_vfs_tell_unused(const struct rsh_vfs_config *cfg,
			 const struct rsh_name_map *renames,
			 struct rsh_names *asked)
{
	struct unused_names u = { .asked = asked };
	char more[32] = "";

	if (rsh_names_count(asked) == 0)
		return;
	unused_pattern(cfg, "only", cfg->only, asked);
	unused_pattern(cfg, "drop", cfg->drop, asked);
	if (renames)
		rsh_name_map_each(renames, unused_name, &u);
	if (u.n > UNUSED_LISTED)
		snprintf(more, sizeof(more), " and %zu more",
			 u.n - UNUSED_LISTED);
	if (u.n)
		rsh_log_warning("%s: --rename %s: no parameter is called %s%s; "
				"there are %u, such as %s", cfg->source,
				cfg->rename, u.text, more,
				rsh_names_count(asked),
				rsh_names_text(asked, 0));
}
