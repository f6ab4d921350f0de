/* SPDX-License-Identifier: Apache-2.0 */
/* Property test of layout and plan against a naive reference.
 *
 * A case draws, from its seed, two strategies over meshes of any sizes
 * (multiples of one another or not), with pipeline stages, nested and expanded
 * maps, optimizer shards and size-1 axes; makes whole tensors whose elements
 * are known by their place; cuts them for every source rank; and compares
 * every byte of every virtual file with the whole tensors cut for the
 * destination.  The reference works element by element from the definition of
 * the layouts and shares no code with strategy/ or plan/.  Plans are made by
 * the converter, and also by the reader of rank files and the general writer.
 *
 * RSH_PROPERTY_SEED and RSH_PROPERTY_CASES override what is run.
 */
#include <inttypes.h>

#include "rsh/plan/conversion.h"
#include "rsh/formats/ranks.h"
#include "rsh/strategy/strategy.h"
#include "rsh/wire/ckpt.h"
#include "rsh/wire/strategy_file.h"
#include "support.h"

#define DEFAULT_CASES ((uint64_t)rounds(12000))
#define DEFAULT_LOSSES ((uint64_t)rounds(4000))
#define DEFAULT_ALIKE ((uint64_t)rounds(4000))
#define DEFAULT_OFFERED ((uint64_t)rounds(4000))
#define MAX_PARAMS 4
#define MAX_STAGES 3
#define MAX_MESH 5
#define MAX_DIM 3
#define MAX_RANKS 24
#define MAX_FILE (1 << 16)
#define MAX_RANGE 300
#define MAX_FORETOLD (MAX_RANGE + 20) /* pieces of a range */

/* ---- a random layout ---- */

struct layout {
	int n_mesh, mesh[MAX_MESH];
	int n_dims;
	int n_axes[MAX_DIM], axes[MAX_DIM][MAX_MESH]; /* as mesh indexes */
	int opt; /* optimizer shard size, 1 none */
	bool minus_one, nested, expanded;
};

struct job {
	int ranks, stages;
	bool none;
	struct layout layout[MAX_PARAMS];
	bool in_stage[MAX_PARAMS][MAX_STAGES];
};

struct whole {
	int n_dims;
	int64_t dims[MAX_DIM];
	int size; /* bytes an element */
	const char *type;
	bool unlisted;
};

static int split_of(const struct layout *l, int d)
{
	int n = 1;

	for (int i = 0; i < l->n_axes[d]; i++)
		n *= l->mesh[l->axes[d][i]];
	return n;
}

static bool uses(const struct layout *l, int axis)
{
	for (int d = 0; d < l->n_dims; d++)
		for (int i = 0; i < l->n_axes[d]; i++)
			if (l->axes[d][i] == axis)
				return true;
	return false;
}

static int coordinate(const struct layout *l, int rank, int axis)
{
	for (int a = l->n_mesh - 1; a > axis; a--)
		rank /= l->mesh[a];
	return rank % l->mesh[axis];
}

/* Do two ranks hold the same slice before the optimizer shard? */
static bool same_slice(const struct layout *l, int r, int q)
{
	for (int a = 0; a < l->n_mesh; a++)
		if (uses(l, a) && coordinate(l, r, a) != coordinate(l, q, a))
			return false;
	return true;
}

/* From the definition: which of how many parts of dimension d rank r holds. */
static int part_of(const struct layout *l, int ranks, int r, int d)
{
	int part = 0, place = 0;

	for (int i = 0; i < l->n_axes[d]; i++)
		part = part * l->mesh[l->axes[d][i]] +
		       coordinate(l, r, l->axes[d][i]);
	if (d > 0 || l->opt == 1)
		return part;
	for (int q = 0; q < r && q < ranks; q++)
		place += same_slice(l, r, q);
	return part * l->opt + place % l->opt;
}

static int parts(const struct layout *l, int d)
{
	return split_of(l, d) * (d == 0 ? l->opt : 1);
}

static void random_mesh(struct layout *l, int ranks)
{
	int left = ranks;

	l->n_mesh = 0;
	while (left > 1 && l->n_mesh < MAX_MESH - 1) {
		int f = 2 + (int)below((uint32_t)left - 1);

		while (left % f)
			f--;
		if (f < 2)
			f = left;
		l->mesh[l->n_mesh++] = f;
		left /= f;
	}
	if (left > 1)
		l->mesh[l->n_mesh - 1] *= left;
	if (l->n_mesh == 0 || (l->n_mesh < MAX_MESH && below(5) == 0)) {
		int at = (int)below((uint32_t)l->n_mesh + 1);

		memmove(&l->mesh[at + 1], &l->mesh[at],
			(size_t)(l->n_mesh++ - at) * sizeof(int));
		l->mesh[at] = 1;
	}
}

