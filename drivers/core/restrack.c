// SPDX-License-Identifier: GPL-2.0
/*
 * "rdma resource": the details of an object.
 */
#include <net/netlink.h>
#include <rdma/ib_verbs.h>
#include <rdma/restrack.h>
#include <uapi/rdma/rdma_netlink.h>

#include "keel_restrack.h"

/**
 * keel_res_fill() - add keel's table of an object to a netlink message
 * @msg: the message
 * @obj: the object; its reference is dropped
 * @fill: adds the rows; returns 0 or -EMSGSIZE; must not sleep
 *
 * Context: as keel_obj_put(); calls @fill.
 * Return: 0; -EMSGSIZE if the message is full: then nothing was added.
 */
int keel_res_fill(struct sk_buff *msg, struct keel_obj *obj,
		  int (*fill)(struct sk_buff *msg, struct keel_obj *obj))
{
	struct nlattr *table = nla_nest_start(msg, RDMA_NLDEV_ATTR_DRIVER);
	int ret = table ? fill(msg, obj) : -EMSGSIZE;

	if (!ret)
		nla_nest_end(msg, table);
	else if (table)
		nla_nest_cancel(msg, table);
	keel_obj_put(obj);
	return ret;
}
