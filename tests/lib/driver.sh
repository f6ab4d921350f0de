# SPDX-License-Identifier: Apache-2.0
# Runs one test program for `make check`: as automake's driver for TAP does, which
# is the first argument, and notes how many seconds that took beside the results,
# where tests/run.sh finds it.
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
echo ":seconds: $(($(date +%s) - began))" >>"$2"
exit $status
