/* SPDX-License-Identifier: Apache-2.0 */
/* source/listing.c - finding the checkpoints of a tree.
 *
 * A template says where files lie.  It is walked part by part: a plain part is
 * entered, any other is matched against all names of its directory, and the
 * first "{rank}" decides whose files are found below. */
#include "config.h"

#include "source_i.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rsh/util/files.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/wire/source_map.h"

#define SUBDIRS "/checkpoint*"
/* A map names a file for each rank: some hundred bytes each. */
#define SOURCE_MAP_BYTES_MAX (UINT64_C(1) << 28)

static void closedir_guard(DIR **d)
{
	if (*d)
		closedir(*d);
}
#define cleanup_dir __attribute__((cleanup(closedir_guard)))

struct walk {
	struct rsh_source *source;
	const char *file; /* template of the last part; NULL: any checkpoint */
	uint32_t first, n; /* ranks that count */
	uint64_t dir_epoch, dir_step;
	size_t n_dir;
	bool any;   /* a directory of some rank was found */
	bool named; /* and a file that counts by its name */
	bool again; /* it is the second time in the same directories */
	bool beyond; /* it is in the directory of a rank that does not count */
};

/* ---- what was found ---- */

static bool counts(const struct walk *w, uint32_t rank)
{
	return rank >= w->first && rank - w->first < w->n;
}

static int add_to(struct rsh_checkpoint **files, size_t *n, size_t *cap,
		  const struct rsh_checkpoint *found)
{
	struct rsh_checkpoint c = *found;
	const char *slash;

	if (!c.name || rsh_grow(files, cap, *n + 1, sizeof(**files))) {
		free(c.name);
		return -ENOMEM;
	}
	slash = strrchr(c.name, '/');
	c.base = slash ? slash + 1 : c.name;
	rsh_checkpoint_parse(&c);
	(*files)[(*n)++] = c;
	return 0;
}

int rsh_listing_add(struct rsh_listing *l, const struct rsh_checkpoint *found)
{
	return add_to(&l->files, &l->n, &l->cap, found);
}

int rsh_listing_add_beyond(struct rsh_listing *l,
			   const struct rsh_checkpoint *found)
{
	return add_to(&l->beyond, &l->n_beyond, &l->cap_beyond, found);
}

/* A rank that does not count is remembered if the strategy might be of fewer
 * ranks than the tree. */
static int add_found(struct walk *w, struct rsh_checkpoint *c)
{
	struct rsh_listing *l = &w->source->listing;

	if (counts(w, c->rank))
		return rsh_listing_add(l, c);
	if (w->first == 0)
		return rsh_listing_add_beyond(l, c);
	free(c->name);
	return 0;
}

/* Remembers the directory in whose name the rank was read. */
static int add_dir(struct walk *w, const char *name, uint32_t rank,
		   struct rsh_error *err)
{
	struct rsh_listing *l = &w->source->listing;
	char *copy;

	for (size_t i = l->n_dirs; i > 0; i--)
		if (l->dirs[i - 1].rank == rank &&
		    strcmp(l->dirs[i - 1].name, name) == 0)
			return 0;
	copy = strdup(name);
	if (!copy || rsh_grow(&l->dirs, &l->cap_dirs, l->n_dirs + 1,
			      sizeof(*l->dirs))) {
		free(copy);
		return rsh_error_nomem(err);
	}
	l->dirs[l->n_dirs++] = (struct rsh_rank_dir){ rank, copy };
	return 0;
}

static int by_rank(const void *a, const void *b)
{
	const struct rsh_rank_dir *x = a, *y = b;

	if (x->rank != y->rank)
		return x->rank < y->rank ? -1 : 1;
	return strcmp(x->name, y->name);
}

/* ---- walking ---- */

static DIR *open_dir(const struct rsh_source *s, const char *name)
{
	int fd = rsh_store_openat(s->store, *name ? name : ".",
				  O_RDONLY | O_DIRECTORY);

	if (fd < 0)
		errno = -fd;
	return rsh_dir_of(fd);
}

