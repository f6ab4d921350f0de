#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every source file says under which licence it is, and the licence is there.
set -u
top=${top_srcdir:-../..}
[ -f "$top/configure.ac" ] || {
	echo "Bail out! $top is not the source"
	exit 1
}

# report RESULT NUMBER DESCRIPTION
report() {
	if [ -z "$1" ]; then
		echo "ok $2 - $3"
	else
		echo "not ok $2 - $3"
		echo "$1" | sed 's/^/# /'
	fi
}

echo 1..2
# What is generated says what its generator wants.
report "$(cd "$top" && find src include proto tables tests man python mount-helpers \
	-type f \
	\( -name '*.[ch]' -o -name '*.py' -o -name '*.sh' -o -name '*.mk' -o \
	-name '*.am' -o -name '*.proto' -o -name '*.rules' -o -name '*.[1358]' \) ! -name '*.pb-c.[ch]' \
	-exec grep -L 'SPDX-License-Identifier: Apache-2\.0$\|SPDX-License-Identifier: Apache-2\.0 \*/$' {} +)" \
	1 "every file has its SPDX line"
if grep -q 'Version 2.0, January 2004' "$top/LICENSE"; then
	report "" 2 "the licence is there"
else
	report "LICENSE is another one, or missing" 2 "the licence is there"
fi
