/* SPDX-License-Identifier: Apache-2.0 */
/* Quantised models of which nothing but config.json, names, types and shapes
 * exists: what becomes of them, and what is wrong with them. */
#include "weights_support.h"

#define FP8 RSH_DTYPE_FLOAT8E4M3FN
#define E8M0 RSH_DTYPE_FLOAT8E8M0
#define F4 RSH_DTYPE_FLOAT4X2
#define BF16 RSH_DTYPE_BFLOAT16
#define F16 RSH_DTYPE_FLOAT16
#define F32 RSH_DTYPE_FLOAT32
#define I8 RSH_DTYPE_INT8
#define U8 RSH_DTYPE_UINT8
#define I32 RSH_DTYPE_INT32
#define I64 RSH_DTYPE_INT64

#define QUANTISED(keys) "{\"quantization_config\":{" keys "}}"
#define METHOD(name) "\"quant_method\":\"" name "\""
#define CT(weights)                                                       \
	QUANTISED(METHOD("compressed-tensors") ",\"config_groups\":{\"a\":{" \
		  "\"weights\":{" weights "}}}")
#define BLOCKS ",\"weight_block_size\":[4,8]"

/* A dimension of no elements, since 0 ends the list. */
#define EMPTY UINT64_MAX

struct stored {
	const char *name;
	enum rsh_dtype dtype;
	uint64_t dims[4]; /* up to the first 0 */
};

/* What weight_shape has, as Int32 or Int64. */
struct shape {
	uint64_t rows, columns;
};

static int load_shape(void *ctx, const struct rsh_catalogue *c,
		      const struct rsh_tensor *t, uint8_t *to, size_t bytes,
		      struct rsh_error *err)
{
	const struct shape *s = ctx;

	(void)c;
	(void)t;
	(void)err;
	assert_true(bytes == 8 || bytes == 16);
	memcpy(to, &s->rows, bytes / 2);
	memcpy(to + bytes / 2, &s->columns, bytes / 2);
	return 0;
}

struct dense_case {
	const char *config; /* NULL: there is none */
	struct stored in[6];
	/* What is shown, as "NAME dims", or words of the sentence. */
	const char *out;
	int rc;
	bool itself; /* without --dequantize */
	struct shape shape;
};

/* A row of what is refused: the config, words of the sentence, the tensors. */
#define WRONG(config, said, ...) \
	{ config, { __VA_ARGS__ }, said, -EINVAL, false, { 0, 0 } }

static void dense_begin(struct model *m, const struct dense_case *k)
{
	model_begin(m, "a = b\n", k->config);
	for (size_t i = 0; i < 6 && k->in[i].name; i++) {
		uint64_t dims[4];
		uint32_t n = 0;

		for (; n < 4 && k->in[i].dims[n]; n++)
			dims[n] = k->in[i].dims[n] == EMPTY ?
					  0 : k->in[i].dims[n];
		model_add(m, k->in[i].name, k->in[i].dtype, n, dims, false);
	}
}

static void dense_run(const struct dense_case *k)
{
	char text[1024] = "", dims[160];
	struct rsh_offers io;
	struct rsh_dequantise o = {
		.type = k->itself ? RSH_DTYPE_UNKNOWN : RSH_DTYPE_FLOAT16,
		.ctx = (void *)(uintptr_t)&k->shape,
		.load = k->shape.rows ? load_shape : NULL,
	};
	FREED_BY(model_end) struct model m;
	int rc;

	dense_begin(&m, k);
	o.config = m.config;
	io = (struct rsh_offers){ m.cat, m.in, m.n };
	rc = rsh_weights_dequantise(&o, &m.arena, &io, &m.err);
	if (rc != k->rc || (rc && !strstr(m.err.text, k->out)))
		fail_msg("%d \"%s\", wanted %d \"%s\"", rc, m.err.text, k->rc,
			 k->out);
	for (uint32_t i = 0; rc == 0 && i < io.n; i++)
		snprintf(text + strlen(text), sizeof(text) - strlen(text),
			 "%s%s %s", i ? " " : "",
			 rsh_names_text(m.names, io.v[i].name),
			 rsh_dims_text(io.v[i].dims, io.v[i].n_dims, dims,
				       sizeof(dims)));
	if (rc == 0)
		assert_string_equal(text, k->out);
}

