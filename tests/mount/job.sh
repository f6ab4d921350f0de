#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The example of a job script: it mounts, has the command run, and unmounts
# however that ends.
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

if command -v shellcheck >/dev/null; then
	check "shellcheck has nothing to say" shellcheck "$job"
else
	skip "shellcheck" "it is not installed"
fi
finish
