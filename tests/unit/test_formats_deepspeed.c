/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_formats_deepspeed.c - where parameters are in flat groups, the
 * boxes of a run, and what names of files say. */
#include "config.h"

#include "formats/deepspeed/deepspeed_i.h"
#include "support.h"

/* ---- boxes ---- */

/* The row-major number of an element of a parameter. */
static uint64_t number_of(const struct rsh_ds_param *p, const uint64_t *at)
{
	uint64_t n = 0;

	for (uint32_t d = 0; d < p->n_dims; d++)
		n = n * p->dims[d] + at[d];
	return n;
}

/* The elements of the boxes, in their order, are those of the run. */
static void check_boxes(const struct rsh_ds_param *p,
			const struct rsh_ds_run *run)
{
	struct rsh_box boxes[RSH_DS_BOXES_MAX];
	const uint32_t n = rsh_ds_run_boxes(p, run, boxes);
	uint64_t next = run->from;

	assert_true(n <= (p->n_dims ? 2 * p->n_dims - 1 : 1));
	for (uint32_t i = 0; i < n; i++) {
		const uint64_t elements = rsh_box_elements(&boxes[i]);

		for (uint64_t k = 0; k < elements; k++, next++) {
			uint64_t at[RSH_MAX_DIMS], rest = k;

			for (uint32_t d = p->n_dims; d-- > 0;) {
				at[d] = boxes[i].from[d] +
					rest % boxes[i].size[d];
				rest /= boxes[i].size[d];
				assert_true(at[d] < p->dims[d]);
			}
			assert_int_equal(number_of(p, at), next);
		}
	}
	assert_int_equal(next, run->from + run->n);
}

static void random_param(struct rsh_ds_param *p, uint64_t *dims)
{
	*p = (struct rsh_ds_param){
		.n_dims = below(5), .dims = dims, .elements = 1,
	};
	for (uint32_t d = 0; d < p->n_dims; d++) {
		dims[d] = 1 + below(5);
		p->elements *= dims[d];
	}
}

TEST(test_boxes_of_runs)
{
	uint64_t dims[RSH_MAX_DIMS];
	struct rsh_ds_param p;

	for (unsigned i = 0; i < (unsigned)rounds(5000); i++) {
		struct rsh_ds_run run;

		random_param(&p, dims);
		run.from = below((uint32_t)p.elements);
		run.n = below((uint32_t)(p.elements - run.from) + 1);
		check_boxes(&p, &run);
	}
}

/* ---- groups ---- */

#define PARAMS 6

/* All ranks together have each element of each parameter once, at the place
 * where a vector that is cut into equal pieces has it. */
static void check_group(const struct rsh_ds_layout *l)
{
	const struct rsh_ds_params *of = &l->head->groups[0];
	uint64_t at = 0;

	for (uint32_t i = 0; i < of->n; i++) {
		uint64_t next = 0;

		for (uint32_t rank = 0; rank < l->world; rank++) {
			const struct rsh_ds_run run =
				rsh_ds_run_of(l, 0, &of->v[i], rank);

			if (run.n == 0)
				continue;
			assert_int_equal(run.from, next);
			assert_true(run.at + run.n <= l->piece[0]);
			if (l->stage < 3)
				assert_int_equal(rank * l->piece[0] + run.at,
						 of->v[i].at + run.from);
			next += run.n;
			check_boxes(&of->v[i], &run);
		}
		assert_int_equal(next, of->v[i].elements);
		assert_true(of->v[i].at >= at);
		at = of->v[i].at;
	}
}

TEST(test_groups)
{
	for (unsigned i = 0; i < (unsigned)rounds(2000); i++) {
		uint64_t dims[PARAMS][RSH_MAX_DIMS], padding[PARAMS];
		struct rsh_ds_param v[PARAMS];
		struct rsh_ds_params group = { 1 + below(PARAMS), v };
		struct rsh_ds_head h = { .n_groups = 1, .groups = &group };
		uint32_t n_paddings = group.n;
		uint64_t *paddings = padding, piece = 0;
		struct rsh_ds_zero z = {
			.stage = 1 + below(3), .world = 1 + below(7),
			.n_groups = 1, .n_paddings = &n_paddings,
			.paddings = &paddings,
		};
		struct rsh_arena arena = { NULL, 0 };
		struct rsh_error err = RSH_ERROR_INIT;
		struct rsh_ds_layout l;

		for (uint32_t k = 0; k < group.n; k++) {
			random_param(&v[k], dims[k]);
			padding[k] = below(3);
			piece += z.stage == 3 ?
				 (v[k].elements + z.world - 1) / z.world :
				 v[k].elements + padding[k];
		}
		if (z.stage < 3)
			piece = (piece + z.world - 1) / z.world;
		assert_int_equal(rsh_ds_layout_make(&h, &z, &piece, "x", &arena,
						    &l, &err), 0);
		check_group(&l);
		/* One element less is too few. */
		piece -= z.stage == 3;
		if (z.stage == 3)
			assert_int_equal(rsh_ds_layout_make(
				&h, &z, &piece, "x", &arena, &l, &err),
				-EBADMSG);
		rsh_arena_clear(&arena);
	}
}

