/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_source_gather.c - random pieces of random files against a naive
 * reader, and files that change.
 *
 * The iterator is the test's own: gather knows pieces, not plans. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "rsh/converter/conversion.h"
#include "rsh/source/gather.h"
#include "rsh/util/log.h"
#include "source_support.h"

#define MAX_FILES 300
#define MAX_PIECES 6000

/* A few files that are longer than a scratch buffer, or more files than one
 * batch takes. */
enum { FEW = 7, LONG = 1500 * 1000, MANY = MAX_FILES, SHORT = 20 * 1000 };

static atomic_ullong skipped; /* rows */

struct rsh_piece_iter {
	const struct rsh_piece *pieces;
	size_t n, at;
	size_t in_row; /* pieces of a row; 0: it knows of no rows */
};

bool rsh_piece_iter_next(struct rsh_piece_iter *it, struct rsh_piece *out)
{
	if (it->at == it->n)
		return false;
	*out = it->pieces[it->at++];
	return true;
}

/* True if each of the next pieces is like the one a row before it, `stride`
 * bytes further. */
static bool row_follows(const struct rsh_piece_iter *it, size_t at,
			uint64_t stride)
{
	if (at + it->in_row > it->n)
		return false;
	for (size_t i = at; i < at + it->in_row; i++) {
		const struct rsh_piece *p = &it->pieces[i], *q = p - it->in_row;

		if (p->is_header || q->is_header || p->codec || q->codec ||
		    p->src_rank != q->src_rank || p->length != q->length ||
		    p->src_offset != q->src_offset + stride)
			return false;
	}
	return true;
}

bool rsh_piece_iter_rows(const struct rsh_piece_iter *it, struct rsh_rows *out)
{
	const struct rsh_piece *p = &it->pieces[it->at];
	uint64_t stride;

	if (it->in_row == 0 || it->at < it->in_row ||
	    it->at + it->in_row > it->n)
		return false;
	stride = p->src_offset - (p - it->in_row)->src_offset;
	if (stride > LONG) /* it goes backwards */
		return false;
	*out = (struct rsh_rows){ .src_stride = stride };
	while (row_follows(it, it->at + out->n * it->in_row, stride))
		out->n++;
	for (size_t i = 1; i <= it->in_row; i++)
		out->bytes += (p - i)->length;
	return out->n > 0;
}

void rsh_piece_iter_skip(struct rsh_piece_iter *it, const struct rsh_rows *rows)
{
	it->at += rows->n * it->in_row;
	skipped += rows->n;
}

/* The files, on disk and in memory. */
struct fixture {
	char *tree;
	struct rsh_names *names;
	struct rsh_source *source;
	unsigned n_files;
	size_t file_bytes;
	uint8_t *content[MAX_FILES];
	uint64_t offset[MAX_FILES]; /* of content in the file */
};

static void name_of(unsigned rank, char *name, size_t max)
{
	snprintf(name, max, "rank_%u/x-1_5.ckpt", rank);
}

static struct fixture *fixture_new(struct numbers *x, unsigned n_files,
				   size_t file_bytes)
{
	const struct rsh_source_options opts = { .n_threads = 3 };
	struct rsh_error err = RSH_ERROR_INIT;
	struct fixture *f = calloc(1, sizeof(*f));
	uint64_t word;
	char name[64];

	f->tree = tree_make();
	f->n_files = n_files;
	f->file_bytes = file_bytes;
	for (unsigned r = 0; r < n_files; r++) {
		f->content[r] = malloc(file_bytes);
		for (size_t i = 0; i < file_bytes; i += sizeof(word)) {
			word = numbers_next(x);
			memcpy(f->content[r] + i, &word, sizeof(word));
		}
		name_of(r, name, sizeof(name));
		f->offset[r] = tree_write_vector(f->tree, name, f->content[r],
						 file_bytes);
	}
	f->names = rsh_names_new();
	if (rsh_source_open(f->tree, 0, n_files, &opts, &f->source, &err) ||
	    rsh_source_choose(f->source, 0, &err) ||
	    rsh_source_index(f->source, f->names, &err))
		fail_msg("%s", err.text);
	return f;
}

