/* SPDX-License-Identifier: Apache-2.0 */
/* source/group_info.c compares a strategy with group_info.pb files, which list
 * the ranks that hold the same parameters.
 *
 * If they contradict the strategy, one of the two belongs to another job. */
#include "config.h"

#include "source_i.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "rsh/strategy/strategy.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"
#include "rsh/wire/strategy_file.h"

#define FILE_NAME "group_info.pb"
#define WHAT "file of group information"
static const struct rsh_small_file group_info_file = { WHAT,
						       UINT64_C(64) << 20 };

struct group_check {
	const struct rsh_strategy *strategy;
	const struct rsh_names *names;
	unsigned n_read;
};

/* `rank` is the owner of the file, or RSH_RANK_UNKNOWN. */
static int group_check_list(const struct group_check *w, const char *path,
			    uint32_t rank, const uint32_t *list, uint32_t n,
			    struct rsh_error *err)
{
	uint32_t n_ranks = w->strategy->stage_ranks * w->strategy->n_stages;
	uint32_t first = rank == RSH_RANK_UNKNOWN && n > 0 ? list[0] : rank;
	bool has_own = rank == RSH_RANK_UNKNOWN || n == 0;

	if (w->strategy->lone_stage)
		n_ranks += w->strategy->lone_stage * w->strategy->stage_ranks;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t name;

		has_own |= list[i] == rank;
		if (list[i] >= n_ranks || first >= n_ranks)
			return rsh_error_set(
				err, EINVAL,
				"%s: it lists rank %u, but %s has ranks 0 to %u",
				path, list[i], w->strategy->path, n_ranks - 1);
		if (rsh_strategy_same_slices(w->strategy, first, list[i],
					     &name))
			continue;
		if (name == RSH_NAME_NONE)
			return rsh_error_set(err, EINVAL, "%s: ranks %u and %u "
				"are listed as replicas, but they are in "
				"different pipeline stages of %s", path, first,
				list[i], w->strategy->path);
		return rsh_error_set(err, EINVAL, "%s: ranks %u and %u are "
			"listed as replicas, but %s gives them different "
			"slices of parameter %s", path, first, list[i],
			w->strategy->path, rsh_names_text(w->names, name));
	}
	if (!has_own)
		return rsh_error_set(err, EINVAL, "%s: it is the file of rank "
				     "%u, which is not among the ranks that it "
				     "lists", path, rank);
	return 0;
}

static int group_check_bytes(struct group_check *w, const char *path,
			     uint32_t rank, const uint8_t *data, size_t len,
			     struct rsh_error *err)
{
	cleanup_free uint32_t *list = NULL;
	uint32_t n;
	int rc = rsh_group_info_parse(data, len, path, &list, &n, err);

	if (rc)
		return rc;
	w->n_read++;
	return group_check_list(w, path, rank, list, n, err);
}

static int group_check_file(struct group_check *w, const char *path,
			    uint32_t rank, struct rsh_error *err)
{
	cleanup_free uint8_t *data = NULL;
	size_t len;

	return rsh_load_whole(path, &group_info_file, &data, &len, err) ?:
	       group_check_bytes(w, path, rank, data, len, err);
}

/* ---- files beside the checkpoints ---- */

/* A file that was found, not given, may be unreadable, but must not contradict
 * the strategy. */
static int group_check_beside(struct group_check *w, const struct rsh_source *s,
			      struct rsh_error *err)
{
	const struct rsh_listing *l = &s->listing;

	for (size_t i = 0; i < l->n_dirs; i++) {
		cleanup_free char *path = NULL;
		cleanup_free uint8_t *data = NULL;
		size_t len;
		int rc;

		path = rsh_text_format("%s/%s/" FILE_NAME, s->path,
				       l->dirs[i].name);
		if (!path)
			return rsh_error_nomem(err);
		rc = rsh_store_load(s->store, path + strlen(s->path) + 1,
				    &group_info_file, &data, &len, err) ?:
		     group_check_bytes(w, path, l->dirs[i].rank, data,
				       len, err);
		if (rc == -EINVAL || rc == -ENOMEM || rc == -EXDEV)
			return rc;
		if (rc && rc != -ENOENT)
			rsh_log_warning("%s: the file is ignored", err->text);
	}
	return 0;
}

/* ---- files given by the user ---- */

/* Makes a path from the template, with the rank in place of every mark. */
static char *group_path(const char *template, uint32_t rank)
{
	size_t n_mark = strlen(RANK_MARK);
	char *path = malloc(strlen(template) * 2 + 1), *to = path;
	const char *mark;

	/* A rank has up to ten digits, and its mark six characters, so twice
	 * the length is enough. */
	while (path && (mark = strstr(template, RANK_MARK))) {
		to = mempcpy(to, template, (size_t)(mark - template));
		to += sprintf(to, "%u", rank);
		template = mark + n_mark;
	}
	if (path)
		strcpy(to, template);
	return path;
}

static int group_check_given(struct group_check *w, const char *given,
			     struct rsh_error *err)
{
	const struct rsh_strategy *s = w->strategy;
	const uint32_t first = s->lone_stage * s->stage_ranks;
	cleanup_free char *below = NULL;
	struct stat st;

	if (!strstr(given, RANK_MARK)) {
		if (stat(given, &st) != 0 || !S_ISDIR(st.st_mode))
			return group_check_file(w, given, RSH_RANK_UNKNOWN,
						err);
		given = below = rsh_text_format("%s/rank_" RANK_MARK "/"
						FILE_NAME, given);
		if (!below)
			return rsh_error_nomem(err);
	}
	for (uint32_t r = 0; r < s->stage_ranks * s->n_stages; r++) {
		cleanup_free char *path = group_path(given, first + r);
		int rc = path ? group_check_file(w, path, first + r, err) :
				rsh_error_nomem(err);

		if (rc && rc != -ENOENT)
			return rc;
	}
	return w->n_read ? 0 :
	       rsh_error_set(err, ENOENT, "%s: no rank has such a file", given);
}

int rsh_source_check_groups(const struct rsh_source *s, const char *given,
			    const struct rsh_strategy *strategy,
			    const struct rsh_names *names,
			    struct rsh_error *err)
{
	struct group_check w = { .strategy = strategy, .names = names };
	int rc = given ? group_check_given(&w, given, err) :
			 group_check_beside(&w, s, err);

	if (rc == 0 && err)
		err->code = 0;
	if (rc == 0 && w.n_read > 0)
		rsh_log_info("%s: %u files of group information agree with %s",
			     s->path, w.n_read, strategy->path);
	return rc;
}
