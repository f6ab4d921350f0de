#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The completions of bash and zsh: both shells take them, and what they offer are
# the commands, options and values of --help and --help-all.
. "${srcdir:-.}/lib/mount.sh"

SCRIPTS=$(cd "$top_srcdir/src/completions" && pwd)

# ---- bash ----

# offers WORD...: what bash offers for the last word, sorted, in one line.
offers() {
	bash -c '
	. "$0/reshardfs"
	compopt() { :; }
	COMP_WORDS=("$RESHARDFS" "$@")
	COMP_CWORD=$#
	_reshardfs
	printf "%s\n" "${COMPREPLY[@]}"' "$SCRIPTS" "$@" | LC_ALL=C sort | xargs
}

formats=$("$RESHARDFS" mount --help-all | sed -n 's/.*--format \([a-z0-9|]*\).*/\1/p')
commands=$("$RESHARDFS" --help | sed -n 's/^  \([a-z]*\)  .*/\1/p' | sort | xargs)
if command -v bash >/dev/null; then
	check "bash takes it" bash -n "$SCRIPTS/reshardfs"
	cd "$T" || exit 1
	mkdir "$T/empty" && cd "$T/empty" || exit 1
	equal "the commands" "$(offers '')" "$commands"
	equal "a command" "$(offers um)" umount
	equal "an option" "$(offers mount --src-s)" --src-strategy
	equal "an option of another command" "$(offers ls --fore)" ""
	equal "an option of ls" "$(offers ls --js)" --json
	equal "an option without a command" "$(offers --foreg)" --foreground
	equal "a command behind options" "$(offers -q --log-level debug um)" umount
	equal "an option of it" "$(offers --log-level = debug ls --js)" --json
	equal "the value of one" "$(offers --log-level e)" error
	equal "the words of a value" "$(offers mount --format '')" \
		"$(echo "$formats" | tr '|' '\n' | sort | xargs)"
	equal "after an equals sign" "$(offers mount --format = s)" safetensors
	equal "right at it" "$(offers mount --replicas =)" "auto off"
	equal "a value that may be anything" "$(offers mount --prefix '')" ""
	equal "in a list" "$(offers mount -o src_s)" "src_strategy="
	equal "further on in it" "$(offers mount -o ro,nosu)" "ro,nosuid"
	: >"$T/empty/a file"
	equal "files" "$(offers mount --src-strategy '' | tr -d "'")" "a file none"
	equal "files for operands" "$(offers ls a)" "a file"
	equal "words for an operand" "$(offers strategy '')" "check derive infer merge show"
	equal "one of them" "$(offers strategy de)" derive
	equal "commands for help" "$(offers help '')" "$commands"
	equal "one of them for help" "$(offers help ver)" verify
	equal "files behind it" "$(offers strategy show a)" "a file"
	equal "tables behind it" "$(offers convert show qwen3_)" qwen3_moe
	equal "a table for an option" "$(offers mount --convert deepseek_v4)" deepseek_v4
	for command in $commands; do
		equal "all options of $command" "$(offers "$command" --)" \
			"$("$RESHARDFS" "$command" --help-all |
				sed -n 's/^  \(-.,\|   \) \(--[a-z-]*\).*/\2/p' |
				LC_ALL=C sort | xargs)"
	done
	cd / || exit 1
else
	skip "bash" "there is no bash"
fi

# ---- zsh ----

# zsh_asks WORD...: what the function hands to zsh's own functions.
zsh_asks() {
	zsh -f -c '
	_arguments() { printf "%s\n" "$@" }
	_describe() { print -l ${(P)2} }
	_files() { print files }
	words=($RESHARDFS "$@[2,-1]")
	CURRENT=$#words
	. $1' zsh "$SCRIPTS/_reshardfs" "$@"
}

