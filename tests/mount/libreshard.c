/* SPDX-License-Identifier: Apache-2.0 */
/* mount/libreshard.c - a program on libreshard alone: what it says of a source
 * and the bytes it reads, for libreshard.py to compare.
 *
 *	libreshard list SOURCE OPTION...        files and records, one a line
 *	libreshard copy DIR SOURCE OPTION...    the files, to DIR/<number>
 *	libreshard contents DIR SOURCE OPTION...
 *			the contents of all records in one load, to
 *			DIR/<number>.<record>
 *	libreshard race SOURCE OPTION...        threads read all at odd offsets
 *	libreshard load SEED SOURCE OPTION...   random loads give what reads do
 *	libreshard crowd SOURCE OPTION...       threads load different files
 *	libreshard spoilt SEED SOURCE OPTION...
 *			with fault=...: loads are right or fail, and are canceled
 *	libreshard each SHARE SOURCE OPTION...
 *			reads of loads fail in turn: what is given is right
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
#define N_CROWD 32
#define N_LOADS 8
#define N_SPOILT 3
#define RACE_READS 100

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

/* ---- loads ---- */

struct wants {
	struct reshard_want *v;
	size_t n;
};

static struct reshard_record record_at(const struct reshard *r, uint32_t i,
				       uint32_t n)
{
	struct reshard_record rec;

	if (reshard_record(r, i, n, &rec))
		errx(2, "%s", reshard_error());
	return rec;
}

/* Wants all records of a file. */
static void want_file(const struct reshard *r, uint32_t i, struct wants *w)
{
	const uint32_t n = reshard_n_records(r, i);

	w->v = realloc(w->v, (w->n + n + 1) * sizeof(*w->v));
	if (!w->v)
		err(2, "memory");
	for (uint32_t k = 0; k < n; k++) {
		const struct reshard_record rec = record_at(r, i, k);

		w->v[w->n++] = (struct reshard_want){
			.file = i, .record = k, .bytes = rec.bytes,
			.to = malloc(rec.bytes + 1),
		};
	}
}

static void wants_free(struct wants *w)
{
	for (size_t i = 0; i < w->n; i++)
		free(w->v[i].to);
	free(w->v);
	*w = (struct wants){ 0 };
}

static struct wants load_everything(const struct reshard *r)
{
	struct wants all = { 0 };

	for (uint32_t i = 0; i < reshard_n_files(r); i++)
		want_file(r, i, &all);
	if (reshard_load(r, all.v, all.n, NULL))
		errx(2, "%s", reshard_error());
	return all;
}

static void contents(const struct reshard *r, const char *dir)
{
	struct wants all = load_everything(r);
	char path[4096];
	FILE *f;

	for (size_t i = 0; i < all.n; i++) {
		const struct reshard_want *w = &all.v[i];

		snprintf(path, sizeof(path), "%s/%" PRIu32 ".%" PRIu32, dir,
			 w->file, w->record);
		f = fopen(path, "w");
		if (!f || fwrite(w->to, 1, w->bytes, f) != w->bytes ||
		    fclose(f))
			err(2, "%s", path);
	}
	wants_free(&all);
}

/* As told last. */
struct told {
	pthread_t by;
	uint64_t done, all;
	unsigned calls, cancel_at;
};

static int tell(void *ctx, uint64_t done, uint64_t all)
{
	struct told *t = ctx;

	if (!pthread_equal(t->by, pthread_self()) || done < t->done ||
	    done > all || (t->calls && all != t->all))
		errx(2, "told %" PRIu64 " of %" PRIu64, done, all);
	t->done = done;
	t->all = all;
	return ++t->calls == t->cancel_at;
}

static uint64_t below(unsigned *seed, uint64_t n)
{
	return ((uint64_t)rand_r(seed) << 31 | (uint64_t)rand_r(seed)) % n;
}

/* Some part of some record; most are short, as rows are. */
static struct reshard_want want_some(const struct wants *all, unsigned *seed)
{
	struct reshard_want w = all->v[below(seed, all->n)];

	w.offset = below(seed, w.bytes + 1);
	w.bytes -= w.offset;
	if (below(seed, 4) && w.bytes > 4096)
		w.bytes = 1 + below(seed, 4096);
	w.to = malloc(w.bytes + 1);
	((uint8_t *)w.to)[w.bytes] = 0xa5;
	return w;
}

static void compare(const struct wants *all, const struct wants *got)
{
	for (size_t i = 0; i < got->n; i++) {
		const struct reshard_want *a = all->v, *b = &got->v[i];

		while (a->file != b->file || a->record != b->record)
			a++;
		if (memcmp((uint8_t *)a->to + b->offset, b->to, b->bytes) ||
		    ((uint8_t *)b->to)[b->bytes] != 0xa5)
			errx(2, "file %" PRIu32 " record %" PRIu32 " at "
			     "%" PRIu64, b->file, b->record, b->offset);
	}
}

