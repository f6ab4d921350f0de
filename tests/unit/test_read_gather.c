/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_read_gather.c - random pieces of random files against a naive
 * reader, and files that change.
 *
 * The iterator is the test's own: gather knows pieces, not plans. */
#include "config.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rsh/plan/conversion.h"
#include "rsh/source/source.h"
#include "rsh/strategy/grid.h"
#include "rsh/util/arena.h"
#include "rsh/util/place.h"
#include "rsh/util/log.h"
#include "memory_medium.h"
#include "read/gather_i.h"
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

int rsh_piece_iter_status(const struct rsh_piece_iter *it)
{
	return it->at < it->n ? -EIO : 0;
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

/* A tile of one of the files, and what it is when it is turned. */
#define TILES 12

struct shown_tile {
	struct rsh_tile_key key;
	uint8_t *bytes;
	uint64_t n_bytes;
};

/* The files, on disk and in memory. */
struct fixture {
	char *tree;
	struct rsh_names *names;
	struct rsh_source *source;
	struct rsh_tiles *tiles;
	struct rsh_gathers *gathers;
	struct rsh_catalogue *cat;
	struct rsh_ckpt_index *index[MAX_FILES]; /* of `cat` */
	struct rsh_arena arena;
	struct shown_tile shown[TILES];
	bool far; /* away */
	unsigned n_files;
	size_t file_bytes;
	uint8_t *content[MAX_FILES];
	uint64_t offset[MAX_FILES]; /* of content in the file */
};

static void name_of(unsigned rank, char *name, size_t max)
{
	snprintf(name, max, "rank_%u/x-1_5.ckpt", rank);
}

static const struct {
	enum rsh_codec codec;
	uint32_t stored, decoded;
} tile_codecs[] = {
	{ RSH_CODEC_NONE, 2, 2 },	{ RSH_CODEC_NONE, 2, 2 },
	{ RSH_CODEC_NONE, 4, 4 },	{ RSH_CODEC_NONE, 1, 1 },
	{ RSH_CODEC_NONE, 16, 16 },	{ RSH_CODEC_F32_TO_BF16, 4, 2 },
	{ RSH_CODEC_BF16_TO_F32, 2, 4 }, { RSH_CODEC_SCALED_BF16, 1, 2 },
};

/* The matrix of scales is at the beginning of the file with the next number;
 * any bytes are numbers.  The quantised tensor is used for its scales only. */
static struct rsh_scales add_scales(struct numbers *x, struct fixture *f,
				    uint32_t rank, uint64_t columns, uint64_t n)
{
	const uint64_t matrix = f->file_bytes / 4 / sizeof(float);
	struct rsh_quantised *q = rsh_arena_array(&f->arena,
						  struct rsh_quantised, 1);
	const uint64_t first = numbers_below(x, 1000);
	const uint64_t rows = (first + n) / columns + 1;
	const uint64_t whole[] = { rows, columns };
	struct rsh_holder h = { 0, (rank + 1) % f->n_files, 0 };
	struct rsh_tensor t = { .dtype = RSH_DTYPE_FLOAT32, .n_dims = 2 };
	uint64_t dims[2];
	struct rsh_grid *grid;
	uint32_t number;

	q->type = RSH_DTYPE_BFLOAT16;
	q->scale_type = RSH_DTYPE_FLOAT32;
	q->block[0] = 1 + numbers_below(x, 200);
	q->block[1] = 2 + numbers_below(x, 200);
	q->n_columns = (columns - 1) / q->block[1] + 1;
	while ((rows / q->block[0] + 1) * q->n_columns > matrix) {
		q->block[0] *= 2;
		q->block[1] *= 2;
		q->n_columns = (columns - 1) / q->block[1] + 1;
	}
	q->n_rows = rows / q->block[0] + 1;
	dims[0] = q->n_rows;
	dims[1] = q->n_columns;
	t.dims = dims;
	assert_int_equal(rsh_grid_new_whole(2, &grid, NULL), 0);
	t.cut = rsh_catalogue_keep_cut(f->cat, rsh_cut_of_grid(grid));
	t.copies = rsh_catalogue_keep_copies(f->cat, t.cut, &h, 1, false);
	assert_int_equal(rsh_catalogue_add(f->cat, &t, &number), 0);
	q->scales = f->cat->tensors[number];
	t.quantised = q;
	t.dims = whole;
	t.name = number;
	assert_int_equal(rsh_catalogue_add(f->cat, &t, &number), 0);
	return (struct rsh_scales){
		.cat = f->cat, .tensor = f->cat->tensors[number],
		.first = first, .rows = rows, .columns = columns,
	};
}

/* A catalogue is built by one thread at a time. */
static struct rsh_scales random_scales(struct numbers *x, struct fixture *f,
				       uint32_t rank, uint64_t columns,
				       uint64_t n)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	struct rsh_scales s;

	pthread_mutex_lock(&lock);
	s = add_scales(x, f, rank, columns, n);
	pthread_mutex_unlock(&lock);
	return s;
}

