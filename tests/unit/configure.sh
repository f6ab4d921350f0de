#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# configure says what pkg-config says of each library: what a library wants may be
# missing while its own package is there.
set -u
top=$(cd "${top_srcdir:-../..}" && pwd)
[ -f "$top/configure.ac" ] || {
	echo "Bail out! $top is not the source"
	exit 1
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/fuse3.pc" <<'END'
Name: fuse3
Description: one that wants another library
Version: 3.14
Requires: another-library
END
# Not there: whoever built in the source tree has one that is configured.
ln -s "$top/configure" "$top/build-aux" "$top/src" "$work/"
cd "$work" || exit 1
said=$(PKG_CONFIG_PATH='' PKG_CONFIG_LIBDIR=$work ./configure --quiet 2>&1 >/dev/null)

# says WORDS...: in one line.
number=0
says() {
	number=$((number + 1))
	if echo "$said" | grep -q "$1.*$2"; then
		echo "ok $number - $1: $2"
	else
		echo "not ok $number - $1: $2"
		echo "$said" | sed 's/^/# /'
	fi
}

echo 1..3
says libfuse3-dev "'another-library', required by 'fuse3', not found"
says zlib1g-dev "'zlib'.*not found"
number=$((number + 1))
if [ ! -e "$work/config.status" ]; then
	echo "ok $number - and that is the end"
else
	echo "not ok $number - it goes on"
fi
