#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# reshardfs warm: what it reads, what it says, and how it ends.
. "${srcdir:-.}/lib/mount.sh"

make_source

# warm EXIT NAME ARGUMENT...
warm() {
	want=$1
	name=$2
	shift 2
	"$RESHARDFS" warm "$@" >"$T/stdout" 2>"$T/stderr"
	equal "$name: exit status" "$?" "$want"
}

said() {
	check "it says: $1" grep -q -- "$1" "$T/stdout" "$T/stderr"
}

# reads COMMAND...: how many read requests the mount gets by it.
reads() {
	before=$(grep -c 'debug: read node ' "$LOG")
	"$@" >"$T/out" 2>&1 || return
	echo $(($(grep -c 'debug: read node ' "$LOG") - before))
}

# shellcheck disable=SC2046
mount_start --debug $(strategies) || finish
bytes=$(find "$T/expected" -type f -exec cat {} + | wc -c)

# Seen in the log of the mount, at debug level.
equal "a look is not a read" "$(reads "$RESHARDFS" warm "$MNT")" 0
check "contents are read" test \
	"$(reads "$RESHARDFS" warm --contents "$MNT" 0)" -ge 1

warm 0 "all ranks" "$MNT"
said '^4 files, '
check "nothing on standard error" test ! -s "$T/stderr"
warm 0 "quiet" -q "$MNT"
check "not a word" test ! -s "$T/stdout" -a ! -s "$T/stderr"
warm 0 "with contents" --contents "$MNT"
said '^4 files, .* read in '
warm 0 "some ranks" --contents -j 2 "$MNT" 0 2-3
said '^3 files, '
warm 0 "one rank" "$MNT/" 1
said '^1 file, '

python3 - "$MNT" "$RESHARDFS" >"$T/rchar" <<'PY'
import os, subprocess, sys
p = subprocess.Popen([sys.argv[2], "warm", "-c", "-q", sys.argv[1]])
os.waitid(os.P_PID, p.pid, os.WEXITED | os.WNOWAIT)
with open(f"/proc/{p.pid}/io") as f:
    print(f.readline().split()[1])
p.wait()
PY
check "all bytes are read" test "$(cat "$T/rchar")" -ge "$bytes"
check "and not twice" test "$(cat "$T/rchar")" -lt $((bytes + bytes / 2))

warm 0 "JSON" --json --contents "$MNT" 0-1
check "what the JSON says" python3 -c "
import json, os, sys
said = json.load(open('$T/stdout'))
sizes = [os.stat(f'$MNT/rank_{n}/checkpoint_{n}.ckpt').st_size for n in (0, 1)]
sys.exit((said['files'], said['bytes'], said['contents']) != (2, sum(sizes), True))"

# On a terminal there is a bar, which is gone in the end.
if command -v script >/dev/null; then
	TERM=xterm script -qec "'$RESHARDFS' warm --contents '$MNT'" \
		"$T/typescript" >/dev/null 2>&1
	check "a terminal's bar is wiped away" sh -c \
		"tr -d '\\r' <'$T/typescript' | grep -q '\\[K4 files'"
else
	skip "a terminal's bar is wiped away" "there is no script(1)"
fi

warm 2 "no mount point"
said 'MOUNTPOINT is missing'
warm 2 "an option it does not know" --everything "$MNT"
said 'unknown option'
warm 2 "jobs out of range" -j 0 "$MNT"
warm 2 "jobs out of range" -j 65 "$MNT"
warm 2 "an option without its value" "$MNT" -j
warm 2 "a rank that is none" "$MNT" one
warm 2 "a range that is none" "$MNT" 3-1
warm 3 "a rank that is not there" "$MNT" 3-4
said 'rank 3-4 does not exist: the last rank is 3'
warm 3 "a directory of the mount" "$MNT/rank_0"
said 'reshardfs is not mounted there'
warm 3 "another directory" "$T"
warm 3 "a file" "$T/source.ckpt"
warm 3 "nothing" "$T/nothing"
warm 0 "help" --help
said '^usage: reshardfs warm'

# What cannot be read is named.
mount_stop
fresh_source
# shellcheck disable=SC2046
mount_start --replicas off $(strategies) || finish
touch "$SRC/rank_0/net_rank_0-3_40.ckpt"
warm 4 "files that changed" --contents "$MNT"
said 'rank_0/checkpoint_0.ckpt: Stale file handle'
refute "and nothing is said of success" grep -q . "$T/stdout"
mount_stop
finish