if command -v zsh >/dev/null; then
	check "zsh takes it" zsh -n "$SCRIPTS/_reshardfs"
	equal "the commands for zsh" \
		"$(zsh_asks '' | sed -n 's/^\([a-z]*\):.*/\1/p' | sort | xargs)" "$commands"
	zsh_asks ls --json x >"$T/asked"
	check "an option of ls for zsh" grep -qx -e '--json\[print JSON\]' "$T/asked"
	check "a value for zsh" grep -q -e \
		"^--format=\\[.*:($(echo "${formats:-no formats}" | tr '|' ' '))\$" "$T/asked"
	zsh_asks strategy '' >"$T/asked.strategy"
	check "words for an operand in zsh" \
		grep -q -e '^:.*:(show merge check derive infer)$' "$T/asked.strategy"
	zsh_asks help '' >"$T/asked.help"
	equal "commands for help in zsh" "$(sed -n 's/^::.*:(\(.*\))$/\1/p' \
		"$T/asked.help" | xargs -n 1 | sort | xargs)" "$commands"
	zsh_asks convert show '' >"$T/asked.convert"
	check "tables in zsh" grep -q -e '^::.*compadd -- .*qwen3_moe' "$T/asked.convert"
	check "a letter for zsh" grep -q -e '^(-q --quiet)-q\[' "$T/asked"
	check "operands for zsh" grep -qx ':FILE|SOURCE|STRATEGY:_files' "$T/asked"
	refute "no option of mount in ls" grep -q foreground "$T/asked"
	zsh_asks -q --log-level debug ls --json x >"$T/asked"
	check "an option of ls behind others for zsh" grep -qx -e \
		'--json\[print JSON\]' "$T/asked"
	zsh_asks --for >"$T/asked"
	check "without a command for zsh" grep -q foreground "$T/asked"
	equal "a start file of zsh sources it" "$(zsh -f -c '
		autoload -U compinit && compinit -u -D
		. $1
		echo $_comps[reshardfs]' zsh "$SCRIPTS/_reshardfs" 2>&1)" _reshardfs
	# compinit calls the file as the function the first time, and what it defines later.
	for time in first second; do
		equal "the $time call by compinit" "$(zsh -f -c '
			fpath=($1 $fpath)
			autoload -U compinit && compinit -u -D
			_arguments() { print -rl -- "$@" }
			words=($RESHARDFS completion "")
			CURRENT=3
			[[ $2 == first ]] || _reshardfs >/dev/null
			_reshardfs | grep -c -e "^(-q --quiet)--quiet"' zsh "$SCRIPTS" "$time" 2>&1)" 1
	done
else
	skip "zsh" "there is no zsh"
fi

# ---- fish ----

# fish_offers LINE: what fish offers for the last word of a line that begins with
# `reshardfs`, sorted, in one line.
fish_offers() {
	mkdir -p "$T/bin" "$T/none" && ln -sf "$RESHARDFS" "$T/bin/reshardfs"
	(cd "$T/none" && PATH="$T/bin:$PATH" HOME="$T/none" fish --no-config -c '
	source $argv[1]/reshardfs.fish
	complete -C"$argv[2]"' "$SCRIPTS" "reshardfs $1" | cut -f 1 | LC_ALL=C sort | xargs)
}

if command -v fish >/dev/null; then
	check "fish takes it" fish --no-execute "$SCRIPTS/reshardfs.fish"
	equal "the commands for fish" "$(fish_offers '')" "$commands"
	equal "a command for fish" "$(fish_offers um)" umount
	equal "an option for fish" "$(fish_offers 'mount --src-s')" --src-strategy
	refute "an option of another command for fish" sh -c 'case $0 in *--foreground*) ;; *) exit 1 ;; esac' \
		"$(fish_offers 'ls --fore')"
	equal "a value for fish" "$(fish_offers '--log-level e')" error
	equal "one after an equals sign for fish" "$(fish_offers 'mount --replicas=')" \
		"--replicas=auto --replicas=off"
	equal "words for an operand in fish" "$(fish_offers 'strategy ')" \
		"check derive infer merge show"
	: >"$T/none/afile"
	equal "files for fish" "$(fish_offers 'ls a')" afile
else
	skip "fish" "there is no fish"
fi

# ---- as the program prints them ----

"$RESHARDFS" completion bash >"$T/printed"
check "it prints that of bash" cmp "$T/printed" "$SCRIPTS/reshardfs"
"$RESHARDFS" completion zsh >"$T/printed"
check "it prints that of zsh" cmp "$T/printed" "$SCRIPTS/_reshardfs"
"$RESHARDFS" completion fish >"$T/printed"
check "it prints that of fish" cmp "$T/printed" "$SCRIPTS/reshardfs.fish"
"$RESHARDFS" completion tcsh >"$T/printed" 2>&1
equal "no other: status 2" $? 2
check "no other" grep -q "completion tcsh: expected bash, zsh or fish" "$T/printed"
finish
