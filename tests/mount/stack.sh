#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A mount point that has a mount already: the same is not mounted twice, and
# nothing that hangs or is dead there is waited for.
. "${srcdir:-.}/lib/mount.sh"

make_source
reference=$T/expected/rank_0/checkpoint_0.ckpt
file=$MNT/rank_0/checkpoint_0.ckpt

layers() {
	grep -c " $MNT " /proc/self/mounts
}

pid_of_mount() {
	sed -n 's/^  "pid": \([0-9]*\),/\1/p' "$MNT/.reshardfs/stats"
}

# again NAME LAYERS WORD ARGUMENT...: mounts $SRC once more; the status must be
# 0, so many mounts there after it, and WORD in one line, or none if it is "".
again() {
	again_name=$1
	again_layers=$2
	again_word=$3
	shift 3
	timeout "$(seconds 60)" "$RESHARDFS" mount "$@" >"$T/said" 2>&1
	again_status=$?
	again_lines=$(grep -c 'mounted there' "$T/said")
	[ -n "$again_word" ] && again_wanted=1 || again_wanted=0
	if [ "$again_status" = 0 ] && [ "$(layers)" = "$again_layers" ] &&
		[ "$again_lines" = "$again_wanted" ] &&
		{ [ -z "$again_word" ] || grep -qF -e "$again_word" "$T/said"; }; then
		ok "$again_name"
	else
		not_ok "$again_name"
		echo "# exit status $again_status, $(layers) layers: $*"
		diag <"$T/said"
	fi
}

# refuses NAME WORD: the mount fails, and does not take longer than it may.
refuses() {
	timeout "$(seconds 40)" "$RESHARDFS" mount $(strategies) "$SRC" "$MNT" \
		>"$T/said" 2>&1
	equal "$1: status" $? 4
	check "$1: says what to do" grep -q "error: .*$2" "$T/said"
	equal "$1: one layer" "$(layers)" 1
}

run_daemon "$RESHARDFS" mount $(strategies) "$SRC" "$MNT"
equal "the first mount" "$command_status" 0
first=$daemon_pid
again "the same again" 1 "same options, step epoch 3 step 40" \
	$(strategies) "$SRC" "$MNT"
check "names --stack" grep -q -e --stack "$T/said"
equal "and the first one serves on" "$(pid_of_mount)" "$first"
again "in another order, by -o, with a log" 1 "same options" \
	--log-level notice -o "dst_strategy=$T/wanted.ckpt" \
	-o "ro,src_strategy=$T/source.ckpt" "$SRC" "$MNT"
cd "$T" || exit 1
again "by relative paths" 1 "same options" --dst-strategy ./wanted.ckpt \
	--src-strategy mnt/../source.ckpt source ./mnt/
cd / || exit 1
again "in the foreground" 1 "same options" -f $(strategies) "$SRC" "$MNT"
again "quietly" 1 "" --quiet $(strategies) "$SRC" "$MNT"

again "another option" 2 "$SRC (fuse.reshardfs) is already mounted there" \
	$(strategies) --prefix other_ "$SRC" "$MNT"
check "shows what was asked for" cmp "$MNT/rank_0/other_0.ckpt" "$reference"
again "which is there now" 2 "same options" $(strategies) --prefix other_ \
	"$SRC" "$MNT"
"$RESHARDFS" umount "$MNT"
equal "the other one is below" "$(pid_of_mount)" "$first"
cp -a "$T/source" "$T/second"
again "another source" 2 "the new mount covers it when it is ready" $(strategies) "$T/second" "$MNT"
"$RESHARDFS" umount "$MNT"
again "--stack" 2 "" $(strategies) --stack "$SRC" "$MNT"
check "shows the same" cmp "$file" "$reference"
"$RESHARDFS" umount "$MNT"

tables=${RESHARDFS_TABLES-}
mkdir "$T/tables"
export RESHARDFS_TABLES="$T/tables"
again "other tables" 2 "the new mount covers it" $(strategies) "$SRC" "$MNT"
RESHARDFS_TABLES=$T/./tables
again "the same tables" 2 "same options" $(strategies) "$SRC" "$MNT"
RESHARDFS_TABLES=$tables
"$RESHARDFS" umount "$MNT"

# ---- what it shows has changed ----

echo '{}' >"$T/names.json"
again "with a file of an option" 2 "the new mount covers it" $(strategies) \
	--rename "$T/names.json" "$SRC" "$MNT"
again "which is the same" 2 "same options, step epoch 3 step 40; nothing is done" \
	$(strategies) --rename "$T/names.json" "$SRC" "$MNT"
echo '{ }' >"$T/names.json"
again "which is another one" 3 "same options, and has changed since: the new mount covers it" \
	$(strategies) --rename "$T/names.json" "$SRC" "$MNT"
