# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# Two hosts in a guest, with their devices as in host.sh. A veth pair connects the netdevs.
#
# rxe: the hosts are two network namespaces. siw: its kernel users reach only the initial one.
# So both hosts are there, with addresses of the link scope: IPv6 sends from one to the other
# by the netdev of the sender, although both are its own.
# shellcheck disable=SC1091,SC2034  # host.sh and the callers use them
. "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/host.sh"

# The words before a command of a host.
declare -A enter=()

on() {
	local host=$1
	shift
	# shellcheck disable=SC2086  # words
	${enter[$host]} "$@"
}

# begin HOST COMMAND...: begin to run a command on a host, and set pid; killing that ends the
# command. So not with on().
begin() {
	local host=$1
	shift
	# shellcheck disable=SC2086  # words
	${enter[$host]} "$@" &
	pid=$!
}

# Both hosts have the same.
kernel_of() {
	shift
	"$@"
}

# Two network namespaces; MTU.
apart() {
	local h
	address_ipv4
	for h in a b; do
		ip netns add "keel_$h"
		enter[$h]="ip netns exec keel_$h"
	done
	ip link add keel_a netns keel_a mtu "$1" type veth peer name keel_b netns keel_b mtu "$1"
}

# One; MTU.
together() {
	address_link
	enter=([a]="" [b]="")
	ip link add keel_a mtu "$1" type veth peer name keel_b mtu "$1"
}

# hosts_up LOWER MTU: LOWER is the type of the lower devices, MTU that of the netdevs.
hosts_up() {
	lower=$1
	modprobe -q "rdma_$lower" || modprobe "$lower"
	case $lower in
	siw) together "$2" ;;
	*) apart "$2" ;;
	esac
	host_up a
	host_up b
}

hosts_down() {
	local h
	for h in a b; do
		rdma link delete "keel_$h" || :
		rdma link delete "low_$h" || :
		ip netns delete "keel_$h" || :
		ip link delete "keel_$h" || :
	done 2>/dev/null
}
