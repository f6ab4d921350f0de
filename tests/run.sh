#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs what the tests need and runs them.
#
#   tests/run.sh [--all] [--no-oracle] [--suites[='NAME...']]
#
# Runs on Debian 12, as root if packages are to be installed; it says first what it will
# install, and starts no service.  The oracle is the real MindSpore, in a virtual environment
# that is kept for the next time under ${XDG_CACHE_HOME:-~/.cache}/reshardfs (about 3 GB);
# --no-oracle does without it and skips the tests that compare with it.  RSH_ORACLE_PYTHON in
# the environment names a Python that has it already; with RSH_HF_PYTHON, one that has
# transformers and torch, models are loaded by the Hugging Face tools as well.
# mindformers, of which only the loader of checkpoints runs, is kept there too, or is
# where RSH_MINDFORMERS says; where it cannot be had its tests are skipped.  So it is
# with moto, a server of S3: RSH_MOTO_PYTHON names a Python that has it.
#
# Without --all: the unit tests, with a quarter of their rounds, and the mounts of a build with the
# address and undefined behaviour sanitizers, and what the fuzz targets found before; by a plain
# build those mounts that tell most, what a sanitizer does not let run, and a quarter of the
# comparisons with the oracle.
#
# --all is for releases and for large changes: all of these by both builds, with other cases
# and all comparisons; in a fresh Debian, where one can be had (tests/lib/fresh.sh), what
# README says first, its way to install, tests/package.sh and the wheels; in Debian 11, 13 and
# unstable a build, the demo, and the unit tests and mounts that a system can change; a
# cross-build to aarch64 with unit tests under qemu; `make distcheck`; a few of a build without
# S3 and memcached; distributed file systems; the stress tests under the thread sanitizer; each
# parser of files fed with broken ones for RSH_FUZZ_SECONDS (8) s.  RSH_AUDITWHEEL names the
# program that looks at wheels, RSH_PLOT_PYTHON a Python that has matplotlib, and
# RSH_GUEST_KERNEL a kernel for a guest, as tests/distributed.sh unpacks one.  --suites, which
# means --all, runs all tests of the other releases and of Ubuntu 20.04, 22.04 and 24.04, which
# takes an hour more, or of those that are named (as `debian-11 ubuntu-20.04`).
#
# Warnings are errors.  A skip that tests/skips does not expect on this machine is a failure.
# What tests draw follows from RSH_TEST_SEED, and that from the tree unless it is given.  At
# the end stand the programs that took most processor time; the last line is
# `N passed, N failed`, with `, N skipped` if any were.
set -eu

top=$(cd "$(dirname "$0")/.." && pwd)
. "$top/tests/lib/setup.sh"
. "$top/tests/lib/fresh.sh"
unset MAKEFLAGS MAKELEVEL

MINDSPORE=2.10.0
# Later releases write arrays wrong that are not contiguous.
SAFETENSORS=0.5.3
MINDFORMERS=2.1.0
MOTO=5.2.5
AUDITWHEEL=6.8.2
MATPLOTLIB=3.10.7
ORACLE_PYTHONS="python3 python3.11 python3.10 python3.12 python3.9"
JOBS=${JOBS:-$(nproc)}
# The Python for which packages are installed below: where another one stands before it,
# python3 is often a script that takes longer than most programs that the tests start.
export PATH="/usr/bin:$PATH"
# What was compiled before need not be compiled again, in another clone either.
! [ -d /usr/lib/ccache ] ||
	export PATH="/usr/lib/ccache:$PATH" CCACHE_BASEDIR="$top" CCACHE_NOHASHDIR=1

usage()
{
	sed -n '3,/^set /s/^# \{0,1\}//p' "$0"
}

cache=${XDG_CACHE_HOME:-${HOME:-$top/build}/.cache}/reshardfs
oracle=yes
all=no
# Those of SUITES in tests/Makefile.am that every run has, as --suites names them; of their
# tests it has those that a system can change.
suites='debian-11 debian-13 debian-unstable aarch64'
export RSH_SUITE_TESTS=QUICK_SYSTEM
for word; do
	case $word in
	--all) all=yes ;;
	--no-oracle) oracle=no ;;
	--suites | --suites=*)
		all=yes
		suites=${word#--suites}
		suites=${suites#=}
		suites=${suites:-all}
		unset RSH_SUITE_TESTS
		;;
	-h | --help) usage; exit 0 ;;
	*) usage >&2; die "unknown argument: $word" ;;
	esac
