/* SPDX-License-Identifier: Apache-2.0 */
/* source/resume_show.c makes the entries of a step in the mount: its files, the
 * links "latest", and the file by which a framework finds the newest step. */
#include "config.h"

#include "resume_i.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "rsh/util/mem.h"
#include "rsh/wire/checkpoint2.h"

#define LATEST "latest"

static char *show_printf(struct rsh_resume *r, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

static char *show_printf(struct rsh_resume *r, const char *fmt, ...)
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

/* Adds an entry below `dir` of the mount.  A link or text has the times of the
 * first file of s. */
static int show_entry(struct rsh_resume *r, const char *dir, const char *name,
		      enum rsh_resume_kind kind, uint32_t file,
		      const char *text)
{
	const struct rsh_resume_entry e = {
		.kind = kind, .text = text, .file = file,
		.name = show_printf(r, "%s%s%s", dir, *dir ? "/" : "", name),
		.size = kind != RSH_RESUME_FILE ? 0 :
			(uint64_t)rsh_store_identity(r->source->store,
						     file)->size,
	};

	if (!e.name || (kind != RSH_RESUME_FILE && !text) ||
	    rsh_grow(&r->entries, &r->cap_entries, r->n_entries + 1,
		     sizeof(*r->entries)))
		return -ENOMEM;
	r->entries[r->n_entries++] = e;
	return 0;
}

static int show_files(struct rsh_resume *r, const struct rsh_saved *s,
		      const char *dir)
{
	int rc = 0;

	for (size_t i = 0; i < s->n && rc == 0; i++)
		rc = show_entry(r, dir, s->names[i], RSH_RESUME_FILE,
				s->first_file + (uint32_t)i, NULL);
	return rc;
}

/* Shows a link beside each file.  A file of the job may have that name
 * itself. */
static int show_links(struct rsh_resume *r, const struct rsh_saved *s)
{
	int rc = 0;

	for (size_t i = 0; i < s->n && rc == 0; i++) {
		struct rsh_step_name says = { .step = { .n = 0 } };
		char name[NAME_MAX + sizeof(LATEST)];

		r->source->format->part(s->names[i], &says);
		snprintf(name, sizeof(name), LATEST "%s",
			 s->names[i] + says.n_stem);
		if (strcmp(name, s->names[i]) != 0)
			rc = show_entry(r, s->unit, name, RSH_RESUME_LINK,
					s->first_file, s->names[i]);
	}
	return rc;
}

/* Shows the file "checkpoint" of TensorFlow, a protobuf as text. */
static int show_checkpoint(struct rsh_resume *r, const struct rsh_saved *s)
{
	char quoted[2 * NAME_MAX + 1], *to = quoted;

	for (const char *c = s->label; *c; c++) {
		if (*c == '"' || *c == '\\')
			*to++ = '\\';
		*to++ = *c;
	}
	*to = '\0';
	return show_entry(r, s->unit, "checkpoint", RSH_RESUME_TEXT,
			  s->first_file, show_printf(
				  r, "model_checkpoint_path: \"%s\"\n"
				  "all_model_checkpoint_paths: \"%s\"\n",
				  quoted, quoted));
}

/* Shows the directory of a step, a link to it, and the file that Megatron and
 * its successors read to find it; that one ends without a newline. */
static int show_dirs(struct rsh_resume *r)
{
	const char *tracked = r->source->format->tracked;
	const struct rsh_saved *first = r->saved;
	int rc = 0;

	for (size_t i = 0; i < r->n_saved && rc == 0; i++)
		rc = show_files(r, &r->saved[i], r->saved[i].dir);
	if (rc == 0)
		rc = show_entry(r, "", LATEST, RSH_RESUME_LINK,
				first->first_file, first->label);
	if (rc || strncmp(first->label, tracked, strlen(tracked)) != 0)
		return rc;
	return show_entry(r, "", RSH_CKPT2_TRACKER, RSH_RESUME_TEXT,
			  first->first_file,
			  show_printf(r, "%" PRIu64, first->step->numbers[0]));
}

int rsh_resume_show(struct rsh_resume *r)
{
	const struct rsh_format *f = r->source->format;
	int rc = 0;

	if (f->step_dirs)
		return show_dirs(r);
	for (size_t i = 0; i < r->n_saved && rc == 0; i++) {
		const struct rsh_saved *s = &r->saved[i];

		rc = show_files(r, s, s->unit) ?: show_links(r, s);
		if (rc == 0 && f->tracked)
			rc = show_checkpoint(r, s);
	}
	return rc;
}
