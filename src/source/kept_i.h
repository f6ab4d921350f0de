/* SPDX-License-Identifier: Apache-2.0 */
/* source/kept_i.h keeps what mounts have found out in a directory of the user,
 * the index cache: packed files with a checksum.
 *
 * The directory belongs to the user, but its contents are not trusted: links
 * are not followed, files of other owners are not read, and every number is
 * checked before it is used.  A new file replaces the old one by rename(2), so
 * a reader gets one of the two, and the last of several writers wins.  Nothing
 * is synced: a file that is incomplete after a crash does not match its
 * checksum.  Any thread may call these functions.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "rsh/source/metadata.h"

/* Returns whether the key may be stored: the file system keeps the ctime, and
 * the file was unchanged for so long at `now` that a later change must change
 * its times. */
bool rsh_index_key_settled(const struct rsh_index_key *key, time_t now);

/* Opens the directory, and creates it if it is missing.  Returns -1 if that
 * fails or if other users can write to it; this is a warning if the user
 * `asked` for the directory. */
int rsh_index_dir_open(const char *path, bool asked);

/* This is more bytes than the content of a file ever needs. */
#define RSH_KEPT_MAX (UINT64_C(32) << 20)
#define RSH_KEPT_NAME 32 /* bytes of a name, with the NUL */

/* The kinds of content, with their versions. */
#define RSH_KEPT_INDEXES UINT64_C(0x0400786469687372)  /* "rshidx", 4 */
#define RSH_KEPT_METADATA UINT64_C(0x0400746d69687372) /* "rshimt", 4 */

/* Makes the name of the file of what has this identity. */
void rsh_kept_name(uint64_t identity, char name[RSH_KEPT_NAME]);
/* Reads a file.  Returns 0 and its content (from malloc), -ENOENT, or another
 * -errno: -EBADMSG if it is damaged, -EPROTO if it is of another kind or
 * version. */
int rsh_kept_get(int dirfd, const char *name, uint64_t kind, uint8_t **data,
		 size_t *len);
/* Writes or replaces a file, and removes those that were not used for the
 * longest time, if all together are too large.  Returns 0 or -errno. */
int rsh_kept_put(int dirfd, const char *name, uint64_t kind,
		 const uint8_t *data, size_t len);

/* rsh_kept_is_right() returns whether an earlier check of `digest` found no
 * error.  rsh_kept_put_right() stores that a check found none, as an empty file
 * whose name is the digest. */
bool rsh_kept_is_right(int dirfd, uint64_t digest);
void rsh_kept_put_right(int dirfd, uint64_t digest);

/* A file begins with this; the packed content (util/pack.h) follows. */
struct rsh_kept_head {
	uint64_t kind;
	uint64_t bytes; /* of the content */
	uint64_t sum;   /* xxh3 of the content, with the kind as seed */
};
