# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# The guests of scripts/two-guests, for its groups, after across.d/lib.sh. A guest is host a
# or b. Guests are numbered in the order of their boots, for the names of their logs.
# shellcheck disable=SC2034,SC2154  # shared with scripts/two-guests and across.d/lib.sh

boots=0
# Of each host: the process of scripts/guest, the name of its files, and the objects that its
# device had in the beginning.
declare -A guest_pid=() guest_name=() guest_objects=()

other_host() {
	case $1 in a) echo b ;; b) echo a ;; esac
}

# guest_boot HOST: begin to boot it. The netdev of each guest sends to the socket of the other
# one. Frames to a guest that is not there are lost, as on a cable.
guest_boot() {
	local name share wire
	boots=$((boots + 1))
	name=$1$boots
	share=$work/$name
	mkdir "$share"
	cp -r "$KEEL_SCRIPTS"/{consumers.d,inside/command-server} "$share/"
	cp "$KEEL_SCRIPTS/two-guests.d/nvme-steps.sh" "$share/"
	wire="dgram,id=wire,local.type=unix,local.path=$work/wire.$1,remote.type=unix"
	wire+=",remote.path=$work/wire.$(other_host "$1")"
	say "guest $1 boots"
	setpriv --pdeathsig TERM -- "$KEEL_SCRIPTS/guest" --lane qemu --root consumers-root \
		--param lower=all --param default_device=0 --timeout 7200 \
		--qemu -netdev --qemu "$wire" --qemu -device \
		--qemu "virtio-net-pci,netdev=wire,mac=02:00:00:00:09:0$([ "$1" = a ] && echo 1 || echo 2)" \
		--dmesg "$results/two-guests-$name.dmesg" "${options[@]}" \
		--share "$share" -- /share/command-server >"$work/$name.log" 2>&1 </dev/null &
	guest_pid[$1]=$!
	guest_name[$1]=$name
}

# guest_wait HOST: wait until it is up, and its devices are there.
guest_wait() {
	local share=$work/${guest_name[$1]}
	until [ -e "$share/ready" ]; do
		kill -0 "${guest_pid[$1]}" 2>/dev/null || {
			cat "$work/${guest_name[$1]}.log" >&2
			die "guest $1 does not boot"
		}
		sleep 0.5
	done
	on "$1" modprobe -a virtio_net "rdma_$lower"
	on "$1" ip link set eth0 name "keel_$1" mtu 5000
	host_up "$1"
	guest_objects[$1]=$(objects_of "$1")
	say "guest $1 is up"
}

# Waits interruptibly.
on() {
	local pid
	begin "$@"
	wait "$pid"
}

begin() {
	local host=$1
	shift
	"$KEEL_SCRIPTS/lib/on-guest" "${guest_pid[$host]}" "$work/${guest_name[$host]}" "$@" &
	pid=$!
}

kernel_of() {
	on "$@"
}

# objects_of HOST: its object tree without counters. The kernel's own objects stay.
objects_of() {
	on "$1" sed -E 's/\b(refs|added|taken) [0-9]+/\1/g' \
		"/sys/kernel/debug/keel/keel_$1/objects"
}

# no_objects HOST: nothing is left of the programs that have used the device.
no_objects() {
	local i left
	for ((i = 0; i < 75; i++)); do
		left=$(objects_of "$1")
		[ "$left" != "${guest_objects[$1]}" ] || return 0
		sleep 0.2
	done
	diff <(echo "${guest_objects[$1]}") - <<<"$left"
}

# reported: print what a kernel has reported.
reported() {
	grep -E -f <(sed '/^#/d' "$KEEL_SCRIPTS/config/kernel-reports")
}

# no_reports HOST: its kernel has reported nothing since keel was loaded.
no_reports() {
	local log
	log=$(on "$1" dmesg)
	# The ring of the kernel may have lost the first lines.
	grep -q 'keel-guest: ready' <<<"$log" || {
		echo "the log of guest $1 has lost its beginning"
		return 1
	}
	! sed -n '/keel-guest: ready/,$p' <<<"$log" | reported
}

# qemu_of PID: print the process of QEMU below a process.
qemu_of() {
	local child
	for child in $(grep -lxE "PPid:[[:space:]]+$1" /proc/[0-9]*/status 2>/dev/null); do
		child=${child//[!0-9]/}
		case $(cat "/proc/$child/comm" 2>/dev/null) in
		qemu-system*)
			echo "$child"
			return
			;;
		esac
		! qemu_of "$child" || return 0
	done
	return 1
}

# guest_wait_end HOST: another process may get the number of this one afterwards.
guest_wait_end() {
	local rc=0
	wait "${guest_pid[$1]}" || rc=$?
	unset "guest_pid[$1]"
	return "$rc"
}

# guest_kill HOST: kill QEMU. The log of the guest must have no report.
guest_kill() {
	local qemu log=$results/two-guests-${guest_name[$1]}.dmesg
	qemu=$(qemu_of "${guest_pid[$1]}") || return
	kill -KILL "$qemu"
	guest_wait_end "$1" || :
	grep -q 'keel-guest: ready' "$log" || return
	! sed -n '/keel-guest: ready/,$p' "$log" | reported
}

# guest_stop HOST: end it, and judge it.
guest_stop() {
	local title="guest $1: no report of the kernel, no object is left, and keel unloads"
	ids=DEV-1 try "$title" guest_stopped "$1"
}

guest_stopped() {
	local rc=0
	no_objects "$1" || rc=1
	: >"$work/${guest_name[$1]}/stop"
	guest_wait_end "$1" || rc=$?
	cat "$work/${guest_name[$1]}.log"
	return "$rc"
}

# The guests remove their own files, and end with this script: see guest_boot.
guests_end() {
	local host
	for host in "${!guest_pid[@]}"; do
		kill "${guest_pid[$host]}" 2>/dev/null || :
		wait "${guest_pid[$host]}" 2>/dev/null || :
	done
}
