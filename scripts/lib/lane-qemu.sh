# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# The QEMU lanes, qemu and arm64. scripts/guest sources this file, and both share
# variables.
# shellcheck disable=SC2034,SC2154

lane_prepare() {
	cache_get kernel "$lane"
	LOWERS=(stage modules)
	ctl_source=ctl
	share_source=${share:+share}
	case $arch in
	amd64)
		machine=(qemu-system-x86_64 -cpu max)
		console=ttyS0
		find_accelerator
		# A clock that seems wrong on a busy machine is given up while the guest runs. Code is
		# patched then, which another emulated processor may execute: see lane_failed().
		[[ $accel != tcg* ]] || append+=(tsc=reliable)
		;;
	arm64)
		# The kernel signs pointers. The algorithm of the architecture is slow.
		machine=(qemu-system-aarch64 -machine virt -cpu 'max,pauth-impdef=on')
		console=ttyAMA0
		accel=tcg,thread=multi
		;;
	esac
	# An emulated processor boots slowly: beside other work, in two minutes.
	boot_time=${KEEL_BOOT_TIME:-300}
	local i
	bar_memory=()
	for i in "${!bars[@]}"; do
		add_bar "$i" "${bars[i]}"
	done
}

# add_bar NUMBER FILE[:SIZE]: add a PCI function with the file as its BAR.
add_bar() {
	local file=${2%:*} size=
	[ "$file" = "$2" ] || size=${2##*:}
	[ -n "$size" ] || size=$(stat -c %s -- "$file" 2>/dev/null) || size=64M
	size=$(numfmt --from=iec -- "$size") || usage
	# QEMU would abort without a useful message.
	if [ "$size" -lt 4096 ] || [ $((size & (size - 1))) -ne 0 ]; then
		say "--bar $2: a BAR has a power of two of bytes, 4096 at least, not $size"
		usage
	fi
	[ -e "$file" ] || truncate -s "$size" -- "$file" || usage
	if [ "$(stat -c %s -- "$file")" -ne "$size" ]; then
		say "--bar $2: the file has another size; remove the file, or omit SIZE"
		usage
	fi
	file=$(realpath -- "$file")
	bar_memory[$1]="memory-backend-file,share=on,size=$size,mem-path=$file"
	qemu_words+=(-object "${bar_memory[$1]},id=barmem$1"
		-device "ivshmem-plain,id=bar$1,memdev=barmem$1")
}

# Execute the plug and unplug commands of ctl/slots with the monitor of QEMU.
add_monitor() {
	mkfifo "$run/monitor.in" "$run/monitor.out"
	# Open both ends of the pipes, because opening one end would block.
	tail -q -c +1 -s 0.03 -f --pid $$ "$ctl/slots" |
		change_slots 1<>"$run/monitor.in" &
	KEEL_HELPERS+=($!)
	setpriv --pdeathsig KILL cat 0<>"$run/monitor.out" >"$run/monitor.log" &
	KEEL_HELPERS+=($!)
	qemu_words+=(-chardev "pipe,id=monitor,path=$run/monitor" -mon "chardev=monitor,mode=readline")
}

# QEMU cannot use a memory backend a second time. So each plug creates a new
# memory backend for the same file.
change_slots() {
	local verb slot n=0
	while read -r verb slot; do
		[ -n "${bar_memory[slot]:-}" ] || continue
		if [ "$verb" = unplug ]; then
			echo "device_del bar$slot"
			continue
		fi
		n=$((n + 1))
		echo "object_add ${bar_memory[slot]},id=barmem$slot.$n"
		echo "device_add ivshmem-plain,id=bar$slot,memdev=barmem$slot.$n"
	done
}

# Use KVM if it works. The device node is not enough, because guests hang under
# KVM on some machines. So boot a kernel that powers off. The result is valid
# until the next boot of the machine.
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

# lane_failed: if the kernel died or hung before init was ready, print how, and return 0.
# An emulated processor may execute code that another processor is patching ("Oops:
# int3"), or get no timer interrupts any more. keel cannot be the cause, because it is
# loaded later.
lane_failed() {
	if [ -e "$run/console.stuck" ]; then
		echo "no sign of init for $boot_time s"
		return
	fi
	[[ $accel = tcg* ]] && ! grep -q 'keel-guest: ready' "$run/console" &&
		grep -m 1 -E 'Oops: (int3|invalid opcode)' "$run/console"
}

# lane_boot: run the guest until it ends. The serial port is the log. tail prints
# the output of the command, and ends when the process of its --pid option has
# ended. The first boot of an emulated processor is given up if it hangs.
lane_boot() {
	local shares=() alive streams=() watch=()
	[[ $accel != tcg* ]] || [ -e "$run/console.failed" ] ||
		watch=("$KEEL_SCRIPTS/lib/watch-boot" "$run/console" "$boot_time")
	setpriv --pdeathsig KILL sleep infinity &
	alive=$!
	KEEL_HELPERS+=("$alive")
	setpriv --pdeathsig KILL tail -q -c +1 -s 0.03 -f --pid "$alive" "$ctl/out" &
	streams+=($!)
	setpriv --pdeathsig KILL tail -q -c +1 -s 0.03 -f --pid "$alive" "$ctl/err" >&2 &
	streams+=($!)
	# FOLDER TAG [OPTION]
	share_9p() {
		shares+=(-virtfs "local,path=$1,mount_tag=$2,security_model=none,multidevs=remap${3:-}")
	}
	share_9p "$root/root" root ,readonly=on
	share_9p "$run/stage" stage ,readonly=on
	share_9p "$kernel/modules" modules ,readonly=on
	share_9p "$ctl" ctl
	[ -z "$share" ] || share_9p "$share" share
	[ ${#bars[@]} -eq 0 ] || [ -p "$run/monitor.in" ] || add_monitor
	contain "${watch[@]}" timeout -s KILL "$limit" "${machine[@]}" \
		-accel "$accel" -smp "$cpus" -m "$mem" \
		-nodefaults -display none -no-reboot -serial "file:$run/console" \
		-kernel "$kernel/vmlinuz" -initrd "$kernel/initrd" "${shares[@]}" "${qemu_words[@]}" \
		-append "console=$console ignore_loglevel panic=-1 no_timer_check guest_ctl=ctl ${append[*]}" \
		>"$run/qemu.log" 2>&1 </dev/null || :
	kill "$alive"
	wait "$alive" "${streams[@]}" 2>/dev/null || :
	[ ! -s "$run/qemu.log" ] || cat "$run/qemu.log" >>"$run/console"
}