static char *join(const char *dir, const char *name, size_t n)
{
	char *path;

	if (asprintf(&path, "%s%s%.*s", dir, *dir ? "/" : "", (int)n, name) < 0)
		return NULL;
	return path;
}

/* A directory that cannot be read.  The root's is never left out, nor one that
 * must not be read. */
static int unreadable(const struct walk *w, const char *dir,
		      struct rsh_error *err)
{
	int rc = rsh_store_open_error(w->source->store, dir, -errno, err);

	if (!*dir || rc == -ENOMEM || (rc == -EXDEV && !w->beyond))
		return rc;
	if (!w->again && !w->beyond)
		rsh_log_warning("%s: the directory is left out", err->text);
	err->code = 0;
	return 0;
}

static bool is_checkpoint_name(const char *name)
{
	return name[0] != '.' && !rsh_has_suffix(name, ".tmp");
}

/* Does a file of that name count?  May tell its rank. */
static bool file_matches(const struct walk *w, const char *name, uint32_t *rank)
{
	if (!is_checkpoint_name(name))
		return false;
	return w->file ? rsh_template_match(w->file, strlen(w->file), name,
					    rank) :
			 rsh_format_of(name) != RSH_FORMAT_COUNT;
}

/* Whether nothing is known of what a directory names because it cannot be
 * reached.  A link that leads nowhere is not there. */
static bool is_out_of_reach(int error)
{
	return error != ENOENT && error != ENOTDIR && error != ELOOP &&
	       error != ENAMETOOLONG && error != EACCES;
}

/* True if it is a file.  One that cannot be reached counts: opening it says why,
 * and what is taken in its place is told. */
static bool is_file(int dir, const char *name, struct stat *st)
{
	if (fstatat(dir, name, st, 0) == 0)
		return S_ISREG(st->st_mode);
	*st = (struct stat){ .st_size = 0 };
	return is_out_of_reach(errno);
}

static int list_files(struct walk *w, const char *at, uint32_t rank,
		      struct rsh_error *err)
{
	cleanup_dir DIR *dir = open_dir(w->source, at);
	const struct dirent *e;
	struct stat st;

	if (!dir)
		return unreadable(w, at, err);
	while (errno = 0, (e = readdir(dir))) {
		struct rsh_checkpoint c = {
			.rank = rank, .dir_epoch = w->dir_epoch,
			.dir_step = w->dir_step, .n_dir = w->n_dir,
		};

		if (!file_matches(w, e->d_name, &c.rank) ||
		    !is_file(dirfd(dir), e->d_name, &st))
			continue;
		w->any = w->named = true;
		c.mtime = st.st_mtim;
		c.name = join(at, e->d_name, strlen(e->d_name));
		if (add_found(w, &c))
			return rsh_error_nomem(err);
	}
	return errno ? unreadable(w, at, err) : 0;
}

static int walk(struct walk *w, const char *at, const char *rest, uint32_t rank,
		struct rsh_error *err);

/* Goes on in `name` of `at`, of which the template's part is n long. */
static int enter(struct walk *w, const char *at, const char *part, size_t n,
		 const char *name, uint32_t rank, bool has_rank,
		 struct rsh_error *err)
{
	cleanup_free char *below = join(at, name, strlen(name));
	struct stat st;
	int rc = 0;

	if (!below)
		return rsh_error_nomem(err);
	if (fstatat(rsh_store_dirfd(w->source->store), below, &st, 0) != 0)
		return is_out_of_reach(errno) ? unreadable(w, below, err) : 0;
	if (!S_ISDIR(st.st_mode))
		return 0;
	if (!has_rank)
		return walk(w, below, part + n, rank, err);
	w->any = true;
	w->beyond = !counts(w, rank);
	if (w->beyond && w->first > 0)
		return 0;
	if (!w->beyond)
		rc = add_dir(w, below, rank, err);
	if (rc == 0)
		rc = walk(w, below, part + n, rank, err);
	w->beyond = false;
	return rc;
}

