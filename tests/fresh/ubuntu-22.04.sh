#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Ubuntu 22.04: libfuse 3.10, curl 7.81, gcc 11, Python 3.10.
# shellcheck disable=SC1091,SC2034 # of lib/suite.sh
set -eu
fresh_suite=jammy
. "$(dirname "$0")/../lib/suite.sh"