static void dense_all(const struct dense_case *k, size_t n)
{
	for (size_t i = 0; i < n; i++)
		dense_run(&k[i]);
}
#define DENSE_ALL(k) dense_all(k, sizeof(k) / sizeof((k)[0]))

/* ---- what becomes of them ---- */

TEST(test_made)
{
	static const struct dense_case cases[] = {
		{ QUANTISED(METHOD("fp8") BLOCKS),
		  { { "a.weight", FP8, { 6, 9 } },
		    { "a.weight_scale_inv", F32, { 2, 2 } },
		    { "a.activation_scale", F32, { 1 } },
		    { "b.activation_scale", F32, { 1 } },
		    { "n.weight", BF16, { 6 } } },
		  "a.weight [6,9] b.activation_scale [1] n.weight [6]", 0,
		  false, { 0, 0 } },
		/* The scales of a cache of keys and values are left out beside
		 * projections that were quantised. */
		{ QUANTISED(METHOD("fp8") BLOCKS),
		  { { "l.self_attn.q_proj.weight", FP8, { 6, 9 } },
		    { "l.self_attn.q_proj.weight_scale_inv", F32, { 2, 2 } },
		    { "l.self_attn.q_scale", F32, { 1 } },
		    { "l.self_attn.k_scale", F32, { 1 } },
		    { "l.self_attn.v_scale", F32, { 1 } } },
		  "l.self_attn.q_proj.weight [6,9]", 0, false, { 0, 0 } },
		{ QUANTISED(METHOD("fp8") BLOCKS),
		  { { "n.weight", BF16, { 6, 9 } }, { "n.scale", F32, { 9 } },
		    { "m.scale", F32, { 2, 2 } } },
		  "n.weight [6,9] n.scale [9] m.scale [2,2]", 0, false,
		  { 0, 0 } },
		{ QUANTISED(METHOD("fp8") BLOCKS),
		  { { "w.scale", E8M0, { 3, 2 } }, { "w.weight", I8, { 3, 32 } },
		    { "u.weight", F4, { 3, 16 } }, { "u.scale", E8M0, { 3, 1 } } },
		  "w.weight [3,64] u.weight [3,32]", 0, false, { 0, 0 } },
		{ QUANTISED(METHOD("mxfp8")),
		  { { "w", FP8, { 3, 64 } }, { "w_scale_inv", U8, { 3, 2 } } },
		  "w [3,64]", 0, false, { 0, 0 } },
		{ QUANTISED(METHOD("mxfp4")),
		  { { "e_blocks", U8, { 2, 5, 3, 16 } },
		    { "e_scales", U8, { 2, 5, 3 } } },
		  "e [2,96,5]", 0, false, { 0, 0 } },
		{ CT("\"num_bits\":4"),
		  { { "a.weight_packed", I32, { 5, 5 } },
		    { "a.weight_scale", BF16, { 5, 1 } },
		    { "a.weight_shape", I64, { 2 } },
		    { "a.weight_zero_point", I32, { 1, 1 } } },
		  "a.weight [5,37]", 0, false, { 5, 37 } },
		{ CT("\"num_bits\":8"),
		  { { "a.weight_packed", I32, { 5, 10 } },
		    { "a.weight_scale", BF16, { 5, 1 } },
		    { "a.weight_shape", I32, { 2 } } },
		  "a.weight [5,37]", 0, false, { 5, 37 } },
		{ CT("\"num_bits\":4"),
		  { { "a.weight_packed", U8, { 3, 16 } },
		    { "a.weight_scale", FP8, { 3, 2 } },
		    { "a.weight_global_scale", F32, { 1 } },
		    { "a.input_global_scale", F32, { 1 } } },
		  "a.weight [3,32]", 0, false, { 0, 0 } },
		{ QUANTISED(METHOD("gptq") ",\"bits\":4"),
		  { { "a.qweight", I32, { 4, 16 } },
		    { "a.scales", F16, { 3, 16 } },
		    { "a.qzeros", I32, { 3, 2 } }, { "a.g_idx", I32, { 32 } },
		    { "a.bias", F16, { 16 } } },
		  "a.weight [16,32] a.bias [16]", 0, false, { 0, 0 } },
		{ QUANTISED(METHOD("awq") ",\"bits\":4,\"group_size\":16"),
		  { { "a.qweight", I32, { 40, 2 } },
		    { "a.scales", F16, { 3, 16 } },
		    { "a.qzeros", I32, { 3, 2 } } },
		  "a.weight [16,40]", 0, false, { 0, 0 } },
		/* By itself only what is quantised changes. */
		{ "{}", { { "a.weight", FP8, { 6, 9 } } }, "a.weight [6,9]", 0,
		  true, { 0, 0 } },
	};

	DENSE_ALL(cases);
}

