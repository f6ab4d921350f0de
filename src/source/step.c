/* source/step.c - which of a rank's checkpoints counts.
 *
 * ModelCheckpoint writes <prefix>-<epoch>_<step>.ckpt, and <prefix>_<K>-... in
 * the K-th run that found files of the same prefix; prefixes often hold the
 * rank number as well (net_rank_3-5_10.ckpt). */
#include "config.h"

#include "source_i.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/log.h"
#include "rsh/util/mem.h"

#define BREAKPOINT_SUFFIX "_breakpoint"

/* Names that a message lists before it says how many more there are. */
#define LISTED_MAX 6

struct step {
	uint64_t epoch, step;
};

/* Reads the digits that end at s[*end], moves *end before them.  False when
 * there are none or they are no 64-bit number. */
static bool digits_before(const char *s, size_t *end, uint64_t *out)
{
	size_t start = *end;
	uint64_t v = 0;

	while (start > 0 && isdigit((unsigned char)s[start - 1]))
		start--;
	if (start == *end)
		return false;
	for (size_t i = start; i < *end; i++)
		if (__builtin_mul_overflow(v, 10, &v) ||
		    __builtin_add_overflow(v, (uint64_t)(s[i] - '0'), &v))
			return false;
	*end = start;
	*out = v;
	return true;
}

static bool char_before(const char *s, size_t *end, char c)
{
	if (*end == 0 || s[*end - 1] != c)
		return false;
	(*end)--;
	return true;
}

void rsh_candidate_parse(struct rsh_candidate *c)
{
	const char *suffix = rsh_format_suffix(rsh_format_of(c->name));
	size_t n = strlen(c->name) - strlen(suffix);
	const size_t n_bp = strlen(BREAKPOINT_SUFFIX);
	size_t end;

	c->breakpoint = n >= n_bp && memcmp(c->name + n - n_bp,
					    BREAKPOINT_SUFFIX, n_bp) == 0;
	if (c->breakpoint)
		n -= n_bp;
	end = n;
	c->stepped = digits_before(c->name, &end, &c->step) &&
		     char_before(c->name, &end, '_') &&
		     digits_before(c->name, &end, &c->epoch) &&
		     char_before(c->name, &end, '-');
	c->n_stem = c->stepped ? end : n;
}

static int step_cmp(const struct rsh_candidate *c, const struct step *s)
{
	if (c->epoch != s->epoch)
		return c->epoch < s->epoch ? -1 : 1;
	if (c->step != s->step)
		return c->step < s->step ? -1 : 1;
	return 0;
}

/* Newest first. */
static int by_step(const void *a, const void *b)
{
	const struct rsh_candidate *x = a, *y = b;
	const struct step s = { y->epoch, y->step };
	int d = step_cmp(x, &s);

	return d ? -d : strcmp(x->name, y->name);
}

static void list_files(const struct rsh_rank_dir *d, char *buf, size_t max)
{
	size_t at = 0;

	buf[0] = '\0';
	for (size_t i = 0; i < d->n_files && at < max; i++) {
		if (i == LISTED_MAX) {
			snprintf(buf + at, max - at, " and %zu more",
				 d->n_files - i);
			return;
		}
		at += (size_t)snprintf(buf + at, max - at, "%s%s",
				       i ? ", " : "", d->files[i].name);
	}
}

/* A file of a crashed job's last moment counts only in a tree that has
 * nothing else: it may be of another step than its neighbours. */
static void drop_breakpoints(struct rsh_rank_dir *dirs, uint32_t n)
{
	bool others = false;

	for (uint32_t r = 0; r < n; r++)
		for (size_t i = 0; i < dirs[r].n_files; i++)
			others |= !dirs[r].files[i].breakpoint;
	if (!others)
		return;
	for (uint32_t r = 0; r < n; r++) {
		struct rsh_rank_dir *d = &dirs[r];
		size_t kept = 0;

		for (size_t i = 0; i < d->n_files; i++) {
			if (d->files[i].breakpoint)
				free(d->files[i].name);
			else
				d->files[kept++] = d->files[i];
		}
		if (kept == 0 && d->n_files > 0)
			rsh_log_warning("%s: only breakpoint files, which do "
					"not count where other ranks have more",
					d->name);
		d->n_files = kept;
	}
}

static void choose_lexicographic(struct rsh_rank_dir *d)
{
	for (size_t i = 0; i < d->n_files; i++)
		if (!d->chosen || strcmp(d->files[i].name, d->chosen->name) > 0)
			d->chosen = &d->files[i];
}

