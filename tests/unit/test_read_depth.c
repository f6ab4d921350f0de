/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_read_depth.c - how many loads are under way at a time, of made-up
 * sources whose time is made up as well: what comes of it is compared with the
 * best number, by sources of all kinds drawn from a seed. */
#include "config.h"

#include "support.h"
#include "read/depth_i.h"

#define MIB (UINT64_C(1024) * 1024)
#define MS UINT64_C(1000000)
#define MOST 16
#define SOURCES 400

/* ---- sources ---- */

/* Loads wait for `delay_ns` side by side and then one after the other for their
 * bytes, all of it `crowd` times as long for each other load. */
struct source {
	uint64_t delay_ns, line_ns;
	double crowd;
	double noise;    /* up to so many times as long, by chance */
	unsigned wanted; /* loads at a time */
	uint64_t bytes;
};

struct load {
	uint64_t begun, number, end;
};

struct run {
	struct source source;
	struct numbers numbers;
	uint64_t now, free_at;
	struct load loads[MOST];
	unsigned n;
};

static double noise(struct run *r)
{
	const double x = (double)numbers_below(&r->numbers, 1000) / 1000;

	return 1 + x * x * r->source.noise;
}

static struct load *begin(struct run *r, uint64_t number)
{
	struct load *l = &r->loads[r->n];
	double times = noise(r);

	for (unsigned i = 0; i < r->n; i++)
		times *= r->source.crowd;
	l->begun = r->now;
	l->number = number;
	l->end = r->now + (uint64_t)((double)r->source.delay_ns * times);
	if (r->free_at > l->end)
		l->end = r->free_at;
	l->end += (uint64_t)((double)r->source.line_ns * times);
	r->free_at = l->end;
	r->n++;
	return l;
}

/* The load that ends first; it is then. */
static struct load end_first(struct run *r)
{
	struct load first = r->loads[0];
	unsigned at = 0;

	for (unsigned i = 1; i < r->n; i++)
		if (r->loads[i].end < first.end) {
			first = r->loads[i];
			at = i;
		}
	r->loads[at] = r->loads[--r->n];
	r->now = first.end;
	return first;
}

/* Loads a second with always so many under way. */
static double rate_of(const struct source *s, unsigned limit, unsigned n)
{
	struct run r = { .source = *s, .numbers = { 7 } };

	for (unsigned i = 0; i < n; i++) {
		while (r.n < limit && r.n < s->wanted)
			begin(&r, 0);
		end_first(&r);
	}
	return n * 1e9 / (double)r.now;
}

static double best_rate(const struct source *s, unsigned most)
{
	double best = 0;

	for (unsigned limit = 1; limit <= most; limit *= 2) {
		double rate = rate_of(s, limit, 500);

		if (rate > best)
			best = rate;
	}
	return best;
}

/* So many loads as `d` lets them begin. */
static void go(struct run *r, struct rsh_depth *d, unsigned n)
{
	const unsigned wanted = r->source.wanted;

	for (unsigned i = 0; i < n; i++) {
		struct load l;

		while (r->n < wanted && rsh_depth_room(d)) {
			uint64_t number = rsh_depth_begin(d, wanted - r->n - 1,
							  r->now);

			begin(r, number);
			assert_in_range(r->n, 1, d->most);
		}
		l = end_first(r);
		rsh_depth_end(d, l.number, r->source.bytes, wanted - r->n,
			      r->now);
	}
}

static double rate_with(struct run *r, struct rsh_depth *d, unsigned n)
{
	const uint64_t from = r->now;

	go(r, d, n);
	return n * 1e9 / (double)(r->now - from);
}

/* ---- what comes of it ---- */

static struct run run_of(struct source s)
{
	return (struct run){ .source = s, .numbers = { 11 } };
}

static const struct source punishing = {
	.line_ns = 5 * MS, .crowd = 2.5, .wanted = MOST, .bytes = MIB,
};
static const struct source distant = {
	.delay_ns = 50 * MS, .line_ns = MS, .crowd = 1, .wanted = MOST,
	.bytes = MIB,
};
/* That of the bench. */
static const struct source slow = {
	.delay_ns = 5 * MS, .line_ns = 5 * MS, .crowd = 1, .wanted = MOST,
	.bytes = MIB,
};

