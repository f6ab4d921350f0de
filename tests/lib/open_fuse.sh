# SPDX-License-Identifier: Apache-2.0
# tests/lib/open_fuse.sh - a /dev/fuse that everybody may open, as distributions
# have it, for this program alone.
#
#	. "${srcdir:-.}/lib/open_fuse.sh"	before anything else
#
# Where only root may open it, root runs the program once more in a mount
# namespace of its own, with a device node over it that others may open as well.
# Where that cannot be had the program goes on as it is.
# shellcheck shell=sh

NOBODY=65534

as_nobody() {
	setpriv --reuid=$NOBODY --regid=$NOBODY --clear-groups "$@"
}

fuse_is_open() {
	as_nobody test -w /dev/fuse 2>/dev/null
}

# On a tmpfs, for /tmp may be one that knows no devices.
open_fuse() {
	open_fuse_dir=$(mktemp -d) &&
		mount -t tmpfs none "$open_fuse_dir" &&
		mknod -m 666 "$open_fuse_dir/fuse" c \
			"0x$(stat -c %t /dev/fuse)" "0x$(stat -c %T /dev/fuse)" &&
		mount --bind "$open_fuse_dir/fuse" /dev/fuse
	umount -l "$open_fuse_dir"
	rmdir "$open_fuse_dir"
}

case ${RSH_OPEN_FUSE:-} in
namespace)
	open_fuse
	unset RSH_OPEN_FUSE
	;;
*)
	if [ "$(id -u)" = 0 ] && ! fuse_is_open && unshare -m true 2>/dev/null; then
		RSH_OPEN_FUSE=namespace exec \
			"${srcdir:-.}/lib/own_mounts.sh" sh "$0" "$@"
	fi
	;;
esac
