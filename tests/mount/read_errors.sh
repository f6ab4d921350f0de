#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A source that changes or goes while it is mounted: reads fail with ESTALE, which
# the log says once a file, or EIO, once an outage, and no byte that is read is
# wrong; or, where other ranks hold the same slices, all bytes are right.
. "${srcdir:-.}/lib/open_fuse.sh"
. "${srcdir:-.}/lib/mount.sh"

make_source
victim=rank_2/net_rank_2-3_40.ckpt

# A mount whose daemon may hold one source file open at a time, so that every
# change is met when a file is opened anew; $RESHARDFS itself otherwise.
cat >"$T/few-descriptors" <<SH
#!/bin/sh
ulimit -n 100
exec "$RESHARDFS" "\$@"
SH
chmod +x "$T/few-descriptors"

# damaged_mount: a mount of a copy of the source.
damaged_mount() {
	fresh_source
	mount_start --src-strategy "$T/source.ckpt" --dst-strategy none \
		--replicas off "$@"
}

# spoilt ERROR: reads the file, of which a part can no longer be had.
spoilt() {
	python3 "$LIB/reader.py" spoilt "$MNT/rank_0/checkpoint_0.ckpt" \
		"$T/whole/rank_0/checkpoint_0.ckpt" "$1"
}

# logged WORDS: exactly one line on the victim, with these words.
logged() {
	equal "it is logged once" "$(grep -c "$victim" "$LOG")" 1
	check "with the reason" grep -q "error: .*$victim: .*$1" "$LOG"
}

damaged_mount || finish
check "(the copy can be read)" cmp "$MNT/rank_0/checkpoint_0.ckpt" \
	"$T/whole/rank_0/checkpoint_0.ckpt"
mount_stop

damaged_mount || finish
truncate -s -5000 "$SRC/$victim"
check "truncated: ESTALE and no wrong byte" spoilt ESTALE
logged changed
mount_stop

damaged_mount || finish
truncate -s 0 "$SRC/$victim"
check "emptied: ESTALE and no wrong byte" spoilt ESTALE
logged changed
mount_stop

damaged_mount || finish
# Same length, other content.
cp "$T/source/rank_3/net_rank_3-3_40.ckpt" "$SRC/$victim"
check "written over in place: ESTALE and no wrong byte" spoilt ESTALE
logged changed
mount_stop

damaged_mount || finish
touch -d '2001-01-01' "$SRC/$victim"
check "another mtime: ESTALE" spoilt ESTALE
logged changed
mount_stop

# Rank 6 holds what rank 2 holds, but for what is sharded over both.
doubled="--replicas auto --drop sharded|both_ways"
# shellcheck disable=SC2086 # words
damaged_mount $doubled || finish
cp "$MNT/rank_0/checkpoint_0.ckpt" "$T/doubled.ckpt"
mount_stop

# shellcheck disable=SC2086
damaged_mount $doubled || finish
truncate -s -5000 "$SRC/$victim"
check "truncated, with replicas: all bytes are right" cmp \
	"$MNT/rank_0/checkpoint_0.ckpt" "$T/doubled.ckpt"
logged changed
mount_stop

damaged_mount --replicas auto || finish
truncate -s -5000 "$SRC/$victim"
truncate -s -5000 "$SRC/rank_6/"net*
check "and when no replica is left: ESTALE and no wrong byte" spoilt ESTALE
mount_stop

# A file that is open stays the one that was indexed.
damaged_mount || finish
cp "$T/source/rank_3/net_rank_3-3_40.ckpt" "$SRC/new"
mv -f "$SRC/new" "$SRC/$victim"
check "replaced while open: still the old bytes" cmp \
	"$MNT/rank_0/checkpoint_0.ckpt" "$T/whole/rank_0/checkpoint_0.ckpt"
mount_stop

bare=$RESHARDFS
RESHARDFS=$T/few-descriptors
damaged_mount || finish
check "with few descriptors all can be read" cmp \
	"$MNT/rank_0/checkpoint_0.ckpt" "$T/whole/rank_0/checkpoint_0.ckpt"
equal "and the daemon holds one source file" \
	"$(readlink "/proc/$DAEMON/fd/"* | grep -c 'net_rank')" 1
mount_stop

damaged_mount || finish
cp "$T/source/rank_3/net_rank_3-3_40.ckpt" "$SRC/new"
mv -f "$SRC/new" "$SRC/$victim"
check "replaced while closed: ESTALE and no wrong byte" spoilt ESTALE
logged changed
mount_stop

