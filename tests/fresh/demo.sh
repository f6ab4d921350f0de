#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# README's first command, in a clone on a Debian that has nothing else, or on the release
# that the environment names, as fresh_suite=focal.
set -eu
top=$(cd "${top_srcdir:-$(dirname "$0")/../..}" && pwd)
. "$top/tests/lib/fresh.sh"

fresh_tests 3
fresh_test "a fresh $fresh_system" fresh_begin
fresh_test "a clone" fresh_clone
export CFLAGS=-O0
fresh_test "$(readme_commands 'Try it' 1 | head -n 1)" in_fresh sh -exc \
	"cd reshardfs; $(readme_commands 'Try it' 1 | head -n 1)"
