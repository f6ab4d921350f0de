#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prolog of slurm.conf, as root, before a job begins on this node: a directory for its mount.
dir=/run/ckpt-$SLURM_JOB_ID
mkdir -m 700 "$dir" && mkdir "$dir/mnt" && chown -R "$SLURM_JOB_USER" "$dir"
