/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_source_scan_prefetch.c - scans whose next reads are guessed: they
 * find what scans without guesses find, and wait for fewer reads. */
#include "config.h"

#include <pthread.h>

#include "rsh/util/error.h"
#include "source/scan_prefetch_i.h"
#include "support.h"

enum { RECORDS_MAX = 1024, HEADER_MAX = 256, AT_A_TIME = 64 };

/* A .ckpt whose contents are zeros, of which the headers alone are kept. */
struct headers {
	unsigned n;
	uint64_t size; /* of the file */
	struct {
		uint64_t offset;
		size_t len;
		uint8_t bytes[HEADER_MAX];
	} v[RECORDS_MAX];

	pthread_mutex_t lock; /* guards what follows */
	unsigned n_reads;
	struct {
		uint64_t offset;
		size_t len;
	} reads[8 * RECORDS_MAX];
	/* If not NULL, reads that these did not have fail. */
	const struct headers *known;
	uint64_t bad; /* a read that covers this offset fails; 0: none */
};

static struct headers *headers_new(void)
{
	struct headers *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	pthread_mutex_init(&f->lock, NULL);
	return f;
}

static void headers_free(struct headers *f)
{
	pthread_mutex_destroy(&f->lock);
	free(f);
}

static void add_record(struct headers *f, const char *name, uint64_t bytes)
{
	const int64_t dims[] = { (int64_t)bytes };
	const struct rsh_record_shape shape = {
		.name = name, .name_len = strlen(name),
		.dtype = RSH_DTYPE_INT8, .n_dims = 1, .dims = dims,
		.content_bytes = bytes,
	};

	assert_in_range(f->n, 0, RECORDS_MAX - 1);
	assert_in_range(rsh_ckpt_header_size(&shape, bytes), 1, HEADER_MAX);
	f->v[f->n].offset = f->size;
	f->v[f->n].len = rsh_ckpt_header_write(&shape, bytes,
					       f->v[f->n].bytes);
	f->size += f->v[f->n++].len + bytes;
}

/* The layers of a model: their records have the same sizes, and names that grow
 * with the number. */
static void add_layers(struct headers *f, const char *prefix, unsigned n,
		       const uint64_t *bytes, unsigned n_bytes)
{
	char name[64];

	for (unsigned i = 0; i < n; i++)
		for (unsigned k = 0; k < n_bytes; k++) {
			snprintf(name, sizeof(name), "%slayers.%u.%c", prefix,
				 i, 'a' + (int)k);
			add_record(f, name, bytes[k]);
		}
}

static bool read_is_known(const struct headers *known, uint64_t offset,
			  size_t len)
{
	for (unsigned i = 0; i < known->n_reads; i++)
		if (known->reads[i].offset == offset &&
		    known->reads[i].len == len)
			return true;
	return false;
}

static ssize_t headers_pread(void *ctx, void *buf, size_t len, uint64_t offset)
{
	struct headers *f = ctx;

	pthread_mutex_lock(&f->lock);
	f->reads[f->n_reads].offset = offset;
	f->reads[f->n_reads].len = len;
	f->n_reads = (f->n_reads + 1) % (8 * RECORDS_MAX);
	pthread_mutex_unlock(&f->lock);
	if (offset >= f->size || (f->bad && f->bad - offset < len) ||
	    (f->known && !read_is_known(f->known, offset, len)))
		return -EIO;
	if (len > f->size - offset)
		len = (size_t)(f->size - offset);
	memset(buf, 0, len);
	for (unsigned i = 0; i < f->n; i++)
		for (size_t k = 0; k < f->v[i].len; k++)
			if (f->v[i].offset + k - offset < len)
				((uint8_t *)buf)[f->v[i].offset + k - offset] =
					f->v[i].bytes[k];
	return (ssize_t)len;
}

/* What a scan found, and how. */
struct found {
	struct rsh_names *names;
	struct rsh_ckpt_index *index;
	struct rsh_error err;
	int rc;
	unsigned reads, waits;
};

static void found_free(struct found *r)
{
	rsh_ckpt_index_free(r->index);
	rsh_names_free(r->names);
}

/* Counts the reads that had to wait for the file. */
struct counted {
	const struct rsh_byte_source *from;
	const struct headers *file;
	unsigned waits;
};

static ssize_t counted_pread(void *ctx, void *buf, size_t len, uint64_t offset)
{
	struct counted *c = ctx;
	const unsigned before = c->file->n_reads;
	ssize_t n = c->from->pread_fn(c->from->ctx, buf, len, offset);

	c->waits += c->file->n_reads != before;
	return n;
}

static struct found scan(struct headers *f, unsigned at_a_time)
{
	const struct rsh_byte_source file = {
		headers_pread, f, f->size, "file.ckpt",
	};
	struct rsh_scan_prefetch *g = rsh_scan_prefetch_new(&file, at_a_time);
	const struct rsh_byte_source guessing =
		rsh_scan_prefetch_source(g, &file);
	struct counted counted = { &guessing, f, 0 };
	const struct rsh_byte_source src = {
		counted_pread, &counted, f->size, "file.ckpt",
	};
	struct found r = { .names = rsh_names_new(), .err = RSH_ERROR_INIT };

	assert_non_null(r.names);
	assert_int_equal(g != NULL, at_a_time > 1);
	f->n_reads = 0;
	r.rc = rsh_ckpt_scan(&src, r.names, &r.index, &r.err);
	if (r.rc)
		r.index = NULL;
	r.reads = f->n_reads;
	r.waits = counted.waits;
	rsh_scan_prefetch_free(g);
	return r;
}

