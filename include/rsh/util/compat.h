/* SPDX-License-Identifier: Apache-2.0 */
/* util/compat.h - definitions of newer kernels and C libraries, for machines
 * whose headers are older.
 *
 * The numbers and structures of system calls never change.  So a program that
 * was built with old headers can use a new kernel: the program finds out at run
 * time whether the kernel has the call.  All functions here are system calls.
 * Any thread may call them.  They return what the call returns: -1 with errno
 * on failure (ENOSYS if the kernel does not have the call).
 */
#pragma once

#include <linux/magic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- system calls; the numbers are the same on all processors ---- */

#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424 /* Linux 5.1 */
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434 /* Linux 5.3 */
#endif
#ifndef SYS_openat2
#define SYS_openat2 437 /* Linux 5.6 */
#endif
#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444 /* Linux 5.13 */
#define SYS_landlock_add_rule 445
#define SYS_landlock_restrict_self 446
#endif

/* glibc has these two from 2.36 on. */
static inline int rsh_pidfd_open(int pid)
{
	return (int)syscall(SYS_pidfd_open, pid, 0);
}

static inline int rsh_pidfd_send_signal(int pidfd, int signal)
{
	return (int)syscall(SYS_pidfd_send_signal, pidfd, signal, NULL, 0);
}

#define RSH_RESOLVE_NO_MAGICLINKS UINT64_C(0x02)
#define RSH_RESOLVE_BENEATH UINT64_C(0x08)

static inline int rsh_openat2(int dirfd, const char *path, int flags,
			      uint64_t resolve)
{
	const struct {
		uint64_t flags, mode, resolve;
	} how = { (unsigned)flags, 0, resolve };

	return (int)syscall(SYS_openat2, dirfd, path, &how, sizeof(how));
}

/* ---- functions of glibc 2.25 to 2.28; the wheel works with 2.17 ---- */

static inline ssize_t rsh_getrandom(void *to, size_t n, unsigned flags)
{
	return syscall(SYS_getrandom, to, n, flags);
}

static inline int rsh_memfd_create(const char *name, unsigned flags)
{
	return (int)syscall(SYS_memfd_create, name, flags);
}

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1
#endif

static inline int rsh_renameat2(int from_fd, const char *from, int to_fd,
				const char *to, unsigned flags)
{
	return (int)syscall(SYS_renameat2, from_fd, from, to_fd, to, flags);
}

struct statx;
static inline int rsh_statx(int dirfd, const char *path, int flags,
			    unsigned mask, struct statx *st)
{
	return (int)syscall(SYS_statx, dirfd, path, flags, mask, st);
}

/* ---- memory ---- */

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

/* ---- file system types of statfs() ---- */

#ifndef CIFS_SUPER_MAGIC
#define CIFS_SUPER_MAGIC 0xff534d42
#endif
#ifndef SMB2_SUPER_MAGIC
#define SMB2_SUPER_MAGIC 0xfe534d42
#endif
#ifndef CEPH_SUPER_MAGIC
#define CEPH_SUPER_MAGIC 0x00c36400
#endif
