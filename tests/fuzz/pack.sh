#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Packs fuzz/corpus/NAME.tar.gz again: of the inputs that it holds and those of
# the directories the smallest ones that together reach all that they reach.
#
#   fuzz/pack.sh BUILD/tests/fuzz/NAME.fuzz DIRECTORY...
set -eu

program=$1
name=$(basename "$program" .fuzz)
pack=$(dirname "$0")/corpus/$name.tar.gz
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/old" "$work/new"
[ ! -f "$pack" ] || tar -C "$work/old" -xzf "$pack"
TMPDIR=$work "$program" -merge=1 -malloc_limit_mb=64 "$work/new" "$work/old" \
	"$@" 2>"$work/log" || { tail -n 20 "$work/log" >&2; exit 1; }
mkdir -p "$(dirname "$pack")"
tar -C "$work/new" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner \
	--mode=0644 -cf - . | gzip -9n >"$pack"
