/* SPDX-License-Identifier: Apache-2.0 */
/* The strategy that a metadata.json describes. */
#include "strategy_support.h"

#include <sys/types.h>

#include "rsh/strategy/checkpoint2.h"

#define PATH "step/metadata.json"

#define PARAM(name, shape, layout) \
	"\"" name "\":{\"global_shape\":" shape ",\"layout\":" layout "}"
#define MESH(mesh, map, ranks) \
	"{\"device_matrix\":" mesh ",\"tensor_map\":" map ",\"rank_list\":" \
	ranks "}"
#define STORED(key, rank, group) \
	"\"('" key "', (0,))\":[{\"file_name\":\"f" rank "\"," \
	"\"storage_rank\":" rank ",\"rank_group\":" group "}]"
#define JOB(params, stored) \
	"{\"state_dict_metadata\":{" params "},\"storage_data\":{" stored "}}"

/* A text, and its strategy with the names it was made with. */
struct made {
	struct rsh_names *names;
	struct rsh_strategy *strategy; /* NULL after a failure */
	struct rsh_error err;
	int rc;
};

static ssize_t pread_text(void *ctx, void *buf, size_t len, uint64_t offset)
{
	memcpy(buf, (const char *)ctx + offset, len);
	return (ssize_t)len;
}

static struct made make(const char *text)
{
	union {
		const char *in;
		void *out;
	} u = { .in = text };
	const struct rsh_byte_source src = { pread_text, u.out, strlen(text),
					     PATH };
	struct made m = { .names = rsh_names_new(), .err = RSH_ERROR_INIT };
	struct rsh_ckpt2 *c;

	assert_good(rsh_ckpt2_parse(&src, &c, &m.err), m.err);
	m.rc = rsh_strategy_of_checkpoint2(c, PATH, m.names, &m.strategy,
					   &m.err);
	rsh_ckpt2_free(c);
	return m;
}

static void made_free(struct made *m)
{
	rsh_strategy_free(m->strategy);
	rsh_names_free(m->names);
}

/* The layout of a parameter in a stage, as text; "" where it has none. */
static void assert_layout(const struct made *m, const char *name,
			  uint32_t stage, const char *wanted)
{
	uint32_t id = rsh_names_find(m->names, name, strlen(name));
	const struct rsh_strategy_param *p = rsh_strategy_find(m->strategy, id);
	const struct rsh_strategy_item *it =
		p ? rsh_param_item(p, stage) : NULL;
	char text[128] = "";

	if (it)
		rsh_item_text(it, text, sizeof(text));
	assert_string_equal(text, wanted);
}

TEST(test_stages)
{
	struct made m = make(JOB(
		PARAM("a", "[4,4]", MESH("[2,2]", "[[1,0],-1]",
				       "[0,1,2,3]")) ","
		PARAM("b", "[4]", MESH("[4]", "[0]", "[4,5,6,7]")) ","
		PARAM("accu_grads.b", "[4]",
		      MESH("[4]", "[0]", "[4,5,6,7]")) ","
		PARAM("whole", "[4]", MESH("[2,2]", "[-1]", "[0,1,2,3]")) ","
		PARAM("part", "[4]", MESH("[2]", "[-1]", "[6,5]")) ","
		PARAM("both", "[]", "null") ","
		PARAM("nowhere", "[]", "null"),
		STORED("both", "3", "[2,3,4]")));

	assert_int_equal(m.rc, 0);
	assert_int_equal(m.strategy->n_stages, 2);
	assert_int_equal(m.strategy->stage_ranks, 4);
	assert_int_equal(m.strategy->n_params, 5);
	assert_layout(&m, "a", 0, "mesh [2,2] map [[1,0],-1]");
	assert_layout(&m, "a", 1, "");
	assert_layout(&m, "b", 0, "");
	assert_layout(&m, "b", 1, "mesh [4] map [0]");
	assert_layout(&m, "whole", 0, "mesh [4] map [-1]");
	assert_layout(&m, "part", 0, "");
	assert_layout(&m, "part", 1, "mesh [4] map [-1]");
	assert_layout(&m, "both", 0, "mesh [4] map []");
	assert_layout(&m, "both", 1, "mesh [4] map []");
	made_free(&m);
}

TEST(test_no_layout)
{
	struct made m = make(JOB(PARAM("a", "[4]", "null"),
				 STORED("a", "1", "[0,1,2]")));

	assert_int_equal(m.rc, 0);
	assert_int_equal(m.strategy->n_stages, 1);
	assert_int_equal(m.strategy->stage_ranks, 3);
	made_free(&m);
}

static void assert_refused(const char *text, const char *words)
{
	FREED_BY(made_free) struct made m = make(text);

	if (m.rc != -EINVAL || !strstr(m.err.text, PATH) ||
	    !strstr(m.err.text, words))
		fail_msg("%d, \"%s\"; wanted \"%s\"", m.rc, m.err.text, words);
}

#define CUT(name, ranks) PARAM(name, "[4]", MESH("[2]", "[0]", ranks))

TEST(test_refused)
{
	assert_refused(JOB(CUT("a", "[1,0]"), ""),
		       "parameter \"a\" is cut over 2 ranks from rank 1");
	assert_refused(JOB(CUT("a", "[0,1]") "," CUT("b", "[1,2]"), ""),
		       "parameter \"b\" is cut over 2 ranks from rank 1");
	assert_refused(JOB(CUT("a", "[0,1]") ","
			   PARAM("b", "[4]", MESH("[4]", "[0]", "[0,1,2,3]")),
			   ""), "\"a\" is cut over 2 ranks from rank 0, which "
				"are not a stage of 4 ranks in order");
	assert_refused(JOB(CUT("a", "[2,3]"), ""), "stage 0 is missing");
	assert_refused(JOB(PARAM("a", "[]", "null"), ""), "on any rank");
}