/* Returns what the load did. */
static int load_some(const struct reshard *r, const struct wants *all,
		     unsigned cancel_at, unsigned *seed)
{
	struct told told = { .by = pthread_self(), .cancel_at = cancel_at };
	const struct reshard_load_options o = {
		.size = sizeof(o), .threads = (unsigned)below(seed, 5),
		.progress = cancel_at || below(seed, 2) ? tell : NULL,
		.ctx = &told,
	};
	struct wants w = { .n = below(seed, 2) ? below(seed, 9) :
						 below(seed, 1500) };
	uint64_t bytes = 0;
	int rc;

	w.v = calloc(w.n + 1, sizeof(*w.v));
	for (size_t i = 0; i < w.n; i++) {
		w.v[i] = want_some(all, seed);
		bytes += w.v[i].bytes;
	}
	rc = reshard_load(r, w.v, w.n, cancel_at || below(seed, 4) ? &o : NULL);
	if (rc == 0 && told.calls && (told.done != bytes || told.all != bytes))
		errx(2, "told %" PRIu64 " of %" PRIu64, told.done, bytes);
	if (rc == 0)
		compare(all, &w);
	else if (!*reshard_error())
		errx(2, "no sentence");
	wants_free(&w);
	return rc;
}

static void load(const struct reshard *r, unsigned seed)
{
	struct wants all = load_everything(r);

	for (int i = 0; i < N_LOADS; i++)
		if (load_some(r, &all, 0, &seed))
			errx(2, "%s", reshard_error());
	wants_free(&all);
}

/* Opens the source without the faults, for what is right. */
static struct wants load_unspoilt(char **words)
{
	char *without[16];
	size_t n = 0;
	struct reshard *r;
	struct wants all;

	for (; *words && n < 15; words++)
		if (strncmp(*words, "fault=", 6) != 0)
			without[n++] = *words;
	without[n] = NULL;
	r = open_source(without);
	all = load_everything(r);
	reshard_close(r);
	return all;
}

static void spoilt(const struct reshard *r, unsigned seed, char **words)
{
	struct wants all = load_unspoilt(words);
	int right = 0, rc;

	for (int i = 0; i < N_SPOILT; i++)
		right += load_some(r, &all, 0, &seed) == 0;
	rc = load_some(r, &all, 1, &seed);
	if (rc == 0)
		errx(2, "it was not canceled");
	wants_free(&all);
	printf("%d right\n", right);
}

/* Opens the source with a fault that spares so many reads. */
static struct reshard *open_faulty(char **words, const char *fault,
				   unsigned after, const char *more)
{
	char *with[16], text[128];
	size_t n = 0;

	snprintf(text, sizeof(text), "fault=%s,after=%u%s", fault, after,
		 more);
	for (; n < 14 && words[n]; n++)
		with[n] = words[n];
	with[n++] = text;
	with[n] = NULL;
	return open_source(with);
}

/* Returns how many of n wants cannot be loaded, by themselves or in one load.
 * The others must be right. */
static unsigned load_in_vain(const struct reshard *r, const struct wants *all,
			     size_t n, const struct reshard_load_options *o)
{
	struct wants got = { calloc(all->n, sizeof(*got.v)), 0 };
	unsigned in_vain = 0;

	for (size_t i = 0; i < all->n; i += n) {
		got.n = n;
		for (size_t k = 0; k < n; k++) {
			got.v[k] = all->v[i + k];
			got.v[k].to = calloc(1, got.v[k].bytes + 1);
			((uint8_t *)got.v[k].to)[got.v[k].bytes] = 0xa5;
		}
		if (reshard_load(r, got.v, n, o) == 0)
			compare(all, &got);
		else if (*reshard_error())
			in_vain++;
		else
			errx(2, "no sentence");
		for (size_t k = 0; k < n; k++)
			free(got.v[k].to);
	}
	free(got.v);
	return in_vain;
}

/* Each read fails in turn, until there is none left that could.  Behind `share`
 * of them the steps grow with what is behind. */
