/* SPDX-License-Identifier: Apache-2.0 */
/* wire/adapter_config.c reads the adapter_config.json of a PEFT adapter. */
#include "config.h"

#include "rsh/wire/adapter_config.h"

#include <errno.h>
#include <math.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "rsh/util/mem.h"
#include "rsh/util/text.h"
#include "rsh/wire/json_load.h"

/* A regular expression of Python that may match the end of a module's name, and
 * the number for such modules. */
struct pattern {
	regex_t re;
	double number;
};

struct patterns {
	struct pattern *v;
	size_t n;
};

struct rsh_adapter_config {
	uint64_t rank;
	double alpha;
	bool by_root; /* alpha is divided by the square root of the rank */
	bool is_turned;
	struct patterns ranks, alphas;
	json_t *parameters; /* a list of strings; NULL: none */
	json_t *targets;    /* "target_modules"; NULL: not for all modules */
	json_t *saved; /* "modules_to_save"; NULL: none */
	bool ties;     /* "ensure_weight_tying" */
};

/* ---- patterns ---- */

/* Finds the pattern that matches a module, the first one as PEFT does. */
static const struct pattern *patterns_find(const struct patterns *p,
					   const char *module)
{
	for (size_t i = 0; i < p->n; i++)
		if (regexec(&p->v[i].re, module, 0, NULL, 0) == 0)
			return &p->v[i];
	return NULL;
}

static void patterns_clear(struct patterns *p)
{
	for (size_t i = 0; i < p->n; i++)
		regfree(&p->v[i].re);
	free(p->v);
}

#define PATTERN_MAX 1000

/* Repeated groups in a pattern: if they are nested, the time for each of them
 * doubles. */
#define GROUPS_MAX 6

/* Returns whether a pattern is compiled in little time and memory.  regcomp()
 * copies what a count or a "+" repeats, and follows nested repetitions again
 * and again.  Python refuses a repetition of a repetition too, but "?" after
 * one makes it lazy. */
static bool pattern_is_small(const char *key)
{
	unsigned repeats = 0, n_groups = 0;
	char before = 0;

	if (strlen(key) > PATTERN_MAX)
		return false;
	for (; *key; key++) {
		const bool is_escape = *key == '\\' && key[1];
		const bool is_repeat = strchr("?*+", *key);

		repeats = is_repeat ? repeats + 1 : 0;
		n_groups += is_repeat && before == ')';
		if (*key == '{' || (*key == '+' && before == ')') ||
		    repeats > 2 || (repeats == 2 && *key != '?') ||
		    n_groups > GROUPS_MAX)
			return false;
		before = is_escape ? 0 : *key;
		key += is_escape;
	}
	return true;
}

/* Returns the part of a pattern that follows the escape or the character at
 * `*key`, in the notation of POSIX, and moves *key to its last one; NULL: the
 * notation differs.  In a set, "\" is no escape to POSIX and "[" may be one. */
static const char *pattern_next(const char **key, bool in_set, char *one)
{
	const char *at = *key;

	one[0] = at[0];
	one[1] = '\0';
	if (at[0] == '\\') {
		*key = at + 1;
		return at[1] == 'd' ? (in_set ? "0-9" : "[0-9]") :
		       at[1] != '.' ? NULL :
		       in_set ? "." : "\\.";
	}
	return (in_set && at[0] == '[') || strncmp(at, "(?", 2) == 0 ? NULL :
	       one;
}

/* Makes the regular expression that PEFT matches with a module's name, in the
 * notation of POSIX.  Returns NULL if memory is out or the notation differs. */
static char *pattern_text(const char *key)
{
	char *text = pattern_is_small(key) ? malloc(6 * strlen(key) + 16) : NULL;
	const char *set = NULL; /* the first character of a set */
	char *to = text, before = '\0', one[2];

	if (!text)
		return NULL;
	to = stpcpy(to, "^(.*\\.)?(");
	for (; *key; before = *key++) {
		const char *next = pattern_next(&key, set, one);

		if (!next) {
			free(text);
			return NULL;
		}
		/* A lazy repetition matches whole names as another one does,
		 * and to POSIX it could be left out. */
		if (!set && *key == '?' && before && strchr("?*+", before))
			continue;
		to = stpcpy(to, next);
		if (!set && *next == '[' && !next[1])
			set = key + 1 + (key[1] == '^');
		else if (set && *next == ']' && key > set)
			set = NULL;
	}
	strcpy(to, ")$");
	return text;
}

