#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the Debian packages and the wheel, and tries them.
#
#   tests/package.sh [--keep DIRECTORY]
#
# Runs on Debian 12; as root it installs what the build needs, and only root can
# try the packages.  They are built from the archive of `make dist`, in a
# temporary directory, with dpkg-buildpackage; lintian must find no error.  pip
# makes the wheel of the same archive.  Then there is a fresh Debian (debootstrap,
# some 300 MB, from RSH_DEBIAN_MIRROR): the wheel must work where nothing but Python
# is.  The packages are installed where nothing else is than they depend on; the
# program, the library and the module must answer, and after the removal no file of
# theirs is left.  --keep copies packages and wheel to DIRECTORY.
set -eu

top=$(cd "$(dirname "$0")/.." && pwd)
. "$top/tests/lib/setup.sh"
unset MAKEFLAGS MAKELEVEL

MIRROR=${RSH_DEBIAN_MIRROR:-http://deb.debian.org/debian}
PACKAGING_PACKAGES="build-essential debhelper dh-python dpkg-dev fakeroot lintian python3 python3-venv"
INSTALLED="reshardfs libreshard0 libreshard-dev python3-reshardfs"

keep=
case ${1:-} in
'') ;;
--keep) keep=${2:?--keep needs a directory} ;;
*) sed -n '3,/^set /s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
# The packages are built elsewhere.
[ -z "$keep" ] || keep=$(mkdir -p "$keep" && cd "$keep" && pwd)

