/* SPDX-License-Identifier: Apache-2.0 */
/* mount/libreshard.c - a program on libreshard alone: what it says of a source
 * and the bytes it reads, for libreshard.py to compare.
 *
 *	libreshard list SOURCE OPTION...        files and records, one a line
 *	libreshard copy DIR SOURCE OPTION...    the files, to DIR/<number>
 *	libreshard race SOURCE OPTION...        threads read all at odd offsets
 *	libreshard misuse SOURCE OPTION...      what must fail, fails
 */
#include "reshard.h"

#include <err.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_THREADS 8
#define RACE_READS 200

static struct reshard *open_source(char **words)
{
	struct reshard *r;
	int rc = reshard_open(words[0], (const char *const *)(words + 1), &r);

	if (rc == 0)
		return r;
	if (r || rc > 0)
		errx(2, "status %d, and a source", rc);
	printf("%d %s\n", rc, reshard_error());
	exit(1);
}

static struct reshard_file file_at(const struct reshard *r, uint32_t i)
{
	struct reshard_file f;

	if (reshard_file(r, i, &f))
		errx(2, "%s", reshard_error());
	return f;
}

static void list_record(const struct reshard *r, uint32_t i, uint32_t n)
{
	struct reshard_record rec;

	if (reshard_record(r, i, n, &rec))
		errx(2, "%s", reshard_error());
	printf("record %s %s %" PRIu64 " %" PRIu64 " %" PRIu64, rec.name,
	       rec.dtype, rec.bytes, rec.offset, rec.stored);
	for (uint32_t d = 0; d < rec.n_dims; d++)
		printf(" %" PRId64, rec.dims[d]);
	putchar('\n');
}

static void list(const struct reshard *r)
{
	for (uint32_t i = 0; i < reshard_n_files(r); i++) {
		struct reshard_file f = file_at(r, i);

		printf("file %" PRIu32 " %s %" PRIu64 "\n", f.rank, f.name,
		       f.size);
		for (uint32_t n = 0; n < reshard_n_records(r, i); n++)
			list_record(r, i, n);
	}
}

static uint8_t *content(const struct reshard *r, uint32_t i, uint64_t *size)
{
	uint8_t *buf;

	*size = file_at(r, i).size;
	buf = malloc(*size + 16);
	/* More than there is. */
	if (!buf || reshard_read(r, i, buf, *size + 16, 0) != (ssize_t)*size)
		errx(2, "%s", reshard_error());
	return buf;
}

static void copy(const struct reshard *r, const char *dir)
{
	char path[4096];
	uint64_t size;
	FILE *f;

	for (uint32_t i = 0; i < reshard_n_files(r); i++) {
		uint8_t *buf = content(r, i, &size);

		snprintf(path, sizeof(path), "%s/%" PRIu32, dir, i);
		f = fopen(path, "w");
		if (!f || fwrite(buf, 1, size, f) != size || fclose(f))
			err(2, "%s", path);
		free(buf);
	}
}

struct racer {
	const struct reshard *r;
	uint8_t *const *expected;
	unsigned seed;
};

static void *race(void *arg)
{
	struct racer *a = arg;
	uint32_t n = reshard_n_files(a->r);

	for (int k = 0; k < RACE_READS; k++) {
		uint32_t i = (uint32_t)rand_r(&a->seed) % n;
		uint64_t size = file_at(a->r, i).size;
		uint64_t offset = (uint64_t)rand_r(&a->seed) % size;
		size_t len = (size_t)rand_r(&a->seed) % (3 << 20) + 1;
		uint8_t *buf = malloc(len);
		ssize_t got;

		if (!buf)
			err(2, "memory");
		got = reshard_read(a->r, i, buf, len, offset);
		if (len > size - offset)
			len = size - offset;
		if (got != (ssize_t)len ||
		    memcmp(buf, a->expected[i] + offset, len) != 0)
			errx(2, "file %" PRIu32 " at %" PRIu64, i, offset);
		free(buf);
	}
	return NULL;
}

static void race_all(const struct reshard *r)
{
	uint32_t n = reshard_n_files(r);
	uint8_t **expected = calloc(n, sizeof(*expected));
	struct racer racers[N_THREADS];
	pthread_t threads[N_THREADS];
	uint64_t size;

	for (uint32_t i = 0; i < n; i++)
		expected[i] = content(r, i, &size);
	for (unsigned t = 0; t < N_THREADS; t++) {
		racers[t] = (struct racer){ r, expected, t };
		if (pthread_create(&threads[t], NULL, race, &racers[t]))
			errx(2, "no thread");
	}
	for (unsigned t = 0; t < N_THREADS; t++)
		pthread_join(threads[t], NULL);
	for (uint32_t i = 0; i < n; i++)
		free(expected[i]);
	free(expected);
}

static void *other_thread(void *arg)
{
	if (*reshard_error())
		errx(2, "an error of another thread: %s", reshard_error());
	return arg;
}

static void expect(long found, long wanted, const char *word)
{
	if (found != wanted || !strstr(reshard_error(), word))
		errx(2, "%ld and not %ld with \"%s\": %s", found, wanted, word,
		     reshard_error());
}

static void misuse(const struct reshard *r)
{
	uint32_t n = reshard_n_files(r);
	struct reshard_record rec;
	struct reshard_file f;
	pthread_t thread;
	char byte;

	if (*reshard_error())
		errx(2, "an error before there was one");
	expect(reshard_file(r, n, &f), -ENOENT, "no file");
	expect(reshard_read(r, n, &byte, 1, 0), -ENOENT, "no file");
	expect(reshard_record(r, 0, reshard_n_records(r, 0), &rec), -ENOENT,
	       "no record");
	expect(reshard_n_records(r, n), 0, "");
	expect(reshard_read(r, 0, &byte, 1, file_at(r, 0).size), 0, "");
	expect(reshard_read(r, 0, &byte, 1, UINT64_MAX), 0, "");
	expect(reshard_read(r, 0, &byte, 0, 0), 0, "");
	if (pthread_create(&thread, NULL, other_thread, NULL))
		errx(2, "no thread");
	pthread_join(thread, NULL);
	reshard_close(NULL);
}

int main(int argc, char **argv)
{
	const char *verb = argc > 2 ? argv[1] : "";
	int copies = strcmp(verb, "copy") == 0;
	struct reshard *r;

	if (argc < 3 + copies)
		errx(2, "see the head of libreshard.c");
	r = open_source(argv + 2 + copies);
	if (copies)
		copy(r, argv[2]);
	else if (strcmp(verb, "list") == 0)
		list(r);
	else if (strcmp(verb, "race") == 0)
		race_all(r);
	else if (strcmp(verb, "misuse") == 0)
		misuse(r);
	else
		errx(2, "no verb %s", verb);
	reshard_close(r);
	return 0;
}
