/* SPDX-License-Identifier: Apache-2.0 */
/* daemon/mounted.h - what is mounted on a path, by the kernel's table: no
 * mount is touched, for its daemon may be gone or hang. */
#ifndef RSH_DAEMON_MOUNTED_H
#define RSH_DAEMON_MOUNTED_H

#include <limits.h>

struct rsh_mounted {
	char path[PATH_MAX];   /* absolute and without links */
	unsigned n;            /* one on top of the other; 0: none */
	char type[128];        /* of the topmost, "" if there is none */
	char source[PATH_MAX]; /* what its file system says it is made of */
};

/* 0 or -errno. */
int rsh_mounted_find(const char *path, struct rsh_mounted *out);

#endif
