/* SPDX-License-Identifier: Apache-2.0 */
/* source/failures.c records why candidates could not be used. */
#include "config.h"

#include "rsh/source/failures.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/log.h"
#include "rsh/util/mem.h"

int rsh_failures_init(struct rsh_failures *f, const char *source, uint32_t n)
{
	*f = (struct rsh_failures){
		.source = source,
		.share = n < 16 ? 1792 / n - 64 : 48,
		.v = rsh_alloc_array(n, sizeof(*f->v)),
	};
	return f->v ? 0 : -ENOMEM;
}

void rsh_failures_clear(struct rsh_failures *f)
{
	for (uint32_t i = 0; i < f->n; i++) {
		free(f->v[i].which);
		free(f->v[i].why);
	}
	free(f->v);
}

int rsh_failures_add(struct rsh_failures *f, const char *which,
		     const char *who, const struct rsh_error *err)
{
	const size_t n = strlen(f->source), room = sizeof(f->text) - f->length;
	struct rsh_failure new = { .which = strdup(which) };
	const char *why = err->text;
	size_t more;

	/* A sentence about SOURCE as a whole begins with its path, which the
	 * log line already has. */
	if (strncmp(why, f->source, n) == 0 && strncmp(why + n, ": ", 2) == 0)
		why += n + 2;
	if (!new.which || asprintf(&new.why, "%s%s%s", who ? who : "",
				   who ? "; " : "", why) < 0) {
		free(new.which);
		return -ENOMEM;
	}
	f->v[f->n++] = new;
	rsh_log_info("%s: %s cannot be used: %s", f->source, which, err->text);
	more = (size_t)snprintf(f->text + f->length, room, "; %s: %.*s%s",
				which, (int)f->share, err->text,
				strlen(err->text) > f->share ? "..." : "");
	f->length += more < room ? more : room - 1;
	return 0;
}

void rsh_failures_log(const struct rsh_failures *f, uint32_t n,
		      const char *taken)
{
	for (uint32_t i = 0; i < f->n && i < n; i++)
		rsh_log_warning("%s: %s cannot be used, using %s instead: %s",
				f->source, f->v[i].which, taken, f->v[i].why);
}

int rsh_failures_unread(const char *source, const char *which,
			const struct rsh_error *why, struct rsh_error *err)
{
	return rsh_error_set(err, why->code, "%s: %s cannot be read now: %s: "
			     "try again, or select another step "
			     "(--select name=GLOB)", source, which, why->text);
}

int rsh_failures_none(const struct rsh_failures *f, uint32_t n_all, int code,
		      const char *what, struct rsh_error *err)
{
	char untried[64] = "";

	if (n_all > f->n)
		snprintf(untried, sizeof(untried), " (%u older not tried)",
			 n_all - f->n);
	return rsh_error_set(err, code, "%s: %s; tried %u%s%s", f->source,
			     what, f->n, untried, f->text);
}
