# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# Functions for the consumers in this folder, which scripts/inside/consumers-run
# describes. A consumer sources this file first.
# shellcheck disable=SC2154  # the runner sets DEVICE and the others

bad=0
last=0
mnt=$PWD/mnt
own=own_$KIND
own_before=$PWD/own.objects

# try TITLE COMMAND...: run a command or function in a subshell, and print the
# result. The output has each command. A long case prints how long it took.
try() {
	local title=$1 start=$SECONDS rc
	shift
	set +e
	(
		set -eo pipefail
		PS4='$ '
		set -x
		"$@"
	)
	rc=$?
	last=$rc
	set -e
	# A program may end without a newline.
	if [ "$rc" -eq 0 ]; then
		printf '\nok - %s\n' "$title"
	else
		printf '\nnot ok - %s  # exit status %s\n' "$title" "$rc"
		bad=1
	fi
	[ $((SECONDS - start)) -lt 10 ] ||
		printf '# long %s: %d s\n' "$title" $((SECONDS - start))
}

# broken TITLE: print that something is wrong, while a consumer cleans up.
broken() {
	printf '\nnot ok - %s\n' "$1"
	bad=1
}

# must TITLE COMMAND...: the same, and end if it failed: the rest needs it.
must() {
	try "$@"
	[ "$last" -eq 0 ] || exit 1
}

# The exit status tells whether everything passed.
finish() {
	exit "$bad"
}

figure() {
	printf '# figure %s %s %s\n' "$1" "$2" "$3"
}

# not COMMAND...: succeed if the command fails.
not() {
	! "$@"
}

# soon COMMAND...: wait until a command succeeds, 15 seconds at most.
soon() {
	local i -
	{ set +x; } 2>/dev/null
	for ((i = 0; i < 75; i++)); do
		if "$@" >/dev/null 2>&1; then return 0; fi
		sleep 0.2
	done
	"$@"
}

# load_modules NAME...: load modules that Debian does not build, and modules that
# they need.
load_modules() {
	local name file
	for name in "$@"; do
		file=$CONSUMERS/../modules/$name.ko
		modinfo -F depends "$file" | tr ',' '\n' |
			xargs -r -n 1 modprobe -q || :
		insmod "$file"
	done
}

# unload MODULE...: unload modules as soon as nothing uses them.
unload() {
	soon modprobe -r "$@" || broken "$* cannot be unloaded"
}

tcp_listens() {
	ss -Hltn "sport = :$1" | grep -q .
}

cm_listens() {
	rdma resource show cm_id | grep -qE "state LISTEN .*src-addr \S+:$1\b"
}

# pair READY SERVER CLIENT: start a server, start the client when the command
# READY succeeds or the server has ended, and wait for both. All are texts for the
# shell. The output of both is in the files server and client.
pair() {
	local pid rc=0
	timeout -k 5 120 bash -c "$2" >server 2>&1 &
	pid=$!
	soon eval "$1 || not kill -0 $pid" || rc=1
	timeout -k 5 100 bash -c "$3" >client 2>&1 || rc=$?
	[ "$rc" -eq 0 ] || kill "$pid" 2>/dev/null || :
	wait "$pid" || rc=$?
	tail -n 40 server client
	return "$rc"
}

# endless READY SERVER CLIENT: the same for a server that does not end.
endless() {
	local pid rc=0
	bash -c "exec $2" >server 2>&1 &
	pid=$!
	soon eval "$1" || rc=1
	timeout -k 5 100 bash -c "$3" >client 2>&1 || rc=$?
	kill "$pid" || rc=1
	wait "$pid" 2>/dev/null || :
	tail -n 40 server client
	return "$rc"
}

# traffic: print the bytes (keel) or packets (rxe) that the device has carried.
traffic() {
	local sum=0 file
	for file in /sys/class/infiniband/"$DEVICE"/ports/1/hw_counters/{tx_bytes,sent_pkts}; do
		[ ! -e "$file" ] || sum=$(<"$file")
	done
	echo "$sum"
}

# carries NUMBER COMMAND...: the device carries at least so many bytes or packets
# for the command.
carries() {
	local least=$1 before
	shift
	before=$(traffic)
	"$@"
	[ $(($(traffic) - before)) -ge "$least" ] || {
		echo "the device carried $(($(traffic) - before)), less than $least"
		return 1
	}
}

