/* SPDX-License-Identifier: Apache-2.0 */
/* read/depth_i.h decides how many windows are filled at a time from a source
 * that makes threads sleep.
 *
 * Some sources give the more the more is asked of them at once, others the
 * less, and only trying tells.  So one load at a time is what it begins with,
 * and what a number of loads gives is measured in stretches.  A stretch is a
 * few loads, during all of which as many were wanted as were allowed; otherwise
 * it would be the reader who is measured.  For a stretch twice as many loads
 * are tried, or half as many; the greater number is kept if it gives more, the
 * smaller one if it does not give less.
 *
 * At first stretches are short and twice as many loads are tried one stretch
 * after the other, until that pays no more; later on trials are made now and
 * then.  A number that failed, or that was left for one a quarter better, is
 * not tried again before some stretches have passed, after each failure twice
 * as many as before; a trial that takes a quarter more than it may ends early.
 * What is measured in between follows a source that changes.
 *
 * One of these serves all files of a source, so that new files begin with what
 * the others have found, and bounds all of their loads together.  Loads that
 * hang are written off: they are no longer counted.
 *
 * Threads: it has none of its own; the caller holds a lock.  Time is handed in.
 */
#ifndef RSH_READ_DEPTH_I_H
#define RSH_READ_DEPTH_I_H

#include <stdbool.h>
#include <stdint.h>

#define RSH_DEPTH_LEVELS 8
#define RSH_DEPTH_MOST 128 /* 2 to the power of the last level */

/* Says when a level is tried again: after `wait` stretches, and after `pause`
 * of them once the next trial of it has failed. */
struct rsh_depth_level {
	unsigned wait, pause;
};

struct rsh_depth {
	unsigned most;  /* loads at a time that are never exceeded */
	unsigned least; /* the lowest level */
	unsigned level; /* 2 to the power of it are allowed at a time */
	int step;       /* the trial: 1 level up, or -1; 0: none */
	uint64_t longest_ns; /* that a load may take, 0: no matter */
	uint64_t long_ns;    /* mean time of a load for that; 0: not known */
	uint64_t cut_ns;     /* when they took longer: those that began before
			      * count no more */
	uint64_t base_ns; /* mean time of a MiB at this level; 0: not known */
	bool strange;     /* the last stretch was nothing like base_ns */
	uint64_t load_ns; /* mean time of a load, also while trying */
	bool starting;    /* no trial has failed yet */
	struct rsh_depth_level at[RSH_DEPTH_LEVELS];

	unsigned n_loads; /* under way */
	unsigned n_late;  /* loads written off, which began up to late_ns */
	uint64_t late_ns;
	uint64_t event_ns; /* when a load last began or ended */
	bool hung;         /* none has ended since one was written off */

	/* These are of the stretch, which begins when all loads that began
	 * before it are over. */
	bool measuring, full; /* full: as many are wanted as are allowed */
	uint64_t before_ns, start_ns, full_ns, sum_ns;
	unsigned n_before, n_ended;
	uint64_t work;
};

/* `most` is 1 or more, and no more than RSH_DEPTH_MOST count. */
void rsh_depth_init(struct rsh_depth *d, unsigned most);
/* The source lies far away: no fewer loads than `least`, a power of two, are
 * tried, and so many at first, unless they take longer than `longest_ns`.  Then
 * they wait for each other, as behind a slow line, and there are fewer. */
void rsh_depth_far(struct rsh_depth *d, unsigned least, uint64_t longest_ns);

/* Returns how many loads may be under way now. */
unsigned rsh_depth_limit(const struct rsh_depth *d);
/* Returns how many more loads may begin now. */
unsigned rsh_depth_room(const struct rsh_depth *d);

/* A load begins, and the load that began at `begun` ends and gave so many bytes
 * (0: it failed); `waiting` more are wanted at that time.  What
 * rsh_depth_begin() returns is the load's number. */
uint64_t rsh_depth_begin(struct rsh_depth *d, unsigned waiting, uint64_t now);
void rsh_depth_end(struct rsh_depth *d, uint64_t begun, uint64_t bytes,
		   unsigned waiting, uint64_t now);

/* Returns when the loads under way will have hung, if none of them ends
 * before. */
uint64_t rsh_depth_patience(const struct rsh_depth *d);
/* Writes the loads under way off if they have hung. */
void rsh_depth_look(struct rsh_depth *d, uint64_t now);

#endif
