# SPDX-License-Identifier: Apache-2.0
# Setting up a build from a fresh clone: for tests/demo.sh and tests/run.sh.
#
# Expects $top, the source directory.
# shellcheck shell=sh disable=SC2034,SC2154

BUILD_PACKAGES="autoconf automake libtool pkg-config gcc libc6-dev make
	libfuse3-dev fuse3 libprotobuf-c-dev protobuf-c-compiler
	libxxhash-dev liblz4-dev libzstd-dev libcmocka-dev libjansson-dev
	zlib1g-dev libseccomp-dev libcurl4-openssl-dev libexpat1-dev"
# 50 MB to download, where there is no clang.
FUZZ_PACKAGES="clang libclang-rt-dev"
# What single tests look with; those say so where it is missing.
TEST_PACKAGES="python3 python3-venv python3-yaml mypy attr strace xxhash rsync jq zsh fish
	shellcheck systemd xz-utils memcached nginx"
# Of LARGE in tests/Makefile.am: file systems, and engines of some 150 MB.
LARGE_PACKAGES="squashfs-tools erofs-utils xfsprogs btrfs-progs squashfuse fuse-overlayfs
	sshfs openssh-sftp-server debootstrap
	glusterfs-server glusterfs-client rclone s3fs bindfs
	ceph-mon ceph-osd ceph-common radosgw"

say()
{
	printf '%s\n' "$*"
}

die()
{
	printf '%s: %s\n' "${0##*/}" "$*" >&2
	exit 1
}

# What dnf calls packages (openEuler, Fedora, CentOS): what they provide has one name
# on all of these.  What is not listed has Debian's name; `-` is not needed there, or
# cannot be had.
DNF_NAMES="pkg-config /usr/bin/pkg-config
	libc6-dev glibc-devel
	libfuse3-dev pkgconfig(fuse3)
	fuse3 /usr/bin/fusermount3
	libprotobuf-c-dev pkgconfig(libprotobuf-c)
	protobuf-c-compiler /usr/bin/protoc-c
	libxxhash-dev pkgconfig(libxxhash)
	liblz4-dev pkgconfig(liblz4)
	libzstd-dev pkgconfig(libzstd)
	libcmocka-dev pkgconfig(cmocka)
	libjansson-dev pkgconfig(jansson)
	zlib1g-dev pkgconfig(zlib)
	libseccomp-dev pkgconfig(libseccomp)
	libcurl4-openssl-dev pkgconfig(libcurl)
	libexpat1-dev pkgconfig(expat)
	libclang-rt-dev compiler-rt
	python3-venv -
	python3-yaml python3-pyyaml
	mypy -
	attr /usr/bin/getfattr
	xxhash /usr/bin/xxhsum
	shellcheck -
	xz-utils /usr/bin/xz
	squashfuse -
	sshfs -
	openssh-sftp-server openssh-server
	glusterfs-client glusterfs-fuse
	ceph-common -
	ceph-mon -
	ceph-osd -
	radosgw -"

# package_names PACKAGE...: what this machine's distribution calls them.
package_names()
{
	if command -v dpkg-query >/dev/null; then
		printf '%s\n' "$@"
		return
	fi
	for package; do
		echo "$DNF_NAMES" | awk -v name="$package" '
			$1 == name { found = 1; if ($2 != "-") print $2 }
			END { if (!found) print name }'
	done
}

# is_installed NAME, of package_names.  Architecture and version aside; an unpacked
# package that is not configured counts as missing.
is_installed()
{
	if command -v dpkg-query >/dev/null; then
		case " $(dpkg-query -W -f '${db:Status-Status} ' "$1" 2>/dev/null)" in
		*" installed "*) ;;
		*) return 1 ;;
		esac
	else
		rpm -q --whatprovides "$1" >/dev/null 2>&1
	fi
}

missing_packages()
{
	package_names "$@" | while read -r package; do
		is_installed "$package" || printf '%s ' "$package"
	done
}

# The services that packages above bring.
SERVICES="nginx memcached glusterd ceph.target"

# Those of them that the machine would start when it boots.
services_enabled()
{
	for service in $SERVICES; do
		! systemctl --quiet is-enabled "$service" >/dev/null 2>&1 || printf '%s ' "$service"
	done
}

