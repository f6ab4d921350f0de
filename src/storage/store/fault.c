/* SPDX-License-Identifier: Apache-2.0 */
/* storage/store/fault.c injects faults into reads (--fault). */
#include "config.h"

#include "io_i.h"
#include "medium_i.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "rsh/util/checked.h"
#include "rsh/util/clock.h"
#include "rsh/util/mem.h"

enum fault_kind {
	FAULT_EIO, FAULT_SHORT, FAULT_TRUNCATE, FAULT_FLIP, FAULT_DELAY,
};
static const char *const kinds[] = { "eio", "short", "truncate", "flip" };

struct fault {
	enum fault_kind kind;
	const char *file; /* part of a name; NULL: any */
	uint64_t from, to;
	uint32_t chance;  /* of 2^32-1 */
	uint64_t delay_ns;
	uint64_t rate;    /* bytes a second; 0: any */
	double crowd;     /* the factor of time for each other read */
	uint64_t seed;    /* of a flip */
	atomic_uint under_way; /* reads that are being delayed */
	atomic_uint_fast64_t spared; /* this many reads pass first */
	atomic_uint_fast64_t left; /* this many reads are hit after them */
};

struct rsh_faults {
	char *text; /* a copy of the option; `file` of faults points into it */
	size_t n, cap;
	struct fault *list;
	atomic_uint_fast64_t draws;

	pthread_mutex_t lock; /* guards free_at */
	uint64_t free_at;     /* when the next byte may be sent, in ns */
};

/* The longest delay, an hour. */
#define MOST_NS UINT64_C(3600000000000)

/* ---- parsing ---- */

/* Lists of units end in NULL; "" is a number without a unit. */
struct fault_unit {
	const char *name;
	uint64_t factor;
};
static const struct fault_unit times[] = {
	{ "us", 1000 }, { "ms", 1000000 }, { "s", 1000000000 }, { NULL, 0 },
};
static const struct fault_unit sizes[] = {
	{ "", 1 }, { "K", 1000 }, { "M", 1000000 }, { "G", 1000000000 },
	{ NULL, 0 },
};
static const struct fault_unit none[] = { { "", 1 }, { NULL, 0 } };

static bool fault_parse_unit(const char *s, const struct fault_unit *u,
			     uint64_t *out)
{
	unsigned long long v;
	char *end;

	if (*s < '0' || *s > '9')
		return false;
	errno = 0;
	v = strtoull(s, &end, 10);
	for (; u->name && !errno; u++)
		if (strcmp(end, u->name) == 0)
			return !__builtin_mul_overflow(v, u->factor, out);
	return false;
}

/* Reads a number between two others, these included. */
static bool fault_parse_between(const char *s, double from, double to,
				double *out)
{
	char *end;

	*out = strtod(s, &end);
	return end != s && !*end && *out >= from && *out <= to;
}

static bool fault_parse_kind(char *s, struct fault *f)
{
	char *place = strchr(s, '@');
	char *range, *end;

	if (place) {
		*place++ = '\0';
		/* The place is "FILE" or "FILE:FROM-TO". */
		range = strrchr(place, ':');
		if (range) {
			*range++ = '\0';
			if (*range < '0' || *range > '9')
				return false;
			errno = 0;
			f->from = strtoull(range, &end, 10);
			if (errno || *end != '-' || end[1] < '0' ||
			    end[1] > '9')
				return false;
			f->to = strtoull(end + 1, &end, 10);
			if (errno || *end || f->to <= f->from)
				return false;
		}
		f->file = *place ? place : NULL;
	}
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (strcmp(s, kinds[i]) == 0) {
			f->kind = (enum fault_kind)i;
			return true;
		}
	f->kind = FAULT_DELAY;
	return strncmp(s, "delay=", 6) == 0 &&
	       fault_parse_unit(s + 6, times, &f->delay_ns) &&
	       f->delay_ns <= MOST_NS;
}

