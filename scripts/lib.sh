# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# Helpers shared by the scripts in this folder. Source this file. It only defines
# functions and a few variables.

KEEL_TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
KEEL_SCRIPTS=$KEEL_TOP/scripts
KEEL_CACHE=${KEEL_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/keel}
KEEL_JOBS=${KEEL_JOBS:-$(nproc)}
KEEL_ME=$(basename "$0")
# Exit status of die
KEEL_FAIL=1
export KEEL_TOP KEEL_SCRIPTS KEEL_CACHE KEEL_JOBS

say() {
	printf '%s: %s\n' "$KEEL_ME" "$*" >&2
}

# die ERROR [ADVICE...]: print the error and how to fix it, and exit.
die() {
	local line
	for line in "$@"; do
		say "$line"
	done
	exit "$KEEL_FAIL"
}

# chroot, mounts and namespaces need root. If the script does not run as root, it
# restarts under sudo. Call: need_root "$@"
need_root() {
	[ "$(id -u)" -ne 0 ] || return 0
	command -v sudo >/dev/null ||
		die "this script needs root, and sudo is not installed" \
		    "run it as root"
	exec sudo KEEL_CACHE="$KEEL_CACHE" KEEL_JOBS="$KEEL_JOBS" \
		${KEEL_MIRROR:+"KEEL_MIRROR=$KEEL_MIRROR"} \
		${KCFLAGS:+"KCFLAGS=$KCFLAGS"} \
		${KEEL_COVERAGE:+"KEEL_COVERAGE=$KEEL_COVERAGE"} "$0" "$@"
}

# need_deps: install missing packages. Scripts that this script calls skip it.
need_deps() {
	[ -z "${KEEL_DEPS:-}" ] || return 0
	"$KEEL_SCRIPTS/deps" || exit "$KEEL_FAIL"
	export KEEL_DEPS=1
}

# --- processes and temporary files that leave nothing behind ---------------

KEEL_CLEAN_DIRS=()
KEEL_CHILD=
KEEL_CHILD_SIGNAL=
KEEL_HELPERS=()

# Set up the traps. Bash runs a trap only between commands. So slow commands must
# run through contain or step, which wait interruptibly.
clean_at_exit() {
	trap keel_cleanup EXIT
	trap 'exit 129' HUP
	trap 'exit 130' INT
	trap 'exit 143' TERM
}