static void assert_same(const struct found *a, const struct found *b)
{
	assert_int_equal(a->rc, b->rc);
	assert_string_equal(a->err.text, b->err.text);
	if (a->rc)
		return;
	assert_true(rsh_ckpt_index_equal(a->index, b->index));
	for (uint32_t i = 0; i < a->index->n_records; i++)
		assert_string_equal(
			rsh_names_text(a->names, a->index->records[i].name),
			rsh_names_text(b->names, b->index->records[i].name));
}

static const uint64_t layer[] = {
	1 << 24, 1 << 24, 1 << 24, 1 << 24, 45 << 20, 45 << 20, 45 << 20,
	8192, 8192,
};

static void make_model(struct headers *f)
{
	add_record(f, "embedding", 262 << 20);
	add_layers(f, "", 32, layer, 9);
	add_record(f, "norm", 8192);
	add_record(f, "head", 262 << 20);
	add_layers(f, "moment1.", 32, layer, 9);
}

TEST(test_layers)
{
	struct headers *f = headers_new();
	struct found plain, guessed;

	make_model(f);
	plain = scan(f, 1);
	guessed = scan(f, AT_A_TIME);
	assert_int_equal(plain.rc, 0);
	assert_same(&plain, &guessed);
	assert_in_range(plain.waits, f->n, f->n + 2);
	/* The first layer has nothing before it, then guesses become more in
	 * six rounds until they are as many as may be. */
	assert_in_range(guessed.waits, 1, 40);
	assert_in_range(guessed.reads, plain.reads,
			plain.reads + 2 * AT_A_TIME);
	found_free(&plain);
	found_free(&guessed);
	headers_free(f);
}

/* Where nothing is like anything else, there are hardly any guesses. */
TEST(test_no_layers)
{
	struct numbers x = { numbers_seed() };
	struct headers *f = headers_new();
	struct found plain, guessed;
	char name[32];

	for (unsigned i = 0; i < 500; i++) {
		snprintf(name, sizeof(name), "parameter.%u", i);
		add_record(f, name, 65536 + numbers_below(&x, 1 << 28));
	}
	plain = scan(f, 1);
	guessed = scan(f, AT_A_TIME);
	assert_int_equal(plain.rc, 0);
	assert_same(&plain, &guessed);
	assert_in_range(guessed.reads, plain.reads, plain.reads + 10);
	found_free(&plain);
	found_free(&guessed);
	headers_free(f);
}

static void make_random(struct headers *f, struct numbers *x)
{
	const unsigned n_parts = 1 + (unsigned)numbers_below(x, 4);
	char prefix[16];

	for (unsigned p = 0; p < n_parts; p++) {
		const unsigned kinds = 1 + (unsigned)numbers_below(x, 6);
		uint64_t bytes[6];

		for (unsigned k = 0; k < kinds; k++)
			bytes[k] = 1 + numbers_below(
				x, UINT64_C(1) << numbers_below(x, 28));
		snprintf(prefix, sizeof(prefix), "part%u.", p);
		add_layers(f, prefix, 1 + (unsigned)numbers_below(x, 40),
			   bytes, kinds);
	}
}

TEST(test_random)
{
	struct numbers x = { numbers_seed() };

	for (int i = 0; i < rounds(60); i++) {
		struct headers *f = headers_new();
		struct found plain, guessed;

		make_random(f, &x);
		plain = scan(f, 1);
		guessed = scan(f, 2 + (unsigned)numbers_below(&x, AT_A_TIME));
		assert_int_equal(plain.rc, 0);
		assert_same(&plain, &guessed);
		assert_in_range(guessed.waits, 1, plain.waits);
		assert_in_range(guessed.reads, 1, 2 * plain.reads + AT_A_TIME);
		found_free(&plain);
		found_free(&guessed);
		headers_free(f);
	}
}

/* A guess that fails is none; a read that is wanted and fails, fails as it does
 * without guesses. */
TEST(test_failures)
{
	struct headers *f = headers_new(), *known = headers_new();
	struct found plain, guessed;

	make_model(f);
	make_model(known);
	plain = scan(known, 1);
	f->known = known;
	guessed = scan(f, AT_A_TIME);
	assert_int_equal(guessed.rc, 0);
	assert_same(&plain, &guessed);
	assert_true(guessed.reads > plain.reads);
	assert_int_equal(guessed.waits, plain.waits);
	found_free(&plain);
	found_free(&guessed);

	f->known = NULL;
	known->bad = f->bad = f->v[300].offset;
	plain = scan(known, 1);
	guessed = scan(f, AT_A_TIME);
	assert_int_equal(plain.rc, -EIO);
	assert_same(&plain, &guessed);
	found_free(&plain);
	found_free(&guessed);
	headers_free(f);
	headers_free(known);
}

/* What is cut short is told as it is without guesses. */
TEST(test_cut)
{
	struct headers *f = headers_new();
	struct found plain, guessed;

	make_model(f);
	f->size = f->v[400].offset + 7;
	plain = scan(f, 1);
	guessed = scan(f, AT_A_TIME);
	assert_int_equal(plain.rc, -EBADMSG);
	assert_same(&plain, &guessed);
	found_free(&plain);
	found_free(&guessed);
	headers_free(f);
}

TEST(test_suited)
{
	assert_int_equal(rsh_scan_prefetch_suited(0, 1), 1);
	assert_int_equal(rsh_scan_prefetch_suited(64, 1), 64);
	assert_int_equal(rsh_scan_prefetch_suited(64, 8), 8);
	assert_int_equal(rsh_scan_prefetch_suited(64, 64), 1);
	assert_int_equal(rsh_scan_prefetch_suited(64, 5000), 1);
	assert_int_equal(rsh_scan_prefetch_suited(4096, 1), AT_A_TIME);
	assert_int_equal(rsh_scan_prefetch_suited(256, 64), 4);
}
