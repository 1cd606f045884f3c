# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# Functions for the groups in this folder. The server of a program runs on host b, and its
# client on host a.
#
# The caller has the hosts of host.sh up, and defines in addition
#   begin HOST COMMAND...   begin to run a command on a host, and set pid; killing that ends it
# It sets "where", for the titles.
# shellcheck disable=SC2034,SC2154  # the callers use them, or set them

count=0
failed=0
port=18600
# The IDs in titles, the seconds that a program may take, how often it is tried, and what the
# client has to print to be tried again, if anything.
ids=HOST-1
patience=60
attempts=1
again=

tcp_listens() {
	[ -n "$(on b ss -Hltn "sport = $1")" ]
}

# rdma_listen() sets the state a moment before ib_cm accepts requests, which it rejects.
cm_listens() {
	on b rdma resource show cm_id | grep -qE "state LISTEN .*src-addr \S+:$1\b" && sleep 0.3
}

packets() {
	kernel_of "$1" cat "/sys/class/infiniband/keel_$1/ports/1/hw_counters/far_packets"
}

# both READY SERVER CLIENT: run both commands, in which @DEV and @GID stand for the device of
# the host and the index of its GID, @AT for the address of the server, and @TCP for the one
# that the client needs to reach it without RDMA. READY tells that the server is ready.
both() {
	local server=${2//@DEV/keel_b} client=${3//@DEV/keel_a} pid rc=0
	server=${server//@AT/${server_at[b]}}
	client=${client//@AT/${server_at[a]}}
	client=${client//@TCP/$tcp_at}
	begin b timeout -k 5 "$patience" bash -c "exec ${server//@GID/${gid[b]}}" >server 2>&1
	# shellcheck disable=SC2086  # words
	soon $1 || rc=1
	[ "$rc" -ne 0 ] ||
		on a timeout -k 5 "$patience" bash -c "exec ${client//@GID/${gid[a]}}" >client 2>&1 ||
		rc=$?
	[ "$rc" -eq 0 ] || kill "$pid" 2>/dev/null || :
	wait "$pid" || rc=$?
	return "$rc"
}

# carried N COMMAND...: a command succeeds, and the link has carried N messages at least. Then
# the counters are no longer those that ib_core has cached.
carried() {
	local least=$1 before
	shift
	before=$(($(packets a) + $(packets b)))
	"$@" || return
	sleep 0.1
	if [ $(($(packets a) + $(packets b) - before)) -lt "$least" ]; then
		echo "the link has carried fewer than $least packets" >>client
		return 1
	fi
}

# try TITLE COMMAND...: print whether a command succeeds, and if not, the output of both sides.
try() {
	local title=$1 i
	shift
	count=$((count + 1))
	for ((i = 1; i <= attempts; i++)); do
		: >server
		: >client
		if "$@" >said 2>&1; then
			echo "ok $count - $ids: $title, $where"
			[ "$i" -eq 1 ] || echo "# that was attempt $i"
			return
		fi
		[ -z "$again" ] || grep -q "$again" client || break
	done
	failed=$((failed + 1))
	echo "not ok $count - $ids: $title, $where"
	tail -n "${TRY_LINES:-10}" said server client | sed 's/^/# /'
}

# A group sets "carries", and "least" to the packets that a program needs at least.
carries=both least=()

# pair TITLE READY SERVER CLIENT: try both.
pair() {
	local title=$1
	shift
	case $carries in
	both) try "$title" both "$@" ;;
	carried) try "$title" carried "${least[@]}" both "$@" ;;
	esac
}

# pingpong KIND OPTION...: an example of libibverbs. With -c it verifies the data.
pingpong() {
	local program="ibv_$1_pingpong" command
	shift
	port=$((port + 1))
	command="$program -d @DEV -g @GID -p $port $*"
	pair "$program${*:+ $*}" "tcp_listens $port" "$command" "$command @TCP"
}

# perf PROGRAM OPTION...: a program of perftest. It does not verify the data.
perf() {
	local command ready at
	port=$((port + 1))
	command="$* -d @DEV -x @GID -F -p $port -n 160"
	ready="tcp_listens $port" at=@TCP
	case " $* " in
	*" -R "*)
		# The client connects again, and is rejected if the server does not yet listen
		# again (create_rdma_cm_connection()). Then it crashes instead of a new attempt.
		[ "$attempts" -gt 1 ] ||
			local attempts=3 again='RDMA_CM_EVENT_REJECTED; error: 8\.'
		ready="cm_listens $port" at=@AT
		case ${server_at[a]} in *:*) command+=" --ipv6-addr" ;; esac
		;;
	esac
	pair "$*" "$ready" "$command" "$command $at"
}

# cm PORT PROGRAM OPTION...: a program of rdma_cm, with these options on both sides, that
# listens on PORT.
cm() {
	local listens="cm_listens $1"
	shift
	try "$*" both "$listens" "$* -b @AT" "$* -s @AT"
}

# rping OPTION...: it verifies the data with -V.
rping() {
	try "rping $*" carried 40 both "cm_listens 7174" "rping -s -a @AT $*" "rping -c -a @AT $*"
}

joins() {
	kernel_of b grep -q "^groups 1 attached 1 " /sys/kernel/debug/keel/keel_b/links
}

# mckey OPTION...: messages to a group, not over iWARP. The receiver ends when it has all.
mckey() {
	[ "$lower" != siw ] || return 0
	try "mckey${*:+ $*}" both joins "mckey -m 239.9.0.2 -b @AT $*" \
		"mckey -m 239.9.0.2 -b ${address[a]%/*} -s $*"
}
