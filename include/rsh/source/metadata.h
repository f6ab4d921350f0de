/* SPDX-License-Identifier: Apache-2.0 */
/* source/metadata.h parses a metadata.json of Checkpoint 2.0, which is a
 * strategy as well. */
#pragma once

#include "rsh/storage/store.h"
#include "rsh/util/error.h"
#include "rsh/wire/checkpoint2.h"

/* Parses an open metadata.json.  A large one is stored in the directory of the
 * index cache, so that the next mount need not read it; `dirfd` is -1 if there
 * is none.  Returns 0 or -errno with a sentence. */
int rsh_metadata_parse(int dirfd, struct rsh_handle *h, const char *path,
		       struct rsh_ckpt2 **out, struct rsh_error *err);

/* This identifies one file in the state in which it was read; keys are compared
 * as bytes.  The ctime is included because a copy in place may restore the
 * mtime, and `place` because devices get their numbers again.  If the file
 * system does not keep the ctime, other files may have the same key, so it is
 * not stored. */
struct rsh_index_key {
	uint64_t place, dev, ino, size;
	int64_t mtime, ctime;
	uint32_t mtime_ns, ctime_ns;
	uint64_t keeps_ctime; /* 0 or 1 */
};
/* Sets the key of an open file.  Returns 0 or -errno. */
int rsh_index_key_take(const struct rsh_handle *h, struct rsh_index_key *key);