done
for suite in $suites; do
	[ "$suite" = all ] || [ -f "$top/tests/fresh/$suite.sh" ] ||
		die "there is no tests/fresh/$suite.sh"
done

# What will happen to this machine, before anything does.
say_plan()
{
	# shellcheck disable=SC2086
	missing=$(missing_packages $packages)
	# shellcheck disable=SC2086
	set -- $missing
	if [ $# -gt 0 ]; then
		say "will install $# packages and what they need: $missing"
	else
		say "all packages are installed"
	fi
	if [ $oracle = yes ] && [ -z "${RSH_ORACLE_PYTHON:-}" ] &&
	   ! [ -d "$cache/mindspore-$MINDSPORE" ]; then
		say "will download MindSpore and moto into $cache: 1 GB, 3 GB on disk"
	fi
	say "will build below $top/build: $([ $all = yes ] && echo 16 || echo 2) GB"
	say "starts servers on loopback and mounts below ${TMPDIR:-/tmp}; both end with their tests"
	say "takes $([ $all = yes ] && echo 45 || echo 15) minutes on two cores, and the downloads"
}

# ---- the oracle ----

has_mindspore()
{
	[ -x "$1" ] && GLOG_v=4 "$1" -c "
import mindspore, numpy, sys
sys.exit(mindspore.__version__ != '$MINDSPORE' or int(numpy.__version__.split('.')[0]) > 1)
" >/dev/null 2>&1
}

# install_oracle PYTHON DIRECTORY
install_oracle()
{
	rm -rf "$2"
	"$1" -m venv "$2" &&
		"$2/bin/python" -m pip install --no-input --disable-pip-version-check \
			--no-cache-dir --quiet "mindspore==$MINDSPORE" 'numpy<2' \
			"safetensors==$SAFETENSORS" </dev/null &&
		has_mindspore "$2/bin/python"
}

# Sets RSH_ORACLE_PYTHON.
need_oracle()
{
	if [ -n "${RSH_ORACLE_PYTHON:-}" ]; then
		has_mindspore "$RSH_ORACLE_PYTHON" ||
			die "RSH_ORACLE_PYTHON=$RSH_ORACLE_PYTHON has no mindspore $MINDSPORE with numpy<2"
		export RSH_ORACLE_PYTHON
		return
	fi
	venv=$cache/mindspore-$MINDSPORE
	mkdir -p "$cache"
	if ! has_mindspore "$venv/bin/python"; then
		say "installing mindspore $MINDSPORE in $venv"
		installed=no
		for python in $ORACLE_PYTHONS; do
			command -v "$python" >/dev/null || continue
			if install_oracle "$python" "$venv"; then
				installed=yes
				break
			fi
		done
		[ $installed = yes ] ||
			die "mindspore $MINDSPORE could not be installed; --no-oracle runs the tests without it"
	fi
	export RSH_ORACLE_PYTHON="$venv/bin/python"
}

# install_mindformers DIRECTORY: its wheel unpacked, without what it requires.
install_mindformers()
{
	say "unpacking mindformers $MINDFORMERS in $1"
	mkdir -p "$cache"
	rm -rf "$1.new"
	"$RSH_ORACLE_PYTHON" -m pip install --no-input --disable-pip-version-check \
		--no-cache-dir --quiet --no-deps --no-compile --target "$1.new" \
		"mindformers==$MINDFORMERS" </dev/null &&
		mv "$1.new" "$1"
}

# Sets RSH_MINDFORMERS if it can be had.
need_mindformers()
{
	[ -z "${RSH_MINDFORMERS:-}" ] || return 0
	target=$cache/mindformers-$MINDFORMERS
	if ! [ -d "$target" ] && ! install_mindformers "$target"; then
		say "mindformers $MINDFORMERS could not be had"
		return
	fi
	export RSH_MINDFORMERS="$target"
}

# venv_with NAME VERSION MODULE REQUIREMENT: $venv has that release of it.
venv_with()
{
	venv=$cache/$1-$2
	mkdir -p "$cache"
	"$venv/bin/python" -c "import $3" 2>/dev/null && return
	say "installing $1 $2 in $venv"
	rm -rf "$venv"
	python3 -m venv "$venv" && "$venv/bin/python" -m pip install \
		--no-input --disable-pip-version-check --no-cache-dir --quiet \
		"$4==$2" </dev/null || {
		say "$1 $2 could not be had"
		rm -rf "$venv"
		return 1
	}
}

# Sets RSH_MOTO_PYTHON if it can be had.
need_moto()
{
	[ -z "${RSH_MOTO_PYTHON:-}" ] || return 0
	! venv_with moto "$MOTO" moto.server "moto[s3,server]" ||
		export RSH_MOTO_PYTHON="$venv/bin/python"
}

# Sets RSH_AUDITWHEEL if it can be had.
need_auditwheel()
{
	[ -z "${RSH_AUDITWHEEL:-}" ] || return 0
	! venv_with auditwheel "$AUDITWHEEL" auditwheel auditwheel ||
		export RSH_AUDITWHEEL="$venv/bin/auditwheel"
}

# Sets RSH_PLOT_PYTHON if it can be had.
need_matplotlib()
{
	[ -z "${RSH_PLOT_PYTHON:-}" ] || return 0
	! venv_with matplotlib "$MATPLOTLIB" matplotlib matplotlib ||
		export RSH_PLOT_PYTHON="$venv/bin/python"
}

# ---- what is drawn at random ----

# tree_number: 32 bits of the tree that is tested, or of its sources without git.
# What was rehearsed on a commit is what everybody else runs of it, and each commit
# draws cases that none has drawn.
tree_number()
{
	tree=$(git -C "$top" rev-parse --verify --quiet 'HEAD^{tree}' 2>/dev/null) ||
		tree=$(cd "$top" && find src include tests -name '*.[ch]' -type f \
			-exec cksum {} + | LC_ALL=C sort | sha256sum)
	printf '%d\n' "0x$(echo "$tree" | cut -c 1-8)"
}

# ---- running ----

passed=0 failed=0 skipped=0 legs=

# results BUILD RESULT: how many single tests ended like this. Automake keeps
# a line for each of them.
results()
{
	find "$1/tests" -name '*.trs' -exec cat {} + 2>/dev/null |
		grep -c "^:test-result: $2" || :
}

# programs_with BUILD RESULT: the logs of the test programs with such results.
programs_with()
{
	find "$1/tests" -name '*.trs' -exec grep -lE "^:test-result: ($2)" {} + |
		sed 's/\.trs$/.log/'
}

# begin_leg NAME WHAT
begin_leg()
{
	name=$1
	legs="$legs $name"
	build=$top/build/$name
	log=$build/check.log
	mkdir -p "$build"
	find "$build" -name '*.trs' -delete
	say "$name: $2, log in build/$name/check.log"
	started=$(date +%s)
	status=0
}

# run_leg GOAL...: of tests/Makefile.am.  Twice as many as there are processors: many
# programs wait, for clocks or for what they have started.
run_leg()
{
	make -C "$build/tests" -k -j"$((2 * JOBS))" "$@" </dev/null >>"$log" 2>&1 ||
		status=$?
	count_leg
}

no_build()
{
	tail -n 40 "$log"
	say "$name: the build failed"
	failed=$((failed + 1))
}

# longest_first TESTS: so that no long program is left to run alone at the end.
longest_first()
{
	# shellcheck disable=SC2016
	printf '$(filter %s,$(LONG)) $(filter-out $(LONG),%s)' "$1" "$1"
}

# ---- builds ----

build_plain()
{
	build_in "$top/build/plain" --enable-werror
}

build_bare()
{
	build_in "$top/build/bare" --enable-werror CFLAGS=-O0 --without-s3
}

# Reports name lines; nobody looks at variables, which take a quarter of the time.  What is
# undefined is a trap, which AddressSanitizer reports with its line: for messages the compiler
# would add 6 MB of data, which each process relocates, registers and searches for leaks.
build_asan()
{
	build_in "$top/build/asan" --enable-werror LDFLAGS=-no-pie \
		CFLAGS='-g1 -O1 -fsanitize-undefined-trap-on-error' \
		--enable-sanitizer=address,undefined
}

build_tsan()
{
	build_in "$top/build/tsan" --enable-werror CFLAGS='-g1 -O1' \
		--enable-sanitizer=thread
}

# The parsers alone, by clang.
build_fuzz()
{
	configure_in "$top/build/fuzz" CC=clang CFLAGS='-g1 -O1' --disable-tests \
		--enable-werror \
		--enable-sanitizer=fuzzer-no-link,address,undefined &&
		make -C "$top/build/fuzz/tests" -j"$JOBS" fuzz-programs
}

# build_ahead NAME...: makes what later legs build, of what the tests that run meanwhile leave
# of the processors.  What fails here fails again, and is told, when the leg comes.
build_ahead()
{
	renice -n 19 -p "$(exec sh -c 'echo $PPID')"
	build_asan && make -C "$top/build/asan/tests" -j"$JOBS" check TESTS=
	for name; do
		"build_$name"
	done
}

# ---- legs ----

# leg NAME WHAT TESTS: build_NAME and its tests, as tests/Makefile.am names them.
# Where $only is not empty it compiles no other test programs.
only=
leg()
{
	begin_leg "$1" "$2"
	tests=$3
	if "build_$name" >"$log" 2>&1; then
		run_leg check TESTS="$tests" ${only:+check_PROGRAMS="$only"}
	else
		no_build
	fi
}

# One test: the archive has all that a build, its tests and its removal need.  That
# the program is right, and free of warnings, the leg before has shown.
dist_leg()
{
	begin_leg dist "make distcheck"
	# shellcheck disable=SC2016
	if make -C "$top/build/plain" -j"$JOBS" distcheck TESTS='$(QUICK_DIST)' \
		DISTCHECK_CONFIGURE_FLAGS=CFLAGS=-O0 XZ_OPT=-0 </dev/null >"$log" 2>&1
	then
		passed=$((passed + 1))
		say "$name: passed in $(($(date +%s) - started)) s"
	else
		tail -n 40 "$log"
		failed=$((failed + 1))
		say "$name: failed"
	fi
}

# The programs of $suites.
# shellcheck disable=SC2016 # make expands it
suite_programs()
{
	for suite in $suites; do
		case $suite in
		all) printf ' $(SUITES)' ;;
		*) printf ' fresh/%s.sh' "$suite" ;;
		esac
	done
}

