#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# TaskProlog of slurm.conf, as the user, before each task.  A job that has
#	export RESHARDFS_MOUNT="--src-strategy src.ckpt --dst-strategy dst.ckpt /data/run"
# finds the mount at $CHECKPOINT.  Tasks of one node have one mount: the same command again
# finds it there.  A daemon that ended with an earlier step has left its mount.
[ -n "$RESHARDFS_MOUNT" ] || exit 0
dir=/tmp/ckpt-$SLURM_JOB_ID
ls "$dir" >/dev/null 2>&1 || reshardfs umount --force "$dir"
eval "reshardfs mount $RESHARDFS_MOUNT '$dir'" && echo "export CHECKPOINT=$dir"
