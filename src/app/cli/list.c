/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/list.c runs `list`, which lists the mounts of reshardfs. */
#include "config.h"

#include "commands.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rsh/app/control_client.h"
#include "rsh/app/mounted.h"
#include "rsh/util/files.h"
#include "rsh/util/mem.h"

#define ANSWER_MS 2000

/* Sets *all to what the daemon says, and returns the state of the mount. */
static const char *state_of(const struct rsh_mounted *m, json_t **all)
{
	static const char *const names[] = { "config", "stats" };
	const int rc = rsh_control_ask(m, true, names, 2, ANSWER_MS, all);

	if (rc)
		return rc == -EACCES || rc == -EPERM ? "of another user" :
		       rc == -ENOTCONN ? "its daemon has ended" :
		       rc == -ETIMEDOUT ? "does not answer" : "unknown";
	return json_integer_value(json_object_get(json_object_get(
		json_array_get(*all, 2), "fetched"), "unreachable")) ?
		"SOURCE is unreachable" : "ready";
}

/* Returns the resident memory of a process; 0: unknown. */
static uint64_t memory_of(json_int_t pid)
{
	char path[64], name[16], rss[32];

	snprintf(path, sizeof(path), "/proc/%lld/status", (long long)pid);
	/* The mount may be of another container, with other numbers. */
	return rsh_file_line(path, "Name:\t", name, sizeof(name)) &&
	       strcmp(name, "reshardfs") == 0 &&
	       rsh_file_line(path, "VmRSS:", rss, sizeof(rss)) ?
	       strtoull(rss, NULL, 10) * 1024 : 0;
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
	const json_t *config = json_array_get(all, 1);
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
	cleanup_free struct rsh_mounted *v = NULL;
	size_t n = 0, n_shown = 0;
	const int rc = rsh_mounted_list(&v, &n, &run->err);

	if (rc)
		return rc;
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
		const char *state = state_of(&v[i], &all);

		print_mount(&v[i], state, all, &run->out);
		json_decref(all);
	}
	rsh_rows_end(&run->out);
	rsh_json(&run->out, "}");
	return 0;
}
