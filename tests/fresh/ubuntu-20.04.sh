#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Ubuntu 20.04: libfuse 3.9, curl 7.68, OpenSSL 1.1, autoconf 2.69, gcc 9, Python 3.8.
# shellcheck disable=SC1091,SC2034 # of lib/suite.sh
set -eu
fresh_suite=focal
. "$(dirname "$0")/../lib/suite.sh"
