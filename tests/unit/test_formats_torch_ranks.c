/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_formats_torch_ranks.c - which elements of an axis a rank has, and
 * what names of files say. */
#include "config.h"

#include "formats/torch_ranks/torch_ranks_i.h"
#include "support.h"

/* ---- cuts ---- */

#define SIZE_MAX_TESTED 40

/* The indexes that a rank has, one by one. */
struct plain_list {
	uint64_t v[SIZE_MAX_TESTED];
	uint64_t n;
};

/* Does what torch.chunk() does: the pieces are as long as the first one. */
static void plain_chunk(struct plain_list *l, uint64_t n_pieces, uint64_t i)
{
	const uint64_t piece = (l->n + n_pieces - 1) / n_pieces;
	struct plain_list out = { .n = 0 };

	for (uint64_t k = 0; k < l->n; k++)
		if (k >= i * piece && k < (i + 1) * piece)
			out.v[out.n++] = l->v[k];
	*l = out;
}

/* Cuts `size` elements by all dimensions in `order`, as the rank at these
 * coordinates does. */
static void plain_cut(const struct rsh_ranks_how *h, const uint8_t *order,
		      uint64_t size, uint32_t place, struct plain_list *out)
{
	uint32_t coordinate[RSH_MESH_DIMS_MAX];

	*out = (struct plain_list){ .n = size };
	for (uint64_t i = 0; i < size; i++)
		out->v[i] = i;
	for (uint32_t d = h->mesh->n_dims; d-- > 0; place /= h->mesh->dims[d])
		coordinate[d] = place % h->mesh->dims[d];
	for (uint32_t i = 0; i < h->mesh->n_dims; i++) {
		const uint8_t d = order[i];

		if (h->placements[d].kind != RSH_RANKS_REPLICATED &&
		    h->placements[d].axis == 0)
			plain_chunk(out, h->mesh->dims[d], coordinate[d]);
	}
}

static void check_cut(const struct rsh_ranks_how *h, const uint8_t *order,
		      uint64_t size)
{
	uint64_t budget = 100000;
	FREED_BY(rsh_ranks_cut_clear) struct rsh_ranks_cut cut;

	assert_int_equal(rsh_ranks_cut_axis(h, 0, size, &budget, &cut), 0);
	for (uint32_t place = 0; place < h->mesh->n; place++) {
		struct plain_list wanted;
		uint64_t n = 0, from, length;
		uint32_t piece;

		rsh_ranks_cut_range(h, 0, size, place, &piece, &from, &length);
		plain_cut(h, order, size, place, &wanted);
		assert_true(piece < cut.n);
		assert_int_equal(cut.length[piece], wanted.n);
		for (uint32_t r = cut.first[piece]; r < cut.first[piece + 1];
		     r++)
			for (uint64_t k = 0; k < cut.runs[r].n; k++)
				assert_int_equal(cut.runs[r].from + k,
						 wanted.v[n++]);
		assert_int_equal(n, wanted.n);
	}
}

/* A mesh of random dimensions; each one cuts axis 0 or does nothing. */
static void random_how(struct rsh_ranks_mesh *m, struct rsh_ranks_how *h)
{
	*m = (struct rsh_ranks_mesh){ .n_dims = 1 + below(3),
				      .n = 1 };
	*h = (struct rsh_ranks_how){ .mesh = m };
	for (uint32_t d = 0; d < m->n_dims; d++) {
		m->dims[d] = 1 + below(4);
		m->n *= m->dims[d];
		h->order[d] = (uint8_t)d;
		h->placements[d].kind = below(4) ? RSH_RANKS_SHARDED :
						     RSH_RANKS_REPLICATED;
	}
}

TEST(test_cut_in_any_order)
{
	struct rsh_ranks_mesh m;
	struct rsh_ranks_how h;

	for (unsigned i = 0; i < (unsigned)rounds(2000); i++) {
		random_how(&m, &h);
		/* The order may be another one than that of the mesh. */
		for (uint32_t d = m.n_dims; d-- > 1;) {
			const uint32_t k = below(d + 1);
			const uint8_t o = h.order[d];

			h.order[d] = h.order[k];
			h.order[k] = o;
		}
		check_cut(&h, h.order, below(SIZE_MAX_TESTED));
	}
}

