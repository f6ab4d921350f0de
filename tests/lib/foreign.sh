# SPDX-License-Identifier: Apache-2.0
# Debian with its kernel, for any processor, and Ubuntu 20.04 with Linux 4.18: for
# tests/guests.sh and tests/wheels.sh.  It is unpacked and not configured: nothing of it
# runs to make it.
#
# Expects lib/setup.sh and lib/fresh.sh.
# shellcheck shell=sh disable=SC2034,SC2154

FOREIGN_PACKAGES=python3,fuse3,attr,busybox-static,curl,libexpat1
foreign_kept=$fresh_caches/foreign
# The oldest kernel that we promise, which Ubuntu 18.04 had for a time.
OLD_KERNEL=pool/main/l/linux-hwe/linux-%s-4.18.0-25-generic_4.18.0-25.26~18.04.1_amd64.deb
OLD_KERNEL_SHA256="48255bba33b59127b69a9b8fdca27a25187bffd151ed0762bf7205b23474a08a image-unsigned
	d21662c73ba590cce15b4360a282120d7f12b0c2febb72dd655ffe2ee92d7eee modules"

# foreign_old_kernel DIRECTORY: its packages.
foreign_old_kernel()
{
	echo "$OLD_KERNEL_SHA256" | while read -r hash name; do
		# shellcheck disable=SC2059 # of OLD_KERNEL
		fresh_get "$(printf "$OLD_KERNEL" "$name")" "$1/$name.deb" &&
			echo "$hash  $1/$name.deb" | sha256sum --quiet --check || return
	done
}

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
	chmod u+s "$1/bin/fusermount3"
	ln -sf ../proc/self/mounts "$1/etc/mtab"
	busybox depmod -b "$1" "$(cd "$1/lib/modules" && echo *)"
}

# foreign_make ARCH KERNEL: of what is chosen, in $root.
foreign_make()
{
	packages=$FOREIGN_PACKAGES
	[ "$fresh_system" = Ubuntu ] || packages=$packages,linux-image-$2
	fresh_debootstrap "$root" --arch="$1" --foreign --include="$packages" &&
		{ [ "$fresh_system" = Debian ] ||
			foreign_old_kernel "$root/var/cache/apt/archives"; } &&
		foreign_unpack "$root"
}

# foreign_root SUITE ARCH [KERNEL]: Debian's names of the processor and, if it is another
# one, of the kernel.  Sets $root; kept for 30 days.
foreign_root()
{
	fresh_choose "$1"
	root=$foreign_kept/$1-${3:-$2}
	[ -z "$(find "$root.complete" -mtime "-$FRESH_DAYS" 2>/dev/null)" ] || return 0
	say "$fresh_system's $1 for $2"
	rm -rf "$root" "$root.complete"
	mkdir -p "$foreign_kept" "$fresh_kept"
	foreign_make "$2" "${3:-$2}" >"$root.log" 2>&1 || {
		tail -n 5 "$root.log" >&2
		die "there is no $fresh_system $1 for $2, see $root.log"
	}
	touch "$root.complete"
}
