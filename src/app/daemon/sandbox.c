/* SPDX-License-Identifier: Apache-2.0 */
/* app/daemon/sandbox.c collects the files that the mount with these options may
 * open, and then blocks all other files and the unneeded system calls. */
#include "config.h"

#include "daemon_i.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include "rsh/app/mount.h"
#include "rsh/app/table.h"
#include "rsh/storage/hub.h"
#include "rsh/util/compat.h"
#include "rsh/util/files.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"

/* ---- landlock ----
 *
 * There is no library, so the rules are made with the system calls themselves,
 * without the rights that the running kernel does not have. */

/* These values are from linux/landlock.h, which many machines do not have or
 * have without the newer ones.  The number after a value is the landlock
 * version that introduced it. */
#define FS_WRITE_FILE (UINT64_C(1) << 1)
#define FS_READ_FILE (UINT64_C(1) << 2)
#define FS_READ_DIR (UINT64_C(1) << 3)
#define FS_REMOVE_FILE (UINT64_C(1) << 5)
#define FS_MAKE_REG (UINT64_C(1) << 8)
#define FS_1 ((UINT64_C(1) << 13) - 1)
#define FS_REFER (UINT64_C(1) << 13)     /* 2 */
#define FS_TRUNCATE (UINT64_C(1) << 14)  /* 3 */
#define FS_IOCTL_DEV (UINT64_C(1) << 15) /* 5 */
#define NET_TCP UINT64_C(3)              /* 4: to bind and to connect */
#define NET_CONNECT UINT64_C(2)
#define RULE_PATH_BENEATH 1
#define RULE_NET_PORT 2
#define ASK_VERSION 1u
#define SCOPE_ABSTRACT UINT64_C(1)       /* 6 */
#define SCOPE_SIGNAL UINT64_C(2)

struct handled {
	uint64_t fs, net, scoped;
};

struct path_rule {
	uint64_t allowed;
	int32_t fd;
} __attribute__((packed));

int rsh_sandbox_landlock(void)
{
	return (int)syscall(SYS_landlock_create_ruleset, NULL, 0, ASK_VERSION);
}

/* Makes rules that allow nothing yet: no files, no TCP (with `any_port` TCP is
 * not restricted), no signals to other processes and, unless `abstract` is
 * true, no abstract sockets of other processes.
 * Returns a descriptor and sets *abi to the kernel's version, or returns -errno
 * if there is no landlock. */
static int landlock_new(bool abstract, bool any_port, int *abi)
{
	struct handled h = { 0 };
	size_t size = sizeof(h.fs);
	int fd;

	*abi = rsh_sandbox_landlock();
	if (*abi < 1)
		return *abi < 0 ? -errno : -ENOSYS;
	h.fs = FS_1 | (*abi >= 2 ? FS_REFER : 0) |
	       (*abi >= 3 ? FS_TRUNCATE : 0) | (*abi >= 5 ? FS_IOCTL_DEV : 0);
	if (*abi >= 4) {
		h.net = any_port ? 0 : NET_TCP;
		size = offsetof(struct handled, scoped);
	}
	if (*abi >= 6) {
		h.scoped = SCOPE_SIGNAL | (abstract ? 0 : SCOPE_ABSTRACT);
		size = sizeof(h);
	}
	fd = (int)syscall(SYS_landlock_create_ruleset, &h, size, 0);
	return fd < 0 ? -errno : fd;
}

/* Allows reading the file, or all below the directory.  With `write` it also
 * allows writing, and creating and removing files in the directory.  A path
 * that does not exist is ignored. */
static void landlock_allow(int rules, const char *path, bool write)
{
	struct path_rule rule = { .allowed = FS_READ_FILE };
	cleanup_fd int fd = open(path, O_PATH | O_CLOEXEC);
	struct stat st;
	bool is_dir;

	if (fd < 0)
		return;
	/* If fstat(2) fails, the rule is for a directory: the error of a
	 * missing source must be reported by the code that opens the source. */
	is_dir = fstat(fd, &st) != 0 || S_ISDIR(st.st_mode);
	rule.fd = fd;
	if (write)
		rule.allowed |= FS_WRITE_FILE;
	if (is_dir)
		rule.allowed |= FS_READ_DIR;
	if (is_dir && write)
		rule.allowed |= FS_MAKE_REG | FS_REMOVE_FILE;
	if (syscall(SYS_landlock_add_rule, rules, RULE_PATH_BENEATH,
		    &rule, 0) != 0)
		rsh_log_debug("%s: cannot add a landlock rule", path);
}