static void random_layout(struct layout *l, int ranks, int n_dims)
{
	int order[MAX_MESH], group;

	memset(l, 0, sizeof(*l));
	random_mesh(l, ranks);
	l->n_dims = n_dims;
	l->opt = 1;
	for (int i = 0; i < l->n_mesh; i++) {
		int j = (int)below((uint32_t)i + 1);

		order[i] = order[j];
		order[j] = i;
	}
	l->nested = below(3) == 0;
	for (int i = 0; n_dims && i < l->n_mesh; i++) {
		int d = (int)below((uint32_t)n_dims);

		if (below(2) || (l->n_axes[d] && !l->nested))
			continue;
		l->axes[d][l->n_axes[d]++] = order[i];
	}
	group = ranks;
	for (int d = 0; d < n_dims; d++)
		group /= split_of(l, d);
	if (n_dims && group > 1 && below(2)) {
		l->minus_one = below(2);
		l->opt = group;
		while (!l->minus_one && (group % l->opt || below(3) == 0))
			l->opt = 1 + (int)below((uint32_t)group);
	}
	if (l->nested && l->opt == 1 && below(3) == 0)
		l->expanded = true;
}

/* ---- strategies as JSON files ---- */

static int opt_step(const struct layout *l, int ranks)
{
	/* (last - first) / (n - 1) of the ranks that hold rank 0's slice */
	int last = 0, n = 0;

	if (l->opt == 1)
		return 0;
	for (int q = 0; q < ranks; q++)
		if (same_slice(l, 0, q)) {
			last = q;
			n++;
		}
	return last / (n - 1);
}

static void put_map(struct unit_text *t, const struct layout *l,
		    const struct whole *w)
{
	unit_put(t, "\"tensor_map\":[");
	for (int d = 0; d < l->n_dims; d++) {
		bool list = l->nested && !l->expanded;

		unit_put(t, "%s%s", d ? "," : "", list ? "[" : "");
		for (int i = 0; i < l->n_axes[d]; i++)
			unit_put(t, "%s%d", i ? "," : "",
				 l->n_mesh - 1 - l->axes[d][i]);
		unit_put(t, "%s%s", l->n_axes[d] ? "" : "-1", list ? "]" : "");
	}
	unit_put(t, "]");
	if (!l->expanded)
		return;
	unit_put(t, ",\"tensor_shape\":[");
	for (int d = 0; d < l->n_dims; d++) {
		int64_t left = w->dims[d];

		unit_put(t, "%s", d ? "," : "");
		for (int i = 0; i + 1 < l->n_axes[d]; i++) {
			unit_put(t, "%d,", l->mesh[l->axes[d][i]]);
			left /= l->mesh[l->axes[d][i]];
		}
		unit_put(t, "%" PRId64, left);
	}
	unit_put(t, "]");
}

static struct rsh_strategy *make_strategy(const struct job *j,
					  const struct whole *w, int n_params,
					  const char *path,
					  struct rsh_names *names)
{
	struct rsh_strategy_file **files = malloc(sizeof(*files));
	struct rsh_strategy *s;
	struct rsh_error err = RSH_ERROR_INIT;
	struct unit_text *t = calloc(1, sizeof(*t));
	const char *comma = "";

	unit_put(t, "{\"current_stage\":1,\"parallel_layout_item\":{");
	for (int p = 0; p < n_params; p++)
		for (int st = 0; st < j->stages; st++) {
			const struct layout *l = &j->layout[p];

			if (w[p].unlisted || !j->in_stage[p][st])
				continue;
			unit_put(t, "%s\"%d-p%d\":{\"dev_matrix\":[", comma,
				 st, p);
			for (int i = 0; i < l->n_mesh; i++)
				unit_put(t, "%s%d", i ? "," : "", l->mesh[i]);
			unit_put(t, "],\"field\":0,"
				 "\"opt_weight_shard_size\":%d,"
				 "\"opt_weight_shard_step\":%d,",
				 l->opt == 1 ? 0 : l->minus_one ? -1 : l->opt,
				 opt_step(l, j->ranks));
			put_map(t, l, &w[p]);
			unit_put(t, "}");
			comma = ",";
		}
	unit_put(t, "},\"parallel_strategy_item\":{\"n\":{\"stage\":0}}}");
	if (rsh_strategy_parse(t->s, t->n, path, &files[0], &err))
		fail_msg("%s\n%s", err.text, t->s);
	if (rsh_strategy_merge(&(struct rsh_strategy_set){ files, 1,
				RSH_STRATEGY_FILE, path }, names, &s, &err))
		fail_msg("%s\n%s", err.text, t->s);
	free(t);
	return s;
}

/* ---- contents ---- */

static uint8_t byte_of(int param, int64_t element, int byte)
{
	uint64_t x = (uint64_t)element * 1000003u + (uint64_t)param * 7919u +
		     (uint64_t)byte * 31u;

	x ^= x >> 17;
	x *= UINT64_C(0xed5ad4bb);
	return (uint8_t)(x >> 13);
}

/* The slice of a whole tensor that rank r holds, element by element. */
static size_t cut(const struct whole *w, int param, const struct layout *l,
		  int ranks, int r, int64_t *dims, uint8_t *out)
{
	int64_t from[MAX_DIM], n = 1;
	size_t at = 0;

	for (int d = 0; d < w->n_dims; d++) {
		int count = l ? parts(l, d) : 1;

		dims[d] = w->dims[d] / count;
		from[d] = l ? dims[d] * part_of(l, ranks, r, d) : 0;
		n *= dims[d];
	}
	for (int64_t e = 0; e < n; e++) {
		int64_t rest = e, whole = 0, place[MAX_DIM] = { 0 };

		for (int d = w->n_dims; d-- > 0; rest /= dims[d])
			place[d] = from[d] + rest % dims[d];
		for (int d = 0; d < w->n_dims; d++)
			whole = whole * w->dims[d] + place[d];
		for (int b = 0; b < w->size; b++)
			out[at++] = byte_of(param, whole, b);
	}
	return at;
}

