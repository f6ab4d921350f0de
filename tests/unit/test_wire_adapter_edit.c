/* SPDX-License-Identifier: Apache-2.0 */
/* The adapter_config.json of adapters whose modules have got other names. */

#include "rsh/wire/adapter_edit.h"
#include "tests.h"

#define MODULES 4
#define LORA "{\"peft_type\":\"LORA\","

struct edit_case {
	const char *text;
	struct rsh_adapter_module v[MODULES];
	const char *want; /* the members that are new or changed */
};

static size_t count(const struct rsh_adapter_module *v)
{
	size_t n = 0;

	while (n < MODULES && v[n].name)
		n++;
	return n;
}

static char *edit(const char *text, const struct rsh_adapter_module *v,
		  struct rsh_error *err)
{
	char *made = NULL;
	size_t len = 0;
	int rc = rsh_adapter_config_edit(text, strlen(text), "C", v, count(v),
					 &made, &len, err);

	assert_int_equal(rc, -err->code);
	assert_true(!made == !!rc);
	if (made)
		assert_int_equal(strlen(made), len);
	return made;
}

/* Compares without blanks. */
static void assert_text(const char *made, const char *want)
{
	char text[2048];
	size_t n = 0;

	for (; *made && n + 1 < sizeof(text); made++)
		if (*made != ' ' && *made != '\n')
			text[n++] = *made;
	text[n] = '\0';
	assert_string_equal(text, want);
}

TEST(test_edit)
{
	static const struct edit_case cases[] = {
		/* Names that stay change nothing, not even blanks. */
		{ LORA " \"r\": 2,\"lora_alpha\":4, \"target_modules\": [\"q\"] }",
		  { { "l.0.q", "l.0.q", false, 2, 2 } },
		  LORA "\"r\":2,\"lora_alpha\":4,\"target_modules\":[\"q\"]}" },
		/* Experts apart become two stacks, of which one has other
		 * ranks and the same scaling. */
		{ LORA "\"r\":2,\"lora_alpha\":4,\"target_modules\":[\"gate\","
		  "\"down\",\"q\"]}",
		  { { "l.0.q", "l.0.q", false, 2, 2 },
		    { "l.0.e.0.gate", "l.0.e.gate_up", true, 4, 2 },
		    { "l.0.e.0.down", "l.0.e.down_all", true, 2, 2 } },
		  LORA "\"r\":2,\"lora_alpha\":4,\"target_modules\":[\"q\"],"
		  "\"target_parameters\":[\"gate_up\",\"down_all\"],"
		  "\"rank_pattern\":{\".*\\\\.gate_up\":4},"
		  "\"alpha_pattern\":{\".*\\\\.gate_up\":8}}" },
		/* Back: what was said of the stack goes. */
		{ LORA "\"r\":2,\"lora_alpha\":4,\"target_modules\":[],"
		  "\"target_parameters\":[\"e.gate_up\"],"
		  "\"rank_pattern\":{\".*\\\\.gate_up\":4,\"x\":7},"
		  "\"alpha_pattern\":{\".*\\\\.gate_up\":8}}",
		  { { "l.0.e.gate_up", "l.0.e.0.gate", false, 4, 2 },
		    { "l.0.e.gate_up", "l.0.e.1.gate", false, 4, 2 } },
		  LORA "\"r\":2,\"lora_alpha\":4,\"target_modules\":[\"gate\"],"
		  "\"target_parameters\":[],"
		  "\"rank_pattern\":{\".*\\\\.e\\\\.\\\\d+\\\\.gate\":4,"
		  "\"x\":7},\"alpha_pattern\":"
		  "{\".*\\\\.e\\\\.\\\\d+\\\\.gate\":8}}" },
		/* One entry of several modules stays once. */
		{ LORA "\"r\":1,\"lora_alpha\":1,\"target_modules\":[\"q\","
		  "\"v\"]}",
		  { { "l.0.q", "l.0.q", false, 1, 1 },
		    { "l.1.q", "l.1.q", false, 1, 1 },
		    { "l.0.v", "l.0.w", false, 1, 1 } },
		  LORA "\"r\":1,\"lora_alpha\":1,\"target_modules\":[\"q\","
		  "\"w\"]}" },
		/* An expression becomes names. */
		{ LORA "\"r\":1,\"lora_alpha\":1,\"target_modules\":\".*w\"}",
		  { { "a.w", "b.u", false, 1, 1 } },
		  LORA "\"r\":1,\"lora_alpha\":1,\"target_modules\":[\"b.u\"]}" },
		/* By the root of the rank: 6 / sqrt(9) of a rank of 4. */
		{ LORA "\"r\":1,\"lora_alpha\":1,\"use_rslora\":true,"
		  "\"target_modules\":[\"w\"]}",
		  { { "a.w", "a.u", false, 9, 2 } },
		  LORA "\"r\":1,\"lora_alpha\":1,\"use_rslora\":true,"
		  "\"target_modules\":[\"u\"],\"rank_pattern\":"
		  "{\".*\\\\.u\":9},\"alpha_pattern\":{\".*\\\\.u\":6}}" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct rsh_error err = RSH_ERROR_INIT;
		char *made = edit(cases[i].text, cases[i].v, &err);

		if (!made)
			fail_msg("%zu: %s", i, err.text);
		assert_text(made, cases[i].want);
		free(made);
	}
}

TEST(test_refused)
{
	static const struct edit_case cases[] = {
		{ "[]", { { "a.w", "a.u", false, 1, 1 } }, "C" },
		{ "{\"r\":1,", { { "a.w", "a.u", false, 1, 1 } }, "C" },
		{ LORA "\"r\":1,\"lora_alpha\":1,\"target_modules\":[\"w\"]}",
		  { { "a.w", "a.u", false, 2, 1 }, { "b.w", "b.u", false, 3, 1 } },
		  "an adapter of b.u cannot have rank 3 and scaling 1 beside "
		  "those of other modules" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct rsh_error err = RSH_ERROR_INIT;
		char *made = edit(cases[i].text, cases[i].v, &err);

		if (made || !strstr(err.text, cases[i].want))
			fail_msg("%zu: \"%s\", %s", i, err.text,
				 made ? made : "");
	}
}
