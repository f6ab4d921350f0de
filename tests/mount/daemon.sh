#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Without -f: the command returns when the mount answers, and the daemon lives
# and dies in order.
. "${srcdir:-.}/lib/open_fuse.sh"
. "${srcdir:-.}/lib/mount.sh"

make_source
reference=$T/expected/rank_0/checkpoint_0.ckpt
file=$MNT/rank_0/checkpoint_0.ckpt

start_daemon() {
	run_daemon "$RESHARDFS" mount "$@"
}

start_daemon $(strategies) "$SRC" "$MNT"
equal "the command succeeds" "$command_status" 0
# No waiting: the command has returned, so the mount must answer.
check "it can be read at once" cmp "$file" "$reference"
pid=$daemon_pid
equal "the daemon has its own session" \
	"$(sed 's/.*) //' "/proc/$pid/stat" | cut -d' ' -f4)" "$pid"
equal "its directory is the root" "$(readlink "/proc/$pid/cwd")" /
for fd in 0 1 2; do
	equal "descriptor $fd is /dev/null" "$(readlink "/proc/$pid/fd/$fd")" \
		/dev/null
done
check "fusermount3 -u" fusermount3 -u "$MNT"
check "ends the daemon with status 0" ends_well

# A relative SOURCE, strategy, mount point and log file.
cd "$T" || exit 1
start_daemon --src-strategy source.ckpt --dst-strategy wanted.ckpt \
	--log-to file:relative.log --log-level debug source mnt
cd / || exit 1
equal "relative paths: the command succeeds" "$command_status" 0
check "relative SOURCE: the bytes are right" cmp "$file" "$reference"
check "the log goes on after detaching" grep -q 'debug: read node' \
	"$T/relative.log"
mv "$T/source" "$T/renamed"
dd "if=$file" iflag=nocache count=0 2>/dev/null
check "SOURCE may be renamed" cmp "$file" "$reference"
mv "$T/renamed" "$T/source"
kill -TERM "$daemon_pid"
check "SIGTERM: relative mount point is unmounted, status 0" ends_well

for signal in TERM INT HUP; do
	start_daemon $(strategies) "$SRC" "$MNT"
	kill -s "$signal" "$daemon_pid"
	check "SIG$signal unmounts, status 0" ends_well
done

run_daemon nohup "$RESHARDFS" mount $(strategies) "$SRC" "$MNT"
kill -s HUP "$daemon_pid"
check "SIGHUP does so even if it was ignored at the start" ends_well

# Busy: fusermount3 -u refuses, a signal unmounts lazily.
start_daemon $(strategies) "$SRC" "$MNT"
exec 9<"$file"
refute "a busy mount is not unmounted by fusermount3 -u" fusermount3 -u "$MNT"
check "and goes on" cmp "$file" "$reference"
kill -TERM "$daemon_pid"
check "SIGTERM unmounts a busy mount, status 0" ends_well
exec 9<&-

start_daemon $(strategies) "$SRC" "$MNT"
exec 9<"$file"
check "fusermount3 -u -z of a busy mount" fusermount3 -u -z "$MNT"
check "leaves open files readable" sh -c "cmp - '$reference' <&9"
exec 9<&-
check "until they are closed, then status 0" ends_well

# ---- standard streams that are closed ----