static bool fault_parse(char *s, struct fault *f)
{
	char *word = strsep(&s, ",");
	uint64_t n;
	double p;

	*f = (struct fault){
		.to = UINT64_MAX, .chance = UINT32_MAX, .crowd = 1,
		.left = UINT64_MAX,
	};
	if (!fault_parse_kind(word, f))
		return false;
	/* A truncated file has nothing after its end. */
	if (f->kind == FAULT_TRUNCATE)
		f->to = UINT64_MAX;
	while ((word = strsep(&s, ","))) {
		if (strncmp(word, "p=", 2) == 0) {
			if (!fault_parse_between(word + 2, 0, 1, &p))
				return false;
			f->chance = (uint32_t)(p * UINT32_MAX);
		} else if (strncmp(word, "rate=", 5) == 0) {
			if (f->kind != FAULT_DELAY ||
			    !fault_parse_unit(word + 5, sizes, &f->rate) ||
			    !f->rate)
				return false;
		} else if (strncmp(word, "crowd=", 6) == 0) {
			if (f->kind != FAULT_DELAY ||
			    !fault_parse_between(word + 6, 1, 1000, &f->crowd))
				return false;
		} else if (strncmp(word, "seed=", 5) == 0) {
			if (f->kind != FAULT_FLIP ||
			    !fault_parse_unit(word + 5, none, &f->seed))
				return false;
		} else if (strncmp(word, "times=", 6) == 0) {
			if (f->kind == FAULT_FLIP ||
			    !fault_parse_unit(word + 6, none, &n))
				return false;
			f->left = n;
		} else if (strncmp(word, "after=", 6) == 0) {
			if (f->kind == FAULT_FLIP ||
			    !fault_parse_unit(word + 6, none, &n))
				return false;
			f->spared = n;
		} else {
			return false;
		}
	}
	return true;
}

int rsh_faults_new(const char *text, struct rsh_faults **out,
		   struct rsh_error *err)
{
	struct rsh_faults *f = calloc(1, sizeof(*f));
	char *rest, *one;

	if (!f)
		return rsh_error_nomem(err);
	f->text = strdup(text);
	if (!f->text || pthread_mutex_init(&f->lock, NULL)) {
		free(f->text);
		free(f);
		return rsh_error_nomem(err);
	}
	rest = f->text;
	while ((one = strsep(&rest, ";"))) {
		const char *given = text + (one - f->text);

		if (rsh_room(f->list, f->cap, f->n + 1)) {
			rsh_faults_free(f);
			return rsh_error_nomem(err);
		}
		if (!fault_parse(one, &f->list[f->n])) {
			rsh_faults_free(f);
			return rsh_error_set(err, EINVAL, "fault: \"%.*s\" is "
					     "not KIND[@FILE[:FROM-TO]][,p=P]"
					     "[,after=N][,times=N] with KIND eio, "
					     "short, truncate, flip[,seed=N] "
					     "or delay=TIME[,rate=SIZE]"
					     "[,crowd=FACTOR]",
					     (int)strcspn(given, ";"), given);
		}
		f->n++;
	}
	*out = f;
	return 0;
}

int rsh_faults_check(const char *faults, struct rsh_error *err)
{
	struct rsh_faults *f;
	int rc = rsh_faults_new(faults, &f, err);

	if (rc == 0)
		rsh_faults_free(f);
	return rc;
}

void rsh_faults_free(struct rsh_faults *f)
{
	if (!f)
		return;
	pthread_mutex_destroy(&f->lock);
	free(f->list);
	free(f->text);
	free(f);
}

/* ---- applying ---- */

static uint64_t fault_mix(uint64_t x)
{
	x *= UINT64_C(0x9e3779b97f4a7c15);
	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	return (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
}

/* The n-th draw is the same in every run. */
static uint32_t faults_draw(struct rsh_faults *f)
{
	return (uint32_t)(fault_mix(atomic_fetch_add(&f->draws, 1) + 1) >> 32);
}

/* Returns a time with the factor of `others` other reads. */
static uint64_t fault_crowded(const struct fault *fault, unsigned others,
			      double ns)
{
	for (; others && ns < (double)MOST_NS; others--)
		ns *= fault->crowd;
	return ns < (double)MOST_NS ? (uint64_t)ns : MOST_NS;
}

/* Delays a read like a line with this latency and rate: latencies overlap,
 * bytes are sent one after the other. */
static void fault_delay(struct rsh_faults *f, struct fault *fault, size_t len)
{
	const unsigned others = atomic_fetch_add(&fault->under_way, 1);
	uint64_t until = rsh_clock_ns() +
			 fault_crowded(fault, others, (double)fault->delay_ns);
	struct timespec t;

	if (fault->rate) {
		pthread_mutex_lock(&f->lock);
		if (f->free_at > until)
			until = f->free_at;
		until += fault_crowded(fault, others,
				       (double)len * 1e9 / (double)fault->rate);
		f->free_at = until;
		pthread_mutex_unlock(&f->lock);
	}
	t = (struct timespec){ (time_t)(until / 1000000000),
			       (long)(until % 1000000000) };
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) ==
	       EINTR)
		;
	atomic_fetch_sub(&fault->under_way, 1);
}

