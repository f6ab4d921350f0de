/* SPDX-License-Identifier: Apache-2.0 */
/* Rule tables and config.json as they stand in their files. */

#include "rsh/wire/model_config.h"
#include "rsh/wire/rule_table.h"
#include "tests.h"

#define LONG ((size_t)300000)

static struct rsh_rule_table *parse(const char *text)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_rule_table *t;

	if (rsh_rule_table_parse(text, strlen(text), "T", &t, &err))
		fail_msg("%s", err.text);
	return t;
}

static void assert_refused_bytes(const char *text, size_t len,
				 const char *words)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_rule_table *t;
	int rc = rsh_rule_table_parse(text, len, "T", &t, &err);

	if (rc != -EBADMSG || err.code != EBADMSG ||
	    strncmp(err.text, "T:", 2) != 0 || !strstr(err.text, words))
		fail_msg("%.60s: rc %d, \"%s\"; wanted \"%s\"", text, rc,
			 err.text, words);
}

TEST(test_table)
{
	struct rsh_rule_table *t = parse(
		"# Model: left = right\n"
		"# more\n"
		"for A B\n"
		"let g = kv | heads # groups\r\n"
		"let r = heads / kv * 2 - 1 | 1\n"
		"let L = layers\n"
		"a.weight = b.weight\n"
		"state opt.m. = adam_m.\n"
		"also c.{L+i}.w = b.weight\n"
		"under x.{L+i} = y.{i}\n"
		"\n"
		"under x.{l} = z.{l}\n"
		".q[g r d, h] + .k[g d, h] = .qk[g (r d | d), h]\n"
		"skip .rope\n"
		".e.{e}.w[f, h] = .w[e h, 1 (f)]\n"
		"let = state\n");
	const struct rsh_rule *r = &t->rules[2];

	assert_string_equal(t->title, "Model: left = right");
	assert_string_equal(t->suits[1], "B");
	assert_int_equal(t->n_suits, 2);
	assert_string_equal(t->lets[1].name, "r");
	assert_int_equal(t->lets[1].n_terms, 2);
	assert_int_equal(t->lets[1].terms[0].n, 4);
	assert_int_equal(t->lets[1].terms[0].operands[3].number,
			 1);
	assert_string_equal(t->pairs[RSH_RULE_STATE][0].side[1], "adam_m.");
	assert_int_equal(t->rules[1].kind, RSH_RULE_ALSO);
	assert_int_equal(r->line, 13);
	assert_int_equal(r->n_under, 2);
	assert_string_equal(r->under[0].prefix[0].holes[0].least, "L");
	assert_int_equal(r->n_tensors[0], 2);
	assert_int_equal(r->tensors[1][0].dims[0].n_alternatives, 2);
	assert_string_equal(r->tensors[1][0].dims[0].alternatives[0].factors[1],
			    "d");
	assert_int_equal(t->rules[3].kind, RSH_RULE_SKIP);
	r = &t->rules[5];
	assert_string_equal(r->text, "let = state");
	assert_string_equal(r->tensors[0][0].name.texts[0], "let");
	assert_int_equal(t->n_rules, 6);
	rsh_rule_table_free(t);
}

TEST(test_when)
{
	struct rsh_rule_table *t = parse("under x.{l} = y.{l}\n"
					 ".a = .b\n"
					 "when .m = .n\n"
					 ".c = .d add 1\n"
					 ".e[h] = .f[h]\n"
					 "when .o = .p\n"
					 ".c = .g\n"
					 "z = w\n"
					 "under x.{l} = y.{l}\n"
					 ".add = .h\n"
					 "when = add\n");

	assert_int_equal(t->n_rules, 7);
	assert_null(t->rules[0].when);
	assert_string_equal(t->rules[1].when->name[0].texts[0], ".m");
	assert_string_equal(t->rules[1].when->name[1].texts[0], ".n");
	assert_true(t->rules[1].adds_one);
	assert_ptr_equal(t->rules[1].when, t->rules[2].when);
	assert_false(t->rules[2].adds_one);
	assert_string_equal(t->rules[3].when->name[0].texts[0], ".o");
	assert_null(t->rules[4].when);
	assert_null(t->rules[5].when);
	assert_string_equal(t->rules[6].tensors[0]->name.texts[0], "when");
	rsh_rule_table_free(t);
}