struct image {
	uint8_t *bytes;
	size_t n;
};

static ssize_t read_image(void *ctx, void *buf, size_t len, uint64_t offset)
{
	const struct image *m = ctx;

	if (offset >= m->n)
		return 0;
	if (len > m->n - offset)
		len = m->n - offset;
	memcpy(buf, m->bytes + offset, len);
	return (ssize_t)len;
}

static void emit(struct image *m, const char *name, const struct whole *w,
		 const int64_t *dims, const uint8_t *content, size_t n)
{
	struct rsh_record_shape s = {
		.name = name, .name_len = strlen(name),
		.dtype = rsh_dtype_parse(w->type, strlen(w->type)),
		.n_dims = (uint8_t)w->n_dims, .dims = dims, .content_bytes = n,
	};

	assert_true(m->n + n + 200 < MAX_FILE);
	m->n += rsh_ckpt_header_write(&s, n, m->bytes + m->n);
	memcpy(m->bytes + m->n, content, n);
	m->n += n;
}

static struct rsh_ckpt_index *scan(struct image *m, struct rsh_names *names)
{
	struct rsh_byte_source src = { read_image, m, m->n, "image" };
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_ckpt_index *ix;

	assert_good(rsh_ckpt_scan(&src, names, &ix, &err), err);
	return ix;
}

/* ---- one case ---- */

struct test_case {
	bool alike; /* both sides cut everything alike */
	int n_params;
	struct whole w[MAX_PARAMS];
	struct job src, dst;
	struct rsh_names *names;
	struct rsh_strategy *from, *to;
	int n_files;
	/* Files may lack parameters, as where redundancy was removed. */
	bool lacks[MAX_RANKS * MAX_STAGES][MAX_PARAMS];
	struct image file[MAX_RANKS * MAX_STAGES];
	const struct rsh_ckpt_index *index[MAX_RANKS * MAX_STAGES];
};

static void random_job(struct test_case *t, struct job *j)
{
	memset(j, 0, sizeof(*j));
	j->ranks = 1 + (int)below(MAX_RANKS);
	j->stages = 1 + (int)(below(2) ? below(MAX_STAGES) : 0);
	for (int p = 0; p < t->n_params; p++) {
		random_layout(&j->layout[p], j->ranks, t->w[p].n_dims);
		j->in_stage[p][below((uint32_t)j->stages)] = true;
		if (below(4) == 0)
			j->in_stage[p][below((uint32_t)j->stages)] = true;
	}
	/* Every stage has a parameter, or it would be missing. */
	for (int s = 0; s < j->stages; s++)
		j->in_stage[0][s] = true;
}

static int64_t lcm(int64_t a, int64_t b)
{
	int64_t x = a, y = b;

	while (y) {
		int64_t r = x % y;

		x = y;
		y = r;
	}
	return a / x * b;
}

static void random_case(struct test_case *t)
{
	static const struct { const char *type; int size; } types[] = {
		{ "Float32", 4 }, { "Float16", 2 }, { "BFloat16", 2 },
		{ "Int8", 1 }, { "Bool", 1 }, { "Int64", 8 }, { "Int4", 1 },
	};

	t->n_params = 1 + (int)below(MAX_PARAMS);
	for (int p = 0; p < t->n_params; p++) {
		uint32_t k = below(sizeof(types) / sizeof(types[0]));

		t->w[p].n_dims = (int)below(MAX_DIM + 1);
		t->w[p].type = types[k].type;
		t->w[p].size = types[k].size;
		t->w[p].unlisted = p > 0 && below(6) == 0;
	}
	random_job(t, &t->src);
	random_job(t, &t->dst);
	t->src.none = below(12) == 0;
	t->dst.none = !t->src.none && below(12) == 0;
	if (t->src.none || t->dst.none) {
		struct job *j = t->src.none ? &t->src : &t->dst;

		j->ranks = j->stages = 1;
	}
	for (int p = 0; p < t->n_params; p++)
		for (int d = 0; d < t->w[p].n_dims; d++) {
			int64_t a = t->src.none ? 1 :
					    parts(&t->src.layout[p], d);
			int64_t b = t->dst.none ? 1 :
					    parts(&t->dst.layout[p], d);

			t->w[p].dims[d] = lcm(a, b) * (1 + below(2));
		}
}

/* The same slices on the same ranks, in another form of file and with another
 * axis of size 1. */
static void draw_again(struct layout *l)
{
	const int at = (int)below((uint32_t)l->n_mesh + 1);
	bool many = false;

	for (int d = 0; d < l->n_dims; d++)
		many |= l->n_axes[d] > 1;
	l->nested = many || below(3) == 0;
	l->expanded = l->nested && l->opt == 1 && below(2);
	if (l->n_mesh == MAX_MESH || below(2))
		return;
	memmove(&l->mesh[at + 1], &l->mesh[at],
		(size_t)(l->n_mesh++ - at) * sizeof(int));
	l->mesh[at] = 1;
	for (int d = 0; d < l->n_dims; d++)
		for (int i = 0; i < l->n_axes[d]; i++)
			l->axes[d][i] += l->axes[d][i] >= at;
}

