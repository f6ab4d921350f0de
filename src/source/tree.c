/* SPDX-License-Identifier: Apache-2.0 */
/* source/tree.c - a source from opening to closing, and its chosen files.
 *
 * Everything is reached from one directory descriptor, so that the tree stays
 * the same one after chdir(2), a rename of its parents, or a mount over it. */
#include "config.h"

#include "index_cache_i.h"
#include "source_i.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "rsh/util/log.h"
#include "rsh/util/mem.h"

/* As for strategies; tables go by the rank. */
#define MAX_RANKS (1u << 20)

/* ---- the chosen candidate ---- */

/* False if a thread still needs it. */
static bool drop_choice(struct rsh_source *s)
{
	if (!rsh_outage_stop(s))
		return false;
	rsh_outage_reset(s);
	rsh_index_cache_close(s->index_cache);
	s->index_cache = NULL;
	for (uint32_t i = 0; i < s->n_files; i++) {
		rsh_file_close(&s->files[i]);
		free(s->files[i].path);
	}
	for (uint32_t i = 0; i < s->n_indexes; i++)
		rsh_ckpt_index_free(s->indexes[i]);
	free(s->indexes);
	free(s->files);
	free(s->by_rank);
	free(s->view_index);
	free(s->view_path);
	free(s->failed);
	rsh_pool_reset(&s->pool);
	s->indexes = NULL;
	s->files = NULL;
	s->by_rank = NULL;
	s->view_index = NULL;
	s->view_path = NULL;
	s->failed = NULL;
	s->n_files = s->n_indexes = s->n_ranks = s->n_bad = 0;
	s->cap_indexes = 0;
	return true;
}

static int add_file(struct rsh_source *s, const struct rsh_checkpoint *c)
{
	struct rsh_source_file *f = &s->files[s->n_files++];

	*f = (struct rsh_source_file){
		.rank = s->dialect ? s->n_files - 1 : c->rank, .name = c->name,
		.epoch = c->step.numbers[0], .step = c->step.numbers[1],
		.cached = RSH_CACHE_FILE_NONE,
		.reported = ATOMIC_FLAG_INIT,
	};
	if (*c->name == '/')
		f->path = strdup(c->name);
	else if (asprintf(&f->path, "%s/%s", s->path, c->name) < 0)
		f->path = NULL;
	return f->path ? 0 : -ENOMEM;
}

static int by_rank(const void *a, const void *b)
{
	const struct rsh_source_file *x = a, *y = b;

	return (x->rank > y->rank) - (x->rank < y->rank);
}

/* The candidate's files and those that belong to each, ascending by rank. */
static int collect_files(struct rsh_source *s, uint32_t i)
{
	const struct rsh_listing *l = &s->listing;
	struct rsh_candidate c = { 0, 0 };
	size_t k;

	if (i < s->n_candidates)
		c = s->candidates[i];
	s->files = rsh_alloc_array(c.end - c.first + s->n_always,
				   sizeof(*s->files));
	if (!s->files)
		return -ENOMEM;
	for (k = c.first; k < c.end; k++)
		if (add_file(s, &l->files[k]))
			return -ENOMEM;
	for (k = l->n - s->n_always; k < l->n; k++)
		if (add_file(s, &l->files[k]))
			return -ENOMEM;
	/* Parts of a model stay in the order of its map. */
	if (s->n_files > 0 && !s->in_parts && !s->dialect)
		qsort(s->files, s->n_files, sizeof(*s->files), by_rank);
	return 0;
}

static int check_ranks(const struct rsh_source *s, struct rsh_error *err)
{
	for (uint32_t i = 1; i < s->n_files; i++)
		if (s->files[i].rank == s->files[i - 1].rank)
			return rsh_error_set(err, EINVAL, "%s: cannot tell "
					     "which checkpoint of rank %u is "
					     "meant: %s or %s: say --select "
					     "name=GLOB", s->path,
					     s->files[i].rank,
					     s->files[i - 1].name,
					     s->files[i].name);
	if (s->n_files > 0 && s->files[s->n_files - 1].rank >= MAX_RANKS)
		return rsh_error_set(err, EINVAL, "%s: rank %u is beyond the "
				     "%u ranks that a job may have",
				     s->files[s->n_files - 1].path,
				     s->files[s->n_files - 1].rank, MAX_RANKS);
	return 0;
}

