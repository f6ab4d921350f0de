/* SPDX-License-Identifier: Apache-2.0 */
/* storage/store/opened.c keeps which files were opened by their names, and in
 * which state they were. */
#include "config.h"

#include "store_i.h"

#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/clock.h"
#include "rsh/util/mem.h"

int rsh_store_keep_opened(struct rsh_store *s)
{
	struct rsh_opens *o = calloc(1, sizeof(*o));

	if (!o || pthread_mutex_init(&o->lock, NULL)) {
		free(o);
		return -ENOMEM;
	}
	s->opens = o;
	return 0;
}

/* ---- adding ---- */

RSH_ORDER(opened_by_name, struct rsh_opened,
	  strcmp(x->name, y->name) ?:
	  rsh_compare_u64(x->id.which[0], y->id.which[0]) ?:
	  rsh_compare_u64(x->id.which[1], y->id.which[1]) ?:
	  rsh_compare_u64(x->id.size, y->id.size) ?:
	  rsh_clock_compare(&x->id.mtime, &y->id.mtime) ?:
	  rsh_clock_compare(&x->id.ctime, &y->id.ctime))

static void opened_free(struct rsh_opened *one)
{
	free(one->name);
	free(one);
}

/* One file may be opened for each of its values. */
static int opens_take(struct rsh_opens *o, struct rsh_opened *one)
{
	struct rsh_opened **found = tsearch(one, &o->tree, opened_by_name);

	if (!found)
		return -ENOMEM;
	if (*found != one) {
		opened_free(one);
		return 0;
	}
	if (rsh_push(o->v, o->n, o->cap, one) == 0)
		return 0;
	tdelete(one, &o->tree, opened_by_name);
	return -ENOMEM;
}

int rsh_opens_add(struct rsh_opens *o, const char *name,
		  const struct rsh_store_identity *id)
{
	struct rsh_opened *one = malloc(sizeof(*one));
	int rc;

	if (!one)
		return -ENOMEM;
	*one = (struct rsh_opened){ strdup(name), *id };
	pthread_mutex_lock(&o->lock);
	rc = one->name ? opens_take(o, one) : -ENOMEM;
	pthread_mutex_unlock(&o->lock);
	if (rc)
		opened_free(one);
	return rc;
}

static void opens_forget(struct rsh_opens *o, size_t n)
{
	while (o->n > n) {
		struct rsh_opened *one = o->v[--o->n];

		tdelete(one, &o->tree, opened_by_name);
		opened_free(one);
	}
}

void rsh_opens_free(struct rsh_opens *o)
{
	if (!o)
		return;
	opens_forget(o, 0);
	free(o->v);
	pthread_mutex_destroy(&o->lock);
	free(o);
}

size_t rsh_store_n_opened(const struct rsh_store *s)
{
	return s->opens ? s->opens->n : 0;
}

void rsh_store_forget_opened(struct rsh_store *s, size_t n)
{
	if (s->opens)
		opens_forget(s->opens, n);
}

/* ---- listing ---- */

/* Lists the names of the store's files below its directory. */
static const char **names_of_files(const struct rsh_store *s)
{
	const char **names = rsh_alloc_array(s->n_files, sizeof(*names));
	const size_t n = strlen(s->path);

	for (uint32_t i = 0; names && i < s->n_files; i++) {
		const char *path = s->files[i].path;

		names[i] = strncmp(path, s->path, n) == 0 && path[n] == '/' ?
			   path + n + 1 : path;
	}
	if (names)
		rsh_sort(names, s->n_files, rsh_by_text);
	return names;
}

int rsh_store_opened(const struct rsh_store *s, struct rsh_opened **out,
		     size_t *n)
{
	const size_t all = rsh_store_n_opened(s);
	cleanup_free const char **files = names_of_files(s);

	*n = 0;
	*out = rsh_alloc_array(all, sizeof(**out));
	if (!*out || !files)
		return -ENOMEM;
	for (size_t i = 0; i < all; i++) {
		const struct rsh_opened *one = s->opens->v[i];

		if (!rsh_find(&one->name, files, s->n_files, rsh_by_text))
			(*out)[(*n)++] = *one;
	}
	rsh_sort(*out, *n, opened_by_name);
	return 0;
}
