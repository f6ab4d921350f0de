/* SPDX-License-Identifier: Apache-2.0 */
/* unit/bench_cache.c - what the cache costs: the figures of BENCHMARKING.md.
 *
 *   make -C tests unit/bench_cache && tests/unit/bench_cache [DIRECTORY]
 *
 * DIRECTORY (/tmp) takes a source file of 256 MiB and a cache directory. */
#include "config.h"

#include <fcntl.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "cache_support.h"

#define SOURCE (256 * MIB)
#define SECONDS 1.0
#define MAX_THREADS 32

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ---- a source file ---- */

static int source_fd;

static int load(void *ctx, uint64_t offset, const struct iovec *iov, int n_iov)
{
	(void)ctx;
	/* From the page cache a read is whole. */
	return preadv(source_fd, iov, n_iov, (off_t)offset) > 0 ? 0 : 5;
}

static const struct rsh_cache_loader loader = { load, NULL };

static void make_source(const char *dir)
{
	struct made_file f;
	char path[4096];
	uint8_t *buf = malloc(MIB);

	snprintf(path, sizeof(path), "%s/rsh-bench-source", dir);
	source_fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	unlink(path);
	made_file_describe(&f, 1, SOURCE);
	for (uint64_t at = 0; at < SOURCE; at += MIB) {
		made_file_bytes(&f, at, buf, MIB);
		if (pwrite(source_fd, buf, MIB, (off_t)at) != MIB)
			abort();
	}
	free(buf);
}

static rsh_cache_file open_source(struct rsh_cache *c)
{
	const struct rsh_cache_file_id id = { .ino = 1, .size = SOURCE };

	return rsh_cache_file_open(c, &id);
}

/* ---- threads that read at random ---- */

struct reader {
	pthread_t thread;
	struct rsh_cache *c;
	struct numbers numbers;
	size_t len;
	uint64_t n;
};

static atomic_bool stop;

static void *reader_main(void *arg)
{
	struct reader *r = arg;
	const rsh_cache_file file = open_source(r->c);
	uint8_t *buf = malloc(r->len);

	while (!stop) {
		const uint64_t at = numbers_below(&r->numbers,
						  SOURCE / r->len) * r->len;

		rsh_cache_read(r->c, file, at, buf, r->len, &loader);
		r->n++;
	}
	free(buf);
	return NULL;
}

static double rate(struct rsh_cache *c, unsigned n, size_t len)
{
	struct reader r[MAX_THREADS];
	const double start = now();
	uint64_t sum = 0;

	stop = false;
	for (unsigned i = 0; i < n; i++) {
		r[i] = (struct reader){ .c = c, .numbers = { i }, .len = len };
		pthread_create(&r[i].thread, NULL, reader_main, &r[i]);
	}
	usleep((useconds_t)(SECONDS * 1e6));
	stop = true;
	for (unsigned i = 0; i < n; i++) {
		pthread_join(r[i].thread, NULL);
		sum += r[i].n;
	}
	return (double)sum / (now() - start);
}

static void hits(void)
{
	const unsigned threads[] = { 1, 2, 8, 32 };
	const struct rsh_cache_options opts = {
		.memory_bytes = 2 * SOURCE,
	};
	struct rsh_cache *c = cache_make(&opts);

	rsh_cache_prefetch(c, open_source(c), 0, SOURCE, &loader);
	printf("hits, million a second: threads, 1 byte, 1 KiB, 4 KiB; GB/s: "
	       "1 MiB\n");
	for (size_t i = 0; i < 4; i++)
		printf("%8u %8.2f %8.2f %8.2f %8.2f\n", threads[i],
		       rate(c, threads[i], 1) / 1e6,
		       rate(c, threads[i], KIB) / 1e6,
		       rate(c, threads[i], 4 * KIB) / 1e6,
		       rate(c, threads[i], MIB) * MIB / 1e9);
	rsh_cache_free(c);
}

/* ---- reading from front to back ---- */

static double pass(struct rsh_cache *c, size_t len)
{
	const rsh_cache_file file = open_source(c);
	uint8_t *buf = malloc(len);
	const double start = now();

	for (uint64_t at = 0; at < SOURCE; at += len)
		rsh_cache_read(c, file, at, buf, len, &loader);
	free(buf);
	return SOURCE / (now() - start) / 1e9;
}

static double direct_pass(size_t len)
{
	uint8_t *buf = malloc(len);
	const double start = now();

	for (uint64_t at = 0; at < SOURCE; at += len)
		if (pread(source_fd, buf, len, (off_t)at) < 0)
			abort();
	free(buf);
	return SOURCE / (now() - start) / 1e9;
}

static void passes(uint64_t memory, size_t len)
{
	const uint32_t blocks[] = { 64 << 10, 128 << 10, 256 << 10, 512 << 10,
				    1 << 20 };

	printf("%zu KiB reads, memory %llu MiB, GB/s: block KiB, first, second "
	       "pass (direct %.2f)\n", len / KIB,
	       (unsigned long long)(memory / MIB), direct_pass(len));
	for (size_t i = 0; i < 5; i++) {
		const struct rsh_cache_options opts = {
			.memory_bytes = memory, .block_bytes = blocks[i],
		};
		struct rsh_cache *c = cache_make(&opts);
		const double first = pass(c, len), second = pass(c, len);

		printf("%8u %8.2f %8.2f   bookkeeping %.3f %%\n",
		       blocks[i] >> 10, first, second, 100.0 *
		       (double)cache_stats(c).bookkeeping_bytes /
		       (double)memory);
		rsh_cache_free(c);
	}
}

static void on_disk(const char *dir)
{
	const uint32_t blocks[] = { 64 << 10, 256 << 10, 1 << 20 };
	char *path = NULL;

	printf("directory, GB/s: block KiB, write, read\n");
	for (size_t i = 0; i < 3; i++) {
		struct rsh_cache_options opts = {
			.memory_bytes = 2 * SOURCE, .disk_bytes = GIB * 4,
			.block_bytes = blocks[i],
		};
		struct rsh_cache *c;
		double start, written, read;
		rsh_cache_file file;

		if (asprintf(&path, "%s/rsh-bench-cache-%zu", dir, i) < 0)
			abort();
		opts.dir = path;
		c = cache_make(&opts);
		file = open_source(c);
		start = now();
		for (uint64_t at = 0; at < SOURCE; at += MIB) {
			rsh_cache_prefetch(c, file, at, MIB, &loader);
			rsh_cache_settle(c);
		}
		written = SOURCE / (now() - start) / 1e9;
		rsh_cache_drop(c);
		read = pass(c, MIB);
		printf("%8u %8.2f %8.2f   of %llu blocks %llu from disk\n",
		       blocks[i] >> 10, written, read,
		       (unsigned long long)(SOURCE / blocks[i]),
		       (unsigned long long)cache_stats(c).hits_disk);
		rsh_cache_free(c);
		tree_remove(path);
	}
}

int main(int argc, char **argv)
{
	const char *dir = argc > 1 ? argv[1] : "/tmp";

	make_source(dir);
	hits();
	passes(SOURCE / 4, MIB);
	passes(2 * SOURCE, MIB);
	passes(SOURCE / 4, KIB);
	on_disk(dir);
	close(source_fd);
	return 0;
}
