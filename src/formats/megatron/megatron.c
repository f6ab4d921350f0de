/* SPDX-License-Identifier: Apache-2.0 */
/* formats/megatron/megatron.c finds, checks and shows steps of Megatron-LM:
 * *.pt in iter_<step>/mp_rank_<t>[_<p>], and latest_checkpointed_iteration.txt,
 * which contains the newest step.
 *
 * An iteration is complete if it has every mp_rank that any iteration has,
 * because nothing else gives their number. */
#include "config.h"

#include "rsh/formats/formats.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/formats/steps.h"
#include "rsh/formats/torch.h"
#include "rsh/source/resume.h"
#include "rsh/util/files.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"

static const char megatron_iteration[] = "iter_";
static const char megatron_mp_rank[] = "mp_rank_";
static const char megatron_suffix[] = ".pt";

struct megatron_dir {
	struct rsh_step_name name; /* name of the iteration */
	const char *path;          /* path of the mp_rank */
	uint32_t unit;
};

static bool megatron_is(const char *name, const char *prefix)
{
	return strncmp(name, prefix, strlen(prefix)) == 0;
}

static int megatron_found_file(struct rsh_finder *f, void *ctx,
			       const char *name, const struct rsh_stat *st,
			       struct rsh_error *err)
{
	const struct megatron_dir *d = ctx;

	if (!rsh_has_suffix(name, megatron_suffix))
		return 0;
	return rsh_finder_add(f, d->unit, d->path, name, &d->name, st) ?
	       rsh_error_nomem(err) : 0;
}

static int megatron_found_mp_rank(struct rsh_finder *f, void *ctx,
				  const char *name, const struct rsh_stat *st,
				  struct rsh_error *err)
{
	struct megatron_dir *d = ctx;
	cleanup_free char *path = NULL;

	(void)st;
	if (!megatron_is(name, megatron_mp_rank))
		return 0;
	path = rsh_text_format("%s/%s", d->name.label, name);
	if (!path || rsh_finder_unit(f, name, &d->unit))
		return rsh_error_nomem(err);
	d->path = path;
	return rsh_finder_each(f, path, RSH_IS_FILE, megatron_found_file, d,
			       err);
}

static int megatron_found_iteration(struct rsh_finder *f, void *ctx,
				    const char *name, const struct rsh_stat *st,
				    struct rsh_error *err)
{
	const char *digits = name + strlen(megatron_iteration);
	struct megatron_dir d = { .path = "" };

	(void)ctx, (void)st;
	if (!megatron_is(name, megatron_iteration) ||
	    !rsh_number_read(digits, strlen(digits), &d.name.step.numbers[0]))
		return 0;
	d.name.step.n = 1;
	strcpy(d.name.series, megatron_iteration);
	strcpy(d.name.label, name);
	return rsh_finder_each(f, name, RSH_IS_DIR, megatron_found_mp_rank, &d,
			       err);
}

static int megatron_find(struct rsh_finder *f, struct rsh_error *err)
{
	return rsh_finder_each(f, "", RSH_IS_DIR, megatron_found_iteration,
			       NULL, err);
}

static bool megatron_has(const struct rsh_saved *s, const char *name)
{
	for (size_t i = 0; i < s->n; i++)
		if (strcmp(s->names[i], name) == 0)
			return true;
	return false;
}

/* The optimizer's file is written after the model's.  If an mp_rank lacks a
 * file that another mp_rank has, it was not finished. */
static int megatron_agree(const char *source, const struct rsh_saved *saved,
			  size_t n, struct rsh_error *err)
{
	for (size_t i = 0; i < n; i++)
		for (size_t f = 0; f < saved[i].n; f++)
			for (size_t k = 0; k < n; k++)
				if (!megatron_has(&saved[k], saved[i].names[f]))
					return rsh_error_set(err, EBADMSG,
						"%s/%s has no %s, which %s has",
						source, saved[k].dir,
						saved[i].names[f],
						saved[i].dir);
	return 0;
}

static int megatron_check(const struct rsh_byte_source *files,
			  const char *const *names, size_t n, bool full,
			  struct rsh_error *err)
{
	bool unsummed;
	int rc = 0;

	(void)names;
	for (size_t i = 0; i < n && rc == 0; i++) {
		rc = rsh_torch_check(&files[i], full, &unsummed, err);
		if (unsummed)
			rsh_step_say_unsummed(files[i].path);
	}
	return rc;
}

static int megatron_show(struct rsh_resume *r, const struct rsh_saved *saved,
			 size_t n)
{
	return rsh_step_dirs_show(r, saved, n, true);
}

static const struct rsh_resume_format megatron_resume = {
	.name = "Megatron-LM",
	.find = megatron_find,
	.check = megatron_check,
	.agree = megatron_agree,
	.show = megatron_show,
};

/* This format is only shown with --resume. */
const struct rsh_format rsh_megatron_format = {
	.name = "megatron",
	.says = "checkpoint of Megatron-LM",
	.bid = rsh_no_bid,
	.resume = &megatron_resume,
};
