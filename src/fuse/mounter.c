/* SPDX-License-Identifier: Apache-2.0 */
/* fuse/mounter.c has the process that mounts and unmounts.
 *
 * A process with no_new_privs cannot run fusermount3, which is setuid, and a
 * process that is confined by landlock cannot change mounts at all.  This
 * process keeps both privileges.  It accepts five commands on a socket.  MOUNT
 * and UNMOUNT use the mountpoint from its start.  FIND is for a source that was
 * mounted again, because landlock's rules do not cover the new mount: a child
 * process looks up the name, because the source may hang, and sends the opened
 * descriptors.  LOOK_UP does the same for names of hosts, because the rules do
 * not cover files that have replaced /etc/hosts or resolv.conf.  DYING reads
 * /proc to check whether a reader is about to die.
 * The process reads nothing else.
 */
#include "config.h"

#include "ops_i.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rsh/util/log.h"
#include "rsh/util/mem.h"

#define MOUNT 'm'
#define UNMOUNT 'u'
/* These three commands are sent with a socket for the answer. */
#define FIND 'f'  /* followed by a name */
#define LOOK_UP 'l' /* followed by the name of a host */
#define DYING 'd' /* followed by the number of a thread */

/* The most child processes for FIND and LOOK_UP at a time.  No more are started
 * while this many hang, and a child is killed after FINDING_SECONDS. */
#define MOST_FINDING 16
#define FINDING_SECONDS 60

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

/* ---- messages, with descriptors or without ---- */

#define MOST_FDS 2

union control {
	struct cmsghdr align;
	char room[CMSG_SPACE(MOST_FDS * sizeof(int))];
};

/* Sends n descriptors with the message, or none if n is 0. */
static int send_message(int socket, void *buf, size_t size, const int *fd,
			size_t n)
{
	struct iovec v = { buf, size };
	union control control = { .room = "" };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };
	ssize_t sent;

	if (n > 0) {
		m.msg_control = control.room;
		m.msg_controllen = CMSG_SPACE(n * sizeof(*fd));
		control.align = (struct cmsghdr){
			.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS,
			.cmsg_len = CMSG_LEN(n * sizeof(*fd)),
		};
		memcpy(CMSG_DATA(&control.align), fd, n * sizeof(*fd));
	}
	do {
		sent = sendmsg(socket, &m, MSG_NOSIGNAL);
	} while (sent < 0 && errno == EINTR);
	return sent < 0 ? -errno : 0;
}

/* Returns the length, or -errno.  fd gets the *n descriptors of the message, up
 * to MOST_FDS. */
static ssize_t take_message(int socket, void *buf, size_t size, int *fd,
			    size_t *n)
{
	struct iovec v = { buf, size };
	union control control;
	struct msghdr m = {
		.msg_iov = &v, .msg_iovlen = 1, .msg_control = control.room,
		.msg_controllen = sizeof(control.room),
	};
	const struct cmsghdr *c;
	ssize_t got;

	*n = 0;
	do {
		got = recvmsg(socket, &m, MSG_CMSG_CLOEXEC);
	} while (got < 0 && errno == EINTR);
	if (got < 0)
		return -errno;
	c = CMSG_FIRSTHDR(&m);
	if (c && c->cmsg_type == SCM_RIGHTS) {
		*n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(*fd);
		memcpy(fd, CMSG_DATA(c), *n * sizeof(*fd));
	}
	return got;
}

/* ---- the process ---- */

struct work {
	const struct rsh_server_options *options;
	const char *mountpoint;
	int socket;
	struct fuse_session *session; /* NULL: nothing is mounted */
	unsigned n_finding; /* child processes that have not been reaped */
};

