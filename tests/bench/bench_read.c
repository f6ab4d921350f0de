/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reader of the benchmarks: the same code for a mount and for its peers.
 *
 *	bench_read [-m] [-j READERS] [-b BYTES] [-n BYTES] [-p CPUS] FILE...
 *	bench_read -r READS [-s SEED] [-j READERS] [-b BYTES] [-p CPUS] FILE...
 *	bench_read -c FILE...
 *
 * Reads FILEs with pread(2) and prints one line of JSON.  Reader i of N takes
 * every Nth file, from the ith on, and reads it from front to back, -n bytes of
 * it at most; where there are more readers than files, those of one file have a
 * stretch of it each.  With -m readers map files and copy from there, each from
 * an open file of its own.  With -r each reader makes that many reads at random
 * places of random files instead, the same ones for the same seed and sizes.
 *
 *	seconds		from the first reader's start, when all are ready,
 *			to the last one's end
 *	bytes, reads	what came, in how many calls
 *	storage_bytes	what this process had fetched from storage
 *	sum		of the words read, with -r; 0 without
 *	memory		what this process had of it at most, in bytes
 *
 * -c reads nothing and prints how many bytes of the files the page cache holds.
 * -b is the request size, 1 MiB unless given; -p pins the readers, as in "0,1".
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { READERS_MAX = 256, ALIGNMENT = 2 << 20 };

struct file {
	const char *path;
	int fd;
	off_t size;
};

struct job {
	struct file *files;
	size_t n_files;
	size_t n_readers;
	size_t request;
	off_t limit;		/* bytes of a file that are read */
	bool mapped;
	uint64_t reads;		/* random ones of each reader; 0: sequential */
	uint64_t seed;
	cpu_set_t cpus;
	pthread_barrier_t start;
};

struct reader {
	struct job *job;
	size_t index;
	pthread_t thread;
	char *buffer;
	uint64_t bytes;
	uint64_t reads;
	uint64_t sum;
	double start, end;
};

_Noreturn static void fail(const char *what)
{
	fprintf(stderr, "bench_read: %s: %s\n", what, strerror(errno));
	exit(1);
}

_Noreturn static void usage(void)
{
	fputs("usage: bench_read [-m] [-j READERS] [-b BYTES] [-n BYTES]"
	      " [-r READS [-s SEED]] [-p CPUS] FILE...\n"
	      "       bench_read -c FILE...\n", stderr);
	exit(2);
}

