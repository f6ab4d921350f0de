/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/list.c runs `list`, which lists the mounts of reshardfs.  A separate
 * process asks each daemon, since one that hangs would not let it end. */
#include "config.h"

#include "commands.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rsh/app/control_client.h"
#include "rsh/app/mounted.h"
#include "rsh/util/clock.h"
#include "rsh/util/files.h"
#include "rsh/util/mem.h"

#define ANSWER_MS 2000
#define ANSWER_BYTES (1024 * 1024)
/* Statuses with which the process that asks ends. */
#define DENIED 1
#define ENDED 2
#define FAILED 3

/* Writes what the daemon says as [config, stats]. */
static int ask(const char *path, int pipe)
{
	struct rsh_error err = RSH_ERROR_INIT;
	json_t *config = NULL, *stats = NULL;
	int rc = rsh_control_query(path, "config", &config, &err);

	rc = rc ?: rsh_control_query(path, "stats", &stats, &err);
	if (rc)
		return rc == -EACCES ? DENIED : rc == -ENOTCONN ? ENDED :
		       FAILED;
	return json_dumpfd(json_pack("[oo]", config, stats), pipe,
			   JSON_COMPACT) ? FAILED : 0;
}

/* Reads until the other end is closed.  Returns whether it was in time. */
static bool read_answer(int pipe, char *text, size_t *n)
{
	const uint64_t begun = rsh_clock_ns();
	struct pollfd p = { .fd = pipe, .events = POLLIN };

	for (*n = 0; *n < ANSWER_BYTES;) {
		const int ms = ANSWER_MS - (int)(rsh_clock_since(begun) * 1000);
		ssize_t got;

		if (ms <= 0 || poll(&p, 1, ms) <= 0)
			return false;
		got = read(pipe, text + *n, ANSWER_BYTES - *n);
		if (got <= 0)
			return got == 0;
		*n += (size_t)got;
	}
	return false;
}

/* Sets *all to what the daemon says, and returns the state of the mount. */
static const char *state_of(const struct rsh_mounted *m, char *text,
			    json_t **all)
{
	int pipe, status;
	const pid_t pid = rsh_fork_with_pipe(&pipe);
	size_t n;

	*all = NULL;
	if (pid == 0) {
		/* If it cannot be killed, it must not hold what the user waits
		 * for. */
		close(STDOUT_FILENO);
		close(STDERR_FILENO);
		/* The kernel refuses a mount without -o allow_other to all but
		 * its user, root included. */
		if (geteuid() == 0 && setresgid(m->group, m->group,
						m->group) == 0 &&
		    setresuid(m->user, m->user, m->user))
			_exit(FAILED);
		_exit(ask(m->path, pipe));
	}
	if (pid < 0)
		return "unknown";
	if (!read_answer(pipe, text, &n)) {
		close(pipe);
		rsh_mounted_kill_child(pid);
		return "does not answer";
	}
	close(pipe);
	if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
		return "unknown";
	switch (WEXITSTATUS(status)) {
	case 0:
		*all = json_loadb(text, n, 0, NULL);
		break;
	case DENIED:
		return "of another user";
	case ENDED:
		return "its daemon has ended";
	}
	if (!json_is_array(*all))
		return "unknown";
	return json_integer_value(json_object_get(json_object_get(
		json_array_get(*all, 1), "fetched"), "unreachable")) ?
		"SOURCE is unreachable" : "ready";
}

/* Returns the resident memory of a process; 0: unknown. */
static uint64_t memory_of(json_int_t pid)
{
	uint64_t kib = 0;
	char path[64], line[128], name[16] = "";
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%lld/status", (long long)pid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "Name: %15s", name) != 1 &&
		    sscanf(line, "VmRSS: %" SCNu64, &kib) == 1)
			break;
	if (f)
		fclose(f);
	/* The mount may be of another container, with other numbers. */
	return strcmp(name, "reshardfs") == 0 ? kib * 1024 : 0;
}

/* Returns the options as they are given on a command line, from malloc; NULL:
 * memory is out. */
static char *options_text(json_t *options)
{
	const char *name, *before = "";
	char *text = NULL;
	size_t n;
	FILE *f = open_memstream(&text, &n);
	json_t *value;

	if (!f)
		return NULL;
	json_object_foreach(options, name, value) {
		const char *given = json_string_value(value);

		fprintf(f, "%s--%s%s%s", before, name, given ? " " : "",
			given ? given : "");
		before = " ";
	}
	return fclose(f) == 0 ? text : NULL;
}

static void print_mount(const struct rsh_mounted *m, const char *state,
			const json_t *all, struct rsh_printer *out)
{
	const json_t *config = json_array_get(all, 0);
	json_t *options = json_object_get(config, "options");
	cleanup_free char *text = rsh_json_dump(json_incref(options),
						JSON_COMPACT);
	cleanup_free char *given = options_text(options);
	const json_int_t pid = json_integer_value(json_object_get(config,
								  "pid"));
	const uint64_t memory = pid ? memory_of(pid) : 0;
	const char *step = json_string_value(json_object_get(config, "step"));

	rsh_row(out, m->path, m->source, step,
		rsh_v_marked(strcmp(state, "ready") == 0 ? RSH_MARK_GOOD :
			     RSH_MARK_BAD, rsh_v_text(state)),
		(uint64_t)m->user, RSH_V_IF(pid, (int64_t)pid),
		RSH_V_IF(memory, rsh_v_bytes(memory)),
		RSH_V_IF(text, rsh_v_json(text)),
		given);
}

int rsh_list(const struct rsh_options *o, struct rsh_run *run)
{
	static const struct rsh_column columns[] = {
		{ "mountpoint", "MOUNTPOINT", .shorten = true },
		{ "source", "SOURCE", .shorten = true },
		{ "step", "STEP" },
		{ "state", "STATE" },
		{ "user", NULL },
		{ "pid", "PROCESS", .right = true },
		{ "memory_bytes", "MEMORY", .right = true },
		{ "options", NULL },
		{ NULL, "OPTIONS", .shorten = true },
		{ NULL, NULL }
	};
	cleanup_free char *text = malloc(ANSWER_BYTES);
	cleanup_free struct rsh_mounted *v = NULL;
	size_t n = 0, n_shown = 0;
	int rc = text ? rsh_mounted_list(&v, &n) : -ENOMEM;

	if (rc)
		return rsh_error_set(&run->err, -rc, "/proc/self/mounts: %s",
				     strerror(-rc));
	for (size_t i = 0; i < n; i++)
		if (geteuid() == 0 || geteuid() == v[i].user || o->all_mounts)
			v[n_shown++] = v[i];
	if (n_shown == 0 && n)
		rsh_say(&run->out, "nothing is mounted by this user; `reshardfs "
			"list --all` lists % of others\n", n);
	else if (n_shown == 0)
		rsh_say(&run->out, "nothing is mounted\n");
	if (n_shown == 0 && !run->out.json)
		return 0;
	rsh_json(&run->out, "{mounts:");
	rsh_rows(&run->out, columns);
	for (size_t i = 0; i < n_shown; i++) {
		json_t *all;
		const char *state = state_of(&v[i], text, &all);

		print_mount(&v[i], state, all, &run->out);
		json_decref(all);
	}
	rsh_rows_end(&run->out);
	rsh_json(&run->out, "}");
	return 0;
}