# What is opened in their place must not get what is printed or logged.
for closed in '<&-' '>&-' '2>&-' '<&- >&-' '<&- 2>&-' '>&- 2>&-' '<&- >&- 2>&-'; do
	for log in "" "--log-to=file:$T/closed.log" --log-to=syslog; do
		: >"$T/closed.log"
		# shellcheck disable=SC2086 # one word or none
		run_daemon sh -c "exec \"\$@\" $closed" sh "$RESHARDFS" mount \
			$(strategies) $log --log-level=debug "$SRC" "$MNT"
		name="closed: $closed ${log%%:*}"
		equal "$name: returns" "$command_status" 0
		check "$name: is right" cmp "$file" "$reference"
		equal "$name: its streams" "$(readlink "/proc/$daemon_pid/fd/0" \
			"/proc/$daemon_pid/fd/1" "/proc/$daemon_pid/fd/2" | xargs)" \
			"/dev/null /dev/null /dev/null"
		[ "${log%%:*}" != --log-to=file ] || equal "$name: nothing but lines" \
			"$(grep -cvE '^20[0-9T:.+-]+ reshardfs: [a-z]+: ' "$T/closed.log")" 0
		check "$name: is unmounted" fusermount3 -u "$MNT"
		check "$name: ends well" ends_well
	done
	sh -c "exec \"\$@\" $closed" sh "$RESHARDFS" mount -f $(strategies) \
		--log-to file:"$T/closed.log" --log-level debug "$SRC" "$MNT" \
		>"$T/said" 2>&1 </dev/null &
	DAEMON=$!
	bare_device=$(device_of "$MNT")
	within 60 served_or_dead
	check "closed: $closed -f: is right" cmp "$file" "$reference"
	LOG=$T/closed.log
	mount_stop
	rm -rf "$T/written"
	sh -c "exec \"\$@\" $closed" sh "$RESHARDFS" export $(strategies) \
		"$SRC" "$T/written" >"$T/said" 2>&1 </dev/null
	rm "$T/written/reshardfs-manifest.jsonl"
	check "closed: $closed: export writes what it should" \
		diff -r "$T/written" "$T/expected"
done
sh -c 'exec "$@" >&-' sh "$RESHARDFS" ls "$SRC" 2>"$T/said"
equal "what could not be printed is an error" $? 4
check "says so" grep -q 'standard output: ' "$T/said"

# ---- failures ----

# fails NAME WORD ARGUMENT...: status 3, a reason with WORD, nothing mounted,
# no process left.
fails() {
	fails_name=$1
	fails_word=$2
	shift 2
	start_daemon "$@"
	if [ "$command_status" = 3 ] && [ "$daemon_pid" = none ] &&
		grep -qF -e "$fails_word" "$T/said" && not_mounted; then
		ok "$fails_name"
	else
		not_ok "$fails_name"
		echo "# exit status $command_status: $*"
		diag <"$T/said"
		is_mounted && fusermount3 -u "$MNT"
	fi
}

fails "no such SOURCE" "error: source $T/nowhere: No such" $(strategies) "$T/nowhere" "$MNT"
fails "no such mount point" "error: mount point $T/nowhere: No such file or directory; make it with mkdir -p" $(strategies) "$SRC" "$T/nowhere"
: >"$T/plain"
fails "mount point is a file" "mount point $T/plain: not a directory" $(strategies) "$SRC" "$T/plain"
fails "no such strategy" "error: strategy $T/nowhere.ckpt: No such" --src-strategy \
	"$T/nowhere.ckpt" --dst-strategy none "$SRC" "$MNT"
fails "no such destination" "error: strategy $T/nowhere.ckpt: No such" --src-strategy \
	"$T/source.ckpt" --dst-strategy "$T/nowhere.ckpt" "$SRC" "$MNT"
fails "no such SOURCE of a job" "error: source $T/nowhere: No such" --resume \
	"$T/nowhere" "$MNT"
fails "log file that cannot be made" "$T/nowhere/log: No such" $(strategies) \
	--log-to file:"$T/nowhere/log" "$SRC" "$MNT"
fails "the reason is on stderr even with a log file" "$T/nowhere: No such" \
	$(strategies) --log-to file:"$T/log.fail" "$T/nowhere" "$MNT"
