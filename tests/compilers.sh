#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compiles with other compilers, with warnings as errors: run it before a release.
#
#   tests/compilers.sh [--tests] [SUITE:COMPILER...]
#
# Runs as root where a fresh Debian can be had (tests/lib/fresh.sh), half an hour for all
# of them.  Each compiler is Debian's of that suite, except clang-12: none has it, and it
# comes with zig 0.8.1 from PyPI.  They compile the program and the library, with --tests
# the programs of the tests as well; nothing of that is linked or run.  Those that find
# something are named at the end, with logs in build/compilers.
set -eu

top=$(cd "$(dirname "$0")/.." && pwd)
. "$top/tests/lib/setup.sh"
. "$top/tests/lib/fresh.sh"
unset MAKEFLAGS MAKELEVEL

COMPILERS="bullseye:gcc-10 bullseye:clang-11 bullseye:clang-12 bullseye:clang-13
	bookworm:gcc-12 bookworm:clang-14 bookworm:clang-15 bookworm:clang-16
	trixie:gcc-14 trixie:clang-17 trixie:clang-18 trixie:clang-19
	sid:gcc-16 sid:clang-23"

tests=
case ${1:-} in
--tests) tests=yes; shift ;;
-*) sed -n '3,/^set /s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
[ $# -gt 0 ] || {
	# shellcheck disable=SC2086 # a list of names
	set -- $COMPILERS
}

logs=$top/build/compilers
mkdir -p "$logs"
trap fresh_end EXIT
trap 'exit 1' HUP INT TERM

# compilers_of SUITE NAME...: those that are named for this suite.
compilers_of()
{
	suite=$1
	shift
	for name; do
		[ "${name%%:*}" != "$suite" ] || echo "${name#*:}"
	done
}

# packages_of COMPILER...
packages_of()
{
	for compiler; do
		case $compiler in
		clang-12) echo python3-pip ;;
		*) echo "$compiler" ;;
		esac
	done
}

# zig is this clang as well, without its own headers.
install_clang_12()
{
	cat >"$fresh_root/usr/local/bin/clang-12" <<-END
		#!/bin/sh
		exec /opt/zig/ziglang/zig clang -target $(uname -m)-linux-gnu \
			-isystem /opt/zig/ziglang/lib/include "\$@"
	END
	chmod +x "$fresh_root/usr/local/bin/clang-12"
	in_fresh pip3 install --quiet --target /opt/zig ziglang==0.8.1
}

# begin_suite COMPILER...: a fresh Debian with them, and configure.  In place of libtool,
# which takes longer than a compiler, is what compiles and does not link: it leaves empty
# files, also those that the programs of the tests depend on.
begin_suite()
{
	fresh_begin && fresh_clone || return
	cat >"$fresh_root/usr/local/bin/compile-only" <<-'END'
		case " $* " in *" --mode=link "*)
			while [ "$1" != -o ]; do shift; done
			case $2 in *.la) mkdir -p .libs && touch ".libs/${2%la}a" ;; esac
			exec touch "$2"
		esac
		while :; do
			case $1 in --*) shift ;; *) exec "$@" ;; esac
		done
	END
	# shellcheck disable=SC2016,SC2046 # expanded there; a list of names
	in_clone sh -exc '
		top=$PWD && . tests/lib/setup.sh && need_packages $BUILD_PACKAGES python3 "$@"
		autoreconf -fi' sh $(packages_of "$@") || return
	case " $* " in *" clang-12 "*) install_clang_12 ;; esac
}

# compile COMPILER: all errors of all files.  What clang warns of does not depend on
# optimisation.
compile()
{
	case $1 in clang*) level=-O0 ;; *) level=-O2 ;; esac
	# shellcheck disable=SC2016
	in_clone sh -exc '
		mkdir -p "build/$1" && cd "build/$1"
		../../configure --quiet --enable-werror CC="$1" CFLAGS="$2" || {
			tail -n 100 config.log
			exit 1
		}
		for directory in proto src mount-helpers $3; do
			make -k -j"${JOBS:-$(nproc)}" -C $directory check TESTS= \
				LIBTOOL="sh /usr/local/bin/compile-only" \
				LINK="sh /usr/local/bin/compile-only --mode=link -o \$@"
		done' sh "$1" "$level" "${tests:+tests}"
}

failed=
for suite in $(printf '%s\n' "$@" | sed 's/:.*//' | sort -u); do
	fresh_choose "$suite"
	lacks=$(fresh_lacks)
	[ -z "$lacks" ] || die "there can be no fresh Debian: $lacks"
	compilers=$(compilers_of "$suite" "$@")
	# shellcheck disable=SC2086
	begin_suite $compilers >"$logs/$suite.log" 2>&1 || {
		tail -n 20 "$logs/$suite.log" >&2
		die "there is no $suite with ${compilers}, see $logs/$suite.log"
	}
	for compiler in $compilers; do
		log=$logs/$suite-$compiler.log
		if compile "$compiler" >"$log" 2>&1; then
			say "$suite, $compiler: no warning"
		else
			say "$suite, $compiler: $(grep -cE ': (error|warning):' "$log") errors, see $log"
			failed="$failed $compiler"
		fi
		rm -rf "$fresh_root/root/reshardfs/build/$compiler"
	done
	fresh_end
done
[ -z "$failed" ] || die "what these say is to be mended:$failed"