/* fully_shard() over tensor parallel: the last dimension cuts first, and the
 * factor of each other one is the number of ranks of those that cut before. */
TEST(test_cut_strided)
{
	struct rsh_ranks_mesh m;
	struct rsh_ranks_how h;

	for (unsigned i = 0; i < (unsigned)rounds(2000); i++) {
		uint8_t order[RSH_MESH_DIMS_MAX];
		uint32_t factor = 1;

		random_how(&m, &h);
		for (uint32_t d = m.n_dims, k = 0; d-- > 0;) {
			order[k++] = (uint8_t)d;
			if (h.placements[d].kind == RSH_RANKS_REPLICATED)
				continue;
			if (factor > 1) {
				h.placements[d].kind = RSH_RANKS_STRIDED;
				h.placements[d].factor = factor;
			}
			factor *= m.dims[d];
		}
		check_cut(&h, order, below(SIZE_MAX_TESTED));
	}
}

/* A factor without other dimensions divides the axis itself. */
TEST(test_cut_by_factor)
{
	const struct rsh_ranks_mesh m = { .n_dims = 1, .dims = { 2 }, .n = 2 };
	const struct rsh_ranks_how h = {
		.mesh = &m,
		.placements = { { RSH_RANKS_STRIDED, 0, 3 } },
	};
	uint64_t budget = 100;
	FREED_BY(rsh_ranks_cut_clear) struct rsh_ranks_cut cut;

	/* 0 1 2 3 | 4 5 6 7 | 8 9: the first halves, and the second ones */
	assert_int_equal(rsh_ranks_cut_axis(&h, 0, 10, &budget, &cut), 0);
	assert_int_equal(cut.n, 2);
	assert_int_equal(cut.length[0], 5);
	assert_int_equal(cut.length[1], 5);
	assert_int_equal(cut.n_runs, 6);
	assert_int_equal(cut.runs[1].from, 4);
	assert_int_equal(cut.runs[1].n, 2);
	assert_int_equal(cut.runs[5].from, 9);
}

/* Hostile numbers cost no more than the budget. */
TEST(test_cut_has_a_budget)
{
	const struct rsh_ranks_mesh m = { .n_dims = 1, .dims = { 2 }, .n = 2 };
	struct rsh_ranks_how h = {
		.mesh = &m,
		.placements = { { RSH_RANKS_STRIDED, 0,
				  RSH_SPLIT_FACTOR_MAX } },
	};
	uint64_t budget = 1000;
	struct rsh_ranks_cut cut;

	assert_int_equal(rsh_ranks_cut_axis(&h, 0, UINT64_C(1) << 42, &budget,
					    &cut), -EFBIG);
	rsh_ranks_cut_clear(&cut);
	/* Without a factor the size does not matter. */
	h.placements[0].kind = RSH_RANKS_SHARDED;
	budget = 1000;
	assert_int_equal(rsh_ranks_cut_axis(&h, 0, INT64_MAX, &budget, &cut),
			 0);
	assert_int_equal(cut.length[0], UINT64_C(1) << 62);
	rsh_ranks_cut_clear(&cut);
}

/* ---- copies ---- */

static ssize_t read_nothing(void *ctx, void *buf, size_t len, uint64_t offset)
{
	(void)ctx, (void)buf, (void)len, (void)offset;
	return -EIO;
}

