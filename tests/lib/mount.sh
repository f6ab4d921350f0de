# SPDX-License-Identifier: Apache-2.0
# tests/lib/mount.sh - FUSE verbs and TAP for the shell tests.
#
#	. "${srcdir:-.}/lib/mount.sh"
#	make_source			the tree of make_tree.py; see below
#	mount_start --prefix p_		serve $SRC on $MNT, log in $LOG
#	check "names" test -e "$MNT/rank_0/p_0.ckpt"
#	mount_stop			demand a clean end
#	finish
#
# A mount runs in the foreground with a log of its own.  mount_start waits until
# it answers and fails at once if the daemon dies; mount_stop demands that
# `fusermount3 -u` works, that the daemon exits 0 within a limit, and that its
# log holds no word of a sanitizer or a failed assertion.
#
# RESHARDFS names the program.  RSH_TIMEOUT_SCALE stretches all limits (for
# sanitizers and valgrind).

# shellcheck shell=sh
set -u
LC_ALL=C
export LC_ALL
umask 022

T=$(mktemp -d "${TMPDIR:-/tmp}/reshardfs-test-XXXXXX") || exit 1
MNT=$T/mnt
SRC=$T/source
LIB=$(cd "${srcdir:-.}/lib" && pwd)
DAEMON=
LOG=
tests_run=0
tests_failed=0
n_mounts=0
mkdir "$MNT"
# Nothing is left in the user's own cache, nor found there.
XDG_CACHE_HOME=$T/cache
export XDG_CACHE_HOME

SUSPICIOUS='(Address|Leak|Memory|Thread|UndefinedBehavior)Sanitizer|runtime error:|leaked|[Aa]ssert|double free|corrupted|stack smashing|[Ss]egmentation|core dumped'

# ---- TAP ----

diag() {
	sed 's/^/# /'
}

ok() {
	tests_run=$((tests_run + 1))
	echo "ok $tests_run - $1"
}

not_ok() {
	tests_run=$((tests_run + 1))
	tests_failed=$((tests_failed + 1))
	echo "not ok $tests_run - $1"
}

skip() {
	tests_run=$((tests_run + 1))
	echo "ok $tests_run - $1 # SKIP $2"
}

# check NAME COMMAND...: passes if the command does.
check() {
	check_name=$1
	shift
	if "$@" >"$T/out" 2>&1; then
		ok "$check_name"
	else
		not_ok "$check_name"
		echo "# failed: $*"
		diag <"$T/out"
	fi
}

# refute NAME COMMAND...: passes if the command fails in order, not by a signal.
refute() {
	check_name=$1
	shift
	"$@" >"$T/out" 2>&1
	refute_status=$?
	if [ "$refute_status" -ne 0 ] && [ "$refute_status" -lt 126 ]; then
		ok "$check_name"
	else
		not_ok "$check_name"
		echo "# exit status $refute_status: $*"
		diag <"$T/out"
	fi
}

equal() {
	if [ "$2" = "$3" ]; then
		ok "$1"
	else
		not_ok "$1"
		printf '# found:    %s\n# expected: %s\n' "$2" "$3"
	fi
}

finish() {
	echo "1..$tests_run"
	[ "$tests_failed" -eq 0 ]
	exit
}

skip_all() {
	echo "1..0 # SKIP $1"
	exit 0
}

# ---- limits ----

# seconds N: N stretched by RSH_TIMEOUT_SCALE.
seconds() {
	echo $(($1 * ${RSH_TIMEOUT_SCALE:-1}))
}

# within SECONDS COMMAND...: repeats the command until it succeeds.
within() {
	within_end=$(($(date +%s) + $(seconds "$1")))
	shift
	until "$@"; do
		[ "$(date +%s)" -le "$within_end" ] || return 1
		sleep 0.05
	done
}

# Also true of a zombie, which has ended but was not waited for.
has_ended() {
	case $(sed 's/.*) //' "/proc/$1/stat" 2>/dev/null) in
	'' | Z*) return 0 ;;
	esac
	return 1
}

# ---- mounts ----

device_of() {
	stat -c %d "$1" 2>/dev/null
}

is_mounted() {
	grep -q " $MNT fuse" /proc/self/mounts
}

not_mounted() {
	! is_mounted
}

