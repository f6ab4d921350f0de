/* SPDX-License-Identifier: Apache-2.0 */
/* util/log.c writes the lines of the log and keeps the last warnings and errors
 * in memory. */
#include "rsh/util/log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#include "rsh/util/text.h"

#define IDENT "reshardfs"
#define LINE_MAX_BYTES 4096
#define KEPT_LINES 200

static const struct {
	const char *name;
	int syslog_priority;
} levels[] = {
	[RSH_LOG_ERROR] = { "error", LOG_ERR },
	[RSH_LOG_WARNING] = { "warning", LOG_WARNING },
	[RSH_LOG_NOTICE] = { "notice", LOG_NOTICE },
	[RSH_LOG_INFO] = { "info", LOG_INFO },
	[RSH_LOG_DEBUG] = { "debug", LOG_DEBUG },
};

#define N_LEVELS (sizeof(levels) / sizeof(levels[0]))

/* Each of these is read and written independently of the others, so no lock is
 * needed, and none is held during the write. */
static atomic_int log_level = RSH_LOG_NOTICE;
static atomic_bool log_json;
static atomic_int file_fd = -1; /* -1: the log goes to no file */
static atomic_int journal_fd = -1;
static _Atomic enum { TO_STREAM, TO_SYSLOG, TO_JOURNAL } target;
static atomic_ullong n_errors, n_warnings;

/* The last warnings and errors that were logged. */
static struct {
	pthread_mutex_t lock; /* guards the rest */
	char *lines[KEPT_LINES];
	size_t next; /* index of the oldest, which is replaced next */
} kept = { .lock = PTHREAD_MUTEX_INITIALIZER };

void rsh_log_set_level(enum rsh_log_level level)
{
	atomic_store_explicit(&log_level, (int)level, memory_order_relaxed);
}

enum rsh_log_level rsh_log_get_level(void)
{
	return (enum rsh_log_level)atomic_load_explicit(&log_level,
							memory_order_relaxed);
}

void rsh_log_set_json(bool json)
{
	atomic_store(&log_json, json);
}

const char *rsh_log_level_name(enum rsh_log_level level)
{
	return levels[level].name;
}

bool rsh_log_enabled(enum rsh_log_level level)
{
	return level <= rsh_log_get_level();
}

int rsh_log_to_file(const char *path)
{
	/* Nobody may read a pipe, and then neither the open nor a line of the
	 * log may wait. */
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK |
			    O_CLOEXEC, 0600);
	int old = atomic_load(&file_fd);

	if (fd < 0)
		return -errno;
	if (old < 0) {
		atomic_store(&file_fd, fd);
	} else {
		/* The new file takes over the old descriptor, so that another
		 * thread never writes to a closed one. */
		int rc = dup3(fd, old, O_CLOEXEC) < 0 ? -errno : 0;

		close(fd);
		if (rc)
			return rc;
	}
	atomic_store(&target, TO_STREAM);
	return 0;
}

void rsh_log_to_syslog(void)
{
	openlog(IDENT, LOG_PID, LOG_DAEMON);
	atomic_store(&target, TO_SYSLOG);
}

/* The socket is not connected, so that it works again after the journal was
 * restarted. */
int rsh_log_to_journal(void)
{
	int fd;

	if (access(RSH_LOG_JOURNAL, W_OK) != 0)
		return -errno;
	if (atomic_load(&journal_fd) < 0) {
		fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
		if (fd < 0)
			return -errno;
		atomic_store(&journal_fd, fd);
	}
	atomic_store(&target, TO_JOURNAL);
	return 0;
}

static size_t put_time(char *buf, size_t size)
{
	struct timespec now;
	struct tm tm;
	char zone[8];
	char second[32];
	int n;

	clock_gettime(CLOCK_REALTIME, &now);
	localtime_r(&now.tv_sec, &tm);
	strftime(second, sizeof(second), "%Y-%m-%dT%H:%M:%S", &tm);
	strftime(zone, sizeof(zone), "%z", &tm);
	n = snprintf(buf, size, "%s.%06ld%s", second, now.tv_nsec / 1000,
		     zone);
	return n > 0 ? (size_t)n : 0;
}

/* Formats a line and returns its length. */
static size_t format_line(char *line, size_t size, bool timed,
			  enum rsh_log_level level, const char *text)
{
	size_t used = timed ? put_time(line, size) : 0;
	int n = snprintf(line + used, size - used, "%s%s: %s: %s\n",
			 timed ? " " : "", IDENT, levels[level].name, text);

