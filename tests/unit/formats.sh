#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A format is known to its own directory and to the list of formats: nobody else
# in src and include names one, asks a source whether it is of one, or keeps what
# only one needs.  (mount/made_up_format.py shows the other half: that one more
# driver is all that one more kind of checkpoint takes.)
set -u
top=${top_srcdir:-../..}
[ -f "$top/configure.ac" ] || {
	echo "Bail out! $top is not the source"
	exit 1
}
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

# outside PATTERN: where it occurs in C beside the formats and, of what says how
# bytes lie, wire/
outside() {
	grep -rnE "$1" "$top/src" "$top/include" --include='*.[ch]' |
		grep -vE "^$top/(src|include/rsh)/(formats|wire)/"
}

# block FILE DRIVER: what the driver sets
block() {
	sed -n "/^const struct rsh_format $2 = {/,/^};/p" "$1"
}

drivers=$(grep -rhoE '^const struct rsh_format rsh_[a-z0-9_]+' "$top/src/formats" |
	sed 's/.* //' | sort)
list=$(sed -n '/rsh_formats\[\] = {/,/^};/s/.*&\([a-z0-9_]*\),.*/\1/p' \
	"$top/src/formats/formats.c" | sort)
names=$(grep -rhoE '\.name = "[^"]+"' "$top/src/formats" | sed 's/.*"\(.*\)"/\1/')
if [ "$(echo "$drivers" | wc -w)" -lt 8 ] || [ "$(echo "$names" | wc -w)" -lt 8 ]; then
	echo "Bail out! no drivers are found in $top/src/formats"
	exit 1
fi

echo 1..10
[ "$drivers" = "$list" ] && found= || found="drivers: $drivers
the list: $list"
report "$found" "the list has all drivers, each once"

found=
for directory in "$top"/src/formats/*/; do
	grep -qE '^const struct rsh_format rsh_' "$directory"*.c ||
		found="$found $directory"
done
report "$found" "every directory of formats/ has a driver"

found=
for driver in $drivers; do
	file=$(grep -rlE "^const struct rsh_format $driver " "$top/src/formats")
	block "$file" "$driver" | grep -qE '\.name = "[a-z0-9-]+"' ||
		found="$found $driver has no name;"
	# Two drivers of one file may have what they share from a macro.
	block "$file" "$driver" | grep -qE '\.says = "|^	[A-Z]+,' &&
		grep -qE '\.says = "[^"]+"' "$file" ||
		found="$found $driver says nothing;"
done
report "$found" "every driver has a name and says what it is"

pattern=$(echo "$drivers" | paste -sd'|')
report "$(outside "\\b($pattern)\\b")" "no driver is named outside formats/"

pattern=$(echo "$names" | paste -sd'|')
report "$(outside "str[a-z]*cmp\\([^;]*\"($pattern)\""
	outside 'str[a-z]*cmp\([^;]*(format|\))->(name|says)\b')" \
	"nobody compares a format's name"

report "$(outside '\brsh_source_(dcp|checkpoint2|in_parts|is_described|describes_itself|is_model)\b')" \
	"nobody asks a source whether it is of one format"

members=$(sed -n '/^struct rsh_source {/,/^};/p' "$top/src/source/source_i.h")
found=$(echo "${members:-in_parts, for there is no struct rsh_source}" |
	grep -wE 'in_parts|checkpoint2|dialect|dcp')
report "$found" "struct rsh_source has no member of one format"

report "$(outside '#include "(rsh/)?wire/(dcp|pickle|pickle_values|zip|torch_dtype)\.h"')" \
	"what reads their files is included by formats alone"

found=
for header in "$top"/include/rsh/wire/*.h; do
	name=${header##*/}
	users=$(grep -rlF "\"rsh/wire/$name\"" "$top/src" "$top/include" |
		grep -v "^$top/src/wire/${name%.h}" |
		sed -E "s,^$top/(src|include/rsh)/,,;
			s,^(formats/[^/.]*).*,\1," | sort -u)
	case $(echo "$users" | wc -w) in
	0) found="$found $header serves nobody;" ;;
	1) case $users in
	   formats/*) found="$found $header serves $users alone;" ;;
	   esac ;;
	esac
done
report "$found" "what only one format reads is parsed in its directory"

report "$(grep -rlE '\brsh_formats\b' "$top/src" "$top/include" --include='*.[ch]' |
	grep -vE "^$top/(src/app/options|src/formats|include/rsh/formats)/")" \
	"the list itself is taken by app/options/ alone, who hand it on"
