/* SPDX-License-Identifier: Apache-2.0 */
/* util/memory_limits.c finds the largest mapping that is possible, and reads
 * the limits of the process's control groups. */
#include "rsh/util/memory_limits.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "rsh/util/checked.h"
#include "rsh/util/files.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"

uint64_t rsh_physical_memory(void)
{
	return (uint64_t)sysconf(_SC_PHYS_PAGES) *
	       (uint64_t)sysconf(_SC_PAGESIZE);
}

/* ---- mapped memory ---- */

/* This is far more than the deepest call chain takes, and less than the usual
 * 8 MiB. */
#define STACK_BYTES (512 * 1024)

#define STEP_BYTES ((uint64_t)64 * 1024)

static uint64_t lowest_limit(void)
{
	static const int kinds[] = { RLIMIT_AS, RLIMIT_DATA };
	uint64_t least = RSH_MEMORY_UNLIMITED;
	struct rlimit lim;

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (getrlimit((__rlimit_resource_t)kinds[i], &lim) == 0 &&
		    lim.rlim_cur != RLIM_INFINITY)
			least = rsh_min_u64(least, lim.rlim_cur);
	return least;
}

static bool can_map(uint64_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		return false;
	munmap(p, bytes);
	return true;
}

uint64_t rsh_memory_left_to_map(void)
{
	uint64_t limit = lowest_limit(), can = 0, cannot;

	if (limit == RSH_MEMORY_UNLIMITED)
		return limit;
	cannot = limit / STEP_BYTES + 1;
	while (can + 1 < cannot) {
		const uint64_t middle = can + (cannot - can) / 2;

		if (can_map(middle * STEP_BYTES))
			can = middle;
		else
			cannot = middle;
	}
	return can * STEP_BYTES;
}

void rsh_memory_save_addresses(void)
{
	/* The wheel works with glibc 2.17, which does not have it. */
	int (*set_default)(const pthread_attr_t *);
	pthread_attr_t attr;

	/* Many threads read files at first, and few do later.  Each arena keeps
	 * what its threads have freed. */
	mallopt(M_ARENA_MAX, 2);
	if (lowest_limit() == RSH_MEMORY_UNLIMITED || pthread_attr_init(&attr))
		return;
	mallopt(M_ARENA_MAX, 1);
	*(void **)&set_default =
		dlsym(RTLD_DEFAULT, "pthread_setattr_default_np");
	if (set_default && pthread_attr_setstacksize(&attr, STACK_BYTES) == 0)
		set_default(&attr);
	pthread_attr_destroy(&attr);
}

/* ---- resident memory ---- */

/* The file names of a version of control groups. */
struct names {
	const char *mount, *limit, *usage;
	const char *spare[3]; /* keys of memory.stat: reclaimable memory */
};

static const struct names v1 = {
	"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
	"memory.usage_in_bytes", { "total_active_file ",
	"total_inactive_file " },
};
static const struct names v2 = {
	"/sys/fs/cgroup", "memory.max", "memory.current",
	{ "active_file ", "inactive_file ", "slab_reclaimable " },
};

static FILE *open_in(const char *group, const char *name)
{
	cleanup_free char *path = rsh_text_format("%s/%s", group, name);

	if (!path)
		return NULL;
	return fopen(path, "re");
}

/* Returns false if there is no such file or it says "max". */
static bool number_in(const char *group, const char *name, uint64_t *out)
{
	cleanup_file FILE *f = open_in(group, name);
	bool found = f && fscanf(f, "%" SCNu64, out) == 1;

	return found;
}

/* Returns how many bytes of a group the kernel can reclaim: page cache, and
 * caches of inodes and names. */
static uint64_t spare_of(const char *group, const struct names *n)
{
	cleanup_file FILE *f = open_in(group, "memory.stat");
	cleanup_free char *line = NULL;
	uint64_t spare = 0;
	size_t cap = 0;

	while (f && getline(&line, &cap, f) > 0) {
		for (size_t i = 0; i < 3 && n->spare[i]; i++)
			if (strncmp(line, n->spare[i],
				    strlen(n->spare[i])) == 0)
				spare += strtoull(line + strlen(n->spare[i]),
						  NULL, 10);
	}
	return spare;
}

static uint64_t limits_of(const char *group, const struct names *n)
{
	uint64_t limit, usage, spare;

	if (!number_in(group, n->limit, &limit) ||
	    !number_in(group, n->usage, &usage))
		return RSH_MEMORY_UNLIMITED;
	/* Version 1 gives a very large number if there is no limit. */
	if (limit >= UINT64_MAX / 4)
		return RSH_MEMORY_UNLIMITED;
	spare = rsh_min_u64(spare_of(group, n), usage);
	usage -= spare;
	return limit > usage ? limit - usage : 0;
}

/* Returns the least that a group and its parents leave.  In a container the
 * parents may be invisible, and so may the group itself under its name
 * outside. */
static uint64_t limits_along(const char *path, const struct names *n)
{
	cleanup_free char *group = rsh_text_format("%s%s", n->mount, path);
	uint64_t least = RSH_MEMORY_UNLIMITED;
	char *end;

	if (!group)
		return least;
	for (;;) {
		least = rsh_min_u64(least, limits_of(group, n));
		end = strrchr(group, '/');
		if (!end || strlen(group) <= strlen(n->mount))
			return least;
		*end = '\0';
	}
}

/* A line of /proc/self/cgroup is NUMBER:CONTROLLERS:PATH; the line of version 2
 * has no controllers. */
static uint64_t limits_of_line(char *line)
{
	const char *controllers = strchr(line, ':');
	char *path = controllers ? strchr(controllers + 1, ':') : NULL;

	line[strcspn(line, "\n")] = '\0';
	if (!path || path[1] != '/')
		return RSH_MEMORY_UNLIMITED;
	*path++ = '\0';
	controllers++;
	if (!*controllers)
		return limits_along(path, &v2);
	return rsh_word_place(controllers, ",", "memory", 6) >= 0 ?
	       limits_along(path, &v1) : RSH_MEMORY_UNLIMITED;
}

uint64_t rsh_memory_left_resident(void)
{
	cleanup_file FILE *f = fopen("/proc/self/cgroup", "re");
	cleanup_free char *line = NULL;
	uint64_t least = RSH_MEMORY_UNLIMITED;
	size_t cap = 0;

	while (f && getline(&line, &cap, f) > 0)
		least = rsh_min_u64(least, limits_of_line(line));
	return least;
}
