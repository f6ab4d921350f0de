/* SPDX-License-Identifier: Apache-2.0 */
/* app/daemon/sandbox.c collects the files that the mount with these options may
 * open, and then blocks all other files and the unneeded system calls. */
#include "config.h"

#include "sandbox_i.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include "rsh/app/table.h"
#include "rsh/util/files.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"

#ifdef WITH_SANITIZER
#define IS_SANITIZED 1
#else
#define IS_SANITIZED 0
#endif

/* A place has one or two ports. */
#define PORTS_MAX 8

/* ---- files ---- */

/* A directory of strategies may have links to the files. */
static void allow_links(int rules, const char *path)
{
	DIR *dir = opendir(path);
	const struct dirent *e;

	while (dir && (e = readdir(dir))) {
		cleanup_free char *entry = NULL;

		if (e->d_name[0] == '.')
			continue;
		entry = rsh_text_format("%s/%s", path, e->d_name);
		if (entry)
			rsh_landlock_allow(rules, entry, false);
	}
	if (dir)
		closedir(dir);
}

/* Allows a file, a directory, or all files below the fixed part of a
 * template. */
static void allow_path(int rules, const char *path)
{
	cleanup_free char *fixed = strdup(path);
	char *mark = fixed ? strstr(fixed, "{rank}") : NULL;
	char *slash;

	if (mark) {
		*mark = '\0';
		slash = strrchr(fixed, '/');
		if (slash)
			slash[slash == fixed] = '\0';
		else
			strcpy(fixed, ".");
	}
	if (fixed)
		rsh_landlock_allow(rules, fixed, false);
}

/* Allows a directory of a model, and what links in a snapshot of Hugging Face's
 * cache lead to. */
static void allow_model(int rules, const char *directory)
{
	cleanup_free char *blobs = rsh_store_blobs(directory);

	rsh_landlock_allow(rules, directory, false);
	if (blobs)
		rsh_landlock_allow(rules, blobs, false);
}

/* Allows the files of options that the table marks as opened.  The table of
 * rules is chosen only when the model is known, so all are allowed. */
static void allow_read(int rules, const struct rsh_options *o)
{
	const char *rule_table = o->vfs.weights.table, *path;
	struct rsh_option_at at = { .list = NULL };

	while (rsh_option_next(&at)) {
		if (!at.row->opens && !at.row->opens_links)
			continue;
		path = *(const char *const *)rsh_option_member(o, &at);
		if (path)
			allow_path(rules, path);
		if (path && at.row->opens_links)
			allow_links(rules, path);
	}
	if (!rule_table ||
	    (strcmp(rule_table, RSH_TABLE_AUTO) != 0 && !o->steps))
		return;
	for (unsigned i = 0; (path = rsh_tables_dir(i)); i++) {
		rsh_landlock_allow(rules, path, false);
		allow_links(rules, path);
	}
}

static void allow_mapped(void *rules, const char *path)
{
	rsh_landlock_allow(*(const int *)rules, path, false);
}

/* Allows connections to `place`. */
static void allow_place(int rules, const struct rsh_objects *place)
{
	uint16_t ports[PORTS_MAX];
	const size_t n = rsh_objects_ports(place, ports, PORTS_MAX);

	rsh_objects_each_file(place, allow_mapped, &rules);
	for (size_t i = 0; i < n; i++)
		rsh_landlock_allow_port(rules, ports[i]);
}

/* Allows connections to the servers, whose host names are already resolved.
 * libc needs the files to look up names of hosts. */
static void allow_network(int rules, const struct rsh_cache_servers *servers)
{
	static const char *const files[] = {
		"/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf",
		"/etc/gai.conf", "/etc/host.conf", "/etc/services",
	};
	uint16_t port;

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		rsh_landlock_allow(rules, files[i], false);
	for (size_t i = 0;
	     servers && (port = rsh_cache_servers_port(servers, i)); i++)
		rsh_landlock_allow_port(rules, port);
}

/* The log is open by now, and so is everything that the connection to the
 * kernel needs. */
