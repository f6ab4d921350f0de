/* SPDX-License-Identifier: Apache-2.0 */
/* source/step.c finds out which checkpoints belong together, and which of these
 * candidates is tried first.
 *
 * ModelCheckpoint writes <prefix>-<epoch>_<step>.ckpt (or .safetensors), and
 * <prefix>_<K>-... in the K-th run that found files of the same prefix;
 * prefixes often hold the rank number as well (net_rank_3-5_10.ckpt).  What all
 * ranks saved at one step of one run is a candidate.
 *
 * The listing is sorted so that a candidate is a range of it, the newest step
 * first.  An example with two ranks, whose job was started again once:
 *
 *   files[]                        epoch  step  run   candidates[]
 *   0  rank_0/net_1-2_25.ckpt        2     25    -    [0,1)  rank 1 has none
 *   1  rank_0/net_1-2_20.ckpt        2     20    -  \
 *   2  rank_1/net_1-2_20.ckpt        2     20    -  / [1,3)
 *   3  rank_0/net_1-1_10.ckpt        1     10    1  \
 *   4  rank_1/net_1-1_10.ckpt        1     10    1  / [3,5)
 *   5  rank_0/net-1_10.ckpt          1     10    0  \
 *   6  rank_1/net-1_10.ckpt          1     10    0  / [5,7)
 *
 * The run counts at step 10 alone, where a rank has files of two.  A mount
 * tries [0,1) first and, if it lacks slices, takes [1,3); files of two
 * candidates are never mixed. */
#include "config.h"

#include "source_i.h"

#include <ctype.h>
#include <errno.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/log.h"
#include "rsh/util/mem.h"

#define BREAKPOINT_SUFFIX "_breakpoint"
#define RANK_MARK "{rank}"

/* A message lists so many names before it says how many more there are. */
#define LISTED_MAX 6

/* ---- what a name says ---- */

/* Reads the digits that end at s[*end] and moves *end before them.  Returns
 * false when there are none or they are no 64-bit number. */
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

static bool ends_in(const char *s, size_t n, const char *tail)
{
	size_t k = strlen(tail);

	return n >= k && memcmp(s + n - k, tail, k) == 0;
}

/* Returns the K of a stem <prefix>_<K>, else 0.  A rank's own number after
 * "rank_" belongs to the prefix. */
static uint64_t run_number(const struct rsh_checkpoint *c)
{
	size_t end = c->n_stem;
	uint64_t k;

	if (!digits_before(c->base, &end, &k) ||
	    !char_before(c->base, &end, '_'))
		return 0;
	return k == c->rank && ends_in(c->base, end, "rank") ? 0 : k;
}

void rsh_checkpoint_parse(struct rsh_checkpoint *c)
{
	enum rsh_format format = rsh_format_of(c->base);
	size_t n = strlen(c->base), end;

	if (format != RSH_FORMAT_COUNT)
		n -= strlen(rsh_format_suffix(format));
	c->breakpoint = ends_in(c->base, n, BREAKPOINT_SUFFIX);
	if (c->breakpoint)
		n -= strlen(BREAKPOINT_SUFFIX);
	end = n;
	c->stepped = digits_before(c->base, &end, &c->step) &&
		     char_before(c->base, &end, '_') &&
		     digits_before(c->base, &end, &c->epoch) &&
		     char_before(c->base, &end, '-');
	c->n_stem = c->stepped ? end : n;
	c->run = c->stepped ? run_number(c) : 0;
}

void rsh_checkpoint_clear(struct rsh_checkpoint *c)
{
	free(c->name);
	free(c->family);
}

/* ---- order ---- */

static int cmp(uint64_t a, uint64_t b)
{
	return (a > b) - (a < b);
}

/* Returns a negative number if x is of a newer step than y. */
static int step_cmp(const struct rsh_checkpoint *x,
		    const struct rsh_checkpoint *y)
{
	int d = cmp(y->dir_epoch, x->dir_epoch);

	d = d ? d : cmp(y->dir_step, x->dir_step);
	d = d ? d : cmp(y->epoch, x->epoch);
	return d ? d : cmp(y->step, x->step);
}

