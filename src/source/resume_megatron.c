/* SPDX-License-Identifier: Apache-2.0 */
/* source/resume_megatron.c - Megatron-LM: *.pt in
 * iter_<step>/mp_rank_<t>[_<p>], and latest_checkpointed_iteration.txt that
 * holds the newest step.
 *
 * An iteration is complete if it has every mp_rank that any iteration has; how
 * many there must be stands nowhere else. */
#include "config.h"

#include "resume_i.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/wire/intact.h"

static const char iteration_prefix[] = "iter_";
static const char mp_rank_prefix[] = "mp_rank_";
static const char suffix[] = ".pt";

static bool has_prefix(const char *name, const char *prefix)
{
	return strncmp(name, prefix, strlen(prefix)) == 0;
}

static bool parse_iteration(const char *name, uint64_t *out)
{
	const char *digits = name + strlen(iteration_prefix);

	if (!has_prefix(name, iteration_prefix) || !*digits ||
	    digits[strspn(digits, "0123456789")])
		return false;
	errno = 0;
	*out = strtoull(digits, NULL, 10);
	return errno == 0;
}

static int found_file(struct rsh_job *job, void *ctx, const char *name,
		      const struct stat *st, struct rsh_error *err)
{
	if (!rsh_has_suffix(name, suffix))
		return 0;
	return rsh_job_add(job, ctx, name, st) ? rsh_error_nomem(err) : 0;
}

static int found_mp_rank(struct rsh_job *job, void *ctx, const char *name,
			 const struct stat *st, struct rsh_error *err)
{
	struct rsh_saved s = *(const struct rsh_saved *)ctx;

	(void)st;
	if (!has_prefix(name, mp_rank_prefix))
		return 0;
	s.dir = rsh_job_printf(job, "%s/%s", s.name, name);
	if (!s.dir || rsh_job_unit(job, name, &s.unit))
		return rsh_error_nomem(err);
	return rsh_each_in_dir(job, s.dir, S_IFREG, found_file, &s, err);
}

static int found_iteration(struct rsh_job *job, void *ctx, const char *name,
			   const struct stat *st, struct rsh_error *err)
{
	struct rsh_saved s = { .series = iteration_prefix, .n_numbers = 1 };

	(void)ctx, (void)st;
	if (!parse_iteration(name, &s.numbers[0]))
		return 0;
	s.name = rsh_arena_strndup(&job->arena, name, strlen(name));
	if (!s.name)
		return rsh_error_nomem(err);
	return rsh_each_in_dir(job, name, S_IFDIR, found_mp_rank, &s, err);
}

static int find(struct rsh_job *job, struct rsh_error *err)
{
	return rsh_each_in_dir(job, "", S_IFDIR, found_iteration, NULL, err);
}

static bool has_file(const struct rsh_saved *s, const char *name)
{
	for (size_t i = 0; i < s->n_files; i++)
		if (strcmp(s->files[i], name) == 0)
			return true;
	return false;
}

/* The optimizer's file is written after the model's: an mp_rank that lacks a
 * file that another one has was not finished. */
static int agree(const struct rsh_job *job, const struct rsh_saved *step,
		 size_t n, struct rsh_error *err)
{
	for (size_t i = 0; i < n; i++)
		for (size_t f = 0; f < step[i].n_files; f++)
			for (size_t k = 0; k < n; k++)
				if (!has_file(&step[k], step[i].files[f]))
					return rsh_error_set(err, EBADMSG,
						"%s/%s has no %s, which %s has",
						job->tree->path, step[k].dir,
						step[i].files[f], step[i].dir);
	return 0;
}

static int check(const struct rsh_byte_source *files, const char *const *names,
		 size_t n, bool full, struct rsh_error *err)
{
	int rc = 0;

	(void)names;
	for (size_t i = 0; i < n && rc == 0; i++)
		rc = rsh_torch_check(&files[i], full, err);
	return rc;
}

static int show(struct rsh_resume *r, const struct rsh_saved *step, size_t n)
{
	int rc = 0;

	for (size_t i = 0; i < n && rc == 0; i++)
		rc = rsh_show_files(r, &step[i], step[i].dir);
	if (rc == 0)
		rc = rsh_show_link(r, &step[0], "", "latest", step[0].name);
	/* As Megatron writes it: without a newline. */
	if (rc == 0)
		rc = rsh_show_text(r, &step[0], "",
				   "latest_checkpointed_iteration.txt",
				   rsh_job_printf(&r->job, "%" PRIu64,
						  step[0].numbers[0]));
	return rc;
}

const struct rsh_resume_format rsh_resume_megatron = {
	.name = "Megatron-LM",
	.find = find,
	.check = check,
	.show = show,
	.agree = agree,
};