	return n > 0 ? used + (size_t)n : used;
}

/* Formats the line as JSON.  The text has no control characters. */
static size_t format_json(char *line, size_t size, enum rsh_log_level level,
			  const char *text)
{
	char time[64];
	size_t n = put_time(time, sizeof(time));
	int head = snprintf(line, size, "{\"time\":\"%.*s\",\"level\":\"%s\","
			    "\"message\":\"", (int)n, time,
			    levels[level].name);

	n = head > 0 ? (size_t)head : 0;
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			line[n++] = '\\';
		line[n++] = *text;
	}
	return (size_t)(stpcpy(line + n, "\"}\n") - line);
}

/* A line is one write(2), so that lines of several threads and processes do not
 * mix in a file that is opened for appending. */
static void log_to_stream(enum rsh_log_level level, const char *text)
{
	char line[2 * LINE_MAX_BYTES + 128];
	const int fd = atomic_load(&file_fd);
	const size_t len = atomic_load(&log_json) ?
			   format_json(line, sizeof(line), level, text) :
			   format_line(line, sizeof(line), fd >= 0, level,
				       text);
	ssize_t n;

	do
		n = write(fd >= 0 ? fd : STDERR_FILENO, line, len);
	while (n < 0 && errno == EINTR);
}

/* In systemd's native protocol each line is a field; the text has no
 * newline. */
static void log_to_journal(enum rsh_log_level level, const char *text)
{
	static const struct sockaddr_un to = { AF_UNIX, RSH_LOG_JOURNAL };
	char fields[LINE_MAX_BYTES + 128];
	int n = snprintf(fields, sizeof(fields),
			 "PRIORITY=%d\nSYSLOG_IDENTIFIER=%s\nMESSAGE=%s\n",
			 levels[level].syslog_priority, IDENT, text);
	ssize_t sent;

	do {
		sent = sendto(atomic_load(&journal_fd), fields, (size_t)n,
			      MSG_NOSIGNAL, (const struct sockaddr *)&to,
			      sizeof(to));
	} while (sent < 0 && errno == EINTR);
}

static void log_keep(enum rsh_log_level level, const char *text)
{
	char line[LINE_MAX_BYTES + 128], *copy, *old;

	atomic_fetch_add(level == RSH_LOG_ERROR ? &n_errors : &n_warnings, 1);
	format_line(line, sizeof(line), true, level, text);
	copy = strdup(line);
	if (!copy)
		return;
	pthread_mutex_lock(&kept.lock);
	old = kept.lines[kept.next];
	kept.lines[kept.next] = copy;
	kept.next = (kept.next + 1) % KEPT_LINES;
	pthread_mutex_unlock(&kept.lock);
	free(old);
}

char *rsh_log_recent(void)
{
	size_t size = 1;
	char *text, *to;

	pthread_mutex_lock(&kept.lock);
	for (size_t i = 0; i < KEPT_LINES; i++)
		size += kept.lines[i] ? strlen(kept.lines[i]) : 0;
	text = to = malloc(size);
	for (size_t i = 0; text && i < KEPT_LINES; i++) {
		const char *line = kept.lines[(kept.next + i) % KEPT_LINES];

		if (line)
			to = stpcpy(to, line);
	}
	pthread_mutex_unlock(&kept.lock);
	if (text)
		*to = '\0';
	return text;
}

void rsh_log_counts(uint64_t *errors, uint64_t *warnings)
{
	*errors = atomic_load(&n_errors);
	*warnings = atomic_load(&n_warnings);
}

void rsh_log(enum rsh_log_level level, const char *fmt, ...)
{
	char text[LINE_MAX_BYTES], shown[LINE_MAX_BYTES];
	int saved = errno;
	va_list ap;
	int n;

	if (level > RSH_LOG_WARNING && !rsh_log_enabled(level))
		return;
	va_start(ap, fmt);
	n = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (n < 0)
		strcpy(text, "(message could not be formatted)");
	else if ((size_t)n >= sizeof(text))
		strcpy(text + sizeof(text) - 4, "...");
	rsh_text_put(shown, sizeof(shown), text);
	if (level <= RSH_LOG_WARNING)
		log_keep(level, shown);
	if (rsh_log_enabled(level)) {
		switch (atomic_load(&target)) {
		case TO_STREAM:
			log_to_stream(level, shown);
			break;
		case TO_SYSLOG:
			syslog(levels[level].syslog_priority, "%s", shown);
			break;
		case TO_JOURNAL:
			log_to_journal(level, shown);
			break;
		}
	}
	errno = saved;
}
