#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Debian unstable, which changes by the day: what fails there is no failure of ours yet.
# shellcheck disable=SC1091,SC2034 # of lib/suite.sh
set -eu
fresh_suite=sid
fresh_todo="unstable changes by the day"
. "$(dirname "$0")/../lib/suite.sh"
