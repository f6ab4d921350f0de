/* SPDX-License-Identifier: Apache-2.0 */
/* source/open.c opens a source: it finds the format, and the format lists the
 * files. */
#include "config.h"

#include "kept_i.h"
#include "source_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/source/format.h"
#include "rsh/source/inspect.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"

static void open_log_empty_dirs(const struct rsh_source *s)
{
	const struct rsh_listing *l = &s->listing;
	cleanup_free uint32_t *ranks = rsh_alloc_array(l->n, sizeof(*ranks));

	/* If memory is out nothing is logged. */
	if (!ranks || !rsh_log_enabled(RSH_LOG_INFO))
		return;
	for (size_t i = 0; i < l->n; i++)
		ranks[i] = l->files[i].rank;
	qsort(ranks, l->n, sizeof(*ranks), rsh_by_u32);
	for (size_t d = 0; d < l->n_dirs; d++)
		if (!bsearch(&l->dirs[d].rank, ranks, l->n, sizeof(*ranks),
			     rsh_by_u32))
			rsh_log_info("%s/%s contains no checkpoint", s->path,
				     l->dirs[d].name);
}

/* SOURCE has no directories of ranks.  It may have a format that needs no
 * strategy although one is given, or the user may have meant another
 * directory. */
static int open_explain(struct rsh_source *s,
			const struct rsh_source_options *opts,
			struct rsh_error *err)
{
	const struct rsh_format *const format = s->format;
	struct rsh_source_options unsharded = *opts;
	const struct rsh_error why = *err;
	char hint[512];

	unsharded.unsharded = true;
	if (!opts->unsharded &&
	    rsh_source_find_format(s, &unsharded, NULL, err) == 0 &&
	    s->format->layout == RSH_LAYOUT_OWN)
		return rsh_source_needs_none(s, err);
	s->format = format;
	rsh_source_hint(s->path, &opts->store, s->formats, hint, sizeof(hint));
	return rsh_error_set(err, ENOENT, "%s%s", why.text, hint);
}

/* Opens the directories of files that do not belong to the checkpoint. */
static int open_beside(struct rsh_source *s,
		       const struct rsh_source_options *opts,
		       struct rsh_error *err)
{
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < opts->n_beside; i++) {
		const char *file = opts->beside[i];
		cleanup_free char *directory =
			strndup(file, (size_t)(strrchr(file, '/') - file));

		rc = directory ? rsh_store_join(s->store, directory, err) :
				 rsh_error_nomem(err);
	}
	return rc;
}

/* SOURCE is a file that no format accepts. */
static int open_refuse_file(const char *path, const struct rsh_source *s,
			    const char *file, struct rsh_error *err)
{
	struct rsh_stat st;
	bool unused;
	const char *what = rsh_other_file(path, &unused);
	const bool empty = rsh_store_look(s->store, file, &st) == 0 &&
			   st.kind == RSH_IS_FILE && st.size == 0;
	char hint[512];

	if (empty || what)
		return rsh_error_set(err, EINVAL, "%s: %s%s: SOURCE is the "
				     "directory of a checkpoint, or one file "
				     "with all its tensors", path,
				     empty ? "the file is empty" : "this is ",
				     empty ? "" : what);
	rsh_source_hint_file(s, file, hint, sizeof(hint));
	return rsh_error_set(err, EINVAL, "%s: this file is not a checkpoint%s",
			     path, *hint ? hint : ": SOURCE is the directory "
			     "of a checkpoint, or one file with all its "
			     "tensors");
}

int rsh_source_open(const char *path, uint32_t first, uint32_t n,
		    const struct rsh_source_options *opts,
		    struct rsh_source **out, struct rsh_error *err)
{
	cleanup_free char *file = NULL;
	struct rsh_source *s;
	int rc = rsh_source_open_root(path, &opts->store, &s, &file, err);

	if (rc)
		return rc;
	s->first_rank = first;
	s->n_listed_ranks = n;
	s->n_threads = opts->n_threads;
	s->check = opts->check;
	s->select = opts->select;
	s->beside = opts->beside;
	s->n_beside = opts->n_beside;
	s->scan_bin = opts->scan_bin;
	if (opts->index_cache)
		s->index_dirfd = rsh_index_dir_open(opts->index_cache,
						    opts->index_cache_asked);
	rc = rsh_source_find_format(s, opts, file, err);
	/* No format accepts that file as a source. */
	if (rc == 0 && !s->format) {
		rc = open_refuse_file(path, s, file, err);
		rsh_source_free(s);
		/* Of an address it is not known whether it is a file. */
		return rsh_store_is_address(path) ?
		       rsh_source_new(path, &opts->store, out, err) : rc;
	}
	s->file = steal_pointer(&file);
	if (rc == 0)
		rc = s->format->open(s, opts, err);
	if (rc == 0)
		rc = open_beside(s, opts, err);
	if (rc == -ENOENT && s->no_rank_dirs)
		rc = open_explain(s, opts, err);
	if (rc) {
		rsh_source_free(s);
		return rc;
	}
	open_log_empty_dirs(s);
	*out = s;
	return 0;
}
