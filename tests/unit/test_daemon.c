/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_daemon.c - the parent's view of a daemon that starts, fails or
 * dies. */
#include "config.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "app/daemon/daemon_i.h"
#include "rsh/app/control_client.h"
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

TEST(test_serves)
{
	struct rsh_daemon d;
	int status;

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

TEST(test_detaches)
{
	struct rsh_daemon d;
	char cwd[16];
	int status;

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

TEST(test_fails)
{
	struct rsh_daemon d;

	start(&d);
	if (d.child == 0)
		_exit(RSH_EXIT_INPUT);
	assert_int_equal(rsh_daemon_wait(&d, tree), RSH_EXIT_INPUT);
	assert_int_equal(waitpid(d.child, NULL, 0), -1);
	/* The child has said why. */
	assert_false(logged("daemon"));
}

/* What goes wrong between detaching and serving is seen by the parent's. */
TEST(test_fails_late)
{
	int saved = dup(2), fd;
	struct rsh_daemon d;
	char path[256], text[64] = "";
	FILE *f;

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

TEST(test_dies)
{
	struct rsh_daemon d;

	start(&d);
	if (d.child == 0) {
		raise(SIGKILL);
		_exit(0);
	}
	assert_int_equal(rsh_daemon_wait(&d, tree), RSH_EXIT_IO);
	assert_true(logged("ended by signal 9"));
}

TEST(test_ends_too_early)
{
	struct rsh_daemon d;

	start(&d);
	if (d.child == 0)
		_exit(0);
	assert_int_equal(rsh_daemon_wait(&d, tree), RSH_EXIT_IO);
	assert_true(logged("was stopped before"));
}

TEST(test_mount_does_not_answer)
{
	struct rsh_daemon d;

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
TEST(test_parent_dies)
{
	int alive[2];
	pid_t parent;
	char c;

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

/* ---- the filter of system calls ---- */

/* Each function returns 0, or the errno of the call. */

static int unix_socket(int type)
{
	const int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);

	return fd < 0 ? errno : close(fd);
}

static int internet_socket(int family)
{
	const int fd = socket(family, SOCK_STREAM, 0);

	return fd < 0 ? errno : close(fd);
}

static int times_by_path(void)
{
	return utimensat(AT_FDCWD, log_path, NULL, 0) ? errno : 0;
}

static int times_by_descriptor(void)
{
	const int fd = open(log_path, O_RDONLY | O_CLOEXEC);
	const int rc = futimens(fd, NULL) ? errno : 0;

	close(fd);
	return rc;
}

/* Returns the line of the first call whose result is another one. */
#define WANT(call, result) do { if ((call) != (result)) return __LINE__; } while (0)

static int calls_in_filter(bool internet, bool datagrams)
{
	const struct sched_param param = { .sched_priority = 0 };
	int ends[2];

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    rsh_syscalls_refuse(internet, datagrams))
		return -1;
	WANT(unix_socket(SOCK_STREAM), EPERM);
	WANT(unix_socket(SOCK_STREAM | SOCK_NONBLOCK), EPERM);
	WANT(unix_socket(SOCK_SEQPACKET), EPERM);
	WANT(unix_socket(SOCK_DGRAM), datagrams ? 0 : EPERM);
	WANT(unix_socket(SOCK_DGRAM | SOCK_NONBLOCK), datagrams ? 0 : EPERM);
	WANT(internet_socket(AF_INET), internet ? 0 : EAFNOSUPPORT);
	WANT(internet_socket(AF_INET6) == EAFNOSUPPORT, !internet);
	WANT(internet_socket(AF_PACKET), EAFNOSUPPORT);
	WANT(internet_socket(AF_VSOCK), EAFNOSUPPORT);
	/* The process that mounts is asked by such a pair. */
	WANT(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
	WANT(connect(ends[0], (const struct sockaddr *)&(struct sockaddr_un){
		AF_UNIX, "/dev/log" }, sizeof(struct sockaddr_un)) == 0, false);
	WANT(times_by_path(), EPERM);
	WANT(times_by_descriptor(), 0);
	WANT(utimes(log_path, NULL) ? errno : 0, EPERM);
	WANT(setpriority(PRIO_PROCESS, 0, 1) ? errno : 0, EPERM);
	WANT(sched_setscheduler(0, SCHED_BATCH, &param) ? errno : 0, EPERM);
	WANT(chmod(log_path, 0600) ? errno : 0, EPERM);
	return 0;
}

TEST(test_calls_are_refused)
{
	for (unsigned i = 0; i < 4; i++) {
		const pid_t pid = fork();
		int status;

		if (pid == 0) {
			const int line = calls_in_filter(i & 1, i & 2);

			_exit(line < 0 ? 1 : line == 0 ? 0 : 2 + line % 200);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		/* An emulator has no filter; builds with a sanitizer have
		 * none either. */
		if (status == 1 << 8) {
			print_message("there is no filter\n");
			return;
		}
		assert_int_equal(status, 0);
	}
}

/* ---- asking a mount ---- */

/* Asks as another user; without the right to change its group the process does
 * not ask as root instead.  Returns a positive errno. */
static int ask_as_another(bool with_group)
{
	static const char *const names[] = { "config" };
	struct __user_cap_header_struct head = { _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct caps[2];
	struct rsh_mounted m = { .user = 65534, .group = 65534 };
	json_t *all;

	snprintf(m.path, sizeof(m.path), "%s", tree);
	if (syscall(SYS_capget, &head, caps))
		return errno;
	if (!with_group)
		caps[0].effective &= ~(1u << CAP_SETGID);
	if (syscall(SYS_capset, &head, caps))
		return errno;
	return -rsh_control_ask(&m, true, names, 1, 10000, &all);
}

/* Containers may lack the right, or have no other user. */
static bool may_be_another(void)
{
	const pid_t pid = fork();
	int status;

	if (pid == 0)
		_exit(setresgid(65534, 65534, 65534) ||
		      setresuid(65534, 65534, 65534));
	return waitpid(pid, &status, 0) == pid && status == 0;
}

TEST(test_asks_as_user)
{
	if (!may_be_another())
		skip();
	for (int with_group = 0; with_group < 2; with_group++) {
		const pid_t pid = fork();
		int status;

		if (pid == 0)
			_exit(ask_as_another(with_group));
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFEXITED(status));
		assert_int_equal(WEXITSTATUS(status) == EPERM, !with_group);
	}
}

int main(void)
{
	return unit_run(setup, teardown);
}
