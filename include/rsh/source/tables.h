/* SPDX-License-Identifier: Apache-2.0 */
/* source/tables.h - rule tables and the config.json of models, on disk: where
 * the ones lie that the program brings along, and how any is read.
 *
 * Tables that are brought along are NAME.rules in the directory that
 * RESHARDFS_TABLES in the environment names, which is looked at first, in
 * ../share/reshardfs/tables as seen from the library, and in the one that
 * configure was told.  Any thread may call.
 */
#ifndef RSH_SOURCE_TABLES_H
#define RSH_SOURCE_TABLES_H

#include <stdbool.h>
#include <stddef.h>

#include "rsh/util/error.h"
#include "rsh/wire/model_config.h"
#include "rsh/wire/rule_table.h"

/* With this word a table that was brought along is chosen by the model's
 * architecture. */
#define RSH_TABLE_AUTO "auto"

#define RSH_MODEL_CONFIG_NAME "config.json"

/* Gives the directories in which tables are looked for, those that exist or
 * not, in order; NULL past the last. */
const char *rsh_tables_dir(unsigned i);

/* Gives the path of the table that `word` means (from malloc): a word without
 * '/' and '.' is the name of one that was brought along, anything else a path.
 * 0, -ENOMEM, or -EINVAL with a sentence that names those that there are. */
int rsh_table_find(const char *word, char **path, struct rsh_error *err);

struct rsh_table_list {
	struct rsh_table_at {
		char *name; /* "qwen3" */
		char *path;
	} *v;               /* by name, each once */
	size_t n, cap;
};
/* Lists the tables that were brought along.  The list is the caller's, also
 * after a failure: -ENOMEM. */
int rsh_tables_list(struct rsh_table_list *out);
void rsh_table_list_clear(struct rsh_table_list *l);

/* Reads a table, which is the caller's.  0 or -errno with a sentence. */
int rsh_rule_table_load(const char *path, struct rsh_rule_table **out,
			struct rsh_error *err);
/* Reads a config.json likewise. */
int rsh_model_config_load(const char *path, struct rsh_model_config **out,
			  struct rsh_error *err);

/* Gives the path of the config.json that lies in SOURCE (from malloc), NULL if
 * none does.  0 or -ENOMEM. */
int rsh_model_config_in(const char *source, char **path);

/* Does the table say that it suits the model's architecture? */
bool rsh_table_suits(const struct rsh_rule_table *t,
		     const struct rsh_model_config *c);

#endif