static void fixture_free(struct fixture *f)
{
	rsh_source_free(f->source);
	rsh_names_free(f->names);
	tree_remove(f->tree);
	for (unsigned r = 0; r < f->n_files; r++)
		free(f->content[r]);
	free(f);
}

/* ---- random requests ---- */

static uint64_t round_down(uint64_t v, uint64_t to)
{
	return v - v % to;
}

/* Lengths from a byte to two thirds of a file, that is, more than a scratch
 * buffer in a long one. */
static uint64_t random_length(struct numbers *x, const struct fixture *f)
{
	uint64_t max = UINT64_C(2) << numbers_below(x, 20);

	return 1 + numbers_below(x, max < f->file_bytes * 2 / 3 ?
				 max : f->file_bytes * 2 / 3);
}

static void random_codec(struct numbers *x, const struct fixture *f,
			 struct rsh_piece *p)
{
	static const struct {
		enum rsh_codec codec;
		unsigned stored, decoded;
	} codecs[] = {
		{ RSH_CODEC_NONE, 1, 1 },
		{ RSH_CODEC_BF16_WIDE, 4, 2 },
		{ RSH_CODEC_BF16_NAN, 2, 2 },
		{ RSH_CODEC_BF16_WIDE_NAN, 4, 2 },
	};
	/* Mostly none, as in life. */
	unsigned k = numbers_below(x, 4) ? 0 : (unsigned)numbers_below(x, 4);
	uint64_t n, decoded;

	p->codec = codecs[k].codec;
	if (p->codec == RSH_CODEC_NONE) {
		p->src_length = p->length;
		return;
	}
	p->skip = (uint32_t)numbers_below(x, codecs[k].decoded);
	n = (p->skip + p->length + codecs[k].decoded - 1) / codecs[k].decoded;
	p->src_length = n * codecs[k].stored;
	if (p->src_length > f->file_bytes / 2) {
		n = f->file_bytes / 2 / codecs[k].stored;
		p->src_length = n * codecs[k].stored;
		decoded = n * codecs[k].decoded - p->skip;
		p->length = decoded;
	}
}

/* Pieces as a plan makes them: rows of several files in turn, jumps, headers,
 * and mostly another length of row behind a header. */
static size_t random_pieces(struct numbers *x, const struct fixture *f,
			    struct rsh_piece *pieces, uint64_t max_bytes)
{
	static const uint8_t header[] = "a record's header, of some length";
	uint64_t next[MAX_FILES], total = 0, row = random_length(x, f);
	unsigned turn = (unsigned)numbers_below(x, f->n_files) + 1;
	bool one_row = numbers_below(x, 3) == 0;
	size_t n = 0;

	for (unsigned r = 0; r < f->n_files; r++)
		next[r] = numbers_below(x, f->file_bytes / 2);
	while (n < MAX_PIECES && total < max_bytes) {
		struct rsh_piece *p = &pieces[n];
		unsigned r = (unsigned)(n % turn);

		*p = (struct rsh_piece){ .file_offset = total };
		if (numbers_below(x, 50) == 0) {
			p->is_header = true;
			p->header = header;
			p->length = 1 + numbers_below(x, sizeof(header) - 1);
			n++;
			total += p->length;
			if (!one_row)
				row = random_length(x, f);
			continue;
		}
		p->src_rank = r;
		p->length = row;
		random_codec(x, f, p);
		if (numbers_below(x, 20) == 0) /* another place */
			next[r] = numbers_below(x, f->file_bytes);
		else if (numbers_below(x, 4) == 0) /* a gap */
			next[r] += numbers_below(x, 8 * row);
		if (next[r] + p->src_length > f->file_bytes)
			next[r] = round_down(f->file_bytes - p->src_length, 4);
		p->src_offset = f->offset[r] + next[r];
		next[r] += p->src_length;
		total += p->length;
		n++;
	}
	return n;
}

/* Matrices whose rows come from `turn` files in turn, with gaps from row to row
 * or none, behind a header each. */
