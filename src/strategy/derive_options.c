/* SPDX-License-Identifier: Apache-2.0 */
/* strategy/derive_options.c parses the options of a derivation. */
#include "derive_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/mem.h"
#include "rsh/util/pattern.h"
#include "rsh/util/text.h"

struct rsh_derive_options *rsh_derive_options_new(void)
{
	return calloc(1, sizeof(struct rsh_derive_options));
}

static void free_rules(struct derive_rules *rules)
{
	for (uint32_t i = 0; i < rules->n; i++) {
		regfree(&rules->v[i].re);
		free(rules->v[i].text);
	}
}

void rsh_derive_options_free(struct rsh_derive_options *o)
{
	if (!o)
		return;
	free_rules(&o->split);
	free_rules(&o->axes);
	free_rules(&o->stage);
	if (o->has_include)
		regfree(&o->include);
	if (o->has_exclude)
		regfree(&o->exclude);
	if (o->has_drop)
		regfree(&o->drop);
	free(o);
}

bool rsh_derive_matches(const regex_t *re, const char *name)
{
	return regexec(re, name, 0, NULL, 0) == 0;
}

/* Parses a text that is only a decimal number. */
static bool parse_number(const char *s, uint32_t max, uint32_t *out)
{
	uint64_t n;

	if (!rsh_digits_read(s, strlen(s), max, &n))
		return false;
	*out = (uint32_t)n;
	return true;
}

static int parse_opt(struct rsh_derive_options *o, const char *text,
		     struct rsh_error *err)
{
	uint32_t n;

	if (strcmp(text, "-1") == 0)
		o->opt = -1;
	else if (parse_number(text, 1u << 20, &n))
		o->opt = (int32_t)n;
	else
		return rsh_error_set(err, EINVAL,
				     "optimizer shard \"%s\": expected -1 (as far as possible), 0 (none) or a number of ranks",
				     text);
	o->has_opt = true;
	return 0;
}

static int parse_layers(struct rsh_derive_options *o, const char *text,
			struct rsh_error *err)
{
	uint32_t max = sizeof(o->layers) / sizeof(*o->layers);
	cleanup_free char *copy = strdup(text);
	char *rest = copy, *word;

	if (!copy)
		return rsh_error_nomem(err);
	o->n_layers = 0;
	while ((word = strsep(&rest, ","))) {
		if (o->n_layers == max ||
		    !parse_number(word, 100000, &o->layers[o->n_layers]))
			return rsh_error_set(err, EINVAL,
					     "layers \"%s\": expected the number of layers of each stage, as in 2,1,1",
					     text);
		o->n_layers++;
	}
	return 0;
}

static int set_regex(regex_t *re, bool *has, const char *text,
		     struct rsh_error *err)
{
	regex_t fresh;
	int rc = rsh_pattern_compile(&fresh, "regular expression", text,
				     err);

	if (rc)
		return rc;
	if (*has)
		regfree(re);
	*re = fresh;
	*has = true;
	return 0;
}

/* ---- rules ---- */

static bool parse_split(const char *value, struct derive_rule *rule)
{
	const char *colon = strchr(value, ':');
	char number[16];
	size_t n = colon ? (size_t)(colon - value) : sizeof(number);

	if (n >= sizeof(number))
		return false;
	memcpy(number, value, n);
	number[n] = '\0';
	if (!parse_number(number, RSH_MAX_DIMS - 1, &rule->dim))
		return false;
	if (strcmp(colon + 1, "none") == 0)
		return true;
	rule->n_axes = 1;
	return rsh_mesh_name(colon + 1, strlen(colon + 1), rule->axes[0]);
}

static bool parse_axes(const char *value, struct derive_rule *rule)
{
	uint32_t rests = 0;

	for (const char *s = value;; s++) {
		size_t len = strcspn(s, ",");
		char *name = rule->axes[rule->n_axes];

		if (rule->n_axes == RSH_MESH_MAX_AXES)
			return false;
		if (len == 1 && *s == '*') {
			memcpy(name, "*", 2);
			rests++;
		} else if (!rsh_mesh_name(s, len, name)) {
			return false;
		}
		for (uint32_t i = 0; i < rule->n_axes; i++)
			if (strcmp(rule->axes[i], name) == 0)
				return false;
		rule->n_axes++;
		s += len;
		if (!*s)
			return rests <= 1;
	}
}

static bool parse_stage(const char *value, struct derive_rule *rule)
{
	rule->stage = strcmp(value, "last") == 0 ? UINT32_MAX : 0;
	return rule->stage || strcmp(value, "first") == 0 ||
	       parse_number(value, 65535, &rule->stage);
}

static int add_rule(struct derive_rules *rules, const char *text,
		    bool (*parse)(const char *value, struct derive_rule *rule),
		    const char *form, struct rsh_error *err)
{
	const char *eq = strrchr(text, '=');
	cleanup_free char *regex = NULL;
	struct derive_rule rule = { 0 };
	int rc;

	if (!eq || eq == text || !parse(eq + 1, &rule))
		return rsh_error_set(err, EINVAL,
				     "rule \"%s\": expected %s", text, form);
	if (rules->n == MAX_RULES)
		return rsh_error_set(err, EINVAL,
				     "rule \"%s\": more than %d of its kind",
				     text, MAX_RULES);
	regex = strndup(text, (size_t)(eq - text));
	if (!regex)
		return rsh_error_nomem(err);
	rc = rsh_pattern_compile(&rule.re, "regular expression", regex,
				 err);
	if (rc)
		return rc;
	rule.text = strdup(text);
	if (!rule.text) {
		regfree(&rule.re);
		return rsh_error_nomem(err);
	}
	rules->v[rules->n++] = rule;
	return 0;
}

int rsh_derive_options_set(struct rsh_derive_options *o,
			   enum rsh_derive_option which, const char *text,
			   struct rsh_error *err)
{
	int rc;

	switch (which) {
	case RSH_DERIVE_MESH:
		rc = rsh_mesh_parse(text, &o->mesh, err);
		o->has_mesh = rc == 0;
		return rc;
	case RSH_DERIVE_SRC_MESH:
		rc = rsh_mesh_parse(text, &o->src_mesh, err);
		o->has_src_mesh = rc == 0;
		return rc;
	case RSH_DERIVE_OPT:
		return parse_opt(o, text, err);
	case RSH_DERIVE_SPLIT:
		return add_rule(&o->split, text, parse_split,
				"REGEX=DIM:AXIS, as in 'up\\.weight$=0:mp', or REGEX=DIM:none",
				err);
	case RSH_DERIVE_AXES:
		return add_rule(&o->axes, text, parse_axes,
				"REGEX=AXIS,AXIS..., as in 'experts=*,ep'",
				err);
	case RSH_DERIVE_STAGE:
		return add_rule(&o->stage, text, parse_stage,
				"REGEX=STAGE, STAGE being a number, first or last",
				err);
	case RSH_DERIVE_LAYERS:
		return parse_layers(o, text, err);
	case RSH_DERIVE_OPT_INCLUDE:
		return set_regex(&o->include, &o->has_include, text, err);
	case RSH_DERIVE_OPT_EXCLUDE:
		return set_regex(&o->exclude, &o->has_exclude, text, err);
	case RSH_DERIVE_DROP:
		return set_regex(&o->drop, &o->has_drop, text, err);
	}
	return rsh_error_set(err, EINVAL, "no such option");
}
