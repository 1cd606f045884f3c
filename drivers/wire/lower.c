// SPDX-License-Identifier: GPL-2.0
/*
 * Lower devices: the RDMA devices that may carry links. And the devices of keel that
 * other hosts may connect to.
 */
#include <linux/module.h>
#include <linux/string.h>
#include <net/net_namespace.h>
#include <rdma/ib_cache.h>

#include "keel.h"
#include "keel_wire.h"

static char *keel_lowers_wanted = "";
module_param_named(lower, keel_lowers_wanted, charp, 0444);
MODULE_PARM_DESC(lower,
		 "RDMA devices that carry messages to other hosts: names with commas; all: each of RoCE v2 (default none)");

static LIST_HEAD(keel_lowers);
static LIST_HEAD(keel_homes);
static DEFINE_SPINLOCK(keel_lowers_lock);

/**
 * keel_wire_is_on() - may there be links at all?
 *
 * Return: true if so.
 */
bool keel_wire_is_on(void)
{
	return *keel_lowers_wanted;
}

/* Is @name one of the names in @names? */
static bool keel_lower_is_named(const char *names, const char *name)
{
	size_t len = strlen(name), n;

	for (; *names; names += n + (names[n] == ',')) {
		n = strcspn(names, ",\n");
		if (n == len && !strncmp(names, name, len))
			return true;
		if (names[n] == '\n')
			break;
	}
	return false;
}

/**
 * keel_lower_may() - may a device carry links?
 * @ib: the device
 *
 * keel never carries links of keel.
 *
 * Return: true if so.
 */
bool keel_lower_may(const struct ib_device *ib)
{
	bool named = keel_lower_is_named(keel_lowers_wanted, ib->name);
	u32 port;

	if (ib->ops.driver_id == KEEL_RDMA_DRIVER)
		return false;
	rdma_for_each_port(ib, port) {
		if (rdma_protocol_roce_udp_encap(ib, port) && rdma_cap_ib_cm(ib, port))
			return named || keel_lower_is_named(keel_lowers_wanted, "all");
		/* Not all of them: another host can crash this one over siw (upstream.rst). */
		if (rdma_cap_iw_cm(ib, port))
			return named;
	}
	return false;
}

/**
 * keel_ends_of() - the ends of a link from a GID
 * @attr: the GID of this side
 * @dgid: the GID of the other side
 * @ends: is set
 *
 * Context: any.
 * Return: false if the GID has no netdev any more.
 */
bool keel_ends_of(const struct ib_gid_attr *attr, const union ib_gid *dgid,
		  struct keel_ends *ends)
{
	const struct net_device *netdev;

	/* It is compared as a whole. */
	memset(ends, 0, sizeof(*ends));
	guard(rcu)();
	netdev = rdma_read_gid_attr_ndev_rcu(attr);
	if (IS_ERR(netdev))
		return false;
	ends->net = dev_net(netdev)->net_cookie;
	ends->netdev = netdev->ifindex;
	ends->sgid = attr->gid;
	ends->dgid = *dgid;
	return true;
}

/**
 * keel_gid_netdev() - the netdev of a GID
 * @attr: the GID
 *
 * Context: any.
 * Return: the netdev, for dev_put(); or NULL: the GID has none any more.
 */
struct net_device *keel_gid_netdev(const struct ib_gid_attr *attr)
{
	struct net_device *netdev;

	guard(rcu)();
	netdev = rdma_read_gid_attr_ndev_rcu(attr);
	if (IS_ERR(netdev))
		return NULL;
	dev_hold(netdev);
	return netdev;
}

/**
 * keel_gid_mtu() - the MTU of a lower device
 * @attr: a GID of it, of RoCE
 *
 * Not ib_query_port(), which takes the RTNL lock for some devices.
 *
 * Context: any.
 * Return: the MTU.
 */
enum ib_mtu keel_gid_mtu(const struct ib_gid_attr *attr)
{
	const struct net_device *netdev;

	guard(rcu)();
	netdev = rdma_read_gid_attr_ndev_rcu(attr);
	return IS_ERR(netdev) ? IB_MTU_256 : iboe_get_mtu(netdev->mtu) ?: IB_MTU_256;
}

/*
 * Find the GID of a lower device, for RoCE v2, on the netdev of @ends. Return: it, with a
 * reference, or NULL.
 */
