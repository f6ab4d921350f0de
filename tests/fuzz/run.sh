#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs one fuzz target, from the inputs that the repository holds of it: first
# these, then for RSH_FUZZ_SECONDS (8) what it makes of them.
#
#   fuzz/run.sh fuzz/NAME.fuzz
#
# An input may cost 20 s and no allocation 64 MiB.  What is found is left in
# fuzz/NAME.fuzz.found and printed, so that it can be repeated from a log:
#   base64 -d >found && fuzz/NAME.fuzz found
set -u

program=$1
name=$(basename "$program" .fuzz)
here=$(dirname "$0")
seconds=${RSH_FUZZ_SECONDS:-8}
work=$program.work
found=$program.found

figure()
{
	sed -n "s/^stat::$1: *//p" "$work/log"
}

show_found()
{
	grep -aE -A 20 'ERROR: |runtime error: ' "$work/log" | head -n 40 |
		LC_ALL=C tr -cd '\n\t -~' | sed 's/^/# /'
	[ -f "$found" ] || return
	echo "# found, in base64:"
	base64 "$found" | sed 's/^/# /'
}

echo 1..1
rm -rf "$work" "$found"
mkdir -p "$work/corpus" "$work/tmp"
tar -C "$work/corpus" -xzf "$here/corpus/$name.tar.gz" || {
	echo "not ok 1 - $name: no inputs to begin with"
	exit
}
set -- -max_total_time="$seconds" -timeout=20 -rss_limit_mb=1024 \
	-malloc_limit_mb=64 -print_final_stats=1 -seed="${RSH_TEST_SEED:-0}" \
	-exact_artifact_path="$found" "$work/corpus"
[ ! -f "$here/dict/$name.dict" ] || set -- -dict="$here/dict/$name.dict" "$@"
if TMPDIR=$work/tmp "$program" "$@" >"$work/log" 2>&1; then
	covered=$(sed -n 's/^#.* cov: \([0-9]*\) .*/\1/p' "$work/log" | tail -n 1)
	printf 'ok 1 - %s: %s inputs, %s edges, at most %s MiB\n' "$name" \
		"$(figure number_of_executed_units)" "${covered:-no}" \
		"$(figure peak_rss_mb)"
	rm -rf "$work"
else
	echo "not ok 1 - $name: see fuzz/$name.fuzz.work/log"
	show_found
fi