/* Allows connections to that TCP port on any host. */
static void landlock_allow_port(int rules, uint16_t port)
{
	const struct {
		uint64_t allowed, port;
	} rule = { NET_CONNECT, port };

	if (syscall(SYS_landlock_add_rule, rules, RULE_NET_PORT, &rule, 0) != 0)
		rsh_log_debug("port %u: cannot add a landlock rule", port);
}

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
			landlock_allow(rules, entry, false);
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
		landlock_allow(rules, fixed, false);
}

/* Allows a directory of a model, and what links in a snapshot of Hugging Face's
 * cache lead to. */
static void allow_model(int rules, const char *directory)
{
	cleanup_free char *blobs = rsh_hub_blobs(directory);

	landlock_allow(rules, directory, false);
	if (blobs)
		landlock_allow(rules, blobs, false);
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
	    (!rsh_table_is_word(rule_table) && !o->steps))
		return;
	for (unsigned i = 0; (path = rsh_tables_dir(i)); i++) {
		landlock_allow(rules, path, false);
		allow_links(rules, path);
	}
}

static void allow_mapped(void *rules, const char *path)
{
	landlock_allow(*(const int *)rules, path, false);
}

/* Allows connections to `place`. */
static void allow_place(int rules, const struct rsh_objects *place)
{
	uint16_t ports[PORTS_MAX];
	const size_t n = rsh_objects_ports(place, ports, PORTS_MAX);

	rsh_objects_each_file(place, allow_mapped, &rules);
	for (size_t i = 0; i < n; i++)
		landlock_allow_port(rules, ports[i]);
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
		landlock_allow(rules, files[i], false);
	for (size_t i = 0;
	     servers && (port = rsh_cache_servers_port(servers, i)); i++)
		landlock_allow_port(rules, port);
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
		landlock_allow(rules, "/", false);
	else
		allow_model(rules, dir);
	rc = map ? rsh_source_map_each(map, allow_mapped, &rules, err) : 0;
	if (rc)
		return rc;
	allow_read(rules, o);
	/* A step may be built on others. */
	if (o->vfs.files.steps_dir)
		landlock_allow(rules, o->vfs.files.steps_dir, false);
	if (o->vfs.files.base)
		allow_model(rules, o->vfs.files.base);
	for (unsigned i = 0; i < o->vfs.weights.n_loras; i++) {
		allow_model(rules, o->vfs.weights.loras[i].directory);
		allow_links(rules, o->vfs.weights.loras[i].directory);
	}
	/* With --steps all the options of a step are settled when it is
	 * planned: files beside config.json may belong to the model. */
	if (beside)
		landlock_allow(rules, beside, false);
	/* The cache directories are created here, because nothing can be
	 * created beside them later. */
	if (blocks) {
		mkdir(blocks, 0700);
		landlock_allow(rules, blocks, true);
	}
	if (indexes && rsh_source_make_index_dir(indexes) == 0)
		landlock_allow(rules, indexes, true);
	landlock_allow(rules, "/dev/null", true);
	landlock_allow(rules, "/dev/urandom", false); /* for hash tables */
	/* libc counts the processors here. */
	landlock_allow(rules, "/sys/devices/system/cpu", false);
	/* LeakSanitizer reads the list of threads. */
	if (IS_SANITIZED)
		landlock_allow(rules, "/proc", false);
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
	rules = landlock_new(notify && *notify == '@', anywhere, &abi);
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
		rc = (int)syscall(SYS_landlock_restrict_self, rules, 0);
	}
	calls = rsh_syscalls_refuse(connects, sends_datagrams(o)) == 0;
	rsh_log_info("sandboxed: no new privileges, %s, %s",
		     rc == 0 ? "own files only" : "no landlock",
		     calls ? "own system calls only" : "no filter");
	return 0;
}
