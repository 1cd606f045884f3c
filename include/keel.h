/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The device: its limits, its structure and the ops of its verbs.
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
#include "keel_counters.h"
#include "keel_domain.h"
#include "keel_keys.h"
#include "keel_mcast.h"
#include "keel_obj.h"
#include "keel_worker.h"

#define UVERBS_MODULE_NAME keel
#include <rdma/uverbs_named_ioctl.h>

/* Limits, as ibv_query_device() tells them. */
#define KEEL_MAX_PD	16384
#define KEEL_MAX_MR	65536
#define KEEL_MAX_MW	65536
#define KEEL_MAX_AH	65536
/* Limits that ibv_query_device() has no word for. */
#define KEEL_MAX_TD	16384
#define KEEL_MAX_XRCD	16384
#define KEEL_MAX_DM	65536
/* Each is given out once. */
#define KEEL_MAX_HANDLES	BIT_ULL(32)
#define KEEL_MAX_QP	16384
#define KEEL_MAX_CQ	16384
#define KEEL_MAX_SRQ	16384
/* Outstanding reads and atomics of a QP, each way. */
#define KEEL_MAX_RD_ATOM	128
#define KEEL_MAX_MCAST_GRP	1024
#define KEEL_MAX_MCAST_QP	256
/* ib_core keeps 0 for "none" of many things; kernel QPs know this lkey. */
#define KEEL_LOCAL_DMA_LKEY	0

/* The core's type for it. */
#define KEEL_RDMA_DRIVER	((enum rdma_driver_id)KEEL_DRIVER_ID)

/* A locally administered OUI: keel is nobody's product. */
#define KEEL_VENDOR_ID	0x026b65

#define KEEL_PORT	1
#define KEEL_GIDS	256
#define KEEL_PKEYS	1

/* No event. */
#define KEEL_EVENT_NONE	((enum ib_event_type)-1)

/**
 * struct keel_dev - a device
 * @ib: for ib_core
 * @reg: its objects
 * @keys: its lkeys and rkeys
 * @shpds: its shared-PD handles
 * @ap: its memory
 * @provider: what stands for @ap in transfers between devices, or NULL; good
 *	as long as the driver is bound, which is longer than the device
 * @qps: QPs by number
 * @qps_gone: how many were destroyed: who remembers one looks here
 * @qp_gens: how many lives QPs have had, see &keel_qp.gen
 * @srqs: SRQs by number
 * @next_qpn: where to look for the next number of a QP
 * @next_srqn: likewise for SRQs
 * @wq: runs queues that no doorbell runs: after a wait, of kernel consumers
 * @mcasts: multicast groups
 * @counters: per CPU
 * @own_netdev: a netdev that came with the device and goes with it, or NULL
 * @state: the page that says whether it has gone, &struct keel_uapi_state;
 *	contexts need it, and none is there while it changes
 * @port_event: of the port, the last one; under RTNL. KEEL_EVENT_NONE when the
 *	device comes: not under RTNL, but no program has it open yet
 * @debugfs: its directory
 */
struct keel_dev {
	struct ib_device ib;
	struct keel_registry reg;
	struct keel_keys keys;
	struct keel_shpds shpds;
	struct keel_aperture *ap;
	struct p2pdma_provider *provider;
	struct xarray qps;
	atomic64_t qps_gone;
	atomic64_t qp_gens;
	struct xarray srqs;
	u32 next_qpn;
	u32 next_srqn;
	struct workqueue_struct *wq;
	struct keel_mcasts mcasts;
	struct keel_counters __percpu *counters;
	struct net_device *own_netdev;
	struct page *state;
	enum ib_event_type port_event;
	struct dentry *debugfs;
};

/* Structures that ib_core allocates, each with a pointer at the object. */
struct keel_ib_ctx {
	struct ib_ucontext ib;
	/* The user that opened it. To create its objects then finds the user. */
	struct keel_user *user;
	/* Where the mappings of its file are; NULL while there was none. */
	struct address_space *mapping;
	struct keel_workers workers;
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

/* Each object's share of the ops and of the uverbs tree. */
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
