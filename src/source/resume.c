/* SPDX-License-Identifier: Apache-2.0 */
/* source/resume.c - which step is shown.
 *
 * All checkpoints are sorted into groups, a group being what the units saved
 * at one step under one series of names.  The groups are tried from the newest
 * on: is there one of every unit, and is each whole? */
#include "config.h"

#include "resume_i.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rsh/util/log.h"
#include "rsh/util/mem.h"

static const struct rsh_resume_format *const formats[] = {
	&rsh_resume_mindspore, &rsh_resume_torch, &rsh_resume_tensorflow,
	&rsh_resume_megatron,
};
#define N_FORMATS (sizeof(formats) / sizeof(formats[0]))

struct group {
	struct rsh_saved *saved; /* ascending by unit */
	size_t n;
	struct timespec mtime;   /* of the newest */
	const char *reason;      /* why it is not taken, of the job's arena */
};

/* ---- groups ---- */

static int compare_u64(uint64_t a, uint64_t b)
{
	return a < b ? -1 : a > b;
}

/* Newest last; names without numbers before all that have some. */
static int compare_steps(const struct rsh_saved *a, const struct rsh_saved *b)
{
	for (unsigned i = 0; i < a->n_numbers && i < b->n_numbers; i++)
		if (a->numbers[i] != b->numbers[i])
			return compare_u64(a->numbers[i], b->numbers[i]);
	return compare_u64(a->n_numbers, b->n_numbers);
}

static int compare_groups(const struct rsh_saved *a, const struct rsh_saved *b)
{
	int d = compare_steps(b, a);

	return d ? d : strcmp(a->series, b->series);
}

static int by_group(const void *a, const void *b)
{
	const struct rsh_saved *x = a, *y = b;
	int d = compare_groups(x, y);

	if (d == 0)
		d = compare_u64(x->unit, y->unit);
	return d ? d : strcmp(x->name, y->name);
}

static int compare_times(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec != b->tv_sec ? (a->tv_sec < b->tv_sec ? -1 : 1) :
	       a->tv_nsec < b->tv_nsec ? -1 : a->tv_nsec > b->tv_nsec;
}

static int by_mtime(const void *a, const void *b)
{
	const struct group *x = a, *y = b;
	int d = compare_times(&y->mtime, &x->mtime);

	return d ? d : compare_groups(x->saved, y->saved);
}

/* Cuts the sorted list into groups; their number. */
static size_t make_groups(struct rsh_job *job, struct group *groups)
{
	size_t n = 0;

	for (size_t i = 0; i < job->n_saved; i++) {
		struct rsh_saved *s = &job->saved[i];
		struct group *g = &groups[n ? n - 1 : 0];

		if (n == 0 || compare_groups(g->saved, s) != 0) {
			g = &groups[n++];
			*g = (struct group){ .saved = s, .mtime = s->mtime };
		}
		g->n++;
		if (compare_times(&s->mtime, &g->mtime) > 0)
			g->mtime = s->mtime;
	}
	return n;
}

static bool is_step(const struct rsh_saved *s,
		    const struct rsh_source_options *o)
{
	return s->n_numbers >= 2 && s->numbers[0] == o->epoch &&
	       s->numbers[1] == o->step;
}

/* Checkpoints of a job's last moment, when it crashed, may be of different
 * steps. */
static bool is_breakpoint_out(const struct rsh_saved *s,
			      const struct rsh_source_options *o)
{
	switch (o->breakpoints) {
	case RSH_BREAKPOINTS_INCLUDE:
		return false;
	case RSH_BREAKPOINTS_ONLY:
		return !s->breakpoint;
	case RSH_BREAKPOINTS_OUT:
		break;
	}
	return s->breakpoint;
}

static bool is_left_out(const struct rsh_saved *s,
			const struct rsh_source_options *o, bool any_numbered)
{
	if (o->select == RSH_SELECT_STEP)
		return !is_step(s, o);
	/* model_best, last: names that are written anew again and again. */
	return o->select != RSH_SELECT_MTIME && s->n_numbers == 0 &&
	       any_numbered;
}

