/* SPDX-License-Identifier: Apache-2.0 */
/* app/daemon/sandbox_i.h sandboxes the daemon before it reads files that other
 * users have written: landlock restricts the files, and seccomp the system
 * calls.
 *
 * The sandbox must be entered before any thread is started, because landlock
 * restricts one thread and the threads and processes that it starts.  A process
 * under landlock cannot change mounts, and a process without new privileges
 * cannot use fusermount3, so fuse/mounter.c is forked before.  Whatever is
 * opened later needs a rule, or must be opened before: libgcc_s, which the
 * first cancelled thread loads, the time zone, and the files of
 * libcurl.  Use `strace -f` on a mount under test: it must not show EACCES.
 *
 * landlock rules are for inodes: a rule for the root of a mount does not apply
 * to the next mount on the same directory.  A rule for the parent directory
 * would let the parsers open its other entries.  So the mounter opens the file
 * and sends the descriptor.  It also looks up servers of objects, because the
 * rules for /etc/hosts and resolv.conf end when other files replace these.
 *
 * Builds with a sanitizer need ptrace and /proc: they have no filter of system
 * calls and may read /proc.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "rsh/app/options.h"
#include "rsh/storage/objects.h"
#include "rsh/storage/servers.h"

/* Restricts this thread and all that it starts, permanently.  They lose new
 * privileges, all files except those that the options name, and the system
 * calls that serving does not need.  If other users may read the mount,
 * debuggers and core dumps cannot read the process's memory.  A restriction
 * that the kernel does not have is omitted.  Connections are allowed to the n
 * `places`, the addresses of SOURCE and of adapters, which are NULL for paths,
 * and to `servers`, which may be NULL.  Returns 0, or -errno with a sentence
 * about a file of the options that must be read for this. */
int rsh_sandbox_enter(const struct rsh_options *o,
		      struct rsh_objects *const *places, unsigned n,
		      const struct rsh_cache_servers *servers,
		      struct rsh_error *err);

/* ---- system calls that a daemon does not need ---- */

/* Makes these calls fail with EPERM in this thread and those that it starts.
 * PR_SET_NO_NEW_PRIVS must be set before.  Internet sockets are allowed only if
 * `internet` is true, and Unix sockets of datagrams, which the log and systemd
 * receive, only if `datagrams` is true.  Returns 0 or -errno: -ENOTSUP in a
 * build without libseccomp or with a sanitizer, which needs some of the
 * calls. */
int rsh_syscalls_refuse(bool internet, bool datagrams);
