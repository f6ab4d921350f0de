/* SPDX-License-Identifier: Apache-2.0 */
/* options/verify_kind.c tells which of its questions `verify` is asked. */
#include "config.h"

#include "rsh/options/check.h"

#include <sys/stat.h>

#include "rsh/source/dcp.h"
#include "rsh/source/source.h"

bool rsh_is_file(const char *path)
{
	struct stat st;

	return path && stat(path, &st) == 0 && !S_ISDIR(st.st_mode);
}

enum rsh_verify_kind rsh_verify_kind_of(const struct rsh_options *o)
{
	const char *other = o->n_operands > 1 ? o->operands[1] : NULL;
	const struct rsh_store_options *how = &o->vfs.files.store;

	if (rsh_is_file(o->operands[0]))
		return RSH_VERIFY_FILES;
	if (!other)
		return RSH_VERIFY_SOURCE;
	if (!rsh_is_file(other))
		return RSH_VERIFY_TREE;
	return o->vfs.src.from || o->vfs.dst.from ||
	       rsh_source_describes_itself(o->operands[0], how) ||
	       rsh_source_is_dcp(o->operands[0], how) ?
	       RSH_VERIFY_MANIFEST : RSH_VERIFY_FILES;
}
