#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds wheels for every Linux with glibc 2.17 or newer, and tries them.
#
#   tests/wheels.sh [--all] [--keep DIRECTORY]
#
# Runs on Debian 12, as root if packages are to be installed.  The wheel has the
# program and the module with all libraries linked in (tests/lib/wheel_libraries.sh);
# the compiler is zig.  Both come from PyPI and Debian's source packages, and are kept
# for the next time.  The wheel for x86_64 is installed in a virtual environment, where
# the demo is exported, read by the module and, where there is /dev/fuse, mounted:
# the bytes must be the converter's.  With --all the wheel for aarch64 is built as well,
# each is built twice and must be the same file, that for x86_64 is tried on Debian 11,
# 12, 13 and unstable, Ubuntu 20.04, 22.04 and 24.04, its program on Ubuntu 16.04 (glibc
# 2.23), and in containers (podman), and that for aarch64 under qemu-user, which does not
# mount (tests/guests.sh does).  --keep copies
# the wheels, and with --all the image, to DIRECTORY.
# RSH_AUDITWHEEL names the program that looks at wheels, RSH_MOTO_PYTHON a Python with
# moto, a server of S3, which the suites ask with --all.
set -eu

top=$(cd "$(dirname "$0")/.." && pwd)
. "$top/tests/lib/setup.sh"
. "$top/tests/lib/fresh.sh"
. "$top/tests/lib/foreign.sh"
. "$top/tests/lib/wheel_libraries.sh"
unset MAKEFLAGS MAKELEVEL

WHEEL_PACKAGES="autoconf automake libtool pkg-config make protobuf-c-compiler binutils
	dpkg-dev gperf debian-archive-keyring python3 python3-venv"
# Those where it is tried; the first one is the base of the image.
WHEEL_SUITES="bullseye bookworm trixie sid focal jammy noble"
STRATEGIES="--src-strategy strategy_8_cards.ckpt --dst-strategy strategy_4_cards.ckpt"

all='' keep=''
while [ $# -gt 0 ]; do
	case $1 in
	--all) all=yes ;;
	--keep)
		mkdir -p "${2:?--keep needs a directory}"
		keep=$(cd "$2" && pwd)
		shift
		;;
	*) sed -n '3,/^set /s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
	esac
	shift
done

work=$(mktemp -d "${TMPDIR:-/tmp}/reshardfs-wheels-XXXXXX")
trap 'fresh_end; rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

# logged NAME COMMAND...: its output goes to a file, which is shown if it fails.
logged()
{
	log=$work/$1.log
	shift
	"$@" >"$log" 2>&1 </dev/null || {
		tail -n 40 "$log" >&2
		die "failed: $*"
	}
}

# ---- building ----

# The name of wheel-cc does not tell ccache which compiler it is, nor its time that it is the
# same as before.
ccache=
! command -v ccache >/dev/null ||
	ccache='env CCACHE_COMPILERTYPE=clang CCACHE_COMPILERCHECK=content ccache '

# configure_wheel ARCH BUILD
configure_wheel()
{
	export PKG_CONFIG_LIBDIR="$wheel_prefix/lib/pkgconfig"
	# An older build may have been for other libraries.
	grep -qs "$wheel_prefix" "$2/config.status" || rm -rf "$2"
	# Headers of what is loaded at run time have no file for pkg-config.
	configure_in "$2" --host="$1-linux-gnu" --disable-tests \
		CC="${ccache}wheel-cc" AR=wheel-ar RANLIB=wheel-ranlib \
		PKG_CONFIG="pkg-config --static" \
		CPPFLAGS="-I$wheel_prefix/include" \
		CFLAGS="-O2 -ffile-prefix-map=$top=. -ffile-prefix-map=$2=." \
		CURL_CFLAGS=' ' CURL_LIBS=' ' EXPAT_CFLAGS=' ' EXPAT_LIBS=' '
}

# platforms ARCH: those that the name of the wheel is to have.
platforms()
{
	echo "manylinux_$(echo $WHEEL_GLIBC | tr . _)_$1.manylinux2014_$1"
}

# build_wheel ARCH BUILD DIRECTORY: sets $wheel.
build_wheel()
{
	wheel_need_libraries "$1"
	mkdir -p "$3"
	logged configure configure_wheel "$1" "$2"
	logged build "$wheel_python" -c 'import sys
sys.path.insert(0, sys.argv[1])
import backend
backend.build_wheel(sys.argv[2], {"build-dir": sys.argv[3], "licences": sys.argv[4]})
' "$top/python" "$3" "$2" "$wheel_prefix/licences"
	wheel=$(find "$3" -name "*_$1.whl")
	[ -n "$wheel" ] || die "there is no wheel for $1 in $3"
	case $wheel in
	*-"$(platforms "$1")".whl) ;;
	*) die "$(basename "$wheel") is for newer systems than glibc $WHEEL_GLIBC" ;;
	esac
	say "$(basename "$wheel"): $(wc -c <"$wheel") bytes"
	[ -z "$keep" ] || cp "$wheel" "$keep/"
}

