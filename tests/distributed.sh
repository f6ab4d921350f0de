#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Holds all file systems of lib/engines.py to what tests/mount/distributed.py demands,
# and prints what mounts give of their rates, also of those that tests/run.sh leaves
# out as too large.
#
#   tests/distributed.sh BUILD [MIB]
#
# BUILD is a configured build.  Runs on Debian 12 as root, and installs what it needs:
# with CephFS some 110 MB.  RSH_GUEST_KERNEL is as for tests/run.sh.
set -eu

[ $# -ge 1 ] || {
	sed -n '3,/^set /s/^# \{0,1\}//p' "$0"
	exit 2
}
top=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "$1" && pwd)
. "$top/tests/lib/setup.sh"

need_packages glusterfs-server glusterfs-client rclone s3fs bindfs ceph-mon \
	ceph-osd ceph-mds ceph-fuse ceph-common
make -C "$build" -s
make -C "$build/tests" -s bench/bench_read
make -C "$build/tests" check TESTS="mount/distributed.py mount/nfs.py"
cd "$build/tests"
RESHARDFS=$build/src/reshardfs python3 -B "$top/tests/bench/bench_engines.py" \
	bench/bench_read "${2:-256}"
