/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_daemon.c - the parent's view of a daemon that starts, fails or
 * dies. */
#include "config.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "app/daemon/daemon_i.h"
#include "rsh/util/log.h"
#include "source_support.h"

static char *log_path;
static char *tree;

static int setup(void **state)
{
	(void)state;
	tree = tree_make();
	assert_true(asprintf(&log_path, "%s/log", tree) > 0);
	return rsh_log_to_file(log_path);
}

static int teardown(void **state)
{
	(void)state;
	free(log_path);
	tree_remove(tree);
	return 0;
}

static bool logged(const char *words)
{
	char text[4096] = "";
	FILE *f = fopen(log_path, "r");
	size_t n = fread(text, 1, sizeof(text) - 1, f);

	fclose(f);
	text[n] = '\0';
	return strstr(text, words) != NULL;
}

static void start(struct rsh_daemon *d)
{
	assert_int_equal(rsh_daemon_start(d), 0);
}

static void test_serves(void **state)
{
	struct rsh_daemon d;
	int status;

	(void)state;
	start(&d);
	if (d.child == 0) {
		rsh_daemon_ready(&d, false);
		_exit(7);
	}
	assert_int_equal(rsh_daemon_wait(&d, tree), 0);
	/* It is left alone. */
	assert_int_equal(waitpid(d.child, &status, 0), d.child);
	assert_int_equal(WEXITSTATUS(status), 7);
}

static bool is_null(int fd)
{
	struct stat st, null;

	return fstat(fd, &st) == 0 && stat("/dev/null", &null) == 0 &&
	       st.st_rdev == null.st_rdev;
}

static void test_detaches(void **state)
{
	struct rsh_daemon d;
	char cwd[16];
	int status;

	(void)state;
	start(&d);
	if (d.child == 0) {
		bool good;

		signal(SIGHUP, SIG_IGN);
		rsh_daemon_detach();
		good = getsid(0) == getpid() &&
		       signal(SIGHUP, SIG_DFL) == SIG_DFL;
		rsh_daemon_ready(&d, false);
		good &= getcwd(cwd, sizeof(cwd)) && strcmp(cwd, "/") == 0;
		for (int fd = 0; fd <= 2; fd++)
			good &= is_null(fd);
		_exit(good ? 0 : 1);
	}
	assert_int_equal(rsh_daemon_wait(&d, tree), 0);
	assert_int_equal(waitpid(d.child, &status, 0), d.child);
	assert_int_equal(status, 0);
}

static void test_fails(void **state)
{
	struct rsh_daemon d;

	(void)state;
	start(&d);
	if (d.child == 0)
		_exit(RSH_EXIT_INPUT);
	assert_int_equal(rsh_daemon_wait(&d, tree), RSH_EXIT_INPUT);
	assert_int_equal(waitpid(d.child, NULL, 0), -1);
	/* The child has said why. */
	assert_false(logged("daemon"));
}

/* What goes wrong between detaching and serving is seen by the parent's. */
static void test_fails_late(void **state)
{
	int saved = dup(2), fd;
	struct rsh_daemon d;
	char path[256], text[64] = "";
	FILE *f;

	(void)state;
	snprintf(path, sizeof(path), "%s/stderr", tree);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal(dup2(fd, 2), 2);
	close(fd);
	start(&d);
	if (d.child == 0) {
		rsh_daemon_detach();
		dprintf(2, "a reason\n");
		_exit(1);
	}
	assert_int_equal(rsh_daemon_wait(&d, tree), 1);
	assert_int_equal(dup2(saved, 2), 2);
	close(saved);
	f = fopen(path, "r");
	assert_non_null(fgets(text, sizeof(text), f));
	fclose(f);
	assert_string_equal(text, "a reason\n");
}

static void test_dies(void **state)
{
	struct rsh_daemon d;

	(void)state;
	start(&d);
	if (d.child == 0) {
		raise(SIGKILL);
		_exit(0);
	}
	assert_int_equal(rsh_daemon_wait(&d, tree), RSH_EXIT_IO);
	assert_true(logged("ended by signal 9"));
}

static void test_ends_too_early(void **state)
{
	struct rsh_daemon d;

	(void)state;
	start(&d);
	if (d.child == 0)
		_exit(0);
	assert_int_equal(rsh_daemon_wait(&d, tree), RSH_EXIT_IO);
	assert_true(logged("was stopped before"));
}

static void test_mount_does_not_answer(void **state)
{
	struct rsh_daemon d;

	(void)state;
	start(&d);
	if (d.child == 0) {
		rsh_daemon_ready(&d, false);
		for (;;)
			pause();
	}
	assert_int_equal(rsh_daemon_wait(&d, "/nonexistent/mount"),
			 RSH_EXIT_IO);
	assert_true(logged("/nonexistent/mount does not answer"));
	/* It was ended by a signal. */
	assert_true(logged("ended by signal 15"));
}

/* Whoever kills the waiting command does not get a mount later on. */
static void test_parent_dies(void **state)
{
	int alive[2];
	pid_t parent;
	char c;

	(void)state;
	assert_int_equal(pipe(alive), 0);
	parent = fork();
	if (parent == 0) {
		struct rsh_daemon d;

		close(alive[0]);
		if (rsh_daemon_start(&d))
			_exit(1);
		if (d.child == 0) {
			close(d.pipe);
			for (;;)
				pause();
		}
		raise(SIGKILL);
	}
	close(alive[1]);
	assert_int_equal(waitpid(parent, NULL, 0), parent);
	/* End of file: the grandchild has gone, too. */
	assert_int_equal(read(alive[0], &c, 1), 0);
	close(alive[0]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_serves),
		cmocka_unit_test(test_detaches),
		cmocka_unit_test(test_fails),
		cmocka_unit_test(test_fails_late),
		cmocka_unit_test(test_dies),
		cmocka_unit_test(test_ends_too_early),
		cmocka_unit_test(test_mount_does_not_answer),
		cmocka_unit_test(test_parent_dies),
	};

	return cmocka_run_group_tests_name("cli_daemon", tests, setup,
					   teardown);
}
