/* SPDX-License-Identifier: Apache-2.0 */
/* options/list.c takes -o name[=value][,name[=value]...], as mount(8) has
 * it. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/mem.h"
#include "set_i.h"

/* Compares a table name with an -o name of n characters. */
static bool is_list_name(const char *name, const char *given, size_t n)
{
	if (!name || strlen(name) != n)
		return false;
	for (size_t i = 0; i < n; i++)
		if (given[i] != (name[i] == '-' ? '_' : name[i]))
			return false;
	return true;
}

static const struct rsh_option *find_listed(const struct rsh_command *command,
					    const char *given, size_t n)
{
	size_t n_options;
	const struct rsh_option *table = rsh_option_table(&n_options);

	for (size_t i = 0; i < n_options; i++)
		if (rsh_option_is_of(&table[i], command) &&
		    is_list_name(table[i].name, given, n))
			return &table[i];
	return NULL;
}

static int apply_listed(struct rsh_options *o, char *given,
			struct rsh_error *err)
{
	char *value = strchr(given, '=');
	size_t n = value ? (size_t)(value - given) : strlen(given);
	const struct rsh_option *def = find_listed(o->command, given, n);

	if (value)
		value++;
	if (!def)
		return rsh_error_set(err, EINVAL, "unknown option -o %s",
				     given);
	if (def->arg && !value)
		return rsh_error_set(err, EINVAL, "-o %s needs a value", given);
	if (!def->arg && value)
		return rsh_error_set(err, EINVAL, "-o %.*s takes no value",
				     (int)n, given);
	return rsh_option_take(o, def, value, err);
}

/* Cuts the next option off a comma list in place, removing backslashes. */
static char *next_listed(char **list)
{
	char *start = *list, *to = start, *s = start;

	if (!s)
		return NULL;
	for (; *s && *s != ','; s++) {
		if (s[0] == '\\' && s[1])
			s++;
		*to++ = *s;
	}
	*list = *s ? s + 1 : NULL;
	*to = '\0';
	return start;
}

char *rsh_options_keep(struct rsh_options *o, const char *text)
{
	char *copy = strdup(text);

	if (!copy || rsh_grow(&o->copies, &o->cap_copies, o->n_copies + 1,
			      sizeof(*o->copies))) {
		free(copy);
		return NULL;
	}
	o->copies[o->n_copies++] = copy;
	return copy;
}

int rsh_set_list(struct rsh_options *o, const struct rsh_option *def,
		 const char *value, struct rsh_error *err)
{
	char *list = rsh_options_keep(o, value), *one;
	int rc = 0;

	(void)def;
	if (!list)
		return rsh_error_nomem(err);
	while (rc == 0 && (one = next_listed(&list)))
		if (*one)
			rc = apply_listed(o, one, err);
	return rc;
}

int rsh_options_set(struct rsh_options *o, const char *given,
		    struct rsh_error *err)
{
	char *copy = rsh_options_keep(o, given);

	return copy ? apply_listed(o, copy, err) : rsh_error_nomem(err);
}
