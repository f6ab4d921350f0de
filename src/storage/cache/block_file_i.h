/* SPDX-License-Identifier: Apache-2.0 */
/* storage/cache/block_file_i.h describes the file of a block in the directory;
 * for this layer only.
 *
 * All numbers are little-endian:
 *
 *    0  "rshblk3\n"
 *    8  identity of the source file: device, inode, size, seconds and
 *       nanoseconds of its mtime, epoch, step, state; 8 bytes each
 *   72  offset of the block in the source file, 8 bytes
 *   80  length of the block, 8 bytes
 *   88  number of bytes after the header, 8 bytes: the length of the block,
 *       or less if it is compressed
 *   96  xxh3 of the bytes after the header, 8 bytes
 *  104  xxh3 of bytes 0 to 103, 8 bytes
 *  112  the content, or the result of rsh_pack()
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rsh/storage/cache.h"

#define RSH_BLOCK_MAX (UINT32_C(4) << 20)
#define RSH_BLOCK_FILE_HEADER 112

/* A key identifies a block: blocks with equal keys have the same content. */
struct rsh_block_key {
	struct rsh_cache_file_id file;
	uint64_t offset;
	uint32_t len;
};

/* A file's name is 32 hexadecimal digits and a suffix. */
#define RSH_BLOCK_FILE_SUFFIX ".blk"
#define RSH_BLOCK_FILE_NAME_MAX (32 + sizeof(RSH_BLOCK_FILE_SUFFIX))

void rsh_block_file_name(const struct rsh_block_key *key,
			 char name[RSH_BLOCK_FILE_NAME_MAX]);
bool rsh_block_file_is_name(const char *name);

/* Makes the header for n bytes. */
void rsh_block_file_header(const struct rsh_block_key *key,
			   const void *bytes, uint32_t n,
			   uint8_t header[RSH_BLOCK_FILE_HEADER]);
/* Returns whether the header and n bytes are those that were written for the
 * key. */
bool rsh_block_file_check(const uint8_t header[RSH_BLOCK_FILE_HEADER],
			  const struct rsh_block_key *key,
			  const void *bytes, uint32_t n);
