/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_read_stream.c - reads by windows, over files whose bodies are
 * computed: sequential and other readers, failures, many threads at once. */
#include "config.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "rsh/read/stream.h"
#include "rsh/util/place.h"
#include "rsh/util/blocking.h"
#include "read/stream_i.h"
#include "support.h"

#define MIB ((uint64_t)1024 * 1024)
#define FILE_BYTES (37 * MIB + 4711)
#define N_FILES 4

struct fake {
	unsigned delay_us;
	atomic_uint fail_next; /* reads that shall fail */
	atomic_uint n_reads;
	_Atomic uint64_t bytes_read;
	pthread_t reader;    /* of the test that looks who prepares */
	atomic_uint by_reader;
	uint64_t takes_ns;   /* of the test's clock, each read */
	atomic_uint reading;
	struct rsh_view *views; /* to return while the next read is under way */
	unsigned n_loans;
	atomic_uint under_way, most_under_way;
	/* Reads wait there, having said so, unless it is NULL. */
	sem_t *gate;
	sem_t arrived;
};

static uint8_t byte_at(uint32_t file, uint64_t offset)
{
	uint64_t x = (offset + file * 0x9e3779b97f4a7c15u) / 8;

	x ^= x >> 31;
	x *= 0xbf58476d1ce4e5b9u;
	return (uint8_t)(x >> (8 * (offset % 8)));
}

static long times_slept(void)
{
	struct rusage use = { .ru_nvcsw = 0 };

	getrusage(RUSAGE_THREAD, &use);
	return use.ru_nvcsw;
}

/* A thread that is displaced before it sleeps may find its time over when it
 * comes back, and has not slept then. */
static void sleep_once_at_least(unsigned us)
{
	const struct timespec t = { 0, (long)us * 1000 };
	const long before = times_slept();

	do
		nanosleep(&t, NULL);
	while (times_slept() == before);
}

/* As the source does it. */
static void wait_for_bytes(struct fake *f)
{
	const unsigned n = atomic_fetch_add(&f->under_way, 1) + 1;
	unsigned most = atomic_load(&f->most_under_way);

	while (n > most &&
	       !atomic_compare_exchange_weak(&f->most_under_way, &most, n))
		;
	if (f->gate) {
		sem_post(&f->arrived);
		sem_wait(f->gate);
	}
	if (f->delay_us) {
		long begin = rsh_blocking_begin();

		sleep_once_at_least(f->delay_us);
		rsh_blocking_end(begin);
	}
	atomic_fetch_sub(&f->under_way, 1);
}

/* A clock that goes on only where it is told to. */
static _Atomic uint64_t told_ns;

static uint64_t told_clock(void)
{
	return atomic_load(&told_ns);
}

static int fake_read(const struct rsh_body *b, struct rsh_target *to,
		     size_t len, uint64_t offset)
{
	struct fake *f = (struct fake *)(uintptr_t)b->of;

	atomic_fetch_add(&f->reading, 1);
	to->data = to->area + rsh_place(offset * 3 + b->file);
	wait_for_bytes(f);
	atomic_fetch_add(&told_ns, f->takes_ns);
	atomic_fetch_add(&f->n_reads, 1);
	if (pthread_equal(pthread_self(), f->reader))
		atomic_fetch_add(&f->by_reader, 1);
	while (f->n_loans)
		rsh_view_release(&f->views[--f->n_loans]);
	if (atomic_load(&f->fail_next) &&
	    atomic_fetch_sub(&f->fail_next, 1) > 0) {
		atomic_fetch_sub(&f->reading, 1);
		return -EIO;
	}
	for (size_t i = 0; i < len; i++)
		to->data[i] = byte_at(b->file, offset + i);
	atomic_fetch_add(&f->bytes_read, len);
	atomic_fetch_sub(&f->reading, 1);
	return 0;
}

struct fixture {
	struct fake fake;
	struct rsh_streams *streams;
};

static int open_file(struct fixture *f, uint32_t file, struct rsh_stream **st)
{
	const struct rsh_body body = {
		.size = FILE_BYTES, .read = fake_read, .of = &f->fake,
		.file = file,
	};

	return rsh_stream_open(f->streams, &body, st);
}

