/* SPDX-License-Identifier: Apache-2.0 */
/* read/depth.c measures stretches of loads, tries twice or half as many at a
 * time, and keeps the fastest number. */
#include "config.h"

#include "depth_i.h"

#include "rsh/util/checked.h"

#define MIB (UINT64_C(1024) * 1024)

/* The cost of a load in addition to its bytes, in bytes, so that short and long
 * loads can be compared. */
#define LOAD_WORK (UINT64_C(64) * 1024)

/* A stretch has STRETCH_ROUNDS loads for each allowed one, since all of them
 * may end at the same time.  It has at least STRETCH_LOADS and lasts at least
 * STRETCH_NS. */
#define STRETCH_ROUNDS 2
#define STRETCH_LOADS 4
#define STRETCH_NS UINT64_C(20000000)

/* The first stretches are shorter, because files may be read completely before
 * a longer one ends. */
#define START_ROUNDS 1
#define START_LOADS 2

/* Numbers of stretches: before a level that was left is tried again (SOON),
 * between two trials of a level (MIN), the same after a clear failure (LONG),
 * and the maximum (MAX). */
#define PAUSE_SOON 2
#define PAUSE_MIN 4
#define PAUSE_LONG 32
#define PAUSE_MAX 128

/* Loads hang if none begins or ends for PATIENCE_NS, for the longest time of a
 * load, and for four times the mean time.  The next loads after them count as
 * hanging sooner. */
#define PATIENCE_NS UINT64_C(250000000)
#define NEXT_PATIENCE_NS UINT64_C(25000000)

void rsh_depth_init(struct rsh_depth *d, unsigned most)
{
	*d = (struct rsh_depth){
		.most = (unsigned)rsh_min_u64(most, RSH_DEPTH_MOST),
		.starting = true,
	};
	for (unsigned i = 0; i < RSH_DEPTH_LEVELS; i++)
		d->at[i].pause = PAUSE_MIN;
}

void rsh_depth_far(struct rsh_depth *d, unsigned least, uint64_t longest_ns)
{
	d->longest_ns = longest_ns;
	d->least = 0;
	while (d->least + 1 < RSH_DEPTH_LEVELS && 2u << d->least <= least)
		d->least++;
	d->level = d->least;
}

static unsigned depth_limit_at(const struct rsh_depth *d, unsigned level)
{
	return (unsigned)rsh_min_u64(UINT64_C(1) << level, d->most);
}

/* Returns the level of the trial, or the current one if there is no trial. */
static unsigned depth_level_now(const struct rsh_depth *d)
{
	return (unsigned)((int)d->level + d->step);
}

unsigned rsh_depth_limit(const struct rsh_depth *d)
{
	return depth_limit_at(d, depth_level_now(d));
}

unsigned rsh_depth_room(const struct rsh_depth *d)
{
	const unsigned limit = rsh_depth_limit(d);

	return d->n_loads < limit ? limit - d->n_loads : 0;
}

/* ---- stretches ---- */

static void depth_start(struct rsh_depth *d, uint64_t now)
{
	d->measuring = true;
	d->start_ns = now;
	d->full_ns = d->work = 0;
	d->n_ended = 0;
}

/* The next stretch is measured with the current limit. */
static void depth_start_anew(struct rsh_depth *d, uint64_t now)
{
	d->measuring = false;
	d->before_ns = now;
	d->n_before = d->n_loads;
	if (d->n_before == 0)
		depth_start(d, now);
}

static unsigned depth_loads_of_stretch(const struct rsh_depth *d)
{
	const unsigned limit = rsh_depth_limit(d);

	if (d->starting)
		return (unsigned)rsh_max_u64(START_ROUNDS * limit, START_LOADS);
	return (unsigned)rsh_max_u64(STRETCH_ROUNDS * limit, STRETCH_LOADS);
}

static uint64_t depth_least_of_stretch(const struct rsh_depth *d)
{
	return d->starting ? 0 : STRETCH_NS;
}

/* If a stretch takes more than twice or less than half of the mean time, twice
 * in a row, the source has changed. */