TEST(test_refused)
{
	static const struct {
		const char *text, *words;
	} cases[] = {
		{ "", "no rule" },
		{ "a", "T:1: no \"=\"" },
		{ "\n\na = ", "T:3: the line ends where the name" },
		{ "a = b c", "where the end of the line" },
		{ "a = b\x01", "control character" },
		{ "a[x] = b", "dimensions, some none" },
		{ "a[x = b[x]", "\",\" or \"]\"" },
		{ "a[x,] = b[x]", "a factor, or 1," },
		{ "a[2 x] = b[x]", "let two = 2" },
		{ "a[x (y | z) (y)] = b[x]", "alternatives in one dimension" },
		{ "a[(y | z), (y | z)] = b[y]",
		  "two lists of alternatives on one side" },
		{ "a[(y | z)] = b[(y | z | x)]",
		  "2 alternatives on the left and 3 on the right" },
		{ "a.{l}.{e}[l] = b.{l}.{e}[l]", "l is a number in names of both" },
		{ "a.{l}.{e}[e] = b.{e}.{l}[e]", "e is a number in names of both" },
		{ "let v = 1\npad a = v v ones\na = b",
		  "T:2: padding is zeros or last, not ones" },
		{ "let v = 1\npad a = v m zeros\na = b",
		  "T:2: no `let` before says what m is" },
		{ "let v = 1\npad a.{l} = v v zeros\na = b",
		  "a hole in the name of a padded tensor" },
		{ "tied a.{l} = b\na = b", "a hole in the name of a tied tensor" },
		{ "tied a = b c\na = b", "the end of the line" },
		{ "a[(y | z)] = b[(y | y)]", "z is on one side only" },
		{ "a[(x | x)] = b[(x | x)] + c[x]", "2 on their own" },
		{ "a[x] + b[x] = c[x]", "several tensors, and no list" },
		{ "a + b = c", "several tensors, and no list" },
		{ "a[x] + b[x] = c[(x | x | x)]", "3 alternatives and 2" },
		{ "a[x] + b[x] = c[(x | x)] + d[x]", "2 on their own" },
		{ "a[x x] = b[x]", "x is twice" },
		{ "a[x y] = b[x]", "y is on one side only" },
		{ "a[x] = b[x z]", "z is on one side only" },
		{ "a[(x | )] = b[x]", "a factor, or 1," },
		{ "a.{l} = b", "l is on one side only" },
		{ "a.{l}.{l} = b.{l}", "is twice" },
		{ "a.{l}[x] + b[x] = c.{l}[(x | x)]", "not in all names" },
		{ "a.{l}[l] = b.{l}[l]", "cannot be a factor" },
		{ "a.{l}{m} = b.{l}{m}", "nothing between" },
		{ "a.{l}0 = b.{l}", "digit beside a hole" },
		{ "a0{l} = b.{l}", "digit beside a hole" },
		{ "a.{l = b.{l}", "\"}\" of a hole" },
		{ "a.{} = b", "letter or word" },
		{ "a.{L+i} = b.{i}", "no `let` before says what L is" },
		{ ".a = b", "no `under` holds" },
		{ "a[x] + .b[x] = c[(x | x)]", "no `under` holds" },
		{ "under x.{l} = y.{l}\n.a.{l} = .b", "below its prefix" },
		{ "under x.{l} = y\n.a = .b", "l is on one side only" },
		{ "under x = y z", "the end of the line" },
		{ "let x = x", "made of itself" },
		{ "let x = y\nlet y = x", "T:2: line 1, which comes before" },
		{ "let x = 1\nlet x = 2", "already, in line 1" },
		{ "let x = 99999999999999999999", "too large" },
		{ "let x = 1 +", "letter or word" },
		{ "let x = ", "letter or word" },
		{ "let x 1", "\"=\"" },
		{ "skip a = b", "the end of the line" },
		{ "skip a[x]", "only names" },
		{ "also a + b = c", "several names" },
		{ "also a = b.{i}", "{i} is on the right alone" },
		{ "state a.{l} = b", "a hole in what" },
		{ "for 7", "letter or word" },
		{ "when .a = .b", "T:1: no `under` says in which layers" },
		{ "under x = y\nwhen a = .b",
		  "T:2: a name of `when` begins with a dot" },
		{ "under x = y\nwhen .a = .b.{k}", "and has no hole" },
		{ "under x = y\nwhen .a .b = .c", "T:2: no \"=\" before" },
		{ "under x = y\nwhen .a = .b c", "the end of the line" },
		{ "under x = y\nwhen .a = .b\nskip .c",
		  "T:3: `also` and `skip` do not look at a `when`" },
		{ "under x.{l} = y\nwhen .a = .b\n.c[h] = .d[l, h]",
		  "T:3: {l} is not a number of both sides, which `when` needs" },
		{ "under x.{l} = y.{l}\nwhen k is",
		  "T:2: no \"is\" after the key of a `when`" },
		{ "under x.{l} = y.{l}\nwhen k is w and",
		  "where the end of the line" },
		{ "under x.{l} = y.{l}\nwhen .a is w", "a letter or word" },
		{ "under x.{l} = y.{l}\nwhen a is b and c is d and e is f and "
		  "g is h and i is j", "T:2: more than 4 keys in a `when`" },
		{ "let L = n\nunder x.{L+i} = y.{i}\nwhen k is w",
		  "T:3: the prefix has no number from 0" },
		{ "under x = y\nwhen k is w", "T:2: the prefix has no number" },
		{ "a[h] + again b[h] = c[(h | h)]",
		  "T:1: `again` names no earlier tensor of the rule with its "
		  "dimensions" },
		{ "a[h] + again a[g] = c[(h | g)]", "names no earlier tensor" },
		{ "again a[h] = c[h]", "names no earlier tensor" },
		{ "c[(h | h)] = a[h] + again a[h]", "where the end of the line" },
		{ "let n = a.*", "T:1: \"*\" where a letter or word" },
		{ "let n = a.*.", "the line ends where a letter or word" },
		{ "let n = *.a", "T:1: \"*.a\" where a letter or word" },
		{ "a = b add 2", "T:1: only 1 can be added" },
		{ "a = b add 1 1", "only 1 can be added" },
		{ "a = b add", "where the end of the line" },
		{ "a[x] = b[x] add 1",
		  "`add` where more than a name changes" },
		{ "also a = b add 1", "`add` where more than a name changes" },
		{ "a{b{c}}[((x|y))] = +", "\"}\"" },
		{ "a[a b c d e f, g h i j k l, m n o p q] = b[x]",
		  "more than 16 letters in one tensor" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_refused_bytes(cases[i].text, strlen(cases[i].text),
				     cases[i].words);
	assert_refused_bytes("a = b\0c", 7, "control character");
	/* What is after the end does not count. */
	assert_refused_bytes("a[12] = b[x]", 3, "T:1: the line ends where");
}

/* Writes a text `n` times behind another one. */
static char *repeated(const char *begin, const char *again, size_t n,
		      const char *end)
{
	const size_t len = strlen(again);
	char *text = malloc(strlen(begin) + len * n + strlen(end) + 1), *at;

	assert_non_null(text);
	at = stpcpy(text, begin);
	for (size_t i = 0; i < n; i++)
		at = stpcpy(at, again);
	stpcpy(at, end);
	return text;
}

TEST(test_endless)
{
	static const struct {
		const char *begin, *again, *end, *words;
	} cases[] = {
		{ "a", ".{l}", " = b", "holes" },
		{ "a", "b", " = b", "bytes; at most" },
		{ "a[x", " x", "] = b[x]", "product of more" },
		{ "a[x", ",x", "] = b[x]", "dimensions" },
		{ "a[(x", "|x", ")] = b[x]", "alternatives" },
		{ "a[x]", " + b", " = c", "tensors on one side" },
		{ "let x = 1", " | 1", "", "terms" },
		{ "let x = 1", "+1", "", "operands" },
		{ "", "a = b\n", "", "lines of one kind" },
		{ "", "under a = b\n", "", "in a row" },
		{ "for A", " B", "", "lines of one kind" },
		{ "a.", "{", " = b", "letter or word" },
		{ "a[", "(", "] = b", "a factor" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const size_t n = LONG / strlen(cases[i].again);
		char *text = repeated(cases[i].begin, cases[i].again, n,
				      cases[i].end);

		assert_refused_bytes(text, strlen(text), cases[i].words);
		free(text);
	}
}

TEST(test_too_large)
{
	struct rsh_error err = RSH_ERROR_INIT;
	cleanup_free char *text = repeated("", "#", RSH_RULE_TABLE_MAX + 1, "");
	struct rsh_rule_table *t;

	assert_int_equal(rsh_rule_table_parse(text, RSH_RULE_TABLE_MAX + 1, "T",
					      &t, &err), -EBADMSG);
	assert_non_null(strstr(err.text, "at most"));
}

TEST(test_many_lets)
{
	char text[257 * 16] = "";
	size_t at = 0;

	for (unsigned i = 0; i < 257; i++)
		at += (size_t)snprintf(text + at, sizeof(text) - at,
				       "let x%c%c = 1\n", 'a' + i / 26, 'a' + i % 26);
	assert_refused_bytes(text, at, "more than 256 `let`");
}

/* ---- config.json ---- */

TEST(test_config)
{
	static const char text[] =
		"{\"architectures\":[\"A\",\"B\"],\"n\":7,\"none\":null,"
		"\"s\":\"7\",\"minus\":-1,\"half\":1.5,"
		"\"text_config\":{\"n\":8,\"m\":9,\"none\":10},"
		"\"layers\":{\"1\":{\"h\":5,\"d\":6},\"2\":{\"d\":7},"
		"\"4\":{\"h\":5}},\"kinds\":[\"part\",\"full\"],\"yes\":true,"
		"\"quantization_config\":{\"quant_method\":\"fp8\","
		"\"weight_block_size\":[128,64]}}";
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_model_config *c;
	const struct rsh_quantisation *q;
	char word[5];
	uint64_t n;

	assert_int_equal(rsh_model_config_parse(text, strlen(text), "C", &c,
						&err), 0);
	assert_string_equal(rsh_model_config_path(c), "C");
	assert_string_equal(rsh_model_config_architecture(c, 1), "B");
	assert_null(rsh_model_config_architecture(c, 2));
	assert_true(rsh_model_config_number(c, "n", &n) && n == 7);
	assert_true(rsh_model_config_number(c, "m", &n) && n == 9);
	assert_true(rsh_model_config_number(c, "none", &n) && n == 10);
	assert_false(rsh_model_config_number(c, "s", &n));
	assert_false(rsh_model_config_number(c, "minus", &n));
	assert_false(rsh_model_config_number(c, "half", &n));
	assert_false(rsh_model_config_number(c, "other", &n));
	assert_true(rsh_model_config_number(c, "layers.*.h", &n) && n == 5);
	assert_false(rsh_model_config_number(c, "layers.*.d", &n));
	assert_false(rsh_model_config_number(c, "layers.*.e", &n));
	assert_true(rsh_model_config_word(c, "kinds", 1, word, 5));
	assert_string_equal(word, "full");
	assert_false(rsh_model_config_word(c, "kinds", 1, word, 4));
	assert_false(rsh_model_config_word(c, "kinds", 2, word, 5));
	assert_true(rsh_model_config_word(c, "yes", 7, word, 5));
	assert_string_equal(word, "true");
	assert_false(rsh_model_config_word(c, "n", 0, word, 5));
	q = rsh_model_config_quantisation(c);
	assert_string_equal(q->method, "fp8");
	assert_int_equal(q->n_blocks, 1);
	assert_int_equal(q->blocks[0][0], 128);
	assert_int_equal(q->blocks[0][1], 64);
	assert_null(q->version);
	assert_int_equal(q->bits, 0);
	rsh_model_config_free(c);
}

TEST(test_config_refused)
{
	static const struct {
		const char *text, *words;
	} cases[] = {
		{ "", "not JSON" },
		{ "[]", "not a config.json: the JSON is not an object" },
		{ "{\"n\":1", "not JSON" },
		{ "{\"n\":nan}", "not JSON" },
		{ "{\"architectures\":\"A\"}", "architectures" },
		{ "{\"architectures\":[1]}", "architectures" },
		{ "{\"quantization_config\":{\"quant_method\":\"fp8\","
		  "\"weight_block_size\":[0,1]}}", "weight_block_size" },
		{ "{\"quantization_config\":{\"quant_method\":\"fp8\","
		  "\"weight_block_size\":7}}", "weight_block_size" },
		{ "{\"quantization_config\":{\"config_groups\":{\"a\":{"
		  "\"weights\":{\"block_structure\":[1]}}}}}",
		  "\"block_structure\" is not two numbers above 0" },
	};
	struct rsh_model_config *c;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct rsh_error err = RSH_ERROR_INIT;
		const char *text = cases[i].text;

		assert_int_equal(rsh_model_config_parse(text, strlen(text), "C",
							&c, &err), -EBADMSG);
		if (!strstr(err.text, cases[i].words) || err.text[0] != 'C')
			fail_msg("%s: \"%s\"", text, err.text);
	}
}

TEST(test_config_quantised)
{
	static const char text[] =
		"{\"text_config\":{\"quantization_config\":{"
		"\"quant_method\":\"awq\",\"version\":\"gemm\",\"bits\":4,"
		"\"group_size\":-1,\"config_groups\":{\"a\":{\"weights\":{"
		"\"num_bits\":4,\"block_structure\":[2,3]}},\"b\":{\"weights\":{"
		"\"num_bits\":8,\"block_structure\":null}}}}}}";
	struct rsh_model_config *c;
	const struct rsh_quantisation *q;

	assert_int_equal(rsh_model_config_parse(text, strlen(text), "C", &c,
						NULL), 0);
	q = rsh_model_config_quantisation(c);
	assert_string_equal(q->version, "gemm");
	assert_int_equal(q->bits, 4);
	assert_int_equal(q->group_size, -1);
	assert_int_equal(q->widths, 1 << 4 | 1 << 8);
	assert_int_equal(q->n_blocks, 1);
	assert_int_equal(q->blocks[0][1], 3);
	rsh_model_config_free(c);
}

/* Only widths that are some count. */
TEST(test_config_widths)
{
	static const struct {
		const char *bits;
		uint32_t widths;
	} cases[] = {
		{ "1", 1u << 1 }, { "31", 1u << 31 }, { "32", 0 }, { "0", 0 },
		{ "-1", 0 }, { "null", 0 }, { "\"4\"", 0 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct rsh_model_config *c;
		char text[160];

		snprintf(text, sizeof(text), "{\"quantization_config\":{"
			 "\"quant_method\":\"awq\",\"config_groups\":{\"a\":{"
			 "\"weights\":{\"num_bits\":%s}}}}}", cases[i].bits);
		assert_int_equal(rsh_model_config_parse(text, strlen(text), "C",
							&c, NULL), 0);
		assert_int_equal(rsh_model_config_quantisation(c)->widths,
				 cases[i].widths);
		rsh_model_config_free(c);
	}
}

TEST(test_config_too_large)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_model_config *c;

	assert_int_equal(rsh_model_config_parse("", RSH_MODEL_CONFIG_MAX + 1,
						"C", &c, &err), -EBADMSG);
	assert_non_null(strstr(err.text, " bytes, a config.json has "));
}

TEST(test_config_without)
{
	struct rsh_model_config *c;

	assert_int_equal(rsh_model_config_parse("{}", 2, "C", &c, NULL), 0);
	assert_null(rsh_model_config_architecture(c, 0));
	assert_null(rsh_model_config_quantisation(c));
	rsh_model_config_free(c);
}
