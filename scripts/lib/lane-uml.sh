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
	step build-run --launcher "$run/keel-run" || exit 99
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

# lane_failed: a second boot would not help.
lane_failed() {
	false
}

# lane_boot: run the guest until it ends. keel-run boots it, mounts its root and
# passes on the output; the command of keel-run is guest-run.
lane_boot() {
	local layer word words=()
	for layer in "${LOWERS[@]}"; do
		words+=(--layer "$layer")
	done
	for word in kunit.enable=1 "${append[@]}"; do
		words+=(--append "$word")
	done
	contain timeout -s KILL "$limit" env -i "$run/keel-run/keel-run" \
		--kernel "$kernel/linux" --kernel-log "$run/console" \
		--system "$root/root" "${words[@]}" --mem "${mem}M" --cpus "$cpus" --root -- \
		/bin/sh -c 'mount -t tmpfs -o mode=755 tmpfs /run && mkdir /run/ctl &&
			mount -t hostfs -o "hostfs=$1" none /run/ctl && exec /bin/bash /run/ctl/run' \
		guest "$ctl" </dev/null
}
