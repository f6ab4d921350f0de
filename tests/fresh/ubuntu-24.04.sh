#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Ubuntu 24.04: libfuse 3.14, curl 8.5, gcc 13, Python 3.12.
# shellcheck disable=SC1091,SC2034 # of lib/suite.sh
set -eu
fresh_suite=noble
. "$(dirname "$0")/../lib/suite.sh"
