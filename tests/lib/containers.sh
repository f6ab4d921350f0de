#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The image of packaging/Containerfile, and containers of it: for tests/wheels.sh.
#
#   containers.sh BASE WHEELS DEMO WORK [ARCHIVE]
#
# BASE is an archive of a system with Python, WHEELS has the wheel, DEMO is a copy of
# tests/data/demo, WORK a directory for images and mounts, and ARCHIVE a file to which
# the image is written when it has been tried.  It takes root and
# podman.  A container that may mount shows the demo; another one does without
# privileges, with the descriptor of a third one, as
# mount-helpers/examples/kubernetes-fd.yaml has them; and one that can do neither says
# what it needs.  The bytes must be the converter's.
set -eu

[ $# -eq 4 ] || [ $# -eq 5 ] || { sed -n '3,/^set /s/^# \{0,1\}//p' "$0" >&2; exit 2; }
# What is mounted here ends with this process.
[ -n "${RSH_OWN_MOUNTS:-}" ] ||
	RSH_OWN_MOUNTS=yes exec unshare --mount --propagation private "$0" "$@"
top=$(cd "$(dirname "$0")/../.." && pwd)
. "$top/tests/lib/setup.sh"

base=$1 wheels=$2 demo=$3 work=$4
image=localhost/reshardfs
options="--index-cache off --src-strategy /demo/strategy_8_cards.ckpt"
options="$options --dst-strategy /demo/strategy_4_cards.ckpt"

pod()
{
	podman --root "$work/images" --runroot "$work/run" --storage-driver "$driver" "$@"
}

# run ARGUMENT...: limits are those that any machine allows.
run()
{
	pod run --cgroups=disabled --network none --ulimit nofile=1024:1024 \
		--ulimit nproc=1024:1024 --volume "$demo:/demo:ro" "$@"
}

logged()
{
	"$@" >"$work/log" 2>&1 </dev/null || {
		tail -n 40 "$work/log" >&2
		die "failed: $*"
	}
}

clean_up()
{
	pod stop --all --time 10 >/dev/null 2>&1 || :
	pod rm --all --force >/dev/null 2>&1 || :
	umount -R "$work/shared" 2>/dev/null || :
	umount -R "$work/images" "$work/images/overlay" "$work/images/vfs" 2>/dev/null || :
}

# wait_for_mount CONTAINER...: attributes of a dead mount may still be known, so it is read.
wait_for_mount()
{
	i=0
	until cat "$work/shared/ckpt4/rank_0/checkpoint_0.ckpt" >/dev/null 2>&1; do
		i=$((i + 1))
		[ $i -le 120 ] || {
			for container; do
				pod logs "$container" >&2
			done
			die "no mount of $* is seen within a minute"
		}
		sleep 0.5
	done
}

# In a container that runs all the time.
read_in_train()
{
	logged pod exec train sh -ec \
		"cd /shared/ckpt4 && sha256sum --strict --check /demo/SHA256SUMS"
}

# kill_and_start CONTAINER...: as Kubernetes starts those again that were killed.
kill_and_start()
{
	logged pod kill --signal KILL "$@"
	i=0
	while pod exec train cat /shared/ckpt4/rank_0/checkpoint_0.ckpt >/dev/null 2>"$work/log"
	do
		i=$((i + 1))
		[ $i -le 120 ] || die "it is read after its daemon was killed"
		sleep 0.5
	done
	grep -q "not connected\|No such file" "$work/log" ||
		die "after a kill: $(cat "$work/log")"
	logged pod start "$@"
	wait_for_mount "$@"
	read_in_train
}

# crun refuses a machine with both kinds of control groups.
if [ -d /sys/fs/cgroup/unified ]; then
	umount -R /sys/fs/cgroup
	mount -t cgroup2 cgroup2 /sys/fs/cgroup
fi
driver=vfs
! grep -qw overlay /proc/filesystems || driver=overlay
mkdir -p "$work"
trap clean_up EXIT
trap 'exit 1' HUP INT TERM

logged pod import "$base" localhost/base
logged pod build --isolation chroot --network host --build-arg BASE=localhost/base \
	--tag $image -f "$top/packaging/Containerfile" "$wheels"
say "container: the image is built"
run --rm $image true 2>"$work/log" || {
	say "container: skipped: podman cannot run it: $(tail -n 1 "$work/log")"
	exit 0
}

# shellcheck disable=SC2086 # a command with options, here and below
logged run --rm --device /dev/fuse --cap-add SYS_ADMIN $image sh -ec "
	reshardfs mount $options /demo/checkpoint /mnt
	cd /mnt && sha256sum --strict --check /demo/SHA256SUMS
	cd / && reshardfs umount /mnt"
say "container, mount: the bytes are the converter's"

# shellcheck disable=SC2086
! run --rm $image reshardfs mount $options /demo/checkpoint /mnt >"$work/log" 2>&1 ||
	die "it mounts in a container without /dev/fuse"
grep -- "--cap-add SYS_ADMIN" "$work/log" ||
	die "a container that cannot mount does not say what it needs: $(cat "$work/log")"
# shellcheck disable=SC2086
logged run --rm $image sh -ec "
	reshardfs export $options /demo/checkpoint /tmp/exported
	cd /tmp/exported && sha256sum --strict --check /demo/SHA256SUMS"
say "container without /dev/fuse, export: the bytes are the converter's"

mkdir -p "$work/shared" "$work/handed"
chmod 1777 "$work/handed"
mount --bind "$work/shared" "$work/shared"
mount --make-shared "$work/shared"
logged run --detach --name opener --device /dev/fuse --cap-add SYS_ADMIN \
	--volume "$work/shared:/shared:rshared" --volume "$work/handed:/handed" \
	$image fuse_fd.py open /shared/ckpt4 /handed/socket
# shellcheck disable=SC2086
logged run --detach --name sidecar --user 65534:65534 --cap-drop ALL \
	--security-opt no-new-privileges --read-only \
	--volume "$work/handed:/handed" \
	$image fuse_fd.py take /handed/socket reshardfs mount $options --foreground /demo/checkpoint
wait_for_mount sidecar opener
logged run --detach --name train --user 65534:65534 \
	--volume "$work/shared:/shared:ro,rslave" $image sleep 3600
read_in_train
say "container without privileges, /dev/fd/N: the bytes are the converter's"
for killed in sidecar "sidecar opener"; do
	kill_and_start $killed
done
say "container without privileges: a mount that was killed comes again where it is read"
logged pod stop --time 60 sidecar opener
! mountpoint -q "$work/shared/ckpt4" || die "the mount is left when its containers end"

# As mount-helpers/examples/kubernetes.yaml has it.
logged run --detach --name mounter --device /dev/fuse --cap-add SYS_ADMIN \
	--volume "$work/shared:/shared:rshared" $image sh -c "
	reshardfs umount --force /shared/ckpt4 2>/dev/null
	mkdir -p /shared/ckpt4 &&
	exec reshardfs mount --foreground -o allow_other $options /demo/checkpoint /shared/ckpt4"
wait_for_mount mounter
read_in_train
kill_and_start mounter
say "container that mounts: a mount that was killed comes again where it is read"
logged pod stop --time 60 mounter train
! mountpoint -q "$work/shared/ckpt4" || die "the mount is left when its container ends"

# Under the name that examples have, without the host's.
if [ -n "${5:-}" ]; then
	version=$(sed -n 's/^AC_INIT(\[reshardfs\], \[\([^]]*\).*/\1/p' "$top/configure.ac")
	logged pod tag $image "reshardfs:$version"
	logged pod save --format oci-archive --output "$5" "reshardfs:$version"
	say "container: the image is in $(basename "$5")"
fi
