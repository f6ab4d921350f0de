/* SPDX-License-Identifier: Apache-2.0 */
/* app/daemon/sandbox_i.h has what the daemon gives up before it reads what others
 * have written: files by landlock, and system calls.
 *
 * It is entered before any thread is started, for landlock takes in one thread
 * and what that starts.  A process under landlock changes no mounts, and one
 * without new privileges cannot use fusermount3: fuse/mounter.c is forked
 * before.  Whatever is opened later has a rule, or was opened before: libgcc_s,
 * which the first cancelled thread asks for, the time zone, libcurl's and
 * libsasl2's files.  `strace -f` of a mount under test must not show EACCES.
 *
 * landlock knows inodes: a rule for the root of a mount says nothing of the
 * next mount there.  A rule for its parent would open the neighbours to the
 * parsers, so the mounter looks for the file and sends its descriptor.
 *
 * Builds with a sanitizer, which wants ptrace and /proc, have no filter of
 * system calls and may read /proc. */
#ifndef RSH_APP_SANDBOX_I_H
#define RSH_APP_SANDBOX_I_H

#include <stdbool.h>
#include <stdint.h>

#include "rsh/app/options.h"
#include "rsh/storage/objects.h"
#include "rsh/storage/servers.h"

/* Confines this thread and all that it starts, for good.  They lose new
 * privileges, all files but those that the options name, and the system calls
 * that serving does not take; if other users are served, debuggers and core
 * dumps lose the process's memory.  What the kernel does not know stays.
 * Returns 0, or -errno with a sentence about a file of the options that has to
 * be read for this.  These may be connected to: `place`, where SOURCE lies if
 * that is an address, else NULL; and `servers`, which may be NULL. */
int rsh_sandbox_enter(const struct rsh_options *o,
		      const struct rsh_objects *place,
		      const struct rsh_cache_servers *servers,
		      struct rsh_error *err);

/* ---- which files may be opened, without a library: there is none ---- */

/* Makes rules that allow nothing yet: no file to open, no TCP (which `any_port`
 * leaves alone), no signal to other processes and, unless `abstract`, no
 * abstract socket of theirs.
 * Returns a descriptor and *abi, the kernel's version, or -errno where there is
 * no landlock. */
int rsh_landlock_new(bool abstract, bool any_port, int *abi);

/* Lets the file, or all below the directory, be read; with `write` also be
 * written, and files be made and removed in it.  What is not there needs no
 * rule. */
void rsh_landlock_allow(int rules, const char *path, bool write);

/* Lets that TCP port be connected to, anywhere. */
void rsh_landlock_allow_port(int rules, uint16_t port);

/* Puts this thread, and those that it starts, under the rules, which needs it
 * to have given up new privileges.  Returns 0 or -errno. */
int rsh_landlock_enter(int rules);

/* ---- system calls that a daemon has no use for ---- */

/* Makes these calls fail with EPERM in this thread and those that it starts,
 * which needs it to have given up new privileges.  Sockets are local ones only
 * unless the `internet` is wanted.  Returns 0, or -errno:
 * -ENOTSUP in a build without libseccomp or with a sanitizer, which needs some
 * of them. */
int rsh_syscalls_refuse(bool internet);

#endif
