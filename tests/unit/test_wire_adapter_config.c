/* SPDX-License-Identifier: Apache-2.0 */
/* The patterns of an adapter_config.json, which are regular expressions of
 * Python: what each one matches is what PEFT's re.match() says. */
#include "rsh/wire/adapter_config.h"
#include "tests.h"

static int parse(const char *pattern, struct rsh_adapter_config **out,
		 struct rsh_error *err)
{
	char text[512];
	const int n = snprintf(text, sizeof(text),
		"{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":4,"
		"\"alpha_pattern\":{\"%s\":64}}", pattern);

	return rsh_adapter_config_parse(text, (size_t)n, "config", out, err);
}

static void expect(const char *pattern, const char *module, bool matches)
{
	struct rsh_adapter_config *c;
	struct rsh_error err = RSH_ERROR_INIT;
	double scaling;

	assert_good(parse(pattern, &c, &err), err);
	scaling = rsh_adapter_config_scaling(c, module);
	rsh_adapter_config_free(c);
	if (scaling != (matches ? 16 : 1))
		fail_msg("%s and %s: %g", pattern, module, scaling);
}

TEST(patterns_match_as_in_python)
{
	static const struct {
		const char *pattern, *yes, *no;
	} cases[] = {
		{ "q", "l.1.q", "l.1.qq" },
		{ "l.1.q", "m.l.1.q", "ml.1.q" },
		{ "^l.1.q", "l.1.q", "m.l.1.q" },
		{ "l\\\\.\\\\d+\\\\.q", "l.12.q", "l.x.q" },
		{ "l\\\\.[\\\\d]+\\\\.q", "l.12.q", "l.].q" },
		{ "l\\\\.[\\\\d,x]+\\\\.q", "l.1,x.q", "l.1].q" },
		{ "l\\\\.[^\\\\d]\\\\.q", "l.x.q", "l.1.q" },
		{ "l[\\\\.]1[\\\\.]q", "l.1.q", "l.1\\q" },
		{ "[]x]q", "]q", "]]q" },
		{ "[^]x]q", "yq", "]q" },
		{ "l\\\\.\\\\d+?\\\\.q", "l.12.q", "l..q" },
		{ "l.*?q", "l.1.q", "m.1.p" },
		{ "lx??q", "lq", "lxxq" },
		{ "l\\\\.([0-3]|7)\\\\.(q|k)", "l.7.k", "l.4.q" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		expect(cases[i].pattern, cases[i].yes, true);
		expect(cases[i].pattern, cases[i].no, false);
	}
}

TEST(patterns_of_another_notation_are_refused)
{
	static const char *const refused[] = {
		"(?=w)", "w{9}", "\\\\w", "[\\\\w]", "[\\\\]]", "[[:digit:]]",
		"[a[.b.]]", "w\\\\", "w*?*", "(w", "[w",
	};

	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		struct rsh_adapter_config *c = NULL;
		struct rsh_error err = RSH_ERROR_INIT;

		if (parse(refused[i], &c, &err) != -ENOTSUP ||
		    !strstr(err.text, "is a regular expression that is not "
				      "supported"))
			fail_msg("%s: %s", refused[i], err.text);
	}
}
