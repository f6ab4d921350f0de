#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Debian 11: libfuse 3.10, curl 7.74, OpenSSL 1.1, autoconf 2.69, gcc 10; Ubuntu 20.04 and
# openEuler 22.03 are of that age.
# shellcheck disable=SC1091,SC2034 # of lib/suite.sh
set -eu
fresh_suite=bullseye
. "$(dirname "$0")/../lib/suite.sh"
