#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The types of the Python module are right, as pyproject.toml has them checked.
set -u
cd "${top_srcdir:-../..}" || exit 1
[ -f pyproject.toml ] || {
	echo "Bail out! $PWD is not the source"
	exit 1
}
command -v mypy >/dev/null || {
	echo "1..0 # SKIP there is no mypy"
	exit 0
}
echo 1..1
if said=$(mypy --cache-dir=/dev/null 2>&1); then
	echo "ok 1 - $said"
else
	echo "not ok 1 - mypy --strict"
	echo "$said" | sed 's/^/# /'
fi
