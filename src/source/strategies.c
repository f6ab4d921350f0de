/* SPDX-License-Identifier: Apache-2.0 */
/* source/strategies.c joins and checks strategy files on disk. */
#include "config.h"

#include "source_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/source/format.h"
#include "rsh/source/strategies.h"
#include "rsh/strategy/derive.h"
#include "rsh/util/mem.h"
#include "rsh/wire/strategy_emit.h"

static bool strategies_is_json(const char *path)
{
	size_t n = strlen(path);

	return n >= 5 && strcmp(path + n - 5, ".json") == 0;
}

int rsh_strategies_join(char *const *paths, size_t n, bool *json, void **out,
			size_t *len, struct rsh_error *err)
{
	cleanup_path_list struct rsh_path_list list = { 0 };
	cleanup_free struct rsh_strategy_bytes *files = NULL;
	cleanup_free uint8_t **data = NULL;
	bool directory;
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < n; i++)
		rc = rsh_strategy_list(paths[i], false, &list, &directory, err);
	for (size_t i = 1; rc == 0 && i < list.n; i++)
		if (strategies_is_json(list.v[i]) !=
		    strategies_is_json(list.v[0]))
			rc = rsh_error_set(err, EINVAL, "%s and %s: strategies "
					   "in protobuf and in JSON form "
					   "cannot be merged", list.v[0],
					   list.v[i]);
	if (rc)
		return rc;
	files = calloc(list.n, sizeof(*files));
	data = calloc(list.n, sizeof(*data));
	if (!files || !data)
		return rsh_error_nomem(err);
	*json = strategies_is_json(list.v[0]);
	for (size_t i = 0; rc == 0 && i < list.n; i++) {
		rc = rsh_load_whole(list.v[i], &rsh_strategy_kind, &data[i],
				    &files[i].len, err);
		files[i].path = list.v[i];
		files[i].data = data[i];
	}
	if (rc == 0)
		rc = rsh_strategy_join(files, list.n, *json, out, len, err);
	for (size_t i = 0; i < list.n; i++)
		free(data[i]);
	return rc;
}

/* ---- checking ---- */

/* Parses the files that are valid, and reports the others. */
static int strategies_parse(const struct rsh_path_list *list,
			    struct rsh_strategy_file **files, uint32_t *n,
			    rsh_strategy_report_fn *report, void *ctx)
{
	for (size_t i = 0; i < list->n; i++) {
		struct rsh_error bad = RSH_ERROR_INIT;
		cleanup_free uint8_t *data = NULL;
		size_t len;
		int rc = rsh_load_whole(list->v[i], &rsh_strategy_kind, &data,
					&len, &bad);

		if (rc == 0)
			rc = rsh_strategy_parse_all(&(struct rsh_memory){
				data, len }, list->v[i], report, ctx,
				&files[*n], &bad);
		if (rc == 0)
			(*n)++;
		else if (rc == -ENOMEM)
			return rc;
		else
			report(ctx, bad.text);
	}
	return 0;
}

/* A metadata.json is checked by parsing it. */
static int strategies_check_metadata(const char *path, bool shapes,
				     struct rsh_names *names,
				     rsh_strategy_report_fn *report, void *ctx,
				     struct rsh_error *err)
{
	struct rsh_error bad = RSH_ERROR_INIT;
	struct rsh_strategy *s = NULL;
	int rc;

	if (shapes)
		return rsh_error_set(err, EINVAL,
			"%s: --checkpoint is for strategy files, which have no "
			"shapes; a metadata.json has them", path);
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
	cleanup_path_list struct rsh_path_list list = { 0 };
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
		return rsh_strategy_check(&(struct rsh_strategy_checked){
			files, n, directory, path, shapes,
		}, names, report, ctx, err);
	for (uint32_t i = 0; i < n; i++)
		rsh_strategy_file_free(files[i]);
	free(files);
	return rsh_error_nomem(err);
}

static int shapes_add_files(const struct rsh_source_view *view, uint32_t first,
			    const struct rsh_strategy *src,
			    struct rsh_derive_shapes *out, bool *any,
			    struct rsh_error *err)
{
	for (uint32_t rank = first; rank < view->n_ranks; rank++) {
		int rc;

		if (!view->index[rank])
			continue;
		rc = rsh_derive_shapes_add(out, src, rank, view->index[rank],
					   view->names, err);
		if (rc) {
			rsh_error_prefix(err, "%s", view->path[rank]);
			return rc;
		}
		*any = true;
	}
	return 0;
}

/* This says where shapes are read from and stored. */
struct shapes_reading {
	const char *path;
	const struct rsh_source_options *opts;
	const struct rsh_strategy *src;
	struct rsh_names *names;
	struct rsh_derive_shapes *out;
	bool any; /* a file of the stage was read */
};

/* Adds the shapes of the first candidate that has a readable file of the n
 * ranks. */
static int shapes_try_ranks(struct shapes_reading *r, uint32_t first,
			    uint32_t n, struct rsh_error *err)
{
	struct rsh_source *s;
	int rc = rsh_source_open(r->path, first, n, r->opts, &s, err);

	if (rc)
		return rc;
	if (!rsh_source_format(s)->by_name)
		rc = rsh_error_set(err, EINVAL, "%s: a %s, whose files have no "
				   "parameters of ranks", r->path,
				   rsh_source_format(s)->says);
	for (uint32_t i = 0; !rc && !r->any && i < rsh_source_n_candidates(s);
	     i++) {
		struct rsh_source_view view;

		rc = rsh_source_choose(s, i, err);
		if (rc == 0)
			rc = rsh_source_index(s, r->names, err);
		if (rc)
			break;
		rsh_source_log_left_out(s);
		rsh_source_view(s, r->names, &view);
		rc = shapes_add_files(&view, first, r->src, r->out, &r->any,
				      err);
	}
	rsh_source_free(s);
	return rc;
}

int rsh_source_shapes(const char *path, const struct rsh_source_options *opts,
		      const struct rsh_strategy *src, struct rsh_names *names,
		      struct rsh_derive_shapes *out, struct rsh_error *err)
{
	struct rsh_source_options headers = *opts;
	struct shapes_reading r = { path, &headers, src, names, out, false };
	const uint32_t ranks = src ? src->stage_ranks : 1;
	const uint32_t stages = src ? src->n_stages : 1;

	headers.check = RSH_CHECK_STRUCTURE;
	for (uint32_t s = 0; s < stages; s++) {
		int rc;

		/* All ranks of a stage hold slices of the same shapes, so the
		 * first file is enough.  If it is missing or cannot be read,
		 * all ranks are tried. */
		r.any = false;
		rc = shapes_try_ranks(&r, s * ranks, 1, err);
		if (ranks > 1 && (rc || !r.any))
			rc = shapes_try_ranks(&r, s * ranks, ranks, err);
		if (rc)
			return rc;
	}
	return 0;
}
