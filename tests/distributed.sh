#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Holds all file systems of lib/engines.py to what tests/mount/distributed.py demands,
# and prints what mounts give of their rates, also of those that tests/run.sh leaves
# out as too large.
#
#   tests/distributed.sh BUILD [MIB]
#
# BUILD is a configured build.  Runs on Debian 12 as root, and installs what it needs:
# with Ceph some 80 MB, and 45 MB for a guest with a kernel that has NFS, unless
# RSH_GUEST_KERNEL names a directory with one, as Debian packs them.
set -eu

[ $# -ge 1 ] || {
	sed -n '3,/^set /s/^# \{0,1\}//p' "$0"
	exit 2
}
top=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "$1" && pwd)
. "$top/tests/lib/setup.sh"
cache=${XDG_CACHE_HOME:-${HOME:-$build}/.cache}/reshardfs

# Sets RSH_GUEST_KERNEL, for what this kernel lacks, if one can be had: 45 MB with qemu.
need_guest()
{
	[ -z "${RSH_GUEST_KERNEL:-}" ] || return 0
	need_packages qemu-system-x86 busybox-static nfs-ganesha nfs-ganesha-vfs \
		nfs-kernel-server
	kernel=$cache/linux
	if ! [ -d "$kernel" ]; then
		say "unpacking a kernel in $kernel"
		rm -rf "$kernel.new"
		mkdir -p "$kernel.new"
		package=$(apt-cache depends linux-image-cloud-amd64 2>/dev/null |
			sed -n 's/.*Depends: //p')
		(cd "$kernel.new" && apt-get -qq download "$package" &&
			dpkg-deb -x ./*.deb . && rm ./*.deb &&
			busybox depmod -b . "${package#linux-image-}" &&
			mv "$kernel.new" "$kernel") </dev/null >/dev/null 2>&1 || {
			say "a kernel could not be had"
			return
		}
	fi
	export RSH_GUEST_KERNEL="$kernel"
}

need_packages glusterfs-server glusterfs-client rclone s3fs bindfs ceph-mon \
	ceph-osd ceph-mds ceph-fuse ceph-common radosgw
need_guest
make -C "$build" -s
make -C "$build/tests" -s bench/bench_read
make -C "$build/tests" check TESTS="mount/distributed.py mount/nfs.py mount/nfs_export.py"
cd "$build/tests"
RESHARDFS=$build/src/reshardfs python3 -B "$top/tests/bench/bench_engines.py" \
	bench/bench_read "${2:-256}"
