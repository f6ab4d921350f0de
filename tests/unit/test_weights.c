/* SPDX-License-Identifier: Apache-2.0 */
/* Which tensors become which, and what is said where that cannot be. */
#include "weights_support.h"

#include <time.h>

#include "rsh/weights/own_adapters.h"

#define HF RSH_SIDE_HF
#define MS RSH_SIDE_MINDSPORE

static const char table[] =
	"let g = kv | heads\n"
	"let r = heads / kv | 1\n"
	"let L = layers\n"
	"embed = emb\n"
	"lm_head = out\n"
	"also m.{L+i}.embed = emb\n"
	"also m.{L+i}.head = out\n"
	"skip m.{l}.rope\n"
	"m.{L+i}.e = mtp.{i}.e\n"
	"under m.{L+i} = mtp.{i}.t\n"
	"under m.{l} = d.{l}\n"
	".q[g r d, h] + .k[g d, h] + .v[g d, h] = .qkv[g (r d | d | d), h]\n"
	".x.{e}.a[f, h] + .x.{e}.b[f, h] = .w1[e h, (f | f)]\n"
	".n = .norm\n";
static const char config[] = "{\"heads\":4,\"kv\":2,\"layers\":11}";

static void assert_made(struct model *m, enum rsh_side from, const char *lines)
{
	char *made;

	assert_good(model_convert(m, from), m->err);
	made = model_made(m);
	assert_string_equal(made, lines);
	free(made);
}

static void assert_converts(const char *t, const char *c, enum rsh_side from,
			    const char *in, const char *out)
{
	FREED_BY(model_end) struct model m;

	model_begin(&m, t, c);
	model_add_lines(&m, in);
	assert_made(&m, from, out);
}

static void assert_refused(const char *t, const char *c, enum rsh_side from,
			   const char *in, const char *words)
{
	FREED_BY(model_end) struct model m;
	int rc;

	model_begin(&m, t, c);
	model_add_lines(&m, in);
	rc = model_convert(&m, from);
	if (rc != -EINVAL || m.err.code != EINVAL ||
	    !strstr(m.err.text, words))
		fail_msg("%s: rc %d, \"%s\"; wanted \"%s\"", in, rc, m.err.text,
			 words);
}

/* ---- what becomes of names ---- */

TEST(test_names)
{
	assert_converts(table, config, HF,
			"m.10.n 3 m.2.n 3 embed 5,3 m.2.rope 7 m.11.embed 5,3 "
			"m.11.n 3 m.11.e 1 lm_head 5,3",
			"d.2.norm 3\nd.10.norm 3\nemb 5,3\nmtp.0.e 1\n"
			"mtp.0.t.norm 3\nout 5,3\n");
	assert_converts(table, config, MS,
			"d.2.norm 3 emb 5,3 mtp.0.t.norm 3 mtp.1.e 1",
			"embed 5,3\nm.2.n 3\nm.11.embed 5,3\nm.11.n 3\n"
			"m.12.e 1\nm.12.embed 5,3\n");
	/* Without layers of prediction there are no copies. */
	assert_converts(table, config, MS, "emb 5,3 out 5,3 d.0.norm 3",
			"embed 5,3\nlm_head 5,3\nm.0.n 3\n");
}

TEST(test_copy_alone)
{
	static const char t[] = "a = c\nalso b = c\nx = y\n";

	assert_converts(t, NULL, HF, "a 3 b 3", "c 3\n");
	assert_refused(t, NULL, HF, "b 3 x 1", "T:2: b is a copy of what "
		       "becomes c, which is not there");
}

/* Each source is a part, at its place: of the experts and of a and b. */
TEST(test_parts_of_several_sources)
{
	FREED_BY(model_end) struct model m;
	bool seen[4] = { false };

	model_begin(&m, table, config);
	model_add_lines(&m, "m.0.x.1.a 3,5 m.0.x.0.a 3,5 m.0.x.0.b 3,5 "
			"m.0.x.1.b 3,5");
	assert_good(model_convert(&m, HF), m.err);
	assert_int_equal(m.n_out, 1);
	assert_int_equal(m.out[0].n_parts, 4);
	for (uint32_t i = 0; i < 4; i++) {
		const struct rsh_recipe_part *p = &m.out[0].parts[i];
		const char *name = rsh_names_text(
			m.names, m.cat->tensors[p->tensor]->name);
		const unsigned e = (unsigned)(name[6] - '0'), b = name[8] == 'b';

		assert_false(seen[2 * e + b]);
		seen[2 * e + b] = true;
		assert_int_equal(p->from[0], 0);
		assert_int_equal(p->from[1], 0);
		/* Rows of the result are those of the experts. */
		assert_int_equal(p->shown_from[0], 5 * e);
		assert_int_equal(p->shown_from[1], 3 * b);
	}
}

