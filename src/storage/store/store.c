/* SPDX-License-Identifier: Apache-2.0 */
/* storage/store/store.c keeps a store from opening to closing: its directory,
 * and the files that are added to it. */
#include "config.h"

#include "store_i.h"

#include <stdlib.h>
#include <string.h>

#include "rsh/storage/objects.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"

/* ---- the directory ---- */

static int medium_open(const char *path, const struct rsh_store_options *opts,
		       struct rsh_medium **out, struct rsh_error *err)
{
	if (opts->medium)
		return opts->medium(path, opts, out, err);
	return rsh_objects_is_url(path) ?
	       rsh_objects_medium(path, opts, out, err) :
	       rsh_files_open(path, opts, out, err);
}

static int store_open_medium(struct rsh_store *s, struct rsh_error *err)
{
	int rc = medium_open(s->path, &s->opts, &s->medium, err);

	if (rc || !s->medium->path)
		return rc;
	free(s->path);
	s->path = strdup(s->medium->path);
	return s->path ? 0 : rsh_error_nomem(err);
}

bool rsh_store_is_address(const char *path)
{
	return rsh_objects_is_url(path);
}

unsigned rsh_store_far(const char *path, const struct rsh_store_options *o)
{
	if (!rsh_objects_is_url(path))
		return 0;
	return o->objects && o->objects->requests ? o->objects->requests :
						    RSH_OBJECTS_REQUESTS;
}

int rsh_store_open(const char *path, const struct rsh_store_options *opts,
		   struct rsh_store **out, struct rsh_error *err)
{
	struct rsh_store *s = calloc(1, sizeof(*s));
	int rc;
	size_t n;

	if (!s)
		return rsh_error_nomem(err);
	s->opts = *opts;
	n = strlen(path);
	while (n > 1 && path[n - 1] == '/' && !rsh_objects_is_url(path))
		n--;
	s->path = strndup(path, n);
	if (!s->path || rsh_pool_init(&s->pool) ||
	    rsh_outage_init(&s->outage)) {
		free(s->path);
		free(s);
		return rsh_error_nomem(err);
	}
	rc = store_open_medium(s, err);
	if (rc) {
		rsh_store_free(s);
		return rc;
	}
	*out = s;
	return 0;
}

void rsh_store_free(struct rsh_store *s)
{
	if (!s)
		return;
	if (!rsh_store_clear(s)) {
		rsh_store_io_keep(s->opts.io);
		return;
	}
	pthread_mutex_destroy(&s->pool.lock);
	rsh_outage_destroy(&s->outage);
	while (s->n_joined > 0) {
		const struct rsh_joined *j = &s->joined[--s->n_joined];

		j->medium->ops->free(j->medium);
		free(j->directory);
	}
	free(s->joined);
	rsh_opens_free(s->opens);
	if (s->medium)
		s->medium->ops->free(s->medium);
	free(s->path);
	free(s);
}

int rsh_store_join(struct rsh_store *s, const char *directory,
		   struct rsh_error *err)
{
	const bool is_address = rsh_objects_is_url(directory);
	struct rsh_store_options opts = s->opts;
	struct rsh_joined j = { 0 };
	int rc;

	/* A file system has all absolute paths. */
	if (!is_address && s->medium->ops->descriptor)
		return 0;
	opts.single = false;
	opts.place = NULL;
	if (rsh_room(s->joined, s->cap_joined, (size_t)s->n_joined + 1))
		return rsh_error_nomem(err);
	rc = medium_open(directory, &opts, &j.medium, err);
	if (rc)
		return rc;
	j.directory = strdup(directory);
	if (!j.directory) {
		j.medium->ops->free(j.medium);
		return rsh_error_nomem(err);
	}
	s->joined[s->n_joined++] = j;
	return 0;
}

const char *rsh_store_root(const struct rsh_store *s)
{
	return s->path;
}

const char *rsh_store_single(const struct rsh_store *s)
{
	return s->medium->single;
}

int rsh_store_dirfd(const struct rsh_store *s)
{
	return s->medium->dirfd;
}

const struct rsh_store_identity *
rsh_store_root_identity(const struct rsh_store *s)
{
	return &s->medium->root;
}

void rsh_store_root_attr(const struct rsh_store *s, struct rsh_store_attr *out)
{
	*out = s->medium->attr;
}

bool rsh_store_is_remote(const struct rsh_store *s)
{
	return s->medium->is_remote;
}

bool rsh_store_is_stacked(const struct rsh_store *s)
{
	return s->medium->is_stacked;
}

/* ---- anything below it ---- */

int rsh_store_look(const struct rsh_store *s, const char *name,
		   struct rsh_stat *out)
{
	struct rsh_medium *m = rsh_store_medium(s, &name);

	return m->ops->look(m, name, out);
}

int rsh_store_has(const struct rsh_store *s, const char *name,
		  struct rsh_error *err)
{
	struct rsh_stat st;
	int rc = rsh_store_look(s, name, &st);

	return rsh_errno_is_unread(-rc) ?
	       rsh_store_open_error(s, name, rc, err) : rc == 0;
}

int rsh_dir_open(const struct rsh_store *s, const char *name,
		 struct rsh_dir **out)
{
	*out = NULL;
	return s->medium->ops->list(s->medium, name, out);
}

int rsh_dir_open_path(const char *path, const struct rsh_store_options *how,
		      struct rsh_dir **out)
{
	struct rsh_error unused = RSH_ERROR_INIT;
	struct rsh_medium *m;
	int rc = medium_open(path, how, &m, &unused);

	if (rc)
		return rc;
	rc = m->ops->list(m, "", out);
	if (rc)
		m->ops->free(m);
	else
		(*out)->owned = m;
	return rc;
}

