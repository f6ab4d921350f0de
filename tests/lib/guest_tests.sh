#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What tests/guests.sh runs in a guest: the demo, the module, and tests of mounts.
#
#   guest_tests.sh PROGRAM TEST...
#
# PROGRAM is that of an installed wheel.  Each TEST is a file of tests/mount.  The last line is `N passed, N failed, N skipped`.
set -eu
top=$(cd "$(dirname "$0")/../.." && pwd)
export RESHARDFS="$1" RESHARDFS_TABLES="$top/tables"
export srcdir="$top/tests" top_srcdir="$top" PYTHONDONTWRITEBYTECODE=1
export RSH_TIMEOUT_SCALE=4 XDG_CACHE_HOME=/tmp/cache
shift

echo "$(uname -srm), pages of $(getconf PAGESIZE) bytes"
"$RESHARDFS" --version
mkdir /tmp/mnt
cd "$top/tests/data/demo"
"$RESHARDFS" mount --src-strategy strategy_8_cards.ckpt \
	--dst-strategy strategy_4_cards.ckpt checkpoint /tmp/mnt
(cd /tmp/mnt && sha256sum --check --strict) <SHA256SUMS
"$RESHARDFS" umount /tmp/mnt
PYTHONPATH=${RESHARDFS%/reshardfs/bin/reshardfs} python3 "$top/tests/lib/read_demo.py" |
	sort >/tmp/read
sort SHA256SUMS | cmp - /tmp/read
echo "the module: the bytes are the converter's"

cd /tmp
passed=0 failed=0 skipped=0
count()
{
	grep -cE "$1" /tmp/log || :
}
for test; do
	echo "---- $test"
	case $test in
	*.py) set -- python3 ;;
	*) set -- sh ;;
	esac
	status=0
	"$@" "$top/tests/mount/$test" >/tmp/log 2>&1 </dev/null || status=$?
	grep -E '^(not ok|Bail out|#)|# SKIP' /tmp/log || :
	bad=$(count '^(not ok|Bail out)')
	if [ "$status" -ne 0 ] && [ "$bad" -eq 0 ]; then
		tail -n 20 /tmp/log
		bad=1
	fi
	skip=$(count '# SKIP')
	passed=$((passed + $(count '^ok') - $(count '^ok.*# SKIP')))
	failed=$((failed + bad))
	skipped=$((skipped + skip))
done
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ] && [ $passed -gt 0 ]
