#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `make install` into an empty directory: all of it is there, works from there,
# and goes again.
. "${srcdir:-.}/lib/mount.sh"

build=$(cd "$(dirname "$RESHARDFS")/.." && pwd)
top=$(cd "${top_srcdir:-..}" && pwd)
root=$T/root

# Not a part of the make that runs the tests.
unset MAKEFLAGS MFLAGS MAKELEVEL
make_in() {
	make -C "$build" DESTDIR="$root" "$@"
}

# at NAME: where a file was installed whose path ends so.
at() {
	find "$root" -path "*/$1"
}

check "make install" make_in install
prefix=$(sed -n 's/^prefix = //p' "$build/Makefile")
wanted=1
[ "$prefix" != /usr ] || wanted=0
equal "says what mount(8) needs beside, unless it finds it" "$(grep -cx \
	"mount -t reshardfs: ln -s $prefix/sbin/mount.reshardfs /sbin/" "$T/out")" $wanted
program=$(at bin/reshardfs)
equal "the program" "$("$program" --version | head -n 1)" \
	"$("$RESHARDFS" --version | head -n 1)"
for page in "$top"/man/*.[1-8]; do
	page=man${page##*.}/${page##*/}
	check "$page" test -s "$(at "$page")"
done
check "completions of bash" bash -n "$(at completions/reshardfs)"
for name in _reshardfs mount.reshardfs reshardfs@.service fuse_fd.py job.sh \
	kubernetes.yaml kubernetes-fd.yaml mnt-ckpt4.mount mnt-ckpt4.automount; do
	check "$name" test -s "$(at "$name")"
done
for table in "$top"/tables/*.rules; do
	check "${table##*/}" cmp "$table" "$(at "reshardfs/tables/${table##*/}")"
done
check "the unit names the program" grep -q "^ExecStart=${program#"$root"} " \
	"$(at reshardfs@.service)"

# ---- the library ----

library=$(dirname "$(at libreshard.so.0)")
cp "${srcdir:-.}/mount/libreshard.c" "$T/program.c"
flags() {
	PKG_CONFIG_PATH=$library/pkgconfig PKG_CONFIG_SYSROOT_DIR=$root \
		pkg-config "$@" libreshard
}
# shellcheck disable=SC2046,SC2086 # lists of flags
compile() {
	${CC:-cc} ${SANITIZER_FLAGS:-} -o "$T/program" "$T/program.c" \
		$(flags --cflags --libs) -pthread
}
make_source
check "pkg-config has its version" test -n "$(flags --modversion)"
check "a program is compiled with what pkg-config says" compile
LD_LIBRARY_PATH=$library "$T/program" list "$SRC" \
	"src_strategy=$T/source.ckpt" "dst_strategy=$T/wanted.ckpt" >"$T/list"
equal "and lists the files" "$(grep -c '^file ' "$T/list")" 4

# ---- the module ----

module=$(at reshardfs/__init__.py)
if [ -z "$module" ]; then
	skip "the module" "it was built without Python"
elif [ -n "${SANITIZER_FLAGS:-}" ]; then
	skip "the module" "Python is not built with $SANITIZER_FLAGS"
else
	export PYTHONPATH="${module%/reshardfs/*}" PYTHONDONTWRITEBYTECODE=1
	check "the module reads, with a mount and without" env -u RESHARDFS \
		LD_LIBRARY_PATH="$library" PATH="${program%/*}:$PATH" python3 -c '
import sys, reshardfs
options = dict(src_strategy=sys.argv[2], dst_strategy=sys.argv[3])
with reshardfs.mounted(sys.argv[1], **options) as m, open(m.rank(0), "rb") as f:
    assert f.read() == reshardfs.read(sys.argv[1], 0, **options)
' "$SRC" "$T/source.ckpt" "$T/wanted.ckpt"
fi

check "make uninstall" make_in uninstall
equal "nothing is left" "$(find "$root" ! -type d)" ""
finish
