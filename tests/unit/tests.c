/* SPDX-License-Identifier: Apache-2.0 */
#include "tests.h"

#define MOST 256

static struct CMUnitTest tests[MOST];
static char titles[MOST][128];
static unsigned lines[MOST];
static size_t n_tests;

void unit_add(const char *name, CMUnitTestFunction test,
	      CMFixtureFunction setup, CMFixtureFunction teardown,
	      void *initial_state, unsigned line)
{
	size_t at = n_tests++;

	if (at == MOST)
		abort();
	snprintf(titles[at], sizeof(titles[at]), "%s", name);
	name = titles[at];
	/* The order of constructors is the compiler's. */
	for (; at && lines[at - 1] > line; at--) {
		tests[at] = tests[at - 1];
		lines[at] = lines[at - 1];
	}
	tests[at] = (struct CMUnitTest){ name, test, setup, teardown,
					 initial_state };
	lines[at] = line;
}

int unit_run(CMFixtureFunction setup, CMFixtureFunction teardown)
{
	return _cmocka_run_group_tests(program_invocation_short_name, tests,
				       n_tests, setup, teardown);
}

void unit_skipped(const char *name, const char *why)
{
	size_t len = strlen(name);

	for (size_t i = 0; i < n_tests; i++)
		if (strcmp(titles[i], name) == 0)
			snprintf(titles[i] + len, sizeof(titles[i]) - len,
				 " # SKIP %s", why);
}

void unit_put(struct unit_text *t, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(t->s + t->n, sizeof(t->s) - t->n, fmt, ap);
	va_end(ap);
	assert_true(n >= 0 && t->n + (size_t)n < sizeof(t->s));
	t->n += (size_t)n;
}