TEST(one_at_a_time_where_more_hurts)
{
	struct run r = run_of(punishing);
	struct rsh_depth d;

	rsh_depth_init(&d, MOST);
	/* From the first load on. */
	assert_true(rate_with(&r, &d, 500) > 0.9 * best_rate(&punishing, MOST));
	assert_int_equal(d.level, 0);
}

TEST(many_where_that_pays)
{
	struct run r = run_of(distant);
	struct rsh_depth d;

	rsh_depth_init(&d, MOST);
	go(&r, &d, 60);
	assert_int_equal(rsh_depth_limit(&d), MOST);
	assert_true(rate_with(&r, &d, 2000) > 0.95 * best_rate(&distant, MOST));
	r = run_of(slow);
	rsh_depth_init(&d, MOST);
	assert_true(rate_with(&r, &d, 500) > 0.93 * best_rate(&slow, MOST));
}

TEST(no_fewer_than_the_least)
{
	struct run r = run_of(punishing);
	struct rsh_depth d;

	rsh_depth_init(&d, MOST);
	rsh_depth_far(&d, 8, UINT64_C(1) << 50);
	assert_int_equal(rsh_depth_limit(&d), 8);
	for (unsigned i = 0; i < 100; i++) {
		go(&r, &d, 5);
		assert_in_range(rsh_depth_limit(&d), 8, MOST);
	}
}

/* Behind a slow line loads wait for each other, and so few are enough; when it
 * is fast again there are more. */
TEST(few_behind_a_slow_line)
{
	struct run r = run_of(distant);
	struct rsh_depth d;
	uint64_t longest = 0;

	rsh_depth_init(&d, MOST);
	rsh_depth_far(&d, MOST, 2000 * MS);
	r.source.line_ns = 1200 * MS;
	go(&r, &d, 2 * MOST);
	for (unsigned i = 0; i < 200; i++) {
		go(&r, &d, 1);
		longest += rsh_depth_limit(&d) > 2;
	}
	assert_in_range(longest, 0, 20);
	r.source.line_ns = distant.line_ns;
	go(&r, &d, 300);
	assert_in_range(rsh_depth_limit(&d), 8, MOST);
}

/* A load that hangs, and others that fail late, say nothing of the line. */
TEST(one_that_hangs_is_no_slow_line)
{
	struct rsh_depth d;
	uint64_t now = 1, hung, failed;

	rsh_depth_init(&d, MOST);
	rsh_depth_far(&d, 8, 2000 * MS);
	hung = rsh_depth_begin(&d, 8, now);
	failed = rsh_depth_begin(&d, 8, now);
	for (unsigned i = 0; i < 40; i++) {
		const uint64_t load = rsh_depth_begin(&d, 8, now);

		now += 150 * MS;
		rsh_depth_end(&d, load, MIB, 8, now);
	}
	rsh_depth_end(&d, hung, MIB, 8, now);
	rsh_depth_end(&d, failed, 0, 8, now);
	for (unsigned i = 0; i < 3; i++) {
		failed = rsh_depth_begin(&d, 8, now);
		now += 5000 * MS;
		rsh_depth_end(&d, failed, 0, 8, now);
	}
	assert_in_range(rsh_depth_limit(&d), 8, MOST);
}

/* Not even in the first 256 MiB is more lost to looking for the number than
 * these. */
TEST(found_soon)
{
	const struct {
		const struct source *source;
		double part;
	} cases[] = { { &slow, 0.96 }, { &distant, 0.65 },
		      { &punishing, 0.92 } };

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct run r = run_of(*cases[i].source);
		struct rsh_depth d;
		double rate;

		rsh_depth_init(&d, MOST);
		rate = rate_with(&r, &d, 256) /
		       best_rate(cases[i].source, MOST);
		print_message("# case %zu: %.3f of the best\n", i, rate);
		assert_true(rate > cases[i].part);
	}
}

/* A number that was seen to be bad is left alone for long, also when others
 * near it are tried. */
TEST(what_is_bad_is_tried_seldom)
{
	struct run r = run_of(slow);
	struct rsh_depth d;
	unsigned n = 0;

	rsh_depth_init(&d, MOST);
	go(&r, &d, 100);
	for (unsigned i = 0; i < 2000; i++) {
		go(&r, &d, 1);
		n += rsh_depth_limit(&d) == 1;
	}
	assert_in_range(n, 0, 20);
}

