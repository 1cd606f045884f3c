# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# For scripts that measure in a guest; sourced after lib.sh.

# The folder for the guest, and the exit status of the script.
share='' rc=0

# bench_prepare FILE...: put the programs of bench/, and these files, into $share.
bench_prepare() {
	local root=
	clean_at_exit
	need_deps
	temp_dir share
	cache_get root rootfs
	quietly "$share/log" "$KEEL_SCRIPTS/lib/enter-root" "$root/root" \
		--ro "$KEEL_TOP/bench:/mnt/src" --bind "$share:/mnt/out" -- \
		make -s -C /mnt/src OUT=/mnt/out ||
		die "bench/ does not build" "the compiler output is above"
	cp "$@" "$share/"
}

# bench_guest OPTION... -- COMMAND...: run the command in a guest of scripts/guest. It leaves
# its numbers in /share/numbers.json.
bench_guest() {
	step guest --share "$share" "$@" >&2 || rc=$?
	[ -s "$share/numbers.json" ] ||
		die "nothing was measured; the guest ended with status $rc" \
		    "the error is above"
}

# bench_report OUT [--chart] COMMAND...: save the numbers in OUT, and print and save the table
# that the command makes of them. --chart: it makes a chart, too.
bench_report() {
	local out=$1 what='table and numbers' chart=()
	shift
	if [ "$1" = --chart ]; then
		shift
		what='table, numbers and chart' chart=("$out/chart.svg")
	fi
	mkdir -p "$out"
	cp "$share/numbers.json" "$out/"
	"$@" "$out/numbers.json" "${chart[@]}" | tee "$out/table.txt"
	say "$what are in $out"
}
