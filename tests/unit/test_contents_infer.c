/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_contents_infer.c - which ranks hold the same, by contents alone. */
#include "config.h"

#include "rsh/strategy/partition.h"
#include "rsh/contents/infer.h"
#include "rsh/source/source.h"
#include "rsh/util/log.h"
#include "rsh/wire/ckpt.h"
#include "source_support.h"

#define MAX_RANKS 160
#define MAX_TENSORS 24
#define MAX_BYTES (64u << 10)

/* A tensor of a test's tree: which slice each rank holds, and of how many bytes
 * at the beginning it has but one value. */
struct tensor {
	char name[32];
	uint32_t bytes, simple;
	uint32_t slice[MAX_RANKS]; /* UINT32_MAX: it does not hold the tensor */
};

struct tree {
	char *path;
	struct tensor tensors[MAX_TENSORS];
	unsigned n_tensors, n_ranks;
	struct rsh_names *names;
	struct rsh_source *source;
	/* What was told. */
	unsigned n_told;
	bool asked[MAX_TENSORS], simple[MAX_TENSORS];
	unsigned stop_at; /* fn fails at that tensor; 0: never */
};

/* ---- making one ---- */

static size_t put_tensor(const struct tensor *t, uint32_t slice, uint8_t *to)
{
	const int64_t dims[] = { t->bytes };
	const struct rsh_record_shape shape = {
		.name = t->name, .name_len = strlen(t->name),
		.dtype = RSH_DTYPE_UINT8, .n_dims = 1, .dims = dims,
		.content_bytes = t->bytes,
	};
	struct numbers x = { slice * 1000003u + 7 };
	size_t at = rsh_ckpt_header_write(&shape, t->bytes, to);

	for (uint32_t i = 0; i < t->bytes; i++)
		to[at + i] = i < t->simple ? 9 : (uint8_t)numbers_next(&x);
	return at + t->bytes;
}

static void tree_save(struct tree *t)
{
	uint8_t *file = malloc(MAX_TENSORS * (MAX_BYTES + 128u));
	struct rsh_source_options opts = { .check = RSH_CHECK_SAMPLE };
	struct rsh_error err = RSH_ERROR_INIT;

	assert_non_null(file);
	t->path = tree_make();
	for (unsigned r = 0; r < t->n_ranks; r++) {
		char name[64];
		size_t n = 0;

		for (unsigned i = 0; i < t->n_tensors; i++)
			if (t->tensors[i].slice[r] != UINT32_MAX)
				n += put_tensor(&t->tensors[i],
						t->tensors[i].slice[r],
						file + n);
		snprintf(name, sizeof(name), "rank_%u/x.ckpt", r);
		tree_write(t->path, name, file, n);
	}
	free(file);
	t->names = rsh_names_new();
	if (rsh_source_open(t->path, 0, UINT32_MAX, &opts, &t->source, &err) ||
	    rsh_source_choose(t->source, 0, &err) ||
	    rsh_source_index(t->source, t->names, &err))
		fail_msg("%s", err.text);
}

static void tree_clear(struct tree *t)
{
	rsh_source_free(t->source);
	rsh_names_free(t->names);
	tree_remove(t->path);
	free(t);
}

/* ---- what is told ---- */

static bool is_asked(void *ctx, const char *name)
{
	(void)ctx;
	return strcmp(name, "unwanted") != 0;
}

static unsigned tensor_of(const struct tree *t, const char *name)
{
	unsigned i = 0;

	while (strcmp(t->tensors[i].name, name) != 0)
		assert_true(++i < t->n_tensors);
	return i;
}

static void assert_holders(const struct tree *t, const struct tensor *want,
			   const struct rsh_inferred *got)
{
	uint32_t k = 0;

	for (unsigned r = 0; r < t->n_ranks; r++) {
		if (want->slice[r] == UINT32_MAX)
			continue;
		assert_true(k < got->n_holders);
		assert_int_equal(got->holders[k++], r);
	}
	assert_int_equal(k, got->n_holders);
	assert_int_equal(got->odd_rank, UINT32_MAX);
	if (k > 1)
		assert_in_range(got->n, k <= 64 ? k : 2, 64);
}

static int compare(void *ctx, const struct rsh_inferred *got)
{
	struct tree *t = ctx;
	unsigned at = tensor_of(t, rsh_names_text(t->names, got->name));
	const struct tensor *want = &t->tensors[at];

	assert_false(t->asked[at]);
	t->asked[at] = true;
	t->simple[at] = got->simple;
	assert_holders(t, want, got);
	assert_int_equal(got->n_failed, 0);
	for (uint32_t i = 0; i < got->n && !got->simple; i++)
		for (uint32_t k = 0; k < i; k++) {
			assert_true(got->ranks[k] < got->ranks[i]);
			assert_int_equal(got->group[k] == got->group[i],
					 want->slice[got->ranks[k]] ==
					 want->slice[got->ranks[i]]);
		}
	return ++t->n_told == t->stop_at ? -ECANCELED : 0;
}

static struct tensor *add_tensor(struct tree *t, const char *name,
				 uint32_t bytes)
{
	struct tensor *one = &t->tensors[t->n_tensors++];

	snprintf(one->name, sizeof(one->name), "%s", name);
	one->bytes = bytes;
	return one;
}

/* ---- tests ---- */

