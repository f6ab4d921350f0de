#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `reshardfs umount`: takes down what is a mount of reshardfs and nothing else.
. "${srcdir:-.}/lib/open_fuse.sh"
. "${srcdir:-.}/lib/mount.sh"

make_source

# refuses NAME STATUS WORD ARGUMENT...: that exit status, one sentence with
# WORD on stderr.
refuses() {
	refuses_name=$1
	refuses_status=$2
	refuses_word=$3
	shift 3
	"$RESHARDFS" umount "$@" >"$T/stdout" 2>"$T/stderr"
	refuses_got=$?
	if [ "$refuses_got" = "$refuses_status" ] && [ ! -s "$T/stdout" ] &&
		grep -qF -e "$refuses_word" "$T/stderr" &&
		[ "$(grep -cv "^Try 'reshardfs" "$T/stderr")" = 1 ]; then
		ok "$refuses_name"
	else
		not_ok "$refuses_name"
		echo "# exit status $refuses_got: $*"
		diag <"$T/stderr"
	fi
}

serve() {
	run_daemon "$RESHARDFS" mount $(strategies) "$SRC" "$MNT"
	[ "$command_status" = 0 ] || diag <"$T/said"
}

# taken_down NAME ARGUMENT...: status 0, nothing said, not mounted, and the
# daemon has ended when the command does.
taken_down() {
	taken_name=$1
	shift
	"$RESHARDFS" umount "$@" >"$T/stdout" 2>&1
	taken_status=$?
	if [ "$taken_status" = 0 ] && [ ! -s "$T/stdout" ] && not_mounted &&
		has_ended "$daemon_pid"; then
		ok "$taken_name"
	else
		not_ok "$taken_name"
		echo "# exit status $taken_status: $*"
		diag <"$T/stdout"
		is_mounted && fusermount3 -u -z "$MNT"
	fi
}

refuses "nothing given" 2 "MOUNTPOINT is missing"
refuses "two mount points" 2 "too many operands: b" a b
refuses "an option of mount" 2 --foreground --foreground a
refuses "no such directory" 3 "$T/nowhere: No such file" "$T/nowhere"
refuses "a directory" 3 "$MNT: nothing is mounted" "$MNT"
refuses "a mount of another type" 3 "/proc: a mount of type proc" /proc

serve
taken_down "a mount" "$MNT"
check "the daemon ended with status 0" ends_well
serve
stop_daemon
{ sleep 1; kill -CONT "$daemon_pid"; } &
taken_down "it waits for a daemon that is slow to end" "$MNT"
serve
stop_daemon
: >"$T/said"
{
	timeout 30 sh -c 'until [ -s "$1" ]; do sleep 0.1; done' sh "$T/said"
	kill -CONT "$daemon_pid"
} &
"$RESHARDFS" umount "$MNT" 2>"$T/said"
equal "it waits for one that takes long" $? 0
check "and says what for, and until when" \
	grep -q "$MNT: unmounted; waiting up to 30 seconds for its daemon to end" "$T/said"
check "one line" test "$(wc -l <"$T/said")" = 1
serve
taken_down "with a slash at the end" "$MNT/"
serve
ln -s mnt "$T/link"
taken_down "through a link" "$T/link"
serve
(cd "$T" && taken_down "a relative path" mnt; exit "$tests_failed")
tests_run=$((tests_run + 1))
[ $? = 0 ] || tests_failed=$((tests_failed + 1))
serve
(cd "$MNT" && sleep 1000) &
holder=$!
within 10 test "$(readlink /proc/$holder/cwd)" = "$MNT"
refuses "a mount in use" 4 "$MNT: in use;" "$MNT"
check "which stays" is_mounted
"$RESHARDFS" umount --lazy "$MNT" 2>"$T/said"
equal "lazily" $? 0
check "which is said" grep -q "$MNT: detached" "$T/said"
check "it is gone" not_mounted
refute "but still served" has_ended "$daemon_pid"
kill "$holder"
wait "$holder" 2>/dev/null
check "until nobody uses it" ends_well

serve
kill -KILL "$daemon_pid"
within 30 has_ended "$daemon_pid"
check "a dead mount is there" is_mounted
taken_down "a mount whose daemon died" "$MNT"

mkdir "$T/other"
run_daemon "$RESHARDFS" mount $(strategies) -o subtype=other "$SRC" "$T/other"
refuses "a mount that calls itself otherwise" 3 "type fuse.other" "$T/other"
fusermount3 -u "$T/other"

if setpriv --bounding-set=-sys_admin true 2>/dev/null; then
	serve
	setpriv --bounding-set=-sys_admin "$RESHARDFS" umount "$MNT" 2>"$T/stderr"
	equal "where nobody may unmount: status 4" $? 4
	check "what fusermount3 says" grep -q \
		"^reshardfs: error: $MNT: cannot be unmounted: ." "$T/stderr"
	taken_down "until somebody may" "$MNT"
	line="$T/two
lines"
	mkdir "$line"
	run_daemon "$RESHARDFS" mount $(strategies) "$SRC" "$line"
	setpriv --bounding-set=-sys_admin "$RESHARDFS" umount "$line" 2>"$T/stderr"
	check "all of a message with a newline" grep -q \
		'cannot be unmounted: .*two\\x0alines: Operation not permitted' "$T/stderr"
	taken_down "a mount point of two lines" "$line"
else
	skip "where nobody may unmount" "setpriv cannot take the right away"
fi

# Without privileges fusermount3 does it.
if fuse_is_open; then
	chmod 755 "$T"
	chmod -R a+rX "$T/source" "$T/source.ckpt" "$T/wanted.ckpt"
	mkdir "$T/private"
	chown $NOBODY:$NOBODY "$T/private"
	as_nobody "$RESHARDFS" mount $(strategies) "$SRC" "$T/private"
	check "one without privileges" as_nobody "$RESHARDFS" umount "$T/private"
	refute "it is gone" grep -q " $T/private fuse" /proc/self/mounts
	serve
	as_nobody "$RESHARDFS" umount "$MNT" 2>"$T/stderr"
	equal "another's mount: status 4" $? 4
	check "another's mount: a reason" grep -q \
		"$MNT: cannot be unmounted: user 0 mounted it; only this user and root" "$T/stderr"
	check "another's mount stays" is_mounted
	taken_down "until its owner comes" "$MNT"
else
	skip "one without privileges" "nobody may not use /dev/fuse"
fi
finish
