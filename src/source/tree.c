/* source/tree.c - SOURCE/rank_N/: finding the files.
 *
 * Everything is reached from one directory descriptor, so that the tree stays
 * the same one after chdir(2), a rename of its parents, or a mount over it. */
#include "config.h"

#include "source_i.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rsh/util/log.h"
#include "rsh/util/mem.h"

#define RANK_PREFIX "rank_"

struct rank_list {
	struct rsh_rank_dir *v;
	uint32_t n;
	size_t cap;
};

static void rank_list_clear(struct rank_list *l)
{
	for (uint32_t r = 0; r < l->n; r++) {
		for (size_t i = 0; i < l->v[r].n_files; i++)
			free(l->v[r].files[i].name);
		free(l->v[r].files);
		free(l->v[r].name);
	}
	free(l->v);
}

#define cleanup_ranks __attribute__((cleanup(rank_list_clear)))

static void closedir_guard(DIR **d)
{
	if (*d)
		closedir(*d);
}
#define cleanup_dir __attribute__((cleanup(closedir_guard)))

static DIR *open_dir(int dirfd, const char *name)
{
	int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d;

	if (fd < 0)
		return NULL;
	d = fdopendir(fd);
	if (!d)
		close(fd);
	return d;
}

/* "rank_<digits>", as the converter finds them. */
static bool parse_rank(const char *name, uint32_t *rank)
{
	const char *s = name + strlen(RANK_PREFIX);
	uint64_t v = 0;

	if (strncmp(name, RANK_PREFIX, strlen(RANK_PREFIX)) != 0 || !*s)
		return false;
	for (; *s; s++) {
		if (!isdigit((unsigned char)*s))
			return false;
		v = v * 10 + (uint64_t)(*s - '0');
		if (v >= UINT32_MAX)
			return false;
	}
	*rank = (uint32_t)v;
	return true;
}

static bool is_checkpoint_name(const char *name)
{
	return name[0] != '.' && rsh_format_of(name) != RSH_FORMAT_COUNT;
}

static int add_candidate(struct rsh_rank_dir *d, const char *name)
{
	struct rsh_candidate c = { .name = strdup(name) };

	if (!c.name || rsh_grow(&d->files, &d->cap_files, d->n_files + 1,
				sizeof(*d->files))) {
		free(c.name);
		return -ENOMEM;
	}
	rsh_candidate_parse(&c);
	d->files[d->n_files++] = c;
	return 0;
}

static int list_files(const struct rsh_source *s, struct rsh_rank_dir *d,
		      struct rsh_error *err)
{
	cleanup_dir DIR *dir = open_dir(s->dirfd, d->name);
	const struct dirent *e;
	struct stat st;

	if (!dir)
		return rsh_error_set(err, errno, "%s/%s: %s", s->path, d->name,
				     strerror(errno));
	while (errno = 0, (e = readdir(dir))) {
		if (!is_checkpoint_name(e->d_name) ||
		    fstatat(dirfd(dir), e->d_name, &st, 0) != 0 ||
		    !S_ISREG(st.st_mode))
			continue;
		if (add_candidate(d, e->d_name))
			return rsh_error_nomem(err);
	}
	if (errno)
		return rsh_error_set(err, errno, "%s/%s: %s", s->path, d->name,
				     strerror(errno));
	return 0;
}

static int add_rank(struct rank_list *l, uint32_t rank, const char *name)
{
	char *copy = strdup(name);

	if (!copy || rsh_grow(&l->v, &l->cap, (size_t)l->n + 1,
			      sizeof(*l->v))) {
		free(copy);
		return -ENOMEM;
	}
	l->v[l->n++] = (struct rsh_rank_dir){ .rank = rank, .name = copy };
	return 0;
}

static int by_rank(const void *a, const void *b)
{
	const struct rsh_rank_dir *x = a, *y = b;

	if (x->rank != y->rank)
		return x->rank < y->rank ? -1 : 1;
	return strcmp(x->name, y->name);
}

/* The rank directories of first .. first+n-1, ascending. */
static int list_ranks(const struct rsh_source *s, uint32_t first, uint32_t n,
		      struct rank_list *l, struct rsh_error *err)
{
	cleanup_dir DIR *dir = open_dir(s->dirfd, ".");
	const struct dirent *e;
	bool any = false;
	struct stat st;
	uint32_t rank;

	if (!dir)
		return rsh_error_set(err, errno, "%s: %s", s->path,
				     strerror(errno));
	while (errno = 0, (e = readdir(dir))) {
		if (!parse_rank(e->d_name, &rank) ||
		    fstatat(s->dirfd, e->d_name, &st, 0) != 0 ||
		    !S_ISDIR(st.st_mode))
			continue;
		any = true;
		if (rank < first || rank - first >= n)
			continue;
		if (add_rank(l, rank, e->d_name))
			return rsh_error_nomem(err);
	}
	if (errno)
		return rsh_error_set(err, errno, "%s: %s", s->path,
				     strerror(errno));
	if (!any)
		return rsh_error_set(err, ENOENT, "%s: no rank_N directory "
				     "in it", s->path);
	if (l->n > 0)
		qsort(l->v, l->n, sizeof(*l->v), by_rank);
	for (uint32_t r = 1; r < l->n; r++)
		if (l->v[r].rank == l->v[r - 1].rank)
			return rsh_error_set(err, EINVAL, "%s: rank %u twice: "
					     "%s and %s", s->path, l->v[r].rank,
					     l->v[r - 1].name, l->v[r].name);
	return 0;
}

