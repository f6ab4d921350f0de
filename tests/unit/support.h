/* SPDX-License-Identifier: Apache-2.0 */
/* unit/support.h - directories and numbers for tests of any layer. */
#ifndef UNIT_SUPPORT_H
#define UNIT_SUPPORT_H

#include "tests.h"

/* A fresh directory under $TMPDIR, and its removal with all that is in it. */
char *tree_make(void);
void tree_remove(char *path);
RSH_GUARD(cleanup_tree_, char, tree_remove)
#define cleanup_tree __attribute__((cleanup(cleanup_tree_)))

/* Writes a file below `tree`, making its directories. */
void tree_write(const char *tree, const char *name, const void *data,
		size_t len);

/* Numbers that look random, the same for the same seed. */
struct numbers {
	uint64_t state;
};
uint64_t numbers_next(struct numbers *x);
/* 0 .. n-1 */
uint64_t numbers_below(struct numbers *x, uint64_t n);
/* $RSH_TEST_SEED, or one from the clock; printed as a TAP comment. */
uint64_t numbers_seed(void);
/* 0 .. n-1, of the numbers of the program: those of numbers_seed(), or of the
 * seed with which they began last. */
uint32_t below(uint32_t n);
void numbers_begin(uint64_t seed);

/* Returns the number of rounds of a test that makes `n` where they are fast:
 * $RSH_FEWER times fewer, and at least one. */
int rounds(int n);

#endif
