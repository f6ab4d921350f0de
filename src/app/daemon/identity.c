/* SPDX-License-Identifier: Apache-2.0 */
/* app/daemon/identity.c lists the options of a mount in a fixed order and with
 * absolute paths, so that two mounts can be compared. */
#include "config.h"

#include "stack_i.h"

#include <stdlib.h>
#include <string.h>

#include "rsh/app/json.h"
#include "rsh/app/table.h"
#include "rsh/util/mem.h"

/* Returns the absolute path of a value that is a path (from malloc), by the
 * name of the value in --help.  Returns NULL for other values, which are kept,
 * such as a word that may be given instead of a path. */
static char *full_path(const char *arg, const char *value)
{
	static const char *const places[] = { "PATH", "FILE", "SOURCE", "DIR",
					      "MOUNTPOINT", "TREE", "OUT",
					      "MANIFEST", "STRATEGY", "TABLE" };

	if (!value || strcmp(value, "none") == 0 || strcmp(value, "off") == 0)
		return NULL;
	for (size_t i = 0; arg && i < sizeof(places) / sizeof(places[0]); i++)
		if (strstr(arg, places[i]))
			return realpath(value, NULL);
	return NULL;
}

/* Returns 0, or -1 if memory is out. */
static int add_line(json_t *all, const char *name, const char *value)
{
	cleanup_free char *text = NULL;

	if (asprintf(&text, "%s%s%s", name, value ? "=" : "",
		     value ? value : "") < 0) {
		text = NULL;
		return -1;
	}
	return json_array_append_new(all, rsh_json_text(text));
}

static int add_given(json_t *all, const struct rsh_given *given)
{
	cleanup_free char *full = NULL;
	size_t n, i = 0;
	const struct rsh_option *table = rsh_option_table(&n);

	while (i < n && !(table[i].name &&
			  strcmp(table[i].name, given->name) == 0))
		i++;
	if (i == n || table[i].aside)
		return 0;
	full = full_path(table[i].arg, given->value);
	return add_line(all, given->name, full ? full : given->value);
}

/* Compares options by name.  Options with the same name keep their order,
 * because it may matter. */
static int given_by_name(const void *a, const void *b)
{
	const struct rsh_given *x = a, *y = b;
	const int order = strcmp(x->name, y->name);

	return order ? order : (x->at > y->at) - (x->at < y->at);
}

json_t *rsh_identity(const struct rsh_options *o)
{
	cleanup_free struct rsh_given *given =
		rsh_alloc_array(o->n_given, sizeof(*given));
	cleanup_free char *source = realpath(o->vfs.source, NULL);
	json_t *all = json_array();
	int rc;

	if (!given || !all) {
		json_decref(all);
		return NULL;
	}
	for (size_t i = 0; i < o->n_given; i++)
		given[i] = o->given[i];
	qsort(given, o->n_given, sizeof(*given), given_by_name);
	rc = add_line(all, "SOURCE", source ? source : o->vfs.source);
	for (size_t i = 0; rc == 0 && i < o->n_given; i++)
		rc = add_given(all, &given[i]);
	if (rc == 0)
		return all;
	json_decref(all);
	return NULL;
}
