#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Dependencies point down only: no file includes a header of a layer above its
# own, FUSE stays in fuse/, protobuf in wire/ and formats/, JSON in wire/,
# formats/ and app/.  (An upward call does not link; this catches the rest.)
set -u
top=${top_srcdir:-../..}
[ -f "$top/configure.ac" ] || {
	echo "Bail out! $top is not the source"
	exit 1
}
layers="util tensor wire strategy plan weights storage source contents read formats vfs fuse copy app"
number=0

# report RESULT DESCRIPTION
report() {
	number=$((number + 1))
	if [ -z "$1" ]; then
		echo "ok $number - $2"
	else
		echo "not ok $number - $2"
		echo "$1" | sed 's/^/# /'
	fi
}

echo "1..$(($(echo "$layers" | wc -w) + 14))"
above=$layers
for layer in $layers; do
	above=${above#"$layer"}
	above=${above# }
	found=
	for upper in $above; do
		found=$found$(grep -rnE "#include \"(rsh/)?$upper/" \
			"$top/src/$layer" "$top/include/rsh/$layer" 2>/dev/null)
	done
	report "$found" "$layer includes nothing from above"
done
report "$(grep -rnE '#include <fuse' "$top/src" "$top/include" |
	grep -v "^$top/src/fuse/")" "only fuse/ includes FUSE"
report "$(grep -rnE '#include .*(protobuf-c|pb-c\.h)' "$top/src" \
	"$top/include" | grep -vE "^$top/src/(wire|formats)/")" \
	"only wire/ and formats/ include protobuf"
report "$(grep -rnE '#include .*jansson\.h' "$top/src" "$top/include" |
	grep -vE "^$top/src/(wire|formats|app)/|^$top/include/rsh/app/")" \
	"only wire/, formats/ and app/ include JSON"
report "$(grep -rnE '#include <curl/' "$top/src" "$top/include" |
	grep -v "^$top/src/storage/objects/")" \
	"only storage/objects/ includes libcurl"
report "$(grep -rnE '#include <lz4' "$top/src" "$top/include" |
	grep -v "^$top/src/util/")" "only util/ includes LZ4"
report "$(grep -nE '#include "rsh/(tensor|strategy|plan|weights)/|#include "rsh/storage/(cache|servers|store|io)\.h"' \
	"$top"/src/storage/objects/*.[ch] "$top/include/rsh/storage/objects.h")" \
	"storage/objects/ stands on util/ and wire/ alone"
outputs=$(sed -n 's/^	EACH(\([a-z0-9]*\)).*/\1/p' "$top/include/rsh/formats/outputs.h" |
	paste -sd'|')
report "$(grep -rnE "\brsh_output_(${outputs:-no outputs})\b" \
	"$top/src" "$top/include" | grep -v "^$top/src/formats/")" \
	"only formats/ names an output"
report "$(grep -rnE '#include ".*/.*_i\.h"' "$top/src" "$top/include")" \
	"no room includes what is private to another"
report "$(grep -rnE '\b(open|openat|fopen|pread|read|opendir)\(' \
	"$top/src/tensor" "$top/src/strategy" "$top/src/plan" \
	"$top/src/weights" | grep -vE '^[^:]*:[0-9]+:\s*(/?\*|//)')" \
	"what is below storage/ does no I/O"
report "$(grep -nE '#include "rsh/(tensor|wire|strategy|plan|weights)/|#include "rsh/storage/(objects|store|io)\.h"' \
	"$top"/src/storage/cache/*.[ch] "$top/include/rsh/storage/cache.h" \
	"$top/include/rsh/storage/servers.h")" \
	"storage/cache/ stands on util/ alone"
report "$(grep -nE '#include "rsh/(tensor|strategy|plan|weights)/' \
	"$top"/src/storage/store/*.[ch] "$top/include/rsh/storage/store.h" \
	"$top/include/rsh/storage/io.h")" \
	"storage/store/ knows no tensor, strategy or plan"
report "$(grep -nE '#include "(rsh/plan/(conversion|slices|redistribution|rank_list)\.h|plan/converter/)' \
	"$top"/src/plan/*.[ch])" "plan/ plans without plan/converter/"
report "$(grep -rnE '\b(system|popen)\(' "$top/src" "$top/mount-helpers" \
	--include='*.c')" "nothing calls a shell"
# A file that is not listed is not in the tarball.
report "$({ (cd "$top/src" && find . -name '*.[ch]' -printf '%P\n')
	(cd "$top/include" && find rsh -name '*.h' -printf '$I/%P\n'); } |
	while read -r source; do
		grep -qF "$source" "$top/src/Makefile.am" || echo "$source"
	done)" "src/Makefile.am lists each source"
