/* SPDX-License-Identifier: Apache-2.0 */
/* storage/made.h - files whose bytes are made of those of other files, the
 * inputs, when they are read.
 *
 * They are files of a store like others: read through its cache, and compared
 * after each read.  One of them has changed if an input has.  The inputs are
 * files of a store of their own, which is identified and started; they are read
 * without a cache, since what is made of them is kept there. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "rsh/storage/store.h"

struct rsh_made {
	/* Only `close` frees the inputs and what `ctx` points to. */
	void *ctx;
	struct rsh_store *inputs;
	/* Sets number and size of the file with that name.  Returns 0 or
	 * -ENOENT. */
	int (*find)(void *ctx, const char *name, uint32_t *file,
		    uint64_t *size);
	/* Reads like pread(2).  Any thread may call it.  Returns the number of
	 * bytes or -errno; -EBADMSG if the inputs are damaged, so that another
	 * attempt would fail as well. */
	ssize_t (*read)(void *ctx, uint32_t file, void *buf, size_t len,
			uint64_t offset);
	void (*close)(void *ctx);
};

/* Makes these the files of the store whose names begin with "DIRECTORY/",
 * instead of those of an earlier call with the same directory.  No file of the
 * directory may have been added.  *m is copied, and closed with the store, also
 * on failure.  Returns 0 or -ENOMEM. */
int rsh_store_join_made(struct rsh_store *s, const char *directory,
			const struct rsh_made *m);

/* Reads exactly `len` bytes of an input.  Returns 0 or -errno, as
 * rsh_store_read() does for a caller that does not wait.  Before the store with
 * what is made of them is started, this is a scan: it is not counted and has no
 * injected faults. */
int rsh_store_read_input(struct rsh_store *inputs, uint32_t file,
			 uint64_t offset, void *buf, size_t len);

/* Finds the file with this number and size that another such directory has
 * made, whose inputs are the first n_inputs of these; `epoch` is that of struct
 * rsh_store_entry.  Returns what rsh_store_peek_made() takes. */
uint32_t rsh_store_find_made(struct rsh_store *inputs, uint32_t n_inputs,
			     uint32_t file, uint64_t size, uint64_t epoch);
/* Copies bytes of it if the cache has all of them, else returns false.  `read`
 * of struct rsh_made may call it. */
bool rsh_store_peek_made(struct rsh_store *inputs, uint32_t made,
			 uint64_t offset, void *buf, size_t len);