TEST(test_odd_numbers)
{
	assert_refused(table, config, HF, "m.01.n 3", "no rule of T names");
	assert_refused(table, config, HF, "m.99999999999999999999.n 3",
		       "no rule of T names");
	assert_refused(table, config, HF, "m..n 3", "no rule of T names");
	assert_refused(table, config, HF, "m.1.nn 3", "no rule of T names");
	assert_refused(table, config, MS, "mtp.18446744073709551615.e 3",
		       "T:9: a number in the name");
	assert_refused(table, NULL, HF, "m.1.n 3", "no config.json says");
	assert_refused(table, NULL, MS, "mtp.1.e 3", "not known or too large");
}

TEST(test_fused)
{
	assert_converts(table, config, HF, "m.0.q 12,5 m.0.k 6,5 m.0.v 6,5",
			"d.0.qkv 24,5\n");
	assert_converts(table, config, MS, "d.0.qkv 24,5",
			"m.0.k 6,5\nm.0.q 12,5\nm.0.v 6,5\n");
	assert_converts(table, config, HF,
			"m.0.x.1.a 3,5 m.0.x.0.a 3,5 m.0.x.0.b 3,5 "
			"m.0.x.1.b 3,5", "d.0.w1 10,6\n");
	assert_refused(table, config, HF, "m.0.q 12,5 m.0.v 6,5",
		       "T:12: m.0.k is missing, which the rule wants beside "
		       "m.0.q");
	assert_refused(table, config, HF, "m.0.x.0.a 3,5 m.0.x.2.a 3,5 "
		       "m.0.x.0.b 3,5 m.0.x.2.b 3,5", "m.0.x.1.a is missing");
	assert_refused(table, config, MS, "d.0.qkv 25,5",
		       "T:12: d.0.qkv has shape [25,5], whose dimension 0 is "
		       "not what the rule says, whatever d is (g 2, r 2)");
	assert_refused(table, config, HF, "m.0.q 12,5 m.0.k 6,5 m.0.v 8,5",
		       "m.0.v has shape [8,5], whose dimension 0");
	assert_refused(table, config, MS, "d.0.qkv 24,5,1",
		       "and the rule has 2 dimensions");
	assert_refused(table, config, MS, "d.0.w1 10,6",
		       "neither `let` nor a shape says what");
	assert_refused(table, NULL, MS, "d.0.w1 10,6",
		       "d.0.w1 (there is no config.json)");
	assert_refused(table, config, HF, "m.0.x.0.a 3,5 m.0.x.0.b 3,5 "
		       "m.0.x.1.a 3,4 m.0.x.1.b 3,5", "[3,4], and m.0.x.0.a");
}

/* Two numbers of a name say together which tensors belong to each other. */
TEST(test_two_numbers)
{
	static const char t[] =
		"p.{l}.{e}.a[f, h] + p.{l}.{e}.b[f, h] = s.{l}.{e}[(f | f), h]\n";

	assert_converts(t, NULL, HF,
			"p.0.1.a 3,5 p.0.0.b 2,5 p.1.0.b 1,5 p.0.0.a 2,5 "
			"p.1.0.a 1,5 p.0.1.b 3,5",
			"s.0.0 4,5\ns.0.1 6,5\ns.1.0 2,5\n");
}

TEST(test_stack_of_config)
{
	static const char t[] = "let e = n\nx.{e}[f] = y[e f]\n";

	assert_converts(t, "{\"n\":2}", MS, "y 6", "x.0 3\nx.1 3\n");
	assert_refused(t, "{\"n\":3}", HF, "x.0 3 x.1 3", "x.2 is missing");
	assert_refused(t, "{\"n\":1}", HF, "x.0 3 x.1 3", "x.1 is one more");
	assert_refused(t, "{\"n\":4}", MS, "y 6", "whatever f is (e 4): e is of \"n\" 4");
	assert_refused(t, "{\"n\":9000000000000}", MS, "y 9000000000000",
		       "more than 524288 tensors");
	assert_refused(t, NULL, HF, "x.0 3 x.99999999 3", "e numbers more");
	assert_refused("let e = n / 2\na = b\n", "{\"n\":3}", HF, "a 1",
		       "T:1: with the numbers of C, e is not an integer "
		       "of 0 or more: it is of \"n\" 3");
}

TEST(test_types)
{
	const uint64_t dims[] = { 2, 2 };
	FREED_BY(model_end) struct model m;

	model_begin(&m, "a[x, y] + b[x, y] = c[(x | x), y]\n", NULL);
	model_add(&m, "a", RSH_DTYPE_BFLOAT16, 2, dims, false);
	model_add(&m, "b", RSH_DTYPE_FLOAT32, 2, dims, false);
	assert_int_equal(model_convert(&m, HF), -EINVAL);
	assert_non_null(strstr(m.err.text, "T:1: b is Float32, and a is "
			       "BFloat16"));
}