TEST(test_numbers_that_overflow)
{
	const uint64_t dims[] = { UINT64_C(1) << 62 };
	struct rsh_ds_param v[] = {
		{ .n_dims = 1, .dims = dims, .elements = dims[0] },
		{ .n_dims = 1, .dims = dims, .elements = dims[0] },
	};
	struct rsh_ds_params group = { 2, v };
	struct rsh_ds_head h = { .n_groups = 1, .groups = &group };
	FREED_BY(rsh_arena_clear) struct rsh_arena arena = { NULL, 0 };
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_ds_layout l;

	for (uint32_t stage = 1; stage <= 3; stage++) {
		const struct rsh_ds_zero z = {
			.stage = stage, .world = 65536, .n_groups = 1,
		};
		const uint64_t piece = UINT64_C(1) << 62;

		assert_int_equal(rsh_ds_layout_make(&h, &z, &piece, "x", &arena,
						    &l, &err), -EBADMSG);
	}
}

/* ---- names ---- */

TEST(test_names)
{
	static const struct {
		const char *name;
		enum rsh_ds_role role;
		uint32_t rank, tensor, layer, expert;
	} names[] = {
		{ "mp_rank_00_model_states.pt", RSH_DS_MODEL, 0, 0, 0, 0 },
		{ "mp_rank_11_model_states.pt", RSH_DS_MODEL, 0, 11, 0, 0 },
		{ "zero_pp_rank_10_mp_rank_00_model_states.pt",
		  RSH_DS_MODEL_PART, 10, 0, 0, 0 },
		{ "zero_pp_rank_9_mp_rank_01_optim_states.pt",
		  RSH_DS_OPTIMIZER, 9, 1, 0, 0 },
		{ "bf16_zero_pp_rank_3_mp_rank_00_optim_states.pt",
		  RSH_DS_OPTIMIZER, 3, 0, 0, 0 },
		{ "layer_2_expert_7_mp_rank_00_model_states.pt", RSH_DS_EXPERT,
		  0, 0, 2, 7 },
		{ "expert_7_mp_rank_00_model_states.pt", RSH_DS_EXPERT, 0, 0, 0,
		  7 },
		{ "expp_rank_1_mp_rank_00_optim_states.pt",
		  RSH_DS_EXPERT_OPTIMIZER, 1, 0, 0, 0 },
		{ "layer_01-model_00-model_states.pt", RSH_DS_PIPELINE, 0, 0, 1,
		  0 },
		{ "bf16_zero_pp_rank_3_mp_rank_00_model_states.pt",
		  RSH_DS_OTHER, 0, 0, 0, 0 },
		{ "mp_rank_00_model_states.pt.tmp", RSH_DS_OTHER, 0, 0, 0, 0 },
		{ "mp_rank_00", RSH_DS_OTHER, 0, 0, 0, 0 },
		{ "zero_pp_rank__mp_rank_00_optim_states.pt", RSH_DS_OTHER, 0,
		  0, 0, 0 },
		{ "zero_pp_rank_99999999999_mp_rank_00_optim_states.pt",
		  RSH_DS_OTHER, 0, 0, 0, 0 },
	};
	struct rsh_ds_name is;

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		const bool known = rsh_ds_name_read(names[i].name, &is);

		assert_int_equal(known, names[i].role != RSH_DS_OTHER);
		if (!known)
			continue;
		assert_int_equal(is.role, names[i].role);
		assert_int_equal(is.rank, names[i].rank);
		assert_int_equal(is.tensor, names[i].tensor);
		assert_int_equal(is.layer, names[i].layer);
		assert_int_equal(is.expert, names[i].expert);
	}
}

TEST(test_steps)
{
	uint64_t step;

	assert_true(rsh_ds_step_read("global_step500", &step));
	assert_int_equal(step, 500);
	assert_true(rsh_ds_step_read("global_step7_universal", &step));
	assert_int_equal(step, 7);
	assert_false(rsh_ds_step_read("best", &step));
	assert_false(rsh_ds_step_read("_universal", &step));
	assert_false(rsh_ds_step_read("", &step));
}
