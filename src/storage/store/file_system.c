/* SPDX-License-Identifier: Apache-2.0 */
/* storage/store/file_system.c knows types of file systems. */
#include "config.h"

#include "file_system_i.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>

#include "rsh/util/checked.h"
#include "rsh/util/compat.h"

/* File systems that linux/magic.h does not have. */
#define BEEGFS_MAGIC 0x19830326
#define GPFS_MAGIC 0x47504653
#define LUSTRE_MAGIC 0x0bd00bd0
#define ZFS_MAGIC 0x2fc12fc1
#define BCACHEFS_MAGIC 0xca451a4e
#define RSH_XFS_MAGIC 0x58465342
#define RSH_F2FS_MAGIC 0xf2f52010
/* linux/fuse.h has this number too, but is for FUSE servers. */
#define RSH_FUSE_MAGIC 0x65735546

/* of f_flags */
#define FLAG_READ_ONLY 1

/* struct statx of old libraries has no member for the number of the mount. */
#define MOUNT_NUMBER_AT 144
#define MASK_MOUNT 0x1000U        /* Linux 5.8 */
#define MASK_MOUNT_UNIQUE 0x4000U /* Linux 6.8 */

bool rsh_file_system_is_remote(uint32_t type)
{
	return rsh_is_one(type, NFS_SUPER_MAGIC, SMB_SUPER_MAGIC,
			  CIFS_SUPER_MAGIC, SMB2_SUPER_MAGIC, CEPH_SUPER_MAGIC,
			  V9FS_MAGIC, AFS_SUPER_MAGIC, CODA_SUPER_MAGIC,
			  BEEGFS_MAGIC, GPFS_MAGIC, LUSTRE_MAGIC,
			  RSH_FUSE_MAGIC);
}

bool rsh_file_system_is_stacked(uint32_t type)
{
	return rsh_is_one(type, OVERLAYFS_SUPER_MAGIC, ECRYPTFS_SUPER_MAGIC,
			  RSH_FUSE_MAGIC);
}

/* Many FUSE servers number inodes when they are first used, and again after the
 * kernel has dropped them. */
bool rsh_file_system_renumbers(uint32_t type)
{
	return type == RSH_FUSE_MAGIC;
}

static bool times_differ(const struct stat *st)
{
	return st->st_ctim.tv_sec != st->st_mtim.tv_sec ||
	       st->st_ctim.tv_nsec != st->st_mtim.tv_nsec;
}

/* The kernel shows files of a lower layer that is another file system with
 * another device, or with a number in the upper half of the inode.  An overlay
 * without an upper layer can have a lower layer of any type. */
static bool overlay_keeps_ctime(const struct statfs *fs, const struct stat *st,
				dev_t root_dev)
{
	return !(fs->f_flags & FLAG_READ_ONLY) &&
	       st->st_dev == root_dev && st->st_ino <= UINT32_MAX &&
	       st->st_ctim.tv_nsec != 0;
}

/* mount/identity_table.py tries ext4, xfs, btrfs, tmpfs and overlay; the others
 * do so by their documentation.  squashfs, erofs, iso9660, vfat and
 * many FUSE servers return another time as ctime, mostly the mtime.  SMB and 9p
 * servers may do so. */
bool rsh_file_system_keeps_ctime(const struct statfs *fs,
				 const struct stat *st, dev_t root_dev)
{
	const uint32_t type = (uint32_t)fs->f_type;

	/* The server may export a file system with fixed times. */
	if (type == NFS_SUPER_MAGIC)
		return times_differ(st) || st->st_ctim.tv_nsec != 0;
	if (type == OVERLAYFS_SUPER_MAGIC)
		return times_differ(st) ||
		       overlay_keeps_ctime(fs, st, root_dev);
	/* A ctime that is neither missing nor the mtime is one of the
	 * server. */
	if (type == RSH_FUSE_MAGIC)
		return times_differ(st) && st->st_ctim.tv_sec != 0;
	return rsh_is_one(type, EXT4_SUPER_MAGIC, RSH_XFS_MAGIC,
			  BTRFS_SUPER_MAGIC, TMPFS_MAGIC, RAMFS_MAGIC,
			  RSH_F2FS_MAGIC, BCACHEFS_MAGIC, ZFS_MAGIC,
			  CEPH_SUPER_MAGIC, BEEGFS_MAGIC, GPFS_MAGIC,
			  LUSTRE_MAGIC);
}

/* The f_fsid of these has the UUID of the file system; that of others has the
 * number of its device. */
uint64_t rsh_file_system_number(const struct statfs *fs)
{
	uint64_t number = 0;

	if (rsh_is_one((uint32_t)fs->f_type, EXT4_SUPER_MAGIC,
		       BTRFS_SUPER_MAGIC, RSH_F2FS_MAGIC))
		memcpy(&number, &fs->f_fsid, sizeof(number));
	return number;
}

uint64_t rsh_file_system_mount(int fd)
{
	struct statx st;
	uint64_t number = 0;

	if (rsh_statx(fd, "", AT_EMPTY_PATH, MASK_MOUNT | MASK_MOUNT_UNIQUE,
		      &st) == 0 &&
	    st.stx_mask & (MASK_MOUNT | MASK_MOUNT_UNIQUE))
		memcpy(&number, (const char *)&st + MOUNT_NUMBER_AT,
		       sizeof(number));
	return number;
}
