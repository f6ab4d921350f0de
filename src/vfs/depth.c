/* vfs/depth.c measures stretches of loads, tries twice or half as many at a
 * time, and keeps the number that pays. */
#include "config.h"

#include "depth_i.h"

#include "rsh/util/checked.h"

#define MIB (UINT64_C(1024) * 1024)

/* What a load costs beside its bytes, in bytes: so that short ones and long ones
 * can be compared. */
#define LOAD_WORK (UINT64_C(64) * 1024)

/* A stretch has so many loads for each that may be under way, since they may
 * well end all together; so many at least; and lasts so long. */
#define STRETCH_ROUNDS 2
#define STRETCH_LOADS 4
#define STRETCH_NS UINT64_C(20000000)

/* Stretches before what was left is tried again; between two trials of a kind;
 * where it is plain that nothing will come of it; and at most. */
#define PAUSE_SOON 2
#define PAUSE_MIN 4
#define PAUSE_LONG 32
#define PAUSE_MAX 128

/* Loads have hung when nothing has begun or ended for so long, or four times
 * what they take; the next after them sooner. */
#define PATIENCE_NS UINT64_C(1000000000)
#define NEXT_PATIENCE_NS UINT64_C(100000000)

enum { LESS, MORE };

void rsh_depth_init(struct rsh_depth *d, unsigned most)
{
	*d = (struct rsh_depth){
		.most = most,
		.wait = { [LESS] = PAUSE_MIN, [MORE] = 1 },
		.pause = { PAUSE_MIN, PAUSE_MIN },
	};
}

static unsigned limit_at(const struct rsh_depth *d, unsigned level)
{
	return (unsigned)rsh_min_u64(UINT64_C(1) << level, d->most);
}

unsigned rsh_depth_limit(const struct rsh_depth *d)
{
	return limit_at(d, (unsigned)((int)d->level + d->step));
}

unsigned rsh_depth_room(const struct rsh_depth *d)
{
	const unsigned limit = rsh_depth_limit(d);

	return d->n_loads < limit ? limit - d->n_loads : 0;
}

/* ---- stretches ---- */

static void start(struct rsh_depth *d, uint64_t now)
{
	d->measuring = true;
	d->start_ns = now;
	d->full_ns = d->sum_ns = d->work = 0;
	d->n_ended = 0;
}

/* The next one is measured with the limit as it is now. */
static void start_anew(struct rsh_depth *d, uint64_t now)
{
	d->measuring = false;
	d->before_ns = now;
	d->n_before = d->n_loads;
	if (d->n_before == 0)
		start(d, now);
}

static unsigned loads_of_stretch(const struct rsh_depth *d)
{
	const unsigned n = STRETCH_ROUNDS * rsh_depth_limit(d);

	return n > STRETCH_LOADS ? n : STRETCH_LOADS;
}

/* Twice as much or less than half, twice in a row, is another source. */
static bool is_another(struct rsh_depth *d, uint64_t ns)
{
	const bool strange = ns > 2 * d->base_ns || ns < d->base_ns / 2;
	const bool again = d->strange;

	d->strange = strange && !again;
	return strange && again;
}

static void follow(struct rsh_depth *d, uint64_t ns)
{
	if (d->base_ns == 0 || is_another(d, ns)) {
		d->base_ns = ns;
		d->pause[LESS] = d->pause[MORE] = PAUSE_MIN;
		d->wait[LESS] = (unsigned)rsh_min_u64(d->wait[LESS], PAUSE_MIN);
		d->wait[MORE] = (unsigned)rsh_min_u64(d->wait[MORE], PAUSE_MIN);
	} else if (!d->strange) {
		d->base_ns = (3 * d->base_ns + ns) / 4;
	}
}

static bool can(const struct rsh_depth *d, int kind)
{
	return kind == MORE ? limit_at(d, d->level) < d->most : d->level > 0;
}

static void choose_trial(struct rsh_depth *d)
{
	for (int kind = MORE; kind >= LESS; kind--) {
		if (d->wait[kind])
			d->wait[kind]--;
		if (d->step == 0 && d->wait[kind] == 0 && can(d, kind))
			d->step = kind == MORE ? 1 : -1;
	}
}

static int kind_of_trial(const struct rsh_depth *d)
{
	return d->step > 0 ? MORE : LESS;
}

static void fail_trial(struct rsh_depth *d, unsigned at_least)
{
	const int kind = kind_of_trial(d);

	d->step = 0;
	d->wait[kind] = (unsigned)rsh_max_u64(d->pause[kind], at_least);
	d->pause[kind] = (unsigned)rsh_min_u64(2 * d->wait[kind], PAUSE_MAX);
}

