#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# nvme-steps.sh STEP ARGUMENT...: run a step of the group "nvme" in a guest. ADDRESS is that of
# the target. consumers.d/nvme.sh has more steps.
# shellcheck disable=SC2034,SC2154
set -exuo pipefail
shopt -s extglob
CONSUMERS=/share/consumers.d KIND=keel
. $CONSUMERS/lib.sh
. $CONSUMERS/nvme.sh
cd /tmp

# qps_of DEVICE: print how many queue pairs of connections of rdma_cm a device has.
qps_of() {
	grep -c "^link $1/.* type RC .*comm \[rdma_cm\]" qps || :
}

# on_keel HOST: the connections are those of keel, and none is one of the device below.
on_keel() {
	rdma resource show qp | tee qps
	[ "$(qps_of "keel_$1")" -ge 2 ]
	[ "$(qps_of "low_$1")" -eq 0 ]
}

# place_of SIZE: print the options of dd for the blocks of this size, which have a place of
# their own on the disk. Small blocks take long.
place_of() {
	case $1 in
	512) echo bs=512 count=128 ;;
	4k) echo bs=4k count=256 seek=256 skip=256 ;;
	64k) echo bs=64k count=64 seek=64 skip=64 ;;
	1M) echo bs=1M count=8 seek=8 skip=8 ;;
	esac
}

write_blocks() {
	local place
	place=$(place_of "$1")
	dd if=/dev/urandom of="blocks.$1" bs="$1" "$(cut -d ' ' -f 2 <<<"$place")" status=none
	# shellcheck disable=SC2086  # options
	dd if="blocks.$1" of="$(disk 'nvme*n1')" ${place% skip=*} oflag=direct
}

same_blocks() {
	local place
	place=$(place_of "$1")
	# shellcheck disable=SC2086  # options
	dd if="$(disk 'nvme*n1')" of="again.$1" ${place/ seek=+([0-9])} iflag=direct
	[ "$(sha256sum <"again.$1")" = "$(sha256sum <"blocks.$1")" ]
}

verify() {
	fio_verify --filename="$(disk 'nvme*n1')" --bs="$1" --size=4m
}

# load STATUS [OPTION...]: run fio until it ends with this status. Its rate makes it run for 8 s
# at least.
load() {
	local LOAD_TIME=400
	rm -f loaded
	start_load --filename="$(disk 'nvme*n1')" --size=8m --io_size=24m --rate=3m "${@:2}"
	: >loaded
	load_ends "$1"
}

is_loaded() {
	[ -e loaded ]
}

# state_becomes STATE: wait for it. rdma_cm may take 80 s to give up an attempt to connect.
state_becomes() {
	local i
	for ((i = 0; i < 150; i++)); do
		! state_is "$1" || return 0
		sleep 1
	done
	return 1
} 2>/dev/null

device_goes() {
	timeout 60 rdma link delete keel_b
	not rdma link show keel_b/1
}

# The device below is added again, too: rdma_cm uses the first one that has the address. The
# port has lost its listener with the device.
device_comes() {
	rdma link delete low_b
	rdma link add keel_b type keel netdev keel_b
	rdma link add low_b type rxe netdev keel_b
	rm "$port/subsystems/keel"
	soon ln -s "$subsystem" "$port/subsystems/keel"
}

"$@"
