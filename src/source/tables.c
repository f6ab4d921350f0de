/* SPDX-License-Identifier: Apache-2.0 */
/* source/tables.c finds and reads rule tables. */
#include "config.h"

#include "rsh/source/tables.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rsh/storage/store.h"
#include "rsh/util/files.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/suggestion.h"
#include "rsh/util/text.h"
#include "rsh/wire/adapter_config.h"

const struct rsh_small_file rsh_rule_table_file = { "rule table",
						    RSH_RULE_TABLE_MAX };
const struct rsh_small_file rsh_model_config_file = { "config.json",
						      RSH_MODEL_CONFIG_MAX };
const struct rsh_small_file rsh_adapter_config_file = {
	RSH_ADAPTER_CONFIG_NAME, (uint64_t)4 * 1024 * 1024,
};

#define TABLE_SUFFIX ".rules"

/* ---- directories of tables ---- */

static pthread_once_t beside_once = PTHREAD_ONCE_INIT;
static char beside[PATH_MAX]; /* written only once; "": there is no such
			       * directory */

/* Sets the directory of the tables: share/ below the first `length` bytes of
 * `directory` and then `up`. */
static void beside_set(const char *directory, size_t length, const char *up)
{
	int n = snprintf(beside, sizeof(beside), "%.*s%s/share/reshardfs/tables",
			 (int)length, directory, up);

	if (n < 0 || (size_t)n >= sizeof(beside))
		beside[0] = '\0';
}

/* A wheel, or a package that was unpacked somewhere, has its tables beside the
 * program. */
static void beside_find(void)
{
	struct link_map *map = NULL;
	const char *slash;
	Dl_info info;

	if (!dladdr1(beside, &info, (void **)&map, RTLD_DL_LINKMAP) || !map)
		return;
	slash = strrchr(map->l_name, '/');
	if (slash) {
		beside_set(map->l_name, (size_t)(slash - map->l_name), "/..");
	} else {
		char path[PATH_MAX];
		ssize_t n = readlink("/proc/self/exe", path, sizeof(path));

		/* dladdr(3) has no path for a program, so /proc/self/exe is
		 * read; it has no links. */
		for (int names = 0; names < 2; names++)
			while (n > 0 && path[--n] != '/')
				;
		if (n >= 0)
			beside_set(path, (size_t)n, "");
	}
}

const char *rsh_tables_named(void)
{
	const char *first = secure_getenv("RESHARDFS_TABLES");

	return first && *first ? first : NULL;
}

const char *rsh_tables_dir(unsigned i)
{
	const char *first = rsh_tables_named();

	if (first && i-- == 0)
		return first;
	pthread_once(&beside_once, beside_find);
	if (*beside && i-- == 0)
		return beside;
	return i == 0 && strcmp(beside, TABLES_DIR) != 0 ? TABLES_DIR : NULL;
}

/* ---- the list ---- */

RSH_ORDER(table_by_name, struct rsh_table_at, strcmp(x->name, y->name))

/* Adds the table of that file, unless an earlier directory has one with the
 * same name. */
static int tables_add(struct rsh_table_list *l, const char *dir,
		      const char *file)
{
	struct rsh_table_at at;
	const size_t n = strlen(file) - strlen(TABLE_SUFFIX);

	for (size_t i = 0; i < l->n; i++)
		if (strncmp(l->v[i].name, file, n) == 0 && !l->v[i].name[n])
			return 0;
	at.name = strndup(file, n);
	at.path = rsh_text_format("%s/%s", dir, file);
	if (at.name && at.path && rsh_push(l->v, l->n, l->cap, at) == 0)
		return 0;
	free(at.name);
	free(at.path);
	return -ENOMEM;
}

