# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# Trials on a machine where keel is installed. The tests of the Debian packages
# source this file, and scripts/install-test does.
export LC_ALL=C.UTF-8

# soon COMMAND...: it succeeds within 60 seconds.
soon() {
	local i
	for ((i = 0; i < 600; i++)); do
		if "$@"; then return 0; fi
		sleep 0.1
	done
	echo "after 60 seconds still not: $*"
	return 1
}

listens() {
	ss -Hltn "sport = :$1" | grep -q .
}

# pair PORT OPTION...: run two pingpongs until both have ended.
pair() {
	local port=$1 server rc=0
	shift
	timeout 3000 ibv_rc_pingpong -d keel0 -g 0 -c -p "$port" "$@" &
	server=$!
	soon listens "$port" &&
		timeout 3000 ibv_rc_pingpong -d keel0 -g 0 -c -p "$port" "$@" 127.0.0.1 ||
		rc=1
	wait "$server" && return "$rc"
}

# Both sides report their 500 messages of 4 KiB in each direction.
pingpong() {
	local said
	said=$(pair 18515 -n 500) || return
	printf '%s\n' "$said"
	[ "$(grep -c '^4096000 bytes in ' <<<"$said")" = 2 ]
}

# built_for VERSION KERNEL: DKMS has built and installed the module.
built_for() {
	dkms status -m keel -v "$1" -k "$2" | grep -q "^keel/$1, $2, [^:]*: installed" &&
		[ -n "$(find "/usr/lib/modules/$2/updates/dkms" -name 'keel.ko*')" ]
}

# device_of DEVICE NETDEV: the device is there and has this netdev.
device_of() {
	rdma link show | grep -q "^link $1/1 .*netdev $2"
}

unit_is() {
	[ "$(systemctl is-active "$1")" = "$2" ]
}

link_unit() {
	ip link add eth9 type dummy && ip link set eth9 up &&
		systemctl start keel-link@eth9.service &&
		device_of keel-eth9 eth9 &&
		systemctl stop keel-link@eth9.service &&
		! device_of keel-eth9 eth9 &&
		ip link delete eth9
}

# An enabled unit starts when its netdev appears and stops when the netdev goes.
link_enabled() {
	systemctl enable keel-link@eth9.service &&
		ip link add eth9 type dummy &&
		soon device_of keel-eth9 eth9 &&
		ip link delete eth9 &&
		soon unit_is keel-link@eth9.service inactive
}

# The unit does not notice that the module was reloaded; a restart helps. The unit
# stays enabled: the purge of the package has to disable it.
link_again() {
	ip link add eth9 type dummy &&
		soon device_of keel-eth9 eth9 &&
		modprobe -r keel && modprobe keel &&
		! device_of keel-eth9 eth9 &&
		systemctl restart 'keel-link@*' &&
		device_of keel-eth9 eth9 &&
		ip link delete eth9 &&
		soon unit_is keel-link@eth9.service inactive
}

# udev recognises a device whose name does not mention keel.
other_name() {
	ip link add eth8 type dummy && ip link set eth8 up &&
		rdma link add other type keel netdev eth8 &&
		soon unit_is sys-subsystem-rdma-devices-other.device active &&
		rdma link delete other && ip link delete eth8
}
