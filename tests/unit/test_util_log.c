/* SPDX-License-Identifier: Apache-2.0 */
/* The log, written to a file of its own. */
#include <stdbool.h>

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rsh/util/log.h"
#include "tests.h"

#define N_THREADS 4
#define N_LINES 500

static char dir[] = "/tmp/test_util_log.XXXXXX";
static char path[sizeof(dir) + 16];

static char *read_log(void)
{
	static char text[1 << 20];
	FILE *f = fopen(path, "r");
	size_t n;

	assert_non_null(f);
	n = fread(text, 1, sizeof(text) - 1, f);
	text[n] = '\0';
	fclose(f);
	return text;
}

static int make_dir(void **state)
{
	(void)state;
	if (!mkdtemp(dir))
		return -1;
	snprintf(path, sizeof(path), "%s/log", dir);
	return 0;
}

static int remove_dir(void **state)
{
	(void)state;
	unlink(path);
	return rmdir(dir);
}

TEST(test_levels)
{
	assert_int_equal(rsh_log_get_level(), RSH_LOG_NOTICE);
	assert_string_equal(rsh_log_level_name(RSH_LOG_WARNING), "warning");
	assert_true(rsh_log_enabled(RSH_LOG_NOTICE));
	assert_false(rsh_log_enabled(RSH_LOG_INFO));
}

/* Runs before the log goes to the file. */
TEST(test_stderr)
{
	int saved = dup(STDERR_FILENO), fds[2];
	char line[256];
	ssize_t n;

	assert_int_equal(pipe(fds), 0);
	dup2(fds[1], STDERR_FILENO);
	rsh_log_info("not said");
	rsh_log_warning("%s differs", "w");
	dup2(saved, STDERR_FILENO);
	close(saved);
	n = read(fds[0], line, sizeof(line) - 1);
	assert_true(n > 0);
	line[n] = '\0';
	assert_string_equal(line, "reshardfs: warning: w differs\n");
	close(fds[0]);
	close(fds[1]);
}

TEST(test_file)
{
	int year, month, day, hour, minute, second, zone, used = 0;
	struct stat st;
	char *text;

	assert_int_equal(rsh_log_to_file("/nonexistent/log"), -ENOENT);
	assert_int_equal(rsh_log_to_file(path), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	errno = EXDEV;
	rsh_log_error("cannot read %d bytes", 5);
	assert_int_equal(errno, EXDEV);
	rsh_log_debug("not said");
	text = read_log();
	assert_int_equal(sscanf(text, "%d-%d-%dT%d:%d:%d.%*6d%d %n", &year,
				&month, &day, &hour, &minute, &second, &zone,
				&used),
			 7);
	assert_string_equal(text + used,
			    "reshardfs: error: cannot read 5 bytes\n");
}

TEST(test_another_file)
{
	char other[sizeof(path) + 8];

	snprintf(other, sizeof(other), "%s.2", path);
	assert_int_equal(rsh_log_to_file(other), 0);
	rsh_log_error("elsewhere");
	assert_null(strstr(read_log(), "elsewhere"));
	assert_int_equal(rsh_log_to_file(path), 0);
	rsh_log_error("back");
	assert_non_null(strstr(read_log(), "error: back\n"));
	unlink(other);
}

TEST(test_hostile_text)
{
	char longest[10000];
	char *end;

	rsh_log_error("name \"%s\"", "a\nreshardfs: error: forged\033[2J");
	assert_non_null(strstr(read_log(),
			       "\"a\\x0areshardfs: error: forged\\x1b[2J\"\n"));
	memset(longest, 'y', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	rsh_log_error("%s", longest);
	end = strrchr(read_log(), 'y');
	assert_non_null(end);
	assert_string_equal(end, "y...\n");
}

static void *log_lines(void *arg)
{
	for (int i = 0; i < N_LINES; i++)
		rsh_log_error("thread %s line %d end", (const char *)arg, i);
	return NULL;
}

TEST(test_threads)
{
	char names[N_THREADS][2] = { "a", "b", "c", "d" };
	pthread_t threads[N_THREADS];
	unsigned whole = 0;
	char *text, *line;

	assert_int_equal(truncate(path, 0), 0);
	for (int i = 0; i < N_THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, log_lines,
						names[i]),
				 0);
	for (int i = 0; i < N_THREADS; i++)
		pthread_join(threads[i], NULL);
	text = read_log();
	while ((line = strsep(&text, "\n")) != NULL && *line) {
		char name;
		int number, used = 0;

		line = strchr(line, ' ');
		assert_non_null(line);
		assert_int_equal(sscanf(line,
					" reshardfs: error: thread %c line %d end%n",
					&name, &number, &used),
				 2);
		assert_int_equal(line[used], '\0');
		whole++;
	}
	assert_int_equal(whole, N_THREADS * N_LINES);
}

/* Whatever the level; the oldest go first. */
TEST(test_recent)
{
	uint64_t errors, warnings, errors_before, warnings_before;
	char *text, *line, *rest;
	int n = 0;

	rsh_log_counts(&errors_before, &warnings_before);
	rsh_log_set_level(RSH_LOG_ERROR);
	for (int i = 0; i < 150; i++) {
		rsh_log_warning("kept %d\n", 2 * i);
		rsh_log_error("kept %d\n", 2 * i + 1);
		rsh_log_notice("not kept");
	}
	rsh_log_set_level(RSH_LOG_NOTICE);
	rsh_log_counts(&errors, &warnings);
	assert_int_equal(errors - errors_before, 150);
	assert_int_equal(warnings - warnings_before, 150);
	assert_null(strstr(read_log(), "kept 298"));
	text = rest = rsh_log_recent();
	assert_non_null(text);
	while ((line = strsep(&rest, "\n")) != NULL && *line) {
		char expected[64];

		snprintf(expected, sizeof(expected),
			 " reshardfs: %s: kept %d\\x0a",
			 n % 2 ? "error" : "warning", 100 + n);
		assert_int_equal(strncmp(line, "20", 2), 0);
		assert_string_equal(strchr(line, ' '), expected);
		n++;
	}
	assert_int_equal(n, 200);
	free(text);
}

int main(void)
{
	return unit_run(make_dir, remove_dir);
}