TEST(test_made_twice)
{
	assert_refused("a = x\nb = x\n", NULL, HF, "a 1 b 1",
		       "T:2: x is made twice, of a and of b");
}

TEST(test_sizes_of_nothing)
{
	assert_converts("a[x, y] + b[x, z] = c[x, (y | z)]\n", NULL, HF,
			"a 2,0 b 2,3", "c 2,3\n");
	assert_converts("a[x y] = b[y x]\n", "{}", HF, "", "");
	assert_refused("let x = n\na[x y] = b[y, x]\n", "{\"n\":0}", HF, "a 4",
		       "whose dimension 0");
	assert_refused("a[x y z] = b[x, y z]\nlet x = n\nlet y = n\n",
		       "{\"n\":4294967296}", HF, "a 4", "whose dimension 0");
}

/* ---- what no rule names ---- */

TEST(test_unlisted)
{
	FREED_BY(model_end) struct model m;

	model_begin(&m, "a = b\n", NULL);
	model_add_lines(&m, "a 1 adam_m.a 1 z 2");
	m.unlisted = RSH_UNLISTED_COPY;
	assert_made(&m, HF, "adam_m.a 1\nb 1\nz 2\n");
	m.unlisted = RSH_UNLISTED_DROP;
	assert_made(&m, HF, "b 1\n");
	assert_string_equal(m.log, "2 tensors that no rule names are left out "
			    "(adam_m.a and others)\n");
}

/* What has the place of tensors that a rule names is not left out, unless such
 * ones are there. */
TEST(test_unlisted_in_a_place)
{
	static const char t[] = "m.{l}.e.{k}.w = d.{l}.{k}\n"
		"m.{l}.n = d.{l}.n\nq = p\n";
	static const struct {
		const char *in, *words; /* NULL: it is left out */
	} cases[] = {
		{ "m.0.n 1 m.0.e.w 2", "T:1: nothing that the rule names is "
		  "below m.0.e, and m.0.e.w has its place: --unlisted drop "
		  "would leave it out" },
		{ "m.0.n 1 m.0.e.w 2 m.0.e.1.w 1", NULL },
		{ "m.0.n 1 m.0.e.w 2 m.1.e.1.w 1", "below m.0.e" },
		{ "m.0.n 1 m.0.e.w 2 m.0.ee.1.w 1", "below m.0.e" },
		{ "m.0.n 1 m.1.e.3.b 2", "below m.1.e.3" },
		{ "q 1 m.w 2", "below m," }, { "m.0.n 1 m.w 2", NULL },
		{ "m.0.n 1 m.0.f.w 2", NULL }, { "m.0.n 1 m.0.ee.w 2", NULL },
		{ "m.0.n 1 m.0.7.w 2", NULL }, { "m.0.n 1 m.e.w 2", NULL },
		{ "m.0.n 1 m.0.e.1.w.b 2", NULL }, { "m.0.n 1 x.b 2", NULL },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		FREED_BY(model_end) struct model m;
		int rc;

		model_begin(&m, t, NULL);
		model_add_lines(&m, cases[i].in);
		m.unlisted = RSH_UNLISTED_DROP;
		rc = model_convert(&m, HF);
		if (rc != (cases[i].words ? -EINVAL : 0) ||
		    (rc && !strstr(m.err.text, cases[i].words)))
			fail_msg("%s: rc %d, \"%s\"", cases[i].in, rc,
				 m.err.text);
	}
}

TEST(test_state)
{
	static const char in[] = "b 1 adam_m.b 1 adam_v.b 1 global_step";
	struct model m;

	model_begin(&m, "a = b\n", NULL);
	model_add_lines(&m, in);
	assert_made(&m, MS, "a 1\n");
	assert_string_equal(m.log, "3 tensors of an optimizer's state and of "
			    "bookkeeping have no place in Hugging Face's form "
			    "(adam_m.b and others)\n");
	model_end(&m);
	assert_converts("a = b\n", NULL, MS,
			"b 1 optimizer.state.exp_avg.b 1 optim.b 1", "a 1\n");
	assert_converts("state exp. = adam_m.\nstate sq. = adam_v.\na = b\n",
			NULL, MS, in, "a 1\nexp.a 1\nsq.a 1\n");
	assert_converts("state exp. = adam_m.\na = b\n", NULL, HF,
			"a 1 exp.a 1", "adam_m.b 1\nb 1\n");
	model_begin(&m, "state exp. = adam_m.\na = b\n", NULL);
	model_add_lines(&m, in);
	m.leave_states = true;
	assert_made(&m, MS, "a 1\n");
	assert_non_null(strstr(m.log, "1 tensor of an optimizer's state are "
			       "left out: --optimizer keep shows them "
			       "(adam_m.b)"));
	model_end(&m);
	assert_refused("state exp. = adam_m.\na[x] + c[x] = b[(x | x)]\n",
		       NULL, HF, "a 1 c 1 exp.a 1", "T:2: exp.c is missing");
}

