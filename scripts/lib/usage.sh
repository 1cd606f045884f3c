# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# For scripts with options. Source this file after lib.sh.

# usage: print the comment at the head of the script, and exit.
usage() {
	sed -n '3,/^[^#]/s/^# \{0,1\}//p' "$0" >&2
	exit 2
}
