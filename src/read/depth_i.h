/* SPDX-License-Identifier: Apache-2.0 */
/* read/depth_i.h - how many windows are filled at a time from a source that
 * makes threads sleep.
 *
 * Some sources give the more the more is asked of them at once, others the
 * less, and only trying tells.  So it begins with one at a time, and what comes
 * of that is measured in stretches: a few loads, during all of which as many
 * were wanted as were allowed, or else it is the reader who is measured.  Twice
 * as many are tried for a stretch, or half as many, and kept where they give
 * more, or not less.  At first stretches are short and twice as many are tried
 * one after the other, until that pays no more; later on now and then.  A number
 * that failed, or that was left for one a quarter better, is not tried again
 * before some stretches have passed, after each failure twice as many as before;
 * a trial that takes a quarter more than it may ends early.  What is measured in
 * between follows a source that changes.
 *
 * One of these serves all files of a source, so that new ones begin with what
 * the others have found, and bounds all of their loads together.  Whose loads
 * are hung is written off: they are no longer counted.
 *
 * Threads: none of its own; the caller has a lock.  Time is handed in.
 */
#ifndef RSH_READ_DEPTH_I_H
#define RSH_READ_DEPTH_I_H

#include <stdbool.h>
#include <stdint.h>

#define RSH_DEPTH_LEVELS 5
#define RSH_DEPTH_MOST 16 /* 2 to the power of the last level */

/* Until that level is tried: stretches, and how many after the next trial that
 * fails. */
struct rsh_depth_level {
	unsigned wait, pause;
};

struct rsh_depth {
	unsigned most;  /* at a time, whatever comes of it */
	unsigned level; /* 2 to the power of it at a time */
	int step;       /* what is being tried: 1 more, or -1; 0: nothing */
	uint64_t base_ns; /* mean time a MiB at that level; 0: not known */
	bool strange;     /* the last stretch was nothing like it */
	uint64_t load_ns; /* mean time a load, be it of the trial */
	bool starting;    /* no trial has failed yet */
	struct rsh_depth_level at[RSH_DEPTH_LEVELS];

	unsigned n_loads; /* under way */
	unsigned n_late;  /* and those written off, begun up to late_ns */
	uint64_t late_ns;
	uint64_t event_ns; /* of the last begin or end */
	bool hung;         /* none has ended since the last was written off */

	/* The stretch, which begins when all loads begun before are over. */
	bool measuring, full; /* full: as many are wanted as are allowed */
	uint64_t before_ns, start_ns, full_ns, sum_ns;
	unsigned n_before, n_ended;
	uint64_t work;
};

/* `most` is 1 or more; RSH_DEPTH_MOST is the most there are. */
void rsh_depth_init(struct rsh_depth *d, unsigned most);

/* How many may be under way now. */
unsigned rsh_depth_limit(const struct rsh_depth *d);
/* How many more may begin now. */
unsigned rsh_depth_room(const struct rsh_depth *d);

/* A load begins, and ends that gave so many bytes (0: it failed); `waiting` more
 * are wanted then.  What beginning returns is the load's number. */
uint64_t rsh_depth_begin(struct rsh_depth *d, unsigned waiting, uint64_t now);
void rsh_depth_end(struct rsh_depth *d, uint64_t begun, uint64_t bytes,
		   unsigned waiting, uint64_t now);

/* When those under way will have hung, if none of them ends before. */
uint64_t rsh_depth_patience(const struct rsh_depth *d);
/* Writes them off if it has come to that. */
void rsh_depth_look(struct rsh_depth *d, uint64_t now);

#endif