static void do_mount(struct work *w)
{
	static const struct fuse_lowlevel_ops none = { NULL };
	struct rsh_error said = RSH_ERROR_INIT;
	int fd = -1, rc;

	if (w->session) {
		rc = rsh_error_set(&said, EBUSY, "already mounted");
	} else {
		rsh_libfuse_listen(&said);
		/* This process answers no requests. */
		rc = rsh_session_new(w->options, &none, NULL, &w->session,
				     &said);
		if (rc == 0) {
			rc = rsh_session_mount(w->session, w->mountpoint);
			if (rc) {
				fuse_session_destroy(w->session);
				w->session = NULL;
			}
		}
		rsh_libfuse_listen(NULL);
	}
	if (rc && said.code == 0)
		said.code = -rc; /* fusermount3 has printed the reason */
	if (rc == 0)
		fd = fuse_session_fd(w->session);
	/* The streams are closed because the caller of the command waits until
	 * they are closed. */
	for (int stream = 0; stream <= 2; stream++)
		rsh_device_close(stream);
	send_message(w->socket, &said, sizeof(said), &fd, fd >= 0);
	/* The connection must end with the server, so this process closes its
	 * descriptor. */
	if (fd >= 0)
		rsh_device_close(fd);
}

static void do_unmount(struct work *w)
{
	struct rsh_error said = RSH_ERROR_INIT;

	if (w->session)
		fuse_session_unmount(w->session);
	send_message(w->socket, &said, sizeof(said), NULL, 0);
}

/* ---- finding ---- */

/* Answers FIND or LOOK_UP.  If there is no answer the caller sees that the
 * other end was closed. */
__attribute__((noreturn))
static void mounter_find(const struct work *w, const char *word, int to)
{
	int fd[2] = { -EIO, -EIO };
	char text[PATH_MAX];
	int open[2];
	size_t n = 0;

	close(w->socket);
	alarm(FINDING_SECONDS);
	if (*word == LOOK_UP) {
		if (w->options->look_up(word + 1, text, sizeof(text)) == 0)
			send_message(to, text, strlen(text) + 1, NULL, 0);
		_exit(0);
	}
	w->options->find(w->options->find_ctx, word + 1, fd);
	/* Descriptors are attached to the message; it contains negative numbers
	 * unchanged. */
	for (int i = 0; i < 2; i++)
		if (fd[i] >= 0)
			open[n++] = fd[i];
	send_message(to, fd, 2 * sizeof(*fd), open, n);
	_exit(0);
}

static void do_find(struct work *w, const char *word, int to)
{
	pid_t child;

	while (w->n_finding && waitpid(-1, NULL, WNOHANG) > 0)
		w->n_finding--;
	if (w->n_finding >= MOST_FINDING)
		return;
	child = fork();
	if (child == 0)
		mounter_find(w, word, to);
	w->n_finding += child > 0;
}

__attribute__((noreturn))
static void mounter_work(const struct rsh_server_options *o,
			 const char *mountpoint, int socket)
{
	struct work w = {
		.options = o, .mountpoint = mountpoint, .socket = socket,
	};
	int dies;
	static const int numbers[] = { SIGHUP, SIGINT, SIGQUIT, SIGTERM,
				       SIGPIPE };
	const int handed = rsh_mountpoint_fd(mountpoint);

	/* The connection must end with the server. */
	if (handed >= 0)
		rsh_device_close(handed);
	/* A signal that ends the server may be sent to its process group, which
	 * includes this process. */
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		signal(numbers[i], SIG_IGN);
	if (chdir("/") == 0) {
		char word[PATH_MAX + 2];
		int fd[MOST_FDS];
		ssize_t got;
		size_t n;

		while ((got = take_message(w.socket, word, sizeof(word) - 1, fd,
					   &n)) > 0) {
			word[got] = '\0';
			if (*word == MOUNT) {
				do_mount(&w);
			} else if (*word == UNMOUNT) {
				do_unmount(&w);
			} else if (n == 1 &&
				   ((*word == FIND && o->find) ||
				    (*word == LOOK_UP && o->look_up))) {
				do_find(&w, word, fd[0]);
			} else if (*word == DYING && n == 1) {
				dies = rsh_thread_dies(atoi(word + 1));
				send_message(fd[0], &dies, sizeof(dies), NULL,
					     0);
			}
			while (n)
				close(fd[--n]);
		}
	}
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

	rc = rc ?: rsh_mount_rights_check(mountpoint, err);
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
			mounter_work(o, mountpoint, ends[1]);
		}
		rc = m->process < 0 ? -1 : 0;
	}
	if (rc) {
		free(m);
		return rsh_error_set(err, errno, "cannot start the process "
				     "that mounts: %s", strerror(errno));
	}
	close(ends[1]);
	m->socket = ends[0];
	*out = m;
	return 0;
}

