#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs a command in a mount namespace of its own.
#
#	own_mounts.sh COMMAND [ARGUMENT...]
#
# Whoever makes one gets a copy of every mount there is, and a daemon lives as
# long as any copy of its mount: copies of what tests that run at the same time
# have mounted, of whatever type, are given up at once.
# shellcheck disable=SC2016 # that shell expands them
exec unshare --mount --propagation private sh -c '
	mounted=$(awk "\$3 ~ /^fuse(\\.|\$)/ && \$2 ~ /\/reshardfs-/ { print \$2 }" \
		/proc/self/mounts)
	printf "%s\n" "$mounted" | while read -r where; do
		[ -z "$where" ] || umount -l "$(printf "%b" "$where")" 2>/dev/null
	done
	exec "$@"' sh "$@"