work=$(mktemp -d "${TMPDIR:-/tmp}/reshardfs-package-XXXXXX")
root=$work/root
clean_up()
{
	umount "$root/proc" 2>/dev/null || :
	# Nothing is removed through a mount that is still there.
	grep -q " $root" /proc/self/mounts || rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 1' HUP INT TERM

# shellcheck disable=SC2086 # a list of names
need_packages $BUILD_PACKAGES $PACKAGING_PACKAGES

# logged NAME COMMAND...: its output goes to a file, which is shown if it fails.
logged()
{
	log=$work/$1.log
	shift
	"$@" >"$log" 2>&1 </dev/null || {
		tail -n 40 "$log" >&2
		die "failed: $*"
	}
}

# ---- building ----

version=$(dpkg-parsechangelog -l "$top/debian/changelog" -S Version)
upstream=${version%-*}

say "building reshardfs $version"
logged autoreconf prepare_source
mkdir "$work/dist"
(cd "$work/dist" && logged configure "$top/configure" --quiet --disable-tests &&
	logged dist make dist)
[ -f "$work/dist/reshardfs-$upstream.tar.xz" ] ||
	die "make dist is not of version $upstream, which debian/changelog names"
cp "$work/dist/reshardfs-$upstream.tar.xz" \
	"$work/reshardfs_$upstream.orig.tar.xz"
tar -C "$work" -xf "$work/reshardfs_$upstream.orig.tar.xz"
cp -r "$top/debian" "$work/reshardfs-$upstream/"
cd "$work/reshardfs-$upstream"
logged buildpackage dpkg-buildpackage -us -uc -j"${JOBS:-$(nproc)}"
cd "$work"
ls ./*.deb

say "lintian"
# Symbols since the last release are of a version that is none yet.
lintian --fail-on error --suppress-tags \
	symbols-file-contains-current-version-with-debian-revision \
	./*.changes || die "lintian finds errors"
python3 -m venv "$work/venv"
logged wheel venv/bin/pip wheel --no-deps "dist/reshardfs-$upstream.tar.xz"
ls ./*.whl
if [ -n "$keep" ]; then
	cp ./*.whl ./*.deb ./*.dsc ./*.changes ./*.buildinfo ./*.tar.xz "$keep/"
fi

# ---- trying ----

if [ "$(id -u)" -ne 0 ]; then
	say "not root: the packages are built, and not tried"
	exit 0
fi
need_packages debootstrap

in_root()
{
	chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin \
		HOME=/tmp LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"
}

# Without what changes by itself.
files_in_root()
{
	(cd "$root" && find . -xdev \( -path ./proc -o -path ./tmp -o \
		-path ./var/cache -o -path ./var/lib/apt -o -path ./var/log -o \
		-path ./var/lib/dpkg -o -name __pycache__ \) -prune -o -print |
		sort)
}

# read_demo [NAME=VALUE]: the demo's checkpoint is read by the module, without a
# mount: a chroot has no /dev/fuse.
read_demo()
{
	in_root "$@" sh -c 'cd /tmp/demo && python3 -c "
import hashlib, reshardfs
options = dict(src_strategy=\"strategy_8_cards.ckpt\",
               dst_strategy=\"strategy_4_cards.ckpt\")
with reshardfs.Source(\"checkpoint\", **options) as s:
    for f in s.files():
        print(hashlib.sha256(s.read(f.rank)).hexdigest() + \"  \" + f.name)
"' | sort >"$work/read"
	sort "$top/tests/data/demo/SHA256SUMS" | cmp - "$work/read" ||
		die "the module reads other bytes than the converter wrote"
	say "the module reads $(wc -l <"$work/read") files as the converter wrote them"
}

say "a fresh Debian from $MIRROR"
logged debootstrap debootstrap --variant=minbase bookworm "$root" "$MIRROR"
mount -t proc proc "$root/proc"
cp -r "$top/tests/data/demo" "$root/tmp/demo"
logged python in_root apt-get -qq install -y --no-install-recommends python3
say "the wheel, where nothing but Python is"
logged target venv/bin/pip install --no-deps --target "$root/tmp/site" ./*.whl
read_demo PYTHONPATH=/tmp/site
# What the packages stand on stays: it is not theirs.
logged depends in_root apt-get -qq install -y --no-install-recommends fuse3 \
	libjansson4 liblz4-1 libprotobuf-c1 libseccomp2 libxxhash0 python3 zlib1g \
	libcurl4 libexpat1 libmemcached11
files_in_root >"$work/before"

mkdir "$root/tmp/packages"
cp ./*.deb "$root/tmp/packages/"
rm -f "$root"/tmp/packages/*-dbgsym_*
# From these files alone: a missing dependency is an error.
logged install in_root sh -c 'dpkg -i /tmp/packages/*.deb'

say "\$ reshardfs --version"
in_root reshardfs --version
[ "$(in_root reshardfs --version | head -n 1)" = "reshardfs $upstream" ] ||
	die "this is another version"
in_root test -x /sbin/mount.reshardfs || die "mount(8) finds no helper"
for file in bash-completion/completions/reshardfs \
	zsh/vendor-completions/_reshardfs; do
	in_root test -s "/usr/share/$file" || die "there is no $file"
done
in_root test -s /lib/systemd/system/reshardfs@.service ||
	die "systemd finds no unit"
for page in "$top"/man/*.[1-8]; do
	page=man${page##*.}/$(basename "$page").gz
	[ -s "$root/usr/share/man/$page" ] || [ -s "$root/usr/share/doc/$page" ] ||
		grep -q 'path-exclude.*/man/' "$root/etc/dpkg/dpkg.cfg.d/"* 2>/dev/null ||
		die "there is no $page"
done

read_demo

# What is loaded only when it is asked for is found among what they recommend.
in_root AWS_ACCESS_KEY_ID=x AWS_SECRET_ACCESS_KEY=x AWS_REGION=x \
	AWS_ENDPOINT_URL=http://127.0.0.1:9 reshardfs ls s3://bucket/x 2>&1 |
	grep "connect to server" || die "object storage is not asked"
logged servers in_root sh -c 'cd /tmp/demo && reshardfs export \
	--cache-servers 127.0.0.1:9 --src-strategy strategy_8_cards.ckpt \
	--dst-strategy strategy_4_cards.ckpt checkpoint /tmp/exported'

# shellcheck disable=SC2086 # a list of names
logged remove in_root dpkg --purge $INSTALLED
files_in_root >"$work/after"
diff "$work/before" "$work/after" || die "that is left, or lost"
say "installed, tried and removed without a trace"
