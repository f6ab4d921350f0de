/* SPDX-License-Identifier: Apache-2.0 */
/* storage/store/file_system_i.h - what the type of a file system says about its
 * files; only this room includes it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/statfs.h>

/* These return whether it is a network or FUSE file system, and whether it is
 * stacked on another one. */
bool rsh_file_system_is_remote(uint32_t type);
bool rsh_file_system_is_stacked(uint32_t type);
/* Returns whether inodes may get other numbers while the file system is
 * mounted. */
bool rsh_file_system_renumbers(uint32_t type);

/* Returns whether the ctime of this file is the time of its last change, which
 * nobody can set.  Then two files that have the same times, size, inode and
 * rsh_file_system_number() are the same bytes, in two mounts too.  `root_dev`
 * is the device of a directory on the same file system; 0: none is known. */
bool rsh_file_system_keeps_ctime(const struct statfs *fs,
				 const struct stat *st, dev_t root_dev);
/* Returns a number that is in the file system itself and differs from that of
 * others; 0: it has none. */
uint64_t rsh_file_system_number(const struct statfs *fs);
/* Returns the number of the mount of an open file, which no other mount has or,
 * before Linux 6.8, no other one at the same time; 0: unknown. */
uint64_t rsh_file_system_mount(int fd);
