/* SPDX-License-Identifier: Apache-2.0 */
/* util/mem.h - scope guards for pointers and descriptors, growing arrays,
 * sorted arrays, and searches in arrays.  No function keeps state: any thread
 * may call them. */
#pragma once

#include <dirent.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* Makes room for `need` elements of `elem` bytes in the array *ptr, whose
 * capacity in elements is *cap; it grows by doubling.  Returns 0, or -ENOMEM
 * with the array unchanged. */
int rsh_grow(void *ptr, size_t *cap, size_t need, size_t elem);
/* Does the same for the array `v`, an expression without side effects. */
#define rsh_room(v, cap, need) rsh_grow(&(v), &(cap), need, sizeof(*(v)))
/* Appends a value to the array `v` of n elements.  Returns 0 or -ENOMEM. */
#define rsh_push(v, n, cap, ...)               \
	(rsh_room(v, cap, (size_t)(n) + 1) ?: \
	 ((v)[n] = __VA_ARGS__, (n)++, 0))

/* Compares numbers of type uint32_t, for qsort() into ascending order. */
int rsh_by_u32(const void *a, const void *b);
/* Does the same for pointers to strings. */
int rsh_by_text(const void *a, const void *b);
/* Sorts n numbers and leaves each out that is there already.  Returns how many
 * are left. */
size_t rsh_sort_distinct(uint32_t *v, size_t n);
/* Do what qsort() and bsearch() do with an array that may be NULL if n is 0. */
#define rsh_sort(v, n, by)                                \
	do {                                              \
		if ((n) > 1)                              \
			qsort(v, n, sizeof(*(v)), by);    \
	} while (0)
#define rsh_find(key, v, n, by)                           \
	((__typeof__(&*(v)))((n) == 0 ? NULL :            \
			     bsearch(key, v, n, sizeof(*(v)), by)))
/* Gives the first number i below n for which `before`, an expression of i, is
 * false; n if there is none.  It is false from there on. */
#define rsh_first(i, n, before)                                  \
	({                                                       \
		__typeof__((n) + 0) lo_ = 0, hi_ = (n);          \
		while (lo_ < hi_) {                              \
			__typeof__(lo_) i = lo_ + (hi_ - lo_) / 2; \
			if (before)                              \
				lo_ = i + 1;                     \
			else                                     \
				hi_ = i;                         \
		}                                                \
		lo_;                                             \
	})
/* Gives the first number i below n for which `is`, an expression of i, is true;
 * n if there is none.  It is asked of one after the other. */
#define rsh_index(i, n, is)                                      \
	({                                                       \
		__typeof__((n) + 0) end_ = (n), i = 0;           \
		while (i < end_ && !(is))                        \
			i++;                                     \
		i;                                               \
	})
/* These give whether it is true for any or all of them; n has no side
 * effects. */
#define rsh_any(i, n, is) (rsh_index(i, n, is) < (n))
#define rsh_all(i, n, is) (rsh_index(i, n, !(is)) == (n))
/* Returns the index of the first of n ascending numbers that is no lower than
 * x; n if there is none. */
uint32_t rsh_first_from(const uint32_t *v, uint32_t n, uint32_t x);
/* Compares two numbers as strcmp() compares strings, for functions of
 * qsort(). */
static inline int rsh_compare_u64(uint64_t a, uint64_t b)
{
	return (a > b) - (a < b);
}

/* Defines a function for qsort() of values of a type, which gives an expression
 * of pointers x and y to two of them. */
#define RSH_ORDER(name, type, ...)                      \
	static int name(const void *a_, const void *b_) \
	{                                               \
		const type *x = a_;                     \
		const type *y = b_;                     \
		return __VA_ARGS__;                     \
	}

/* Returns n * elem bytes from malloc; NULL means out of memory or overflow.
 * For 0 bytes it still returns an address. */
void *rsh_alloc_array(size_t n, size_t elem);

/* Scope guards: `cleanup_free char *p = NULL;` and `cleanup_fd int fd = -1;`.
 * They keep errno. */
void rsh_cleanup_free_(void *p);
void rsh_cleanup_fd_(int *fd);
#define cleanup_free __attribute__((cleanup(rsh_cleanup_free_)))
#define cleanup_fd __attribute__((cleanup(rsh_cleanup_fd_)))
/* Defines the function of another guard, which calls free_it for a pointer. */
#define RSH_GUARD(name, type, free_it)       \
	static inline void name(type **p)    \
	{                                    \
		free_it(*p);                 \
	}

/* These two return the value of a guarded variable and reset the variable. */
#define steal_pointer(pp) \
	({ __typeof__(*(pp)) stolen_ = *(pp); *(pp) = NULL; stolen_; })
static inline int steal_fd(int *fd)
{
	int v = *fd;

	*fd = -1;
	return v;
}

/* Does fdopendir(), but closes the descriptor on failure.  NULL means failure
 * with errno; a negative fd leaves errno as it was. */
DIR *rsh_dir_of(int fd);
