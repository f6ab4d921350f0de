/* SPDX-License-Identifier: Apache-2.0 */
/* source/resume_find.c - listing what a job's ranks have saved. */
#include "config.h"

#include "resume_i.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rsh/util/mem.h"

/* ---- directories ---- */

static int is_visible(const struct dirent *e)
{
	return e->d_name[0] != '.';
}

/* rank_2 before rank_10 */
static int numeric_order(const struct dirent **a, const struct dirent **b)
{
	return strverscmp((*a)->d_name, (*b)->d_name);
}

static int visit(struct rsh_job *job, const char *dir, int dirfd,
		 const char *name, mode_t type, rsh_found_fn *fn, void *ctx,
		 struct rsh_error *err)
{
	struct stat st;

	if (fstatat(dirfd, name, &st, 0) != 0)
		return errno == ENOENT ? 0 : /* rotated away meanwhile */
		       rsh_error_set(err, errno, "%s%s%s/%s: %s",
				     job->tree->path, *dir ? "/" : "", dir,
				     name, strerror(errno));
	return (st.st_mode & S_IFMT) == type ? fn(job, ctx, name, &st, err) : 0;
}

int rsh_each_in_dir(struct rsh_job *job, const char *dir, mode_t type,
		    rsh_found_fn *fn, void *ctx, struct rsh_error *err)
{
	cleanup_fd int fd = rsh_store_openat(job->tree->store, *dir ? dir : ".",
					      O_RDONLY | O_DIRECTORY);
	struct dirent **found = NULL;
	int n = 0, rc = 0;

	if (fd < 0)
		return rsh_store_open_error(job->tree->store, dir, fd, err);
	n = scandirat(fd, ".", &found, is_visible, numeric_order);
	if (n < 0)
		return rsh_store_open_error(job->tree->store, dir, -errno, err);
	for (int i = 0; i < n; i++) {
		if (rc == 0)
			rc = visit(job, dir, fd, found[i]->d_name, type, fn,
				   ctx, err);
		free(found[i]);
	}
	free(found);
	return rc;
}

/* ---- units and what they saved ---- */

int rsh_job_unit(struct rsh_job *job, const char *name, uint32_t *unit)
{
	char *copy;

	/* Directories come one after the other, so it is mostly the last. */
	for (size_t i = job->n_units; i-- > 0;)
		if (strcmp(job->units[i].name, name) == 0) {
			*unit = (uint32_t)i;
			return 0;
		}
	copy = rsh_arena_strndup(&job->arena, name, strlen(name));
	if (!copy || rsh_grow(&job->units, &job->cap_units, job->n_units + 1,
			      sizeof(*job->units)))
		return -ENOMEM;
	*unit = (uint32_t)job->n_units;
	job->units[job->n_units++] = (struct rsh_unit){ .name = copy };
	return 0;
}

static bool newer(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec != b->tv_sec ? a->tv_sec > b->tv_sec :
					a->tv_nsec > b->tv_nsec;
}

static int add_file(struct rsh_job *job, struct rsh_saved *s,
		    const char *file, const struct stat *st)
{
	char *copy = rsh_arena_strndup(&job->arena, file, strlen(file));

	if (!copy || rsh_grow(&s->files, &s->cap_files, s->n_files + 1,
			      sizeof(*s->files)))
		return -ENOMEM;
	s->files[s->n_files++] = copy;
	if (s->n_files == 1 || newer(&st->st_mtim, &s->mtime))
		s->mtime = st->st_mtim;
	return 0;
}

/* The files of one checkpoint come close together, those of one unit too. */
static struct rsh_saved *find_saved(struct rsh_job *job,
				    const struct rsh_saved *s)
{
	for (size_t i = job->n_saved; i-- > 0;) {
		struct rsh_saved *have = &job->saved[i];

		if (have->unit != s->unit)
			return NULL;
		if (strcmp(have->name, s->name) == 0 &&
		    strcmp(have->dir, s->dir) == 0)
			return have;
	}
	return NULL;
}

int rsh_job_add(struct rsh_job *job, const struct rsh_saved *s,
		const char *file, const struct stat *st)
{
	struct rsh_saved *have;

	if (job->glob && fnmatch(job->glob, s->name, 0) != 0)
		return 0;
	have = find_saved(job, s);
	if (!have) {
		if (rsh_grow(&job->saved, &job->cap_saved, job->n_saved + 1,
			     sizeof(*job->saved)))
			return -ENOMEM;
		have = &job->saved[job->n_saved++];
		*have = *s;
		job->units[s->unit].n_saved++;
	}
	return add_file(job, have, file, st);
}

