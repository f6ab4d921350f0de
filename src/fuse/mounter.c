/* fuse/mounter.c - the process that mounts and unmounts.
 *
 * Who has given up new privileges cannot run fusermount3, which is setuid, and
 * who is confined by landlock cannot change mounts at all.  This process keeps
 * both for two words on a socket.  It knows one mount point from the start and
 * reads nothing but those words. */
#include "config.h"

#include "ops_i.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rsh/util/log.h"
#include "rsh/util/mem.h"

#define MOUNT 'm'
#define UNMOUNT 'u'

struct rsh_mounter {
	int socket;
	pid_t process;
};

void rsh_device_close(int fd)
{
	cleanup_fd int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (null >= 0)
		dup3(null, fd, O_CLOEXEC);
}

/* ---- an answer, with a descriptor or without ---- */

union control {
	struct cmsghdr align;
	char room[CMSG_SPACE(sizeof(int))];
};

static void answer(int socket, struct rsh_error *said, int fd)
{
	struct iovec text = { said, sizeof(*said) };
	union control control = { .room = "" };
	struct msghdr m = { .msg_iov = &text, .msg_iovlen = 1 };

	if (fd >= 0) {
		m.msg_control = control.room;
		m.msg_controllen = sizeof(control.room);
		*CMSG_FIRSTHDR(&m) = (struct cmsghdr){
			.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS,
			.cmsg_len = CMSG_LEN(sizeof(fd)),
		};
		memcpy(CMSG_DATA(CMSG_FIRSTHDR(&m)), &fd, sizeof(fd));
	}
	while (sendmsg(socket, &m, MSG_NOSIGNAL) < 0 && errno == EINTR)
		;
}

static int take_answer(int socket, struct rsh_error *said, int *fd)
{
	struct iovec text = { said, sizeof(*said) };
	union control control;
	struct msghdr m = {
		.msg_iov = &text, .msg_iovlen = 1,
		.msg_control = control.room,
		.msg_controllen = sizeof(control.room),
	};
	const struct cmsghdr *c;
	ssize_t n;

	do {
		n = recvmsg(socket, &m, MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	if (n != (ssize_t)sizeof(*said))
		return rsh_error_set(said, EIO, "the process that mounts has "
				     "ended");
	c = CMSG_FIRSTHDR(&m);
	if (c && c->cmsg_type == SCM_RIGHTS)
		memcpy(fd, CMSG_DATA(c), sizeof(*fd));
	return -said->code;
}

/* ---- the process ---- */

struct work {
	const struct rsh_server_options *options;
	const char *mountpoint;
	int socket;
	struct fuse_session *session; /* NULL: nothing is mounted */
};

static int mount_once(struct work *w, struct rsh_error *said)
{
	int rc;

	if (w->session)
		return rsh_error_set(said, EBUSY, "it is mounted");
	rsh_libfuse_listen(said);
	rc = rsh_session_new(w->options, NULL, &w->session, said);
	if (rc == 0) {
		rc = rsh_session_mount(w->session, w->mountpoint);
		if (rc) {
			fuse_session_destroy(w->session);
			w->session = NULL;
		}
	}
	rsh_libfuse_listen(NULL);
	if (rc && said->code == 0)
		said->code = -rc; /* fusermount3 has said why */
	return rc;
}

/* Whoever started the command waits for its streams to close. */
static void leave_streams(void)
{
	for (int fd = 0; fd <= 2; fd++)
		rsh_device_close(fd);
}

static void do_mount(struct work *w)
{
	struct rsh_error said = RSH_ERROR_INIT;
	int fd = -1;

	if (mount_once(w, &said) == 0)
		fd = fuse_session_fd(w->session);
	leave_streams();
	answer(w->socket, &said, fd);
	/* The connection must end with the server. */
	if (fd >= 0)
		rsh_device_close(fd);
}

static void do_unmount(struct work *w)
{
	struct rsh_error said = RSH_ERROR_INIT;

	if (w->session)
		fuse_session_unmount(w->session);
	answer(w->socket, &said, -1);
}

static void obey(struct work *w)
{
	char word;
	ssize_t n;

	while ((n = read(w->socket, &word, 1)) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			break;
		if (word == MOUNT)
			do_mount(w);
		else if (word == UNMOUNT)
			do_unmount(w);
	}
}

/* Signals that end the server come to its group as well. */
static void ignore_signals(void)
{
	static const int numbers[] = { SIGHUP, SIGINT, SIGQUIT, SIGTERM,
				       SIGPIPE };

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		signal(numbers[i], SIG_IGN);
}

__attribute__((noreturn))
static void work(const struct rsh_server_options *o, const char *mountpoint,
		 int socket)
{
	struct work w = {
		.options = o, .mountpoint = mountpoint, .socket = socket,
	};

	ignore_signals();
	if (chdir("/") == 0)
		obey(&w);
	_exit(0);
}

/* ---- the server's side ---- */

int rsh_mounter_start(const struct rsh_server_options *o,
		      struct rsh_mounter **out, struct rsh_error *err)
{
	char mountpoint[PATH_MAX];
	int rc = rsh_mountpoint_check(o->mountpoint, mountpoint, err);
	struct rsh_mounter *m;
	int ends[2];

	if (rc)
		return rc;
	m = calloc(1, sizeof(*m));
	if (!m)
		return rsh_error_nomem(err);
	rc = socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends);
	if (rc == 0) {
		m->process = fork();
		if (m->process == 0) {
			close(ends[0]);
			work(o, mountpoint, ends[1]);
		}
		rc = m->process < 0 ? -1 : 0;
	}
	if (rc) {
		free(m);
		return rsh_error_set(err, errno, "no process for the mount: %s",
				     strerror(errno));
	}
	close(ends[1]);
	m->socket = ends[0];
	*out = m;
	return 0;
}

static int ask(struct rsh_mounter *m, char word, struct rsh_error *said,
	       int *fd)
{
	if (send(m->socket, &word, 1, MSG_NOSIGNAL) != 1)
		return rsh_error_set(said, errno, "the process that mounts: %s",
				     strerror(errno));
	return take_answer(m->socket, said, fd);
}

int rsh_mounter_mount(struct rsh_mounter *m, int *fd, struct rsh_error *err)
{
	return ask(m, MOUNT, err, fd);
}

void rsh_mounter_unmount(struct rsh_mounter *m)
{
	struct rsh_error said = RSH_ERROR_INIT;
	int none = -1;

	if (ask(m, UNMOUNT, &said, &none))
		rsh_log_warning("%s; the mount is left behind", said.text);
}

void rsh_mounter_end(struct rsh_mounter *m)
{
	if (!m)
		return;
	close(m->socket);
	while (waitpid(m->process, NULL, 0) < 0 && errno == EINTR)
		;
	free(m);
}
