/* SPDX-License-Identifier: Apache-2.0 */
/* storage/cache/disk_trim.c keeps the directory within its limit.
 *
 * There may be half a million files.  So they are not sorted.  A first pass
 * adds up their bytes by age, in steps that are finer for newer files.  A
 * second pass removes the files that are older than the age at which enough
 * bytes are removed.
 */
#include "config.h"

#include "disk_i.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "rsh/util/checked.h"
#include "rsh/util/files.h"
#include "rsh/util/mem.h"

#define TEMP_SUFFIX ".tmp"

/* No write takes ten minutes, so the process of such an old temporary file has
 * ended. */
#define TEMP_AGE 600

/* Ages are in seconds: exact below 32, then 16 steps for each doubling. */
#define N_AGES (32 + 59 * 16)

struct pass {
	int dirfd;
	int64_t now;
	uint64_t by_age[N_AGES];
	unsigned cut;      /* files of a higher age are removed */
	uint64_t cut_rest; /* and this many bytes of that age */
	struct rsh_disk_look look;
};

uint64_t rsh_disk_cost(uint64_t bytes)
{
	return (bytes + 4095) & ~UINT64_C(4095);
}

static unsigned trim_age(const struct pass *p, const struct stat *st)
{
	uint64_t age;
	unsigned log;

	if (st->st_mtim.tv_sec >= p->now)
		return 0;
	age = (uint64_t)(p->now - st->st_mtim.tv_sec);
	if (age < 32)
		return (unsigned)age;
	log = 63 - (unsigned)__builtin_clzll(age);
	return 32 + (log - 5) * 16 + (unsigned)(age >> (log - 4) & 15);
}

static bool trim_is_temp(const char *name)
{
	return rsh_has_suffix(name, TEMP_SUFFIX) &&
	       strspn(name, "0123456789abcdef-") ==
		       strlen(name) - strlen(TEMP_SUFFIX);
}

static void trim_remove(struct pass *p, const char *name, uint64_t cost)
{
	if (unlinkat(p->dirfd, name, 0) != 0)
		return;
	p->look.removed++;
	p->look.total -= cost;
}

static void trim_count(struct pass *p, const char *name, const struct stat *st)
{
	const uint64_t cost = rsh_disk_cost((uint64_t)st->st_size);

	p->look.total += cost;
	if (!trim_is_temp(name))
		p->by_age[trim_age(p, st)] += cost;
	else if (st->st_mtim.tv_sec < p->now - TEMP_AGE)
		trim_remove(p, name, cost);
}

static void trim_remove_old(struct pass *p, const char *name,
			    const struct stat *st)
{
	const uint64_t cost = rsh_disk_cost((uint64_t)st->st_size);
	const unsigned age = trim_age(p, st);

	if (trim_is_temp(name) || age < p->cut ||
	    (age == p->cut && !p->cut_rest))
		return;
	if (age == p->cut)
		p->cut_rest -= rsh_min_u64(cost, p->cut_rest);
	trim_remove(p, name, cost);
}

/* Calls f for each file of the cache.  Returns 0 or a positive errno. */
static int trim_each_file(struct pass *p,
			  void (*f)(struct pass *p, const char *name,
				    const struct stat *st))
{
	DIR *dir = rsh_dir_of(openat(p->dirfd, ".", O_RDONLY | O_DIRECTORY |
				     O_CLOEXEC));
	struct dirent *e;
	struct stat st;
	int rc;

	if (!dir)
		return errno;
	while (errno = 0, (e = readdir(dir))) {
		if (!rsh_block_file_is_name(e->d_name) &&
		    !trim_is_temp(e->d_name))
			continue;
		if (fstatat(p->dirfd, e->d_name, &st,
			    AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
			f(p, e->d_name, &st);
	}
	rc = errno;
	closedir(dir);
	return rc;
}

int rsh_disk_look(int dirfd, uint64_t limit, uint64_t target,
		  struct rsh_disk_look *out)
{
	cleanup_free struct pass *p = calloc(1, sizeof(*p));
	int rc;

	if (!p)
		return ENOMEM;
	p->dirfd = dirfd;
	p->now = time(NULL);
	rc = trim_each_file(p, trim_count);
	if (rc == 0 && p->look.total > limit) {
		uint64_t excess = p->look.total - target;

		/* The files of the age `cut` and older have these bytes. */
		p->cut = N_AGES - 1;
		while (p->cut && p->by_age[p->cut] < excess)
			excess -= p->by_age[p->cut--];
		p->cut_rest = excess;
		rc = trim_each_file(p, trim_remove_old);
	}
	*out = p->look;
	return rc;
}
