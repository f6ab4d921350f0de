/* SPDX-License-Identifier: Apache-2.0 */
/* unit/objects_support.c - see objects_support.h. */
#include "config.h"

#include "objects_support.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests.h"

#define ARGUMENTS_MAX 12
#define PERIOD 65521

static void server_run(int in, int out, const char *python,
		       const char *program, const char *const *more)
{
	const char *srcdir = getenv("srcdir");
	const char *arguments[ARGUMENTS_MAX] = { python };
	char path[4096];
	int n = 2;

	snprintf(path, sizeof(path), "%s/lib/%s", srcdir ? srcdir : ".",
		 program);
	arguments[1] = path;
	while (more && *more && n < ARGUMENTS_MAX - 1)
		arguments[n++] = *more++;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	dup2(in, STDIN_FILENO);
	dup2(out, STDOUT_FILENO);
	execvp(python, (char *const *)(uintptr_t)arguments);
	_exit(127);
}

/* Reads the line that says where it is. */
static void server_line(int fd, char *line, size_t size)
{
	size_t len = 0;

	memset(line, 0, size);
	while (len < size - 1 && !strchr(line, '\n')) {
		ssize_t n = read(fd, line + len, size - 1 - len);

		assert_true(n > 0);
		len += (size_t)n;
	}
}

void object_server_run(struct object_server *s, const char *python,
		       const char *program, const char *const *more)
{
	int in[2], out[2];

	assert_int_equal(pipe(in), 0);
	assert_int_equal(pipe(out), 0);
	s->pid = fork();
	assert_true(s->pid >= 0);
	if (s->pid == 0) {
		close(in[1]);
		server_run(in[0], out[1], python, program, more);
	}
	close(in[0]);
	close(out[1]);
	s->in = in[1];
	server_line(out[0], s->line, sizeof(s->line));
	close(out[0]);
	s->port = (unsigned)atoi(s->line);
	assert_true(s->port > 0);
}

void object_server_start(struct object_server *s, const char *const *more)
{
	object_server_run(s, "python3", "object_server.py", more);
}

void object_server_stop(struct object_server *s)
{
	close(s->in);
	waitpid(s->pid, NULL, 0);
}

static uint8_t pattern_byte(uint64_t k)
{
	return (uint8_t)(k * k * 31 + k * 7 + (k >> 8));
}

void object_bytes(const char *name, uint64_t offset, uint8_t *buf, size_t len)
{
	uint64_t shift = 0;

	for (const char *c = name; *c && *c != '~'; c++)
		shift = *c == '/' ? 0 : shift + (uint8_t)*c;
	for (size_t i = 0; i < len; i++)
		buf[i] = pattern_byte((offset + i + shift) % PERIOD);
}
