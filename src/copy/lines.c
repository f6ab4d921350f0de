/* SPDX-License-Identifier: Apache-2.0 */
/* copy/lines.c reads a file line by line, however long it is. */
#include "config.h"

#include "copy_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rsh/util/mem.h"

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

/* Drops what was given out and reads on. */
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
		return rsh_error_set(err, EBADMSG, "%s: line %llu is longer "
				     "than lines of a manifest are", l->path,
				     (unsigned long long)l->number + 1);
	if (rsh_grow(&l->buf, &l->cap, l->len + READ_BYTES, 1))
		return rsh_error_nomem(err);
	do {
		n = pread(l->fd, l->buf + l->len, READ_BYTES,
			  (off_t)(l->offset + l->len));
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return rsh_error_set(err, errno, "%s: %s", l->path,
				     strerror(errno));
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