static int load_nothing(void *ctx, const struct rsh_catalogue *c,
			const struct rsh_tensor *t, uint8_t *to, size_t bytes,
			struct rsh_error *err)
{
	fail_msg("weight_shape is read");
	return load_shape(ctx, c, t, to, bytes, err);
}

/* In a model of many tensors weight_shape is read only where the number of
 * groups does not tell whether the last word of a row has padding. */
TEST(test_many_weights)
{
	static const struct {
		uint64_t rows, words, groups;
		struct shape shape; /* 0: it is not read */
		uint64_t columns;
	} v[] = {
		{ 8, 3, 1, { 8, 20 }, 20 }, { 8, 8, 1, { 8, 57 }, 57 },
		{ 3, 8, 8, { 0, 0 }, 64 }, { 8, 8, 8, { 0, 0 }, 64 },
		{ 7, 8, 7, { 7, 63 }, 63 }, { 8, 8, 9, { 8, 63 }, 63 },
	};

	for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); i++) {
		const struct dense_case k = {
			CT("\"num_bits\":4"),
			{ { "a.weight_packed", I32, { v[i].rows, v[i].words } },
			  { "a.weight_scale", BF16,
			    { v[i].rows, v[i].groups } },
			  { "a.weight_shape", I64, { 2 } } },
			NULL, 0, false, v[i].shape
		};
		const bool loads = v[i].shape.rows;
		FREED_BY(model_end) struct model m;
		struct rsh_dequantise o = {
			.type = F16, .ctx = (void *)(uintptr_t)&k.shape,
			.load = loads ? load_shape : load_nothing,
		};
		struct rsh_offers io;
		char name[32];

		dense_begin(&m, &k);
		for (unsigned n = 0; n < 4096; n++) {
			snprintf(name, sizeof(name), "n%u", n);
			model_add(&m, name, F16, 1, &(uint64_t){ 1 }, false);
		}
		o.config = m.config;
		io = (struct rsh_offers){ m.cat, m.in, m.n };
		assert_good(rsh_weights_dequantise(&o, &m.arena, &io, &m.err),
			    m.err);
		assert_int_equal(io.v[0].dims[0], v[i].rows);
		assert_int_equal(io.v[0].dims[1], v[i].columns);
	}
}

/* ---- what is wrong ---- */

