# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# The QEMU lane of scripts/guest, which sources this and shares its variables.
# shellcheck disable=SC2034,SC2154

lane_prepare() {
	cache_get kernel "$lane"
	LOWERS=(stage modules)
	ctl_source=ctl
	share_source=${share:+share}
	find_accelerator
	# An emulated processor takes its time.
	boot_time=120
}

# KVM if it works here. A device node does not say so: on some machines a guest
# hangs under it, so let a kernel boot and switch off. The answer holds until
# the machine is booted again.
find_accelerator() {
	local answer
	answer=$KEEL_CACHE/kvm-$(cat /proc/sys/kernel/random/boot_id)
	if [ ! -s "$answer" ]; then
		rm -f "$KEEL_CACHE"/kvm-*
		echo tcg,thread=multi >"$answer.$$"
		if [ -w /dev/kvm ]; then
			say "trying for at most 15 s whether KVM works here"
			if contain timeout -s KILL 15 qemu-system-x86_64 -accel kvm \
				-cpu host -m 256 -nodefaults -display none -no-reboot \
				-kernel "$kernel/vmlinuz" -initrd "$kernel/initrd" \
				-append "panic=-1 rdinit=/bin/busybox -- poweroff -f" \
				>/dev/null 2>&1 </dev/null
			then
				echo kvm >"$answer.$$"
			fi
		fi
		mv "$answer.$$" "$answer"
	fi
	accel=$(cat "$answer")
}

# lane_boot: run the guest to its end. The serial port is the log.
lane_boot() {
	local shares=()
	# FOLDER TAG [OPTION]
	share_9p() {
		shares+=(-virtfs "local,path=$1,mount_tag=$2,security_model=none,multidevs=remap${3:-}")
	}
	share_9p "$root/root" root ,readonly=on
	share_9p "$run/stage" stage ,readonly=on
	share_9p "$kernel/modules" modules ,readonly=on
	share_9p "$ctl" ctl
	[ -z "$share" ] || share_9p "$share" share
	contain timeout -s KILL "$limit" qemu-system-x86_64 \
		-accel "$accel" -cpu max -smp "$cpus" -m "$mem" \
		-nodefaults -display none -no-reboot -serial "file:$run/console" \
		-kernel "$kernel/vmlinuz" -initrd "$kernel/initrd" "${shares[@]}" \
		-append "console=ttyS0 ignore_loglevel panic=-1 no_timer_check guest_ctl=ctl ${append[*]}" \
		>"$run/qemu.log" 2>&1 </dev/null
	[ ! -s "$run/qemu.log" ] || cat "$run/qemu.log" >>"$run/console"
}