static int patterns_add(struct patterns *p, const char *key,
			const json_t *value, bool whole, const char *path,
			struct rsh_error *err)
{
	cleanup_free char *text = pattern_text(key);
	const double number = json_number_value(value);

	if (!(whole ? json_is_integer(value) : json_is_number(value)) ||
	    !(number > 0))
		return rsh_error_set(err, EBADMSG, "%s: the value of \"%.200s\" "
				     "in a pattern is not a %snumber above 0",
				     path, key, whole ? "whole " : "");
	if (!text || regcomp(&p->v[p->n].re, text, REG_EXTENDED | REG_NOSUB))
		return rsh_error_set(err, ENOTSUP, "%s: the pattern \"%.200s\" "
				     "is a regular expression that is not "
				     "supported", path, key);
	p->v[p->n++].number = number;
	return 0;
}

static int patterns_read(struct patterns *p, const json_t *root,
			 const char *name, bool whole, const char *path,
			 struct rsh_error *err)
{
	json_t *all = json_object_get(root, name), *value;
	const char *key;
	int rc = 0;

	p->v = rsh_alloc_array(json_object_size(all), sizeof(*p->v));
	if (!p->v)
		return rsh_error_nomem(err);
	json_object_foreach(all, key, value)
		rc = rc ?: patterns_add(p, key, value, whole, path, err);
	return rc;
}

/* ---- what cannot be merged ---- */

/* Returns whether a value asks for something: it is not null, false or
 * empty. */
static bool adapter_asks(const json_t *v)
{
	return v && !json_is_null(v) && !json_is_false(v) &&
	       !(json_is_array(v) && json_array_size(v) == 0) &&
	       !(json_is_object(v) && json_object_size(v) == 0);
}

static int adapter_refuse(const char *path, const char *key,
			  struct rsh_error *err)
{
	return rsh_error_set(err, ENOTSUP, "%s: \"%.100s\" is set: such an "
			     "adapter cannot be merged here", path, key);
}

/* These adapters are more than a product that is added to a weight. */
static int adapter_check_kind(json_t *root, const char *path,
			      struct rsh_error *err)
{
	static const char *const kinds[] = {
		"lora_bias", "trainable_token_indices",
		"layer_replication", "alora_invocation_tokens",
		"arrow_config", "kasa_config", "monteclora_config",
		"velora_config",
	};
	const char *key;
	json_t *v;

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (adapter_asks(json_object_get(root, kinds[i])))
			return adapter_refuse(path, kinds[i], err);
	json_object_foreach(root, key, v)
		if (strncmp(key, "use_", 4) == 0 && adapter_asks(v) &&
		    strcmp(key, "use_rslora") != 0)
			return adapter_refuse(path, key, err);
	return 0;
}

/* Some ways to begin the training also change the weights of the base. */
static int adapter_check_begin(const json_t *root, const char *path,
			       struct rsh_error *err)
{
	const json_t *v = json_object_get(root, "init_lora_weights");
	const char *text = json_string_value(v);

	if (!text || rsh_is_any(text, "gaussian", "eva", "orthogonal"))
		return 0;
	return rsh_error_set(err, ENOTSUP, "%s: \"init_lora_weights\" is "
			     "\"%.100s\", which changes the weights of the base "
			     "as well: such an adapter cannot be merged here",
			     path, text);
}

static int adapter_check(json_t *root, const char *path, struct rsh_error *err)
{
	const char *type = json_string_value(json_object_get(root,
							     "peft_type"));
	const json_t *bias = json_object_get(root, "bias");

	if (!type || strcmp(type, "LORA") != 0)
		return rsh_error_set(err, ENOTSUP, "%s: \"peft_type\" is %s%.100s%s,"
				     " and only \"LORA\" can be merged", path,
				     type ? "\"" : "", type ? type : "missing",
				     type ? "\"" : "");
	if (bias && !json_is_null(bias) &&
	    (!json_is_string(bias) ||
	     strcmp(json_string_value(bias), "none") != 0))
		return rsh_error_set(err, ENOTSUP, "%s: \"bias\" is not "
				     "\"none\": biases of an adapter cannot be "
				     "merged here", path);
	return adapter_check_kind(root, path, err) ?:
	       adapter_check_begin(root, path, err);
}

/* ---- reading ---- */