/* A file that was named in a way of its own is a .ckpt. */
static enum rsh_format format_of(const struct rsh_source_file *f)
{
	return rsh_format_of(f->name) == RSH_FORMAT_SAFETENSORS ?
		RSH_FORMAT_SAFETENSORS : RSH_FORMAT_CKPT;
}

/* All chosen files are of one format, which is the source's. */
static int take_format(struct rsh_source *s, struct rsh_error *err)
{
	s->format = s->n_files ? format_of(&s->files[0]) : RSH_FORMAT_CKPT;
	for (uint32_t i = 1; i < s->n_files; i++)
		if (format_of(&s->files[i]) != s->format)
			return rsh_error_set(err, EINVAL, "%s and %s: a source "
					     "is either .ckpt or .safetensors",
					     s->files[0].path,
					     s->files[i].path);
	return 0;
}

int rsh_source_number_files(struct rsh_source *s)
{
	if (s->n_files > 0)
		s->n_ranks = s->files[s->n_files - 1].rank + 1;

	/* Calloc, because ranks may be few and far between. */
	s->by_rank = calloc((size_t)s->n_ranks + 1, sizeof(*s->by_rank));
	s->view_index = calloc((size_t)s->n_ranks + 1, sizeof(*s->view_index));
	s->view_path = calloc((size_t)s->n_ranks + 1, sizeof(*s->view_path));
	s->failed = calloc((size_t)s->n_ranks + 1, sizeof(*s->failed));
	if (!s->by_rank || !s->view_index || !s->view_path || !s->failed)
		return -ENOMEM;
	for (uint32_t i = s->n_files; i-- > 0;) {
		s->by_rank[s->files[i].rank] = &s->files[i];
		s->view_path[s->files[i].rank] = s->in_parts ?
			s->path : s->files[i].path;
	}
	return 0;
}

uint32_t rsh_source_n_candidates(const struct rsh_source *s)
{
	return s->n_tried ? s->n_tried : 1;
}

int rsh_source_choose(struct rsh_source *s, uint32_t i, struct rsh_error *err)
{
	int rc;

	if (!drop_choice(s))
		return rsh_error_set(err, EIO, "%s: a read does not come back",
				     s->path);
	s->chosen = i;
	rc = collect_files(s, i) ? rsh_error_nomem(err) : 0;
	if (rc == 0 && !s->in_parts && !s->dialect)
		rc = check_ranks(s, err);
	if (rc == 0 && !s->dialect)
		rc = take_format(s, err);
	if (rc == 0 && rsh_source_number_files(s))
		rc = rsh_error_nomem(err);
	return rc;
}

/* ---- opening and closing ---- */