static void naive_elements(const struct fixture *f, const struct rsh_piece *p,
			   uint64_t number, uint64_t n, uint8_t *out)
{
	const uint64_t at = p->src_offset - f->offset[p->src_rank];
	const uint8_t *from = f->content[p->src_rank] + at;
	const struct rsh_quantised *q;
	struct rsh_scaled m = { .to = RSH_DTYPE_BFLOAT16 };

	if (!rsh_codec_is_scaled(p->codec)) {
		rsh_codec_decode(p->codec, from, n, out);
		return;
	}
	q = p->scales.tensor->quantised;
	m.rows = p->scales.rows;
	m.columns = p->scales.columns;
	m.block[0] = q->block[0];
	m.block[1] = q->block[1];
	m.scale_columns = q->n_columns;
	m.scales = (const float *)(const void *)f->content[
		rsh_copies_holders(q->scales->copies)->file];
	rsh_scaled_decode(&m, number, from, n, out);
}

/* One element after the other. */
static void shown_tile_fill(const struct fixture *f, struct shown_tile *s)
{
	const struct rsh_tile *t = &s->key.tile;
	struct rsh_piece p = {
		.codec = s->key.codec, .scales = s->key.scales,
		.src_rank = t->src_rank,
	};

	s->n_bytes = t->n_rows * t->n_columns * t->unit_out;
	s->bytes = malloc(s->n_bytes);
	for (uint64_t r = 0; r < t->n_rows; r++)
		for (uint64_t c = 0; c < t->n_columns; c++) {
			const uint64_t e = r * t->stride + c;

			p.src_offset = t->src_offset + e * t->unit_in;
			naive_elements(f, &p, p.scales.first + e, t->unit_in,
				       s->bytes + (c * t->n_rows + r) *
						  t->unit_out);
		}
}

static void random_tile(struct numbers *x, struct fixture *f,
			struct shown_tile *s)
{
	const size_t k = numbers_below(x, sizeof(tile_codecs) /
				       sizeof(*tile_codecs));
	const uint64_t most = f->file_bytes / tile_codecs[k].stored;
	struct rsh_tile t = {
		.src_rank = (uint32_t)numbers_below(x, f->n_files),
		.unit_in = tile_codecs[k].stored,
		.unit_out = tile_codecs[k].decoded,
	};
	uint64_t extent;

	t.n_columns = 1 + numbers_below(x, 1 + ((most - 1) >>
					       numbers_below(x, 14)));
	t.stride = t.n_columns;
	if (numbers_below(x, 2))
		t.stride += numbers_below(x, most - t.n_columns + 1);
	if (numbers_below(x, 3) == 0)
		t.stride = most < 2 * t.n_columns ? t.n_columns :
			   t.n_columns + t.n_columns / 64;
	t.n_rows = 1 + numbers_below(x, 1 + (most - t.n_columns) / t.stride);
	extent = (t.n_rows - 1) * t.stride + t.n_columns;
	t.src_offset = f->offset[t.src_rank] +
		       numbers_below(x, most - extent + 1) * t.unit_in;
	s->key = (struct rsh_tile_key){ .tile = t,
					.codec = tile_codecs[k].codec };
	if (s->key.codec == RSH_CODEC_SCALED_BF16)
		s->key.scales = random_scales(x, f, t.src_rank, t.stride,
					      extent);
	shown_tile_fill(f, s);
}

static uint64_t random_bound(struct numbers *x)
{
	return numbers_below(x, 3) ? UINT64_C(20) << numbers_below(x, 24) : 1;
}