check "and in the log file" grep -qF "$T/nowhere: No such" "$T/log.fail"
if fuse_is_open; then
	mkdir "$T/private"
	chmod 755 "$T"
	# The build may lie where others may not look.
	cp "$RESHARDFS" "$T/program"
	start_unprivileged() {
		as_nobody "$T/program" mount $(strategies) "$SRC" "$T/private" \
			>"$T/said" 2>&1
	}
	chmod -R a+rX "$T/source" "$T/source.ckpt" "$T/wanted.ckpt"
	start_unprivileged
	equal "another's directory: status 4" $? 4
	check "another's directory: a reason" grep -q "cannot mount on $T/private" "$T/said"
	refute "another's directory: not mounted" grep -q " $T/private fuse" /proc/self/mounts
	chown 65534:65534 "$T/private"
	start_unprivileged
	equal "mounted without privileges" $? 0
	equal "the owner is the mounter" \
		"$(as_nobody stat -c %u:%g "$T/private/rank_0/checkpoint_0.ckpt")" \
		65534:65534
	check "others may not look in" sh -c "! ls '$T/private' 2>/dev/null"
	check "unmounted without privileges" as_nobody fusermount3 -u "$T/private"

	# The daemon unmounts by itself, although it can run no fusermount3.
	private_mounted() {
		grep -q " $T/private fuse" /proc/self/mounts
	}
	private_gone() {
		! private_mounted
	}
	private_pid() {
		as_nobody sed -n 's/^  "pid": \([0-9]*\),/\1/p' \
			"$T/private/.reshardfs/stats"
	}
	start_unprivileged
	pid=$(private_pid)
	check "without privileges: sandboxed" \
		grep -q '^NoNewPrivs:[[:space:]]*1' "/proc/$pid/status"
	equal "without privileges: its memory is its user's" \
		"$(stat -c %u "/proc/$pid/fd")" 65534
	kill -TERM "$pid"
	check "without privileges: SIGTERM ends it" within 30 has_ended "$pid"
	check "and nothing stays mounted" private_gone
	start_unprivileged
	pid=$(private_pid)
	# Itself and no shell around it, so that it can be killed.
	setpriv --reuid=$NOBODY --regid=$NOBODY --clear-groups \
		tail -f "$T/private/rank_0/checkpoint_0.ckpt" >/dev/null &
	holder=$!
	holds() {
		ls -l "/proc/$holder/fd" | grep -q "$T/private"
	}
	check "a file is open" within 10 holds
	kill -TERM "$pid"
	check "also if it is busy" within 30 private_gone
	check "and the daemon ends" within 30 has_ended "$pid"
	kill "$holder"
	wait "$holder" 2>/dev/null
	start_unprivileged
	kill -KILL "$(private_pid)"
	check "a killed one leaves its mount" private_mounted
	as_nobody fusermount3 -u -z "$T/private"
	if [ "$(readlink /proc/self/ns/mnt)" != "$(readlink /proc/1/ns/mnt)" ] &&
		! ldd "$RESHARDFS" | grep -qE 'lib(a|t)san'; then
		echo user_allow_other >"$T/fuse.conf"
		mount --bind "$T/fuse.conf" /etc/fuse.conf
		as_nobody "$T/program" mount -o allow_other $(strategies) \
			"$SRC" "$T/private" >"$T/said" 2>&1
		pid=$(private_pid)
		equal "with allow_other its memory is root's alone" \
			"$(stat -c %u "/proc/$pid/fd")" 0
		as_nobody fusermount3 -u "$T/private"
		umount /etc/fuse.conf
	else
		skip "with allow_other its memory is root's alone" \
			"needs a mount namespace, and no sanitizer"
	fi

	# Few processes: root has no limit of them, nor has who shares its user.
	few=$((61000 + $$ % 4000))
	few() {
		setpriv --reuid=$few --regid=$few --clear-groups "$@"
	}
	chown $few:$few "$T/private"
	bad=
	for n in 1 2 3 4 5 6 8 12 20 40; do
		few timeout "$(seconds 60)" prlimit --nproc=$n "$T/program" \
			mount $(strategies) --index-cache off "$SRC" "$T/private" \
			>"$T/said" 2>&1
		few_status=$?
		if private_mounted; then
			[ $few_status = 0 ] && few cmp -s \
				"$T/private/rank_0/checkpoint_0.ckpt" - \
				<"$reference" || bad="$bad $n:$few_status"
			few fusermount3 -u -z "$T/private"
		else
			[ $few_status = 4 ] && grep -q 'error: ' "$T/said" ||
				bad="$bad $n:$few_status"
		fi
	done
	if ldd "$RESHARDFS" | grep -qE 'lib(a|t)san'; then
		skip "few processes" "a sanitizer has processes of its own"
	else
		equal "few processes: a sentence, or all bytes right" "$bad" ""
	fi
else
	skip "without privileges" "needs root, and a /dev/fuse for everybody"
fi
finish
