#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The rdma cgroup: if a cgroup with a limit for a device is removed, its resource
# pool stays in the list of the device, and refers to the freed cgroup. Removal of
# the device deletes the pool from the list of the freed cgroup.
#
# "init_on_free=1" on the kernel's command line makes the result certain: the list
# in the freed memory is zero, and list_del() reports it.
set -u
group=/sys/fs/cgroup/bug

report() {
	dmesg | grep -m 1 -E 'list_del corruption|KASAN: .*free_cg_rpool|BUG: kernel NULL pointer'
}

ip link add bug0 type dummy && ip link set bug0 up &&
	rdma link add bug-rxe type rxe netdev bug0 || exit 2
mkdir "$group" || exit 2
echo "bug-rxe hca_handle=10" >"$group/rdma.max" || exit 2
rmdir "$group" || exit 2
# The kernel frees the cgroup after a grace period, in a workqueue.
sleep 5
rdma link delete bug-rxe
sleep 1
if report; then
	echo "reproduced: device removal accesses a freed rdma cgroup"
	exit 1
fi
ip link delete bug0
echo "not reproduced: device removal does not access the removed rdma cgroup"
