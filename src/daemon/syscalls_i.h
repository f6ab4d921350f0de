/* SPDX-License-Identifier: Apache-2.0 */
/* daemon/syscalls_i.h - the system calls that a daemon has no use for. */
#ifndef RSH_DAEMON_SYSCALLS_I_H
#define RSH_DAEMON_SYSCALLS_I_H

/* From here on they fail with EPERM in this thread and those that it starts,
 * which takes that it has given up new privileges.  0, or -errno: -ENOTSUP in a
 * build without libseccomp or with a sanitizer, which needs some of them. */
int rsh_syscalls_refuse(void);

#endif
