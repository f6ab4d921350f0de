/* SPDX-License-Identifier: Apache-2.0 */
/* vfs/adapters.c loads the configurations of adapters, and merges adapters into
 * the weights of the source. */
#include "config.h"

#include "vfs_i.h"

#include <stdio.h>
#include <stdlib.h>

#include "rsh/source/tables.h"
#include "rsh/util/mem.h"
#include "rsh/weights/adapters.h"

static int adapters_load_one(const struct rsh_store *store,
			     const char *directory,
			     struct rsh_adapter_config **out,
			     struct rsh_error *err)
{
	cleanup_free uint8_t *data = NULL;
	cleanup_free char *path = NULL;
	size_t len;
	int rc;

	if (asprintf(&path, "%s/" RSH_ADAPTER_CONFIG_NAME, directory) < 0) {
		path = NULL;
		return rsh_error_nomem(err);
	}
	rc = rsh_store_load(store, path, &rsh_adapter_config_file, &data, &len,
			    err);
	return rc ? rc : rsh_adapter_config_parse(data, len, path, out, err);
}

int rsh_vfs_load_adapters(struct rsh_vfs_adapters *a,
			  const struct rsh_vfs_config *cfg,
			  const struct rsh_store *store, struct rsh_error *err)
{
	const struct rsh_weights_at *w = &cfg->weights;
	int rc = 0;

	while (rc == 0 && a->n < w->n_loras) {
		rc = adapters_load_one(store, w->loras[a->n].directory,
				       &a->configs[a->n], err);
		a->n += rc == 0;
	}
	return rc;
}

void rsh_vfs_adapters_clear(struct rsh_vfs_adapters *a)
{
	while (a->n > 0)
		rsh_adapter_config_free(a->configs[--a->n]);
}

int rsh_vfs_adapt(const struct rsh_vfs_adapters *a,
		  const struct rsh_vfs_config *cfg,
		  const struct rsh_source_view *view, struct rsh_arena *arena,
		  struct rsh_offers *io,
		  void (*note)(void *ctx, const char *sentence), void *ctx,
		  struct rsh_error *err)
{
	struct rsh_adapter all[RSH_LORAS_MAX];
	struct rsh_adapted done[RSH_LORAS_MAX];
	char text[RSH_ERROR_TEXT_MAX];
	int rc;

	if (a->n == 0)
		return 0;
	if (rsh_catalogue_add_beside(io->cat, view))
		return rsh_error_nomem(err);
	for (uint32_t i = 0; i < a->n; i++)
		all[i] = (struct rsh_adapter){
			.config = a->configs[i],
			.scale = cfg->weights.loras[i].scale,
			.file = view->n_ranks + i,
		};
	rc = rsh_weights_adapt(all, a->n, arena, io, done, err);
	for (uint32_t i = 0; rc == 0 && i < a->n; i++) {
		snprintf(text, sizeof(text), "%s: %u tensors are merged, %u are "
			 "replaced", cfg->weights.loras[i].directory,
			 done[i].n_merged, done[i].n_replaced);
		note(ctx, text);
	}
	return rc;
}
