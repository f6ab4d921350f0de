/* SPDX-License-Identifier: Apache-2.0 */
/* source/strategies.c joins and checks strategy files on disk. */
#include "config.h"

#include "rsh/source/strategies.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/strategy/derive.h"
#include "rsh/util/mem.h"
#include "rsh/wire/strategy_emit.h"
#include "source_i.h"

static bool strategies_is_json(const char *path)
{
	size_t n = strlen(path);

	return n >= 5 && strcmp(path + n - 5, ".json") == 0;
}

static int strategies_list(char *const *paths, size_t n,
			   struct rsh_path_list *list, struct rsh_error *err)
{
	for (size_t i = 0; i < n; i++) {
		bool directory;
		int rc = rsh_strategy_list(paths[i], false, list, &directory,
					   err);

		if (rc)
			return rc;
	}
	return 0;
}

static int check_forms(const struct rsh_path_list *list, struct rsh_error *err)
{
	for (size_t i = 1; i < list->n; i++)
		if (strategies_is_json(list->v[i]) !=
		    strategies_is_json(list->v[0]))
			return rsh_error_set(err, EINVAL,
					     "%s and %s: strategies in protobuf and in JSON form cannot be merged",
					     list->v[0], list->v[i]);
	return 0;
}

/* Loads all files; their bytes are in data[]. */
static int strategies_load_files(const struct rsh_path_list *list,
				 uint8_t **data,
				 struct rsh_strategy_bytes *files,
				 struct rsh_error *err)
{
	for (size_t i = 0; i < list->n; i++) {
		int rc = rsh_load_whole(list->v[i], RSH_STRATEGY_BYTES_MAX,
					"strategy", &data[i], &files[i].len,
					err);

		if (rc)
			return rc;
		files[i].path = list->v[i];
		files[i].data = data[i];
	}
	return 0;
}

int rsh_strategies_join(char *const *paths, size_t n, bool *json, void **out,
			size_t *len, struct rsh_error *err)
{
	__attribute__((cleanup(rsh_path_list_clear))) struct rsh_path_list list =
		{ 0 };
	cleanup_free struct rsh_strategy_bytes *files = NULL;
	cleanup_free uint8_t **data = NULL;
	int rc = strategies_list(paths, n, &list, err);

	if (rc == 0)
		rc = check_forms(&list, err);
	if (rc)
		return rc;
	files = calloc(list.n, sizeof(*files));
	data = calloc(list.n, sizeof(*data));
	if (!files || !data)
		return rsh_error_nomem(err);
	*json = strategies_is_json(list.v[0]);
	rc = strategies_load_files(&list, data, files, err);
	if (rc == 0)
		rc = rsh_strategy_join(files, list.n, *json, out, len, err);
	for (size_t i = 0; i < list.n; i++)
		free(data[i]);
	return rc;
}

/* ---- checking ---- */

/* Parses what can be parsed, and reports the rest. */
static int strategies_parse(const struct rsh_path_list *list,
			    struct rsh_strategy_file **files, uint32_t *n,
			    rsh_strategy_report_fn *report, void *ctx)
{
	for (size_t i = 0; i < list->n; i++) {
		struct rsh_error bad = RSH_ERROR_INIT;
		cleanup_free uint8_t *data = NULL;
		size_t len;
		int rc = rsh_load_whole(list->v[i], RSH_STRATEGY_BYTES_MAX,
					"strategy", &data, &len, &bad);

		if (rc == 0)
			rc = rsh_strategy_parse_all(data, len, list->v[i],
						    report, ctx, &files[*n],
						    &bad);
		if (rc == 0)
			(*n)++;
		else if (rc == -ENOMEM)
			return rc;
		else
			report(ctx, bad.text);
	}
	return 0;
}

/* A metadata.json is checked while it is read. */
static int strategies_check_metadata(const char *path, bool shapes,
				     struct rsh_names *names,
				     rsh_strategy_report_fn *report, void *ctx,
				     struct rsh_error *err)
{
	struct rsh_error bad = RSH_ERROR_INIT;
	struct rsh_strategy *s = NULL;
	int rc;

	if (shapes)
		return rsh_error_set(err, EINVAL, "%s: --checkpoint is for "
				     "strategy files, which tell no shapes: "
				     "a metadata.json does", path);
	rc = rsh_metadata_strategy(path, names, &s, &bad);
	if (rc == -ENOMEM)
		return rsh_error_nomem(err);
	if (rc)
		report(ctx, bad.text);
	if (s)
		rsh_strategy_free(s);
	return 0;
}

int rsh_strategies_check(const char *path,
			 const struct rsh_derive_shapes *shapes,
			 struct rsh_names *names,
			 rsh_strategy_report_fn *report, void *ctx,
			 struct rsh_error *err)
{
	__attribute__((cleanup(rsh_path_list_clear))) struct rsh_path_list list =
		{ 0 };
	struct rsh_error bad = RSH_ERROR_INIT;
	struct rsh_strategy_file **files;
	cleanup_free char *metadata = NULL;
	bool directory;
	uint32_t n = 0;
	int rc = rsh_metadata_find(path, &metadata, err);

	if (metadata)
		return strategies_check_metadata(metadata, shapes, names,
						 report, ctx, err);
	if (rc == 0)
		rc = rsh_strategy_list(path, false, &list, &directory, &bad);
	if (rc == -ENOMEM)
		return rsh_error_nomem(err);
	if (rc) {
		report(ctx, bad.text);
		return 0;
	}
	files = calloc(list.n, sizeof(*files));
	if (!files)
		return rsh_error_nomem(err);
	rc = strategies_parse(&list, files, &n, report, ctx);
	if (rc == 0)
		return rsh_strategy_check(files, n, directory, path, shapes,
					  names, report, ctx, err);
	for (uint32_t i = 0; i < n; i++)
		rsh_strategy_file_free(files[i]);
	free(files);
	return rsh_error_nomem(err);
}