static int setup(void **state)
{
	const struct rsh_streams_options o = { 0 };
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	assert_int_equal(rsh_streams_new(&o, &f->streams), 0);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	rsh_streams_free(f->streams);
	free(f);
	return 0;
}

static bool is_right(const struct rsh_view *view, uint32_t file,
		     uint64_t offset)
{
	for (int i = 0; i < view->n_parts; i++) {
		const uint8_t *p = view->part[i].iov_base;

		for (size_t k = 0; k < view->part[i].iov_len; k++)
			if (p[k] != byte_at(file, offset++))
				return false;
	}
	return true;
}

/* Reads and compares; returns the number of bytes. */
static ssize_t check(struct rsh_stream *st, uint32_t file, uint64_t offset,
		     size_t len)
{
	struct rsh_view view;
	ssize_t n = rsh_stream_read(st, offset, len, &view);
	size_t total = 0;

	if (n < 0)
		return n;
	assert_in_range(view.n_parts, 0, 2);
	for (int i = 0; i < view.n_parts; i++)
		total += view.part[i].iov_len;
	assert_int_equal(total, n);
	assert_true(is_right(&view, file, offset));
	rsh_view_release(&view);
	return n;
}

static ssize_t expected(uint64_t offset, size_t len)
{
	if (offset >= FILE_BYTES)
		return 0;
	if (len > RSH_STREAM_MAX)
		len = RSH_STREAM_MAX;
	return (ssize_t)(len < FILE_BYTES - offset ? len : FILE_BYTES - offset);
}

static void read_through(struct fixture *f, size_t len)
{
	struct rsh_stream *st;
	uint64_t at = 0;
	ssize_t n;

	assert_int_equal(open_file(f, 2, &st), 0);
	while ((n = check(st, 2, at, len)) > 0) {
		assert_int_equal(n, expected(at, len));
		at += (uint64_t)n;
	}
	assert_int_equal(n, 0);
	assert_int_equal(at, FILE_BYTES);
	rsh_stream_close(st);
}

TEST_OF_FIXTURE(test_from_front_to_back)
{
	static const size_t lengths[] = {
		RSH_STREAM_MAX, 128 * 1024, 100000, 4096, 777777,
		3 * RSH_STREAM_MAX,
	};

	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		atomic_store(&f->fake.bytes_read, 0);
		read_through(f, lengths[i]);
		/* Nothing was prepared twice. */
		assert_int_equal(f->fake.bytes_read, FILE_BYTES);
	}
}

/* Two requests in a row may change places, also where a window ends. */
TEST_OF_FIXTURE(test_slightly_out_of_order)
{
	const uint64_t n = RSH_STREAM_MAX / 4;
	struct rsh_stream *st;
	uint64_t at;

	assert_int_equal(open_file(f, 2, &st), 0);
	atomic_store(&f->fake.bytes_read, 0);
	assert_int_equal(check(st, 2, 0, n), (int)n);
	for (at = n; at + 2 * n <= FILE_BYTES; at += 2 * n) {
		assert_int_equal(check(st, 2, at + n, n), (int)n);
		assert_int_equal(check(st, 2, at, n), (int)n);
	}
	for (; at < FILE_BYTES; at += n)
		assert_true(check(st, 2, at, n) > 0);
	rsh_stream_close(st);
	assert_int_equal(f->fake.bytes_read, FILE_BYTES);
}

/* As files that are open when the mount ends; teardown frees the rest, and the
 * leak sanitizer looks. */
TEST_OF_FIXTURE(test_left_open)
{
	struct rsh_stream *st[2];

	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(open_file(f, 2 + i, &st[i]), 0);
		for (uint64_t at = 0; at < 3 * MIB; at += MIB)
			assert_int_equal(check(st[i], 2 + i, at, MIB), MIB);
	}
}

static void read_all(struct fixture *f)
{
	struct rsh_stream *st;
	struct rsh_view view;
	uint64_t at = 0;
	ssize_t n;

	assert_int_equal(open_file(f, 2, &st), 0);
	while ((n = rsh_stream_read(st, at, RSH_STREAM_MAX, &view)) > 0) {
		at += (uint64_t)n;
		rsh_view_release(&view);
	}
	rsh_stream_close(st);
}

