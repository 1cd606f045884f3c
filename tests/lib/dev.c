// SPDX-License-Identifier: GPL-2.0
/*
 * A second device. See dev.h.
 */
#include "dev.h"
#include "t.h"

void dev_del(void)
{
	if (access("/sys/class/infiniband/" KEEL1, F_OK) &&
	    access("/sys/class/net/" KEEL1_NETDEV, F_OK))
		return;
	t_shell_status("rdma link delete " KEEL1 " 2>&1; "
		       "ip link delete " KEEL1_NETDEV " 2>&1");
}

void dev_add(void)
{
	dev_del();
	t_shell("ip link add " KEEL1_NETDEV " type dummy && "
		"ip link set " KEEL1_NETDEV " up && "
		"rdma link add " KEEL1 " type keel netdev " KEEL1_NETDEV);
}

bool dev_bar(void)
{
	return !access("/sys/class/infiniband/" KEEL0 "/device", F_OK);
}