static bool depth_is_another(struct rsh_depth *d, uint64_t ns)
{
	const bool strange = ns > 2 * d->base_ns || ns < d->base_ns / 2;
	const bool again = d->strange;

	d->strange = strange && !again;
	return strange && again;
}

static void depth_forget_trials(struct rsh_depth *d)
{
	for (unsigned i = 0; i < RSH_DEPTH_LEVELS; i++) {
		d->at[i].wait = (unsigned)rsh_min_u64(d->at[i].wait, PAUSE_MIN);
		d->at[i].pause = PAUSE_MIN;
	}
}

static bool depth_may_try(const struct rsh_depth *d, int step)
{
	if (step > 0 ? depth_limit_at(d, d->level) == d->most :
		       d->level == d->least)
		return false;
	return d->at[(int)d->level + step].wait == 0;
}

static void depth_choose_trial(struct rsh_depth *d)
{
	for (unsigned i = 0; i < RSH_DEPTH_LEVELS; i++)
		if (d->at[i].wait)
			d->at[i].wait--;
	if (depth_may_try(d, 1))
		d->step = 1;
	else if (depth_may_try(d, -1))
		d->step = -1;
}

static void depth_fail_trial(struct rsh_depth *d, unsigned at_least)
{
	struct rsh_depth_level *l = &d->at[depth_level_now(d)];

	d->step = 0;
	d->starting = false;
	l->wait = (unsigned)rsh_max_u64(l->pause, at_least);
	l->pause = (unsigned)rsh_min_u64(2 * l->wait, PAUSE_MAX);
}

/* A smaller difference than a quarter may be chance. */
static bool is_plain(uint64_t less_ns, uint64_t more_ns)
{
	return more_ns > less_ns / 4 * 5;
}

static void depth_judge(struct rsh_depth *d)
{
	const uint64_t ns = d->full_ns * MIB / d->work;

	if (d->step == 0) {
		if (d->base_ns == 0 || depth_is_another(d, ns)) {
			d->base_ns = ns;
			depth_forget_trials(d);
		} else if (!d->strange) {
			d->base_ns = (3 * d->base_ns + ns) / 4;
		}
		depth_choose_trial(d);
	} else if (ns <= d->base_ns - (d->step > 0 ? d->base_ns / 50 : 0)) {
		const bool plain = is_plain(ns, d->base_ns);
		const int further = (int)depth_level_now(d) + d->step;

		/* More loads must be faster, at least a little; fewer loads
		 * must not be slower.  A clear improvement continues with the
		 * next level at once.  A small one may be chance, and the level
		 * before is tried again soon. */
		d->at[d->level].wait = 1 + (plain ? PAUSE_LONG : PAUSE_SOON);
		d->level = depth_level_now(d);
		d->at[d->level].pause = PAUSE_MIN;
		if (plain && further >= 0 && further < RSH_DEPTH_LEVELS)
			d->at[further].wait = 0;
		d->step = 0;
		d->base_ns = ns;
		depth_choose_trial(d);
	} else {
		depth_fail_trial(d, is_plain(d->base_ns, ns) ? PAUSE_LONG :
							       PAUSE_MIN);
	}
}

static void depth_go_on(struct rsh_depth *d, uint64_t now)
{
	const uint64_t lasted = now - d->start_ns;
	const bool over = d->n_ended >= depth_loads_of_stretch(d) &&
			  lasted >= depth_least_of_stretch(d);

	if (!over) {
		const uint64_t loads = rsh_max_u64(d->n_ended, 1);
		const uint64_t work =
			d->work / loads * depth_loads_of_stretch(d);
		const uint64_t ns = rsh_max_u64(work * d->base_ns / MIB,
						depth_least_of_stretch(d));

		/* The trial fails early: the whole stretch would have ended
		 * long ago if it was faster. */
		if (!(d->step && is_plain(ns, d->full_ns)))
			return;
		depth_fail_trial(d, PAUSE_LONG);
	} else if (d->full_ns >= lasted / 8 * 7) {
		depth_judge(d);
	} else if (d->step) {
		/* Readers do not want as many loads as the trial allows. */
		d->at[depth_level_now(d)].wait = PAUSE_MIN;
		d->step = 0;
		d->starting = false;
	}
	depth_start_anew(d, now);
}