TEST(test_config_wrong)
{
	static const struct dense_case cases[] = {
		WRONG(NULL, "--dequantize needs a config.json with "
		      "\"quantization_config\", but there is none: use "
		      "--config", { "a", BF16, { 1 } }),
		WRONG("{}", "\"quantization_config\", but C has none",
		      { "a", BF16, { 1 } }),
		WRONG(QUANTISED("\"x\":1"),
		      "\"quantization_config\" has no \"quant_method\"",
		      { "a", BF16, { 1 } }),
		{ QUANTISED(METHOD("hqq")), { { "a", BF16, { 1 } } },
		  "\"quant_method\" \"hqq\" is not supported by --dequantize",
		  -ENOTSUP, false, { 0, 0 } },
		{ QUANTISED(METHOD("hqq")),
		  { { "a.weight_packed", I32, { 1, 1 } } },
		  "\"quant_method\" \"hqq\" is not supported by --dequantize",
		  -ENOTSUP, true, { 0, 0 } },
		{ "{}", { { "a.weight", I32, { 6, 4 } } },
		  "a.weight is Int32 and looks quantised, but no config.json "
		  "has a \"quantization_config\" that says how", -ENOTSUP,
		  true, { 0, 0 } },
		/* Weights may be packed under any name. */
		{ QUANTISED(METHOD("other")), { { "a.weight", BF16, { 6 } } },
		  "\"quant_method\" \"other\" is not supported by "
		  "--dequantize", -ENOTSUP, true, { 0, 0 } },
		{ QUANTISED(METHOD("fp8") ",\"rotation\":\"r1\""),
		  { { "a", BF16, { 1 } } },
		  "C: \"rotation\" of \"quantization_config\" is set, and "
		  "--dequantize does not know what it changes in the model",
		  -ENOTSUP, true, { 0, 0 } },
		{ QUANTISED(METHOD("gptq") ",\"bits\":8"),
		  { { "a", BF16, { 1 } } },
		  "C: gptq of 8 bits is not supported, only of 4", -ENOTSUP,
		  false, { 0, 0 } },
		{ QUANTISED(METHOD("awq") ",\"bits\":4,\"version\":\"gemv\""),
		  { { "a", BF16, { 1 } } },
		  "C: version \"gemv\" of awq is not supported", -ENOTSUP,
		  false, { 0, 0 } },
		{ CT("\"num_bits\":2"),
		  { { "a.weight_packed", I32, { 5, 5 } },
		    { "a.weight_scale", BF16, { 5, 1 } },
		    { "a.weight_shape", I32, { 2 } } },
		  "C: no \"num_bits\" is 4 or 8", -ENOTSUP, false, { 0, 0 } },
	};

	DENSE_ALL(cases);
}

/* Unknown keys with a value may change the elements; without one they change
 * nothing. */
TEST(test_unknown_keys)
{
	static const struct {
		const char *value;
		bool is_set;
	} rows[] = {
		{ "null", false }, { "false", false }, { "\"\"", false },
		{ "[]", false }, { "{}", false }, { "true", true },
		{ "0", true }, { "1", true }, { "\"r\"", true },
		{ "[null]", true }, { "[1,2]", true }, { "{\"a\":null}", true },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char config[256];
		struct dense_case c = {
			config, { { "a", BF16, { 1 } } }, "a [1]", 0, true,
			{ 0, 0 },
		};

		snprintf(config, sizeof(config),
			 QUANTISED(METHOD("fp8") ",\"rotation\":%s"),
			 rows[i].value);
		if (rows[i].is_set) {
			c.out = "C: \"rotation\" of \"quantization_config\" is "
				"set, and --dequantize does not know what it "
				"changes in the model";
			c.rc = -ENOTSUP;
		}
		dense_run(&c);
	}
}