build_twice()
{
	export CCACHE_DISABLE=1
	build_wheel "$1" "$work/again-$1" "$work/again"
	unset CCACHE_DISABLE
	cmp "$wheel" "$work/wheels/$(basename "$wheel")" ||
		die "the second build is another file"
	say "a second build is the same file"
	wheel=$work/wheels/$(basename "$wheel")
}

# ---- trying ----

# check_demo DIRECTORY WHAT
check_demo()
{
	(cd "$1" && sha256sum --quiet --strict --check "$work/demo/SHA256SUMS") ||
		die "$2: other bytes than the converter wrote"
	say "$2: the bytes are the converter's"
}

# read_by_module WHAT COMMAND...: it runs lib/read_demo.py.
read_by_module()
{
	what=$1
	shift
	(cd "$work/demo" && "$@") | sort >"$work/read"
	sort "$work/demo/SHA256SUMS" | cmp - "$work/read" ||
		die "$what, the module: other bytes than the converter wrote"
	say "$what, the module: the bytes are the converter's"
}

# In a virtual environment, with nothing of ours in the environment.
try_here()
{
	logged venv "$wheel_python" -m venv "$work/venv"
	logged install "$work/venv/bin/pip" install --no-index --disable-pip-version-check \
		"$wheel"
	program=$work/venv/bin/reshardfs
	say "\$ reshardfs --version"
	"$program" --version
	cd "$work/demo"
	# shellcheck disable=SC2086 # a list of options
	logged export "$program" export $STRATEGIES checkpoint "$work/exported"
	check_demo "$work/exported" export
	"$program" convert list | grep -q '^qwen3 ' || die "it finds no tables"
	read_by_module here "$work/venv/bin/python" -I "$top/tests/lib/read_demo.py"
	if [ -c /dev/fuse ]; then
		mkdir "$work/mnt"
		# shellcheck disable=SC2086
		"$program" mount $STRATEGIES checkpoint "$work/mnt"
		(check_demo "$work/mnt" mount)
		"$program" umount "$work/mnt"
	fi
	cd /
}

# storage_keys PORT KEY SECRET: variables that name a moto.
storage_keys()
{
	echo "AWS_ACCESS_KEY_ID=$2 AWS_SECRET_ACCESS_KEY=$3 AWS_REGION=us-east-1" \
		"AWS_ENDPOINT_URL=http://127.0.0.1:$1"
}

# shellcheck disable=SC2086 # lists of options
# try_storage SUITE: object storage with keys, with the libcurl that it has or gets.
try_storage()
{
	logged peer fresh_moto "$work/demo"
	keys=$(storage_keys $address)
	bucket="$STRATEGIES s3://bucket/tree+/checkpoint"
	! in_fresh env $keys $program ls s3://bucket/tree+/checkpoint >"$work/said" 2>&1 ||
		die "$1: object storage works without libcurl"
	grep -q "install the package libcurl4" "$work/said" ||
		die "$1, without libcurl: $(cat "$work/said")"
	logged libcurl in_fresh apt-get -qq install libcurl4 libexpat1
	logged storage in_fresh env $keys sh -ec "cd /tmp/demo
		$program mount $bucket /mnt
		(cd /mnt && sha256sum --strict --check /tmp/demo/SHA256SUMS)
		$program umount /mnt"
	say "$1, s3:// with keys, libcurl installed later: the bytes are the converter's"
}

# try_program SUITE: $program, in a fresh one with the demo; there is no fusermount3.
try_program()
{
	logged try in_fresh sh -ec "cd /tmp/demo
		$program --version
		$program ls checkpoint
		$program plan $STRATEGIES checkpoint
		$program export $STRATEGIES checkpoint /tmp/exported
		$program verify /tmp/exported
		$program mount $STRATEGIES checkpoint /mnt
		(cd /mnt && sha256sum --strict --check /tmp/demo/SHA256SUMS)
		$program umount /mnt"
	check_demo "$fresh_root/tmp/exported" "$1, export"
	say "$1, mount by root without fusermount3: the bytes are the converter's"
}

# try_old SUITE: the program alone, where Python is too old for the module.
try_old()
{
	fresh_choose "$1"
	logged fresh fresh_begin
	python3 -m zipfile -e "$wheel" "$fresh_root/opt"
	chmod +x "$fresh_root/opt/reshardfs/bin/reshardfs"
	cp -r "$work/demo" "$fresh_root/tmp/"
	program=/opt/reshardfs/bin/reshardfs
	try_program "$1"
	fresh_end
}