/* Decrements the number unless it is 0 or UINT64_MAX.  Returns false if it was
 * 0. */
static bool fault_count(atomic_uint_fast64_t *number)
{
	uint64_t left = atomic_load(number);

	while (left && left != UINT64_MAX)
		if (atomic_compare_exchange_weak(number, &left, left - 1))
			break;
	return left > 0;
}

static bool fault_hits(struct rsh_faults *f, struct fault *fault,
		       const char *name, uint64_t offset, size_t len)
{
	if (fault->kind == FAULT_FLIP ||
	    (fault->file && !strstr(name, fault->file)))
		return false;
	if (offset >= fault->to || offset + len <= fault->from)
		return false;
	return (fault->chance == UINT32_MAX ||
		faults_draw(f) < fault->chance) &&
	       !fault_count(&fault->spared) && fault_count(&fault->left);
}

int rsh_faults_apply(struct rsh_faults *f, const char *name, uint64_t offset,
		     size_t *len)
{
	for (size_t i = 0; i < f->n; i++) {
		struct fault *fault = &f->list[i];

		if (!fault_hits(f, fault, name, offset, *len))
			continue;
		switch (fault->kind) {
		case FAULT_EIO:
			return EIO;
		case FAULT_SHORT:
			*len = 1 + faults_draw(f) % *len;
			break;
		case FAULT_TRUNCATE:
			*len = offset < fault->from ?
			       (size_t)(fault->from - offset) : 0;
			if (*len == 0)
				return 0;
			break;
		case FAULT_DELAY:
			fault_delay(f, fault, *len);
			break;
		case FAULT_FLIP:
			break;
		}
	}
	return 0;
}

ssize_t rsh_faults_read(struct rsh_faults *f, struct rsh_handle *h,
			const struct iovec *iov, int n, uint64_t offset)
{
	struct iovec first = iov[0];
	size_t all = 0, len;
	int rc;

	for (int i = 0; i < n; i++)
		all += iov[i].iov_len;
	len = all;
	rc = rsh_faults_apply(f, h->name, offset, &len);
	if (rc || len == 0)
		return -rc;
	if (len < all) {
		first.iov_len = rsh_min_u64(len, first.iov_len);
		iov = &first;
		n = 1;
	}
	return h->medium->ops->read(h, iov, n, offset);
}

/* ---- flipping ---- */

bool rsh_faults_flip_any(const struct rsh_faults *f)
{
	return rsh_any(i, f->n, f->list[i].kind == FAULT_FLIP);
}

/* Which bits are flipped depends on their offsets only, so that repeated reads
 * return the same bytes. */
static void fault_flip_bytes(const struct fault *fault, uint64_t file,
			     uint64_t at, uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		uint64_t x = fault_mix(file + fault_mix(at + i + 1));

		if (fault->chance == UINT32_MAX ||
		    (uint32_t)(x >> 32) < fault->chance)
			p[i] ^= (uint8_t)(1u << (x >> 29 & 7));
	}
}

void rsh_faults_flip(const struct rsh_faults *f, const char *name,
		     uint64_t offset, void *buf, size_t len)
{
	for (size_t i = 0; i < f->n; i++) {
		const struct fault *fault = &f->list[i];
		uint64_t from = rsh_max_u64(fault->from, offset);
		uint64_t to = rsh_min_u64(fault->to, offset + len);

		if (fault->kind != FAULT_FLIP || from >= to ||
		    (fault->file && !strstr(name, fault->file)))
			continue;
		fault_flip_bytes(fault,
				 XXH3_64bits_withSeed(name, strlen(name),
						      fault->seed),
				 from, (uint8_t *)buf + (from - offset),
				 (size_t)(to - from));
	}
}
