/* SPDX-License-Identifier: Apache-2.0 */
/* unit/support.c - see support.h. */
#include "config.h"

#include "support.h"

#include <fcntl.h>
#include <stdbool.h>
#include <ftw.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

char *tree_make(void)
{
	const char *tmp = getenv("TMPDIR");
	char *path;

	assert_true(asprintf(&path, "%s/reshardfs-unit-XXXXXX",
			     tmp ? tmp : "/tmp") > 0);
	assert_non_null(mkdtemp(path));
	return path;
}

static int remove_one(const char *path, const struct stat *st, int type,
		      struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

void tree_remove(char *path)
{
	assert_int_equal(nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
	free(path);
}

void tree_write(const char *tree, const char *name, const void *data,
		size_t len)
{
	char path[4096];
	char *slash;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", tree, name);
	for (slash = path + strlen(tree) + 1; (slash = strchr(slash, '/'));
	     slash++) {
		*slash = '\0';
		mkdir(path, 0755);
		*slash = '/';
	}
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, data, len), (ssize_t)len);
	close(fd);
}

/* splitmix64 */
uint64_t numbers_next(struct numbers *x)
{
	uint64_t z = x->state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

uint64_t numbers_below(struct numbers *x, uint64_t n)
{
	return numbers_next(x) % n;
}

uint64_t numbers_seed(void)
{
	const char *given = getenv("RSH_TEST_SEED");
	uint64_t seed = given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);

	printf("# RSH_TEST_SEED=%llu\n", (unsigned long long)seed);
	fflush(stdout);
	return seed;
}

static struct numbers own;
static bool has_begun;

void numbers_begin(uint64_t seed)
{
	own.state = seed;
	has_begun = true;
}

uint32_t below(uint32_t n)
{
	if (!has_begun)
		numbers_begin(numbers_seed());
	return (uint32_t)numbers_below(&own, n);
}

int rounds(int n)
{
	const char *given = getenv("RSH_FEWER");
	int fewer = given ? atoi(given) : 1;

	return fewer <= 1 ? n : n > fewer ? n / fewer : 1;
}
