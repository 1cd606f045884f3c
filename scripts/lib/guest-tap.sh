# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# For parts of "make torture" that run test programs in a guest; sourced after lib.sh.

# guest_tap FILE OPTION...: run scripts/guest with these options, and print the TAP of
# its programs without their plans: a caller prints that of all. FILE gets a copy.
# Returns the exit status of the guest.
guest_tap() {
	local tap=$1 printer rc=0
	shift
	# No pipeline: a signal must reach the guest at once.
	exec 3> >(sed -u '/^1\.\./d' | tee "$tap")
	printer=$!
	step guest "$@" >&3 || rc=$?
	exec 3>&-
	wait "$printer"
	return "$rc"
}

# count_cases FILE: print the number of results.
count_cases() {
	grep -cE '^(not )?ok ' "$1" || :
}