/* Random meshes and cuts, of which 64 ranks or a part are compared. */
TEST(test_random_trees)
{
	static const unsigned sizes[] = { 1, 2, 6, 8, 8, 12, 16, 64, 96, 128 };
	struct numbers x = { numbers_seed() };

	for (unsigned i = 0; i < (unsigned)rounds(30); i++) {
		struct tree *t = calloc(1, sizeof(*t));
		unsigned n_asked = 0;

		t->n_ranks = sizes[numbers_below(&x, 10)];
		for (unsigned k = 0; k < 12; k++) {
			unsigned stride = 1 + (unsigned)numbers_below(&x, 8);
			unsigned size = 1 + (unsigned)numbers_below(&x, 8);
			struct tensor *one;
			char name[16];

			snprintf(name, sizeof(name), "w%u.weight", k);
			one = add_tensor(t, name,
					 8 + (uint32_t)numbers_below(&x, 9000));
			for (unsigned r = 0; r < t->n_ranks; r++)
				one->slice[r] = k * 1000 + r / stride % size;
			/* Some are those of a later stage. */
			for (unsigned r = 0; k % 4 == 3 && r < t->n_ranks / 2;
			     r++)
				one->slice[r] = UINT32_MAX;
		}
		tree_save(t);
		assert_int_equal(rsh_contents_infer(t->source, t->names, NULL,
						    compare, t), 0);
		for (unsigned k = 0; k < t->n_tensors; k++)
			n_asked += t->asked[k] && !t->simple[k];
		assert_int_equal(n_asked, t->n_tensors);
		tree_clear(t);
	}
}

/* The order is that of the lowest rank that has a tensor, in its file, also if
 * names were seen in another one. */
static int remember(void *ctx, const struct rsh_inferred *got)
{
	struct tree *t = ctx;

	strcat(t->path, rsh_names_text(t->names, got->name));
	return 0;
}

TEST(test_order)
{
	for (unsigned i = 0; i < (unsigned)rounds(20); i++) {
		struct tree *t = calloc(1, sizeof(*t));
		char *path, said[64] = "";

		t->n_ranks = 24;
		for (unsigned k = 0; k < 6; k++) {
			char name[2] = { (char)('f' - k), '\0' };
			struct tensor *one = add_tensor(t, name, 16);

			for (unsigned r = 0; r < t->n_ranks; r++)
				one->slice[r] = (k + r) % 3 ? k : UINT32_MAX;
		}
		tree_save(t);
		path = t->path;
		t->path = said;
		assert_int_equal(rsh_contents_infer(t->source, t->names, NULL,
						    remember, t), 0);
		assert_string_equal(said, "edbafc");
		t->path = path;
		tree_clear(t);
	}
}

/* Where the first block is constant others are read, but not for ever. */
TEST(test_simple_contents)
{
	struct tree *t = calloc(1, sizeof(*t));
	unsigned n_simple = 0;

	t->n_ranks = 4;
	for (unsigned k = 0; k < 16; k++) {
		char name[16];
		struct tensor *one;

		snprintf(name, sizeof(name), "half%c", 'a' + k);
		one = add_tensor(t, name, MAX_BYTES);
		one->simple = MAX_BYTES / 2;
		for (unsigned r = 0; r < 4; r++)
			one->slice[r] = r % 2;
	}
	add_tensor(t, "zero", MAX_BYTES)->simple = MAX_BYTES;
	add_tensor(t, "short", 3)->simple = 3;
	add_tensor(t, "lone", 1);
	add_tensor(t, "unwanted", 8);
	tree_save(t);
	assert_int_equal(
		rsh_contents_infer(t->source, t->names, is_asked, compare, t),
		0);
	for (unsigned k = 0; k < 16; k++)
		n_simple += t->simple[k];
	/* One block would find half of them so, four find one in sixteen. */
	assert_in_range(n_simple, 0, 5);
	assert_true(t->simple[16] && t->simple[17] && t->simple[18]);
	assert_false(t->asked[19]);
	tree_clear(t);
}

TEST(test_callback_stops_it)
{
	struct tree *t = calloc(1, sizeof(*t));

	t->n_ranks = 2;
	for (unsigned k = 0; k < 8; k++) {
		char name[2] = { (char)('a' + k), '\0' };

		add_tensor(t, name, 64);
	}
	tree_save(t);
	t->stop_at = 3;
	assert_int_equal(
		rsh_contents_infer(t->source, t->names, NULL, compare, t),
		-ECANCELED);
	assert_int_equal(t->n_told, 3);
	tree_clear(t);
}

/* A file that changed since it was indexed is not read. */
static int count_failed(void *ctx, const struct rsh_inferred *got)
{
	unsigned *n = ctx;

	assert_int_equal(got->n + got->n_failed, got->n_holders);
	*n += got->n_failed;
	return 0;
}

TEST(test_unreadable)
{
	struct tree *t = calloc(1, sizeof(*t));
	unsigned n = 0;

	t->n_ranks = 4;
	add_tensor(t, "a", 64);
	tree_save(t);
	tree_write(t->path, "rank_2/x.ckpt", "\x0a", 1);
	assert_int_equal(
		rsh_contents_infer(t->source, t->names, NULL, count_failed, &n),
		0);
	assert_int_equal(n, 1);
	tree_clear(t);
}

int main(void)
{
	rsh_log_set_level(RSH_LOG_ERROR);
	return unit_run(NULL, NULL);
}
