#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prolog of slurm.conf, as root, before a job begins on this node: the directory of its mount.
install -d -m 700 -o "$SLURM_JOB_USER" "/tmp/ckpt-$SLURM_JOB_ID"