keel_cleanup() {
	trap '' HUP INT TERM
	if [ -n "$KEEL_CHILD" ]; then
		kill -"$KEEL_CHILD_SIGNAL" "$KEEL_CHILD" 2>/dev/null || :
		wait "$KEEL_CHILD" 2>/dev/null || :
	fi
	[ ${#KEEL_HELPERS[@]} -eq 0 ] || kill "${KEEL_HELPERS[@]}" 2>/dev/null || :
	local d
	for d in "${KEEL_CLEAN_DIRS[@]}"; do
		# A killed process may still write a file.
		rm -rf --one-file-system -- "$d" 2>/dev/null || {
			sleep 0.3
			rm -rf --one-file-system -- "$d"
		}
	done
}

# temp_dir VAR: create a directory that is removed at exit. It takes a variable
# name, because a subshell $(...) would lose the list of directories to remove.
# It also removes directories of killed runs, which have no lock. (A process id
# in the name is not unique, because runs have different process namespaces.)
temp_dir() {
	local -n out=$1
	local old fd
	while read -r old; do
		flock -n -x "$old" rm -rf --one-file-system -- "$old" || :
	done < <(find "${TMPDIR:-/tmp}" -maxdepth 1 -name 'keel-tmp.*' -type d \
		-mmin +1 2>/dev/null)
	out=$(mktemp -d "${TMPDIR:-/tmp}/keel-tmp.$$.XXXXXX") ||
		die "cannot create a directory in ${TMPDIR:-/tmp}" \
		    "set TMPDIR to a writable directory"
	KEEL_CLEAN_DIRS+=("$out")
	exec {fd}<"$out"
	flock -s "$fd"
}

# spawn SIGNAL COMMAND...: run a command and wait for it; a trap can interrupt
# the wait. The cleanup sends SIGNAL to the command. The kernel sends SIGNAL to
# the command if this script is killed.
spawn() {
	local rc=0
	KEEL_CHILD_SIGNAL=$1
	shift
	setpriv --pdeathsig "$KEEL_CHILD_SIGNAL" -- "$@" <&0 &
	KEEL_CHILD=$!
	wait "$KEEL_CHILD" || rc=$?
	KEEL_CHILD=
	return "$rc"
}

# contain COMMAND...: run a command as the first process of new process and mount
# namespaces. When the command ends, the kernel kills its descendants and removes
# its mounts. The command ends with this script, even after SIGKILL.
contain() {
	spawn KILL unshare --mount --propagation private --pid --fork \
		--kill-child=KILL --mount-proc -- "$@"
}

# step SCRIPT ARGUMENT...: run another script of this folder. The other script
# cleans up after itself.
step() {
	local script=$1
	shift
	spawn TERM "$KEEL_SCRIPTS/$script" "$@"
}

# with_ticker LOGFILE COMMAND...: run a command or function, and print the end of
# its log every 15 seconds.
with_ticker() {
	local rc=0 ticker pid others=()
	ticker "$1" &
	ticker=$!
	KEEL_HELPERS+=("$ticker")
	shift
	"$@" || rc=$?
	kill "$ticker" 2>/dev/null || :
	wait "$ticker" 2>/dev/null || :
	# Another process may have this number soon.
	for pid in "${KEEL_HELPERS[@]}"; do
		[ "$pid" = "$ticker" ] || others+=("$pid")
	done
	KEEL_HELPERS=("${others[@]}")
	return "$rc"
}

# quietly LOGFILE COMMAND...: run a command contained with all output in a file,
# print its progress every 15 seconds, and print the end of the file on failure.
quietly() {
	local log=$1 rc=0
	: >"$log"
	with_ticker "$log" contained "$@" || rc=$?
	[ "$rc" -eq 0 ] || tail -n 60 "$log" >&2
	return "$rc"
}

contained() {
	local log=$1
	shift
	contain "$@" >>"$log" 2>&1 </dev/null
}

# Uses a read with a timeout as clock, because a sleep would outlive the script.
ticker() {
	local never n=0
	trap - EXIT HUP INT TERM
	exec {never}<> <(:)
	while kill -0 $$ 2>/dev/null; do
		read -rt 3 -u "$never" || :
		n=$((n + 1))
		[ $((n % 5)) -ne 0 ] ||
			say "  ... $(tail -n 1 "$1" | tr -d '\r' | cut -c 1-90)"
	done
}

# in_root ROOT [--bind SRC:DST | --ro SRC:DST]... -- COMMAND...
# Run a command in the Debian root. The root is read-only there and /tmp is
# private, so any number of commands can run at once.
in_root() {
	contain bash "$KEEL_SCRIPTS/lib/enter-root" "$@"
}

# build_root LANE: print the cache entry of the root with the kernel's compiler.
build_root() {
	case $1 in
	qemu-6.1 | arm64-*) echo compilers ;;
	*) echo rootfs ;;
	esac
}

# userland_of ARCH: set the variables of the userland of an architecture:
#   USERLAND    end of the names of its folders in the cache
#   BUILD_ROOT  cache entry with the root in which its programs are built
#   TRIPLET     its name in the paths of libraries and in the names of compilers
# shellcheck disable=SC2034  # guest, build-provider and build-tests read them
userland_of() {
	case $1 in
	amd64) USERLAND='' BUILD_ROOT=rootfs TRIPLET=x86_64-linux-gnu ;;
	arm64) USERLAND=-arm64 BUILD_ROOT=compilers TRIPLET=aarch64-linux-gnu ;;
	*) die "there is no userland for the architecture $1" "use amd64 or arm64" ;;
	esac
}

# module_sources DIR: copy the sources of the module to DIR, without build
# artifacts.
module_sources() {
	rm -rf "$1"
	mkdir -p "$1"
	rsync -a "$KEEL_TOP"/{Kbuild,VERSION,drivers,include,uapi,kunit} \
		--exclude='*.o' --exclude='.*.cmd' --exclude='*.ko' \
		--exclude='*.mod*' "$1/"
}

# kernel_make LANE KERNEL ROOT SOURCE ARGUMENT...: build the modules of SOURCE
# for a Debian kernel. KERNEL and ROOT are paths of cache entries.
kernel_make() {
	local lane=$1 kernel=$2 root=$3 source=$4 cross=()
	shift 4
	case $lane in
	arm64-*) cross=(ARCH=arm64 CROSS_COMPILE=aarch64-linux-gnu-) ;;
	esac
	in_root "$root/root" --ro "$kernel/headers:/mnt/kernel" \
		--bind "$source:/mnt/src" -- \
		make -C "/mnt/kernel/usr/src/$(cat "$kernel/headers-name")" \
		M=/mnt/src -j "$KEEL_JOBS" "${cross[@]}" "$@" modules
}