static void draw_alike(struct test_case *t)
{
	if (t->src.none || t->dst.none) {
		t->src.none = t->dst.none = true;
		t->src.ranks = t->src.stages = 1;
	}
	t->dst = t->src;
	for (int p = 0; p < t->n_params; p++)
		draw_again(&t->dst.layout[p]);
}

/* Keeps the arrays small: a case over the limit is drawn again. */
static bool fits(const struct test_case *t)
{
	int64_t total = 0;

	for (int p = 0; p < t->n_params; p++) {
		int64_t n = t->w[p].size;

		for (int d = 0; d < t->w[p].n_dims; d++)
			n *= t->w[p].dims[d];
		total += n;
	}
	return total < 16384;
}

static bool held(const struct test_case *t, int p, int file)
{
	return !t->lacks[file][p] &&
	       (t->src.none || t->w[p].unlisted ||
		t->src.in_stage[p][file / t->src.ranks]);
}

static void draw_lacking(struct test_case *t)
{
	const uint32_t odds = 2 + below(4);

	for (int g = 0; g < t->src.ranks * t->src.stages; g++)
		for (int p = 0; p < t->n_params; p++)
			t->lacks[g][p] = below(odds) == 0;
}

static void make_files(struct test_case *t)
{
	static uint8_t content[MAX_FILE];

	t->n_files = t->src.ranks * t->src.stages;
	for (int g = 0; g < t->n_files; g++) {
		struct image *m = &t->file[g];

		m->bytes = malloc(MAX_FILE);
		m->n = 0;
		for (int p = 0; p < t->n_params; p++) {
			int64_t dims[MAX_DIM];
			char name[16];
			size_t n;

			if (!held(t, p, g))
				continue;
			snprintf(name, sizeof(name), "p%d", p);
			n = cut(&t->w[p], p, t->src.none || t->w[p].unlisted ?
				NULL : &t->src.layout[p], t->src.ranks,
				g % t->src.ranks, dims, content);
			emit(m, name, &t->w[p], dims, content, n);
		}
		t->index[g] = m->n ? scan(m, t->names) : NULL;
	}
}

/* The last pieces of a range, and the rows that were foretold after them. */
struct foretold {
	struct rsh_piece pieces[MAX_FORETOLD];
	size_t n;       /* pieces given so far */
	struct rsh_rows rows;
	size_t in_row;  /* pieces of the row */
	uint64_t left;  /* pieces still to come as foretold */
};

static uint64_t n_foretold; /* rows */

static void foretell(struct foretold *f, const struct rsh_piece_iter *it)
{
	uint64_t bytes = 0;

	if (f->left || !rsh_piece_iter_rows(it, &f->rows))
		return;
	for (f->in_row = 0; bytes < f->rows.bytes; f->in_row++)
		bytes += f->pieces[f->n - 1 - f->in_row].length;
	assert_int_equal(bytes, f->rows.bytes);
	f->left = f->rows.n * f->in_row;
	n_foretold += f->rows.n;
}

/* What was foretold comes piece by piece, if it is not skipped. */
static void remember(struct foretold *f, const struct rsh_piece *p)
{
	assert_true(f->n < MAX_FORETOLD);
	f->pieces[f->n++] = *p;
	if (f->left) {
		const struct rsh_piece *q =
			&f->pieces[f->n - 1 - f->in_row];

		assert_false(p->is_header);
		assert_int_equal(p->codec, RSH_CODEC_NONE);
		assert_int_equal(p->length, q->length);
		assert_int_equal(p->src_rank, q->src_rank);
		assert_int_equal(p->src_offset,
				 q->src_offset + f->rows.src_stride);
		assert_int_equal(p->file_offset,
				 q->file_offset + f->rows.bytes);
		f->left--;
	}
}

/* The rows that are skipped, from the pieces of the one before. */
static void copy_rows(const struct test_case *t, const struct rsh_rows *rows,
		      const struct foretold *f, struct image *out)
{
	const struct rsh_piece *p = &f->pieces[f->n];
	uint64_t bytes = 0;

	while (bytes < rows->bytes) {
		bytes += (--p)->length;
		for (uint64_t i = 1; i <= rows->n; i++)
			memcpy(out->bytes + p->file_offset + i * rows->bytes,
			       t->file[p->src_rank].bytes + p->src_offset +
				       i * rows->src_stride, p->length);
	}
}

/* Reads what an iterator gives from `at` on, and checks that the pieces follow
 * each other, and that rows which are said to be alike are.  Returns where they
 * end. */
static uint64_t read_pieces(const struct test_case *t,
			    struct rsh_piece_iter *it, uint64_t at,
			    struct image *out)
{
	const bool skip = below(2);
	struct rsh_rows rows;
	struct rsh_piece pc;
	struct foretold f;

	assert_non_null(it);
	f.n = 0;
	f.left = 0;
	while (rsh_piece_iter_next(it, &pc)) {
		remember(&f, &pc);
		assert_int_equal(pc.file_offset, at);
		assert_true(pc.length > 0);
		if (pc.is_header) {
			memcpy(out->bytes + at, pc.header, pc.length);
		} else {
			assert_true(pc.src_rank < (uint32_t)t->n_files);
			assert_int_equal(pc.src_length, pc.length);
			assert_true(pc.src_offset + pc.src_length <=
				    t->file[pc.src_rank].n);
			memcpy(out->bytes + at, t->file[pc.src_rank].bytes +
						pc.src_offset, pc.length);
		}
		at += pc.length;
		if (!skip) {
			foretell(&f, it);
		} else if (rsh_piece_iter_rows(it, &rows)) {
			copy_rows(t, &rows, &f, out);
			at += rows.n * rows.bytes;
			rsh_piece_iter_skip(it, &rows);
		}
	}
	rsh_piece_iter_free(it);
	assert_int_equal(f.left, 0);
	return at;
}

