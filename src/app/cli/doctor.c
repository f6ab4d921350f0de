/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/doctor.c runs `doctor`, which prints what a question about this
 * machine or about SOURCE needs.  Values of keys are never printed.  `ls` runs
 * in a process of its own, so that all else is printed if it fails. */
#include "config.h"

#include "commands.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rsh/app/mount.h"
#include "rsh/app/mounted.h"
#include "rsh/fuse/server.h"
#include "rsh/source/source.h"
#include "rsh/source/tables.h"
#include "rsh/storage/objects.h"
#include "rsh/util/compat.h"
#include "rsh/util/files.h"
#include "rsh/util/mem.h"
#include "rsh/util/memory_limits.h"
#include "rsh/util/secret.h"
#include "rsh/util/text.h"
#include "rsh/util/version.h"

#define SELF "/proc/self/exe"
#define ANSWER_BYTES (16 * 1024 * 1024)
#define LOG_BYTES 8191

enum doctor_state { GOOD, NONE, BAD };

static void doctor_tell(struct rsh_run *run, const char *about,
			enum doctor_state state, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* Prints a row.  BAD is what keeps a mount from working. */
static void doctor_tell(struct rsh_run *run, const char *about,
			enum doctor_state state, const char *fmt, ...)
{
	static const char *const words[] = { "good", "none", "bad" };
	char text[2 * PATH_MAX];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	rsh_row(&run->out, about,
		rsh_v_marked(state == GOOD ? RSH_MARK_GOOD :
			     state == BAD ? RSH_MARK_BAD : RSH_MARK_NONE,
			     rsh_v_text(words[state])), text);
	if (state == BAD)
		run->status = RSH_EXIT_NO;
}

static void doctor_system(struct rsh_run *run)
{
	const char *commit = rsh_version_commit();
	char name[256] = "Linux";
	struct utsname u;

	doctor_tell(run, "program", GOOD, "reshardfs %s%s%s, libfuse %s%s%s",
		    PACKAGE_VERSION, *commit ? ", commit " : "", commit,
		    rsh_server_library_version(), *RSH_LACKS ? ", without " :
		    "", RSH_LACKS);
	if (!rsh_file_line("/etc/os-release", "PRETTY_NAME=\"", name,
			   sizeof(name)))
		rsh_file_line("/etc/os-release", "PRETTY_NAME=", name,
			      sizeof(name));
	name[strcspn(name, "\"")] = '\0';
	if (uname(&u) == 0)
		doctor_tell(run, "system", GOOD, "%s, kernel %s, %s%s", name,
			    u.release, u.machine,
			    access("/.dockerenv", F_OK) == 0 ||
			    access("/run/.containerenv", F_OK) == 0 ?
			    ", in a container" : "");
}

static void doctor_mounts(struct rsh_run *run)
{
	cleanup_free struct rsh_mounted *v = NULL;
	struct rsh_error err = RSH_ERROR_INIT;
	const int abi = rsh_sandbox_landlock();
	bool others;
	char line[16];
	size_t n = 0;

	if (rsh_mount_rights_check("/", &err))
		doctor_tell(run, "mounts", BAD, "%s", err.text);
	else if (rsh_mounted_list(&v, &n, NULL))
		doctor_tell(run, "mounts", BAD, "/proc/self/mounts cannot be "
			    "read");
	else
		doctor_tell(run, "mounts", GOOD, "possible%s; %zu now "
			    "(reshardfs list)", geteuid() == 0 ? "" :
			    " with fusermount3", n);
	others = rsh_file_line("/etc/fuse.conf", "user_allow_other", line,
			       sizeof(line));
	doctor_tell(run, "other users", others ? GOOD : NONE, "%s", others ?
		    "-o allow_other is allowed to users (/etc/fuse.conf)" :
		    "-o allow_other is for root alone: /etc/fuse.conf has no "
		    "line user_allow_other");
	if (abi > 0)
		doctor_tell(run, "sandbox", GOOD, "landlock version %d", abi);
	else
		doctor_tell(run, "sandbox", NONE, "the kernel has no "
			    "landlock, or a container forbids it");
}

static void doctor_limits(struct rsh_run *run)
{
	const uint64_t mapped = rsh_memory_left_to_map();
	const uint64_t resident = rsh_memory_left_resident();
	char free_text[32] = "", left[32];
	const uint64_t least = mapped < resident ? mapped : resident;
	struct rlimit files = { 0 };

	rsh_text_bytes(rsh_physical_memory(), free_text, sizeof(free_text));
	if (least == RSH_MEMORY_UNLIMITED)
		doctor_tell(run, "memory", GOOD, "%s, no limit", free_text);
	else
		doctor_tell(run, "memory", GOOD, "%s, of which limits leave %s",
			    free_text, rsh_text_bytes(least, left,
						      sizeof(left)));
	getrlimit(RLIMIT_NOFILE, &files);
	doctor_tell(run, "open files", GOOD, "%" PRIu64 " at most",
		    (uint64_t)files.rlim_max);
}

/* Returns 0 if the user may make the directory, which does not exist, or why
 * not, as a negative errno. */
static int doctor_may_make(const char *dir)
{
	cleanup_free char *at = strdup(dir);
	char *slash = NULL;
	int rc = rsh_source_check_home(dir);

	if (rc)
		return rc;
	while (at && (slash = strrchr(at, '/'))) {
		*slash = '\0';
		if (access(slash == at ? "/" : at, W_OK | X_OK) == 0)
			return 0;
		if (errno != ENOENT)
			return -errno;
	}
	return at ? -ENOENT : -ENOMEM;
}

static void doctor_caches(const struct rsh_options *o, struct rsh_run *run)
{
	cleanup_table_list struct rsh_table_list tables = { .v = NULL };
	const char *dir = o->vfs.files.index_cache;
	struct statvfs vfs;
	struct stat st;
	char text[32];
	int rc = dir && stat(dir, &st) ? -errno : 0;
	const bool lacks = rc == -ENOENT;
	const char *why = NULL;

	rc = lacks ? doctor_may_make(dir) : rc;
	if (rc)
		why = strerror(-rc);
	else if (lacks)
		why = "not made yet";
	else if (dir && (st.st_uid != geteuid() ||
			 (st.st_mode & (S_IWGRP | S_IWOTH))))
		why = "not used, since another user owns it or can write to it";
	else if (dir && (access(dir, W_OK) || statvfs(dir, &vfs)))
		why = strerror(errno);
	if (!dir)
		doctor_tell(run, "index cache", NONE, "neither HOME nor "
			    "XDG_CACHE_HOME is set");
	else if (why)
		doctor_tell(run, "index cache", lacks && !rc ? GOOD : NONE,
			    "%s: %s", dir, why);
	else
		doctor_tell(run, "index cache", GOOD, "%s, %s free", dir,
			    rsh_text_bytes((uint64_t)vfs.f_bavail *
					   vfs.f_frsize, text, sizeof(text)));
	if (rsh_tables_list(&tables) == 0 && tables.n)
		doctor_tell(run, "rule tables", GOOD, "%zu (reshardfs convert "
			    "list)", tables.n);
	else
		doctor_tell(run, "rule tables", NONE, "none in %s: "
			    "RESHARDFS_TABLES names another directory",
			    rsh_tables_dir(0) ?: "any directory");
}

/* Says which of the variables are set, without their values. */
static void doctor_variables(struct rsh_run *run, const char *about,
			     const char *const *names, const char *otherwise)
{
	char text[512] = "";
	size_t at = 0;

	for (; *names; names++)
		if (getenv(*names))
			rsh_text_add(text, sizeof(text), &at, "%s%s",
				     at ? ", " : "", *names);
	doctor_tell(run, about, at ? GOOD : NONE, "%s%s", at ? "set: " : "",
		    at ? text : otherwise);
}

static void doctor_objects(struct rsh_run *run)
{
	static const char *const keys[] = {
		"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",
		"AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION",
		"AWS_ENDPOINT_URL", "AWS_WEB_IDENTITY_TOKEN_FILE",
		"AWS_CONTAINER_CREDENTIALS_FULL_URI",
		"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", NULL
	};
	static const char *const proxies[] = {
		"http_proxy", "https_proxy", "HTTPS_PROXY", "no_proxy",
		"NO_PROXY", NULL
	};
	struct rsh_error err = RSH_ERROR_INIT;
	const char *home = getenv("HOME"), *file;
	cleanup_free char *usual = home && *home ?
		rsh_text_format("%s/.aws/credentials", home) : NULL;
	const int rc = rsh_objects_find_libraries(&err);

	doctor_tell(run, "object storage", rc ? NONE : GOOD, "%s", rc ?
		    err.text : "libcurl, libexpat and libcrypto are there");
	doctor_variables(run, "variables", keys, "none of AWS_ACCESS_KEY_ID, "
			 "AWS_PROFILE and the like is set");
	file = getenv("AWS_SHARED_CREDENTIALS_FILE") ?: usual;
	if (!file)
		doctor_tell(run, "credentials", NONE, "neither HOME nor "
			    "AWS_SHARED_CREDENTIALS_FILE is set");
	else if (access(file, R_OK) == 0)
		doctor_tell(run, "credentials", GOOD, "%s can be read", file);
	else
		doctor_tell(run, "credentials", NONE, "%s: %s", file,
			    strerror(errno));
	doctor_variables(run, "proxy", proxies, "none");
}

/* ---- SOURCE ---- */

/* Returns SOURCE as it was given, in secret memory: `ls` needs the secrets
 * that were taken off an address, and takes them off its own arguments. */
static char *doctor_operand(const struct rsh_options *o)
{
	const char *source = o->vfs.source, *user = o->objects.user;
	const char *query = o->objects.query, *host = strstr(source, "://");
	const int scheme = host ? (int)(host - source) + 3 : 0;

	return rsh_secret_format("%.*s%s%s%s%s%s", scheme, source,
				 host && user ? user : "",
				 host && user ? "@" : "", source + scheme,
				 host && query ? "?" : "",
				 host && query ? query : "");
}

/* Runs `ls` of SOURCE.  Returns its exit status.  If the output is JSON, *said
 * is what it has printed, from malloc, and `log` gets its messages; otherwise
 * both are printed. */
static int doctor_ls(const char *source, bool json, int log, char **said)
{
	int pipe = -1, status = 0;
	ssize_t n = 0;
	pid_t pid;

	fflush(stdout);
	pid = rsh_fork_with_pipe(&pipe);
	if (pid < 0)
		return RSH_EXIT_IO;
	if (pid == 0) {
		if (json)
			dup2(pipe, STDOUT_FILENO);
		if (json)
			dup2(log, STDERR_FILENO);
		execl(SELF, "reshardfs", "ls", json ? "--json" : "--color=auto",
		      "--", source, (char *)NULL);
		_exit(RSH_EXIT_IO);
	}
	*said = json ? calloc(1, ANSWER_BYTES + 1) : NULL;
	if (*said)
		n = rsh_read_all(pipe, *said, ANSWER_BYTES);
	if (*said && n < 0)
		**said = '\0';
	close(pipe);
	if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
		return RSH_EXIT_IO;
	return WEXITSTATUS(status);
}

/* `ls` also prints JSON if its status says that SOURCE is incomplete. */
static int doctor_source(const struct rsh_options *o, struct rsh_run *run)
{
	const bool json = run->out.json;
	char *operand = doctor_operand(o);
	cleanup_fd int log = json ? rsh_memfd_create("log", MFD_CLOEXEC) : -1;
	cleanup_free char *said = NULL;
	char text[LOG_BYTES + 1] = "";
	json_t *is;
	int status;

	if (!operand)
		return rsh_error_nomem(&run->err);
	rsh_say(&run->out, "\n$ reshardfs ls %\n", o->vfs.source);
	status = doctor_ls(operand, json, log, &said);
	rsh_secret_free(operand);
	if (status)
		run->status = RSH_EXIT_NO;
	if (!json)
		return 0;
	if (!said)
		return rsh_error_nomem(&run->err);
	is = json_loads(said, 0, NULL);
	if (!is && (log < 0 || rsh_pread_all(log, text, LOG_BYTES, 0) <= 0))
		strcpy(text, "`reshardfs ls` failed");
	rsh_json(&run->out, "source:% error:%", RSH_V_IF(is, rsh_v_json(said)),
		 RSH_V_IF(*text, rsh_v_text(text)));
	json_decref(is);
	return 0;
}

int rsh_doctor(const struct rsh_options *o, struct rsh_run *run)
{
	static const struct rsh_column columns[] = {
		{ "about", "ABOUT" },
		{ "state", "STATE" },
		{ "says", "FOUND", .wrap = ' ' },
		{ NULL, NULL }
	};
	int rc = 0;

	rsh_json(&run->out, "{checks:");
	rsh_rows(&run->out, columns);
	doctor_system(run);
	doctor_mounts(run);
	doctor_limits(run);
	doctor_caches(o, run);
	doctor_objects(run);
	rsh_rows_end(&run->out);
	if (o->vfs.source)
		rc = doctor_source(o, run);
	rsh_json(&run->out, "}");
	return rc;
}
