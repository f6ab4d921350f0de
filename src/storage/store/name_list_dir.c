/* SPDX-License-Identifier: Apache-2.0 */
/* storage/store/name_list_dir.c makes directories of a list of names. */
#include "config.h"

#include "name_list_dir_i.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "rsh/util/mem.h"
#include "rsh/util/text.h"

struct list_dir {
	struct rsh_dir base;
	const struct rsh_name_list *flat;
	char *prefix;  /* what its names begin with; "" or with a slash at the
			* end */
	size_t at;     /* the next file */
	char *given;   /* the name that was given last */
};

/* Finds the first file whose name does not come before that one. */
static size_t list_lower_bound(const struct rsh_name_list *f, const char *name)
{
	return rsh_first(i, f->n, strcmp(f->files[i].name, name) < 0);
}

const struct rsh_name_list_file *
rsh_name_list_find(const struct rsh_name_list *f, const char *name)
{
	const size_t i = list_lower_bound(f, name);

	return i < f->n && strcmp(f->files[i].name, name) == 0 ?
	       &f->files[i] : NULL;
}

/* Makes what the names in a directory begin with (from malloc). */
static char *list_prefix(const char *name)
{
	if (!*name || strcmp(name, ".") == 0)
		return strdup("");
	return rsh_text_format("%s/", name);
}

static bool list_begins_with(const struct rsh_name_list *f, size_t i,
			     const char *prefix)
{
	return i < f->n &&
	       strncmp(f->files[i].name, prefix, strlen(prefix)) == 0;
}

void rsh_name_list_stat(const struct rsh_name_list *f,
			const struct rsh_name_list_file *file,
			struct rsh_stat *out)
{
	*out = (struct rsh_stat){
		.kind = RSH_IS_FILE, .size = file->size,
		.attr = { .mode = S_IRUSR, .uid = f->uid, .gid = f->gid,
			  .mtime = file->mtime, .ctime = file->mtime },
	};
}

int rsh_name_list_look(const struct rsh_name_list *f, const char *name,
		       struct rsh_stat *out)
{
	const struct rsh_name_list_file *file = rsh_name_list_find(f, name);
	cleanup_free char *prefix = list_prefix(name);

	if (!prefix)
		return -ENOMEM;
	if (file) {
		rsh_name_list_stat(f, file, out);
		return 0;
	}
	*out = (struct rsh_stat){
		.kind = RSH_IS_DIR,
		.attr = { .mode = S_IRUSR | S_IXUSR, .uid = f->uid,
			  .gid = f->gid },
	};
	return !*prefix ||
	       list_begins_with(f, list_lower_bound(f, prefix), prefix) ?
	       0 : -ENOENT;
}

/* ---- listing ---- */

int rsh_name_list_list(const struct rsh_name_list *f, const char *name,
		       struct rsh_dir **out)
{
	struct list_dir *d;
	struct rsh_stat st;
	int rc = rsh_name_list_look(f, name, &st);

	if (rc || st.kind != RSH_IS_DIR)
		return rc ?: -ENOTDIR;
	d = calloc(1, sizeof(*d));
	if (!d)
		return -ENOMEM;
	d->flat = f;
	d->prefix = list_prefix(name);
	if (!d->prefix) {
		free(d);
		return -ENOMEM;
	}
	d->at = list_lower_bound(f, d->prefix);
	*out = &d->base;
	return 0;
}

int rsh_name_list_dir_next(struct rsh_dir *dir, const char **name)
{
	struct list_dir *d = (struct list_dir *)dir;
	const struct rsh_name_list *f = d->flat;
	const char *rest;
	size_t n;

	free(d->given);
	d->given = NULL;
	if (!list_begins_with(f, d->at, d->prefix))
		return 0;
	rest = f->files[d->at].name + strlen(d->prefix);
	n = strcspn(rest, "/");
	/* What lies in a directory below stands together. */
	do {
		d->at++;
	} while (rest[n] && list_begins_with(f, d->at, d->prefix) &&
		 strncmp(f->files[d->at].name + strlen(d->prefix), rest,
			 n + 1) == 0);
	*name = d->given = strndup(rest, n);
	return d->given ? 1 : -ENOMEM;
}

int rsh_name_list_dir_look(struct rsh_dir *dir, const char *name,
			   struct rsh_stat *out)
{
	const struct list_dir *d = (const struct list_dir *)dir;
	cleanup_free char *path = rsh_text_format("%s%s", d->prefix, name);

	if (!path)
		return -ENOMEM;
	return rsh_name_list_look(d->flat, path, out);
}

void rsh_name_list_dir_close(struct rsh_dir *dir)
{
	struct list_dir *d = (struct list_dir *)dir;

	free(d->given);
	free(d->prefix);
	free(d);
}