/* Reads a whole virtual file in random steps, which give exactly what was asked
 * for. */
static void read_virtual(const struct test_case *t,
			 const struct rsh_plan *c, uint32_t rank,
			 struct image *out)
{
	uint64_t size = rsh_plan_size(c, rank), pos = 0;

	assert_true(size < MAX_FILE);
	out->n = size;
	while (pos < size) {
		uint64_t len = 1 + below(MAX_RANGE);
		uint64_t end = read_pieces(t, rsh_piece_iter_new(
			c, rank, pos, len, NULL), pos, out);

		pos = pos + len < size ? pos + len : size;
		assert_int_equal(end, pos);
	}
}

/* The contents of records are in the file what they are by themselves. */
static void check_contents(const struct test_case *t, const struct rsh_plan *c,
			   uint32_t rank, const struct image *file,
			   const struct rsh_ckpt_index *ix)
{
	struct image m = { malloc(MAX_FILE), 0 };

	for (uint32_t i = 0; i < rsh_plan_n_records(c, rank); i++) {
		struct rsh_virtual_record v;
		const struct rsh_record *r;
		uint64_t pos = 0;

		rsh_plan_record(c, rank, i, &v);
		r = rsh_ckpt_find(ix, v.name);
		assert_int_equal(r->content_bytes, v.shape.content_bytes);
		while (pos < r->content_bytes)
			pos = read_pieces(t, rsh_piece_iter_content(
				c, rank, i, pos, 1 + below(MAX_RANGE), NULL),
				pos, &m);
		assert_int_equal(pos, r->content_bytes);
		assert_memory_equal(m.bytes, file->bytes +
				    ix->extents[r->first_extent].offset, pos);
	}
	free(m.bytes);
}

static void check_file(struct test_case *t, const struct rsh_plan *c,
		       uint32_t rank)
{
	static uint8_t want[MAX_FILE];
	struct image m = { malloc(MAX_FILE), 0 };
	struct rsh_ckpt_index *ix;
	int stage = (int)rank / t->dst.ranks, expected = 0;

	read_virtual(t, c, rank, &m);
	ix = scan(&m, t->names);
	for (int p = 0; p < t->n_params; p++) {
		const struct rsh_record *r;
		int64_t dims[MAX_DIM];
		char name[16];
		size_t n;

		snprintf(name, sizeof(name), "p%d", p);
		r = rsh_ckpt_find(ix, rsh_names_find(t->names, name,
						     strlen(name)));
		if (!t->dst.none && !t->w[p].unlisted &&
		    !t->dst.in_stage[p][stage]) {
			assert_null(r);
			continue;
		}
		expected++;
		assert_non_null(r);
		n = cut(&t->w[p], p, t->dst.none || t->w[p].unlisted ? NULL :
			&t->dst.layout[p], t->dst.ranks,
			(int)rank % t->dst.ranks, dims, want);
		assert_int_equal(r->content_bytes, n);
		assert_int_equal(r->n_dims, t->w[p].n_dims);
		assert_memory_equal(rsh_record_dims(ix, r), dims,
				    r->n_dims * sizeof(*dims));
		assert_memory_equal(m.bytes + ix->extents[r->first_extent].offset,
				    want, n);
	}
	assert_int_equal(ix->n_records, expected);
	check_contents(t, c, rank, &m, ix);
	rsh_ckpt_index_free(ix);
	free(m.bytes);
}

/* Expanded maps whose slices have dimensions of 1 may be folded in more than
 * one way; then there is an error and never a guess. */
static unsigned ambiguous;

static struct test_case *make_case(uint64_t seed, bool alike,
				   bool reduced)
{
	struct test_case *t = calloc(1, sizeof(*t));

	numbers_begin(seed);
	do {
		memset(t, 0, sizeof(*t));
		random_case(t);
		t->alike = alike;
		if (alike)
			draw_alike(t);
	} while (!fits(t));
	if (reduced)
		draw_lacking(t);
	t->names = rsh_names_new();
	if (!t->src.none)
		t->from = make_strategy(&t->src, t->w, t->n_params, "from.json",
					t->names);
	if (!t->dst.none)
		t->to = make_strategy(&t->dst, t->w, t->n_params, "to.json",
				      t->names);
	make_files(t);
	return t;
}

static void free_case(struct test_case *t)
{
	for (int g = 0; g < t->n_files; g++) {
		rsh_ckpt_index_free((struct rsh_ckpt_index *)(uintptr_t)
					    t->index[g]);
		free(t->file[g].bytes);
	}
	rsh_strategy_free(t->from);
	rsh_strategy_free(t->to);
	rsh_names_free(t->names);
	free(t);
}

