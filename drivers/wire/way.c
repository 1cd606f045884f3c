// SPDX-License-Identifier: GPL-2.0
/*
 * The way to a host that asks for a connection: anybody can ask in the name of a host that
 * is not there.
 */
#include <net/dst.h>
#include <net/ip6_route.h>
#include <net/neighbour.h>
#include <net/route.h>
#include <rdma/ib_addr.h>

#include "keel_wire.h"

/* The route to @to from @from by @netdev, with a reference; or an error. */
static struct dst_entry *keel_way_v4(struct net_device *netdev, const struct in6_addr *from,
				     const struct in6_addr *to)
{
	struct flowi4 fl4 = {
		.flowi4_oif = netdev->ifindex,
		.saddr = from->s6_addr32[3],
		.daddr = to->s6_addr32[3],
	};
	struct rtable *rt = ip_route_output_key(dev_net(netdev), &fl4);

	return IS_ERR(rt) ? ERR_CAST(rt) : &rt->dst;
}

static struct dst_entry *keel_way_v6(struct net_device *netdev, const struct in6_addr *from,
				     const struct in6_addr *to)
{
	struct flowi6 fl6 = {
		.flowi6_oif = netdev->ifindex,
		.saddr = *from,
		.daddr = *to,
	};

	return keel_ip6_route(dev_net(netdev), &fl6);
}

/* Is the next host on a route known? Else begin to look for it. */
static bool keel_way_has_neighbour(struct dst_entry *dst, const void *to)
{
	struct neighbour *neigh = dst_neigh_lookup(dst, to);
	bool known;

	if (!neigh)
		return false;
	known = READ_ONCE(neigh->nud_state) & NUD_VALID;
	if (!known)
		neigh_event_send(neigh, NULL);
	neigh_release(neigh);
	return known;
}

/**
 * keel_way_is_known() - can packets be sent to the other side at once?
 * @ends: the ends
 * @netdev: the netdev of the lower device
 *
 * If not, the way is looked for, so that a later call may say so.
 *
 * Context: process context. Does not sleep: ib_cm has one thread for all its handlers.
 * Return: true if so.
 */
bool keel_way_is_known(const struct keel_ends *ends, struct net_device *netdev)
{
	const struct in6_addr *from = (const struct in6_addr *)ends->sgid.raw;
	const struct in6_addr *to = (const struct in6_addr *)ends->dgid.raw;
	bool v4 = ipv6_addr_v4mapped(from) && ipv6_addr_v4mapped(to);
	struct dst_entry *dst;
	bool known;

	/* The netdev may be on its way to another namespace. */
	guard(rcu)();
	dst = v4 ? keel_way_v4(netdev, from, to) : keel_way_v6(netdev, from, to);
	if (IS_ERR(dst))
		return false;
	known = keel_way_has_neighbour(dst, v4 ? (const void *)&to->s6_addr32[3] : to);
	dst_release(dst);
	return known;
}
