#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the Debian packages, the RPMs and the wheel, and tries them.
#
#   tests/package.sh [--keep DIRECTORY]
#
# Runs on Debian 12 as root, and builds in a fresh Debian (debootstrap, see
# tests/lib/fresh.sh) that has what debian/control names as Build-Depends and nothing
# else: there dpkg-buildpackage makes the packages of the archive of `make dist`, and
# lintian must find no error; pip makes the wheel of the same archive.  Then there is
# another one: the wheel must work where nothing but Python is.  The packages are
# installed where nothing else is than they depend on; the program, the library and
# the module must answer, and after the removal no file of theirs is left.  --keep
# copies packages, archive and wheel to DIRECTORY.  DEB_BUILD_OPTIONS is Debian's.
set -eu

top=$(cd "$(dirname "$0")/.." && pwd)
. "$top/tests/lib/setup.sh"
. "$top/tests/lib/fresh.sh"
unset MAKEFLAGS MAKELEVEL

INSTALLED="reshardfs libreshard0 libreshard-dev python3-reshardfs"

keep=
case ${1:-} in
'') ;;
--keep) keep=${2:?--keep needs a directory} ;;
*) sed -n '3,/^set /s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
# The packages are built elsewhere.
[ -z "$keep" ] || keep=$(mkdir -p "$keep" && cd "$keep" && pwd)

need_packages debootstrap
lacks=$(fresh_lacks)
[ -z "$lacks" ] || die "there can be no fresh Debian: $lacks"

work=$(mktemp -d "${TMPDIR:-/tmp}/reshardfs-package-XXXXXX")
clean_up()
{
	fresh_end
	rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 1' HUP INT TERM

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

version=$(sed -n '1s/.*(\(.*\)).*/\1/p' "$top/debian/changelog")
upstream=${version%-*}

say "a fresh Debian from $(fresh_mirror), with what debian/control names"
fresh_with package debian/control
logged fresh fresh_begin
logged clone fresh_clone
logged build-dep in_fresh apt-get -qq build-dep ./reshardfs
logged keep fresh_keep
fresh_ready=
say "building reshardfs $version"
case " ${DEB_BUILD_OPTIONS:-} " in *" noopt "*) xz=-0 level=0 ;; *) xz=-e level=6 ;; esac
logged dist in_fresh env XZ_OPT="$xz" sh -ec 'cd reshardfs && autoreconf -fi &&
	mkdir -p build/dist && cd build/dist &&
	../../configure --quiet --disable-tests && make dist && mv ./*.tar.xz /root'
[ -f "$fresh_root/root/reshardfs-$upstream.tar.xz" ] ||
	die "make dist is not of version $upstream, which debian/changelog names"
# shellcheck disable=SC2016 # expanded there
logged buildpackage in_fresh env DPKG_DEB_COMPRESSOR_LEVEL="$level" sh -ec '
	ln reshardfs-"$1".tar.xz reshardfs_"$1".orig.tar.xz
	tar -xf reshardfs-"$1".tar.xz
	cp -r reshardfs/debian reshardfs-"$1"/
	cd reshardfs-"$1"
	dpkg-buildpackage -us -uc -j"${JOBS:-$(nproc)}"' sh "$upstream"
(cd "$fresh_root/root" && ls ./*.deb)

say "the RPMs"
logged install-rpm in_fresh apt-get -qq install rpm
# The names of packages in BuildRequires are those of openEuler, which Debian lacks.
# shellcheck disable=SC2016
logged rpmbuild in_fresh sh -ec '
	rpmbuild --nodeps -bb --define "_topdir /root/rpm" --define "_sourcedir /root" \
		--define "debug_package %{nil}" --define "optflags -O0" \
		--define "_binary_payload w0.gzdio" \
		--define "_smp_mflags -j${JOBS:-$(nproc)}" \
		--define "python3_sitelib /usr/lib/python3/dist-packages" \
		reshardfs-"$1"/packaging/reshardfs.spec
	for package in rpm/RPMS/*/*.rpm; do
		rpm -qp --qf "[%{=NAME} %{FILENAMES}\n]" "$package"
	done >rpm/files' sh "$upstream"
for file in "reshardfs /usr/bin/reshardfs" "reshardfs /usr/sbin/mount.reshardfs" \
	"reshardfs /usr/share/reshardfs/tables/qwen3.rules" \
	"reshardfs /usr/lib/systemd/system/reshardfs@.service" \
	"reshardfs-devel /usr/include/reshard.h" \
	"python3-reshardfs /usr/lib/python3/dist-packages/reshardfs/__init__.py"; do
	grep -Fqx "$file" "$fresh_root/root/rpm/files" || die "no RPM has $file"
done
grep -q "^reshardfs-libs .*/libreshard\.so\.0$" "$fresh_root/root/rpm/files" ||
	die "no RPM has the library"