TEST(never_more_than_by_hand)
{
	for (unsigned most = 1; most <= MOST; most++) {
		struct run r = run_of(distant);
		struct rsh_depth d;

		rsh_depth_init(&d, most);
		go(&r, &d, 200); /* looks itself */
		while (d.step)
			go(&r, &d, 1);
		assert_int_equal(rsh_depth_limit(&d), most);
	}
}

TEST(follows_a_source_that_changes)
{
	struct run r = run_of(distant);
	struct rsh_depth d;

	rsh_depth_init(&d, MOST);
	for (unsigned i = 0; i < 5; i++) {
		r.source = distant;
		go(&r, &d, 1000);
		assert_true(rate_with(&r, &d, 500) >
			    0.9 * best_rate(&distant, MOST));
		r.source = punishing;
		go(&r, &d, 300);
		assert_true(rate_with(&r, &d, 500) >
			    0.8 * best_rate(&punishing, MOST));
	}
}

/* A reader who takes his time says nothing about the source. */
TEST(slow_readers_change_nothing)
{
	struct run r = run_of(distant);
	struct rsh_depth d;

	rsh_depth_init(&d, MOST);
	go(&r, &d, 200);
	assert_int_equal(rsh_depth_limit(&d), MOST);
	r.source.wanted = 3;
	go(&r, &d, 1000);
	assert_int_equal(d.level, 4);
	/* Nor does one who is mostly away. */
	r = run_of(distant);
	rsh_depth_init(&d, MOST);
	for (unsigned i = 0; i < 300; i++) {
		r.source.wanted = 1;
		go(&r, &d, 1);
		r.now += 100 * MS;
	}
	assert_int_equal(d.level, 0);
}

TEST(sources_of_all_kinds)
{
	struct numbers x = { numbers_seed() };
	unsigned poor = 0;

	for (unsigned i = 0; i < SOURCES; i++) {
		const struct source s = {
			.delay_ns = numbers_below(&x, 3) *
				    numbers_below(&x, 30 * MS),
			.line_ns = MS / 5 + numbers_below(&x, 10 * MS),
			.crowd = 1 + (double)(numbers_below(&x, 2) *
					      numbers_below(&x, 250)) / 100,
			.noise = (double)numbers_below(&x, 3) / 2,
			.wanted = MOST,
			.bytes = numbers_below(&x, 2) ? MIB : 4096,
		};
		struct run r = { .source = s, .numbers = x };
		double rate, best = best_rate(&s, MOST);
		struct rsh_depth d;

		rsh_depth_init(&d, MOST);
		go(&r, &d, 400);
		rate = rate_with(&r, &d, 2000);
		if (rate > 0.9 * best)
			continue;
		poor++;
		print_message("# source %u: delay %.2f ms, line %.2f ms, crowd "
			      "%.2f, noise %.1f: %.2f of the best\n", i,
			      (double)s.delay_ns / MS, (double)s.line_ns / MS,
			      s.crowd, s.noise, rate / best);
		assert_true(rate > 0.7 * best);
	}
	assert_in_range(poor, 0, SOURCES / 20);
}

/* Loads that take longer than allowed are fewer in proportion, and their mean
 * begins anew then. */
TEST(fewer_loads_in_proportion_to_their_time)
{
	uint64_t loads[16], now = 0;
	struct rsh_depth d;

	rsh_depth_init(&d, 16);
	rsh_depth_far(&d, 16, 100 * MS);
	for (unsigned i = 0; i < 16; i++)
		loads[i] = rsh_depth_begin(&d, 99, now);
	now = 400 * MS;
	for (unsigned i = 0; i < 16; i++) {
		rsh_depth_end(&d, loads[i], MIB, 99, now++);
		assert_int_equal(rsh_depth_limit(&d), 4);
	}
	for (unsigned i = 0; i < 4; i++)
		loads[i] = rsh_depth_begin(&d, 99, now);
	now += 150 * MS;
	for (unsigned i = 0; i < 4; i++) {
		rsh_depth_end(&d, loads[i], MIB, 99, now++);
		assert_int_equal(rsh_depth_limit(&d), 2);
	}
}

/* Loads hang that take four times as long as others before. */
TEST(patience_follows_the_mean)
{
	uint64_t now = 0, begun;
	struct rsh_depth d;

	rsh_depth_init(&d, MOST);
	for (unsigned i = 0; i < 20; i++) {
		begun = rsh_depth_begin(&d, 0, now);
		now = begun + 2000 * MS;
		rsh_depth_end(&d, begun, MIB, 0, now);
		assert_int_equal(rsh_depth_patience(&d) - now, 8000 * MS);
	}
	begun = rsh_depth_begin(&d, 0, now);
	now = begun + 4000 * MS;
	rsh_depth_end(&d, begun, MIB, 0, now);
	assert_int_equal(rsh_depth_patience(&d) - now, 10000 * MS);
}