/* Two saves may be of one step: tft_... of one version of MindSpore, ttp_... of
 * a newer one, which is greater. */
static int dir_cmp(const struct rsh_checkpoint *x,
		   const struct rsh_checkpoint *y)
{
	if (x->n_dir != y->n_dir)
		return cmp(y->n_dir, x->n_dir);
	return memcmp(y->name, x->name, x->n_dir);
}

/* Returns 0 if both are of the same candidate. */
static int candidate_cmp(const struct rsh_checkpoint *x,
			 const struct rsh_checkpoint *y)
{
	int d = cmp(y->stepped, x->stepped);

	if (d == 0 && !x->stepped)
		return strcmp(x->family ? x->family : "",
			      y->family ? y->family : "");
	d = d ? d : step_cmp(x, y);
	d = d ? d : dir_cmp(x, y);
	d = d ? d : cmp(y->run, x->run);
	return d ? d : cmp(x->breakpoint, y->breakpoint);
}

static int rank_cmp(const struct rsh_checkpoint *x,
		    const struct rsh_checkpoint *y)
{
	int d = cmp(x->rank, y->rank);

	return d ? d : strcmp(x->name, y->name);
}

static int by_rank(const void *a, const void *b)
{
	return rank_cmp(a, b);
}

static int by_step_and_rank(const void *a, const void *b)
{
	const struct rsh_checkpoint *x = a, *y = b;
	int d = cmp(y->stepped, x->stepped);

	d = d ? d : step_cmp(x, y);
	return d ? d : rank_cmp(x, y);
}

static int by_candidate_and_rank(const void *a, const void *b)
{
	int d = candidate_cmp(a, b);

	return d ? d : rank_cmp(a, b);
}

static void sort(struct rsh_listing *l,
		 int (*order)(const void *a, const void *b))
{
	if (l->n > 0)
		qsort(l->files, l->n, sizeof(*l->files), order);
}

/* ---- messages ---- */

/* Returns the length of "rank_3" in "rank_3/net-1_5.ckpt". */
static int dir_length(const struct rsh_checkpoint *c)
{
	return c->base == c->name ? 0 : (int)(c->base - c->name - 1);
}

/* Lists the names of the rank's files; the listing is sorted by candidate. */
static void list_names(const struct rsh_listing *l, uint32_t rank, char *buf,
		       size_t max)
{
	size_t at = 0, n = 0;

	buf[0] = '\0';
	for (size_t i = 0; i < l->n; i++) {
		if (l->files[i].rank != rank)
			continue;
		if (n++ < LISTED_MAX && at < max)
			at += (size_t)snprintf(buf + at, max - at, "%s%s",
					       n > 1 ? ", " : "",
					       l->files[i].base);
	}
	if (n > LISTED_MAX && at < max)
		snprintf(buf + at, max - at, " and %zu more", n - LISTED_MAX);
}

static int undecidable(const struct rsh_source *s,
		       const struct rsh_checkpoint *c, struct rsh_error *err)
{
	char names[512];

	list_names(&s->listing, c->rank, names, sizeof(names));
	return rsh_error_set(err, EINVAL, "%s/%.*s: cannot tell which "
			     "checkpoint is meant: it holds %s: say --select "
			     "name=GLOB or --select mtime", s->path,
			     dir_length(c), c->name, names);
}

/* ---- what was selected ---- */

static bool is_selected(const struct rsh_checkpoint *c,
			const struct rsh_source_options *o)
{
	if (o->breakpoints == RSH_BREAKPOINTS_ONLY && !c->breakpoint)
		return false;
	if (o->select == RSH_SELECT_STEP)
		return c->stepped && c->epoch == o->epoch && c->step == o->step;
	if (o->select == RSH_SELECT_NAME)
		return fnmatch(o->glob, c->base, FNM_PERIOD) == 0;
	return true;
}

/* Refuses a selection that nothing fits, with the lowest rank's files as
 * examples. */
