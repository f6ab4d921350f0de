#!/bin/sh
# Sixteen readers at random offsets, all at once, on few and on many threads.
# RSH_STRESS_SECONDS says for how long (5); meant for a build with
# --enable-sanitizer=thread, too, whose report mount_stop finds in the log.
. "${srcdir:-.}/lib/mount.sh"

: "${RSH_STRESS_SECONDS:=5}"
: "${RSH_STRESS_SEED:=$(od -An -N3 -tu4 /dev/urandom | tr -d ' ')}"
make_source

# readers SECONDS
readers() {
	echo "# seed $RSH_STRESS_SEED"
	pids=
	for i in 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do
		rank=$((i % 4))
		python3 "$LIB/reader.py" random \
			"$MNT/rank_$rank/checkpoint_$rank.ckpt" \
			"$T/expected/rank_$rank/checkpoint_$rank.ckpt" \
			"$1" $((RSH_STRESS_SEED + i)) >"$T/reader.$i" 2>&1 &
		pids="$pids $!"
	done
	good=0
	for pid in $pids; do
		wait "$pid" && good=$((good + 1))
	done
	equal "sixteen readers, $1 seconds" "$good" 16
	[ "$good" = 16 ] || cat "$T"/reader.* | diag
	reads=$(sed -n "s/ reads$//p" "$T"/reader.* | awk "{ n += \$1 } END { print n + 0 }")
	echo "# $reads reads"
	check "every reader has read" test "$(cat "$T"/reader.* | grep -c ' reads$')" = 16
}

# shellcheck disable=SC2046
mount_start $(strategies) || finish
readers "$RSH_STRESS_SECONDS"
mount_stop

# One file open at a time: descriptors are taken and given up all the time.
cat >"$T/few-descriptors" <<SH
#!/bin/sh
ulimit -n 100
exec "$RESHARDFS" "\$@"
SH
chmod +x "$T/few-descriptors"
RESHARDFS=$T/few-descriptors
# shellcheck disable=SC2046
mount_start $(strategies) -o max_threads=32,clone_fd || finish
readers $((RSH_STRESS_SECONDS / 3 + 1))
mount_stop
finish
