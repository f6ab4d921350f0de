#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# README's way to install, on a Debian that has nothing else: its list of packages, its
# commands.  Then, in the same build and with the packages that tests/run.sh installs for
# tests: all unit tests compile; those run, with mounts, that use more of a machine than
# libraries, which are the same as for the plain build; and what the archive of `make dist`
# is tested with.  No mount namespace can be made there (it is no mount point, see
# pivot_root(2)).
# shellcheck disable=SC2016,SC2154 # expanded there; lib/fresh.sh
set -eu
top=$(cd "${top_srcdir:-$(dirname "$0")/../..}" && pwd)
. "$top/tests/lib/fresh.sh"

# As helper of mount(8), by the link that doc/jobs.md names, and as program.
mount_demo()
{
	in_clone sh -exc "$(readme_commands 'mount(8), fstab and systemd' 1 doc/jobs.md)"'
		cd tests/data/demo
		mount -t reshardfs -o \
			src_strategy=$PWD/strategy_8_cards.ckpt,dst_strategy=$PWD/strategy_4_cards.ckpt \
			$PWD/checkpoint /mnt
		(cd /mnt && sha256sum --check --strict) <SHA256SUMS
		umount /mnt'
}

fresh_tests 9
fresh_test "a fresh Debian" fresh_begin
fresh_test "a clone" fresh_clone
export CFLAGS=-O0
fresh_test "its packages and commands" in_clone sh -exc "$(readme_commands Install 1)"
fresh_test "what they install mounts" mount_demo
fresh_test "the packages of the tests" in_clone sh -exc '
	top=$PWD && . tests/lib/setup.sh && need_packages $BUILD_PACKAGES $TEST_PACKAGES'
fresh_test "unit tests, and mounts" make_tests build/install check \
	TESTS='$(filter-out mount/cache_servers.py mount/objects.py,$(QUICK_SYSTEM))'
# Those use more of what a machine has by chance, or make mount namespaces.
fresh_test "what looks with other programs" make_tests build/install check TESTS="mount/cache_servers.py
	mount/objects.py mount/log_targets.py mount/fstab.sh mount/job.sh mount/stack.sh"
fresh_test "no skip that tests/skips does not expect" in_clone \
	python3 tests/lib/skips.py build/install/tests
# Of the same archive package.sh makes a wheel.
fresh_test "make distcheck" in_clone make -C build/install -j"${JOBS:-$(nproc)}" distcheck \
	TESTS='$(filter-out mount/wheel.py,$(QUICK_DIST))' DISTCHECK_CONFIGURE_FLAGS=CFLAGS=-O0 XZ_OPT=-0
