/* SPDX-License-Identifier: Apache-2.0 */
/* source/resume_show.c - the entries that stand for a step. */
#include "config.h"

#include "resume_i.h"

#include <errno.h>
#include <string.h>

#include "rsh/util/mem.h"

static int add_entry(struct rsh_resume *r, enum rsh_resume_kind kind,
		     const char *dir, const char *name, const char *text,
		     uint32_t file)
{
	struct rsh_resume_entry e = { .kind = kind, .text = text,
				      .file = file };

	e.name = rsh_job_printf(&r->job, "%s%s%s", dir, *dir ? "/" : "", name);
	if (!e.name || rsh_grow(&r->entries, &r->cap_entries, r->n_entries + 1,
				sizeof(*r->entries)))
		return -ENOMEM;
	if (kind == RSH_RESUME_FILE)
		e.size = (uint64_t)rsh_store_identity(r->source->store,
							file)->size;
	r->entries[r->n_entries++] = e;
	return 0;
}

int rsh_show_text(struct rsh_resume *r, const struct rsh_saved *s,
		  const char *dir, const char *name, const char *text)
{
	return text ? add_entry(r, RSH_RESUME_TEXT, dir, name, text,
				s->first_file) : -ENOMEM;
}

int rsh_show_link(struct rsh_resume *r, const struct rsh_saved *s,
		  const char *dir, const char *name, const char *target)
{
	return name && target ? add_entry(r, RSH_RESUME_LINK, dir, name,
					  target, s->first_file) : -ENOMEM;
}

int rsh_show_files(struct rsh_resume *r, const struct rsh_saved *s,
		   const char *dir)
{
	int rc = 0;

	for (size_t i = 0; i < s->n_files && rc == 0; i++)
		rc = add_entry(r, RSH_RESUME_FILE, dir, s->files[i], NULL,
			       s->first_file + (uint32_t)i);
	return rc;
}

int rsh_show_one_file_each(struct rsh_resume *r, const struct rsh_saved *step,
			   size_t n, const char *(*suffix)(const char *name))
{
	int rc = 0;

	for (size_t i = 0; i < n && rc == 0; i++) {
		const struct rsh_saved *s = &step[i];
		const char *dir = r->job.units[s->unit].name;
		const char *link = rsh_job_printf(&r->job, "latest%s",
						  suffix(s->name));

		rc = rsh_show_files(r, s, dir);
		/* It may be what the job calls its newest file itself. */
		if (rc == 0 && link && strcmp(link, s->name) == 0)
			continue;
		if (rc == 0)
			rc = rsh_show_link(r, s, dir, link, s->name);
	}
	return rc;
}