/* What has paid is tried further at once; it may have been chance, so what was
 * before is tried soon. */
static void keep_trial(struct rsh_depth *d, uint64_t ns)
{
	const int kind = kind_of_trial(d);

	d->level = (unsigned)((int)d->level + d->step);
	d->step = 0;
	d->base_ns = ns;
	d->wait[kind] = 1;
	d->wait[!kind] = PAUSE_SOON + 1;
	d->pause[kind] = d->pause[!kind] = PAUSE_MIN;
	choose_trial(d);
}

/* More has to pay, a little; less must not cost. */
static bool pays(const struct rsh_depth *d, uint64_t ns)
{
	return d->step > 0 ? ns <= d->base_ns - d->base_ns / 50 :
			     ns <= d->base_ns;
}

static void judge(struct rsh_depth *d)
{
	const uint64_t ns = d->full_ns * MIB / d->work;

	if (d->step == 0) {
		follow(d, ns);
		choose_trial(d);
	} else if (pays(d, ns)) {
		keep_trial(d, ns);
	} else {
		fail_trial(d, ns > d->base_ns / 4 * 5 ? PAUSE_LONG : PAUSE_MIN);
	}
}

/* By then the whole stretch would have been over long ago, had it paid. */
static bool has_failed(const struct rsh_depth *d)
{
	const uint64_t loads = rsh_max_u64(d->n_ended, 1);
	const uint64_t work = d->work / loads * loads_of_stretch(d);
	const uint64_t ns = rsh_max_u64(work * d->base_ns / MIB, STRETCH_NS);

	return d->step && d->full_ns > ns / 4 * 5;
}

static void go_on(struct rsh_depth *d, uint64_t now)
{
	const uint64_t lasted = now - d->start_ns;
	const bool over = d->n_ended >= loads_of_stretch(d) &&
			  lasted >= STRETCH_NS;

	if (!over) {
		if (!has_failed(d))
			return;
		fail_trial(d, PAUSE_LONG);
	} else if (d->full_ns >= lasted / 8 * 7) {
		judge(d);
	} else if (d->step) {
		/* Nobody wants so many. */
		d->wait[kind_of_trial(d)] = PAUSE_MIN;
		d->step = 0;
	}
	start_anew(d, now);
}

/* ---- loads ---- */

/* Whatever was the case since the last time ends now. */
static void pass(struct rsh_depth *d, uint64_t now)
{
	if (d->measuring && d->full)
		d->full_ns += now - d->event_ns;
	d->event_ns = now;
}

static void look_if_full(struct rsh_depth *d, unsigned waiting)
{
	d->full = d->n_loads + waiting >= rsh_depth_limit(d);
}

uint64_t rsh_depth_begin(struct rsh_depth *d, unsigned waiting, uint64_t now)
{
	pass(d, now);
	if (!d->measuring && d->n_before == 0)
		start(d, now);
	d->n_loads++;
	look_if_full(d, waiting);
	return rsh_max_u64(now, 1 + rsh_max_u64(d->late_ns, d->before_ns));
}

static void count(struct rsh_depth *d, uint64_t begun, uint64_t bytes,
		  uint64_t now)
{
	const uint64_t took = now > begun ? now - begun : 1;

	/* The first one of all also finds out how to read. */
	if (bytes == 0 || d->load_ns == 0) {
		start_anew(d, now);
	} else if (d->measuring) {
		d->n_ended++;
		d->work += bytes + LOAD_WORK;
		go_on(d, now);
	} else if (begun <= d->before_ns && d->n_before && --d->n_before == 0) {
		start(d, now);
	}
	d->load_ns = d->load_ns ? (3 * d->load_ns + took) / 4 : took;
}

void rsh_depth_end(struct rsh_depth *d, uint64_t begun, uint64_t bytes,
		   unsigned waiting, uint64_t now)
{
	if (d->n_late && begun <= d->late_ns) {
		d->n_late--;
		return;
	}
	pass(d, now);
	d->n_loads--;
	d->hung = false;
	count(d, begun, bytes, now);
	look_if_full(d, waiting);
}

uint64_t rsh_depth_patience(const struct rsh_depth *d)
{
	return d->event_ns +
	       rsh_max_u64(d->hung ? NEXT_PATIENCE_NS : PATIENCE_NS,
			   d->hung ? 0 : 4 * d->load_ns);
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
	start_anew(d, now);
}