static int add_file(struct rsh_source *s, const struct rsh_rank_dir *d)
{
	struct rsh_source_file *f = &s->files[s->n_files];

	*f = (struct rsh_source_file){
		.rank = d->rank, .fd = -1, .reported = ATOMIC_FLAG_INIT,
	};
	if (asprintf(&f->name, "%s/%s", d->name, d->chosen->name) < 0) {
		f->name = NULL;
		return -ENOMEM;
	}
	s->n_files++;
	return asprintf(&f->path, "%s/%s", s->path, f->name) < 0 ? -ENOMEM : 0;
}

/* Makes the arrays of what was chosen. */
static int take_chosen(struct rsh_source *s, const struct rank_list *l)
{
	s->files = rsh_alloc_array(l->n ? l->n : 1, sizeof(*s->files));
	if (!s->files)
		return -ENOMEM;
	for (uint32_t r = 0; r < l->n; r++) {
		if (!l->v[r].chosen)
			rsh_log_info("%s/%s holds no checkpoint", s->path,
				     l->v[r].name);
		else if (add_file(s, &l->v[r]))
			return -ENOMEM;
	}
	if (s->n_files > 0)
		s->n_ranks = s->files[s->n_files - 1].rank + 1;

	/* Calloc, because ranks may be few and far between. */
	s->by_rank = calloc((size_t)s->n_ranks + 1, sizeof(*s->by_rank));
	s->view_index = calloc((size_t)s->n_ranks + 1, sizeof(*s->view_index));
	s->view_path = calloc((size_t)s->n_ranks + 1, sizeof(*s->view_path));
	s->failed = calloc((size_t)s->n_ranks + 1, sizeof(*s->failed));
	if (!s->by_rank || !s->view_index || !s->view_path || !s->failed)
		return -ENOMEM;
	for (uint32_t i = 0; i < s->n_files; i++) {
		s->by_rank[s->files[i].rank] = &s->files[i];
		s->view_path[s->files[i].rank] = s->files[i].path;
	}
	return 0;
}

/* All chosen files are of one format, which is the source's. */
static int check_format(struct rsh_source *s, struct rsh_error *err)
{
	for (uint32_t i = 0; i < s->n_files; i++) {
		enum rsh_format f = rsh_format_of(s->files[i].name);

		if (i > 0 && f != s->format)
			return rsh_error_set(err, EINVAL, "%s and %s: a source "
					     "is either .ckpt or .safetensors",
					     s->files[0].path,
					     s->files[i].path);
		s->format = f;
	}
	return 0;
}

static int open_root(struct rsh_source *s, struct rsh_error *err)
{
	struct stat st;

	s->dirfd = open(s->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (s->dirfd < 0 || fstat(s->dirfd, &st) != 0)
		return rsh_error_set(err, errno, "%s: %s", s->path,
				     strerror(errno));
	s->attr = (struct rsh_source_attr){
		.mode = st.st_mode & 07777, .uid = st.st_uid,
		.gid = st.st_gid, .mtime = st.st_mtim,
	};
	return 0;
}

static int find_files(struct rsh_source *s, uint32_t first, uint32_t n,
		      bool lexicographic, struct rsh_error *err)
{
	cleanup_ranks struct rank_list ranks = { 0 };
	int rc = list_ranks(s, first, n, &ranks, err);

	for (uint32_t r = 0; r < ranks.n && rc == 0; r++)
		rc = list_files(s, &ranks.v[r], err);
	if (rc == 0)
		rc = rsh_step_choose(ranks.v, ranks.n, s->path, lexicographic,
				     err);
	if (rc == 0 && take_chosen(s, &ranks))
		rc = rsh_error_nomem(err);
	return rc ? rc : check_format(s, err);
}

static char *without_trailing_slashes(const char *path)
{
	size_t n = strlen(path);

	while (n > 1 && path[n - 1] == '/')
		n--;
	return strndup(path, n);
}

int rsh_source_open(const char *path, uint32_t first, uint32_t n,
		    const struct rsh_source_options *opts,
		    struct rsh_source **out, struct rsh_error *err)
{
	struct rsh_source *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return rsh_error_nomem(err);
	s->dirfd = -1;
	s->n_threads = opts->n_threads;
	s->path = without_trailing_slashes(path);
	if (!s->path || rsh_pool_init(&s->pool)) {
		free(s->path);
		free(s);
		return rsh_error_nomem(err);
	}
	rc = open_root(s, err);
	if (rc == 0)
		rc = opts->unsharded && rsh_model_present(s) ?
			rsh_model_open(s, err) :
			find_files(s, first, n, opts->lexicographic, err);
	if (rc) {
		rsh_source_free(s);
		return rc;
	}
	*out = s;
	return 0;
}

void rsh_source_free(struct rsh_source *s)
{
	if (!s)
		return;
	for (uint32_t i = 0; i < s->n_files; i++) {
		if (s->files[i].fd >= 0)
			close(s->files[i].fd);
		free(s->files[i].name);
		free(s->files[i].path);
	}
	for (uint32_t i = 0; i < s->n_indexes; i++)
		rsh_ckpt_index_free(s->indexes[i]);
	free(s->indexes);
	free(s->files);
	free(s->by_rank);
	free(s->view_index);
	free(s->failed);
	free(s->view_path);
	rsh_pool_destroy(&s->pool);
	if (s->dirfd >= 0)
		close(s->dirfd);
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
