# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# The User Mode Linux lane. scripts/guest sources this file, and both share
# variables.
# shellcheck disable=SC2034,SC2154

# lane_prepare: get the cache entries, and set LOWERS to the folders to mount
# over the root (the first is on top).
lane_prepare() {
	if [ -n "$built" ]; then
		kernel=$built
	else
		cache_get kernel "$lane"
	fi
	LOWERS=("$run/stage" "$kernel/modules")
	ctl_source=$ctl
	share_source=$share
	boot_time=60
	[ -n "$debug" ] || return 0
	boot_time=120
	# Free objects in the allocator's caches keep old pointers, which hide
	# leaks from kmemleak. Consistency checks (F) switch these caches off.
	# Red zones and poisoning do not work with KASAN here.
	append+=(slab_debug=F)
}

# UML's memory is a file. /dev/shm is the best place, if it is large enough.
uml_memory_dir() {
	local free
	free=$(df --output=avail -k /dev/shm 2>/dev/null | tail -n 1) || free=0
	if [ "$free" -gt $((mem * 1024)) ]; then
		printf '/dev/shm\n'
	else
		printf '%s\n' "$run"
	fi
}

# lane_failed: a second boot would not help.
lane_failed() {
	false
}

# lane_boot: run the guest until it ends. The console is the log.
lane_boot() {
	mkdir -p "$run/uml"
	contain timeout -s KILL "$limit" env -i PATH=/usr/bin:/bin HOME="$run/uml" \
		TMPDIR="$(uml_memory_dir)" \
		"$kernel/linux" mem="${mem}M" seccomp=on ncpus="$cpus" \
		root=/dev/root rootfstype=hostfs rootflags="$root/root" ro \
		init=/usr/sbin/guest-boot guest_ctl="$ctl" uml_dir="$run/uml" \
		umid=guest con=null con0=null,fd:1 ignore_loglevel \
		panic=-1 kunit.enable=1 "${append[@]}" >"$run/console" 2>&1 </dev/null
}
