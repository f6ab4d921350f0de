/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_source_template.c - names with a rank in them. */
#include "config.h"

#include "source/source_i.h"
#include "tests.h"

#define ANY RSH_RANK_UNKNOWN

struct template_case {
	const char *template;
	const char *name;
	uint32_t known; /* the rank before */
	bool matches;
	uint32_t rank;  /* the one found, if it matches */
};

static const struct template_case cases[] = {
	{ "rank_{rank}", "rank_0", ANY, true, 0 },
	{ "rank_{rank}", "rank_007", ANY, true, 7 },
	{ "rank_{rank}", "rank_4294967294", ANY, true, 4294967294 },
	{ "rank_{rank}", "rank_4294967295", ANY, false, 0 },
	{ "rank_{rank}", "rank_99999999999999999999", ANY, false, 0 },
	{ "rank_{rank}", "rank_", ANY, false, 0 },
	{ "rank_{rank}", "rank_x", ANY, false, 0 },
	{ "rank_{rank}", "rank_1x", ANY, false, 0 },
	{ "rank_{rank}", "rank_3", 3, true, 3 },
	{ "rank_{rank}", "rank_3", 4, false, 0 },
	{ "{rank}", "12", ANY, true, 12 },
	{ "{rank}_{rank}", "5_5", ANY, true, 5 },
	{ "{rank}_{rank}", "5_6", ANY, false, 0 },
	{ "*{rank}.ckpt", "net12.ckpt", ANY, true, 12 },
	{ "n?t_{rank}-*.ckpt", "net_3-1_5.ckpt", ANY, true, 3 },
	{ "n?t_{rank}-*.ckpt", "nt_3-1_5.ckpt", ANY, false, 0 },
	{ "*", "", ANY, true, ANY },
	{ "*.ckpt", "a.ckpt.ckpt", ANY, true, ANY },
	{ "*.ckpt", "a.ckpt.tmp", ANY, false, 0 },
	{ "plain", "plain", ANY, true, ANY },
	{ "plain", "plain2", ANY, false, 0 },
	{ "plain", "plai", ANY, false, 0 },
	{ "{rank", "{rank", ANY, true, ANY },
	/* What a shell would take for a set is plain here. */
	{ "[ab]", "a", ANY, false, 0 },
};

TEST(test_matches)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct template_case *c = &cases[i];
		uint32_t rank = c->known;

		if (rsh_template_match(c->template, strlen(c->template),
				       c->name, &rank) != c->matches)
			fail_msg("%s and %s", c->template, c->name);
		assert_int_equal(rank, c->matches ? c->rank : c->known);
	}
}

/* The length is that of one part of a longer template. */
TEST(test_part)
{
	uint32_t rank = ANY;

	assert_true(rsh_template_match("r{rank}/{rank}", 7, "r5", &rank));
	assert_int_equal(rank, 5);
	assert_true(rsh_template_has_rank("r{rank}/x", 7));
	assert_false(rsh_template_has_rank("r{rank}/x", 6));
	assert_true(rsh_template_is_plain("out/*", 3));
	assert_false(rsh_template_is_plain("o?t/x", 3));
	assert_false(rsh_template_is_plain("o*", 2));
	assert_false(rsh_template_is_plain("{rank}", 6));
}
