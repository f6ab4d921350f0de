/* SPDX-License-Identifier: Apache-2.0 */
/* app/options/verify_kind.c finds out what `verify` compares. */
#include "config.h"

#include "rsh/app/check.h"

#include <sys/stat.h>

#include "rsh/app/table.h"
#include "rsh/formats/formats.h"
#include "rsh/source/source.h"
#include "rsh/wire/manifest.h"

bool rsh_is_file(const char *path)
{
	struct stat st;

	return path && stat(path, &st) == 0 && !S_ISDIR(st.st_mode);
}

enum rsh_verify_kind rsh_verify_kind_of(const struct rsh_options *o)
{
	const char *other = o->n_operands > 1 ? o->operands[1] : NULL;
	const struct rsh_store_options *how = &o->vfs.files.store;
	const struct rsh_format *f;
	int bid;

	/* A single file may be a source. */
	if (rsh_is_file(o->operands[0])) {
		rsh_source_format_at(o->operands[0], how, rsh_formats, &bid);
		if (bid <= RSH_BID_ANY)
			return RSH_VERIFY_FILES;
	}
	if (!other)
		return RSH_VERIFY_SOURCE;
	if (!rsh_is_file(other))
		return RSH_VERIFY_TREE;
	if (o->vfs.src.from || o->vfs.dst.from ||
	    rsh_weights_change(&o->vfs.weights))
		return RSH_VERIFY_MANIFEST;
	/* A whole model may also be the output of an export. */
	f = rsh_source_format_at(o->operands[0], how, rsh_formats, &bid);
	return f && (f->layout == RSH_LAYOUT_OWN ||
		     (f->layout == RSH_LAYOUT_WHOLE && f->list)) ?
	       RSH_VERIFY_MANIFEST : RSH_VERIFY_FILES;
}

bool rsh_verify_has_manifest(const struct rsh_options *o)
{
	const struct rsh_store_options opts = {
		.objects = o->vfs.files.store.objects,
		.place = o->vfs.files.store.place, .follow_outside = true,
	};
	struct rsh_error unused = RSH_ERROR_INIT;
	struct rsh_store *s = NULL;
	struct rsh_stat st;
	bool has;

	/* A file that cannot be opened is reported later, where it is
	 * needed. */
	if (rsh_store_open(o->operands[0], &opts, &s, &unused))
		return false;
	has = rsh_store_look(s, RSH_MANIFEST_NAME, &st) == 0 &&
	      st.kind == RSH_IS_FILE;
	rsh_store_free(s);
	return has;
}

const char *rsh_verify_of_source(const struct rsh_options *o)
{
	static const char *const others[] = {
		"select", "breakpoint", "fallbacks", "check", "write-manifest",
	};
	size_t n;
	const struct rsh_option *table = rsh_option_table(&n);

	for (size_t i = 0; i < n; i++)
		if (table[i].converts && rsh_option_given(o, table[i].name))
			return table[i].name;
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		if (rsh_option_given(o, others[i]))
			return others[i];
	return NULL;
}
