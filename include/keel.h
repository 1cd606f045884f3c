/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The device: its limits, its structure and its ops.
 */
#ifndef KEEL_H
#define KEEL_H

#include <linux/netdevice.h>
#include <rdma/ib_umem.h>
#include <rdma/ib_verbs.h>
#include <rdma/uverbs_ioctl.h>
#include <rdma/uverbs_types.h>

#include "compat.h"
#include "keel_aperture.h"
#include "keel_cast.h"
#include "keel_counters.h"
#include "keel_domain.h"
#include "keel_helpers.h"
#include "keel_keys.h"
#include "keel_mcast.h"
#include "keel_obj.h"
#include "keel_worker.h"

#define UVERBS_MODULE_NAME keel
#include <rdma/uverbs_named_ioctl.h>

/* Limits of other objects: limits.c. Each handle is issued once. */
#define KEEL_MAX_HANDLES	BIT_ULL(32)
/* Outstanding RDMA reads and atomics of a QP, in each direction. */
#define KEEL_MAX_RD_ATOM	128
#define KEEL_MAX_MCAST_GRP	1024
/* Links of a device to other hosts: one takes 0.8 MiB while it is connected, 2.8 with chunks. */
#define KEEL_MAX_LINKS		256
#define KEEL_MAX_MCAST_QP	256
/* ib_core often uses key 0 for "none". Only kernel QPs accept it, as an lkey. */
#define KEEL_LOCAL_DMA_LKEY	0

/* KEEL_DRIVER_ID, with the type that ib_core uses. */
#define KEEL_RDMA_DRIVER	((enum rdma_driver_id)KEEL_DRIVER_ID)

/* A locally administered OUI: keel is not the product of a vendor. */
#define KEEL_VENDOR_ID	0x026b65

#define KEEL_PORT	1
#define KEEL_GIDS	256
#define KEEL_PKEYS	1

/* No event. */
#define KEEL_EVENT_NONE	((enum ib_event_type)-1)

struct keel_srq;

/**
 * struct keel_dev - a device
 * @ib: for ib_core
 * @reg: its objects
 * @keys: its lkeys and rkeys
 * @shpds: its shared-PD handles
 * @xrcd_pins: file systems of XRC domains that were closed
 * @ap: its memory
 * @provider: represents @ap in transfers between devices, or NULL; valid while the
 *	driver is bound, which is longer than the device exists
 * @qps: QPs by number
 * @qps_destroyed: number of QPs destroyed so far; validates &keel_sq.peer
 * @qp_gens: the &keel_qp.gen that was assigned last
 * @srqs: SRQs by number
 * @serve: executes packets of other hosts for an SRQ: keel_far_serve(), which uses SRQs
 * @wq: runs QPs without a worker (kernel consumers, XRC_RECV) and QPs whose worker
 *	is dead; wakes the waiters of SRQs
 * @bar: device memory is a BAR, which nobody may use while the machine sleeps
 * @mcasts: multicast groups
 * @cast: multicast to and from other hosts
 * @counters: per CPU
 * @number: its number, which is a part of its GUID; none if negative
 * @own_netdev: a netdev that was created for the device and is destroyed with it,
 *	or NULL
 * @state: the page of &struct keel_uapi_state. Every context needs it; it is
 *	replaced only while there are no contexts.
 * @port_event: last event of the port; under RTNL. It is set to KEEL_EVENT_NONE
 *	without RTNL when the device is enabled, before a context can be opened.
 * @debugfs: its directory
 */
struct keel_dev {
	struct ib_device ib;
	struct keel_registry reg;
	struct keel_keys keys;
	struct keel_shpds shpds;
	struct keel_xrcd_pins xrcd_pins;
	struct keel_aperture *ap;
	struct p2pdma_provider *provider;
	struct keel_numbers qps;
	atomic64_t qps_destroyed;
	atomic64_t qp_gens;
	struct keel_numbers srqs;
	void (*serve)(struct keel_srq *srq);
	struct workqueue_struct *wq;
	bool bar;
	struct keel_mcasts mcasts;
	struct keel_cast cast;
	struct keel_counters __percpu *counters;
	int number;
	struct net_device *own_netdev;
	struct page *state;
	enum ib_event_type port_event;
	struct dentry *debugfs;
};

/* ib_core allocates this structure for each context. */
struct keel_ib_ctx {
	struct ib_ucontext ib;
	/* The user that opened it: creating objects then finds the user. */
	struct keel_user *user;
	/* Pages that small buffers share of the process that opened it. */
	struct keel_dm_pool *dm_pool;
	/* The mappings of its file; NULL until device memory is mapped. */
	struct address_space *mapping;
	/*
	 * They run queue pairs and raise events, and wait for no other process. A page
	 * of their own may come from a disk.
	 */
	struct keel_workers workers;
	/* They provide memory, and may wait for the owner of a dma-buf or for a disk. */
	struct keel_workers mem_workers;
	/* They help the first ones to copy. */
	struct keel_workers helpers[KEEL_HELPERS];
};

static inline struct keel_dev *to_kdev(struct ib_device *ib)
{
	return container_of(ib, struct keel_dev, ib);
}

static inline struct keel_ib_ctx *to_kctx(struct ib_ucontext *ib)
{
	return container_of(ib, struct keel_ib_ctx, ib);
}

static inline struct keel_workers *
keel_context_workers(const struct ib_ucontext *ib)
{
	return &to_kctx((struct ib_ucontext *)ib)->workers;
}

static inline struct keel_workers *
keel_context_helpers(const struct ib_ucontext *ib)
{
	return to_kctx((struct ib_ucontext *)ib)->helpers;
}

static inline struct keel_workers *
keel_context_mem_workers(const struct ib_ucontext *ib)
{
	return &to_kctx((struct ib_ucontext *)ib)->mem_workers;
}

/* The workers of the context of a call that creates an object. */
static inline struct keel_workers *keel_udata_workers(struct ib_udata *udata)
{
	return keel_context_workers(
		rdma_udata_to_uverbs_attr_bundle(udata)->context);
}

/* The ops and the uverbs definitions of each source file. */
extern const struct ib_device_ops keel_ah_ops;
extern const struct ib_device_ops keel_context_ops;
extern const struct ib_device_ops keel_counters_ops;
extern const struct ib_device_ops keel_cq_ops;
extern const struct ib_device_ops keel_dm_map_ops;
extern const struct ib_device_ops keel_dm_ops;
extern const struct ib_device_ops keel_removal_ops;
extern const struct ib_device_ops keel_mcast_ops;
extern const struct ib_device_ops keel_mr_kernel_ops;
extern const struct ib_device_ops keel_mr_dmabuf_ops;
extern const struct ib_device_ops keel_mr_odp_ops;
extern const struct ib_device_ops keel_mr_ops;
extern const struct ib_device_ops keel_mw_ops;
extern const struct ib_device_ops keel_pd_ops;
extern const struct ib_device_ops keel_port_ops;
extern const struct ib_device_ops keel_post_ops;
extern const struct ib_device_ops keel_qp_ops;
extern const struct ib_device_ops keel_srq_ops;
extern const struct ib_device_ops keel_xrcd_ops;

extern const struct uapi_definition keel_context_defs[];
extern const struct uapi_definition keel_dm_defs[];
extern const struct uapi_definition keel_dm_map_defs[];
extern const struct uapi_definition keel_pd_defs[];
extern const struct uapi_definition keel_qp_defs[];
extern const struct uapi_definition keel_shpd_defs[];
extern const struct uapi_definition keel_srq_defs[];
extern const struct uapi_definition keel_td_defs[];

#endif /* KEEL_H */
