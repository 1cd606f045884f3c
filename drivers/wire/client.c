// SPDX-License-Identifier: GPL-2.0
/*
 * RDMA devices come and go: those of keel, which have links, and others, which carry them.
 */
#include <linux/slab.h>

#include "keel.h"
#include "keel_conn.h"

static struct ib_client keel_wire_client;

static int keel_home_new(struct ib_device *ib)
{
	struct keel_home *home = kzalloc_obj(*home, GFP_KERNEL);

	if (!home)
		return -ENOMEM;
	home->kdev = to_kdev(ib);
	ib_set_client_data(ib, &keel_wire_client, home);
	keel_home_add(home);
	keel_cast_start(&home->kdev->cast);
	return 0;
}

static void keel_home_remove(struct keel_home *home)
{
	keel_home_del(home);
	keel_cast_stop(&home->kdev->cast);
	keel_links_remove(home->kdev);
	kfree(home);
}

static const struct keel_cm_ops *keel_lower_cm(const struct ib_device *ib)
{
	u32 port;

	rdma_for_each_port(ib, port)
		if (rdma_cap_ib_cm(ib, port))
			return &keel_cm_ib;
	return &keel_cm_iw;
}

/* Can its QPs and CQs have what a connection needs? */
static bool keel_lower_suffices(const struct ib_device *ib)
{
	return ib->attrs.max_send_sge >= 2 && ib->attrs.max_recv_sge >= 2 &&
	       ib->attrs.max_qp_wr >= max(KEEL_CONN_SENDS, KEEL_CONN_RECVS) &&
	       ib->attrs.max_cqe >= KEEL_CONN_SENDS + KEEL_CONN_RECVS;
}

/* End all connections over a device that no new one finds. */
static void keel_lower_end(struct keel_lower *lower)
{
	WRITE_ONCE(lower->lost, true);
	keel_links_lost();
	keel_homes_hurry();
	keel_lower_put(lower);
	/* The work of each link that uses it ends its connection now, and so on. */
	wait_for_completion(&lower->gone);
	ib_dealloc_pd(lower->pd);
}

static int keel_lower_new(struct ib_device *ib)
{
	struct keel_lower *lower = kzalloc_obj(*lower, GFP_KERNEL);
	int ret = 0;

	if (!lower)
		return -ENOMEM;
	lower->ib = ib;
	lower->cm = keel_lower_cm(ib);
	lower->signals = lower->cm == &keel_cm_iw;
	kref_init(&lower->ref);
	init_completion(&lower->gone);
	/* Without KEEL_IW_WAITS, handlers may run after their ID is gone. */
	if (!keel_lower_suffices(ib) || (lower->cm->by_netdev && !KEEL_IW_WAITS))
		ret = -EOPNOTSUPP;
	if (ret)
		goto err_lower;
	lower->pd = ib_alloc_pd(ib, 0);
	if (IS_ERR(lower->pd)) {
		ret = PTR_ERR(lower->pd);
		goto err_lower;
	}
	ret = lower->cm->listen(lower);
	if (ret)
		goto err_listen;
	ib_set_client_data(ib, &keel_wire_client, lower);
	keel_lower_add(lower);
	keel_homes_hurry();
	return 0;

err_listen:
	/* One of two listeners may have had requests by then: their connections end. */
	keel_lower_end(lower);
err_lower:
	kfree(lower);
	dev_warn(&ib->dev, "keel cannot use it for links: %pe\n", ERR_PTR(ret));
	return ret;
}

static void keel_lower_remove(struct keel_lower *lower)
{
	/* Waits for handlers: no request comes from here on. */
	lower->cm->unlisten(lower);
	keel_lower_del(lower);
	keel_lower_end(lower);
	kfree(lower);
}

static int keel_wire_add(struct ib_device *ib)
{
	if (ib->ops.driver_id == KEEL_RDMA_DRIVER)
		return keel_home_new(ib);
	return keel_lower_may(ib) ? keel_lower_new(ib) : -EOPNOTSUPP;
}

static void keel_wire_remove(struct ib_device *ib, void *data)
{
	if (ib->ops.driver_id == KEEL_RDMA_DRIVER)
		keel_home_remove(data);
	else
		keel_lower_remove(data);
}

static struct ib_client keel_wire_client = {
	.name = "keel_wire",
	.add = keel_wire_add,
	.remove = keel_wire_remove,
};

/**
 * keel_wire_init() - begin to use other RDMA devices
 * @ops: receive frames
 *
 * Nothing happens if no lower device is wanted.
 *
 * Return: 0 or a negative errno.
 */
int keel_wire_init(const struct keel_wire_ops *ops)
{
	int ret;

	if (!keel_wire_is_on())
		return 0;
	keel_links_init(keel_link_work);
	ret = keel_links_start(ops);
	if (ret)
		return ret;
	ret = keel_asleep_start();
	if (ret)
		goto err_links;
	ret = ib_register_client(&keel_wire_client);
	if (!ret)
		return 0;
	keel_asleep_stop();
err_links:
	keel_links_stop();
	return ret;
}

/**
 * keel_wire_exit() - undo keel_wire_init()
 */
void keel_wire_exit(void)
{
	if (!keel_wire_is_on())
		return;
	ib_unregister_client(&keel_wire_client);
	keel_asleep_stop();
	keel_links_stop();
}