TEST(test_fp8_wrong)
{
	static const struct dense_case cases[] = {
		WRONG(QUANTISED(METHOD("fp8") BLOCKS),
		      "a.weight is Float8E4M3FN and has no scales",
		      { "a.weight", FP8, { 6, 9 } }),
		WRONG(QUANTISED(METHOD("fp8") BLOCKS),
		      "a.weight is Float4E2M1FNx2 and has no scales",
		      { "a.weight", F4, { 6, 16 } }),
		WRONG(QUANTISED(METHOD("fp8") BLOCKS),
		      "is not of the type and shape that scales of a.weight "
		      "in blocks of 4 x 8 have", { "a.weight", FP8, { 6, 9 } },
		      { "a.weight_scale_inv", F32, { 3, 2 } }),
		WRONG(QUANTISED(METHOD("fp8") BLOCKS),
		      "is not of the type and shape",
		      { "a.weight", FP8, { 6, 9 } },
		      { "a.weight_scale_inv", I32, { 2, 2 } }),
		WRONG(QUANTISED(METHOD("fp8")),
		      "a.weight_scale is Float32 [6,2], which is not how "
		      "scales of a.weight of shape [6,9] are stored",
		      { "a.weight", FP8, { 6, 9 } },
		      { "a.weight_scale", F32, { 6, 2 } }),
		WRONG(QUANTISED(METHOD("fp8") BLOCKS),
		      "is quantised, and has 3 dimensions instead of 2",
		      { "a.weight", FP8, { 2, 6, 9 } },
		      { "a.weight_scale_inv", F32, { 2, 2, 2 } }),
		WRONG(QUANTISED(METHOD("fp8") BLOCKS),
		      "scales of a.weight in blocks of 1 x 32 have",
		      { "a.weight", I8, { 6, 9 } },
		      { "a.weight_scale", F32, { 6, 1 } }),
		WRONG(QUANTISED(METHOD("fp8") BLOCKS),
		      "a.scale is there, but its quantised weight is missing "
		      "or has another type", { "a.weight", BF16, { 6, 9 } },
		      { "a.scale", F32, { 2, 2 } }),
		WRONG(QUANTISED(METHOD("fp8") BLOCKS),
		      "a.scale is there, but its quantised weight is missing",
		      { "a.scale", E8M0, { 2, 2 } }),
		/* MiMo's scales of blocks that sharding has cut. */
		WRONG(QUANTISED(METHOD("fp8")
				",\"weight_block_size\":[128,128]"),
		      "blocks of 128 x 128 have",
		      { "qkv.weight", FP8, { 13568, 4096 } },
		      { "qkv.weight_scale_inv", F32, { 108, 32 } }),
	};

	DENSE_ALL(cases);
}