/* Of the names without a number, one is remembered that does not count. */
static void leave_out(struct rsh_job *job, const struct rsh_source_options *o)
{
	bool any_numbered = false;
	size_t kept = 0;

	for (size_t i = 0; i < job->n_saved; i++)
		any_numbered |= job->saved[i].n_numbers > 0;
	for (size_t i = 0; i < job->n_saved; i++) {
		const struct rsh_saved *s = &job->saved[i];

		if (!is_breakpoint_out(s, o) &&
		    !is_left_out(s, o, any_numbered)) {
			job->saved[kept++] = *s;
			continue;
		}
		if (!s->breakpoint && s->n_numbers == 0 &&
		    o->select != RSH_SELECT_STEP)
			job->stepless = s->name;
		free(s->files);
	}
	job->n_saved = kept;
}

/* Names with a number win where every unit has some. */
static int check_all_numbered(const struct rsh_job *job, struct rsh_error *err)
{
	cleanup_free bool *has = calloc(job->n_units + 1, sizeof(*has));

	if (!has)
		return rsh_error_nomem(err);
	for (size_t i = 0; i < job->n_saved; i++)
		has[job->saved[i].unit] = true;
	for (size_t u = 0; u < job->n_units; u++)
		if (!has[u])
			return rsh_error_set(err, EINVAL, "%s: cannot tell "
					     "which checkpoint is meant, %s or "
					     "%s, since %s has none with a step "
					     "in its name: say --select "
					     "name=GLOB or --select mtime",
					     job->tree->path,
					     job->saved->name, job->stepless,
					     job->units[u].name);
	return 0;
}

/* ---- trying a group ---- */

/* The units' checkpoints are ascending by unit, so the first one that is not
 * where it should be is missing or twice. */
static int check_units(const struct rsh_job *job, const struct group *g,
		       struct rsh_error *err)
{
	for (uint32_t u = 0; u < job->n_units; u++) {
		if (u < g->n && g->saved[u].unit == u)
			continue;
		if (u > 0 && u < g->n && g->saved[u].unit < u)
			return rsh_error_set(err, EBADMSG, "%s and %s are both "
					     "of one rank and step: say "
					     "--select name=GLOB",
					     g->saved[u - 1].name,
					     g->saved[u].name);
		return rsh_error_set(err, EBADMSG, "%s has none",
				     job->units[u].name);
	}
	return g->n == job->n_units ? 0 :
	       rsh_error_set(err, EBADMSG, "%s and %s are both of one rank and "
			     "step: say --select name=GLOB",
			     g->saved[g->n - 2].name,
			     g->saved[g->n - 1].name);
}

static int add_file(struct rsh_job *job, struct rsh_source *s,
		    const struct rsh_saved *saved, const char *name)
{
	const struct rsh_store_entry e = {
		.name = rsh_job_printf(job, "%s%s%s", saved->dir,
				       *saved->dir ? "/" : "", name),
		.owner = s->n_files,
	};

	return e.name ? rsh_source_add(s, &e) : -ENOMEM;
}

static int add_files(struct rsh_job *job, struct rsh_source *s,
		     const struct group *g)
{
	for (size_t i = 0; i < g->n; i++) {
		struct rsh_saved *saved = &g->saved[i];

		saved->first_file = s->n_files;
		for (size_t f = 0; f < saved->n_files; f++)
			if (add_file(job, s, saved, saved->files[f]))
				return -ENOMEM;
	}
	return rsh_source_number_files(s);
}

/* The open files of one unit's checkpoint. */
struct opened {
	size_t n;
	int *fds;
	struct rsh_byte_source *bytes;
};

static void close_all(struct opened *o)
{
	for (size_t i = 0; i < o->n; i++)
		if (o->fds[i] >= 0)
			close(o->fds[i]);
	free(o->fds);
	free(o->bytes);
}
#define cleanup_opened __attribute__((cleanup(close_all)))