/* ---- layers of several kinds ---- */

TEST(test_when)
{
	static const char t[] =
		"let L = n\n"
		"under m.{L+i} = p.{i}\n"
		"under m.{l} = d.{l}\n"
		".q = .qkv\n"
		".g = .gate\n"
		".f = .fc\n"
		"when .g = .gate\n"
		".norm = .apart\n"
		".two[x] + .three[x] = .both[(x | x)]\n"
		"when .f = .fc\n"
		".norm = .fused\n"
		"under m.{l} = d.{l}\n"
		".norm = .other\n";
	static const char c[] = "{\"n\": 4}";

	assert_converts(t, c, HF, "m.0.norm 3 m.0.g 1 m.1.norm 3 m.1.f 1 "
			"m.2.norm 3 m.4.norm 3 m.4.f 1 m.0.two 2 m.0.three 2",
			"d.0.apart 3\nd.0.both 4\nd.0.gate 1\nd.1.fc 1\n"
			"d.1.fused 3\nd.2.other 3\np.0.fc 1\np.0.fused 3\n");
	assert_converts(t, c, MS, "d.0.apart 3 d.0.gate 1 d.1.fused 3 d.1.fc 1 "
			"d.2.other 3 p.0.fused 3 p.0.fc 1",
			"m.0.g 1\nm.0.norm 3\nm.1.f 1\nm.1.norm 3\n"
			"m.2.norm 3\nm.4.f 1\nm.4.norm 3\n");
	assert_converts(t, c, HF, "m.3.norm 3 m.3.q 1",
			"d.3.other 3\nd.3.qkv 1\n");
	assert_refused(t, c, MS, "d.0.fused 3", "no rule of T names tensor "
		       "d.0.fused");
}

TEST(test_when_config)
{
	static const char t[] =
		"under m.{l} = d.{l}\n"
		"when kinds is full and same is true\n"
		".k[x] + again .k[x] = .kv[(x | x)]\n"
		"when kinds is full and same is false\n"
		".k[x] + .v[x] = .kv[(x | x)]\n"
		"when kinds is part and head is tied\n"
		".k[x] = .short[x]\n";
	static const char c[] = "{\"kinds\": [\"full\", \"part\"], "
				"\"same\": true, \"head\": \"tied\"}";
	static const char apart[] = "{\"kinds\": [\"full\", \"part\"], "
				    "\"same\": false, \"head\": \"tied\"}";

	assert_converts(t, c, HF, "m.0.k 3 m.1.k 2", "d.0.kv 6\nd.1.short 2\n");
	assert_converts(t, c, MS, "d.0.kv 6 d.1.short 2", "m.0.k 3\nm.1.k 2\n");
	assert_converts(t, apart, HF, "m.0.k 3 m.0.v 3 m.1.k 2",
			"d.0.kv 6\nd.1.short 2\n");
	assert_converts(t, apart, MS, "d.0.kv 6", "m.0.k 3\nm.0.v 3\n");
	assert_refused(t, c, HF, "m.0.k 3 m.0.v 3", "no rule of T names tensor "
		       "m.0.v");
	assert_refused(t, apart, HF, "m.0.k 3", "m.0.v is missing");
	assert_refused(t, c, MS, "d.0.kv 5", "is not what the rule says");
	assert_refused(t, c, HF, "m.2.k 3", "m.2.k may be meant, but config.json "
		       "does not say what \"kinds\" is there");
	assert_refused("let k = a.*.n | n\nx[k] = y[k]\n",
		       "{\"a\": {\"1\": {\"n\": 1}, \"2\": {\"n\": 2}}, \"n\": 3}", HF,
		       "x 3", "T:1: C has several numbers for "
		       "a.*.n, of which k is one");
	assert_refused("let k = n + a.*.n | n\nx[k] = y[k]\n",
		       "{\"a\": {\"1\": {\"n\": 1}, \"2\": {\"n\": 2}}, \"n\": 3}", HF,
		       "x 3", "T:1: C has several numbers for "
		       "a.*.n, of which k is one");
	assert_refused(t, NULL, HF, "m.0.k 3", "but no config.json says "
		       "what \"kinds\" is there");
}

