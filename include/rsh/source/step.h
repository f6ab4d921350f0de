/* SPDX-License-Identifier: Apache-2.0 */
/* source/step.h defines the step of a checkpoint, and parses it from names.
 *
 * These functions do no I/O and do not allocate; any thread may call them.  A
 * number that does not fit 64 bits is not a number: if a name has one in the
 * place of a step, it has no step.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RSH_STEP_NUMBERS_MAX 8
#define RSH_RANK_UNKNOWN UINT32_MAX

struct rsh_step {
	/* These are from the name of the directory of a power-off save,
	 * otherwise 0.  Such jobs count the steps of a file from the beginning
	 * of the epoch. */
	uint64_t dir_epoch, dir_step;
	unsigned n; /* number of `numbers`; 0: the name has no step */
	/* The most significant number comes first: epoch and step, or what the
	 * framework counts. */
	uint64_t numbers[RSH_STEP_NUMBERS_MAX];
	/* So many of them, the first ones, are behind a word such as "step" in
	 * the name. */
	unsigned n_words;
	uint64_t run;    /* distinguishes several runs of that step; 0: the
			  * first or only one */
	bool breakpoint; /* saved by a job that crashed */
};

/* This is what a name says. */
struct rsh_step_name {
	struct rsh_step step;
	/* This is the name of the checkpoint in messages: "net-5_10.ckpt",
	 * "ckpt-5", "iter_0000123".  Files of one directory with the same label
	 * are one checkpoint. */
	char label[NAME_MAX + 1];
	/* This is the name without its numbers; two series at one step are two
	 * checkpoints. */
	char series[NAME_MAX + 1];
	/* The link "latest" to a file has what follows so many bytes of the
	 * file's name. */
	size_t n_stem;
};

/* Reads the step from a name: all numbers in its first n bytes except the
 * rank's, from left to right, but first those behind step, iter, iteration or
 * epoch (any case, perhaps with '_', '-' or '=' between), since another number
 * may be a loss: "loss1.99_step1000" is 1000, 1, 99.  In the series they are
 * replaced by '#'.  The label is the whole name, and the stem its first n
 * bytes. */
void rsh_step_name_read(const char *name, size_t n, struct rsh_step_name *out);

/* Returns a negative number if x is newer than y, and 0 if both have the same
 * step, even in different runs.  If the first numbers are equal, the one with
 * more numbers is newer. */
int rsh_step_cmp(const struct rsh_step *x, const struct rsh_step *y);

/* Finds "rank", an optional '_' or '-', and a number in the first n characters
 * of a name, and sets where the number begins and ends.  The rank of LoRA's
 * matrices ("lora_rank16") does not count.  Returns false if there is none. */
bool rsh_rank_in_name(const char *name, size_t n, size_t *begin, size_t *end);

/* Returns whether the first n characters of a path are "rank_3" or "ckpt_3", as
 * the directory of a rank is called. */
bool rsh_rank_dir_is(const char *name, size_t n);
/* Returns whether a directory is called as that of one rank of a job may be,
 * if nothing else is known of it: rank_3, Rank-3, rank3, device_3, card3,
 * npu_3. */
bool rsh_rank_dir_may_be(const char *name, size_t n);

/* Parses <prefix>-<epoch>_<step>, or <prefix>_<K>-... of the K-th run that
 * found files with the same prefix, in the n characters before the suffix of a
 * name that ModelCheckpoint makes.  If the prefix ends in "rank_" and a number,
 * the number is a rank and not a run if it is `rank`, or if `rank` is unknown.
 * Sets all of *out except what directories say, and returns the length of the
 * prefix. */
size_t rsh_modelcheckpoint_read(const char *name, size_t n, uint32_t rank,
				struct rsh_step *out);

/* Parses the name of a directory that a job writes when the power fails:
 * "tft_saved_checkpoints-step_<N>" and "ttp_saved_checkpoints-step_<N>" or
 * "-<epoch>_<step>"; *complete is true unless "_tmp" follows. */
bool rsh_power_off_read(const char *name, uint64_t *epoch, uint64_t *step,
			bool *complete);