int rsh_tables_list(struct rsh_table_list *out)
{
	const char *path;
	int rc = 0;

	*out = (struct rsh_table_list){ 0 };
	for (unsigned i = 0; rc == 0 && (path = rsh_tables_dir(i)); i++) {
		DIR *dir = opendir(path);
		const struct dirent *e;

		while (rc == 0 && dir && (e = readdir(dir)))
			if (e->d_name[0] != '.' &&
			    rsh_has_suffix(e->d_name, TABLE_SUFFIX))
				rc = tables_add(out, path, e->d_name);
		if (dir)
			closedir(dir);
	}
	rsh_sort(out->v, out->n, table_by_name);
	return rc;
}

void rsh_table_list_clear(struct rsh_table_list *l)
{
	for (size_t i = 0; i < l->n; i++) {
		free(l->v[i].name);
		free(l->v[i].path);
	}
	free(l->v);
	*l = (struct rsh_table_list){ 0 };
}

int rsh_tables_none(struct rsh_error *err)
{
	char where[PATH_MAX] = "";
	const char *dir;
	size_t at = 0;

	for (unsigned i = 0; (dir = rsh_tables_dir(i)) && at < sizeof(where);
	     i++)
		at += (size_t)snprintf(where + at, sizeof(where) - at, "%s%s",
				       i ? " and " : "", dir);
	return rsh_error_set(err, ENOENT, "there are no rule tables in %s: "
					  "RESHARDFS_TABLES names another "
					  "directory", where);
}

/* ---- one table ---- */

/* Sets the error that there is no such table, with the nearest name, or with
 * all. */
static int table_unknown(const char *word, const struct rsh_table_list *l,
			 struct rsh_error *err)
{
	char names[1200], guess[RSH_SUGGESTION_BYTES];
	struct rsh_suggestion offered;
	size_t at = 0;

	if (l->n == 0)
		return rsh_tables_none(err);
	rsh_suggestion_begin(&offered, word, strlen(word));
	for (size_t i = 0; i < l->n; i++)
		rsh_suggestion_offer(&offered, l->v[i].name);
	rsh_suggestion_put(&offered, "", guess);
	if (*guess)
		return rsh_error_set(err, EINVAL, "there is no table \"%s\"%s; "
				     "`reshardfs convert list` lists all; to "
				     "use a file give its suffix or ./%s",
				     word, guess, word);
	for (size_t i = 0; i < l->n && at < sizeof(names); i++)
		at += (size_t)snprintf(names + at, sizeof(names) - at, "%s%s",
				       i ? ", " : "", l->v[i].name);
	return rsh_error_set(err, EINVAL, "there is no table \"%s\": there are "
					  "%s%s; to use a file give its suffix "
					  "or ./%s", word, names,
			     at < sizeof(names) ? "" : " and more (`reshardfs "
			     "convert list`)", word);
}

/* Returns whether the table is chosen by a word: a group's, RSH_TABLE_ANY, or
 * RSH_TABLE_AUTO, with which the right side is MindSpore's. */
static bool table_is_of(const struct rsh_rule_table *t, const char *word)
{
	return strcmp(word, RSH_TABLE_ANY) == 0 ? true :
	       strcmp(word, RSH_TABLE_AUTO) == 0 ? !t->group :
	       t->group && strcmp(t->group, word) == 0;
}

/* Sets *path to the word if tables have it as their group. */
static int table_find_group(const char *word, const struct rsh_table_list *l,
			    char **path, struct rsh_error *err)
{
	struct rsh_error bad = RSH_ERROR_INIT;
	struct rsh_rule_table *t;

	for (size_t i = 0; i < l->n; i++) {
		struct rsh_error why = RSH_ERROR_INIT;
		bool is;

		if (rsh_rule_table_load(l->v[i].path, &t, &why)) {
			bad = bad.code ? bad : why;
			continue;
		}
		is = table_is_of(t, word);
		rsh_rule_table_free(t);
		if (is) {
			*path = strdup(word);
			return *path ? 0 : rsh_error_nomem(err);
		}
	}
	return !bad.code ? table_unknown(word, l, err) :
	       rsh_error_set(err, EINVAL, "there is no table or group \"%s\", "
			     "unless this one has it: %s", word, bad.text);
}