/* The first load also measures the source, and one that failed says nothing:
 * what was counted of the stretch begins anew. */
TEST(failed_loads_are_not_counted)
{
	struct rsh_depth d;
	uint64_t now = 0;

	rsh_depth_init(&d, MOST);
	for (unsigned i = 0; i < 3; i++) {
		const uint64_t begun = rsh_depth_begin(&d, 9, now);

		now += 10 * MS;
		rsh_depth_end(&d, begun, MIB, 9, now);
		if (i == 0) {
			assert_int_equal(d.n_ended, 0);
			assert_int_equal(d.work, 0);
		}
	}
	/* Failures of a source that has a faster one beside it. */
	for (unsigned i = 0; i < 1000; i++) {
		const uint64_t begun = rsh_depth_begin(&d, 9, now);

		now += 1000;
		rsh_depth_end(&d, begun, 0, 9, now);
		assert_int_equal(d.n_ended, 0);
		assert_int_equal(d.work, 0);
		assert_int_equal(d.level, 0);
	}
}

/* ---- what hangs ---- */

TEST(hung_loads_let_others_by)
{
	uint64_t first, second, third, now;
	struct rsh_depth d;

	rsh_depth_init(&d, MOST);
	first = rsh_depth_begin(&d, 2, 0);
	assert_int_equal(rsh_depth_room(&d), 0);
	rsh_depth_look(&d, rsh_depth_patience(&d) - 1);
	assert_int_equal(rsh_depth_room(&d), 0);
	now = rsh_depth_patience(&d);
	rsh_depth_look(&d, now);
	assert_int_equal(rsh_depth_room(&d), 1);
	second = rsh_depth_begin(&d, 1, now);
	/* One that comes after it does not wait for so long. */
	assert_in_range(rsh_depth_patience(&d) - now, 1, 200 * MS);
	now = rsh_depth_patience(&d);
	rsh_depth_look(&d, now);
	third = rsh_depth_begin(&d, 0, now);
	assert_int_equal(rsh_depth_room(&d), 0);
	/* They come back in any order. */
	rsh_depth_end(&d, first, MIB, 0, 5000 * MS);
	assert_int_equal(rsh_depth_room(&d), 0);
	rsh_depth_end(&d, third, MIB, 0, 5001 * MS);
	assert_int_equal(rsh_depth_room(&d), 1);
	rsh_depth_end(&d, second, MIB, 0, 5002 * MS);
	assert_int_equal(rsh_depth_room(&d), 1);
	assert_int_equal(d.n_late, 0);
	assert_true(rsh_depth_patience(&d) - d.event_ns >= 1000 * MS);
}

/* Whatever ends, fails and hangs: none is counted twice or forgotten. */
TEST(counts_stay_right)
{
	struct numbers x = { numbers_seed() };
	uint64_t loads[200], now = 0;
	unsigned n = 0;
	struct rsh_depth d;

	rsh_depth_init(&d, 1 + (unsigned)numbers_below(&x, MOST));
	for (unsigned i = 0; i < 200000; i++) {
		now += numbers_below(&x, 3) * numbers_below(&x, 20 * MS);
		if (numbers_below(&x, 1000) == 0)
			now = rsh_depth_patience(&d);
		rsh_depth_look(&d, now);
		if (n < 200 && rsh_depth_room(&d) && numbers_below(&x, 2)) {
			loads[n++] = rsh_depth_begin(&d, (unsigned)
				numbers_below(&x, 20), now);
		} else if (n) {
			const unsigned at = (unsigned)numbers_below(&x, n);

			rsh_depth_end(&d, loads[at], numbers_below(&x, 50) *
				      10000, (unsigned)numbers_below(&x, 20),
				      now);
			loads[at] = loads[--n];
		}
		assert_int_equal(d.n_loads + d.n_late, n);
		assert_in_range(rsh_depth_limit(&d), 1, d.most);
	}
	while (n)
		rsh_depth_end(&d, loads[--n], MIB, 0, ++now);
	assert_int_equal(d.n_loads + d.n_late, 0);
}