static int open_all(struct rsh_source *s, const struct rsh_saved *saved,
		    struct opened *o, struct rsh_error *err)
{
	o->fds = rsh_alloc_array(saved->n_files, sizeof(*o->fds));
	o->bytes = rsh_alloc_array(saved->n_files, sizeof(*o->bytes));
	if (!o->fds || !o->bytes)
		return rsh_error_nomem(err);
	while (o->n < saved->n_files) {
		const uint32_t file = saved->first_file + (uint32_t)o->n;
		int rc = rsh_store_identify(s->store, file, &o->fds[o->n], err);

		if (rc)
			return rc;
		o->bytes[o->n] = (struct rsh_byte_source){
			.pread_fn = rsh_fd_pread, .ctx = &o->fds[o->n],
			.size = (uint64_t)rsh_store_identity(s->store,
							     file)->size,
			.path = rsh_store_path(s->store, file),
		};
		o->n++;
	}
	return 0;
}

static int check_saved(const struct rsh_job *job, struct rsh_source *s,
		       const struct rsh_saved *saved, struct rsh_error *err)
{
	cleanup_opened struct opened o = { 0 };
	int rc = open_all(s, saved, &o, err);

	if (rc == 0)
		rc = job->format->check(o.bytes, saved->files, o.n,
					job->full, err);
	if (rc)
		return rc;
	for (size_t i = 0; i < o.n; i++)
		if (rsh_store_compare(s->store,
				      saved->first_file + (uint32_t)i,
				      o.fds[i]))
			return rsh_error_set(err, ESTALE, "%s: it is being "
					     "written", o.bytes[i].path);
	for (size_t i = 0; i < o.n; i++)
		rsh_store_adopt(s->store, saved->first_file + (uint32_t)i,
				steal_fd(&o.fds[i]));
	return 0;
}

/* 0 and the source of the group's files, if all of them are whole. */
static int try_group(struct rsh_job *job, const struct group *g,
		     struct rsh_source **out, struct rsh_error *err)
{
	struct rsh_source *s;
	int rc = check_units(job, g, err);

	if (rc == 0 && job->format->agree)
		rc = job->format->agree(job, g->saved, g->n, err);
	if (rc == 0)
		rc = rsh_source_new(job->tree->path, job->opening, &s, err);
	if (rc)
		return rc;
	if (add_files(job, s, g))
		rc = rsh_error_nomem(err);
	for (size_t i = 0; i < g->n && rc == 0; i++)
		rc = check_saved(job, s, &g->saved[i], err);
	if (rc) {
		rsh_source_free(s);
		return rc;
	}
	*out = s;
	return 0;
}

/* ---- choosing ---- */

static bool are_complete(const struct rsh_job *job, const struct group *g)
{
	struct rsh_error unused = RSH_ERROR_INIT;

	return check_units(job, g, &unused) == 0;
}

/* Two series at one step, both of all units, and nothing says which. */
static int check_only_one(const struct rsh_job *job, const struct group *g,
			  const struct group *end, struct rsh_error *err)
{
	const struct group *next = g + 1;

	if (next == end || !g->saved->n_numbers ||
	    compare_steps(g->saved, next->saved) != 0 ||
	    !are_complete(job, g) || !are_complete(job, next))
		return 0;
	return rsh_error_set(err, EINVAL, "%s: cannot tell which checkpoint is "
			     "meant, %s or %s: say --select name=GLOB",
			     job->tree->path, g->saved->name,
			     next->saved->name);
}

/* What one sentence about a step may take of the last one, which has to hold
 * all of them; in full they are in the log, at info. */
#define REASON_MAX 300

/* How many units have it, of how many, and why that does not do: for the log,
 * once it is known what is shown instead. */
static int keep_reason(struct rsh_job *job, struct group *g,
		       const struct rsh_error *why)
{
	size_t n = 0;

	for (size_t i = 0; i < g->n; i++)
		n += i == 0 || g->saved[i].unit != g->saved[i - 1].unit;
	g->reason = rsh_job_printf(job, "%zu of %zu ranks %s it; %s", n,
				   job->n_units, n == 1 ? "has" : "have",
				   why->text);
	rsh_log_info("%s: %s is not taken: %s", job->tree->path,
		     g->saved->name, why->text);
	return g->reason ? 0 : -ENOMEM;
}