say "lintian"
logged install-lintian in_fresh apt-get -qq install lintian python3-venv
# Symbols since the last release are of a version that is none yet.
in_fresh sh -ec 'lintian --fail-on error --allow-root --suppress-tags \
	symbols-file-contains-current-version-with-debian-revision ./*.changes' ||
	die "lintian finds errors"
# In a directory that has the same name each time: pip would unpack the archive in another
# one, where ccache finds nothing.
# shellcheck disable=SC2016
logged wheel in_fresh sh -ec 'python3 -m venv venv
	case " ${DEB_BUILD_OPTIONS:-} " in *" noopt "*) export CFLAGS=-O0 ;; esac
	mkdir sources
	tar -C sources -xf reshardfs-"$1".tar.xz
	venv/bin/pip wheel --no-deps sources/reshardfs-"$1"
	venv/bin/pip install --no-deps --target site ./*.whl' sh "$upstream"
for made in whl deb dsc changes buildinfo tar.xz; do
	cp "$fresh_root"/root/*."$made" "$work/"
done
cp "$fresh_root"/root/rpm/RPMS/*/*.rpm "$work/"
cp -r "$fresh_root/root/site" "$work/"
fresh_end
cd "$work"
ls ./*.whl
if [ -n "$keep" ]; then
	cp ./*.whl ./*.deb ./*.rpm ./*.dsc ./*.changes ./*.buildinfo ./*.tar.xz "$keep/"
fi

# ---- trying ----

# Without what changes by itself.
files_in_root()
{
	(cd "$fresh_root" && find . -xdev \( -path ./proc -o -path ./tmp -o -path ./ccache -o \
		-path ./var/cache -o -path ./var/lib/apt -o -path ./var/log -o \
		-path ./var/lib/dpkg -o -name __pycache__ \) -prune -o -print |
		sort)
}

# read_demo [NAME=VALUE]: the demo's checkpoint is read by the module, without a mount.
read_demo()
{
	in_fresh env "$@" sh -c 'cd /tmp/demo && python3 -c "
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

say "another fresh Debian"
logged fresh fresh_begin
cp -r "$top/tests/data/demo" "$fresh_root/tmp/demo"
logged python in_fresh apt-get -qq install python3
say "the wheel, where nothing but Python is"
cp -r site "$fresh_root/tmp/site"
read_demo PYTHONPATH=/tmp/site
# What the packages stand on stays: it is not theirs.
logged depends in_fresh apt-get -qq install -y --no-install-recommends fuse3 \
	libjansson4 liblz4-1 libprotobuf-c1 libseccomp2 libxxhash0 libzstd1 python3 zlib1g \
	libcurl4 libexpat1
files_in_root >"$work/before"

mkdir "$fresh_root/tmp/packages"
cp ./*.deb "$fresh_root/tmp/packages/"
rm -f "$fresh_root"/tmp/packages/*-dbgsym_*
# From these files alone: a missing dependency is an error.
logged install in_fresh sh -c 'dpkg -i /tmp/packages/*.deb'

say "\$ reshardfs --version"
in_fresh reshardfs --version
[ "$(in_fresh reshardfs --version | head -n 1)" = "reshardfs $upstream" ] ||
	die "this is another version"
in_fresh test -x /sbin/mount.reshardfs || die "mount(8) finds no helper"
for file in bash-completion/completions/reshardfs \
	zsh/vendor-completions/_reshardfs; do
	in_fresh test -s "/usr/share/$file" || die "there is no $file"
done
in_fresh test -s /lib/systemd/system/reshardfs@.service ||
	die "systemd finds no unit"
for page in "$top"/man/*.[1-8]; do
	page=man${page##*.}/$(basename "$page").gz
	[ -s "$fresh_root/usr/share/man/$page" ] ||
		[ -s "$fresh_root/usr/share/doc/$page" ] || die "there is no $page"
done

read_demo

# What is loaded only when it is asked for is found among what they recommend.
in_fresh AWS_ACCESS_KEY_ID=x AWS_SECRET_ACCESS_KEY=x AWS_REGION=x \
	AWS_ENDPOINT_URL=http://127.0.0.1:9 reshardfs ls s3://bucket/x 2>&1 |
	grep "cannot be reached" || die "object storage is not asked"
logged servers in_fresh sh -c 'cd /tmp/demo && reshardfs export \
	--cache-servers 127.0.0.1:9 --src-strategy strategy_8_cards.ckpt \
	--dst-strategy strategy_4_cards.ckpt checkpoint /tmp/exported'

# shellcheck disable=SC2086 # a list of names
logged remove in_fresh dpkg --purge $INSTALLED
files_in_root >"$work/after"
diff "$work/before" "$work/after" || die "that is left, or lost"
say "installed, tried and removed without a trace"
