/* SPDX-License-Identifier: Apache-2.0 */
/* source/tables.h finds and reads rule tables, and config.json files of models.
 *
 * Installed tables are files NAME.rules in these directories, in this order:
 * the one in the environment variable RESHARDFS_TABLES,
 * ../share/reshardfs/tables relative to the library, and the one that was set
 * by configure.  Any thread may call these functions.
 */
#pragma once

#include <stddef.h>

#include "rsh/storage/store.h"
#include "rsh/util/error.h"
#include "rsh/wire/model_config.h"
#include "rsh/wire/rule_table.h"

/* With this word an installed table is chosen by the model's architecture. */
#define RSH_TABLE_AUTO "auto"
/* With this word `convert check` asks all installed tables. */
#define RSH_TABLE_ANY "any"

#define RSH_MODEL_CONFIG_NAME "config.json"

extern const struct rsh_small_file rsh_rule_table_file, rsh_model_config_file,
	rsh_adapter_config_file;

/* Returns the directory that RESHARDFS_TABLES names; NULL: none. */
const char *rsh_tables_named(void);
/* Returns the directories in which tables are searched, in order, whether they
 * exist or not; NULL after the last one. */
const char *rsh_tables_dir(unsigned i);

/* Returns whether a word without '/' and '.' is meant, not a path. */
bool rsh_table_is_word(const char *word);
/* Sets the path of the table that `word` means (from malloc): a word without
 * '/' and '.' is the name of an installed table, or of a group of them, which
 * is then the path, anything else a path.  Returns 0, -ENOMEM, -EINVAL with a
 * sentence that lists the installed tables, or -ENOENT if there are none. */
int rsh_table_find(const char *word, char **path, struct rsh_error *err);

struct rsh_table_list {
	struct rsh_table_at {
		char *name; /* "qwen3" */
		char *path;
	} *v;               /* sorted by name, each name once */
	size_t n, cap;
};
/* Lists the installed tables.  The caller frees the list, also after a failure,
 * which is -ENOMEM. */
int rsh_tables_list(struct rsh_table_list *out);
void rsh_table_list_clear(struct rsh_table_list *l);
#define cleanup_table_list __attribute__((cleanup(rsh_table_list_clear)))
/* Sets the error that there are no installed tables.  Returns -ENOENT. */
int rsh_tables_none(struct rsh_error *err);

/* Reads a table, which the caller owns.  Returns 0 or -errno with a
 * sentence. */
int rsh_rule_table_load(const char *path, struct rsh_rule_table **out,
			struct rsh_error *err);

/* These are the tables that a word on the command line means. */
struct rsh_table_set {
	struct rsh_rule_table **v; /* sorted by name, but that of the config's
				    * "model_type" is first; at least one */
	size_t n, cap;
};
/* Loads the table at a path, or all installed tables for the model's
 * architecture: of the group that the word names, or, for RSH_TABLE_AUTO, of
 * none, or, for RSH_TABLE_ANY, of any or none; of those, a table that cannot be
 * parsed is left out with a warning.  `config` may be NULL.  Returns 0 or
 * -errno with a sentence. The caller clears the set, also after a failure. */
int rsh_tables_load(const char *path, const struct rsh_model_config *config,
		    struct rsh_table_set *out, struct rsh_error *err);
void rsh_table_set_clear(struct rsh_table_set *s);

/* Reads the config.json at `path`, or that of SOURCE, which is the store's, if
 * `path` is NULL.  That one is read by the rules of SOURCE: its links must not
 * point out of SOURCE.  Sets NULL if SOURCE has none.  Returns 0 or -errno with
 * a sentence. */
int rsh_model_config_load(const char *path, const char *source,
			  const struct rsh_store *store,
			  struct rsh_model_config **out, struct rsh_error *err);

/* Sets the path of the config.json in SOURCE (from malloc), NULL if there is
 * none.  Returns 0, or -errno with a sentence if that is not known. */
int rsh_model_config_in(const char *source, char **path, struct rsh_error *err);
