/* SPDX-License-Identifier: Apache-2.0 */
/* The reader of metadata.json: made up ones of any mesh, and every sentence. */
#include "support.h"
#include "wire_support.h"

#include <sys/types.h>

#include "rsh/wire/checkpoint2.h"

#define PATH "step/metadata.json"

static void assert_kept(const struct rsh_ckpt2 *c);

/* ---- one small file, as mindformers 2.1 writes it ---- */

#define PROPERTIES \
	"\"properties\":{\"dtype\":\"bfloat16\",\"replica_id\":[0,0]," \
	"\"allow_shape_mismatch\":false,\"allow_to_save\":true},"
#define LAYOUT \
	"{\"device_matrix\":[2],\"tensor_map\":[0,-1]," \
	"\"interleaved_parallel\":false,\"alias_name\":[\"a\"]," \
	"\"rank_list\":[0,1]}"
#define CHUNKS \
	"[{\"global_offset\":[0],\"local_shape\":[2,3]}," \
	"{\"global_offset\":[1],\"local_shape\":[2,3]}]"
#define PARAM(shape, layout, chunks) \
	"{" PROPERTIES "\"global_shape\":" shape "," \
	"\"axis_fragmentations\":[2,1],\"layout\":" layout "," \
	"\"chunk\":" chunks "}"
#define STORED(file, rank) \
	"[{\"file_name\":\"" file "\",\"storage_rank\":" rank "," \
	"\"rank_group\":[" rank "]}]"
#define DESCRIBED(params) "\"state_dict_metadata\":{" params "}"
#define STORAGE(slices) "\"storage_data\":{" slices "}"
#define W "\"w\":" PARAM("[4,3]", LAYOUT, CHUNKS)
#define W_0 "\"('w', (0,))\":" STORED("m0", "0")
#define W_1 "\"('w', (1,))\":" STORED("m1", "1")
#define SMALL "{" DESCRIBED(W) "," STORAGE(W_0 "," W_1) "}"

static int parse(const void *data, size_t len, struct rsh_ckpt2 **out,
		 struct rsh_error *err)
{
	struct buffer b = { NULL, 0 };
	struct rsh_byte_source src;
	int rc;

	buffer_append(&b, data, len);
	src = buffer_source(&b);
	src.path = PATH;
	*out = NULL;
	rc = rsh_ckpt2_parse(&src, out, err);
	buffer_free(&b);
	return rc;
}

static struct rsh_ckpt2 *parsed(const char *text)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_ckpt2 *c;

	if (parse(text, strlen(text), &c, &err))
		fail_msg("%s\n%s", err.text, text);
	return c;
}

static void assert_small(const char *text)
{
	struct rsh_ckpt2 *c = parsed(text);
	const struct rsh_ckpt2_param *p = c->params;

	assert_int_equal(c->n_params, 1);
	assert_string_equal(p->name, "w");
	assert_int_equal(p->dtype, RSH_DTYPE_BFLOAT16);
	assert_int_equal(p->n_dims, 2);
	assert_int_equal(p->dims[0], 4);
	assert_int_equal(p->dims[1], 3);
	assert_int_equal(p->layout->n_map, 2);
	assert_int_equal(p->layout->map[0].n, 1);
	assert_int_equal(p->layout->map[1].n, 0);
	assert_int_equal(p->ranks->n, 2);
	assert_int_equal(p->n_slices, 2);
	assert_int_equal(p->n_stored, 2);
	assert_int_equal(c->n_files, 2);
	assert_string_equal(c->files[0].name, "m0");
	assert_int_equal(c->files[1].rank, 1);
	assert_int_equal(c->n_ranks, 2);
	rsh_ckpt2_free(c);
}

TEST(test_small)
{
	assert_small(SMALL);
	assert_small(" \r\n\t" SMALL "\n");
	/* what is stored may be said first, and more may be said */
	assert_small("{\"x\":[1.5e3,null,true,false,\"\\n\",{},[],{\"y\":-1}],"
		     STORAGE(W_1 "," W_0) "," DESCRIBED(W) "}");
	assert_small("{" DESCRIBED("\"\\u0077\":"
				   PARAM("[4,3]", LAYOUT, CHUNKS))
		     "," STORAGE("\"(\\u0027w', (0,))\":" STORED("m0", "0") ","
				 W_1) "}");
}

