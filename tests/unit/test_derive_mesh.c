/* SPDX-License-Identifier: Apache-2.0 */
/* Meshes and the rules of derivations, as people write them. */
#include "strategy_support.h"

#include "rsh/strategy/derive.h"
#include "rsh/strategy/mesh.h"

TEST(test_mesh)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_mesh m;

	assert_int_equal(rsh_mesh_parse("dp=2,tp=4,pp=3,ep=8", &m, &err), 0);
	assert_int_equal(m.n, 4);
	assert_int_equal(rsh_mesh_size(&m, "dp"), 2);
	assert_int_equal(rsh_mesh_size(&m, "mp"), 4);
	assert_int_equal(rsh_mesh_size(&m, "cp"), 1);
	assert_true(rsh_mesh_has(&m, "ep"));
	assert_false(rsh_mesh_has(&m, "cp"));
	assert_false(rsh_mesh_has(&m, "tp"));
	/* ep regroups the ranks of a stage, pp is no part of it. */
	assert_int_equal(rsh_mesh_stage_ranks(&m), 8);
}

TEST(test_bad_mesh)
{
	static const char *const bad[] = {
		"", "dp", "dp=", "dp=0", "dp=-1", "dp=2,", ",dp=2", "=2",
		"dp=2;mp=2", "dp=2,mp=x", "dp=2,dp=2", "mp=2,tp=2", "2dp=2",
		"dp=1048577", "dp=99999999999999999999", "dp=1024,mp=2048",
		"a_name_too_long_for_it=2",
		"a=1,b=1,c=1,d=1,e=1,f=1,g=1,h=1,i=1,j=1,k=1,l=1,m=1",
	};
	struct rsh_mesh m;

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct rsh_error err = RSH_ERROR_INIT;

		if (rsh_mesh_parse(bad[i], &m, &err) != -EINVAL)
			fail_msg("\"%s\" was accepted", bad[i]);
		assert_non_null(strstr(err.text, bad[i]));
	}
}

struct text {
	enum rsh_derive_option which;
	const char *text;
};

TEST(test_rules)
{
	static const struct text good[] = {
		{ RSH_DERIVE_MESH, "dp=2" },
		{ RSH_DERIVE_OPT, "-1" },
		{ RSH_DERIVE_OPT, "0" },
		{ RSH_DERIVE_OPT, "16" },
		{ RSH_DERIVE_SPLIT, "up\\.weight$=0:mp" },
		{ RSH_DERIVE_SPLIT, "a=b=1:none" },
		{ RSH_DERIVE_AXES, "experts=*,ep" },
		{ RSH_DERIVE_STAGE, "emb=first" },
		{ RSH_DERIVE_STAGE, "head=last" },
		{ RSH_DERIVE_STAGE, "mid=3" },
		{ RSH_DERIVE_LAYERS, "2,1,1" },
		{ RSH_DERIVE_DROP, "^adam_" },
		{ RSH_DERIVE_DROP, "^moments" },
	};
	struct rsh_derive_options *o = rsh_derive_options_new();

	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
		struct rsh_error err = RSH_ERROR_INIT;

		if (rsh_derive_options_set(o, good[i].which, good[i].text,
					   &err))
			fail_msg("%s", err.text);
	}
	rsh_derive_options_free(o);
}

TEST(test_bad_rules)
{
	static const struct text bad[] = {
		{ RSH_DERIVE_MESH, "dp" },
		{ RSH_DERIVE_OPT, "-2" },
		{ RSH_DERIVE_OPT, "" },
		{ RSH_DERIVE_OPT, "2x" },
		{ RSH_DERIVE_SPLIT, "up" },
		{ RSH_DERIVE_SPLIT, "=0:mp" },
		{ RSH_DERIVE_SPLIT, "up=0" },
		{ RSH_DERIVE_SPLIT, "up=:mp" },
		{ RSH_DERIVE_SPLIT, "up=99:mp" },
		{ RSH_DERIVE_SPLIT, "up=0:m p" },
		{ RSH_DERIVE_SPLIT, "(=0:mp" },
		{ RSH_DERIVE_AXES, "experts=" },
		{ RSH_DERIVE_AXES, "experts=*,*" },
		{ RSH_DERIVE_AXES, "experts=ep,ep" },
		{ RSH_DERIVE_AXES, "experts=*,ep," },
		{ RSH_DERIVE_STAGE, "emb=middle" },
		{ RSH_DERIVE_LAYERS, "2,,1" },
		{ RSH_DERIVE_LAYERS, "" },
		{ RSH_DERIVE_DROP, "[" },
	};
	struct rsh_derive_options *o = rsh_derive_options_new();

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct rsh_error err = RSH_ERROR_INIT;

		if (rsh_derive_options_set(o, bad[i].which, bad[i].text,
					   &err) != -EINVAL)
			fail_msg("\"%s\" was accepted", bad[i].text);
		assert_true(err.text[0]);
	}
	rsh_derive_options_free(o);
}
