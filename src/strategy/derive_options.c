/* SPDX-License-Identifier: Apache-2.0 */
/* strategy/derive_options.c parses the options of a derivation, and has what
 * all of its steps use: messages, axes and the rules for a parameter. */
#include "derive_i.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/mem.h"
#include "rsh/util/pattern.h"
#include "rsh/util/text.h"

struct rsh_derive_options *rsh_derive_options_new(void)
{
	return calloc(1, sizeof(struct rsh_derive_options));
}

void rsh_derive_options_free(struct rsh_derive_options *o)
{
	for (size_t k = 0; o && k < 3; k++) {
		struct derive_rules *all[] = { &o->split, &o->axes, &o->stage };
		struct derive_regex *one[] = { &o->include, &o->exclude,
					       &o->drop };

		for (uint32_t i = 0; i < all[k]->n; i++) {
			regfree(&all[k]->v[i].re.re);
			free(all[k]->v[i].text);
		}
		if (one[k]->given)
			regfree(&one[k]->re);
	}
	free(o);
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

static int set_regex(struct derive_regex *to, const char *text,
		     struct rsh_error *err)
{
	struct derive_regex fresh = { .given = true };
	int rc = rsh_pattern_compile(&fresh.re, "regular expression", text,
				     err);

	if (rc)
		return rc;
	if (to->given)
		regfree(&to->re);
	*to = fresh;
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
	rc = set_regex(&rule.re, regex, err);
	if (rc)
		return rc;
	rule.text = strdup(text);
	if (!rule.text) {
		regfree(&rule.re.re);
		return rsh_error_nomem(err);
	}
	rules->v[rules->n++] = rule;
	return 0;
}

int rsh_derive_options_set(struct rsh_derive_options *o,
			   enum rsh_derive_option which, const char *text,
			   struct rsh_error *err)
{
	uint32_t n = 0;
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
		if (strcmp(text, "-1") != 0 &&
		    !parse_number(text, 1u << 20, &n))
			return rsh_error_set(err, EINVAL,
					     "optimizer shard \"%s\": expected -1 (as far as possible), 0 (none) or a number of ranks",
					     text);
		o->opt = *text == '-' ? -1 : (int32_t)n;
		o->has_opt = true;
		return 0;
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
		return set_regex(&o->include, text, err);
	case RSH_DERIVE_OPT_EXCLUDE:
		return set_regex(&o->exclude, text, err);
	case RSH_DERIVE_DROP:
		return set_regex(&o->drop, text, err);
	}
	return rsh_error_set(err, EINVAL, "no such option");
}

/* ---- what all steps use ---- */

int rsh_derive_refuse(struct derivation *d, const struct derive_param *p,
		      const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	rsh_error_vset(d->err, EINVAL, fmt, ap);
	va_end(ap);
	rsh_error_prefix(d->err, "%s: parameter %s", d->path, p->text);
	return -EINVAL;
}

int rsh_derive_note(struct derivation *d, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	if (d->n_notes == d->cap_notes)
		return 0;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	d->notes[d->n_notes] = rsh_arena_strndup(d->arena, text, strlen(text));
	return d->notes[d->n_notes++] ? 0 : rsh_error_nomem(d->err);
}

uint32_t rsh_derive_axis_find(const struct derivation *d, const char *name)
{
	for (uint32_t i = 0; i < d->n_axes; i++)
		if (strcmp(d->axes[i].name, name) == 0)
			return i;
	return UINT32_MAX;
}

uint32_t rsh_derive_axis_add(struct derivation *d, const char *name)
{
	struct derive_axis *a;

	if (d->n_axes == sizeof(d->axes) / sizeof(*d->axes))
		return UINT32_MAX;
	a = &d->axes[d->n_axes];
	*a = (struct derive_axis){ .dst = rsh_mesh_size(&d->o->mesh, name) };
	memcpy(a->name, name, strlen(name) + 1);
	return d->n_axes++;
}

bool rsh_derive_is_about(const struct derivation *d,
			 const struct derive_regex *re,
			 const struct derive_param *p)
{
	const char *base = d->params[p->base].text;

	return re->given && (regexec(&re->re, p->text, 0, NULL, 0) == 0 ||
			     regexec(&re->re, base, 0, NULL, 0) == 0);
}

const struct derive_rule *rsh_derive_rule_for(const struct derivation *d,
					      const struct derive_rules *rules,
					      const struct derive_param *p)
{
	for (uint32_t i = rules->n; i-- > 0;)
		if (rsh_derive_is_about(d, &rules->v[i].re, p))
			return &rules->v[i];
	return NULL;
}

int rsh_set_derive(const struct rsh_setting *s)
{
	struct rsh_derive_options **o = s->to;
	int rc;

	if (!*o)
		*o = rsh_derive_options_new();
	if (!*o)
		return rsh_error_nomem(s->err);
	rc = rsh_derive_options_set(*o, (enum rsh_derive_option)s->def->min,
				    s->value, s->err);
	if (rc)
		rsh_error_prefix(s->err, "%s", s->def->name);
	return rc;
}

#define AT .at = 0, .size = sizeof(struct rsh_derive_options *)

const struct rsh_option rsh_derive_rows[] = {
	{ "opt", "-1|K",
	  "optimizer shard size: K ranks, -1 for all replicas, 0 for none "
	  "(default: as in STRATEGY)", rsh_set_derive, AT,
	  .min = RSH_DERIVE_OPT, .first = true },
	{ "src-mesh", "MESH", "mesh of STRATEGY (default: detected)",
	  rsh_set_derive, AT, .min = RSH_DERIVE_SRC_MESH },
	{ "split", "REGEX=DIM:AXIS",
	  "split dimension DIM of these parameters over mesh axis AXIS, or "
	  "over none", rsh_set_derive, AT,
	  .min = RSH_DERIVE_SPLIT },
	{ "axes", "REGEX=AXIS,...",
	  "mesh axes of these parameters, slowest first", rsh_set_derive,
	  AT, .min = RSH_DERIVE_AXES },
	{ "stage", "REGEX=N|first|last", "pipeline stage of these parameters",
	  rsh_set_derive, AT, .min = RSH_DERIVE_STAGE },
	{ "layers", "N,N,...",
	  "number of layers in each stage (default: equal)", rsh_set_derive,
	  AT, .min = RSH_DERIVE_LAYERS },
	{ "drop", "REGEX", "leave out parameters whose name matches",
	  rsh_set_derive, AT, .min = RSH_DERIVE_DROP,
	  .once = true },
	{ "opt-include", "REGEX",
	  "apply optimizer sharding to these parameters if it divides them",
	  rsh_set_derive, AT, .min = RSH_DERIVE_OPT_INCLUDE,
	  .once = true },
	{ "opt-exclude", "REGEX",
	  "do not apply optimizer sharding to these parameters", rsh_set_derive,
	  AT, .min = RSH_DERIVE_OPT_EXCLUDE,
	  .once = true },
	{ .name = NULL },
};
