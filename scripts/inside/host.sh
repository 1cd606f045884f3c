# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# The needs of a host, a or b: a device of keel, keel_a or keel_b, on a netdev of the
# same name, and a lower device that carries its messages, low_a or low_b.
#
# The caller defines how to reach the hosts:
#   on HOST COMMAND...         run a command on a host
#   kernel_of HOST COMMAND...  run a command in the kernel of a host; it reads sysfs
# It sets "lower", the type of the lower devices.
# shellcheck disable=SC2034,SC2154  # the callers use them, or set them

# Indexes of GIDs of the devices of keel.
declare -A gid=()
# The address of a host with its prefix length, and as a GID.
declare -A address=() gid_text=()
# The address of host b as programs of each host write it, and as TCP needs it.
declare -A server_at=()
tcp_at=

# For hosts that have a network namespace each.
address_ipv4() {
	address=([a]=10.9.0.1/24 [b]=10.9.0.2/24)
	gid_text=([a]=0000:0000:0000:0000:0000:ffff:0a09:0001
		[b]=0000:0000:0000:0000:0000:ffff:0a09:0002)
	server_at=([a]=10.9.0.2 [b]=10.9.0.2)
	tcp_at=10.9.0.2
}

# For hosts in one namespace.
address_link() {
	address=([a]=fe80::1/64 [b]=fe80::2/64)
	gid_text=([a]=fe80:0000:0000:0000:0000:0000:0000:0001
		[b]=fe80:0000:0000:0000:0000:0000:0000:0002)
	server_at=([a]=fe80::2%keel_a [b]=fe80::2%keel_b)
	tcp_at=127.0.0.1
}

# soon COMMAND...: wait until a command succeeds, for $patience seconds at most, or 15.
soon() {
	local end=$((SECONDS + ${patience:-15}))
	while [ "$SECONDS" -lt "$end" ]; do
		if "$@" >/dev/null 2>&1; then return 0; fi
		sleep 0.2
	done
	"$@"
}

# The index of the GID of RoCE v2 that is the address of a host.
gid_of() {
	# shellcheck disable=SC2016  # the other shell expands them
	kernel_of "$1" bash -c '
		cd "/sys/class/infiniband/$0/ports/1" || exit
		for index in {0..15}; do
			grep -q v2 "gid_attrs/types/$index" 2>/dev/null || continue
			if [ "$(<"gids/$index")" = "$1" ]; then
				echo "$index"
				exit
			fi
		done
		exit 1' "keel_$1" "${gid_text[$1]}"
}

# host_up HOST: give the netdev its address, and add the devices. rdma_cm uses the first device
# that has the address: so that of keel is added first.
host_up() {
	on "$1" sysctl -qw net.ipv6.conf.all.accept_dad=0
	on "$1" ip address add "${address[$1]}" dev "keel_$1"
	on "$1" ip link set "keel_$1" up
	on "$1" ip link set lo up
	on "$1" rdma link add "keel_$1" type keel netdev "keel_$1"
	on "$1" rdma link add "low_$1" type "$lower" netdev "keel_$1"
	soon gid_of "$1"
	gid[$1]=$(gid_of "$1")
}
