#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Epilog of slurm.conf, as root, when a job has ended on this node, however it ended.
reshardfs umount --force "/tmp/ckpt-$SLURM_JOB_ID" 2>/dev/null
rmdir "/tmp/ckpt-$SLURM_JOB_ID"
