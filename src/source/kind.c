/* SPDX-License-Identifier: Apache-2.0 */
/* source/kind.c tells what lies at a path, where that tells itself what it
 * is. */
#include "config.h"

#include "dcp_source_i.h"
#include "described_i.h"
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

static enum rsh_source_kind kind_look(const char *path,
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

	return kind_look(path, how, &ranks);
}