/* What the reader of rank files offers is planned by the general writer. */
static int plan_offers(const struct test_case *t,
		       const struct rsh_source_view *view,
		       const struct rsh_plan_options *opts,
		       struct rsh_plan **c, struct rsh_error *err)
{
	const struct rsh_ranks_options o = {
		.rule = RSH_GRID_RUNTIME, .replicas = opts->replicas,
		.allow_missing = opts->allow_missing,
	};
	struct rsh_arena arena = { NULL, 0 };
	struct rsh_offers offers;
	int rc = rsh_ranks_read(view, t->from, &o, &arena, &offers, err);

	if (rc == 0)
		rc = rsh_write_plan(&offers, t->to, opts, c, err);
	rsh_arena_clear(&arena);
	return rc;
}

typedef int plan_fn(const struct test_case *t,
		    const struct rsh_source_view *view,
		    const struct rsh_plan_options *opts,
		    struct rsh_plan **c, struct rsh_error *err);

static int plan_converted(const struct test_case *t,
			  const struct rsh_source_view *view,
			  const struct rsh_plan_options *opts,
			  struct rsh_plan **c, struct rsh_error *err)
{
	return rsh_convert(t->from, t->to, view, opts, c, err);
}

static void run_case(uint64_t seed, plan_fn *plan)
{
	struct test_case *t = make_case(seed, false, false);
	const struct rsh_plan_options opts = {
		.framing = &rsh_ckpt_framing,
	};
	const struct rsh_source_view view = {
		.n_ranks = (uint32_t)t->n_files,
		.index = t->index,
		.names = t->names,
	};
	struct rsh_plan *c = NULL;
	struct rsh_error err = RSH_ERROR_INIT;

	if (plan(t, &view, &opts, &c, &err)) {
		if (!strstr(err.text, "can be folded in several ways"))
			fail_msg("seed %" PRIu64 ": %s", seed, err.text);
		ambiguous++;
	} else {
		assert_int_equal(rsh_plan_n_files(c),
				 t->dst.ranks * t->dst.stages);
		for (uint32_t r = 0; r < rsh_plan_n_files(c); r++)
			check_file(t, c, r);
	}
	rsh_plan_free(c);
	free_case(t);
}

/* ---- lost ranks ---- */

/* Where the slice that a rank holds begins and ends in the whole tensor.  It is computed once
 * for all elements, which took most of this program's time. */
struct slice {
	int64_t from[MAX_DIM], to[MAX_DIM];
};

static void slice_of(const struct whole *w, const struct layout *l, int ranks,
		     int r, struct slice *s)
{
	for (int d = 0; d < w->n_dims; d++) {
		int64_t len = l ? w->dims[d] / parts(l, d) : w->dims[d];

		s->from[d] = l ? len * part_of(l, ranks, r, d) : 0;
		s->to[d] = s->from[d] + len;
	}
}

static bool holds(const struct slice *s, int n_dims, const int64_t *place)
{
	for (int d = 0; d < n_dims; d++)
		if (place[d] < s->from[d] || place[d] >= s->to[d])
			return false;
	return true;
}

/* Has every element that destination rank `rank` needs of parameter p a healthy
 * source rank?  By looking at each of them. */
static bool can_be_had(const struct test_case *t, const bool *healthy, int p,
		       int rank)
{
	const struct whole *w = &t->w[p];
	const struct layout *from = t->src.none ? NULL : &t->src.layout[p];
	const struct layout *to = t->dst.none ? NULL : &t->dst.layout[p];
	struct slice wanted, there[MAX_RANKS * MAX_STAGES];
	int64_t n = 1;
	int n_there = 0;

	slice_of(w, to, t->dst.ranks, rank % t->dst.ranks, &wanted);
	for (int g = 0; g < t->n_files; g++)
		if (healthy[g] && held(t, p, g))
			slice_of(w, from, t->src.ranks, g % t->src.ranks,
				 &there[n_there++]);
	for (int d = 0; d < w->n_dims; d++)
		n *= w->dims[d];
	for (int64_t e = 0; e < n; e++) {
		int64_t rest = e, place[MAX_DIM] = { 0 };
		bool found = false;

		for (int d = w->n_dims; d-- > 0; rest /= w->dims[d])
			place[d] = rest % w->dims[d];
		if (!holds(&wanted, w->n_dims, place))
			continue;
		for (int g = 0; g < n_there && !found; g++)
			found = holds(&there[g], w->n_dims, place);
		if (!found)
			return false;
	}
	return true;
}

struct losses {
	bool expected[MAX_PARAMS];
	bool told[MAX_PARAMS];
	bool file[MAX_RANKS * MAX_STAGES]; /* destination files that need one */
	bool any;
};

static void hear(void *ctx, const char *sentence)
{
	struct losses *l = ctx;
	int p;

	assert_int_equal(sscanf(sentence, "lost: parameter p%d,", &p), 1);
	assert_in_range(p, 0, MAX_PARAMS - 1);
	l->told[p] = true;
}

static void expect_losses(const struct test_case *t, const bool *healthy,
			  struct losses *l)
{
	for (int r = 0; r < t->dst.ranks * t->dst.stages; r++)
		for (int p = 0; p < t->n_params; p++) {
			if (t->w[p].unlisted ||
			    (!t->dst.none &&
			     !t->dst.in_stage[p][r / t->dst.ranks]) ||
			    can_be_had(t, healthy, p, r))
				continue;
			l->expected[p] = l->file[r] = l->any = true;
		}
}

