/* SPDX-License-Identifier: Apache-2.0 */
/* read/depth_i.h decides how many windows are filled at a time from a source
 * that makes threads sleep.
 *
 * Some sources have a higher throughput with more parallel reads, others a
 * lower one.  Only a trial shows which.  So it begins with one load at a time
 * and measures the throughput in stretches.  A stretch is a period of a few
 * loads in which readers want as many loads as are allowed; otherwise the
 * reader would be measured and not the source.  A trial allows twice or half as
 * many loads for one stretch.  The greater number is kept if it is faster, the
 * smaller one if it is not slower.
 *
 * At first stretches are short, and each one tries twice as many loads, until
 * this is not faster.  Later there is a trial from time to time.  If a number
 * failed, or was left for one that was a quarter faster, some stretches pass
 * before it is tried again; their number doubles with each failure.  A trial
 * ends early if it takes a quarter longer than allowed.  The measurements
 * between trials follow changes of the source.
 *
 * All files of a source share one struct, so that new files begin with the
 * current number, and it limits all loads together.  Loads that hang are no
 * longer counted.
 *
 * Threads: the caller holds a lock and passes the time.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define RSH_DEPTH_LEVELS 8
#define RSH_DEPTH_MOST 128 /* 2 to the power of the last level */

/* A level is tried again after `wait` stretches.  If that trial fails the next
 * wait is `pause` stretches. */
struct rsh_depth_level {
	unsigned wait, pause;
};

struct rsh_depth {
	unsigned most;  /* maximum of loads at a time */
	unsigned least; /* lowest level */
	unsigned level; /* 2 to the power of this are allowed at a time */
	int step;       /* trial: 1 level up, or -1; 0: none */
	uint64_t longest_ns; /* longest time for a load; 0: no limit */
	uint64_t long_ns;    /* mean time of a load, compared with it; 0:
			      * unknown */
	uint64_t cut_ns;     /* when the number was reduced because of it; loads
			      * that began before are not counted */
	uint64_t base_ns; /* mean time of a MiB at this level; 0: unknown */
	bool strange;     /* the last stretch was very different from base_ns */
	uint64_t load_ns; /* mean time of a load, trials included */
	bool starting;    /* no trial has failed yet */
	struct rsh_depth_level at[RSH_DEPTH_LEVELS];

	unsigned n_loads; /* in progress */
	unsigned n_late;  /* loads that hang, which began until late_ns, and are
			   * not in n_loads */
	uint64_t late_ns;
	uint64_t event_ns; /* when a load last began or ended */
	bool hung;         /* no load has ended since some were found to hang */

	/* The rest describes the stretch, which begins when all loads that
	 * began before it have ended. */
	bool measuring, full; /* full: readers want as many loads as are
			       * allowed */
	uint64_t before_ns, start_ns, full_ns;
	unsigned n_before, n_ended;
	uint64_t work;
};

/* `most` is at least 1; the limit is RSH_DEPTH_MOST. */
void rsh_depth_init(struct rsh_depth *d, unsigned most);
/* For a source with a long latency: it starts with `least` loads, a power of
 * two, and no trial goes below, unless loads take longer than `longest_ns`.  In
 * that case loads wait for each other, as on a slow line, and fewer are
 * allowed. */
void rsh_depth_far(struct rsh_depth *d, unsigned least, uint64_t longest_ns);

/* Returns how many loads are allowed at a time now. */
unsigned rsh_depth_limit(const struct rsh_depth *d);
/* Returns how many more loads may begin now. */
unsigned rsh_depth_room(const struct rsh_depth *d);

/* Report the begin and the end of a load.  rsh_depth_begin() returns the value
 * for `begun`.  `bytes` are what the load read (0: it failed), `waiting` is how
 * many more loads readers want at that time. */
uint64_t rsh_depth_begin(struct rsh_depth *d, unsigned waiting, uint64_t now);
void rsh_depth_end(struct rsh_depth *d, uint64_t begun, uint64_t bytes,
		   unsigned waiting, uint64_t now);

/* Returns the time at which the loads in progress will count as hanging, if
 * none of them ends before. */
uint64_t rsh_depth_patience(const struct rsh_depth *d);
/* No longer counts the loads in progress if they hang. */
void rsh_depth_look(struct rsh_depth *d, uint64_t now);
