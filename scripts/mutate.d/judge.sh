# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# Part of scripts/mutate: run the parts on one mutant, and judge it. The functions use
# the variables of scripts/mutate.
# shellcheck disable=SC2154

# run_part PART LIMIT SUITE-OR-PROGRAM...: run a part with the build of the copy.
run_part() {
	local limit=$2 command=()
	local guest=("$copy/scripts/guest" --built "$boot" --timeout "$limit")
	local model=(/usr/lib/keel-tests/model/model --no-shrink --steps 5000)
	case $1 in
	orders)
		command=(bash -c 'python3 -B "$0" check | sed "s/^/not ok - /"
			exit "${PIPESTATUS[0]}"' "$copy/scripts/lib/litmus")
		;;
	locks) command=(env "KEEL_LINT_FILE=$file" "$copy/scripts/lint" context) ;;
	suite)
		command=("$copy/scripts/kunit" --built "$boot" --timeout "$limit" --suite "$3")
		;;
	kdebug) command=("$copy/scripts/kunit" --timeout "$limit") ;;
	kunit) command=("$copy/scripts/kunit" --built "$boot" --timeout "$limit") ;;
	torture) command=("$copy/scripts/torture.d/provider" --short) ;;
	model) command=("${guest[@]}" -- "${model[@]}") ;;
	near | e2e) command=("${guest[@]}" -- /usr/lib/keel-tests/run --stop "${@:3}") ;;
	debug)
		command=("$copy/scripts/guest" --debug --timeout "$limit" -- run --stop
			"${@:3}")
		;;
	bar) command=("$copy/scripts/bar-test" bytes refuse unplug export) ;;
	esac
	spawn TERM timeout -k 30 "$((limit + 180))" "${command[@]}" </dev/null
}

# time_file PART SUITE: print the file with the seconds that a part takes.
time_file() {
	echo "$base/$1-${2%\*}-$sources"
}

# baseline PART FILE: run a part without a bug, in all copies at once, as mutants
# run. A part that fails then would notice anything. The end-to-end tests did run:
# scripts/mutate.d/reach.
baseline() {
	local suite='' file
	case $1 in near | e2e | debug) return 0 ;; esac
	[ "$1" != suite ] || suite=$(suite_of "$2")
	file=$(time_file "$1" "$suite")
	[ ! -s "$file" ] || return 0
	say "$1 $suite: first without a bug"
	in_copies time_part "$1" "$suite" || die "$1 $suite fails without a bug" \
		"its output is in $file.*.log.*"
	sort -n "$file".*.seconds | tail -n 1 >"$file"
}

# without_users PART: does the part run no user processes? It fails only because of
# a bug. Other parts have limits in seconds, and may fail on a busy machine.
without_users() {
	case $1 in orders | locks | suite | kunit | kdebug) return 0 ;; *) return 1 ;; esac
}

# time_part PART NEAR: run a part in one copy, and write the seconds that it takes.
# One of three runs of a part with user processes must pass.
time_part() {
	local file start rc=0 run
	file=$(time_file "$@").$worker
	for run in 1 2 3; do
		start=$SECONDS rc=0
		run_part "$1" 1500 "$2" >"$file.log" 2>&1 || rc=$?
		[ "$rc" -ne 0 ] || break
		say "run $run, status $rc:"
		grep -E "$complaint|$too_late" "$file.log" >&2 || tail -n 20 "$file.log" >&2
		mv "$file.log" "$file.log.$run"
		! without_users "$1" || break
	done
	[ "$rc" -eq 0 ] || return "$rc"
	echo $((SECONDS - start)) >"$file.seconds"
}

# baselines: run each part that the mutants need without a bug.
baselines() {
	local file part parts rule
	while read -r _ rule file _ <&3; do
		mapfile -t parts < <(parts_of "$file" "$rule")
		for part in "${parts[@]}"; do
			baseline "$part" "$file"
		done
	done 3<"$out/order"
}

# Lines of a part that has noticed a bug, and of a part that stopped its guest.
complaint='^not ok|^Bail out|kernel report:|does not (un)?load|guest died'
too_late='did not end in time|was stopped after'

# remark LOG: print the first complaint of a part.
remark() {
	grep -m 1 -E "$complaint|$too_late" "$1" | cut -c 1-150 ||
		tail -n 1 "$1" | cut -c 1-150
}

# state_of PART STATUS LOG: print passed, noticed, or broken if the part has no
# result: a build failed, a guest did not start, the disk is full.
state_of() {
	case $1,$2 in
	*,0) echo passed ;;
	torture,124 | torture,137 | bar,124 | bar,137) echo noticed ;;
	*,124) grep -qE "$too_late" "$3" && echo noticed || echo broken ;;
	*,1 | *,2 | *,97 | *,98)
		# bar-test goes on after a guest that did not start.
		if grep -qE "$complaint" "$3" &&
			! { [ "$1" = bar ] && grep -q 'exit status 99' "$3"; }; then
			echo noticed
		else
			echo broken
		fi
		;;
	*) echo broken ;;
	esac
}

