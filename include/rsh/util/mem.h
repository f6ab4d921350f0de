/* SPDX-License-Identifier: Apache-2.0 */
/* util/mem.h - owning pointers and descriptors, and growing arrays. */
#ifndef RSH_UTIL_MEM_H
#define RSH_UTIL_MEM_H

#include <dirent.h>
#include <stddef.h>
#include <stdint.h>

/* Makes room for `need` elements of `elem` bytes in the array *ptr, whose
 * capacity in elements is *cap; grows by doubling.  0 or -ENOMEM (the array
 * is then unchanged). */
int rsh_grow(void *ptr, size_t *cap, size_t need, size_t elem);

/* For qsort(): numbers of type uint32_t, ascending. */
int rsh_by_u32(const void *a, const void *b);
/* Of n ascending numbers the first that is no lower than x; n if none is. */
uint32_t rsh_first_from(const uint32_t *v, uint32_t n, uint32_t x);

/* malloc of n*elem bytes, NULL on overflow too; never a zero-size request. */
void *rsh_alloc_array(size_t n, size_t elem);

/* Scope guards: `cleanup_free char *p = NULL;`, `cleanup_fd int fd = -1;`.
 * They keep errno. */
void rsh_cleanup_free_(void *p);
void rsh_cleanup_fd_(int *fd);
#define cleanup_free __attribute__((cleanup(rsh_cleanup_free_)))
#define cleanup_fd __attribute__((cleanup(rsh_cleanup_fd_)))

/* Takes the value out of a guarded variable, which is left empty. */
#define steal_pointer(pp) \
	({ __typeof__(*(pp)) stolen_ = *(pp); *(pp) = NULL; stolen_; })
static inline int steal_fd(int *fd)
{
	int v = *fd;

	*fd = -1;
	return v;
}

/* The directory of a descriptor, which it takes over in any case; NULL with
 * errno, which is as it was for a negative one. */
DIR *rsh_dir_of(int fd);

#endif