static bool has_step(const struct rsh_rank_dir *d, const struct step *s)
{
	size_t lo = 0, hi = d->n_files;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		int c = step_cmp(&d->files[mid], s);

		if (c == 0)
			return true;
		if (c > 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return false;
}

static bool all_have_step(const struct rsh_rank_dir *dirs, uint32_t n,
			  const struct step *s)
{
	for (uint32_t r = 0; r < n; r++)
		if (dirs[r].n_files > 0 && !dirs[r].chosen &&
		    !has_step(&dirs[r], s))
			return false;
	return true;
}

static const struct rsh_rank_dir *
first_undecided(const struct rsh_rank_dir *dirs, uint32_t n)
{
	for (uint32_t r = 0; r < n; r++)
		if (dirs[r].n_files > 0 && !dirs[r].chosen)
			return &dirs[r];
	return NULL;
}

/* The newest step that every rank still undecided has; `first` is the first of
 * them.  Fails naming the rank that lacks the newest step of that one. */
static int common_step(const struct rsh_rank_dir *dirs, uint32_t n,
		       const struct rsh_rank_dir *first, const char *tree,
		       struct step *out, struct rsh_error *err)
{
	const struct rsh_rank_dir *other = first;
	char a[512], b[512];

	for (size_t i = 0; i < first->n_files; i++) {
		*out = (struct step){ first->files[i].epoch,
				      first->files[i].step };
		if (all_have_step(dirs, n, out))
			return 0;
	}
	*out = (struct step){ first->files[0].epoch, first->files[0].step };
	for (uint32_t r = 0; r < n; r++)
		if (dirs[r].n_files > 0 && !dirs[r].chosen &&
		    !has_step(&dirs[r], out)) {
			other = &dirs[r];
			break;
		}
	list_files(first, a, sizeof(a));
	list_files(other, b, sizeof(b));
	return rsh_error_set(err, EINVAL, "%s: no step that all ranks have: %s "
			     "holds %s; %s holds %s", tree, first->name, a,
			     other->name, b);
}

/* The K of a stem <prefix>_<K>, else 0.  A rank's own number after "rank_"
 * belongs to the prefix. */
static uint64_t run_number(const struct rsh_candidate *c, uint32_t rank)
{
	const char tail[] = "rank";
	size_t end = c->n_stem;
	uint64_t k;

	if (!digits_before(c->name, &end, &k) ||
	    !char_before(c->name, &end, '_'))
		return 0;
	if (k == rank && end >= strlen(tail) &&
	    memcmp(c->name + end - strlen(tail), tail, strlen(tail)) == 0)
		return 0;
	return k;
}

static size_t count_step(const struct rsh_rank_dir *d, const struct step *s)
{
	size_t n = 0;

	for (size_t i = 0; i < d->n_files; i++)
		n += step_cmp(&d->files[i], s) == 0;
	return n;
}

/* The file of that step and run; *n_found says how many there are. */
static const struct rsh_candidate *find_run(const struct rsh_rank_dir *d,
					    const struct step *s, uint64_t run,
					    unsigned *n_found)
{
	const struct rsh_candidate *found = NULL;

	*n_found = 0;
	for (size_t i = 0; i < d->n_files; i++) {
		const struct rsh_candidate *c = &d->files[i];

		if (step_cmp(c, s) == 0 && run_number(c, d->rank) == run) {
			found = c;
			(*n_found)++;
		}
	}
	return found;
}

static bool all_have_run(const struct rsh_rank_dir *dirs, uint32_t n,
			 const struct step *s, uint64_t run)
{
	unsigned found;

	for (uint32_t r = 0; r < n; r++)
		if (dirs[r].n_files > 0 && !dirs[r].chosen &&
		    !find_run(&dirs[r], s, run, &found))
			return false;
	return true;
}

static int undecidable(const struct rsh_rank_dir *d, const char *tree,
		       struct rsh_error *err)
{
	char names[512];

	list_files(d, names, sizeof(names));
	return rsh_error_set(err, EINVAL, "%s/%s: cannot tell which checkpoint "
			     "is meant: it holds %s", tree, d->name, names);
}

/* The greatest run number that all ranks have at step `s`. */
static int common_run(const struct rsh_rank_dir *dirs, uint32_t n,
		      const struct rsh_rank_dir *several, const char *tree,
		      const struct step *s, uint64_t *out,
		      struct rsh_error *err)
{
	bool found = false;

	for (size_t i = 0; i < several->n_files; i++) {
		const struct rsh_candidate *c = &several->files[i];
		uint64_t run = run_number(c, several->rank);

		if (step_cmp(c, s) || (found && run <= *out) ||
		    !all_have_run(dirs, n, s, run))
			continue;
		*out = run;
		found = true;
	}
	return found ? 0 : undecidable(several, tree, err);
}

static int choose_at_step(struct rsh_rank_dir *dirs, uint32_t n,
			  const char *tree, const struct step *s,
			  struct rsh_error *err)
{
	const struct rsh_rank_dir *several = NULL;
	uint64_t run = 0;
	int rc;

	for (uint32_t r = 0; r < n && !several; r++)
		if (!dirs[r].chosen && count_step(&dirs[r], s) > 1)
			several = &dirs[r];
	if (several) {
		rc = common_run(dirs, n, several, tree, s, &run, err);
		if (rc)
			return rc;
	}
	for (uint32_t r = 0; r < n; r++) {
		struct rsh_rank_dir *d = &dirs[r];
		unsigned found = 0;

		if (d->n_files == 0 || d->chosen)
			continue;
		for (size_t i = 0; i < d->n_files && !several; i++)
			if (step_cmp(&d->files[i], s) == 0)
				d->chosen = &d->files[i];
		if (several)
			d->chosen = find_run(d, s, run, &found);
		if (found > 1)
			return undecidable(d, tree, err);
	}
	return 0;
}

/* A lone file without a step is taken as it is; a rank with several of which
 * one has no step cannot be decided. */
static int choose_stepless(struct rsh_rank_dir *dirs, uint32_t n,
			   const char *tree, struct rsh_error *err)
{
	const char *without = NULL, *with = NULL;

	for (uint32_t r = 0; r < n; r++) {
		struct rsh_rank_dir *d = &dirs[r];
		bool stepped = true;

		for (size_t i = 0; i < d->n_files; i++)
			stepped &= d->files[i].stepped;
		if (d->n_files == 0)
			continue;
		if (stepped) {
			with = d->name;
			continue;
		}
		if (d->n_files > 1)
			return undecidable(d, tree, err);
		d->chosen = &d->files[0];
		without = d->name;
	}
	if (with && without)
		rsh_log_warning("%s: the file of %s carries no step, the one "
				"of %s does: whether they belong together "
				"cannot be checked", tree, without, with);
	return 0;
}

static void log_choice(const struct rsh_rank_dir *dirs, uint32_t n,
		       const char *tree)
{
	const struct rsh_rank_dir *several = NULL;

	for (uint32_t r = 0; r < n; r++) {
		if (!dirs[r].chosen)
			continue;
		rsh_log_debug("%s/%s: %s", tree, dirs[r].name,
			      dirs[r].chosen->name);
		if (dirs[r].n_files > 1 && !several)
			several = &dirs[r];
	}
	if (!several)
		return;
	if (several->chosen->stepped)
		rsh_log_notice("%s: several checkpoints a rank, taking epoch "
			       "%llu step %llu (%s/%s)", tree,
			       (unsigned long long)several->chosen->epoch,
			       (unsigned long long)several->chosen->step,
			       several->name, several->chosen->name);
	else
		rsh_log_notice("%s: several checkpoints a rank, taking %s/%s",
			       tree, several->name, several->chosen->name);
}

int rsh_step_choose(struct rsh_rank_dir *dirs, uint32_t n, const char *tree,
		    bool lexicographic, struct rsh_error *err)
{
	const struct rsh_rank_dir *first;
	struct step step;
	int rc;

	if (lexicographic) {
		for (uint32_t r = 0; r < n; r++)
			choose_lexicographic(&dirs[r]);
		log_choice(dirs, n, tree);
		return 0;
	}
	drop_breakpoints(dirs, n);
	for (uint32_t r = 0; r < n; r++)
		if (dirs[r].n_files > 0)
			qsort(dirs[r].files, dirs[r].n_files,
			      sizeof(*dirs[r].files), by_step);
	rc = choose_stepless(dirs, n, tree, err);
	if (rc)
		return rc;
	first = first_undecided(dirs, n);
	if (first) {
		rc = common_step(dirs, n, first, tree, &step, err);
		if (rc == 0)
			rc = choose_at_step(dirs, n, tree, &step, err);
		if (rc)
			return rc;
	}
	log_choice(dirs, n, tree);
	return 0;
}
