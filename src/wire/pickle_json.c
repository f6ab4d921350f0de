/* SPDX-License-Identifier: Apache-2.0 */
/* wire/pickle_json.c writes plain values as JSON in the form of Python's
 * json.dumps(): tuples become lists, and numeric keys become texts. */
#include "config.h"

#include "rsh/wire/pickle_values.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "rsh/util/mem.h"

/* A value may contain itself, or be in many places, so the depth is limited. */
#define DEPTH_MAX 32
#define JSON_MAX (1 << 20)

/* Returns a text as JSON.  Returns NULL if it is not UTF-8 or out of memory;
 * the value is not shown then. */
static char *json_text(const char *text, size_t n)
{
	json_t *string = json_stringn(text, n);
	char *escaped = string ? json_dumps(string, JSON_ENCODE_ANY) : NULL;

	json_decref(string);
	return escaped;
}

static int json_put_text(FILE *to, const char *text, size_t n)
{
	cleanup_free char *escaped = json_text(text, n);

	if (!escaped)
		return -ENOTSUP;
	return fputs(escaped, to) < 0 ? -ENOMEM : 0;
}

/* Writes the fewest digits from which the same number can be read. */
static int json_put_real(FILE *to, double real)
{
	char text[40];

	if (!isfinite(real))
		return -ENOTSUP;
	for (int digits = 15; digits <= 17; digits++) {
		snprintf(text, sizeof(text), "%.*g", digits, real);
		if (strtod(text, NULL) == real)
			break;
	}
	fputs(text, to);
	if (!strpbrk(text, ".e"))
		fputs(".0", to);
	return 0;
}

static int json_put_key(FILE *to, const struct rsh_pickle_value *v)
{
	if (v->kind == RSH_PV_TEXT)
		return json_put_text(to, v->text, v->n);
	if (v->kind != RSH_PV_NUMBER)
		return -ENOTSUP;
	fprintf(to, "\"%" PRId64 "\"", v->number);
	return 0;
}

static int pickle_json_put(FILE *to, const struct rsh_pickle_value *v,
			   unsigned depth);

static int json_put_list(FILE *to, const struct rsh_pickle_value *v, uint32_t n,
			 unsigned depth)
{
	int rc = 0;

	fputc('[', to);
	for (uint32_t i = 0; i < n && rc == 0; i++) {
		fputs(i ? ", " : "", to);
		rc = pickle_json_put(to, &v[i], depth);
	}
	fputc(']', to);
	return rc;
}

static int json_put_dict(FILE *to, const struct rsh_pickle_list *l,
			 unsigned depth)
{
	int rc = 0;

	fputc('{', to);
	for (uint32_t i = 0; i + 1 < l->n && rc == 0; i += 2) {
		fputs(i ? ", " : "", to);
		rc = json_put_key(to, &l->values[i]);
		fputs(": ", to);
		if (rc == 0)
			rc = pickle_json_put(to, &l->values[i + 1], depth);
	}
	fputc('}', to);
	return rc;
}

static int pickle_json_put(FILE *to, const struct rsh_pickle_value *v,
			   unsigned depth)
{
	if (depth > DEPTH_MAX || ftell(to) > JSON_MAX)
		return -ENOTSUP;
	switch ((enum rsh_pickle_kind)v->kind) {
	case RSH_PV_NONE:
		return fputs("null", to) < 0 ? -ENOMEM : 0;
	case RSH_PV_BOOL:
		return fputs(v->number ? "true" : "false", to) < 0 ? -ENOMEM :
								      0;
	case RSH_PV_NUMBER:
		return fprintf(to, "%" PRId64, v->number) < 0 ? -ENOMEM : 0;
	case RSH_PV_REAL:
		return json_put_real(to, v->real);
	case RSH_PV_TEXT:
		return json_put_text(to, v->text, v->n);
	case RSH_PV_TUPLE:
		return json_put_list(to, v->items, v->n, depth + 1);
	case RSH_PV_LIST:
		return json_put_list(to, v->list->values, v->list->n,
				     depth + 1);
	case RSH_PV_DICT:
		return json_put_dict(to, v->list, depth + 1);
	default:
		return -ENOTSUP;
	}
}

int rsh_pickle_json(const struct rsh_pickle_value *v, char **out)
{
	char *text = NULL;
	size_t n;
	FILE *to = open_memstream(&text, &n);
	int rc;

	if (!to)
		return -ENOMEM;
	rc = pickle_json_put(to, v, 0);
	if (fclose(to) != 0 && rc == 0)
		rc = -ENOMEM;
	if (rc) {
		free(text);
		return rc;
	}
	*out = text;
	return 0;
}

int rsh_pickle_json_join(const char *const *names, char *const *json,
			 uint32_t n, char **out, size_t *len)
{
	FILE *to = open_memstream(out, len);
	const char *before = "{\n";

	if (!to)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++) {
		cleanup_free char *name = json_text(names[i], strlen(names[i]));

		if (!json[i] || !name)
			continue;
		fprintf(to, "%s%s: %s", before, name, json[i]);
		before = ",\n";
	}
	fputs(*before == ',' ? "\n}\n" : "{}\n", to);
	if (fclose(to) == 0)
		return 0;
	free(*out);
	*out = NULL;
	return -ENOMEM;
}
