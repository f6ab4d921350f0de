/* SPDX-License-Identifier: Apache-2.0 */
/* Random tensors, cut in random ways, shown by random recipes: every element is
 * where a plain loop says.  `RSH_SEED` repeats a run, `RSH_CASES` says how many
 * tensors there are. */
#include "recipe_support.h"

static void check_member(struct scene *s, const struct target *t,
			 const struct rsh_cut *cut, uint32_t shown,
			 uint32_t member)
{
	static uint8_t want[1 << 16], have[1 << 16];
	struct rsh_slot slot = { .name = 0, .shown = shown };
	struct rsh_record_shape shape;
	struct rsh_shown_file f = { .member = member, .n = 1, .slots = &slot,
				    .shapes = &shape };
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_virtual_record r;
	uint32_t number = rsh_plan_n_files(s->plan);
	struct rsh_box box;
	uint64_t n, start;

	rsh_cut_box(cut, t->dims, rsh_cut_cell(cut, member), &box);
	n = scene_slice(s, t, &box, NULL, want);
	rsh_blueprint_shape(s->plan, shown, member, &shape);
	slot.content_bytes = shape.content_bytes;
	assert_int_equal(shape.content_bytes, n);
	if (rsh_blueprint_add_file(s->plan, &f, &err))
		fail_msg("%s", err.text);
	rsh_plan_record(s->plan, number, 0, &r);
	start = r.offset + r.total_bytes - n;
	scene_read(s, number, start, n, have);
	assert_memory_equal(have, want, n);
	for (int i = 0; i < 4; i++) {
		uint64_t from = scene_below((uint32_t)n), len;

		len = 1 + scene_below((uint32_t)(n - from));
		scene_read(s, number, start + from, len, have);
		assert_memory_equal(have, want + from, len);
	}
	s->checked += n;
}

static uint64_t check_scene(void)
{
	const struct rsh_plan_ops writer = { 0 };
	const struct rsh_blueprint b = { .framing = &rsh_ckpt_framing,
					 .replicas = true };
	struct rsh_error err = RSH_ERROR_INIT;
	uint32_t n_tensors = 1 + scene_below(MAX_TENSORS);
	struct scene s = { .names = rsh_names_new() };

	for (uint32_t i = 0; i < n_tensors; i++)
		scene_source(&s, i);
	scene_catalogue(&s, n_tensors);
	s.plan = rsh_blueprint_new(s.cat, &writer, &b);
	assert_non_null(s.plan);
	for (int i = 0; i < 4; i++) {
		const struct rsh_cut *cut;
		static struct target t;
		struct rsh_shown show;
		uint32_t shown;

		scene_target(&s, n_tensors, &t);
		cut = rsh_catalogue_keep_cut(s.cat, scene_cut(t.dims, t.n_dims));
		show = (struct rsh_shown){
			.dtype = t.wide ? RSH_DTYPE_FLOAT32 :
					  RSH_DTYPE_BFLOAT16,
			.n_dims = (uint8_t)t.n_dims, .dims = t.dims,
			.cut = cut,
			.recipe = { t.n_parts, t.parts,
				    t.wide ? RSH_CODEC_BF16_TO_F32 :
					     RSH_CODEC_NONE,
				    t.n_factored, t.factored },
		};
		if (rsh_blueprint_show(s.plan, &show, &shown, &err))
			fail_msg("%s", err.text);
		for (uint32_t r = 0; r < rsh_cut_n_ranks(cut); r++)
			check_member(&s, &t, cut, shown, r);
	}
	scene_clear(&s);
	return s.checked;
}

static void every_element_is_in_its_place(void **unused)
{
	(void)unused;
	scene_cases(check_scene);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_element_is_in_its_place),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