static size_t random_matrices(struct numbers *x, const struct fixture *f,
			      struct rsh_piece *pieces, uint64_t max_bytes,
			      size_t turn)
{
	static const uint8_t header[] = "a record's header, of some length";
	uint64_t total = 0, length[MAX_FILES], widest, stride, rows;
	size_t n = 0;

	while (n + turn < MAX_PIECES && total < max_bytes) {
		widest = 1;
		for (size_t r = 0; r < turn; r++) {
			length[r] = 1 + numbers_below(x, UINT64_C(1) <<
						      numbers_below(x, 12));
			if (numbers_below(x, 200) == 0)
				length[r] = f->file_bytes / 3;
			if (length[r] > widest)
				widest = length[r];
		}
		stride = widest * (1 + (numbers_below(x, 2) ?
					numbers_below(x, 9) : 0));
		rows = 1 + numbers_below(x, 1 + (f->file_bytes - widest) /
					 stride);
		pieces[n++] = (struct rsh_piece){
			.file_offset = total, .is_header = true,
			.header = header, .length = sizeof(header) - 1,
		};
		total += sizeof(header) - 1;
		for (uint64_t at = 0; at < rows; at++)
			for (size_t r = 0; r < turn && n < MAX_PIECES; r++) {
				pieces[n++] = (struct rsh_piece){
					.file_offset = total,
					.src_rank = (uint32_t)r,
					.src_offset = f->offset[r] +
						      at * stride,
					.length = length[r],
					.src_length = length[r],
				};
				total += length[r];
			}
	}
	return n;
}

/* One piece at a time, one byte of code at a time. */
static void naive(const struct fixture *f, const struct rsh_piece *p,
		  uint8_t *out)
{
	const uint8_t *from;
	uint8_t *decoded;

	if (p->is_header) {
		memcpy(out, p->header, p->length);
		return;
	}
	from = f->content[p->src_rank] + p->src_offset - f->offset[p->src_rank];
	if (p->codec == RSH_CODEC_NONE) {
		memcpy(out, from, p->length);
		return;
	}
	decoded = malloc(p->src_length);
	rsh_codec_decode(p->codec, from, p->src_length, decoded);
	memcpy(out, decoded + p->skip, p->length);
	free(decoded);
}

static size_t total_of(const struct rsh_piece *pieces, size_t n)
{
	size_t total = 0;

	for (size_t i = 0; i < n; i++)
		total += pieces[i].length;
	return total;
}

static void one_request(struct numbers *x, struct fixture *f)
{
	struct rsh_piece *pieces = calloc(MAX_PIECES, sizeof(*pieces));
	uint64_t most = 1 + numbers_below(x, 2 * 1000 * 1000);
	size_t in_row = numbers_below(x, 2) ?
			1 + (size_t)numbers_below(x, f->n_files) : 0;
	size_t n = in_row ? random_matrices(x, f, pieces, most, in_row) :
		   random_pieces(x, f, pieces, most);
	size_t total = total_of(pieces, n);
	struct rsh_piece_iter it = { pieces, n, 0, in_row };
	uint8_t *got = malloc(total + 1), *expected = malloc(total);
	size_t at = 0;

	got[total] = 0xa5;
	assert_int_equal(rsh_source_gather(f->source, &it, got, total, true), 0);
	assert_int_equal(got[total], 0xa5);
	for (size_t i = 0; i < n; i++) {
		naive(f, &pieces[i], expected + at);
		if (memcmp(got + at, expected + at, pieces[i].length) != 0)
			fail_msg("piece %zu of %zu differs", i, n);
		at += pieces[i].length;
	}
	free(pieces);
	free(got);
	free(expected);
}

static void random_requests(unsigned n_files, size_t file_bytes)
{
	struct numbers x = { numbers_seed() };
	struct fixture *f = fixture_new(&x, n_files, file_bytes);

	atomic_store(&skipped, 0);
	for (int i = 0; i < 200; i++)
		one_request(&x, f);
	assert_true(atomic_load(&skipped) > 1000);
	fixture_free(f);
}

static void test_few_long_files(void **state)
{
	(void)state;
	random_requests(FEW, LONG);
}

static void test_many_short_files(void **state)
{
	(void)state;
	random_requests(MANY, SHORT);
}

/* With one descriptor at a time, and many threads that want it. */

