# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# Two hosts in a guest: the network namespaces keel_a and keel_b, which a veth pair connects.
# Each has a device of keel, named like it, and a lower device that carries its messages,
# low_a or low_b.

# shellcheck disable=SC2034  # of the devices of keel; across.d/lib.sh reads it
declare -A gid=()
declare -A address=([a]=10.9.0.1 [b]=10.9.0.2)

# on HOST COMMAND...: run a command on a host.
on() {
	local host=$1
	shift
	ip netns exec "keel_$host" "$@"
}

# The index of the GID of RoCE v2 that is an IPv4 address.
gid_of() {
	local folder=/sys/class/infiniband/keel_$1/ports/1 index
	for index in {0..15}; do
		grep -q v2 "$folder/gid_attrs/types/$index" 2>/dev/null || continue
		case $(<"$folder/gids/$index") in
		0000:0000:0000:0000:0000:ffff:*)
			echo "$index"
			return
			;;
		esac
	done
	return 1
}

# soon COMMAND...: wait until a command succeeds, 15 seconds at most.
soon() {
	local i
	for ((i = 0; i < 75; i++)); do
		if "$@" >/dev/null 2>&1; then return 0; fi
		sleep 0.2
	done
	"$@"
}

# host_up HOST LOWER
host_up() {
	on "$1" sysctl -qw net.ipv6.conf.all.accept_dad=0
	on "$1" ip address add "${address[$1]}/24" dev "keel_$1"
	on "$1" ip link set "keel_$1" up
	on "$1" ip link set lo up
	on "$1" rdma link add "keel_$1" type keel netdev "keel_$1"
	on "$1" rdma link add "low_$1" type "$2" netdev "keel_$1"
	soon gid_of "$1"
	gid[$1]=$(gid_of "$1")
}

# hosts_up LOWER MTU: LOWER is the type of the lower devices, MTU that of the netdevs.
hosts_up() {
	modprobe -q "rdma_$1" || modprobe "$1"
	ip netns add keel_a
	ip netns add keel_b
	ip link add keel_a netns keel_a mtu "$2" type veth peer name keel_b netns keel_b mtu "$2"
	host_up a "$1"
	host_up b "$1"
}

hosts_down() {
	local h
	for h in a b; do
		rdma link delete "keel_$h" || :
		rdma link delete "low_$h" || :
		ip netns delete "keel_$h" || :
	done 2>/dev/null
}
