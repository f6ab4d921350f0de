#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The packages, from what debian/control names: tests/package.sh without what takes
# longest: the same code is optimised and tested elsewhere, and packages of debugging
# symbols are all debhelper's work.
set -eu
top=$(cd "${top_srcdir:-$(dirname "$0")/../..}" && pwd)
. "$top/tests/lib/fresh.sh"

fresh_tests 1
unset CFLAGS
export DEB_BUILD_OPTIONS='noopt nocheck noautodbgsym'
fresh_test "tests/package.sh" "$top/tests/package.sh"