# Remarks of the kernel's makefiles that do not concern a source file: a compiler
# that differs from the kernel's, and the missing vmlinux of header packages.
KEEL_MAKE_REMARKS='^warning: the compiler differs|^  The kernel was built by|'
KEEL_MAKE_REMARKS+='^  You are using|BTF generation|'
KEEL_MAKE_REMARKS+='^make(\[[0-9]+\])?: (Entering|Leaving)'

# Tests that are fast under emulation, for scripts/inside/smoke-run.
# shellcheck disable=SC2034  # test and matrix read it
KEEL_SMOKE=(pd td parent xrcd dm_copy dm_map traffic xrc_qp rds
	isolation_{recv,send,rdma,server,removal,many_stalls,asleep,charge,wait,life}
	isolation_{back,shared,starved,worker,orphans})

# --- the kernel of User Mode Linux -----------------------------------------

# keel-run needs these patches, all but alarm, which loses no alarm on a busy machine, and
# ipi, which makes every guest faster.
# shellcheck disable=SC2034  # cache, bugs and upstream read it
KEEL_UML_PATCHES=("$KEEL_SCRIPTS"/config/uml-{memfd,nodir,socket,close-range,orphan,alarm,ipi}.patch)

# copy_patched SOURCE DIR PATCH...: copy the files of SOURCE that the patches
# change to DIR, unchanged.
copy_patched() {
	local source=$1 dir=$2 files
	shift 2
	mkdir -p "$dir"
	mapfile -t files < <(sed -n 's:^+++ b/\([^[:space:]]*\).*:\1:p' "$@" | sort -u)
	(cd "$source" && cp --parents "${files[@]}" "$dir/")
}

# patch_files SOURCE DIR PATCH...: copy these files, and patch them.
patch_files() {
	local dir=$2 part
	copy_patched "$@"
	shift 2
	for part; do
		patch -d "$dir" -p1 <"$part"
	done
}

# --- cache -----------------------------------------------------------------

# hash_of FILE-OR-STRING...: print one key for all arguments.
hash_of() {
	local x
	for x in "$@"; do
		if [ -f "$x" ]; then cat -- "$x"; else printf '%s\n' "$x"; fi
	done | sha256sum | cut -c 1-16
}

# hash_tree DIR...: print a key that depends on the names, sizes and modification
# times of all files below. It takes a few milliseconds, and runs for each guest.
hash_tree() {
	find "$@" \( -name .git -o -name __pycache__ \) -prune -o -type f -printf '%p %T@ %s\n' |
		LC_ALL=C sort | sha256sum | cut -c 1-16
}

# cache_get VAR ENTRY: set VAR to the path of an entry. Build a stale entry
# first.
cache_get() {
	local -n path=$1
	path=$("$KEEL_SCRIPTS/cache" --path "$2") || exit "$KEEL_FAIL"
	[ -e "$path/.complete" ] || step cache "$2" >/dev/null || exit "$KEEL_FAIL"
	hold "$path"
}

# hold DIR: keep a cache entry from being pruned while this process lives.
hold() {
	local fd
	exec {fd}<"$1" || die "$1 vanished" "run this again"
	flock -s "$fd"
	[ -e "$1/.complete" ] || die "$1 was pruned just now" "run this again"
}

# build_dir NAME: print the folder for the objects of this checkout, which is
# outside the checkout. Remove the folders of deleted checkouts.
build_dir() {
	local dir top old
	dir=$KEEL_CACHE/build/$1-$(hash_of "$KEEL_TOP")
	mkdir -p "$dir" || exit 1
	printf '%s\n' "$KEEL_TOP" >"$dir/checkout"
	for old in "$KEEL_CACHE"/build/*/checkout; do
		# Another run may remove the file concurrently.
		read -r top 2>/dev/null <"$old" || continue
		[ -d "$top" ] || rm -rf -- "${old%/checkout}"
	done
	printf '%s\n' "$dir"
}

# lock FILE: take an exclusive lock until this process ends.
lock() {
	local fd
	mkdir -p "$(dirname "$1")"
	exec {fd}>"$1"
	flock -n "$fd" && return
	say "waiting for another run that holds $1"
	flock "$fd"
}
