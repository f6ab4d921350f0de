#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The wheel for every Linux with glibc 2.17, and that it installs, exports and mounts:
# tests/wheels.sh without what takes longest.  It needs no fresh Debian.
set -eu
top=$(cd "${top_srcdir:-$(dirname "$0")/../..}" && pwd)
. "$top/tests/lib/fresh.sh"

fresh_tests 1
fresh_test "tests/wheels.sh" "$top/tests/wheels.sh"