static void fixture_open(struct fixture *f, rsh_medium_open_fn *medium,
			 uint64_t tile_bytes)
{
	const struct rsh_source_options opts = {
		.n_threads = 3, .store = { .medium = medium },
	};
	struct rsh_error err = RSH_ERROR_INIT;

	if (rsh_source_open(f->tree, 0, f->n_files, &opts, &f->source, &err) ||
	    rsh_source_choose(f->source, 0, &err) ||
	    rsh_source_index(f->source, f->names, &err) ||
	    rsh_tiles_new(f->source, tile_bytes, &f->tiles) ||
	    rsh_gathers_new(f->source, f->tiles, f->far, &f->gathers))
		fail_msg("%s", err.text);
}

static void fixture_close(struct fixture *f)
{
	rsh_gathers_free(f->gathers);
	rsh_tiles_free(f->tiles);
	rsh_source_free(f->source);
}

/* A catalogue of the files, which outlives a source that is opened again. */
static struct rsh_catalogue *fixture_catalogue(struct fixture *f)
{
	const struct rsh_source_view view = {
		.names = f->names, .n_ranks = f->n_files,
		.index = (const struct rsh_ckpt_index *const *)f->index,
	};

	for (unsigned r = 0; r < f->n_files; r++) {
		struct rsh_ckpt_index *ix = rsh_ckpt_index_new(1, 1, 0);

		ix->extents[0] = (struct rsh_extent){ f->offset[r],
						      f->file_bytes };
		ix->records[0] = (struct rsh_record){ .n_extents = 1 };
		ix->n_records = ix->n_extents = 1;
		f->index[r] = ix;
	}
	return rsh_catalogue_new(&view);
}

static struct fixture *fixture_new(struct numbers *x, unsigned n_files,
				   size_t file_bytes)
{
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
	f->far = numbers_below(x, 2);
	fixture_open(f, NULL, random_bound(x));
	f->cat = fixture_catalogue(f);
	for (unsigned i = 0; i < TILES; i++)
		random_tile(x, f, &f->shown[i]);
	return f;
}

static void fixture_free(struct fixture *f)
{
	fixture_close(f);
	for (unsigned i = 0; i < TILES; i++)
		free(f->shown[i].bytes);
	rsh_catalogue_free(f->cat);
	for (unsigned r = 0; r < f->n_files; r++)
		rsh_ckpt_index_free(f->index[r]);
	rsh_arena_clear(&f->arena);
	rsh_names_free(f->names);
	tree_remove(f->tree);
	for (unsigned r = 0; r < f->n_files; r++)
		free(f->content[r]);
	free(f);
}

static int gather(const struct fixture *f, struct rsh_piece_iter *it,
		  struct rsh_target *to, size_t len)
{
	struct rsh_gather *g = rsh_gather_begin(f->gathers, RSH_WAIT);

	assert_non_null(g);
	return rsh_gather_end(f->gathers, g, rsh_gather_add(g, it, to, len));
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

static void random_codec(struct numbers *x, struct fixture *f,
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
		{ RSH_CODEC_SCALED_BF16, 1, 2 },
	};
	/* Mostly none, as in life. */
	unsigned k = numbers_below(x, 4) ? 0 : (unsigned)numbers_below(x, 5);
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
	if (p->codec == RSH_CODEC_SCALED_BF16)
		p->scales = random_scales(x, f, p->src_rank,
					  1 + numbers_below(x, 5000),
					  p->src_length);
}

/* A stretch of one of the tiles. */
static void random_tiled(struct numbers *x, const struct fixture *f,
			 struct rsh_piece *p)
{
	const struct shown_tile *s = &f->shown[numbers_below(x, TILES)];

	p->is_tiled = true;
	p->tile = s->key.tile;
	p->codec = s->key.codec;
	p->scales = s->key.scales;
	p->tile_offset = numbers_below(x, s->n_bytes);
	p->length = 1 + numbers_below(x, s->n_bytes - p->tile_offset);
	if (p->length > 5000 && numbers_below(x, 8))
		p->length = 1 + numbers_below(x, 5000);
}

/* Pieces as a plan makes them: rows of several files in turn, jumps, headers,
 * and mostly another length of row behind a header. */