# fio_figure NAME iops|mib OPTION...: measure with fio three times for 2 seconds,
# and print the median.
fio_figure() {
	local name=$1 what=$2 run
	shift 2
	for run in 1 2 3; do
		timeout -k 5 60 fio --name=figure --direct=1 --ioengine=libaio \
			--time_based --runtime=2 --output-format=json \
			--output="fio.$run.json" "$@" || return
	done
	python3 - "$name" "$what" <<'EOF'
import json, sys
runs = []
for run in 1, 2, 3:
    with open(f'fio.{run}.json', encoding='utf-8') as file:
        text = file.read()
    jobs = json.loads(text[text.index('{'):])['jobs']
    assert not any(job['error'] for job in jobs), jobs
    sides = [job[side] for job in jobs for side in ('read', 'write')]
    runs.append((sum(s['iops'] for s in sides),
                 sum(s['bw_bytes'] for s in sides) / 2**20))
iops, mib = (sorted(values)[1] for values in zip(*runs))
if sys.argv[2] == 'iops':
    print('# figure', sys.argv[1], round(iops), 'IOPS')
else:
    print('# figure', sys.argv[1], round(mib), 'MiB/s')
EOF
}

# fio_verify OPTION...: write random blocks, and read and verify them.
fio_verify() {
	timeout -k 5 180 fio --name=verify --direct=1 --ioengine=libaio --iodepth=16 \
		--rw=randwrite --verify=crc32c --verify_fatal=1 --do_verify=1 \
		--output=fio.verify "$@" || {
		cat fio.verify
		return 1
	}
	grep -E 'read|write|err=' fio.verify
	! grep -q 'verify: bad' fio.verify
}

# disk PATTERN: print the first block device whose name matches.
disk() {
	local name
	for name in /sys/block/$1; do
		[ -b "/dev/${name##*/}" ] || continue
		printf '/dev/%s\n' "${name##*/}"
		return
	done
	return 1
}

# file_survives DISK: make a file system, and a file that is the same after umount.
file_survives() {
	local want
	mkdir -p "$mnt"
	mkfs.ext4 -q -F "$1"
	mount "$1" "$mnt"
	dd if=/dev/urandom of="$mnt/data" bs=1M count=32 status=none
	want=$(sha256sum <"$mnt/data")
	umount "$mnt"
	fsck.ext4 -f -n "$1"
	mount "$1" "$mnt"
	[ "$(sha256sum <"$mnt/data")" = "$want" ]
	umount "$mnt"
}

# start_load OPTION...: start fio, which writes blocks and verifies them.
start_load() {
	timeout -k 5 "${LOAD_TIME:-100}" fio --name=load --direct=1 --ioengine=libaio --bs=16k \
		--iodepth=16 --rw=randwrite --size=64m --io_size=192m \
		--verify=crc32c --verify_fatal=1 --do_verify=1 "$@" >load 2>&1 &
	load=$!
	sleep 2
	kill -0 "$load"
}

# load_ends STATUS: wait for fio, which ends with this status: 0, or 1 for an error of
# the disk.
load_ends() {
	local rc=0
	wait "$load" || rc=$?
	cat load
	[ "$rc" -eq "$1" ]
	# After an error fio may also verify a buffer into which it has read nothing.
	[ "$rc" -eq 0 ] || grep -q 'io_u error on file' load
}

# on_own_device: the commands after this use a device that own_device adds.
# shellcheck disable=SC2034  # the consumers read them
on_own_device() {
	DEVICE=$own NETDEV=own0 ADDRESS=10.79.0.1 ADDRESS2=10.79.0.2
}

own_device() {
	[ -d /sys/class/net/own0 ] || {
		ip link add own0 mtu 9000 type dummy
		ip address add 10.79.0.1/24 dev own0
		ip address add 10.79.0.2/24 dev own0
		ip link set own0 up
	}
	rdma link add "$own" type "$KIND" netdev own0
	soon eval 'ibv_devinfo -d "$own" | grep -q PORT_ACTIVE'
	own_objects >"$own_before"
}

# The objects of the device, without counters. rxe does not show them.
own_objects() {
	[ "$KIND" = keel ] || return 0
	sed -E 's/\b(refs|added|taken) [0-9]+/\1/g' \
		"/sys/kernel/debug/keel/$own/objects"
}

# The kernel waits until the consumers have left the device.
delete_device() {
	timeout 60 rdma link delete "$own"
	not rdma link show "$own/1"
}

# no_own_device: delete the device and its netdev, if they are there. Its users have
# ended or were unloaded, so it must have the objects of a new device.
no_own_device() {
	if [ -e "/sys/class/infiniband/$own" ]; then
		soon eval 'own_objects | cmp "$own_before" -' ||
			broken "no object is left on $own"
		rdma link delete "$own" || :
	fi
	ip link delete own0 2>/dev/null || :
}