# What a machine of ours has by chance is not there.
fresh_leg()
{
	begin_leg fresh "README's commands and the packages, in a fresh Debian"
	if configure_in "$build" --disable-tests >"$log" 2>&1; then
		run_leg check TESTS="\$(FRESH)$(suite_programs)" check_PROGRAMS=
	else
		no_build
	fi
}

fuzz_leg()
{
	begin_leg fuzz "each parser for ${RSH_FUZZ_SECONDS:-8} s"
	if build_fuzz >"$log" 2>&1; then
		# What each finds in its time is for a processor of its own.
		run_leg -j"$((JOBS + 1))" check-fuzz
	else
		no_build
	fi
}

# Each skipped test; a failure if one was not to be expected here.
show_skips()
{
	python3 "$top/tests/lib/skips.py" "$build/tests" || bad=$((bad + 1))
}

count_leg()
{
	ok=$(results "$build" '\(PASS\|XFAIL\)')
	bad=$(results "$build" '\(FAIL\|XPASS\|ERROR\)')
	skip=$(results "$build" SKIP)
	for file in $(programs_with "$build" 'FAIL|XPASS|ERROR'); do
		show_failures "$file"
	done
	show_skips
	# make knows of failures that no test has reported, such as a test
	# program that does not compile.
	if [ "$status" -ne 0 ] && [ "$bad" -eq 0 ]; then
		tail -n 40 "$log"
		bad=1
	fi
	if [ $((ok + bad)) -eq 0 ]; then
		say "$name: no test ran"
		bad=1
	fi
	say "$name: $ok passed, $bad failed, $skip skipped in $(($(date +%s) - started)) s"
	passed=$((passed + ok))
	failed=$((failed + bad))
	skipped=$((skipped + skip))
}