static int enter_matches(struct walk *w, const char *at, const char *part,
			 size_t n, uint32_t known, struct rsh_error *err)
{
	bool has_rank = known == RSH_RANK_UNKNOWN &&
			rsh_template_has_rank(part, n);
	cleanup_dir DIR *dir = open_dir(w->source, at);
	const struct dirent *e;
	int rc = 0;

	if (!dir)
		return unreadable(w, at, err);
	while (rc == 0 && (errno = 0, (e = readdir(dir)))) {
		uint32_t rank = known;

		if (e->d_name[0] != '.' &&
		    rsh_template_match(part, n, e->d_name, &rank))
			rc = enter(w, at, part, n, e->d_name, rank, has_rank,
				   err);
	}
	return rc ? rc : errno ? unreadable(w, at, err) : 0;
}

/* Lists the files below `at` that the rest of a template leads to. */
static int walk(struct walk *w, const char *at, const char *rest, uint32_t rank,
		struct rsh_error *err)
{
	cleanup_free char *below = NULL;
	size_t n;

	rest += strspn(rest, "/");
	n = strcspn(rest, "/");
	if (n == 0)
		return list_files(w, at, rank, err);
	if (!rsh_template_is_plain(rest, n))
		return enter_matches(w, at, rest, n, rank, err);
	if (n == 1 && *rest == '.')
		return walk(w, at, rest + n, rank, err);
	below = join(at, rest, n);
	return below ? walk(w, below, rest + n, rank, err) :
		       rsh_error_nomem(err);
}

/* The rank's directory, and such in it as some trainers make. */
static int walk_ranks(struct walk *w, const char *at, const char *rank_dir,
		      struct rsh_error *err)
{
	cleanup_free char *subdirs = NULL;
	int rc = walk(w, at, rank_dir, RSH_RANK_UNKNOWN, err);

	if (rc || !w->any || w->source->select == RSH_SELECT_MINDSPORE)
		return rc;
	if (asprintf(&subdirs, "%s%s", rank_dir, SUBDIRS) < 0)
		return rsh_error_nomem(err);
	w->again = true;
	rc = walk(w, at, subdirs, RSH_RANK_UNKNOWN, err);
	w->again = false;
	return rc;
}

static int walk_default(struct walk *w, const char *at, struct rsh_error *err)
{
	int rc = walk_ranks(w, at, "rank_{rank}", err);

	if (rc == 0 && !w->any)
		rc = walk_ranks(w, at, "ckpt_{rank}", err);
	return rc;
}

/* ---- what a job saved when its power went ---- */

static bool read_number(const char **s, uint64_t *out)
{
	char *end;

	if (**s < '0' || **s > '9')
		return false;
	errno = 0;
	*out = strtoull(*s, &end, 10);
	*s = end;
	return errno == 0;
}

/* "tft_saved_checkpoints-step_<N>" and "ttp_saved_checkpoints-step_<N>" or
 * "-<epoch>_<step>"; *complete unless "_tmp" follows. */
static bool parse_power_off(const char *name, uint64_t *epoch, uint64_t *step,
			    bool *complete)
{
	const char stem[] = "_saved_checkpoints-", form[] = "step_";

	if (strncmp(name, "tft", 3) != 0 && strncmp(name, "ttp", 3) != 0)
		return false;
	if (strncmp(name + 3, stem, strlen(stem)) != 0)
		return false;
	name += 3 + strlen(stem);
	*epoch = 0;
	if (strncmp(name, form, strlen(form)) == 0)
		name += strlen(form);
	else if (!read_number(&name, epoch) || *name++ != '_')
		return false;
	if (!read_number(&name, step))
		return false;
	*complete = *name == '\0';
	return *complete || strcmp(name, "_tmp") == 0;
}

static int walk_power_off(struct walk *w, const char *name,
			  unsigned *n_incomplete, struct rsh_error *err)
{
	uint64_t epoch, step;
	bool complete;

	if (!parse_power_off(name, &epoch, &step, &complete))
		return 0;
	if (!complete) {
		(*n_incomplete)++;
		rsh_log_notice("%s/%s: the save was not completed, it does not "
			       "count", w->source->path, name);
		return 0;
	}
	w->dir_epoch = epoch;
	w->dir_step = step;
	w->n_dir = strlen(name);
	return walk_default(w, name, err);
}