void rsh_dir_close(struct rsh_dir *d)
{
	struct rsh_medium *owned = d ? d->owned : NULL;

	if (d)
		d->ops->dir_close(d);
	if (owned)
		owned->ops->free(owned);
}

int rsh_dir_next(struct rsh_dir *d, const char **name)
{
	return d->ops->dir_next(d, name);
}

int rsh_dir_look(struct rsh_dir *d, const char *name, struct rsh_stat *out)
{
	return d->ops->dir_look(d, name, out);
}

/* ---- files ---- */

/* Returns the path of a name, which may be one itself (from malloc). */
static char *store_path_of(const struct rsh_store *s, const char *name)
{
	const bool full = *name == '/' || rsh_objects_is_url(name);

	return rsh_text_format("%s%s%s", full ? "" : s->path, full ? "" : "/",
			       name);
}

int rsh_store_add(struct rsh_store *s, const struct rsh_store_entry *e)
{
	const char *name = e->name;
	struct rsh_medium *m = rsh_store_medium(s, &name);
	struct rsh_store_file *f;
	char *path = store_path_of(s, e->name);

	if (!path || rsh_room(s->files, s->cap_files, (size_t)s->n_files + 1)) {
		free(path);
		return -ENOMEM;
	}
	f = &s->files[s->n_files++];
	*f = (struct rsh_store_file){
		.path = path,
		.name = path + strlen(path) - strlen(name), .medium = m,
		.owner = e->owner, .epoch = e->epoch, .step = e->step,
		.cached = RSH_CACHE_FILE_NONE,
		.reported = ATOMIC_FLAG_INIT,
	};
	return 0;
}

int rsh_store_start(struct rsh_store *s)
{
	size_t n_owners = 1;

	for (uint32_t i = 0; i < s->n_files; i++)
		if (s->files[i].owner >= n_owners)
			n_owners = (size_t)s->files[i].owner + 1;
	s->failed = calloc(n_owners, sizeof(*s->failed));
	s->n_bad = calloc(n_owners, sizeof(*s->n_bad));
	if (!s->failed || !s->n_bad)
		return -ENOMEM;
	rsh_store_settle_files(s);
	for (uint32_t i = 0; i < s->n_joined; i++) {
		struct rsh_medium *m = s->joined[i].medium;

		if (m->ops->start)
			m->ops->start(m);
	}
	return 0;
}

bool rsh_store_clear(struct rsh_store *s)
{
	if (!rsh_outage_stop(s))
		return false;
	rsh_outage_reset(s);
	s->kind = NULL;
	for (uint32_t i = 0; i < s->n_files; i++) {
		rsh_handle_close(s->files[i].open);
		free(s->files[i].path);
	}
	s->pool.n_open = 0;
	TAILQ_INIT(&s->pool.idle);
	free(s->files);
	free(s->failed);
	free(s->n_bad);
	s->files = NULL;
	s->failed = NULL;
	s->n_bad = NULL;
	s->n_files = 0;
	s->cap_files = 0;
	return true;
}

const char *rsh_store_name(const struct rsh_store *s, uint32_t file)
{
	return s->files[file].name;
}

const char *rsh_store_path(const struct rsh_store *s, uint32_t file)
{
	return s->files[file].path;
}

const struct rsh_store_identity *rsh_store_identity(const struct rsh_store *s,
						    uint32_t file)
{
	return &s->files[file].id;
}

const struct rsh_store_attr *rsh_store_attr(const struct rsh_store *s,
					    uint32_t file)
{
	return &s->files[file].attr;
}

/* ---- small files, read whole ---- */

/* `path` is for messages. */
static int load_open(struct rsh_handle *h, const char *path,
		     const struct rsh_small_file *kind, uint8_t **out,
		     size_t *len, struct rsh_error *err)
{
	cleanup_free uint8_t *data = NULL;
	struct rsh_stat st;
	ssize_t n = rsh_handle_look(h, &st);

	if (n)
		return rsh_error_file(err, (int)-n, path);
	if (st.kind != RSH_IS_FILE)
		return rsh_error_set(err, EINVAL, "%s: not a regular file",
				     path);
	if (st.size > kind->max)
		return rsh_error_set(err, EFBIG, "%s: too large for a %s", path,
				     kind->what);
	data = rsh_alloc_array((size_t)st.size + 1, 1);
	if (!data)
		return rsh_error_nomem(err);
	for (*len = 0; *len < st.size; *len += (size_t)n) {
		n = rsh_handle_pread(h, data + *len, (size_t)st.size - *len,
				     *len);
		if (n < 0)
			return rsh_error_file(err, (int)-n, path);
		if (n == 0)
			break;
	}
	*out = steal_pointer(&data);
	return 0;
}

int rsh_load_whole(const char *path, const struct rsh_small_file *kind,
		   uint8_t **out, size_t *len, struct rsh_error *err)
{
	cleanup_handle struct rsh_handle *h = NULL;
	int rc = rsh_handle_open_path(path, &h);

	if (rc)
		return rsh_error_set(err, -rc, "%s %s: %s", kind->what, path,
				     strerror(-rc));
	return load_open(h, path, kind, out, len, err);
}

int rsh_store_load(const struct rsh_store *s, const char *name,
		   const struct rsh_small_file *kind, uint8_t **out,
		   size_t *len, struct rsh_error *err)
{
	cleanup_handle struct rsh_handle *h = NULL;
	cleanup_free char *path = NULL;
	int rc = kind->aside ? rsh_handle_open_aside(s, name, &h) :
			       rsh_handle_open(s, name, &h);

	if (rc)
		return rsh_store_open_error(s, name, rc, err);
	path = store_path_of(s, name);
	if (!path)
		return rsh_error_nomem(err);
	return load_open(h, path, kind, out, len, err);
}