static int mounter_ask(struct rsh_mounter *m, char word, struct rsh_error *said,
		       int *fd)
{
	int got[MOST_FDS];
	size_t n;

	if (send(m->socket, &word, 1, MSG_NOSIGNAL) != 1)
		return rsh_error_set(said, errno, "the process that mounts: %s",
				     strerror(errno));
	if (take_message(m->socket, said, sizeof(*said), got, &n) !=
	    (ssize_t)sizeof(*said))
		return rsh_error_set(said, EIO, "the process that mounts has "
				     "ended");
	if (n)
		*fd = got[0];
	return -said->code;
}

int rsh_mounter_mount(struct rsh_mounter *m, int *fd, struct rsh_error *err)
{
	return mounter_ask(m, MOUNT, err, fd);
}

void rsh_mounter_unmount(struct rsh_mounter *m)
{
	struct rsh_error said = RSH_ERROR_INIT;
	int none = -1;

	if (mounter_ask(m, UNMOUNT, &said, &none))
		rsh_log_warning("%s; the mount point remains mounted",
				said.text);
}

/* Sends a command that is answered on a separate socket.  Returns this socket
 * when there is an answer, or when the other end is closed; or -errno. */
static int ask_aside(struct rsh_mounter *m, char *word, size_t length,
		     int seconds)
{
	struct pollfd p = { .events = POLLIN };
	int ends[2], rc;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
		return -errno;
	rc = send_message(m->socket, word, length, &ends[1], 1);
	close(ends[1]);
	p.fd = ends[0];
	if (rc == 0 && poll(&p, 1, seconds * 1000) <= 0)
		rc = -ETIMEDOUT;
	if (rc)
		close(ends[0]);
	return rc ? rc : ends[0];
}

/* Sends a command that is followed by a name. */
static int ask_by_name(struct rsh_mounter *m, char command, const char *name)
{
	char word[PATH_MAX];
	const int length = snprintf(word, sizeof(word), "%c%s", command, name);

	return length >= (int)sizeof(word) ? -ENAMETOOLONG :
	       ask_aside(m, word, (size_t)length, RSH_FIND_SECONDS);
}

int rsh_mounter_find(void *mounter, const char *name, int fd[2])
{
	cleanup_fd int from = ask_by_name(mounter, FIND, name);
	int open[MOST_FDS];
	size_t n;
	size_t used = 0;
	ssize_t got;

	if (from < 0)
		return from;
	/* Receives fd, and puts the attached descriptors where the message has
	 * descriptors of the other process. */
	got = take_message(from, fd, 2 * sizeof(*fd), open, &n);
	for (int i = 0; i < 2 && got == 2 * (ssize_t)sizeof(*fd); i++)
		if (fd[i] >= 0)
			fd[i] = used < n ? open[used++] : -EIO;
	while (used < n)
		close(open[used++]);
	return got == 2 * (ssize_t)sizeof(*fd) ? 0 : -EIO;
}

int rsh_mounter_look_up(void *mounter, const char *host, char *to, size_t size)
{
	cleanup_fd int from = ask_by_name(mounter, LOOK_UP, host);
	int fd[MOST_FDS];
	size_t n;
	ssize_t got;

	if (from < 0)
		return from;
	got = take_message(from, to, size, fd, &n);
	return got > 0 && to[got - 1] == '\0' ? 0 : -EHOSTUNREACH;
}

int rsh_mounter_ask_fatal_signals(struct rsh_mounter *m, pid_t thread)
{
	char word[16];
	const int length = snprintf(word, sizeof(word), "%c%d", DYING, thread);
	cleanup_fd int from = ask_aside(m, word, (size_t)length, 1);
	int fd[MOST_FDS], dies;
	size_t n;

	if (from < 0)
		return from;
	return take_message(from, &dies, sizeof(dies), fd, &n) ==
	       (ssize_t)sizeof(dies) ? dies : -EIO;
}

void rsh_mounter_end(struct rsh_mounter *m)
{
	if (!m)
		return;
	shutdown(m->socket, SHUT_RDWR);
	while (waitpid(m->process, NULL, 0) < 0 && errno == EINTR)
		;
}
