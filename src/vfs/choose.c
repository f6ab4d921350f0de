/* vfs/choose.c - trying one candidate of the source after the other until one
 * gives a whole conversion. */
#include "config.h"

#include "vfs_i.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/log.h"

/* The sentence of a plan that cannot be made names a file of SOURCE, or else
 * speaks of SOURCE as a whole without knowing its name. */
static void name_source(const struct rsh_vfs_config *cfg,
			struct rsh_error *err)
{
	if (strncmp(err->text, cfg->source, strlen(cfg->source)) != 0)
		rsh_error_prefix(err, "%s", cfg->source);
}

/* What is missing may have been there and been left out. */
static void name_bad_files(const struct rsh_source *s, struct rsh_error *err)
{
	const struct rsh_error plan = *err;
	char more[64] = "";
	const char *first;
	uint32_t n = rsh_source_n_bad(s, &first);

	if (n > 1)
		snprintf(more, sizeof(more), " (and %u other files are bad)",
			 n - 1);
	if (n > 0)
		rsh_error_set(err, plan.code, "%s%s; %s", first, more,
			      plan.text);
}

static void report_lost(void *ctx, const char *sentence)
{
	const struct rsh_vfs_config *cfg = ctx;

	rsh_log_warning("%s: %s", cfg->source, sentence);
}

static int plan(struct rsh_reshard *v, const struct rsh_vfs_config *cfg,
		bool allow_missing, struct rsh_error *err)
{
	struct rsh_vfs_config told = *cfg;
	const struct rsh_conversion_options opts = {
		.compat = cfg->compat,
		.replicas = cfg->replicas,
		.allow_missing = allow_missing,
		.copies = cfg->dst_ranks,
		.report_lost = report_lost,
		.ctx = &told,
	};
	struct rsh_source_view view;
	const char *note;
	int rc;

	rsh_source_view(v->source, v->names, &view);
	rc = rsh_conversion_new(v->src, v->dst, &view, &opts, &v->conversion,
				err);
	if (rc) {
		name_source(cfg, err);
		name_bad_files(v->source, err);
		return rc;
	}
	for (uint32_t i = 0; (note = rsh_conversion_note(v->conversion, i));
	     i++)
		rsh_log_warning("%s: %s", cfg->source, note);
	return 0;
}

/* *fatal: no other candidate is to be tried. */
static int try_candidate(struct rsh_reshard *v, const struct rsh_vfs_config *cfg,
			 uint32_t i, bool allow_missing, bool *fatal,
			 struct rsh_error *err)
{
	int rc = rsh_source_choose(v->source, i, err);

	*fatal = true;
	if (rc == 0)
		rc = rsh_source_index(v->source, v->names, err);
	if (rc)
		return rc;
	rc = plan(v, cfg, allow_missing, err);
	*fatal = rc == -ENOMEM;
	return rc;
}

/* ---- what was tried in vain ---- */

struct failures {
	char text[RSH_ERROR_TEXT_MAX];
	size_t length;
	size_t share; /* characters of each that fit the message */
	uint32_t n;
};

static void add_failure(struct failures *f, const char *which,
			const struct rsh_error *err)
{
	size_t room = sizeof(f->text) - f->length;
	int n = snprintf(f->text + f->length, room, "; %s: %.*s%s", which,
			 (int)f->share, err->text,
			 strlen(err->text) > f->share ? "..." : "");

	f->length += (size_t)n < room ? (size_t)n : room - 1;
	f->n++;
}

static int try_whole(struct rsh_reshard *v, const struct rsh_vfs_config *cfg,
		     uint32_t n, struct failures *f, bool *fatal,
		     struct rsh_error *err)
{
	char which[256];
	int rc = -ENOENT;

	for (uint32_t i = 0; i < n; i++) {
		rc = try_candidate(v, cfg, i, false, fatal, err);
		if (rc == 0 || *fatal)
			return rc;
		rsh_source_candidate_text(v->source, i, which, sizeof(which));
		rsh_log_warning("%s: %s cannot be taken: %s", cfg->source,
				which, err->text);
		add_failure(f, which, err);
	}
	return rc;
}

static int try_parts(struct rsh_reshard *v, const struct rsh_vfs_config *cfg,
		     uint32_t n, struct rsh_error *err)
{
	int rc = -ENOENT;
	bool fatal = false;

	for (uint32_t i = 0; i < n && rc && !fatal; i++)
		rc = try_candidate(v, cfg, i, true, &fatal, err);
	return rc;
}

static int try_several(struct rsh_reshard *v, const struct rsh_vfs_config *cfg,
		       uint32_t n, struct rsh_error *err)
{
	struct failures f = { .share = n < 16 ? 1792 / n - 64 : 48 };
	uint32_t all = rsh_source_n_candidates(v->source);
	char untried[64] = "";
	bool fatal = false;
	int rc = try_whole(v, cfg, n, &f, &fatal, err);

	if (rc && !fatal && cfg->allow_missing)
		rc = try_parts(v, cfg, n, err);
	if (rc == 0 || fatal)
		return rc;
	if (all > n)
		snprintf(untried, sizeof(untried), " (%u older not tried)",
			 all - n);
	return rsh_error_set(err, -rc, "%s: no checkpoint that can be mounted; "
			     "tried %u%s%s", cfg->source, f.n, untried, f.text);
}

int rsh_vfs_choose(struct rsh_reshard *v, const struct rsh_vfs_config *cfg,
		   struct rsh_error *err)
{
	uint32_t n = rsh_source_n_candidates(v->source);
	bool fatal;
	int rc;

	if (n == 1) {
		rc = try_candidate(v, cfg, 0, cfg->allow_missing, &fatal, err);
	} else {
		if (n - 1 > cfg->fallbacks)
			n = cfg->fallbacks + 1;
		rc = try_several(v, cfg, n, err);
	}
	if (rc == 0)
		rsh_source_log_choice(v->source);
	return rc;
}
