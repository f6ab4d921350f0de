#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A cross-build to aarch64 in a fresh Debian, and its unit tests under qemu, with pages of
# 64 KiB, as openEuler's kernels have them there, and of 4 KiB unless RSH_SUITE_TESTS is set,
# as in each run of tests/run.sh.
# shellcheck disable=SC2016,SC2154 # expanded there; lib/fresh.sh
set -eu
top=$(cd "${top_srcdir:-$(dirname "$0")/../..}" && pwd)
. "$top/tests/lib/fresh.sh"

# A test that takes more address space than this fails.
LIMIT_KIB=4194304

# Debian's packages of libraries are for both, of programs for this machine.
packages()
{
	in_clone sh -exc '
		dpkg --add-architecture arm64
		apt-get -qq update
		top=$PWD && . tests/lib/setup.sh
		libraries= programs=
		for package in $BUILD_PACKAGES; do
			case $package in
			libc6-dev) ;;
			lib*-dev | zlib1g-dev) libraries="$libraries $package:arm64" ;;
			fuse3) ;;
			*) programs="$programs $package" ;;
			esac
		done
		apt-get -qq install $programs $libraries \
			crossbuild-essential-arm64 qemu-user-static python3' &&
		fresh_keep
}

build_cross()
{
	in_clone sh -exc '
		top=$PWD && . tests/lib/setup.sh
		export PKG_CONFIG_LIBDIR=/usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig
		prepare_source
		build_in build/aarch64 --host=aarch64-linux-gnu --enable-werror
		make -C build/aarch64/tests -j"${JOBS:-$(nproc)}" check TESTS='
}

# unit_tests PAGE: those that qemu can run, in a run of tests/run.sh without one that
# computes for as long as thirty others.
unit_tests()
{
	less=${RSH_SUITE_TESTS:+unit/test_read_stream}
	make_tests build/aarch64 check check_PROGRAMS= RSH_FEWER=20 \
		TESTS="\$(filter-out $less,\$(QUICK_AARCH64))" \
		LOG_COMPILER="sh -c 'ulimit -v $LIMIT_KIB; exec qemu-aarch64-static -p $1 \"\$\$0\"'"
}

steps=6
[ -z "${RSH_SUITE_TESTS:-}" ] || steps=5
fresh_tests $steps
fresh_with aarch64 tests/lib/setup.sh tests/fresh/aarch64.sh
fresh_test "a fresh Debian" fresh_begin
fresh_test "a clone" fresh_clone
fresh_test "packages of aarch64" packages
export CFLAGS=-O0
fresh_test "a build without a warning" build_cross
fresh_test "unit tests with pages of 64 KiB" unit_tests 65536
[ -n "${RSH_SUITE_TESTS:-}" ] || fresh_test "unit tests" unit_tests 4096