static void each(const struct reshard *r, unsigned share, char **words)
{
	const struct reshard_load_options alone = {
		.size = sizeof(alone), .threads = 1,
	};
	struct wants all = load_everything(r);
	unsigned after = 0, failed = 0, in_vain;

	do {
		struct reshard *s = open_faulty(words, "truncate", after, "");

		in_vain = load_in_vain(s, &all, 1, &alone);
		reshard_close(s);
		s = open_faulty(words, "truncate", after, ",times=1");
		failed += load_in_vain(s, &all, all.n, NULL);
		reshard_close(s);
		s = open_faulty(words, "eio", after, ",times=1");
		if (load_in_vain(s, &all, all.n, NULL))
			errx(2, "a read that failed once: %s",
			     reshard_error());
		reshard_close(s);
		failed += in_vain;
		after += 1 + after / share;
	} while (in_vain);
	printf("%u failures\n", failed);
	wants_free(&all);
}

struct member {
	const struct reshard *r;
	uint32_t file;
	struct wants got;
};

static void *crowd_load(void *arg)
{
	struct told told = { .by = pthread_self() };
	const struct reshard_load_options o = {
		.size = sizeof(o), .threads = 2, .progress = tell, .ctx = &told,
	};
	struct member *m = arg;

	want_file(m->r, m->file, &m->got);
	if (reshard_load(m->r, m->got.v, m->got.n, &o))
		errx(2, "%s", reshard_error());
	return NULL;
}

static void crowd(const struct reshard *r)
{
	struct wants all = load_everything(r);
	struct member members[N_CROWD];
	pthread_t threads[N_CROWD];

	for (unsigned t = 0; t < N_CROWD; t++) {
		members[t] = (struct member){ r, t % reshard_n_files(r),
					      { 0 } };
		if (pthread_create(&threads[t], NULL, crowd_load, &members[t]))
			errx(2, "no thread");
	}
	for (unsigned t = 0; t < N_CROWD; t++) {
		const struct reshard_want *a = all.v;
		struct wants *got = &members[t].got;

		pthread_join(threads[t], NULL);
		while (got->n && a->file != members[t].file)
			a++;
		for (size_t i = 0; i < got->n; i++)
			if (memcmp(a[i].to, got->v[i].to, a[i].bytes))
				errx(2, "file %" PRIu32 " record %zu", a->file,
				     i);
		wants_free(got);
	}
	wants_free(&all);
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

static void misuse_load(const struct reshard *r)
{
	const struct reshard_record rec = record_at(r, 0, 0);
	struct told told = { .by = pthread_self(), .cancel_at = 1 };
	struct reshard_load_options o = {
		.size = sizeof(o), .progress = tell, .ctx = &told,
	};
	struct reshard_want w = { .bytes = rec.bytes,
				  .to = malloc(rec.bytes) };

	expect(reshard_load(r, &w, 1, &o), -ECANCELED, "canceled");
	expect(reshard_load(r, NULL, 0, NULL), 0, "");
	w.offset = 1;
	expect(reshard_load(r, &w, 1, NULL), -EINVAL, rec.name);
	w.offset = UINT64_MAX;
	expect(reshard_load(r, &w, 1, NULL), -EINVAL, rec.name);
	w = (struct reshard_want){ .record = reshard_n_records(r, 0),
				   .to = w.to };
	expect(reshard_load(r, &w, 1, NULL), -ENOENT, "no record");
	w.file = reshard_n_files(r);
	expect(reshard_load(r, &w, 1, NULL), -ENOENT, "no file");
	free(w.to);
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
	misuse_load(r);
	reshard_close(NULL);
}

int main(int argc, char **argv)
{
	const char *verb = argc > 2 ? argv[1] : "";
	const int more = strcmp(verb, "copy") == 0 ||
			 strcmp(verb, "contents") == 0 ||
			 strcmp(verb, "load") == 0 ||
			 strcmp(verb, "spoilt") == 0 ||
			 strcmp(verb, "each") == 0;
	struct reshard *r;

	if (argc < 3 + more)
		errx(2, "see the head of libreshard.c");
	r = open_source(argv + 2 + more);
	if (strcmp(verb, "copy") == 0)
		copy(r, argv[2]);
	else if (strcmp(verb, "contents") == 0)
		contents(r, argv[2]);
	else if (strcmp(verb, "load") == 0)
		load(r, (unsigned)strtoul(argv[2], NULL, 0));
	else if (strcmp(verb, "spoilt") == 0)
		spoilt(r, (unsigned)strtoul(argv[2], NULL, 0), argv + 3);
	else if (strcmp(verb, "each") == 0)
		each(r, (unsigned)strtoul(argv[2], NULL, 0), argv + 3);
	else if (strcmp(verb, "list") == 0)
		list(r);
	else if (strcmp(verb, "race") == 0)
		race_all(r);
	else if (strcmp(verb, "crowd") == 0)
		crowd(r);
	else if (strcmp(verb, "misuse") == 0)
		misuse(r);
	else
		errx(2, "no verb %s", verb);
	reshard_close(r);
	return 0;
}
