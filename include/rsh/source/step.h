/* SPDX-License-Identifier: Apache-2.0 */
/* source/step.h - the step of a checkpoint, and how it is read from names.
 *
 * These functions do no I/O and do not allocate; any thread may call them.  A
 * number that does not fit 64 bits is not a number: a name with one in the
 * place of a step has no step.
 */
#ifndef RSH_SOURCE_STEP_H
#define RSH_SOURCE_STEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RSH_STEP_NUMBERS_MAX 8
#define RSH_RANK_UNKNOWN UINT32_MAX

struct rsh_step {
	/* From the name of the directory of a power-off save, else 0: such jobs
	 * count the steps of a file from the beginning of the epoch. */
	uint64_t dir_epoch, dir_step;
	unsigned n; /* how many numbers; 0: the name says no step */
	/* The most significant number comes first: epoch and step, or what the
	 * framework counts. */
	uint64_t numbers[RSH_STEP_NUMBERS_MAX];
	uint64_t run;    /* tells several of that step apart; 0: the first or
			  * only one */
	bool breakpoint; /* saved by a job that crashed */
};

/* Gives a negative number if x is newer than y, and 0 if they are of one step,
 * whatever the run.  Of two with the same first numbers the one with more of
 * them is newer. */
int rsh_step_cmp(const struct rsh_step *x, const struct rsh_step *y);

/* Reads a number of n digits; false if n is 0, another character is among them,
 * or the number is too large. */
bool rsh_number_read(const char *digits, size_t n, uint64_t *out);
/* Returns how many of the first n characters of s are leading digits. */
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
