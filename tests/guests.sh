#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tries the wheels on other kernels, in guests of qemu: run it before a release.
#
#   tests/guests.sh WHEELS
#
# WHEELS is a directory with the wheels of `tests/wheels.sh --all --keep WHEELS`.  Runs on
# Debian 12 as root, installs qemu, and downloads a Debian for each guest (800 MB in all):
#
#   focal     Ubuntu 20.04 with Linux 4.18, on x86_64
#   bullseye  Debian 11 with its kernel, 5.10, on x86_64
#   bookworm  Debian 12 with its kernel, 6.1, on aarch64
#   trixie    Debian 13 with its kernel, 6.12, on aarch64 with pages of 16 KiB
#
# All are emulated, which takes half an hour or more for each.
#
# In each of them the demo is mounted, and read by the module, its bytes must be the
# converter's, and tests of mounts run.  RSH_GUESTS names those guests that are to run,
# RSH_GUEST_TESTS those tests.
set -eu

[ $# -eq 1 ] || {
	sed -n '3,/^set /s/^# \{0,1\}//p' "$0" >&2
	exit 2
}
top=$(cd "$(dirname "$0")/.." && pwd)
wheels=$(cd "$1" && pwd)
. "$top/tests/lib/setup.sh"
. "$top/tests/lib/fresh.sh"
. "$top/tests/lib/foreign.sh"

GUEST_TESTS=${RSH_GUEST_TESTS:-umount.sh control.py options.sh daemon.sh sandbox.py read.sh}

# guest SUITE ARCH NAME [KERNEL]: Debian's name of the processor, that of wheels, and
# Debian's name of the kernel if it is another one.
guest()
{
	case " ${RSH_GUESTS:-$1} " in *" $1 "*) ;; *) return 0 ;; esac
	foreign_root "$1" "$2" "${4:-$2}"
	rm -rf "$root/site" "$root/root/reshardfs"
	python3 -m pip install --quiet --no-index --no-deps --disable-pip-version-check \
		--no-compile --only-binary=:all: --platform "manylinux2014_$3" \
		--target "$root/site" "$wheels"/*_"$3".whl
	mkdir -p "$root/root/reshardfs"
	git -C "$top" ls-files -z tests tables man mount-helpers README.md |
		tar -C "$top" --null --files-from=- -cf - |
		tar -C "$root/root/reshardfs" --no-same-owner -xf -
	say "$1 on $3:"
	# shellcheck disable=SC2086 # a list of names
	python3 -B "$top/tests/lib/guest.py" --root "$root" "$3" \
		sh /root/reshardfs/tests/lib/guest_tests.sh /site/reshardfs/bin/reshardfs \
		$GUEST_TESTS || failed=yes
}

need_packages debootstrap qemu-system-x86 qemu-system-arm qemu-system-common busybox-static
failed=
guest focal amd64 x86_64
guest bullseye amd64 x86_64
guest bookworm arm64 aarch64
guest trixie arm64 aarch64 arm64-16k
[ -z "$failed" ] || die "a guest has failed"
