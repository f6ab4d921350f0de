#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Debian 13: libfuse 3.17, curl 8.14, gcc 14.
# shellcheck disable=SC1091,SC2034 # of lib/suite.sh
set -eu
fresh_suite=trixie
. "$(dirname "$0")/../lib/suite.sh"
