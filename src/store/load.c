/* SPDX-License-Identifier: Apache-2.0 */
/* store/load.c reads small files whole. */
#include "config.h"

#include "store_i.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "rsh/util/mem.h"

static int load_failed(int rc, const char *path, struct rsh_error *err)
{
	return rsh_error_set(err, -rc, "%s: %s", path, strerror(-rc));
}

static int load_bytes(struct rsh_handle *h, const char *path, uint8_t *buf,
		      size_t size, size_t *got, struct rsh_error *err)
{
	*got = 0;
	while (*got < size) {
		ssize_t n = rsh_handle_pread(h, buf + *got, size - *got, *got);

		if (n < 0)
			return load_failed((int)n, path, err);
		if (n == 0)
			break;
		*got += (size_t)n;
	}
	return 0;
}

/* `path` is for messages. */
struct loading {
	struct rsh_handle *handle;
	const char *path, *what;
	uint64_t max;
};

static int load_open(const struct loading *l, uint8_t **out, size_t *len,
		     struct rsh_error *err)
{
	cleanup_free uint8_t *data = NULL;
	struct rsh_stat st;
	int rc = rsh_handle_look(l->handle, &st);

	if (rc)
		return load_failed(rc, l->path, err);
	if (st.kind != RSH_IS_FILE)
		return rsh_error_set(err, EINVAL, "%s: not a regular file",
				     l->path);
	if (st.size > l->max)
		return rsh_error_set(err, EFBIG, "%s: too large for a %s",
				     l->path, l->what);
	data = rsh_alloc_array((size_t)st.size + 1, 1);
	if (!data)
		return rsh_error_nomem(err);
	rc = load_bytes(l->handle, l->path, data, (size_t)st.size, len, err);
	if (rc == 0)
		*out = steal_pointer(&data);
	return rc;
}

int rsh_load_whole(const char *path, uint64_t max, const char *what,
		   uint8_t **out, size_t *len, struct rsh_error *err)
{
	cleanup_handle struct rsh_handle *h = NULL;
	int rc = rsh_handle_open_path(path, &h);

	if (rc)
		return rsh_error_set(err, -rc, "%s %s: %s", what, path,
				     strerror(-rc));
	return load_open(&(struct loading){ h, path, what, max }, out, len,
			 err);
}

int rsh_store_load(const struct rsh_store *s, const char *name, uint64_t max,
		   const char *what, uint8_t **out, size_t *len,
		   struct rsh_error *err)
{
	cleanup_handle struct rsh_handle *h = NULL;
	cleanup_free char *path = NULL;
	int rc = rsh_handle_open(s, name, &h);

	if (rc)
		return rsh_store_open_error(s, name, rc, err);
	if (asprintf(&path, "%s/%s", s->path, name) < 0) {
		path = NULL;
		return rsh_error_nomem(err);
	}
	return load_open(&(struct loading){ h, path, what, max }, out, len,
			 err);
}
