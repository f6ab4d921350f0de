/* SPDX-License-Identifier: Apache-2.0 */
/* wire/adapter_edit.c writes the adapter_config.json of an adapter whose
 * modules have got other names: what PEFT searches in their names, and the
 * ranks and alphas of those that differ from the others.  At the end the result
 * is read as PEFT reads it and compared with what is wanted. */
#include "config.h"

#include "rsh/wire/adapter_edit.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "rsh/util/mem.h"
#include "rsh/util/text.h"
#include "rsh/wire/adapter_config.h"
#include "rsh/wire/json_edit.h"
#include "rsh/wire/json_load.h"

struct editing {
	const struct rsh_adapter_module *v;
	size_t n;
	const char *path;
	json_t *root; /* the config as it was */
	struct rsh_adapter_config *config;
	struct rsh_json_edit *edit;
	bool by_root;
};

static const char *last_of(const char *name)
{
	const char *dot = strrchr(name, '.');

	return dot ? dot + 1 : name;
}

/* Sets a member to a value, which is freed; NULL: memory is out. */
static int edit_set(struct editing *e, const char *key, json_t *value,
		    struct rsh_error *err)
{
	cleanup_free char *text =
		value ? json_dumps(value, JSON_ENCODE_ANY | JSON_ENSURE_ASCII |
				   JSON_REAL_PRECISION(17)) : NULL;
	int rc = text ? rsh_json_edit_set(e->edit, NULL, key, text) : -ENOMEM;

	json_decref(value);
	return rc ? rsh_error_nomem(err) : 0;
}

/* ---- which modules ---- */

/* Sets the list of modules, or of parameters.  Entries that still find one
 * stay.  An expression is replaced by all names. */
static int edit_targets(struct editing *e, const char *key, bool of_parameters,
			struct rsh_error *err)
{
	const json_t *old = json_object_get(e->root, key);
	const bool is_list = json_is_array(old);
	json_t *made = json_array(), *v;
	size_t i;

	if (!made)
		return rsh_error_nomem(err);
	json_array_foreach(old, i, v) {
		const char *text = json_string_value(v);

		for (size_t k = 0; text && k < e->n; k++)
			if (e->v[k].is_parameter == of_parameters &&
			    rsh_adapter_name_ends(e->v[k].name, text)) {
				json_array_append(made, v);
				break;
			}
	}
	for (size_t m = 0; m < e->n; m++) {
		bool has = e->v[m].is_parameter != of_parameters;

		json_array_foreach(made, i, v)
			has |= json_is_string(v) &&
			       rsh_adapter_name_ends(e->v[m].name,
						     json_string_value(v));
		if (!has)
			json_array_append_new(made, json_string(
				is_list || of_parameters ?
				last_of(e->v[m].name) : e->v[m].name));
	}
	if (json_equal(made, old) ||
	    (json_array_size(made) == 0 && (!old || json_is_null(old)))) {
		json_decref(made);
		return 0;
	}
	return edit_set(e, key, made, err);
}

/* ---- ranks and alphas ---- */

static bool module_is_said(const struct rsh_adapter_config *c,
			   const struct rsh_adapter_module *m)
{
	const double is = rsh_adapter_config_scaling(c, m->name);

	return rsh_adapter_config_rank(c, m->name) == m->rank &&
	       fabs(is - m->scaling) <= 1e-14 * fabs(m->scaling);
}

/* Makes the expression for the modules that have such a name in another layer
 * or expert.  NULL: out of memory. */
static char *module_pattern(const char *name)
{
	const char *last = last_of(name), *number = last, *group;

	while (number - 1 > name && number[-2] >= '0' && number[-2] <= '9')
		number--;
	/* experts.3.gate_proj, but not layers.3 */
	if (number == last || number - 2 <= name || number[-2] != '.')
		return rsh_text_format(".*\\.%s", last);
	for (group = number - 2; group > name && group[-1] != '.'; group--)
		;
	return rsh_text_format(".*\\.%.*s\\.\\d+\\.%s",
			       (int)(number - 2 - group), group, last);
}