TEST(test_add)
{
	static const char t[] = "state s. = t.\na = b add 1\nc = d\n";
	struct model m;

	for (int from = 0; from < 2; from++) {
		model_begin(&m, t, NULL);
		model_add_lines(&m, from ? "b 2 d 2" : "a 2 c 2");
		assert_good(model_convert(&m, from ? MS : HF), m.err);
		assert_int_equal(m.n_out, 2);
		assert_int_equal(m.out[0].add, from ? 1 : -1);
		assert_null(rsh_offer_tensor(m.cat, &m.out[0]));
		assert_int_equal(m.out[1].add, 0);
		assert_non_null(rsh_offer_tensor(m.cat, &m.out[1]));
		model_end(&m);
	}
	assert_refused(t, NULL, MS, "b 2 t.b 2", "T:2: t.b is the state of a "
		       "weight to which 1 is added");
	model_begin(&m, "a = b add 1\nc[x] + e[x] = d[(x | x)]\n", NULL);
	model_add_lines(&m, "a 2 c 2 e 2");
	m.in[0].add = m.in[1].add = 1;
	assert_int_equal(model_convert(&m, HF), -EINVAL);
	assert_non_null(strstr(m.err.text, "T:1: 1 was added to a already"));
	m.in[0].add = 0;
	assert_int_equal(model_convert(&m, HF), -EINVAL);
	assert_non_null(strstr(m.err.text, "T:2: 1 was added to c, so it "
			       "cannot be divided"));
	model_end(&m);
}

#define PAD(m, with) "let v = vocab_size\nlet m = " m \
	"\npad b = v m " with "\nstate s. = t.\n"

/* Checks that a matrix is one of the input of so many rows, and after them its
 * last row, or rows of a tensor that no file has. */
static void assert_padded(const struct model *m, const struct rsh_offer *o,
			  uint64_t rows, bool zeros)
{
	unsigned have[16][2] = { 0 };

	for (uint32_t i = 0; i < o->n_parts; i++) {
		const struct rsh_recipe_part *p = &o->parts[i];
		const bool zero = p->tensor != m->in[0].parts->tensor;
		uint64_t n = 1;

		for (uint32_t k = 0; k < p->n_factors; k++)
			n *= p->factors[k].size;
		for (uint64_t e = 0; e < n; e++) {
			uint64_t at[2], in[2], left = e;

			memcpy(at, p->shown_from, sizeof(at));
			memcpy(in, p->from, sizeof(in));
			for (uint32_t k = 0; k < p->n_factors; k++) {
				const struct rsh_factor *f = &p->factors[k];

				at[f->shown_dim] += left % f->size *
						    f->shown_step;
				in[f->dim] += left % f->size * f->step;
				left /= f->size;
			}
			assert_true(at[0] < o->dims[0] && at[1] < 2);
			have[at[0]][at[1]]++;
			assert_int_equal(zero, zeros && at[0] >= rows);
			if (zero)
				continue;
			assert_int_equal(in[0], at[0] < rows ? at[0] :
							       rows - 1);
			assert_int_equal(in[1], at[1]);
		}
	}
	for (uint64_t e = 0; e < 2 * o->dims[0]; e++)
		assert_int_equal(have[e / 2][e % 2], 1);
}

TEST(test_rows_of_padding)
{
	static const char words[] = "{\"vocab_size\": 6}";

	for (int zeros = 0; zeros < 2; zeros++) {
		FREED_BY(model_end) struct model m;

		model_begin(&m, zeros ? PAD("5", "zeros") "a = b\n" :
					PAD("5", "last") "a = b\n", words);
		model_add_lines(&m, "a 6,2");
		assert_made(&m, HF, "b 10,2\n");
		assert_padded(&m, &m.out[0], 6, zeros);
	}
}

