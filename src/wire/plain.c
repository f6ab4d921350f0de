/* SPDX-License-Identifier: Apache-2.0 */
/* wire/plain.c writes plain values as a pickle, and as JSON in the form of
 * Python's json.dumps(): tuples become lists, and numeric keys become texts. */
#include "config.h"

#include "rsh/wire/plain.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "rsh/util/arena.h"
#include "rsh/util/mem.h"
#include "rsh/wire/pickle_emit.h"
#include "rsh/wire/pickle_values.h"

/* A value may contain itself, or be in many places, so the depth is limited. */
#define DEPTH_MAX 32
#define PLAIN_MAX (1 << 20)

/* Returns a text as JSON.  Returns NULL if it is not UTF-8 or out of memory;
 * the value is not shown then. */
static char *json_text(const char *text, size_t n)
{
	json_t *string = json_stringn(text, n);
	char *escaped = string ? json_dumps(string, JSON_ENCODE_ANY) : NULL;

	json_decref(string);
	return escaped;
}

/* ---- JSON ---- */

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

static int pickle_json_put(FILE *to, const struct rsh_pickle_value *v,
			   unsigned depth);

/* Puts n values, or keys and values of a dictionary. */
static int json_put_all(FILE *to, const struct rsh_pickle_value *v, uint32_t n,
			bool is_dict, unsigned depth)
{
	int rc = 0;

	fputc(is_dict ? '{' : '[', to);
	for (uint32_t i = 0; i + is_dict < n && rc == 0; i += 1 + is_dict) {
		fputs(i ? ", " : "", to);
		if (is_dict && v[i].kind == RSH_PV_NUMBER)
			fprintf(to, "\"%" PRId64 "\"", v[i].number);
		else if (is_dict)
			rc = v[i].kind == RSH_PV_TEXT ?
			     pickle_json_put(to, &v[i], depth) : -ENOTSUP;
		fputs(is_dict ? ": " : "", to);
		rc = rc ?: pickle_json_put(to, &v[i + is_dict], depth);
	}
	fputc(is_dict ? '}' : ']', to);
	return rc;
}

static int pickle_json_put(FILE *to, const struct rsh_pickle_value *v,
			   unsigned depth)
{
	cleanup_free char *escaped = NULL;

	if (depth > DEPTH_MAX || ftell(to) > PLAIN_MAX)
		return -ENOTSUP;
	switch ((enum rsh_pickle_kind)v->kind) {
	case RSH_PV_NONE:
		fputs("null", to);
		return 0;
	case RSH_PV_BOOL:
		fputs(v->number ? "true" : "false", to);
		return 0;
	case RSH_PV_NUMBER:
		fprintf(to, "%" PRId64, v->number);
		return 0;
	case RSH_PV_REAL:
		return json_put_real(to, v->real);
	case RSH_PV_TEXT:
		escaped = json_text(v->text, v->n);
		fputs(escaped ? escaped : "", to);
		return escaped ? 0 : -ENOTSUP;
	case RSH_PV_TUPLE:
		return json_put_all(to, v->items, v->n, false, depth + 1);
	case RSH_PV_LIST:
	case RSH_PV_DICT:
		return json_put_all(to, v->list->values, v->list->n,
				    v->kind == RSH_PV_DICT, depth + 1);
	default:
		return -ENOTSUP;
	}
}

/* ---- pickles ---- */

static int plain_put(struct rsh_pickle_out *o, const struct rsh_pickle_value *v,
		     unsigned depth);

/* Puts bytes, which protocol 2 has as a call: of a text in Latin-1, or without
 * arguments if there are none. */
static int plain_put_bytes(struct rsh_pickle_out *o,
			   const struct rsh_pickle_object *call, unsigned depth)
{
	const struct rsh_pickle_class *c = call->class;
	const struct rsh_pickle_value *args = &call->args;
	int rc;

	if (!c || args->kind != RSH_PV_TUPLE ||
	    call->state.kind != RSH_PV_NONE)
		return -ENOTSUP;
	if (!(args->n == 0 && strcmp(c->name, "bytes") == 0 &&
	      (strcmp(c->module, "builtins") == 0 ||
	       strcmp(c->module, "__builtin__") == 0)) &&
	    !(args->n == 2 && strcmp(c->module, "_codecs") == 0 &&
	      strcmp(c->name, "encode") == 0 &&
	      args->items[0].kind == RSH_PV_TEXT &&
	      args->items[1].kind == RSH_PV_TEXT &&
	      strcmp(args->items[1].text, "latin1") == 0))
		return -ENOTSUP;
	rsh_pickle_put_global(o, c->module, c->name);
	rc = plain_put(o, args, depth);
	rsh_pickle_put(o, RSH_PICKLE_OP_REDUCE);
	return rc;
}

/* Puts n values, which a mark and an instruction enclose. */
static int plain_put_all(struct rsh_pickle_out *o,
			 const struct rsh_pickle_value *v, uint32_t n,
			 unsigned depth, enum rsh_pickle_op end)
{
	int rc = 0;

	rsh_pickle_put(o, RSH_PICKLE_OP_MARK);
	for (uint32_t i = 0; i < n && rc == 0; i++)
		rc = plain_put(o, &v[i], depth + 1);
	rsh_pickle_put(o, end);
	return rc;
}