/* Is there a parameter of which no healthy file has anything? */
static bool any_gone(const struct test_case *t, const bool *healthy)
{
	for (int p = 0; p < t->n_params; p++) {
		bool found = false;

		for (int g = 0; g < t->n_files; g++)
			found |= healthy[g] && held(t, p, g);
		if (!found)
			return true;
	}
	return false;
}

/* Takes random files away.  Either everything can be had and is right, or
 * exactly the parameters that no healthy file holds are refused; with
 * allow_missing exactly the files that need them are lost and the others are
 * right. */
static void lose_some(uint64_t seed, plan_fn *plan, bool reduced,
		      unsigned counts[3])
{
	struct test_case *t = make_case(seed, false, reduced);
	bool healthy[MAX_RANKS * MAX_STAGES], left = false;
	const struct rsh_ckpt_index *index[MAX_RANKS * MAX_STAGES];
	struct losses l = { 0 };
	struct rsh_plan_options opts = {
		.framing = &rsh_ckpt_framing,
		.replicas = true, .report_lost = hear, .ctx = &l,
	};
	const struct rsh_source_view view = {
		.n_ranks = (uint32_t)t->n_files, .index = index,
		.names = t->names,
	};
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_plan *c = NULL;
	uint32_t odds = 2 + below(8);
	int rc;

	for (int g = 0; g < t->n_files; g++) {
		healthy[g] = below(odds) > 0;
		index[g] = healthy[g] ? t->index[g] : NULL;
		left |= healthy[g];
	}
	/* What no file holds was not saved. */
	if (!left || (reduced && any_gone(t, healthy))) {
		free_case(t);
		return;
	}
	expect_losses(t, healthy, &l);
	rc = plan(t, &view, &opts, &c, &err);
	if (rc && strstr(err.text, "can be folded in several ways")) {
		free_case(t);
		return;
	}
	if (l.any ? rc != -ENOENT : rc != 0)
		fail_msg("seed %" PRIu64 ": %d %s", seed, rc, err.text);
	if (plan == plan_offers && any_gone(t, healthy)) {
		/* Nobody knows its shape, so there is nothing to be lost. */
		free_case(t);
		return;
	}
	assert_memory_equal(l.told, l.expected, sizeof(l.told));
	if (rc) {
		opts.allow_missing = true;
		rc = plan(t, &view, &opts, &c, &err);
		if (rc)
			fail_msg("seed %" PRIu64 ": %s", seed, err.text);
	}
	for (uint32_t r = 0; r < rsh_plan_n_files(c); r++) {
		if (rsh_plan_is_lost(c, r) != l.file[r])
			fail_msg("seed %" PRIu64 ": rank %u", seed, r);
		counts[l.file[r] ? 2 : l.any]++;
		if (!l.file[r])
			check_file(t, c, r);
	}
	rsh_plan_free(c);
	free_case(t);
}

/* ---- both sides cut alike ---- */

static bool same_slices(const struct test_case *t, int a, int b)
{
	const int n = t->src.ranks;

	if (t->src.none || a == b)
		return true;
	if (a / n != b / n)
		return false;
	for (int p = 0; p < t->n_params; p++) {
		const struct layout *l = &t->src.layout[p];

		if (t->w[p].unlisted || !t->src.in_stage[p][a / n])
			continue;
		for (int d = 0; d < t->w[p].n_dims; d++)
			if (part_of(l, n, a % n, d) != part_of(l, n, b % n, d))
				return false;
	}
	return true;
}

/* Is there a healthy file of a rank that holds the same of everything? */
static bool has_twin(const struct test_case *t, const bool *healthy, int rank)
{
	for (int g = 0; g < t->n_files; g++)
		if (healthy[g] && same_slices(t, rank, g))
			return true;
	return false;
}

static bool all_can_be_had(const struct test_case *t, const bool *healthy,
			   int rank)
{
	for (int p = 0; p < t->n_params; p++)
		if (!t->w[p].unlisted &&
		    held(t, p, rank) &&
		    !can_be_had(t, healthy, p, rank))
			return false;
	return true;
}

/* The file, or as much of it as comes; nothing may be wrong. */
static uint64_t read_avoiding(const struct test_case *t,
			      const struct rsh_plan *c, uint32_t rank,
			      const atomic_bool *avoid)
{
	struct rsh_piece_iter *it =
		rsh_piece_iter_new(c, rank, 0, UINT64_MAX, avoid);
	const struct image *want = &t->file[rank];
	struct rsh_piece p;
	uint64_t at = 0;

	assert_non_null(it);
	while (rsh_piece_iter_next(it, &p)) {
		assert_int_equal(p.file_offset, at);
		assert_true(at + p.length <= want->n);
		assert_true(p.is_header || !avoid[p.src_rank]);
		assert_memory_equal(p.is_header ? p.header :
				    t->file[p.src_rank].bytes + p.src_offset,
				    want->bytes + at, p.length);
		at += p.length;
	}
	assert_int_equal(rsh_piece_iter_status(it), at < want->n ? -EIO : 0);
	rsh_piece_iter_free(it);
	return at;
}

/* Files are themselves; of lost ranks those that hold the same, and of ranks
 * that fail later what others hold. */