/* No beginning of it is one, and what is read fails as it says. */
TEST(test_truncation_anywhere)
{
	struct rsh_ckpt2 *c;

	for (size_t len = 0; len < strlen(SMALL); len++) {
		struct rsh_error err = RSH_ERROR_INIT;

		assert_int_equal(parse(SMALL, len, &c, &err), -EBADMSG);
		assert_non_null(strstr(err.text, PATH));
		assert_null(c);
	}
}

static ssize_t pread_nothing(void *ctx, void *buf, size_t len, uint64_t offset)
{
	(void)buf, (void)len;
	return offset == 0 ? *(int *)ctx : 0;
}

TEST(test_source_fails)
{
	struct rsh_error err = RSH_ERROR_INIT;
	int rc = -EIO;
	struct rsh_byte_source src = { pread_nothing, &rc, 100, PATH };
	struct rsh_ckpt2 *c;

	assert_int_equal(rsh_ckpt2_parse(&src, &c, &err), -EIO);
	rc = 0;
	assert_int_equal(rsh_ckpt2_parse(&src, &c, &err), -EBADMSG);
	assert_non_null(strstr(err.text, "became shorter"));
}

/* ---- what is refused ---- */

static void assert_refused(const char *text, int code, const char *words)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_ckpt2 *c;
	int rc = parse(text, strlen(text), &c, &err);

	if (rc != -code || err.code != code || !strstr(err.text, PATH) ||
	    !strstr(err.text, words))
		fail_msg("%s:\nrc %d, \"%s\"; wanted \"%s\"", text, rc,
			 err.text, words);
}

#define WITH(param, storage) \
	"{" DESCRIBED(param) "," STORAGE(storage) "}"
#define WITH_LAYOUT(mesh, map, ranks) \
	WITH("\"w\":" PARAM("[4,3]", "{\"device_matrix\":" mesh \
	     ",\"tensor_map\":" map ",\"rank_list\":" ranks "}", "[]"), "")