/* Returns whether an expression is for modules which have other names now. */
static bool pattern_is_old(const struct editing *e, const char *key)
{
	for (size_t i = 0; i < e->n; i++) {
		const char *was = last_of(e->v[i].was);
		const size_t n = strlen(was), k = strlen(key);

		if (strcmp(was, last_of(e->v[i].name)) != 0 && k >= n &&
		    strcmp(key + k - n, was) == 0)
			return true;
	}
	return false;
}

static int edit_patterns(struct editing *e, struct rsh_error *err)
{
	static const char *const keys[] = { "rank_pattern", "alpha_pattern" };
	json_t *made[2] = { json_object(), json_object() }, *value;
	const char *key;
	int rc = made[0] && made[1] ? 0 : rsh_error_nomem(err);

	for (size_t i = 0; rc == 0 && i < e->n; i++) {
		const struct rsh_adapter_module *m = &e->v[i];
		cleanup_free char *text = NULL;
		double alpha;

		if (strcmp(m->was, m->name) == 0 || module_is_said(e->config, m))
			continue;
		text = module_pattern(m->name);
		if (!text)
			rc = rsh_error_nomem(err);
		else if (!json_object_get(made[0], text)) {
			json_object_set_new(made[0], text, json_integer(
						    (json_int_t)m->rank));
			/* A whole number is written as one. */
			alpha = m->scaling * (e->by_root ?
					      sqrt((double)m->rank) :
					      (double)m->rank);
			json_object_set_new(
				made[1], text, alpha == floor(alpha) &&
				fabs(alpha) < 1e15 ?
				json_integer((json_int_t)alpha) :
				json_real(alpha));
		}
	}
	for (size_t k = 0; k < 2; k++) {
		json_t *old = json_object_get(e->root, keys[k]);

		/* The first expression that fits counts. */
		json_object_foreach(old, key, value)
			if (!pattern_is_old(e, key) &&
			    !json_object_get(made[k], key))
				json_object_set(made[k], key, value);
		if (rc == 0 && json_object_size(made[k]) +
			       json_object_size(old) > 0)
			rc = edit_set(e, keys[k], json_incref(made[k]), err);
		json_decref(made[k]);
	}
	return rc;
}

/* ---- all ---- */

static int edit_check(const struct editing *e, const char *text, size_t len,
		      struct rsh_error *err)
{
	struct rsh_adapter_config *c;
	int rc = rsh_adapter_config_parse(text, len, e->path, &c, err);

	if (rc)
		return rc;
	for (size_t i = 0; rc == 0 && i < e->n; i++)
		if (!module_is_said(c, &e->v[i]))
			rc = rsh_error_set(err, ENOTSUP, "%s: an adapter of "
					   "%.400s cannot have rank %llu and "
					   "scaling %g beside those of other "
					   "modules", e->path, e->v[i].name,
					   (unsigned long long)e->v[i].rank,
					   e->v[i].scaling);
	rsh_adapter_config_free(c);
	return rc;
}

int rsh_adapter_config_edit(const char *text, size_t len, const char *path,
			    const struct rsh_adapter_module *v, size_t n,
			    char **out, size_t *out_len, struct rsh_error *err)
{
	cleanup_json json_t *root = NULL;
	struct editing e = { .v = v, .n = n, .path = path };
	int rc = rsh_json_load(&(struct rsh_memory){ text, len }, 0, path,
			       "an " RSH_ADAPTER_CONFIG_NAME, &root, err) ?:
		 rsh_adapter_config_parse(text, len, path, &e.config, err) ?:
		 rsh_json_edit_open(text, len, path, &e.edit, err);

	bool same = true;

	*out = NULL;
	e.root = root;
	for (size_t i = 0; i < n; i++)
		same = same && strcmp(v[i].was, v[i].name) == 0;
	e.by_root = json_is_true(json_object_get(root, "use_rslora"));
	if (rc == 0 && !same)
		rc = edit_targets(&e, "target_modules", false, err) ?:
		     edit_targets(&e, "target_parameters", true, err) ?:
		     edit_patterns(&e, err);
	if (rc == 0 && rsh_json_edit_write(e.edit, out, out_len))
		rc = rsh_error_nomem(err);
	rc = rc ?: edit_check(&e, *out, *out_len, err);
	if (rc) {
		free(*out);
		*out = NULL;
	}
	rsh_json_edit_free(e.edit);
	rsh_adapter_config_free(e.config);
	return rc;
}