struct thread_arg {
	struct fixture *fixture;
	struct numbers numbers;
};

static void *request_thread(void *arg)
{
	struct thread_arg *a = arg;

	for (int i = 0; i < 20; i++)
		one_request(&a->numbers, a->fixture);
	return NULL;
}

static void test_few_descriptors(void **state)
{
	struct numbers x = { numbers_seed() };
	struct thread_arg args[4];
	pthread_t threads[4];
	struct rlimit saved, low;
	struct fixture *f;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &saved), 0);
	low = saved;
	low.rlim_cur = 100;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	f = fixture_new(&x, FEW, LONG);
	for (int i = 0; i < 4; i++) {
		args[i] = (struct thread_arg){ f, { numbers_next(&x) } };
		assert_int_equal(pthread_create(&threads[i], NULL,
						request_thread, &args[i]), 0);
	}
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	fixture_free(f);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &saved), 0);
}

/* ---- what must fail ---- */

static int gather_one(struct fixture *f, const struct rsh_piece *p, size_t len)
{
	struct rsh_piece_iter it = { p, 1, 0, 0 };
	uint8_t *buf = malloc(len);
	int rc = rsh_source_gather(f->source, &it, buf, len, true);

	free(buf);
	return rc;
}

static void test_pieces_that_do_not_add_up(void **state)
{
	struct numbers x = { 1 };
	struct fixture *f = fixture_new(&x, FEW, LONG);
	struct rsh_piece p = { .length = 10, .src_offset = 40,
			       .src_length = 10 };

	(void)state;
	assert_int_equal(gather_one(f, &p, 10), 0);
	assert_int_equal(gather_one(f, &p, 9), -EIO);
	assert_int_equal(gather_one(f, &p, 11), -EIO);
	p.src_rank = FEW;
	assert_int_equal(gather_one(f, &p, 10), -ENOENT);
	fixture_free(f);
}

/* A small piece, a long one and one that is decoded take different ways. */
static void changed(void (*change)(const char *path))
{
	struct numbers x = { 1 };
	struct fixture *f = fixture_new(&x, FEW, LONG);
	const struct rsh_piece pieces[] = {
		{ .length = 10, .src_rank = 2, .src_offset = 40,
		  .src_length = 10 },
		{ .length = 900000, .src_rank = 2, .src_offset = 40,
		  .src_length = 900000 },
		{ .length = 300000, .src_rank = 2, .src_offset = 40,
		  .src_length = 600000, .codec = RSH_CODEC_BF16_WIDE },
	};
	char name[64], path[256];
	struct rsh_piece other;

	name_of(2, name, sizeof(name));
	snprintf(path, sizeof(path), "%s/%s", f->tree, name);
	change(path);
	for (size_t i = 0; i < 3; i++) {
		assert_int_equal(gather_one(f, &pieces[i], pieces[i].length),
				 -ESTALE);
		other = pieces[i];
		other.src_rank = 1;
		assert_int_equal(gather_one(f, &other, other.length), 0);
	}
	fixture_free(f);
}

static void shorten(const char *path)
{
	assert_int_equal(truncate(path, 1000), 0);
}

static void lengthen(const char *path)
{
	assert_int_equal(truncate(path, LONG + 100000), 0);
}

static void lengthen_behind_the_clock(const char *path)
{
	struct timespec times[2];
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	times[0] = st.st_atim;
	times[1] = st.st_mtim;
	lengthen(path);
	assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void touch(const char *path)
{
	const struct timespec times[2] = { { 1, 0 }, { 1, 1 } };

	assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void test_changed_files(void **state)
{
	(void)state;
	changed(shorten);
	changed(lengthen);
	changed(lengthen_behind_the_clock);
	changed(touch);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_few_long_files),
		cmocka_unit_test(test_many_short_files),
		cmocka_unit_test(test_few_descriptors),
		cmocka_unit_test(test_pieces_that_do_not_add_up),
		cmocka_unit_test(test_changed_files),
	};

	/* The changes would be logged as the errors they are. */
	if (rsh_log_to_file("/dev/null"))
		return 1;
	return cmocka_run_group_tests_name("source_gather", tests, NULL, NULL);
}