# try_suite SUITE: where nothing is but Python, with and without /dev/fuse.
try_suite()
{
	fresh_choose "$1"
	logged fresh fresh_begin
	logged python in_fresh apt-get -qq install python3-venv python3-pip
	if [ ! -e "$work/base.tar" ]; then
		# What is mounted there can be of the same file system.
		tar -C "$fresh_root" --one-file-system --exclude='./var/cache/*' \
			--exclude='./ccache/*' -cf "$work/base.tar" .
	fi
	cp -r "$work/demo" "$top/tests/lib/read_demo.py" "$wheel" "$fresh_root/tmp/"
	program=/root/venv/bin/reshardfs
	logged venv in_fresh python3 -m venv /root/venv
	logged install in_fresh /root/venv/bin/pip install --no-index "/tmp/$(basename "$wheel")"
	try_program "$1"
	read_by_module "$1" in_fresh env --chdir=/tmp/demo /root/venv/bin/python -I \
		/tmp/read_demo.py
	# shellcheck disable=SC2016 # expanded there
	logged without-fuse unshare --mount --propagation private sh -exc '
		mount -t tmpfs tmpfs "$0/dev"
		mknod -m 666 "$0/dev/null" c 1 3
		exec chroot "$0" sh -exc "$1"' "$fresh_root" "cd /tmp/demo
		$program export $STRATEGIES checkpoint /tmp/again
		cmp /tmp/again/rank_0/checkpoint_0.ckpt /tmp/exported/rank_0/checkpoint_0.ckpt
		if $program mount $STRATEGIES checkpoint /mnt 2>/tmp/said; then exit 1; fi
		grep 'there is no /dev/fuse: .* --device /dev/fuse --cap-add SYS_ADMIN' /tmp/said"
	say "$1, without /dev/fuse: export works, and mount says what it needs"
	[ -z "${RSH_MOTO_PYTHON:-}" ] || try_storage "$1"
	fresh_end
}

try_containers()
{
	command -v podman >/dev/null || {
		say "container: skipped, there is no podman"
		return
	}
	"$top/tests/lib/containers.sh" "$work/base.tar" "$work/wheels" "$work/demo" "$work/pods" \
		${keep:+"$keep/reshardfs-image-x86_64.tar"}
}

# in_aarch64 PROGRAM ARGUMENT...: with the libraries of a Debian for aarch64.
in_aarch64()
{
	qemu-aarch64-static -L "$root" "$@"
}

try_aarch64()
{
	foreign_root bookworm arm64
	logged install-aarch64 "$work/venv/bin/pip" install --no-index --no-deps \
		--disable-pip-version-check --only-binary=:all: \
		--platform "manylinux_$(echo $WHEEL_GLIBC | tr . _)_aarch64" \
		--target "$work/site" "$wheel"
	program=$work/site/reshardfs/bin/reshardfs
	exported=$work/exported-aarch64
	cd "$work/demo"
	for command in "--version" "ls checkpoint" "plan $STRATEGIES checkpoint" \
		"export $STRATEGIES checkpoint $exported" "verify $exported" \
		"verify $STRATEGIES checkpoint $exported"; do
		# shellcheck disable=SC2086
		logged qemu in_aarch64 "$program" $command
	done
	check_demo "$exported" "aarch64, export and verify"
	export PYTHONPATH="$work/site"
	read_by_module aarch64 in_aarch64 "$root/usr/bin/python3" "$top/tests/lib/read_demo.py"
	unset PYTHONPATH
	[ -z "${RSH_MOTO_PYTHON:-}" ] || try_storage_aarch64
	cd /
}

# shellcheck disable=SC2086 # lists of options
try_storage_aarch64()
{
	moto_begin "$work" "$work/demo"
	# shellcheck disable=SC2046 # a list of variables
	export $(storage_keys $address)
	logged storage-aarch64 in_aarch64 "$program" export $STRATEGIES \
		s3://bucket/tree+/checkpoint "$exported-s3"
	moto_end
	check_demo "$exported-s3" "aarch64, s3:// with keys"
}

audit()
{
	[ -n "${RSH_AUDITWHEEL:-}" ] || return 0
	said=$("$RSH_AUDITWHEEL" show "$wheel" | tr '\n' ' ')
	tag=$(basename "$wheel" .whl)
	tag=${tag##*-}
	case $said in
	*"platform tag: \"${tag%%.*}\""*) say "auditwheel: ${tag%%.*}" ;;
	*) die "auditwheel says otherwise: $said" ;;
	esac
}

# shellcheck disable=SC2086 # lists of names
need_packages $WHEEL_PACKAGES ${all:+debootstrap qemu-user-static busybox-static}
prepare_source >"$work/autoreconf.log" 2>&1 || {
	cat "$work/autoreconf.log" >&2
	die "autoreconf failed"
}
cp -r "$top/tests/data/demo" "$work/demo"
wheel_python=python3
wheel_need_tools
wheel_need_sources
build_wheel x86_64 "$top/build/wheel-x86_64" "$work/wheels"
[ -z "$all" ] || build_twice x86_64
audit
try_here
if [ -n "$all" ]; then
	for suite in $WHEEL_SUITES; do
		try_suite "$suite"
	done
	try_old xenial
	try_containers
	build_wheel aarch64 "$top/build/wheel-aarch64" "$work/wheels"
	build_twice aarch64
	audit
	try_aarch64
fi
