# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# NVMe over RDMA: a target, and a host that connects to it. Source this file after lib.sh.
# shellcheck disable=SC2154  # the caller sets ADDRESS

nvmet=/sys/kernel/config/nvmet
port=$nvmet/ports/1
subsystem=$nvmet/subsystems/keel

# new_target [PARAMETER=VALUE...]: a subsystem on a RAM disk, and a port for RDMA.
new_target() {
	modprobe brd rd_nr=1 rd_size=262144
	modprobe nvmet-rdma "$@"
	# A module that was still there ignores the parameter.
	[ $# -eq 0 ] || [ "$(</sys/module/nvmet_rdma/parameters/use_srq)" = Y ]
	mkdir -p "$subsystem/namespaces/1" "$port"
	echo 1 >"$subsystem/attr_allow_any_host"
	echo /dev/ram0 >"$subsystem/namespaces/1/device_path"
	echo 1 >"$subsystem/namespaces/1/enable"
	echo rdma >"$port/addr_trtype"
	echo ipv4 >"$port/addr_adrfam"
	echo "$ADDRESS" >"$port/addr_traddr"
	echo 4420 >"$port/addr_trsvcid"
	echo 16384 >"$port/param_inline_data_size"
	ln -s "$subsystem" "$port/subsystems/keel"
}

# no_target: remove it, if it is there.
no_target() {
	rm -f "$port/subsystems/keel"
	[ ! -d "$port" ] || rmdir "$port"
	[ ! -d "$subsystem" ] || {
		echo 0 >"$subsystem/namespaces/1/enable"
		rmdir "$subsystem/namespaces/1" "$subsystem"
	}
}

state_is() {
	grep -qx "$1" /sys/class/nvme/nvme*/state
}

connect() {
	modprobe nvme-rdma
	nvme connect -t rdma -a "$ADDRESS" -s 4420 -n keel "$@"
	soon disk 'nvme*n1'
	soon state_is live
	nvme list-subsys | tee subsys
	grep -q "rdma traddr=$ADDRESS" subsys
}

disconnect() {
	nvme disconnect -n keel | tee disconnected
	grep -q 'disconnected 1 controller' disconnected
	not disk 'nvme*n1'
}