# No service of a package is started, now or at the next boot: tests start what they need.
install_packages()
{
	if command -v dpkg-query >/dev/null; then
		export DEBIAN_FRONTEND=noninteractive
		before=$(services_enabled)
		policy=/usr/sbin/policy-rc.d
		if [ -e "$policy" ] || ! [ -w "${policy%/*}" ]; then
			policy=
		else
			printf '#!/bin/sh\nexit 101\n' >"$policy"
			chmod +x "$policy"
		fi
		rc=0
		# A new machine's own upgrades hold the lock for a while.
		apt-get -qq update &&
			apt-get -qq -o DPkg::Lock::Timeout=300 install -y \
				--no-install-recommends "$@" || rc=$?
		[ -z "$policy" ] || rm -f "$policy"
		for service in $(services_enabled); do
			case " $before " in
			*" $service "*) ;;
			*) systemctl --quiet disable "$service" >/dev/null 2>&1 || : ;;
			esac
		done
		return $rc
	else
		dnf -q -y --setopt=install_weak_deps=False install "$@"
	fi
}

# need_packages PACKAGE...: Debian's names; installs what is missing, which takes root.
need_packages()
{
	command -v dpkg-query >/dev/null || command -v dnf >/dev/null ||
		die "there is neither apt nor dnf; Debian calls what is needed: $*"
	missing=$(missing_packages "$@")
	[ -n "$missing" ] || return 0
	[ "$(id -u)" -eq 0 ] ||
		die "run as root, or have root install these first: $missing"
	say "installing $missing"
	# shellcheck disable=SC2086 # a list of names
	install_packages $missing </dev/null >/dev/null ||
		die "could not install $missing"
}

# Where the distribution's xxhash is older than 0.8 (Ubuntu 20.04), whose hashes are
# others, this installs what a later release is made from, in /usr/local.
XXHASH=pool/main/x/xxhash/xxhash_0.8.1.orig.tar.gz
XXHASH_SHA256=3bb6b7d6f30c591dd65aaaff1c8b7a5b94d81687998ca9400082c739a690436c
need_xxhash()
{
	pkg-config --exists 'libxxhash < 0.8' || return 0
	say "installing xxhash 0.8.1 in /usr/local"
	install_xxhash >/dev/null || die "could not install xxhash 0.8.1; run as root"
}

install_xxhash()
(
	sources=$(mktemp -d) || exit
	trap 'rm -rf "$sources"' EXIT
	cd "$sources" || exit
	# shellcheck disable=SC2016 # apt expands it
	mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' |
		head -n 1)
	/usr/lib/apt/apt-helper download-file "${mirror%/}/$XXHASH" xxhash.tar.gz \
		"SHA256:$XXHASH_SHA256" &&
		tar -xzf xxhash.tar.gz --strip-components 1 && make install && ldconfig
)

need_fuse()
{
	[ -c /dev/fuse ] ||
		die "there is no /dev/fuse: load the fuse module, or give the container the device"
}

# Writes configure where it is missing or older than what it is made of.
prepare_source()
{
	if [ -x "$top/configure" ] &&
	   [ -z "$(find "$top" -path "$top/build" -prune -o \
		\( -name '*.ac' -o -name '*.am' -o -name '*.m4' -o -name '*.mk' \) \
		! -name aclocal.m4 -newer "$top/configure" -print)" ]; then
		return 0
	fi
	(cd "$top" && autoreconf -fi)
}

# configure_in DIRECTORY [CONFIGURE-ARGUMENT...]: by /bin/sh, which takes two thirds of the
# time that bash takes.
configure_in()
{
	directory=$1
	shift
	mkdir -p "$directory"
	# Chained: `set -e` does not reach into a function whose status is tested.
	(
		cd "$directory" &&
			{ [ -f config.status ] ||
				CONFIG_SHELL=/bin/sh /bin/sh "$top/configure" --quiet "$@"; }
	)
}

# build_in DIRECTORY [CONFIGURE-ARGUMENT...]
build_in()
{
	configure_in "$@" && make -C "$1" -j"${JOBS:-$(nproc)}"
}