static int nothing_selected(struct rsh_source *s,
			    const struct rsh_source_options *opts,
			    struct rsh_error *err)
{
	const struct rsh_checkpoint *c = &s->listing.files[0];
	char names[512], what[160] = "no checkpoint that was selected";
	const char *hint = "";

	if (opts->select == RSH_SELECT_STEP)
		snprintf(what, sizeof(what), "no checkpoint of epoch %llu step "
			 "%llu", (unsigned long long)opts->epoch,
			 (unsigned long long)opts->step);
	else if (opts->select == RSH_SELECT_NAME)
		snprintf(what, sizeof(what), "no checkpoint named %s",
			 opts->glob);
	else if (opts->breakpoints == RSH_BREAKPOINTS_ONLY)
		snprintf(what, sizeof(what), "no breakpoint checkpoint");
	for (size_t i = 0; i < s->listing.n; i++)
		if (is_selected(&s->listing.files[i], opts))
			hint = " (breakpoints count with --breakpoint)";
	sort(&s->listing, by_rank);
	list_names(&s->listing, c->rank, names, sizeof(names));
	return rsh_error_set(err, ENOENT, "%s: %s%s; %.*s holds %s", s->path,
			     what, hint, dir_length(c), c->name, names);
}

/* A file of a crashed job's last moment counts only where it is asked for: it
 * may be of another step than its neighbours. */
static bool counts(const struct rsh_checkpoint *c,
		   const struct rsh_source_options *o)
{
	if (c->breakpoint && o->breakpoints == RSH_BREAKPOINTS_OUT &&
	    o->select != RSH_SELECT_MINDSPORE && !o->source_map)
		return false;
	return is_selected(c, o);
}

static int keep_selected(struct rsh_source *s,
			 const struct rsh_source_options *o,
			 struct rsh_error *err)
{
	struct rsh_listing *l = &s->listing;
	size_t kept = 0;

	for (size_t i = 0; i < l->n; i++)
		kept += counts(&l->files[i], o);
	if (kept == 0 && l->n > 0)
		return nothing_selected(s, o, err);
	kept = 0;
	for (size_t i = 0; i < l->n; i++) {
		if (counts(&l->files[i], o))
			l->files[kept++] = l->files[i];
		else
			rsh_checkpoint_clear(&l->files[i]);
	}
	l->n = kept;
	return 0;
}

/* ---- one candidate of all that there is ---- */

static void last_two_numbers(const char *name, uint64_t out[2])
{
	out[0] = out[1] = 0;
	while (*(name += strcspn(name, "0123456789"))) {
		char *end;

		out[0] = out[1];
		out[1] = strtoull(name, &end, 10);
		name = end;
	}
}

static int by_rank_and_numbers(const void *a, const void *b)
{
	const struct rsh_checkpoint *x = a, *y = b;
	uint64_t m[2], n[2];
	int d = cmp(x->rank, y->rank);

	last_two_numbers(x->name, m);
	last_two_numbers(y->name, n);
	d = d ? d : cmp(m[0], n[0]);
	d = d ? d : cmp(m[1], n[1]);
	return d ? d : by_rank(x, y);
}

static bool all_safetensors(const struct rsh_listing *l)
{
	for (size_t i = 0; i < l->n; i++)
		if (rsh_format_of(l->files[i].base) != RSH_FORMAT_SAFETENSORS)
			return false;
	return true;
}

/* Keeps the file of each rank that the converter takes: the lexicographically
 * last, of safetensors that with the greatest numbers at the end of its path.
 */
static void keep_last_names(struct rsh_source *s)
{
	struct rsh_listing *l = &s->listing;
	size_t kept = 0;

	sort(l, all_safetensors(l) ? by_rank_and_numbers : by_rank);
	for (size_t i = 0; i < l->n; i++) {
		if (i + 1 < l->n && l->files[i + 1].rank == l->files[i].rank)
			rsh_checkpoint_clear(&l->files[i]);
		else
			l->files[kept++] = l->files[i];
	}
	l->n = kept;
	s->n_always = kept;
}

