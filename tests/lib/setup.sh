# SPDX-License-Identifier: Apache-2.0
# Setting up a build from a fresh clone: for tests/demo.sh and tests/run.sh.
#
# Expects $top, the source directory.
# shellcheck shell=sh disable=SC2034,SC2154

BUILD_PACKAGES="autoconf automake libtool pkg-config gcc libc6-dev make
	libfuse3-dev fuse3 libprotobuf-c-dev protobuf-c-compiler
	libxxhash-dev liblz4-dev libcmocka-dev libjansson-dev
	zlib1g-dev libseccomp-dev libcurl4-openssl-dev libexpat1-dev
	libsasl2-dev"
# 50 MB to download, where there is no clang.
FUZZ_PACKAGES="clang libclang-rt-dev"
# What single tests look with; those say so where it is missing.
TEST_PACKAGES="python3 python3-venv mypy attr xxhash rsync zsh shellcheck systemd
	xz-utils memcached sasl2-bin libsasl2-modules nginx debootstrap"
# Of mount/distributed.py and those that read from a store: some 150 MB.
ENGINE_PACKAGES="glusterfs-server glusterfs-client rclone s3fs bindfs
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

missing_packages()
{
	for package; do
		# Architecture names and versions aside; an unpacked package
		# that is not configured counts as missing.
		status=$(dpkg-query -W -f '${db:Status-Status} ' "$package" 2>/dev/null) || status=
		case " $status" in
		*" installed "*) ;;
		*) printf '%s ' "$package" ;;
		esac
	done
}

# need_packages PACKAGE...: installs what is missing, which takes root.
need_packages()
{
	command -v dpkg-query >/dev/null ||
		die "this is not Debian; what it needs is called there: $*"
	missing=$(missing_packages "$@")
	[ -n "$missing" ] || return 0
	[ "$(id -u)" -eq 0 ] ||
		die "run as root, or have root install these first: $missing"
	say "installing $missing"
	export DEBIAN_FRONTEND=noninteractive
	# shellcheck disable=SC2086 # a list of names
	{ apt-get -qq update && apt-get -qq install -y --no-install-recommends \
		$missing; } </dev/null >/dev/null ||
		die "apt-get could not install $missing"
}

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

# configure_in DIRECTORY [CONFIGURE-ARGUMENT...]
configure_in()
{
	directory=$1
	shift
	mkdir -p "$directory"
	# Chained: `set -e` does not reach into a function whose status is tested.
	(
		cd "$directory" &&
			{ [ -f config.status ] || "$top/configure" --quiet "$@"; }
	)
}

# build_in DIRECTORY [CONFIGURE-ARGUMENT...]
build_in()
{
	configure_in "$@" && make -C "$1" -j"${JOBS:-$(nproc)}"
}
