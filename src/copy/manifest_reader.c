/* SPDX-License-Identifier: Apache-2.0 */
/* copy/manifest_reader.c reads manifests of any length line by line, and finds
 * the line of a file. */
#include "config.h"

#include "copy_i.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rsh/util/files.h"
#include "rsh/util/mem.h"

/* ---- lines ---- */

#define READ_BYTES ((size_t)256 * 1024)

void rsh_lines_init(struct rsh_lines *l, int fd, const char *path)
{
	*l = (struct rsh_lines){ .fd = fd, .path = path };
}

void rsh_lines_clear(struct rsh_lines *l)
{
	free(l->buf);
	l->buf = NULL;
}

/* Removes the lines that were given from the buffer, and reads more bytes. */
static int read_more(struct rsh_lines *l, struct rsh_error *err)
{
	ssize_t n;

	if (l->at) {
		memmove(l->buf, l->buf + l->at, l->len - l->at);
		l->offset += l->at;
		l->len -= l->at;
		l->at = 0;
	}
	if (l->len > RSH_MANIFEST_LINE_MAX)
		return rsh_error_set(err, EBADMSG,
			"%s: line %llu is too long for a manifest", l->path,
				     (unsigned long long)l->number + 1);
	if (rsh_grow(&l->buf, &l->cap, l->len + READ_BYTES, 1))
		return rsh_error_nomem(err);
	n = rsh_pread_all(l->fd, l->buf + l->len, READ_BYTES,
			  l->offset + l->len);
	if (n < 0)
		return rsh_error_file(err, (int)-n, l->path);
	l->ended = n == 0;
	l->len += (size_t)n;
	return 0;
}

int rsh_lines_next(struct rsh_lines *l, const char **text, size_t *len,
		   struct rsh_error *err)
{
	size_t looked = 0;

	for (;;) {
		size_t have = l->len - l->at;
		const char *end = have > looked ?
			memchr(l->buf + l->at + looked, '\n', have - looked) :
			NULL;

		if (!end && !l->ended) {
			int rc = read_more(l, err);

			if (rc)
				return rc;
			looked = have;
			continue;
		}
		if (!end && have == 0)
			return 0;
		*text = l->buf + l->at;
		*len = end ? (size_t)(end - *text) : have;
		l->begin = l->offset + l->at;
		l->at += *len + (end != NULL);
		l->number++;
		if (*len)
			return 1;
		looked = 0;
	}
}

/* ---- the index of a manifest ---- */

struct reading {
	struct rsh_manifest_index *index;
	struct rsh_lines lines;
	bool began, ended;
	uint64_t announced; /* number of files in the last line */
};

static int bad_line(const struct reading *r, const char *what,
		    struct rsh_error *err)
{
	return rsh_error_set(err, EBADMSG, "%s: %s", r->index->path, what);
}

static int take_line(struct reading *r, const struct rsh_manifest_line *line,
		     size_t len, struct rsh_error *err)
{
	struct rsh_manifest_index *x = r->index;

	if (r->ended)
		return bad_line(r, "it has lines after its end", err);
	if (r->began != (line->kind != RSH_MANIFEST_HEAD))
		return bad_line(r, "its head is not its first line", err);
	switch (line->kind) {
	case RSH_MANIFEST_HEAD:
		r->began = true;
		x->conversion = line->head.conversion;
		x->n_of = line->head.n_files;
		break;
	case RSH_MANIFEST_SOURCE:
		break;
	case RSH_MANIFEST_FILE:
		if (rsh_room(x->entries, x->cap, x->n + 1))
			return rsh_error_nomem(err);
		x->entries[x->n] = (struct rsh_manifest_entry){
			.path = strdup(line->file.path),
			.offset = r->lines.begin, .len = len,
			.size = line->file.size,
		};
		return x->entries[x->n++].path ? 0 : rsh_error_nomem(err);
	case RSH_MANIFEST_END:
		r->ended = true;
		r->announced = line->n_files;
		break;
	}
	return 0;
}

static int read_lines(struct reading *r, struct rsh_error *err)
{
	struct rsh_manifest_line line;
	const char *text;
	size_t len;
	int rc;

	while ((rc = rsh_lines_next(&r->lines, &text, &len, err)) > 0) {
		rc = rsh_manifest_parse(text, len, r->index->path,
					r->lines.number, &line, err);
		if (rc == -EBADMSG && !r->began)
			return bad_line(
				r,
				"not a reshardfs manifest, which export writes",
				err);
		if (rc)
			return rc;
		rc = take_line(r, &line, len, err);
		rsh_manifest_line_clear(&line);
		if (rc)
			return rc;
	}
	if (rc == 0 && (!r->ended || r->announced != r->index->n))
		rc = bad_line(r, r->began ? "it ends too early: the export "
					    "was not finished" :
			      "empty, and not a reshardfs manifest", err);
	return rc;
}