TEST(test_packed_wrong)
{
	static const struct dense_case cases[] = {
		WRONG(QUANTISED(METHOD("mxfp4")),
		      "e_blocks is quantised, and e_scales is not in the "
		      "source", { "e_blocks", U8, { 2, 5, 3, 16 } }),
		WRONG(QUANTISED(METHOD("mxfp4")),
		      "e_blocks does not have blocks of 16 bytes, as mxfp4 has",
		      { "e_blocks", U8, { 2, 5, 3, 8 } }),
		WRONG(QUANTISED(METHOD("mxfp4")),
		      "scales of e_blocks in blocks of 1 x 32",
		      { "e_blocks", U8, { 2, 5, 3, 16 } },
		      { "e_scales", U8, { 2, 5, 4 } }),
		WRONG(QUANTISED(METHOD("mxfp4")),
		      "e_blocks becomes e, which is in the source as well",
		      { "e_blocks", U8, { 2, 5, 3, 16 } },
		      { "e_scales", U8, { 2, 5, 3 } }, { "e", BF16, { 1 } }),
		WRONG(CT("\"num_bits\":4"),
		      "a.weight_packed is quantised, and a.weight_shape is "
		      "not in the source", { "a.weight_packed", I32, { 5, 5 } },
		      { "a.weight_scale", BF16, { 5, 1 } }),
		WRONG(CT("\"num_bits\":4"),
		      "and a.weight_scale is not in the source",
		      { "a.weight_packed", I32, { 5, 5 } }),
		WRONG(CT("\"num_bits\":4"),
		      "a.weight_shape is not two integers",
		      { "a.weight_packed", I32, { 5, 5 } },
		      { "a.weight_scale", BF16, { 5, 1 } },
		      { "a.weight_shape", F32, { 2 } }),
		{ CT("\"num_bits\":4"),
		  { { "a.weight_packed", I32, { 5, 5 } },
		    { "a.weight_scale", BF16, { 5, 1 } },
		    { "a.weight_shape", I32, { 2 } } },
		  "a.weight_shape is [5,41], which does not fit "
		  "a.weight_packed of 5 rows of 5 words with integers of 4 or "
		  "8 bits", -EINVAL, false, { 5, 41 } },
		{ CT("\"num_bits\":4"),
		  { { "a.weight_packed", I32, { 5, 5 } },
		    { "a.weight_scale", BF16, { 5, 1 } },
		    { "a.weight_shape", I32, { 2 } },
		    { "a.weight_g_idx", I32, { 37 } } },
		  "a.weight_g_idx orders the columns of its weight, which is "
		  "not supported", -ENOTSUP, false, { 0, 0 } },
		WRONG(CT("\"num_bits\":4"),
		      "a.weight_zero_point is Int32 [5,1], which does not fit "
		      "a.weight_packed: it must be Int32 [1,1]",
		      { "a.weight_packed", I32, { 5, 5 } },
		      { "a.weight_scale", BF16, { 5, 1 } },
		      { "a.weight_shape", I32, { 2 } },
		      { "a.weight_zero_point", I32, { 5, 1 } }),
		WRONG(CT("\"num_bits\":4"),
		      "a.weight_global_scale is not one Float32 of shape [1]",
		      { "a.weight_packed", U8, { 3, 16 } },
		      { "a.weight_scale", FP8, { 3, 2 } },
		      { "a.weight_global_scale", F32, { 0 } }),
		WRONG(CT("\"num_bits\":4"),
		      "a.weight_global_scale is not one Float32 of shape [1]",
		      { "a.weight_packed", U8, { 3, 16 } },
		      { "a.weight_scale", FP8, { 3, 2 } },
		      { "a.weight_global_scale", BF16, { 1 } }),
		WRONG(CT("\"num_bits\":4"),
		      "a.weight_scale is Float8E4M3FN [3,1], which does not "
		      "fit a.weight_packed: it must be Float8E4M3FN [3,2]",
		      { "a.weight_packed", U8, { 3, 16 } },
		      { "a.weight_scale", FP8, { 3, 1 } },
		      { "a.weight_global_scale", F32, { 1 } }),
		WRONG(CT("\"num_bits\":4"),
		      "a.weight_scale is UInt8 [3,2], which does not fit "
		      "a.weight_packed: it must be UInt8 [3,1]",
		      { "a.weight_packed", U8, { 3, 16 } },
		      { "a.weight_scale", U8, { 3, 2 } }),
		WRONG(CT("\"num_bits\":4"),
		      "has rows of 18 elements, which are not blocks of 32",
		      { "a.weight_packed", U8, { 3, 9 } },
		      { "a.weight_scale", U8, { 3, 1 } }),
		WRONG(CT("\"num_bits\":8"),
		      "a.weight is Int8, which is not how compressed-tensors "
		      "weights are quantised", { "a.weight", I8, { 3, 9 } },
		      { "a.weight_scale", BF16, { 3, 1 } }),
		WRONG(CT("\"num_bits\":4"),
		      "a.weight_packed is BFloat16, which is not how "
		      "compressed-tensors weights are quantised",
		      { "a.weight_packed", BF16, { 5, 5 } },
		      { "a.weight_scale", BF16, { 5, 1 } }),
		WRONG(CT("\"num_bits\":4"),
		      "a.weight is Int32, which is not how compressed-tensors "
		      "weights are quantised", { "a.weight", I32, { 5, 5 } },
		      { "a.scale", BF16, { 5, 1 } }),
		{ CT("\"num_bits\":4,\"group_size\":16"),
		  { { "a.weight_packed", I32, { 5, 5 } },
		    { "a.weight_scale", BF16, { 5, 2 } },
		    { "a.weight_shape", I32, { 2 } } },
		  "a.weight_packed has 40 columns in 2 groups, and config.json "
		  "has no such \"group_size\"", -EINVAL, false, { 5, 40 } },
		{ CT("\"num_bits\":4,\"group_size\":null"),
		  { { "a.weight_packed", I32, { 5, 5 } },
		    { "a.weight_scale", BF16, { 5, 5 } },
		    { "a.weight_shape", I32, { 2 } } },
		  "a.weight_packed has 40 columns in 5 groups, and config.json "
		  "has no such \"group_size\"", -EINVAL, false, { 5, 40 } },
		WRONG(CT("\"num_bits\":4"),
		      "a.weight_scale is there, but its quantised weight is "
		      "missing or has another type",
		      { "a.weight", BF16, { 5, 40 } },
		      { "a.weight_scale", BF16, { 5, 1 } }),
		WRONG(QUANTISED(METHOD("mxfp4")),
		      "e_scales is there, but its quantised weight is missing",
		      { "e_scales", U8, { 2, 5, 3 } }),
	};

	DENSE_ALL(cases);
}

