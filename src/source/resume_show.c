/* SPDX-License-Identifier: Apache-2.0 */
/* source/resume_show.c makes the entries of a step in the mount. */
#include "config.h"

#include "resume_i.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "rsh/util/mem.h"

char *rsh_resume_printf(struct rsh_resume *r, const char *fmt, ...)
{
	cleanup_free char *text = NULL;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vasprintf(&text, fmt, ap);
	va_end(ap);
	if (n < 0) {
		text = NULL;
		return NULL;
	}
	return rsh_arena_strndup(&r->arena, text, (size_t)n);
}

static int show_entry(struct rsh_resume *r, const char *dir, const char *name,
		      const struct rsh_resume_entry *what)
{
	struct rsh_resume_entry e = *what;

	e.name = rsh_resume_printf(r, "%s%s%s", dir, *dir ? "/" : "", name);
	if (!e.name || rsh_grow(&r->entries, &r->cap_entries, r->n_entries + 1,
				sizeof(*r->entries)))
		return -ENOMEM;
	if (e.kind == RSH_RESUME_FILE)
		e.size = (uint64_t)rsh_store_identity(r->source->store,
							e.file)->size;
	r->entries[r->n_entries++] = e;
	return 0;
}

int rsh_resume_show_text(struct rsh_resume *r, const struct rsh_saved *s,
			 const char *dir, const char *name, const char *text)
{
	const struct rsh_resume_entry e = { .kind = RSH_RESUME_TEXT,
					    .text = text,
					    .file = s->first_file };

	return text ? show_entry(r, dir, name, &e) : -ENOMEM;
}

int rsh_resume_show_link(struct rsh_resume *r, const struct rsh_saved *s,
			 const char *dir, const char *name, const char *target)
{
	const struct rsh_resume_entry e = { .kind = RSH_RESUME_LINK,
					    .text = target,
					    .file = s->first_file };

	return name && target ? show_entry(r, dir, name, &e) : -ENOMEM;
}

int rsh_resume_show_files(struct rsh_resume *r, const struct rsh_saved *s,
			  const char *dir)
{
	int rc = 0;

	for (size_t i = 0; i < s->n && rc == 0; i++) {
		const struct rsh_resume_entry e = {
			.kind = RSH_RESUME_FILE,
			.file = s->first_file + (uint32_t)i,
		};

		rc = show_entry(r, dir, s->names[i], &e);
	}
	return rc;
}

int rsh_resume_show_each(struct rsh_resume *r, const struct rsh_saved *saved,
			 size_t n, const char *(*suffix)(const char *name))
{
	int rc = 0;

	for (size_t i = 0; i < n && rc == 0; i++) {
		const struct rsh_saved *s = &saved[i];
		const char *link = rsh_resume_printf(r, "latest%s",
						     suffix(s->label));

		rc = rsh_resume_show_files(r, s, s->unit);
		/* A file of the job may have that name itself. */
		if (rc == 0 && link && strcmp(link, s->label) == 0)
			continue;
		if (rc == 0)
			rc = rsh_resume_show_link(r, s, s->unit, link,
						  s->label);
	}
	return rc;
}
