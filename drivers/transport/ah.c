// SPDX-License-Identifier: GPL-2.0
/*
 * Address handles: ibv_create_ah(). ib_core resolves and checks the address,
 * and holds a reference on the source GID. The AH keeps the members that a
 * message needs.
 */
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <net/ipv6.h>
#include <rdma/ib_addr.h>
#include <rdma/ib_cache.h>

#include "keel_qp.h"

static_assert(sizeof(struct keel_uapi_create_ah_resp) == 8);

static void keel_ah_release(struct keel_obj *obj)
{
	struct keel_ah *ah = container_of(obj, struct keel_ah, obj);

	kfree_rcu(ah, obj.rcu);
}

static void keel_ah_describe(const struct keel_obj *obj, struct seq_file *m)
{
	const struct keel_ah *ah = container_of(obj, struct keel_ah, obj);

	seq_printf(m, " to %pI6c%s", ah->av.dgid.raw,
		   ah->av.mcast ? " multicast" :
		   ah->av.local ? "" :
		   ah->av.far ? " another host" : " nobody");
}

static const struct keel_obj_ops keel_ah_obj_ops = {
	.describe = keel_ah_describe,
	.release = keel_ah_release,
};

static bool keel_gid_is_ours(struct ib_device *ibdev, const union ib_gid *gid)
{
	const struct ib_gid_attr *attr;
	int type;

	for (type = 0; type < IB_GID_TYPE_SIZE; type++) {
		attr = rdma_find_gid(ibdev, gid, type, NULL);
		if (!IS_ERR(attr)) {
			rdma_put_gid_attr(attr);
			return true;
		}
	}
	return false;
}

/**
 * keel_av_init() - initialize an address vector
 * @kdev: the device
 * @av: the address vector
 * @attr: the address, checked and resolved by ib_core
 *
 * Context: any.
 */
void keel_av_init(struct keel_dev *kdev, struct keel_av *av,
		  const struct rdma_ah_attr *attr)
{
	const struct ib_global_route *grh = rdma_ah_read_grh(attr);
	bool outside, from4, to4;

	memset(av, 0, sizeof(*av));
	if (grh->sgid_attr)
		av->sgid = grh->sgid_attr->gid;
	else if (rdma_query_gid(&kdev->ib, KEEL_PORT, grh->sgid_index,
				&av->sgid))
		/* The GID was removed: a reply to GID 0 reaches no QP. */
		memset(&av->sgid, 0, sizeof(av->sgid));
	av->dgid = grh->dgid;
	from4 = ipv6_addr_v4mapped((struct in6_addr *)av->sgid.raw);
	to4 = ipv6_addr_v4mapped((struct in6_addr *)av->dgid.raw);
	av->mcast = rdma_is_multicast_addr((struct in6_addr *)av->dgid.raw);
	av->local = !av->mcast && keel_gid_is_ours(&kdev->ib, &av->dgid);
	outside = keel_wire_is_on() && !av->local && grh->sgid_attr &&
		  grh->sgid_attr->gid_type == IB_GID_TYPE_ROCE_UDP_ENCAP &&
		  keel_ends_of(grh->sgid_attr, &av->dgid, &av->ends);
	av->far = outside && !av->mcast;
	/* A packet has either kind of addresses. */
	av->cast = outside && av->mcast && from4 == to4;
	av->ipv4 = from4 && to4;
	av->sl = rdma_ah_get_sl(attr);
	av->tclass = grh->traffic_class;
	av->hop_limit = grh->hop_limit;
	av->flow_label = grh->flow_label;
}

/**
 * keel_ah_load() - look up an AH by number
 * @kdev: the device
 * @id: its number, as in struct keel_uapi_create_ah_resp
 *
 * Context: RCU read side, which keeps the AH. It does not change.
 * Return: the AH, without a reference; or NULL. It may belong to another domain.
 */
struct keel_ah *keel_ah_load(struct keel_dev *kdev, u32 id)
{
	struct keel_obj *obj = keel_number_load(&kdev->reg.objs[KEEL_AH], id);

	return obj ? container_of(obj, struct keel_ah, obj) : NULL;
}