bool rsh_table_is_word(const char *word)
{
	return !strpbrk(word, "/.");
}

int rsh_table_find(const char *word, char **path, struct rsh_error *err)
{
	cleanup_table_list struct rsh_table_list l = { 0 };
	int rc = 0;

	*path = NULL;
	if (!rsh_table_is_word(word)) {
		*path = strdup(word);
		return *path ? 0 : rsh_error_nomem(err);
	}
	if (rsh_tables_list(&l))
		rc = rsh_error_nomem(err);
	for (size_t i = 0; rc == 0 && i < l.n; i++)
		if (strcmp(l.v[i].name, word) == 0)
			*path = steal_pointer(&l.v[i].path);
	if (rc == 0 && !*path)
		rc = table_find_group(word, &l, path, err);
	return rc;
}

int rsh_rule_table_load(const char *path, struct rsh_rule_table **out,
			struct rsh_error *err)
{
	cleanup_free uint8_t *data = NULL;
	size_t len;

	return rsh_load_whole(path, &rsh_rule_table_file, &data, &len, err) ?:
	       rsh_rule_table_parse(data, len, path, out, err);
}

int rsh_model_config_load(const char *path, const char *source,
			  const struct rsh_store *store,
			  struct rsh_model_config **out, struct rsh_error *err)
{
	cleanup_free uint8_t *data = NULL;
	cleanup_free char *own = NULL;
	size_t len;
	int rc = path ? 1 : rsh_store_has(store, RSH_MODEL_CONFIG_NAME, err);

	*out = NULL;
	if (rc <= 0)
		return rc;
	if (path) {
		rc = rsh_load_whole(path, &rsh_model_config_file, &data, &len,
				    err);
	} else if (asprintf(&own, "%s/" RSH_MODEL_CONFIG_NAME, source) < 0) {
		own = NULL;
		return rsh_error_nomem(err);
	} else {
		path = own;
		rc = rsh_store_load(store, RSH_MODEL_CONFIG_NAME,
				    &rsh_model_config_file, &data, &len, err);
	}
	return rc ? rc : rsh_model_config_parse(data, len, path, out, err);
}

int rsh_model_config_in(const char *source, char **path, struct rsh_error *err)
{
	int rc = 0;

	if (asprintf(path, "%s/" RSH_MODEL_CONFIG_NAME, source) < 0) {
		*path = NULL;
		return rsh_error_nomem(err);
	}
	if (access(*path, F_OK) == 0)
		return 0;
	if (rsh_errno_is_unread(errno))
		rc = rsh_error_file(err, errno, *path);
	free(*path);
	*path = NULL;
	return rc;
}

/* Returns whether the table is for the model's architecture. */
static bool table_suits(const struct rsh_rule_table *t,
			const struct rsh_model_config *c)
{
	const char *has;

	for (uint32_t i = 0; (has = rsh_model_config_architecture(c, i)); i++)
		for (uint32_t k = 0; k < t->n_suits; k++)
			if (strcmp(has, t->suits[k]) == 0)
				return true;
	return false;
}

/* ---- the tables of a word ---- */

static int table_set_add(struct rsh_table_set *s, struct rsh_rule_table *t,
			 struct rsh_error *err)
{
	if (rsh_push(s->v, s->n, s->cap, t) == 0)
		return 0;
	rsh_rule_table_free(t);
	return rsh_error_nomem(err);
}

/* A table may support several types of models, and another one is written for
 * the model's. */
static void table_set_prefer(struct rsh_table_set *s,
			     const struct rsh_table_list *l,
			     const struct rsh_model_config *config)
{
	const char *type = rsh_model_config_type(config);

	for (size_t i = 0; type && i < l->n; i++)
		for (size_t k = 1; strcmp(l->v[i].name, type) == 0 && k < s->n;
		     k++) {
			struct rsh_rule_table *t = s->v[k];

			if (strcmp(t->path, l->v[i].path) != 0)
				continue;
			memmove(s->v + 1, s->v, k * sizeof(*s->v));
			s->v[0] = t;
		}
}

