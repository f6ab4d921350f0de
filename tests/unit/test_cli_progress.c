/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_cli_progress.c - how far a long command has come, as text. */
#include "config.h"

#include "app/cli/commands.h"
#include "tests.h"

#define GIB (UINT64_C(1) << 30)

#define write_text(text, ...) \
	rsh_progress_text(&(struct rsh_progress_state){ __VA_ARGS__ }, text, \
			  sizeof(text))

static void assert_line(uint64_t done, uint64_t total, double seconds,
			const char *expected)
{
	char text[128];

	write_text(text, "warm", done, total, seconds, 0);
	assert_string_equal(text, expected);
}

TEST(test_plain_lines)
{
	assert_line(GIB, 4 * GIB, 2,
		    "warm: 25% (1.0 GiB of 4.0 GiB), 512.0 MiB/s, 0:06 left");
	assert_line(GIB, 101 * GIB, 100,
		    "warm: 0% (1.0 GiB of 101.0 GiB), 10.2 MiB/s, 2:46:40 left");
	/* Nothing divided by nothing. */
	assert_line(0, GIB, 0, "warm: 0% (0 B of 1.0 GiB), 0 B/s, - left");
	assert_line(0, 0, 1, "warm: 100% (0 B of 0 B), 0 B/s, - left");
	/* Not 100 before the end, and no more than that after it. */
	assert_line(4 * GIB - 1, 4 * GIB, 4,
		    "warm: 99% (4.0 GiB of 4.0 GiB), 1.0 GiB/s, 0:00 left");
	assert_line(5 * GIB, 4 * GIB, 5,
		    "warm: 100% (5.0 GiB of 4.0 GiB), 1.0 GiB/s, 0:00 left");
	/* Later than anybody waits. */
	assert_line(1, GIB * GIB, 1000,
		    "warm: 0% (1 B of 1.0 EiB), 0 B/s, 100:00:00 left");
}

TEST(test_bar)
{
	char text[600];

	write_text(text, "warm", GIB, 4 * GIB, 2, 60);
	assert_string_equal(text, "warm [=====>              ]  25%  "
				  "512.0 MiB/s     0:06 left");
	write_text(text, "warm", GIB, GIB, 1, 50);
	assert_string_equal(text, "warm [==========] 100%    "
				  "1.0 GiB/s     0:00 left");
	/* Without room for the bar, and without room for anything. */
	write_text(text, "warm", GIB, 4 * GIB, 2, 45);
	assert_string_equal(text, "warm  25%  512.0 MiB/s     0:06 left");
	for (unsigned width = 1; width < 3000; width++) {
		write_text(text, "warm", 1, 3, 1, width);
		assert_true(strlen(text) < width);
	}
}

TEST(test_file)
{
	char said[100];
	FILE *f = tmpfile();
	struct rsh_progress *p = rsh_progress_start(f, "x", 10, false);

	assert_non_null(p);
	rsh_progress_add(p, 5);
	rsh_progress_end(p);
	/* A log gets no bar and, when it is done so soon, no line. */
	rewind(f);
	assert_int_equal(fread(said, 1, sizeof(said), f), 0);
	fclose(f);
}

TEST(test_quiet)
{
	assert_null(rsh_progress_start(stderr, "x", 10, true));
	rsh_progress_add(NULL, 1);
	rsh_progress_clear(NULL);
	rsh_progress_end(NULL);
}