static uint64_t number(const char *text, uint64_t most)
{
	char *end;

	errno = 0;
	uint64_t value = strtoull(text, &end, 10);

	if (errno || end == text || *end || *text == '-' || value > most)
		usage();
	return value;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void open_files(struct job *job, char **paths)
{
	for (size_t i = 0; i < job->n_files; i++) {
		struct file *file = &job->files[i];
		struct stat st;

		file->path = paths[i];
		file->fd = open(file->path, O_RDONLY | O_CLOEXEC);
		if (file->fd < 0 || fstat(file->fd, &st))
			fail(file->path);
		file->size = st.st_size;
	}
}

/* ---- reading ---- */

static size_t read_at(struct reader *reader, const struct file *file,
		      off_t at, size_t length)
{
	ssize_t got;

	do
		got = pread(file->fd, reader->buffer, length, at);
	while (got < 0 && errno == EINTR);
	if (got < 0)
		fail(file->path);
	reader->bytes += (uint64_t)got;
	reader->reads++;
	return (size_t)got;
}

/* Returns how many bytes of the next request lie before `end`. */
static size_t next_length(const struct job *job, off_t at, off_t end)
{
	return (off_t)job->request < end - at ? job->request :
						(size_t)(end - at);
}

static void read_stretch(struct reader *reader, const struct file *file,
			 off_t at, off_t end)
{
	while (at < end) {
		size_t got = read_at(reader, file, at,
				     next_length(reader->job, at, end));

		if (!got) {
			errno = EIO;
			fail(file->path);
		}
		at += (off_t)got;
	}
}

static void copy_stretch(struct reader *reader, const struct file *file,
			 off_t at, off_t end)
{
	const size_t size = (size_t)file->size;
	int fd = open(file->path, O_RDONLY | O_CLOEXEC);
	char *map;

	if (fd < 0)
		fail(file->path);
	map = mmap(NULL, size ? size : 1, PROT_READ, MAP_PRIVATE, fd, 0);
	if (map == MAP_FAILED)
		fail(file->path);
	while (at < end) {
		size_t length = next_length(reader->job, at, end);

		memcpy(reader->buffer, map + at, length);
		reader->bytes += length;
		reader->reads++;
		at += (off_t)length;
	}
	munmap(map, size ? size : 1);
	close(fd);
}

static void read_share(struct reader *reader)
{
	const struct job *job = reader->job;
	/* The readers of a file, and which of them this one is. */
	const size_t first = reader->index % job->n_files;
	const off_t n = (off_t)((job->n_readers - 1 - first) / job->n_files + 1);
	const off_t i = (off_t)(reader->index / job->n_files);

	for (size_t k = first; k < job->n_files; k += job->n_readers) {
		const struct file *file = &job->files[k];
		off_t end = file->size < job->limit ? file->size : job->limit;

		(job->mapped ? copy_stretch : read_stretch)(
			reader, file, end / n * i,
			i + 1 < n ? end / n * (i + 1) : end);
	}
}

/* splitmix64 */
static uint64_t next_random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

/* Of all the words and of where they stand. */
static uint64_t sum_of(const char *buffer, size_t length)
{
	uint64_t sum = 0;

	for (size_t at = 0; at + sizeof(uint64_t) <= length;
	     at += sizeof(uint64_t)) {
		uint64_t word;

		memcpy(&word, buffer + at, sizeof(word));
		sum = sum * 0x9e3779b97f4a7c15u + word;
	}
	return sum;
}

static void read_around(struct reader *reader)
{
	const struct job *job = reader->job;
	uint64_t state = job->seed + reader->index * 0x10001;

	for (uint64_t i = 0; i < job->reads; i++) {
		const struct file *file =
			&job->files[next_random(&state) % job->n_files];
		uint64_t places = (uint64_t)file->size / job->request;

		if (!places) {
			errno = EINVAL;
			fail(file->path);
		}

		off_t at = (off_t)(next_random(&state) % places * job->request);

		if (read_at(reader, file, at, job->request) != job->request) {
			errno = EIO;
			fail(file->path);
		}
		reader->sum += sum_of(reader->buffer, job->request);
	}
}

static void *reader_main(void *argument)
{
	struct reader *reader = argument;
	struct job *job = reader->job;

	if (CPU_COUNT(&job->cpus) &&
	    sched_setaffinity(0, sizeof(job->cpus), &job->cpus))
		fail("cannot pin to these CPUs");
	pthread_barrier_wait(&job->start);
	reader->start = now();
	if (job->reads)
		read_around(reader);
	else
		read_share(reader);
	reader->end = now();
	return NULL;
}

/* ---- the measurement ---- */

/* A number that a file of /proc gives under a name; 0 where it does not. */
static uint64_t number_under(const char *path, const char *name)
{
	FILE *f = fopen(path, "re");
	size_t length = strlen(name);
	char line[128];
	uint64_t found = 0;

	while (f && fgets(line, sizeof(line), f)) {
		if (!strncmp(line, name, length)) {
			found = strtoull(line + length, NULL, 10);
			break;
		}
	}
	if (f)
		fclose(f);
	return found;
}

/* Bytes that this process fetched from storage. */
static uint64_t storage_bytes(void)
{
	return number_under("/proc/self/io", "read_bytes:");
}

static void prepare(struct reader *reader, struct job *job, size_t index)
{
	void *buffer;

	*reader = (struct reader){ .job = job, .index = index };
	errno = posix_memalign(&buffer, ALIGNMENT, job->request);
	if (errno)
		fail("no memory");
	memset(buffer, 1, job->request); /* page faults are not the subject */
	reader->buffer = buffer;
	errno = pthread_create(&reader->thread, NULL, reader_main, reader);
	if (errno)
		fail("no thread");
}

static void print_sum(const struct reader *readers, size_t n, uint64_t storage)
{
	struct reader all = readers[0];

	for (size_t i = 1; i < n; i++) {
		all.bytes += readers[i].bytes;
		all.reads += readers[i].reads;
		all.sum += readers[i].sum;
		if (readers[i].start < all.start)
			all.start = readers[i].start;
		if (readers[i].end > all.end)
			all.end = readers[i].end;
	}
	printf("{\"seconds\": %.9f, \"bytes\": %" PRIu64 ", \"reads\": %" PRIu64
	       ", \"storage_bytes\": %" PRIu64 ", \"sum\": %" PRIu64
	       ", \"memory\": %" PRIu64 "}\n",
	       all.end - all.start, all.bytes, all.reads, storage, all.sum,
	       number_under("/proc/self/status", "VmHWM:") << 10);
}

static void measure(struct job *job)
{
	struct reader readers[READERS_MAX];
	size_t n = job->n_readers;
	uint64_t storage = storage_bytes();

	errno = pthread_barrier_init(&job->start, NULL, (unsigned)n);
	if (errno)
		fail("no barrier");
	for (size_t i = 0; i < n; i++)
		prepare(&readers[i], job, i);
	for (size_t i = 0; i < n; i++) {
		pthread_join(readers[i].thread, NULL);
		free(readers[i].buffer);
	}
	pthread_barrier_destroy(&job->start);
	print_sum(readers, n, storage_bytes() - storage);
}

/* ---- what the page cache holds ---- */

static uint64_t resident(const struct file *file)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	size_t pages = ((size_t)file->size + page - 1) / page;
	uint64_t count = 0;

	if (!pages)
		return 0;

	unsigned char *map = malloc(pages);
	void *at = mmap(NULL, (size_t)file->size, PROT_READ, MAP_SHARED,
			file->fd, 0);

	if (!map || at == MAP_FAILED || mincore(at, (size_t)file->size, map))
		fail(file->path);
	for (size_t i = 0; i < pages; i++)
		count += map[i] & 1;
	munmap(at, (size_t)file->size);
	free(map);
	return count * page;
}