static const struct ib_gid_attr *keel_lower_gid(struct ib_device *ib, u32 port,
						const struct keel_ends *ends)
{
	const struct ib_gid_attr *attr;
	struct keel_ends found;
	int i;

	if (!rdma_protocol_roce_udp_encap(ib, port))
		return NULL;
	/* Not ib_query_port(): some devices take the RTNL lock for it. */
	for (i = 0; i < ib->port_data[port].immutable.gid_tbl_len; i++) {
		attr = rdma_get_gid_attr(ib, port, i);
		if (IS_ERR(attr))
			continue;
		if (attr->gid_type == IB_GID_TYPE_ROCE_UDP_ENCAP &&
		    keel_ends_of(attr, &ends->dgid, &found) &&
		    !memcmp(&found, ends, sizeof(found)))
			return attr;
		rdma_put_gid_attr(attr);
	}
	return NULL;
}

/* Is the port of a lower device on the netdev of @ends? */
static bool keel_lower_is_at(struct ib_device *ib, u32 port, const struct keel_ends *ends)
{
	struct net_device *netdev = ib_device_get_netdev(ib, port);
	bool is;

	if (!netdev)
		return false;
	/* It may move to another namespace at any time, and that may end: it is not looked at. */
	is = net_eq(dev_net(netdev), &init_net) && ends->net == init_net.net_cookie &&
	     netdev->ifindex == ends->netdev;
	dev_put(netdev);
	return is;
}

/* Can a port carry a link? @attr gets its GID, as for keel_lower_find(). */
static bool keel_lower_fits(const struct keel_lower *lower, u32 port,
			    const struct keel_ends *ends, const struct ib_gid_attr **attr)
{
	*attr = NULL;
	if (lower->cm->by_netdev)
		return rdma_cap_iw_cm(lower->ib, port) &&
		       keel_lower_is_at(lower->ib, port, ends);
	*attr = keel_lower_gid(lower->ib, port, ends);
	return *attr;
}

/**
 * keel_lower_add() - let a device carry links
 * @lower: the device; its reference of the list is passed on
 *
 * Context: may sleep.
 */
void keel_lower_add(struct keel_lower *lower)
{
	struct list_head *before = &keel_lowers;
	struct keel_lower *other;

	guard(spinlock_irqsave)(&keel_lowers_lock);
	/* Both hosts take the same kind if they have both. */
	list_for_each_entry(other, &keel_lowers, node) {
		if (lower->cm->by_netdev || !other->cm->by_netdev)
			continue;
		before = &other->node;
		break;
	}
	list_add_tail(&lower->node, before);
}

/**
 * keel_lower_del() - let a device carry no new links
 * @lower: the device; the caller has the reference of the list now
 *
 * Context: may sleep.
 */
void keel_lower_del(struct keel_lower *lower)
{
	guard(spinlock_irqsave)(&keel_lowers_lock);
	list_del(&lower->node);
	WRITE_ONCE(lower->lost, true);
}

/* Return: a lower device by its place in the list, with a reference; or NULL. */
static struct keel_lower *keel_lower_nth(int n)
{
	struct keel_lower *lower;

	guard(spinlock_irqsave)(&keel_lowers_lock);
	list_for_each_entry(lower, &keel_lowers, node) {
		if (n--)
			continue;
		keel_lower_get(lower);
		return lower;
	}
	return NULL;
}

/**
 * keel_lower_find() - find a device that can carry a link
 * @ends: the ends of the link
 * @attr: gets its GID, with a reference, or NULL with &keel_cm_ops.by_netdev
 *
 * Context: may sleep.
 * Return: the device, with a reference; or NULL. If another device is removed meanwhile,
 * it may be overlooked.
 */
struct keel_lower *keel_lower_find(const struct keel_ends *ends,
				   const struct ib_gid_attr **attr)
{
	struct keel_lower *lower;
	u32 port;
	int n;

	/* A table of GIDs is long: it is read without the lock. */
	for (n = 0; (lower = keel_lower_nth(n)); n++) {
		rdma_for_each_port(lower->ib, port)
			if (keel_lower_fits(lower, port, ends, attr))
				return lower;
		keel_lower_put(lower);
	}
	return NULL;
}

/**
 * keel_home_add() - let other hosts connect to a device of keel
 * @home: the device
 *
 * Context: may sleep.
 */
void keel_home_add(struct keel_home *home)
{
	guard(spinlock_irqsave)(&keel_lowers_lock);
	list_add_tail(&home->node, &keel_homes);
}

/**
 * keel_home_del() - undo keel_home_add()
 * @home: the device: no link of it is made from here on
 *
 * Context: may sleep.
 */
void keel_home_del(struct keel_home *home)
{
	guard(spinlock_irqsave)(&keel_lowers_lock);
	list_del(&home->node);
}