TEST(test_refused_json)
{
	static const char *const texts[][2] = {
		{ "", "not a JSON object" },
		{ "[]", "not a JSON object" },
		{ "{}", "it has no \"state_dict_metadata\"" },
		{ "{" DESCRIBED(W) "}", "it has no \"storage_data\"" },
		{ "{" DESCRIBED("") "," STORAGE("") "}", "no parameter" },
		{ SMALL "x", "something after the end" },
		{ "{" DESCRIBED(W) "," DESCRIBED(W) "}", "twice" },
		{ "{" STORAGE("") "," STORAGE("") "}", "twice" },
		{ "{\"a\" 1}", "':' after a key is expected" },
		{ "{\"a\":1 \"b\":2}", "',' or '}' is expected" },
		{ "{\"a\":[1 2]}", "',' or ']' is expected" },
		{ "{\"a\":[1,]}", "a value is expected" },
		{ "{\"a\":1,}", "a string is expected" },
		{ "{\"a\":nul}", "null is expected" },
		{ "{\"a\":\"\n\"}", "control character" },
		{ "{\"a\":\"\\q\"}", "not a character" },
		{ "{\"a\":\"\\u000g\"}", "not a character" },
		{ "{\"a\":\"\\u0000\"}", "not a character" },
		{ "{\"a\":\"\\udc00\"}", "not a character" },
		{ "{\"a\":\"\\ud800\\u0041\"}", "not a character" },
		{ "{\"a\":11111111111111111111111111111111111]", "',' or '}'" },
		{ "{\"a\":-}", "" },
		{ "{\"a\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1", "nested" },
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		assert_refused(texts[i][0], EBADMSG, texts[i][1]);
}

TEST(test_refused_parameter)
{
	static const char *const texts[][2] = {
		{ WITH("\"\":{}", ""), "without a name" },
		{ WITH("\"w\":{\"layout\":null}", ""),
		  "\"w\" is damaged at offset" },
		{ WITH("\"w\":{\"layout\":null}", ""), "no \"global_shape\"" },
		{ WITH("\"w\":{\"global_shape\":[1]}", ""), "no \"layout\"" },
		{ WITH("\"w\":{\"layout\":null,\"layout\":null}", ""),
		  "a second layout" },
		{ WITH(W "," W, ""), "described twice" },
		{ WITH("\"w\":{\"global_shape\":[-1]}", ""), "out of range" },
		{ WITH("\"w\":{\"global_shape\":[9223372036854775808]}", ""),
		  "out of range" },
		{ WITH("\"w\":{\"global_shape\":[1.0]}", ""),
		  "an integer is expected" },
		{ WITH("\"w\":{\"global_shape\":[\"1\"]}", ""),
		  "an integer is expected" },
		{ WITH("\"w\":{\"global_shape\":1}", ""),
		  "a list is expected" },
		{ WITH("\"w\":{\"global_shape\":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
		       "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]}", ""),
		  "more than 32 dimensions" },
		{ WITH("\"w\":{\"properties\":{\"dtype\":1}}", ""),
		  "a string is expected" },
		{ WITH("\"w\":" PARAM("[3,3]", LAYOUT, CHUNKS), ""),
		  "dimension 3 cannot be cut into 2 slices" },
		{ WITH("\"w\":" PARAM("[4]", LAYOUT, CHUNKS), ""),
		  "1 dimensions, but 2 in the tensor map" },
		{ WITH("\"w\":" PARAM("[4]", "null", CHUNKS), ""),
		  "a chunk of slice 1, but the layout makes 1" },
		{ WITH("\"w\":" PARAM("[4]", "null",
				      "[{\"global_offset\":[0,0]}]"), ""),
		  "a \"global_offset\" of 2 numbers" },
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		assert_refused(texts[i][0], EBADMSG, texts[i][1]);
}

TEST(test_refused_layout)
{
	static const char *const texts[][2] = {
		{ WITH_LAYOUT("[2]", "[1,-1]", "[0,1]"),
		  "\"w\": the tensor map names mesh axis 1" },
		{ WITH_LAYOUT("[2]", "[[0,0],-1]", "[0,1]"), "axis 0 twice" },
		{ WITH_LAYOUT("[2]", "[0,[0,-1]]", "[0,1]"), "axis 0 twice" },
		{ WITH_LAYOUT("[0]", "[0,-1]", "[0,1]"), "out of range" },
		{ WITH_LAYOUT("[]", "[-1,-1]", "[0,1]"), "no device matrix" },
		{ WITH_LAYOUT("[65536,65536]", "[-1,-1]", "[0]"), "2^31" },
		{ WITH_LAYOUT("[2]", "[0,-1]", "[0]"),
		  "a mesh of 2 ranks, but 1 in its list" },
		{ WITH_LAYOUT("[2]", "[0,-1]", "[0,0]"),
		  "a rank is twice" },
		{ WITH_LAYOUT("[2]", "[0,-1]", "[0,1048576]"), "out of range" },
		{ WITH_LAYOUT("[2]", "[-2,-1]", "[0,1]"), "out of range" },
		{ WITH_LAYOUT("[2]", "[0,-1],\"tensor_map\":[0,-1,-1]",
			      "[0,1]"), "2 dimensions, but 3" },
		{ WITH("\"w\":" PARAM("[4]", "{\"device_matrix\":[2],"
				      "\"rank_list\":[0,1]}", "[]"), ""),
		  "no tensor map" },
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		assert_refused(texts[i][0], EBADMSG, texts[i][1]);
	assert_refused(WITH("\"w\":" PARAM("[4]", "{\"interleaved_parallel\":"
					   "true}", "[]"), ""),
		       ENOTSUP, "\"w\" has an interleaved layout");
}

TEST(test_refused_storage)
{
	static const char *const texts[][2] = {
		{ WITH(W, "\"w\":[]"), "\"w\" is not a name with the number" },
		{ WITH(W, "\"('w', (4294967296,))\":[]"), "is not a name" },
		{ WITH(W, "\"('w\\\", (0,))\":[]"), "is not a name" },
		{ WITH(W, "\"('w\\\\q', (0,))\":[]"), "is not a name" },
		{ WITH(W, "\"('v', (0,))\":[]"),
		  "\"v\" is stored, but not described" },
		{ WITH(W, "\"('w', (2,))\":" STORED("m", "0")),
		  "slice 2 is stored, but the layout makes 2" },
		{ WITH(W, W_0 "," W_0), "slice 0 is twice" },
		{ WITH(W, "\"('w', (1,))\":" STORED("m0", "0")),
		  "\"w\" is damaged at offset" },
		{ WITH(W, "\"('w', (1,))\":" STORED("m0", "0")),
		  "slice 1 was written by rank 0, to which the layout gives "
		  "slice 0" },
		{ WITH(W, "\"('w', (0,))\":" STORED("m0", "3")),
		  "slice 0 was written by rank 3" },
		{ WITH(W, W_0 ",\"('w', (1,))\":" STORED("m0", "1")),
		  "the file m0 is of rank 0, and of 1" },
		{ WITH(W, "\"('w', (0,))\":" STORED("../m", "0")),
		  "\"../m\" is not a file name" },
		{ WITH(W, "\"('w', (0,))\":" STORED("", "0")), "not a file" },
		{ WITH(W, "\"('w', (0,))\":" STORED("..", "0")), "not a file" },
		{ WITH(W, "\"('w', (0,))\":[{\"storage_rank\":0}]"),
		  "without \"file_name\"" },
		{ WITH(W, "\"('w', (0,))\":[{\"file_name\":\"a\"}]"),
		  "without \"file_name\" or \"storage_rank\"" },
		{ WITH(W, "\"('w', (0,))\":[{\"file_name\":\"a\","
			  "\"file_name\":\"b\",\"storage_rank\":0}]"),
		  "a second \"file_name\"" },
		{ WITH(W, "\"('w', (0,))\":" STORED("m", "1048576")),
		  "out of range" },
		{ WITH(W, "\"('w', (0,))\":[{\"rank_group\":[0,true]}]"),
		  "an integer is expected" },
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		assert_refused(texts[i][0], EBADMSG, texts[i][1]);
}

/* ---- what is odd, and right ---- */

TEST(test_odd_names)
{
	struct rsh_ckpt2 *c = parsed(
		"{" DESCRIBED("\"it's\":" PARAM("[]", "null", "[]") ","
			      "\"b\\\\\\\"\\u4e16\\ud83d\\ude00\":"
			      PARAM("[0]", "null", "[]")) ","
		STORAGE("\"(\\\"it's\\\", (0,))\":" STORED("a", "4") ","
			"\"('b\\\\\\\\\\\"\\u4e16\\\\U0001f600', (0,))\":"
			STORED("a", "4")) "}");

	assert_string_equal(c->params[0].name, "it's");
	assert_string_equal(c->params[1].name,
			    "b\\\"\344\270\226\360\237\230\200");
	assert_int_equal(c->params[0].n_stored, 1);
	assert_int_equal(c->params[1].n_stored, 1);
	assert_int_equal(c->n_ranks, 5);
	assert_kept(c);
	rsh_ckpt2_free(c);
}

/* Without a layout those hold it who are said to. */
TEST(test_holders)
{
	struct rsh_ckpt2 *c = parsed(
		"{" DESCRIBED("\"a\":" PARAM("[4]", "null", "[]") ","
			      "\"b\":" PARAM("[4]", "null", "[]")) ","
		STORAGE("\"('a', (0,))\":[{\"file_name\":\"f\","
			"\"storage_rank\":7,\"rank_group\":[3,5,7]},"
			"{\"file_name\":\"g\",\"storage_rank\":1,"
			"\"rank_group\":[3,5,7]}],\"('b', (0,))\":[]") "}");
	static const uint32_t holders[] = { 1, 3, 5, 7 };

	assert_null(c->params[0].layout);
	assert_int_equal(c->params[0].ranks->n, 4);
	assert_memory_equal(c->params[0].ranks->ranks, holders,
			    sizeof(holders));
	assert_int_equal(c->params[1].n_stored, 0);
	assert_int_equal(c->params[1].ranks->n, 0);
	assert_kept(c);
	rsh_ckpt2_free(c);
}

/* A group that is the same as the one before is not read again. */
TEST(test_long_groups)
{
	enum { N = 1000 };
	struct unit_text t = { "", 0 };
	struct rsh_ckpt2 *c;

	unit_put(&t, "{" DESCRIBED("\"a\":" PARAM("[4]", "null", "[]") ","
				   "\"b\":" PARAM("[4]", "null", "[]") ","
				   "\"c\":" PARAM("[4]", "null", "[]"))
		 ",\"storage_data\":{");
	for (unsigned p = 0; p < 3; p++) {
		unit_put(&t, "%s\"('%c', (0,))\":[{\"file_name\":\"f\","
			 "\"storage_rank\":0,\"rank_group\":[0",
			 p ? "," : "", 'a' + (int)p);
		for (unsigned i = 1; p > 0 && i < N; i++)
			unit_put(&t, ",%u", i);
		unit_put(&t, "]}]");
	}
	unit_put(&t, "}}");
	c = parsed(t.s);
	assert_int_equal(c->params[0].ranks->n, 1);
	for (unsigned p = 1; p < 3; p++) {
		assert_int_equal(c->params[p].ranks->n, N);
		for (unsigned i = 0; i < N; i++)
			assert_int_equal(c->params[p].ranks->ranks[i], i);
	}
	rsh_ckpt2_free(c);
}

/* Lists of ranks in another order, which fill their memory. */
TEST(test_ranks_in_another_order)
{
	for (unsigned n = 1000; n < 1004; n++) {
		struct unit_text t = { "", 0 };
		struct rsh_ckpt2 *c;

		unit_put(&t, "{\"state_dict_metadata\":{\"w\":{" PROPERTIES
			 "\"global_shape\":[4],\"axis_fragmentations\":[1],"
			 "\"layout\":{\"device_matrix\":[%u],\"tensor_map\":"
			 "[-1],\"rank_list\":[", n);
		for (unsigned i = n; i-- > 0;)
			unit_put(&t, "%u%s", i, i ? "," : "");
		unit_put(&t, "]},\"chunk\":[{\"global_offset\":[0],"
			 "\"local_shape\":[4]}]}}," STORAGE(
			 "\"('w', (0,))\":" STORED("m", "7")) "}");
		c = parsed(t.s);
		assert_int_equal(c->n_ranks, n);
		assert_int_equal(c->params[0].ranks->n, n);
		for (unsigned i = 0; i < n; i++)
			assert_int_equal(c->params[0].ranks->ranks[i],
					 n - 1 - i);
		rsh_ckpt2_free(c);
	}
}

/* A rank of another stage holds what its place counted around holds. */
TEST(test_other_stage)
{
	struct rsh_ckpt2 *c = parsed(
		WITH(W, "\"('w', (1,))\":[{\"file_name\":\"m1\","
			"\"storage_rank\":1},{\"file_name\":\"m3\","
			"\"storage_rank\":3}]"));

	assert_int_equal(c->params[0].n_stored, 1);
	assert_int_equal(c->n_ranks, 4);
	rsh_ckpt2_free(c);
}

/* ---- made up ---- */

/* This is a job, and a text of it that grows. */
struct job {
	struct buffer text;
	bool indented;
	bool redundant;    /* a file a holder, not one a slice */
	uint32_t stages, n_mesh, mesh[4], ranks; /* of a stage */
};

struct made {
	uint32_t n_dims, n_map[3], split[3], n_slices, stage;
	int map[3][3];
	uint32_t slice[64]; /* of each place */
};

/* Adds a text, whose '|' stand for places where Python puts blanks. */
static void say(struct job *j, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

static void say(struct job *j, const char *fmt, ...)
{
	char text[1024];
	va_list ap;
	size_t n;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	for (const char *p = text; *p; p += n) {
		n = strcspn(p, "|");
		buffer_append(&j->text, p, n);
		if (n > 0)
			continue;
		n = 1;
		if (j->indented)
			buffer_append(&j->text, "\n            ", 13);
	}
}

static void say_list(struct job *j, const char *key, const uint32_t *v,
		     uint32_t n)
{
	say(j, "|\"%s\":[", key);
	for (uint32_t i = 0; i < n; i++)
		say(j, "%s|%u", i ? "," : "", v[i]);
	say(j, "|]");
}

static void make_job(struct job *j)
{
	j->indented = below(2);
	j->redundant = below(2);
	j->stages = 1 + below(3);
	j->n_mesh = 1 + below(4);
	j->ranks = 1;
	for (uint32_t i = 0; i < j->n_mesh; i++)
		j->ranks *= j->mesh[i] = 1 + below(i < 3 ? 3 : 2);
}

/* Deals the axes out to dimensions, and numbers the slices by the places of
 * the list, each index of a dimension by itself. */
static void make_map(const struct job *j, struct made *m)
{
	*m = (struct made){ .n_dims = 1 + below(3), .n_slices = 1,
			    .stage = below(j->stages) };
	for (uint32_t a = 0; a < j->n_mesh; a++) {
		uint32_t d = below(m->n_dims + 1);

		if (d < m->n_dims && m->n_map[d] < 3)
			m->map[d][m->n_map[d]++] = (int)(j->n_mesh - 1 - a);
	}
	for (uint32_t d = 0; d < m->n_dims; d++) {
		if (m->n_map[d] == 2 && below(2)) {
			int first = m->map[d][0]; /* against the mesh */

			m->map[d][0] = m->map[d][1];
			m->map[d][1] = first;
		}
		m->split[d] = 1;
		for (uint32_t k = 0; k < m->n_map[d]; k++)
			m->split[d] *= j->mesh[j->n_mesh - 1 -
					       (uint32_t)m->map[d][k]];
		m->n_slices *= m->split[d];
	}
	for (uint32_t p = 0; p < j->ranks; p++) {
		uint32_t coord[4], rest = p;

		for (uint32_t a = j->n_mesh; a-- > 0; rest /= j->mesh[a])
			coord[a] = rest % j->mesh[a];
		for (uint32_t d = 0; d < m->n_dims; d++) {
			uint32_t index = 0;

			for (uint32_t k = 0; k < m->n_map[d]; k++) {
				uint32_t a = j->n_mesh - 1 -
					     (uint32_t)m->map[d][k];

				index = index * j->mesh[a] + coord[a];
			}
			m->slice[p] = m->slice[p] * m->split[d] + index;
		}
	}
}

static void say_map(struct job *j, const struct made *m)
{
	say(j, "|\"tensor_map\":[");
	for (uint32_t d = 0; d < m->n_dims; d++) {
		say(j, "%s|", d ? "," : "");
		if (m->n_map[d] == 0)
			say(j, below(4) ? "-1" : "[-1]");
		else if (m->n_map[d] == 1 && below(4))
			say(j, "%d", m->map[d][0]);
		else if (m->n_map[d] == 1)
			say(j, "[|%d]", m->map[d][0]);
		else if (m->n_map[d] == 2)
			say(j, "[%d,|-1,%d]", m->map[d][0], m->map[d][1]);
		else
			say(j, "[%d,|%d,%d]", m->map[d][0], m->map[d][1],
			    m->map[d][2]);
	}
	say(j, "]");
}

static void say_param(struct job *j, const struct made *m, uint32_t i)
{
	uint32_t dims[3], ranks[64];

	for (uint32_t d = 0; d < m->n_dims; d++)
		dims[d] = m->split[d] * (d + 2);
	for (uint32_t p = 0; p < j->ranks; p++)
		ranks[p] = m->stage * j->ranks + p;
	say(j, "%s|\"p.%u\":|{\"properties\":{\"dtype\":|\"%s\",", i ? "," : "",
	    i, below(2) ? "float32" : "Float32");
	say_list(j, "replica_id", ranks, j->ranks);
	say(j, "},\"layout\":{");
	say_list(j, "rank_list", ranks, j->ranks);
	say(j, ",");
	say_map(j, m);
	say(j, ",");
	say_list(j, "device_matrix", j->mesh, j->n_mesh);
	say(j, "},\"chunk\":[|{\"local_shape\":[],|\"global_offset\":[|%u|]}],",
	    m->n_slices - 1);
	say_list(j, "global_shape", dims, m->n_dims);
	say(j, "|}");
}

static void say_slice(struct job *j, const struct made *m, uint32_t i,
		      uint32_t slice)
{
	uint32_t group[64], n = 0;

	for (uint32_t p = 0; p < j->ranks; p++)
		if (m->slice[p] == slice)
			group[n++] = m->stage * j->ranks + p;
	say(j, "%s|\"('p.%u', (%u,))\": [", i || slice ? "," : "", i, slice);
	for (uint32_t g = 0; g < (j->redundant ? n : 1); g++) {
		say(j, "%s|{\"storage_rank\":|%u,\"file_name\":\"f%u\",",
		    g ? "," : "", group[g], group[g]);
		say_list(j, "rank_group", group, n);
		say(j, "|}");
	}
	say(j, "|]");
}

static void assert_made(const struct job *j, const struct made *m,
			const struct rsh_ckpt2_param *p)
{
	assert_int_equal(p->dtype, RSH_DTYPE_FLOAT32);
	assert_int_equal(p->n_slices, m->n_slices);
	assert_int_equal(p->n_stored, m->n_slices);
	assert_int_equal(p->n_dims, m->n_dims);
	assert_int_equal(p->layout->n_mesh, j->n_mesh);
	assert_memory_equal(p->layout->mesh, j->mesh, j->n_mesh * 4);
	assert_int_equal(p->layout->n_map, m->n_dims);
	for (uint32_t d = 0; d < m->n_dims; d++) {
		assert_int_equal(p->dims[d], m->split[d] * (d + 2));
		assert_int_equal(p->layout->map[d].n, m->n_map[d]);
		for (uint32_t k = 0; k < m->n_map[d]; k++)
			assert_int_equal(p->layout->map[d].axes[k],
					 m->map[d][k]);
	}
	assert_int_equal(p->ranks->n, j->ranks);
	assert_int_equal(p->ranks->ranks[0], m->stage * j->ranks);
}

/* What is kept of it says the same. */
static void assert_kept(const struct rsh_ckpt2 *c)
{
	cleanup_buffer struct buffer b = { NULL, 0 };
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_byte_source src;
	struct rsh_ckpt2 *k;
	char *text;

	assert_int_equal(rsh_ckpt2_keep(c, &text, &b.len), 0);
	b.data = (uint8_t *)text;
	src = buffer_source(&b);
	if (rsh_ckpt2_parse_kept(&src, &k, &err))
		fail_msg("%s\n%s", err.text, text);
	assert_int_equal(k->n_params, c->n_params);
	assert_int_equal(k->n_files, c->n_files);
	assert_int_equal(k->n_ranks, c->n_ranks);
	for (uint32_t i = 0; i < c->n_files; i++) {
		assert_string_equal(k->files[i].name, c->files[i].name);
		assert_int_equal(k->files[i].rank, c->files[i].rank);
	}
	for (uint32_t i = 0; i < c->n_params; i++) {
		const struct rsh_ckpt2_param *p = &c->params[i];
		const struct rsh_ckpt2_param *q = &k->params[i];

		assert_string_equal(q->name, p->name);
		assert_int_equal(q->dtype, p->dtype);
		assert_int_equal(q->n_dims, p->n_dims);
		assert_memory_equal(q->dims, p->dims, p->n_dims * 8);
		assert_int_equal(q->n_slices, p->n_slices);
		assert_int_equal(q->n_stored, p->n_stored);
		assert_int_equal(q->ranks->n, p->ranks->n);
		assert_memory_equal(q->ranks->ranks, p->ranks->ranks,
				    p->ranks->n * 4);
		assert_int_equal(!q->layout, !p->layout);
		assert_true(!p->layout ||
			    (q->layout->nested == p->layout->nested &&
			     q->layout->n_map == p->layout->n_map));
	}
	rsh_ckpt2_free(k);
}

static void assert_made_job(void)
{
	struct job j = { .text = { NULL, 0 } };
	uint32_t n = 1 + below(6), top = 0;
	struct made made[6];
	struct rsh_ckpt2 *c;
	struct rsh_error err = RSH_ERROR_INIT;

	make_job(&j);
	say(&j, "{|\"state_dict_metadata\": {");
	for (uint32_t i = 0; i < n; i++) {
		make_map(&j, &made[i]);
		say_param(&j, &made[i], i);
		if (made[i].stage > top)
			top = made[i].stage;
	}
	say(&j, "},|\"storage_data\": {");
	for (uint32_t i = 0; i < n; i++)
		for (uint32_t k = 0; k < made[i].n_slices; k++)
			say_slice(&j, &made[i], i, k);
	say(&j, "}|}");
	if (parse(j.text.data, j.text.len, &c, &err))
		fail_msg("%s\n%.*s", err.text, (int)j.text.len,
			 (char *)j.text.data);
	assert_int_equal(c->n_params, n);
	assert_int_equal(c->n_ranks, (top + 1) * j.ranks);
	for (uint32_t i = 0; i < n; i++)
		assert_made(&j, &made[i], &c->params[i]);
	assert_kept(c);
	for (uint32_t i = 1; i < c->n_files; i++)
		assert_true(strcmp(c->files[i - 1].name, c->files[i].name) < 0);
	rsh_ckpt2_free(c);
	buffer_free(&j.text);
}

TEST(test_made_jobs)
{
	for (int i = 0; i < 2000; i++)
		assert_made_job();
}

/* Windows end anywhere in a file of several. */
TEST(test_many_windows)
{
	struct job j = { .text = { NULL, 0 }, .indented = true };
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_byte_source src;
	struct rsh_ckpt2 *c;
	const uint32_t n = 9001;

	j.text.data = malloc(1);
	say(&j, "{" DESCRIBED(W));
	for (uint32_t i = 0; i < n; i++)
		say(&j, ",|\"%0*u\":|{\"a\\\\\": [-1.5e7, \"%u\\\"\"] }",
		    (int)(i % 200) + 1, i, i);
	say(&j, "," STORAGE(W_0 "," W_1) "}");
	src = buffer_source(&j.text);
	assert_true(src.size > 1u << 20);
	assert_good(rsh_ckpt2_parse(&src, &c, &err), err);
	assert_int_equal(c->params[0].n_stored, 2);
	rsh_ckpt2_free(c);
	buffer_free(&j.text);
}

TEST(test_refused_kept)
{
#define KEPT(rest) \
	"{\"state_dict_metadata\":{\"w\":{\"global_shape\":[4,3]," rest "}}," \
	"\"files\":{\"f\":0}}"
	static const char *const texts[][2] = {
		{ SMALL, "it has no \"files\"" },
		{ KEPT("\"layout\":0"), "out of range" },
		{ KEPT("\"layout\":null},\"v\":{\"layout\":0"),
		  "parameter 0 has no layout" },
		{ KEPT("\"layout\":null,\"stored\":2"), "more slices" },
		{ KEPT("\"layout\":null,\"stored\":1"), "no rank holds it" },
		{ KEPT("\"layout\":null,\"holders\":[1]"), "no rank holds it" },
		{ KEPT("\"layout\":" LAYOUT ",\"holders\":[1]"),
		  "it has a layout, and holders" },
		{ "{\"files\":{\"f\":0,\"f\":1},"
		  "\"state_dict_metadata\":{\"w\":{\"global_shape\":[],"
		  "\"layout\":null}}}", "of rank 0, and of 1" },
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct buffer b = { NULL, 0 };
		struct rsh_error err = RSH_ERROR_INIT;
		struct rsh_byte_source src;
		struct rsh_ckpt2 *c;

		buffer_append(&b, texts[i][0], strlen(texts[i][0]));
		src = buffer_source(&b);
		assert_int_equal(rsh_ckpt2_parse_kept(&src, &c, &err),
				 -EBADMSG);
		if (!strstr(err.text, texts[i][1]))
			fail_msg("%s: %s", texts[i][0], err.text);
		buffer_free(&b);
	}
}

/* ---- names ---- */

static void assert_name(const char *name, bool opt, uint32_t rank, uint32_t of,
			size_t n_prefix)
{
	struct rsh_ckpt2_name out;

	if (!rsh_ckpt2_name_parse(name, &out))
		fail_msg("%s", name);
	assert_int_equal(out.opt, opt);
	assert_int_equal(out.rank, rank);
	assert_int_equal(out.of, of);
	assert_int_equal(out.n_prefix, n_prefix);
}

TEST(test_names)
{
	static const char *const none[] = {
		"model-0000003.safetensors", "-model-1-2.safetensors",
		"amodel-1-2.safetensors", "model-1-2.safetensors.tmp",
		"model-1-.safetensors", "model--1-2.safetensors", "",
		"model-1-4294967296.safetensors", ".safetensors",
		"model-00001-of-00002.safetensors", "1-2.safetensors",
	};
	struct rsh_ckpt2_name out;

	assert_name("model-0000003-0000008.safetensors", false, 3, 8, 0);
	assert_name("my-opt-7b-opt-0000007-0000008.safetensors", true, 7, 8, 9);
	assert_name("a-model-b-model-0-1.safetensors", false, 0, 1, 9);
	assert_name("opt-model-0-00000000001.safetensors", false, 0, 1, 3);
	assert_name("opt-4294967295-10000000.safetensors", true, UINT32_MAX,
		    10000000, 0);
	for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++)
		assert_false(rsh_ckpt2_name_parse(none[i], &out));
}

TEST(test_steps)
{
	static const char *const none[] = {
		"iteration_", "iteration_0000008", "iteration_000000008",
		"iteration_0000000x", "iteration_00000008.tmp", "00000008",
		"iteration_18446744073709551616", "iteration_-0000008",
	};
	uint64_t step;

	assert_true(rsh_ckpt2_step_parse("iteration_00000008", &step));
	assert_int_equal(step, 8);
	assert_true(rsh_ckpt2_step_parse("iteration_100000007", &step));
	assert_int_equal(step, 100000007);
	for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++)
		assert_false(rsh_ckpt2_step_parse(none[i], &step));
}

TEST(test_tracker)
{
	static const char *const none[] = {
		"", " ", "release", "-8", "+8", "8x", "8 9", "0x8",
		"18446744073709551616",
	};
	uint64_t step = 0;

	assert_true(rsh_tracker_parse("8", &step));
	assert_int_equal(step, 8);
	assert_true(rsh_tracker_parse(" \t00000012\r\n", &step));
	assert_int_equal(step, 12);
	for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++)
		assert_false(rsh_tracker_parse(none[i], &step));
}

TEST(test_is_metadata)
{
	static const char *const none[] = {
		"", "{", "{{\"storage_data\"", "\"storage_data\"", "[]",
		"{\"parallel_layout_item\": {}}", "{\"storage_dat",
	};

	assert_true(rsh_ckpt2_is_metadata(SMALL, strlen(SMALL)));
	assert_true(rsh_ckpt2_is_metadata(" {\n    \"storage_data\"", 21));
	for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++)
		assert_false(rsh_ckpt2_is_metadata(none[i], strlen(none[i])));
}
