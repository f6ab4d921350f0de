/* SPDX-License-Identifier: Apache-2.0 */
/* app/daemon/landlock.c makes the landlock rules of a process with the system
 * calls themselves, and omits the rights that the running kernel does not
 * have. */
#include "config.h"

#include "sandbox_i.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "rsh/util/compat.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"

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

int rsh_landlock_new(bool abstract, bool any_port, int *abi)
{
	struct handled h = { 0 };
	size_t size = sizeof(h.fs);
	int fd;

	*abi = (int)syscall(SYS_landlock_create_ruleset, NULL, 0, ASK_VERSION);
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

void rsh_landlock_allow(int rules, const char *path, bool write)
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

void rsh_landlock_allow_port(int rules, uint16_t port)
{
	const struct {
		uint64_t allowed, port;
	} rule = { NET_CONNECT, port };

	if (syscall(SYS_landlock_add_rule, rules, RULE_NET_PORT, &rule, 0) != 0)
		rsh_log_debug("port %u: cannot add a landlock rule", port);
}

int rsh_landlock_enter(int rules)
{
	return syscall(SYS_landlock_restrict_self, rules, 0) == 0 ? 0 : -errno;
}