/**
 * keel_homes_hurry() - lower devices have come, or gone: multicast may need another one
 *
 * Context: any.
 */
void keel_homes_hurry(void)
{
	struct keel_home *home;

	guard(spinlock_irqsave)(&keel_lowers_lock);
	list_for_each_entry(home, &keel_homes, node)
		keel_cast_hurry(&home->kdev->cast);
}

/* The device of keel that has the GID @sgid on @netdev, or NULL. */
static struct keel_dev *keel_home_find(const union ib_gid *sgid, struct net_device *netdev)
	__must_hold(&keel_lowers_lock)
{
	const struct ib_gid_attr *attr;
	struct keel_home *home;

	list_for_each_entry(home, &keel_homes, node) {
		attr = rdma_find_gid_by_port(&home->kdev->ib, sgid, IB_GID_TYPE_ROCE_UDP_ENCAP,
					     KEEL_PORT, netdev);
		if (IS_ERR(attr))
			continue;
		rdma_put_gid_attr(attr);
		return home->kdev;
	}
	return NULL;
}

static bool keel_home_is(const struct keel_dev *kdev)
	__must_hold(&keel_lowers_lock)
{
	const struct keel_home *home;

	list_for_each_entry(home, &keel_homes, node)
		if (home->kdev == kdev)
			return true;
	return false;
}

/* As keel_home_link(). @spare becomes the link, or stays with the caller. */
static struct keel_link *keel_home_take(struct keel_link *spare, struct net_device *netdev)
{
	/* The lock keeps the device from being removed. */
	guard(spinlock_irqsave)(&keel_lowers_lock);
	spare->kdev = keel_home_find(&spare->ends.sgid, netdev);
	return spare->kdev ? keel_link_get(spare) : NULL;
}

/**
 * keel_home_link() - find the link that another host asks for, or make it
 * @ends: its ends
 * @netdev: the netdev of the lower device
 *
 * Context: may sleep.
 * Return: the link, with a reference; or NULL: no device of keel has that GID, there are
 * too many links, or there is no memory.
 */
struct keel_link *keel_home_link(const struct keel_ends *ends, struct net_device *netdev)
{
	/* No lock is held while memory is allocated: others would wait. */
	struct keel_link *spare = keel_link_alloc(NULL, ends, GFP_KERNEL), *link;

	if (!spare)
		return NULL;
	link = keel_home_take(spare, netdev);
	keel_link_put(spare);
	return link;
}

/* A link that is not in the table yet, charged to the calling user. */
static struct keel_link *keel_home_spare(struct keel_dev *kdev, const struct keel_ends *ends,
					 enum keel_link_origin origin, gfp_t gfp)
{
	struct keel_link *spare = keel_link_alloc(kdev, ends, gfp);
	struct keel_user *charged;

	if (!spare)
		return NULL;
	spare->origin = origin;
	if (origin != KEEL_LINK_USER)
		return spare;
	charged = keel_quota_charge(&kdev->reg.quotas, KEEL_RES_LINKS, 1, gfp);
	if (IS_ERR(charged)) {
		keel_link_put(spare);
		return NULL;
	}
	spare->user = charged;
	return spare;
}

/**
 * keel_home_use() - find a link for a QP or an AH of this side, or make it
 * @kdev: the device
 * @ends: the ends of the link
 * @origin: who is to use it. A new one of KEEL_LINK_USER is charged to the user of the
 *	calling process.
 * @gfp: how to allocate
 *
 * Context: as @gfp says; process context if it is charged.
 * Return: the link, for keel_link_unuse(); or NULL: the device is being removed, the user
 * or the machine has too many links, or there is no memory.
 */
struct keel_link *keel_home_use(struct keel_dev *kdev, const struct keel_ends *ends,
				enum keel_link_origin origin, gfp_t gfp)
{
	struct keel_link *link = keel_link_join(kdev, ends), *spare;

	if (link)
		return link;
	/* No lock is held while memory is allocated: others would wait. */
	spare = keel_home_spare(kdev, ends, origin, gfp);
	if (!spare)
		return NULL;
	scoped_guard(spinlock_irqsave, &keel_lowers_lock) {
		/* The lock keeps the device from being removed. */
		if (keel_home_is(kdev))
			link = keel_link_use(spare);
	}
	/* If it became the link, that keeps the charge. */
	if (link != spare)
		keel_quota_uncharge(spare->user, KEEL_RES_LINKS, 1);
	keel_link_put(spare);
	return link;
}
