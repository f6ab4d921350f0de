#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The example of a job script: it mounts, has the command run, and unmounts
# however that ends.  And those that Slurm runs before and after a job.
. "${srcdir:-.}/lib/mount.sh"

job=${top_srcdir:-..}/mount-helpers/examples/job.sh
command -v bash >/dev/null || skip_all "there is no bash"
make_source
PATH=$(dirname "$RESHARDFS"):$PATH
SOURCE=$SRC SRC_STRATEGY=$T/source.ckpt DST_STRATEGY=$T/wanted.ckpt
TMPDIR=$T/jobs
export PATH SOURCE SRC_STRATEGY DST_STRATEGY TMPDIR
mkdir "$TMPDIR"

nothing_left() {
	[ -z "$(ls "$TMPDIR")" ] && ! grep -q " $TMPDIR/" /proc/self/mounts
}

# trains NAME STATUS COMMAND...: the job ends with that status, leaving nothing.
trains() {
	trains_name=$1
	trains_status=$2
	shift 2
	bash "$job" "$@" >"$T/said" 2>&1
	equal "$trains_name: the status" $? "$trains_status"
	check "$trains_name: nothing is left" nothing_left
}

cat >"$T/train" <<'EOF'
#!/bin/sh
cmp "$CKPT_MOUNT/rank_3/checkpoint_3.ckpt" "$1"
EOF
chmod +x "$T/train"
trains "a command that reads" 0 "$T/train" \
	"$T/expected/rank_3/checkpoint_3.ckpt"
trains "a command that finds other bytes" 1 "$T/train" "$T/source.ckpt"
trains "a command that fails" 7 sh -c 'exit 7'
trains "a command that is not there" 127 "$T/nothing"
trains "one that leaves a process behind in the mount" 0 sh -c \
	'sleep 20 <"$CKPT_MOUNT/rank_0/checkpoint_0.ckpt" & :'
SOURCE=$T/nowhere
trains "no source" 3 true
SOURCE=$SRC

bash "$job" sh -c 'trap "exit 9" TERM; : >"$0"; while :; do sleep 0.1; done' \
	"$T/started" >"$T/said" 2>&1 &
pid=$!
check "it starts" within 60 test -e "$T/started"
kill -TERM "$pid"
wait "$pid"
equal "SIGTERM reaches the command, whose status counts" $? 9
check "SIGTERM: nothing is left" nothing_left

slurm=$(dirname "$job")/slurm
SLURM_JOB_ID=test-$$ SLURM_JOB_USER=$(id -un)
RESHARDFS_MOUNT="--index-cache off --src-strategy '$SRC_STRATEGY' --dst-strategy '$DST_STRATEGY' '$SRC'"
export SLURM_JOB_ID SLURM_JOB_USER RESHARDFS_MOUNT
for part in prolog task_prolog epilog; do
	sed "s|/run/|$T/jobs/|g" "${slurm}_$part.sh" >"$T/$part"
done
of_job=$T/jobs/ckpt-$SLURM_JOB_ID/mnt
mounts() { grep -c " $of_job " /proc/self/mounts; }
check "Slurm: before a job" sh "$T/prolog"
refute "Slurm: a directory that is there is nobody's job" sh "$T/prolog"
for task in first second; do
	equal "Slurm: before its $task task" "$(sh "$T/task_prolog" 2>"$T/said")" \
		"export CHECKPOINT=$of_job"
	equal "Slurm: there is one mount" "$(mounts)" 1
done
check "Slurm: a task reads" cmp "$of_job/rank_3/checkpoint_3.ckpt" \
	"$T/expected/rank_3/checkpoint_3.ckpt"
kill -KILL "$(python3 -c '
import json, subprocess, sys
said = json.loads(subprocess.check_output([sys.argv[1], "list", "--json"]))
print(next(m["pid"] for m in said["mounts"] if m["mountpoint"] == sys.argv[2]))
' "$RESHARDFS" "$of_job")"
refute "Slurm: a daemon was killed" ls "$of_job"
equal "Slurm: before a task of the next step" "$(sh "$T/task_prolog" 2>"$T/said")" \
	"export CHECKPOINT=$of_job"
check "Slurm: a task reads again" cmp "$of_job/rank_3/checkpoint_3.ckpt" \
	"$T/expected/rank_3/checkpoint_3.ckpt"
for task in 1 2 3 4; do
	sh "$T/task_prolog" >"$T/tasks.$task" 2>&1 &
done
wait
equal "Slurm: tasks that start together" "$(sort -u "$T"/tasks.? | grep export)" \
	"export CHECKPOINT=$of_job"
equal "Slurm: have one mount" "$(mounts)" 1
check "Slurm: after the job" sh "$T/epilog"
check "Slurm: nothing is left" nothing_left
equal "Slurm: a job without a checkpoint" "$(RESHARDFS_MOUNT='' sh "$T/task_prolog")" ""

if command -v shellcheck >/dev/null; then
	check "shellcheck has nothing to say" shellcheck "$job" "$slurm"_*.sh
else
	skip "shellcheck" "it is not installed"
fi
finish