served() {
	served_dev=$(device_of "$MNT") && [ "$served_dev" != "$bare_device" ]
}

served_or_dead() {
	served || has_ended "$DAEMON"
}

# mount_start OPTION...: returns 1, with the log as diagnostics, on failure.
mount_start() {
	n_mounts=$((n_mounts + 1))
	LOG=$T/log.$n_mounts
	bare_device=$(device_of "$MNT")
	"$RESHARDFS" mount -f "$@" "$SRC" "$MNT" >"$LOG" 2>&1 &
	DAEMON=$!
	within 60 served_or_dead
	served && return 0
	not_ok "mount $n_mounts starts"
	diag <"$LOG"
	return 1
}

# wait_daemon: sets daemon_status, 'timeout' if the daemon had to be killed.
wait_daemon() {
	if within 30 has_ended "$DAEMON"; then
		wait "$DAEMON"
		daemon_status=$?
	else
		kill -KILL "$DAEMON"
		wait "$DAEMON" 2>/dev/null
		daemon_status=timeout
	fi
	DAEMON=
}

clean_log() {
	if grep -qE "$SUSPICIOUS" "$LOG"; then
		return 1
	fi
}

try_unmount() {
	fusermount3 -u "$MNT" 2>"$T/unmount"
}

# One test.
mount_stop() {
	stop_name="mount $n_mounts ends cleanly"
	within 30 try_unmount
	wait_daemon
	if [ "$daemon_status" = 0 ] && not_mounted && clean_log; then
		ok "$stop_name"
	else
		not_ok "$stop_name"
		echo "# exit status $daemon_status"
		diag <"$T/unmount"
		diag <"$LOG"
	fi
}

# run_daemon COMMAND...: the command, which must return when its daemon serves.
# Sets command_status and daemon_pid ("none"); the daemon's exit status will be
# in $T/daemon when it has ended.
run_daemon() {
	rm -f "$T/command" "$T/daemon"
	python3 "$LIB/reap.py" "$T/command" "$T/daemon" "$@" \
		>"$T/said" 2>&1 </dev/null &
	within 60 test -e "$T/command" || diag <"$T/said"
	read -r command_status daemon_pid <"$T/command"
}

# ends_well: the daemon of run_daemon ends by itself, with status 0.
ends_well() {
	within 30 test -e "$T/daemon" && [ "$(cat "$T/daemon")" = 0 ] &&
		not_mounted
}

# stop_daemon: the daemon of run_daemon answers nothing when this returns; its threads
# stop some time after the signal was sent.
stop_daemon() {
	kill -s STOP "$daemon_pid"
	within 30 has_stopped "$daemon_pid"
}

has_stopped() {
	[ -z "$(sed 's/.*) //; /^T/d' "/proc/$1"/task/*/stat 2>/dev/null)" ]
}

# ---- sources ----

# make_source: $SRC, the strategies $T/source.ckpt and $T/wanted.ckpt, and the
# files that a mount must show in $T/expected and, for `none`, $T/whole.
make_source() {
	python3 "$LIB/make_tree.py" "$T" && return 0
	not_ok "make a source tree"
	finish
}

# The strategies of make_source as options.
strategies() {
	echo --src-strategy "$T/source.ckpt" --dst-strategy "$T/wanted.ckpt"
}

# fresh_source: another copy of $SRC, to be damaged.
fresh_source() {
	rm -rf "$T/damaged"
	cp -a "$T/source" "$T/damaged"
	chmod -R u+w "$T/damaged"
	SRC=$T/damaged
}

# ---- start and end ----

clean_up() {
	if [ -n "$DAEMON" ]; then
		kill -KILL "$DAEMON" 2>/dev/null
		wait "$DAEMON" 2>/dev/null
	fi
	if is_mounted; then
		fusermount3 -u -z "$MNT"
	fi
	chmod -R u+w "$T" 2>/dev/null
	rm -rf "$T"
}
trap clean_up EXIT
trap 'exit 1' INT TERM HUP

[ -n "${RESHARDFS:-}" ] || {
	echo "Bail out! RESHARDFS does not name the program"
	exit 1
}
[ -c /dev/fuse ] || skip_all "there is no /dev/fuse"
command -v fusermount3 >/dev/null || skip_all "there is no fusermount3"
command -v python3 >/dev/null || skip_all "there is no python3"
