/* SPDX-License-Identifier: Apache-2.0 */
/* util/error.c formats the sentence of a failure into its bounded text and
 * cuts what is too long. */
#include "rsh/util/error.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "rsh/util/checked.h"

/* Formats into text[RSH_ERROR_TEXT_MAX] and ends what does not fit in "...". */
static void format_cut(char *text, const char *fmt, va_list ap)
	__attribute__((format(printf, 2, 0)));

static void format_cut(char *text, const char *fmt, va_list ap)
{
	int n = vsnprintf(text, RSH_ERROR_TEXT_MAX, fmt, ap);

	if (n < 0)
		strcpy(text, "(message could not be formatted)");
	else if (n >= RSH_ERROR_TEXT_MAX)
		strcpy(text + RSH_ERROR_TEXT_MAX - 4, "...");
}

int rsh_error_vset(struct rsh_error *err, int code, const char *fmt, va_list ap)
{
	char text[RSH_ERROR_TEXT_MAX];

	if (!err)
		return -code;
	/* A second buffer is needed, since an argument may be err->text. */
	format_cut(text, fmt, ap);
	strcpy(err->text, text);
	err->code = code;
	return -code;
}

int rsh_error_set(struct rsh_error *err, int code, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	rsh_error_vset(err, code, fmt, ap);
	va_end(ap);
	return -code;
}

void rsh_error_prefix(struct rsh_error *err, const char *fmt, ...)
{
	char text[RSH_ERROR_TEXT_MAX];
	va_list ap;

	if (!err)
		return;
	va_start(ap, fmt);
	format_cut(text, fmt, ap);
	va_end(ap);
	rsh_error_set(err, err->code, "%s: %s", text, err->text);
}

void rsh_error_place(struct rsh_error *err, const char *path)
{
	const size_t n = strlen(path);

	/* Another name, or a word, may begin as the path does. */
	if (strncmp(err->text, path, n) != 0 ||
	    (!strchr(":/,", err->text[n]) && !(n && path[n - 1] == '/')))
		rsh_error_prefix(err, "%s", path);
}

static _Thread_local struct rsh_error kept;

void rsh_error_keep(const struct rsh_error *why)
{
	rsh_error_set(&kept, why->code, "%s", why->text);
}

bool rsh_error_kept(struct rsh_error *err, int code, const char *path)
{
	const size_t n = strlen(path);

	if (!code || kept.code != code || strncmp(kept.text, path, n) != 0 ||
	    kept.text[n] != ':')
		return false;
	rsh_error_set(err, code, "%s", kept.text);
	return true;
}

int rsh_error_file(struct rsh_error *err, int code, const char *path)
{
	if (rsh_error_kept(err, code, path))
		return -code;
	return rsh_error_set(err, code, "%s: %s", path, strerror(code));
}

int rsh_error_nomem(struct rsh_error *err)
{
	return rsh_error_set(err, ENOMEM, "out of memory");
}

/* Whatever is not known to come from a parser or from a missing file counts as
 * unread: an error is better than an older step. */
bool rsh_errno_is_unread(int code)
{
	return code != 0 &&
	       /* it is absent */
	       !rsh_is_one(code, ENOENT, ENOTDIR, EISDIR, ELOOP, ENAMETOOLONG,
			   /* it is being written */
			   EAGAIN, EREMCHG,
			   /* it is damaged, or is not what is read here */
			   EBADMSG, EINVAL, ENOTSUP, EFBIG, EDOM, ENOSYS,
			   ERANGE, EOVERFLOW, EILSEQ);
}
