#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#SBATCH --job-name=train4
#SBATCH --nodes=1
#SBATCH --ntasks=1
# A job that mounts a checkpoint for its own number of cards, trains, and
# unmounts, however the training ends.
#
#	SOURCE=/ckpt/job7 SRC_STRATEGY=/ckpt/s8.ckpt DST_STRATEGY=/ckpt/s4.ckpt \
#		sbatch job.sh msrun --worker_num=4 --local_worker_num=4 train.py
#
# The command finds the mount in CKPT_MOUNT.  On several nodes have it run once
# on each: `srun --ntasks-per-node=1 job.sh msrun --node_rank=...`.
set -eu

: "${SOURCE:?names the checkpoint tree}"
: "${SRC_STRATEGY:?names the strategy it was saved under}"
: "${DST_STRATEGY:?names the strategy it is wanted in}"
[ $# -gt 0 ] || { echo "usage: $0 COMMAND..." >&2; exit 2; }

CKPT_MOUNT=$(mktemp -d "${TMPDIR:-/tmp}/ckpt-${SLURM_JOB_ID:-$$}-XXXXXX")
export CKPT_MOUNT
train=

# shellcheck disable=SC2317 # by the trap below
epilogue() {
	status=$?
	trap - EXIT
	trap '' TERM INT HUP
	# What still has files open must not keep the mount.
	if mountpoint -q "$CKPT_MOUNT"; then
		reshardfs umount "$CKPT_MOUNT" ||
			reshardfs umount --lazy "$CKPT_MOUNT" || :
	fi
	rmdir "$CKPT_MOUNT" || :
	exit "$status"
}
trap epilogue EXIT

# Slurm sends SIGTERM some time before it kills: the command shall end first.
# Before there is one, the script does.
# shellcheck disable=SC2317 # by the trap below
stop() {
	stopped=1
	[ -n "$train" ] || exit 143
	kill -TERM "$train" 2>/dev/null || :
}
trap stop TERM INT HUP

# Prologue: the command returns when the mount answers, or has failed.
reshardfs mount --src-strategy "$SRC_STRATEGY" --dst-strategy "$DST_STRATEGY" \
	"$SOURCE" "$CKPT_MOUNT"

"$@" &
train=$!
# A signal ends a wait early.
stopped=1
while [ -n "$stopped" ]; do
	stopped=
	status=0
	wait "$train" || status=$?
done
exit "$status"
