#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Thirty-two readers of a source larger than the cache, all at once: half at
# random offsets, half from front to back; straight and through a cache whose
# directory is good, full and vanishing, with faults for which replicas make up;
# on few and on many threads.  RSH_STRESS_SECONDS says for how long in all (6);
# meant for builds with --enable-sanitizer, too, whose reports mount_stop finds
# in the log.
. "${srcdir:-.}/lib/mount.sh"

: "${RSH_STRESS_SECONDS:=6}"
: "${RSH_STRESS_SEED:=${RSH_TEST_SEED:-$(od -An -N3 -tu4 /dev/urandom | tr -d ' ')}}"
make_source
echo "# seed $RSH_STRESS_SEED"
each=$((RSH_STRESS_SECONDS / 6 + 1))

# readers NAME: the test of one mount.
readers() {
	rm -f "$T"/reader.*
	timeout -k 5 $(($(seconds 60) + each)) python3 "$LIB/reader.py" crowd "$MNT" \
		"$T/expected" "$each" "$RSH_STRESS_SEED" 32 >"$T/reader" 2>&1
	equal "$1" $? 0
	awk '/ reads$/ { n += $1; next } NF && !/^seed / { print "# " $0 }
		END { print "# " n " reads" }' "$T/reader"
}

# cached OPTION...: a mount through a cache with room for a few blocks.
cached() {
	# shellcheck disable=SC2046
	mount_start $(strategies) --io-mode direct --cache on --cache-size 4MiB "$@" ||
		finish
}

# shellcheck disable=SC2046
mount_start $(strategies) || finish
readers "straight"
mount_stop

# One file open at a time: descriptors are taken and given up all the time.
cat >"$T/few-descriptors" <<SH
#!/bin/sh
ulimit -n 100
exec "$RESHARDFS" "\$@"
SH
chmod +x "$T/few-descriptors"
bare=$RESHARDFS
RESHARDFS=$T/few-descriptors
# shellcheck disable=SC2046
mount_start $(strategies) --io-mode cached -o max_threads=32,clone_fd || finish
readers "few descriptors, many threads"
mount_stop
RESHARDFS=$bare

cached --cache-dir "$T/blocks" --cache-disk-size 8MiB
readers "a cache smaller than the source, and its directory too"
mount_stop

# Blocks vanish all the time, and in the end the directory.
cached --cache-dir "$T/blocks"
(
	end=$(($(date +%s) + each * 2 / 3))
	while [ "$(date +%s)" -le "$end" ]; do
		find "$T/blocks" -name '*[02468ace]' -delete
		sleep 0.1
	done
	while ! rm -rf "$T/blocks"; do :; done
) 2>/dev/null &
remover=$!
readers "blocks and their directory vanish"
wait "$remover"
refute "the directory has gone" test -e "$T/blocks"
mount_stop

if [ "$(id -u)" = 0 ] && mkdir "$T/full" &&
	mount -t tmpfs -o size=2m,mode=700 none "$T/full"; then
	cached --cache-dir "$T/full"
	readers "the directory is full"
	mount -o remount,ro "$T/full"
	readers "its file system is read-only now"
	umount -l "$T/full"
	mount_stop
	check "and the log says so" grep -q "it is not used" "$LOG"
else
	skip "the directory is full" "needs root"
fi

# Ranks 4 to 7 hold what 0 to 3 hold, but for what is sharded over both.
# shellcheck disable=SC2086 # words
mount_start --src-strategy "$T/source.ckpt" --dst-strategy "$T/wanted.ckpt" \
	--drop 'sharded|both_ways' --io-mode direct || finish
cp -r "$MNT" "$T/doubled"
mount_stop
cached --drop 'sharded|both_ways' --log-level info --fault \
	'eio@rank_1/,p=0.05;eio@rank_6/,p=0.05;short,p=0.3;truncate@rank_7/:2000000-2000001,p=0.5;delay=1ms,p=0.05'
rm -rf "$T/expected"
mv "$T/doubled" "$T/expected"
readers "faults, and replicas of what they hit"
mount_stop
check "and there were some" grep -q 'reads, [1-9][0-9]* failed' "$LOG"
finish