/* A slow source has several windows under way at once, as soon as that has
 * shown to pay; on a busy machine that may take a few files. */
TEST_OF_FIXTURE(test_depth_follows_latency)
{
	struct rsh_stream_stats stats = { 0 };
	unsigned n = 0;

	f->fake.delay_us = 20000;
	for (; n < 10 && stats.most_ahead < 8; n++) {
		read_all(f);
		rsh_streams_stats(f->streams, &stats);
	}
	assert_in_range(stats.most_ahead, 8, 17);
	assert_in_range(stats.windows, 20, n * (FILE_BYTES / MIB + 1));
	assert_int_equal(stats.unread, 0);
}

/* From far away the first read of a file asks for a bunch of windows at once,
 * elsewhere for one more. */
TEST_OF_FIXTURE(test_far_begins_with_a_bunch)
{
	for (int far = 0; far < 2; far++) {
		const struct rsh_streams_options o =
			rsh_streams_suited(far, false, 0);
		struct rsh_stream_stats stats;
		struct rsh_stream *st;

		rsh_streams_free(f->streams);
		assert_int_equal(rsh_streams_new(&o, &f->streams), 0);
		assert_int_equal(open_file(f, 2, &st), 0);
		assert_int_equal(check(st, 2, 0, MIB), MIB);
		rsh_streams_stats(f->streams, &stats);
		assert_int_equal(stats.most_ahead, far ? 2 + 16 : 2);
		rsh_stream_close(st);
	}
}

/* Reads a file, and takes so long for each MiB.  On a busy machine a read of
 * the source may be under way meanwhile, which has not taken as long for that.
 */
static void read_for(struct fixture *f, uint64_t ns)
{
	struct rsh_stream *st;
	uint64_t at = 0;
	ssize_t n;

	assert_int_equal(open_file(f, 2, &st), 0);
	do {
		n = check(st, 2, at, MIB);
		at += (uint64_t)n;
		while (atomic_load(&f->fake.reading))
			usleep(50);
		atomic_fetch_add(&told_ns, ns);
	} while (n > 0);
	rsh_stream_close(st);
}

/* Where a window is filled at a release, no other thread is woken for a reader who is slower
 * than the source; but for the first windows, when that is not known yet, and
 * on a busy machine these may be most of a file. */
TEST_OF_FIXTURE(test_lenders_prepare)
{
	const struct rsh_streams_options o = {
		.prepare_at_release = true, .now = told_clock,
	};
	unsigned n = 0;

	rsh_streams_free(f->streams);
	assert_int_equal(rsh_streams_new(&o, &f->streams), 0);
	f->fake.reader = pthread_self();
	f->fake.takes_ns = 1000000;
	atomic_store(&told_ns, 1);
	do {
		f->fake.by_reader = 0;
		read_for(f, 5 * f->fake.takes_ns);
		n++;
	} while (n < 20 && f->fake.by_reader < FILE_BYTES / MIB / 2);
	assert_int_equal(f->fake.bytes_read, n * FILE_BYTES);
	assert_in_range(f->fake.by_reader, FILE_BYTES / MIB / 2,
			FILE_BYTES / MIB + 1);
}

/* Windows of a reader who keeps up with the source come in batches, if there is
 * a processor for that; on a busy machine that may take a few files. */
TEST_OF_FIXTURE(test_batches)
{
	const struct rsh_streams_options o = { .now = told_clock };
	struct rsh_stream_stats stats = { 0 };

	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		skip();
	rsh_streams_free(f->streams);
	assert_int_equal(rsh_streams_new(&o, &f->streams), 0);
	f->fake.takes_ns = 1000000;
	atomic_store(&told_ns, 1);
	for (unsigned n = 0; n < 50 && stats.most_ahead < 5; n++) {
		read_for(f, 2 * f->fake.takes_ns);
		rsh_streams_stats(f->streams, &stats);
	}
	assert_true(stats.most_ahead >= 5);
	assert_int_equal(stats.unread, 0);
}

