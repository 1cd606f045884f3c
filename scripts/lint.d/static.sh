# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0
# The checks of scripts/lint that follow values or locks through the module: the
# kernel's semantic patches for Coccinelle, and the analyzer and the context analysis
# of clang.
# shellcheck disable=SC2154  # lint sets uml and build

# IGNORED scripts of the kernel: these two contain code in OCaml, for which Debian's
# Coccinelle needs a compiler, and the third makes patches only.
without_report='api/check_bq27xxx_data|null/badzero|api/kmalloc_objs'

# IGNORED: keel_ring_move() is entered and left with the lock held, and calls two
# functions between which it drops the lock. Some scripts name a function that the
# kernel no longer has, or match its calls without regard to the name.
ignored_cocci='^drivers/core/ring\.c:[0-9]+:.* (second|preceding) lock|^warning: line [0-9]+: should [a-z_]+ be a metavariable\?$'

# cocci FILE: run one of the kernel's scripts. It may name options of its own.
cocci() {
	local options
	options=$(sed -nE 's|^// *Options:||p' "$1" | tr '\n' ' ')
	# shellcheck disable=SC2086  # a list of words
	spatch -D report --no-show-diff --very-quiet --cocci-file "$1" $options \
		--macro-file "$cocci_macros" --dir drivers -I include -I uapi 2>&1 ||
		echo "$1: status $?"
}

# cocci_parse: name each line that Coccinelle cannot parse. It would not search the
# function that the line is in.
cocci_parse() {
	local said
	said=$(spatch --macro-file "$cocci_macros" --parse-c drivers 2>&1)
	grep -A 1 '^BAD:' <<<"$said" || :
	grep -qE '^nb good = [0-9]{5,},  nb bad = 0 ' <<<"$said" || {
		echo 'Coccinelle does not understand all files; see scripts/lint.d/coccinelle.h:'
		grep -E '^(NB total|nb good)' <<<"$said"
	}
}

check_coccinelle() {
	local all="$uml/build/scripts/coccinelle" list
	export cocci_macros="$KEEL_SCRIPTS/lint.d/coccinelle.h"
	mapfile -t list < <(cd "$all" && grep -rlw report . | sed 's:^\./::' |
		grep -vE "^($without_report)\.cocci$" | sort)
	# An empty list finds nothing.
	[ "${#list[@]}" -ge 60 ] || echo "only ${#list[@]} scripts in $all"
	fresh coccinelle
	cd "$build/coccinelle" || return
	# Coccinelle 1.1 does not understand two in a row.
	find . -type f -exec sed -i -E 's/ __free\([a-z_]+\)//' {} +
	# It does not understand annotations of locks at all.
	find . -type f -name '*.[ch]' -exec perl -0pi -e 's/\b__(?:must_hold(?:_shared)?|
		context_unsafe|(?:cond_)?acquires|releases|(?:pt_)?guarded_by)
		(\((?:[^()]|(?1))*\))//gx' {} +
	# Nor this declaration, even as a macro of coccinelle.h.
	find . -type f -name '*.c' -exec perl -0pi -e \
		's/\bDEFINE_PER_CPU\(([^,()]+), (\w+)\)/$1 $2/g' {} +
	cocci_parse
	export -f cocci
	printf '%s\0' "${list[@]/#/"$all/"}" |
		xargs -0 -n 1 -P "$KEEL_JOBS" bash -c 'cocci "$1"' cocci |
		grep -vE "$ignored_cocci" || :
}

# IGNORED: the analyzer does not know that
# - the cursors of a transfer end with it (copy.c);
# - PTR_ERR() of an error is not 0 (mr_dmabuf_bar.c);
# - a prefetch has two references (mr_odp.c);
# - a group has a member, so that a list without room gets none (mcast.c).
export ignored_analyzer='^drivers/(core/copy\.c:.*StackAddressEscape|memory/(mr_dmabuf_bar\.c:.*UndefinedBinary|mr_odp\.c:.*released memory)|transport/mcast\.c:.*variable .list.)'

# command_of CMD: print the command of a .cmd file of the clang build, without its
# outputs.
command_of() {
	local command
	command=$(sed -nE '1s/^savedcmd_[^ ]+ := (.*) -c -o [^ ]+ ([^ ]+\.c) *(;.*)?$/\1 \2/p' "$1")
	[ -n "$command" ] || echo "$1: holds no command" >&2
	sed -E 's/-Wp,-MMD,[^ ]+//' <<<"$command"
}

# each_command FUNCTION: call a function for each .cmd file of the clang build. With
# KEEL_LINT_FILE, which scripts/mutate sets: only for that of one source file, if an
# earlier run has compiled all files.
each_command() {
	local list file=${KEEL_LINT_FILE:-} cmd
	cmd=$(dirname "$file")/.$(basename "$file" .c).o.cmd
	if [[ $file == drivers/*.c ]] && [ -f "$build/clang/$cmd" ]; then
		cp "$file" "$build/clang/$file"
		cd "$build/clang" || return
		"$1" "$cmd" 2>&1
		return
	fi
	# Another check of this run may have compiled the sources as they are now.
	[[ $ran =~ \ (clang|context|analyzer)\  ]] || check_clang
	cd "$build/clang" || return
	mapfile -t list < <(find drivers -name '.*.o.cmd' | sort)
	[ "${#list[@]}" -ge 60 ] || echo "only ${#list[@]} commands in $build/clang"
	# shellcheck disable=SC2163  # the name of a function
	export -f command_of "$1"
	printf '%s\0' "${list[@]}" |
		xargs -0 -n 1 -P "$KEEL_JOBS" bash -c '"$0" "$1" 2>&1' "$1"
}

# analyze CMD: repeat a command as an analysis.
analyze() {
	local said rc=0
	said=$(eval "$(command_of "$1") --analyze --analyzer-output text \
		-Wno-unused-command-line-argument -o -" 2>&1) || rc=$?
	# A warning has lines of notes.
	awk '/: warning: / { ignored = $0 ~ ENVIRON["ignored_analyzer"] }
		!ignored && !/^[0-9]+ warnings? generated\.$/' <<<"$said" | sed '/^$/d'
	[ "$rc" -eq 0 ] || echo "$1: status $rc"
}

check_analyzer() {
	each_command analyze
}

# follow_locks CMD: repeat a command with the compiler and the options of context
# analysis.
follow_locks() {
	local command
	command=$(command_of "$1")
	# The other warnings of this compiler are new, and those of the check clang suffice.
	eval "$newer_clang/clang ${command#* } -fsyntax-only -Wno-everything $context" ||
		echo "$1: status $?"
}

check_context() {
	# The kernel's own options. They suppress remarks on most of its own headers.
	context=$(make -s -f - "srctree=$uml/build" 2>&1 <<-'EOF'
		include $(srctree)/scripts/Makefile.context-analysis
		print:; @echo '$(CFLAGS_CONTEXT_ANALYSIS)'
	EOF
	)
	[[ $context == *-Wthread-safety* ]] || echo "options of the kernel: $context"
	export context
	each_command follow_locks
}
