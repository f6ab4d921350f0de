/* SPDX-License-Identifier: Apache-2.0 */
/* app/options/rules.c checks the rules of the rows: which options exclude or
 * need others, and which an output supports. */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "options_i.h"
#include "rsh/app/check.h"
#include "rsh/util/text.h"

/* Returns the length of the first term of a list, "a|b=word|c". */
static size_t rule_term(const char *list)
{
	return strcspn(list, "|");
}

static const char *rule_next(const char *list)
{
	list += rule_term(list);
	return *list ? list + 1 : list;
}

/* Returns whether the option of the term was given, with its value if it has
 * one. */
static bool rule_is_given(const struct rsh_options *o, const char *term)
{
	const size_t n = rule_term(term), length = strcspn(term, "=|");
	const struct rsh_given *last = NULL;

	for (size_t i = 0; i < o->n_given; i++)
		if (rsh_suggestion_same(o->given[i].name, term, length))
			last = &o->given[i];
	return last && (length == n ||
			rsh_suggestion_same(last->value, term + length + 1,
					    n - length - 1));
}

/* Returns whether the option was given, and not with its default. */
static bool rule_is_said(const struct rsh_options *o,
			 const struct rsh_option_at *at)
{
	struct rsh_options usual;

	if (!rsh_option_given(o, at->row->name))
		return false;
	rsh_options_init(&usual);
	return memcmp(rsh_option_member(o, at), rsh_option_member(&usual, at),
		      at->row->size) != 0;
}

static int check_excludes(const struct rsh_options *o, const char *name,
			  const char *list, struct rsh_error *err)
{
	for (; *list; list = rule_next(list))
		if (rule_is_given(o, list))
			return rsh_error_set(err, EINVAL, "--%s and --%.*s "
					     "cannot be used together", name,
					     (int)rule_term(list), list);
	return 0;
}

/* Returns the place of an operand that may be left out, or -1. */
static int optional_operand(const struct rsh_command *command, const char *name,
			    size_t n)
{
	for (int i = 0; i < RSH_MAX_OPERANDS && command->operands[i]; i++)
		if (command->operands[i][0] == '[' &&
		    strncmp(command->operands[i] + 1, name, n) == 0)
			return i;
	return -1;
}

static int check_needs(const struct rsh_options *o, const char *name,
		       const char *list, struct rsh_error *err)
{
	char lacks[128] = "", words[160];
	size_t end = 0;

	for (; *list; list = rule_next(list)) {
		const size_t n = rule_term(list);
		struct rsh_option_at at;
		int place;

		if (*list < 'a') {
			place = optional_operand(o->command, list, n);
			if (place >= 0 && (unsigned)place < o->n_operands)
				return 0;
		} else {
			place = rsh_option_find(o->command, list,
						strcspn(list, "=|"), &at) - 1;
			if (place == 0 && rule_is_given(o, list))
				return 0;
		}
		if (place >= 0)
			rsh_text_add(lacks, sizeof(lacks), &end, "%s%s%.*s",
				     *lacks ? "|" : "", *list < 'a' ? "" : "--",
				     (int)n, list);
	}
	rsh_words_put(words, sizeof(words), "", lacks);
	return *lacks ? rsh_error_set(err, EINVAL, "--%s needs %s", name,
				      words) : 0;
}

int rsh_rules_check(const struct rsh_options *o, bool converts,
		    struct rsh_error *err)
{
	struct rsh_option_at at = { .list = NULL };
	int rc = rsh_source_options_check(&o->vfs.files, err);

	/* The options of a form are checked if it is known which one it is. */
	if (o->command->forms)
		return 0;
	while (rc == 0 && rsh_option_next_of(o->command, &at)) {
		const struct rsh_option *def = at.row;
		const char *needs = def->needs ? def->needs : at.list->needs;

		if (!def->name)
			continue;
		if (def->must && !rsh_option_given(o, def->name))
			return rsh_error_set(err, EINVAL, "%s: --%s %s is "
					     "missing", o->command->name,
					     def->name, def->arg);
		/* --resume is refused with all options of conversions, also
		 * with their defaults. */
		if (o->resume && rsh_option_converts(&at) &&
		    rsh_option_given(o, def->name))
			return rsh_error_set(err, EINVAL, "--%s and --resume, "
					     "which converts nothing, cannot "
					     "be used together", def->name);
		if (at.list->converts != converts)
			continue;
		if (def->excludes && rule_is_said(o, &at))
			rc = check_excludes(o, def->name, def->excludes, err);
		if (rc == 0 && needs && rsh_option_given(o, def->name))
			rc = check_needs(o, def->name, needs, err);
	}
	return rc;
}

int rsh_rules_check_output(const struct rsh_options *o, struct rsh_error *err)
{
	const struct rsh_output *out = o->vfs.output;
	const struct rsh_output *other = o->vfs.weights.follows;
	struct rsh_option_at at = { .list = NULL };
	char names[64];

	while (rsh_option_next_of(o->command, &at)) {
		const char *name = at.row->name;

		if (!name || !rule_is_said(o, &at) ||
		    rsh_output_supports(out, name) ||
		    (other && rsh_output_supports(other, name)))
			continue;
		rsh_output_names(name, names, sizeof(names));
		if (*names)
			return rsh_error_set(err, EINVAL, "--%s needs "
					     "--format %s", name, names);
	}
	return 0;
}
