/* SPDX-License-Identifier: Apache-2.0 */
/* vfs/failures.c - candidates of the source that were tried in vain. */
#include "config.h"

#include "vfs_i.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/source/inspect.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"

int rsh_failures_init(struct rsh_failures *f, uint32_t n)
{
	*f = (struct rsh_failures){
		.share = n < 16 ? 1792 / n - 64 : 48,
		.why = rsh_alloc_array(n, sizeof(*f->why)),
	};
	return f->why ? 0 : -ENOMEM;
}

void rsh_failures_clear(struct rsh_failures *f)
{
	for (uint32_t i = 0; i < f->n; i++)
		free(f->why[i]);
	free(f->why);
}

/* The ranks that should have a file. */
static int count_wanted(const struct rsh_reshard *v,
			const struct rsh_vfs_config *cfg, uint32_t *n)
{
	cleanup_free uint32_t *ranks = NULL;
	size_t n_ranks;
	uint32_t first;

	rsh_conversion_source_ranks(v->src, v->dst, v->names,
				    cfg->plan.replicas && !cfg->plan.compat,
				    &first, n);
	if (*n != UINT32_MAX)
		return 0;
	if (rsh_source_ranks(v->source, &ranks, &n_ranks))
		return -ENOMEM;
	*n = (uint32_t)n_ranks;
	return 0;
}

static uint32_t count_valid(const struct rsh_reshard *v)
{
	struct rsh_source_view view;
	uint32_t n = 0;

	rsh_source_view(v->source, v->names, &view);
	for (uint32_t rank = 0; rank < view.n_ranks; rank++)
		n += view.index[rank] != NULL;
	return n;
}

static void add_text(struct rsh_failures *f, const char *which,
		     const struct rsh_error *err)
{
	size_t room = sizeof(f->text) - f->length;
	int n = snprintf(f->text + f->length, room, "; %s: %.*s%s", which,
			 (int)f->share, err->text,
			 strlen(err->text) > f->share ? "..." : "");

	f->length += (size_t)n < room ? (size_t)n : room - 1;
}

/* A sentence about SOURCE as a whole begins with its name, which the log has
 * already. */
static const char *without_source(const char *text, const char *source)
{
	size_t n = strlen(source);

	return strncmp(text, source, n) == 0 &&
	       strncmp(text + n, ": ", 2) == 0 ? text + n + 2 : text;
}

int rsh_failures_add(struct rsh_failures *f, const struct rsh_reshard *v,
		     const struct rsh_vfs_config *cfg, uint32_t candidate,
		     const struct rsh_error *err)
{
	uint32_t valid = count_valid(v), wanted;
	char which[256];

	if (count_wanted(v, cfg, &wanted) ||
	    asprintf(&f->why[f->n], "%" PRIu32 " of %" PRIu32 " ranks %s a "
		     "valid file of it; %s", valid, wanted,
		     valid == 1 ? "has" : "have",
		     without_source(err->text, cfg->source)) < 0)
		return -ENOMEM;
	f->n++;
	rsh_source_candidate_text(v->source, candidate, which, sizeof(which));
	rsh_log_info("%s: %s cannot be taken: %s", cfg->source, which,
		     err->text);
	add_text(f, which, err);
	return 0;
}

void rsh_failures_log(const struct rsh_failures *f,
		      const struct rsh_reshard *v,
		      const struct rsh_vfs_config *cfg)
{
	const uint32_t chosen = rsh_source_chosen(v->source);
	char which[256], taken[256];

	rsh_source_candidate_text(v->source, chosen, taken, sizeof(taken));
	for (uint32_t i = 0; i < f->n && i != chosen; i++) {
		rsh_source_candidate_text(v->source, i, which, sizeof(which));
		rsh_log_warning("%s: %s cannot be taken, %s is taken instead: "
				"%s", cfg->source, which, taken, f->why[i]);
	}
}
