/* SPDX-License-Identifier: Apache-2.0 */
/* store/store.c keeps a store from opening to closing: its directory, and the
 * files that are added to it. */
#include "config.h"

#include "store_i.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "rsh/util/mem.h"

/* ---- the directory ---- */

static int store_open_root(struct rsh_store *s, struct rsh_error *err)
{
	struct stat st;
	struct statfs fs;

	s->dirfd = open(s->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (s->dirfd < 0 || fstat(s->dirfd, &st) != 0)
		return rsh_error_set(err, errno, "source %s: %s", s->path,
				     strerror(errno));
	s->attr = (struct rsh_store_attr){
		.mode = st.st_mode & 07777, .uid = st.st_uid,
		.gid = st.st_gid, .mtime = st.st_mtim,
	};
	s->place = rsh_store_place(s->dirfd);
	if (fstatfs(s->dirfd, &fs) == 0)
		s->fs_type = (uint32_t)fs.f_type;
	return 0;
}

static char *without_trailing_slashes(const char *path)
{
	size_t n = strlen(path);

	while (n > 1 && path[n - 1] == '/')
		n--;
	return strndup(path, n);
}

int rsh_store_open(const char *path, const struct rsh_store_options *opts,
		   struct rsh_store **out, struct rsh_error *err)
{
	struct rsh_store *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return rsh_error_nomem(err);
	s->dirfd = -1;
	s->opts = *opts;
	s->path = without_trailing_slashes(path);
	if (!s->path || rsh_pool_init(&s->pool) ||
	    rsh_outage_init(&s->outage)) {
		free(s->path);
		free(s);
		return rsh_error_nomem(err);
	}
	rc = store_open_root(s, err);
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
	rsh_pool_destroy(&s->pool);
	rsh_outage_destroy(&s->outage);
	if (s->dirfd >= 0)
		close(s->dirfd);
	free(s->place);
	free(s->path);
	free(s);
}

const char *rsh_store_root(const struct rsh_store *s)
{
	return s->path;
}

int rsh_store_dirfd(const struct rsh_store *s)
{
	return s->dirfd;
}

void rsh_store_root_attr(const struct rsh_store *s, struct rsh_store_attr *out)
{
	*out = s->attr;
}

/* ---- files ---- */

int rsh_store_add(struct rsh_store *s, const struct rsh_store_entry *e)
{
	const bool absolute = *e->name == '/';
	struct rsh_store_file *f;
	char *path;

	if (asprintf(&path, "%s%s%s", absolute ? "" : s->path,
		     absolute ? "" : "/", e->name) < 0)
		return -ENOMEM;
	if (rsh_grow(&s->files, &s->cap_files, (size_t)s->n_files + 1,
		     sizeof(*s->files))) {
		free(path);
		return -ENOMEM;
	}
	f = &s->files[s->n_files++];
	*f = (struct rsh_store_file){
		.path = path,
		.name = path + strlen(path) - strlen(e->name),
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
	return 0;
}

bool rsh_store_clear(struct rsh_store *s)
{
	if (!rsh_outage_stop(s))
		return false;
	rsh_outage_reset(s);
	for (uint32_t i = 0; i < s->n_files; i++) {
		rsh_file_close(&s->files[i]);
		free(s->files[i].path);
	}
	rsh_pool_reset(&s->pool);
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

uint32_t rsh_store_n_files(const struct rsh_store *s)
{
	return s->n_files;
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
