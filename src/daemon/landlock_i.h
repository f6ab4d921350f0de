/* SPDX-License-Identifier: Apache-2.0 */
/* daemon/landlock_i.h - which files a process may open from some moment on;
 * see landlock(7).  Without a library: there is none. */
#ifndef RSH_DAEMON_LANDLOCK_I_H
#define RSH_DAEMON_LANDLOCK_I_H

#include <stdbool.h>

/* Of rules that allow nothing yet: no file to open, no TCP, no signal to other
 * processes and, unless `abstract`, no abstract socket of theirs.  A descriptor
 * and *abi, the kernel's version, or -errno where there is no landlock. */
int rsh_landlock_new(bool abstract, int *abi);

/* Lets the file, or all below the directory, be read; with `write` be written,
 * and files be made and removed in it.  What is not there needs no rule. */
void rsh_landlock_allow(int rules, const char *path, bool write);

/* Puts this thread, and those that it starts, under the rules, which takes that
 * it has given up new privileges.  0 or -errno. */
int rsh_landlock_enter(int rules);

#endif
