#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds reshardfs and mounts a checkpoint of 8 cards as one of 4.
#
# Runs on Debian and Ubuntu, as root if packages are to be installed.  The checkpoint
# is tests/data/demo; what the mount shows is held against the hashes of the
# files that MindSpore's own converter made of it.
set -eu

top=$(cd "$(dirname "$0")/.." && pwd)
. "$top/tests/lib/setup.sh"
unset MAKEFLAGS MAKELEVEL

demo=$top/tests/data/demo
build=$top/build/demo
reshardfs=$build/src/reshardfs

# shellcheck disable=SC2086 # a list of names
need_packages $BUILD_PACKAGES
need_xxhash
need_fuse

say "building in build/demo"
mkdir -p "$build"
{ prepare_source && build_in "$build"; } >"$build/demo.log" 2>&1 || {
	tail -n 30 "$build/demo.log" >&2
	die "the build failed, see $build/demo.log"
}

mnt=$(mktemp -d)
mounted=no
clean_up()
{
	[ $mounted = no ] || fusermount3 -u -z "$mnt" || :
	rmdir "$mnt" 2>/dev/null || :
}
trap clean_up EXIT
trap 'exit 1' HUP INT TERM

run()
{
	say
	say "\$ $*"
	"$@"
}

cd "$demo"
run ls checkpoint
run "$reshardfs" mount --index-cache off \
	--src-strategy strategy_8_cards.ckpt \
	--dst-strategy strategy_4_cards.ckpt checkpoint "$mnt"
mounted=yes
run ls -lR "$mnt"
run df "$mnt"

run od -c -N 64 "$mnt/rank_0/checkpoint_0.ckpt"

# Nothing may be there that has no hash, and nothing missing.
(cd "$mnt" && find . -type f | sed 's|^\./||' | sort) >"$build/found"
sed 's/^[0-9a-f]*  //' SHA256SUMS | sort >"$build/expected"
cmp "$build/expected" "$build/found" ||
	die "the mount shows other files than the converter made"
cd "$mnt"
run sha256sum --check --strict "$demo/SHA256SUMS" ||
	die "the mount's bytes are not the converter's"

cd "$top"
run fusermount3 -u "$mnt"
mounted=no
! mountpoint -q "$mnt" || die "$mnt is still mounted"

say
say "8 cards read as 4: byte for byte what MindSpore's converter writes."
