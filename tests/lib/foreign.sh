# SPDX-License-Identifier: Apache-2.0
# Debian with its kernel, for any processor: for tests/guests.sh and tests/wheels.sh.  It
# is unpacked and not configured: nothing of it runs to make it.
#
# Expects lib/setup.sh and lib/fresh.sh.
# shellcheck shell=sh disable=SC2034,SC2154

FOREIGN_PACKAGES=python3,fuse3,attr,busybox-static,curl,libexpat1
foreign_kept=$fresh_caches/foreign

# foreign_unpack ROOT: the packages that debootstrap has downloaded.
foreign_unpack()
{
	for package in "$1"/var/cache/apt/archives/*.deb; do
		dpkg-deb --fsys-tarfile "$package" |
			tar -C "$1" --keep-directory-symlink -xpf - || return
	done
	rm -rf "$1"/var/cache/apt/archives/* "$1"/debootstrap
	# debootstrap makes a link of it to itself.
	[ ! -L "$1/proc" ] || { rm "$1/proc" && mkdir "$1/proc"; }
	cp "$1/usr/share/base-passwd/passwd.master" "$1/etc/passwd"
	cp "$1/usr/share/base-passwd/group.master" "$1/etc/group"
	[ -e "$1/usr/bin/awk" ] || ln -s mawk "$1/usr/bin/awk"
	busybox depmod -b "$1" "$(cd "$1/lib/modules" && echo *)"
}

# foreign_root SUITE ARCH [KERNEL]: Debian's names of the processor and, if it is another
# one, of the kernel.  Sets $root; kept for 30 days.
foreign_root()
{
	root=$foreign_kept/$1-${3:-$2}
	[ -z "$(find "$root.complete" -mtime "-$FRESH_DAYS" 2>/dev/null)" ] || return 0
	say "Debian's $1 for $2"
	rm -rf "$root" "$root.complete"
	mkdir -p "$foreign_kept"
	debootstrap --variant=minbase --arch="$2" --foreign \
		--include="$FOREIGN_PACKAGES,linux-image-${3:-$2}" "$1" "$root" "$(fresh_mirror)" \
		>"$root.log" 2>&1 && foreign_unpack "$root" >>"$root.log" 2>&1 || {
		tail -n 5 "$root.log" >&2
		die "there is no Debian $1 for $2, see $root.log"
	}
	touch "$root.complete"
}
