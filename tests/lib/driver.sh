# SPDX-License-Identifier: Apache-2.0
# Runs one test program for `make check`: as automake's driver for TAP does, which
# is the first argument, and notes how many seconds that took beside the results, by the
# clock and of processors, where tests/run.sh finds it.  The second number is without
# daemons that nobody waits for.
# shellcheck shell=sh
set -u

tap_driver=$1
shift
began=$(date +%s)
"${SHELL:-/bin/sh}" "$tap_driver" "$@"
status=$?
# Automake asks for a few fields of a .trs file only, and so leaves this one alone.
while [ $# -gt 1 ] && [ "$1" != --trs-file ]; do
	shift
done
times >"$2.times"
{
	echo ":seconds: $(($(date +%s) - began))"
	# The second line is of what was waited for: 1m2.34s 0m5.67s
	awk -F '[ms ]+' 'NR == 2 { printf ":processor: %.0f\n", 60 * ($1 + $3) + $2 + $4 }' \
		"$2.times"
} >>"$2"
rm -f "$2.times"
exit $status