/* Takes what a map names as it is, but refuses steps that do not agree. */
static int take_all(struct rsh_source *s, const char *map,
		    struct rsh_error *err)
{
	struct rsh_listing *l = &s->listing;
	const struct rsh_checkpoint *first = NULL;

	sort(l, by_rank);
	s->n_always = l->n;
	for (size_t i = 0; i < l->n; i++) {
		const struct rsh_checkpoint *c = &l->files[i];

		if (!c->stepped)
			continue;
		if (!first)
			first = c;
		if (step_cmp(c, first))
			return rsh_error_set(err, EINVAL, "%s: the files are "
					     "of two steps: %s and %s", map,
					     first->name, c->name);
	}
	return 0;
}

/* ---- candidates ---- */

/* Several runs are told apart only at steps where a rank has more than one
 * file: a job that was restarted may count runs per rank. */
static void forget_lone_runs(struct rsh_listing *l)
{
	size_t end;

	sort(l, by_step_and_rank);
	for (size_t i = 0; i < l->n && l->files[i].stepped; i = end) {
		bool several = false;

		for (end = i + 1; end < l->n && l->files[end].stepped &&
				  step_cmp(&l->files[i], &l->files[end]) == 0;
		     end++)
			several |= l->files[end].rank ==
				   l->files[end - 1].rank;
		for (size_t k = i; k < end && !several; k++) {
			l->files[k].run = 0;
			l->files[k].breakpoint = false;
		}
	}
}

static int add_candidate(struct rsh_source *s, size_t first, size_t end)
{
	if (rsh_grow(&s->candidates, &s->cap_candidates,
		     (size_t)s->n_candidates + 1, sizeof(*s->candidates)))
		return -ENOMEM;
	s->candidates[s->n_candidates++] = (struct rsh_candidate){ first, end };
	return 0;
}

static int make_ranges(struct rsh_source *s, struct rsh_error *err)
{
	const struct rsh_listing *l = &s->listing;
	size_t n = l->n - s->n_always, end;

	for (size_t i = 0; i < n; i = end) {
		end = i + 1;
		while (end < n &&
		       candidate_cmp(&l->files[i], &l->files[end]) == 0)
			end++;
		if (add_candidate(s, i, end))
			return rsh_error_nomem(err);
	}
	return 0;
}

/* Returns true if there are names without a step, but every rank has some with
 * one: best.ckpt beside net-2_5.ckpt. */
static bool steps_win(struct rsh_listing *l)
{
	bool any_stepless = false, all_stepped = true;
	size_t end;

	sort(l, by_rank);
	for (size_t i = 0; i < l->n; i = end) {
		bool stepped = false;

		for (end = i; end < l->n && l->files[end].rank ==
					    l->files[i].rank; end++) {
			stepped |= l->files[end].stepped;
			any_stepless |= !l->files[end].stepped;
		}
		all_stepped &= stepped;
	}
	return any_stepless && all_stepped;
}

/* A lone file without a step is taken as it is; a rank with several of which
 * one has no step cannot be decided. */
static int take_stepless(struct rsh_source *s, struct rsh_error *err)
{
	const struct rsh_listing *l = &s->listing;
	size_t first = l->n;

	while (first > 0 && !l->files[first - 1].stepped)
		first--;
	s->n_always = l->n - first;
	for (size_t i = first; i < l->n; i++)
		for (size_t k = 0; k < i; k++)
			if (l->files[k].rank == l->files[i].rank)
				return undecidable(s, &l->files[i], err);
	if (first > 0 && first < l->n)
		rsh_log_warning("%s: the file of %.*s carries no step, the one "
				"of %.*s does: whether they belong together "
				"cannot be checked", s->path,
				dir_length(&l->files[first]),
				l->files[first].name, dir_length(l->files),
				l->files[0].name);
	return 0;
}

static uint32_t count_ranks(const struct rsh_source *s)
{
	const struct rsh_listing *l = &s->listing;
	uint32_t n = 0;

	/* Every rank is counted at the first of its files. */
	for (size_t i = 0; i + s->n_always < l->n; i++) {
		size_t k = 0;

		while (l->files[k].rank != l->files[i].rank)
			k++;
		n += k == i;
	}
	return n;
}

