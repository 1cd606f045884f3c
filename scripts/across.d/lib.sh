# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# Functions for the groups in this folder. The server of a program runs on host b, and its
# client on host a.
# shellcheck disable=SC2034,SC2154  # across-run uses them, or sets them

count=0
failed=0
port=18600
server_at=${address[b]}

tcp_listens() {
	[ -n "$(on b ss -Hltn "sport = $1")" ]
}

# rdma_listen() sets the state a moment before ib_cm accepts requests, which it rejects.
cm_listens() {
	on b rdma resource show cm_id | grep -qE "state LISTEN .*src-addr \S+:$1\b" && sleep 0.3
}

packets() {
	cat "/sys/class/infiniband/keel_$1/ports/1/hw_counters/far_packets"
}

# both READY SERVER CLIENT: run both commands, in which @DEV and @GID stand for the device of
# the host and the index of its GID. READY tells that the server is ready.
both() {
	local server=${2//@DEV/keel_b} client=${3//@DEV/keel_a} pid rc=0
	# Not with on(): this is the process that is killed.
	ip netns exec keel_b timeout -k 5 60 bash -c "exec ${server//@GID/${gid[b]}}" \
		>server 2>&1 &
	pid=$!
	# shellcheck disable=SC2086  # words
	soon $1 || rc=1
	[ "$rc" -ne 0 ] ||
		on a timeout -k 5 60 bash -c "exec ${client//@GID/${gid[a]}}" >client 2>&1 ||
		rc=$?
	[ "$rc" -eq 0 ] || kill "$pid" 2>/dev/null || :
	wait "$pid" || rc=$?
	return "$rc"
}

# carried N READY SERVER CLIENT: the same; the link has carried N messages at least. Then the
# counters are no longer those that ib_core has cached.
carried() {
	local least=$1 before
	shift
	before=$(($(packets a) + $(packets b)))
	both "$@" || return
	sleep 0.1
	if [ $(($(packets a) + $(packets b) - before)) -lt "$least" ]; then
		echo "the link has carried fewer than $least packets" >>client
		return 1
	fi
}

# try TITLE COMMAND...: print whether a command succeeds, and if not, the output of both sides.
try() {
	local title=$1
	shift
	count=$((count + 1))
	: >server
	: >client
	if "$@"; then
		echo "ok $count - HOST-1: $title, over $lower"
		return
	fi
	failed=$((failed + 1))
	echo "not ok $count - HOST-1: $title, over $lower"
	tail -n 10 server client | sed 's/^/# /'
}