/* The kernel may make two requests of one, a long one and a bit. */
TEST_OF_FIXTURE(test_pace_of_odd_requests)
{
	const struct rsh_streams_options o = { .now = told_clock };
	struct rsh_stream *st;
	uint64_t at = 0;

	rsh_streams_free(f->streams);
	assert_int_equal(rsh_streams_new(&o, &f->streams), 0);
	assert_int_equal(open_file(f, 2, &st), 0);
	atomic_store(&told_ns, 1);
	for (unsigned i = 0; i < 40; i++) {
		const size_t len = i % 2 ? 52 : MIB - 52;

		for (size_t got = 0; got < len;)
			got += (size_t)check(st, 2, at + got, len - got);
		at += len;
		atomic_fetch_add(&told_ns, 1000000);
	}
	assert_in_range(st->pace_ns, 1000000, 3000000);
	rsh_stream_close(st);
}

/* Who jumps gets what he asks for and no more is read. */
TEST_OF_FIXTURE(test_jumps_prepare_nothing)
{
	struct rsh_stream_stats stats;
	struct rsh_stream *st;
	uint64_t total = 0;

	assert_int_equal(open_file(f, 3, &st), 0);
	for (uint64_t i = 1; i < 50; i++) {
		uint64_t at = i * 7919 * 1009 % FILE_BYTES;

		total += (uint64_t)check(st, 3, at, 4096);
	}
	rsh_stream_close(st);
	rsh_streams_stats(f->streams, &stats);
	assert_int_equal(stats.windows, 0);
	assert_int_equal(f->fake.bytes_read, total);
}

TEST_OF_FIXTURE(test_edges)
{
	struct rsh_stream *st;

	assert_int_equal(open_file(f, 2, &st), 0);
	assert_int_equal(check(st, 2, FILE_BYTES, 10), 0);
	assert_int_equal(check(st, 2, UINT64_MAX, 10), 0);
	assert_int_equal(check(st, 2, 5, 0), 0);
	assert_int_equal(check(st, 2, FILE_BYTES - 3, 10), 3);
	rsh_stream_close(st);
}

/* Who reads later does not do it for an earlier reader. */
TEST_OF_FIXTURE(test_work_ends_with_the_read)
{
	struct rsh_stream *st;

	assert_int_equal(open_file(f, 2, &st), 0);
	assert_int_equal(check(st, 2, 9 * MIB, 10), 10);
	assert_int_equal(rsh_work_began(), 0);
	assert_int_equal(check(st, 2, 0, 10), 10);
	assert_int_equal(rsh_work_began(), 0);
	rsh_stream_close(st);
}

/* A window that failed is read anew. */
TEST_OF_FIXTURE(test_failures_do_not_stay)
{
	struct rsh_stream *st;
	uint64_t at = 0;
	unsigned failed = 0;

	assert_int_equal(open_file(f, 4, &st), 0);
	while (at < FILE_BYTES) {
		ssize_t n;

		if (at / MIB % 5 == 3 && failed < 4 * (at / MIB / 5 + 1))
			atomic_store(&f->fake.fail_next, 1);
		n = check(st, 4, at, 300000);
		if (n < 0) {
			assert_int_equal(n, -EIO);
			failed++;
			continue;
		}
		at += (uint64_t)n;
	}
	assert_in_range(failed, 1, 100);
	rsh_stream_close(st);
}

/* When a read fails its window goes back, and many others have before. */
TEST_OF_FIXTURE(test_failure_after_loans)
{
	struct rsh_view views[12], view;
	struct rsh_stream *st;

	assert_int_equal(open_file(f, 2, &st), 0);
	for (unsigned i = 0; i < 12; i++)
		assert_int_equal(rsh_stream_read(st, (i + 2) * 3 * MIB / 2, 10,
						 &views[i]), 10);
	f->fake.views = views;
	f->fake.n_loans = 12;
	atomic_store(&f->fake.fail_next, 1);
	assert_int_equal(rsh_stream_read(st, MIB, 10, &view), -EIO);
	assert_int_equal(f->fake.n_loans, 0);
	rsh_stream_close(st);
}