void rsh_job_clear(struct rsh_job *job)
{
	for (size_t i = 0; i < job->n_saved; i++)
		free(job->saved[i].files);
	free(job->saved);
	free(job->units);
	rsh_arena_clear(&job->arena);
	*job = (struct rsh_job){ 0 };
}

/* ---- rank_N ---- */

struct in_ranks {
	rsh_parse_fn *parse;
	bool any_dir;    /* there is a rank directory */
	bool any_rank;   /* a name in SOURCE itself says a rank */
	const char *dir; /* the one that is being listed */
	uint32_t unit;
};

/* rank_3 or ckpt_3 */
static bool is_rank_dir(const char *name)
{
	const size_t n = strlen("rank_");

	return (strncmp(name, "rank_", n) == 0 ||
		strncmp(name, "ckpt_", n) == 0) && name[n] &&
	       name[n + strspn(name + n, "0123456789")] == '\0';
}

static int found_in_rank(struct rsh_job *job, void *ctx, const char *name,
			 const struct stat *st, struct rsh_error *err)
{
	const struct in_ranks *x = ctx;
	struct rsh_saved s = { .unit = x->unit, .dir = x->dir };
	int is = x->parse(job, name, &s);

	if (is > 0 && rsh_job_add(job, &s, name, st))
		is = -ENOMEM;
	return is < 0 ? rsh_error_nomem(err) : 0;
}

/* rank_3/checkpoint and the like are shown as if their files lay in rank_3. */
static int found_inner_dir(struct rsh_job *job, void *ctx, const char *name,
			   const struct stat *st, struct rsh_error *err)
{
	static const char prefix[] = "checkpoint";
	struct in_ranks inner = *(const struct in_ranks *)ctx;

	(void)st;
	if (strncmp(name, prefix, strlen(prefix)) != 0)
		return 0;
	inner.dir = rsh_job_printf(job, "%s/%s", inner.dir, name);
	if (!inner.dir)
		return rsh_error_nomem(err);
	return rsh_each_in_dir(job, inner.dir, S_IFREG, found_in_rank, &inner,
			       err);
}

static int found_rank_dir(struct rsh_job *job, void *ctx, const char *name,
			  const struct stat *st, struct rsh_error *err)
{
	struct in_ranks *x = ctx;
	int rc;

	(void)st;
	if (!is_rank_dir(name))
		return 0;
	x->any_dir = true;
	if (rsh_job_unit(job, name, &x->unit))
		return rsh_error_nomem(err);
	x->dir = job->units[x->unit].name;
	rc = rsh_each_in_dir(job, x->dir, S_IFREG, found_in_rank, x, err);
	return rc ? rc : rsh_each_in_dir(job, x->dir, S_IFDIR, found_inner_dir,
					 x, err);
}

static int found_rank_name(struct rsh_job *job, void *ctx, const char *name,
			   const struct stat *st, struct rsh_error *err)
{
	struct in_ranks *x = ctx;
	struct rsh_saved s = { 0 };
	size_t begin, end;
	int is = x->parse(job, name, &s);

	(void)st;
	x->any_rank |= is > 0 && rsh_rank_in_name(s.name, strlen(s.name),
						  &begin, &end);
	return is < 0 ? rsh_error_nomem(err) : 0;
}

/* A file in SOURCE itself: of the rank that its name says; where some names
 * say one, those that do not do not count. */
static int found_in_root(struct rsh_job *job, void *ctx, const char *name,
			 const struct stat *st, struct rsh_error *err)
{
	const struct in_ranks *x = ctx;
	struct rsh_saved s = { .dir = "" };
	size_t begin, end;
	char unit[32] = "";
	int is = x->parse(job, name, &s);

	if (is <= 0)
		return is ? rsh_error_nomem(err) : 0;
	if (x->any_rank) {
		if (!rsh_rank_in_name(s.name, strlen(s.name), &begin, &end))
			return 0;
		snprintf(unit, sizeof(unit), "rank_%llu",
			 strtoull(s.name + begin, NULL, 10));
	}
	return rsh_job_unit(job, unit, &s.unit) ||
	       rsh_job_add(job, &s, name, st) ? rsh_error_nomem(err) : 0;
}

int rsh_find_in_ranks(struct rsh_job *job, rsh_parse_fn *parse,
		      struct rsh_error *err)
{
	struct in_ranks x = { .parse = parse };
	int rc = rsh_each_in_dir(job, "", S_IFDIR, found_rank_dir, &x, err);

	if (rc || x.any_dir)
		return rc;
	rc = rsh_each_in_dir(job, "", S_IFREG, found_rank_name, &x, err);
	return rc ? rc :
	       rsh_each_in_dir(job, "", S_IFREG, found_in_root, &x, err);
}
