/* SPDX-License-Identifier: Apache-2.0 */
/* source/shapes.c reads the shapes of whole tensors from one file a stage. */
#include "config.h"

#include "rsh/source/strategies.h"

#include <errno.h>

#include "rsh/source/format.h"

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

/* Adds the shapes in the best candidate of these ranks' files that has some. */
static int shapes_try_ranks(const char *path,
			    const struct rsh_source_options *opts,
			    const struct rsh_strategy *src, uint32_t first,
			    uint32_t n, struct rsh_names *names,
			    struct rsh_derive_shapes *out, bool *any,
			    struct rsh_error *err)
{
	struct rsh_source *s;
	int rc = rsh_source_open(path, first, n, opts, &s, err);

	if (rc)
		return rc;
	if (!rsh_source_format(s)->by_name)
		rc = rsh_error_set(err, EINVAL, "%s: a %s, whose files have no "
				   "parameters of ranks", path,
				   rsh_source_format(s)->says);
	for (uint32_t i = 0; !rc && !*any && i < rsh_source_n_candidates(s);
	     i++) {
		struct rsh_source_view view;

		rc = rsh_source_choose(s, i, err);
		if (rc == 0)
			rc = rsh_source_index(s, names, err);
		if (rc)
			break;
		rsh_source_log_left_out(s);
		rsh_source_view(s, names, &view);
		rc = shapes_add_files(&view, first, src, out, any, err);
	}
	rsh_source_free(s);
	return rc;
}

int rsh_source_shapes(const char *path, const struct rsh_source_options *opts,
		      const struct rsh_strategy *src, struct rsh_names *names,
		      struct rsh_derive_shapes *out, struct rsh_error *err)
{
	struct rsh_source_options headers = *opts;
	uint32_t ranks = src ? src->stage_ranks : 1;
	uint32_t stages = src ? src->n_stages : 1;

	headers.check = RSH_CHECK_STRUCTURE;
	for (uint32_t s = 0; s < stages; s++) {
		bool any = false;
		int rc = 0;

		/* All ranks of a stage hold slices of the same shapes; the
		 * first one may be the one that is lost. */
		for (uint32_t n = 1; !rc && !any; n = ranks) {
			rc = shapes_try_ranks(path, &headers, src, s * ranks, n,
					      names, out, &any, err);
			if (n == ranks)
				break;
			rc = 0; /* the other ranks will tell */
		}
		if (rc)
			return rc;
	}
	return 0;
}
