#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Which messages of the program are printed when tests run, and which never.
#
#   tests/reached.sh [DIRECTORY [TEST...]]
#
# Makes a build in DIRECTORY (build/reached) that records which code ran, runs the tests
# there, or all of unit, mount and oracle, and compares what they reached with what
# tests/unit/data/messages says is not reached.  With TESTs what earlier runs in
# DIRECTORY reached counts as well.  Tests may fail in this build, which is slower: only
# what they reach counts.  Needs gcc on x86-64, and an hour.
set -eu

top=$(cd "$(dirname "$0")/.." && pwd)
build=${1:-$top/build/reached}
[ $# -eq 0 ] || shift
unset MAKEFLAGS MAKELEVEL
JOBS=${JOBS:-1}

mkdir -p "$build/reached"
build=$(cd "$build" && pwd)
chmod 1777 "$build/reached"
cd "$build"
if ! [ -f Makefile ]; then
	${CC:-gcc} -g -O2 -fPIC -Wall -Werror -DREACHED_DIRECTORY="\"$build/reached\"" \
		-c "$top/tests/lib/reached.c" -o reached.o
	"$top/configure" --quiet CC="${CC:-gcc}" \
		CFLAGS="-g -O0 -fno-builtin -w -fsanitize-coverage=trace-pc" \
		LDFLAGS="-Wl,--build-id -Wl,$build/reached.o"
fi
make -s -j"$JOBS"

# run NAME MAKE-WORDS...: what these tests reach is added to the list NAME.reached.
run() {
	name=$1
	shift
	make -s -k -j"$JOBS" -C tests "$@" || true
	python3 "$top/tests/lib/reached.py" "$build" "$name"
}

if [ $# -gt 0 ]; then
	run some check TESTS="$*"
else
	rm -f ./*.reached
	for kind in unit mount oracle; do
		run $kind check-$kind
	done
fi
exec python3 "$top/tests/lib/reached.py" "$build"