static int tables_refuse(const char *word,
			 const struct rsh_model_config *config,
			 struct rsh_error *err)
{
	const char *has = config ? rsh_model_config_architecture(config, 0) :
				   NULL;
	const bool of_group = strcmp(word, RSH_TABLE_AUTO) != 0 &&
			      strcmp(word, RSH_TABLE_ANY) != 0;

	if (!config)
		return rsh_error_set(err, EINVAL,
			"--convert %s needs the model's config.json, but "
			"there is none in SOURCE: use --config", word);
	return rsh_error_set(err, EINVAL, "%s: no table%s%s supports %s: choose "
					  "one with --convert (`reshardfs "
					  "convert list`)",
			     rsh_model_config_path(config),
			     of_group ? " of " : "", of_group ? word : "",
			     has ? has : "a model without architectures");
}

static int tables_load_suiting(const char *word,
			       const struct rsh_model_config *config,
			       struct rsh_table_set *out, struct rsh_error *err)
{
	cleanup_table_list struct rsh_table_list l = { 0 };
	int rc = 0;

	if (config && rsh_tables_list(&l))
		rc = -ENOMEM;
	for (size_t i = 0; rc == 0 && i < l.n; i++) {
		const char *path = l.v[i].path, *has;
		cleanup_free uint8_t *data = NULL;
		struct rsh_error why = RSH_ERROR_INIT;
		struct rsh_rule_table *t = NULL;
		size_t len;

		/* A table that is for the model's architecture has its name in
		 * its text: most tables need not be parsed. */
		rc = rsh_load_whole(path, &rsh_rule_table_file, &data, &len,
				    &why);
		for (uint32_t k = 0; rc == 0 && !t &&
		     (has = rsh_model_config_architecture(config, k)); k++)
			if (memmem(data, len, has, strlen(has)))
				rc = rsh_rule_table_parse(data, len, path, &t,
							  &why);
		if (rc == -ENOMEM)
			break;
		if (rc)
			rsh_log_warning("%s", why.text);
		else if (t && table_is_of(t, word) && table_suits(t, config))
			rc = table_set_add(out, t, err);
		else
			rsh_rule_table_free(t);
		rc = rc == -ENOMEM ? rc : 0;
	}
	if (rc)
		rc = rsh_error_nomem(err);
	else if (out->n)
		table_set_prefer(out, &l, config);
	else
		rc = config && l.n == 0 ? rsh_tables_none(err) :
					  tables_refuse(word, config, err);
	return rc;
}

int rsh_tables_load(const char *path, const struct rsh_model_config *config,
		    struct rsh_table_set *out, struct rsh_error *err)
{
	struct rsh_rule_table *t;
	const char *has;
	int rc;

	*out = (struct rsh_table_set){ 0 };
	if (rsh_table_is_word(path))
		return tables_load_suiting(path, config, out, err);
	rc = rsh_rule_table_load(path, &t, err) ?: table_set_add(out, t, err);
	has = config ? rsh_model_config_architecture(config, 0) : NULL;
	/* A table that keeps other names would keep all names of another
	 * model. */
	if (rc || !has || !t->n_pairs[RSH_RULE_REST] || !t->n_suits ||
	    table_suits(t, config))
		return rc;
	return rsh_error_set(err, EINVAL, "%s is not for %s, of which it would "
			     "keep names that it does not know (`reshardfs "
			     "convert list`)", t->path, has);
}

void rsh_table_set_clear(struct rsh_table_set *s)
{
	for (size_t i = 0; i < s->n; i++)
		rsh_rule_table_free(s->v[i]);
	free(s->v);
	*s = (struct rsh_table_set){ 0 };
}