static void log_reasons(const struct rsh_job *job, const struct group *groups,
			const struct group *chosen)
{
	for (const struct group *g = groups; g < chosen; g++)
		rsh_log_warning("%s: %s is not taken, %s is instead: %s",
				job->tree->path, g->saved->name,
				chosen->saved->name, g->reason);
}

static void add_reason(struct rsh_error *all, const struct group *g,
		       const struct rsh_error *why)
{
	size_t n = strlen(all->text);

	snprintf(all->text + n, sizeof(all->text) - n, "%s%s (%.*s%s)",
		 n ? "; " : "", g->saved->name, REASON_MAX, why->text,
		 strlen(why->text) > REASON_MAX ? "..." : "");
}

static int choose(struct rsh_job *job, struct group *groups, size_t n,
		  const struct rsh_source_options *o, uint32_t fallbacks,
		  const struct group **chosen, struct rsh_source **source,
		  struct rsh_error *err)
{
	struct rsh_error tried = RSH_ERROR_INIT;

	for (size_t i = 0; i < n && i <= fallbacks; i++) {
		struct rsh_error why = RSH_ERROR_INIT;
		int rc = o->select == RSH_SELECT_MTIME ? 0 :
			 check_only_one(job, &groups[i], groups + n, err);

		if (rc)
			return rc;
		rc = try_group(job, &groups[i], source, &why);
		if (rc == 0) {
			*chosen = &groups[i];
			log_reasons(job, groups, *chosen);
			return 0;
		}
		/* No older step makes up for a link that must not be. */
		if (rc == -ENOMEM || rc == -EXDEV) {
			*err = why;
			return rc;
		}
		if (keep_reason(job, &groups[i], &why))
			return rsh_error_nomem(err);
		add_reason(&tried, &groups[i], &why);
	}
	return rsh_error_set(err, EBADMSG, "%s: no checkpoint is whole on all "
			     "ranks; tried %s", job->tree->path, tried.text);
}

static void log_choice(const struct rsh_job *job, const struct group *g,
		       size_t n_groups)
{
	cleanup_free char *beside = NULL;

	if (job->stepless &&
	    asprintf(&beside, "; %s has no step in its name and does not count "
		     "beside it: --select name=GLOB takes it",
		     job->stepless) < 0)
		beside = NULL;
	rsh_log_notice("%s: %s, %zu rank%s, taking %s%s%s%s%s",
		       job->tree->path, job->format->name, g->n,
		       g->n == 1 ? "" : "s", job->units[0].name,
		       *job->units[0].name ? "/" : "", g->saved->name,
		       n_groups > 1 ? " of several checkpoints" : "",
		       beside ? beside : "");
}

/* None of the n that there were; their names are still there. */
static int nothing_selected(const struct rsh_job *job, size_t n,
			    const struct rsh_source_options *o,
			    struct rsh_error *err)
{
	const struct rsh_saved *newest = job->saved;
	const char *hint = "";

	qsort(job->saved, n, sizeof(*job->saved), by_group);
	if (o->select == RSH_SELECT_STEP && newest->n_numbers < 2)
		hint = ", which --select name=GLOB selects";
	if (newest->breakpoint && o->breakpoints == RSH_BREAKPOINTS_OUT)
		hint = ", which counts with --breakpoint";
	return rsh_error_set(err, ENOENT, "%s: no checkpoint of the step that "
			     "--select and --breakpoint ask for; the newest is "
			     "%s%s", job->tree->path, newest->name, hint);
}

static int choose_step(struct rsh_resume *r, const struct rsh_source_options *o,
		       uint32_t fallbacks, struct rsh_error *err)
{
	struct rsh_job *job = &r->job;
	cleanup_free struct group *groups = NULL;
	const struct group *g = NULL;
	size_t n;
	int rc = 0;

	n = job->n_saved;
	leave_out(job, o);
	if (job->n_saved == 0)
		return nothing_selected(job, n, o, err);
	qsort(job->saved, job->n_saved, sizeof(*job->saved), by_group);
	if (job->stepless)
		rc = check_all_numbered(job, err);
	if (rc)
		return rc;
	groups = rsh_alloc_array(job->n_saved, sizeof(*groups));
	if (!groups)
		return rsh_error_nomem(err);
	n = make_groups(job, groups);
	if (o->select == RSH_SELECT_MTIME || groups->saved->n_numbers == 0)
		qsort(groups, n, sizeof(*groups), by_mtime);
	rc = choose(job, groups, n, o, fallbacks, &g, &r->source, err);
	if (rc)
		return rc;
	r->step = g->saved->name;
	log_choice(job, g, n);
	return job->format->show(r, g->saved, g->n) ? rsh_error_nomem(err) : 0;
}

