#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What mount(8) does for -t reshardfs and -t fuse.reshardfs.
. "${srcdir:-.}/lib/mount.sh"

helper=$(dirname "$RESHARDFS")/../mount-helpers/mount.reshardfs
[ -x "$helper" ] || skip_all "the helper is not built beside the program"
make_source
mkdir "$T/a b,c"
cp "$T/source.ckpt" "$T/a b,c/"
PATH=$(dirname "$RESHARDFS"):$PATH
export PATH
ours="src_strategy=$T/a b\\,c/source.ckpt,dst_strategy=$T/wanted.ckpt"

mounted_right() {
	cmp "$MNT/rank_3/checkpoint_3.ckpt" \
		"$T/expected/rank_3/checkpoint_3.ckpt"
}

# As mount(8) calls it for an fstab line, with all that is not for us.
run_daemon "$helper" "$SRC" "$MNT" -n -s -t reshardfs \
	-o "rw,noauto,user=me,x-systemd.requires=net.target,$ours,_netdev,nofail,noexec"
equal "the helper succeeds" "$command_status" 0
check "and the mount is right" mounted_right
check "options for the kernel reach it" grep -q \
	" $MNT fuse.reshardfs ro,nosuid,nodev,noexec" /proc/self/mounts
fusermount3 -u "$MNT"
check "its daemon ends well" ends_well

run_daemon "$helper" "$SRC" "$MNT" -o "$ours"
check "once more it succeeds" "$helper" "$SRC" "$MNT" -v -o "rw,$ours"
equal "and mounts nothing" "$(grep -c " $MNT " /proc/self/mounts)" 1
fusermount3 -u "$MNT"
check "the first one ends well" ends_well

run_daemon "$helper" "$SRC" "$MNT" -o "$ours" -o prefix=p_ -o defaults
equal "several -o" "$(ls "$MNT/rank_0")" p_0.ckpt
fusermount3 -u "$MNT"
check "end well" ends_well

check "-f mounts nothing" "$helper" "$SRC" "$MNT" -f -o "$ours"
check "really" not_mounted
refute "an unknown option is refused" "$helper" "$SRC" "$MNT" -o "$ours,nonsense"
refute "no mount point" "$helper" "$SRC"
refute "an unknown letter" "$helper" "$SRC" "$MNT" -Q

# Called as mount(8) does, which itself would not look into our PATH.
if [ "$(id -u)" = 0 ] && [ -x /sbin/mount.fuse3 ]; then
	plain="src_strategy=$T/source.ckpt,dst_strategy=$T/wanted.ckpt"
	run_daemon /sbin/mount.fuse3 "$SRC" "$MNT" -o "ro,$plain" \
		-t fuse.reshardfs
	check "-t fuse.reshardfs: the mount is right" mounted_right
	check "-t fuse.reshardfs: umount" umount "$MNT"
	check "-t fuse.reshardfs: its daemon ends well" ends_well
else
	skip "-t fuse.reshardfs" "needs root and mount.fuse3"
fi
finish