static int walk_power_offs(struct walk *w, unsigned *n_incomplete,
			   struct rsh_error *err)
{
	cleanup_dir DIR *dir = open_dir(w->source, "");
	const struct dirent *e;
	bool any = false;
	int rc = 0;

	if (!dir)
		return unreadable(w, "", err);
	while (rc == 0 && (errno = 0, (e = readdir(dir)))) {
		w->any = false;
		rc = walk_power_off(w, e->d_name, n_incomplete, err);
		any |= w->any;
	}
	w->any = any;
	return rc ? rc : errno ? unreadable(w, "", err) : 0;
}

/* The steps of the two kinds are counted differently: there is no telling
 * which is newer. */
static void mention_power_offs(const struct rsh_source *s)
{
	cleanup_dir DIR *dir = open_dir(s, "");
	const struct dirent *e;
	uint64_t epoch, step;
	bool complete;

	while (dir && (e = readdir(dir)))
		if (parse_power_off(e->d_name, &epoch, &step, &complete) &&
		    complete)
			rsh_log_notice("%s/%s does not count beside the "
				       "directories of ranks; it can be "
				       "mounted by itself", s->path, e->d_name);
}

/* SOURCE may be called ".", end in '/' or be a link. */
static int refuse_incomplete(const struct rsh_source *s, struct rsh_error *err)
{
	cleanup_free char *real = realpath(s->path, NULL);
	const char *path = real ? real : s->path;
	const char *slash = strrchr(path, '/');
	uint64_t epoch, step;
	bool complete;

	if (!parse_power_off(slash ? slash + 1 : path, &epoch, &step,
			     &complete) || complete)
		return 0;
	return rsh_error_set(err, EINVAL, "%s: this save was not completed",
			     path);
}

static int list_usual(struct walk *w, struct rsh_error *err)
{
	const struct rsh_source *s = w->source;
	unsigned n_incomplete = 0;
	int rc = refuse_incomplete(s, err);

	if (rc == 0)
		rc = walk_default(w, "", err);
	if (rc == 0 && w->any)
		mention_power_offs(s);
	else if (rc == 0 && s->select != RSH_SELECT_MINDSPORE)
		rc = walk_power_offs(w, &n_incomplete, err);
	if (rc || w->any)
		return rc;
	if (n_incomplete)
		return rsh_error_set(err, ENOENT, "%s: no save in it was "
				     "completed", s->path);
	return rsh_error_set(err, ENOENT, "%s: no rank_N directory in it",
			     s->path);
}

/* ---- what the user describes ---- */

static int list_described(struct walk *w, const struct rsh_source_options *opts,
			  struct rsh_error *err)
{
	const char *slash = opts->file ? strrchr(opts->file, '/') : NULL;
	const char *rank_dir = opts->rank_dir, *file;
	cleanup_free char *dirs = NULL;
	int rc;

	if (slash)
		w->file = slash + 1;
	if (!rank_dir && !slash)
		return list_usual(w, err);
	file = w->file ? w->file : "*.ckpt or *.safetensors";
	if (asprintf(&dirs, "%s/%.*s", rank_dir ? rank_dir : "",
		     slash ? (int)(slash - opts->file) : 0,
		     slash ? opts->file : "") < 0)
		return rsh_error_nomem(err);
	rc = walk(w, "", dirs, RSH_RANK_UNKNOWN, err);
	if (rc || w->any)
		return rc;
	return rsh_error_set(err, ENOENT, "%s: nothing in it is named %s%s%s",
			     w->source->path, dirs + strspn(dirs, "/"),
			     dirs[strspn(dirs, "/")] ? "/" : "", file);
}

/* Paths are relative to the map itself. */
static char *mapped_path(const char *map, const char *path)
{
	const char *slash = strrchr(map, '/');
	cleanup_free char *dir = NULL, *real = NULL;
	char *joined;

	if (*path == '/')
		return strdup(path);
	dir = slash ? strndup(map, (size_t)(slash - map) + 1) : strdup(".");
	if (!dir)
		return NULL;
	/* Absolute, because the working directory changes. */
	real = realpath(dir, NULL);
	if (asprintf(&joined, "%s/%s", real ? real : dir, path) < 0)
		return NULL;
	return joined;
}

