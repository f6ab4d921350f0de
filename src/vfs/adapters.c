/* SPDX-License-Identifier: Apache-2.0 */
/* vfs/adapters.c loads the configurations of adapters, and merges adapters into
 * the weights of the source. */
#include "config.h"

#include "vfs_i.h"

#include <stdio.h>
#include <stdlib.h>

#include "rsh/source/tables.h"
#include "rsh/util/mem.h"

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
		a->v[a->n].scale = w->loras[a->n].scale;
		rc = adapters_load_one(store, w->loras[a->n].directory,
				       &a->v[a->n].config, err);
		a->n += rc == 0;
	}
	return rc;
}

void rsh_vfs_adapters_clear(struct rsh_vfs_adapters *a)
{
	while (a->n > 0)
		rsh_adapter_config_free(a->v[--a->n].config);
}

int rsh_vfs_adapt(struct rsh_vfs_adapters *a,
		  const struct rsh_source_view *view, struct rsh_arena *arena,
		  struct rsh_offers *io, struct rsh_error *err)
{
	if (a->n == 0)
		return 0;
	if (rsh_catalogue_add_beside(io->cat, view))
		return rsh_error_nomem(err);
	for (uint32_t i = 0; i < a->n; i++)
		a->v[i].file = view->n_ranks + i;
	return rsh_weights_adapt(a->v, a->n, arena, io, a->done, err);
}
