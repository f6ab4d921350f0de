#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A source that hangs: the mount goes on answering, and is taken down without
# waiting for it.
. "${srcdir:-.}/lib/open_fuse.sh"
. "${srcdir:-.}/lib/mount.sh"

make_source
# An hour.  Whether it needs a cache is not found out when mounting, either.
hanging='--fault delay=3600s'

# readers N: that many, all in a file of their own opening.
readers() {
	reader_pids=
	while [ "$(echo $reader_pids | wc -w)" -lt "$1" ]; do
		dd "if=$MNT/rank_0/checkpoint_0.ckpt" of=/dev/null count=1 \
			2>>"$T/readers" &
		reader_pids="$reader_pids $!"
	done
	# Until all of them have been asked for what they will not get.
	sleep 1
}

# A process that waits for a reply cannot be killed: hence never awaited.
answers() {
	rm -f "$T/listed"
	(ls -l "$MNT"/rank_* && stat -f "$MNT") >/dev/null && : >"$T/listed" &
	within 20 test -e "$T/listed"
}

readers_failed() {
	for pid in $reader_pids; do
		within 20 has_ended "$pid" || return 1
		if wait "$pid"; then
			return 1
		fi
	done
}

# ends NAME: the daemon does, with status 0, the mount is gone and so are those
# who read.
ends() {
	within 15 has_ended "$DAEMON"
	equal "$1: the daemon ends soon" $? 0
	wait_daemon
	equal "$1: with status 0" "$daemon_status" 0
	check "$1: the mount is gone" not_mounted
	check "$1: its readers get an error" readers_failed
	check "$1: the log is clean" clean_log
}

# More than there may ever be threads, too.
for n in 1 100; do
	mount_start $(strategies) $hanging || finish
	readers $n
	check "$n readers: names are answered" answers
	for pid in $reader_pids; do
		has_ended "$pid" && break
	done
	equal "$n readers: they wait" $? 1
	refute "$n readers: umount says that it is in use" \
		"$RESHARDFS" umount "$MNT"
	kill -TERM "$DAEMON"
	ends "$n readers, SIGTERM"
	check "$n readers: the log says why" grep -q "a read has not returned" "$LOG"
done

mount_start $(strategies) $hanging || finish
readers 3
check "fusermount3 -u -z takes it from the tree" fusermount3 -u -z "$MNT"
check "at once" not_mounted
kill -TERM "$DAEMON"
ends "and then SIGTERM"

mount_start $(strategies) $hanging || finish
readers 3
check "umount --lazy takes it from the tree" "$RESHARDFS" umount --lazy "$MNT"
check "at once too" not_mounted
kill -TERM "$DAEMON"
ends "umount --lazy and then SIGTERM"

stands_in_mount() {
	[ "$(readlink "/proc/$1/cwd")" = "$MNT" ]
}

# Readers that hang, and one who only holds the mount.
for signal in CONT STOP; do
	mount_start $(strategies) $hanging || finish
	readers 3
	(cd "$MNT" && exec sleep 1000) &
	holder=$!
	within 10 stands_in_mount "$holder"
	kill -$signal "$DAEMON"
	"$RESHARDFS" umount --force "$MNT" 2>"$T/said"
	equal "umount --force, SIG$signal" $? 0
	check "SIG$signal: it says so" grep -q "$MNT: unmounted by force" "$T/said"
	check "SIG$signal: the mount is gone" not_mounted
	check "SIG$signal: so is the daemon" has_ended "$DAEMON"
	check "SIG$signal: the readers get an error" readers_failed
	kill "$holder"
	wait_daemon
	# One that does not run cannot end by itself.
	status=0
	[ $signal = CONT ] || status=137
	equal "SIG$signal: its status" "$daemon_status" $status
	check "SIG$signal: the log is clean" clean_log
done

# Where nobody may abort the connection the daemon is told to end.
if setpriv --bounding-set=-sys_admin true 2>/dev/null; then
	mount_start $(strategies) $hanging || finish
	readers 3
	setpriv --bounding-set=-sys_admin "$RESHARDFS" umount --force "$MNT" 2>"$T/said"
	equal "where nobody may unmount --force fails" $? 4
	check "and says why" grep -q "$MNT: cannot be unmounted: ." "$T/said"
	check "the mount stays" is_mounted
	kill -TERM "$DAEMON"
	ends "until SIGTERM"
fi

if fuse_is_open; then
	chmod 755 "$T"
	chmod -R a+rX "$T/source" "$T/source.ckpt" "$T/wanted.ckpt"
	chown 65534:65534 "$MNT"
	# A daemon, whose readers are of its user.
	as_nobody "$RESHARDFS" mount $(strategies) --index-cache off $hanging "$SRC" "$MNT"
	as_nobody dd "if=$MNT/rank_0/checkpoint_0.ckpt" of=/dev/null count=1 2>/dev/null &
	reader_pids=$!
	sleep 1
	setpriv --reuid=65533 --regid=65533 --clear-groups \
		"$RESHARDFS" umount --force "$MNT" 2>"$T/said"
	equal "another user's --force fails" $? 4
	check "and the mount stays" is_mounted
	check "umount --force without privileges" as_nobody "$RESHARDFS" umount --force "$MNT"
	check "without privileges: the mount is gone" not_mounted
	check "without privileges: the reader gets an error" readers_failed
else
	skip "umount --force without privileges" "nobody may not use /dev/fuse"
fi

finish
