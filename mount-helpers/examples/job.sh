#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#SBATCH --job-name=train4
#SBATCH --nodes=1
#SBATCH --ntasks=1
# A job that mounts a checkpoint for its number of cards, trains, and unmounts,
# also after a failure.
#
#	SOURCE=/ckpt/job7 SRC_STRATEGY=/ckpt/s8.ckpt DST_STRATEGY=/ckpt/s4.ckpt \
#		sbatch job.sh msrun --worker_num=4 --local_worker_num=4 train.py
#
# The command gets the mount point in CKPT_MOUNT.  On several nodes run the job
# once on each: `srun --ntasks-per-node=1 job.sh msrun --node_rank=...`.
set -eu

: "${SOURCE:?must be the path of the checkpoint}"
: "${SRC_STRATEGY:?must be the strategy of the checkpoint}"
: "${DST_STRATEGY:?must be the strategy of this job}"
[ $# -gt 0 ] || { echo "usage: $0 COMMAND..." >&2; exit 2; }

CKPT_MOUNT=$(mktemp -d "${TMPDIR:-/tmp}/ckpt-${SLURM_JOB_ID:-$$}-XXXXXX")
export CKPT_MOUNT
train=

# shellcheck disable=SC2317 # by the trap below
epilogue() {
	status=$?
	trap - EXIT
	trap '' TERM INT HUP
	# Unmount also if a process still has files open.
	if mountpoint -q "$CKPT_MOUNT"; then
		reshardfs umount "$CKPT_MOUNT" ||
			reshardfs umount --lazy "$CKPT_MOUNT" || :
	fi
	rmdir "$CKPT_MOUNT" || :
	exit "$status"
}
trap epilogue EXIT

# Slurm sends SIGTERM some time before SIGKILL.  The command gets it, and the
# script ends after the command, or at once if the command does not run yet.
# shellcheck disable=SC2317 # by the trap below
stop() {
	stopped=1
	[ -n "$train" ] || exit 143
	kill -TERM "$train" 2>/dev/null || :
}
trap stop TERM INT HUP

# Prologue: the command returns when the mount is ready, or has failed.
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