static int plain_put(struct rsh_pickle_out *o, const struct rsh_pickle_value *v,
		     unsigned depth)
{
	json_t *text;

	if (depth > DEPTH_MAX || o->n > PLAIN_MAX)
		return -ENOTSUP;
	switch ((enum rsh_pickle_kind)v->kind) {
	case RSH_PV_NONE:
		rsh_pickle_put(o, RSH_PICKLE_OP_NONE);
		return 0;
	case RSH_PV_BOOL:
		rsh_pickle_put(o, v->number ? RSH_PICKLE_OP_TRUE :
					      RSH_PICKLE_OP_FALSE);
		return 0;
	case RSH_PV_NUMBER:
		rsh_pickle_put_signed(o, v->number);
		return 0;
	case RSH_PV_REAL:
		rsh_pickle_put_real(o, v->real);
		return 0;
	case RSH_PV_TEXT:
		text = json_stringn(v->text, v->n);
		if (!text)
			return -ENOTSUP; /* it is not UTF-8 */
		json_decref(text);
		rsh_pickle_put_text(o, v->text, v->n);
		return 0;
	case RSH_PV_TUPLE:
		return plain_put_all(o, v->items, v->n, depth,
				     RSH_PICKLE_OP_TUPLE);
	case RSH_PV_LIST:
		rsh_pickle_put(o, RSH_PICKLE_OP_EMPTY_LIST);
		return plain_put_all(o, v->list->values, v->list->n, depth,
				     RSH_PICKLE_OP_APPENDS);
	case RSH_PV_DICT:
		/* Python refuses a key that can be changed. */
		for (uint32_t i = 0; i + 1 < v->list->n; i += 2)
			if (v->list->values[i].kind > RSH_PV_TEXT)
				return -ENOTSUP;
		rsh_pickle_put(o, RSH_PICKLE_OP_EMPTY_DICT);
		return plain_put_all(o, v->list->values, v->list->n, depth,
				     RSH_PICKLE_OP_SETITEMS);
	case RSH_PV_OBJECT:
		return plain_put_bytes(o, v->object, depth);
	default:
		return -ENOTSUP;
	}
}

/* ---- both ---- */

int rsh_plain_make(const struct rsh_pickle_value *v, struct rsh_plain *out)
{
	struct rsh_pickle_out o = { .data = NULL };
	FILE *to;
	size_t n;
	int rc;

	*out = (struct rsh_plain){ .json = NULL };
	rsh_pickle_begin(&o);
	rc = plain_put(&o, v, 0);
	rsh_pickle_end(&o);
	if (rc == 0 && o.failed)
		rc = -ENOMEM;
	if (rc) {
		rsh_pickle_clear(&o);
		return rc == -ENOMEM ? rc : 0;
	}
	out->pickle = o.data;
	out->n_pickle = o.n;
	to = open_memstream(&out->json, &n);
	if (!to)
		return -ENOMEM;
	rc = pickle_json_put(to, v, 0);
	rc = ferror(to) ? -ENOMEM : rc;
	if (fclose(to) != 0 && rc == 0)
		rc = -ENOMEM;
	if (rc)
		free(steal_pointer(&out->json));
	/* JSON cannot express every value. */
	return rc == -ENOMEM ? rc : 0;
}

int rsh_plain_make_number(int64_t v, struct rsh_plain *out)
{
	const struct rsh_pickle_value value = {
		.kind = RSH_PV_NUMBER, .number = v,
	};

	return rsh_plain_make(&value, out);
}

int rsh_plain_make_real(double v, struct rsh_plain *out)
{
	const struct rsh_pickle_value value = {
		.kind = RSH_PV_REAL, .real = v,
	};

	return rsh_plain_make(&value, out);
}

int rsh_plain_copy(const struct rsh_plain *from, struct rsh_plain *to)
{
	*to = (struct rsh_plain){ .n_pickle = from->n_pickle };
	if (from->pickle) {
		to->pickle = rsh_alloc_array(from->n_pickle, 1);
		if (!to->pickle)
			return -ENOMEM;
		memcpy(to->pickle, from->pickle, from->n_pickle);
	}
	if (from->json) {
		to->json = strdup(from->json);
		if (!to->json)
			return -ENOMEM;
	}
	return 0;
}

void rsh_plain_clear(struct rsh_plain *p)
{
	free(p->json);
	free(p->pickle);
	*p = (struct rsh_plain){ .json = NULL };
}

int rsh_plain_join(const char *const *names, const struct rsh_plain *values,
		   uint32_t n, char **out, size_t *len)
{
	FILE *to = open_memstream(out, len);
	const char *before = "{\n";

	if (!to)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++) {
		cleanup_free char *name = json_text(names[i], strlen(names[i]));

		if (!values[i].json || !name)
			continue;
		fprintf(to, "%s%s: %s", before, name, values[i].json);
		before = ",\n";
	}
	fputs(*before == ',' ? "\n}\n" : "{}\n", to);
	if (fclose(to) == 0)
		return 0;
	free(*out);
	*out = NULL;
	return -ENOMEM;
}

struct rsh_path_key *rsh_path_keys_copy(const struct rsh_path_key *keys,
					uint32_t n, struct rsh_arena *arena)
{
	struct rsh_path_key *to = rsh_arena_array(arena, struct rsh_path_key,
						  n);

	for (uint32_t i = 0; to && i < n; i++) {
		to[i] = keys[i];
		if (keys[i].text)
			to[i].text = rsh_arena_strdup(arena, keys[i].text);
		if (keys[i].text && !to[i].text)
			return NULL;
	}
	return to;
}