# most_processor_time NUMBER: the programs that took most of it, of the legs whose programs
# take the time that they need.
most_processor_time()
{
	for name in $legs; do
		case $name in dist | fuzz) continue ;; esac
		(cd "$top/build/$name/tests" && find . -name '*.trs' -exec awk -v leg="$name" '
			/^:seconds:/ { seconds = $2 }
			/^:processor:/ { print $2, seconds, leg, substr(FILENAME, 3) }' {} +)
	done | sort -k 1,1nr -k 4 | head -n "$1" |
		while read -r processor seconds name program; do
			printf '%6d s of processor time in %6d s  %-5s  %s\n' "$processor" "$seconds" \
				"$name" "${program%.trs}"
		done
}

# ---- both runs ----

# The sanitizers slow everything down, and stop at the first report.
use_sanitizers()
{
	export RSH_TIMEOUT_SCALE="${RSH_TIMEOUT_SCALE:-4}"
	export ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1:handle_sigill=1
	export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
	export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1
}

# shellcheck disable=SC2016 # make expands it
run_gate()
{
	export RSH_SHARE="${RSH_SHARE:-4}"
	only="mount/libreshard mount/made_up_format mount/mirror"
	leg plain 'the oracle, and the quick tests' \
		"$(longest_first "\$(GATE_PLAIN) ${RSH_HF_PYTHON:+\$(HUGGING_FACE)}")"
	only=
	wait "$ahead" || :
	trap - EXIT
	use_sanitizers
	# Rounds and cases of unit tests: a quarter, as of the oracle's.
	export RSH_FEWER="${RSH_FEWER:-4}"
	leg asan 'unit tests, mounts and inputs of fuzzers' "$(longest_first '$(GATE_ASAN)')"
}

