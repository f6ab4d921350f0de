#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Gives one fuzz target the inputs that the repository holds of it.
#
#   fuzz/replay.sh fuzz/replay_NAME.replay
set -u

program=$1
name=$(basename "$program" .replay)
name=${name#replay_}
work=$program.work

echo 1..1
rm -rf "$work"
mkdir -p "$work/corpus" "$work/tmp"
tar -C "$work/corpus" -xzf "$(dirname "$0")/corpus/$name.tar.gz" || {
	echo "not ok 1 - $name: no inputs"
	exit
}
if find "$work/corpus" -type f -print0 |
	TMPDIR=$work/tmp xargs -0 "$program" >"$work/log" 2>&1; then
	echo "ok 1 - $name: $(wc -l <"$work/log") inputs"
	rm -rf "$work"
else
	echo "not ok 1 - $name: see $work/log"
	tail -n 40 "$work/log" | LC_ALL=C tr -cd '\n\t -~' | sed 's/^/# /'
fi