static int allow_files(int rules, const struct rsh_options *o,
		       struct rsh_error *err)
{
	const char *blocks = o->io.caching == RSH_CACHING_OFF ?
			     NULL : o->io.cache.dir;
	const char *indexes = o->vfs.files.index_cache;
	const char *map = o->vfs.files.source_map;
	cleanup_free char *dir = rsh_source_directory(o->vfs.source);
	const char *config = o->steps ? o->vfs.weights.config : NULL;
	cleanup_free char *beside = config ? rsh_path_directory(config) :
					     NULL;
	int rc;

	if (!dir)
		return rsh_error_nomem(err);
	if (o->vfs.files.store.follow_outside)
		rsh_landlock_allow(rules, "/", false);
	else
		allow_model(rules, dir);
	rc = map ? rsh_source_map_each(map, allow_mapped, &rules, err) : 0;
	if (rc)
		return rc;
	allow_read(rules, o);
	for (unsigned i = 0; i < o->vfs.weights.n_loras; i++) {
		allow_model(rules, o->vfs.weights.loras[i].directory);
		allow_links(rules, o->vfs.weights.loras[i].directory);
	}
	/* With --steps all the options of a step are settled when it is
	 * planned: files beside config.json may belong to the model. */
	if (beside)
		rsh_landlock_allow(rules, beside, false);
	/* The cache directories are created here, because nothing can be
	 * created beside them later. */
	if (blocks) {
		mkdir(blocks, 0700);
		rsh_landlock_allow(rules, blocks, true);
	}
	if (indexes && rsh_source_make_index_dir(indexes) == 0)
		rsh_landlock_allow(rules, indexes, true);
	rsh_landlock_allow(rules, "/dev/null", true);
	rsh_landlock_allow(rules, "/dev/urandom", false); /* for hash tables */
	/* libc counts the processors here. */
	rsh_landlock_allow(rules, "/sys/devices/system/cpu", false);
	/* LeakSanitizer reads the list of threads. */
	if (IS_SANITIZED)
		rsh_landlock_allow(rules, "/proc", false);
	return 0;
}

/* Returns whether a socket of datagrams is needed later. */
static bool sends_datagrams(const struct rsh_options *o)
{
	return getenv("NOTIFY_SOCKET") || o->log_to == RSH_LOG_TO_SYSLOG ||
	       o->log_to == RSH_LOG_TO_JOURNAL ||
	       (o->log_to == RSH_LOG_TO_AUTO && !o->foreground);
}

/* ---- all of it ---- */

int rsh_sandbox_enter(const struct rsh_options *o,
		      struct rsh_objects *const *places, unsigned n,
		      const struct rsh_cache_servers *servers,
		      struct rsh_error *err)
{
	const char *notify = getenv("NOTIFY_SOCKET");
	uint16_t ports[PORTS_MAX];
	cleanup_fd int rules = -1;
	int abi, rc;
	bool connects = servers, anywhere = false, calls;

	/* These load what libc would open later: the time zone for the log, and
	 * the library that cancels threads. */
	tzset();
	if (!dlopen("libgcc_s.so.1", RTLD_NOW))
		rsh_log_debug("%s", dlerror());
	/* Other users must not read the process's memory, which has what other
	 * users have read and the source.  LeakSanitizer must be able to trace
	 * the process. */
	if ((rsh_option_given(o, "allow_other") ||
	     rsh_option_given(o, "allow_root")) && !IS_SANITIZED)
		prctl(PR_SET_DUMPABLE, 0);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
		rsh_log_warning("not sandboxed: %s", strerror(errno));
		return 0;
	}
	/* A place without ports may be anywhere. */
	for (unsigned i = 0; i < n; i++)
		if (places[i]) {
			connects = true;
			anywhere |= !rsh_objects_ports(places[i], ports,
						       PORTS_MAX);
		}
	rules = rsh_landlock_new(notify && *notify == '@', anywhere, &abi);
	rc = rules;
	if (rules >= 0) {
		rc = allow_files(rules, o, err);
		if (rc)
			return rc;
		if (connects)
			allow_network(rules, servers);
		for (unsigned i = 0; i < n; i++)
			if (places[i])
				allow_place(rules, places[i]);
		rc = rsh_landlock_enter(rules);
	}
	calls = rsh_syscalls_refuse(connects, sends_datagrams(o)) == 0;
	rsh_log_info("sandboxed: no new privileges, %s, %s",
		     rc == 0 ? "own files only" : "no landlock",
		     calls ? "own system calls only" : "no filter");
	return 0;
}