/* Beside files whose step is not known an older step must not be tried: only
 * one that all other ranks have is left, or else the newest. */
static void keep_one_candidate(struct rsh_source *s)
{
	uint32_t n_ranks = count_ranks(s);

	for (uint32_t i = 0; i < s->n_candidates; i++) {
		if (s->candidates[i].end - s->candidates[i].first < n_ranks)
			continue;
		s->candidates[0] = s->candidates[i];
		break;
	}
	s->n_candidates = 1;
}

/* ---- by time ---- */

static char *make_family(const struct rsh_checkpoint *c)
{
	char *family = malloc(strlen(c->base) * strlen(RANK_MARK) + 1);
	char *to = family;
	const char *s = c->base;

	while (family && *s) {
		size_t n = strspn(s, "0123456789");

		if (n > 0 && strtoull(s, NULL, 10) == c->rank)
			to = stpcpy(to, RANK_MARK);
		else
			to = mempcpy(to, s, n ? n : 1);
		s += n ? n : 1;
	}
	if (family)
		*to = '\0';
	return family;
}

static int name_families(struct rsh_listing *l)
{
	for (size_t i = 0; i < l->n; i++) {
		if (l->files[i].stepped)
			continue;
		l->files[i].family = make_family(&l->files[i]);
		if (!l->files[i].family)
			return -ENOMEM;
	}
	return 0;
}

static const struct timespec *newest_mtime(const struct rsh_listing *l,
					   const struct rsh_candidate *c)
{
	const struct timespec *t = &l->files[c->first].mtime;

	for (size_t i = c->first + 1; i < c->end; i++) {
		const struct timespec *u = &l->files[i].mtime;

		if (u->tv_sec > t->tv_sec ||
		    (u->tv_sec == t->tv_sec && u->tv_nsec > t->tv_nsec))
			t = u;
	}
	return t;
}

static int by_mtime(const void *a, const void *b, void *listing)
{
	const struct timespec *x = newest_mtime(listing, a);
	const struct timespec *y = newest_mtime(listing, b);
	const struct rsh_candidate *p = a, *q = b;

	if (x->tv_sec != y->tv_sec)
		return x->tv_sec > y->tv_sec ? -1 : 1;
	if (x->tv_nsec != y->tv_nsec)
		return x->tv_nsec > y->tv_nsec ? -1 : 1;
	return cmp(p->first, q->first);
}

static int order_by_mtime(struct rsh_source *s, struct rsh_error *err)
{
	int rc = make_ranges(s, err);

	if (rc == 0 && s->n_candidates > 0)
		qsort_r(s->candidates, s->n_candidates, sizeof(*s->candidates),
			by_mtime, &s->listing);
	s->n_tried = s->n_candidates;
	return rc;
}

/* Leaves candidates without a step, which come last, to be listed and not
 * tried. */
static int leave_out_stepless(struct rsh_source *s, struct rsh_error *err)
{
	const struct rsh_listing *l = &s->listing;
	int rc = make_ranges(s, err);

	while (rc == 0 && s->n_tried < s->n_candidates &&
	       l->files[s->candidates[s->n_tried].first].stepped)
		s->n_tried++;
	return rc;
}

static int order_by_step(struct rsh_source *s, struct rsh_error *err)
{
	int rc = take_stepless(s, err);

	if (rc == 0)
		rc = make_ranges(s, err);
	if (rc == 0 && s->n_always > 0 && s->n_candidates > 0)
		keep_one_candidate(s);
	s->n_tried = s->n_candidates;
	return rc;
}

int rsh_candidates_make(struct rsh_source *s,
			const struct rsh_source_options *opts,
			struct rsh_error *err)
{
	bool by_time = opts->select == RSH_SELECT_MTIME, beside;
	int rc = keep_selected(s, opts, err);