static int parameters_read(struct rsh_adapter_config *c, const json_t *root,
			   const char *path, struct rsh_error *err)
{
	json_t *list = json_object_get(root, "target_parameters"), *v;
	bool good = json_is_array(list);
	size_t i;

	if (!adapter_asks(list))
		return 0;
	json_array_foreach(list, i, v)
		good &= json_is_string(v);
	if (!good)
		return rsh_error_set(err, EBADMSG, "%s: \"target_parameters\" "
				     "is not a list of texts", path);
	c->parameters = json_incref(list);
	return 0;
}

static int adapter_read(struct rsh_adapter_config *c, const json_t *root,
			const char *path, struct rsh_error *err)
{
	const json_t *r = json_object_get(root, "r");
	const json_t *alpha = json_object_get(root, "lora_alpha");

	if (!json_is_integer(r) || json_integer_value(r) <= 0)
		return rsh_error_set(err, EBADMSG, "%s: \"r\" is not a whole "
				     "number above 0", path);
	if (!json_is_number(alpha))
		return rsh_error_set(err, EBADMSG, "%s: \"lora_alpha\" is not a "
				     "number", path);
	c->rank = (uint64_t)json_integer_value(r);
	c->alpha = json_number_value(alpha);
	c->by_root = json_is_true(json_object_get(root, "use_rslora"));
	c->is_turned = json_is_true(json_object_get(root, "fan_in_fan_out"));
	c->ties = json_is_true(json_object_get(root, "ensure_weight_tying"));
	c->saved = json_incref(json_object_get(root, "modules_to_save"));
	if (!adapter_asks(json_object_get(root, "exclude_modules")) &&
	    !adapter_asks(json_object_get(root, "layers_to_transform")))
		c->targets = json_incref(json_object_get(root,
							 "target_modules"));
	return parameters_read(c, root, path, err) ?:
	       patterns_read(&c->ranks, root, "rank_pattern", true, path,
			     err) ?:
	       patterns_read(&c->alphas, root, "alpha_pattern", false,
			     path, err);
}

int rsh_adapter_config_parse(const void *data, size_t len, const char *path,
			     struct rsh_adapter_config **out,
			     struct rsh_error *err)
{
	cleanup_json json_t *root = NULL;
	struct rsh_adapter_config *c = calloc(1, sizeof(*c));
	int rc;

	if (!c)
		return rsh_error_nomem(err);
	rc = rsh_json_load(&(struct rsh_memory){ data, len }, 0, path,
			   "an " RSH_ADAPTER_CONFIG_NAME, &root, err) ?:
	     adapter_check(root, path, err) ?:
	     adapter_read(c, root, path, err);
	if (rc) {
		rsh_adapter_config_free(c);
		return rc;
	}
	*out = c;
	return 0;
}

void rsh_adapter_config_free(struct rsh_adapter_config *c)
{
	if (!c)
		return;
	patterns_clear(&c->ranks);
	patterns_clear(&c->alphas);
	json_decref(c->parameters);
	json_decref(c->saved);
	json_decref(c->targets);
	free(c);
}

uint64_t rsh_adapter_config_rank(const struct rsh_adapter_config *c,
				 const char *module)
{
	const struct pattern *p = patterns_find(&c->ranks, module);

	return p ? (uint64_t)p->number : c->rank;
}

double rsh_adapter_config_scaling(const struct rsh_adapter_config *c,
				  const char *module)
{
	const struct pattern *p = patterns_find(&c->alphas, module);
	const double rank = (double)rsh_adapter_config_rank(c, module);

	return (p ? p->number : c->alpha) / (c->by_root ? sqrt(rank) : rank);
}

const char *rsh_adapter_config_parameter(const struct rsh_adapter_config *c,
					 size_t i)
{
	return json_string_value(json_array_get(c->parameters, i));
}

/* Returns the first text of a list that a module is called, or ends with. */
static const char *adapter_find_in(json_t *list, const char *module)
{
	json_t *v;
	size_t i;

	json_array_foreach(list, i, v)
		if (json_is_string(v) &&
		    rsh_adapter_name_ends(module, json_string_value(v)))
			return json_string_value(v);
	return NULL;
}

const char *rsh_adapter_config_target(const struct rsh_adapter_config *c,
				      const char *module)
{
	return adapter_find_in(c->targets, module);
}

const char *rsh_adapter_config_saved(const struct rsh_adapter_config *c,
				     size_t i)
{
	return c->ties ? NULL : json_string_value(json_array_get(c->saved, i));
}

bool rsh_adapter_config_saves(const struct rsh_adapter_config *c,
			      const char *module)
{
	return !c->ties && adapter_find_in(c->saved, module);
}

bool rsh_adapter_config_is_turned(const struct rsh_adapter_config *c)
{
	return c->is_turned;
}