/* ---- many threads ---- */

#define N_THREADS 12

struct reader {
	pthread_t thread;
	struct fixture *f;
	struct rsh_stream *shared; /* or one's own */
	uint32_t file;
	int n_reads;
	unsigned seed;
	unsigned wrong;
};

static void *read_anyhow(void *arg)
{
	struct reader *r = arg;
	struct rsh_stream *st = r->shared;
	struct rsh_view view;
	uint64_t at = 0;
	ssize_t n;

	for (int i = 0; i < r->n_reads; i++) {
		size_t len = (size_t)(rand_r(&r->seed) % 1200000) + 1;

		if (!r->shared && (i == 0 || rand_r(&r->seed) % 40 == 0)) {
			if (i)
				rsh_stream_close(st);
			if (open_file(r->f, r->file, &st))
				abort();
		}
		if (rand_r(&r->seed) % 6 == 0)
			at = (uint64_t)rand_r(&r->seed) % FILE_BYTES;
		n = rsh_stream_read(st, at, len, &view);
		if (n != expected(at, len) || !is_right(&view, r->file, at))
			r->wrong++;
		if (n >= 0)
			rsh_view_release(&view);
		at = n > 0 ? at + (uint64_t)n : 0;
	}
	if (!r->shared)
		rsh_stream_close(st);
	return NULL;
}

static void run_readers(struct fixture *f, bool shared, int n_reads)
{
	struct reader readers[N_THREADS];
	struct rsh_stream *st[N_FILES];

	for (int i = 0; i < N_FILES; i++)
		assert_int_equal(open_file(f, 2 + (uint64_t)i, &st[i]), 0);
	for (int i = 0; i < N_THREADS; i++) {
		readers[i] = (struct reader){
			.f = f, .file = 2 + (uint64_t)i % N_FILES,
			.shared = shared ? st[i % N_FILES] : NULL,
			.n_reads = n_reads, .seed = 100 + (unsigned)i,
		};
		assert_int_equal(pthread_create(&readers[i].thread, NULL,
						read_anyhow, &readers[i]), 0);
	}
	for (int i = 0; i < N_THREADS; i++) {
		pthread_join(readers[i].thread, NULL);
		assert_int_equal(readers[i].wrong, 0);
	}
	for (int i = 0; i < N_FILES; i++)
		rsh_stream_close(st[i]);
}

TEST_OF_FIXTURE(test_readers_of_their_own)
{
	f->fake.delay_us = 200;
	run_readers(f, false, rounds(150));
}

/* Windows lose their place while others hold them or wait for them. */
TEST_OF_FIXTURE(test_readers_share_streams)
{
	f->fake.delay_us = 200;
	run_readers(f, true, rounds(150));
}

/* Any number of open files that are read a little each hold no more windows
 * than are allowed. */
TEST_OF_FIXTURE(test_bound)
{
	enum { N = 200 };
	struct rsh_stream *st[N];
	struct rsh_stream_stats stats;

	for (int i = 0; i < N; i++) {
		assert_int_equal(open_file(f, 2, &st[i]), 0);
		for (uint64_t k = 0; k < 5; k++)
			assert_int_equal(check(st[i], 2, k * 65536, 65536),
					 65536);
	}
	rsh_streams_stats(f->streams, &stats);
	assert_in_range(stats.most_windows, 10, 24);
	for (int i = 0; i < N; i++)
		rsh_stream_close(st[i]);
}

/* By hand, for all readers together, be they threads of one file or of many,
 * those who jump included. */
TEST_OF_FIXTURE(test_loads_at_a_time)
{
	f->fake.delay_us = 200;
	for (unsigned most = 1; most <= 4; most *= 2) {
		/* No load takes so long by this clock that it does not count.
		 */
		const struct rsh_streams_options o = {
			.max_loads = most, .now = told_clock,
		};

		rsh_streams_free(f->streams);
		assert_int_equal(rsh_streams_new(&o, &f->streams), 0);
		atomic_store(&f->fake.most_under_way, 0);
		run_readers(f, false, 10);
		assert_in_range(f->fake.most_under_way, 1, most);
	}
}