/**
 * keel_ah_get() - look up an AH by number
 * @kdev: the device
 * @id: its number, as in struct keel_uapi_create_ah_resp
 *
 * Context: any.
 * Return: the AH, with a reference that the caller drops; or NULL. It may
 * belong to another domain.
 */
struct keel_ah *keel_ah_get(struct keel_dev *kdev, u32 id)
{
	struct keel_ah *ah;

	guard(rcu)();
	ah = keel_ah_load(kdev, id);
	return ah && keel_obj_tryget(&ah->obj) ? ah : NULL;
}

/* An AH keeps the link to another host, so that datagrams find it. */
static int keel_ah_link(struct keel_dev *kdev, struct keel_ah *ah, bool user, gfp_t gfp)
{
	if (!ah->av.far)
		return 0;
	ah->link = keel_home_use(kdev, &ah->av.ends,
				 user ? KEEL_LINK_USER : KEEL_LINK_DATAGRAMS, gfp);
	return ah->link ? 0 : -ENOMEM;
}

static struct keel_ah *keel_ah_make(struct ib_ah *ibah,
				    const struct rdma_ah_init_attr *init,
				    gfp_t gfp, bool user)
{
	struct keel_dev *kdev = to_kdev(ibah->device);
	struct keel_pd *pd = to_kpd(ibah->pd);
	struct keel_obj *const holds[] = { &pd->obj };
	struct keel_ah *ah;
	int ret;

	ah = kzalloc_obj(*ah, gfp);
	if (!ah)
		return ERR_PTR(-ENOMEM);
	keel_av_init(kdev, &ah->av, init->ah_attr);
	ah->domain = pd->domain->obj.id;
	keel_obj_may_hold(&ah->obj, ah->holds);
	ret = keel_ah_link(kdev, ah, user, gfp);
	ret = ret ?: keel_obj_add_holds(&kdev->reg, &ah->obj, KEEL_AH,
					&keel_ah_obj_ops, holds, gfp);
	if (ret) {
		keel_link_unuse(ah->link);
		kfree(ah);
		return ERR_PTR(ret);
	}
	return ah;
}

/* Kernel consumers may be in atomic context; @init tells whether they are. */
static int keel_create_ah(struct ib_ah *ibah, struct rdma_ah_init_attr *init,
			  struct ib_udata *udata)
{
	struct keel_ah *ah;

	ah = keel_ah_make(ibah, init, init->flags & RDMA_CREATE_AH_SLEEPABLE ?
				      GFP_KERNEL : GFP_ATOMIC, false);
	if (IS_ERR(ah))
		return PTR_ERR(ah);
	container_of(ibah, struct keel_ib_ah, ib)->ah = ah;
	return 0;
}

static int keel_create_user_ah(struct ib_ah *ibah,
			       struct rdma_ah_init_attr *init,
			       struct ib_udata *udata)
{
	struct keel_uapi_create_ah_resp resp = {};
	struct keel_ah *ah;
	int ret;

	ret = ib_is_udata_in_empty(udata);
	if (ret)
		return ret;
	ah = keel_ah_make(ibah, init, GFP_KERNEL_ACCOUNT, true);
	if (IS_ERR(ah))
		return PTR_ERR(ah);
	resp.ah = ah->obj.id;
	ret = ib_respond_udata(udata, resp);
	if (ret) {
		keel_link_unuse(ah->link);
		keel_obj_close(&ah->obj);
		return ret;
	}
	container_of(ibah, struct keel_ib_ah, ib)->ah = ah;
	return 0;
}

/* May be in atomic context: this does not drop the last reference on the PD. */
static int keel_destroy_ah(struct ib_ah *ibah, u32 flags)
{
	struct keel_ah *ah = to_kah(ibah);

	/* Messages find the link by its ends, and do not use the pointer. */
	keel_link_unuse(ah->link);
	keel_obj_close(&ah->obj);
	return 0;
}

const struct ib_device_ops keel_ah_ops = {
	.create_ah = keel_create_ah,
	.create_user_ah = keel_create_user_ah,
	.destroy_ah = keel_destroy_ah,

	INIT_RDMA_OBJ_SIZE(ib_ah, keel_ib_ah, ib),
};
