#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# No two files of a room need each other: each file uses functions of files that
# can be read, tested and replaced before it.  (layers.sh checks rooms.)
set -u
builddir=${top_builddir:-..}/src
sources=${top_srcdir:-..}/src
command -v nm >/dev/null && command -v tsort >/dev/null || {
	echo "1..0 # SKIP needs nm and tsort"
	exit 0
}

# Prints "user definer" for each symbol that one object of a directory takes from
# another.
uses() {
	# An object of a file that was renamed does not count.
	find "$1" -name '*.o' | sed "h; s,^$builddir/,,
		s,/\.libs/,/,; s,/[a-z]*_la-,/,; s,/reshardfs-,/,; s,\.o\$,.c,
		G; s/\n/ /" | while read -r source object; do
		[ ! -f "$sources/$source" ] || echo "$object"
	done | xargs -r nm -A | sed 's,/\.libs/,/,; s,/lib[a-z]*_la-,/,; s/\.o:/ /' | awk '
		NF == 4 && $3 ~ /[TDBR]/ { definer[$4] = $1 }
		NF == 3 && $2 == "U" { n++; user[n] = $1; symbol[n] = $3 }
		END {
			for (i = 1; i <= n; i++) {
				of = definer[symbol[i]]
				if (of != "" && of != user[i])
					print user[i], of
			}
		}'
}

rooms=$(cd "$builddir" && find . -name '*.o' | cut -d/ -f2 | sort -u)
[ -n "$rooms" ] || {
	echo "Bail out! no objects below $builddir"
	exit 1
}
# The check finds a circle.
echo "1..$(($(echo "$rooms" | wc -w) + 1))"
if printf 'a b\nb c\nc a\n' | tsort >/dev/null 2>&1; then
	echo "not ok 1 - a circle is found"
else
	echo "ok 1 - a circle is found"
fi
number=1
for room in $rooms; do
	number=$((number + 1))
	found=$(uses "$builddir/$room" | tsort 2>&1 >/dev/null)
	[ -z "$found" ] && result=ok || result="not ok"
	echo "$result $number - $room has no circles between files"
	[ -z "$found" ] || echo "$found" | sed 's/^/# /'
done
