/* SPDX-License-Identifier: Apache-2.0 */
/* source/resume_mindspore.c - .ckpt and .safetensors of MindSpore.
 *
 * ModelCheckpoint writes <prefix>-<epoch>_<step>.<suffix>, and <prefix>_<K>-...
 * in the K-th run that found files of the same prefix; prefixes often hold the
 * rank number as well (net_rank_3-5_10.ckpt). */
#include "config.h"

#include "resume_i.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/log.h"
#include "rsh/wire/format.h"
#include "rsh/wire/intact.h"

static const char ckpt[] = ".ckpt";
static const char safetensors[] = ".safetensors";
static const char breakpoint[] = "_breakpoint";

static const char *suffix(const char *name)
{
	return rsh_has_suffix(name, ckpt) ? ckpt : safetensors;
}

/* Moves *end before the number that ends there; false if none does. */
static bool number_before(const char *s, size_t *end, uint64_t *out)
{
	size_t start = *end;

	while (start > 0 && isdigit((unsigned char)s[start - 1]))
		start--;
	if (start == *end)
		return false;
	errno = 0;
	*out = strtoull(s + start, NULL, 10);
	*end = start;
	return errno == 0;
}

static bool char_before(const char *s, size_t *end, char c)
{
	return *end > 0 && s[*end - 1] == c && (*end)--;
}

/* -<epoch>_<step> at the end of the stem. */
static bool take_step(const char *name, size_t *end, struct rsh_saved *out)
{
	size_t at = *end;

	if (!number_before(name, &at, &out->numbers[1]) ||
	    !char_before(name, &at, '_') ||
	    !number_before(name, &at, &out->numbers[0]) ||
	    !char_before(name, &at, '-'))
		return false;
	*end = at;
	return true;
}

/* _<K> before it, if that is not the rank's number. */
static void take_run(const char *name, size_t *end, struct rsh_saved *out)
{
	size_t at = *end, rank_begin = 0, rank_end = 0;
	uint64_t run;

	rsh_rank_in_name(name, *end, &rank_begin, &rank_end);
	out->numbers[2] = 0;
	if (!number_before(name, &at, &run) || at == rank_begin ||
	    !char_before(name, &at, '_'))
		return;
	out->numbers[2] = run;
	*end = at;
}

/* Names without a step may hold the rank's number (checkpoint_3.ckpt), so all
 * numbers are left out of their series, and they have none. */
static int take_stepless(struct rsh_job *job, const char *name, size_t end,
			 struct rsh_saved *out)
{
	int rc = rsh_number_name(job, name, end, out);

	out->n_numbers = 0;
	return rc;
}

static int parse(struct rsh_job *job, const char *file, struct rsh_saved *out)
{
	size_t end, begin_rank, end_rank;
	int rc;

	if (!rsh_has_suffix(file, ckpt) && !rsh_has_suffix(file, safetensors))
		return 0;
	end = rsh_stem_length(file, suffix(file));
	if (end > strlen(breakpoint) &&
	    memcmp(file + end - strlen(breakpoint), breakpoint,
		   strlen(breakpoint)) == 0) {
		out->breakpoint = true;
		end -= strlen(breakpoint);
	}
	if (take_step(file, &end, out)) {
		take_run(file, &end, out);
		out->n_numbers = 3;
		out->series = rsh_rank_in_name(file, end, &begin_rank,
					       &end_rank) ?
			rsh_job_printf(job, "%.*s#%.*s%s", (int)begin_rank,
				       file, (int)(end - end_rank),
				       file + end_rank, suffix(file)) :
			rsh_job_printf(job, "%.*s%s", (int)end, file,
				       suffix(file));
		rc = out->series ? 0 : -ENOMEM;
	} else {
		rc = take_stepless(job, file, end, out);
	}
	out->name = rsh_arena_strndup(&job->arena, file, strlen(file));
	return rc || !out->name ? -ENOMEM : 1;
}

static int check_records(const struct rsh_byte_source *file, bool is_ckpt,
			 bool full, struct rsh_error *err)
{
	struct rsh_names *table = rsh_names_new();
	struct rsh_ckpt_index *index = NULL;
	int rc;

	if (!table)
		return rsh_error_nomem(err);
	rc = rsh_format_scan(is_ckpt ? RSH_FORMAT_CKPT : RSH_FORMAT_SAFETENSORS,
			     file, full, table, &index, err);
	if (rc == 0)
		rsh_ckpt_index_free(index);
	rsh_names_free(table);
	if (rc != -ENOTSUP)
		return rc;
	/* What cannot be converted can be handed on. */
	rsh_log_notice("%s: not looked into", err->text);
	*err = (struct rsh_error)RSH_ERROR_INIT;
	return 0;
}

static int check(const struct rsh_byte_source *files, const char *const *names,
		 size_t n, bool full, struct rsh_error *err)
{
	const bool is_ckpt = rsh_has_suffix(names[0], ckpt);
	int rc = is_ckpt ? rsh_encrypted_check(files, err) : -ENOTSUP;

	(void)n;
	if (rc == -ENOTSUP)
		return check_records(files, is_ckpt, full, err);
	if (rc == 0)
		rsh_log_notice("%s: encrypted, only the lengths of its blocks "
			       "were checked", files[0].path);
	return rc;
}

static int find(struct rsh_job *job, struct rsh_error *err)
{
	return rsh_find_in_ranks(job, parse, err);
}

static int show(struct rsh_resume *r, const struct rsh_saved *step, size_t n)
{
	return rsh_show_one_file_each(r, step, n, suffix);
}

const struct rsh_resume_format rsh_resume_mindspore = {
	.name = "MindSpore",
	.find = find,
	.check = check,
	.show = show,
};
