#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# TaskProlog of slurm.conf, as the user, before each task.  A job that has
#	export RESHARDFS_MOUNT="--src-strategy src.ckpt --dst-strategy dst.ckpt /data/run"
# finds the mount at $CHECKPOINT.  Tasks of one node have one mount: the same command again
# finds it there.  A daemon that ended with an earlier step has left its mount, which one task
# removes while the others wait.
[ -n "$RESHARDFS_MOUNT" ] || exit 0
dir=/run/ckpt-$SLURM_JOB_ID
exec 9>"$dir/lock" && flock 9 || exit
ls "$dir/mnt" >/dev/null 2>&1 || reshardfs umount --force "$dir/mnt" 9>&-
eval "reshardfs mount $RESHARDFS_MOUNT '$dir/mnt' 9>&-" && echo "export CHECKPOINT=$dir/mnt"