static void check_itself(struct test_case *t, const struct rsh_plan *c,
			 int rank, const bool *there)
{
	static uint8_t bytes[MAX_FILE];
	struct image m = { bytes, 0 };
	atomic_bool avoid[MAX_RANKS * MAX_STAGES];
	bool left[MAX_RANKS * MAX_STAGES];

	if (!has_twin(t, there, rank)) {
		if (!rsh_plan_is_lost(c, (uint32_t)rank))
			check_file(t, c, (uint32_t)rank);
		return;
	}
	assert_int_equal(rsh_plan_size(c, (uint32_t)rank),
			 t->file[rank].n);
	read_virtual(t, c, (uint32_t)rank, &m);
	assert_memory_equal(bytes, t->file[rank].bytes, m.n);
	for (int g = 0; g < t->n_files; g++) {
		avoid[g] = below(3) == 0;
		left[g] = there[g] && !avoid[g];
	}
	if (has_twin(t, left, rank) || all_can_be_had(t, left, rank))
		assert_int_equal(read_avoiding(t, c, (uint32_t)rank, avoid),
				 m.n);
	else
		assert_true(read_avoiding(t, c, (uint32_t)rank, avoid) < m.n);
}

static void run_alike(uint64_t seed)
{
	struct test_case *t = make_case(seed, true, false);
	bool there[MAX_RANKS * MAX_STAGES];
	const struct rsh_ckpt_index *index[MAX_RANKS * MAX_STAGES];
	const struct rsh_plan_options opts = {
		.framing = &rsh_ckpt_framing,
		.replicas = true, .allow_missing = true,
	};
	const struct rsh_source_view view = {
		.n_ranks = (uint32_t)t->n_files, .index = index,
		.names = t->names,
	};
	struct rsh_plan *c = NULL;
	struct rsh_error err = RSH_ERROR_INIT;
	const uint32_t odds = below(2) ? 1000 : 4;

	for (int g = 0; g < t->n_files; g++) {
		there[g] = g == 0 || below(odds) > 0;
		index[g] = there[g] ? t->index[g] : NULL;
	}
	if (rsh_convert(t->from, t->to, &view, &opts, &c, &err)) {
		if (!strstr(err.text, "can be folded in several ways"))
			fail_msg("seed %" PRIu64 ": %s", seed, err.text);
		ambiguous++;
	}
	for (int r = 0; c && r < t->n_files; r++)
		check_itself(t, c, r, there);
	rsh_plan_free(c);
	free_case(t);
}

static int tell_seed(void **state)
{
	const char *s = getenv("RSH_PROPERTY_CURRENT");

	(void)state;
	printf("# last case: RSH_PROPERTY_SEED=%s RSH_PROPERTY_CASES=1\n",
	       s ? s : "none");
	return 0;
}

/* The seeds of a test: the first one is returned. */
static uint64_t seeds_of(const char *what, uint64_t *cases)
{
	const char *s = getenv("RSH_PROPERTY_SEED");
	const char *n = getenv("RSH_PROPERTY_CASES");
	uint64_t seed = s ? strtoull(s, NULL, 0) : 1;

	*cases = n ? strtoull(n, NULL, 0) : *cases;
	printf("# %s of seeds %" PRIu64 " to %" PRIu64 "\n", what, seed,
	       seed + *cases - 1);
	return seed;
}

/* cmocka does not say which case failed: keep it at hand. */
static uint64_t begin(uint64_t seed)
{
	char line[64];

	snprintf(line, sizeof(line), "%" PRIu64, seed);
	setenv("RSH_PROPERTY_CURRENT", line, 1);
	return seed;
}

TEST_WITH(random_alike, NULL, tell_seed)
{
	uint64_t cases = DEFAULT_ALIKE, seed = seeds_of("cut alike,", &cases);

	for (uint64_t i = 0; i < cases; i++)
		run_alike(begin(seed + i));
}

static void try_layouts(plan_fn *plan, uint64_t cases)
{
	const uint64_t seed = seeds_of("layouts", &cases);

	ambiguous = 0;
	n_foretold = 0;
	for (uint64_t i = 0; i < cases; i++)
		run_case(begin(seed + i), plan);
	printf("# ambiguous expanded maps, refused: %u\n", ambiguous);
	printf("# rows foretold: %" PRIu64 "\n", n_foretold);
	assert_true(n_foretold > cases || getenv("RSH_PROPERTY_CASES"));
	assert_true(ambiguous <= cases / 50);
}

TEST_WITH(random_layouts, NULL, tell_seed)
{
	try_layouts(plan_converted, DEFAULT_CASES);
}

TEST_WITH(random_layouts_offered, NULL, tell_seed)
{
	try_layouts(plan_offers, DEFAULT_OFFERED);
}

static void try_losses(plan_fn *plan, bool reduced, uint64_t cases)
{
	const uint64_t seed = seeds_of("losses", &cases);
	unsigned counts[3] = { 0 };

	for (uint64_t i = 0; i < cases; i++)
		lose_some(begin(seed + i), plan, reduced, counts);
	printf("# files: %u of trees that can be had whole, %u whole beside lost "
	       "ones, %u lost\n", counts[0], counts[1], counts[2]);
}

TEST_WITH(random_losses, NULL, tell_seed)
{
	try_losses(plan_converted, false, DEFAULT_LOSSES);
}

TEST_WITH(random_losses_offered, NULL, tell_seed)
{
	try_losses(plan_offers, false, DEFAULT_OFFERED);
}

TEST_WITH(random_lacking_offered, NULL, tell_seed)
{
	try_losses(plan_offers, true, DEFAULT_OFFERED);
}