TEST(test_padding)
{
	static const char four[] = PAD("4", "zeros") "a = b\n";
	static const char words[] = "{\"vocab_size\": 6}";
	struct model m;

	assert_converts(four, words, HF, "a 6,2 s.a 6", "b 8,2\nt.b 8\n");
	assert_converts(four, words, MS, "b 8,2 t.b 8", "a 6,2\ns.a 6\n");
	assert_converts(four, words, MS, "b 6,2", "a 6,2\n");
	assert_converts(four, NULL, MS, "b 7,2", "a 7,2\n");
	assert_converts(four, NULL, HF, "a 7,2", "b 8,2\n");
	assert_converts(PAD("4", "last") "a = b\n", words, HF, "a 6,2",
			"b 8,2\n");
	assert_converts(PAD("unheard_of", "last") "a = b\n", words, HF,
			"a 5,2", "b 5,2\n");
	/* The source says how many rows there are with padding. */
	model_begin(&m, PAD("unheard_of", "zeros") "a = b\n", words);
	model_add_lines(&m, "b 9,2");
	assert_made(&m, MS, "a 9,2\n");
	m.cat->padded_rows = 8;
	assert_made(&m, MS, "a 9,2\n");
	assert_string_equal(m.log, "");
	m.cat->padded_rows = 9;
	assert_made(&m, MS, "a 6,2\n");
	assert_string_equal(m.log, "1 tensor has rows of padding, which are "
			    "cut off (b)\n");
	model_end(&m);
	assert_refused(four, words, MS, "b 7,2", "T:3: b has 7 rows, and 6 "
		       "rows are padded to 8");
	assert_refused(four, words, HF, "a 5,2", "T:3: b has 5 rows before "
		       "padding, and not 6 (v)");
	assert_refused(four, words, MS, "b", "T:3: b has no rows");
	assert_refused(PAD("0", "zeros") "a = b\n", words, HF, "a 6",
		       "T:3: b cannot be padded to this multiple");
	assert_refused(PAD("100000", "last") "a = b\n", words, HF, "a 6",
		       "T:3: b gets too many copies of its last row");
	assert_refused(PAD("4", "zeros") "a[x] + c[x] = b[(x | x)]\n", words,
		       HF, "a 3 c 3", "T:3: b can only be padded if it is not "
		       "quantised and only renamed");
}

TEST(test_wanted)
{
	FREED_BY(model_end) struct model m;

	model_begin(&m, table, config);
	model_add_lines(&m, "m.0.q 12,5 m.1.n 3 strange 2");
	m.only = "d.1";
	assert_made(&m, HF, "d.1.norm 3\n");
	m.only = "d.0";
	assert_int_equal(model_convert(&m, HF), -EINVAL);
	assert_non_null(strstr(m.err.text, "m.0.k is missing"));
}

/* ---- fp8 ---- */

enum turned { NEITHER, TENSOR, SCALES };

static void add_scaled(struct model *m, const char *name, uint64_t rows,
		       uint64_t columns, uint64_t scale_rows,
		       enum turned turned)
{
	const uint64_t dims[] = { rows, columns }, scales[] = { scale_rows, 1 };
	char text[64];

	snprintf(text, sizeof(text), "%s_scale_inv", name);
	model_add(m, name, RSH_DTYPE_FLOAT8E4M3FN, 2, dims, turned == TENSOR);
	model_add(m, text, RSH_DTYPE_FLOAT32, 2, scales, turned == SCALES);
}

TEST(test_scaled)
{
	static const char fp8[] = "{\"quantization_config\":{\"quant_method\":"
				  "\"fp8\",\"weight_block_size\":[4,8]}}";
	static const char t[] = "n = o\na[x, y] + b[x, y] = c[(x | x), y]\n";
	struct model m;

	model_begin(&m, t, fp8);
	add_scaled(&m, "a", 6, 5, 2, NEITHER);
	add_scaled(&m, "b", 6, 5, 2, NEITHER);
	add_scaled(&m, "n", 3, 3, 1, NEITHER);
	assert_made(&m, HF, "c 12,5\no 3,3\n");
	for (uint32_t i = 0; i < 2; i++) {
		const struct rsh_recipe_part *p = m.out[0].parts + i;
		const struct rsh_quantised *q =
			m.cat->tensors[p->tensor]->quantised;

		assert_int_equal(m.out[i].dtype, RSH_DTYPE_BFLOAT16);
		assert_int_equal(q->block[1], 8);
		assert_int_equal(q->scales->name,
				 m.cat->tensors[p->tensor]->name + 1);
	}
	model_end(&m);

	model_begin(&m, t, NULL);
	add_scaled(&m, "n", 6, 5, 2, NEITHER);
	assert_int_equal(model_convert(&m, HF), -EINVAL);
	assert_non_null(strstr(m.err.text, "weight_block_size"));
	model_end(&m);

	model_begin(&m, t, fp8);
	add_scaled(&m, "n", 3, 3, 2, NEITHER);
	assert_int_equal(model_convert(&m, HF), -EINVAL);
	assert_non_null(strstr(m.err.text, "n_scale_inv is not of the type"));
	model_end(&m);

	for (enum turned turned = TENSOR; turned <= SCALES; turned++) {
		model_begin(&m, t, fp8);
		add_scaled(&m, "n", 3, 3, 1, turned);
		assert_int_equal(model_convert(&m, HF), -ENOTSUP);
		assert_non_null(strstr(m.err.text, "is quantised, and is in the "));
		model_end(&m);
	}
}

/* ---- direction ---- */

static int side_given(const char *t, int given, const char *lines, bool *told,
		      struct rsh_error *err)
{
	struct model m;
	enum rsh_side side;
	int rc;

