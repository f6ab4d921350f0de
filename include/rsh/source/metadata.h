/* SPDX-License-Identifier: Apache-2.0 */
/* source/metadata.h - a metadata.json of Checkpoint 2.0, which is a strategy as
 * well. */
#ifndef RSH_SOURCE_METADATA_H
#define RSH_SOURCE_METADATA_H

#include "rsh/storage/store.h"
#include "rsh/util/error.h"
#include "rsh/wire/checkpoint2.h"

/* Parses an open metadata.json, of which a large one is kept in the directory
 * of the index cache, so that the next mount need not read it; `dirfd` is -1
 * where there is none.  0 or -errno with a sentence. */
int rsh_metadata_parse(int dirfd, struct rsh_handle *h, const char *path,
		       struct rsh_ckpt2 **out, struct rsh_error *err);

/* This is one file as it was when it was read; keys are compared as bytes.  The
 * ctime is there since a copy in place may restore the mtime. */
struct rsh_index_key {
	uint64_t dev, ino, size;
	int64_t mtime, ctime;
	uint32_t mtime_ns, ctime_ns;
};
/* Takes the key of an open file.  0 or -errno. */
int rsh_index_key_take(const struct rsh_handle *h, struct rsh_index_key *key);

#endif
