/* SPDX-License-Identifier: Apache-2.0 */
/* unit/cache_support.c - see cache_support.h. */
#include "config.h"

#include "cache_support.h"

#include <mntent.h>
#include <sched.h>
#include <sys/mount.h>
#include <time.h>

/* Tests make and compare hundreds of megabytes: without optimisation that is most of
 * what they compute, and under an emulator minutes. */
#ifndef __clang__
#pragma GCC optimize("O2")
#endif

static void give_up_copies(void)
{
	FILE *f = setmntent("/proc/self/mounts", "r");
	struct mntent *m;

	while (f && (m = getmntent(f)))
		if (strncmp(m->mnt_type, "fuse", 4) == 0 &&
		    strstr(m->mnt_dir, "/reshardfs-"))
			umount2(m->mnt_dir, MNT_DETACH);
	if (f)
		endmntent(f);
}

bool mount_own_tmpfs(const char *dir, const char *options)
{
	if (unshare(CLONE_NEWNS) != 0 ||
	    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
		return false;
	give_up_copies();
	return mount("none", dir, "tmpfs", 0, options) == 0;
}

/* A number that looks random, of each number. */
static uint64_t mix(uint64_t x)
{
	x += UINT64_C(0x9e3779b97f4a7c15);
	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

void made_file_describe(struct made_file *f, uint64_t number, uint64_t size)
{
	memset(f, 0, sizeof(*f));
	f->id = (struct rsh_cache_file_id){
		.dev = 1, .ino = number, .size = size, .mtime_sec = 1000,
		.mtime_nsec = 7, .epoch = 1, .step = 20,
	};
}

void made_file_init(struct made_file *f, struct rsh_cache *c, uint64_t number,
		    uint64_t size)
{
	made_file_describe(f, number, size);
	f->handle = rsh_cache_file_open(c, &f->id);
}

static uint64_t made_word(const struct made_file *f, uint64_t offset)
{
	const uint64_t random = mix(f->id.ino << 40 ^ offset / 8);
	enum made_shape shape = f->shape;

	if (shape == MADE_MIXED)
		shape = (enum made_shape)(mix(f->id.ino << 20 ^
					      offset / 20000) % 4);
	switch (shape) {
	case MADE_RANDOM:
		return random;
	case MADE_HALVES:
		return random & UINT64_C(0xffff0000ffff0000);
	case MADE_ZEROS:
		return 0;
	case MADE_MIXED:
		break;
	}
	return offset / 300 * UINT64_C(0x0101010101010101);
}

void made_file_bytes(const struct made_file *f, uint64_t offset, uint8_t *buf,
		     size_t len)
{
	while (len) {
		const uint64_t word = made_word(f, offset - offset % 8);
		const size_t skip = offset % 8;
		const size_t n = len < 8 - skip ? len : 8 - skip;

		memcpy(buf, (const uint8_t *)&word + skip, n);
		buf += n;
		offset += n;
		len -= n;
	}
}

static void pause_us(unsigned us)
{
	const struct timespec t = { us / 1000000, us % 1000000 * 1000 };

	nanosleep(&t, NULL);
}

int made_file_load(void *ctx, uint64_t offset, const struct iovec *iov,
		   int n_iov)
{
	struct made_file *f = ctx;
	uint64_t at = offset;
	int fail;

	f->loads++;
	f->holding++;
	while (f->hold_back)
		pause_us(100);
	f->holding--;
	if (f->delay_us)
		pause_us(f->delay_us);
	/* Once: it may change, and what did not load must not give 0. */
	fail = f->fail;
	if (fail)
		return fail;
	for (int i = 0; i < n_iov; i++) {
		made_file_bytes(f, at, iov[i].iov_base, iov[i].iov_len);
		at += iov[i].iov_len;
	}
	f->bytes += at - offset;
	f->last_offset = offset;
	f->last_len = at - offset;
	return 0;
}

int read_checked(struct rsh_cache *c, struct made_file *f, uint64_t offset,
		 size_t len)
{
	uint8_t *got = malloc(len + 1), *wanted = malloc(len + 1);
	int rc;

	got[len] = 0xa5;
	rc = rsh_cache_read(c, f->handle, offset, got, len, MADE(f));
	made_file_bytes(f, offset, wanted, len);
	if (got[len] != 0xa5 || (rc == 0 && memcmp(got, wanted, len) != 0)) {
		/* Perhaps in a thread, where cmocka cannot fail. */
		printf("Bail out! wrong bytes: file %llu, %zu at %llu\n",
		       (unsigned long long)f->id.ino, len,
		       (unsigned long long)offset);
		fflush(stdout);
		abort();
	}
	free(got);
	free(wanted);
	return rc;
}

unsigned loads_of(struct rsh_cache *c, struct made_file *f, uint64_t offset,
		  size_t len)
{
	const unsigned before = f->loads;

	assert_int_equal(read_checked(c, f, offset, len), 0);
	return f->loads - before;
}

struct rsh_cache *cache_make(const struct rsh_cache_options *opts)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_cache *c = NULL;

	assert_good(rsh_cache_new(opts, &c, &err), err);
	return c;
}

struct rsh_cache_stats cache_stats(struct rsh_cache *c)
{
	struct rsh_cache_stats s;

	rsh_cache_stats_get(c, &s);
	return s;
}