/* ---- opening ---- */

/* A rank without any checkpoint would make the others useless. */
static int check_all_saved(const struct rsh_job *job, struct rsh_error *err)
{
	for (size_t u = 0; u < job->n_units; u++)
		if (job->units[u].n_saved == 0)
			return rsh_error_set(err, ENOENT, "%s/%s holds no "
					     "checkpoint%s%s",
					     job->tree->path,
					     job->units[u].name,
					     job->glob ? " named " : "",
					     job->glob ? job->glob : "");
	return 0;
}

/* Finds the one kind of checkpoint that there is. */
static int find_job(struct rsh_resume *r, struct rsh_source *tree,
		    const struct rsh_source_options *o, struct rsh_error *err)
{
	const char *glob = o->select == RSH_SELECT_NAME ? o->glob : NULL;
	int rc = 0;

	for (size_t i = 0; i < N_FORMATS && rc == 0; i++) {
		struct rsh_job job = { .format = formats[i], .tree = tree,
				       .opening = &o->store,
				       .glob = glob,
				       .full = o->check == RSH_CHECK_FULL };

		rc = formats[i]->find(&job, err);
		if (rc == 0 && job.n_saved > 0 && r->job.n_saved > 0)
			rc = rsh_error_set(err, EINVAL, "%s: checkpoints of %s "
					   "(%s) and of %s (%s): say --select "
					   "name=GLOB", tree->path,
					   r->job.format->name,
					   r->job.saved->name, job.format->name,
					   job.saved->name);
		if (rc == 0 && job.n_saved > 0)
			r->job = job;
		else
			rsh_job_clear(&job);
	}
	if (rc == 0 && r->job.n_saved == 0)
		rc = rsh_error_set(err, ENOENT, "%s: no checkpoint of "
				   "MindSpore, PyTorch, TensorFlow or "
				   "Megatron-LM in it%s%s",
				   tree->path, glob ? " named " : "",
				   glob ? glob : "");
	return rc ? rc : check_all_saved(&r->job, err);
}

int rsh_resume_open(const char *path, const struct rsh_source_options *opts,
		    uint32_t fallbacks, struct rsh_resume **out,
		    struct rsh_error *err)
{
	struct rsh_resume *r = calloc(1, sizeof(*r));
	struct rsh_source *tree = NULL;
	int rc;

	if (!r)
		return rsh_error_nomem(err);
	rc = rsh_source_new(path, &opts->store, &tree, err);
	if (rc == 0)
		rc = find_job(r, tree, opts, err);
	if (rc == 0)
		rc = choose_step(r, opts, fallbacks, err);
	if (rc == 0 && rsh_store_start(r->source->store))
		rc = rsh_error_nomem(err);
	rsh_source_free(tree);
	r->job.tree = NULL;
	r->job.opening = NULL;
	if (rc) {
		rsh_resume_free(r);
		return rc;
	}
	*out = r;
	return 0;
}

void rsh_resume_free(struct rsh_resume *r)
{
	if (!r)
		return;
	free(r->entries);
	rsh_source_free(r->source);
	rsh_job_clear(&r->job);
	free(r);
}

const struct rsh_resume_entry *rsh_resume_entries(const struct rsh_resume *r,
						  size_t *n)
{
	*n = r->n_entries;
	return r->entries;
}

const char *rsh_resume_step(const struct rsh_resume *r)
{
	return r->step;
}

struct rsh_source *rsh_resume_source(const struct rsh_resume *r)
{
	return r->source;
}
