# SPDX-License-Identifier: Apache-2.0
# A build without a warning, unit tests, a few mounts and the demo in a fresh Debian or
# Ubuntu of another age: for tests/fresh/{debian,ubuntu}-*.sh, which set $fresh_suite and
# may set $fresh_todo.  RSH_FRESH_LOCAL names a directory for its /usr/local: libraries of
# other releases than it has, such as libfuse 3.3 and curl 7.61, that were built in it.
# RSH_SUITE_TESTS names a list of tests/Makefile.am, QUICK_FRESH unless it is set.
# shellcheck shell=sh disable=SC2016,SC2154 # expanded there; lib/fresh.sh
set -eu
top=$(cd "${top_srcdir:-$(dirname "$0")/../..}" && pwd)
. "$top/tests/lib/fresh.sh"

# Packages come first, so that these are what pkg-config and the linker find first.
suite_packages()
{
	in_clone sh -exc '
		top=$PWD && . tests/lib/setup.sh &&
		need_packages $BUILD_PACKAGES python3 attr xxhash rsync \
			memcached &&
		need_xxhash' &&
		fresh_keep &&
		if [ -n "${RSH_FRESH_LOCAL:-}" ]; then
			cp -a "$RSH_FRESH_LOCAL/." "$fresh_root/usr/local/" && in_fresh ldconfig
		fi
}

# In the directory of tests/demo.sh, which takes the build as it is.
build_suite()
{
	in_clone sh -exc '
		top=$PWD && . tests/lib/setup.sh
		prepare_source
		build_in build/demo --enable-werror
		build/demo/src/reshardfs --version'
}

# Random cases of arithmetic are for other builds.  No program is made that does not run.
suite_tests()
{
	list=${RSH_SUITE_TESTS:-QUICK_FRESH}
	fresh_moto && make_tests build/demo check TESTS="\$($list)" RSH_PROPERTY_CASES=1000 \
		check_PROGRAMS="\$(filter unit/%,\$($list)) mount/libreshard"
}

fresh_tests 7
fresh_with suite tests/lib/setup.sh tests/lib/suite.sh
fresh_test "a fresh $fresh_system" fresh_begin
fresh_test "a clone" fresh_clone
fresh_test "its packages" suite_packages
export CFLAGS=-O0
fresh_test "a build without a warning" build_suite
fresh_test "unit tests, and mounts" suite_tests
fresh_test "no skip that tests/skips does not expect" in_clone \
	python3 tests/lib/skips.py build/demo/tests
fresh_test "the demo" in_clone tests/demo.sh