/* ---- loads ---- */

/* Adds the time since the last event to the time that the stretch was full. */
static void depth_pass(struct rsh_depth *d, uint64_t now)
{
	if (d->measuring && d->full)
		d->full_ns += now - d->event_ns;
	d->event_ns = now;
}

static void depth_look_if_full(struct rsh_depth *d, unsigned waiting)
{
	d->full = d->n_loads + waiting >= rsh_depth_limit(d);
}

uint64_t rsh_depth_begin(struct rsh_depth *d, unsigned waiting, uint64_t now)
{
	depth_pass(d, now);
	if (!d->measuring && d->n_before == 0)
		depth_start(d, now);
	d->n_loads++;
	depth_look_if_full(d, waiting);
	return rsh_max_u64(now, 1 + rsh_max_u64(d->late_ns, d->before_ns));
}

static void depth_count(struct rsh_depth *d, uint64_t begun, uint64_t bytes,
			uint64_t now)
{
	const uint64_t took = now > begun ? now - begun : 1;

	/* The first load of all also measures the source, so it is not
	 * counted. */
	if (bytes == 0 || d->load_ns == 0) {
		depth_start_anew(d, now);
	} else if (d->measuring) {
		d->n_ended++;
		d->work += bytes + LOAD_WORK;
		depth_go_on(d, now);
	} else if (begun <= d->before_ns && d->n_before && --d->n_before == 0) {
		depth_start(d, now);
	}
	d->load_ns = d->load_ns ? (3 * d->load_ns + took) / 4 : took;
}

/* If loads take longer than allowed, reduces their number in proportion to the
 * time.  Loads that failed are not counted.  The mean reduces the effect of a
 * single load that hung. */
static void depth_shorten(struct rsh_depth *d, uint64_t begun, uint64_t now)
{
	const uint64_t took = now - begun;
	uint64_t n = rsh_min_u64(d->n_loads + d->n_late, rsh_depth_limit(d));

	if (!d->longest_ns || begun <= d->cut_ns)
		return;
	d->long_ns = d->long_ns ? (3 * d->long_ns + took) / 4 : took;
	if (d->long_ns <= d->longest_ns)
		return;
	n = n * d->longest_ns / d->long_ns;
	d->long_ns = 0;
	d->least = d->step = 0;
	while (d->level && UINT64_C(1) << d->level > n)
		d->level--;
	d->base_ns = 0;
	d->starting = false;
	depth_forget_trials(d);
	if (d->level + 1 < RSH_DEPTH_LEVELS)
		d->at[d->level + 1].wait = PAUSE_MIN;
	d->cut_ns = now;
	depth_start_anew(d, now);
}

void rsh_depth_end(struct rsh_depth *d, uint64_t begun, uint64_t bytes,
		   unsigned waiting, uint64_t now)
{
	if (now > begun && bytes)
		depth_shorten(d, begun, now);
	if (d->n_late && begun <= d->late_ns) {
		d->n_late--;
		return;
	}
	depth_pass(d, now);
	d->n_loads--;
	d->hung = false;
	depth_count(d, begun, bytes, now);
	depth_look_if_full(d, waiting);
}

uint64_t rsh_depth_patience(const struct rsh_depth *d)
{
	const uint64_t first = rsh_max_u64(PATIENCE_NS, d->longest_ns);

	return d->event_ns + (d->hung ?
		rsh_max_u64(NEXT_PATIENCE_NS, d->longest_ns / 8) :
		rsh_max_u64(first, 4 * d->load_ns));
}

void rsh_depth_look(struct rsh_depth *d, uint64_t now)
{
	if (d->n_loads == 0 || now < rsh_depth_patience(d))
		return;
	d->n_late += d->n_loads;
	d->n_loads = 0;
	d->late_ns = now;
	d->hung = true;
	d->step = 0;
	depth_start_anew(d, now);
}
