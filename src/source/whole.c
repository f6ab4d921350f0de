/* SPDX-License-Identifier: Apache-2.0 */
/* source/whole.c checks whether all files of a candidate are there and
 * complete. */
#include "config.h"

#include <errno.h>

#include "rsh/source/inspect.h"
#include "rsh/util/mem.h"
#include "source_i.h"

/* Ranks write their files independently of each other, and nothing says which
 * ranks there are except the strategy and the files of other steps. */
static int whole_check_ranks(const struct rsh_source *s, struct rsh_error *err)
{
	cleanup_free uint32_t *ranks = NULL;
	size_t n = s->n_listed_ranks, at = 0;

	if (n == UINT32_MAX && rsh_source_ranks(s, &ranks, &n))
		return rsh_error_nomem(err);
	if (s->n_files == 0)
		return rsh_error_set(err, ENOENT, "%s: it contains no "
				     "checkpoint", s->path);
	/* The chosen files ascend by rank. */
	for (size_t i = 0; i < n; i++) {
		const uint32_t rank = ranks ? ranks[i] :
				      s->first_rank + (uint32_t)i;

		if (at == s->n_files || s->files[at].rank != rank)
			return rsh_error_set(err, ENOENT, "%s: rank %u has no "
					     "file of this step", s->path, rank);
		at++;
	}
	return 0;
}

int rsh_source_check_whole(struct rsh_source *s, uint32_t candidate,
			   struct rsh_names *names, struct rsh_error *err)
{
	struct rsh_source_file_info absent;
	int rc = rsh_source_choose(s, candidate, err) ?:
		 rsh_source_index(s, names, err);

	if (rc)
		return rc;
	if (s->n_bad > 0)
		return rsh_error_set(err, s->first_bad.code, "%s",
				     s->first_bad.text);
	if (rsh_source_absent(s, 0, &absent))
		return rsh_error_set(err, ENOENT, "%s: %s is missing", s->path,
				     absent.name);
	if (s->format->whole)
		return s->format->whole(s, err);
	return s->format->owner == RSH_OWNER_RANK ?
	       whole_check_ranks(s, err) : 0;
}
