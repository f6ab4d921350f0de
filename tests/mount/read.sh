#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# However a file is read, the bytes are those of the reference.
. "${srcdir:-.}/lib/mount.sh"

make_source
# shellcheck disable=SC2046
mount_start $(strategies) || finish

file=$MNT/rank_1/checkpoint_1.ckpt
reference=$T/expected/rank_1/checkpoint_1.ckpt

# Before any byte was read.
equal "size is exact" "$(stat -c %s "$file")" "$(stat -c %s "$reference")"

for rank in 0 1 2 3; do
	check "rank $rank holds what whole tensors cut" cmp \
		"$MNT/rank_$rank/checkpoint_$rank.ckpt" \
		"$T/expected/rank_$rank/checkpoint_$rank.ckpt"
done

drop_pages() {
	dd "if=$1" iflag=nocache count=0 2>/dev/null
}

dd_equals() {
	drop_pages "$file"
	dd "if=$file" "bs=$1" 2>/dev/null | cmp - "$reference"
}
for bs in 511 4096 4097 65537 131072 999983 1048576 3000001; do
	check "dd with blocks of $bs" dd_equals "$bs"
done

past_the_cache_equals() {
	dd "if=$file" iflag=direct bs=262144 2>/dev/null | cmp - "$reference"
}
check "dd past the page cache" past_the_cache_equals

small_blocks_equal() {
	for at in 0 1 17 4095 4096 70000 7000001; do
		dd "if=$file" bs=1 "skip=$at" count=64 2>/dev/null >"$T/a"
		dd "if=$reference" bs=1 "skip=$at" count=64 2>/dev/null >"$T/b"
		cmp "$T/a" "$T/b" || return 1
	done
}
check "dd byte by byte" small_blocks_equal

for way in whole private shared sendfile splice preadv threads random; do
	if [ $way = splice ] && ! python3 -c 'import os; os.splice' 2>/dev/null; then
		skip "read: splice" "Python has no os.splice"
		continue
	fi
	drop_pages "$file"
	check "read: $way" python3 "$LIB/reader.py" "$way" "$file" "$reference"
done

tree_equals() {
	diff -r "$1" "$T/expected"
}

cp -a "$MNT" "$T/copy"
check "cp -a" tree_equals "$T/copy"
equal "cp -a keeps modes" "$(stat -c %a "$T/copy/rank_2/checkpoint_2.ckpt")" 400

mkdir "$T/untar"
tar -C "$MNT" -cf - . | tar -C "$T/untar" -xf -
check "tar" tree_equals "$T/untar"

if command -v rsync >/dev/null; then
	rsync -a "$MNT/" "$T/rsync/"
	check "rsync" tree_equals "$T/rsync"
	rsync -a --checksum --itemize-changes "$MNT/" "$T/rsync/" >"$T/changes"
	equal "a second rsync finds nothing to do" "$(cat "$T/changes")" ""
else
	skip "rsync" "there is no rsync"
	skip "a second rsync finds nothing to do" "there is no rsync"
fi

all_at_once() {
	drop_pages "$file"
	readers=
	for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
		rank=$((i % 4))
		cmp "$MNT/rank_$rank/checkpoint_$rank.ckpt" \
			"$T/expected/rank_$rank/checkpoint_$rank.ckpt" &
		readers="$readers $!"
	done
	for reader in $readers; do
		wait "$reader" || return 1
	done
}
check "twelve processes at once" all_at_once
mount_stop

mount_start --src-strategy "$T/source.ckpt" --dst-strategy none || finish
equal "strategy none: one rank" "$(ls "$MNT")" rank_0
check "strategy none: whole tensors" cmp "$MNT/rank_0/checkpoint_0.ckpt" \
	"$T/whole/rank_0/checkpoint_0.ckpt"
mount_stop

# And back: from one card to four.
SRC=$T/whole
mount_start --src-strategy none --dst-strategy "$T/wanted.ckpt" || finish
check "from one card to four" tree_equals "$MNT"
mount_stop

SRC=$T/source
# shellcheck disable=SC2046
mount_start $(strategies) -o max_read=4096,max_threads=2,clone_fd || finish
check "with requests of one page" cmp "$file" "$reference"
mount_stop
finish
