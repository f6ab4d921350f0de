#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# mount(8) itself, with an fstab of its own, in a private mount namespace: the
# helper is put where mount(8) looks, for this test alone.
. "${srcdir:-.}/lib/mount.sh"

helper=$(dirname "$RESHARDFS")/../mount-helpers/mount.reshardfs
if [ -z "${IN_NAMESPACE:-}" ]; then
	[ -x "$helper" ] || skip_all "the helper is not built"
	[ "$(id -u)" = 0 ] || skip_all "mount(8) needs root"
	unshare -m true 2>/dev/null || skip_all "no mount namespace"
	[ -d /sbin ] || skip_all "there is no /sbin"
	rm -rf "$T"
	IN_NAMESPACE=yes exec "${srcdir:-.}/lib/own_mounts.sh" "$0"
fi

# /sbin with one more name: what was there shows through links.
sbin=$(readlink -f /sbin)
mkdir "$T/old" "$T/sbin"
mount --bind "$sbin" "$T/old" || skip_all "no bind mounts"
cp -a "$T/old/." "$T/sbin/"
PATH=$(dirname "$RESHARDFS"):$PATH
export PATH
# mount(8) gives its helpers a PATH of its own.
cat >"$T/sbin/mount.reshardfs" <<EOF
#!/bin/sh
PATH=$PATH exec "$(realpath "$helper")" "\$@"
EOF
chmod 755 "$T/sbin/mount.reshardfs"
mount --bind "$T/sbin" "$sbin"

release() {
	umount "$sbin"
	umount "$T/old"
	clean_up
}
trap release EXIT

make_source
ours="src_strategy=$T/source.ckpt,dst_strategy=$T/wanted.ckpt"

mounted_right() {
	cmp "$MNT/rank_3/checkpoint_3.ckpt" \
		"$T/expected/rank_3/checkpoint_3.ckpt"
}

# works NAME MOUNT-ARGUMENT...: the mount is right, and umount(8) takes it down.
works() {
	works_name=$1
	shift
	run_daemon mount "$@"
	equal "$works_name: status" "$command_status" 0
	check "$works_name: the mount is right" mounted_right
	check "$works_name: umount" umount "$MNT"
	check "$works_name: its daemon ends well" ends_well
}

# fstab OPTIONS: a file with one line for $MNT.
fstab() {
	echo "$SRC $MNT reshardfs $1 0 0" >"$T/fstab"
}

works "-t reshardfs" -t reshardfs "$SRC" "$MNT" -o "$ours"
works "-n, -s and -v" -n -s -v -t reshardfs "$SRC" "$MNT" -o "$ours"
works "-r" -r -t reshardfs "$SRC" "$MNT" -o "$ours"
check "-f" mount -f -n -t reshardfs "$SRC" "$MNT" -o "$ours"
check "-f: nothing is mounted" not_mounted

fstab "noauto,user,nofail,_netdev,x-systemd.automount,x-systemd.idle-timeout=1h,x-systemd.requires=a.service,comment=systemd,$ours"
works "a line of fstab" -T "$T/fstab" "$MNT"
works "the same by its source" -T "$T/fstab" "$SRC"
fstab "noauto,$ours"
run_daemon mount -a -T "$T/fstab"
check "noauto: not by -a" not_mounted
fstab "defaults,$ours"
works "-a" -a -T "$T/fstab"

run_daemon mount -a -T "$T/fstab"
for again in "-a" "-a -v" "$MNT" "-v $MNT"; do
	# shellcheck disable=SC2086 # words
	check "again: mount $again" mount -T "$T/fstab" $again
done
equal "again: one mount" "$(grep -c " $MNT " /proc/self/mounts)" 1
umount "$MNT"
check "again: its daemon ends well" ends_well

# As doc/jobs.md has it for an installation in another place.
line=$(sed -n 's/^ln -s .*mount.reshardfs/ln -s/p' "${top_srcdir:-..}/doc/jobs.md")
equal "doc/jobs.md says where mount(8) looks" "$line" "ln -s /sbin/"
mv "$T/sbin/mount.reshardfs" "$T/elsewhere.reshardfs"
mkdir "$T/elsewhere"
mv "$T/elsewhere.reshardfs" "$T/elsewhere/mount.reshardfs"
run_daemon mount -t reshardfs "$SRC" "$MNT" -o "$ours"
refute "installed elsewhere: mount(8) does not find it" test "$command_status" = 0
check "installed elsewhere: what doc/jobs.md says" \
	ln -s "$T/elsewhere/mount.reshardfs" /sbin/
works "installed elsewhere: with the link" -t reshardfs "$SRC" "$MNT" -o "$ours"

run_daemon mount -t reshardfs "$SRC" "$MNT" -o "$ours,nonsense"
refute "an unknown option: it fails" test "$command_status" = 0
check "an unknown option: it is named" grep -q nonsense "$T/said"
run_daemon mount -t reshardfs "$T/nowhere" "$MNT" -o "$ours"
refute "no source: it fails" test "$command_status" = 0
check "no source: it is named" grep -q "$T/nowhere: No such" "$T/said"

# Every long option is a mount option as well.  Those that a mount of this
# source cannot have at once get past the helper to be refused by name.
"$RESHARDFS" mount --help-all |
	sed -n 's/^  \(-., \|    \)--\([a-z-]*\).*/\2/p' | tr - _ >"$T/options"
unknown=
while read -r option; do
	case $option in
	help | help_all | version | debug | foreground) continue ;;
	esac
	"$helper" "$T/nowhere" "$MNT" -o "$option=a" >"$T/said" 2>&1
	with=$?
	"$RESHARDFS" mount -o "$option=a" "$T/nowhere" "$MNT" >"$T/direct" 2>&1
	[ "$with" = $? ] && cmp -s "$T/said" "$T/direct" &&
		! grep -q "unknown" "$T/said" || unknown="$unknown $option"
done <"$T/options"
check "there are options" test "$(wc -l <"$T/options")" -gt 40
equal "options that the helper does not pass on" "$unknown" ""

options=prefix=p_,select=newest,breakpoint=include,check=full,fallbacks=1
options=$options,replicas=auto,allow_missing,unlisted=copy,only=.,drop=@
options=$options,format=ckpt,io_mode=cached,cache=on,cache_size=16MiB
options=$options,keep_free=1MiB,log_level=info
options=$options,log_to=file:$T/log,max_threads=4,max_idle_threads=2
options=$options,fsname=job7,allow_other,nosuid,nodev,noexec,noatime
options=$options,rank_dir=rank_{rank},fault=delay=1us
run_daemon mount -t reshardfs "$SRC" "$MNT" -o "$ours,$options"
equal "many options: status" "$command_status" 0
check "many options: they count" cmp "$MNT/rank_3/p_3.ckpt" \
	"$T/expected/rank_3/checkpoint_3.ckpt"
check "many options: also for the kernel" grep -q \
	"^job7 $MNT fuse.reshardfs ro,nosuid,nodev,noexec,noatime" /proc/mounts
umount "$MNT"
check "many options: its daemon ends well" ends_well
finish
