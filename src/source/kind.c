/* SPDX-License-Identifier: Apache-2.0 */
/* source/kind.c tells what lies at a path, where that tells itself what it
 * is. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dcp_source_i.h"
#include "described_i.h"
#include "rsh/util/mem.h"
#include "source_i.h"

static enum rsh_source_kind kind_of_opened(const struct rsh_source *s,
					   bool *ranks)
{
	*ranks = false;
	if (rsh_dcp_present(s))
		return RSH_SOURCE_DCP;
	if (rsh_checkpoint2_look(s, ranks))
		return RSH_SOURCE_CHECKPOINT2;
	return *ranks ? RSH_SOURCE_RANKS : rsh_model_look(s);
}

enum rsh_source_kind rsh_source_look(const char *path,
				     const struct rsh_store_options *how,
				     bool *ranks)
{
	const struct rsh_store_options opts = {
		.objects = how->objects, .place = how->place,
	};
	struct rsh_error unused = RSH_ERROR_INIT;
	enum rsh_source_kind kind;
	struct rsh_source *s;

	*ranks = false;
	if (rsh_source_new(path, &opts, &s, &unused))
		return RSH_SOURCE_RANKS;
	kind = kind_of_opened(s, ranks);
	rsh_source_free(s);
	return kind;
}

enum rsh_source_kind rsh_source_kind(const char *path,
				     const struct rsh_store_options *how)
{
	bool ranks;

	return rsh_source_look(path, how, &ranks);
}

/* ---- what may have been meant ---- */

/* SOURCE/rank_0/checkpoint/FILE is as deep as it gets. */
#define ABOVE_MAX 3

static bool kind_is_source(const char *path,
			   const struct rsh_store_options *how,
			   enum rsh_source_kind *kind)
{
	bool ranks;

	*kind = rsh_source_look(path, how, &ranks);
	return *kind != RSH_SOURCE_RANKS || ranks;
}

/* Returns the directory above a path, or NULL: there is none, or it is not
 * known without looking. */
static char *kind_above(const char *path)
{
	const char *host = strstr(path, "://");
	size_t n = strlen(path);
	const char *slash, *name;
	char *above = NULL;

	while (n > 1 && path[n - 1] == '/')
		n--;
	slash = memrchr(path, '/', n);
	name = slash ? slash + 1 : path;
	if (host && (!slash || slash < host + strlen("://")))
		return NULL;
	if (n == 1 && *path == '/')
		return NULL;
	if (strncmp(name, ".", n - (size_t)(name - path)) == 0 ||
	    strncmp(name, "..", n - (size_t)(name - path)) == 0)
		return asprintf(&above, "%.*s/..", (int)n, path) < 0 ? NULL :
								       above;
	return !slash ? strdup(".") : slash == path ? strdup("/") :
	       strndup(path, (size_t)(slash - path));
}

char *rsh_source_meant(const char *path, const struct rsh_store_options *how,
		       enum rsh_source_kind *kind)
{
	cleanup_free char *at = NULL;
	const struct rsh_store_options opts = { .objects = how->objects };
	char *found;

	if (kind_is_source(path, &opts, kind))
		return NULL;
	at = kind_above(path);
	for (int i = 0; at && i < ABOVE_MAX; i++) {
		char *next;

		if (kind_is_source(at, &opts, kind))
			return steal_pointer(&at);
		next = kind_above(at);
		free(at);
		at = next;
	}
	found = rsh_source_inside(path, &opts);
	if (found)
		kind_is_source(found, &opts, kind);
	return found;
}