"$RESHARDFS" umount "$MNT"
"$RESHARDFS" umount "$MNT"
for words in "$(strategies)" "--resume"; do
	cp -a "$T/source" "$T/job"
	again "a job ($words)" 2 "the new mount covers it" $words "$T/job" "$MNT"
	again "which has saved nothing ($words)" 2 "nothing is done" $words "$T/job" "$MNT"
	for rank in "$T"/job/rank_*; do
		cp "$rank"/*-3_40.ckpt "$rank/net-3_41.ckpt"
	done
	again "which has saved a newer step ($words)" 3 "has changed since" $words \
		"$T/job" "$MNT"
	check "shows it ($words)" grep -q '"step": ".*41' "$MNT/.reshardfs/config"
	again "which it shows already ($words)" 3 "nothing is done" $words "$T/job" "$MNT"
	check "lets it be unmounted ($words)" "$RESHARDFS" umount "$MNT"
	check "and the older one ($words)" "$RESHARDFS" umount "$MNT"
	rm -r "$T/job"
done

# An open file keeps the daemon of a mount that is gone from the tree, and with
# it its mark.
exec 9<"$file"
fusermount3 -u -z "$MNT"
again "behind one that was unmounted lazily" 1 "" $(strategies) "$SRC" "$MNT"
exec 9<&-
"$RESHARDFS" umount "$MNT"

# ---- one that hangs, and a dead one ----

run_daemon "$RESHARDFS" mount $(strategies) "$SRC" "$MNT"
stop_daemon
refuses "a mount that hangs" "umount --force $MNT"
kill -s CONT "$daemon_pid"
again "when it goes on" 1 "same options" $(strategies) "$SRC" "$MNT"
kill -s KILL "$daemon_pid"
within 30 test -e "$T/daemon"
refuses "a mount without its daemon" "has ended; unmount it with .reshardfs umount $MNT"
check "what it says to do" "$RESHARDFS" umount "$MNT"
again "lets it be mounted" 1 "" $(strategies) "$SRC" "$MNT"
check "right" cmp "$file" "$reference"
"$RESHARDFS" umount "$MNT"

# ---- at once ----

rounds=5
many=8
bad=
for round in $(seq $rounds); do
	for i in $(seq $many); do
		{
			timeout "$(seconds 60)" "$RESHARDFS" mount \
				$(strategies) "$SRC" "$MNT" >"$T/at-once.$i" 2>&1
			echo $? >>"$T/at-once.$i"
		} &
	done
	wait
	good=$(tail -qn 1 "$T"/at-once.* | grep -cx 0)
	notices=$(cat "$T"/at-once.* | grep -c 'same options')
	[ "$good" = $many ] && [ "$(layers)" = 1 ] &&
		[ "$notices" = $((many - 1)) ] && cmp -s "$file" "$reference" ||
		bad="$bad $round: $good good, $(layers) layers, $notices notices;"
	while is_mounted; do
		"$RESHARDFS" umount "$MNT" || fusermount3 -u -z "$MNT"
	done
done
equal "$many at once: one mounts, the others say so ($rounds rounds)" "$bad" ""

# The one that had begun fails: another takes its place.
run_daemon "$RESHARDFS" mount $(strategies) --fault 'delay=1s' \
	--src-strategy "$T/nowhere" "$SRC" "$MNT"
again "after one that failed" 1 "" $(strategies) "$SRC" "$MNT"
"$RESHARDFS" umount "$MNT"

# ---- SOURCE is told in full ----

cd "$T" || exit 1
run_daemon "$RESHARDFS" mount $(strategies) --log-to file:"$T/full.log" \
	--log-level info source mnt
cd / || exit 1
check "in /proc/mounts" grep -q "^$SRC $MNT fuse.reshardfs " /proc/self/mounts
check "in the log" grep -q "info: $SRC mounted on " "$T/full.log"
refute "nowhere else in the log" grep -q '[ :]source[ /:]' "$T/full.log"
check "in attributes" python3 -c '
import os, sys
paths = os.getxattr(sys.argv[1], "user.reshardfs.sources").decode().split("\n")
sys.exit(not all(p.startswith(sys.argv[2] + "/") for p in paths))' "$file" "$SRC"
check "in .reshardfs" grep -q "\"source\": \"$SRC\"" "$MNT/.reshardfs/stats"
"$RESHARDFS" umount "$MNT"

# ---- a mount of another kind ----

if [ "$(id -u)" = 0 ] && mount -t tmpfs below "$MNT" 2>/dev/null; then
	again "on another file system" 2 "below (tmpfs) is already mounted there" \
		$(strategies) "$SRC" "$MNT"
	"$RESHARDFS" umount "$MNT"
	umount "$MNT"
else
	skip "on another file system" "needs a mount of one"
fi
finish
