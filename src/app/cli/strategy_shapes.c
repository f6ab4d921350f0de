/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/strategy_shapes.c reads the shapes of the parameters of a strategy
 * from a checkpoint. */
#include "config.h"

#include "strategy.h"

#include "rsh/source/strategies.h"

int rsh_strategy_shapes(const struct rsh_options *o,
			const struct rsh_strategy *src,
			struct rsh_names *names,
			struct rsh_derive_shapes **out, struct rsh_error *err)
{
	struct rsh_source_options files = o->vfs.files;
	struct rsh_derive_shapes *shapes;
	int rc;

	*out = NULL;
	if (!o->checkpoint)
		return 0;
	shapes = rsh_derive_shapes_new();
	if (!shapes)
		return rsh_error_nomem(err);
	files.unsharded = !src;
	rc = rsh_source_shapes(o->checkpoint, &files, src, names, shapes, err);
	if (rc)
		rsh_derive_shapes_free(shapes);
	else
		*out = shapes;
	return rc;
}