static int open_root(struct rsh_source *s, struct rsh_error *err)
{
	struct stat st;
	struct statfs fs;

	s->dirfd = open(s->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (s->dirfd < 0 || fstat(s->dirfd, &st) != 0)
		return rsh_error_set(err, errno, "source %s: %s", s->path,
				     strerror(errno));
	s->attr = (struct rsh_source_attr){
		.mode = st.st_mode & 07777, .uid = st.st_uid,
		.gid = st.st_gid, .mtime = st.st_mtim,
	};
	s->place = rsh_source_place(s->dirfd);
	if (fstatfs(s->dirfd, &fs) == 0)
		s->fs_type = (uint32_t)fs.f_type;
	return 0;
}

static void log_empty_dirs(const struct rsh_source *s)
{
	const struct rsh_listing *l = &s->listing;

	for (size_t d = 0; d < l->n_dirs; d++) {
		size_t i = 0;

		while (i < l->n && l->files[i].rank != l->dirs[d].rank)
			i++;
		if (i == l->n)
			rsh_log_info("%s/%s holds no checkpoint", s->path,
				     l->dirs[d].name);
	}
}

static char *without_trailing_slashes(const char *path)
{
	size_t n = strlen(path);

	while (n > 1 && path[n - 1] == '/')
		n--;
	return strndup(path, n);
}

int rsh_source_new(const char *path, struct rsh_source **out,
		   struct rsh_error *err)
{
	struct rsh_source *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return rsh_error_nomem(err);
	s->dirfd = s->index_dirfd = -1;
	s->path = without_trailing_slashes(path);
	if (!s->path || rsh_pool_init(&s->pool) ||
	    rsh_outage_init(&s->outage)) {
		free(s->path);
		free(s);
		return rsh_error_nomem(err);
	}
	rc = open_root(s, err);
	if (rc) {
		rsh_source_free(s);
		return rc;
	}
	*out = s;
	return 0;
}

static bool is_model(const struct rsh_source *s,
		     const struct rsh_source_options *opts)
{
	return opts->unsharded && !opts->rank_dir && !opts->file &&
	       !opts->source_map && opts->breakpoints != RSH_BREAKPOINTS_ONLY &&
	       (opts->select == RSH_SELECT_NEWEST ||
		opts->select == RSH_SELECT_MINDSPORE) && rsh_model_present(s);
}

static int list_ranks(struct rsh_source *s, uint32_t first, uint32_t n,
		      const struct rsh_source_options *opts,
		      struct rsh_error *err)
{
	int rc = rsh_listing_make(s, first, n, opts, err);

	return rc ? rc : rsh_candidates_make(s, opts, err);
}

int rsh_source_open(const char *path, uint32_t first, uint32_t n,
		    const struct rsh_source_options *opts,
		    struct rsh_source **out, struct rsh_error *err)
{
	struct rsh_source *s;
	int rc = rsh_source_new(path, &s, err);

	if (rc)
		return rc;
	s->first_rank = first;
	s->n_threads = opts->n_threads;
	s->check = opts->check;
	s->follow_outside = opts->follow_outside;
	s->opener = opts->opener;
	s->select = opts->select;
	s->io = opts->io;
	if (opts->index_cache)
		s->index_dirfd = rsh_index_dir_open(opts->index_cache,
						    opts->index_cache_asked);
	rc = is_model(s, opts) ? rsh_model_list(s, err) :
				 list_ranks(s, first, n, opts, err);
	if (rc) {
		rsh_source_free(s);
		return rc;
	}
	log_empty_dirs(s);
	*out = s;
	return 0;
}

void rsh_source_free(struct rsh_source *s)
{
	if (!s)
		return;
	if (!drop_choice(s)) {
		rsh_source_io_keep(s->io);
		return;
	}
	rsh_listing_clear(&s->listing);
	free(s->candidates);
	rsh_pool_destroy(&s->pool);
	rsh_outage_destroy(&s->outage);
	if (s->dirfd >= 0)
		close(s->dirfd);
	if (s->index_dirfd >= 0)
		close(s->index_dirfd);
	free(s->place);
	free(s->path);
	free(s);
}

void rsh_source_view(const struct rsh_source *s, struct rsh_names *names,
		     struct rsh_source_view *view)
{
	*view = (struct rsh_source_view){
		.n_ranks = s->n_ranks,
		.index = s->view_index,
		.path = s->view_path,
		.names = names,
		.format = s->format,
		.joined = s->in_parts && s->n_files > 1,
	};
}

bool rsh_source_attr(const struct rsh_source *s, uint32_t rank,
		     struct rsh_source_attr *out)
{
	const struct rsh_source_file *f = rsh_source_file(s, rank);

	if (!f)
		return false;
	*out = f->attr;
	return true;
}

void rsh_source_root_attr(const struct rsh_source *s,
			  struct rsh_source_attr *out)
{
	*out = s->attr;
}

int rsh_source_dirfd(const struct rsh_source *s)
{
	return s->dirfd;
}

uint32_t rsh_source_n_bad(const struct rsh_source *s, const char **first)
{
	*first = s->first_bad.text;
	return s->n_bad;
}