# shellcheck disable=SC2016
run_all()
{
	leg plain 'all tests' \
		"$(longest_first "\$(UNIT) \$(MOUNT) \$(ORACLE) ${RSH_HF_PYTHON:+\$(HUGGING_FACE)}")"
	fresh_leg
	# The fresh Debian does this, where there is one.
	[ -z "$(fresh_lacks)" ] || dist_leg
	wait "$ahead" || :
	trap - EXIT
	only=unit/test_options
	leg bare 'what a build without libraries says' \
		"$only mount/objects.py mount/object_faults.py mount/cluster.py"
	only=
	# Other cases than those of the plain build.
	RSH_TEST_SEED=$((RSH_TEST_SEED + 1))
	use_sanitizers
	export RSH_ORACLE_PAIRS="${RSH_ORACLE_PAIRS:-60}"
	# Rounds and cases of unit tests: the plain build made all of them.
	export RSH_FEWER="${RSH_FEWER:-2}"
	leg asan 'unit tests and mounts' \
		"$(longest_first '$(filter-out $(UNSANITIZED),$(UNIT) $(MOUNT)) $(REPLAY)')"
	# The readers are to race for a while here.
	export RSH_STRESS_SECONDS="${RSH_STRESS_SECONDS:-16}"
	only='unit/test_cache_stress mount/libreshard'
	leg tsan 'stress tests' \
		'mount/stress.sh mount/steps.py unit/test_cache_stress mount/library_races.py'
	fuzz_leg
}

packages="$BUILD_PACKAGES $TEST_PACKAGES"
ahead_of=
if [ $all = yes ]; then
	packages="$packages $FUZZ_PACKAGES $LARGE_PACKAGES"
	ahead_of='tsan fuzz bare'
fi
say_plan
mkdir -p "$cache"
exec 9>"$cache/lock"
flock -n 9 || {
	say "waits for another run.sh that installs"
	flock -w 1800 9 || die "another run.sh holds $cache/lock"
}
# shellcheck disable=SC2086 # lists of names
need_packages $packages
need_fuse
need_moto
if [ $all = yes ]; then
	need_auditwheel
	need_matplotlib
fi
if [ $oracle = yes ]; then
	need_oracle
	need_mindformers
	say "oracle: $RSH_ORACLE_PYTHON"
else
	unset RSH_ORACLE_PYTHON RSH_MINDFORMERS
fi
exec 9>&-
mkdir -p "$top/build"
prepare_source >"$top/build/autoreconf.log" 2>&1 || {
	cat "$top/build/autoreconf.log" >&2
	die "autoreconf failed"
}

export RSH_TEST_SEED="${RSH_TEST_SEED:-$(tree_number)}"
say "seed: RSH_TEST_SEED=$RSH_TEST_SEED"
# shellcheck disable=SC2086
build_ahead $ahead_of </dev/null >"$top/build/ahead.log" 2>&1 &
ahead=$!
trap 'kill "$ahead" 2>/dev/null || :' EXIT
case $all in
yes) run_all ;;
*) run_gate ;;
esac

say "the programs that took most processor time:"
most_processor_time 20
if [ $skipped -gt 0 ]; then
	say "$passed passed, $failed failed, $skipped skipped"
else
	say "$passed passed, $failed failed"
fi
[ $failed -eq 0 ] && [ $passed -gt 0 ]
