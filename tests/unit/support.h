/* SPDX-License-Identifier: Apache-2.0 */
/* unit/support.h - directories and numbers for tests of any layer. */
#ifndef UNIT_SUPPORT_H
#define UNIT_SUPPORT_H

#include <stddef.h>
#include <stdint.h>

/* A fresh directory under $TMPDIR, and its removal with all that is in it. */
char *tree_make(void);
void tree_remove(char *path);

/* Writes a file below `tree`, making its directory. */
void tree_write(const char *tree, const char *name, const void *data,
		size_t len);

/*
 * For a test that finds that the machine lacks what it needs: it stands behind
 * UNIT_TEST_NAME(test), is listed as UNIT_TEST_MAY_SKIP(test), calls
 * unit_skip(test_name, why) and returns, and its line says "ok ... # SKIP why".
 * cmocka's skip() writes "not ok", which is a failure to whoever reads TAP.
 */
#define UNIT_NAME_MAX 128
#define UNIT_TEST_NAME(test) static char test##_name[UNIT_NAME_MAX] = #test
#define UNIT_TEST_MAY_SKIP(test) { test##_name, test, NULL, NULL, NULL }
void unit_skip(char name[UNIT_NAME_MAX], const char *why);

/* Numbers that look random, the same for the same seed. */
struct numbers {
	uint64_t state;
};
uint64_t numbers_next(struct numbers *x);
/* 0 .. n-1 */
uint64_t numbers_below(struct numbers *x, uint64_t n);
/* $RSH_TEST_SEED, or one from the clock; printed as a TAP comment. */
uint64_t numbers_seed(void);

/* Returns the number of rounds of a test that makes `n` where they are fast:
 * $RSH_FEWER times fewer, and at least one. */
int rounds(int n);

#endif