static int load_map(const char *map, struct rsh_source_map **out,
		    struct rsh_error *err)
{
	cleanup_free uint8_t *data = NULL;
	size_t len;
	int rc = rsh_load_whole(map, SOURCE_MAP_BYTES_MAX, "map of files",
				&data, &len, err);

	return rc ? rc : rsh_source_map_parse(data, len, map, out, err);
}

int rsh_source_map_each(const char *map,
			void (*fn)(void *ctx, const char *path), void *ctx,
			struct rsh_error *err)
{
	struct rsh_source_map *m;
	int rc = load_map(map, &m, err);

	if (rc)
		return rc;
	for (uint32_t i = 0; i < m->n && rc == 0; i++) {
		cleanup_free char *path = mapped_path(map, m->entries[i].path);

		if (path)
			fn(ctx, path);
		else
			rc = rsh_error_nomem(err);
	}
	rsh_source_map_free(m);
	return rc;
}

static int list_map(struct walk *w, const char *map, struct rsh_error *err)
{
	struct rsh_source_map *m;
	int rc = load_map(map, &m, err);

	if (rc)
		return rc;
	for (uint32_t i = 0; i < m->n && rc == 0; i++) {
		struct rsh_checkpoint c = { .rank = m->entries[i].rank };

		c.name = mapped_path(map, m->entries[i].path);
		if (add_found(w, &c))
			rc = rsh_error_nomem(err);
	}
	rsh_source_map_free(m);
	return rc;
}

/* ---- all of it ---- */

/* One rank may have a directory for each power-off save, but not two beside
 * each other. */
static int check_dirs(const struct rsh_source *s, struct rsh_error *err)
{
	const struct rsh_listing *l = &s->listing;

	for (size_t i = 1; i < l->n_dirs; i++) {
		const char *a = l->dirs[i - 1].name, *b = l->dirs[i].name;
		const char *a_base = strrchr(a, '/'), *b_base = strrchr(b, '/');
		size_t n = a_base ? (size_t)(a_base - a) : 0;

		if (l->dirs[i].rank != l->dirs[i - 1].rank ||
		    n != (b_base ? (size_t)(b_base - b) : 0) ||
		    strncmp(a, b, n) != 0)
			continue;
		return rsh_error_set(err, EINVAL, "%s: rank %u twice: %s and "
				     "%s", s->path, l->dirs[i].rank, a, b);
	}
	return 0;
}

/* Whoever says what files are named expects to find some. */
static int check_named(const struct walk *w, struct rsh_error *err)
{
	if (!w->file || w->named)
		return 0;
	return rsh_error_set(err, ENOENT, "%s: no rank has a file named %s",
			     w->source->path, w->file);
}

int rsh_listing_make(struct rsh_source *s, uint32_t first, uint32_t n,
		     const struct rsh_source_options *opts,
		     struct rsh_error *err)
{
	struct walk w = {
		.source = s, .first = first, .n = n,
		.file = opts->file,
	};
	int rc;

	if (opts->source_map)
		return list_map(&w, opts->source_map, err);
	rc = list_described(&w, opts, err);
	if (rc == 0)
		rc = check_named(&w, err);
	if (rc)
		return rc;
	if (s->listing.n_dirs > 0)
		qsort(s->listing.dirs, s->listing.n_dirs,
		      sizeof(*s->listing.dirs), by_rank);
	return check_dirs(s, err);
}

void rsh_listing_clear(struct rsh_listing *l)
{
	for (size_t i = 0; i < l->n; i++)
		rsh_checkpoint_clear(&l->files[i]);
	for (size_t i = 0; i < l->n_dirs; i++)
		free(l->dirs[i].name);
	for (size_t i = 0; i < l->n_beyond; i++)
		rsh_checkpoint_clear(&l->beyond[i]);
	free(l->beyond);
	free(l->files);
	free(l->dirs);
}