RSH_ORDER(entry_by_path, struct rsh_manifest_entry *const,
	  strcmp((*x)->path, (*y)->path))

int rsh_open_regular(const char *dir, const char *name, int *out,
		     uint64_t *size)
{
	cleanup_fd int at = dir ? open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC) :
				  -1;
	/* The file is opened without blocking, since it may be a named pipe. */
	cleanup_fd int fd = -1;
	struct stat st;

	if (dir && at < 0)
		return -errno;
	fd = openat(dir ? at : AT_FDCWD, name,
		    O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) != 0)
		return -errno;
	if (S_ISDIR(st.st_mode))
		return -EISDIR;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	*size = (uint64_t)st.st_size;
	*out = steal_fd(&fd);
	return 0;
}

int rsh_manifest_index_open(struct rsh_manifest_index *x, const char *path,
			    struct rsh_error *err)
{
	uint64_t size;
	int fd, rc;

	*x = (struct rsh_manifest_index){ .path = path, .fd = -1 };
	rc = rsh_open_regular(NULL, path, &fd, &size);
	return rc ? rsh_error_file(err, -rc, path) :
		    rsh_manifest_index_read(x, fd, path, err);
}

int rsh_manifest_index_read(struct rsh_manifest_index *x, int fd,
			    const char *path, struct rsh_error *err)
{
	struct reading r = { .index = x };
	int rc;

	*x = (struct rsh_manifest_index){ .path = path, .fd = fd };
	rsh_lines_init(&r.lines, x->fd, path);
	rc = read_lines(&r, err);
	rsh_lines_clear(&r.lines);
	if (rc)
		return rc;
	x->by_path = rsh_alloc_array(x->n, sizeof(*x->by_path));
	if (!x->by_path)
		return rsh_error_nomem(err);
	for (size_t i = 0; i < x->n; i++)
		x->by_path[i] = &x->entries[i];
	rsh_sort(x->by_path, x->n, entry_by_path);
	for (size_t i = 1; i < x->n; i++)
		if (strcmp(x->by_path[i]->path, x->by_path[i - 1]->path) == 0)
			return rsh_error_set(err, EBADMSG, "%s: %s is there "
					     "twice", x->path,
					     x->by_path[i]->path);
	return 0;
}

void rsh_manifest_index_clear(struct rsh_manifest_index *x)
{
	for (size_t i = 0; i < x->n; i++)
		free(x->entries[i].path);
	free(x->entries);
	free(x->by_path);
	if (x->fd >= 0)
		close(x->fd);
	*x = (struct rsh_manifest_index){ .fd = -1 };
}

const struct rsh_manifest_entry *
rsh_manifest_index_find(const struct rsh_manifest_index *x, const char *path)
{
	const struct rsh_manifest_entry wanted = {
		.path = (char *)(uintptr_t)path
	};
	const struct rsh_manifest_entry *key = &wanted;
	const struct rsh_manifest_entry **found =
		rsh_find(&key, x->by_path, x->n, entry_by_path);

	return found ? *found : NULL;
}

int rsh_manifest_index_get(const struct rsh_manifest_index *x,
			   const struct rsh_manifest_entry *e,
			   struct rsh_manifest_line *out, struct rsh_error *err)
{
	cleanup_free char *text = malloc(e->len);
	ssize_t n;
	int rc;

	if (!text)
		return rsh_error_nomem(err);
	n = rsh_pread_all(x->fd, text, e->len, e->offset);
	if (n < 0 || (size_t)n < e->len)
		return rsh_error_set(err, n < 0 ? (int)-n : EIO, "%s: it "
				     "changes while it is read", x->path);
	rc = rsh_manifest_parse(text, e->len, x->path, 0, out, err);
	if (rc == 0 && (out->kind != RSH_MANIFEST_FILE ||
			strcmp(out->file.path, e->path) != 0)) {
		rsh_manifest_line_clear(out);
		rc = rsh_error_set(err, EIO, "%s: it changes while it is read",
				   x->path);
	}
	return rc;
}