	model_begin(&m, t, NULL);
	model_add_lines(&m, lines);
	rc = rsh_weights_side(m.table, given, m.in, m.n, m.names, &side, told,
			      err);
	model_end(&m);
	return rc ? rc : (int)side;
}

static int side_of(const char *t, const char *lines, struct rsh_error *err)
{
	return side_given(t, 0, lines, NULL, err);
}

static const char loose[] = "a = b\nrest x = y\n";

/* One that is given counts, whatever the names say. */
TEST(test_side_given)
{
	struct rsh_error err = RSH_ERROR_INIT;
	bool told;

	for (enum rsh_side s = HF; s < RSH_N_SIDES; s++) {
		assert_int_equal(side_given("a = b\n", 1 + (int)s, "a 1",
					    &told, &err), s);
		assert_int_equal(side_given("a = b\n", 1 + (int)s, "c 1", NULL,
					    &err), s);
	}
	assert_int_equal(side_given("a = b\n", 0, "a 1", &told, &err), HF);
	assert_true(told);
	/* With `rest` the names must not be those of the other side. */
	assert_int_equal(side_given(loose, 1 + HF, "a 1 x.c 1", NULL, &err),
			 HF);
	assert_int_equal(side_given(loose, 1 + MS, "b 1 y.c 1", NULL, &err),
			 MS);
	assert_int_equal(side_given(loose, 1 + HF, "b 1 y.c 1", NULL, &err),
			 -EINVAL);
	assert_string_equal(err.text, "2 of the tensors have names of the "
			    "other side of T: --from is wrong");
}

TEST(test_side)
{
	struct rsh_error err = RSH_ERROR_INIT;

	assert_int_equal(side_of(table, "m.3.n 1 adam_m.d.1.norm 1", &err), HF);
	assert_int_equal(side_of(table, "mtp.0.t.norm 1", &err), MS);
	assert_int_equal(side_of("same = same\na = b\n", "same 1 b 1", &err),
			 MS);
	assert_int_equal(side_of(table, "m.3.n 1 d.1.norm 1", &err), -EINVAL);
	assert_non_null(strstr(err.text, "left side of T"));
	assert_int_equal(side_of("a = a\n", "a 1", &err), -EINVAL);
	assert_non_null(strstr(err.text, "only one side of T"));
	/* With `rest` a quarter of the names may be those of the other side. */
	assert_int_equal(side_of(loose, "a 1 x.c 1 x.d 1 y.e 1", &err), HF);
	assert_int_equal(side_of(loose, "b 1 y.c 1 y.d 1 x.e 1", &err), MS);
	assert_int_equal(side_of(loose, "a 1 x.c 1 y.d 1", &err), -EINVAL);
	assert_string_equal(err.text, "2 of the tensors have names of the left "
			    "side of T, and 1 of the right");
}

/* ---- checks ---- */

TEST(test_check)
{
	FREED_BY(model_end) struct model m;

	model_begin(&m, table, config);
	model_add_lines(&m, "m.0.q 12,5 m.1.n 3 strange 2 m.1.rope 1 m.2.n 1 "
			"m.3.q 12,5 m.3.k 6,5 m.3.v 6,5");
	assert_int_equal(model_check(&m, HF), -EINVAL);
	assert_string_equal(m.log,
		"!no rule of T names tensor strange\n"
		"-m.1.rope:8\n"
		"!T:12: m.0.k is missing, which the rule wants beside m.0.q\n"
		"d.1.norm:14 m.1.n\n"
		"d.2.norm:14 m.2.n\n"
		"d.3.qkv:12 m.3.q m.3.k m.3.v\n");
	assert_non_null(strstr(m.err.text, "2 contradictions between T and"));
}

static void say_line(void *ctx, bool wrong, const char *sentence)
{
	strcat(ctx, wrong ? "!" : "");
	strcat(strcat(ctx, sentence), "\n");
}

static int check_table(const char *text, char *log)
{
	struct rsh_rule_table *t;
	int rc;

	*log = '\0';
	assert_int_equal(rsh_rule_table_parse(text, strlen(text), "T", &t,
					      NULL), 0);
	rc = rsh_weights_check_table(t, say_line, log);
	rsh_rule_table_free(t);
	return rc;
}

