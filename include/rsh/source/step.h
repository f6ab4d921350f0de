/* SPDX-License-Identifier: Apache-2.0 */
/* source/step.h - the moment of a job that a checkpoint is of, and what names
 * say of it.
 *
 * Nothing here does I/O or allocates.  A number that does not fit 64 bits is
 * none: a name with one in the place of a step has no step.  Any thread may
 * call what is here.
 */
#ifndef RSH_SOURCE_STEP_H
#define RSH_SOURCE_STEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RSH_STEP_NUMBERS_MAX 8
#define RSH_RANK_UNKNOWN UINT32_MAX

struct rsh_step {
	/* These are what the directory of a power-off save says, 0 elsewhere:
	 * such jobs count the steps of a file from the epoch's beginning. */
	uint64_t dir_epoch, dir_step;
	unsigned n; /* how many numbers; 0: the name says no step */
	/* The weightiest number comes first: epoch and step, or what a
	 * framework has. */
	uint64_t numbers[RSH_STEP_NUMBERS_MAX];
	uint64_t run;    /* tells several of that step apart; 0: the first or
			  * only one */
	bool breakpoint; /* saved by a job that crashed */
};

/* Gives a negative number if x is newer than y, and 0 if they are of one step,
 * whatever the run.  Of two with the same first numbers the one with more of
 * them is newer. */
int rsh_step_cmp(const struct rsh_step *x, const struct rsh_step *y);

/* Reads the number that n digits stand for; false if there are none, something
 * else is among them, or it is too large.  All other readers rest on this
 * one. */
bool rsh_number_read(const char *digits, size_t n, uint64_t *out);
/* Says how many digits s begins with, of its first n characters. */
size_t rsh_count_digits(const char *s, size_t n);

/* Finds "rank", perhaps '_' or '-', and a number in the first n characters of a
 * name: where the number begins and ends.  False if there is none. */
bool rsh_rank_in_name(const char *name, size_t n, size_t *begin, size_t *end);

/* Reads <prefix>-<epoch>_<step>, or <prefix>_<K>-... in the K-th run that found
 * files of the same prefix, of the n characters before the suffix of a name as
 * ModelCheckpoint makes it.  Where the prefix ends in "rank_" and a number this
 * is a rank and no run if it is `rank`, or if that is unknown.  Sets all of
 * *out but what directories say, and returns how long the prefix is. */
size_t rsh_modelcheckpoint_read(const char *name, size_t n, uint32_t rank,
				struct rsh_step *out);

/* Reads the name of a directory that a job wrote when its power went:
 * "tft_saved_checkpoints-step_<N>" and "ttp_saved_checkpoints-step_<N>" or
 * "-<epoch>_<step>", *complete unless "_tmp" follows. */
bool rsh_power_off_read(const char *name, uint64_t *epoch, uint64_t *step,
			bool *complete);

#endif