# result STATE PART SECONDS REMARK
result() {
	printf '%s\t%s\t%s\t%s\t%s\n' "$id" "$@" >>"$out/results"
	case $1 in
	noticed) set -- "noticed by $2 after $3 s: $4" ;;
	survived) set -- "SURVIVED $2, $3 s" ;;
	equivalent) set -- "the same code, not counted" ;;
	discarded) set -- "does not build, not counted" ;;
	unseen) set -- "no part can see it, not counted" ;;
	flaky) set -- "FLAKY, not counted: $2 failed once, and then passed: $4" ;;
	broken) set -- "NO RESULT of $2: $4" ;;
	esac
	echo "$id $rule $file:$line $function(): $1"
}

# attempt PART LOG [PROGRAM]: run a part with the mutant, or one program of it. Sets
# state.
attempt() {
	local rc=0 suite='' words=() limit
	case $1 in
	near | e2e | debug)
		read -ra words <"$out/$id.$1"
		limit=$((120 + 4 * words[0]))
		# The checkers are slow, and so is the boot of their kernel.
		[ "$1" != debug ] || limit=$((240 + 12 * words[0]))
		words=("${words[@]:1}")
		[ $# -lt 3 ] || words=("$3")
		;;
	*)
		[ "$1" != suite ] || suite=$(suite_of "$file")
		limit=$((120 + 4 * $(<"$(time_file "$1" "$suite")")))
		words=("$suite")
		;;
	esac
	run_part "$1" "$limit" "${words[@]}" >"$2" 2>&1 || rc=$?
	state=$(state_of "$1" "$rc" "$2")
}

# confirm PART LOG AGAIN: run a part with user processes once more, or only its program
# that failed according to LOG. Sets state to flaky if the result differs.
confirm() {
	local failed
	! without_users "$1" || return 0
	failed=$(grep -q '^not ok ' "$2" &&
		sed -nE 's/^# ([a-z0-9_]+) took [0-9]+ ms$/\1/p' "$2" | tail -n 1) || :
	attempt "$1" "$3" ${failed:+"$failed"}
	[ "$state" != passed ] || state=flaky
}

# build_mutant: build the mutant. Returns 1 with a result if no part needs to run.
build_mutant() {
	local log=$out/$id.build.log code
	if ! build "$file" >"$log" 2>&1; then
		if is_refused "$log"; then
			result discarded build $((SECONDS - start)) ""
		else
			result broken build $((SECONDS - start)) "$(tail -n 1 "$log")"
		fi
		return 1
	fi
	if ! code=$(code_of "$file"); then
		result broken build $((SECONDS - start)) "no object of $file"
		return 1
	fi
	[ "$code" = "${codes[$file]}" ] || return 0
	result equivalent build $((SECONDS - start)) ""
	return 1
}

# is_refused LOG: is an error of the compiler or linker in the file the cause?
is_refused() {
	# The provider is built in a tree of rdma-core.
	local name=${file/#provider\//providers/keel/}
	if grep -qE '\.[ch]:[0-9]+:([0-9]+:)? error: ' "$1"; then
		grep -qE "(^|[/ ])$name:[0-9]+" "$1"
	else
		grep -qE '^ERROR: modpost: |undefined reference to ' "$1"
	fi
}

# judge: plant the mutant, and run the parts until one notices it.
judge() {
	local part all=() start=$SECONDS log state built=
	mapfile -t all < <(parts_of "$file" "$rule")
	if [ ${#all[@]} -eq 0 ]; then
		result unseen none 0 ""
		return
	fi
	clean_boot
	cp --no-preserve=timestamps "$out/$id.c" "$copy/$file"
	for part in "${all[@]}"; do
		# No test program may reach the line.
		case $part in near | e2e | debug) [ -s "$out/$id.$part" ] || continue ;; esac
		# On some processors, the code has no trace of a barrier, or of a lock.
		if [[ $part != @(orders|locks) ]] && [ -z "$built" ]; then
			build_mutant || return 0
			built=1
		fi
		say "$id: $part"
		log=$out/$id.$part.log
		attempt "$part" "$log"
		[ "$state" != noticed ] || confirm "$part" "$log" "$out/$id.$part-2.log"
		[ "$state" != passed ] || continue
		result "$state" "$part" $((SECONDS - start)) "$(remark "$log")"
		return
	done
	result survived "${all[*]}" $((SECONDS - start)) ""
}

declare -A codes=()

# run_worker: judge the mutants that no other worker has claimed.
run_worker() {
	# The copy was built without a bug.
	while read -r _ _ file _ <&3; do
		codes[$file]=$(code_of "$file")
	done 3<"$out/order"
	while read -r id rule file line function <&3; do
		mkdir "$out/claim-$id" 2>/dev/null || continue
		cp "$copy/$file" "$boot/original"
		judge
		cp --no-preserve=timestamps "$boot/original" "$copy/$file"
	done 3<"$out/order"
}