TEST(test_words_wrong)
{
#define GPTQ QUANTISED(METHOD("gptq") ",\"bits\":4")
#define AWQ QUANTISED(METHOD("awq") ",\"bits\":4,\"group_size\":16")
	static const struct dense_case cases[] = {
		WRONG(GPTQ, "a.qweight is not a matrix of Int32",
		      { "a.qweight", F32, { 4, 16 } }),
		WRONG(GPTQ,
		      "a.qweight is quantised, and a.scales is not in the "
		      "source", { "a.qweight", I32, { 4, 16 } }),
		WRONG(GPTQ, "and a.scales is not a matrix of Float16",
		      { "a.qweight", I32, { 4, 16 } },
		      { "a.scales", F32, { 3, 16 } }),
		WRONG(GPTQ, "has 12 columns, which are not a multiple of 8",
		      { "a.qweight", I32, { 4, 12 } },
		      { "a.scales", F16, { 3, 12 } }),
		WRONG(GPTQ, "and a.g_idx is not in the source",
		      { "a.qweight", I32, { 4, 16 } },
		      { "a.scales", F16, { 3, 16 } },
		      { "a.qzeros", I32, { 3, 2 } }),
		WRONG(GPTQ, "and a.g_idx is not one Int32 for each of its rows",
		      { "a.qweight", I32, { 4, 16 } },
		      { "a.scales", F16, { 3, 16 } },
		      { "a.qzeros", I32, { 3, 2 } },
		      { "a.g_idx", I32, { 31 } }),
		WRONG(AWQ, "a.scales is Float16 [4,16], which does not fit "
		      "a.qweight: it must be Float16 [3,16]",
		      { "a.qweight", I32, { 40, 2 } },
		      { "a.scales", F16, { 4, 16 } },
		      { "a.qzeros", I32, { 4, 2 } }),
		WRONG(AWQ,
		      "a.qzeros is Int32 [3,1], which does not fit a.qweight: "
		      "it must be Int32 [3,2]", { "a.qweight", I32, { 40, 2 } },
		      { "a.scales", F16, { 3, 16 } },
		      { "a.qzeros", I32, { 3, 1 } }),
	};

	DENSE_ALL(cases);
}

TEST(test_empty)
{
	static const struct dense_case cases[] = {
		WRONG(QUANTISED(METHOD("fp8")),
		      "a.weight is quantised, and has no elements",
		      { "a.weight", FP8, { EMPTY, 9 } },
		      { "a.weight_scale", F32, { 1 } }),
		WRONG(QUANTISED(METHOD("mxfp4")),
		      "e_blocks is quantised, and has no elements",
		      { "e_blocks", U8, { 2, 5, EMPTY, 16 } },
		      { "e_scales", U8, { 2, 5, EMPTY } }),
		WRONG(QUANTISED(METHOD("awq") ",\"bits\":4"),
		      "a.scales is Float16 [1,16], which does not fit "
		      "a.qweight: it must be Float16 [0,16]",
		      { "a.qweight", I32, { EMPTY, 2 } },
		      { "a.scales", F16, { 1, 16 } },
		      { "a.qzeros", I32, { 1, 2 } }),
	};

	DENSE_ALL(cases);
}

TEST(test_too_many_blocks)
{
	char text[1024] = "{\"quantization_config\":{\"config_groups\":{";
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_model_config *c;

	for (int i = 0; i < 9; i++)
		snprintf(text + strlen(text), sizeof(text) - strlen(text),
			 "%s\"%d\":{\"weights\":{\"block_structure\":[1,2]}}",
			 i ? "," : "", i);
	strcat(text, "}}}");
	assert_int_equal(rsh_model_config_parse(text, strlen(text), "C", &c,
						&err), -EBADMSG);
	assert_string_equal(err.text, "C: more than 8 sizes of blocks");
}
