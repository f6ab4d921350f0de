#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes everything that a release consists of, and says where it has to be uploaded.
#
#   packaging/release.sh [DIRECTORY]            (make release)
#
# Runs on Debian 12 as root, with podman for the image.  DIRECTORY (build/release) gets
# the archive of `make dist`, the sdist, wheels for x86_64 and aarch64, Debian packages,
# RPMs, the image, and SHA256SUMS of all.  tests/package.sh and tests/wheels.sh --all
# build and try each of them in fresh systems; it takes about half an hour.  The tree must be
# a clone without changes, and NEWS must have a dated entry of the version.
# RESHARDFS_HOMEPAGE is the address of the repository, which `pip show` names.
# Before a release, tests/run.sh --all is run on the same commit.
set -eu

top=$(cd "$(dirname "$0")/.." && pwd)
. "$top/tests/lib/setup.sh"

if [ -n "${RESHARDFS_HOMEPAGE:-}" ]; then
	export RESHARDFS_HOMEPAGE
else
	say "RESHARDFS_HOMEPAGE is not set: the wheels name no home page"
fi
case ${1:-} in
-*) sed -n '3,/^set /s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
out=${1:-$top/build/release}
# All in it is removed.
[ -z "${1:-}" ] || [ -e "$out/SHA256SUMS" ] || [ -z "$(ls -A "$out" 2>/dev/null)" ] ||
	die "$out has other files: name a directory that is empty or does not exist"
version=$(sed -n 's/^AC_INIT(\[reshardfs\], \[\([^]]*\).*/\1/p' "$top/configure.ac")

cd "$top"
"$top/packaging/set_version.py" --check || die "packaging/set_version.py writes the version"
grep -qx "$version, 20[0-9-]*" NEWS ||
	die "NEWS: the first line is not \"$version, YEAR-MONTH-DAY\""
[ -z "$(git status --porcelain)" ] || die "there are changes that are not committed"
commit=$(git rev-parse HEAD)
rm -rf "$out"
mkdir -p "$out"
out=$(cd "$out" && pwd)

say "the archive, Debian packages and RPMs"
"$top/tests/package.sh" --keep "$out"
# It is for Debian 12 and newer; the next ones are for all.
rm "$out"/*.whl
say "wheels and the image"
"$top/tests/wheels.sh" --all --keep "$out"
say "the sdist"
(cd "$top/python" && python3 -c '
import sys
import backend
print(backend.build_sdist(sys.argv[1]))' "$out")

missing=
for made in "reshardfs-$version.tar.xz" "reshardfs-$version.tar.gz" \
	"reshardfs-$version-*_x86_64.whl" "reshardfs-$version-*_aarch64.whl" \
	"reshardfs_$version-*.deb" "reshardfs_$version-*.dsc" "reshardfs-$version-*.rpm" \
	reshardfs-image-x86_64.tar; do
	# shellcheck disable=SC2086 # a pattern
	[ -n "$(cd "$out" && ls $made 2>/dev/null)" ] || missing="$missing $made"
done
[ -z "$missing" ] || die "not made:$missing"
(cd "$out" && find . -type f ! -name 'SHA256SUMS*' -printf '%P\n' | sort | xargs sha256sum) \
	>"$out/SHA256SUMS"
cat <<END
$out: reshardfs $version of commit $commit
To sign it:    gpg --armor --detach-sign $out/SHA256SUMS
To mark it:    git tag --sign v$version $commit && git push origin v$version
To upload it:
  PyPI               twine upload $out/*.whl $out/reshardfs-$version.tar.gz
  a Debian archive   dput HOST $out/*.changes
  a dnf repository   $out/*.rpm, then createrepo_c
  an image registry  podman load --input $out/reshardfs-image-x86_64.tar
                     podman push reshardfs:$version REGISTRY/reshardfs:$version
  the release page   reshardfs-$version.tar.xz, SHA256SUMS, SHA256SUMS.asc
END