static size_t random_pieces(struct numbers *x, struct fixture *f,
			    struct rsh_piece *pieces, uint64_t max_bytes)
{
	static const uint8_t header[] = "a record's header, of some length";
	uint64_t next[MAX_FILES], total = 0, row = random_length(x, f);
	unsigned turn = (unsigned)numbers_below(x, f->n_files) + 1;
	bool one_row = numbers_below(x, 3) == 0;
	bool tiled = numbers_below(x, 2) == 0;
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
		if (tiled && numbers_below(x, 2) == 0) {
			random_tiled(x, f, p);
			n++;
			total += p->length;
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

static const struct shown_tile *shown_tile_of(const struct fixture *f,
					      const struct rsh_piece *p)
{
	const struct rsh_tile_key key = {
		.tile = p->tile, .codec = p->codec, .scales = p->scales,
	};

	for (unsigned i = 0; i < TILES; i++)
		if (rsh_tile_key_same(&f->shown[i].key, &key))
			return &f->shown[i];
	abort();
}

/* One piece at a time, one byte of code at a time. */
static void naive(const struct fixture *f, const struct rsh_piece *p,
		  uint8_t *out)
{
	const struct shown_tile *shown;
	uint8_t *decoded;

	if (p->is_header) {
		memcpy(out, p->header, p->length);
		return;
	}
	if (p->is_tiled) {
		shown = shown_tile_of(f, p);
		memcpy(out, shown->bytes + p->tile_offset, p->length);
		return;
	}
	decoded = malloc(2 * p->src_length);
	naive_elements(f, p, p->scales.first, p->src_length, decoded);
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
	uint8_t *area = malloc(total + RSH_PLACE_MAX + 1), *got;
	cleanup_free uint8_t *expected = malloc(total);
	struct rsh_target to = { .data = area };
	size_t at = 0;

	if (numbers_below(x, 2))
		to.area = area;
	memset(area, 0xa5, total + RSH_PLACE_MAX + 1);
	assert_int_equal(gather(f, &it, &to, total), 0);
	got = to.data;
	assert_in_range(got - area, 0, to.area ? RSH_PLACE_MAX - 1 : 0);
	assert_int_equal(got[total], 0xa5);
	for (size_t i = 0; i < n; i++) {
		naive(f, &pieces[i], expected + at);
		if (memcmp(got + at, expected + at, pieces[i].length) != 0)
			fail_msg("piece %zu of %zu differs (codec %d)", i, n,
				 (int)pieces[i].codec);
		at += pieces[i].length;
	}
	free(pieces);
	free(area);
}

static void random_requests(unsigned n_files, size_t file_bytes)
{
	struct numbers x = { numbers_seed() };
	struct fixture *f = fixture_new(&x, n_files, file_bytes);

	for (int i = 0; i < 2; i++) {
		/* Helpers are threads, which take their time to begin. */
		const int n = rounds(f->far ? 50 : 200);

		atomic_store(&skipped, 0);
		for (int k = 0; k < n; k++)
			one_request(&x, f);
		/* Draws differ: 10 to 100 times as many is common, and none in
		 * a few rounds. */
		assert_true(n < 50 || atomic_load(&skipped) > (unsigned)n);
		fixture_close(f);
		f->far = !f->far;
		fixture_open(f, NULL, random_bound(&x));
	}
	fixture_free(f);
}

TEST(test_few_long_files)
{
	random_requests(FEW, LONG);
}

TEST(test_many_short_files)
{
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

TEST(test_few_descriptors)
{
	struct numbers x = { numbers_seed() };
	struct thread_arg args[4];
	pthread_t threads[4];
	struct rlimit saved, low;
	struct fixture *f;

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
	struct rsh_target to = { .data = buf };
	int rc = gather(f, &it, &to, len);

	free(buf);
	return rc;
}

TEST(test_pieces_that_do_not_add_up)
{
	struct numbers x = { 1 };
	struct fixture *f = fixture_new(&x, FEW, LONG);
	struct rsh_piece p = { .length = 10, .src_offset = 40,
			       .src_length = 10 };

	assert_int_equal(gather_one(f, &p, 10), 0);
	assert_int_equal(gather_one(f, &p, 9), -EIO);
	assert_int_equal(gather_one(f, &p, 11), -EIO);
	p.src_rank = FEW;
	assert_int_equal(gather_one(f, &p, 10), -ENOENT);
	fixture_free(f);
}

/* Columns and rows that are no whole units, and rows that overlap. */
TEST(test_tiles_that_are_refused)
{
	static const struct rsh_tile good = { 0, 0, 96, 64, 80, 4, 2, 8, 4 };
	static const struct {
		uint64_t n_rows, n_columns, stride;
		uint32_t unit_in, unit_out, per, down;
	} rows[] = {
		{ 0, 64, 80, 4, 2, 8, 4 }, { 96, 0, 80, 4, 2, 8, 4 },
		{ 95, 64, 80, 4, 2, 8, 4 }, { 96, 63, 80, 4, 2, 8, 4 },
		{ 96, 64, 79, 4, 2, 8, 4 }, { 96, 64, 84, 4, 2, 8, 4 },
		{ 96, 64, 56, 4, 2, 8, 4 }, { 96, 64, 80, 0, 2, 8, 4 },
		{ 96, 64, 80, 4, 0, 8, 4 }, { 96, 60, 80, 4, 2, 8, 4 },
		{ 96, 64, 80, 4, 2, 8, 3 }, { 94, 64, 80, 4, 2, 8, 4 },
	};
	struct rsh_strips s;

	assert_true(rsh_strips_of(&good, &s));
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct rsh_tile t = {
			0, 0, rows[i].n_rows, rows[i].n_columns, rows[i].stride,
			rows[i].unit_in, rows[i].unit_out, rows[i].per,
			rows[i].down,
		};

		if (rsh_strips_of(&t, &s))
			fail_msg("row %zu", i);
	}
}

/* Strips are whole units, make up the tile, and fit into a buffer. */
TEST(test_strips)
{
	struct numbers x = { numbers_seed() };

	for (int i = 0; i < rounds(20000); i++) {
		const uint32_t per = (uint32_t)1 << numbers_below(&x, 4);
		const uint32_t down = (uint32_t)1 << numbers_below(&x, 3);
		const uint64_t columns =
			per * (1 + numbers_below(&x, UINT64_C(1) <<
						 numbers_below(&x, 18)));
		const struct rsh_tile t = {
			.n_rows = down * (1 + numbers_below(
				&x, UINT64_C(1) << numbers_below(&x, 18))),
			.n_columns = columns,
			.stride = columns + per * numbers_below(&x, 2) *
					    numbers_below(&x, 1 + columns),
			.unit_in = (uint32_t)1 << numbers_below(&x, 5),
			.unit_out = (uint32_t)1 << numbers_below(&x, 4),
			.per = per, .down = down,
		};
		uint64_t across, wide;
		struct rsh_strips s;

		assert_true(rsh_strips_of(&t, &s));
		assert_int_equal(s.width % per, 0);
		assert_int_equal(s.height % down, 0);
		assert_true(s.width > 0 && s.height > 0);
		across = (t.n_columns + s.width - 1) / s.width;
		assert_int_equal(s.down, (t.n_rows + s.height - 1) / s.height);
		assert_int_equal(s.n, s.down * across);
		wide = s.joined ? t.stride : s.width;
		assert_true(s.height / down * (wide / per) * t.unit_in <=
			    RSH_STRIP_BYTES);
		assert_true(s.height * wide * t.unit_out <=
			    2 * RSH_STRIP_BYTES);
	}
}

/* Tiles that are wanted again and again are loaded once as long as there is
 * room, and go when there is none. */
TEST(test_room_for_tiles)
{
	enum { SIDE = 500, N = 2 * SIDE * SIDE };
	struct numbers x = { 1 };
	struct fixture *f = fixture_new(&x, FEW, LONG);
	struct rsh_piece p = {
		.length = N, .is_tiled = true,
		.tile = { 0, 40, SIDE, SIDE, SIDE, 2, 2 },
	};
	struct rsh_tile_stats stats;

	fixture_close(f);
	fixture_open(f, NULL, 3 * N);
	for (int i = 0; i < 100; i++) {
		p.tile.src_rank = i % 2;
		assert_int_equal(gather_one(f, &p, N), 0);
	}
	rsh_tiles_stats(f->tiles, &stats);
	assert_int_equal(stats.loads, 2);
	for (int i = 0; i < 12; i++) {
		p.tile.src_rank = i % 4;
		assert_int_equal(gather_one(f, &p, N), 0);
	}
	rsh_tiles_stats(f->tiles, &stats);
	assert_in_range(stats.loads, 12, 14);
	assert_in_range(stats.memory_peak, 2 * N, 3 * N);
	p.tile = (struct rsh_tile){ 0, 40, 4 * SIDE, SIDE, SIDE, 1, 1 };
	p.length = 4 * SIDE * SIDE;
	assert_int_equal(gather_one(f, &p, p.length), 0);
	fixture_free(f);
}

/* A large tile takes the memory of one that has to go for it: fresh pages would
 * have to be cleared first. */
TEST(test_memory_of_tiles)
{
	enum { SIDE = 900, N = 2 * SIDE * SIDE, ROOM = 3 };
	struct numbers x = { 1 };
	struct fixture *f = fixture_new(&x, FEW, 2 * N);
	struct rsh_piece p = {
		.length = N, .is_tiled = true,
		.tile = { 0, 40, SIDE, SIDE, SIDE, 2, 2 },
	};
	struct rsh_tile_stats stats;

	fixture_close(f);
	fixture_open(f, NULL, ROOM * (RSH_TILE_BYTES + 4096));
	for (int i = 0; i < 20; i++) {
		p.tile.src_offset = 40 + 2 * (uint64_t)i;
		assert_int_equal(gather_one(f, &p, N), 0);
	}
	rsh_tiles_stats(f->tiles, &stats);
	assert_int_equal(stats.loads, 20);
	assert_int_equal(stats.maps, ROOM);
	assert_in_range(stats.memory_peak, ROOM * RSH_TILE_BYTES,
			ROOM * (RSH_TILE_BYTES + 4096));
	fixture_free(f);
}

/* The first long piece says where the bytes begin, and what came before it, a
 * header and a run that is still to be read, moves with it. */
TEST(test_place)
{
	enum { HEADER = 100, SHORT_RUN = 5000 - RSH_PLACE_MAX, REST = 50000 };
	struct numbers x = { 1 };
	struct fixture *f = fixture_new(&x, FEW, LONG);
	uint8_t header[HEADER], area[HEADER + SHORT_RUN + REST + RSH_PLACE_MAX];
	const struct rsh_piece pieces[] = {
		{ .length = HEADER, .is_header = true, .header = header },
		{ .length = SHORT_RUN, .src_rank = 1, .src_offset = 77,
		  .src_length = SHORT_RUN },
		{ .length = REST, .src_rank = 2, .src_offset = 4321,
		  .src_length = REST },
	};
	struct rsh_piece_iter it = { pieces, 3, 0, 0 };
	struct rsh_target to = { .area = area };

	memset(header, 0x5a, sizeof(header));
	assert_int_equal(gather(f, &it, &to, HEADER + SHORT_RUN + REST), 0);
	assert_int_equal(to.data - area,
			 rsh_place(4321 - HEADER - SHORT_RUN));
	assert_memory_equal(to.data, header, HEADER);
	assert_memory_equal(to.data + HEADER,
			    f->content[1] + 77 - f->offset[1], SHORT_RUN);
	assert_memory_equal(to.data + HEADER + SHORT_RUN,
			    f->content[2] + 4321 - f->offset[2], REST);
	fixture_free(f);
}

static void fixture_to_memory(struct fixture *f)
{
	char name[64];

	for (unsigned i = 0; i < f->n_files; i++) {
		name_of(i, name, sizeof(name));
		memory_add_from(f->tree, name);
	}
	fixture_close(f);
	f->far = true;
	fixture_open(f, memory_open, 1);
}

/* Gathers pieces that say no more than where in a file they lie; `reads` of the
 * source are to be under way at a time. */
static void gather_together(const struct fixture *f, struct rsh_piece *pieces,
			    size_t n, size_t in_row, unsigned reads)
{
	const size_t total = total_of(pieces, n);
	uint8_t *data = malloc(total), *at = data;
	struct rsh_piece_iter it = { pieces, n, 0, in_row };
	struct rsh_target to = { .data = data };

	for (size_t i = 0; i < n; i++) {
		pieces[i].src_length = pieces[i].length;
		pieces[i].src_offset += f->offset[pieces[i].src_rank];
	}
	memory_meet(reads);
	assert_int_equal(gather(f, &it, &to, total), 0);
	for (size_t i = 0; i < n; at += pieces[i++].length)
		assert_memory_equal(at, f->content[pieces[i].src_rank] +
				    pieces[i].src_offset -
				    f->offset[pieces[i].src_rank],
				    pieces[i].length);
	free(data);
}

/* From far away all that a request reads is asked for at once: long pieces,
 * short ones of other places, and rows that no read takes together. */
TEST(test_all_at_once)
{
	enum { BYTES = 300 * 1000, LONG_PIECE = 90 * 1000, ROW = 15 * 1000 };
	struct numbers x = { 1 };
	struct fixture *f = fixture_new(&x, 3, BYTES);
	struct rsh_piece pieces[] = {
		{ .length = LONG_PIECE },
		{ .length = LONG_PIECE, .src_rank = 1 },
		{ .length = 100, .src_rank = 2 },
		{ .length = 100, .src_rank = 2, .src_offset = 290 * 1000 },
		{ .length = 100, .src_rank = 2, .src_offset = 290 * 1000 + 150 },
	};
	struct rsh_piece rows[4];

	fixture_to_memory(f);
	gather_together(f, pieces, 5, 0, 4);
	for (int i = 0; i < 4; i++)
		rows[i] = (struct rsh_piece){
			.length = ROW, .src_offset = i * 80 * 1000,
		};
	gather_together(f, rows, 4, 1, 4);
	fixture_free(f);
	memory_clear();
}

/* So are the strips of a tile. */
TEST(test_tile_at_once)
{
	enum { ROWS = 1024, COLUMNS = 1000 };
	struct numbers x = { 1 };
	struct fixture *f = fixture_new(&x, 1, ROWS * COLUMNS);
	struct rsh_piece p = {
		.is_tiled = true, .length = ROWS * COLUMNS,
		.tile = { .n_rows = ROWS, .n_columns = COLUMNS,
			  .stride = COLUMNS, .unit_in = 1, .unit_out = 1 },
	};
	struct rsh_piece_iter it = { &p, 1, 0, 0 };
	struct rsh_strips strips;
	uint8_t *data = malloc(p.length);
	struct rsh_target to = { .data = data };

	fixture_to_memory(f);
	p.tile.src_offset = f->offset[0];
	assert_true(rsh_strips_of(&p.tile, &strips));
	memory_meet((unsigned)strips.n);
	assert_in_range(strips.n, 2, 100);
	assert_int_equal(gather(f, &it, &to, p.length), 0);
	for (unsigned row = 0; row < ROWS; row++)
		for (unsigned column = 0; column < COLUMNS; column++)
			assert_int_equal(data[column * ROWS + row],
					 f->content[0][row * COLUMNS + column]);
	free(data);
	fixture_free(f);
	memory_clear();
}

/* Rows of two tensors in turn are neighbours of two kinds, and two reads. */
TEST(test_rows_in_turn)
{
	enum { ROWS = 20, BYTES = 8000 };
	struct numbers x = { 1 };
	struct fixture *f = fixture_new(&x, 1, 2 * ROWS * BYTES);
	struct rsh_piece pieces[2 * ROWS];
	unsigned before;

	fixture_to_memory(f);
	for (uint64_t i = 0; i < 2 * ROWS; i++)
		pieces[i] = (struct rsh_piece){
			.length = BYTES,
			.src_offset = (i / 2 + i % 2 * ROWS) * BYTES,
		};
	before = memory_reads();
	gather_together(f, pieces, 2 * ROWS, 0, 2);
	assert_int_equal(memory_reads(), before + 2);
	fixture_free(f);
	memory_clear();
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
		{ .length = 20000, .is_tiled = true,
		  .tile = { 2, 40, 100, 100, 200, 2, 2 } },
	};
	char name[64], path[256];
	const size_t n = sizeof(pieces) / sizeof(*pieces);
	struct rsh_piece other;

	/* What was turned before it changed is not shown either. */
	assert_int_equal(gather_one(f, &pieces[n - 1], 20000), 0);
	name_of(2, name, sizeof(name));
	snprintf(path, sizeof(path), "%s/%s", f->tree, name);
	change(path);
	for (size_t i = 0; i < n; i++) {
		assert_int_equal(gather_one(f, &pieces[i], pieces[i].length),
				 -ESTALE);
		other = pieces[i];
		other.src_rank = other.tile.src_rank = 1;
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

TEST(test_changed_files)
{
	changed(shorten);
	changed(lengthen);
	changed(lengthen_behind_the_clock);
	changed(touch);
}

int main(void)
{
	/* The changes would be logged as the errors they are. */
	if (rsh_log_to_file("/dev/null"))
		return 1;
	return unit_run(NULL, NULL);
}