TEST(test_check_table)
{
	char log[4096];

	assert_int_equal(check_table(table, log), 0);
	assert_string_equal(log, "");
	assert_int_equal(check_table("let x = 1\na = b\n", log), 0);
	assert_string_equal(log, "T:1: x is used nowhere\n");
	assert_int_equal(check_table("let v = 1\nlet m = 2\nlet x = 3\n"
				     "pad b = v m last\na = b\n", log), 0);
	assert_string_equal(log, "T:3: x is used nowhere\n");
	assert_int_equal(check_table("let L = l\na.{i}[h] + c.{L+i}[h] = "
				     "d.{i}[(1 | 1) h]\n", log), 0);
	assert_string_equal(log, "");
	assert_int_equal(check_table("a.{l} = b.{l}\nc.{i} = b.{i}\n"
				     "skip a.{k}\n", log), -EINVAL);
	assert_string_equal(log, "!T:3: a.{} is named already in line 1\n"
			    "!T:2: b.{} is named already in line 1\n");
	assert_int_equal(check_table("let L = l\nunder a.{l} = b.{l}\n"
				     "under a.{L+i} = c.{i}\n.x = .y\n", log),
			 -EINVAL);
	assert_string_equal(log, "!T:4: a.{}.x is named already in line 4\n");
	assert_int_equal(check_table("under a.{l} = b.{l}\n"
				     "when .m = .n\n.x = .y\n"
				     "when .o = .p\n.x = .z\n.m = .n\n"
				     ".m = .q\n", log), -EINVAL);
	assert_string_equal(log, "!T:7: a.{}.m is named already in line 6\n");
}

/* ---- adapters of MindSpore ---- */

/* `wrong`: what is said of the adapters; NULL: they are taken. */
static void take_own(const char *lines, const char *wrong)
{
	FREED_BY(model_end) struct model m;
	struct rsh_own_adapters found;
	struct rsh_offers io;
	uint32_t n;
	int rc;

	model_begin(&m, "a = b\n", NULL);
	model_add_lines(&m, lines);
	/* What is behind the offers is none. */
	model_add_lines(&m, "half.lora_a 1,1");
	io = (struct rsh_offers){ m.cat, m.in, m.n - 1 };
	n = io.n;
	rc = rsh_weights_take_own(&io, &m.arena, &found, &m.err);
	if (wrong) {
		assert_true(rc == -EINVAL || rc == -ENOTSUP);
		assert_string_equal(m.err.text, wrong);
		return;
	}
	assert_good(rc, m.err);
	assert_int_equal(io.n + 2 * found.n, n);
	for (uint32_t i = 0; i < found.n; i++)
		assert_int_equal(found.v[i].a.dims[0], found.v[i].b.dims[1]);
}

TEST(test_own_adapters)
{
	take_own("w.lora_a 2,3 w 4,3 w.lora_b 4,2 v.lora_A.weight 1,5 "
		 "v.lora_B.weight 6,1", NULL);
	take_own("w.lora_a 200000,1 w.lora_b 1,200000", NULL);
	take_own("w.lora_a 2,3 w.lora_b 4,3", "w.lora_a has rank 2, and its "
		 "other matrix 3");
	take_own("w.lora_b 2,4 w.lora_a 2,3", "w.lora_a has rank 2, and its "
		 "other matrix 4");
	take_own("w.lora_a 0,3 w.lora_b 4,0", "w.lora_a has rank 0, and its "
		 "other matrix 0");
	take_own("w.lora_a 4294967296,1 w.lora_b 1,4294967296", "w.lora_a has "
		 "rank 4294967296, and its other matrix 4294967296");
	take_own("w.lora_a 200001,1 w.lora_b 1,200001", "w.lora_a has rank "
		 "200001, and 200000 is the largest that can be merged");
	take_own("w.lora_a 2,3,1 w.lora_b 4,2", "w.lora_a is not a matrix");
	take_own("w.lora_a 2,3 w.lora_b 2", "w.lora_b is not a matrix");
	take_own("w.lora_a 2,3 v.lora_b 4,2", "w.lora_a is there, but w.lora_b "
		 "is missing");
	take_own("w.lora_b 4,2", "w.lora_b is there, but w.lora_a is missing");
}

/* ---- a large model ---- */

TEST(test_large)
{
	const uint64_t dims[] = { 2048, 7168 };
	struct timespec begin, end;
	char name[64];
	FREED_BY(model_end) struct model m;

	model_begin(&m, table, config);
	for (uint32_t l = 0; l < 60; l++)
		for (uint32_t e = 0; e < 256; e++)
			for (uint32_t i = 0; i < 2; i++) {
				snprintf(name, sizeof(name), "m.%u.x.%u.%c",
					 l, e, i ? 'b' : 'a');
				model_add(&m, name, RSH_DTYPE_BFLOAT16, 2,
					  dims, false);
			}
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begin);
	assert_int_equal(model_convert(&m, HF), 0);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
	assert_int_equal(m.n_out, 60);
	assert_int_equal(m.out[7].n_parts, 512);
	printf("# %u tensors in %.3f s of processor time\n", m.n,
	       (double)(end.tv_sec - begin.tv_sec) +
	       (double)(end.tv_nsec - begin.tv_nsec) / 1e9);
	assert_true(end.tv_sec - begin.tv_sec < 20);
}
