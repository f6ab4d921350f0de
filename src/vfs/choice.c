/* SPDX-License-Identifier: Apache-2.0 */
/* vfs/choice.c matches names of parameters against the options that select
 * them. */
#include "config.h"

#include "vfs_i.h"

#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/pattern.h"
#include "rsh/util/text.h"
#include "rsh/vfs/choice.h"

#define AT(member)                                          \
	RSH_OPTION_AT(struct rsh_choice_at, member), \
	.decides = RSH_DECIDES_TEXT, .once = true

const struct rsh_option rsh_choice_rows[] = {
	{ "only", "REGEX", "use only parameters whose name matches",
	  rsh_set_regex, AT(only) },
	{ "drop", "REGEX", "leave out parameters whose name matches",
	  rsh_set_regex, AT(drop) },
	{ .name = NULL },
};
#define CHOICE_OPTIONS (sizeof(rsh_choice_rows) / sizeof(*rsh_choice_rows) - 1)

/* Whether the names that match the expression of the row are wanted, or the
 * others. */
static const bool choice_wants_matches[CHOICE_OPTIONS] = { true, false };

struct rsh_choice {
	bool has[CHOICE_OPTIONS];
	regex_t re[CHOICE_OPTIONS];
};

static const char *choice_text(const struct rsh_choice_at *at, size_t i)
{
	return *(const char *const *)((const char *)at +
				      rsh_choice_rows[i].at);
}

bool rsh_choice_is_given(const struct rsh_choice_at *at)
{
	return rsh_any(i, CHOICE_OPTIONS, choice_text(at, i));
}

int rsh_choice_new(const struct rsh_choice_at *at, struct rsh_choice **out,
		   struct rsh_error *err)
{
	struct rsh_choice *c;
	char name[16];
	int rc = 0;

	*out = NULL;
	if (!rsh_choice_is_given(at))
		return 0;
	c = calloc(1, sizeof(*c));
	if (!c)
		return rsh_error_nomem(err);
	for (size_t i = 0; i < CHOICE_OPTIONS && rc == 0; i++) {
		const char *text = choice_text(at, i);

		if (!text)
			continue;
		snprintf(name, sizeof(name), "%s:", rsh_choice_rows[i].name);
		rc = rsh_pattern_compile(&c->re[i], name, text, err);
		c->has[i] = rc == 0;
	}
	if (rc)
		rsh_choice_free(c);
	else
		*out = c;
	return rc;
}

void rsh_choice_free(struct rsh_choice *c)
{
	for (size_t i = 0; c && i < CHOICE_OPTIONS; i++)
		if (c->has[i])
			regfree(&c->re[i]);
	free(c);
}

static bool choice_matches(const struct rsh_choice *c, size_t i,
			   const char *name)
{
	return regexec(&c->re[i], name, 0, NULL, 0) == 0;
}

bool rsh_choice_wants(const struct rsh_choice *c, const char *name)
{
	return !rsh_any(i, CHOICE_OPTIONS,
			c->has[i] &&
			choice_matches(c, i, name) != choice_wants_matches[i]);
}

/* At most so many names are listed in a warning. */
#define UNUSED_LISTED 4

/* If memory is out there is no warning. */
static void unused_patterns(const struct rsh_vfs_config *cfg,
			    const struct rsh_names *asked)
{
	const uint32_t n = rsh_names_count(asked);
	struct rsh_choice *c = NULL;
	struct rsh_error err;

	if (rsh_choice_new(&cfg->choice, &c, &err) || !c)
		return;
	for (size_t i = 0; i < CHOICE_OPTIONS; i++) {
		bool fits = !c->has[i];

		for (uint32_t k = 0; k < n && !fits; k++)
			fits = choice_matches(c, i, rsh_names_text(asked, k));
		if (!fits)
			rsh_log_warning("%s: --%s \"%s\" matches no parameter; "
					"there are %u, such as %s",
					cfg->source, rsh_choice_rows[i].name,
					choice_text(&cfg->choice, i), n,
					rsh_names_text(asked, 0));
	}
	rsh_choice_free(c);
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
	unused_patterns(cfg, asked);
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