/* Two copies that cannot be compared are a problem of the tensor. */
TEST(test_copies_that_cannot_be_read)
{
	static const uint64_t dims[] = { 4 };
	static const struct rsh_byte_source src = {
		read_nothing, NULL, 64, "broken",
	};
	const struct rsh_byte_source *bytes[] = { &src, &src };
	struct rsh_source_ranks *st = rsh_joined_new(
		&rsh_ranks_files, sizeof(*st), NULL, 2);
	struct rsh_error err = RSH_ERROR_INIT;

	assert_int_equal(rsh_ranks_state_init(st, 2), 0);
	st->all.bytes = bytes;
	for (uint32_t i = 0; i < 2; i++) {
		struct rsh_ranks_file *f = calloc(1, sizeof(*f));

		assert_non_null(f);
		f->v = rsh_arena_array(&f->arena, struct rsh_ranks_entry, 1);
		f->n = 1;
		f->rank = UINT32_MAX;
		*f->v = (struct rsh_ranks_entry){
			.name = "w", .key = "w", .dtype = RSH_DTYPE_FLOAT32,
			.n_dims = 1, .dims = dims, .bytes = 16,
		};
		rsh_joined_add_file(&st->all, i ? "b" : "a");
		st->listed[i].rank = i;
		st->all.files[i] = f;
	}
	assert_int_equal(rsh_joined_describe(&st->all, &err), 0);
	assert_int_equal(st->all.n_problems, 1);
	assert_int_equal(st->all.problems[0].code, EIO);
	rsh_joined_free(st);
}

/* ---- names ---- */

TEST(test_names)
{
	static const struct {
		const char *name;
		enum rsh_ranks_role role;
		uint32_t world, rank; /* world is 0: it is not such a name */
	} names[] = {
		{ "model_world_size_8_rank_3.pt", RSH_RANKS_MODEL, 8, 3 },
		{ "optim_world_size_16_rank_15.pt", RSH_RANKS_OPTIMIZER, 16,
		  15 },
		{ "extra_state_world_size_2_rank_0.pt", RSH_RANKS_VALUES, 2,
		  0 },
		{ "model_world_size_8_rank_8.pt", 0, 0, 0 },
		{ "model_world_size_8_rank_3.pt.tmp", 0, 0, 0 },
		{ "model_world_size__rank_3.pt", 0, 0, 0 },
		{ "model_world_size_8_rank_.pt", 0, 0, 0 },
		{ "model_world_size_99999999999_rank_3.pt", 0, 0, 0 },
		{ "critic_world_size_8_rank_3.pt", 0, 0, 0 },
	};
	struct rsh_ranks_name parts;

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		const bool is = rsh_ranks_name_read(names[i].name, &parts);

		assert_int_equal(is, names[i].world > 0);
		if (!is)
			continue;
		assert_int_equal(parts.role, names[i].role);
		assert_int_equal(parts.world, names[i].world);
		assert_int_equal(parts.rank, names[i].rank);
		assert_int_equal(strtoul(names[i].name + parts.at, NULL, 10),
				 parts.rank);
	}
}

TEST(test_groups)
{
	static const char *const names[] = {
		"best.pt", "config.json", "model.pt", "model_0.pt", "model_1.pt", "model_10.pt",
		"optim_0.pt", "optim_1.pt", "pytorch_model-00001-of-00002.bin",
		"step5_rank0.pth", "step5_rank1.pth", "step6_rank0.pth",
		"with_a_number_that_is_no_rank_99999999999.pt", "x.pt",
	};
	static const struct {
		const char *stem;
		uint32_t n;
	} wanted[] = {
		{ "model", 3 }, { "optim", 2 }, { "step5_rank", 2 },
		{ "step6_rank", 1 },
	};
	FREED_BY(rsh_arena_clear) struct rsh_arena arena = { NULL, 0 };
	struct rsh_ranks_group *groups;
	size_t n;

	assert_int_equal(rsh_ranks_groups_find(names, sizeof(names) /
					       sizeof(*names), &arena, &groups,
					       &n), 0);
	assert_int_equal(n, sizeof(wanted) / sizeof(*wanted));
	for (size_t i = 0; i < n; i++) {
		size_t k = 0;

		while (k < n && strcmp(groups[i].stem, wanted[k].stem) != 0)
			k++;
		assert_true(k < n);
		assert_int_equal(groups[i].n, wanted[k].n);
		for (uint32_t r = 1; r < groups[i].n; r++)
			assert_true(groups[i].v[r - 1].number <
				    groups[i].v[r].number);
	}
}