static void print_resident(const struct job *job)
{
	uint64_t held = 0, bytes = 0;

	for (size_t i = 0; i < job->n_files; i++) {
		held += resident(&job->files[i]);
		bytes += (uint64_t)job->files[i].size;
	}
	printf("{\"resident\": %" PRIu64 ", \"bytes\": %" PRIu64 "}\n", held,
	       bytes);
}

/* ---- the command line ---- */

static void pin(cpu_set_t *cpus, char *list)
{
	char *rest = NULL;

	for (char *word = strtok_r(list, ",", &rest); word;
	     word = strtok_r(NULL, ",", &rest))
		CPU_SET(number(word, CPU_SETSIZE - 1), cpus);
}

int main(int argc, char **argv)
{
	struct job job = { .n_readers = 1, .request = 1 << 20,
			   .limit = INT64_MAX, .seed = 1 };
	bool count = false;
	int letter;

	while ((letter = getopt(argc, argv, "mj:b:n:r:s:p:c")) != -1) {
		switch (letter) {
		case 'm': job.mapped = true; break;
		case 'j': job.n_readers = number(optarg, READERS_MAX); break;
		case 'b': job.request = number(optarg, 1 << 30); break;
		case 'n': job.limit = (off_t)number(optarg, INT64_MAX); break;
		case 'r': job.reads = number(optarg, UINT64_MAX); break;
		case 's': job.seed = number(optarg, UINT64_MAX); break;
		case 'p': pin(&job.cpus, optarg); break;
		case 'c': count = true; break;
		default: usage();
		}
	}
	job.n_files = (size_t)(argc - optind);
	if (!job.n_files || !job.n_readers || !job.request)
		usage();
	job.files = calloc(job.n_files, sizeof(*job.files));
	if (!job.files)
		fail("no memory");
	open_files(&job, argv + optind);
	if (count)
		print_resident(&job);
	else
		measure(&job);
	free(job.files);
	return 0;
}
