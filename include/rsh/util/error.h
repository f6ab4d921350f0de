/* SPDX-License-Identifier: Apache-2.0 */
/* util/error.h - the sentence that explains a failure.
 *
 * Load paths return 0 or -errno and, besides, fill one of these with a sentence
 * for the user: it names the file, the parameter and the offset where they are
 * known.  The object is a plain value with a bounded text, so that reporting a
 * failure cannot fail.  It has no lock: one thread at a time uses an object.
 * Names are not escaped in it; the code that shows the sentence escapes it
 * (text.h).
 */
#pragma once

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>

#define RSH_ERROR_TEXT_MAX 2048

struct rsh_error {
	int code;                      /* positive errno; 0: no failure */
	char text[RSH_ERROR_TEXT_MAX]; /* has no newline at the end; a longer
					* text is cut and ends in "..." */
};

#define RSH_ERROR_INIT { 0, "" }

/* Sets code and text (printf style) and returns -code, so that a caller can
 * write `return rsh_error_set(err, EINVAL, ...)`.  `err` may be NULL: then
 * only the code is returned.  A second call replaces the first sentence. */
int rsh_error_set(struct rsh_error *err, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
int rsh_error_vset(struct rsh_error *err, int code, const char *fmt, va_list ap)
	__attribute__((format(printf, 3, 0)));

/* Prepends "<text>: " to the sentence; `err` may be NULL. */
void rsh_error_prefix(struct rsh_error *err, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* Prepends "<path>: " unless the sentence is about the path, or about something
 * below it, already. */
void rsh_error_place(struct rsh_error *err, const char *path);

/* Sets "<path>: <text of the errno>" and returns -code; `err` may be NULL.  If
 * the calling thread has kept a sentence with that code about that path, sets
 * this sentence instead. */
int rsh_error_file(struct rsh_error *err, int code, const char *path);

/* A read returns only a number, so its caller cannot say why a server refused
 * it.  Keeps the sentence for rsh_error_kept() of the calling thread, in place
 * of the one before; it begins with the path and ": ". */
void rsh_error_keep(const struct rsh_error *why);
/* Sets *err to the sentence that is kept, if it has that code and is about that
 * path, and returns whether it did. */
bool rsh_error_kept(struct rsh_error *err, int code, const char *path);

/* Sets the sentence for out of memory and returns -ENOMEM; `err` may be
 * NULL. */
int rsh_error_nomem(struct rsh_error *err);

/* Returns whether an error that a file was opened, read or parsed with means
 * that its storage refuses or does not answer now, so that nothing is known of
 * the file.  Otherwise the file is absent, is being written (EAGAIN), or its
 * bytes were read and are damaged.  `code` is a positive errno. */
bool rsh_errno_is_unread(int code);
/* Returns whether an error says that nothing is at a path. */
static inline bool rsh_errno_is_absent(int code)
{
	return code == ENOENT || code == ENOTDIR;
}