/* ---- files that are closed while somebody reads ---- */

struct late {
	pthread_t thread;
	struct rsh_stream *stream;
	ssize_t got;
	sem_t *left; /* or NULL */
};

static void *read_late(void *arg)
{
	struct late *l = arg;
	struct rsh_view view;

	l->got = rsh_stream_read(l->stream, 0, 4096, &view);
	if (l->got >= 0)
		rsh_view_release(&view);
	rsh_stream_drop(l->stream);
	if (l->left)
		sem_post(l->left);
	return NULL;
}

/* One is in the source, the others wait for room: they leave, and he gets what
 * he has read. */
TEST_OF_FIXTURE(test_closed_meanwhile)
{
	const struct rsh_streams_options o = {
		.max_loads = 1, .now = told_clock,
	};
	enum { N = 6 };
	struct rsh_stream *st;
	struct late late[N];
	unsigned n_gone = 0;
	sem_t gate, left;

	rsh_streams_free(f->streams);
	assert_int_equal(rsh_streams_new(&o, &f->streams), 0);
	sem_init(&gate, 0, 0);
	sem_init(&left, 0, 0);
	sem_init(&f->fake.arrived, 0, 0);
	f->fake.gate = &gate;
	assert_int_equal(open_file(f, 2, &st), 0);
	for (unsigned i = 0; i < N; i++) {
		rsh_stream_hold(st);
		late[i] = (struct late){ .stream = st, .left = &left };
		assert_int_equal(pthread_create(&late[i].thread, NULL,
						read_late, &late[i]), 0);
	}
	sem_wait(&f->fake.arrived);
	rsh_stream_close(st);
	for (unsigned i = 0; i < N - 1; i++)
		sem_wait(&left);
	sem_post(&gate);
	for (unsigned i = 0; i < N; i++) {
		pthread_join(late[i].thread, NULL);
		if (late[i].got == -EINTR)
			n_gone++;
		else
			assert_int_equal(late[i].got, 4096);
	}
	assert_int_equal(n_gone, N - 1);
	f->fake.gate = NULL;
	sem_destroy(&gate);
	sem_destroy(&left);
	sem_destroy(&f->fake.arrived);
}

static unsigned users_of_once(struct rsh_streams *s,
			      const struct rsh_stream *st)
{
	const struct rsh_window *w;
	unsigned n;

	pthread_mutex_lock(&s->lock);
	w = TAILQ_FIRST(&st->once);
	n = w ? w->users : 0;
	pthread_mutex_unlock(&s->lock);
	return n;
}

/* Who asks for what is being read for somebody gets it with him: it was
 * himself, perhaps, and he was interrupted. */
TEST_OF_FIXTURE(test_begun_anew)
{
	struct rsh_stream *st;
	struct late late[2];
	sem_t gate;

	sem_init(&gate, 0, 0);
	sem_init(&f->fake.arrived, 0, 0);
	f->fake.gate = &gate;
	assert_int_equal(open_file(f, 2, &st), 0);
	for (unsigned i = 0; i < 2; i++) {
		rsh_stream_hold(st);
		late[i] = (struct late){ .stream = st };
		assert_int_equal(pthread_create(&late[i].thread, NULL,
						read_late, &late[i]), 0);
		/* The second one finds no gate. */
		if (i == 0)
			sem_wait(&f->fake.arrived);
	}
	/* Both, and who reads it. */
	while (users_of_once(f->streams, st) < 3)
		sched_yield();
	sem_post(&gate);
	for (unsigned i = 0; i < 2; i++) {
		pthread_join(late[i].thread, NULL);
		assert_int_equal(late[i].got, 4096);
	}
	assert_int_equal(f->fake.n_reads, 1);
	/* Later on it is read anew. */
	sem_post(&gate);
	assert_int_equal(check(st, 2, 0, 4096), 4096);
	assert_int_equal(f->fake.n_reads, 2);
	rsh_stream_close(st);
	f->fake.gate = NULL;
	sem_destroy(&gate);
	sem_destroy(&f->fake.arrived);
}