damaged_mount || finish
rm "$SRC/$victim"
check "deleted while closed: ESTALE and no wrong byte" spoilt ESTALE
logged "No such file"
mount_stop

damaged_mount || finish
rm "$SRC/$victim"
mkfifo "$SRC/$victim"
check "a FIFO in its place does not hang the mount" spoilt ESTALE
logged changed
mount_stop

# A source on a file system that fails: a mount whose daemon is gone.
RESHARDFS=$bare
mkdir "$T/lower"
"$RESHARDFS" -f --io-mode direct --src-strategy "$T/source.ckpt" \
	--dst-strategy "$T/source.ckpt" "$T/source" "$T/lower" >"$T/lower.log" 2>&1 &
lower=$!
within 60 test -d "$T/lower/rank_7"
SRC=$T/lower
mount_start --src-strategy "$T/source.ckpt" --dst-strategy none || finish
kill -KILL "$lower"
wait "$lower" 2>/dev/null
victim=rank_2/checkpoint_2.ckpt
check "a source that cannot be read: EIO and no wrong byte" spoilt EIO
# Whichever file was read first.
victim='checkpoint_[0-7].ckpt'
logged "not connected"
mount_stop
fusermount3 -u -z "$T/lower"

# Without the right to read: root without the capability to override modes, and
# with few descriptors, so that files are opened anew.
cat >"$T/without-override" <<SH
#!/bin/sh
ulimit -n 100
exec setpriv --bounding-set -dac_override,-dac_read_search "$bare" "\$@"
SH
chmod +x "$T/without-override"
if [ "$(id -u)" = 0 ]; then
	RESHARDFS=$T/without-override
	victim=rank_2/net_rank_2-3_40.ckpt
	damaged_mount || finish
	chmod 000 "$SRC/$victim"
	check "permission removed: EIO and no wrong byte" spoilt EIO
	logged "Permission denied"
	mount_stop

	# shellcheck disable=SC2086
	damaged_mount $doubled || finish
	chmod 000 "$SRC/$victim"
	check "permission removed, with replicas: all bytes are right" cmp \
		"$MNT/rank_0/checkpoint_0.ckpt" "$T/doubled.ckpt"
	mount_stop

	fresh_source
	chmod 000 "$SRC/$victim"
	"$RESHARDFS" mount --src-strategy "$T/source.ckpt" --dst-strategy none \
		--replicas off "$SRC" "$MNT" >"$T/said" 2>&1
	equal "no permission from the start: status 4" $? 4
	check "and the file is named" grep -q \
		"error: .*$victim: Permission denied" "$T/said"
	RESHARDFS=$bare
else
	skip "permission removed" "needs root"
fi

# The same to somebody who has no privileges.
if fuse_is_open; then
	fresh_source
	victim=rank_2/net_rank_2-3_40.ckpt
	chmod 755 "$T"
	chmod -R a+rX "$SRC" "$T/source.ckpt" "$T/whole"
	mkdir "$T/theirs"
	chown 65534 "$T/theirs"
	LOG=$T/theirs/log
	# The build may lie where others may not look.
	cp "$bare" "$T/program"
	# Root cannot look into another's mount: without -f the command waits.
	check "mounted by somebody else" as_nobody sh -c "ulimit -n 100; mkdir '$T/theirs/mnt'
		exec '$T/program' --src-strategy '$T/source.ckpt' --dst-strategy none \
			--replicas off \
			--log-to 'file:$LOG' '$SRC' '$T/theirs/mnt'"
	chmod 000 "$SRC/$victim"
	refute "permission removed: an error" as_nobody cat \
		"$T/theirs/mnt/rank_0/checkpoint_0.ckpt"
	as_nobody cat "$T/theirs/mnt/rank_0/checkpoint_0.ckpt" >"$T/got" 2>"$T/said"
	check "which is EIO" grep -q 'Input/output error' "$T/said"
	check "and no wrong byte before it" cmp -n "$(stat -c %s "$T/got")" \
		"$T/got" "$T/whole/rank_0/checkpoint_0.ckpt"
	logged "Permission denied"
	check "unmounted" as_nobody fusermount3 -u "$T/theirs/mnt"
else
	skip "permission removed" "needs root, and a /dev/fuse for everybody"
fi
finish
