#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Epilog of slurm.conf, as root, when a job has ended on this node, however it ended.
dir=/run/ckpt-$SLURM_JOB_ID
reshardfs umount --force "$dir/mnt" 2>/dev/null
rm -f "$dir/lock"
rmdir "$dir/mnt" "$dir"