	if (rc)
		return rc;
	if (opts->select == RSH_SELECT_MINDSPORE) {
		keep_last_names(s);
		return 0;
	}
	if (opts->source_map)
		return take_all(s, opts->source_map, err);
	beside = !by_time && steps_win(&s->listing);
	forget_lone_runs(&s->listing);
	if ((by_time || beside) && name_families(&s->listing))
		return rsh_error_nomem(err);
	sort(&s->listing, by_candidate_and_rank);
	return by_time ? order_by_mtime(s, err) :
	       beside ? leave_out_stepless(s, err) : order_by_step(s, err);
}

/* ---- speaking of them ---- */

void rsh_source_candidate_text(const struct rsh_source *s, uint32_t i,
			       char *text, size_t size)
{
	const struct rsh_checkpoint *c;
	int at = 0;

	if (i >= s->n_candidates) {
		snprintf(text, size, "%s", s->select == RSH_SELECT_MINDSPORE ?
			 "the last name of each rank" :
			 "the file of each rank");
		return;
	}
	c = &s->listing.files[s->candidates[i].first];
	if (!c->stepped) {
		snprintf(text, size, "%s", c->family);
		return;
	}
	if (c->n_dir)
		at = snprintf(text, size, "%.*s ", (int)c->n_dir, c->name);
	snprintf(text + at, size - (size_t)at, "epoch %llu step %llu%s",
		 (unsigned long long)c->epoch, (unsigned long long)c->step,
		 c->breakpoint ? " (breakpoint)" : "");
	if (c->run) {
		at = (int)strlen(text);
		snprintf(text + at, size - (size_t)at, " of run %llu",
			 (unsigned long long)c->run);
	}
}

static bool is_chosen(const struct rsh_source *s, uint32_t rank)
{
	return rank < s->n_ranks && s->by_rank[rank] != RSH_FILE_NONE;
}

/* Logs the ranks that have checkpoints, but none of the chosen candidate. */
static void log_absent(const struct rsh_source *s, const char *choice)
{
	const struct rsh_listing *l = &s->listing;
	char ranks[160];
	size_t at = 0;
	uint32_t n = 0;

	for (size_t i = 0; i < l->n; i++) {
		size_t k = 0;

		if (is_chosen(s, l->files[i].rank))
			continue;
		while (l->files[k].rank != l->files[i].rank)
			k++;
		if (k < i)
			continue;
		if (n++ < LISTED_MAX)
			at += (size_t)snprintf(ranks + at, sizeof(ranks) - at,
					       " %u", l->files[i].rank);
	}
	if (n > 0)
		rsh_log_notice("%s: %u of the ranks that have checkpoints have "
			       "none of %s:%s%s", s->path, n, choice, ranks,
			       n > LISTED_MAX ? " ..." : "");
}

void rsh_source_log_left_out(const struct rsh_source *s)
{
	if (s->n_bad == 1)
		rsh_log_warning("%s: the file is left out", s->first_bad.text);
	else if (s->n_bad > 1)
		rsh_log_warning("%s: the file is left out, and so are %u others "
				"of %u, which --log-level info lists",
				s->first_bad.text, s->n_bad - 1, s->n_files);
}

void rsh_source_log_choice(const struct rsh_source *s)
{
	char choice[256], beside[NAME_MAX + 128] = "";

	rsh_source_log_left_out(s);

	for (uint32_t i = 0; i < s->n_files; i++)
		rsh_log_debug("taken: %s", rsh_store_path(s->store, i));
	if (s->listing.n <= s->n_files || s->n_files == 0)
		return;
	rsh_source_candidate_text(s, s->chosen, choice, sizeof(choice));
	if (s->n_tried < s->n_candidates)
		snprintf(beside, sizeof(beside), "; %s has no step in its name "
			 "and does not count beside it: --select name=GLOB "
			 "takes it", s->listing.files[s->listing.n - 1].base);
	rsh_log_notice("%s: several checkpoints a rank, taking %s (%s)%s",
		       s->path, choice, rsh_store_name(s->store, 0), beside);
	log_absent(s, choice);
}
